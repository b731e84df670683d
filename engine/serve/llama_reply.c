/* engine/serve/llama_reply.c - /completion: answers with the fields of llama-server. A stream has
 * one object per piece of text, and a last one with everything else; no [DONE]. */
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/json_in.h"
#include "engine/serve/llama_api.h"
#include "engine/serve/sse.h"

/* ---- settings -------------------------------------------------------------------------------- */

void weir_llama_settings_write(
    weir_json_out *json, const weir_openai_request *request, int64_t n_predict, int32_t n_probs
)
{
    static const char *const samplers[] = { "penalties", "temperature", "top_k", "top_p", "min_p" };
    const weir_sampling *const s = &request->sampling;
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        { "temperature", (double)s->temperature },
        { "top_p", (double)s->top_p },
        { "min_p", (double)s->min_p },
        { "repeat_penalty", (double)s->repetition_penalty },
        { "presence_penalty", (double)s->presence_penalty },
        { "frequency_penalty", (double)s->frequency_penalty },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        weir_json_put_number(json, numbers[i].key, numbers[i].value);
    weir_json_put_integer(json, "top_k", s->top_k);
    weir_json_put_integer(json, "repeat_last_n", -1);
    weir_json_put_integer(json, "n_predict", n_predict);
    weir_json_put_integer(json, "max_tokens", n_predict);
    weir_json_put_integer(json, "n_probs", n_probs);
    weir_json_put_integer(json, "seed", (int64_t)s->seed);
    weir_json_put_bool(json, "ignore_eos", request->ignore_eos);
    weir_json_put_bool(json, "stream", request->stream);
    weir_json_key(json, "stop");
    weir_json_open(json, '[');
    for (size_t i = 0; i < request->stop.count; i++)
        weir_json_bytes(json, request->stop.text[i], request->stop.length[i]);
    weir_json_close(json, ']');
    weir_json_key(json, "samplers");
    weir_json_open(json, '[');
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++)
        weir_json_string(json, samplers[i]);
    weir_json_close(json, ']');
}

/* ---- parts ----------------------------------------------------------------------------------- */

static const weir_llama *llama_of(const weir_generation *g) { return g->api_data; }

static void write_content(weir_json_out *json, const weir_buffer *content)
{
    weir_json_key(json, "content");
    weir_json_bytes(json, content->data != NULL ? content->data : "", content->size);
}

static void write_tokens(weir_json_out *json, const weir_ids *ids, size_t from)
{
    weir_json_key(json, "tokens");
    weir_json_open(json, '[');
    for (size_t i = from; i < ids->count; i++) weir_json_integer(json, ids->data[i]);
    weir_json_close(json, ']');
}

/* OpenAI's form of log-probabilities, with ids. */
static void write_probs(weir_json_out *json, weir_generation *g, weir_answer *answer)
{
    if (llama_of(g)->n_probs == 0) return;
    weir_json_key(json, "completion_probabilities");
    weir_logprob_list_write_ids(
        json, &answer->logprobs, answer->n_logprobs_sent, g->exchange->server->options.tokenizer
    );
    answer->n_logprobs_sent = answer->logprobs.count;
}

/* The prompt as text. */
static weir_status write_prompt(weir_json_out *json, const weir_generation *g, size_t index)
{
    const json_t *const prompt = weir_openai_prompt_at(llama_of(g)->prompt, index);
    weir_json_key(json, "prompt");
    if (json_is_string(prompt)) {
        weir_json_bytes(json, json_string_value(prompt), json_string_length(prompt));
        return WEIR_OK;
    }
    weir_buffer text = { 0 };
    weir_ids ids = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < json_array_size(prompt) && status == WEIR_OK; i++)
        status = weir_ids_add(&ids, (int32_t)json_integer_value(json_array_get(prompt, i)));
    if (status == WEIR_OK)
        status = weir_tokenizer_decode(
            g->exchange->server->options.tokenizer, &text, ids.data, ids.count, false
        );
    weir_json_bytes(json, text.data != NULL ? text.data : "", text.size);
    weir_ids_free(&ids);
    weir_buffer_free(&text);
    return status;
}

