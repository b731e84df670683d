/* engine/schedule/engine_facts.h - what is known of an engine before its first step: its model, the
 * formats of its KV pages and its limits.
 *
 * The planner fills it in once; it stands in the engine's plan and does not change while the engine
 * is open. The service, the server and reports hold a pointer to it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/model/coda_stats.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_engine_facts {
    char model[256], arch[64]; /* model: its name for users */
    /* ---- the model --------------------------------------------------------------------------- */
    int64_t n_parameters, weight_bytes;
    int64_t recurrent_bytes; /* per sequence, whatever its length */
    int32_t trained_context;
    int32_t n_layers, n_kv_layers, n_heads; /* n_kv_layers: those with KV rows */
    int32_t n_kv_heads, key_dim, value_dim; /* of the first layer with KV rows */
    int32_t d_model, d_ffn;
    int32_t n_vocab, n_valid_vocab; /* n_valid_vocab: ids that may be drawn */
    bool is_tied; /* the embedding is the output matrix, too */
    /* Of a sequence without text: layers and slots; n_layers 0: only policies evict rows */
    weir_coda_stats coda;
    /* ---- KV ---------------------------------------------------------------------------------- */
    char kv_format[112]; /* as printed, with the layers that differ */
    char k_format[16], v_format[16]; /* of the layers between them */
    /* First and last layers, and first tokens of every text, that have wide_format; sink_tokens: a
     * multiple of 64 */
    int32_t wide_layers, sink_tokens;
    char wide_format[32];
    bool kv_is_lossy; /* some layer stores less than 16-bit floats */
    int64_t kv_page_bytes; /* of the largest pages, where layers differ */
    /* Over all layers and heads, past the sinks; of one of the first sink_tokens of a text */
    int64_t kv_bytes_per_token, kv_bytes_per_sink;
    /* Bytes per sequence for rows of an unsealed page; 0 in most formats. */
    int64_t kv_unsealed_bytes;
    /* ---- limits ------------------------------------------------------------------------------ */
    int32_t window; /* prompt and answer tokens of one sequence */
    int32_t n_slots, queue_limit;
    int64_t kv_pages; /* of the pool, cold ones too */
    /* Of kv_pages, at most so many are on disk, and below a device on the host; for sinks */
    int64_t kv_disk_pages, kv_host_pages, kv_sink_pages;
    /* Budgets of a server: bytes of KV that a request, or all of a key, may hold; 0: none */
    int64_t kv_per_request, kv_per_key;
} weir_engine_facts;

#ifdef __cplusplus
}
#endif
