/* engine/serve/llama_props.c - /props: limits and identity, with the members of llama-server's;
 * /apply-template: the prompt of a chat as text. */
#include <string.h>

#include "engine/serve/json_in.h"
#include "engine/serve/llama_api.h"

/* ---- /props ---------------------------------------------------------------------------------- */

/* What a request without fields gets. */
static void write_defaults(weir_json_out *json, const weir_server *server)
{
    const weir_request_limits *const limits = &server->limits;
    const weir_openai_request request = { .sampling = limits->sampling };
    weir_json_key(json, "default_generation_settings");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "n_ctx", limits->window);
    weir_json_key(json, "params");
    weir_json_open(json, '{');
    weir_llama_settings_write(json, &request, limits->max_tokens > 0 ? limits->max_tokens : -1, 0);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

static void write_llama(weir_json_out *json, const weir_server *server)
{
    static const char *const media[] = { "vision", "audio" };
    const weir_server_options *const options = &server->options;
    const char *const chat = weir_tokenizer_chat_template(options->tokenizer);
    write_defaults(json, server);
    const struct {
        const char *key, *value;
    } texts[] = {
        { "model_alias", options->model_name },
        { "model_path", options->model_name }, /* folders are not told */
        { "build_info", options->version },
        { "chat_template", chat != NULL && options->chat != NULL ? chat : "" },
        { "bos_token", weir_tokenizer_bos_text(options->tokenizer) },
        { "eos_token", weir_tokenizer_eos_text(options->tokenizer) },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        weir_json_put_string(json, texts[i].key, texts[i].value);
    weir_json_key(json, "modalities");
    weir_json_open(json, '{');
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        weir_json_put_bool(json, media[i], false);
    weir_json_close(json, '}');
}

void weir_llama_props(weir_exchange *x)
{
    const weir_server_options *const options = &x->server->options;
    const weir_engine_facts *const facts = weir_service_facts_of(options->service);
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    weir_json_open(&json, '{');
    const struct {
        const char *key, *value;
    } texts[] = {
        { "model", options->model_name },
        { "version", options->version },
        { "system_fingerprint", options->fingerprint },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        weir_json_put_string(&json, texts[i].key, texts[i].value);
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        { "total_slots", facts->n_slots },
        { "queue_limit", facts->queue_limit },
        { "n_ctx", facts->window },
        { "max_n", facts->n_slots },
        { "body_limit", options->body_limit },
        { "header_limit", options->header_limit },
        { "max_connections", options->max_connections },
        { "read_timeout_ms", options->read_timeout_ms },
        { "write_timeout_ms", options->write_timeout_ms },
        { "ping_ms", options->ping_ms },
        { "max_stop_strings", WEIR_STOP_STRINGS },
        { "max_prompts", WEIR_PROMPTS },
        { "max_logit_bias", WEIR_BIAS_ENTRIES },
        { "kv_pages_total", facts->kv_pages.n },
        { "kv_page_bytes", facts->kv_page_bytes },
        { "kv_per_request", facts->kv_per_request },
        { "kv_per_key", facts->kv_per_key },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        weir_json_put_integer(&json, numbers[i].key, numbers[i].value);
    weir_json_key(&json, "kv");
    weir_json_open(&json, '{');
    weir_kv_formats_write(&json, facts);
    weir_json_close(&json, '}');
    write_llama(&json, x->server);
    weir_json_close(&json, '}');
    weir_reply_result(x, &text, json.status);
}

/* ---- /apply-template ------------------------------------------------------------------------- */

static weir_status render(weir_exchange *x, weir_buffer *out)
{
    weir_openai_request request = { 0 };
    weir_buffer text = { 0 };
    weir_ids ids = { 0 };
    WEIR_TRY(weir_openai_request_read(
        &request, true, x->body.data != NULL ? x->body.data : "", x->body.size, &x->server->limits,
        &x->error
    ));
    weir_exchange_warn(x, &request.unknown);
    const weir_status status = weir_chat_prompt(&ids, x->server, &request, &text, &x->error);
    weir_json_out json = { .buffer = out, .status = status };
    weir_json_open(&json, '{');
    weir_json_key(&json, "prompt");
    weir_json_bytes(&json, text.data != NULL ? text.data : "", text.size);
    weir_json_close(&json, '}');
    weir_ids_free(&ids);
    weir_buffer_free(&text);
    weir_openai_request_free(&request);
    return json.status;
}

void weir_llama_template(weir_exchange *x)
{
    weir_buffer text = { 0 };
    const weir_status status = render(x, &text);
    weir_exchange_drop_body(x);
    weir_reply_result(x, &text, status);
}
