#include "tools/load/prompt.h"

#include <jansson.h>
#include <math.h>

#include "engine/formats/json.h"
#include "engine/serve/json_out.h"
#include "tools/load/workload.h"

const char *weir_load_form_path(const weir_load_form *form)
{
    return form->is_chat ? "/v1/chat/completions" : "/v1/completions";
}

/* ---- texts ----------------------------------------------------------------------------------- */

static weir_status say(
    weir_buffer *history, const weir_load_form *form, const char *role, const char *text, size_t n
)
{
    if (!form->is_chat) {
        if (history->size > 0) WEIR_TRY(weir_buffer_text(history, "\n\n"));
        return weir_buffer_add(history, text, n);
    }
    weir_json_out json = { .buffer = history, .comma = history->size > 0 };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "role", role);
    weir_json_key(&json, "content");
    weir_json_bytes(&json, text, n);
    weir_json_close(&json, '}');
    return json.status;
}

static weir_status say_words(
    weir_buffer *history, const weir_load_form *form, const char *role, uint32_t stream,
    int32_t number, int32_t n_tokens
)
{
    weir_buffer text = { 0 };
    const double n_words = round((double)n_tokens / form->tokens_per_word);
    weir_status status = weir_load_words(
        &text, form->seed, stream, (uint32_t)number, n_words > 1.0 ? (int32_t)n_words : 1
    );
    if (status == WEIR_OK) status = say(history, form, role, text.data, text.size);
    weir_buffer_free(&text);
    return status;
}

weir_status weir_load_prefix(
    weir_buffer *history, const weir_load_form *form, int32_t group, int32_t n_tokens
)
{
    if (n_tokens <= 0) return WEIR_OK;
    return say_words(history, form, "system", WEIR_DRAW_PREFIX_TEXT, group, n_tokens);
}

weir_status weir_load_prompt(
    weir_buffer *history, const weir_load_form *form, int32_t number, int32_t n_tokens,
    bool is_first
)
{
    const int32_t extra = is_first ? form->extra_tokens : 0;
    return say_words(history, form, "user", WEIR_DRAW_TURN_TEXT, number, n_tokens - extra);
}

weir_status weir_load_answer(
    weir_buffer *history, const weir_load_form *form, const weir_buffer *answer
)
{
    return say(history, form, "assistant", answer->data != NULL ? answer->data : "", answer->size);
}

weir_status weir_load_body(
    weir_buffer *out, const weir_load_form *form, const weir_buffer *history, int32_t max_tokens,
    bool stream
)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "model", form->model);
    weir_json_key(&json, form->is_chat ? "messages" : "prompt");
    if (form->is_chat) {
        weir_json_open(&json, '[');
        weir_json_raw(&json, history->data, history->size);
        weir_json_close(&json, ']');
    } else {
        weir_json_bytes(&json, history->data, history->size);
    }
    weir_json_put_integer(&json, "max_tokens", max_tokens);
    if (form->has_temperature) weir_json_put_number(&json, "temperature", form->temperature);
    if (form->ignore_eos) weir_json_put_bool(&json, "ignore_eos", true);
    weir_json_put_bool(&json, "stream", stream);
    if (stream) {
        weir_json_key(&json, "stream_options");
        weir_json_open(&json, '{');
        weir_json_put_bool(&json, "include_usage", true);
        weir_json_close(&json, '}');
    }
    weir_json_close(&json, '}');
    return json.status;
}

/* ---- before the load ------------------------------------------------------------------------- */

/* The message of an error reply in one printable line. */
static weir_status refused(const char *what, int status, const weir_buffer *body, weir_error *error)
{
    char text[201] = "";
    size_t n = 0;
    for (; body->data != NULL && n < body->size && n + 1 < sizeof text; n++) {
        const char c = body->data[n];
        text[n] = '\0';
        text[n] = (char)(c >= 0x20 && c < 0x7f ? c : ' ');
    }
    text[n] = '\0';
    return weir_error_set(
        error, WEIR_EIO, "the server answers %s with status %d: %s", what, status, text
    );
}

/* Sends a question of n_words words. *n_tokens: what usage says; -1: nothing. */
static weir_status probe(
    int64_t *n_tokens, const weir_load_form *form, const weir_load_target *target, int32_t n_words,
    int64_t timeout_ms, weir_error *error
)
{
    weir_load_form plain = *form;
    weir_buffer history = { 0 }, body = { 0 }, reply = { 0 };
    json_t *root = NULL;
    int code = 0;
    plain.tokens_per_word = 1.0;
    *n_tokens = -1;
    weir_status status =
        say_words(&history, &plain, "user", WEIR_DRAW_PROBE_TEXT, n_words, n_words);
    if (status == WEIR_OK) status = weir_load_body(&body, &plain, &history, 1, false);
    if (status != WEIR_OK) status = weir_error_set(error, status, "no memory for a request");
    if (status == WEIR_OK)
        status = weir_load_fetch(
            &reply, &code, target, weir_load_form_path(form), &body, timeout_ms, error
        );
    if (status == WEIR_OK && code != 200)
        status = refused(weir_load_form_path(form), code, &reply, error);
    if (status == WEIR_OK &&
        weir_json_build(&root, NULL, reply.data, reply.size, &weir_json_request) ==
            WEIR_JSON_FINE) {
        const json_t *const count =
            json_object_get(json_object_get(root, "usage"), "prompt_tokens");
        if (json_is_integer(count)) *n_tokens = (int64_t)json_integer_value(count);
    }
    json_decref(root);
    weir_buffer_free(&history);
    weir_buffer_free(&body);
    weir_buffer_free(&reply);
    return status;
}

weir_status weir_load_form_probe(
    weir_load_form *form, const weir_load_target *target, int64_t timeout_ms, weir_error *error
)
{
    enum { FEW = 8, MANY = 72 };
    int64_t few, many;
    form->tokens_per_word = 1.0;
    form->extra_tokens = 0;
    form->is_measured = false;
    WEIR_TRY(probe(&few, form, target, FEW, timeout_ms, error));
    WEIR_TRY(probe(&many, form, target, MANY, timeout_ms, error));
    if (few < 1 || many <= few || many > WEIR_LOAD_TOKENS) return WEIR_OK;
    form->tokens_per_word = (double)(many - few) / (double)(MANY - FEW);
    const double extra = (double)few - form->tokens_per_word * (double)FEW;
    form->extra_tokens = extra > 0.0 ? (int32_t)lround(extra) : 0;
    form->is_measured = true;
    return WEIR_OK;
}

weir_status weir_load_first_model(
    weir_buffer *out, const weir_load_target *target, int64_t timeout_ms, weir_error *error
)
{
    static const char what[] = "/v1/models";
    weir_buffer reply = { 0 };
    json_t *root = NULL;
    int code = 0;
    weir_status status = weir_load_fetch(&reply, &code, target, what, NULL, timeout_ms, error);
    if (status == WEIR_OK && code != 200) status = refused(what, code, &reply, error);
    if (status == WEIR_OK)
        (void)weir_json_build(&root, NULL, reply.data, reply.size, &weir_json_request);
    const json_t *const id =
        json_object_get(json_array_get(json_object_get(root, "data"), 0), "id");
    if (status == WEIR_OK && json_string_length(id) == 0)
        status = weir_error_set(
            error, WEIR_EFORMAT, "%s of the server names no model; give one: --model NAME", what
        );
    if (status == WEIR_OK &&
        weir_buffer_add(out, json_string_value(id), json_string_length(id)) != WEIR_OK)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for a name");
    json_decref(root);
    weir_buffer_free(&reply);
    return status;
}
