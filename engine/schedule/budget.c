/* engine/schedule/budget.c - limits on the KV memory of one request, and of all requests of a
 * client.
 *
 * A choice is charged for the most that it can hold, prompt and longest answer, shared pages
 * included, so a budget is never exceeded and a running request never has to give memory back.
 * Cached sequences are charged to no client: they are dropped when memory is needed. */
#include <inttypes.h>

#include "engine/schedule/service.h"
#include "kernels/abi/kv_page.h"

int64_t weir_service_kv_bytes(const weir_service_info *info, int64_t rows)
{
    const int64_t all = (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS * WEIR_PAGE_TOKENS,
                  sinks = all < info->sink_tokens ? all : info->sink_tokens;
    return sinks * info->kv_bytes_per_sink + (all - sinks) * info->kv_bytes_per_token +
           info->kv_unsealed_bytes;
}

/* The largest number of rows, in whole pages, that fits in `bytes`. */
static int64_t rows_in(const weir_service_info *info, int64_t bytes)
{
    const int64_t left = bytes - info->kv_unsealed_bytes,
                  sinks = info->sink_tokens * info->kv_bytes_per_sink;
    if (left <= 0) return 0;
    if (left < sinks) return left / (WEIR_PAGE_TOKENS * info->kv_bytes_per_sink) * WEIR_PAGE_TOKENS;
    return info->sink_tokens +
           (left - sinks) / (WEIR_PAGE_TOKENS * info->kv_bytes_per_token) * WEIR_PAGE_TOKENS;
}

/* The tighter of the two budgets, which no request may exceed; 0: none. */
static int64_t budget_of(const weir_service_info *info)
{
    const int64_t a = info->kv_per_request, b = info->kv_per_client;
    return a == 0 || (b > 0 && b < a) ? b : a;
}

int32_t weir_service_row_limit(const weir_service_info *info, int32_t n_choices)
{
    const int64_t budget = budget_of(info);
    if (budget == 0 || info->kv_bytes_per_token == 0) return info->window;
    const int64_t rows = rows_in(info, budget / n_choices);
    return rows < info->window ? (int32_t)rows : info->window;
}

weir_status weir_service_check_budget(
    const weir_service_info *info, int64_t n_prompt, int32_t n_choices, weir_error *error
)
{
    const int32_t limit = weir_service_row_limit(info, n_choices);
    const char *const key =
        budget_of(info) == info->kv_per_request ? "server.kv_per_request" : "server.kv_per_key";
    const int64_t needed = n_choices * weir_service_kv_bytes(info, n_prompt);
    if (n_prompt <= limit || budget_of(info) == 0) return WEIR_OK;
    if (n_choices == 1)
        return weir_error_set(
            error, WEIR_EINVAL,
            "kv_budget_exceeded: the prompt of %" PRId64
            " tokens exceeds the available context size of %d tokens: its KV "
            "takes %" PRId64 " bytes, %s allows %" PRId64 "; shorten it or raise %s",
            n_prompt, (int)limit, needed, key, budget_of(info), key
        );
    return weir_error_set(
        error, WEIR_EINVAL,
        "kv_budget_exceeded: the prompt of %" PRId64
        " tokens exceeds the available context size of %d tokens: the KV of "
        "%d choices takes %" PRId64 " bytes, %s allows %" PRId64
        "; shorten it, ask for fewer choices, or raise %s",
        n_prompt, (int)limit, (int)n_choices, needed, key, budget_of(info), key
    );
}
