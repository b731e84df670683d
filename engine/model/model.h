/* engine/model/model.h - a checkpoint bound to its architecture and loaded: weights, shape, and the
 * forward pass.
 *
 * Immutable after load. Knows no policy and no sequence bookkeeping: the caller hands in where each
 * sequence's memory is. */
#pragma once
#include "engine/model/arch.h"
#include "engine/model/block.h"
#include "offload/ledger.h"
#include "offload/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_model weir_model;

typedef struct weir_model_settings {
    weir_activations activations;
    const weir_tensor_directory
        *adapter; /* its tensors replace those of the checkpoint; NULL: none; outlives the model */
    weir_kv_pair kv_format; /* kv.format: also of memory of fixed size that holds keys and values */
} weir_model_settings;

/* Finds every tensor, checks shapes and types, and plans the packed layouts; all errors of a file
 * are reported at once. Nothing large is allocated yet. `directory`, `arch` and `stream` outlive
 * the model. */
WEIR_MUST_CHECK weir_status weir_model_bind(
    weir_model **out, const weir_tensor_directory *directory, const weir_arch *arch,
    weir_stream *stream, const weir_model_settings *settings, weir_error *error
);
/* Packs the weights into memory of the ledger. `progress` (may be NULL) is called with bytes done
 * and in all. */
typedef void (*weir_progress)(void *user, size_t done, size_t total);
WEIR_MUST_CHECK weir_status weir_model_load(
    weir_model *model, weir_ledger *ledger, weir_progress progress, void *user, weir_error *error
);
void weir_model_close(weir_model *model);

const weir_shape *weir_model_shape(const weir_model *model);
const char *weir_model_arch(const weir_model *model);
size_t weir_model_weight_bytes(const weir_model *model); /* packed */
/* Elements of all bound tensors, tied ones once */
int64_t weir_model_parameters(const weir_model *model);
bool weir_model_tied(const weir_model *model); /* the embedding is the output matrix, too */
int64_t weir_model_kv_layers(const weir_model *model); /* layers that keep KV rows */
/* [kv_layers] what they keep, with the same number of heads in all. */
const weir_kv_geometry *weir_model_kv_geometry(const weir_model *model);
/* Elements of all queries of a row, in the largest of the layers that are watched. */
int64_t weir_model_query_elements(const weir_model *model);
size_t weir_model_recurrent_bytes(const weir_model *model); /* per sequence */
/* Where a layer's memory is in a sequence: f32 elements of conv history and recurrent state, index
 * among the KV layers (-1: none). */
typedef struct weir_layer_memory {
    int64_t history_offset, state_offset, kv_index;
    bool has_history, has_state;
} weir_layer_memory;
weir_layer_memory weir_model_layer_memory(const weir_model *model, int64_t layer);
const weir_rope_table *weir_model_rope(const weir_model *model);
/* Attention can keep what a watch asks for; on devices K is read again */
bool weir_model_keeps_logits(const weir_model *model);
/* There is a kernel for what attention gave to each row, in all layers that watch. `formats`
 * [kv_layers]. */
bool weir_model_shows_mass(
    const weir_model *model, const weir_kv_pair *formats, weir_kv_sinks sinks
);
/* What a layer keeps in KV pages; NULL: nothing. */
const weir_block_kv *weir_model_layer_kv(const weir_model *model, int64_t layer);
const weir_block *weir_model_layer_mixer(const weir_model *model, int64_t layer);
const void *weir_model_layer_options(const weir_model *model, int64_t layer); /* of it */
/* Why devices cannot run the model, a static text; NULL: its blocks can. */
const char *weir_model_host_only(const weir_model *model);
/* Prompts are read in pieces that end at multiples of this, and their rows differ from those of an
 * answer; 1: any cut gives the same bits, and so do prompts and answers. */
int32_t weir_model_block_rows(const weir_model *model);
/* Recurrent memory out of a file: can it be what a text of so many tokens leaves? Else it must not
 * come near a step. */
bool weir_model_is_state(const weir_model *model, const float *recurrent, int64_t n_tokens);
/* What its layers with memory of fixed size have of the text that left this recurrent memory; NULL:
 * of no text, only their slots. */
weir_coda_stats weir_model_coda_stats(const weir_model *model, const float *recurrent);
/* Bytes read by one decode step of one sequence at depth 0 (weights and recurrent state): the bound
 * of decoding is this / bandwidth. */
size_t weir_model_decode_bytes(const weir_model *model);
/* Tensors of the file that nothing uses (borrowed names); the draft block and vision parts are not
 * counted. */
