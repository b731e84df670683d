/* engine/text/tokenizer_json_steps.c - normalizer, pre_tokenizer, decoder and post_processor of
 * tokenizer.json. An unknown component is an error that names it: skipping one would silently
 * change ids. */
#include <inttypes.h>
#include <string.h>

#include "engine/text/tokenizer_json.h"

static bool is(const char *type, const char *name) { return strcmp(type, name) == 0; }

static weir_status unknown(const char *section, const char *type, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "%s: the component '%.64s' is not supported", section, type
    );
}

/* The type of a component; "" if it has none. */
static const char *type_of(const json_t *component)
{
    const char *const type = json_string_value(json_object_get(component, "type"));
    return type == NULL ? "" : type;
}

typedef weir_status component_function(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
);

static weir_status each(
    weir_tokenizer *tokenizer, const json_t *list, const char *key, component_function *load,
    weir_error *error
)
{
    if (!json_is_array(list)) return weir_error_set(error, WEIR_EFORMAT, "%s is not an array", key);
    size_t i;
    const json_t *component;
    json_array_foreach(list, i, component) WEIR_TRY(load(tokenizer, component, error));
    return WEIR_OK;
}

static weir_status load_normalizer(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    return weir_json_load_normalizer(&tokenizer->normalizer, component, error);
}

/* ---- pre_tokenizer --------------------------------------------------------------------------- */

static weir_status load_split(weir_tokenizer *tokenizer, const json_t *component, weir_error *error)
{
    const json_t *const pattern = json_object_get(component, "pattern");
    const json_t *const regex = json_object_get(pattern, "Regex"), *const plain = json_object_get(
                                                                       pattern, "String"
                                                                   );
    const json_t *const text = regex != NULL ? regex : plain;
    const char *const behavior = json_string_value(json_object_get(component, "behavior"));
    const bool invert = json_is_true(json_object_get(component, "invert"));
    if (!json_is_string(text))
        return weir_error_set(
            error, WEIR_EFORMAT, "Split.pattern has neither a Regex nor a String"
        );
    /* Isolated makes matches and gaps pieces; Removed with invert keeps only the matches. */
    const bool isolated = behavior != NULL && is(behavior, "Isolated"),
               removed = behavior != NULL && is(behavior, "Removed") && invert;
    if (!isolated && !removed)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "Split: the behavior '%.64s'%s is not supported",
            behavior == NULL ? "" : behavior, invert ? " with invert" : ""
        );
    return weir_pretokenizer_add(
        &tokenizer->pretokenizer, json_string_value(text), json_string_length(text),
        (weir_split_options){ .literal = regex == NULL, .drop_gaps = removed }, error
    );
}

static weir_status load_byte_level(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    if (json_is_true(json_object_get(component, "add_prefix_space")))
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "ByteLevel.add_prefix_space is set, which is not supported"
        );
    if (json_is_false(json_object_get(component, "use_regex"))) return WEIR_OK;
    return weir_pretokenizer_add(
        &tokenizer->pretokenizer, weir_pattern_gpt2, strlen(weir_pattern_gpt2),
        (weir_split_options){ .literal = false }, error
    );
}

weir_status weir_json_load_split(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    const char *const type = type_of(component);
    if (is(type, "Split")) return load_split(tokenizer, component, error);
    if (!is(type, "Digits")) return unknown("pre_tokenizer", type, error);
    const bool single = json_is_true(json_object_get(component, "individual_digits"));
    const char *const pattern = single ? "\\p{N}" : "\\p{N}+";
    return weir_pretokenizer_add(
        &tokenizer->pretokenizer, pattern, strlen(pattern),
        (weir_split_options){ .literal = false }, error
    );
}

static weir_status load_component(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    const char *const type = type_of(component);
    if (is(type, "Sequence"))
        return each(
            tokenizer, json_object_get(component, "pretokenizers"), "pretokenizers", load_component,
            error
        );
    return is(type, "ByteLevel") ? load_byte_level(tokenizer, component, error)
                                 : weir_json_load_split(tokenizer, component, error);
}

/* True if the component, or the last of a sequence, is ByteLevel. Before other components it is not
 * allowed: they would see mapped bytes. */
