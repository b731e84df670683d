/* tools/load/summary.h - the figures of a load, from its records. Pure.
 *
 * TTFT: from the time at which a request was due to its first text. ITL: between two events with
 * text. TPOT: from the first text to the last, per answer token after the first. E2E: from due to
 * the end of the reply. Percentiles are over the requests that ended well. */
#pragma once
#include "tools/load/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits in ms; 0: none. */
typedef struct weir_goodput {
    double ttft, tpot, e2e;
} weir_goodput;

/* Reads "ttft:200,tpot:50,e2e:5000", any of them. Returns EINVAL. */
WEIR_MUST_CHECK weir_status
weir_goodput_parse(weir_goodput *out, const char *text, weir_error *error);

enum { WEIR_LOAD_FAILURES = 16 };

/* Requests that failed for one reason. */
typedef struct weir_load_failure {
    weir_load_outcome outcome;
    int32_t status; /* with WEIR_LOAD_STATUS */
    int32_t n;
} weir_load_failure;

typedef struct weir_load_summary {
    int32_t n_sent, n_good, n_failed, n_open; /* n_open: running when the load was stopped */
    double seconds; /* from the start to the end of the last request */
    double requests_per_second; /* that ended well */
    int64_t prompt_tokens, cached_tokens, answer_tokens;
    bool is_counted; /* every answer's tokens are from usage; else events stand for tokens */
    double prompt_per_second, answer_per_second;
    weir_percentiles ttft, tpot, itl, e2e; /* ms */
    weir_percentiles late; /* ms from due to sent: this client's, or the limit of streams */
    int32_t n_within; /* the goodput's requests */
    double goodput_per_second;
    int32_t n_failures; /* of `failures`, the most frequent first */
    weir_load_failure failures[WEIR_LOAD_FAILURES]; /* the last may stand for all others */
} weir_load_summary;

/* Sorts result->gaps. Returns ENOMEM. */
WEIR_MUST_CHECK weir_status
weir_load_summarise(weir_load_summary *out, weir_load_result *result, const weir_goodput *goodput);
/* ms; tpot is negative for answers of one token. */
double weir_load_ttft(const weir_load_record *record);
double weir_load_tpot(const weir_load_record *record);
double weir_load_e2e(const weir_load_record *record);

#ifdef __cplusplus
}
#endif
