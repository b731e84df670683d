/* tools/report/report.h - memory and time of a model, computed from its shape alone. Pure
 * functions: no engine, no file, no printing.
 *
 * A figure is computed under assumptions. `weir_report_engine` is this engine: pages of 64 tokens,
 * K and V of KV heads, weights as they are, activations of one chunk. `weir_report_seed` is a
 * widely copied analysis, kept with its errors so that its table can be reproduced for comparison:
 * every query head has its own K and V, an FFN of two matrices of 4/3 the width, twice the weights
 * for activations, one scale per channel for int8, and a GPU's sparse peak.
 *
 * Bytes are exact int64: weir_report_check refuses what would overflow, and must be called first.
 * Times and operations are double. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "tools/report/formats.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_report_shape {
    char name[64], title[96];
    int64_t parameters; /* all; tied ones once */
    /* Of them, per-layer embeddings: a token reads one row, from the model's file. */
    int64_t layer_embedding;
    int64_t context; /* trained */
    /* n_kv_layers: those with KV rows; the others have a fixed-size state, or none. */
    int64_t n_layers, n_kv_layers;
    int64_t n_heads, n_kv_heads, key_dim, value_dim;
    /* Of the layers with KV rows, those with rows of another size; 0: none. */
    int64_t n_local_layers, n_local_kv_heads, local_key_dim, local_value_dim;
    /* MLA: a token's row in a layer is one latent and one rotated key for all heads; 0: not MLA. */
    int64_t latent_dim, rope_dim;
    int64_t d_model, d_ffn, n_vocab;
    /* Routed experts of SwiGLU from layer n_dense_layers on; 0: none. */
    int64_t n_dense_layers, n_experts, n_experts_used, d_expert;
    int64_t recurrent_bytes; /* per sequence */
    /* Bytes of a step per row; 0: from the widths of attention and FFN. */
    int64_t activation_row_bytes;
    /* As an engine plans them, activations for the chunk of the assumptions; 0: computed. */
    int64_t weight_bytes, activation_bytes;
    bool tied; /* the embedding is also the output matrix */
    /* Configuration of an engine: formats may differ by layer and position; "": none. */
    char kv_format[112];
    /* Bytes per token, and per token of the first sink_tokens. */
    int64_t kv_per_token, kv_per_sink, sink_tokens;
} weir_report_shape;

typedef struct weir_report_gpu {
    const char *name;
    int64_t memory; /* bytes that the driver reports */
    double bandwidth; /* bytes per second */
    /* Per second, dense bf16 (f16) products summed in f32: half of the figure often quoted. */
    double flops;
    const char *source;
} weir_report_gpu;

typedef struct weir_report_assumptions {
    const char *name;
    int64_t page_tokens; /* for the comparison with contiguous memory */
    int64_t context_step; /* the largest context is a multiple of this                          */
    int64_t chunk; /* rows of one prefill step                                           */
    /* Bytes of a GPU for driver, libraries and what does not fit exactly. */
    int64_t reserve;
    /* A block of weight_block parameters takes weight_bytes bytes: bf16 is 1, 2. */
    int64_t weight_elements, weight_block;
    const char *weight_format;
    /* Activations are this multiple of the weights; 0: those of a chunk. */
    double weights_as_activations;
    bool every_head_keeps_kv; /* ignores grouped heads and latent rows */
    bool narrow_ffn; /* parameters by L (4 d^2 + 2 d floor(4 d / 3) + 2 d) + 32000 d */
    /* Rows are contiguous; int8 has one f16 scale per channel and sequence, no minimum. */
    bool one_scale;
    /* Device whose times are shown with the intensities, and whose memory compares models. */
    weir_report_gpu reference;
    const weir_report_gpu *gpus; /* [n_gpus] */
    size_t n_gpus;
} weir_report_assumptions;

extern const weir_report_assumptions weir_report_engine, weir_report_seed;

/* ---- memory: bytes --------------------------------------------------------------------------- */

/* Returns EINVAL with a message that names the number: an impossible shape, or one whose bytes at
 * `tokens` and `batch` would overflow. */
