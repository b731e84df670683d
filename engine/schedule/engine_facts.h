/* engine/schedule/engine_facts.h - what is known of an engine before its first step: its model, the
 * formats of its KV pages and its limits. The planner fills it in once; it does not change. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/kv/pool/pool_pages.h"
#include "engine/model/bank_stats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an embedding of a text is made of. */
typedef enum weir_pooling {
    WEIR_POOLING_HIDDEN, /* the mean of the hidden states after the last layer, before its norm */
    WEIR_POOLING_MEAN, /* of those after the norm, like the next */
    WEIR_POOLING_LAST, /* of the last token */
    WEIR_POOLING_CLS, /* of the first token */
} weir_pooling;

/* A model that ranks: the prompt is a query and a document, and the answer yes or no. */
typedef struct weir_ranking {
    bool is_used;
    int32_t yes, no; /* tokens; no -1: only yes counts */
    char prompt[1024]; /* the system message before them; "": none */
} weir_ranking;

typedef struct weir_engine_facts {
    char model[256], arch[64]; /* model: the name shown to users */
    /* ---- the model --------------------------------------------------------------------------- */
    int64_t n_parameters, weight_bytes;
    /* Of a draft head: its part of weight_bytes, and its rows for all slots; 0: there is none. */
    int64_t mtp_bytes, mtp_row_bytes;
    /* Per-layer embeddings, in the model's file, not in memory: bytes and elements; 0: none. */
    int64_t layer_embedding_bytes, n_layer_embedding;
    int64_t n_experts, n_experts_here; /* of all layers; in memory at most, 0: no limit */
    int64_t n_layer_experts, expert_bytes; /* of a layer with experts; of an expert in memory */
    int64_t recurrent_bytes; /* per sequence, independent of its length */
    int32_t trained_context;
    int32_t n_layers, n_kv_layers, n_heads; /* n_kv_layers: layers with KV */
    int32_t n_window_layers; /* of them, those that keep only the rows that their window reads */
    int32_t n_kv_heads, key_dim, value_dim; /* of the first layer with KV */
    /* Of the layers that keep all rows, those with rows of another size; 0: none. */
    int32_t n_local_layers, n_local_kv_heads, local_key_dim, local_value_dim;
    bool values_alias_keys; /* weir_kv_geometry.value_aliases_key of that layer */
    /* Then: widths of a head's key and value that the layer's latent stands for. */
    int32_t head_key_dim, head_value_dim;
    int32_t d_model, d_ffn;
    int32_t n_vocab, n_valid_vocab; /* n_valid_vocab: ids that may be sampled */
    bool is_tied; /* the embedding is also the output matrix */
    bool has_long_rope; /* weir_model_has_long_rope */
    weir_pooling pooling; /* of the model's embeddings */
    weir_ranking ranking;
    /* Of an empty sequence: its layers and slots; n_layers 0: the model has no layers with
     * banks. */
    weir_bank_stats banks;
    /* ---- KV ---------------------------------------------------------------------------------- */
    char kv_format[112]; /* as printed, including the layers that differ */
    char k_format[16], v_format[16]; /* of all layers but the wide ones */
    /* The first and the last wide_layers layers, and the first sink_tokens tokens of every
     * sequence, have wide_format; sink_tokens is a multiple of 64. */
    int32_t wide_layers, sink_tokens;
    char wide_format[32];
    bool kv_is_lossy; /* some layer has a format of less than 16 bits */
    int64_t kv_page_bytes; /* of the largest page of any layer */
    int64_t kv_page_alignment; /* divides the sizes of pages; 0: nothing does, no lower tier */
    /* Bytes of a token over all layers and heads: past the sinks, and in the sinks. */
    int64_t kv_bytes_per_token, kv_bytes_per_sink;
    /* Bytes per sequence for rows of an unsealed page; 0 in most formats. */
    int64_t kv_unsealed_bytes;
    /* Of layers that keep only the rows that their window reads: the longest window, 0: there are
     * no such layers; blocks of 64 tokens for all sequences; the most bytes of one sequence. */
    int64_t kv_window, n_window_blocks, kv_window_bytes;
    int64_t n_cold_windows; /* window blocks on disk, at most */
    /* ---- limits ------------------------------------------------------------------------------ */
    int32_t window; /* tokens of one sequence, prompt and answer */
    int32_t n_slots, queue_limit;
    int32_t n_samplers; /* rows that are sampled at the same time, at least 1 */
    weir_kv_pool_pages kv_pages;
    /* Limits of a server: bytes of KV that one request may hold, and all requests of one key; 0: no
     * limit. */
    int64_t kv_per_request, kv_per_key;
} weir_engine_facts;

#ifdef __cplusplus
}
#endif
