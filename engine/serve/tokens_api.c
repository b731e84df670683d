/* engine/serve/tokens_api.c - /tokenize and /detokenize, in the forms of llama.cpp and vLLM. */
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/serve/internal.h"
#include "engine/serve/json_in.h"
#include "engine/serve/json_out.h"
#include "engine/serve/messages.h"

static weir_status encode_text(
    weir_ids *ids, const weir_server *server, const json_t *root, const json_t *text,
    bool add_special, const char *param, weir_api_error *error
)
{
    weir_encode_options options = { .add_special = add_special, .parse_special = true };
    weir_error why = { 0 };
    if (!json_is_string(text)) return weir_api_bad(error, param, "%s must be a string", param);
    WEIR_TRY(weir_field_bool(root, "add_special", &options.add_special, error));
    WEIR_TRY(weir_field_bool(root, "add_special_tokens", &options.add_special, error));
    WEIR_TRY(weir_field_bool(root, "parse_special", &options.parse_special, error));
    const weir_status status = weir_tokenizer_encode(
        server->options.tokenizer, ids, json_string_value(text), json_string_length(text), &options,
        &why
    );
    if (status != WEIR_OK) weir_api_from_status(error, status, why.text);
    return status;
}

static weir_status encode_messages(
    weir_ids *ids, const weir_server *server, const json_t *root, weir_api_error *error
)
{
    weir_openai_request request = { .chat = true, .add_generation_prompt = true };
    weir_buffer text = { 0 };
    weir_status status =
        weir_field_bool(root, "add_generation_prompt", &request.add_generation_prompt, error);
    if (status == WEIR_OK)
        status = weir_messages_read(&request.messages, weir_field(root, "messages"), error);
    if (status == WEIR_OK)
        status = weir_tools_read(&request.tools, weir_field(root, "tools"), error);
    if (status == WEIR_OK) status = weir_chat_prompt(ids, server, &request, &text, error);
    weir_buffer_free(&text);
    weir_openai_request_free(&request);
    return status;
}

weir_status weir_prompt_encode(
    weir_ids *ids, const weir_server *server, const json_t *root, bool *given, weir_api_error *error
)
{
    const json_t *const prompt = weir_field(root, "prompt"), *const messages =
                                                                 weir_field(root, "messages");
    *given = prompt != NULL || messages != NULL;
    if (prompt != NULL) return encode_text(ids, server, root, prompt, true, "prompt", error);
    return messages != NULL ? encode_messages(ids, server, root, error) : WEIR_OK;
}

weir_status weir_text_ids(
    weir_ids *ids, bool *given, const weir_server *server, const json_t *root, weir_api_error *error
)
{
    const json_t *const tokens = weir_field(root, "tokens");
    if (tokens == NULL) return weir_prompt_encode(ids, server, root, given, error);
    *given = true;
    if (!json_is_array(tokens))
        return weir_api_bad(error, "tokens", "tokens must be an array of token ids");
    WEIR_TRY(weir_openai_check_ids(tokens, server->limits.n_vocab, "tokens", error));
    for (size_t i = 0; i < json_array_size(tokens); i++)
        if (weir_ids_add(ids, (int32_t)json_integer_value(json_array_get(tokens, i))) != WEIR_OK)
            return WEIR_ENOMEM;
    return WEIR_OK;
}

static void write_piece(weir_json_out *json, const weir_tokenizer *tokenizer, int32_t id)
{
    size_t n;
    bool special;
    const char *const bytes = weir_tokenizer_token_bytes(tokenizer, id, &n, &special);
    weir_json_open(json, '{');
    weir_json_put_integer(json, "id", id);
    weir_json_key(json, "piece");
    if (weir_utf8_valid(bytes, n)) {
        weir_json_bytes(json, bytes, n);
    } else {
        weir_json_open(json, '[');
        for (size_t i = 0; i < n; i++) weir_json_integer(json, (unsigned char)bytes[i]);
        weir_json_close(json, ']');
    }
    weir_json_close(json, '}');
}

