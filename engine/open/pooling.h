/* engine/open/pooling.h - how a checkpoint makes one embedding of a text. */
#pragma once
#include "engine/formats/tensor_directory.h"
#include "engine/schedule/engine_facts.h"

/* WEIR_POOLING_MEAN if the checkpoint does not say. *is_stated: it does; may be NULL. */
WEIR_MUST_CHECK weir_status weir_pooling_of(
    weir_pooling *out, bool *is_stated, const weir_tensor_directory *directory, weir_error *error
);
/* llama.cpp's number, which GGUF files have. */
uint32_t weir_pooling_number(weir_pooling pooling);
