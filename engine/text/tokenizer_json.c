/* engine/text/tokenizer_json.c - a tokenizer from tokenizer.json and the files next to it: tokens,
 * merges, special tokens, template. Byte fallback or scores mean a SentencePiece vocabulary
 * (tokenizer_json_pieces.c), else byte-level BPE (tokenizer_json_steps.c); others are refused. */
#include "engine/text/tokenizer_json.h"

#include <inttypes.h>
#include <libgen.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/formats/json.h"

enum { TOKENIZER_BYTES = 256 << 20, CONFIG_BYTES = 16 << 20 };

/* ---- added tokens ---------------------------------------------------------------------------- */

static bool is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static weir_status add_special(
    weir_tokenizer *tokenizer, const json_t *entry, int64_t id, weir_error *error
)
{
    const json_t *const content = json_object_get(entry, "content");
    if (!json_is_string(content))
        return weir_error_set(error, WEIR_EFORMAT, "content is not a string");
    const char *const text = json_string_value(content);
    const size_t length = json_string_length(content);
    const weir_token *const known = weir_vocabulary_at(&tokenizer->vocabulary, id);
    if (known != NULL && known->flags != 0 && known->length == length &&
        memcmp(tokenizer->vocabulary.bytes.data + known->offset, text, length) == 0)
        return WEIR_OK;
    const unsigned flags = WEIR_TOKEN_ADDED |
                           (is_true(entry, "special") ? WEIR_TOKEN_SPECIAL : 0U) |
                           (is_true(entry, "lstrip") ? WEIR_TOKEN_LSTRIP : 0U) |
                           (is_true(entry, "rstrip") ? WEIR_TOKEN_RSTRIP : 0U) |
                           (is_true(entry, "single_word") ? WEIR_TOKEN_SINGLE_WORD : 0U) |
                           (is_true(entry, "normalized") ? WEIR_TOKEN_NORMALIZED : 0U);
    return weir_vocabulary_add(&tokenizer->vocabulary, id, text, length, flags, error);
}

static weir_status load_added(weir_tokenizer *tokenizer, const json_t *root, weir_error *error)
{
    const json_t *const list = json_object_get(root, "added_tokens");
    if (list == NULL || json_is_null(list)) return WEIR_OK;
    if (!json_is_array(list))
        return weir_error_set(error, WEIR_EFORMAT, "added_tokens is not an array");
    size_t i;
    const json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const json_t *const id = json_object_get(entry, "id");
        weir_status status = json_is_integer(id)
                                 ? add_special(tokenizer, entry, json_integer_value(id), error)
                                 : weir_error_set(error, WEIR_EFORMAT, "id is not an integer");
        if (status != WEIR_OK) return weir_error_prefix(error, status, "added_tokens[%zu]", i);
    }
    return WEIR_OK;
}

/* tokenizer_config.json may declare tokens that tokenizer.json lacks (Qwen3.5's audio tokens). Keys
 * are ids. */
static weir_status load_added_decoder(
    weir_tokenizer *tokenizer, const json_t *config, weir_error *error
)
{
    const char *key;
    json_t *entry;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, entry)
    {
        char *end;
        const int64_t id = strtoll(key, &end, 10);
        weir_status status = end != key && *end == '\0'
                                 ? add_special(tokenizer, entry, id, error)
                                 : weir_error_set(error, WEIR_EFORMAT, "the key is not an id");
        if (status != WEIR_OK)
            return weir_error_prefix(error, status, "added_tokens_decoder.%.32s", key);
    }
    return WEIR_OK;
}

/* ---- model ----------------------------------------------------------------------------------- */

static weir_status check_model(weir_tokenizer *tokenizer, const json_t *model, weir_error *error)
{
    const char *const type = json_string_value(json_object_get(model, "type"));
    const bool unigram = type != NULL && strcmp(type, "Unigram") == 0;
    if (type != NULL && !unigram && strcmp(type, "BPE") != 0)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "model.type is '%.64s'; known are BPE and Unigram", type
        );
    if (unigram || is_true(model, "byte_fallback"))
        WEIR_TRY(
            weir_tokenizer_make_spm(tokenizer, unigram ? WEIR_SPM_UNIGRAM : WEIR_SPM_RANKS, error)
        );
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    for (size_t i = 0; i < sizeof affixes / sizeof affixes[0]; i++)
        if (json_string_length(json_object_get(model, affixes[i])) > 0)
            return weir_error_set(
                error, WEIR_EUNSUPPORTED, "model.%s is set, which is not supported", affixes[i]
            );
    return WEIR_OK;
}

