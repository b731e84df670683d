#include "engine/model/sources.h"

#include "engine/base/memory.h"
#include "engine/model/model_internal.h"

/* `first` of the tables whose rows are read from the file, which are no matrices of the model. */
enum { EMBEDDING = -1, LAYER_EMBEDDING = -2 };

typedef struct list {
    const weir_model *model;
    weir_parameter_source *sources;
    size_t n, capacity;
    bool is_short; /* of memory */
} list;

static void add(list *l, weir_parameter_source source)
{
    if (l->n == l->capacity) {
        const size_t more = l->capacity > 0 ? 2 * l->capacity : 256;
        weir_parameter_source *const grown =
            weir_memory_resize(l->sources, more * sizeof *l->sources);
        if (grown == NULL) {
            l->is_short = true;
            return;
        }
        l->sources = grown;
        l->capacity = more;
    }
    l->sources[l->n++] = source;
}

/* The vector that was bound to this place, if any; without a tensor it has no source. */
static void add_vector(list *l, weir_parameter_source source, const float *const *place)
{
    for (size_t i = 0; i < l->model->n_vectors; i++) {
        const bound_vector *const vector = &l->model->vectors[i];
        if (vector->parameter != place || vector->tensor == NULL) continue;
        source.kind = WEIR_PARAMETER_VECTOR;
        source.n_matrices = source.n_in = 1;
        source.n_rows = weir_vector_elements(vector);
        source.first = i;
        add(l, source);
        return;
    }
}

static void add_matrices(list *l, weir_parameter_source source, const weir_weight *first, int64_t n)
{
    if (first == NULL) return;
    source.n_matrices = n;
    source.n_rows = first->n_out;
    source.n_in = first->n_in;
    source.first = (size_t)(first - l->model->weights);
    add(l, source);
}

static void add_table(list *l, const char *name, const weir_tensor *tensor, int64_t first)
{
    if (tensor == NULL) return;
    add(l, (weir_parameter_source){ .name = name,
                                    .layer = -1,
                                    .kind = WEIR_PARAMETER_MATRIX,
                                    .n_matrices = 1,
                                    .n_rows = tensor->shape[0],
                                    .n_in = tensor->shape[1],
                                    .first = (size_t)first });
}

static void add_block(list *l, int64_t index, const weir_block_use *use, void *weights)
{
    const weir_shape *const shape = &l->model->shape;
    for (const weir_parameter *p = use->block->parameters; p->name != NULL; p++) {
        if (p->wanted != NULL && !p->wanted(use->options)) continue;
        void *const place = (char *)weights + p->offset;
        const weir_parameter_source source = { .name = p->name,
                                               .layer = index,
                                               .kind = p->kind,
                                               .parameter = use->block->is_alike ? NULL : p,
                                               .is_mixer = use->block->kind == WEIR_BLOCK_MIXER };
        switch (p->kind) {
        case WEIR_PARAMETER_VECTOR: add_vector(l, source, place); break;
        case WEIR_PARAMETER_MATRIX:
            add_matrices(l, source, *(const weir_weight *const *)place, 1);
            break;
        case WEIR_PARAMETER_EXPERTS:
        case WEIR_PARAMETER_HEADS:
            add_matrices(
                l, source, *(const weir_weight *const *)place, p->dims[0](shape, use->options)
            );
            break;
        }
    }
}

static void add_layer(list *l, int64_t index)
{
    layer *const own = &l->model->layers[index];
    const weir_parameter_source norm = { .layer = index };
    const struct {
        const char *name;
        const float *const *place;
    } norms[] = { { "layer.mixer_norm", &own->mixer_norm },
                  { "layer.mixer_norm_after", &own->mixer_norm_after },
                  { "layer.ffn_norm", &own->ffn_norm },
                  { "layer.ffn_norm_after", &own->ffn_norm_after },
                  { "layer.input_norm_after", &own->input_norm_after },
                  { "layer.scale", &own->scale } };
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
        weir_parameter_source source = norm;
        source.name = norms[i].name;
        source.is_mixer = i < 2;
        add_vector(l, source, norms[i].place);
    }
    add_block(l, index, &own->mixer, own->mixer_weights);
    add_block(l, index, &own->ffn, own->ffn_weights);
    if (own->input.block != NULL) add_block(l, index, &own->input, own->input_weights);
}

weir_status weir_model_sources(
    weir_parameter_source **out, size_t *n, const weir_model *model, weir_error *error
)
{
    list l = { .model = model };
    add_table(&l, "embed", model->embedding, EMBEDDING);
    add_table(&l, "embed.layers", model->layer_embedding, LAYER_EMBEDDING);
    for (int64_t i = 0; i < model->shape.n_layers; i++) add_layer(&l, i);
    const weir_parameter_source end = { .layer = -1 };
    weir_parameter_source norm = end, output = end, projection = end, inputs_norm = end;
    norm.name = "norm";
    output.name = "output";
    output.kind = WEIR_PARAMETER_MATRIX;
    projection.name = "embed.layers_proj";
    projection.kind = WEIR_PARAMETER_MATRIX;
    inputs_norm.name = "embed.layers_norm";
    add_vector(&l, norm, &model->output_norm);
    add_matrices(&l, projection, model->layer_projection, 1);
    add_vector(&l, inputs_norm, &model->layer_projection_norm);
    if (!weir_model_tied(model)) add_matrices(&l, output, model->output, 1);
    if (l.is_short) {
        weir_memory_give(l.sources);
        return weir_error_set(error, WEIR_ENOMEM, "no memory to list the model's parameters");
    }
    *out = l.sources;
    *n = l.n;
    return WEIR_OK;
}

