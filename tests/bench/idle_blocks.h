/* tests/bench/idle_blocks.h - blocks of layers that cost nothing: a mixer that keeps KV rows and a
 * feed-forward block, which compute nothing. What a step of such a model takes is the engine's. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const weir_block idle_mixer, idle_ffn;

/* Nanoseconds that the norms of all layers took since the program began: twice the time between the
 * two blocks of a layer, where nothing but a norm runs. */
int64_t idle_norm_ns(void);

#ifdef __cplusplus
}
#endif
