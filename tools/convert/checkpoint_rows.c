/* tools/convert/checkpoint_rows.c - reads the rows of a checkpoint in the order of a GGUF file. */
#include <string.h>

#include "engine/base/memory.h"
#include "kernels/ref/dequantise.h"
#include "tools/convert/checkpoint_internal.h"

/* The part that a row of a matrix is of, and which of its rows it is. */
static part *find_row(target *t, int64_t row, int64_t *own)
{
    int64_t n_rows = 0;
    for (size_t i = 0; i < t->n_parts; i++) n_rows += t->parts[i].source.n_rows;
    const int64_t in_group = n_rows / t->n_groups;
    WEIR_ASSERT(in_group > 0); /* no matrix is empty */
    const int64_t of_group = row / in_group;
    int64_t at = row % in_group;
    for (size_t i = 0; i < t->n_parts; i++) {
        part *const p = &t->parts[i];
        const int64_t n = p->source.n_rows / t->n_groups;
        if (at < n) {
            const int64_t r = of_group * n + at;
            *own = p->order.kind == WEIR_ORDER_TILED_COLUMNS ? r : weir_row_ordered(&p->order, r);
            return p;
        }
        at -= n;
    }
    return NULL;
}

/* Makes the rows of a matrix accessible. */
static weir_status open_matrix(weir_checkpoint *c, part *p, int64_t matrix, weir_error *error)
{
    if (p->matrix == matrix) return WEIR_OK;
    const size_t bytes = weir_source_gathered(c->model, &p->source);
    if (bytes > 0 && p->gathered == NULL) p->gathered = weir_memory_take(bytes);
    if (bytes > 0 && p->gathered == NULL)
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for a matrix of %zu bytes (\"%s\")", bytes,
            p->source.name
        );
    p->rows = weir_source_rows(c->model, &p->source, matrix, p->gathered);
    p->matrix = matrix;
    return WEIR_OK;
}

static weir_status read_row(
    weir_checkpoint *c, const part *p, const weir_planned *planned, int64_t row, float *out,
    weir_error *error
)
{
    const int64_t n = planned->n_in;
    const weir_dtype dtype = weir_source_dtype(c->model, &p->source);
    const bool is_ordered = p->order.kind == WEIR_ORDER_TILED_COLUMNS;
    float *const to = is_ordered ? c->row : out;
    if (weir_k_ref_dequantise(to, p->rows + (size_t)row * weir_row_bytes(dtype, n), dtype, n) !=
        WEIR_OK)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "%s: \"%s\" is of type %s, which is no type of weights",
            weir_tensor_directory_path(c->directory), p->source.name, weir_dtype_of(dtype).name
        );
    for (int64_t i = 0; is_ordered && i < n; i++) out[i] = to[weir_row_ordered(&p->order, i)];
    const float factor = weir_source_factor(c->model, &p->source);
    for (int64_t i = 0; factor != 1.0f && i < n; i++) out[i] *= factor;
    return WEIR_OK;
}

/* A vector is read whole, then its rows are put in order. */
static weir_status read_vector(
    weir_checkpoint *c, const target *t, const weir_planned *planned, int64_t first, int64_t n,
    float *out, weir_error *error
)
{
    if (t->factors != NULL) {
        memcpy(out, t->factors, (size_t)t->n_factors * sizeof *out);
        return WEIR_OK;
    }
    const part *const p = &t->parts[0];
    const weir_parameter *const parameter = p->source.parameter;
    const int64_t n_rows =
        parameter != NULL && parameter->dims[1] != NULL ? planned->shape[0] : p->source.n_rows;
    const int64_t width = p->source.n_rows / n_rows, begin = first * planned->n_in,
                  end = (first + n) * planned->n_in;
    float *const all = weir_memory_take((size_t)p->source.n_rows * sizeof *all);
    if (all == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a vector");
    const weir_status status = weir_source_vector(c->model, &p->source, all, error);
    for (int64_t i = begin; status == WEIR_OK && i < end; i++)
        out[i - begin] = all[weir_row_ordered(&p->order, i / width) * width + i % width];
    weir_memory_give(all);
    return status;
}

static weir_status read_rows(
    void *user, const weir_planned *planned, int64_t first, int64_t n, float *out, weir_error *error
)
{
    weir_checkpoint *const c = user;
    target *const t = &c->targets[planned->index];
    const int64_t per_matrix = planned->n_rows / planned->n_matrices;
    if (t->n_parts == 0 || t->parts[0].source.kind == WEIR_PARAMETER_VECTOR)
        return read_vector(c, t, planned, first, n, out, error);
    if (t->parts[0].order.kind == WEIR_ORDER_TILED_COLUMNS) {
        float *const row = weir_memory_resize(c->row, (size_t)planned->n_in * sizeof *row);
        if (row == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a row");
        c->row = row;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t own = 0;
        part *const p = find_row(t, (first + i) % per_matrix, &own);
        WEIR_ASSERT(p != NULL);
        WEIR_TRY(open_matrix(c, p, (first + i) / per_matrix, error));
        WEIR_TRY(read_row(c, p, planned, own, out + i * planned->n_in, error));
    }
    return WEIR_OK;
}

static weir_status copy_rows(
    void *user, const weir_planned *planned, int64_t first, int64_t n, unsigned char *out,
    weir_error *error
)
{
    weir_checkpoint *const c = user;
    target *const t = &c->targets[planned->index];
    const int64_t per_matrix = planned->n_rows / planned->n_matrices;
    const size_t bytes = weir_row_bytes(planned->from, planned->n_in);
    for (int64_t i = 0; i < n; i++, out += bytes) {
        int64_t own = 0;
        part *const p = find_row(t, (first + i) % per_matrix, &own);
        WEIR_ASSERT(p != NULL && p->order.kind != WEIR_ORDER_TILED_COLUMNS);
        WEIR_TRY(open_matrix(c, p, (first + i) / per_matrix, error));
        memcpy(out, p->rows + (size_t)own * bytes, bytes);
    }
    return WEIR_OK;
}

static void release(void *user, const weir_planned *planned)
{
    weir_checkpoint *const c = user;
    target *const t = &c->targets[planned->index];
    for (size_t i = 0; i < t->n_parts; i++) {
        part *const p = &t->parts[i];
        weir_source_release(c->model, &p->source);
        weir_memory_give(p->gathered);
        p->gathered = NULL;
        p->matrix = -1;
    }
}

weir_row_reader weir_checkpoint_row_reader(weir_checkpoint *c)
{
    return (weir_row_reader){ .user = c,
                              .read = read_rows,
                              .copy = copy_rows,
                              .release = release,
                              .path = weir_tensor_directory_path(c->directory) };
}