static bool is_table(const weir_parameter_source *source)
{
    return source->first == (size_t)EMBEDDING || source->first == (size_t)LAYER_EMBEDDING;
}

static const weir_tensor *table_of(const weir_model *model, const weir_parameter_source *source)
{
    return source->first == (size_t)EMBEDDING ? model->embedding : model->layer_embedding;
}

/* NULL: its rows are those of a table. */
static const bound_matrix *matrix_of(
    const weir_model *model, const weir_parameter_source *source, int64_t index
)
{
    WEIR_ASSERT(source->kind != WEIR_PARAMETER_VECTOR && index < source->n_matrices);
    return is_table(source) ? NULL : &model->matrices[source->first + (size_t)index];
}

weir_dtype weir_source_dtype(const weir_model *model, const weir_parameter_source *source)
{
    if (source->kind == WEIR_PARAMETER_VECTOR) return WEIR_F32;
    const bound_matrix *const matrix = matrix_of(model, source, 0);
    return matrix != NULL ? matrix->dtype : table_of(model, source)->dtype;
}

float weir_source_factor(const weir_model *model, const weir_parameter_source *source)
{
    return source->first == (size_t)EMBEDDING && source->kind == WEIR_PARAMETER_MATRIX
               ? model->embedding_factor
               : 1.0f;
}

size_t weir_source_gathered(const weir_model *model, const weir_parameter_source *source)
{
    if (source->kind == WEIR_PARAMETER_VECTOR) return 0;
    const bound_matrix *const matrix = matrix_of(model, source, 0);
    return matrix != NULL && weir_matrix_is_scattered(matrix, source->n_rows)
               ? weir_row_bytes(matrix->dtype, source->n_in) * (size_t)source->n_rows
               : 0;
}

const unsigned char *weir_source_rows(
    const weir_model *model, const weir_parameter_source *source, int64_t index,
    unsigned char *gathered
)
{
    const bound_matrix *const matrix = matrix_of(model, source, index);
    if (matrix == NULL) return table_of(model, source)->data;
    if (!weir_matrix_is_scattered(matrix, source->n_rows)) return matrix->data;
    weir_matrix_gather(
        gathered, matrix, source->n_rows, source->n_in, weir_stream_threads(model->stream)
    );
    return gathered;
}

weir_status weir_source_vector(
    const weir_model *model, const weir_parameter_source *source, float *out, weir_error *error
)
{
    WEIR_ASSERT(source->kind == WEIR_PARAMETER_VECTOR);
    const bound_vector *const vector = &model->vectors[source->first];
    bound_vector own = *vector;
    const float *unused;
    own.parameter = &unused;
    own.count = source->n_rows; /* of one element that is repeated: that one */
    own.scale = 0.0f; /* a scale of the model, not of the checkpoint's elements */
    return weir_load_vector(
        &own, out, weir_tensor_directory_path(weir_model_directory_of(model, own.tensor)), error
    );
}

const weir_weight *weir_source_weights(const weir_model *model, const weir_parameter_source *source)
{
    if (source->kind == WEIR_PARAMETER_VECTOR) return NULL;
    if (!is_table(source)) return &model->weights[source->first];
    return source->first == (size_t)EMBEDDING && weir_model_tied(model) ? model->output : NULL;
}

const weir_tensor *weir_source_tensor(const weir_model *model, const weir_parameter_source *source)
{
    if (source->kind == WEIR_PARAMETER_VECTOR) return model->vectors[source->first].tensor;
    const bound_matrix *const matrix = matrix_of(model, source, 0);
    return matrix != NULL ? matrix->tensor : table_of(model, source);
}

void weir_source_release(const weir_model *model, const weir_parameter_source *source)
{
    if (source->kind == WEIR_PARAMETER_VECTOR) return;
    for (int64_t i = 0; i < source->n_matrices; i++) {
        const bound_matrix *const matrix = matrix_of(model, source, i);
        const weir_tensor *const tensor = matrix != NULL ? matrix->tensor : table_of(model, source);
        if (i == 0 || matrix->tensor != matrix_of(model, source, i - 1)->tensor)
            weir_tensor_release(weir_model_directory_of(model, tensor), tensor);
    }
}

const weir_block_use *weir_model_layer_use(const weir_model *model, int64_t index, bool is_mixer)
{
    return is_mixer ? &model->layers[index].mixer : &model->layers[index].ffn;
}

const weir_arch *weir_model_arch_of(const weir_model *model) { return model->arch; }
