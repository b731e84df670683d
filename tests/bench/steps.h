// What a step of the engine costs besides its kernels: a service with a model whose layers compute
// nothing, many sequences, and a pool of many pages of which none is touched.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "engine/schedule/step_times.h"

namespace steps {

struct Options {
    int32_t sequences = 256, layers = 36, kv_heads = 8;
    int64_t pool_tokens = 10000000;
    int32_t context = 1024; // tokens of each sequence when the measurement begins
    int32_t steps = 512; // measured; fewer if a prompt next to them does not last as long
    bool prefill = false; // one sequence computes a prompt meanwhile, in pieces
    int32_t queued = 0; // jobs that wait for a place
    std::string disk; // size of a lower tier; empty: there is none
    bool cold = false; // a cached text that nothing uses is there
    int32_t vocabulary = 64; // a multiple of 64
    bool sampled = false; // temperature 1, top_k 40 and top_p 0.9; else the most likely token
    bool shared = false; // the first half of all prompts is the same
    // Tokens after which each answer but one ends, and its client asks the same again; 0: none
    // ends.
    int32_t answer = 0;
    bool together = false; // half way all of these are cancelled in one step, and asked again
    int32_t choices = 1; // of each of their requests
    bool preempted = false; // half way all of these are preempted in one step, and go on
    int64_t pace = 0; // service_pace.least; 0: as it is
    std::string folder; // for the model's files and the lower tier; exists
};

struct Figures {
    // Of a step, without the norms of the layers: by the clock, and in processor time of the
    // engine thread, which other programs do not change.
    double median_us = 0, p99_us = 0, most_us = 0, cpu_median_us = 0, cpu_p99_us = 0,
           cpu_most_us = 0;
    double norms_us = 0; // of all layers, in the mean
    std::array<double, WEIR_STEP_PARTS> part_us = {}; // in the mean
    int64_t steps = 0, batch_rows = 0, pool_tokens = 0, kv_heads = 0;
    int64_t answers = 0, cached_tokens = 0; // that ended, and that these requests reused
};

// Returns "" or what failed.
std::string run(const Options &options, Figures *out);

const char *part_name(weir_step_part part);

} // namespace steps
