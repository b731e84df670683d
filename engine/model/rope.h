/* engine/model/rope.h - RoPE frequencies after the checkpoint's long-context scaling. */
#pragma once
#include "engine/model/arch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What RoPE depends on besides the checkpoint's settings. */
typedef struct weir_rope_context {
    /* [rotary_dim / 2] GGUF's rope_freqs, or the list of longrope's factors that the context asks
     * for: they divide the frequencies. NULL: none, or not loaded yet. */
    const float *factors;
    int64_t tokens; /* model.context; 0: the context that the model was trained for */
    bool has_lists; /* a GGUF file with lists of longrope's factors, which it does not name */
} weir_rope_context;

/* A factor from which on a frequency is 0: GGUF's for dimensions that are not rotated. */
#define WEIR_ROPE_UNROTATED 1e30f

/* frequencies [rotary_dim / 2]: theta^(-2i / rotary_dim), scaled as the checkpoint says:
 *   linear  f / factor
 *   llama3  by wavelength, between f and f / factor (Llama 3.1, rope_type "llama3")
 *   yarn    Peng et al. 2023: a ramp between f / factor and f, and a magnitude on cos and sin
 *   longrope  Ding et al. 2024 (Phi 3): f / factor_i from one of two lists, and a magnitude
 *   proportional  the first partial_rotary_factor of them divided by factor, the others 0 (Gemma 4)
 * and divided by context->factors. context NULL: none.
 * errors: EUNSUPPORTED names a rope type that is not among these; EFORMAT for numbers out of
 *         range */
WEIR_MUST_CHECK weir_status weir_rope_resolve(
    float *frequencies, float *magnitude, const weir_shape *shape, const weir_arch *arch,
    const weir_tensor_directory *directory, const weir_rope_context *context, weir_error *error
);

/* True if longrope's list for long contexts applies, for all sequences: they may have more tokens
 * than the model was first trained for. False without longrope. */
bool weir_rope_is_long(
    const weir_shape *shape, const weir_arch *arch, const weir_tensor_directory *directory,
    const weir_rope_context *context
);

/* The context that the checkpoint's YaRN, or linear scaling that names an original context, extends
 * the model to; at least the one that it was trained for. For settings that weir_rope_resolve took.
 */
int64_t weir_rope_reach(
    const weir_shape *shape, const weir_arch *arch, const weir_tensor_directory *directory
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
    /* On cos and sin: of longrope, and where YaRN's factor does not say it; 0: it does. */
    double magnitude;
} weir_rope_settings;
WEIR_MUST_CHECK weir_status weir_rope_settings_of(
    weir_rope_settings *out, const weir_shape *shape, const weir_arch *arch,
    const weir_tensor_directory *directory, weir_error *error
);

/* EFORMAT unless the factors [half] can divide frequencies; NULL: there are none. */
WEIR_MUST_CHECK weir_status
weir_rope_check_factors(const float *factors, int64_t half, const char *path, weir_error *error);

/* factors [rotary_dim / 2]: one of longrope's lists of a checkpoint that is no GGUF file. */
WEIR_MUST_CHECK weir_status weir_rope_read_list(
    float *factors, const weir_shape *shape, const weir_arch *arch,
    const weir_tensor_directory *directory, bool is_long, weir_error *error
);

/* frequencies [rotary_dim / 2]: theta^(-2i / rotary_dim), without scaling. */
void weir_rope_frequencies(float *frequencies, double theta, int64_t rotary_dim);

#ifdef __cplusplus
}
#endif
