/* engine/text/tokenizer_json_pieces.c - SentencePiece vocabularies from tokenizer.json: models with
 * byte fallback or scores, and the steps that converters write for them. An unknown component is an
 * error that names it: skipping one would silently change ids. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/text/tokenizer_json.h"

static bool is(const char *type, const char *name) { return strcmp(type, name) == 0; }

static const char *text_of(const json_t *object, const char *key)
{
    const char *const text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static weir_status refuse(const char *section, const json_t *component, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "%s: the component '%.64s' is not supported with these options",
        section, text_of(component, "type")
    );
}

/* ---- model ----------------------------------------------------------------------------------- */

static weir_status add_scored(
    weir_tokenizer *tokenizer, size_t id, const json_t *entry, weir_error *error
)
{
    const json_t *const name = json_array_get(entry, 0), *const score = json_array_get(entry, 1);
    if (json_array_size(entry) != 2 || !json_is_string(name) || !json_is_number(score))
        return weir_error_set(error, WEIR_EFORMAT, "it is not a piece and its score");
    return weir_json_add_base(
        tokenizer, (int64_t)id, json_string_value(name), json_string_length(name), error
    );
}

weir_status weir_json_load_unigram(
    weir_tokenizer *tokenizer, const json_t *model, weir_error *error
)
{
    weir_spm *const spm = tokenizer->spm;
    const json_t *const list = json_object_get(model, "vocab"), *const unknown = json_object_get(
                                                                    model, "unk_id"
                                                                );
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > WEIR_VOCABULARY_IDS)
        return weir_error_set(
            error, WEIR_EFORMAT, "model.vocab is not an array of 1 to %d pieces",
            WEIR_VOCABULARY_IDS
        );
    if (!json_is_integer(unknown) || json_integer_value(unknown) < 0 ||
        (uint64_t)json_integer_value(unknown) >= n)
        return weir_error_set(error, WEIR_EFORMAT, "model.unk_id is not an id of model.vocab");
    spm->unknown = (int32_t)json_integer_value(unknown);
    if (weir_vocabulary_reserve(&tokenizer->vocabulary, n) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "model.vocab: no memory");
    for (size_t i = 0; i < n; i++) {
        const weir_status status = add_scored(tokenizer, i, json_array_get(list, i), error);
        if (status != WEIR_OK) return weir_error_prefix(error, status, "model.vocab[%zu]", i);
    }
    spm->scores = weir_memory_take_zero(tokenizer->vocabulary.size, sizeof *spm->scores);
    if (spm->scores == NULL) return weir_error_set(error, WEIR_ENOMEM, "model.vocab: no memory");
    spm->n_scored = n;
    for (size_t i = 0; i < n; i++)
        spm->scores[i] = json_number_value(json_array_get(json_array_get(list, i), 1));
    return WEIR_OK;
}

weir_status weir_json_load_pieces(weir_tokenizer *tokenizer, const json_t *model, weir_error *error)
{
    weir_spm *const spm = tokenizer->spm;
    spm->has_bytes = json_is_true(json_object_get(model, "byte_fallback"));
    spm->fuses_unknown =
        spm->kind == WEIR_SPM_UNIGRAM || json_is_true(json_object_get(model, "fuse_unk"));
    if (tokenizer->ignore_merges)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "model.ignore_merges is set together with byte_fallback"
        );
    const json_t *const name = json_object_get(model, "unk_token");
    if (spm->kind == WEIR_SPM_UNIGRAM || name == NULL || json_is_null(name)) return WEIR_OK;
    spm->unknown = weir_vocabulary_find_base(
        &tokenizer->vocabulary, json_is_string(name) ? json_string_value(name) : "",
        json_string_length(name)
    );
    return spm->unknown >= 0
               ? WEIR_OK
               : weir_error_set(error, WEIR_EFORMAT, "model.unk_token is not in the vocabulary");
}

/* ---- pre_tokenizer --------------------------------------------------------------------------- */

typedef weir_status component_function(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
);

static weir_status each(
    weir_tokenizer *tokenizer, const json_t *list, const char *place, component_function *load,
    weir_error *error
)
{
    if (!json_is_array(list))
        return weir_error_set(error, WEIR_EFORMAT, "%s is not an array", place);
    size_t i;
    const json_t *component;
    json_array_foreach(list, i, component) WEIR_TRY(load(tokenizer, component, error));
    return WEIR_OK;
}

static bool is_space_symbol(const json_t *value)
{
    return json_is_string(value) && is(json_string_value(value), WEIR_SPACE_SYMBOL);
}

/* Older files have add_prefix_space, newer ones prepend_scheme. */
static bool read_prefix(const json_t *component, weir_metaspace *metaspace)
{
    const char *const scheme = text_of(component, "prepend_scheme");
    const json_t *const legacy = json_object_get(component, "add_prefix_space");
    metaspace->first_only = is(scheme, "first");
    metaspace->prepends = scheme[0] != '\0' ? !is(scheme, "never") : !json_is_false(legacy);
    return scheme[0] == '\0' || is(scheme, "first") || is(scheme, "never") || is(scheme, "always");
}