static void write_stop(weir_json_out *json, const weir_generation *g, const weir_answer *answer)
{
    const weir_stop_list *const list = &g->request.stop;
    const bool is_word = answer->finish == WEIR_FINISH_STOP && answer->stop.matched;
    weir_json_put_string(
        json, "stop_type",
        is_word                              ? "word"
        : answer->finish == WEIR_FINISH_STOP ? "eos"
                                             : "limit"
    );
    weir_json_key(json, "stopping_word");
    if (is_word)
        weir_json_bytes(json, list->text[answer->stop.which], list->length[answer->stop.which]);
    else
        weir_json_string(json, "");
}

static const weir_prompt *prompt_of(const weir_generation *g, size_t choice)
{
    return &g->prompts[choice / (size_t)g->request.n];
}

/* Everything of a finished choice but its text. */
static weir_status write_end(weir_json_out *json, weir_generation *g, size_t choice)
{
    const weir_llama *const llama = llama_of(g);
    const weir_answer *const answer = &g->answers[choice];
    const weir_prompt *const prompt = prompt_of(g, choice);
    weir_json_put_bool(json, "stop", true);
    weir_json_put_string(json, "model", g->exchange->server->options.model_name);
    weir_json_put_integer(json, "tokens_predicted", answer->n_tokens);
    weir_json_put_integer(json, "tokens_evaluated", prompt->usage.n_prompt);
    weir_json_put_integer(json, "tokens_cached", prompt->usage.n_prompt + answer->n_tokens);
    weir_json_put_bool(json, "truncated", prompt->n_truncated > 0);
    write_stop(json, g, answer);
    weir_json_key(json, "generation_settings");
    weir_json_open(json, '{');
    weir_llama_settings_write(json, &g->request, llama->n_predict, llama->n_probs);
    weir_json_close(json, '}');
    WEIR_TRY(write_prompt(json, g, choice / (size_t)g->request.n));
    weir_reply_timings(json, g);
    return json->status;
}

static void write_begin(weir_json_out *json, const weir_generation *g, size_t choice)
{
    weir_json_open(json, '{');
    weir_json_put_integer(json, "index", (int64_t)choice);
    weir_json_put_integer(json, "id_slot", llama_of(g)->id_slot);
}

/* ---- whole answers --------------------------------------------------------------------------- */

static weir_status write_answer(weir_json_out *json, weir_generation *g, size_t choice)
{
    weir_answer *const answer = &g->answers[choice];
    static const weir_ids none = { 0 };
    write_begin(json, g, choice);
    write_content(json, &answer->content);
    write_tokens(json, llama_of(g)->return_tokens ? &answer->ids : &none, 0);
    weir_json_put_bool(
        json, "has_new_line",
        answer->content.size > 0 && memchr(answer->content.data, '\n', answer->content.size) != NULL
    );
    WEIR_TRY(write_end(json, g, choice));
    write_probs(json, g, answer);
    weir_json_close(json, '}');
    return json->status;
}

weir_status weir_llama_whole(weir_buffer *out, weir_generation *g)
{
    weir_json_out json = { .buffer = out };
    if (g->n_choices > 1) weir_json_open(&json, '[');
    for (size_t i = 0; i < g->n_choices; i++) WEIR_TRY(write_answer(&json, g, i));
    if (g->n_choices > 1) weir_json_close(&json, ']');
    if (llama_of(g)->id_slot >= 0) weir_llama_slots_keep(g, llama_of(g)->id_slot);
    return json.status;
}

/* ---- streams --------------------------------------------------------------------------------- */

static weir_status write_piece(weir_buffer *out, weir_generation *g, size_t choice)
{
    weir_json_out json = { .buffer = out };
    const weir_llama *const llama = llama_of(g);
    weir_answer *const answer = &g->answers[choice];
    static const weir_ids none = { 0 };
    WEIR_TRY(weir_sse_begin(out));
    write_begin(&json, g, choice);
    write_content(&json, &answer->content);
    write_tokens(&json, llama->return_tokens ? &answer->ids : &none, answer->n_ids_sent);
    weir_json_put_bool(&json, "stop", false);
    weir_json_put_integer(&json, "tokens_predicted", answer->n_tokens);
    weir_json_put_integer(&json, "tokens_evaluated", prompt_of(g, choice)->usage.n_prompt);
    write_probs(&json, g, answer);
    if (llama->timings_per_token) weir_reply_timings(&json, g);
    weir_json_close(&json, '}');
    answer->n_ids_sent = answer->ids.count;
    weir_buffer_clear(&answer->content);
    WEIR_TRY(json.status);
    return weir_sse_end(out);
}

