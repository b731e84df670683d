/* engine/model/bind_mtp.c - binds the tensors of a draft head. Files may lack some of them, as the
 * model answers without: then it has no head, and says why if one is wanted. */
#include <stdio.h>
#include <string.h>

#include "engine/model/bind_internal.h"

/* The first problem, for a message. */
static void keep_problem(weir_mtp_head *head, const binder *b)
{
    const char *text = b->problems.data != NULL ? b->problems.data : "";
    while (*text == '\n' || *text == ' ') text++;
    int n = 0;
    while (text[n] != '\0' && text[n] != '\n') n++;
    (void)snprintf(head->problem, sizeof head->problem, "%.*s", n, text);
}

static void sum_bytes(weir_mtp_head *head, const weir_model *model)
{
    for (size_t i = head->first_matrix; i < model->n_matrices; i++) {
        const bound_matrix *const matrix = &model->matrices[i];
        const bool is_read = !matrix->is_expert || matrix->expert < model->shape.n_experts_used;
        head->bytes += model->weights[i].bytes;
        head->read_bytes += is_read ? model->weights[i].bytes : 0;
    }
}

void weir_bind_mtp(weir_model *model)
{
    weir_mtp_head *const head = &model->mtp;
    const weir_toml_node *const table = weir_toml_get(model->arch->root, "mtp");
    const int64_t d = model->shape.d_model, layer = model->shape.n_layers;
    const size_t n_matrices = model->n_matrices, n_vectors = model->n_vectors,
                 n_arrays = model->n_expert_arrays;
    binder b = { .model = model,
                 .table = weir_toml_get(model->arch->root, "tensor"),
                 .container = weir_tensor_directory_container(model->directory) };
    head->first_matrix = n_matrices;
    head->first_vector = n_vectors;
    if (!head->is_planned) return;
    if (b.container == WEIR_CONTAINER_SAFETENSORS) {
        b.prefix = weir_toml_string(weir_toml_get(table, "hf_prefix"), NULL);
        b.prefix_layer = layer;
        (void)weir_toml_int(weir_toml_get(table, "hf_layer"), &b.prefix_layer);
    }
    const char *const next = weir_toml_string(weir_toml_get(table, "next_hidden"), NULL);
    head->reads_stream = next != NULL && strcmp(next, "before_norm") == 0;
    weir_bind_matrix(&b, "mtp.proj", layer, d, 2 * d, &head->proj);
    weir_bind_vector(&b, "mtp.embed_norm", layer, d, &head->embed_norm);
    weir_bind_vector(&b, "mtp.hidden_norm", layer, d, &head->hidden_norm);
    weir_bind_vector(&b, "mtp.norm", layer, d, &head->norm);
    if (b.n_problems == 0) weir_bind_layer(&b, layer);
    head->is_there = b.n_problems == 0;
    if (!head->is_there) {
        keep_problem(head, &b);
        for (size_t i = n_matrices; i < model->n_matrices; i++)
            weir_weight_release(&model->weights[i]);
        model->n_matrices = n_matrices;
        model->n_vectors = n_vectors;
        model->n_expert_arrays = n_arrays;
    }
    sum_bytes(head, model);
    weir_buffer_free(&b.problems);
}