static weir_status load_metaspace(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    weir_metaspace *const metaspace = &tokenizer->spm->metaspace;
    const bool twice = metaspace->is_used;
    metaspace->is_used = true;
    metaspace->splits = !json_is_false(json_object_get(component, "split"));
    return !twice && is_space_symbol(json_object_get(component, "replacement")) &&
                   read_prefix(component, metaspace)
               ? WEIR_OK
               : refuse("pre_tokenizer", component, error);
}

static bool replaces_spaces(const weir_normalizer *normalizer)
{
    for (int i = 0; i < normalizer->n_steps; i++)
        if (normalizer->steps[i].kind == WEIR_NORMALIZER_REPLACE &&
            is(normalizer->steps[i].from, " ") && !is(normalizer->steps[i].to, " "))
            return true;
    return false;
}

static weir_status load_pretokenizer(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    const char *const type = text_of(component, "type");
    if (is(type, "Sequence"))
        return each(
            tokenizer, json_object_get(component, "pretokenizers"), "pre_tokenizer.pretokenizers",
            load_pretokenizer, error
        );
    if (is(type, "Metaspace")) return load_metaspace(tokenizer, component, error);
    /* Steps after Metaspace would see U+2581. */
    if (tokenizer->spm->metaspace.is_used) return refuse("pre_tokenizer", component, error);
    if (is(type, "WhitespaceSplit"))
        return weir_pretokenizer_add(
            &tokenizer->pretokenizer, "\\S+", 3, (weir_split_options){ .drop_gaps = true }, error
        );
    /* Gemma's files split after spaces, of which the normalizer leaves none. */
    if (is(type, "Split") && is(text_of(json_object_get(component, "pattern"), "String"), " ") &&
        is(text_of(component, "behavior"), "MergedWithPrevious") &&
        replaces_spaces(&tokenizer->spm->normalizer))
        return WEIR_OK;
    return weir_json_load_split(tokenizer, component, error);
}

/* ---- decoder --------------------------------------------------------------------------------- */

static weir_status load_decoder(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    weir_spm_decoder *const decoder = &tokenizer->spm->decoder;
    const char *const type = text_of(component, "type");
    if (is(type, "Sequence"))
        return each(
            tokenizer, json_object_get(component, "decoders"), "decoder.decoders", load_decoder,
            error
        );
    if (decoder->is_fused && !is(type, "Strip")) return refuse("decoder", component, error);
    if (is(type, "ByteFallback")) {
        decoder->joins_bytes = true;
    } else if (is(type, "Fuse")) {
        decoder->is_fused = true;
    } else if (is(type, "Metaspace")) {
        weir_metaspace prefix;
        if (!is_space_symbol(json_object_get(component, "replacement")) ||
            !read_prefix(component, &prefix))
            return refuse("decoder", component, error);
        decoder->unescapes = true;
        if (prefix.prepends) decoder->start = WEIR_SPM_START_TOKEN;
    } else if (is(type, "Replace")) {
        const json_t *const pattern = json_object_get(component, "pattern");
        if (!is_space_symbol(json_object_get(pattern, "String")) ||
            !is(text_of(component, "content"), " ") || decoder->joins_bytes)
            return refuse("decoder", component, error);
        decoder->unescapes = true;
    } else if (is(type, "Strip")) {
        const json_t *const start = json_object_get(component, "start");
        if (!is(text_of(component, "content"), " ") || !decoder->is_fused ||
            json_integer_value(json_object_get(component, "stop")) != 0 ||
            json_integer_value(start) < 0 || json_integer_value(start) > 16)
            return refuse("decoder", component, error);
        decoder->n_start = (int)json_integer_value(start);
        if (decoder->n_start > 0) decoder->start = WEIR_SPM_START_TEXT;
    } else {
        return refuse("decoder", component, error);
    }
    return WEIR_OK;
}

weir_status weir_json_load_piece_steps(
    weir_tokenizer *tokenizer, const json_t *root, weir_error *error
)
{
    const json_t *const normalizer = json_object_get(root, "normalizer"),
                        *const pre = json_object_get(root, "pre_tokenizer"),
                        *const decoder = json_object_get(root, "decoder");
    if (normalizer != NULL && !json_is_null(normalizer))
        WEIR_TRY(weir_json_load_normalizer(&tokenizer->spm->normalizer, normalizer, error));
    if (json_is_object(pre)) WEIR_TRY(load_pretokenizer(tokenizer, pre, error));
    tokenizer->spm->decoder.is_tokenizers = true;
    if (json_is_object(decoder)) return load_decoder(tokenizer, decoder, error);
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "decoder is missing: the file does not say how pieces become text"
    );
}