static weir_status write_last(weir_buffer *out, weir_generation *g, size_t choice)
{
    weir_json_out json = { .buffer = out };
    static const weir_buffer no_text = { 0 };
    static const weir_ids none = { 0 };
    WEIR_TRY(weir_sse_begin(out));
    write_begin(&json, g, choice);
    write_content(&json, &no_text);
    write_tokens(&json, &none, 0);
    WEIR_TRY(write_end(&json, g, choice));
    weir_json_close(&json, '}');
    WEIR_TRY(json.status);
    return weir_sse_end(out);
}

static weir_status write_choice(weir_buffer *out, weir_generation *g, size_t choice)
{
    weir_answer *const answer = &g->answers[choice];
    const bool has_more = answer->content.size > 0 || answer->ids.count > answer->n_ids_sent ||
                          answer->logprobs.count > answer->n_logprobs_sent;
    if (answer->finish_sent) return WEIR_OK;
    if (has_more) WEIR_TRY(write_piece(out, g, choice));
    if (answer->finish == WEIR_FINISH_NONE || !prompt_of(g, choice)->done) return WEIR_OK;
    answer->finish_sent = true;
    return write_last(out, g, choice);
}

weir_status weir_llama_events(weir_buffer *out, weir_generation *g)
{
    if (g->failure.status != 0) return weir_reply_failure(out, g);
    const size_t n_begun = g->n_started * (size_t)g->request.n; /* prompts start in order */
    for (size_t i = 0; i < n_begun && i < g->n_choices; i++) WEIR_TRY(write_choice(out, g, i));
    if (!g->ended) return WEIR_OK;
    if (llama_of(g)->id_slot >= 0) weir_llama_slots_keep(g, llama_of(g)->id_slot);
    g->end_sent = true;
    return WEIR_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

void weir_llama_free(void *data)
{
    weir_llama *const llama = data;
    json_decref(llama->prompt);
    weir_memory_give(llama);
}

weir_status weir_llama_read(
    weir_generation *g, const json_t *root, json_t *prompt, weir_body body, weir_api_error *error
)
{
    weir_llama_request read = { 0 };
    WEIR_TRY(weir_llama_request_read(&read, root, prompt, body, &g->exchange->server->limits, error)
    );
    g->request = read.request;
    weir_llama *const llama = weir_memory_take_zero(1, sizeof *llama);
    if (llama == NULL) return weir_api_no_memory(error);
    *llama = (weir_llama){ .return_tokens = read.return_tokens,
                           .timings_per_token = read.timings_per_token,
                           .n_probs = read.n_probs,
                           .id_slot = read.id_slot,
                           .n_predict = read.n_predict,
                           .prompt = json_incref(prompt) };
    g->api_data = llama;
    return WEIR_OK;
}

static weir_status read_completion(
    weir_generation *g, const char *text, size_t n, weir_api_error *error
)
{
    json_t *root = NULL;
    WEIR_TRY(weir_json_read(&root, text, n, error));
    json_t *const prompt = json_object_get(root, "prompt");
    const weir_status status = weir_llama_read(g, root, prompt, WEIR_BODY_LLAMA, error);
    json_decref(root);
    return status;
}

void weir_llama_completion(weir_exchange *x)
{
    static const weir_api api = { .id_prefix = "cmpl-",
                                  .read = read_completion,
                                  .name_error = weir_llama_name_error,
                                  .whole = weir_llama_whole,
                                  .events = weir_llama_events,
                                  .ping = weir_sse_ping,
                                  .last_words = weir_reply_last_words,
                                  .free_data = weir_llama_free };
    weir_generate(x, &api);
}