WEIR_MUST_CHECK weir_status
weir_report_check(const weir_report_shape *shape, int64_t tokens, int64_t batch, weir_error *error);
/* Returns NULL, or why the shape's rows cannot have this format. */
const char *weir_report_reject(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format
);

/* What a layer caches per token: `heads` rows of `key` and of `value` elements. */
typedef struct weir_report_rows {
    int64_t heads, key, value;
} weir_report_rows;
weir_report_rows weir_report_rows_of(
    const weir_report_assumptions *a, const weir_report_shape *shape
);

/* KV of one sequence of `tokens` tokens: whole pages, plus the rows of unsealed pages in formats
 * that have them. */
int64_t weir_report_kv(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t tokens
);
/* Bytes per token of a long sequence, in pages of `page` tokens. */
double weir_report_kv_per_token(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format
);
int64_t weir_report_parameters(const weir_report_assumptions *a, const weir_report_shape *shape);
int64_t weir_report_weights(const weir_report_assumptions *a, const weir_report_shape *shape);
/* Activations of a step of `rows` rows, `logits` of which get logits: residual stream, one mixer or
 * FFN, logits; f32. */
int64_t weir_report_step_activations(const weir_report_shape *shape, int64_t rows, int64_t logits);
int64_t weir_report_activations(
    const weir_report_assumptions *a, const weir_report_shape *shape, int64_t batch
);

enum { WEIR_REPORT_ANY_CONTEXT = -1 };
/* The longest context of `batch` sequences that fits with weights, activations, states and reserve;
 * 0: the weights do not fit or leave nothing; WEIR_REPORT_ANY_CONTEXT: no layer has KV rows. */
int64_t weir_report_max_context(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t memory, int64_t batch
);

/* A sequence of `tokens` in pages, and in contiguous memory for a window of `window` tokens. */
typedef struct weir_report_paging {
    int64_t used, paged, contiguous; /* used: the share of its pages that hold tokens */
} weir_report_paging;
weir_report_paging weir_report_paging_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t tokens, int64_t window
);

/* A prompt of `tokens` at once and in chunks. The score matrix is needed by attention without
 * tiles; this engine has none, and chunks bound the activations. */
typedef struct weir_report_prefill {
    double scores_whole, scores_chunked; /* of one head, f32 */
    double activations_whole, activations_chunked;
} weir_report_prefill;
weir_report_prefill weir_report_prefill_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, int64_t tokens
);

/* ---- time ------------------------------------------------------------------------------------ */

/* Decode attention of one layer over `tokens` rows of each of `batch` sequences. Latent rows are
 * attended as they are (absorbed). */
typedef struct weir_report_intensity {
    double flops, bytes, intensity; /* intensity: operations per byte moved */
    double compute_seconds, memory_seconds;
} weir_report_intensity;
weir_report_intensity weir_report_intensity_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t batch, int64_t tokens
);

/* One decode step of the whole model: bytes read (and written, for states) and operations. Experts:
 * those that `batch` tokens are expected to use. */
typedef struct weir_report_step {
    double weights, kv, states, bytes, flops;
} weir_report_step;
weir_report_step weir_report_step_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t batch, int64_t tokens
);

/* ---- more than one device -------------------------------------------------------------------- */

typedef enum weir_report_strategy {
    WEIR_REPORT_TENSOR,
    WEIR_REPORT_PIPELINE,
    WEIR_REPORT_DATA,
    WEIR_REPORT_SEQUENCE,
    WEIR_REPORT_EXPERT,
    WEIR_REPORT_STRATEGY_COUNT
} weir_report_strategy;

const char *weir_report_strategy_name(weir_report_strategy strategy);
const char *weir_report_strategy_effect(weir_report_strategy strategy); /* on the KV, one clause */

/* Over `ranks` devices; kv and weights are those of the fullest one. */
typedef struct weir_report_split {
    bool possible; /* false: there are too few parts to split */
    int64_t weights, kv, kv_total;
    double copies; /* kv_total relative to one device */
} weir_report_split;
weir_report_split weir_report_split_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_report_strategy strategy,
    int64_t ranks, weir_kv_format format, int64_t batch, int64_t tokens
);

#ifdef __cplusplus
}
#endif
