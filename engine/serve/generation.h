/* engine/serve/generation.h - what a chat or completion request does after it was read: its jobs,
 * its answers, its stream. */
#pragma once
#include "engine/serve/answer.h"
#include "engine/serve/internal.h"
#include "engine/serve/json_out.h"

/* One prompt of the request and the job that answers it (n choices). */
typedef struct weir_prompt {
    weir_generation *generation;
    weir_ids ids;
    int32_t n_truncated; /* tokens taken from its middle */
    bool has_preamble; /* it begins with a system message or tools */
    weir_buffer echo; /* the prompt's text, with `echo` */
    /* Of the prompt, with `echo` and log-probabilities: as many as came, the first token's may
     * be missing */
    weir_scores scores;
    bool scored; /* all of them are there */
    weir_job *job;
    bool admitted, done;
    weir_usage usage; /* of ADMITTED, then of DONE */
} weir_prompt;

/* Everything below `prompts` under the exchange's lock. */
struct weir_generation {
    weir_exchange *exchange;
    weir_openai_request request;
    char id[48]; /* chatcmpl-... or cmpl-... */
    int64_t created;
    weir_think_state think; /* how each answer begins */
    size_t n_prompts, n_choices; /* answers: n_prompts * n */
    weir_beginning beginning; /* of all prompts; zeros: none */
    weir_prompt *prompts;
    weir_answer *answers;

    size_t n_started, n_done;
    bool admitted, queue_was_full, cancelled;
    bool ended; /* counted; the reply or the end of the stream may go */
    weir_api_error failure; /* status 0: none */
    int64_t first_token_ns, last_token_ns;
    /* stream */
    weir_buffer out;
    int64_t last_sent_ns;
    bool ping, end_sent;
};

static inline bool weir_generation_is_over(const weir_generation *g)
{
    return g->failure.status != 0 || g->n_done == g->n_prompts;
}
/* Sums over all prompts. */
weir_usage weir_generation_usage(const weir_generation *g);
/* Tokens taken from prompts that were too long */
int64_t weir_generation_truncated(const weir_generation *g);

/* reply.c: JSON objects. Lock held. */
WEIR_MUST_CHECK weir_status weir_reply_whole(weir_buffer *out, weir_generation *g);
/* All events that are due, as SSE; sets g->end_sent with the last one. */
WEIR_MUST_CHECK weir_status weir_reply_events(weir_buffer *out, weir_generation *g);
