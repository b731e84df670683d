/* engine/model/expert_pack.c - packs an expert as the file has it into an entry. */
#include "engine/model/expert_cache_internal.h"

int32_t weir_expert_weights(
    const weir_expert_cache *c, int32_t unit, size_t weights[WEIR_EXPERT_MATRICES]
)
{
    int32_t n = 0;
    for (size_t i = 0; i < c->model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &c->model->expert_arrays[i];
        const int64_t expert = unit - c->first_unit[array->layer];
        if (expert >= 0 && expert < array->n) weights[n++] = array->first + (size_t)expert;
    }
    return n;
}

static weir_status pack_matrix(
    weir_expert_cache *c, size_t index, const unsigned char *codes, const unsigned char *scales,
    char *dst, weir_error *error
)
{
    weir_weight weight = c->model->weights[index];
    bound_matrix matrix = c->model->matrices[index];
    matrix.data = codes;
    matrix.scale_data = scales;
    const bool is_scattered = weir_matrix_is_scattered(&matrix, weight.n_out);
    if (is_scattered)
        weir_matrix_gather(
            c->gathered, &matrix, weight.n_out, weight.n_in, weir_stream_threads(c->model->stream)
        );
    const weir_matrix_source source = { .data = is_scattered ? c->gathered : codes,
                                        .n_out = weight.n_out,
                                        .n_in = weight.n_in,
                                        .dtype = matrix.dtype,
                                        .is_grouped = true };
    const weir_status status = weir_weight_pack(&weight, c->model->stream, &source, dst, error);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_prefix(
                     error, status, "%s: tensor %s",
                     weir_tensor_directory_file(c->model->directory, matrix.tensor->file),
                     matrix.tensor->name
                 );
}

weir_status weir_expert_pack(
    weir_expert_cache *c, const expert_read *read, int32_t entry, weir_error *error
)
{
    char *dst = c->entry_memory + (size_t)entry * c->plan.entry_bytes;
    size_t weights[WEIR_EXPERT_MATRICES];
    const int32_t n = weir_expert_weights(c, read->unit, weights);
    for (int32_t i = 0; i < n; i++) {
        const unsigned char *const *const piece = read->pieces + 2 * i;
        WEIR_TRY(pack_matrix(c, weights[i], piece[0], piece[1], dst, error));
        dst += (c->model->weights[weights[i]].bytes + WEIR_WEIGHT_ALIGNMENT - 1) /
               WEIR_WEIGHT_ALIGNMENT * WEIR_WEIGHT_ALIGNMENT;
    }
    return WEIR_OK;
}
