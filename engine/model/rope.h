/* engine/model/rope.h - RoPE frequencies after the checkpoint's long-context scaling. */
#pragma once
#include "engine/model/arch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* frequencies [rotary_dim / 2]: theta^(-2i / rotary_dim), scaled as the checkpoint says:
 *   linear  f / factor
 *   llama3  by wavelength, between f and f / factor (Llama 3.1, rope_type "llama3")
 *   yarn    Peng et al. 2023: a ramp between f / factor and f, and a magnitude on cos and sin
 * `factors` [rotary_dim / 2] (GGUF's rope_freqs) divide them; NULL: none.
 * errors: EUNSUPPORTED names a rope type that is not among these; EFORMAT for numbers out of
 *         range */
WEIR_MUST_CHECK weir_status weir_rope_resolve(
    float *frequencies, float *magnitude, const weir_shape *shape, const weir_arch *arch,
    const weir_tensor_directory *directory, const float *factors, weir_error *error
);

/* Sets shape->rope_score_scale: with `[rope] scale_scores` and YaRN (0.1 s ln(factor) + 1)^2, s the
 * checkpoint's mscale_all_dim (DeepSeek-V2), else 1. errors as above */
WEIR_MUST_CHECK weir_status weir_rope_scale_scores(
    weir_shape *shape, const weir_arch *arch, const weir_tensor_directory *directory,
    weir_error *error
);

/* The scaling of a checkpoint, for programs that write it elsewhere. */
typedef struct weir_rope_settings {
    const char *type; /* "default" if there is none; borrowed from the directory */
    double factor, original; /* original: of the context; the model's own if not given */
    double beta_fast, beta_slow; /* of YaRN */
    double score_multiplier; /* of YaRN with `[rope] scale_scores`: mscale_all_dim; 0: none */
    double magnitude; /* on cos and sin, where YaRN's factor does not say it; 0: it does */
} weir_rope_settings;
WEIR_MUST_CHECK weir_status weir_rope_settings_of(
    weir_rope_settings *out, const weir_shape *shape, const weir_arch *arch,
    const weir_tensor_directory *directory, weir_error *error
);

/* frequencies [rotary_dim / 2]: theta^(-2i / rotary_dim), without scaling. */
void weir_rope_frequencies(float *frequencies, double theta, int64_t rotary_dim);

#ifdef __cplusplus
}
#endif
