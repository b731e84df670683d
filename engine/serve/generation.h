/* engine/serve/generation.h - processing of a chat or completion request after it was read: its
 * jobs, its answers, its stream. */
#pragma once
#include "engine/serve/answer.h"
#include "engine/serve/internal.h"
#include "engine/serve/json_out.h"

/* What differs between the APIs that generate. */
typedef struct weir_api {
    const char *id_prefix, *call_prefix; /* of the ids of answers, and of calls; NULL: call_ */
    bool chat;
    bool has_parts; /* weir_answer.has_parts */
    bool tells_failure; /* a stream that fails ends with an event of its own, and is complete */
    const char *prompt_field; /* what errors about the prompt name; NULL: messages or prompt */
    const char *answer_field; /* of a reply: what has the answers; NULL: choices */
    const char *stream_type; /* Content-Type of streams; NULL: text/event-stream */
    /* Reads the body text [n], text[n] == 0, into g->request. Worker. */
    weir_status (*read)(weir_generation *g, const char *text, size_t n, weir_api_error *error);
    /* Makes the tokens of a prompt from an entry of the request's; NULL: it is text or ids. */
    weir_status (*encode)(
        weir_generation *g, weir_ids *ids, const json_t *source, weir_api_error *error
    );
    /* Puts the API's names into an error about fields of a chat; NULL: they are the same. */
    void (*name_error)(weir_api_error *error);
    /* JSON objects; require the lock. `whole`: the reply. `events`: appends all pending events, and
     * sets g->end_sent after the last one. */
    weir_status (*whole)(weir_buffer *out, weir_generation *g);
    weir_status (*events)(weir_buffer *out, weir_generation *g);
    weir_status (*ping)(weir_buffer *out); /* what a stream sends in silence; NULL: nothing */
    /* The last event when there is no memory for another one; valid as long as g. */
    const char *(*last_words)(weir_generation *g);
    void (*free_data)(void *api_data); /* NULL: there is none */
} weir_api;

/* One prompt of the request and the job for its n choices. */
typedef struct weir_prompt {
    weir_generation *generation;
    weir_ids ids;
    int32_t n_truncated; /* tokens removed from its middle */
    bool has_preamble; /* begins with a system message or tools */
    weir_buffer echo; /* the prompt's text, if `echo` */
    /* Scores of the prompt, if `echo` and log-probabilities are requested; the first token may have
     * none. */
    weir_logprob_list logprobs;
    bool scored; /* logprobs are complete */
    weir_job *job;
    bool admitted, done;
    weir_usage usage; /* from ADMITTED, then from DONE */
    float *embedding; /* [d_model], owned; NULL: not asked for, or not yet */
    double score; /* probability of yes; -1: not asked for, or not yet */
} weir_prompt;

/* Files that the next prompt continues, read one after the other by threads of the sessions before
 * it is submitted (session_reads.c). Workers only, but for is_read and beginning. */
typedef struct weir_session_reads {
    weir_session_job job;
    weir_sessions *sessions; /* whose job it is; NULL: none was posted */
    bool is_read; /* atomic: the job is done */
    int n_looked; /* kinds of files that were looked at for this prompt */
    const char *unused; /* weir_request.unused */
    bool is_refused; /* sessions.numerics refuses the session */
    char key[WEIR_STATE_NAME + 16]; /* of the job that reads the beginning */
    weir_beginning beginning; /* its thread's until is_read: the request may end before */
} weir_session_reads;

/* Everything from `prompts` on requires the exchange's lock. */
struct weir_generation {
    weir_exchange *exchange;
    const weir_api *api;
    void *api_data; /* of an API with free_data; owned */
    weir_openai_request request;
    char id[48]; /* begins with api->id_prefix */
    int64_t created;
    int64_t deadline_ns; /* from the request's arrival on; 0: none */
    weir_reasoning_start reasoning; /* at the start of each answer */
    size_t n_prompts, n_choices; /* number of answers: n_prompts * n */
    weir_beginning beginning; /* of all prompts; zero: none, or not read yet */
    weir_own_name own; /* of the request's session, and its salt */
    weir_session_reads files;
    weir_grammar *grammar; /* of its answers; NULL: none */
    const char *grammar_field; /* static: the field of the request that asked for it */
    bool holds_calls; /* the grammar is that of its tools' calls */
    weir_thought_limit thought;
    bool has_prompts; /* tokenised, with the beginning before them. Workers only */
    weir_prompt *prompts;
    weir_answer *answers;

