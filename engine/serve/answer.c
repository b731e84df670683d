/* engine/serve/answer.c - tokens -> code points -> stop strings -> reasoning -> tool calls. Each
 * stage may hold text back. */
#include "engine/serve/answer.h"

#include <string.h>

#include "engine/toolcalls/value.h"

void weir_answer_free(weir_answer *answer)
{
    weir_buffer_free(&answer->stop.held);
    weir_buffer_free(&answer->piece);
    weir_buffer_free(&answer->passed);
    weir_buffer_free(&answer->content);
    weir_buffer_free(&answer->reasoning);
    weir_buffer_free(&answer->parts);
    weir_logprob_list_free(&answer->logprobs);
    weir_ids_free(&answer->ids);
    weir_chat_parser_close(answer->parser);
    answer->parser = NULL;
}

const weir_tool_call *weir_answer_calls(const weir_answer *answer, size_t *n)
{
    *n = 0;
    return answer->parser != NULL ? weir_chat_parser_calls(answer->parser, n) : NULL;
}

bool weir_answer_next_call(const weir_answer *answer, weir_partial_call *call, bool *is_complete)
{
    size_t n;
    const weir_tool_call *const calls = weir_answer_calls(answer, &n);
    *is_complete = answer->n_calls_sent < n;
    if (!*is_complete)
        return answer->parser != NULL && weir_chat_parser_partial(answer->parser, call);
    const weir_tool_call *const c = &calls[answer->n_calls_sent];
    *call = (weir_partial_call){ c->name, c->id, c->arguments, strlen(c->arguments) };
    return true;
}

static bool has_calls(const weir_answer *answer)
{
    size_t n;
    (void)weir_answer_calls(answer, &n);
    return n > 0;
}

/* ---- parts ----------------------------------------------------------------------------------- */

const weir_answer_part *weir_answer_parts(const weir_answer *answer, size_t *n)
{
    *n = answer->parts.size / sizeof(weir_answer_part);
    return (const weir_answer_part *)(const void *)answer->parts.data;
}

static weir_status add_part(weir_answer *answer, weir_part_kind kind, size_t end)
{
    const weir_answer_part part = { kind, answer->part_end[kind], end };
    size_t n;
    if (part.begin == end) return WEIR_OK;
    (void)weir_answer_parts(answer, &n);
    weir_answer_part *const last =
        n > 0 ? (weir_answer_part *)(void *)answer->parts.data + n - 1 : NULL;
    if (last != NULL && last->kind == kind && kind != WEIR_PART_CALL)
        last->end = end;
    else
        WEIR_TRY(weir_buffer_add(&answer->parts, &part, sizeof part));
    answer->part_end[kind] = end;
    return WEIR_OK;
}

/* Adds what one token produced. Of several kinds reasoning comes first and calls last, but for the
 * call that was being written, which a stream may have begun to send. */
static weir_status add_parts(weir_answer *answer)
{
    size_t n_calls;
    weir_partial_call ignored;
    if (!answer->has_parts) return WEIR_OK;
    (void)weir_answer_calls(answer, &n_calls);
    if (answer->in_call && answer->part_end[WEIR_PART_CALL] < n_calls)
        WEIR_TRY(add_part(answer, WEIR_PART_CALL, answer->part_end[WEIR_PART_CALL] + 1));
    answer->in_call = answer->parser != NULL && weir_chat_parser_partial(answer->parser, &ignored);
    WEIR_TRY(add_part(answer, WEIR_PART_REASONING, answer->reasoning.size));
    WEIR_TRY(add_part(answer, WEIR_PART_CONTENT, answer->content.size));
    while (answer->part_end[WEIR_PART_CALL] < n_calls)
        WEIR_TRY(add_part(answer, WEIR_PART_CALL, answer->part_end[WEIR_PART_CALL] + 1));
    return WEIR_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Passes on text that is free of stop strings. */
static weir_status split(weir_answer *answer)
{
    const weir_buffer *const text = &answer->passed;
    if (text->size == 0) return WEIR_OK;
    if (answer->parser == NULL) return weir_buffer_add(&answer->content, text->data, text->size);
    return weir_chat_parser_push(
        answer->parser, &answer->content, &answer->reasoning, text->data, text->size
    );
}

static weir_status push_piece(weir_answer *answer)
{
    if (answer->piece.size == 0) return WEIR_OK;
    weir_buffer_clear(&answer->passed);
    WEIR_TRY(weir_stop_push(&answer->stop, &answer->passed, answer->piece.data, answer->piece.size)
    );
    return split(answer);
}

/* Control tokens have no text, except those of which the markup of reasoning and calls is made. */
static bool is_skipped(const weir_answer *answer, int32_t token)
{
    size_t n;
    bool special;
    const char *const bytes = weir_tokenizer_token_bytes(answer->tokenizer, token, &n, &special);
    return answer->parser == NULL || !special || n == 0 ||
           !weir_chat_parser_reads(answer->parser, bytes, n);
}

weir_status weir_answer_token(weir_answer *answer, const weir_event *event, bool *go_on)
{
    if (answer->want_logprobs)
        WEIR_TRY(weir_logprob_list_add(
            &answer->logprobs, event->token, event->logprob.logprob, event->top, event->n_top,
            answer->n_code_points
        ));
    if (answer->keep_ids) WEIR_TRY(weir_ids_add(&answer->ids, event->token));
    answer->n_tokens++;
    weir_buffer_clear(&answer->piece);
    WEIR_TRY(weir_detokenizer_token(
        &answer->bytes, answer->tokenizer, &answer->piece, event->token,
        is_skipped(answer, event->token)
    ));
    answer->n_code_points += weir_code_points(answer->piece.data, answer->piece.size);
    WEIR_TRY(push_piece(answer));
    WEIR_TRY(add_parts(answer));
    if (answer->parser != NULL && weir_chat_parser_reasons(answer->parser))
        answer->n_reasoning_tokens++;
    const bool had_only_call =
        answer->one_call && has_calls(answer) && !weir_chat_parser_in_block(answer->parser);
    *go_on = !answer->stop.matched && !had_only_call;
    return WEIR_OK;
}

weir_status weir_answer_finish(weir_answer *answer, weir_finish finish)
{
    answer->finish = finish;
    weir_buffer_clear(&answer->piece);
    WEIR_TRY(weir_detokenizer_finish(&answer->bytes, &answer->piece));
    WEIR_TRY(push_piece(answer));
    weir_buffer_clear(&answer->passed);
    WEIR_TRY(weir_stop_finish(&answer->stop, &answer->passed));
    WEIR_TRY(split(answer));
    if (answer->parser != NULL)
        WEIR_TRY(weir_chat_parser_finish(answer->parser, &answer->content, &answer->reasoning));
    return add_parts(answer);
}

bool weir_answer_stopped_in_call(const weir_answer *answer)
{
    size_t n;
    bool is_json = false;
    char first;
    const weir_tool_call *const calls = weir_answer_calls(answer, &n);
    if (!answer->stop.matched || n == 0) return false;
    const char *const last = calls[n - 1].arguments;
    return weir_value_is_json(&is_json, &first, last, strlen(last)) != WEIR_OK || !is_json;
}

const char *weir_answer_reason(const weir_answer *answer)
{
    const bool is_call = has_calls(answer) && !weir_answer_stopped_in_call(answer);
    if (answer->finish == WEIR_FINISH_STOP && is_call) return "tool_calls";
    return answer->finish == WEIR_FINISH_LENGTH    ? "length"
           : answer->finish == WEIR_FINISH_TIMEOUT ? "timeout"
                                                   : "stop";
}
