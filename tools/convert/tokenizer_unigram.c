/* tools/convert/tokenizer_unigram.c - unigram vocabularies: scores, and how sentencepiece's
 * normalizer does what the steps of tokenizer.json do. */
#include <math.h>
#include <string.h>

#include "tools/convert/vocabulary.h"

/* ---- tokens ---------------------------------------------------------------------------------- */

static const json_t *model_of(const vocabulary *v) { return json_object_get(v->root, "model"); }

weir_status weir_set_unigram(vocabulary *v)
{
    const bool has_bytes = json_is_true(json_object_get(model_of(v), "byte_fallback"));
    size_t i;
    const json_t *entry;
    v->unknown = json_integer_value(json_object_get(model_of(v), "unk_id"));
    json_array_foreach(json_object_get(model_of(v), "vocab"), i, entry)
    {
        const json_t *const name = json_array_get(entry, 0);
        const char *const text = json_string_value(name);
        const size_t length = json_string_length(name);
        int32_t type = NORMAL;
        if (has_bytes && weir_is_byte_name(text, length)) type = BYTE;
        if ((int64_t)i == v->unknown) type = UNKNOWN;
        WEIR_TRY(weir_set_token(v, (int64_t)i, text, length, type));
    }
    return WEIR_OK;
}

/* After added tokens, which may be pieces, too. */
static weir_status set_scores(const vocabulary *v)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(model_of(v), "vocab"), i, entry)
    {
        const float score = (float)json_number_value(json_array_get(entry, 1));
        if (!isfinite(score))
            return weir_error_set(
                v->error, WEIR_EUNSUPPORTED, "the score of the piece '%.64s' is no number in f32",
                v->tokens[i].name
            );
        v->tokens[i].score = score;
    }
    return WEIR_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *const text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* What the steps say that GGUF has keys for. */
typedef struct steps {
    bool removes_spaces, splits;
} steps;

static weir_status read_pre(const vocabulary *v, steps *out, const json_t *component)
{
    const char *const type = text_of(component, "type");
    size_t i;
    const json_t *part;
    if (!json_is_object(component)) return WEIR_OK;
    json_array_foreach(json_object_get(component, "pretokenizers"), i, part)
        WEIR_TRY(read_pre(v, out, part)); /* NOLINT(misc-no-recursion) */
    if (strcmp(type, "Sequence") == 0) return WEIR_OK;
    if (strcmp(type, "WhitespaceSplit") == 0) {
        out->removes_spaces = out->splits = true;
        return WEIR_OK;
    }
    if (strcmp(type, "Metaspace") != 0)
        return weir_error_set(
            v->error, WEIR_EUNSUPPORTED,
            "tokenizer.json has the pre-tokenizer %.64s, which GGUF cannot say for pieces; "
            "--no-tokenizer leaves the tokenizer out",
            type
        );
    out->splits = out->splits || !json_is_false(json_object_get(component, "split"));
    if (strcmp(text_of(component, "prepend_scheme"), "first") == 0)
        return weir_error_set(
            v->error, WEIR_EUNSUPPORTED,
            "tokenizer.json puts a space in front of the whole text only (prepend_scheme first), "
            "GGUF also behind each control token; --no-tokenizer leaves the tokenizer out"
        );
    return WEIR_OK;
}

static bool squeezes(const json_t *component)
{
    size_t i;
    const json_t *part;
    json_array_foreach(
        json_object_get(component, "normalizers"), i, part
    ) if (squeezes(part)) return true; /* NOLINT(misc-no-recursion) */
    return json_is_string(json_object_get(json_object_get(component, "pattern"), "Regex"));
}

/* True if the piece has U+2581 behind another character, or, where runs of spaces remain, behind
 * U+2581. */
static bool crosses_words(const token *t, bool removes_spaces)
{
    bool after_other = false;
    for (size_t i = 0; i + 3 <= t->length; i++) {
        const bool is_symbol = memcmp(t->name + i, SPACE_SYMBOL, 3) == 0;
        if (is_symbol && i > 0 && (after_other || !removes_spaces)) return true;
        if (is_symbol)
            i += 2;
        else
            after_other = true;
    }
    return false;
}

/* Words are cut before U+2581 by a pre-tokenizer, in GGUF only by the pieces. */
static weir_status check_words(const vocabulary *v, const steps *s)
{
    for (int64_t i = 0; s->splits && i < v->n; i++)
        if (v->tokens[i].name != NULL && v->tokens[i].type == NORMAL &&
            crosses_words(&v->tokens[i], s->removes_spaces))
            return weir_error_set(
                v->error, WEIR_EUNSUPPORTED,
                "the piece '%.64s' spans words, which tokenizer.json keeps apart and GGUF would "
                "not; --no-tokenizer leaves the tokenizer out",
                v->tokens[i].name
            );
    return WEIR_OK;
}

static weir_status put_charsmap(const vocabulary *v)
{
    weir_buffer map = { 0 };
    weir_status status = weir_tokenizer_charsmap(v->tokenizer, &map);
    if (status != WEIR_OK)
        status = weir_error_set(v->error, status, "no memory for the charsmap");
    else if (map.size > 0)
        weir_gguf_put_u8s(v->writer, KEY "precompiled_charsmap", map.data, map.size);
    weir_buffer_free(&map);
    return status;
}

weir_status weir_put_unigram(const vocabulary *v)
{
    static const char *const normalizers[] = { "Precompiled", "Replace", "Squeeze",
                                               "Strip",       "Prepend", NULL };
    const json_t *const normalizer = json_object_get(v->root, "normalizer");
    steps s = { .removes_spaces = squeezes(normalizer) };
    WEIR_TRY(weir_check_normalizer(v, normalizer, normalizers));
    WEIR_TRY(read_pre(v, &s, json_object_get(v->root, "pre_tokenizer")));
    WEIR_TRY(check_words(v, &s));
    WEIR_TRY(set_scores(v));
    weir_gguf_put_text(v->writer, KEY "model", "t5", strlen("t5"));
    weir_gguf_put_text(v->writer, KEY "pre", "default", strlen("default"));
    weir_put_tokens(v);
    weir_put_scores(v);
    weir_gguf_put_bool(v->writer, KEY "add_space_prefix", weir_adds_prefix(v->root));
    weir_gguf_put_bool(v->writer, KEY "remove_extra_whitespaces", s.removes_spaces);
    return put_charsmap(v);
}
