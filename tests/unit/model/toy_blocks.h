/* tests/unit/model/toy_blocks.h - a mixer and an FFN that no model has. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TOY_KEY_DIM = 24, TOY_VALUE_DIM = 16 };

extern const weir_block toy_mixer, toy_ffn;

#ifdef __cplusplus
}
#endif
