/* tools/convert/types.c - the mixes of llama.cpp's llama-quantize by their names: matrices on which
 * a model depends more than on others have more bits. The tables are facts of its releases
 * (docs/quantisation.md). */
#include "tools/convert/types.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* What a name stands for; several names may be one mix. */
static const struct {
    const char *name;
    weir_dtype base;
    uint32_t file_type;
} mixes[] = {
    { "f32", WEIR_F32, 0 },          { "f16", WEIR_F16, 1 },        { "bf16", WEIR_BF16, 32 },
    { "q8_0", WEIR_Q8_0, 7 },        { "q4_0", WEIR_Q4_0, 2 },      { "q4_1", WEIR_Q4_1, 3 },
    { "q5_0", WEIR_Q5_0, 8 },        { "q5_1", WEIR_Q5_1, 9 },      { "q2_k", WEIR_Q2_K, 10 },
    { "q2_k_s", WEIR_Q2_K, 21 },     { "q3_k_s", WEIR_Q3_K, 11 },   { "q3_k_m", WEIR_Q3_K, 12 },
    { "q3_k_l", WEIR_Q3_K, 13 },     { "q3_k", WEIR_Q3_K, 12 },     { "q4_k_s", WEIR_Q4_K, 14 },
    { "q4_k_m", WEIR_Q4_K, 15 },     { "q4_k", WEIR_Q4_K, 15 },     { "q5_k_s", WEIR_Q5_K, 16 },
    { "q5_k_m", WEIR_Q5_K, 17 },     { "q5_k", WEIR_Q5_K, 17 },     { "q6_k", WEIR_Q6_K, 18 },
    { "iq4_nl", WEIR_IQ4_NL, 25 },   { "iq4_xs", WEIR_IQ4_XS, 30 }, { "iq3_m", WEIR_IQ3_S, 27 },
    { "iq3_s", WEIR_IQ3_S, 26 },     { "iq3_xs", WEIR_IQ3_S, 22 },  { "iq3_xxs", WEIR_IQ3_XXS, 23 },
    { "iq2_m", WEIR_IQ2_S, 29 },     { "iq2_s", WEIR_IQ2_XS, 28 },  { "iq2_xs", WEIR_IQ2_XS, 20 },
    { "iq2_xxs", WEIR_IQ2_XXS, 19 }, { "iq1_m", WEIR_IQ1_M, 31 },   { "iq1_s", WEIR_IQ1_S, 24 },
    { "tq1_0", WEIR_TQ1_0, 36 },     { "tq2_0", WEIR_TQ2_0, 37 },   { "mxfp4", WEIR_MXFP4, 38 },
    { "nvfp4", WEIR_NVFP4, 39 },     { "q1_0", WEIR_Q1_0, 40 },     { "q2_0", WEIR_Q2_0, 41 },
};

static const char names[] = "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q2_k_s, q3_k_s, "
                            "q3_k_m, q3_k_l, q4_k_s, q4_k_m, q5_k_s, q5_k_m, q6_k, iq4_nl, "
                            "iq4_xs, iq3_m, iq3_s, iq3_xs, iq3_xxs, iq2_m, iq2_s, iq2_xs, "
                            "iq2_xxs, iq1_m, iq1_s, tq1_0, tq2_0, mxfp4, nvfp4, q1_0, q2_0";

/* Numbers of general.file_type that rules name, and sets of them. */
enum {
    Q4_0 = 2,
    Q5_0 = 8,
    Q2_K = 10,
    Q3_K_S = 11,
    Q3_K_M = 12,
    Q3_K_L = 13,
    Q4_K_S = 14,
    Q4_K_M = 15,
    Q5_K_M = 17,
    IQ2_XXS = 19,
    IQ2_XS = 20,
    Q2_K_S = 21,
    IQ3_XS = 22,
    IQ3_XXS = 23,
    IQ1_S = 24,
    IQ4_NL = 25,
    IQ3_S = 26,
    IQ3_M = 27,
    IQ2_S = 28,
    IQ2_M = 29,
    IQ4_XS = 30,
    IQ1_M = 31,
    TQ1_0 = 36,
    TQ2_0 = 37,
    MXFP4 = 38,
    Q2_0 = 41,
};
#define SET(type) (UINT64_C(1) << (type))
#define IQ1 (SET(IQ1_S) | SET(IQ1_M))
#define IQ2_SMALL (SET(IQ2_XXS) | SET(IQ2_XS))
#define IQ2_LARGE (SET(IQ2_S) | SET(IQ2_M))
#define IQ1_IQ2 (IQ1 | IQ2_SMALL | IQ2_LARGE)