weir_status weir_json_add_base(
    weir_tokenizer *tokenizer, int64_t id, const char *name, size_t length, weir_error *error
)
{
    weir_vocabulary *const vocabulary = &tokenizer->vocabulary;
    const int32_t added = weir_vocabulary_find_added(vocabulary, name, length);
    if (added >= 0 && added != id)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "it has the id %" PRId64 " here and %" PRId32 " among the added tokens", id, added
        );
    return added >= 0 ? weir_vocabulary_add_base_name(vocabulary, added, name, length, error)
                      : weir_vocabulary_add(vocabulary, id, name, length, 0, error);
}

static weir_status add_entry(
    weir_tokenizer *tokenizer, const char *name, const json_t *value, weir_error *error
)
{
    if (!json_is_integer(value))
        return weir_error_set(error, WEIR_EFORMAT, "the id is not an integer");
    return weir_json_add_base(tokenizer, json_integer_value(value), name, strlen(name), error);
}

static weir_status load_vocabulary(
    weir_tokenizer *tokenizer, const json_t *model, weir_error *error
)
{
    json_t *const vocabulary = json_object_get(model, "vocab");
    if (!json_is_object(vocabulary))
        return weir_error_set(error, WEIR_EFORMAT, "model.vocab is not an object");
    if (json_object_size(vocabulary) > WEIR_VOCABULARY_IDS)
        return weir_error_set(
            error, WEIR_EFORMAT, "model.vocab holds more than %d tokens", WEIR_VOCABULARY_IDS
        );
    if (weir_vocabulary_reserve(&tokenizer->vocabulary, json_object_size(vocabulary)) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "model.vocab: no memory");
    const char *name;
    json_t *value;
    json_object_foreach(vocabulary, name, value)
    {
        const weir_status status = add_entry(tokenizer, name, value, error);
        if (status != WEIR_OK)
            return weir_error_prefix(error, status, "model.vocab: '%.64s'", name);
    }
    return WEIR_OK;
}

static weir_status add_merge(
    weir_tokenizer *tokenizer, uint32_t rank, const json_t *merge, weir_error *error
)
{
    if (json_is_string(merge))
        return weir_tokenizer_add_merge_text(
            tokenizer, rank, json_string_value(merge), json_string_length(merge), error
        );
    const json_t *const left = json_array_get(merge, 0), *const right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return weir_error_set(error, WEIR_EFORMAT, "it is neither a string nor a pair of strings");
    return weir_tokenizer_add_merge(
        tokenizer, rank, json_string_value(left), json_string_length(left),
        json_string_value(right), json_string_length(right), error
    );
}

static weir_status load_merges(weir_tokenizer *tokenizer, const json_t *model, weir_error *error)
{
    const json_t *const merges = json_object_get(model, "merges");
    if (!json_is_array(merges))
        return weir_error_set(error, WEIR_EFORMAT, "model.merges is not an array");
    if (json_array_size(merges) > WEIR_MERGES)
        return weir_error_set(
            error, WEIR_EFORMAT, "model.merges holds more than %d merges", WEIR_MERGES
        );
    if (weir_pair_reserve(&tokenizer->merges, json_array_size(merges)) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for merges");
    size_t i;
    const json_t *merge;
    json_array_foreach(merges, i, merge)
    {
        const weir_status status = add_merge(tokenizer, (uint32_t)i, merge, error);
        if (status != WEIR_OK)
            return weir_error_prefix(
                error, status == WEIR_EMISMATCH ? WEIR_EFORMAT : status, "model.merges[%zu]", i
            );
    }
    return WEIR_OK;
}

/* ---- other files of the folder --------------------------------------------------------------- */

/* Sets *out to NULL if there is no such file. */
static weir_status read_if_there(
    json_t **out, const char *folder, const char *name, weir_error *error
)
{
    weir_buffer path = { 0 };
    *out = NULL;
    weir_status status = weir_buffer_format(&path, "%s/%s", folder, name);
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "%s: no memory for a path", name);
    else if (weir_file_exists(path.data))
        status = weir_json_read_file(out, path.data, CONFIG_BYTES, error);
    if (status == WEIR_OK && *out != NULL && !json_is_object(*out))
        status = weir_error_set(error, WEIR_EFORMAT, "%s: not an object", path.data);
    weir_buffer_free(&path);
    return status;
}

