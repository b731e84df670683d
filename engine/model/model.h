/* engine/model/model.h - a checkpoint bound to its architecture and loaded: weights, shape, and the
 * forward pass.
 *
 * Immutable after load. Knows no policy and no sequence: the caller passes where each sequence's
 * memory is. */
#pragma once
#include "engine/model/arch.h"
#include "engine/model/block.h"
#include "engine/model/expert_stats.h"
#include "offload/ledger.h"
#include "offload/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_model weir_model;

/* How experts are read: through the system's page cache or past it. AUTO: past it if it cannot hold
 * all of them. */
typedef enum weir_expert_reads {
    WEIR_EXPERT_READS_AUTO,
    WEIR_EXPERT_READS_CACHED,
    WEIR_EXPERT_READS_DIRECT
} weir_expert_reads;

/* Experts in limited memory (expert_cache.h). */
typedef struct weir_expert_settings {
    size_t bytes; /* memory.experts; 0: all are in memory */
    size_t page_cache; /* bytes that the system may have for it */
    weir_expert_reads reads;
    bool prefetches; /* reads ahead */
    double pins; /* share of the experts in memory that may be pinned, at most 1 / 2 */
    int64_t timeout_ns; /* of a request to the disk, above 0 */
} weir_expert_settings;

typedef struct weir_model_settings {
    weir_activations activations;
    /* Its tensors replace those of the checkpoint; may be NULL; must outlive the model. */
    const weir_tensor_directory *adapter;
    int64_t context; /* model.context; 0: as trained. Longrope depends on it (rope.h) */
    weir_kv_pair kv_format; /* kv.format, also for fixed-size memory with keys and values */
    weir_expert_settings experts;
    /* Layers with a sliding window keep only the rows that it reads (engine/kv/pool/windows.h). */
    bool drops_windows;
    bool with_mtp; /* the draft head, if the file has one */
} weir_model_settings;

/* Finds every tensor, checks shapes and types, and plans the packed layouts; all errors of a file
 * are reported at once. Allocates nothing large. `directory`, `arch` and `stream` must outlive the
 * model. */
WEIR_MUST_CHECK weir_status weir_model_bind(
    weir_model **out, const weir_tensor_directory *directory, const weir_arch *arch,
    weir_stream *stream, const weir_model_settings *settings, weir_error *error
);
/* Packs the weights into memory of the ledger. `progress` (may be NULL) is called with bytes done
 * and in total. */
typedef void (*weir_progress)(void *user, size_t done, size_t total);
WEIR_MUST_CHECK weir_status weir_model_load(
    weir_model *model, weir_ledger *ledger, weir_progress progress, void *user, weir_error *error
);
void weir_model_close(weir_model *model);

const weir_shape *weir_model_shape(const weir_model *model);
const char *weir_model_arch(const weir_model *model);
size_t weir_model_weight_bytes(const weir_model *model); /* packed */
/* Of these bytes, those of the draft head's matrices; 0: there is no head. */
size_t weir_model_mtp_bytes(const weir_model *model);
/* Why a head that was wanted cannot be used; NULL: it can, or there is none. */
const char *weir_model_mtp_problem(const weir_model *model);
/* What the head keeps of a row; only of a model with a head. */
const weir_kv_geometry *weir_model_mtp_geometry(const weir_model *model);
/* Bytes read to draft one token at depth 0. */
size_t weir_model_draft_bytes(const weir_model *model);
/* Elements of all bound tensors, tied ones once. */
int64_t weir_model_parameters(const weir_model *model);
/* Bytes of per-layer embeddings, whose rows are read from the model's file; 0: there are none. */
size_t weir_model_layer_embedding_bytes(const weir_model *model);
/* True if the embedding is also the output matrix. */
bool weir_model_tied(const weir_model *model);
/* True if layers read the KV rows of others, which formats with unsealed rows do not allow. */
bool weir_model_shares_rows(const weir_model *model);
/* Layers with KV rows: those that keep all of them, and, numbered after these, those that drop rows
 * before their window. */
int64_t weir_model_kv_layers(const weir_model *model);
int64_t weir_model_window_layers(const weir_model *model);
/* [kv_layers + window_layers] their rows; the heads of each kind are numbered from 0. */
const weir_kv_geometry *weir_model_kv_geometry(const weir_model *model);
/* [kv_layers + window_layers] the number of each layer with KV rows, in the model's order. */
const int32_t *weir_model_kv_numbers(const weir_model *model);
/* Returns the layers [*n] that keep all KV rows or read those of such a layer; borrowed. */
const weir_kv_reader *weir_model_kv_readers(const weir_model *model, int64_t *n);
/* Elements of all queries of a row, in the largest of the observed layers. */
int64_t weir_model_query_elements(const weir_model *model);
size_t weir_model_recurrent_bytes(const weir_model *model); /* per sequence */
/* A layer's offsets in a sequence's memory: f32 elements of conv history and recurrent state,
 * number of the KV layer (-1: none). */
