/* engine/cli/answer.h - submits one or many jobs to the service and waits for them; used by
 * generate, chat and eval. */
#pragma once
#include "engine/schedule/service.h"
#include "engine/text/tokenizer.h"

typedef struct weir_cli_answer {
    weir_ids tokens; /* without the stop token */
    int32_t stop_token; /* -1: ended for another reason */
    weir_finish finish;
    weir_usage usage;
} weir_cli_answer;

/* Called on the engine thread for each token; returns false to end the answer. */
typedef bool (*weir_cli_answer_token)(void *user, int32_t token);

/* Submits and waits. `request` is given without callback and user. *interrupted (may be NULL) is
 * polled: true cancels; the answer so far is kept. */
WEIR_MUST_CHECK weir_status weir_cli_answer_wait(
    weir_cli_answer *answer, weir_service *service, const weir_request *request,
    weir_cli_answer_token on_token, void *user, const volatile int *interrupted, weir_error *error
);
void weir_cli_answer_free(weir_cli_answer *answer);

/* Runs many prompts, as many at a time as the service takes; the answers are in the order of the
 * prompts. */
typedef struct weir_prompt {
    weir_ids ids;
    int32_t max_tokens;
    int64_t kv_budget; /* rows; 0: the service's */
} weir_prompt;
WEIR_MUST_CHECK weir_status weir_cli_answer_all(
    weir_cli_answer *answers, weir_service *service, const weir_prompt *prompts, size_t n,
    weir_error *error
);
