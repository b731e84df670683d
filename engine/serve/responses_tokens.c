/* engine/serve/responses_tokens.c - POST /v1/responses/input_tokens: how many tokens the prompt of
 * a request to /v1/responses has. */
#include "engine/serve/internal.h"
#include "engine/serve/responses_request.h"

static weir_status count_tokens(weir_ids *ids, weir_exchange *x, const weir_openai_request *request)
{
    weir_buffer text = { 0 };
    weir_exchange_warn(x, &request->unknown);
    if (request->state != NULL) return weir_api_unsupported(&x->error, "state");
    const weir_status status = weir_chat_prompt(ids, x->server, request, &text, &x->error);
    if (status != WEIR_OK) weir_responses_name_error(&x->error);
    weir_buffer_free(&text);
    return status;
}

void weir_responses_tokens(weir_exchange *x)
{
    weir_openai_request request = { 0 };
    weir_responses more = { 0 };
    weir_ids ids = { 0 };
    weir_buffer out = { 0 };
    weir_json_out json = { .buffer = &out };
    const char *const body = x->body.data != NULL ? x->body.data : "";
    weir_status status =
        weir_responses_read(&request, &more, body, x->body.size, &x->server->limits, &x->error);
    weir_exchange_drop_body(x);
    if (status == WEIR_OK) status = count_tokens(&ids, x, &request);
    if (status == WEIR_OK) {
        weir_json_open(&json, '{');
        weir_json_put_string(&json, "object", "response.input_tokens");
        weir_json_put_integer(&json, "input_tokens", (int64_t)ids.count);
        weir_json_close(&json, '}');
        status = json.status;
    }
    weir_openai_request_free(&request);
    weir_buffer_free(&more.echo);
    weir_ids_free(&ids);
    weir_reply_result(x, &out, status);
}
