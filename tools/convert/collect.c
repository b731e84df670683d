#include "tools/convert/collect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/formats/gguf_writer.h"
#include "tools/convert/checkpoint_internal.h"

/* A tensor of the GGUF file, and the sums of the inputs of its matrices. */
typedef struct watched {
    char *name; /* owned */
    const weir_weight *weights; /* [n_matrices] */
    int64_t n_matrices, n_in;
    weir_row_order order; /* of the columns */
    double *sums; /* owned, [n_matrices, n_in] */
    int64_t *counts; /* owned, [n_matrices] rows */
} watched;

struct weir_collector {
    watched *tensors; /* owned, by the address of their weights */
    size_t n, capacity;
};

/* ---- tensors --------------------------------------------------------------------------------- */
static weir_status no_memory(weir_error *error)
{
    return weir_error_set(error, WEIR_ENOMEM, "no memory for the sums of an importance matrix");
}

static weir_status add(
    weir_collector *c, const weir_model *model, const char *name, const part *p, weir_error *error
)
{
    const weir_parameter_source *const source = &p->source;
    const weir_weight *const weights = weir_source_weights(model, source);
    if (weights == NULL) return WEIR_OK;
    if (c->n == c->capacity) {
        const size_t more = c->capacity > 0 ? 2 * c->capacity : 256;
        watched *const grown = weir_memory_resize(c->tensors, more * sizeof *grown);
        if (grown == NULL) return no_memory(error);
        c->tensors = grown;
        c->capacity = more;
    }
    watched *const w = &c->tensors[c->n++];
    *w =
        (watched){ .name = weir_memory_text(name),
                   .weights = weights,
                   .n_matrices = source->n_matrices,
                   .n_in = source->n_in,
                   .sums = weir_memory_take_zero(
                       (size_t)source->n_matrices * (size_t)source->n_in, sizeof *w->sums
                   ),
                   .counts = weir_memory_take_zero((size_t)source->n_matrices, sizeof *w->counts) };
    if (p->order.kind == WEIR_ORDER_TILED_COLUMNS) w->order = p->order;
    return w->name != NULL && w->sums != NULL && w->counts != NULL ? WEIR_OK : no_memory(error);
}

/* Parameters of a GGUF file, whose names are those of its tensors. A fused one is there once. */
static weir_status add_gguf(weir_collector *c, const weir_model *model, weir_error *error)
{
    weir_parameter_source *sources = NULL;
    size_t n = 0;
    const weir_tensor *before = NULL;
    WEIR_TRY(weir_model_sources(&sources, &n, model, error));
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < n; i++) {
        const weir_tensor *const tensor = weir_source_tensor(model, &sources[i]);
        const part p = { .source = sources[i] };
        if (sources[i].kind == WEIR_PARAMETER_VECTOR || tensor == before) continue;
        before = tensor;
        status = add(c, model, tensor->name, &p, error);
    }
    weir_memory_give(sources);
    return status;
}

/* Parameters of a checkpoint, by the names of the tensors that they are written to. */
static weir_status add_checkpoint(
    weir_collector *c, const weir_model *model, const weir_tensor_directory *directory,
    weir_arch_set *archs, weir_error *error
)
{
    const weir_arch *own, *written;
    const char *name;
    weir_checkpoint *checkpoint = NULL;
    WEIR_TRY(weir_arch_match(&own, archs, directory, error));
    WEIR_TRY(weir_arch_written_as(&written, &name, archs, own, error));
    WEIR_TRY(weir_checkpoint_open(&checkpoint, model, written, directory, error));
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < checkpoint->n; i++) {
        const target *const t = &checkpoint->targets[i];
        char full[WEIR_CHECKPOINT_NAME];
        if (t->n_parts == 0 || t->parts[0].source.kind == WEIR_PARAMETER_VECTOR) continue;
        status = weir_checkpoint_name(checkpoint, t, full, error);
        if (status == WEIR_OK) status = add(c, model, full, &t->parts[0], error);
    }
    weir_checkpoint_close(checkpoint);
    return status;
}

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const watched *)a)->weights,
                    y = (uintptr_t)((const watched *)b)->weights;
    return (x > y) - (x < y);
}

weir_status weir_collector_open(
    weir_collector **out, const weir_model *model, const char *path, const char *arch_dir,
    weir_error *error
)
{
    weir_tensor_directory *directory = NULL;
    weir_arch_set *archs = NULL;
    weir_collector *const c = weir_memory_take_zero(1, sizeof *c);
    if (c == NULL) return no_memory(error);
    weir_status status = weir_tensor_directory_open(&directory, path, error);
    if (status == WEIR_OK && weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF) {
        status = add_gguf(c, model, error);
    } else if (status == WEIR_OK) {
        status = weir_arch_set_open(&archs, arch_dir, NULL, error);
        if (status == WEIR_OK) status = add_checkpoint(c, model, directory, archs, error);
    }
    weir_arch_set_close(archs);
    weir_tensor_directory_close(directory);
    if (status != WEIR_OK) {
        weir_collector_close(c);
        return status;
    }
    qsort(c->tensors, c->n, sizeof *c->tensors, by_address);
    *out = c;
    return WEIR_OK;
}

