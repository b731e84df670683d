/* engine/model/expert_reader.c - threads that read experts from the model file. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/checked.h"
#include "engine/base/clock.h"
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
    const size_t before = (size_t)weir_row_at(matrix->runs, n_rows - 1); /* the last row */
    size_t out = matrix->row_width > 0 ? weir_row_bytes(matrix->stored, matrix->row_width) : bytes;
    return weir_mul_size(&out, before, out) && weir_add_size(&out, out, bytes) ? out : SIZE_MAX;
}

/* Bytes of a matrix in its file, and where their place will be told. */
typedef struct piece {
    const weir_tensor *tensor;
    size_t at, bytes; /* bytes 0: there is none */
    const unsigned char **memory;
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

/* Puts a piece, if it has bytes, among those before it in the order of the file. */
static int32_t sort_in(piece *sorted, int32_t n, piece p)
{
    if (p.bytes == 0 || p.tensor == NULL) return n;
    int32_t place = n;
    for (; place > 0 && is_before(&p, &sorted[place - 1]); place--)
        sorted[place] = sorted[place - 1];
    sorted[place] = p;
    return n + 1;
}

/* The pieces of an expert in the order of the file; returns their number. */
static int32_t pieces_of(
    const weir_expert_cache *c, expert_read *read, piece pieces[WEIR_EXPERT_PIECES]
)
{
    size_t weights[WEIR_EXPERT_MATRICES];
    const int32_t n_matrices = weir_expert_weights(c, read->unit, weights);
    int32_t n = 0;
    for (int32_t i = 0; i < n_matrices; i++) {
        const weir_weight *const weight = &c->model->weights[weights[i]];
        const bound_matrix *const matrix = &c->model->matrices[weights[i]];
        piece codes = piece_of(
            c, matrix->tensor, matrix->data,
            weir_expert_span(matrix, weight->n_out, weight->n_in, false)
        );
        piece scales = piece_of(
            c, matrix->scales, matrix->scale_data,
            weir_expert_span(matrix, weight->n_out, weight->n_in, true)
        );
        codes.memory = &read->pieces[2 * i];
        scales.memory = &read->pieces[2 * i + 1];
        *codes.memory = *scales.memory = NULL;
        n = sort_in(pieces, n, codes);
        n = sort_in(pieces, n, scales);
    }
    return n;
}

/* Pieces that touch, overlap or have a page at most between them are one run. */
void weir_expert_find(const weir_expert_cache *c, expert_read *read)
{
    const size_t page = weir_expert_page(&c->plan);
    unsigned char *to = read->memory;
    piece pieces[WEIR_EXPERT_PIECES];
    const int32_t n = pieces_of(c, read, pieces);
    read->n_runs = 0;
    for (int32_t i = 0, next; i < n; i = next) {
        const weir_tensor *const tensor = pieces[i].tensor;
        const size_t at = pieces[i].at / page * page;
        size_t end = pieces[i].at + pieces[i].bytes;
        for (next = i + 1;
             next < n && pieces[next].tensor->file == tensor->file && pieces[next].at <= end + page;
             next++)
            if (pieces[next].at + pieces[next].bytes > end)
                end = pieces[next].at + pieces[next].bytes;
        for (int32_t p = i; p < next; p++) *pieces[p].memory = to + (pieces[p].at - at);
        read->runs[read->n_runs++] = (expert_run){ tensor, at, end, to };
        to += (end - at + page - 1) / page * page;
    }
}

/* Reads bytes of a file; direct reads may read until the end of a page. 0, or an errno; ENODATA:
 * the file ends before. */
static int read_run(const weir_expert_cache *c, const expert_run *run)
{
    const size_t page = weir_expert_page(&c->plan), end = run->end,
                 last = c->plan.is_direct ? (end + page - 1) / page * page : end;
    const int file = c->files[run->tensor->file];
    unsigned char *to = run->to;
    for (size_t at = run->at; at < end;) {
        ssize_t got = pread(file, to, last - at, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        /* A direct read continues at a page. */
        if (c->plan.is_direct && at + (size_t)got < end) got -= got % (ssize_t)page;
        if (got == 0) return ENODATA;
        to += got;
        at += (size_t)got;
    }
    return 0;
}

void *weir_expert_read(void *user)
{
    expert_reader *const r = user;
    weir_expert_cache *const c = r->cache;
    expert_request request;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->is_closing) {
        if (!weir_expert_next(c, &request)) {
            (void)pthread_cond_wait(&c->work, &c->lock);
            continue;
        }
        r->read = request.read;
        r->since_ns = weir_clock_ns();
        (void)pthread_mutex_unlock(&c->lock);
        const int failure = read_run(c, &request.run);
        (void)pthread_mutex_lock(&c->lock);
        r->since_ns = 0;
        weir_expert_finish(c, &request, failure);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}