weir_status weir_mix_find(weir_mix *out, const char *name, bool is_pure, weir_error *error)
{
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++) {
        if (strcmp(mixes[i].name, name) != 0) continue;
        *out = (weir_mix){ .name = mixes[i].name,
                           .base = mixes[i].base,
                           .is_pure = is_pure,
                           .file_type = mixes[i].file_type };
        /* The mix iq2_s is of iq2_xs for the most part. */
        if (is_pure && out->file_type == IQ2_S) out->base = WEIR_IQ2_S;
        return WEIR_OK;
    }
    return weir_error_set(error, WEIR_ECONFIG, "--type \"%.40s\" is none of %s", name, names);
}

/* ---- rules ----------------------------------------------------------------------------------- */
typedef enum role {
    VALUES,
    KEYS,
    QUERIES,
    ATTENTION_OUT,
    UP, /* and gates */
    DOWN,
    EMBEDDING,
    OTHER,
} role;

typedef enum place {
    EVERYWHERE,
    FIRST_TWO,
    FIRST_FOUR,
    FIRST_SIXTEENTH, /* of the layers */
    FIRST_EIGHTH,
    INNER, /* all but the first and last eighth */
    OUTER, /* the first and last eighth, and every third between */
} place;

typedef enum condition {
    ALWAYS,
    GROUPED, /* at least 4 query heads of a KV head */
    PLAIN, /* no importance matrix */
    WEIGHTED, /* with one */
    SOME_EXPERTS, /* at least 4 */
    EIGHT_EXPERTS,
} condition;

typedef struct rule {
    uint64_t mixes; /* a set of general.file_type */
    role role;
    place place;
    condition when;
    weir_dtype type;
} rule;