void weir_collector_close(weir_collector *c)
{
    if (c == NULL) return;
    for (size_t i = 0; i < c->n; i++) {
        weir_memory_give(c->tensors[i].name);
        weir_memory_give(c->tensors[i].sums);
        weir_memory_give(c->tensors[i].counts);
    }
    weir_memory_give(c->tensors);
    weir_memory_give(c);
}

/* ---- inputs ---------------------------------------------------------------------------------- */
/* The tensor of a weight, and which of its matrices it is; NULL: none that is watched. */
static watched *find(weir_collector *c, const weir_weight *weight, int64_t *matrix)
{
    size_t low = 0, high = c->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        watched *const w = &c->tensors[middle];
        if ((uintptr_t)weight < (uintptr_t)w->weights) {
            high = middle;
        } else if ((uintptr_t)weight >= (uintptr_t)(w->weights + w->n_matrices)) {
            low = middle + 1;
        } else {
            *matrix = weight - w->weights;
            return w;
        }
    }
    return NULL;
}

static void add_rows(watched *w, int64_t matrix, const float *x, int64_t n_rows, int64_t stride)
{
    double *const sums = w->sums + matrix * w->n_in;
    for (int64_t r = 0; r < n_rows; r++, x += stride)
        for (int64_t i = 0; i < w->n_in; i++) sums[i] += (double)x[i] * (double)x[i];
    w->counts[matrix] += n_rows;
}

void weir_collector_see(void *user, weir_op op, const void *args)
{
    const weir_matmul_args *const call = args;
    if (op != WEIR_OP_MATMUL) return;
    for (int32_t o = 0; o < call->n_outputs; o++) {
        int64_t first = 0;
        watched *const w = find(user, call->outputs[o].weight, &first);
        if (w == NULL || w->n_in != call->n_in) continue;
        if (call->n_groups == 0) add_rows(w, first, call->x, call->n_rows, call->x_stride);
        for (int32_t g = 0; g < call->n_groups; g++) {
            const weir_matmul_group *const group = &call->groups[g];
            add_rows(
                w, first + group->matrix, call->x + group->first * call->x_stride, group->n_rows,
                call->x_stride
            );
        }
    }
}

/* ---- the file -------------------------------------------------------------------------------- */
static bool has_inputs(const watched *w)
{
    int64_t n = 0;
    for (int64_t m = 0; m < w->n_matrices; m++) n += w->counts[m];
    return n > 0;
}

static void name_tensors(weir_gguf_writer *writer, const weir_collector *c, weir_collected *out)
{
    for (size_t i = 0; i < c->n; i++) {
        const watched *const w = &c->tensors[i];
        char name[WEIR_CHECKPOINT_NAME + 16];
        weir_tensor header = {
            .name = name, .n_dims = 2, .dtype = WEIR_F32, .shape = { w->n_matrices, w->n_in }
        };
        for (int64_t m = 0; m < w->n_matrices; m++) out->n_unused += w->counts[m] == 0;
        if (!has_inputs(w)) continue;
        out->n_tensors++;
        (void)snprintf(name, sizeof name, "%s.in_sum2", w->name);
        weir_gguf_add_tensor(writer, &header);
        header.shape[1] = 1;
        (void)snprintf(name, sizeof name, "%s.counts", w->name);
        weir_gguf_add_tensor(writer, &header);
    }
}

static weir_status write_tensor(weir_gguf_writer *writer, const watched *w, weir_error *error)
{
    const size_t n = (size_t)w->n_matrices * (size_t)w->n_in;
    float *const values = weir_memory_take(n * sizeof *values);
    if (values == NULL) return no_memory(error);
    for (size_t i = 0; i < n; i++) {
        const int64_t column = (int64_t)i % w->n_in;
        values[i] = (float)w->sums[(int64_t)i - column + weir_row_ordered(&w->order, column)];
    }
    weir_status status = weir_gguf_writer_add(writer, values, n * sizeof *values, error);
    for (int64_t m = 0; status == WEIR_OK && m < w->n_matrices; m++) {
        const float count = (float)w->counts[m];
        status = weir_gguf_writer_add(writer, &count, sizeof count, error);
    }
    weir_memory_give(values);
    return status;
}

weir_status weir_collector_write(
    weir_collected *out, const weir_collector *c, const char *path, const char *text_name,
    uint32_t n_windows, uint32_t window, weir_error *error
)
{
    weir_gguf_writer *const writer = weir_gguf_writer_new();
    *out = (weir_collected){ 0 };
    if (writer == NULL) return no_memory(error);
    weir_gguf_put_text(writer, "general.type", "imatrix", strlen("imatrix"));
    weir_gguf_begin_texts(writer, "imatrix.datasets", 1);
    weir_gguf_add_text(writer, text_name, strlen(text_name));
    weir_gguf_put_u32(writer, "imatrix.chunk_count", n_windows);
    weir_gguf_put_u32(writer, "imatrix.chunk_size", window);
    name_tensors(writer, c, out);
    weir_status status = out->n_tensors > 0
                             ? weir_gguf_writer_begin(writer, path, error)
                             : weir_error_set(error, WEIR_EINVAL, "no matrix was multiplied");
    for (size_t i = 0; status == WEIR_OK && i < c->n; i++)
        if (has_inputs(&c->tensors[i])) status = write_tensor(writer, &c->tensors[i], error);
    if (status == WEIR_OK) status = weir_gguf_writer_finish(writer, error);
    weir_gguf_writer_close(writer);
    return status;
}