typedef struct weir_layer_memory {
    int64_t history_offset, state_offset, kv_index;
    bool has_history, has_state;
} weir_layer_memory;
weir_layer_memory weir_model_layer_memory(const weir_model *model, int64_t layer);
const weir_rope_table *weir_model_rope(const weir_model *model);
/* True if longrope's factors for long contexts apply: rows of the same tokens differ from those
 * without them. */
bool weir_model_has_long_rope(const weir_model *model);
/* The longest context that the checkpoint is made for: trained, or extended by RoPE's scaling. */
int64_t weir_model_reach(const weir_model *model);
/* True if attention can store the logits that a watch needs; on devices K is read again. */
bool weir_model_keeps_logits(const weir_model *model);
/* True if there is a kernel for attention mass in all observed layers. `formats`: as in batches. */
bool weir_model_shows_mass(
    const weir_model *model, const weir_kv_pair *formats, weir_kv_sinks sinks
);
/* The KV rows of a layer; NULL: none. */
const weir_block_kv *weir_model_layer_kv(const weir_model *model, int64_t layer);
const weir_block *weir_model_layer_mixer(const weir_model *model, int64_t layer);
/* of the layer's block */
const void *weir_model_layer_options(const weir_model *model, int64_t layer);
/* Why devices cannot run the model, static text; NULL: they can. */
const char *weir_model_host_only(const weir_model *model);
/* Prompts are computed in chunks that end at multiples of this, and prompt rows differ from answer
 * rows; 1: any cut gives the same bits, in prompts and answers. */
int32_t weir_model_block_rows(const weir_model *model);
/* Validates untrusted recurrent state before use: true if n_tokens tokens can leave it. */
bool weir_model_is_state(const weir_model *model, const float *recurrent, int64_t n_tokens);
/* Counts of the layers with fixed-size memory for the sequence with this recurrent state; NULL: of
 * an empty sequence, only their slots. */
weir_bank_stats weir_model_bank_stats(const weir_model *model, const float *recurrent);
/* Bytes read by one decode step of one sequence at depth 0 (recurrent state, and weights without
 * the experts that one row does not use): decoding takes at least this / bandwidth. */
size_t weir_model_decode_bytes(const weir_model *model);
/* Calls the watch in the following steps; see NULL ends it. Between steps. */
void weir_model_watch_experts(weir_model *model, const weir_expert_watch *watch);
typedef struct weir_expert_sizes {
    int64_t n_experts; /* of all layers; 0: the model has none */
    size_t entry_bytes; /* of the largest */
} weir_expert_sizes;
weir_expert_sizes weir_model_expert_sizes(const weir_model *model);
/* Any thread. */
void weir_model_expert_stats(const weir_model *model, weir_expert_stats *out);
/* Any thread. False: the layer has no experts, or all are in memory. */
bool weir_model_expert_counts(const weir_model *model, int64_t layer, weir_expert_counts *out);
/* True if the file has a vision tower, which is not read ([arch] images). */
bool weir_model_skips_images(const weir_model *model);
/* Tensors of the file that nothing uses (borrowed names), except the draft block and vision
 * parts. */
size_t weir_model_unused(const weir_model *model, const char **names, size_t most);

/* ---- forward --------------------------------------------------------------------------------- */
/* Requests a copy of a sequence's recurrent state after `after` rows of a segment. */
typedef struct weir_batch_snapshot {
    int32_t after; /* 1 .. n_rows */
    float *dst; /* weir_model_recurrent_bytes */
} weir_batch_snapshot;
enum { WEIR_BATCH_SNAPSHOTS = 4 }; /* per segment, at most */

/* The rows of one sequence in a batch, and its memory. */
typedef struct weir_batch_segment {
    int32_t first_row, n_rows, n_past; /* tokens at positions n_past .. n_past + n_rows - 1 */
    /* For a single row: it belongs to a prompt, not to an answer; several rows always do. */
    bool is_prompt;
    /* [KV heads of all layers] rows of each head before the step; NULL: n_past in each. */
    const int32_t *head_rows;
    void *const *pages; /* [KV heads of all layers, page_stride] */
    int64_t page_stride;
    /* The same of layers that drop rows, of which only entries that the window reads exist. */
    void *const *window_pages;
    int64_t window_stride;
    /* [KV heads of all layers] unsealed rows of page n_past / 64, NULL for layers whose format has
     * none; NULL: no format has any. */
    void *const *unsealed;
    float *recurrent; /* weir_model_recurrent_bytes of this sequence */
    /* [n_snapshots], `after` ascending; only if the model has recurrent state. */
    const weir_batch_snapshot *snapshots;
    int32_t n_snapshots;
    const weir_attention_watch *watch; /* NULL: not observed */
    /* Out: set if an expert of its rows could not be read, which is then no failure of the step
     * (weir_workspace_problem says why). NULL, in all segments: it is. */
    bool *lost;
} weir_batch_segment;

