/* engine/serve/routes.c - the table of paths, and the endpoints that need neither a worker nor the
 * engine. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/serve/internal.h"
#include "engine/serve/json_out.h"
#include "engine/serve/openapi.h"

static void run_health(weir_exchange *x)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    /* A few bytes without an account, so that it is answered when memory is used up. */
    weir_memory_tracker *const tracker = weir_memory_tracker_set(NULL);
    weir_reply_text(x, "application/json", ok, sizeof ok - 1);
    (void)weir_memory_tracker_set(tracker);
}

static void run_metrics(weir_exchange *x)
{
    weir_server *const server = x->server;
    weir_service_stats stats = { 0 };
    weir_service_stats_of(server->options.service, &stats);
    weir_ledger_state state = { 0 };
    if (server->options.ledger != NULL) weir_ledger_read(server->options.ledger, &state);
    weir_metrics_set(
        &server->metrics.log_lines_dropped,
        weir_line_writer_dropped(server->log) + weir_log_dropped()
    );
    weir_session_activity sessions = { 0 };
    if (server->options.sessions != NULL)
        weir_sessions_activity_of(server->options.sessions, &sessions);
    weir_metrics_set(&server->metrics.sessions_saving, (uint64_t)sessions.saving);
    weir_metrics_set(&server->metrics.sessions_restoring, (uint64_t)sessions.restoring);
    weir_metrics_set(&server->metrics.sessions_waiting, (uint64_t)sessions.waiting);
    weir_buffer text = { 0 };
    const weir_engine_facts *const facts = weir_service_facts_of(server->options.service);
    weir_status status = weir_metrics_write(
        &text, &server->metrics, &stats, facts, &state, server->options.model_name,
        server->options.metrics_vllm
    );
    if (status == WEIR_OK && stats.experts.n_entries > 0)
        status = weir_metrics_write_layers(
            &text, server->options.service, weir_service_expert_counts, facts->n_layers,
            server->options.model_name
        );
    if (status == WEIR_OK)
        weir_reply_text(x, "text/plain; version=0.0.4; charset=utf-8", text.data, text.size);
    else
        weir_reply_status(x, status);
    weir_buffer_free(&text);
}

static void write_model(weir_json_out *json, const weir_server *server)
{
    const weir_engine_facts *const facts = weir_service_facts_of(server->options.service);
    weir_json_open(json, '{');
    weir_json_put_string(json, "id", server->options.model_name);
    weir_json_put_string(json, "root", server->options.model_name); /* vLLM's benchmark reads it */
    weir_json_put_string(json, "object", "model");
    weir_json_put_integer(json, "created", server->start_unix);
    weir_json_put_string(json, "owned_by", "weir");
    weir_json_put_integer(json, "max_model_len", facts->window);
    const char *list = server->limits.aliases != NULL ? server->limits.aliases : "";
    size_t n;
    weir_json_key(json, "aliases");
    weir_json_open(json, '[');
    for (const char *one = weir_model_next_alias(&list, &n); one != NULL;
         one = weir_model_next_alias(&list, &n))
        weir_json_bytes(json, one, n);
    weir_json_close(json, ']');
    weir_json_key(json, "meta");
    weir_json_open(json, '{');
    const struct {
        const char *key;
        int64_t value;
    } meta[] = {
        { "vocab_type", 2 },
        { "n_vocab", facts->n_vocab },
        { "n_ctx_train", facts->trained_context },
        { "n_embd", facts->d_model },
        { "n_layer", facts->n_layers },
        { "n_params", facts->n_parameters },
        { "size", facts->weight_bytes },
    };
    for (size_t i = 0; i < sizeof meta / sizeof meta[0]; i++)
        weir_json_put_integer(json, meta[i].key, meta[i].value);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

static void run_models(weir_exchange *x)
{
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "list");
    weir_json_key(&json, "data");
    weir_json_open(&json, '[');
    write_model(&json, x->server);
    weir_json_close(&json, ']');
    weir_json_key(&json, "models"); /* Codex requires its own list here */
    weir_json_open(&json, '[');
    weir_json_close(&json, ']');
    weir_json_close(&json, '}');
    weir_reply_result(x, &text, json.status);
}

static void run_model(weir_exchange *x)
{
    const char *const name = x->path + strlen(x->route->path);
    if (!weir_model_is_served(&x->server->limits, name, strlen(name))) {
        (void)!weir_api_fail(
            &x->error, 404, "model_not_found", "model",
            "the model %s is not served here; see /v1/models", weir_quote(name).text
        );
        weir_reply_error(x);
        return;
    }
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    write_model(&json, x->server);
    weir_reply_result(x, &text, json.status);
}

