#include "engine/model/rope_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/formats/printable.h"

static const double pi = 3.14159265358979323846;

bool rope_lookup(const scaling *s, char full[512], const char *hf, const char *gguf, weir_meta *out)
{
    const char *const key = s->is_gguf ? gguf : hf;
    if (s->path[0] == '\0' || key == NULL) return false;
    (void)snprintf(full, 512, "%s.%s", s->path, key);
    return weir_tensor_directory_meta(s->directory, full, out);
}

double rope_number(scaling *s, const char *hf, const char *gguf, double otherwise)
{
    char full[512];
    weir_meta meta;
    if (!rope_lookup(s, full, hf, gguf, &meta)) return otherwise;
    if (meta.type == WEIR_META_INT) return (double)meta.integer;
    if (meta.type == WEIR_META_FLOAT) return meta.number;
    if (s->wrong[0] == '\0') (void)snprintf(s->wrong, sizeof s->wrong, "%s", full);
    return otherwise;
}

/* Some checkpoints have it outside of the group. */
double rope_original(scaling *s, const weir_shape *shape)
{
    weir_meta meta;
    double otherwise = (double)shape->context;
    const char *const hf = "original_max_position_embeddings";
    if (!s->is_gguf && weir_tensor_directory_meta(s->directory, hf, &meta) &&
        meta.type == WEIR_META_INT)
        otherwise = (double)meta.integer;
    return rope_number(s, hf, "original_context_length", otherwise);
}

/* The type of the group at s->path; NULL if it names none. A group that scales without a type is
 * refused, except in GGUF, where the default is "linear". */
static weir_status read_type(const scaling *s, const char **out, weir_error *error)
{
    const char *const file = weir_tensor_directory_path(s->directory);
    char full[512];
    weir_meta meta;
    *out = NULL;
    if (weir_tensor_directory_meta(s->directory, s->path, &meta))
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: %s is not a group of settings; give it a rope_type, or leave it out", file, s->path
        );
    if (rope_lookup(s, full, "rope_type", "type", &meta) ||
        rope_lookup(s, full, "type", NULL, &meta)) {
        if (meta.type != WEIR_META_STRING)
            return weir_error_set(error, WEIR_EFORMAT, "%s: %s is not a text", file, full);
        *out = meta.string;
        return WEIR_OK;
    }
    if (!rope_lookup(s, full, "factor", "factor", &meta)) return WEIR_OK;
    if (!s->is_gguf)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: %s is given without a rope_type", file, full
        );
    *out = "linear";
    return WEIR_OK;
}

weir_status rope_find_group(scaling *s, const weir_arch *arch, const char **type, weir_error *error)
{
    const weir_container container = weir_tensor_directory_container(s->directory);
    const weir_toml_node *const where = weir_toml_get(weir_toml_get(arch->root, "rope"), "scaling");
    const weir_toml_node *const paths = where != NULL ? weir_arch_choice(where, container) : NULL;
    const bool is_list = paths != NULL && weir_toml_type_of(paths) == WEIR_TOML_ARRAY;
    const size_t n = is_list ? weir_toml_size(paths) : paths != NULL;
    for (size_t i = 0; i < n; i++) {
        const char *const path =
            weir_toml_string(is_list ? weir_toml_at(paths, i, NULL) : paths, NULL);
        if (path == NULL) continue;
        (void)snprintf(
            s->path, sizeof s->path, "%s%s%s",
            s->is_gguf ? weir_arch_gguf_prefix(s->directory) : "", s->is_gguf ? "." : "", path
        );
        WEIR_TRY(read_type(s, type, error));
        if (*type != NULL) return WEIR_OK;
    }
    if (!s->is_gguf) s->path[0] = '\0'; /* GGUF's may have values without a type */
    *type = "default";
    return WEIR_OK;
}

void weir_rope_frequencies(float *frequencies, double theta, int64_t rotary_dim)
{
    for (int64_t i = 0; i < rotary_dim / 2; i++)
        frequencies[i] = (float)pow(theta, -2.0 * (double)i / (double)rotary_dim);
}

static void scale_llama3(
    float *frequencies, int64_t half, double factor, double low, double high, double original
)
{
    for (int64_t i = 0; i < half; i++) {
        const double f = frequencies[i], length = 2.0 * pi / f;
        if (length < original / high) continue;
        const double blend =
            length > original / low ? 0.0 : (original / length - low) / (high - low);
        frequencies[i] = (float)((1.0 - blend) * f / factor + blend * f);
    }
}

