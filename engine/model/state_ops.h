/* engine/model/state_ops.h - a block's fixed-size state per sequence: its size, checks, storage and
 * merging. */
#pragma once
#include "engine/base/error.h"
#include "engine/model/bank_stats.h"
#include "engine/model/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives the bytes of a digest. */
typedef struct weir_digest {
    void (*add)(void *user, const void *bytes, size_t n);
    void *user;
} weir_digest;

/* All pointers may be NULL except one of the two sizes. `options` are those of the block's table; a
 * state is f32 elements of the sequence's memory, all zero before the first token. */
typedef struct weir_state_ops {
    /* Of a convolution. */
    int64_t (*history_elements)(const weir_shape *shape, const void *options);
    int64_t (*elements)(const weir_shape *shape, const void *options); /* recurrent */
    /* Validates a state that was read from a file: true if n_tokens tokens can leave it. No step
     * may read another one. */
    bool (*check)(
        const weir_shape *shape, const void *options, const void *state, int64_t n_tokens
    );
    /* Adds the options that determine the state's contents to the digest. */
    void (*identify)(const void *options, const weir_digest *digest);
    /* Adds what the state has of its sequence and what it lost; NULL: of an empty sequence. Only
     * for states that steps left. */
    void (*count)(
        const weir_shape *shape, const void *options, const void *state, weir_bank_stats *sum
    );

    /* Packing in 8 or 4 bits: EUNSUPPORTED for a value that the packed form cannot hold, EFORMAT
     * for bytes that are no state. All four or none. What follows packable_bytes of the state is
     * copied. */
    size_t (*packable_bytes)(const weir_shape *shape, const void *options);
    size_t (*packed_bytes)(const weir_shape *shape, const void *options, int bits);
    weir_status (*pack)(
        const weir_shape *shape, const void *options, const void *state, int bits, void *packed,
        weir_error *error
    );
    weir_status (*unpack)(
        const weir_shape *shape, const void *options, const void *packed, int bits, void *state,
        weir_error *error
    );

    /* `out` continues from the end of `later` and has the contents of both, as far as there is
     * space. `scratch` is aligned for float. Both or none. */
    size_t (*merge_scratch)(const weir_shape *shape, const void *options);
    void (*merge)(
        const weir_shape *shape, const void *options, const void *earlier, const void *later,
        void *out, void *scratch, weir_state_merged *merged
    );
} weir_state_ops;

#ifdef __cplusplus
}
#endif
