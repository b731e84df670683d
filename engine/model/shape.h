/* engine/model/shape.h - the numbers of an architecture, read from the checkpoint by the [shape]
 * table of its arch file. */
#pragma once
#include <float.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/config/toml.h"
#include "engine/formats/tensor_directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/*     name         least  most       meaning */
#define WEIR_SHAPE_INTEGERS(X)                                                                     \
    X(d_model, 1, 1 << 20) /* width of the residual stream                 */                      \
    X(n_layers, 1, 1024)                                                                           \
    X(n_heads, 1, 4096) /* query heads                                  */                         \
    X(n_kv_heads, 1, 4096)                                                                         \
    X(head_dim, 1, 4096)                                                                           \
    X(rotary_dim, 2, 4096) /* leading dimensions of a head that RoPE rotates */                    \
    X(n_kv_heads_local, 1, 4096) /* of layers with local_heads                   */                \
    X(head_dim_local, 1, 4096)                                                                     \
    X(rotary_dim_local, 0, 4096) /* of layers with rope_local; 0: rotary_dim     */                \
    X(d_ffn, 1, 1 << 22)                                                                           \
    X(d_ffn_wide, 1, 1 << 22) /* of feed-forward blocks with `wide`           */                   \
    X(d_layer_input, 0, 1 << 16) /* width of per-layer embeddings; 0: none       */                \
    X(n_experts, 1, 4096)                                                                          \
    X(n_experts_used, 1, 4096) /* of each token                                */                  \
    X(n_expert_groups, 0, 4096) /* a token uses those of n_expert_groups_used  */                  \
    X(n_expert_groups_used, 0, 4096) /* groups; 0: of all                          */              \
    X(d_expert, 1, 1 << 22)                                                                        \
    X(d_shared, 0, 1 << 22) /* experts that every token uses, together; 0: none */                 \
    X(window, 0, INT32_MAX) /* sliding window in tokens, 0: none            */                     \
    X(context, 1, INT32_MAX) /* trained context length                       */                    \
    X(attention_temperature_length, 0, INT32_MAX) /* tokens; see the scale     */                  \
    X(gdn_k_heads, 1, 4096) /* gated DeltaNet                               */                     \
    X(gdn_v_heads, 1, 4096)                                                                        \
    X(gdn_k_dim, 1, 4096)                                                                          \
    X(gdn_v_dim, 1, 4096)                                                                          \
    X(gdn_taps, 1, 8) /* width of the causal convolution              */                           \
    X(conv_taps, 1, 8) /* of short convolutions                        */                          \
    X(q_lora_rank, 0, 1 << 20) /* latent attention: width of a query latent, 0: none */            \
    X(kv_lora_rank, 1, 4096) /* width of the latent of keys and values          */                 \
    X(nope_dim, 1, 4096) /* dimensions of a query head without RoPE              */                \
    X(value_dim, 1, 4096) /* of a head's values                                   */               \
    X(ssm_heads, 1, 4096) /* Mamba-2                                      */                       \
    X(ssm_groups, 1, 4096) /* of heads with the same B and C               */                      \
    X(ssm_head_dim, 1, 4096)                                                                       \
    X(ssm_state, 1, 4096) /* columns of a head's state                    */                       \
    X(ssm_taps, 1, 8)

#define WEIR_SHAPE_NUMBERS(X)                                                                      \
    X(norm_eps, 0.0, 1.0)                                                                          \
    X(expert_scale, 0.0, 1e6) /* factor of the experts' weights; 0: none */                        \
    X(embedding_scale, 0.0, 1e6) /* factor of embedded rows; 0: none */                            \
    X(residual_scale, 0.0, 1e6) /* factor of what blocks add to the stream; 0: none */             \
    X(logit_scale, 0.0, 1e6) /* factor of logits; 0: none */                                       \
    X(logit_softcap, 0.0, 1e6) /* 0: none */                                                       \
    X(attention_softcap, 0.0, 1e6) /* of scores; 0: none */                                        \
    X(attention_scale, 0.0, 1e6) /* factor of q . k; 0: 1 / sqrt(width of a query head) */         \
    X(attention_temperature_scale, 0.0, 1e3) /* grows queries by their position; 0: none */        \
    X(rope_theta, 1e-3, 1e12)                                                                      \
    X(rope_theta_local, 1e-3, 1e12) /* of layers with rope_local */                                \
    X(ssm_dt_min, 0.0, 1e6) /* limits of Mamba-2's time steps */                                   \
    X(ssm_dt_max, 0.0, DBL_MAX) /* 0: none */

struct weir_arch;

typedef struct weir_shape {
#define X(name, least, most) int64_t name;
    WEIR_SHAPE_INTEGERS(X)
#undef X
#define X(name, least, most) double name;
    WEIR_SHAPE_NUMBERS(X)
#undef X
    int64_t n_vocab; /* rows of the embedding */
    double rope_score_scale; /* factor of q . k by RoPE's scaling ([rope] scale_scores); 1: none */
} weir_shape;

/* Dimensions that RoPE rotates in layers with rope_local. */
static inline int64_t weir_shape_local_rotary(const weir_shape *shape)
{
    return shape->rotary_dim_local > 0 ? shape->rotary_dim_local : shape->rotary_dim;
}

/* The names of the shapes. Returns NULL past the last. */
const char *weir_shape_name(size_t index);
/* Any number by its name; false: there is none. */
bool weir_shape_number(const weir_shape *shape, const char *name, double *out, bool *is_integer);
/* An integer by its name; 0: there is none. */
int64_t weir_shape_integer(const weir_shape *shape, const char *name);

/* Reads every entry of the [shape] table. A source is
 *   { gguf = KEY or [KEYS], gguf_minus = KEY, gguf_over = KEY, gguf_times = SHAPE, hf = PATH or
 *   [PATHS], hf_times = SHAPE, hf_double = PATH, hf_rows = TENSOR, hf_length = PATH, default =
 *   NUMBER | "SHAPE" |
 *   "SHAPE / SHAPE", power = NUMBER, layers = [BLOCKS] }
 * `hf_rows` is the number of rows of a tensor, for what config.json does not say. With `hf_double`
 * the value is twice as large if that setting is true. `power` is an exponent of the value,
 * wherever it comes from. A key that ends with .N is element N of a list. GGUF keys get the
 * architecture's prefix. An array has a value for each layer: that of the layers with one of the
 * blocks in `layers`, which must all have the same, else the largest. Where no layer has such a
 * block, the value is the default, if there is one. Entries may use earlier ones. All missing and
 * bad numbers are reported at once. */
WEIR_MUST_CHECK weir_status weir_shape_resolve(
    weir_shape *shape, const struct weir_arch *arch, const weir_tensor_directory *directory,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
