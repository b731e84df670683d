/* engine/kv/policies/save.c - a policy's state as bytes, little-endian:
 *
 *   u32 magic "WPOL", u32 version, u64 digest[2] of options and shape, i64 forwards, next position, observed
 *   for each layer and set: i64 rows, f32 values [row_values, rows]
 *   for each layer: f32 queries [in the ring, query heads, key_dim], oldest first; f64 sums
 *   u64 XXH3 of all bytes before */
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/kv/policies/plan.h"

enum { VERSION = 1, HEADER = 8 + 16 + 24 };
static const uint32_t magic = 0x4c4f5057;

static int64_t n_set_rows(const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t set)
{
    return policy->layout.row_values > 0 ? policy_n_values(policy, state, layer, set) : 0;
}

static size_t query_bytes(const weir_policy *policy) { return (size_t)(policy->shape.n_heads * policy->shape.key_dim) * sizeof(float); }

/* ---- writing ------------------------------------------------------------------------------------------------------------------- */

static weir_status save_header(const weir_policy *policy, const weir_policy_state *state, weir_buffer *out)
{
    const uint32_t version = VERSION;
    const int64_t  counts[] = { state->n_forwards, state->next_position, state->n_observed };
    WEIR_TRY(weir_buffer_add(out, &magic, sizeof magic));
    WEIR_TRY(weir_buffer_add(out, &version, sizeof version));
    WEIR_TRY(weir_buffer_add(out, policy->digest, sizeof policy->digest));
    return weir_buffer_add(out, counts, sizeof counts);
}

static weir_status save_layer(const weir_policy *policy, const weir_policy_state *state, int64_t layer, weir_buffer *out)
{
    for (int64_t set = 0; set < policy_n_sets(policy); set++) {
        const int64_t n = n_set_rows(policy, state, layer, set);
        WEIR_TRY(weir_buffer_add(out, &n, sizeof n));
        for (int64_t i = 0; i < policy->layout.row_values; i++)
            WEIR_TRY(weir_buffer_add(out, policy_values(policy, state, layer, set, i), (size_t)n * sizeof(float)));
    }
    for (int64_t back = policy_n_queries(policy, state); back-- > 0;)
        WEIR_TRY(weir_buffer_add(out, policy_query(policy, state, layer, back, 0), query_bytes(policy)));
    return weir_buffer_add(out, policy_sums(policy, state, layer), (size_t)policy->layout.sums * sizeof(double));
}

weir_status weir_policy_save(const weir_policy *policy, const weir_policy_state *state, weir_buffer *out)
{
    const size_t first = out->size;
    weir_status  status = save_header(policy, state, out);
    for (int64_t layer = 0; layer < policy->shape.n_layers && status == WEIR_OK; layer++) status = save_layer(policy, state, layer, out);
    if (status == WEIR_OK) {
        const uint64_t checksum = XXH3_64bits(out->data + first, out->size - first);
        status = weir_buffer_add(out, &checksum, sizeof checksum);
    }
    if (status != WEIR_OK) out->size = first;
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------- */

typedef struct source {
    const char *at;
    size_t      left;
} source;

/* n numbers of `size` bytes; false when the bytes end before. */
static bool get(source *from, void *out, int64_t n, size_t size)
{
    size_t bytes;
    if (n < 0 || !weir_mul_size(&bytes, (size_t)n, size) || bytes > from->left) return false;
    if (bytes > 0) memcpy(out, from->at, bytes);
    from->at += bytes;
    from->left -= bytes;
    return true;
}

static bool are_finite(const float *x, int64_t n)
{
    int64_t i = 0;
    while (i < n && isfinite(x[i])) i++;
    return i == n;
}

static bool load_counts(weir_policy_state *state, source *from)
{
    int64_t counts[3];
    if (!get(from, counts, 3, sizeof counts[0])) return false;
    for (int i = 0; i < 3; i++)
        if (counts[i] < 0 || counts[i] > INT64_MAX / 2) return false;
    if (counts[2] > counts[1]) return false;
    state->n_forwards = counts[0], state->next_position = counts[1], state->n_observed = counts[2];
    return true;
}

static bool load_layer(const weir_policy *policy, weir_policy_state *state, int64_t layer, int64_t *lengths, source *from)
{
    for (int64_t set = 0; set < policy_n_sets(policy); set++) {
        int64_t n;
        if (!get(from, &n, 1, sizeof n) || n < 0 || n > (policy->layout.row_values > 0 ? policy->shape.max_rows : 0)) return false;
        lengths[layer * policy_n_sets(policy) + set] = n;
        for (int64_t i = 0; i < policy->layout.row_values; i++) {
            float *const values = policy_values(policy, state, layer, set, i);
            if (!get(from, values, n, sizeof *values) || !are_finite(values, n)) return false;
        }
    }
    const int64_t n_query = policy->shape.n_heads * policy->shape.key_dim;
    for (int64_t back = policy_n_queries(policy, state); back-- > 0;) {
        float *const query = (float *)(uintptr_t)policy_query(policy, state, layer, back, 0);
        if (!get(from, query, n_query, sizeof *query) || !are_finite(query, n_query)) return false;
    }
    double *const sums = policy_sums(policy, state, layer);
    if (!get(from, sums, policy->layout.sums, sizeof *sums)) return false;
    for (int64_t i = 0; i < policy->layout.sums; i++)
        if (!isfinite(sums[i])) return false;
    return true;
}

static weir_status damaged(const char *what, weir_error *error)
{
    return weir_error_set(error, WEIR_EFORMAT, "the saved state of the KV policy is damaged: %s; begin the text again", what);
}

static weir_status check_frame(const weir_policy *policy, const char *bytes, size_t n, weir_error *error)
{
    uint32_t frame[2];
    uint64_t digest[2], checksum;
    if (n < HEADER + sizeof checksum) return damaged("it is cut short", error);
    memcpy(frame, bytes, sizeof frame);
    memcpy(digest, bytes + sizeof frame, sizeof digest);
    memcpy(&checksum, bytes + n - sizeof checksum, sizeof checksum);
    if (frame[0] != magic) return damaged("it does not begin as one", error);
    if (frame[1] != VERSION)
        return weir_error_set(error, WEIR_EUNSUPPORTED, "the saved state of the KV policy has version %u, this program reads version %d",
                              frame[1], (int)VERSION);
    if (checksum != XXH3_64bits(bytes, n - sizeof checksum)) return damaged("its checksum is wrong", error);
    if (memcmp(digest, policy->digest, sizeof digest) != 0)
        return weir_error_set(error, WEIR_EMISMATCH,
                              "the saved state is of another KV policy, of other options, or of another model; this one is %s",
                              weir_policy_name(&policy->options));
    return WEIR_OK;
}

weir_status weir_policy_load(const weir_policy *policy, weir_policy_state *state, const void *bytes, size_t n, weir_error *error)
{
    weir_policy_reset(policy, state);
    WEIR_TRY(check_frame(policy, bytes, n, error));
    source         from = { .at = (const char *)bytes + 24, .left = n - 24 - sizeof(uint64_t) };
    int64_t *const lengths = policy_lengths(policy, state);
    bool           is_good = load_counts(state, &from);
    for (int64_t layer = 0; layer < policy->shape.n_layers && is_good; layer++) is_good = load_layer(policy, state, layer, lengths, &from);
    if (is_good && from.left == 0) return WEIR_OK;
    weir_policy_reset(policy, state);
    return damaged(is_good ? "there is something behind its end" : "its sizes or numbers are out of range", error);
}