typedef struct yarn {
    double factor, beta_fast, beta_slow, original;
    bool truncate;
} yarn;

static void scale_yarn(float *frequencies, int64_t half, double theta, const yarn *y)
{
    const double d = (double)(2 * half);
    double low = d * log(y->original / (y->beta_fast * 2.0 * pi)) / (2.0 * log(theta));
    double high = d * log(y->original / (y->beta_slow * 2.0 * pi)) / (2.0 * log(theta));
    if (y->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, d - 1.0);
    if (low == high) high += 0.001;
    for (int64_t i = 0; i < half; i++) {
        const double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0),
                     f = frequencies[i];
        frequencies[i] = (float)(f / y->factor * ramp + f * (1.0 - ramp));
    }
}

static double yarn_magnitude(double factor, double scale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * scale * log(factor) + 1.0;
}

static weir_status apply_llama3(
    scaling *s, float *frequencies, int64_t half, double factor, double original, weir_error *error
)
{
    const double low = rope_number(s, "low_freq_factor", NULL, 1.0),
                 high = rope_number(s, "high_freq_factor", NULL, 4.0);
    if (!(low > 0.0) || !(high > low) || !isfinite(high))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: RoPE frequency factors %g and %g are out of range",
            weir_tensor_directory_path(s->directory), low, high
        );
    scale_llama3(frequencies, half, factor, low, high, original);
    return WEIR_OK;
}

/* The share `partial_rotary_factor` of the frequencies, the fastest ones, is left; the other
 * dimensions are not rotated (Gemma 4). */
static weir_status apply_proportional(
    scaling *s, float *frequencies, int64_t half, double factor, weir_error *error
)
{
    const double share = rope_number(s, "partial_rotary_factor", NULL, 1.0);
    if (!(share >= 0.0 && share <= 1.0))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: RoPE rotates %g of the dimensions, which is not a share",
            weir_tensor_directory_path(s->directory), share
        );
    const int64_t n = (int64_t)floor(share * (double)half);
    for (int64_t i = 0; i < half; i++)
        frequencies[i] = i < n ? (float)((double)frequencies[i] / factor) : 0.0f;
    return WEIR_OK;
}

/* A flag of [rope]. */
static bool flag(const weir_arch *arch, const char *key, bool otherwise)
{
    bool out = otherwise;
    (void)weir_toml_bool(weir_toml_get(weir_toml_get(arch->root, "rope"), key), &out);
    return out;
}

/* Whether the ends of YaRN's ramp are whole dimensions: as the file, else the arch file says. */
static bool truncates(const scaling *s, const weir_arch *arch)
{
    char full[512];
    weir_meta own;
    const bool out = flag(arch, "truncate", true);
    if (rope_lookup(s, full, "truncate", NULL, &own) && own.type == WEIR_META_BOOL)
        return own.boolean;
    return out;
}

static weir_status apply_yarn(
    scaling *s, float *frequencies, float *magnitude, const weir_shape *shape,
    const weir_arch *arch, double factor, double original, weir_error *error
)
{
    const char *const path = weir_tensor_directory_path(s->directory);
    const yarn y = { .factor = factor,
                     .original = original,
                     .beta_fast = rope_number(s, "beta_fast", "yarn_beta_fast", 32.0),
                     .beta_slow = rope_number(s, "beta_slow", "yarn_beta_slow", 1.0),
                     .truncate = truncates(s, arch) };
    const double scale = rope_number(s, "mscale", NULL, 0.0),
                 all = rope_number(s, "mscale_all_dim", NULL, 0.0);
    if (!(y.beta_slow > 0.0) || !(y.beta_fast >= y.beta_slow) || !isfinite(y.beta_fast))
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: YaRN's beta_fast %g and beta_slow %g must be positive, the fast one the larger",
            path, y.beta_fast, y.beta_slow
        );
    if (!(shape->rope_theta > 1.0))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: YaRN needs a rope_theta above 1, not %g", path,
            shape->rope_theta
        );
    scale_yarn(frequencies, shape->rotary_dim / 2, shape->rope_theta, &y);
    /* GGUF has no mscale: where it has mscale_all_dim, or scores are scaled, the two are equal. */
    const bool is_equal = s->is_gguf && (flag(arch, "scale_scores", false) ||
                                         rope_number(s, NULL, "yarn_log_multiplier", 0.0) != 0.0);
    const double alone = is_equal ? 1.0 : yarn_magnitude(factor, 1.0);
    const double derived = scale != 0.0 && all != 0.0
                               ? yarn_magnitude(factor, scale) / yarn_magnitude(factor, all)
                               : alone;
    const double named = rope_number(s, NULL, "yarn_attn_factor", derived),
                 wanted = rope_number(s, "attention_factor", "attn_factor", named);
    if (!(wanted > 0.0 && wanted < 1e6))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: YaRN's factor on cos and sin is %g, out of range", path,
            wanted
        );
    *magnitude = (float)wanted;
    return WEIR_OK;
}

