/* tools/convert/types.c - the mixes of llama.cpp's llama-quantize by their names: matrices on which
 * a model depends more than on others have more bits. The tables are facts of its releases
 * (docs/quantisation.md). */
#include "tools/convert/types.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* What a name stands for; several names may be one mix. */
static const weir_mix mixes[] = {
    { "f32", WEIR_F32, false, 0 },        { "f16", WEIR_F16, false, 1 },
    { "bf16", WEIR_BF16, false, 32 },     { "q8_0", WEIR_Q8_0, false, 7 },
    { "q4_0", WEIR_Q4_0, false, 2 },      { "q4_1", WEIR_Q4_1, false, 3 },
    { "q5_0", WEIR_Q5_0, false, 8 },      { "q5_1", WEIR_Q5_1, false, 9 },
    { "q2_k", WEIR_Q2_K, false, 10 },     { "q2_k_s", WEIR_Q2_K, false, 21 },
    { "q3_k_s", WEIR_Q3_K, false, 11 },   { "q3_k_m", WEIR_Q3_K, false, 12 },
    { "q3_k_l", WEIR_Q3_K, false, 13 },   { "q3_k", WEIR_Q3_K, false, 12 },
    { "q4_k_s", WEIR_Q4_K, false, 14 },   { "q4_k_m", WEIR_Q4_K, false, 15 },
    { "q4_k", WEIR_Q4_K, false, 15 },     { "q5_k_s", WEIR_Q5_K, false, 16 },
    { "q5_k_m", WEIR_Q5_K, false, 17 },   { "q5_k", WEIR_Q5_K, false, 17 },
    { "q6_k", WEIR_Q6_K, false, 18 },     { "iq4_nl", WEIR_IQ4_NL, false, 25 },
    { "iq4_xs", WEIR_IQ4_XS, false, 30 }, { "mxfp4", WEIR_MXFP4, false, 38 },
};

static const char names[] = "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q2_k_s, q3_k_s, "
                            "q3_k_m, q3_k_l, q4_k_s, q4_k_m, q5_k_s, q5_k_m, q6_k, iq4_nl, "
                            "iq4_xs, mxfp4";

/* Numbers of general.file_type that rules name. */
enum {
    Q2_K = 10,
    Q3_K_S = 11,
    Q3_K_M = 12,
    Q3_K_L = 13,
    Q4_K_S = 14,
    Q4_K_M = 15,
    Q5_K_M = 17,
    Q2_K_S = 21,
    IQ4_NL = 25,
    IQ4_XS = 30,
    MXFP4 = 38,
};

weir_status weir_mix_find(weir_mix *out, const char *name, bool is_pure, weir_error *error)
{
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++) {
        if (strcmp(mixes[i].name, name) != 0) continue;
        *out = mixes[i];
        out->is_pure = is_pure;
        return WEIR_OK;
    }
    return weir_error_set(error, WEIR_ECONFIG, "--type \"%.40s\" is none of %s", name, names);
}

/* ---- rules ----------------------------------------------------------------------------------- */
typedef enum role { VALUES, DOWN, ATTENTION_OUT, OTHER } role;

typedef enum place {
    EVERYWHERE,
    FIRST_TWO,
    FIRST_FOUR,
    FIRST_SIXTEENTH, /* of the layers */
    FIRST_EIGHTH,
    OUTER, /* the first and last eighth, and every third between */
} place;

typedef struct rule {
    uint32_t mix; /* general.file_type */
    role role;
    place place;
    int least_grouped; /* query heads of a KV head */
    weir_dtype type;
} rule;

/* The first that fits counts. */
static const rule rules[] = {
    { Q2_K, VALUES, EVERYWHERE, 4, WEIR_Q4_K },
    { Q2_K, VALUES, EVERYWHERE, 0, WEIR_Q3_K },
    { Q2_K, DOWN, EVERYWHERE, 0, WEIR_Q3_K },
    { Q2_K, ATTENTION_OUT, EVERYWHERE, 0, WEIR_Q3_K },
    { Q2_K_S, VALUES, EVERYWHERE, 4, WEIR_Q4_K },
    { Q2_K_S, DOWN, FIRST_EIGHTH, 0, WEIR_Q4_K },
    { Q3_K_M, VALUES, FIRST_TWO, 0, WEIR_Q5_K },
    { Q3_K_M, VALUES, EVERYWHERE, 0, WEIR_Q4_K },
    { Q3_K_M, DOWN, FIRST_SIXTEENTH, 0, WEIR_Q5_K },
    { Q3_K_M, DOWN, EVERYWHERE, 0, WEIR_Q4_K },
    { Q3_K_M, ATTENTION_OUT, EVERYWHERE, 0, WEIR_Q4_K },
    { Q3_K_L, VALUES, EVERYWHERE, 0, WEIR_Q5_K },
    { Q3_K_L, DOWN, EVERYWHERE, 0, WEIR_Q5_K },
    { Q3_K_L, ATTENTION_OUT, EVERYWHERE, 0, WEIR_Q5_K },
    { Q4_K_S, VALUES, FIRST_FOUR, 0, WEIR_Q5_K },
    { Q4_K_S, DOWN, FIRST_EIGHTH, 0, WEIR_Q5_K },
    { Q4_K_M, VALUES, OUTER, 0, WEIR_Q6_K },
    { Q4_K_M, DOWN, OUTER, 0, WEIR_Q6_K },
    { Q5_K_M, VALUES, OUTER, 0, WEIR_Q6_K },
    { Q5_K_M, DOWN, OUTER, 0, WEIR_Q6_K },
    { IQ4_NL, VALUES, EVERYWHERE, 4, WEIR_Q5_K },
    { IQ4_NL, DOWN, FIRST_EIGHTH, 0, WEIR_Q5_K },
    { IQ4_XS, VALUES, EVERYWHERE, 4, WEIR_Q5_K },
    { IQ4_XS, DOWN, FIRST_EIGHTH, 0, WEIR_Q5_K },
};

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

