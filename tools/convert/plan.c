#include "tools/convert/plan.h"

#include <stdio.h>

#include "engine/base/memory.h"
#include "engine/cli/progress.h"
#include "tools/convert/quantise.h"

/* Elements of a piece of rows: 16 MiB as f32. */
enum { PIECE = 4 << 20 };
/* Bytes after which pages of the checkpoint are released. */
enum { RELEASE = 64 << 20 };

weir_status weir_plan_add(weir_plan *plan, const weir_planned *tensor, weir_error *error)
{
    if (plan->n == plan->capacity) {
        const size_t more = plan->capacity > 0 ? 2 * plan->capacity : 256;
        weir_planned *const grown = weir_memory_resize(plan->tensors, more * sizeof *grown);
        if (grown == NULL) {
            weir_memory_give(tensor->name);
            return weir_error_set(error, WEIR_ENOMEM, "no memory to plan the tensors");
        }
        plan->tensors = grown;
        plan->capacity = more;
    }
    plan->tensors[plan->n++] = *tensor;
    return WEIR_OK;
}

void weir_plan_free(weir_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) weir_memory_give(plan->tensors[i].name);
    weir_memory_give(plan->tensors);
    *plan = (weir_plan){ 0 };
}

/* What all tensors are written with. */
typedef struct writing {
    weir_gguf_writer *writer;
    const weir_row_reader *reader;
    const weir_imatrix *imatrix;
    float *rows; /* [piece] */
    unsigned char *packed; /* of `piece` elements, in the longest type */
    float *importance; /* [widest row] */
    int64_t piece; /* elements */
    int64_t n_done; /* elements, for progress */
    size_t unreleased;
    weir_importance_use *use;
} writing;

static weir_status write_piece(
    writing *w, const weir_planned *tensor, int64_t first, int64_t n, const float *importance,
    weir_error *error
)
{
    const weir_row_reader *const reader = w->reader;
    const size_t bytes = weir_row_bytes(tensor->to, tensor->n_in) * (size_t)n;
    if (tensor->is_copied) {
        WEIR_TRY(reader->copy(reader->user, tensor, first, n, w->packed, error));
    } else {
        WEIR_TRY(reader->read(reader->user, tensor, first, n, w->rows, error));
        const weir_status status =
            weir_quantise(w->packed, tensor->to, w->rows, n, tensor->n_in, importance, error);
        if (status != WEIR_OK)
            return weir_error_prefix(error, status, "%s: tensor %s", reader->path, tensor->name);
    }
    WEIR_TRY(weir_gguf_writer_add(w->writer, w->packed, bytes, error));
    w->unreleased += weir_row_bytes(tensor->from, tensor->n_in) * (size_t)n;
    if (w->unreleased >= RELEASE) {
        reader->release(reader->user, tensor);
        w->unreleased = 0;
    }
    w->n_done += n * tensor->n_in;
    return weir_progress_step(w->n_done, error);
}

/* One matrix of a tensor. */
static weir_status write_matrix(
    writing *w, const weir_planned *tensor, int64_t matrix, weir_error *error
)
{
    const int64_t n_rows = tensor->n_rows / tensor->n_matrices, begin = matrix * n_rows,
                  at_once = w->piece / tensor->n_in;
    bool has_importance = false;
    if (w->imatrix != NULL && weir_dtype_of(tensor->to).quantised && !tensor->is_copied)
        WEIR_TRY(weir_imatrix_read(
            w->imatrix, tensor->name, matrix, tensor->n_matrices, tensor->n_in, w->importance,
            &has_importance, error
        ));
    if (weir_dtype_of(tensor->to).quantised && !tensor->is_copied) {
        w->use->n_quantised++;
        w->use->n_found += has_importance;
        w->use->n_missing += !has_importance && weir_needs_importance(tensor->to, tensor->name);
    }
    for (int64_t r = 0; r < n_rows; r += at_once) {
        const int64_t n = n_rows - r < at_once ? n_rows - r : at_once;
        WEIR_TRY(write_piece(w, tensor, begin + r, n, has_importance ? w->importance : NULL, error)
        );
    }
    return WEIR_OK;
}

static weir_status write_tensors(writing *w, const weir_plan *plan, weir_error *error)
{
    for (size_t i = 0; i < plan->n; i++) {
        const weir_planned *const tensor = &plan->tensors[i];
        for (int64_t m = 0; m < tensor->n_matrices; m++)
            WEIR_TRY(write_matrix(w, tensor, m, error));
        w->reader->release(w->reader->user, tensor);
        w->unreleased = 0;
    }
    return WEIR_OK;
}

weir_status weir_plan_write(
    const weir_plan *plan, weir_gguf_writer *writer, const weir_row_reader *reader,
    const weir_imatrix *imatrix, weir_importance_use *use, const char *out, weir_error *error
)
{
    int64_t widest = 1, total = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const weir_planned *const tensor = &plan->tensors[i];
        weir_tensor header = { .name = tensor->name,
                               .n_dims = tensor->n_dims,
                               .dtype = tensor->to };
        for (int32_t d = 0; d < tensor->n_dims; d++) header.shape[d] = tensor->shape[d];
        weir_gguf_add_tensor(writer, &header);
        widest = tensor->n_in > widest ? tensor->n_in : widest;
        total += tensor->n_rows * tensor->n_in;
    }
    WEIR_TRY(weir_gguf_writer_begin(writer, out, error));
    const int64_t piece = widest > PIECE ? widest : PIECE;
    writing w = { .writer = writer,
                  .reader = reader,
                  .imatrix = imatrix,
                  .use = use,
                  .piece = piece,
                  .rows = weir_memory_take_zero((size_t)piece, sizeof(float)),
                  .packed = weir_memory_take_zero((size_t)piece, sizeof(float)),
                  .importance = weir_memory_take_zero((size_t)widest, sizeof(float)) };
    weir_status status = WEIR_OK;
    if (w.rows == NULL || w.packed == NULL || w.importance == NULL)
        status = weir_error_set(
            error, WEIR_ENOMEM, "no memory for rows of %lld elements", (long long)widest
        );
    weir_progress_begin("writing", "elements", total);
    if (status == WEIR_OK) status = write_tensors(&w, plan, error);
    weir_progress_end();
    weir_memory_give(w.rows);
    weir_memory_give(w.packed);
    weir_memory_give(w.importance);
    return status;
}
