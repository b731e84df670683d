/* tools/convert/check_written.c - reads a written file as any program would, and compares what it
 * says with the checkpoint: a number that GGUF has no key for must not be lost. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/rope.h"
#include "tools/convert/keys.h"

/* GGUF has numbers in f32. */
static bool is_near(double a, double b) { return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b)); }

/* A limit that no number exceeds is none, which is 0. */
static double without_infinity(double x) { return x > 1e300 ? 0.0 : x; }

/* [gguf] may say something else by the key of a shape, which files then do not have. */
static bool is_said(const weir_arch *arch, const char *name)
{
    const weir_toml_node *const node =
        weir_toml_get(weir_toml_get(weir_toml_get(arch->root, "shape"), name), "gguf");
    const char *const one = weir_toml_string(node, NULL),
                      *const key =
                          one != NULL ? one : weir_toml_string(weir_toml_at(node, 0, NULL), NULL);
    return key == NULL || weir_toml_get(weir_toml_get(arch->root, "gguf"), key) == NULL;
}

/* Numbers that both architectures read. */
static weir_status check_shape(
    const weir_written_model *written, const weir_model *model, weir_error *error
)
{
    const weir_toml_node *const own = weir_toml_get(
                                    weir_model_arch_of(written->model)->root, "shape"
                                ),
                                *const other =
                                    weir_toml_get(weir_model_arch_of(model)->root, "shape");
    const char *name;
    for (size_t i = 0; (name = weir_shape_name(i)) != NULL; i++) {
        double a = 0.0, b = 0.0;
        bool is_integer;
        if (weir_toml_get(own, name) == NULL || weir_toml_get(other, name) == NULL ||
            !is_said(written->arch, name))
            continue;
        (void)weir_shape_number(weir_model_shape(written->model), name, &a, &is_integer);
        (void)weir_shape_number(weir_model_shape(model), name, &b, &is_integer);
        if (!is_near(without_infinity(a), without_infinity(b)))
            return weir_error_set(
                error, WEIR_EUNSUPPORTED,
                "%s is %g in the checkpoint and would be %g in the GGUF file, which has no key for "
                "it",
                name, a, b
            );
    }
    return WEIR_OK;
}

static weir_status check_layers(
    const weir_written_model *written, const weir_model *model, weir_error *error
)
{
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        const weir_block_kv *const a = weir_model_layer_kv(written->model, i),
                                   *const b = weir_model_layer_kv(model, i);
        const bool is_same =
            weir_model_layer_use(written->model, i, true)->block ==
                weir_model_layer_use(model, i, true)->block &&
            weir_model_layer_use(written->model, i, false)->block ==
                weir_model_layer_use(model, i, false)->block &&
            (a == NULL) == (b == NULL) &&
            (a == NULL || (a->geometry.window == b->geometry.window && a->no_rope == b->no_rope &&
                           a->rope_local == b->rope_local && a->is_shared == b->is_shared &&
                           is_near((double)a->scale, (double)b->scale)));
        if (!is_same)
            return weir_error_set(
                error, WEIR_EUNSUPPORTED,
                "layer %lld would be another block in the GGUF file, or one with another window, "
                "RoPE or scale",
                (long long)i
            );
    }
    return WEIR_OK;
}

static weir_status check_rope(
    const weir_written_model *written, const weir_model *model, weir_error *error
)
{
    const weir_rope_table *const a = weir_model_rope(written->model), *b = weir_model_rope(model);
    const weir_shape *const shape = weir_model_shape(model);
    bool is_same =
        is_near((double)a->magnitude, (double)b->magnitude) &&
        is_near(weir_model_shape(written->model)->rope_score_scale, shape->rope_score_scale);
    for (int64_t i = 0; is_same && i < shape->rotary_dim / 2; i++)
        is_same = fabs((double)(a->frequencies[i] - b->frequencies[i])) <=
                  1e-5 * (double)b->frequencies[i];
    return is_same ? WEIR_OK
                   : weir_error_set(
                         error, WEIR_EUNSUPPORTED,
                         "RoPE's frequencies would be others in the GGUF file: its keys cannot say "
                         "how this checkpoint scales them"
                     );
}

static weir_status compare(
    const weir_tensor_directory *file, const weir_written_model *written, weir_arch_set *archs,
    weir_stream *stream, weir_error *error
)
{
    const weir_arch *arch;
    weir_model *model = NULL;
    const weir_model_settings settings = { .activations = WEIR_ACTIVATIONS_F32 };
    WEIR_TRY(weir_arch_match(&arch, archs, file, error));
    weir_status status = weir_model_bind(&model, file, arch, stream, &settings, error);
    if (status == WEIR_OK) status = check_shape(written, model, error);
    if (status == WEIR_OK) status = check_layers(written, model, error);
    if (status == WEIR_OK) status = check_rope(written, model, error);
    weir_model_close(model);
    return status;
}

weir_status weir_check_written(
    const char *path, const weir_written_model *written, weir_arch_set *archs, weir_stream *stream,
    weir_error *error
)
{
    weir_tensor_directory *file = NULL;
    weir_status status = weir_tensor_directory_open(&file, path, error);
    if (status == WEIR_OK) status = compare(file, written, archs, stream, error);
    weir_tensor_directory_close(file);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_prefix(
                     error, status, "%s", weir_tensor_directory_path(written->directory)
                 );
}
