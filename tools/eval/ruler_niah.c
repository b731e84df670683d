/* tools/eval/ruler_niah.c - needles in a haystack: keys with secret values, some of which are asked
 * for. */
#include <stdio.h>
#include <string.h>

#include "tools/eval/ruler.h"
#include "tools/eval/words.h"

typedef enum hay { NOISE, ESSAY, NEEDLES } hay;
typedef enum kind { WORD, NUMBER, UUID } kind;

static const struct variant {
    hay haystack;
    kind key, value;
    uint32_t n_keys, n_values, n_queries;
} variants[WEIR_NIAH_VARIANTS] = {
    [WEIR_NIAH_SINGLE_1] = { NOISE, WORD, NUMBER, 1, 1, 1 },
    [WEIR_NIAH_SINGLE_2] = { ESSAY, WORD, NUMBER, 1, 1, 1 },
    [WEIR_NIAH_SINGLE_3] = { ESSAY, WORD, UUID, 1, 1, 1 },
    [WEIR_NIAH_MULTIKEY_1] = { ESSAY, WORD, NUMBER, 4, 1, 1 },
    [WEIR_NIAH_MULTIKEY_2] = { NEEDLES, WORD, NUMBER, 1, 1, 1 },
    [WEIR_NIAH_MULTIKEY_3] = { NEEDLES, UUID, UUID, 1, 1, 1 },
    [WEIR_NIAH_MULTIVALUE] = { ESSAY, WORD, NUMBER, 1, 4, 1 },
    [WEIR_NIAH_MULTIQUERY] = { ESSAY, WORD, NUMBER, 4, 1, 4 },
    [WEIR_NIAH_GRID] = { ESSAY, WORD, NUMBER, 1, 1, 1 },
};

enum {
    MAX_KEYS = 4,
    MAX_VALUES = 4,
    MAX_NEEDLES = MAX_KEYS * MAX_VALUES,
    NAME = 64,
    SENTENCE = 256
};

typedef struct needles {
    const struct variant *variant;
    char keys[MAX_KEYS][NAME], values[MAX_NEEDLES][NAME];
    char sentences[MAX_NEEDLES][SENTENCE];
    uint32_t count;
} needles;

static void draw_name(char out[NAME], kind k, weir_eval_random *r)
{
    char uuid[WEIR_EVAL_UUID];
    switch (k) {
    case WORD: {
        const char *const adjective = weir_eval_adjective(r);
        (void)snprintf(out, NAME, "the %s %s", adjective, weir_eval_noun(r));
        return;
    }
    case NUMBER:
        (void)snprintf(out, NAME, "%u", 1000000 + weir_eval_random_below(r, 9000000));
        return;
    case UUID: weir_eval_uuid(uuid, r); (void)snprintf(out, NAME, "%s", uuid);
    }
}

/* Differs from the first n of the list. There are far more names than entries in any list, so this
 * ends. */
static void draw_other(char out[NAME], kind k, char (*list)[NAME], uint32_t n, weir_eval_random *r)
{
    bool is_new;
    do {
        draw_name(out, k, r);
        is_new = true;
        for (uint32_t i = 0; i < n; i++) is_new = is_new && strcmp(out, list[i]) != 0;
    } while (!is_new);
}

static const char *type_of(kind k) { return k == UUID ? "uuid" : "number"; }

static void state(char out[SENTENCE], const needles *all, const char *key, const char *value)
{
    (void)snprintf(
        out, SENTENCE, "The secret %s of %s is %s.", type_of(all->variant->value), key, value
    );
}

static void draw_needles(needles *all, weir_eval_random *r)
{
    const struct variant *const v = all->variant;
    for (uint32_t i = 0; i < v->n_keys; i++) {
        draw_other(all->keys[i], v->key, all->keys, i, r);
        for (uint32_t j = 0; j < v->n_values; j++) {
            draw_other(all->values[all->count], v->value, all->values, all->count, r);
            state(all->sentences[all->count], all, all->keys[i], all->values[all->count]);
            all->count++;
        }
    }
}

/* Lines, with the needles at random places. */
static weir_status put_lines(weir_buffer *out, needles *all, uint32_t n_lines, weir_eval_random *r)
{
    uint32_t at[MAX_NEEDLES];
    weir_eval_random_sample(r, at, all->count, n_lines);
    for (uint32_t line = 0; line < n_lines; line++) {
        const char *text = weir_eval_noise;
        char distractor[SENTENCE], key[NAME], value[NAME];
        for (uint32_t i = 0; i < all->count; i++)
            /* NOLINTNEXTLINE(clang-analyzer-core.*): the sample fills `count` of them */
            if (at[i] == line) text = all->sentences[i];
        if (text == weir_eval_noise && all->variant->haystack == NEEDLES) {
            draw_other(key, all->variant->key, all->keys, all->variant->n_keys, r);
            draw_other(value, all->variant->value, all->values, all->count, r);
            state(distractor, all, key, value);
            text = distractor;
        }
        WEIR_TRY(weir_buffer_format(out, "%s%s", line > 0 ? "\n" : "", text));
    }
    return WEIR_OK;
}