weir_status weir_rope_check_factors(
    const float *factors, int64_t half, const char *path, weir_error *error
)
{
    for (int64_t i = 0; factors != NULL && i < half; i++)
        if (!(factors[i] > 0.0f && isfinite(factors[i])))
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: RoPE factor %lld is not positive and finite", path,
                (long long)i
            );
    return WEIR_OK;
}

static weir_status apply_factors(
    float *frequencies, int64_t half, const float *factors, const char *path, weir_error *error
)
{
    WEIR_TRY(weir_rope_check_factors(factors, half, path, error));
    for (int64_t i = 0; factors != NULL && i < half; i++)
        frequencies[i] = factors[i] < WEIR_ROPE_UNROTATED ? frequencies[i] / factors[i] : 0.0f;
    for (int64_t i = 0; i < half; i++) {
        if (!isfinite(frequencies[i]))
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: RoPE scaling makes frequency %lld infinite", path,
                (long long)i
            );
    }
    return WEIR_OK;
}

weir_status weir_rope_scale_scores(
    weir_shape *shape, const weir_arch *arch, const weir_tensor_directory *directory,
    weir_error *error
)
{
    scaling s = { .directory = directory,
                  .is_gguf = weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF };
    const char *const path = weir_tensor_directory_path(directory);
    const char *type;
    shape->rope_score_scale = 1.0;
    if (!flag(arch, "scale_scores", false)) return WEIR_OK;
    WEIR_TRY(rope_find_group(&s, arch, &type, error));
    if (strcmp(type, "yarn") != 0) return WEIR_OK;
    /* GGUF's multiplier is 0.1 mscale_all_dim. */
    const double factor = rope_number(&s, "factor", "factor", 1.0),
                 all = rope_number(&s, "mscale_all_dim", "yarn_log_multiplier", 0.0) *
                       (s.is_gguf ? 10.0 : 1.0),
                 magnitude = yarn_magnitude(factor, all);
    if (s.wrong[0] != '\0')
        return weir_error_set(error, WEIR_EFORMAT, "%s: %s is not a number", path, s.wrong);
    if (!(magnitude > 0.0 && magnitude < 1e3))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: YaRN's factor on scores is the square of %g, out of range",
            path, magnitude
        );
    shape->rope_score_scale = magnitude * magnitude;
    return WEIR_OK;
}

/* GGUF files do not name longrope: their lists do. */
static const char *type_of(const char *type, const weir_rope_context *context)
{
    return context->has_lists && strcmp(type, "default") == 0 ? "longrope" : type;
}

bool weir_rope_is_long(
    const weir_shape *shape, const weir_arch *arch, const weir_tensor_directory *directory,
    const weir_rope_context *context
)
{
    scaling s = { .directory = directory,
                  .is_gguf = weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF };
    const char *type;
    if (rope_find_group(&s, arch, &type, NULL) != WEIR_OK) return false;
    type = type_of(type, context);
    const int64_t tokens = context->tokens > 0 ? context->tokens : shape->context;
    return (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) &&
           (double)tokens > rope_original(&s, shape);
}

int64_t weir_rope_reach(
    const weir_shape *shape, const weir_arch *arch, const weir_tensor_directory *directory
)
{
    scaling s = { .directory = directory,
                  .is_gguf = weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF };
    const char *type;
    if (rope_find_group(&s, arch, &type, NULL) != WEIR_OK) return shape->context;
    const double original = rope_original(&s, shape),
                 reach = original * rope_number(&s, "factor", "factor", 1.0);
    const bool is_extended = strcmp(type, "yarn") == 0 ||
                             (strcmp(type, "linear") == 0 && original < (double)shape->context);
    return is_extended && reach > (double)shape->context ? (int64_t)reach : shape->context;
}

