/* engine/open/identity.h - the identity of a model, its formats and its numerics: an engine can use
 * the saved rows and states of another one if both have the same identity. Computing it reads a
 * sample of every tensor and the whole vocabulary. */
#pragma once
#include "engine/config/config.h"
#include "engine/kv/pool/formats.h"
#include "engine/model/model.h"
#include "engine/session/session_store.h"
#include "engine/text/tokenizer.h"
#include "offload/dispatch.h"

typedef struct weir_identity_parts {
    const weir_config *config;
    /* adapter: its tensors replace those of `directory`; may be NULL. */
    const weir_tensor_directory *directory, *adapter;
    const weir_model *model;
    const weir_tokenizer *tokenizer; /* NULL: none */
    const weir_kv_spec *spec;
    const weir_kv_choice *formats; /* spec->formats was made from these */
    const weir_stream *stream;
    bool f32_activations;
} weir_identity_parts;
WEIR_MUST_CHECK weir_status
weir_identity_of(weir_session_identity *out, const weir_identity_parts *parts, weir_error *error);
/* A digest of the model with its adapter and the rounding of its activations, for statistics of its
 * rows (engine/kv/policy). */
WEIR_MUST_CHECK weir_status
weir_identity_model(uint64_t out[2], const weir_identity_parts *parts, weir_error *error);
