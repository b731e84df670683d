/* engine/serve/ollama_reply.c - Ollama's /api/chat and /api/generate: one JSON object per line, of
 * which the last has counts and durations; or one object. */
#include <string.h>
#include <time.h>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/serve/json_in.h"
#include "engine/serve/ollama_api.h"

static const char lines_type[] = "application/x-ndjson";

/* What a generation knows besides its request. */
typedef struct ollama {
    char model[WEIR_OLLAMA_MODEL]; /* as the client names it */
    bool generates; /* /api/generate */
} ollama;

static const ollama *ollama_of(const weir_generation *g) { return g->api_data; }

void weir_ollama_time(char out[WEIR_OLLAMA_TIME], int64_t unix_seconds)
{
    struct tm parts;
    const time_t at = (time_t)unix_seconds;
    out[0] = '\0';
    if (gmtime_r(&at, &parts) != NULL)
        (void)strftime(out, WEIR_OLLAMA_TIME, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

void weir_ollama_head_write(weir_json_out *json, const char *model, int64_t unix_seconds)
{
    char time[WEIR_OLLAMA_TIME];
    weir_ollama_time(time, unix_seconds);
    weir_json_put_string(json, "model", model);
    weir_json_put_string(json, "created_at", time);
}

/* ---- text and calls -------------------------------------------------------------------------- */

static void write_bytes(weir_json_out *json, const char *key, const weir_buffer *text)
{
    weir_json_key(json, key);
    weir_json_bytes(json, text->data != NULL ? text->data : "", text->size);
}

static void write_calls(
    weir_json_out *json, const weir_generation *g, const weir_tool_call *calls, size_t n
)
{
    weir_json_key(json, "tool_calls");
    weir_json_open(json, '[');
    for (size_t i = 0; i < n; i++) {
        weir_json_open(json, '{');
        const weir_call_id own = weir_generation_call_id(g, 0, i); /* what is remembered */
        weir_json_put_string(json, "id", calls[i].id != NULL ? calls[i].id : own.text);
        weir_json_key(json, "function");
        weir_json_open(json, '{');
        weir_json_put_integer(json, "index", (int64_t)i);
        weir_json_put_string(json, "name", calls[i].name);
        weir_json_key(json, "arguments");
        weir_reply_input(json, calls[i].arguments);
        weir_json_close(json, '}');
        weir_json_close(json, '}');
    }
    weir_json_close(json, ']');
}

/* The members `response` and `thinking`, or `message`; with its calls once the answer has ended. */
static void write_text(weir_json_out *json, const weir_generation *g, bool with_calls)
{
    const weir_answer *const answer = &g->answers[0];
    const bool generates = ollama_of(g)->generates;
    size_t n_calls = 0;
    const weir_tool_call *const calls = weir_answer_calls(answer, &n_calls);
    if (!generates) {
        weir_json_key(json, "message");
        weir_json_open(json, '{');
        weir_json_put_string(json, "role", "assistant");
    }
    write_bytes(json, generates ? "response" : "content", &answer->content);
    if (answer->reasoning.size > 0) write_bytes(json, "thinking", &answer->reasoning);
    if (with_calls && !generates && n_calls > 0) write_calls(json, g, calls, n_calls);
    if (!generates) weir_json_close(json, '}');
}

static void write_logprobs(weir_json_out *json, weir_generation *g)
{
    weir_answer *const answer = &g->answers[0];
    if (answer->n_logprobs_sent == answer->logprobs.count) return;
    weir_json_key(json, "logprobs");
    weir_logprob_list_write_chat(
        json, &answer->logprobs, answer->n_logprobs_sent, g->exchange->server->options.tokenizer
    );
    answer->n_logprobs_sent = answer->logprobs.count;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void write_end(weir_json_out *json, const weir_generation *g)
{
    const weir_usage usage = weir_generation_usage(g);
    const char *const reason = weir_answer_reason(&g->answers[0]);
    const int64_t computed_ns = usage.prefill_ns + usage.decode_ns,
                  passed_ns = weir_clock_ns() - g->exchange->start_ns;
    weir_json_put_string(json, "done_reason", strcmp(reason, "length") == 0 ? "length" : "stop");
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        { "total_duration", passed_ns > computed_ns ? passed_ns : computed_ns },
        { "load_duration", 0 },
        { "prompt_eval_count", usage.n_prompt },
        { "prompt_eval_duration", usage.prefill_ns },
        { "eval_count", usage.n_answer },
        { "eval_duration", usage.decode_ns },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        weir_json_put_integer(json, numbers[i].key, numbers[i].value);
}

static weir_status write_object(weir_buffer *out, weir_generation *g, bool is_last)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_ollama_head_write(&json, ollama_of(g)->model, g->created);
    write_text(&json, g, is_last);
    write_logprobs(&json, g);
    weir_json_put_bool(&json, "done", is_last);
    if (is_last) write_end(&json, g);
    weir_json_close(&json, '}');
    return json.status;
}

static weir_status whole(weir_buffer *out, weir_generation *g)
{
    return write_object(out, g, true);
}

static weir_status write_line(weir_buffer *out, weir_generation *g, bool is_last)
{
    const size_t begin = out->size;
    WEIR_TRY(write_object(out, g, is_last));
    /* Arguments are as the model wrote them; between values of JSON a space will do. */
    for (size_t i = begin; i < out->size; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r') out->data[i] = ' ';
    weir_buffer_clear(&g->answers[0].content);
    weir_buffer_clear(&g->answers[0].reasoning);
    return weir_buffer_text(out, "\n");
}

static weir_status write_failure(weir_buffer *out, weir_generation *g)
{
    WEIR_TRY(weir_ollama_error_write(out, &g->failure));
    WEIR_TRY(weir_buffer_text(out, "\n"));
    g->end_sent = true; /* without memory, a shorter message follows */
    return WEIR_OK;
}

static weir_status events(weir_buffer *out, weir_generation *g)
{
    const weir_answer *const answer = &g->answers[0];
    if (g->failure.status != 0) return write_failure(out, g);
    const bool has_more = answer->content.size > 0 || answer->reasoning.size > 0 ||
                          answer->n_logprobs_sent < answer->logprobs.count;
    if (has_more) WEIR_TRY(write_line(out, g, false));
    if (!g->ended) return WEIR_OK;
    WEIR_TRY(write_line(out, g, true));
    g->end_sent = true;
    return WEIR_OK;
}

static const char *last_words(weir_generation *g)
{
    (void)g;
    return "{\"error\":\"no memory for the rest of this answer within memory.host; try again\"}\n";
}

/* ---- requests -------------------------------------------------------------------------------- */

static weir_status read_text(
    weir_generation *g, const char *text, size_t n, weir_body body, weir_api_error *error
)
{
    json_t *root = NULL;
    weir_ollama_request read = { .model = "" };
    WEIR_TRY(weir_json_read(&root, text, n, error));
    const weir_server *const server = g->exchange->server;
    const weir_status status = weir_ollama_request_read(
        &read, root, body, server->options.chat != NULL, &server->limits, error
    );
    json_decref(root);
    WEIR_TRY(status);
    g->request = read.request;
    ollama *const data = weir_memory_take_zero(1, sizeof *data);
    if (data == NULL) return weir_api_no_memory(error);
    memcpy(data->model, read.model, sizeof data->model);
    data->generates = body == WEIR_BODY_OLLAMA_GENERATE;
    g->api_data = data;
    return WEIR_OK;
}

static weir_status read_chat(weir_generation *g, const char *text, size_t n, weir_api_error *error)
{
    return read_text(g, text, n, WEIR_BODY_OLLAMA_CHAT, error);
}

static weir_status read_generate(
    weir_generation *g, const char *text, size_t n, weir_api_error *error
)
{
    return read_text(g, text, n, WEIR_BODY_OLLAMA_GENERATE, error);
}

static const weir_api chat_api = { .id_prefix = "chatcmpl-",
                                   .chat = true,
                                   .stream_type = lines_type,
                                   .read = read_chat,
                                   .name_error = weir_ollama_name_error,
                                   .whole = whole,
                                   .events = events,
                                   .last_words = last_words,
                                   .free_data = weir_memory_give };
static const weir_api generate_api = { .id_prefix = "cmpl-",
                                       .chat = true,
                                       .prompt_field = "prompt",
                                       .stream_type = lines_type,
                                       .read = read_generate,
                                       .name_error = weir_ollama_name_error,
                                       .whole = whole,
                                       .events = events,
                                       .last_words = last_words,
                                       .free_data = weir_memory_give };

/* ---- loading --------------------------------------------------------------------------------- */

/* The model is always loaded, so this only says so. */
static weir_status write_load(weir_buffer *out, const weir_ollama_load *load, bool generates)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_ollama_head_write(&json, load->model, weir_clock_unix_seconds());
    if (generates) {
        weir_json_put_string(&json, "response", "");
    } else {
        weir_json_key(&json, "message");
        weir_json_open(&json, '{');
        weir_json_put_string(&json, "role", "assistant");
        weir_json_put_string(&json, "content", "");
        weir_json_close(&json, '}');
    }
    weir_json_put_bool(&json, "done", true);
    weir_json_put_string(&json, "done_reason", load->unloads ? "unload" : "load");
    weir_json_close(&json, '}');
    WEIR_TRY(json.status);
    return load->stream ? weir_buffer_text(out, "\n") : WEIR_OK;
}

/* Bodies up to this size are looked at for a prompt before they are read as a generation. */
enum { LOAD_BYTES = 16 << 10 };

/* Returns false if the body is no such request, or is malformed. */
static bool reply_to_load(weir_exchange *x, weir_body body)
{
    json_t *root = NULL;
    weir_ollama_load load = { .model = "" };
    weir_api_error ignored = { 0 };
    if (x->body.size == 0 || x->body.size > LOAD_BYTES ||
        weir_json_read(&root, x->body.data, x->body.size, &ignored) != WEIR_OK)
        return false;
    weir_status status = weir_ollama_load_read(&load, root, body, &x->server->limits, &x->error);
    json_decref(root);
    if (status == WEIR_OK && !load.is_load) return false;
    weir_buffer text = { 0 };
    if (status == WEIR_OK) status = write_load(&text, &load, body == WEIR_BODY_OLLAMA_GENERATE);
    if (status == WEIR_OK && load.stream) {
        weir_reply_text(x, lines_type, text.data, text.size);
        weir_buffer_free(&text);
    } else {
        weir_reply_result(x, &text, status);
    }
    return true;
}

void weir_ollama_chat(weir_exchange *x)
{
    if (!reply_to_load(x, WEIR_BODY_OLLAMA_CHAT)) weir_generate(x, &chat_api);
}

void weir_ollama_generate(weir_exchange *x)
{
    if (!reply_to_load(x, WEIR_BODY_OLLAMA_GENERATE)) weir_generate(x, &generate_api);
}
