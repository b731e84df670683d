/* engine/serve/recall.h - the calls of a conversation as the model wrote them: prompts hold the
 * remembered text of their arguments instead of what a template makes of the client's copy. */
#pragma once
#include <jansson.h>

#include "engine/serve/call_memory.h"
#include "engine/text/chat.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_recalled_call {
    char mark[48]; /* the only key of the arguments while the template runs */
    weir_buffer arguments; /* owned: as the model wrote them */
} weir_recalled_call;

typedef struct weir_recall {
    json_t *marked; /* the messages, with marks as arguments of remembered calls */
    json_t *ordered; /* with the keys in the order of the model */
    weir_recalled_call *calls; /* owned, in the order of the messages */
    size_t n_calls; /* 0: nothing is remembered, and there are no messages */
} weir_recall;

/* Finds the calls whose arguments are equal to the remembered ones.
 * owner  : the caller frees *out, also on failure
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status
weir_recall_open(weir_recall *out, weir_call_memory *memory, const json_t *messages);
void weir_recall_free(weir_recall *recall);
/* Replaces the marks in a rendered prompt; *done is false if the template did not print each once
 * as JSON: the prompt is then of no use.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status
weir_recall_replace(const weir_recall *recall, weir_chat_output *prompt, bool *done);

#ifdef __cplusplus
}
#endif
