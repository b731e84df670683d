/* engine/engine_internal.h - shared by planning and opening. */
#pragma once
#include "engine/kv/formats.h"
#include "engine/kv/prefix.h"
#include "engine/kv/sequence.h"
#include "engine/model/model.h"
#include "engine/schedule/runner.h"
#include "engine/schedule/session_store.h"
#include "engine/weir.h"
#include "offload/ledger.h"

/* Logits rows beside one per slot: prompts that are scored come in pieces of so many. */
enum { WEIR_SCORED_ROWS = 64 };

size_t
weir_plan_cap(const weir_config *config); /* memory.host, or nine tenths of what is free; never 0, which the ledger takes for no cap */
int64_t weir_plan_context(const weir_config *config, const weir_model *model); /* model.context, or what the model was trained for */
bool    weir_plan_wants_f32(const weir_config *config, const weir_tensor_directory *directory);
typedef struct weir_plan_parts {
    const weir_config    *config;
    const weir_model     *model;
    const weir_kv_spec   *spec; /* everything but n_pages and max_rows */
    const weir_kv_choice *formats; /* of which spec->formats was made */
    size_t                cap, tokenizer, other; /* what the ledger holds of the last two */
    bool                  with_service, with_server;
} weir_plan_parts;
WEIR_MUST_CHECK weir_status weir_plan_make(weir_plan *plan, const weir_plan_parts *parts, weir_error *error);

/* identity.c: what makes the memory of one engine of use to another. Reads a sample of every tensor and the whole vocabulary. */
typedef struct weir_identity_parts {
    const weir_config           *config;
    const weir_tensor_directory *directory;
    const weir_model            *model;
    const weir_tokenizer        *tokenizer; /* NULL: none */
    const weir_kv_spec          *spec;
    const weir_kv_choice        *formats; /* of which spec->formats was made */
    bool                         f32_activations;
} weir_identity_parts;
WEIR_MUST_CHECK weir_status weir_identity_of(weir_session_identity *out, const weir_identity_parts *parts, weir_error *error);
/* Sessions are on, and there is something that they could save. */
bool weir_plan_has_sessions(const weir_config *config, const weir_kv_spec *spec, bool with_service);