typedef struct weir_batch {
    const int32_t *tokens; /* [n_rows] ids below n_vocab (checked by the caller) */
    const weir_batch_segment *segments; /* rows in order, no gaps */
    const int32_t *logit_rows; /* [n_logits] ascending: rows that need logits */
    int32_t n_rows, n_segments, n_logits;
    const weir_kv_pair *formats; /* [kv_layers + window_layers] of the pages */
    weir_kv_sinks sinks; /* of every segment */
    /* NULL: all pages are in memory; otherwise only with limits.has_cold. */
    const weir_kv_source *source;
    /* Called with the residual stream [n_rows, d_model] before layer 0 (layer -1) and after each
     * layer, then with its rows after the last norm (layer n_layers). May be NULL. */
    void (*observe)(void *user, int64_t layer, const float *hidden);
    void *user;
} weir_batch;

/* All activations of a step and the kernels' scratch, allocated once: steps allocate nothing. A
 * sequence keeps the unsealed rows of its last page; those of the pages before it that a step
 * writes to are needed by one layer at a time and are here. */
typedef struct weir_workspace weir_workspace;
typedef struct weir_workspace_limits {
    /* Steps use the scratch of another workspace of the model, whose limits are no smaller. */
    bool shares_scratch;
    int32_t rows, segments, logits, context;
    /* [kv_layers + window_layers], borrowed; must outlive the workspace */
    const weir_kv_pair *formats;
    weir_kv_sinks sinks;
    bool has_cold; /* batches may have a source */
    bool evicts; /* segments may have head_rows and be observed */
} weir_workspace_limits;
/* Bytes without those near the kernels. */
size_t weir_workspace_bytes(const weir_model *model, const weir_workspace_limits *limits);
/* Bytes near the kernels, without the scratch. */
size_t weir_workspace_near_bytes(const weir_model *model, const weir_workspace_limits *limits);
/* The scratch that the largest steps within these limits need from the stream; allocates
 * nothing. */
WEIR_MUST_CHECK weir_status weir_workspace_scratch(
    weir_stream_memory *planned, const weir_model *model, const weir_workspace_limits *limits,
    weir_error *error
);
WEIR_MUST_CHECK weir_status weir_workspace_open(
    weir_workspace **out, const weir_model *model, weir_ledger *ledger,
    const weir_workspace_limits *limits, weir_error *error
);
void weir_workspace_close(weir_workspace *workspace);
/* Why segments of the last batch were lost; NULL: none was. Borrowed until the next. */
const char *weir_workspace_problem(const weir_workspace *workspace);

/* Runs the batch: writes KV rows and recurrent state of every segment, and logits [n_logits,
 * n_vocab] (borrowed until the next call). If it fails, unsealed rows and recurrent state may be
 * inconsistent. */
WEIR_MUST_CHECK weir_status weir_model_forward(
    const weir_model *model, weir_workspace *workspace, const weir_batch *batch,
    const float **logits, weir_error *error
);

/* ---- drafts ---------------------------------------------------------------------------------- */
/* Rows of the draft head. Row r is about the position of a hidden state and the token that follows
 * it: the head's logits are those of the token after that one. */
typedef struct weir_mtp_batch {
    const int32_t *tokens, *positions; /* [n_rows]; of the hidden state */
    const float *const *hidden; /* [n_rows] of d_model elements; may be in the workspace */
    /* Rows in order, no gaps; pages of the head's geometry in f16, and nothing else but rows. */
    const weir_batch_segment *segments;
    const int32_t *logit_rows; /* [n_logits] ascending */
    int32_t n_rows, n_segments, n_logits;
} weir_mtp_batch;
enum { WEIR_MTP_FORMAT = WEIR_KV_F16 };

/* After a step of a model with a head: the hidden states [rows of the step, d_model] after the last
 * norm; borrowed until the next step. */
const float *weir_workspace_hidden(const weir_workspace *workspace);
/* Computes the rows, within the limits of the workspace. Logits [n_logits, n_vocab], and the hidden
 * states [n_logits, d_model] of the same rows, which the next draft reads, are borrowed until the
 * next call. */
WEIR_MUST_CHECK weir_status weir_model_draft(
    const weir_model *model, weir_workspace *workspace, const weir_mtp_batch *batch,
    const float **logits, const float **hidden, weir_error *error
);

/* Writes noise to the KV rows of every segment, as a step writes what it computes: each value is
 * drawn from a normal distribution of mean 0 and deviation 1, as normed keys have it, and depends
 * only on its place. For measurements: computes nothing else and leaves recurrent state
 * unchanged. */
WEIR_MUST_CHECK weir_status weir_model_fill_noise(
    const weir_model *model, weir_workspace *workspace, const weir_batch *batch, weir_error *error
);

#ifdef __cplusplus
}
#endif
