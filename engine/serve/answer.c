/* engine/serve/answer.c - tokens -> code points -> stop strings -> reasoning -> tool calls. Each
 * stage may hold text back. */
#include "engine/serve/answer.h"

#include "engine/base/memory.h"

void weir_answer_free(weir_answer *answer)
{
    weir_buffer_free(&answer->stop.held);
    weir_buffer_free(&answer->think.held);
    weir_buffer_free(&answer->piece);
    weir_buffer_free(&answer->passed);
    weir_buffer_free(&answer->text);
    weir_buffer_free(&answer->content);
    weir_buffer_free(&answer->reasoning);
    weir_logprob_list_free(&answer->logprobs);
    if (answer->tools != NULL) weir_tool_parser_free(answer->tools);
    weir_memory_give(answer->tools);
    answer->tools = NULL;
}

/* Passes on text that is free of stop strings. */
static weir_status split(weir_answer *answer)
{
    if (answer->tools == NULL)
        return weir_think_push(
            &answer->think, &answer->content, &answer->reasoning, answer->passed.data,
            answer->passed.size
        );
    weir_buffer_clear(&answer->text);
    WEIR_TRY(weir_think_push(
        &answer->think, &answer->text, &answer->reasoning, answer->passed.data, answer->passed.size
    ));
    return weir_tool_push(answer->tools, &answer->content, answer->text.data, answer->text.size);
}

static weir_status push_piece(weir_answer *answer)
{
    if (answer->piece.size == 0) return WEIR_OK;
    weir_buffer_clear(&answer->passed);
    WEIR_TRY(weir_stop_push(&answer->stop, &answer->passed, answer->piece.data, answer->piece.size)
    );
    return answer->passed.size > 0 ? split(answer) : WEIR_OK;
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
        &answer->bytes, answer->tokenizer, &answer->piece, event->token, true
    ));
    answer->n_code_points += weir_code_points(answer->piece.data, answer->piece.size);
    WEIR_TRY(push_piece(answer));
    if (answer->think.state == WEIR_THINK_INSIDE) answer->n_reasoning_tokens++;
    *go_on = !answer->stop.matched &&
             !(answer->one_call && answer->tools != NULL && answer->tools->n_calls > 0);
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
    if (answer->passed.size > 0) WEIR_TRY(split(answer));
    if (answer->tools == NULL)
        return weir_think_finish(&answer->think, &answer->content, &answer->reasoning);
    weir_buffer_clear(&answer->text);
    WEIR_TRY(weir_think_finish(&answer->think, &answer->text, &answer->reasoning));
    WEIR_TRY(weir_tool_push(answer->tools, &answer->content, answer->text.data, answer->text.size));
    return weir_tool_finish(answer->tools, &answer->content);
}

const char *weir_answer_reason(const weir_answer *answer)
{
    if (answer->finish == WEIR_FINISH_STOP && answer->tools != NULL && answer->tools->n_calls > 0)
        return "tool_calls";
    return answer->finish == WEIR_FINISH_LENGTH    ? "length"
           : answer->finish == WEIR_FINISH_TIMEOUT ? "timeout"
                                                   : "stop";
}
