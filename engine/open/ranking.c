/* engine/open/ranking.c - as sentence-transformers' CrossEncoder reads a language model that ranks:
 * 1_LogitScore has the ids of "yes" and "no", and the default prompt is the system message. */
#include "engine/open/ranking.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/base/file.h"
#include "engine/formats/json.h"

enum { CONFIG_BYTES = 64 << 10 };

/* *out: NULL if there is no such file. */
static weir_status read_if_there(
    json_t **out, const weir_tensor_directory *directory, const char *name, weir_error *error
)
{
    weir_buffer path = { 0 };
    const char *const folder = weir_tensor_directory_folder(directory);
    weir_status status = weir_buffer_format(&path, "%s/%s", folder, name);
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "%s: no memory for a path", folder);
    else if (weir_file_exists(path.data))
        status = weir_json_read_file(out, path.data, CONFIG_BYTES, error);
    weir_buffer_free(&path);
    return status;
}

/* *out: -1 if it is null or absent. */
static weir_status read_id(
    int32_t *out, const json_t *config, const char *key, int64_t n_vocab, weir_error *error
)
{
    const json_t *const value = json_object_get(config, key);
    *out = -1;
    if (value == NULL || json_is_null(value)) return WEIR_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= n_vocab)
        return weir_error_set(
            error, WEIR_EFORMAT, "1_LogitScore/config.json: %s is no token of the model", key
        );
    *out = (int32_t)json_integer_value(value);
    return WEIR_OK;
}

static weir_status read_prompt(
    weir_ranking *out, const weir_tensor_directory *directory, weir_error *error
)
{
    json_t *config = NULL;
    WEIR_TRY(read_if_there(&config, directory, "config_sentence_transformers.json", error));
    const char *const name = json_string_value(json_object_get(config, "default_prompt_name"));
    const char *const text =
        name != NULL ? json_string_value(json_object_get(json_object_get(config, "prompts"), name))
                     : NULL;
    weir_status status = WEIR_OK;
    if (text != NULL && strlen(text) >= sizeof out->prompt)
        status = weir_error_set(
            error, WEIR_EFORMAT,
            "config_sentence_transformers.json: the prompt is longer than %zu bytes",
            sizeof out->prompt - 1
        );
    else if (text != NULL)
        (void)snprintf(out->prompt, sizeof out->prompt, "%s", text);
    json_decref(config);
    return status;
}

/* What weir convert wrote. */
static weir_status of_gguf(
    weir_ranking *out, const weir_tensor_directory *directory, int64_t n_vocab, weir_error *error
)
{
    static const char *const keys[] = { WEIR_RANKING_YES, WEIR_RANKING_NO };
    int32_t *const ids[] = { &out->yes, &out->no };
    weir_meta value;
    for (int i = 0; i < 2; i++) {
        if (!weir_tensor_directory_meta(directory, keys[i], &value)) continue;
        if (value.type != WEIR_META_INT || value.integer < 0 || value.integer >= n_vocab)
            return weir_error_set(error, WEIR_EFORMAT, "%s is no token of the model", keys[i]);
        *ids[i] = (int32_t)value.integer;
    }
    if (weir_tensor_directory_meta(directory, WEIR_RANKING_PROMPT, &value)) {
        if (value.type != WEIR_META_STRING || value.length >= sizeof out->prompt)
            return weir_error_set(
                error, WEIR_EFORMAT, WEIR_RANKING_PROMPT " is no string of at most %zu bytes",
                sizeof out->prompt - 1
            );
        (void)snprintf(out->prompt, sizeof out->prompt, "%.*s", (int)value.length, value.string);
    }
    out->is_used = out->yes >= 0;
    return WEIR_OK;
}

weir_status weir_ranking_of(
    weir_ranking *out, const weir_tensor_directory *directory, int64_t n_vocab, weir_error *error
)
{
    json_t *config = NULL;
    *out = (weir_ranking){ .yes = -1, .no = -1 };
    if (weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF)
        return of_gguf(out, directory, n_vocab, error);
    WEIR_TRY(read_if_there(&config, directory, "1_LogitScore/config.json", error));
    if (config == NULL) return WEIR_OK;
    weir_status status = read_id(&out->yes, config, "true_token_id", n_vocab, error);
    if (status == WEIR_OK) status = read_id(&out->no, config, "false_token_id", n_vocab, error);
    if (status == WEIR_OK) status = read_prompt(out, directory, error);
    out->is_used = status == WEIR_OK && out->yes >= 0;
    json_decref(config);
    return status;
}
