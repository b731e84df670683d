/* kernels/cuda/sequences.h - segments of recurrent states among a kernel's arguments, and how a
 * grid is divided among them. The array of segments is in the host's memory, which every block
 * would wait for, and its requests share the link. */
#pragma once
#include "kernels/abi/ops.h"
#include "kernels/cuda/cuda.h"

namespace weir_cuda {

struct Sequence {
    float *memory; /* its state, or its history */
    int32_t first_row, n_rows;
};

/* Those with many rows first, which take longest. */
template <int MOST> struct Sequences {
    int32_t n, n_long;
    Sequence at[MOST];
};
constexpr int kMostSequences = 128; /* of a launch, 2 KB of the 4 that arguments may have */

/* Takes segments from `begin` on, at most MOST with rows; those with `n_rows` and more are long.
 * Returns the first one that is left. */
template <int MOST>
int64_t take_sequences(
    Sequences<MOST> *to, const weir_recurrent_segment *segments, int64_t begin, int64_t n_segments,
    int64_t n_rows, float *weir_recurrent_segment::*memory
)
{
    int64_t end = begin;
    int n = 0, n_long = 0, n_short = 0;
    for (; end < n_segments && n < MOST; end++) n += segments[end].n_rows > 0;
    for (int64_t s = begin; s < end; s++) {
        const weir_recurrent_segment &segment = segments[s];
        if (segment.n_rows <= 0) continue;
        to->at[segment.n_rows >= n_rows ? n_long++ : n - ++n_short] = { segment.*memory,
                                                                        segment.first_row,
                                                                        segment.n_rows };
    }
    to->n = n, to->n_long = n_long;
    return end;
}

/* The sequence of a block, and which of its blocks it is: long ones have `per_long`. */
struct BlockOf {
    int sequence, block;
    bool is_long;
};
template <int MOST>
__device__ __forceinline__ BlockOf
block_of(const Sequences<MOST> &sequences, int block, int per_long, int per_short)
{
    const int rest = block - sequences.n_long * per_long;
    if (rest < 0) return { block / per_long, block % per_long, true };
    return { sequences.n_long + rest / per_short, rest % per_short, false };
}

} // namespace weir_cuda
