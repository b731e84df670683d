/* engine/kv/policy/save.c - a policy's state as bytes, little-endian: header, for each layer its
 * sets, queries, sums and keys, then XXH3 of all bytes before. Layout: docs/policies.md. */
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/kv/policy/plan.h"

enum { VERSION = 1, HEADER = 8 + 16 + 32 };
static const uint32_t magic = 0x4c4f5057;

static int64_t n_set_rows(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t set
)
{
    return policy->layout.row_values > 0 ? policy_n_values(policy, state, layer, set) : 0;
}

static size_t query_bytes(const weir_policy *policy)
{
    return (size_t)(policy->shape.n_heads * policy->shape.key_dim) * sizeof(float);
}

/* ---- writing --------------------------------------------------------------------------------- */

size_t weir_policy_saved_bytes(const weir_policy *policy, const weir_policy_state *state)
{
    size_t n = HEADER + sizeof(uint64_t);
    for (int64_t layer = 0; layer < policy->shape.n_layers; layer++) {
        for (int64_t set = 0; set < policy_n_sets(policy); set++)
            n += sizeof(int64_t) +
                 (size_t)(n_set_rows(policy, state, layer, set) * policy->layout.row_values) *
                     sizeof(float);
        n += (size_t)policy_n_queries(policy, state) * query_bytes(policy) +
             (size_t)policy->layout.sums * sizeof(double);
        if (policy->layout.first_keys > 0)
            n += (size_t)(policy->shape.n_kv_heads * state->n_held * policy->shape.key_dim) *
                 sizeof(float);
    }
    return n;
}

static void put(char **at, const void *bytes, size_t n)
{
    if (n > 0) memcpy(*at, bytes, n);
    *at += n;
}

static void write_header(const weir_policy *policy, const weir_policy_state *state, char **at)
{
    const uint32_t version = VERSION;
    const int64_t counts[] = { state->n_forwards, state->next_position, state->n_observed,
                               state->n_held };
    put(at, &magic, sizeof magic);
    put(at, &version, sizeof version);
    put(at, policy->digest, sizeof policy->digest);
    put(at, counts, sizeof counts);
}

static void write_keys(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, char **at
)
{
    for (int64_t head = 0; head < policy->shape.n_kv_heads; head++)
        put(at, policy_first_keys(policy, state, layer, head),
            (size_t)(state->n_held * policy->shape.key_dim) * sizeof(float));
}

static void write_layer(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, char **at
)
{
    for (int64_t set = 0; set < policy_n_sets(policy); set++) {
        const int64_t n = n_set_rows(policy, state, layer, set);
        put(at, &n, sizeof n);
        for (int64_t i = 0; i < policy->layout.row_values; i++)
            put(at, policy_values(policy, state, layer, set, i), (size_t)n * sizeof(float));
    }
    for (int64_t back = policy_n_queries(policy, state); back-- > 0;)
        put(at, policy_query(policy, state, layer, back, 0), query_bytes(policy));
    put(at, policy_sums(policy, state, layer), (size_t)policy->layout.sums * sizeof(double));
    if (policy->layout.first_keys > 0) write_keys(policy, state, layer, at);
}