/* The first that fits counts. */
static const rule rules[] = {
    { SET(Q4_0), DOWN, FIRST_EIGHTH, WEIGHTED, WEIR_Q4_1 },
    { SET(Q5_0), DOWN, FIRST_EIGHTH, WEIGHTED, WEIR_Q5_1 },
    { SET(Q2_K), VALUES, EVERYWHERE, GROUPED, WEIR_Q4_K },
    { SET(Q2_K), VALUES, EVERYWHERE, ALWAYS, WEIR_Q3_K },
    { SET(Q2_K), DOWN, EVERYWHERE, ALWAYS, WEIR_Q3_K },
    { SET(Q2_K), ATTENTION_OUT, EVERYWHERE, ALWAYS, WEIR_Q3_K },
    { SET(Q2_K_S), VALUES, EVERYWHERE, GROUPED, WEIR_Q4_K },
    { SET(Q2_K_S), DOWN, FIRST_EIGHTH, ALWAYS, WEIR_Q4_K },
    { SET(Q3_K_M), VALUES, FIRST_TWO, ALWAYS, WEIR_Q5_K },
    { SET(Q3_K_M), VALUES, EVERYWHERE, ALWAYS, WEIR_Q4_K },
    { SET(Q3_K_M), DOWN, FIRST_SIXTEENTH, ALWAYS, WEIR_Q5_K },
    { SET(Q3_K_M), DOWN, EVERYWHERE, ALWAYS, WEIR_Q4_K },
    { SET(Q3_K_M), ATTENTION_OUT, EVERYWHERE, ALWAYS, WEIR_Q4_K },
    { SET(Q3_K_L), VALUES, EVERYWHERE, ALWAYS, WEIR_Q5_K },
    { SET(Q3_K_L), DOWN, EVERYWHERE, ALWAYS, WEIR_Q5_K },
    { SET(Q3_K_L), ATTENTION_OUT, EVERYWHERE, ALWAYS, WEIR_Q5_K },
    { SET(Q4_K_S), VALUES, FIRST_FOUR, ALWAYS, WEIR_Q5_K },
    { SET(Q4_K_S), DOWN, FIRST_EIGHTH, ALWAYS, WEIR_Q5_K },
    { SET(Q4_K_M) | SET(Q5_K_M), VALUES, OUTER, ALWAYS, WEIR_Q6_K },
    { SET(Q4_K_M) | SET(Q5_K_M), DOWN, OUTER, ALWAYS, WEIR_Q6_K },
    { SET(IQ4_NL) | SET(IQ4_XS), VALUES, EVERYWHERE, GROUPED, WEIR_Q5_K },
    { SET(IQ4_NL) | SET(IQ4_XS), DOWN, FIRST_EIGHTH, PLAIN, WEIR_Q5_K },
    { SET(IQ3_M), VALUES, EVERYWHERE, ALWAYS, WEIR_Q4_K },
    { SET(IQ3_M), DOWN, FIRST_EIGHTH, ALWAYS, WEIR_Q4_K },
    { SET(IQ3_M), DOWN, OUTER, EIGHT_EXPERTS, WEIR_Q4_K },
    { SET(IQ3_M), ATTENTION_OUT, EVERYWHERE, ALWAYS, WEIR_Q4_K },
    { SET(IQ3_S) | SET(IQ3_XS) | SET(IQ3_XXS), VALUES, EVERYWHERE, GROUPED, WEIR_Q4_K },
    { SET(IQ3_XS), KEYS, EVERYWHERE, ALWAYS, WEIR_IQ3_XXS },
    { SET(IQ3_XS), QUERIES, EVERYWHERE, ALWAYS, WEIR_IQ3_XXS },
    { SET(IQ3_XS), UP, INNER, ALWAYS, WEIR_IQ3_XXS },
    { SET(IQ3_XXS), VALUES, EVERYWHERE, PLAIN, WEIR_IQ3_S },
    { SET(IQ3_XXS), KEYS, EVERYWHERE, ALWAYS, WEIR_IQ2_S },
    { SET(IQ3_XXS), QUERIES, EVERYWHERE, ALWAYS, WEIR_IQ2_S },
    { SET(IQ3_XXS), DOWN, FIRST_EIGHTH, PLAIN, WEIR_Q4_K },
    { SET(IQ3_XXS), DOWN, EVERYWHERE, PLAIN, WEIR_Q3_K },
    { SET(IQ3_XXS), ATTENTION_OUT, EVERYWHERE, ALWAYS, WEIR_IQ3_S },
    { SET(IQ3_XXS) | IQ2_LARGE, EMBEDDING, EVERYWHERE, ALWAYS, WEIR_IQ3_S },
    { IQ1 | IQ2_SMALL, EMBEDDING, EVERYWHERE, ALWAYS, WEIR_Q2_K },
    { IQ1_IQ2, VALUES, EVERYWHERE, GROUPED, WEIR_Q4_K },
    { IQ1_IQ2, VALUES, EVERYWHERE, SOME_EXPERTS, WEIR_Q4_K },
    { IQ1_IQ2, KEYS, EVERYWHERE, EIGHT_EXPERTS, WEIR_Q4_K },
    { IQ1_IQ2, ATTENTION_OUT, EVERYWHERE, EIGHT_EXPERTS, WEIR_Q5_K },
    { IQ2_LARGE, VALUES, EVERYWHERE, ALWAYS, WEIR_IQ3_S },
    { IQ2_LARGE, DOWN, FIRST_EIGHTH, ALWAYS, WEIR_IQ3_S },
    { IQ2_LARGE, ATTENTION_OUT, EVERYWHERE, ALWAYS, WEIR_IQ3_S },
    { IQ1 | IQ2_SMALL, VALUES, EVERYWHERE, ALWAYS, WEIR_Q2_K },
    { IQ1 | IQ2_SMALL, DOWN, FIRST_EIGHTH, ALWAYS, WEIR_Q2_K },
    { IQ1, ATTENTION_OUT, EVERYWHERE, ALWAYS, WEIR_IQ2_XXS },
    { SET(TQ1_0) | SET(TQ2_0) | SET(Q2_0), EMBEDDING, EVERYWHERE, ALWAYS, WEIR_Q4_K },
};

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

