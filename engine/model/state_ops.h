/* engine/model/state_ops.h - the state of fixed size that a block keeps per sequence: its size, and
 * what is done with it besides computing. */
#pragma once
#include "engine/base/error.h"
#include "engine/model/coda_stats.h"
#include "engine/model/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes bytes of a digest. */
typedef struct weir_digest {
    void (*add)(void *user, const void *bytes, size_t n);
    void *user;
} weir_digest;

/* Any pointer but one of the two sizes may be NULL. `options` are those of the block's table; a
 * state is f32 elements of the sequence's memory, all zero before the first token. */
typedef struct weir_state_ops {
    /* Of a convolution */
    int64_t (*history_elements)(const weir_shape *shape, const void *options);
    int64_t (*elements)(const weir_shape *shape, const void *options); /* recurrent */
    /* Can this state, read from a file, be one that a text of n_tokens leaves? Else no step may
     * read it. */
    bool (*check)(
        const weir_shape *shape, const void *options, const void *state, int64_t n_tokens
    );
    /* Adds the options that decide what the state holds. */
    void (*identify)(const void *options, const weir_digest *digest);
    /* Adds what the state has of its text and what it lost; NULL: of no text. Only of states that
     * steps left. */
    void (*count)(
        const weir_shape *shape, const void *options, const void *state, weir_coda_stats *sum
    );

    /* In 8 or 4 bits: EUNSUPPORTED for a value that the small form does not hold, EFORMAT for bytes
     * that are no state. All four or none. What lies behind packable_bytes of the state is kept as
     * it is. */
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

    /* `out` goes on where `later` ends and has what both hold, as far as there is room. `scratch`
     * is aligned for float. Both or none. */
    size_t (*merge_scratch)(const weir_shape *shape, const void *options);
    void (*merge)(
        const weir_shape *shape, const void *options, const void *earlier, const void *later,
        void *out, void *scratch, weir_state_merged *merged
    );
} weir_state_ops;

#ifdef __cplusplus
}
#endif
