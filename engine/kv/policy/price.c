/* engine/kv/policy/price.c - the cost of observing for a policy, from its needs and the shape
 * alone. Counts, not times: bench --policies measures. */
#include "engine/kv/policy/policy_ops.h"

enum { ATTENTION = WEIR_POLICY_MASS | WEIR_POLICY_BELOW | WEIR_POLICY_LAST };

/* Per row and query head: logits written and read, mass written and read, the row's sum read and
 * written. */
static const double mass_bytes = 24;
static const double mass_flops = 24; /* an exponential, and the sum */

weir_policy_price weir_policy_price_of(const weir_policy *policy, int64_t n_rows)
{
    const weir_policy_shape *const s = &policy->shape;
    const unsigned needs = policy->layout.needs;
    const double heads = (double)(s->n_layers * s->n_heads), rows = heads * (double)n_rows;
    const double query_bytes =
        2 * heads * (double)s->key_dim * sizeof(float); /* read and written */
    weir_policy_price price = { .window = policy->layout.ring };
    price.sees_mass = (needs & ATTENTION) != 0;
    price.sees_all_queries = (needs & WEIR_POLICY_PLAIN_QUERIES) != 0;
    price.reads_keys = (needs & WEIR_POLICY_KEYS) != 0;
    price.reads_values = (needs & WEIR_POLICY_VALUES) != 0;
    /* A prompt's last row has logits; the mass of the others computes their scores again. */
    price.reads_prompt_keys_again = (needs & (WEIR_POLICY_MASS | WEIR_POLICY_BELOW)) != 0;
    if (price.sees_mass)
        price.step_bytes += mass_bytes * rows, price.step_flops += mass_flops * rows;
    if (price.window > 0) price.step_bytes += query_bytes;
    if (price.sees_all_queries)
        price.step_bytes += query_bytes,
            price.step_flops += heads * (double)(2 * s->key_dim * s->key_dim);
    if (price.reads_prompt_keys_again)
        price.prompt_flops = rows * ((double)(2 * s->key_dim) + mass_flops);
    return price;
}