static role role_of(const char *name)
{
    if (has(name, "attn_v.weight") || has(name, "attn_qkv.weight") || has(name, "attn_kv_b.weight"))
        return VALUES;
    if (has(name, "ffn_down")) return DOWN;
    return has(name, "attn_output.weight") ? ATTENTION_OUT : OTHER;
}

static bool is_at(place where, int64_t layer, int64_t n)
{
    switch (where) {
    case EVERYWHERE: return true;
    case FIRST_TWO: return layer < 2;
    case FIRST_FOUR: return layer < 4;
    case FIRST_SIXTEENTH: return layer < n / 16;
    case FIRST_EIGHTH: return layer < n / 8;
    case OUTER: return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    }
    return false;
}

/* The layer of blk.N.; 0 elsewhere. */
static int64_t layer_of(const char *name)
{
    long long layer = 0;
    return sscanf(name, "blk.%lld.", &layer) == 1 && layer >= 0 ? layer : 0;
}

/* Models of eight experts have few bytes in attention. */
static bool with_eight_experts(const weir_mix *mix, const weir_typed *t, weir_dtype *out)
{
    static const uint32_t small[] = { Q2_K, Q3_K_S, Q3_K_M, Q4_K_S, Q4_K_M, IQ4_NL, IQ4_XS };
    if (t->n_experts != 8) return false;
    if (role_of(t->name) == VALUES || has(t->name, "attn_k.weight")) {
        *out = WEIR_Q8_0;
        return true;
    }
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        if (mix->file_type != small[i] || role_of(t->name) != ATTENTION_OUT) continue;
        *out = WEIR_Q5_K;
        return true;
    }
    return role_of(t->name) == ATTENTION_OUT;
}

static weir_dtype by_rules(const weir_mix *mix, const weir_typed *t)
{
    const role own = role_of(t->name);
    weir_dtype out = mix->base;
    if (with_eight_experts(mix, t, &out)) return out;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const rule *const r = &rules[i];
        if (r->mix == mix->file_type && r->role == own && t->n_grouped >= r->least_grouped &&
            is_at(r->place, layer_of(t->name), t->n_layers))
            return r->type;
    }
    return out;
}

/* The matrix of logits, also where it is the embedding. */
static bool is_output(const weir_typed *t)
{
    return strcmp(t->name, "output.weight") == 0 ||
           (t->is_tied && strcmp(t->name, "token_embd.weight") == 0);
}

static weir_dtype of_mix(const weir_mix *mix, const weir_typed *t)
{
    const bool is_expert = has(t->name, "_exps.");
    if (mix->is_pure || !weir_dtype_of(mix->base).quantised) return mix->base;
    if (mix->file_type == MXFP4) return is_expert ? WEIR_MXFP4 : WEIR_Q8_0;
    if (!is_output(t)) return by_rules(mix, t);
    return mix->base == WEIR_Q8_0 || t->n_in % weir_dtype_of(mix->base).block_elements != 0
               ? WEIR_Q8_0
               : WEIR_Q6_K;
}

bool weir_stays_plain(const weir_typed *t)
{
    static const char *const plain[] = { "_norm.weight",          "ffn_gate_inp", "ssm_conv1d",
                                         "shortconv.conv.weight", "rope_freqs",   "rope_factors" };
    const size_t length = strlen(t->name);
    if (t->n_dims < 2 || length < 6 || strcmp(t->name + length - 6, "weight") != 0) return true;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (has(t->name, plain[i])) return true;
    return false;
}

/* A type of smaller blocks for rows that are not whole blocks of this one. */
static weir_dtype with_smaller_blocks(weir_dtype type)
{
    switch (type) {
    case WEIR_IQ4_XS: return WEIR_IQ4_NL;
    case WEIR_Q2_K:
    case WEIR_Q3_K: return WEIR_Q4_0;
    case WEIR_Q4_K: return WEIR_Q5_0;
    case WEIR_Q5_K: return WEIR_Q5_1;
    case WEIR_Q6_K: return WEIR_Q8_0;
    default: return WEIR_F16;
    }
}

weir_dtype weir_mix_type(const weir_mix *mix, const weir_typed *t)
{
    if (weir_stays_plain(t)) return WEIR_F32;
    if (weir_dtype_of(mix->base).quantised && has(t->name, "per_layer_model_proj"))
        return WEIR_F16; /* small, and read by all layers */
    weir_dtype type = of_mix(mix, t);
    while (t->n_in % weir_dtype_of(type).block_elements != 0) type = with_smaller_blocks(type);
    return type;
}
