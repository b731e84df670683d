/* engine/model/load.c - reads vectors and packs matrices of a bound model into memory of the
 * ledger. */
#include <math.h>
#include <stdlib.h>

#include "engine/model/expert_cache_internal.h"

size_t weir_vector_stride(const weir_model *model, size_t index)
{
    const bool is_followed = index + 1 < model->n_vectors && model->vectors[index + 1].is_joined;
    const size_t n = (size_t)model->vectors[index].count;
    return is_followed ? n : (n + 15) / 16 * 16;
}

weir_status weir_load_vector(
    const bound_vector *vector, float *dst, const char *path, weir_error *error
)
{
    const weir_tensor *const tensor = vector->tensor;
    WEIR_ASSERT(dst != NULL || vector->count == 0);
    *vector->parameter = dst;
    for (int64_t i = 0; tensor == NULL && i < vector->count; i++) dst[i] = vector->initial;
    if (tensor == NULL) return WEIR_OK;
    const size_t element = weir_row_bytes(tensor->dtype, 1);
    const bool is_whole = vector->runs.length >= vector->count;
    weir_status status =
        is_whole ? weir_dequantise(dst, vector->data, tensor->dtype, vector->count) : WEIR_OK;
    for (int64_t i = 0; !is_whole && status == WEIR_OK && i < vector->count; i++)
        status = weir_dequantise(
            dst + i, vector->data + (size_t)weir_row_at(vector->runs, i) * element, tensor->dtype, 1
        );
    if (status != WEIR_OK)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "%s: tensor %s has type %s", path, tensor->name,
            weir_dtype_of(tensor->dtype).name
        );
    for (int64_t i = 0; i < vector->count; i++) {
        switch (vector->transform) {
        case TRANSFORM_NONE: break;
        case TRANSFORM_ONE_PLUS: dst[i] += 1.0f; break;
        case TRANSFORM_NEG_EXP: dst[i] = -expf(dst[i]); break;
        }
        if (vector->scale != 0.0f) dst[i] *= vector->scale;
        if (!isfinite(dst[i]))
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: tensor %s holds a number that is not finite", path,
                tensor->name
            );
    }
    return WEIR_OK;
}

static weir_status load_vectors(weir_model *model, float *dst, weir_error *error)
{
    for (size_t i = 0; i < model->n_vectors; i++) {
        const weir_tensor_directory *const directory =
            weir_model_directory_of(model, model->vectors[i].tensor);
        WEIR_TRY(
            weir_load_vector(&model->vectors[i], dst, weir_tensor_directory_path(directory), error)
        );
        dst += weir_vector_stride(model, i);
    }
    return WEIR_OK;
}

