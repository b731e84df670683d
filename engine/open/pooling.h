/* engine/open/pooling.h - how a checkpoint makes one embedding of a text. */
#pragma once
#include "engine/formats/tensor_directory.h"
#include "engine/schedule/engine_facts.h"

/* WEIR_POOLING_MEAN if the checkpoint does not say. */
WEIR_MUST_CHECK weir_status
weir_pooling_of(weir_pooling *out, const weir_tensor_directory *directory, weir_error *error);
