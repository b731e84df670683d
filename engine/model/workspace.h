/* engine/model/workspace.h - the memory of a step and its segments, shared by the forward pass, its
 * planning and its noise. */
#pragma once
#include "engine/model/model_internal.h"

enum { WEIR_MAX_ROUNDS = WEIR_BATCH_SNAPSHOTS + 1 };

struct weir_workspace {
    weir_ledger *ledger;
    void *memory, *near; /* near: memory that only kernels read and write */
    size_t bytes, near_bytes; /* of the two */
    size_t device_scratch_size, host_scratch_size; /* allocated by the stream, charged here */
    weir_workspace_limits limits;
    float *x, *in, *out, *scratch, *gathered, *logits;
    /* With a draft head: hidden states of all rows of the last step; rows of the head as its
     * projection reads them. */
    float *hidden, *joined; /* [rows, d_model], [rows, 2 d_model] */
    float *layer_inputs; /* [rows, n_layers, d_layer_input] */
    /* Copies of x, logits and queries that the host can read; without a device the arrays
     * themselves. */
    float *shown_rows, *shown_logits, *shown_queries;
    int32_t *positions, *near_positions;
    /* [segments, n_kv_heads], or [segments] if all heads have the same rows. */
    weir_kv_segment *kv, *warm;
    int32_t *kv_owner;
    float *partials, *lse;
    const weir_attention_watch **watches; /* [segments] */
    weir_attention_mass_segment *mass;
    char *unsealed_rows; /* [unsealed_pages, n_kv_heads], as large as any layer needs */
    void **unsealed_table; /* [n_kv_heads, pages of each segment] */
    weir_recurrent_segment *recurrent; /* [WEIR_MAX_ROUNDS, segments] */
    weir_recurrent_round *rounds; /* [WEIR_MAX_ROUNDS] */
    bool *is_prompt; /* [segments] */
    bool *lost_rows; /* [rows] of experts that are read in steps; NULL: there are none */
    bool may_lose; /* of the batch: rows, without failing */
    weir_error problem; /* why rows were lost */
    /* Of the current layer: KV segments and rounds; whether a sequence is observed. */
    int64_t n_kv, n_rounds;
    bool is_watched;
    weir_state_copy *copies; /* [WEIR_MAX_ROUNDS, segments, 2] */
};

/* workspace.c: the format of the layer's KV; f32 if it has none. */
weir_kv_pair weir_layer_format(const weir_kv_pair *formats, const layer *l);
/* Bytes of unsealed rows of a page of this layer, or of a sink; per KV head. */
size_t weir_unsealed_bytes(const layer *l, const weir_kv_pair *formats, weir_kv_sinks sinks);

/* segments.c: fill the workspace. weir_fill_positions writes positions and is_prompt of the batch;
 * weir_fill_segments writes the KV segments of layer `l` and returns their number. */
void weir_fill_positions(const weir_workspace *w, const weir_model *model, const weir_batch *batch);
int64_t weir_fill_segments(
    const weir_workspace *w, const weir_model *model, const weir_batch *batch, const layer *l
);
/* Writes all that depends on layer `l`: KV segments, rounds of rows between snapshots,
 * observers. */
void weir_fill_layer(
    weir_workspace *w, const weir_model *model, const weir_batch *batch, const layer *l
);
/* Returns the step of layer `l`, for which the workspace was filled. */
weir_step weir_step_of(
    const weir_model *model, weir_workspace *w, const weir_batch *batch, const layer *l
);

/* layer_inputs.c: the rows of per-layer embeddings; x of the workspace holds the embedded rows. */
WEIR_MUST_CHECK weir_status
weir_fill_layer_inputs(const weir_model *model, const weir_workspace *w, const weir_batch *batch);
/* forward.c: all layers; x of the workspace holds the embedded rows. */
WEIR_MUST_CHECK weir_status
weir_run_layers(const weir_model *model, weir_workspace *w, const weir_batch *batch);
/* forward.c: one layer. *pending (NULL: nothing) is what has to be added to the residual stream,
 * and becomes what has to be afterwards. */
WEIR_MUST_CHECK weir_status weir_run_layer(
    const weir_model *model, weir_workspace *w, const weir_batch *batch, const layer *l,
    const float **pending
);
/* RMS norm of rows of the model's width; the caller may change strides and eps, and may add. */
weir_rmsnorm_args weir_norm_args(
    const weir_model *model, float *dst, float *src, const float *weight, int64_t n_rows
);
/* Adds the output of the last block to the residual stream. */
WEIR_MUST_CHECK weir_status
weir_add_pending(const weir_model *model, const weir_workspace *w, int64_t n_rows);
/* mtp.c: runs the kernels of the draft head for n rows; in planning mode, too. */
WEIR_MUST_CHECK weir_status
weir_run_mtp(const weir_model *model, weir_workspace *w, const weir_batch *batch);
/* The pair of weir_batch.formats for the head's rows. */
extern const weir_kv_pair weir_mtp_formats[1];
/* forward.c: multiplies n gathered rows by the output matrix. */
WEIR_MUST_CHECK weir_status
weir_project_logits(const weir_model *model, const weir_workspace *w, int64_t n);
