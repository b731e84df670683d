/* tests/fuzz/policy_state_fuzz.c - any bytes as the saved state of some policies: as they are, and
 * with digest and checksum put right. What is taken is written back as the same bytes. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/kv/policy/policy_ops.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static const double frequencies[] = { 1, 0.01 };
static const weir_policy_shape shape = { .n_layers = 2,
                                         .n_heads = 2,
                                         .n_kv_heads = 1,
                                         .key_dim = 4,
                                         .value_dim = 4,
                                         .rotary_dim = 4,
                                         .frequencies = frequencies,
                                         .rope_magnitude = 1,
                                         .scale = 0.5f,
                                         .max_rows = 6 };

static void load_one(
    const weir_policy *policy, weir_policy_state *state, const uint8_t *data, size_t size
)
{
    weir_error error = { 0 };
    const weir_status status = weir_policy_load(policy, state, data, size, &error);
    require(status == WEIR_OK || error.text[0] != '\0');
    if (status != WEIR_OK) return;
    require(weir_policy_saved_bytes(policy, state) == size);
    void *const bytes = malloc(size);
    require(bytes != NULL);
    weir_policy_write(policy, state, bytes);
    require(memcmp(bytes, data, size) == 0);
    free(bytes);
}

static void load_as(const char *name, const char *list, const uint8_t *data, size_t size)
{
    weir_policy_options options;
    weir_policy *policy = NULL;
    weir_error error = { 0 };
    require(
        weir_policy_options_default(&options, name, &error) == WEIR_OK &&
        weir_policy_options_set(&options, list, &error) == WEIR_OK
    );
    require(weir_policy_open(&policy, &options, &shape, NULL, &error) == WEIR_OK);
    weir_policy_state *const state = malloc(weir_policy_state_bytes(policy));
    uint8_t *const sealed = malloc(size > 0 ? size : 1);
    require(state != NULL && sealed != NULL);
    load_one(policy, state, data, size);
    if (size >= 32) {
        memcpy(sealed, data, size);
        memcpy(sealed + 8, policy->digest, sizeof policy->digest);
        const uint64_t sum = XXH3_64bits(sealed, size - 8);
        memcpy(sealed + size - 8, &sum, sizeof sum);
        load_one(policy, state, sealed, size);
    }
    free(sealed);
    free(state);
    weir_policy_close(policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    load_as("h2o", "normalise=true", data, size);
    load_as("snapkv", "window=3", data, size);
    load_as("expected", "covariance=false", data, size);
    return 0;
}
