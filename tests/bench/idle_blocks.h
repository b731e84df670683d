/* tests/bench/idle_blocks.h - blocks of layers that cost nothing: a mixer that keeps KV rows and a
 * feed-forward block, which compute nothing. What a step of such a model takes is the engine's. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const weir_block idle_mixer, idle_ffn;

/* Times of the thread that computes: by the clock, and its processor time. */
typedef struct idle_time {
    int64_t clock_ns, cpu_ns;
} idle_time;
idle_time idle_time_now(void);

/* What the norms of all layers took since the program began: twice the time between the two blocks
 * of a layer, where nothing but a norm runs. */
idle_time idle_norms(void);

#ifdef __cplusplus
}
#endif
