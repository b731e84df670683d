/* engine/serve/ollama_models.c - Ollama's lists: the one model that is served. Models are not
 * fetched, made or removed over HTTP. */
#include <stdio.h>
#include <string.h>

#include "engine/base/sha256.h"
#include "engine/serve/json_in.h"
#include "engine/serve/ollama_api.h"

/* Clients ask for it to know what the API has: that of this release of Ollama. */
static const char api_version[] = "0.12.6";

static const weir_engine_facts *facts_of(const weir_server *server)
{
    return weir_service_facts_of(server->options.service);
}

/* "1.2B" or "600M" parameters. */
static void write_size(weir_json_out *json, const weir_engine_facts *facts)
{
    char text[32];
    const double n = (double)facts->n_parameters;
    if (n >= 1e9)
        (void)snprintf(text, sizeof text, "%.1fB", n / 1e9);
    else
        (void)snprintf(text, sizeof text, "%.2fM", n / 1e6);
    weir_json_put_string(json, "parameter_size", text);
}

static void write_details(weir_json_out *json, const weir_server *server)
{
    const weir_engine_facts *const facts = facts_of(server);
    weir_json_key(json, "details");
    weir_json_open(json, '{');
    weir_json_put_string(json, "parent_model", "");
    weir_json_put_string(json, "format", "gguf");
    weir_json_put_string(json, "family", facts->arch);
    weir_json_key(json, "families");
    weir_json_open(json, '[');
    weir_json_string(json, facts->arch);
    weir_json_close(json, ']');
    write_size(json, facts);
    weir_json_put_string(json, "quantization_level", "unknown");
    weir_json_close(json, '}');
}

/* A digest of the model's name and fingerprint: what answers depend on, not its bytes. */
static void write_digest(weir_json_out *json, const weir_server *server)
{
    char hex[WEIR_SHA256_HEX + 1];
    weir_sha256_stream state;
    weir_sha256_begin(&state);
    weir_sha256_add(&state, server->options.model_name, strlen(server->options.model_name) + 1);
    weir_sha256_add(&state, server->options.fingerprint, strlen(server->options.fingerprint));
    const weir_sha256 digest = weir_sha256_end(&state);
    weir_sha256_text(hex, &digest);
    weir_json_put_string(json, "digest", hex);
}

static void write_model(weir_json_out *json, const weir_server *server)
{
    weir_json_put_string(json, "name", server->options.model_name);
    weir_json_put_string(json, "model", server->options.model_name);
    weir_json_put_integer(json, "size", facts_of(server)->weight_bytes);
    write_digest(json, server);
    write_details(json, server);
}

static void write_modified(weir_json_out *json, const weir_server *server)
{
    char time[WEIR_OLLAMA_TIME];
    weir_ollama_time(time, server->start_unix);
    weir_json_put_string(json, "modified_at", time);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void reply_list(weir_exchange *x, bool is_running)
{
    const weir_server *const server = x->server;
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    weir_json_open(&json, '{');
    weir_json_key(&json, "models");
    weir_json_open(&json, '[');
    weir_json_open(&json, '{');
    write_model(&json, server);
    if (is_running) {
        weir_json_put_string(&json, "expires_at", "9999-12-31T23:59:59Z"); /* it stays */
        weir_json_put_integer(&json, "size_vram", 0);
        weir_json_put_integer(&json, "context_length", server->limits.window);
    } else {
        write_modified(&json, server);
    }
    weir_json_close(&json, '}');
    weir_json_close(&json, ']');
    weir_json_close(&json, '}');
    weir_reply_result(x, &text, json.status);
}

void weir_ollama_tags(weir_exchange *x) { reply_list(x, false); }
void weir_ollama_ps(weir_exchange *x) { reply_list(x, true); }

void weir_ollama_version(weir_exchange *x)
{
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "version", api_version);
    weir_json_close(&json, '}');
    weir_reply_result(x, &text, json.status);
}

/* ---- one model ------------------------------------------------------------------------------- */

static void write_info(weir_json_out *json, const weir_server *server)
{
    const weir_engine_facts *const facts = facts_of(server);
    const struct {
        const char *suffix;
        int64_t value;
    } numbers[] = {
        { "context_length", facts->trained_context },
        { "embedding_length", facts->d_model },
        { "block_count", facts->n_layers },
        { "attention.head_count", facts->n_heads },
        { "attention.head_count_kv", facts->n_kv_heads },
        { "vocab_size", facts->n_vocab },
    };
    char key[sizeof facts->arch + 32];
    weir_json_key(json, "model_info");
    weir_json_open(json, '{');
    weir_json_put_string(json, "general.architecture", facts->arch);
    weir_json_put_integer(json, "general.parameter_count", facts->n_parameters);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(key, sizeof key, "%s.%s", facts->arch, numbers[i].suffix);
        weir_json_put_integer(json, key, numbers[i].value);
    }
    weir_json_close(json, '}');
}

static void write_capabilities(weir_json_out *json, const weir_server *server)
{
    weir_json_key(json, "capabilities");
    weir_json_open(json, '[');
    weir_json_string(json, "completion");
    if (server->options.chat != NULL) weir_json_string(json, "tools");
    if (server->reasons) weir_json_string(json, "thinking");
    weir_json_close(json, ']');
}

static weir_status write_show(weir_buffer *out, const weir_server *server)
{
    const char *const chat = weir_tokenizer_chat_template(server->options.tokenizer);
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "modelfile", "");
    weir_json_put_string(&json, "parameters", "");
    weir_json_put_string(&json, "template", chat != NULL ? chat : "");
    write_details(&json, server);
    write_info(&json, server);
    write_capabilities(&json, server);
    write_modified(&json, server);
    weir_json_close(&json, '}');
    return json.status;
}

/* Older clients send `name`. */
static weir_status read_show(weir_exchange *x)
{
    json_t *root = NULL;
    char model[WEIR_OLLAMA_MODEL];
    const char *const body = x->body.data != NULL ? x->body.data : "";
    WEIR_TRY(weir_json_read(&root, body, x->body.size, &x->error));
    const char *const key = weir_field(root, "model") != NULL ? "model" : "name";
    weir_status status = weir_ollama_model_read(model, root, key, &x->server->limits, &x->error);
    if (status == WEIR_OK) status = weir_exchange_check_fields(x, root, WEIR_BODY_OLLAMA_SHOW);
    json_decref(root);
    return status;
}

void weir_ollama_show(weir_exchange *x)
{
    weir_buffer text = { 0 };
    weir_status status = read_show(x);
    if (status == WEIR_OK) status = write_show(&text, x->server);
    weir_reply_result(x, &text, status);
}

/* ---- management ------------------------------------------------------------------------------ */

void weir_ollama_refuse(weir_exchange *x)
{
    (void)!weir_api_fail(
        &x->error, 403, NULL, NULL,
        "models are not fetched, made or removed over HTTP; use `weir get` and `weir models`"
    );
    weir_reply_error(x);
}
