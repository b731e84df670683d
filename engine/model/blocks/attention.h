/* engine/model/blocks/attention.h - attention as a part of blocks that compute more: their options
 * and weights begin with those of attention, whose functions are those of weir_block_attention. */
#pragma once
#include "engine/model/blocks/heads.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_attention_weights {
    weir_heads heads;
    const float *sink_logits; /* [H] */
} weir_attention_weights;

typedef struct weir_attention_options {
    weir_heads_options heads;
    bool window; /* the shape's sliding window applies */
    /* Each head has a logit that joins the softmax and is dropped (Xiao et al. 2023). */
    bool sink_logits;
} weir_attention_options;

int64_t weir_attention_heads(const weir_shape *shape, const void *options);
bool weir_attention_has_sinks(const void *options);

/* The parameters in a type that begins with a weir_attention_weights. */
#define WEIR_ATTENTION_PARAMETERS                                                                  \
    WEIR_HEADS_PARAMETERS(weir_attention_weights, heads),                                          \
    {                                                                                              \
        WEIR_VECTOR(                                                                               \
            "attn.sink_logits", weir_attention_weights, sink_logits, weir_attention_heads          \
        ),                                                                                         \
            .wanted = weir_attention_has_sinks                                                     \
    }

/* Rows of the option table of a type that begins with a weir_attention_options. */
#define WEIR_ATTENTION_OPTIONS                                                                     \
    WEIR_HEADS_OPTIONS(weir_attention_options, heads),                                             \
        WEIR_FLAG_OPTION(weir_attention_options, heads.rope_local, "rope_local", false),           \
        WEIR_FLAG_OPTION(weir_attention_options, heads.local_heads, "local_heads", false),         \
        WEIR_FLAG_OPTION(weir_attention_options, heads.shared, "shared", false),                   \
        WEIR_FLAG_OPTION(weir_attention_options, heads.v_norm, "v_norm", false),                   \
        WEIR_FLAG_OPTION(weir_attention_options, heads.v_optional, "v_optional", false),           \
        WEIR_FLAG_OPTION(weir_attention_options, window, "window", false),                         \
        WEIR_FLAG_OPTION(weir_attention_options, sink_logits, "sink_logits", false)

extern const weir_block weir_block_attention;

#ifdef __cplusplus
}
#endif
