#include "engine/kv/policy/budget.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/policy/policy_ops.h"

void weir_budget_pyramid(
    int64_t *rows, int64_t n_layers, int64_t n, double kept, int64_t window, double beta
)
{
    /* By way of the capacity, as in the published code: kept + window - window may differ in the
     * last bits. */
    const double capacity = (double)window + kept;
    double least = (capacity - (double)window) / beta,
           most = (capacity - (double)window) * 2 - least;
    if (most >= (double)(n - window)) {
        most = (double)(n - window);
        least = (capacity - (double)window) * 2 - most;
    }
    const bool fits = (double)n >= most && most >= least && least >= (double)window;
    for (int64_t layer = 0; layer < n_layers; layer++) {
        const double step = n_layers > 1 ? (most - least) / (double)(n_layers - 1) : 0;
        const double share = fits ? most - (double)layer * step : fmax(1, rint(kept));
        rows[layer] = (int64_t)rint(share);
    }
}

/* ---- lists of heads -------------------------------------------------------------------------- */

/* Parses a whole number below `limit`. Returns the end of it, or NULL. */
static const char *parse_number(int64_t *out, const char *at, int64_t limit)
{
    int64_t value = 0;
    const char *end = at;
    for (; *end >= '0' && *end <= '9' && value < limit; end++) value = value * 10 + (*end - '0');
    *out = value;
    return end > at && value < limit ? end : NULL;
}

/* Parses one LAYER:HEADS. Returns the end of it, or NULL. */
static const char *parse_item(bool *flags, int64_t n_layers, int64_t n_kv_heads, const char *at)
{
    int64_t layer, first = 0, last = n_kv_heads - 1;
    at = parse_number(&layer, at, n_layers);
    if (at == NULL || *at != ':') return NULL;
    if (*++at == '*') {
        at++;
    } else {
        at = parse_number(&first, at, n_kv_heads);
        if (at == NULL) return NULL;
        last = first;
        if (*at == '-') at = parse_number(&last, at + 1, n_kv_heads);
        if (at == NULL || last < first) return NULL;
    }
    for (int64_t head = first; head <= last && flags != NULL; head++)
        flags[layer * n_kv_heads + head] = true;
    return at;
}

weir_status weir_budget_parse_heads(
    bool *flags, int64_t n_layers, int64_t n_kv_heads, const char *list, weir_error *error
)
{
    if (flags != NULL) memset(flags, 0, (size_t)(n_layers * n_kv_heads) * sizeof *flags);
    for (const char *at = list; *at != '\0';) {
        const char *const end = parse_item(flags, n_layers, n_kv_heads, at);
        if (end == NULL || (*end != ';' && *end != '\0'))
            return weir_error_set(
                error, WEIR_ECONFIG,
                "heads: \"%.*s\" is not LAYER:HEAD, LAYER:FIRST-LAST or LAYER:* of %" PRId64
                " layers with %" PRId64 " KV heads",
                (int)strcspn(at, ";"), at, n_layers, n_kv_heads
            );
        at = end + (*end == ';');
    }
    return WEIR_OK;
}

/* ---- a policy's split ------------------------------------------------------------------------ */

void weir_budget_fill(
    int64_t *rows, const weir_policy *policy, int64_t budget, int64_t n_rows, const bool *whole
)
{
    const weir_policy_shape *const shape = &policy->shape;
    const weir_policy_options *const options = &policy->options;
    const int64_t n = shape->n_layers * shape->n_kv_heads;
    for (int64_t i = 0; i < n; i++) rows[i] = budget;
    if (options->split == WEIR_SPLIT_HEADS && whole != NULL)
        for (int64_t i = 0; i < n; i++)
            rows[i] = whole[i] ? shape->max_rows : options->sinks + options->recent;
    if (options->split != WEIR_SPLIT_PYRAMID) return;
    const int64_t window = options->window > 0 ? options->window : 1;
    /* Fills the first n_layers entries. */
    weir_budget_pyramid(rows, shape->n_layers, n_rows, (double)budget, window, options->beta);
    for (int64_t i = n - 1; i >= 0; i--) rows[i] = rows[i / shape->n_kv_heads];
}