static weir_status write_ids(
    weir_buffer *out, const weir_server *server, const weir_ids *ids, bool with_pieces
)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_key(&json, "tokens");
    weir_json_open(&json, '[');
    for (size_t i = 0; i < ids->count; i++) {
        if (with_pieces)
            write_piece(&json, server->options.tokenizer, ids->data[i]);
        else
            weir_json_integer(&json, ids->data[i]);
    }
    weir_json_close(&json, ']');
    weir_json_put_integer(&json, "count", (int64_t)ids->count);
    weir_json_put_integer(&json, "max_model_len", server->limits.window);
    weir_json_close(&json, '}');
    return json.status;
}

static weir_status tokenize(weir_exchange *x, const json_t *root, weir_buffer *text)
{
    const weir_server *const server = x->server;
    weir_ids ids = { 0 };
    bool with_pieces = false, given = true;
    weir_status status = weir_exchange_check_fields(x, root, WEIR_BODY_TOKENIZE);
    if (status == WEIR_OK) status = weir_openai_check_model(root, &server->limits, &x->error);
    if (status == WEIR_OK) status = weir_field_bool(root, "with_pieces", &with_pieces, &x->error);
    if (status == WEIR_OK) {
        if (json_object_get(root, "content") != NULL)
            status = encode_text(
                &ids, server, root, json_object_get(root, "content"), false, "content", &x->error
            );
        else
            status = weir_prompt_encode(&ids, server, root, &given, &x->error);
        if (status == WEIR_OK && !given)
            status = weir_api_bad(&x->error, "content", "give `content`, `prompt` or `messages`");
    }
    if (status == WEIR_OK) status = write_ids(text, server, &ids, with_pieces);
    weir_ids_free(&ids);
    return status;
}

static weir_status detokenize(weir_exchange *x, const json_t *root, weir_buffer *text)
{
    const weir_server *const server = x->server;
    const json_t *const list = weir_field(root, "tokens");
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_DETOKENIZE));
    if (!json_is_array(list))
        return weir_api_bad(&x->error, "tokens", "tokens must be an array of token ids");
    WEIR_TRY(weir_openai_check_ids(list, server->limits.n_vocab, "tokens", &x->error));
    weir_ids ids = { 0 };
    weir_buffer content = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < json_array_size(list) && status == WEIR_OK; i++)
        status = weir_ids_add(&ids, (int32_t)json_integer_value(json_array_get(list, i)));
    if (status == WEIR_OK)
        status =
            weir_tokenizer_decode(server->options.tokenizer, &content, ids.data, ids.count, false);
    weir_json_out json = { .buffer = text, .status = status };
    weir_json_open(&json, '{');
    static const char *const keys[] = { "content", "prompt" }; /* of llama.cpp and of vLLM */
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        weir_json_key(&json, keys[i]);
        weir_json_bytes(&json, content.data != NULL ? content.data : "", content.size);
    }
    weir_json_close(&json, '}');
    weir_buffer_free(&content);
    weir_ids_free(&ids);
    return json.status;
}

/* Reads the body as JSON and answers with what `write` makes of it. */
static void reply_to_json(
    weir_exchange *x, weir_status (*write)(weir_exchange *, const json_t *, weir_buffer *)
)
{
    json_t *root = NULL;
    weir_buffer text = { 0 };
    weir_status status =
        weir_json_read(&root, x->body.data != NULL ? x->body.data : "", x->body.size, &x->error);
    weir_exchange_drop_body(x);
    if (status == WEIR_OK) status = write(x, root, &text);
    json_decref(root);
    weir_reply_result(x, &text, status);
}

void weir_tokens_encode(weir_exchange *x) { reply_to_json(x, tokenize); }
void weir_tokens_decode(weir_exchange *x) { reply_to_json(x, detokenize); }
