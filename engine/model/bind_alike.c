/* engine/model/bind_alike.c - matrices that all layers with the same block and options have, or
 * none of them: where one lacks what another has, the file is damaged. */
#include <string.h>

#include "engine/model/bind_internal.h"

static bool is_same_use(const weir_block_use *a, const weir_block_use *b)
{
    return strcmp(a->block->name, b->block->name) == 0 &&
           (a->block->options_bytes == 0 ||
            memcmp(a->options, b->options, a->block->options_bytes) == 0);
}

static bool has_matrix(const layer *l, const weir_parameter *parameter)
{
    const weir_weight *matrix;
    memcpy(&matrix, (const char *)l->mixer_weights + parameter->offset, sizeof matrix);
    return matrix != NULL;
}

static void compare_layers(
    binder *b, int64_t first, int64_t second, const weir_parameter *parameter
)
{
    const layer *const layers = b->model->layers;
    const bool has_first = has_matrix(&layers[first], parameter);
    if (has_first == has_matrix(&layers[second], parameter)) return;
    const wanted w = { .parameter = parameter->name,
                       .entry = weir_toml_get(b->table, parameter->name),
                       .layer = has_first ? second : first };
    weir_bind_report_missing(b, &w, weir_bind_find(b, &w, 0).name, 0);
}

void weir_bind_check_alike(binder *b)
{
    const layer *const layers = b->model->layers;
    for (int64_t i = 1; i < b->model->shape.n_layers; i++) {
        const weir_block_use *const use = &layers[i].mixer;
        int64_t first = 0;
        while (!is_same_use(&layers[first].mixer, use)) first++; /* it ends with i */
        for (const weir_parameter *p = use->block->parameters; p->name != NULL; p++)
            if (p->all_or_none && (p->wanted == NULL || p->wanted(use->options)))
                compare_layers(b, first, i, p);
    }
}
