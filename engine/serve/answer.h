/* engine/serve/answer.h - one choice of an answer: from token ids to text, reasoning, tool calls
 * and log-probabilities.
 *
 * Tokens are added on the engine thread; the thread that writes the reply takes the output. The
 * caller holds the request's lock. */
#pragma once
#include "engine/schedule/service.h"
#include "engine/serve/logprobs.h"
#include "engine/serve/stop.h"
#include "engine/text/tokenizer.h"
#include "engine/toolcalls/chat_parser.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A part of an answer: a run of bytes of its reasoning or content, or one call. */
typedef enum weir_part_kind {
    WEIR_PART_REASONING,
    WEIR_PART_CONTENT,
    WEIR_PART_CALL,
    WEIR_PART_KINDS
} weir_part_kind;
typedef struct weir_answer_part {
    weir_part_kind kind;
    size_t begin, end; /* bytes of the buffer; the call's number and one more */
} weir_answer_part;

typedef struct weir_answer {
    const weir_tokenizer *tokenizer;
    weir_detokenizer bytes;
    weir_stop_matcher stop;
    weir_chat_parser *parser; /* owned; NULL: all text is content */
    weir_buffer piece, passed; /* scratch: text of one token; after stop strings */
    weir_buffer content, reasoning; /* produced and not yet taken */
    weir_logprob_list logprobs;
    weir_ids ids; /* of all tokens, if keep_ids */
    bool want_logprobs, keep_ids;
    bool one_call; /* the choice ends after its first call */
    bool has_parts; /* the order of its parts is kept; content and reasoning are not taken then */
    weir_buffer parts; /* weir_answer_part each */
    size_t part_end[WEIR_PART_KINDS]; /* of the last part of each kind */
    bool in_call; /* a call was being written after the last token */
    weir_finish finish; /* NONE while running */
    int64_t n_code_points; /* of the text so far, stop strings ignored */
    int32_t n_tokens, n_reasoning_tokens;
    int64_t last_token_ns;
    /* Progress of a stream. */
    size_t n_logprobs_sent, n_calls_sent, n_ids_sent;
    size_t n_arguments_sent; /* bytes of those of the next call */
    bool role_sent, call_begun, finish_sent; /* call_begun: the next call's name was sent */
} weir_answer;

void weir_answer_free(weir_answer *answer);
/* Adds one token. Sets *go_on to false if the choice must end: a stop string or the only call is
 * complete. */
WEIR_MUST_CHECK weir_status
weir_answer_token(weir_answer *answer, const weir_event *event, bool *go_on);
/* Ends the answer and releases the text that was held back. */
WEIR_MUST_CHECK weir_status weir_answer_finish(weir_answer *answer, weir_finish finish);
/* Returns "stop", "length" or "tool_calls". */
const char *weir_answer_reason(const weir_answer *answer);
/* True if a stop string ended it within a call, whose arguments are then a beginning. */
bool weir_answer_stopped_in_call(const weir_answer *answer);
/* The calls so far. */
const weir_tool_call *weir_answer_calls(const weir_answer *answer, size_t *n);
/* The parts so far, in their order. The last one may grow. */
const weir_answer_part *weir_answer_parts(const weir_answer *answer, size_t *n);
/* The call that a stream sends next, of number n_calls_sent: complete, or being written. False:
 * there is none. */
bool weir_answer_next_call(const weir_answer *answer, weir_partial_call *call, bool *is_complete);

#ifdef __cplusplus
}
#endif