static bool ends_in_byte_level(const json_t *component, const char *list_key)
{
    const json_t *const list = json_object_get(component, list_key);
    const size_t n = json_array_size(list);
    for (size_t i = 0; i + 1 < n; i++)
        if (ends_in_byte_level(json_array_get(list, i), list_key)) return false;
    return n > 0 ? ends_in_byte_level(json_array_get(list, n - 1), list_key)
                 : is(type_of(component), "ByteLevel");
}

static weir_status load_pretokenizer(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    const weir_status status = load_component(tokenizer, component, error);
    if (status != WEIR_OK) return weir_error_prefix(error, status, "pre_tokenizer");
    if (ends_in_byte_level(component, "pretokenizers")) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "pre_tokenizer does not end in ByteLevel: not byte-level BPE"
    );
}

/* ---- post_processor -------------------------------------------------------------------------- */

static bool is_special(const json_t *entry)
{
    return json_object_get(entry, "SpecialToken") != NULL;
}

/* *id: of an entry of a template; -1 if it is no special token. */
static weir_status id_in_template(
    int32_t *id, const weir_tokenizer *tokenizer, const json_t *component, const json_t *entry,
    weir_error *error
)
{
    const char *const name =
        json_string_value(json_object_get(json_object_get(entry, "SpecialToken"), "id"));
    *id = -1;
    if (name == NULL) return WEIR_OK;
    const json_t *const ids =
        json_object_get(json_object_get(json_object_get(component, "special_tokens"), name), "ids");
    const json_t *const value = json_array_get(ids, 0);
    if (json_array_size(ids) != 1 || !json_is_integer(value) ||
        weir_vocabulary_at(&tokenizer->vocabulary, json_integer_value(value)) == NULL)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "post_processor.special_tokens: '%.64s' is not one id of the vocabulary", name
        );
    *id = (int32_t)json_integer_value(value);
    return WEIR_OK;
}

/* A template like "<s> $A </s>": the token before $A is the BOS. The one after $A is added only for
 * embeddings: it would end a prompt that is to be continued. */
static weir_status load_template(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    const json_t *const single = json_object_get(component, "single");
    const size_t n = json_array_size(single);
    int32_t first, last = -1;
    if (is_special(json_array_get(single, 0)) && is_special(json_array_get(single, 1)))
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "post_processor: more than one special token in front of the text is not supported"
        );
    WEIR_TRY(id_in_template(&first, tokenizer, component, json_array_get(single, 0), error));
    if (n > 1)
        WEIR_TRY(id_in_template(&last, tokenizer, component, json_array_get(single, n - 1), error));
    if (last >= 0) tokenizer->end = last;
    if (first < 0) return WEIR_OK;
    tokenizer->bos = first;
    tokenizer->add_bos = true;
    return WEIR_OK;
}

static weir_status load_processor(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    const char *const type = type_of(component);
    if (is(type, "Sequence"))
        return each(
            tokenizer, json_object_get(component, "processors"), "post_processor.processors",
            load_processor, error
        );
    if (is(type, "TemplateProcessing")) return load_template(tokenizer, component, error);
    return is(type, "ByteLevel") ? WEIR_OK : unknown("post_processor", type, error);
}

static weir_status load_decoder(
    weir_tokenizer *tokenizer, const json_t *component, weir_error *error
)
{
    (void)tokenizer;
    return ends_in_byte_level(component, "decoders")
               ? WEIR_OK
               : unknown("decoder", type_of(component), error);
}

weir_status weir_tokenizer_load_steps(
    weir_tokenizer *tokenizer, const json_t *root, weir_error *error
)
{
    static const struct {
        const char *key;
        component_function *load;
        bool required;
    } sections[] = {
        { "normalizer", load_normalizer, false },
        { "pre_tokenizer", load_pretokenizer, true },
        { "decoder", load_decoder, false },
        { "post_processor", load_processor, false },
    };
    const size_t first = tokenizer->spm == NULL ? 0 : 3; /* pieces have steps of their own */
    if (first > 0) WEIR_TRY(weir_json_load_piece_steps(tokenizer, root, error));
    for (size_t i = first; i < sizeof sections / sizeof sections[0]; i++) {
        const json_t *const section = json_object_get(root, sections[i].key);
        if (section != NULL && !json_is_null(section))
            WEIR_TRY(sections[i].load(tokenizer, section, error));
        else if (sections[i].required)
            return weir_error_set(error, WEIR_EFORMAT, "%s is missing", sections[i].key);
    }
    return WEIR_OK;
}