/* A token of tokenizer_config.json: a string, or an object with the string as content. *id is -1 if
 * null or absent. */
static weir_status token_of(
    const weir_tokenizer *tokenizer, const json_t *config, const char *key, int32_t *id,
    weir_error *error
)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    *id = -1;
    if (value == NULL || json_is_null(value)) return WEIR_OK;
    if (!json_is_string(value))
        return weir_error_set(
            error, WEIR_EFORMAT, "tokenizer_config.json: %s is not a string", key
        );
    *id = weir_tokenizer_find(tokenizer, json_string_value(value), json_string_length(value));
    if (*id < 0)
        return weir_error_set(
            error, WEIR_EFORMAT, "tokenizer_config.json: %s '%.64s' is not in the vocabulary", key,
            json_string_value(value)
        );
    return WEIR_OK;
}

/* A string, or a list of named templates, of which the one named "default" is used. */
static weir_status load_template(weir_tokenizer *tokenizer, const json_t *value, weir_error *error)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(value, i, entry)
    {
        const char *const name = json_string_value(json_object_get(entry, "name"));
        if (name != NULL && strcmp(name, "default") == 0)
            return load_template(tokenizer, json_object_get(entry, "template"), error);
    }
    if (!json_is_string(value)) return WEIR_OK;
    const weir_status status = weir_tokenizer_set_template(
        tokenizer, json_string_value(value), json_string_length(value), error
    );
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_prefix(error, status, "tokenizer_config.json: chat_template");
}

static weir_status apply_config(weir_tokenizer *tokenizer, const json_t *config, weir_error *error)
{
    int32_t bos;
    WEIR_TRY(token_of(tokenizer, config, "bos_token", &bos, error));
    WEIR_TRY(token_of(tokenizer, config, "eos_token", &tokenizer->eos, error));
    if (tokenizer->bos < 0) tokenizer->bos = bos;
    weir_tokenizer_add_stop(tokenizer, tokenizer->eos);
    const json_t *const add = json_object_get(config, "add_bos_token");
    if (json_is_boolean(add)) tokenizer->add_bos = json_is_true(add);
    if (tokenizer->end < 0 && json_is_true(json_object_get(config, "add_eos_token")))
        tokenizer->end = tokenizer->eos;
    if (tokenizer->add_bos && tokenizer->bos < 0)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "tokenizer_config.json: add_bos_token is true, but there is no bos_token"
        );
    return load_template(tokenizer, json_object_get(config, "chat_template"), error);
}

static weir_status add_stops(
    weir_tokenizer *tokenizer, const json_t *value, const char *place, weir_error *error
)
{
    if (value == NULL || json_is_null(value)) return WEIR_OK;
    if (!json_is_integer(value) && !json_is_array(value))
        return weir_error_set(error, WEIR_EFORMAT, "%s is neither an id nor a list of ids", place);
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *const id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id))
            return weir_error_set(error, WEIR_EFORMAT, "%s[%zu] is not an id", place, i);
        weir_tokenizer_add_stop(tokenizer, json_integer_value(id));
        if (tokenizer->eos < 0 && tokenizer->n_stop > 0)
            tokenizer->eos = tokenizer->stop[tokenizer->n_stop - 1];
    }
    return WEIR_OK;
}