void weir_policy_write(const weir_policy *policy, const weir_policy_state *state, void *bytes)
{
    char *at = bytes;
    write_header(policy, state, &at);
    for (int64_t layer = 0; layer < policy->shape.n_layers; layer++)
        write_layer(policy, state, layer, &at);
    const uint64_t checksum = XXH3_64bits(bytes, (size_t)(at - (char *)bytes));
    put(&at, &checksum, sizeof checksum);
    WEIR_DASSERT((size_t)(at - (char *)bytes) == weir_policy_saved_bytes(policy, state));
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct source {
    const char *at;
    size_t left;
} source;

/* Reads n numbers of `size` bytes. Returns false if the bytes end early. */
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

static bool load_counts(const weir_policy *policy, weir_policy_state *state, source *from)
{
    int64_t counts[4] = { 0 };
    if (!get(from, counts, 4, sizeof counts[0])) return false;
    for (int i = 0; i < 4; i++)
        if (counts[i] < 0 || counts[i] > INT64_MAX / 2) return false;
    if (counts[2] > counts[1] || counts[3] > policy->layout.first_keys) return false;
    state->n_forwards = counts[0], state->next_position = counts[1], state->n_observed = counts[2],
    state->n_held = counts[3];
    return true;
}

static bool load_keys(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, source *from
)
{
    const int64_t n = state->n_held;
    for (int64_t head = 0; head < policy->shape.n_kv_heads; head++) {
        float *const keys = policy_first_keys(policy, state, layer, head);
        if (!get(from, keys, n * policy->shape.key_dim, sizeof *keys) ||
            !are_finite(keys, n * policy->shape.key_dim))
            return false;
    }
    return true;
}

static bool load_layer(
    const weir_policy *policy, weir_policy_state *state, int64_t layer, int64_t *lengths,
    source *from
)
{
    for (int64_t set = 0; set < policy_n_sets(policy); set++) {
        int64_t n = 0;
        if (!get(from, &n, 1, sizeof n) || n < 0 ||
            n > (policy->layout.row_values > 0 ? policy->shape.max_rows : 0))
            return false;
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
    return policy->layout.first_keys == 0 || load_keys(policy, state, layer, from);
}

static weir_status damaged(const char *what, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EFORMAT,
        "the saved state of the KV policy is damaged: %s; start the sequence again", what
    );
}

static weir_status check_frame(
    const weir_policy *policy, const char *bytes, size_t n, weir_error *error
)
{
    uint32_t frame[2];
    uint64_t digest[2], checksum;
    if (n < HEADER + sizeof checksum) return damaged("it is cut short", error);
    memcpy(frame, bytes, sizeof frame);
    memcpy(digest, bytes + sizeof frame, sizeof digest);
    memcpy(&checksum, bytes + n - sizeof checksum, sizeof checksum);
    if (frame[0] != magic) return damaged("its magic number is wrong", error);
    if (frame[1] != VERSION)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "the saved state of the KV policy has version %u, this program reads version %d",
            frame[1], (int)VERSION
        );
    if (checksum != XXH3_64bits(bytes, n - sizeof checksum))
        return damaged("its checksum is wrong", error);
    if (memcmp(digest, policy->digest, sizeof digest) != 0)
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "the saved state is of another KV policy, of other options, or of "
            "another model; this one is %s",
            weir_policy_name(&policy->options)
        );
    return WEIR_OK;
}

weir_status weir_policy_load(
    const weir_policy *policy, weir_policy_state *state, const void *bytes, size_t n,
    weir_error *error
)
{
    weir_policy_reset(policy, state);
    WEIR_TRY(check_frame(policy, bytes, n, error));
    source from = { .at = (const char *)bytes + 24, .left = n - 24 - sizeof(uint64_t) };
    int64_t *const lengths = policy_lengths(policy, state);
    bool is_good = load_counts(policy, state, &from);
    for (int64_t layer = 0; layer < policy->shape.n_layers && is_good; layer++)
        is_good = load_layer(policy, state, layer, lengths, &from);
    if (is_good && from.left == 0) return WEIR_OK;
    weir_policy_reset(policy, state);
    return damaged(
        is_good ? "it is longer than its contents" : "its sizes or numbers are out of range", error
    );
}

bool weir_policy_fits(
    const weir_policy *policy, const weir_policy_state *state, const int64_t *n_rows,
    int64_t next_position
)
{
    const int64_t heads = policy->shape.n_kv_heads;
    bool fits = state->next_position == next_position;
    for (int64_t i = 0; i < policy->shape.n_layers * heads; i++) {
        const int64_t layer = i / heads, head = i % heads,
                      set = policy->layout.is_per_layer ? 0 : head;
        fits = fits && n_rows[i] >= 0 && n_rows[i] <= policy->shape.max_rows;
        fits = fits && (!policy->layout.is_per_layer || n_rows[i] == n_rows[layer * heads]);
        fits = fits && (policy->layout.row_values == 0 ||
                        n_rows[i] == policy_n_values(policy, state, layer, set));
    }
    return fits;
}