size_t weir_model_unused(const weir_model *model, const char **names, size_t most);

/* ---- forward --------------------------------------------------------------------------------- */
/* Asks for a copy of a sequence's recurrent memory as it is after `after` of the rows of a
 * segment. */
typedef struct weir_batch_snapshot {
    int32_t after; /* 1 .. n_rows */
    float *dst; /* weir_model_recurrent_bytes */
} weir_batch_snapshot;
enum { WEIR_BATCH_SNAPSHOTS = 4 }; /* per segment, at most */

/* One sequence's rows in a batch and its memory. */
typedef struct weir_batch_segment {
    int32_t first_row, n_rows, n_past; /* tokens at positions n_past .. n_past + n_rows - 1 */
    /* One row: it is of a text that is read, not the next of an answer; more rows always are */
    bool is_prompt;
    /* [kv_layers, n_kv_heads] rows that are there before the step; NULL: n_past in each */
    const int32_t *head_rows;
    void *const *pages; /* [kv_layers, n_kv_heads, page_stride] */
    int64_t page_stride;
    /* [kv_layers, n_kv_heads] unsealed rows of page n_past / 64, NULL where the format has none;
     * NULL: none has */
    void *const *unsealed;
    float *recurrent; /* weir_model_recurrent_bytes of this sequence */
    const weir_batch_snapshot *
        snapshots; /* [n_snapshots], `after` ascending; only where the model has recurrent memory */
    int32_t n_snapshots;
    const weir_attention_watch *watch; /* NULL: not watched */
} weir_batch_segment;

typedef struct weir_batch {
    const int32_t *tokens; /* [n_rows] ids below n_vocab (checked by whoever made them) */
    const weir_batch_segment *segments; /* rows in order, no gaps */
    const int32_t *logit_rows; /* [n_logits] ascending: rows whose logits are wanted */
    int32_t n_rows, n_segments, n_logits;
    const weir_kv_pair *formats; /* [kv_layers] of the pages */
    weir_kv_sinks sinks; /* of every segment */
    const weir_kv_source
        *source; /* NULL: all pages are in memory; else only with limits.has_cold */
    /* For `weir logits`: sees the residual stream [n_rows, d_model] before layer 0 and after each
     * layer. NULL: none. */
    void (*observe)(void *user, int64_t layer, const float *hidden);
    void *user;
} weir_batch;

/* All activations of a step and the kernels' scratch, taken once: steps allocate nothing. A
 * sequence keeps the unsealed rows of its last page; those of the pages before it that a step
 * writes to are needed by one layer at a time and are here. */
typedef struct weir_workspace weir_workspace;
typedef struct weir_workspace_limits {
    int32_t rows, segments, logits, context;
    const weir_kv_pair *formats; /* [kv_layers], borrowed: outlives the workspace */
    weir_kv_sinks sinks;
    bool has_cold; /* batches may have a source */
    bool evicts; /* segments may have head_rows and be watched */
} weir_workspace_limits;
/* Without what lies near the kernels */
size_t weir_workspace_bytes(const weir_model *model, const weir_workspace_limits *limits);
/* Without the scratch */
size_t weir_workspace_near_bytes(const weir_model *model, const weir_workspace_limits *limits);
/* What the largest steps within these limits ask of the stream; nothing is kept. */
WEIR_MUST_CHECK weir_status weir_workspace_scratch(
    weir_stream_memory *room, const weir_model *model, const weir_workspace_limits *limits,
    weir_error *error
);
WEIR_MUST_CHECK weir_status weir_workspace_open(
    weir_workspace **out, const weir_model *model, weir_ledger *ledger,
    const weir_workspace_limits *limits, weir_error *error
);
void weir_workspace_close(weir_workspace *workspace);

/* Runs the batch: writes KV rows and recurrent state of every segment, and logits [n_logits,
 * n_vocab] (borrowed until the next call). When it fails, unsealed rows and recurrent state may be
 * torn. */
WEIR_MUST_CHECK weir_status weir_model_forward(
    const weir_model *model, weir_workspace *workspace, const weir_batch *batch,
    const float **logits, weir_error *error
);

/* Writes noise to the KV rows of every segment, as a step writes what it computes: each value is
 * drawn from a normal distribution of mean 0 and deviation 1, as keys after a norm have it, and
 * follows from its place alone. For measurements: nothing else is computed, recurrent memory
 * stays. */
WEIR_MUST_CHECK weir_status weir_model_fill_noise(
    const weir_model *model, weir_workspace *workspace, const weir_batch *batch, weir_error *error
);

#ifdef __cplusplus
}
#endif