    size_t n_started, n_done;
    bool admitted, queue_was_full, cancelled;
    bool ended; /* counted; the reply or the end of the stream may be sent */
    weir_api_error failure; /* status 0: none */
    int64_t first_token_ns, last_token_ns;
    /* State of the stream. */
    weir_buffer out;
    int64_t last_sent_ns;
    bool ping, end_sent;
};

static inline bool weir_generation_is_over(const weir_generation *g)
{
    return g->failure.status != 0 || g->n_done == g->n_prompts;
}
/* True if the request's timeout ended a choice. */
bool weir_generation_is_late(const weir_generation *g);
/* The sum over all prompts. */
weir_usage weir_generation_usage(const weir_generation *g);
/* Tokens removed from prompts that were too long. */
int64_t weir_generation_truncated(const weir_generation *g);

/* The salt of its sequences; NULL: none. */
static inline const char *weir_generation_salt(const weir_generation *g)
{
    const char *const salt = g->beginning.tokens != NULL ? g->beginning.salt : g->own.salt;
    return salt[0] != '\0' ? salt : NULL;
}

/* Ends a prompt at the deadline with what it has; what its job says from now on is not taken.
 * Requires the lock. */
WEIR_MUST_CHECK weir_status weir_prompt_end_late(weir_generation *g, weir_prompt *prompt);

/* On the engine thread: takes an event of the job of `user`, a weir_prompt. */
bool weir_generation_on_event(void *user, const weir_event *event);

/* prompts.c */

/* Starts what may start now. At the deadline it ends what was not started, and soon after it all
 * that the engine has not ended. Worker; lock not held. */
void weir_generation_start_prompts(weir_generation *g);
/* True if that would end something. Requires the lock. */
bool weir_generation_is_due(const weir_generation *g, int64_t now_ns);

/* generation_open.c. Worker. Makes the prompts' tokens, once the beginning was read. Returns false
 * if that is not possible: the generation has failed. */
bool weir_generation_read_prompts(weir_generation *g);

/* generation_grammar.c. Worker. Before the prompts are read, and after: they end in reasoning or
 * not. Fill the error on failure. */
WEIR_MUST_CHECK weir_status weir_generation_open_grammar(weir_generation *g, weir_api_error *error);
WEIR_MUST_CHECK weir_status
weir_generation_begin_grammar(weir_generation *g, weir_api_error *error);

/* session_reads.c. Worker. */

/* Finds the request's state and reads its tokens; ADVANCE follows. Then the other fills the error
 * on failure. */
void weir_generation_open_beginning(weir_generation *g);
WEIR_MUST_CHECK weir_status
weir_generation_end_beginning(weir_generation *g, weir_api_error *error);
/* Reads the next file that the prompt needs. Returns true if there is none, or if one that it
 * cannot do without could not be read (*status); false: a thread of the sessions reads, and ADVANCE
 * follows. */
bool weir_generation_read(
    weir_generation *g, const weir_prompt *prompt, weir_status *status, weir_error *error
);
bool weir_generation_is_reading(const weir_generation *g);

/* What errors about the prompt name. */
static inline const char *weir_generation_prompt_field(const weir_generation *g)
{
    if (g->api->prompt_field != NULL) return g->api->prompt_field;
    return g->request.chat ? "messages" : "prompt";
}

/* generation_open.c. Worker. Reads the request of x and starts what it asks for. */
void weir_generate(weir_exchange *x, const weir_api *api);

/* reply_notes.c */

/* The id of a call that the model gave none: of the answer's id, the choice and its number. */
typedef struct weir_call_id {
    char text[80];
} weir_call_id;
weir_call_id weir_generation_call_id(const weir_generation *g, size_t choice, size_t i);
/* Writes the arguments of a call as an object. What is none, such as the beginning of one that was
 * cut, becomes its only member, "arguments". */
void weir_reply_input(weir_json_out *json, const char *arguments);
/* The rest requires the lock. Members of the open object: tokens removed from the prompt and the
 * state that it continues, if any; times, in llama.cpp's form; the parts of `usage` that only this
 * server has. */
void weir_reply_notes(weir_json_out *json, const weir_generation *g);
void weir_reply_timings(weir_json_out *json, const weir_generation *g);
void weir_reply_usage_notes(weir_json_out *json, const weir_generation *g);
/* The error as the end of a stream. */
WEIR_MUST_CHECK weir_status weir_reply_failure(weir_buffer *out, weir_generation *g);

/* reply.c. Require the lock. Of chats and completions: weir_api.whole, events, last_words. */
WEIR_MUST_CHECK weir_status weir_reply_whole(weir_buffer *out, weir_generation *g);
WEIR_MUST_CHECK weir_status weir_reply_events(weir_buffer *out, weir_generation *g);
const char *weir_reply_last_words(weir_generation *g);
