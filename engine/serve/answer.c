/* engine/serve/answer.c - tokens -> code points -> stop strings -> reasoning -> tool calls. Each
 * stage may hold text back. */
#include "engine/serve/answer.h"

void weir_answer_free(weir_answer *answer)
{
    weir_buffer_free(&answer->stop.held);
    weir_buffer_free(&answer->piece);
    weir_buffer_free(&answer->passed);
    weir_buffer_free(&answer->content);
    weir_buffer_free(&answer->reasoning);
    weir_logprob_list_free(&answer->logprobs);
    weir_chat_parser_close(answer->parser);
    answer->parser = NULL;
}

const weir_tool_call *weir_answer_calls(const weir_answer *answer, size_t *n)
{
    *n = 0;
    return answer->parser != NULL ? weir_chat_parser_calls(answer->parser, n) : NULL;
}

static bool has_calls(const weir_answer *answer)
{
    size_t n;
    (void)weir_answer_calls(answer, &n);
    return n > 0;
}

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
    answer->n_tokens++;
    weir_buffer_clear(&answer->piece);
    WEIR_TRY(weir_detokenizer_token(
        &answer->bytes, answer->tokenizer, &answer->piece, event->token,
        is_skipped(answer, event->token)
    ));
    answer->n_code_points += weir_code_points(answer->piece.data, answer->piece.size);
    WEIR_TRY(push_piece(answer));
    if (answer->parser != NULL && weir_chat_parser_reasons(answer->parser))
        answer->n_reasoning_tokens++;
    *go_on = !answer->stop.matched && !(answer->one_call && has_calls(answer));
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
    if (answer->parser == NULL) return WEIR_OK;
    return weir_chat_parser_finish(answer->parser, &answer->content, &answer->reasoning);
}

const char *weir_answer_reason(const weir_answer *answer)
{
    if (answer->finish == WEIR_FINISH_STOP && has_calls(answer)) return "tool_calls";
    return answer->finish == WEIR_FINISH_LENGTH    ? "length"
           : answer->finish == WEIR_FINISH_TIMEOUT ? "timeout"
                                                   : "stop";
}
