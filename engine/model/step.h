/* engine/model/step.h - one step as passed to the blocks of a layer: inputs, outputs, KV pages and
 * observers. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kv/tiers/range.h"
#include "offload/dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* RoPE after the checkpoint's scaling. */
typedef struct weir_rope_table {
    const float *frequencies; /* [rotary_dim / 2] */
    float magnitude; /* factor of cos and sin */
    /* A factor that grows with the position (weir_rope_args); only of queries. */
    float temperature_scale;
    int32_t temperature_length; /* 0: none */
} weir_rope_table;

/* Provides pages that are not in memory. A segment with such pages is attended in ranges of
 * splits, from position 0 upwards: layers of the model, in each of them its segments, and then
 * once more those that read K again (weir_attention_watch_rereads), all ascending. Each range is
 * given back before the next is taken. */
typedef struct weir_kv_source {
    bool (*is_cold)(void *user, int64_t kv_layer, int32_t segment);
    void (*take)(void *user, int64_t kv_layer, int32_t segment, weir_kv_range *range);
    void (*give)(void *user);
    void *user;
} weir_kv_source;

/* What a policy observes of the attention of a sequence; NULL members are not observed. Layers with
 * a sliding window are not observed. */
typedef struct weir_attention_watch {
    /* [n_heads, stride] of the segment's last query, for `mass`, `below` and `last` of one
     * query. */
    float *logits;
    float *mass, *below, *last; /* [n_heads, stride]: see weir_attention_mass */
    int64_t stride;
    /* [rows of the segment, n_heads, head_dim] queries before rotation, after their norm. */
    float *plain;
    /* Called for each layer, in order. queries: [rows of the segment, n_heads, head_dim],
     * rotated. */
    void (*seen)(
        void *user, int64_t kv_layer, const float *queries, int64_t row_stride, int64_t head_stride
    );
    void *user;
} weir_attention_watch;

static inline bool weir_attention_watch_wants_mass(const weir_attention_watch *watch)
{
    return watch->mass != NULL || watch->below != NULL || watch->last != NULL;
}
/* True if K is read again for a segment of this many rows: the logits of the last one are not
 * enough. */
static inline bool weir_attention_watch_rereads(const weir_attention_watch *watch, int64_t n_rows)
{
    const bool wants_last = n_rows == 1 || (watch->mass == NULL && watch->below == NULL);
    return weir_attention_watch_wants_mass(watch) && !(wants_last && watch->logits != NULL);
}

/* Rows of the segments up to the next snapshot. Recurrent mixers process the rounds in order and
 * make the copies after each; a step without snapshots is one round. */
typedef struct weir_state_copy {
    float *dst;
    const float *src;
    size_t bytes;
} weir_state_copy;
typedef struct weir_recurrent_round {
    const weir_recurrent_segment *segments; /* [n_segments of the step] */
    const weir_state_copy *copies;
    int32_t n_copies;
} weir_recurrent_round;

/* The rows of a step: those of its sequences, in order. */
typedef struct weir_step_inputs {
    const float *x; /* [n_rows, d_model] after the layer's norm */
    float *stream; /* [n_rows, d_model] before it: the residual stream; not written to */
    /* [n_rows, layer_input_stride], of which the first d_layer_input are the layer's; NULL: the
     * model has no per-layer embeddings. */
    const float *layer_input;
    int64_t layer_input_stride;
    const int32_t *positions; /* [n_rows] */
    const bool *is_prompt; /* [n_segments] weir_batch_segment.is_prompt */
    weir_rope_table rope, local_rope; /* local_rope: of layers with rope_local */
    const weir_recurrent_round *rounds; /* [n_rounds] of this layer's state */
    int64_t n_rounds;
} weir_step_inputs;

typedef struct weir_step_outputs {
    float *x; /* [n_rows, d_model]; the model adds it to the residual stream */
    float *scratch; /* scratch_elements(n_rows) */
} weir_step_outputs;

/* The pages of the layer. */
typedef struct weir_step_kv {
    const weir_kv_segment
        *segments; /* [n_segments]; one for all heads of a sequence with equal rows */
    const int32_t *owner; /* [n_segments] index of the sequence, ascending */
    int64_t n_segments;
    int64_t layer; /* index among the layers with KV */
    weir_kv_pair format;
    weir_kv_sinks sinks; /* the first pages may have another format */
    const weir_kv_source *source; /* NULL: all pages are in memory; warm and partials are NULL */
    weir_kv_segment *warm; /* [n_segments] scratch for the segments in memory */
    float *partials; /* [n_rows, query heads, 2 + value_dim] scratch of attention in ranges */
} weir_step_kv;

/* What policies observe of the layer. */
typedef struct weir_step_observer {
    const weir_attention_watch *const
        *watches; /* [sequences], NULL for those not observed; NULL: none is */
    float *lse; /* [n_rows, n_heads] log-sum-exp of observed attention */
    weir_attention_mass_segment *mass; /* [kv.n_segments] scratch */
    /* [n_rows, a row of queries] copies for the host; NULL: it reads the queries in place. */
    float *queries;
} weir_step_observer;

/* Called with the experts [n] that the rows of a step chose in a layer, ascending. */
typedef struct weir_expert_watch {
    void (*see)(void *user, int64_t layer, const int32_t *experts, int32_t n);
    void *user;
} weir_expert_watch;

/* The next layer with the same feed-forward block: its experts can be read ahead. */
typedef struct weir_step_next {
    int64_t layer; /* 0: there is none, or nothing is read ahead */
    const void *options, *weights; /* of the block */
    const float *norm; /* of the block's input, with `eps`; NULL: none */
    float eps;
} weir_step_next;

/* The arguments of a block's forward pass. */
typedef struct weir_step {
    weir_stream *stream;
    int64_t n_rows, n_segments; /* n_segments: sequences */
    weir_step_inputs in;
    weir_step_outputs out;
    weir_step_kv kv;
    weir_step_observer observer;
    int64_t layer; /* of the model */
    struct weir_expert_cache *experts; /* NULL: all are in memory */
    const weir_expert_watch *expert_watch; /* NULL: nothing is watched */
    /* [n_rows] set for rows of which an expert could not be read; NULL: then the step fails. */
    bool *lost_rows;
    weir_error *problem; /* of lost rows: gets the first reason */
    weir_step_next next;
} weir_step;

#ifdef __cplusplus
}
#endif