static role role_of(const char *name)
{
    static const struct {
        const char *part;
        role role;
    } parts[] = { { "token_embd.weight", EMBEDDING },
                  { "attn_qkv.weight", VALUES },
                  { "attn_kv_b.weight", VALUES },
                  { "attn_v.weight", VALUES },
                  { "attn_k.weight", KEYS },
                  { "attn_q.weight", QUERIES },
                  { "attn_output.weight", ATTENTION_OUT },
                  { "ffn_up", UP },
                  { "ffn_gate", UP },
                  { "ffn_down", DOWN } };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (has(name, parts[i].part)) return parts[i].role;
    return OTHER;
}

static bool is_at(place where, int64_t layer, int64_t n)
{
    switch (where) {
    case EVERYWHERE: return true;
    case FIRST_TWO: return layer < 2;
    case FIRST_FOUR: return layer < 4;
    case FIRST_SIXTEENTH: return layer < n / 16;
    case FIRST_EIGHTH: return layer < n / 8;
    case INNER: return layer >= n / 8 && layer < 7 * n / 8;
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

static bool is_when(condition when, const weir_mix *mix, const weir_typed *t)
{
    switch (when) {
    case ALWAYS: return true;
    case GROUPED: return t->n_grouped >= 4;
    case PLAIN: return !mix->has_importance;
    case WEIGHTED: return mix->has_importance;
    case SOME_EXPERTS: return t->n_experts >= 4;
    case EIGHT_EXPERTS: return t->n_experts == 8;
    }
    return false;
}

/* Models of eight experts have few bytes in attention. */
static bool with_eight_experts(const weir_mix *mix, const weir_typed *t, weir_dtype *out)
{
    static const uint64_t small = SET(Q2_K) | SET(Q3_K_S) | SET(Q3_K_M) | SET(Q4_K_S) |
                                  SET(Q4_K_M) | SET(IQ4_NL) | SET(IQ4_XS) | SET(IQ3_XXS) |
                                  SET(IQ3_XS) | SET(IQ3_S) | SET(IQ3_M);
    const role own = role_of(t->name);
    if (t->n_experts != 8 || (SET(mix->file_type) & IQ1_IQ2) != 0) return false;
    if (own == VALUES || own == KEYS) *out = WEIR_Q8_0;
    if (own == ATTENTION_OUT && (SET(mix->file_type) & small) != 0) *out = WEIR_Q5_K;
    return own == VALUES || own == KEYS || own == ATTENTION_OUT;
}

static weir_dtype by_rules(const weir_mix *mix, const weir_typed *t)
{
    const role own = role_of(t->name);
    weir_dtype out = mix->base;
    if (with_eight_experts(mix, t, &out)) return out;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const rule *const r = &rules[i];
        if ((r->mixes & SET(mix->file_type)) != 0 && r->role == own && is_when(r->when, mix, t) &&
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
    if (mix->base == WEIR_Q8_0 || t->n_in % weir_dtype_of(mix->base).block_elements != 0)
        return WEIR_Q8_0;
    return (SET(mix->file_type) & (IQ1_IQ2 | SET(IQ3_XXS))) != 0 ? WEIR_Q5_K : WEIR_Q6_K;
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
    case WEIR_IQ1_S:
    case WEIR_IQ1_M:
    case WEIR_IQ2_XXS:
    case WEIR_IQ2_XS:
    case WEIR_IQ2_S:
    case WEIR_IQ3_XXS:
    case WEIR_IQ3_S:
    case WEIR_NVFP4:
    case WEIR_IQ4_XS: return WEIR_IQ4_NL;
    case WEIR_TQ1_0:
    case WEIR_TQ2_0:
    case WEIR_Q1_0:
    case WEIR_Q2_0:
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

bool weir_needs_importance(weir_dtype type, const char *name)
{
    static const weir_dtype types[] = { WEIR_IQ1_S,  WEIR_IQ1_M, WEIR_IQ2_XXS,
                                        WEIR_IQ2_XS, WEIR_IQ2_S, WEIR_IQ3_XXS };
    if (role_of(name) == EMBEDDING || strcmp(name, "output.weight") == 0) return false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i] == type) return true;
    return false;
}