static weir_status load_stops(weir_tokenizer *tokenizer, const char *folder, weir_error *error)
{
    json_t *generation = NULL, *config = NULL;
    weir_status status = read_if_there(&generation, folder, "generation_config.json", error);
    if (status == WEIR_OK) status = read_if_there(&config, folder, "config.json", error);
    if (status == WEIR_OK)
        status = add_stops(
            tokenizer, json_object_get(generation, "eos_token_id"),
            "generation_config.json: eos_token_id", error
        );
    if (status == WEIR_OK)
        status = add_stops(
            tokenizer, json_object_get(config, "eos_token_id"), "config.json: eos_token_id", error
        );
    if (status == WEIR_OK)
        status = add_stops(
            tokenizer, json_object_get(json_object_get(config, "text_config"), "eos_token_id"),
            "config.json: text_config.eos_token_id", error
        );
    json_decref(generation);
    json_decref(config);
    return status;
}

/* chat_template.jinja takes precedence over the template in tokenizer_config.json. */
static weir_status load_template_file(
    weir_tokenizer *tokenizer, const char *folder, weir_error *error
)
{
    weir_buffer path = { 0 }, text = { 0 };
    weir_status status = weir_buffer_format(&path, "%s/chat_template.jinja", folder);
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "chat_template.jinja: no memory for a path");
    else if (weir_file_exists(path.data)) {
        status = weir_file_read(&text, path.data, CONFIG_BYTES, error);
        if (status == WEIR_OK)
            status = weir_tokenizer_set_template(
                tokenizer, text.size > 0 ? text.data : "", text.size, error
            );
    }
    weir_buffer_free(&path);
    weir_buffer_free(&text);
    return status;
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

weir_status weir_tokenizer_load_json(
    weir_tokenizer *tokenizer, const json_t *root, const json_t *config, weir_error *error
)
{
    const json_t *const model = json_object_get(root, "model");
    if (!json_is_object(model))
        return weir_error_set(error, WEIR_EFORMAT, "model is not an object");
    WEIR_TRY(check_model(tokenizer, model, error));
    const bool unigram = tokenizer->spm != NULL && tokenizer->spm->kind == WEIR_SPM_UNIGRAM;
    WEIR_TRY(load_added(tokenizer, root, error));
    WEIR_TRY(load_added_decoder(tokenizer, config, error));
    WEIR_TRY(
        unigram ? weir_json_load_unigram(tokenizer, model, error)
                : load_vocabulary(tokenizer, model, error)
    );
    if (!unigram) WEIR_TRY(load_merges(tokenizer, model, error));
    tokenizer->ignore_merges = is_true(model, "ignore_merges");
    if (tokenizer->spm != NULL) WEIR_TRY(weir_json_load_pieces(tokenizer, model, error));
    WEIR_TRY(weir_tokenizer_load_steps(tokenizer, root, error));
    return apply_config(tokenizer, config, error);
}

static weir_status load(
    weir_tokenizer *tokenizer, const char *path, const char *folder, weir_error *error
)
{
    json_t *root = NULL, *config = NULL;
    weir_status status = weir_json_read_file(&root, path, TOKENIZER_BYTES, error);
    if (status == WEIR_OK) status = read_if_there(&config, folder, "tokenizer_config.json", error);
    if (status == WEIR_OK) {
        status = weir_tokenizer_load_json(tokenizer, root, config, error);
        if (status != WEIR_OK) status = weir_error_prefix(error, status, "%s", path);
    }
    json_decref(root);
    json_decref(config);
    if (status == WEIR_OK) status = load_template_file(tokenizer, folder, error);
    if (status == WEIR_OK) status = load_stops(tokenizer, folder, error);
    if (status != WEIR_OK) return status;
    status = weir_tokenizer_finish(tokenizer, error);
    return status == WEIR_OK ? WEIR_OK : weir_error_prefix(error, status, "%s", path);
}

weir_status weir_tokenizer_open_json(
    weir_tokenizer **out, const char *tokenizer_json_path, weir_error *error
)
{
    weir_tokenizer *const tokenizer = weir_tokenizer_new();
    char *const copy = strdup(tokenizer_json_path); /* dirname modifies its argument */
    weir_status status = tokenizer == NULL || copy == NULL
                             ? weir_error_set(error, WEIR_ENOMEM, "no memory for a tokenizer")
                             : load(tokenizer, tokenizer_json_path, dirname(copy), error);
    free(copy);
    if (status == WEIR_OK)
        *out = tokenizer;
    else
        weir_tokenizer_close(tokenizer);
    return status;
}