/* Depths are drawn from 40 even ones from 0 to 100 percent, each once. */
static weir_status put_essay(
    weir_eval_item *out, needles *all, const weir_eval_setting *setting, const weir_eval_task *task,
    int32_t sample, int32_t n_words, weir_eval_random *r
)
{
    enum { DEPTHS = 40 };
    uint32_t depths[MAX_NEEDLES];
    const char *texts[MAX_NEEDLES];
    weir_eval_random_sample(r, depths, all->count, DEPTHS);
    for (uint32_t i = 0; i < all->count; i++) {
        depths[i] = (depths[i] * 200 + DEPTHS - 1) / (2 * (DEPTHS - 1));
        texts[i] = all->sentences[i];
    }
    if (task->variant == WEIR_NIAH_GRID) {
        out->depth = sample % WEIR_NIAH_DEPTHS * (100 / (WEIR_NIAH_DEPTHS - 1));
        depths[0] = (uint32_t)out->depth;
    }
    return weir_eval_essay_print(
        &out->context, setting->essay, 0, (size_t)n_words, texts, depths, all->count
    );
}

/* "a", "a and b", "a, b, and c". */
static weir_status put_list(
    weir_buffer *out, char (*names)[NAME], const uint32_t *which, uint32_t n
)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *const before = i == 0 ? "" : i + 1 < n ? ", " : n == 2 ? " and " : ", and ";
        WEIR_TRY(weir_buffer_format(out, "%s%s", before, names[which[i]]));
    }
    return WEIR_OK;
}

static weir_status put_question(weir_eval_item *out, needles *all, weir_eval_random *r)
{
    const struct variant *const v = all->variant;
    const char *const type = type_of(v->value), *const plural =
                                                    v->n_queries * v->n_values > 1 ? "s" : "";
    uint32_t asked[MAX_KEYS];
    weir_eval_random_sample(r, asked, v->n_queries, v->n_keys);
    if (v->n_values > 1)
        WEIR_TRY(weir_buffer_format(&out->question, "List every secret %s of ", type));
    else
        WEIR_TRY(weir_buffer_format(
            &out->question, "What %s the secret %s%s of ", *plural != '\0' ? "are" : "is", type,
            plural
        ));
    WEIR_TRY(put_list(&out->question, all->keys, asked, v->n_queries));
    WEIR_TRY(weir_buffer_text(&out->question, v->n_values > 1 ? "." : "?"));
    WEIR_TRY(weir_buffer_format(&out->prefix, "The secret %s%s of ", type, plural));
    WEIR_TRY(put_list(&out->prefix, all->keys, asked, v->n_queries));
    WEIR_TRY(weir_buffer_text(&out->prefix, *plural != '\0' ? " are" : " is"));
    for (uint32_t i = 0; i < v->n_queries; i++)
        for (uint32_t j = 0; j < v->n_values; j++)
            WEIR_TRY(weir_eval_item_answer(out, all->values[asked[i] * v->n_values + j]));
    return WEIR_OK;
}

weir_status weir_niah_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
)
{
    needles all = { .variant = &variants[task->variant] };
    (void)error;
    draw_needles(&all, r);
    WEIR_TRY(put_question(out, &all, r));
    WEIR_TRY(weir_buffer_text(
        &out->context,
        all.count > 1 || all.variant->haystack == NEEDLES
            ? "The text below holds secrets. Remember them: you will be asked about some.\n\n"
            : "The text below holds a secret. Remember it: you will be asked about it.\n\n"
    ));
    if (all.variant->haystack == ESSAY)
        return put_essay(out, &all, setting, task, sample, n_units, r);
    return put_lines(&out->context, &all, (uint32_t)n_units, r);
}

/* Short contexts use smaller steps, also for essays, which the original cuts in steps of 500 words
 * at any length. */
void weir_niah_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
)
{
    const bool is_short = setting->length < WEIR_EVAL_SHORT;
    *out = (weir_eval_units){ .least = 2, .step = is_short ? 5 : 25, .most = setting->length };
    if (variants[task->variant].haystack == ESSAY)
        *out =
            (weir_eval_units){ .least = 10, .step = is_short ? 10 : 500, .most = setting->length };
}
