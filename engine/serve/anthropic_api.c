/* engine/serve/anthropic_api.c - POST /v1/messages and /v1/messages/count_tokens. */
#include "engine/base/memory.h"
#include "engine/serve/anthropic_convert.h"
#include "engine/serve/anthropic_reply.h"
#include "engine/serve/anthropic_request.h"

/* Reads a body for the chat template of the server. */
static weir_status read_request(
    weir_openai_request *out, bool *omits_thinking, weir_anthropic_use use, weir_exchange *x,
    const char *text, size_t n, weir_api_error *error
)
{
    const weir_server *const server = x->server;
    const bool has_chat = server->options.chat != NULL;
    WEIR_TRY(weir_anthropic_request_read(
        out, use, text, n, &server->limits, omits_thinking, x->warning, error
    ));
    if (out->wants_thought && has_chat && !weir_chat_reads_effort(server))
        weir_warning_add(x->warning, "thinking has no effect: the chat template does not read it");
    out->wants_thought = false; /* chats warn in their own words */
    if (out->thought_tokens >= 0 && server->format->is_harmony) {
        /* Claude Code sends a budget in each request. */
        weir_warning_add(x->warning, "thinking.budget_tokens is not enforced for this model");
        out->thought_tokens = -1;
    }
    if (!has_chat || !weir_anthropic_has_late_system(out->messages) ||
        weir_chat_takes_after_user(server, "system"))
        return WEIR_OK;
    /* A message of its own leaves the one before it as later requests will have it. */
    const bool joins = !weir_chat_takes_after_user(server, "user");
    if (weir_anthropic_fold_system(out->messages, joins) == WEIR_OK) return WEIR_OK;
    weir_openai_request_free(out);
    return weir_api_no_memory(error);
}

static weir_status read_message(
    weir_generation *g, const char *text, size_t n, weir_api_error *error
)
{
    weir_anthropic_answer *const answer = weir_memory_take_zero(1, sizeof *answer);
    if (answer == NULL) return weir_api_no_memory(error);
    g->api_data = answer;
    return read_request(
        &g->request, &answer->omits_thinking, WEIR_ANTHROPIC_MESSAGE, g->exchange, text, n, error
    );
}

void weir_generate_message(weir_exchange *x)
{
    static const weir_api messages = {
        .id_prefix = "msg_",
        .call_prefix = "toolu_",
        .chat = true,
        .read = read_message,
        .name_error = weir_anthropic_name_error,
        .whole = weir_anthropic_whole,
        .events = weir_anthropic_events,
        .ping = weir_anthropic_ping,
        .last_words = weir_anthropic_last_words,
        .free_data = weir_memory_give,
    };
    weir_generate(x, &messages);
}

void weir_anthropic_count_tokens(weir_exchange *x)
{
    weir_openai_request request = { 0 };
    bool omits_thinking;
    weir_buffer text = { 0 }, out = { 0 };
    weir_ids ids = { 0 };
    weir_status status = read_request(
        &request, &omits_thinking, WEIR_ANTHROPIC_COUNT, x,
        x->body.data != NULL ? x->body.data : "", x->body.size, &x->error
    );
    weir_exchange_drop_body(x);
    if (status == WEIR_OK) {
        weir_exchange_warn(x, &request.unknown);
        status = weir_chat_prompt(&ids, x->server, &request, &text, &x->error);
    }
    weir_json_out json = { .buffer = &out, .status = status };
    weir_json_open(&json, '{');
    weir_json_put_integer(&json, "input_tokens", (int64_t)ids.count);
    weir_json_close(&json, '}');
    weir_ids_free(&ids);
    weir_buffer_free(&text);
    weir_openai_request_free(&request);
    weir_reply_result(x, &out, json.status);
}