static void run_openapi(weir_exchange *x)
{
    weir_buffer text = { 0 };
    const char *const version = x->server->options.version;
    const weir_status status =
        weir_openapi_write(&text, version != NULL ? version : "0", x->server->access.n_keys > 0);
    weir_reply_result(x, &text, status);
}

static const char events[] = "text/event-stream", lines[] = "application/x-ndjson";

static const weir_route routes[] = {
    { "POST", "/v1/chat/completions", false, true, weir_generate_chat,
      .summary = "an answer to a conversation", .request = "ChatRequest", .streams = events },
    { "POST", "/v1/completions", false, true, weir_generate_completion,
      .summary = "what a text goes on with", .request = "CompletionRequest", .streams = events },
    { "POST", "/v1/responses", false, true, weir_generate_response,
      .summary = "a chat in OpenAI's newer form", .request = "ResponsesRequest",
      .streams = events },
    { "POST", "/v1/responses/input_tokens", false, true, weir_responses_tokens,
      .summary = "how long its prompt is", .request = "ResponsesRequest" },
    { "POST", "/v1/messages", false, true, weir_generate_message,
      .summary = "a chat in Anthropic's form", .request = "MessagesRequest", .streams = events },
    { "POST", "/v1/messages/count_tokens", false, true, weir_anthropic_count_tokens,
      .summary = "how long its prompt is", .request = "CountRequest" },
    { "POST", "/v1/embeddings", false, true, weir_embeddings, .summary = "vectors of texts",
      .request = "EmbeddingsRequest" },
    { "POST", "/v1/rerank", false, true, weir_rerank,
      .summary = "documents in the order of a query", .request = "RerankRequest" },
    { "POST", "/rerank", false, true, weir_rerank, .summary = "the same",
      .request = "RerankRequest" },
    { "GET", "/v1/models", false, false, run_models,
      .summary = "the model, with the names in `server.aliases`" },
    { "GET", "/v1/models/", false, false, run_model, .summary = "the model by one of its names" },
    { "POST", "/tokenize", false, true, weir_tokens_encode,
      .summary = "token ids of a text or conversation", .request = "TokenizeRequest" },
    { "POST", "/detokenize", false, true, weir_tokens_decode, .summary = "the text of token ids",
      .request = "DetokenizeRequest" },
    { "GET", "/v1/memory", false, false, weir_memory_get, .summary = "where memory is" },
    { "GET", "/v1/memory/plan", false, false, weir_memory_plan_get,
      .summary = "what KV would take in other formats" },
    { "GET", "/v1/memory/map", false, true, weir_memory_map_get,
      .summary = "what each layer and KV head of running sequences holds" },
    { "GET", "/v1/sessions", false, true, weir_sessions_get, .summary = "conversations on disk" },
    { "POST", "/v1/sessions", false, true, weir_sessions_post_save,
      .summary = "saves what is cached of a conversation", .request = "SaveRequest" },
    { "POST", "/v1/sessions/restore", false, true, weir_sessions_post_restore,
      .summary = "reads a conversation into the cache", .request = "RestoreRequest" },
    { "DELETE", "/v1/sessions/", false, true, weir_sessions_remove,
      .summary = "deletes a conversation" },
    { "GET", "/v1/states", false, true, weir_states_api_get, .summary = "precomputed documents",
      .query = "limit before" },
    { "POST", "/v1/states", false, true, weir_states_api_post,
      .summary = "computes and stores a document", .request = "StateRequest" },
    { "POST", "/v1/states/query", false, true, weir_states_api_query,
      .summary = "the states nearest to a question", .request = "QueryRequest" },
    { "POST", "/v1/states/merge", false, true, weir_states_api_merge,
      .summary = "merges two states", .request = "MergeRequest" },
    { "GET", "/v1/states/", false, true, weir_states_api_get_one,
      .summary = "a state with its metadata" },
    { "DELETE", "/v1/states/", false, true, weir_states_api_remove, .summary = "deletes a state" },
    { "POST", "/completion", false, true, weir_llama_completion,
      .summary = "llama-server's completion", .request = "LlamaRequest", .streams = events },
    { "POST", "/infill", false, true, weir_llama_infill,
      .summary = "llama-server's insertion into code", .request = "InfillRequest",
      .streams = events },
    { "POST", "/apply-template", false, true, weir_llama_template,
      .summary = "the prompt of a chat as text", .request = "ChatRequest" },
    { "GET", "/slots", false, true, weir_llama_slots_get, .summary = "llama-server's slots",
      .query = "fail_on_no_slot" },
    { "POST", "/slots/", false, true, weir_llama_slots_post,
      .summary = "saves, restores or erases a slot", .request = "SlotRequest", .query = "action" },
    { "GET", "/props", false, false, weir_llama_props,
      .summary = "limits and identity, as llama-server has them" },
    { "POST", "/api/chat", false, true, weir_ollama_chat, .summary = "a chat in Ollama's form",
      .request = "OllamaChatRequest", .streams = lines },
    { "POST", "/api/generate", false, true, weir_ollama_generate, .summary = "Ollama's completion",
      .request = "OllamaGenerateRequest", .streams = lines },
    { "GET", "/api/tags", false, false, weir_ollama_tags, .summary = "the model as a list" },
    { "GET", "/api/ps", false, false, weir_ollama_ps, .summary = "the model as one that runs" },
    { "POST", "/api/show", false, true, weir_ollama_show, .summary = "what the model is",
      .request = "OllamaShowRequest" },
    { "GET", "/api/version", false, false, weir_ollama_version,
      .summary = "the version of Ollama's API" },
    { "POST", "/api/pull", false, false, weir_ollama_refuse, .summary = "refused: 403" },
    { "POST", "/api/push", false, false, weir_ollama_refuse, .summary = "refused: 403" },
    { "POST", "/api/create", false, false, weir_ollama_refuse, .summary = "refused: 403" },
    { "POST", "/api/copy", false, false, weir_ollama_refuse, .summary = "refused: 403" },
    { "DELETE", "/api/delete", false, false, weir_ollama_refuse, .summary = "refused: 403" },
    { "POST", "/api/embed", false, true, weir_ollama_embed, .summary = "vectors of texts",
      .request = "OllamaEmbedRequest" },
    { "POST", "/api/embeddings", false, true, weir_ollama_embeddings,
      .summary = "the vector of one text", .request = "OllamaEmbeddingsRequest" },
    { "GET", "/health", true, false, run_health, .summary = "200 while the process answers" },
    { "GET", "/v1/health", true, false, run_health, .summary = "the same" },
    { "GET", "/metrics", false, false, run_metrics, .summary = "Prometheus text",
      .produces = "text/plain" },
    { "GET", "/openapi.json", true, false, run_openapi,
      .summary = "this list with the fields of all requests, as OpenAPI 3.1" },
    { "GET", "/", true, false, weir_page_get, .summary = "a chat page", .produces = "text/html" },
    { "GET", "/page/chat.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/dom.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/files.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/history.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/map.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/markdown.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/markdown_view.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/memory.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/plan.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/server.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/settings.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/store.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/turns.js", true, false, weir_page_get, .summary = "its scripts",
      .produces = "text/javascript" },
    { "GET", "/page/memory.css", true, false, weir_page_get, .summary = "its styles",
      .produces = "text/css" },
    { "GET", "/page/page.css", true, false, weir_page_get, .summary = "its styles",
      .produces = "text/css" },
};

