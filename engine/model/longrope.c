/* engine/model/longrope.c - longrope (Ding et al. 2024), as Phi 3 and Phi 4 have it: two lists of
 * factors for the frequencies, one for contexts up to that of the first training and one for longer
 * ones. The list is chosen once, by model.context: rows would have other bits if it followed the
 * length of each sequence, since keys that are cached are not rotated again. */
#include <math.h>

#include "engine/model/rope_internal.h"

/* Reads a list of config.json; GGUF's is a tensor (weir_rope_context.factors). */
static weir_status read_list(
    const scaling *s, float *factors, int64_t half, bool is_long, weir_error *error
)
{
    const char *const path = weir_tensor_directory_path(s->directory);
    const char *const name = is_long ? "long_factor" : "short_factor";
    char full[512];
    weir_meta list;
    if (!rope_lookup(s, full, name, NULL, &list) || list.type != WEIR_META_ARRAY ||
        list.length != (size_t)half)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: longrope needs a list of %lld numbers %s.%s", path,
            (long long)half, s->path, name
        );
    for (int64_t i = 0; i < half; i++) {
        weir_meta one;
        const bool is_there = weir_meta_at(&list, (size_t)i, &one);
        const double factor = !is_there                     ? 0.0
                              : one.type == WEIR_META_FLOAT ? one.number
                              : one.type == WEIR_META_INT   ? (double)one.integer
                                                            : 0.0;
        if (!(factor > 0.0 && factor < 1e12))
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: number %lld of %s is out of range", path, (long long)i,
                full
            );
        factors[i] = (float)factor;
    }
    return WEIR_OK;
}

weir_status weir_rope_read_list(
    float *factors, const weir_shape *shape, const weir_arch *arch,
    const weir_tensor_directory *directory, bool is_long, weir_error *error
)
{
    scaling s = { .directory = directory };
    const char *type;
    WEIR_TRY(rope_find_group(&s, arch, &type, error));
    return read_list(&s, factors, shape->rotary_dim / 2, is_long, error);
}

/* On cos and sin, for both lists: from the extension of the context, which a checkpoint without an
 * original context gives as `factor`. */
static double magnitude_of(scaling *s, const weir_shape *shape, double original)
{
    const double ratio = (double)shape->context / original,
                 extension = ratio > 1.0 ? ratio : rope_number(s, "factor", NULL, 1.0);
    return extension > 1.0 ? sqrt(1.0 + log(extension) / log(original)) : 1.0;
}

weir_status rope_apply_longrope(
    scaling *s, float *frequencies, float *magnitude, const weir_shape *shape,
    const weir_rope_context *context, weir_error *error
)
{
    const char *const path = weir_tensor_directory_path(s->directory);
    const double original = rope_original(s, shape),
                 tokens = (double)(context->tokens > 0 ? context->tokens : shape->context);
    if (s->is_gguf && !context->has_lists)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: longrope needs two lists of factors, rope_factors_short.weight and "
            "rope_factors_long.weight",
            path
        );
    if (!(original > 1.0))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: longrope needs an original context above 1, not %g", path,
            original
        );
    const double derived = s->is_gguf ? 1.0 : magnitude_of(s, shape, original),
                 wanted = rope_number(s, "attention_factor", "attn_factor", derived);
    if (!(wanted > 0.0 && wanted < 1e6))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: longrope's factor on cos and sin is %g, out of range", path,
            wanted
        );
    *magnitude = (float)wanted;
    if (s->is_gguf) return WEIR_OK;
    float factors[ROPE_MOST];
    const int64_t half = shape->rotary_dim / 2;
    const bool is_long = tokens > original;
    WEIR_TRY(read_list(s, factors, half, !is_long, error)); /* checked, too */
    WEIR_TRY(read_list(s, factors, half, is_long, error));
    for (int64_t i = 0; i < half; i++)
        frequencies[i] = (float)((double)frequencies[i] / (double)factors[i]);
    return WEIR_OK;
}