weir_status weir_model_bind_rope(weir_model *model, weir_error *error)
{
    const float **const factors[] = { &model->rope_factors, &model->rope_lists[0],
                                      &model->rope_lists[1] };
    enum { N = sizeof factors / sizeof factors[0] };
    const int64_t half = model->shape.rotary_dim / 2;
    const char *const path = weir_tensor_directory_path(model->directory);
    float *const memory = calloc(N * (size_t)half + 1, sizeof *memory);
    weir_status status = WEIR_OK;
    if (memory == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the factors of RoPE");
    for (size_t i = 0; i < model->n_vectors; i++)
        for (size_t f = 0; status == WEIR_OK && f < N; f++)
            if (model->vectors[i].parameter == factors[f])
                status =
                    weir_load_vector(&model->vectors[i], memory + f * (size_t)half, path, error);
    if (status == WEIR_OK) status = weir_model_resolve_rope(model, error);
    for (size_t f = 0; f < N; f++) *factors[f] = NULL;
    model->rope_context.factors = NULL;
    free(memory);
    return status;
}

/* The vectors were read to host memory, where RoPE's factors are needed first; copies them to their
 * final place. */
static weir_status move_vectors(weir_model *model, const float *from, weir_error *error)
{
    const size_t bytes = weir_model_near_frequency_bytes(model);
    weir_ledger_copy(model->ledger, model->vector_memory, from, model->vector_bytes);
    for (size_t i = 0; i < model->n_vectors; i++) {
        const float **const parameter = model->vectors[i].parameter;
        *parameter = (const float *)model->vector_memory + (*parameter - from);
    }
    WEIR_TRY(weir_ledger_alloc_device(
        model->ledger, &model->near_frequencies, WEIR_ACCOUNT_WEIGHTS, bytes, error
    ));
    weir_ledger_copy(model->ledger, model->near_frequencies, model->frequencies, bytes);
    model->near_rope.frequencies = model->near_frequencies;
    model->near_local_rope.frequencies =
        (const float *)model->near_frequencies + weir_model_frequencies(model);
    return WEIR_OK;
}

/* Loads norms, biases and RoPE's frequencies. */
static weir_status load_small(weir_model *model, weir_error *error)
{
    const bool is_apart = weir_ledger_device(model->ledger) != NULL;
    float *const vectors = is_apart ? calloc(1, model->vector_bytes + 1) : model->vector_memory;
    if (vectors == NULL && model->vector_bytes > 0)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the model's vectors");
    weir_status status = load_vectors(model, vectors, error);
    if (status == WEIR_OK && (model->rope_factors != NULL || model->rope_context.has_lists))
        status = weir_model_resolve_rope(model, error);
    if (status == WEIR_OK && is_apart) status = move_vectors(model, vectors, error);
    if (is_apart) free(vectors);
    return status;
}

/* Memory for the largest matrix that has to be gathered: some MB, or its bf16 values if it is in
 * FP8. It is freed before anything is allocated for sequences. NULL: none, or not enough memory. */
static unsigned char *take_gathered(const weir_model *model, bool *is_needed)
{
    size_t most = 0;
    for (size_t i = 0; i < model->n_matrices; i++) {
        const bound_matrix *const matrix = &model->matrices[i];
        const size_t bytes =
            weir_row_bytes(matrix->dtype, model->weights[i].n_in) * (size_t)model->weights[i].n_out;
        if (weir_matrix_is_scattered(matrix, model->weights[i].n_out) && bytes > most &&
            !weir_model_is_cached(model, i))
            most = bytes;
    }
    *is_needed = most > 0;
    return most > 0 ? malloc(most) : NULL;
}

static weir_status load_matrix(
    weir_model *model, size_t index, unsigned char *gathered, void *dst, weir_error *error
)
{
    weir_weight *const weight = &model->weights[index];
    const bound_matrix *const matrix = &model->matrices[index];
    const weir_tensor *const tensor = matrix->tensor;
    const weir_tensor_directory *const directory = weir_model_directory_of(model, tensor);
    const bool is_scattered = weir_matrix_is_scattered(matrix, weight->n_out);
    const weir_matrix_source source = { .data = is_scattered ? gathered : matrix->data,
                                        .n_out = weight->n_out,
                                        .n_in = weight->n_in,
                                        .dtype = matrix->dtype };
    if (is_scattered)
        weir_matrix_gather(
            gathered, matrix, weight->n_out, weight->n_in, weir_stream_threads(model->stream)
        );
    const weir_status status = weir_weight_load(weight, model->stream, &source, dst, error);
    if (status != WEIR_OK)
        return weir_error_prefix(
            error, status, "%s: tensor %s", weir_tensor_directory_path(directory), tensor->name
        );
    if (matrix->is_last) weir_tensor_release(directory, tensor);
    if (matrix->is_last && matrix->scales != NULL)
        weir_tensor_release(weir_model_directory_of(model, matrix->scales), matrix->scales);
    return WEIR_OK;
}

static weir_status load_matrices(
    weir_model *model, weir_progress progress, void *user, weir_error *error
)
{
    char *dst = model->weight_memory;
    size_t done = 0;
    bool is_gathered;
    weir_status status = WEIR_OK;
    unsigned char *const gathered = take_gathered(model, &is_gathered);
    if (is_gathered && gathered == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a matrix of the model");
    for (size_t i = 0; status == WEIR_OK && i < model->n_matrices; i++) {
        if (weir_model_is_cached(model, i)) continue;
        if (progress != NULL) progress(user, done, model->weight_bytes);
        status = load_matrix(model, i, gathered, dst, error);
        const size_t bytes = (model->weights[i].bytes + WEIR_WEIGHT_ALIGNMENT - 1) /
                             WEIR_WEIGHT_ALIGNMENT * WEIR_WEIGHT_ALIGNMENT;
        dst += bytes;
        done += bytes;
    }
    free(gathered);
    if (status == WEIR_OK && progress != NULL)
        progress(user, model->weight_bytes, model->weight_bytes);
    return status;
}

weir_status weir_model_load(
    weir_model *model, weir_ledger *ledger, weir_progress progress, void *user, weir_error *error
)
{
    WEIR_ASSERT(model->ledger == NULL);
    model->ledger = ledger;
    WEIR_TRY(weir_ledger_alloc_device(
        ledger, &model->weight_memory, WEIR_ACCOUNT_WEIGHTS, model->weight_bytes, error
    ));
    WEIR_TRY(weir_ledger_alloc_device(
        ledger, &model->vector_memory, WEIR_ACCOUNT_WEIGHTS, model->vector_bytes, error
    ));
    WEIR_TRY(load_small(model, error));
    WEIR_TRY(load_matrices(model, progress, user, error));
    return model->expert_plan.bytes > 0
               ? weir_expert_cache_open(&model->experts, model, &model->expert_plan, ledger, error)
               : WEIR_OK;
}