const weir_route *weir_routes(size_t *count)
{
    *count = sizeof routes / sizeof routes[0];
    return routes;
}

static bool fits(const weir_route *route, const char *path)
{
    const size_t n = strlen(route->path);
    if (strcmp(route->path, path) == 0) return n == 1 || route->path[n - 1] != '/';
    return n > 1 && route->path[n - 1] == '/' && strncmp(path, route->path, n) == 0 &&
           path[n] != 0 && strchr(path + n, '/') == NULL;
}

const weir_route *weir_route_find(const char *method, const char *path, const char **allow)
{
    enum { GET = 1, POST = 2, DELETE = 4 };
    static const char *const allowed[8] = { NULL,
                                            "GET, HEAD, OPTIONS",
                                            "POST, OPTIONS",
                                            "GET, HEAD, POST, OPTIONS",
                                            "DELETE, OPTIONS",
                                            "GET, HEAD, DELETE, OPTIONS",
                                            "POST, DELETE, OPTIONS",
                                            "GET, HEAD, POST, DELETE, OPTIONS" };
    const weir_route *found = NULL;
    unsigned methods = 0;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (!fits(&routes[i], path)) continue;
        const bool get = strcmp(routes[i].method, "GET") == 0;
        methods |= get ? GET : strcmp(routes[i].method, "POST") == 0 ? POST : DELETE;
        if (found == NULL &&
            (strcmp(method, routes[i].method) == 0 || (get && strcmp(method, "HEAD") == 0)))
            found = &routes[i];
    }
    *allow = allowed[methods];
    return found;
}
