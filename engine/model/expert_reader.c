/* engine/model/expert_reader.c - threads that read experts from the model file and pack them. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/checked.h"
#include "engine/model/expert_cache_internal.h"

size_t weir_expert_span(const bound_matrix *matrix, int64_t n_out, int64_t n_in, bool of_scales)
{
    const bool is_joined = matrix->scales != NULL && matrix->dtype == WEIR_MXFP4;
    const int64_t n_rows = matrix->is_transposed ? n_in : n_out,
                  width = matrix->is_transposed ? n_out : n_in;
    size_t bytes = is_joined ? (size_t)width / 32 : weir_row_bytes(matrix->stored, width);
    if (of_scales && matrix->scales == NULL) return 0;
    if (of_scales && !is_joined)
        return matrix->scales->bytes - (size_t)(matrix->scale_data - matrix->scales->data);
    if (is_joined && !of_scales) bytes *= 16;
    const size_t rows = (size_t)weir_row_at(matrix->runs, n_rows - 1) + 1;
    return weir_mul_size(&bytes, rows, bytes) ? bytes : SIZE_MAX;
}

/* Reads bytes of a tensor that lie at `from` in the mapped file. */
static weir_status read_bytes(
    const weir_expert_cache *c, const weir_tensor *tensor, const unsigned char *from,
    unsigned char *to, size_t n, weir_error *error
)
{
    const weir_tensor_directory *const directory = c->model->directory;
    size_t at = weir_tensor_offset(directory, tensor, from);
    while (n > 0) {
        const ssize_t got = pread(c->files[tensor->file], to, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return weir_error_set(
                error, WEIR_EIO, "%s: cannot read an expert of tensor %s: %s",
                weir_tensor_directory_file(directory, tensor->file), tensor->name,
                got < 0 ? strerror(errno) : "the file became shorter"
            );
        to += got;
        at += (size_t)got;
        n -= (size_t)got;
    }
    return WEIR_OK;
}

/* Reads a matrix and packs it to `dst`. Returns the bytes read. */
static weir_status read_matrix(
    expert_reader *r, size_t index, char *dst, int64_t *n_read, weir_error *error
)
{
    const weir_expert_cache *const c = r->cache;
    weir_weight weight = c->model->weights[index];
    bound_matrix matrix = c->model->matrices[index];
    const size_t codes = weir_expert_span(&matrix, weight.n_out, weight.n_in, false),
                 scales = weir_expert_span(&matrix, weight.n_out, weight.n_in, true);
    WEIR_TRY(read_bytes(c, matrix.tensor, matrix.data, r->buffer, codes, error));
    if (scales > 0)
        WEIR_TRY(read_bytes(c, matrix.scales, matrix.scale_data, r->buffer + codes, scales, error));
    matrix.data = r->buffer;
    matrix.scale_data = r->buffer + codes;
    *n_read += (int64_t)(codes + scales);
    const bool is_scattered = weir_matrix_is_scattered(&matrix, weight.n_out);
    if (is_scattered) weir_matrix_gather(r->gathered, &matrix, weight.n_out, weight.n_in);
    const weir_matrix_source source = { .data = is_scattered ? r->gathered : r->buffer,
                                        .n_out = weight.n_out,
                                        .n_in = weight.n_in,
                                        .dtype = matrix.dtype,
                                        .is_grouped = true };
    const weir_status status = weir_weight_pack(&weight, c->stream, &source, dst, error);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_prefix(
                     error, status, "%s: tensor %s",
                     weir_tensor_directory_file(c->model->directory, matrix.tensor->file),
                     matrix.tensor->name
                 );
}

/* Reads all matrices of an expert into its slot. */
static weir_status read_expert(
    expert_reader *r, int32_t slot, int32_t unit, int64_t *n_read, weir_error *error
)
{
    const weir_expert_cache *const c = r->cache;
    char *dst = c->slot_memory + (size_t)slot * c->plan.slot_bytes;
    for (size_t i = 0; i < c->model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &c->model->expert_arrays[i];
        const int64_t expert = unit - c->first_unit[array->layer];
        if (expert < 0 || expert >= array->n) continue;
        const size_t index = array->first + (size_t)expert;
        WEIR_TRY(read_matrix(r, index, dst, n_read, error));
        dst += (c->model->weights[index].bytes + WEIR_WEIGHT_ALIGNMENT - 1) /
               WEIR_WEIGHT_ALIGNMENT * WEIR_WEIGHT_ALIGNMENT;
    }
    return WEIR_OK;
}

void *weir_expert_read(void *user)
{
    expert_reader *const r = user;
    weir_expert_cache *const c = r->cache;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->is_closing) {
        if (c->n_queued == 0) {
            (void)pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        const int32_t slot = c->queue[c->first_queued], unit = c->slots[slot].unit;
        c->first_queued = (c->first_queued + 1) % c->plan.n_slots;
        c->n_queued--;
        (void)pthread_mutex_unlock(&c->lock);
        weir_error error = { 0 };
        int64_t n_read = 0;
        if (read_expert(r, slot, unit, &n_read, &error) == WEIR_OK) error = (weir_error){ 0 };
        (void)pthread_mutex_lock(&c->lock);
        c->stats.bytes_read += n_read;
        weir_expert_finish(c, slot, &error);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}
