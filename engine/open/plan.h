/* engine/open/plan.h - the memory plan: its inputs, and the functions that compute it. */
#pragma once
#include "engine/engine.h"
#include "engine/kv/pool/formats.h"
#include "engine/model/model.h"
#include "engine/open/policies.h"

typedef struct weir_plan_parts {
    const weir_config *config;
    const char *path; /* the model file or folder */
    const weir_model *model;
    int32_t n_valid_vocab; /* ids that the tokenizer has; 0: no tokenizer */
    weir_pooling pooling;
    weir_ranking ranking;
    weir_stream *stream; /* the model's stream */
    const weir_kv_spec *spec; /* without pages.n and max_rows */
    const weir_kv_choice *formats; /* spec->formats was made from these */
    const weir_policies *policies;
    size_t cap, tokenizer, packs, other; /* tokenizer, packs, other: as charged to the ledger */
    size_t device_cap; /* 0 without a device */
    const weir_device *device; /* NULL: the CPU */
    const char *device_why;
    bool with_service, with_files, with_server;
} weir_plan_parts;

/* ---- plan_limits.c --------------------------------------------------------------------------- */
/* The smallest number of KV rows that a plan may have. */
enum { WEIR_SMALLEST_WINDOW = 256 };
/* Logits rows in addition to one per slot: scored prompts are computed in pieces of this many
 * rows. */
enum { WEIR_SCORED_ROWS = 64 };
/* Returns WEIR_SCORED_ROWS, or the size of a block if prompts are cut by blocks. */
int32_t weir_plan_scored_rows(const weir_model *model);
/* Draft tokens of a sequence in a step; 0: there is no speculation, as with a device, where it has
 * not been measured, and for models whose prompts are cut by blocks. */
int32_t weir_plan_drafts(const weir_config *config, const weir_model *model, bool has_device);
/* Rows of a step: a chunk of prompts, one for each sequence and, with recurrent states, those that
 * accepted drafts have computed again. */
int32_t weir_plan_step_rows(
    const weir_config *config, const weir_model *model, int64_t chunk, int32_t n_slots,
    bool has_device
);

/* Returns memory.device, or nine tenths of the device's free memory; 0 without a device. */
size_t weir_plan_device_cap(const weir_config *config, const weir_device *device);
/* Returns memory.host, or nine tenths of the free memory; never 0, which the ledger takes for no
 * cap. */
size_t weir_plan_cap(const weir_config *config);
/* Returns model.context, or the context length that the model was trained for. */
int64_t weir_plan_context(const weir_config *config, const weir_model *model);
bool weir_plan_wants_f32(const weir_config *config, const weir_tensor_directory *directory);
/* True if sessions are on and there is something that they could save. */
bool weir_plan_has_sessions(const weir_config *config, bool with_service);
/* True if sequences can be written to files and read back. */
bool weir_plan_has_files(const weir_config *config, bool with_files);
/* Sequences that jobs of sessions and states use at once. */
int32_t weir_plan_session_transfers(const weir_plan_parts *parts);
/* True for a server with a state database. */
bool weir_plan_has_states(const weir_config *config, bool with_server);

/* ---- facts.c --------------------------------------------------------------------------------- */
/* Returns the geometry of the first layer with KV, or that of the shape if no layer has KV. */
weir_kv_geometry weir_plan_first_geometry(const weir_model *model);
/* Fills in all facts except the window and the pages, which are planned. `facts` must be zeroed. */
void weir_plan_describe(weir_engine_facts *facts, const weir_plan_parts *parts);

/* ---- plan.c ---------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status
weir_plan_make(weir_plan *plan, const weir_plan_parts *parts, weir_error *error);

/* ---- plan_window.c --------------------------------------------------------------------------- */
/* The limits of the runner of iterations within a step that waits for a block; 0 rows: there are
 * none, as without a service or a disk, and with a device. chunk: batch.chunk. */
struct weir_runner_limits weir_plan_nested(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t chunk
);
/* Computes activations and prefetch buffers of a plan whose window and slots are known, for steps
 * of `chunk` prompt tokens; with the kernels' scratch only if requested. */
WEIR_MUST_CHECK weir_status weir_plan_activations(
    weir_plan *plan, const weir_plan_parts *parts, int64_t chunk, bool with_scratch,
    weir_error *error
);

/* ---- plan_print.c ---------------------------------------------------------------------------- */
/* Prints a size such as "11.5 MiB", "3.2 KiB" or "80 B"; returns `out`. */
enum { WEIR_SIZE_TEXT = 32 };
const char *weir_size_text(char out[WEIR_SIZE_TEXT], size_t bytes);
/* Reports that a plan does not fit the host, or the device, with the sizes of all parts except KV,
 * which has too few rows. Returns EFULL. */
weir_status weir_plan_too_small(const weir_plan *plan, weir_error *error);
