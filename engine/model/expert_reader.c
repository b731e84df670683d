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

/* Bytes of a matrix in its file, and where they are read to. */
typedef struct piece {
    const weir_tensor *tensor;
    size_t at, bytes; /* bytes 0: there is none */
    unsigned char *memory;
} piece;

static piece piece_of(
    const weir_expert_cache *c, const weir_tensor *tensor, const unsigned char *from, size_t bytes
)
{
    return (piece){ .tensor = tensor,
                    .at = bytes > 0 ? weir_tensor_offset(c->model->directory, tensor, from) : 0,
                    .bytes = bytes };
}

static bool is_before(const piece *a, const piece *b)
{
    return a->tensor->file != b->tensor->file ? a->tensor->file < b->tensor->file : a->at < b->at;
}

/* Reads bytes [at, end) of a file; direct reads may read until the end of a page. */
static weir_status read_run(
    const weir_expert_cache *c, const weir_tensor *tensor, size_t at, size_t end, unsigned char *to,
    weir_error *error
)
{
    const size_t page = weir_expert_page(&c->plan),
                 last = c->plan.is_direct ? (end + page - 1) / page * page : end;
    const int file = c->files[tensor->file];
    while (at < end) {
        ssize_t got = pread(file, to, last - at, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        /* A direct read continues at a page. */
        if (c->plan.is_direct && got > 0 && at + (size_t)got < end) got -= got % (ssize_t)page;
        if (got <= 0)
            return weir_error_set(
                error, WEIR_EIO, "%s: cannot read an expert of tensor %s: %s",
                weir_tensor_directory_file(c->model->directory, tensor->file), tensor->name,
                got < 0 ? strerror(errno) : "the file became shorter"
            );
        to += got;
        at += (size_t)got;
    }
    return WEIR_OK;
}

/* Reads pieces into the buffer of a reader. Those that touch, overlap or have a page at most
 * between them are read at once. Adds the bytes read to *n_read. */
static weir_status read_pieces(
    expert_reader *r, piece *pieces, int32_t n_pieces, int64_t *n_read, weir_error *error
)
{
    const size_t page = weir_expert_page(&r->cache->plan);
    unsigned char *to = r->buffer + (page - (uintptr_t)r->buffer % page) % page;
    piece *order[2 * WEIR_EXPERT_MATRICES];
    int32_t n = 0;
    for (int32_t i = 0; i < n_pieces; i++) {
        if (pieces[i].bytes == 0) continue;
        int32_t place = n++;
        for (; place > 0 && is_before(&pieces[i], order[place - 1]); place--)
            order[place] = order[place - 1];
        order[place] = &pieces[i];
    }
    for (int32_t i = 0, next; i < n; i = next) {
        const weir_tensor *const tensor = order[i]->tensor;
        const size_t at = order[i]->at / page * page;
        size_t end = order[i]->at + order[i]->bytes;
        for (next = i + 1;
             next < n && order[next]->tensor->file == tensor->file && order[next]->at <= end + page;
             next++)
            if (order[next]->at + order[next]->bytes > end)
                end = order[next]->at + order[next]->bytes;
        WEIR_TRY(read_run(r->cache, tensor, at, end, to, error));
        for (int32_t p = i; p < next; p++) order[p]->memory = to + (order[p]->at - at);
        to += (end - at + page - 1) / page * page;
        *n_read += (int64_t)(end - at);
    }
    return WEIR_OK;
}

/* Packs a matrix, whose bytes were read, to `dst`. */
static weir_status pack_matrix(
    expert_reader *r, size_t index, const piece *codes, const piece *scales, char *dst,
    weir_error *error
)
{
    const weir_expert_cache *const c = r->cache;
    weir_weight weight = c->model->weights[index];
    bound_matrix matrix = c->model->matrices[index];
    matrix.data = codes->memory;
    matrix.scale_data = scales->memory;
    const bool is_scattered = weir_matrix_is_scattered(&matrix, weight.n_out);
    if (is_scattered) weir_matrix_gather(r->gathered, &matrix, weight.n_out, weight.n_in);
    const weir_matrix_source source = { .data = is_scattered ? r->gathered : codes->memory,
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

/* Reads and packs matrices [n] of an expert; *dst becomes the place after them. */
static weir_status read_matrices(
    expert_reader *r, const size_t *matrices, int32_t n, char **dst, int64_t *n_read,
    weir_error *error
)
{
    const weir_expert_cache *const c = r->cache;
    piece pieces[2 * WEIR_EXPERT_MATRICES];
    for (int32_t i = 0; i < n; i++) {
        const weir_weight *const weight = &c->model->weights[matrices[i]];
        const bound_matrix *const matrix = &c->model->matrices[matrices[i]];
        const size_t codes = weir_expert_span(matrix, weight->n_out, weight->n_in, false),
                     scales = weir_expert_span(matrix, weight->n_out, weight->n_in, true);
        pieces[2 * i] = piece_of(c, matrix->tensor, matrix->data, codes);
        pieces[2 * i + 1] = piece_of(c, matrix->scales, matrix->scale_data, scales);
    }
    WEIR_TRY(read_pieces(r, pieces, 2 * n, n_read, error));
    for (int32_t i = 0; i < n; i++) {
        WEIR_TRY(pack_matrix(r, matrices[i], &pieces[2 * i], &pieces[2 * i + 1], *dst, error));
        *dst += (c->model->weights[matrices[i]].bytes + WEIR_WEIGHT_ALIGNMENT - 1) /
                WEIR_WEIGHT_ALIGNMENT * WEIR_WEIGHT_ALIGNMENT;
    }
    return WEIR_OK;
}

/* Reads all matrices of an expert into its slot. */
static weir_status read_expert(
    expert_reader *r, int32_t slot, int32_t unit, int64_t *n_read, weir_error *error
)
{
    const weir_expert_cache *const c = r->cache;
    char *dst = c->slot_memory + (size_t)slot * c->plan.slot_bytes;
    size_t matrices[WEIR_EXPERT_MATRICES];
    int32_t n = 0;
    for (size_t i = 0; i < c->model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &c->model->expert_arrays[i];
        const int64_t expert = unit - c->first_unit[array->layer];
        if (expert >= 0 && expert < array->n) matrices[n++] = array->first + (size_t)expert;
    }
    const int32_t at_once = c->plan.is_whole ? n : 1;
    for (int32_t i = 0; i < n; i += at_once)
        WEIR_TRY(read_matrices(r, matrices + i, at_once, &dst, n_read, error));
    return WEIR_OK;
}

void *weir_expert_read(void *user)
{
    expert_reader *const r = user;
    weir_expert_cache *const c = r->cache;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->is_closing) {
        const int32_t slot = weir_expert_next(c);
        if (slot < 0) {
            (void)pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        const int32_t unit = c->slots[slot].unit;
        (void)pthread_mutex_unlock(&c->lock);
        weir_error error = { 0 };
        int64_t n_read = 0;
        if (read_expert(r, slot, unit, &n_read, &error) == WEIR_OK) error = (weir_error){ 0 };
        (void)pthread_mutex_lock(&c->lock);
        weir_expert_finish(c, slot, n_read, &error);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}
