/* engine/schedule/key_budget.c - limits on the KV memory of one request, and of all requests of a
 * client. A choice is charged for the most that it can hold, cached sequences to no client
 * (docs/decisions/0011-kv-budgets-by-claim.md). */
#include <inttypes.h>

#include "engine/schedule/service.h"
#include "kernels/abi/kv_page.h"

int64_t weir_service_kv_bytes(const weir_engine_facts *facts, int64_t rows)
{
    const int64_t all = (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS * WEIR_PAGE_TOKENS,
                  sinks = all < facts->sink_tokens ? all : facts->sink_tokens;
    return sinks * facts->kv_bytes_per_sink + (all - sinks) * facts->kv_bytes_per_token +
           facts->kv_unsealed_bytes + facts->kv_window_bytes;
}

/* The largest number of rows, in whole pages, that fits in `bytes`. */
static int64_t rows_in(const weir_engine_facts *facts, int64_t bytes)
{
    const int64_t left = bytes - facts->kv_unsealed_bytes - facts->kv_window_bytes,
                  sinks = facts->sink_tokens * facts->kv_bytes_per_sink;
    if (left <= 0) return 0;
    if (left < sinks)
        return left / (WEIR_PAGE_TOKENS * facts->kv_bytes_per_sink) * WEIR_PAGE_TOKENS;
    return facts->sink_tokens +
           (left - sinks) / (WEIR_PAGE_TOKENS * facts->kv_bytes_per_token) * WEIR_PAGE_TOKENS;
}

/* The tighter of the two budgets, which no request may exceed; 0: none. */
static int64_t budget_of(const weir_engine_facts *facts)
{
    const int64_t a = facts->kv_per_request, b = facts->kv_per_key;
    return a == 0 || (b > 0 && b < a) ? b : a;
}

int32_t weir_service_row_limit(const weir_engine_facts *facts, int32_t n_choices)
{
    const int64_t budget = budget_of(facts);
    if (budget == 0 || facts->kv_bytes_per_token == 0) return facts->window;
    const int64_t rows = rows_in(facts, budget / n_choices);
    return rows < facts->window ? (int32_t)rows : facts->window;
}

weir_status weir_service_check_budget(
    const weir_engine_facts *facts, int64_t n_prompt, int32_t n_choices, weir_error *error
)
{
    const int32_t limit = weir_service_row_limit(facts, n_choices);
    const char *const key =
        budget_of(facts) == facts->kv_per_request ? "server.kv_per_request" : "server.kv_per_key";
    const int64_t needed = n_choices * weir_service_kv_bytes(facts, n_prompt);
    if (n_prompt <= limit || budget_of(facts) == 0) return WEIR_OK;
    if (n_choices == 1)
        return weir_error_set(
            error, WEIR_EINVAL,
            "kv_budget_exceeded: the prompt of %" PRId64
            " tokens exceeds the available context size of %d tokens: its KV "
            "takes %" PRId64 " bytes, %s allows %" PRId64 "; shorten it or raise %s",
            n_prompt, (int)limit, needed, key, budget_of(facts), key
        );
    return weir_error_set(
        error, WEIR_EINVAL,
        "kv_budget_exceeded: the prompt of %" PRId64
        " tokens exceeds the available context size of %d tokens: the KV of "
        "%d choices takes %" PRId64 " bytes, %s allows %" PRId64
        "; shorten it, ask for fewer choices, or raise %s",
        n_prompt, (int)limit, (int)n_choices, needed, key, budget_of(facts), key
    );
}