weir_status weir_rope_resolve(
    float *frequencies, float *magnitude, const weir_shape *shape, const weir_arch *arch,
    const weir_tensor_directory *directory, const weir_rope_context *context, weir_error *error
)
{
    static const weir_rope_context none = { 0 };
    const weir_rope_context *const own = context != NULL ? context : &none;
    scaling s = { .directory = directory,
                  .is_gguf = weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF };
    const char *const path = weir_tensor_directory_path(directory);
    const int64_t half = shape->rotary_dim / 2;
    const char *type;
    WEIR_TRY(rope_find_group(&s, arch, &type, error));
    type = type_of(type, own);
    if (own->has_lists && strcmp(type, "longrope") != 0 && strcmp(type, "su") != 0) {
        char named[80];
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "%s: RoPE scaling '%s' with longrope's lists of factors",
            path, weir_printable(named, sizeof named, type, strlen(type))
        );
    }
    const double factor = rope_number(&s, "factor", "factor", 1.0);
    const double original = rope_original(&s, shape);

    *magnitude = 1.0f;
    weir_rope_frequencies(frequencies, shape->rope_theta, shape->rotary_dim);
    if (!(factor > 0.0 && factor < 1e6) || !(original >= 1.0 && original < 1e12))
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: RoPE scaling factor %g or original context %g is out of range", path, factor,
            original
        );

    if (strcmp(type, "linear") == 0) {
        for (int64_t i = 0; i < half; i++)
            frequencies[i] = (float)((double)frequencies[i] / factor);
    } else if (strcmp(type, "llama3") == 0) {
        WEIR_TRY(apply_llama3(&s, frequencies, half, factor, original, error));
    } else if (strcmp(type, "yarn") == 0) {
        WEIR_TRY(apply_yarn(&s, frequencies, magnitude, shape, arch, factor, original, error));
    } else if (strcmp(type, "proportional") == 0) {
        WEIR_TRY(apply_proportional(&s, frequencies, half, factor, error));
    } else if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) {
        WEIR_TRY(rope_apply_longrope(&s, frequencies, magnitude, shape, own, error));
    } else if (strcmp(type, "default") != 0 && strcmp(type, "none") != 0) {
        char shown[80];
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s: RoPE scaling '%s' is not supported; default, linear, llama3, yarn, longrope and "
            "proportional are",
            path, weir_printable(shown, sizeof shown, type, strlen(type))
        );
    }
    if (s.wrong[0] != '\0')
        return weir_error_set(error, WEIR_EFORMAT, "%s: %s is not a number", path, s.wrong);
    return apply_factors(frequencies, half, own->factors, path, error);
}

weir_status weir_rope_settings_of(
    weir_rope_settings *out, const weir_shape *shape, const weir_arch *arch,
    const weir_tensor_directory *directory, weir_error *error
)
{
    scaling s = { .directory = directory,
                  .is_gguf = weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF };
    const bool scales_scores = flag(arch, "scale_scores", false);
    *out = (weir_rope_settings){ 0 };
    WEIR_TRY(rope_find_group(&s, arch, &out->type, error));
    out->factor = rope_number(&s, "factor", "factor", 1.0);
    out->original = rope_original(&s, shape);
    out->beta_fast = rope_number(&s, "beta_fast", "yarn_beta_fast", 32.0);
    out->beta_slow = rope_number(&s, "beta_slow", "yarn_beta_slow", 1.0);
    const bool is_longrope = strcmp(out->type, "longrope") == 0 || strcmp(out->type, "su") == 0;
    if (is_longrope) out->type = "longrope";
    if (!is_longrope && strcmp(out->type, "yarn") != 0) return WEIR_OK;
    const double alone = scales_scores ? 1.0 : yarn_magnitude(out->factor, 1.0);
    float frequencies[ROPE_MOST], magnitude = 1.0f;
    WEIR_ASSERT(shape->rotary_dim <= ROPE_MOST); /* shape.h */
    WEIR_TRY(weir_rope_resolve(frequencies, &magnitude, shape, arch, directory, NULL, error));
    if (is_longrope) {
        out->magnitude = (double)magnitude;
        return WEIR_OK;
    }
    if (scales_scores)
        out->score_multiplier = rope_number(&s, "mscale_all_dim", "yarn_log_multiplier", 0.0) *
                                (s.is_gguf ? 10.0 : 1.0);
    if (fabs((double)magnitude - alone) > 1e-6 * alone) out->magnitude = (double)magnitude;
    return WEIR_OK;
}
