/* engine/serve/llama_infill.c - /infill: the text between a prefix and a suffix, for models with
 * tokens for it. The prompt is that of llama-server: other files, prefix, suffix, then the
 * beginning of the answer. */
#include <string.h>

#include "engine/serve/json_in.h"
#include "engine/serve/llama_api.h"
#include "engine/serve/sse.h"

/* The tokens of a family of models; repository and file may be missing. */
typedef struct infill_names {
    const char *prefix, *suffix, *middle, *repository, *file;
} infill_names;

static const infill_names families[] = {
    /* Qwen; StarCoder and Granite; CodeLlama; DeepSeek; GLM. */
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>" },
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", "<file_sep>" },
    { "<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL },
    { "\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", NULL, NULL },
    { "<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>",
      NULL, NULL },
    { "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL },
};

typedef struct infill_ids {
    int32_t prefix, suffix, middle, repository, file; /* -1: the model has none */
} infill_ids;

static int32_t find(const weir_server *server, const char *name)
{
    if (name == NULL) return -1;
    return weir_tokenizer_find(server->options.tokenizer, name, strlen(name));
}

static bool find_ids(infill_ids *out, const weir_server *server)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const infill_names *const names = &families[i];
        *out = (infill_ids){ .prefix = find(server, names->prefix),
                             .suffix = find(server, names->suffix),
                             .middle = find(server, names->middle),
                             .repository = find(server, names->repository),
                             .file = find(server, names->file) };
        if (out->prefix >= 0 && out->suffix >= 0 && out->middle >= 0) return true;
    }
    return false;
}

/* What is put together. */
typedef struct infill {
    const weir_server *server;
    infill_ids token;
    weir_ids ids;
    weir_api_error *error;
} infill;

/* Control tokens in the client's text stay plain text. */
static weir_status add_text(infill *out, const char *text, size_t n, const char *param)
{
    const weir_encode_options options = { .add_special = false };
    return weir_text_encode(&out->ids, out->server, text, n, &options, param, out->error);
}

static weir_status add_token(infill *out, int32_t id)
{
    return weir_ids_add(&out->ids, id) == WEIR_OK ? WEIR_OK : weir_api_no_memory(out->error);
}

static weir_status add_begin(infill *out)
{
    const weir_encode_options options = { .add_special = true };
    return weir_text_encode(&out->ids, out->server, "", 0, &options, "prompt", out->error);
}

static weir_status add_field(infill *out, const json_t *root, const char *key, bool is_needed)
{
    const json_t *const text = weir_field(root, key);
    if (text == NULL && !is_needed) return WEIR_OK;
    if (!json_is_string(text)) return weir_api_bad(out->error, key, "%s must be a string", key);
    return add_text(out, json_string_value(text), json_string_length(text), key);
}

/* ---- other files ----------------------------------------------------------------------------- */

/* The name of a file, on a line after its token, or after a line of words for models without. */
static weir_status add_file_name(infill *out, const char *name)
{
    static const char words[] = "\n\n--- ";
    if (out->token.file >= 0)
        WEIR_TRY(add_token(out, out->token.file));
    else
        WEIR_TRY(add_text(out, words, sizeof words - 1, "input_extra"));
    WEIR_TRY(add_text(out, name, strlen(name), "input_extra"));
    return add_text(out, "\n", 1, "input_extra");
}

static weir_status add_extra(infill *out, const json_t *root)
{
    static const char key[] = "input_extra", repository[] = "project\n";
    const json_t *const list = weir_field(root, key);
    if (list == NULL) return WEIR_OK;
    if (!json_is_array(list))
        return weir_api_bad(out->error, key, "input_extra must be an array of files");
    if (json_array_size(list) > 0 && out->token.repository >= 0) {
        WEIR_TRY(add_token(out, out->token.repository));
        WEIR_TRY(add_text(out, repository, sizeof repository - 1, key));
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const file = json_array_get(list, i), *const text = weir_field(file, "text");
        const char *name = "file";
        WEIR_TRY(weir_field_text(file, "filename", &name, out->error));
        if (!json_is_string(text))
            return weir_api_bad(
                out->error, key, "input_extra[%zu] must be {\"filename\", \"text\"}", i
            );
        WEIR_TRY(add_file_name(out, name));
        WEIR_TRY(add_text(out, json_string_value(text), json_string_length(text), key));
    }
    return json_array_size(list) > 0 && out->token.file >= 0 ? add_file_name(out, "filename")
                                                             : WEIR_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

static weir_status put_together(infill *out, const json_t *root)
{
    WEIR_TRY(add_begin(out));
    WEIR_TRY(add_extra(out, root));
    WEIR_TRY(add_token(out, out->token.prefix));
    WEIR_TRY(add_field(out, root, "input_prefix", true));
    WEIR_TRY(add_token(out, out->token.suffix));
    WEIR_TRY(add_field(out, root, "input_suffix", true));
    WEIR_TRY(add_token(out, out->token.middle));
    return add_field(out, root, "prompt", false);
}

static json_t *list_of(const weir_ids *ids)
{
    json_t *const list = json_array();
    bool good = list != NULL;
    for (size_t i = 0; i < ids->count && good; i++)
        good = json_array_append_new(list, json_integer(ids->data[i])) == 0;
    if (good) return list;
    json_decref(list);
    return NULL;
}

static weir_status read_root(weir_generation *g, const json_t *root, weir_api_error *error)
{
    infill out = { .server = g->exchange->server, .error = error };
    if (!find_ids(&out.token, out.server))
        return weir_api_fail(
            error, 501, "not_supported", NULL,
            "this model has no tokens for a prefix and a suffix; use /completion"
        );
    weir_status status = put_together(&out, root);
    if (status == WEIR_OK) {
        json_t *const prompt = list_of(&out.ids);
        status = prompt != NULL ? weir_llama_read(g, root, prompt, WEIR_BODY_INFILL, error)
                                : weir_api_no_memory(error);
        json_decref(prompt);
    }
    weir_ids_free(&out.ids);
    return status;
}

static weir_status read_infill(
    weir_generation *g, const char *text, size_t n, weir_api_error *error
)
{
    json_t *root = NULL;
    WEIR_TRY(weir_json_read(&root, text, n, error));
    const weir_status status = read_root(g, root, error);
    json_decref(root);
    return status;
}

void weir_llama_infill(weir_exchange *x)
{
    static const weir_api api = { .id_prefix = "cmpl-",
                                  .prompt_field = "input_prefix",
                                  .read = read_infill,
                                  .name_error = weir_llama_name_error,
                                  .whole = weir_llama_whole,
                                  .events = weir_llama_events,
                                  .ping = weir_sse_ping,
                                  .last_words = weir_reply_last_words,
                                  .free_data = weir_llama_free };
    weir_generate(x, &api);
}
