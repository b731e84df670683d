#include "tools/convert/checkpoint_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/model/rope.h"

/* ---- names ----------------------------------------------------------------------------------- */
static const weir_toml_node *entry_of(const weir_checkpoint *c, const char *parameter)
{
    return weir_toml_get(weir_toml_get(c->arch->root, "tensor"), parameter);
}

/* The first name of a parameter in GGUF, which is not of one expert; NULL: it has none. */
static const char *pattern_of(const weir_checkpoint *c, const char *parameter)
{
    const weir_toml_node *const names =
        weir_arch_choice(entry_of(c, parameter), WEIR_CONTAINER_GGUF);
    const char *const one = names != NULL ? weir_toml_string(names, NULL) : NULL;
    return one != NULL || names == NULL ? one
                                        : weir_toml_string(weir_toml_at(names, 0, NULL), NULL);
}

static void expand(char out[WEIR_CHECKPOINT_NAME], const char *pattern, int64_t layer)
{
    const char *const at = strstr(pattern, "{i}");
    if (at == NULL)
        (void)snprintf(out, WEIR_CHECKPOINT_NAME, "%s", pattern);
    else
        (void)snprintf(
            out, WEIR_CHECKPOINT_NAME, "%.*s%" PRId64 "%s", (int)(at - pattern), pattern, layer,
            at + 3
        );
}

/* The parameters that share a tensor with this one in GGUF; NULL: it has its own. */
static const weir_toml_node *fused_of(const weir_checkpoint *c, const char *parameter)
{
    const weir_toml_node *const fused = weir_toml_get(entry_of(c, parameter), "fused");
    const weir_toml_node *const list =
        fused != NULL ? weir_arch_choice(fused, WEIR_CONTAINER_GGUF) : NULL;
    const char *const own = pattern_of(c, parameter);
    for (size_t i = 0; list != NULL && i < weir_toml_size(list); i++) {
        const char *const other =
            pattern_of(c, weir_toml_string(weir_toml_at(list, i, NULL), NULL));
        if (other == NULL || own == NULL || strcmp(other, own) != 0) return NULL;
    }
    return list;
}

static size_t place_in(const weir_toml_node *list, const char *name)
{
    size_t i = 0;
    while (i < weir_toml_size(list) &&
           strcmp(weir_toml_string(weir_toml_at(list, i, NULL), NULL), name) != 0)
        i++;
    return i;
}

/* ---- blocks of the file ---------------------------------------------------------------------- */
static const weir_block_use *use_in_file(const weir_checkpoint *c, const weir_parameter_source *s)
{
    return s->is_mixer ? &c->mixers[s->layer] : &c->ffns[s->layer];
}

static weir_status open_blocks(weir_checkpoint *c, weir_error *error)
{
    const weir_arch *const own = weir_model_arch_of(c->model);
    const int64_t n = weir_model_shape(c->model)->n_layers;
    const char **const names = weir_memory_take_zero(2 * (size_t)n, sizeof *names);
    weir_status status = WEIR_OK;
    if (names == NULL || c->mixers == NULL || c->ffns == NULL)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for %" PRId64 " layers", n);
    if (status == WEIR_OK) status = weir_arch_layers(own, c->directory, n, names, error);
    if (status == WEIR_OK) status = weir_arch_ffns(own, c->directory, n, names + n, error);
    for (int64_t i = 0; status == WEIR_OK && i < n; i++)
        status = weir_arch_block(
            c->arch, names[i], names[n + i], WEIR_CONTAINER_GGUF, &c->mixers[i], &c->ffns[i], error
        );
    weir_memory_give(names);
    return status;
}

/* ---- targets --------------------------------------------------------------------------------- */
static target *add_target(weir_checkpoint *c)
{
    if (c->n == c->capacity) {
        const size_t more = c->capacity > 0 ? 2 * c->capacity : 256;
        target *const grown = weir_memory_resize(c->targets, more * sizeof *grown);
        if (grown == NULL) return NULL;
        c->targets = grown;
        c->capacity = more;
    }
    c->targets[c->n] = (target){ .n_groups = 1 };
    return &c->targets[c->n++];
}

/* Adds the parameter to the tensor of another one that it shares it with, or to a new one. */
static weir_status add_source(
    weir_checkpoint *c, const weir_parameter_source *source, weir_error *error
)
{
    const weir_toml_node *const list = fused_of(c, source->name);
    target *t = NULL;
    for (size_t i = c->n; list != NULL && t == NULL && i-- > 0;) {
        target *const other = &c->targets[i];
        if (other->n_parts > 0 && other->parts[0].source.layer == source->layer &&
            place_in(list, other->parts[0].source.name) < weir_toml_size(list))
            t = other;
    }
    if (t == NULL) t = add_target(c);
    if (t == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory to plan the tensors");
    if (t->n_parts == PARTS)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: [tensor] \"%s\": more than %d fused parameters",
            c->arch->file, source->name, PARTS
        );
    part own = { .source = *source, .matrix = -1 };
    if (source->parameter != NULL)
        WEIR_TRY(weir_row_order_of(
            &own.order, source, weir_model_shape(c->model),
            weir_model_layer_use(c->model, source->layer, source->is_mixer), use_in_file(c, source),
            error
        ));
    size_t at = t->n_parts++;
    for (; list != NULL && at > 0 &&
           place_in(list, t->parts[at - 1].source.name) > place_in(list, source->name);
         at--)
        t->parts[at] = t->parts[at - 1];
    t->parts[at] = own;
    const weir_toml_node *const groups =
        list != NULL ? weir_toml_get(entry_of(c, source->name), "groups") : NULL;
    const weir_toml_node *const shape =
        groups != NULL ? weir_arch_choice(groups, WEIR_CONTAINER_GGUF) : NULL;
    if (shape != NULL)
        t->n_groups = weir_shape_integer(weir_model_shape(c->model), weir_toml_string(shape, NULL));
    if (t->n_groups > 0 && source->n_rows % t->n_groups == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG, "%s: [tensor] \"%s\": its rows do not divide into groups",
        c->arch->file, source->name
    );
}

/* A tensor of numbers that no parameter has; the caller fills it in. */
static weir_status add_numbers(float **out, weir_checkpoint *c, const char *name, weir_error *error)
{
    const int64_t n = weir_model_shape(c->model)->rotary_dim / 2;
    *out = weir_memory_take((size_t)n * sizeof **out);
    target *const t = *out != NULL ? add_target(c) : NULL;
    if (t == NULL) {
        weir_memory_give(*out);
        return weir_error_set(error, WEIR_ENOMEM, "no memory for RoPE's factors");
    }
    t->factors = *out;
    t->n_factors = n;
    t->factor_name = name;
    return WEIR_OK;
}

/* Both of longrope's lists. */
static weir_status add_lists(weir_checkpoint *c, weir_error *error)
{
    static const char *const names[] = { "rope.short", "rope.long" };
    const weir_shape *const shape = weir_model_shape(c->model);
    const weir_arch *const arch = weir_model_arch_of(c->model);
    float *factors;
    for (int i = 0; i < 2; i++) {
        if (pattern_of(c, names[i]) == NULL) return WEIR_OK;
        WEIR_TRY(add_numbers(&factors, c, names[i], error));
        WEIR_TRY(weir_rope_read_list(factors, shape, arch, c->directory, i == 1, error));
    }
    return WEIR_OK;
}

/* rope_freqs.weight: what divides the frequencies without scaling, where GGUF has no other way to
 * say how a checkpoint scales them (llama3, proportional). */
static weir_status add_factors(weir_checkpoint *c, weir_error *error)
{
    const weir_shape *const shape = weir_model_shape(c->model);
    const weir_rope_table *const table = weir_model_rope(c->model);
    weir_rope_settings settings;
    float *factors;
    WEIR_TRY(
        weir_rope_settings_of(&settings, shape, weir_model_arch_of(c->model), c->directory, error)
    );
    if (strcmp(settings.type, "longrope") == 0) return add_lists(c, error);
    if ((strcmp(settings.type, "llama3") != 0 && strcmp(settings.type, "proportional") != 0) ||
        pattern_of(c, "rope.factors") == NULL)
        return WEIR_OK;
    WEIR_TRY(add_numbers(&factors, c, "rope.factors", error));
    weir_rope_frequencies(factors, shape->rope_theta, shape->rotary_dim);
    for (int64_t i = 0; i < shape->rotary_dim / 2; i++)
        factors[i] =
            table->frequencies[i] > 0.0f ? factors[i] / table->frequencies[i] : WEIR_ROPE_UNROTATED;
    return WEIR_OK;
}

weir_status weir_checkpoint_open(
    weir_checkpoint **out, const weir_model *model, const weir_arch *written_as,
    const weir_tensor_directory *directory, weir_error *error
)
{
    weir_checkpoint *const c = weir_memory_take_zero(1, sizeof *c);
    const size_t n_layers = (size_t)weir_model_shape(model)->n_layers;
    weir_parameter_source *sources = NULL;
    size_t n = 0;
    if (c == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory to read a checkpoint");
    *c = (weir_checkpoint){ .model = model,
                            .arch = written_as,
                            .directory = directory,
                            .mixers = weir_memory_take_zero(n_layers, sizeof *c->mixers),
                            .ffns = weir_memory_take_zero(n_layers, sizeof *c->ffns) };
    weir_status status = open_blocks(c, error);
    if (status == WEIR_OK) status = weir_model_sources(&sources, &n, model, error);
    for (size_t i = 0; status == WEIR_OK && i < n; i++) status = add_source(c, &sources[i], error);
    if (status == WEIR_OK) status = add_factors(c, error);
    weir_memory_give(sources);
    if (status == WEIR_OK)
        *out = c;
    else
        weir_checkpoint_close(c);
    return status;
}

void weir_checkpoint_close(weir_checkpoint *c)
{
    if (c == NULL) return;
    const int64_t n_layers = weir_model_shape(c->model)->n_layers;
    for (size_t i = 0; i < c->n; i++) {
        for (size_t p = 0; p < c->targets[i].n_parts; p++)
            weir_memory_give(c->targets[i].parts[p].gathered);
        weir_memory_give(c->targets[i].factors);
    }
    for (int64_t i = 0; i < n_layers; i++) {
        if (c->mixers != NULL) weir_block_use_close(&c->mixers[i]);
        if (c->ffns != NULL) weir_block_use_close(&c->ffns[i]);
    }
    weir_memory_give(c->targets);
    weir_memory_give(c->mixers);
    weir_memory_give(c->ffns);
    weir_memory_give(c->row);
    weir_memory_give(c);
}

/* ---- the plan -------------------------------------------------------------------------------- */
static bool flag(const weir_toml_node *entry, const char *key)
{
    bool out = false;
    (void)weir_toml_bool(weir_toml_get(entry, key), &out);
    return out;
}

/* The parameter of this name in the file's block, whose options may give it another shape. */
static const weir_parameter *parameter_in_file(const weir_checkpoint *c, const part *p)
{
    if (p->source.parameter == NULL) return NULL;
    const weir_block_use *const use = use_in_file(c, &p->source);
    const weir_parameter *found = use->block->parameters;
    while (found->name != NULL && (strcmp(found->name, p->source.name) != 0 ||
                                   (found->wanted != NULL && !found->wanted(use->options))))
        found++;
    return found->name != NULL ? found : NULL;
}

/* The shape of a vector in the file: that of the block's parameter there. */
static void shape_vector(weir_planned *out, const weir_checkpoint *c, const part *p)
{
    const weir_parameter *const parameter = parameter_in_file(c, p);
    const weir_block_use *const use = parameter != NULL ? use_in_file(c, &p->source) : NULL;
    int64_t product = 1;
    for (int32_t i = 0; use != NULL && i < 3 && parameter->dims[i] != NULL; i++) {
        const int64_t dim = parameter->dims[i](weir_model_shape(c->model), use->options);
        out->shape[out->n_dims++] = dim;
        product *= dim;
    }
    if (product != p->source.n_rows || out->n_dims == 0) {
        out->n_dims = 1;
        out->shape[0] = p->source.n_rows;
    }
    if (flag(entry_of(c, p->source.name), "gguf_column")) out->shape[out->n_dims++] = 1;
    out->n_in = out->shape[out->n_dims - 1];
    out->n_rows = p->source.n_rows / out->n_in;
    out->n_matrices = 1;
    out->from = out->to = WEIR_F32;
}

static void shape_matrices(weir_planned *out, const weir_checkpoint *c, const target *t)
{
    const weir_parameter_source *const first = &t->parts[0].source;
    int64_t n_rows = 0;
    for (size_t i = 0; i < t->n_parts; i++) n_rows += t->parts[i].source.n_rows;
    if (first->kind == WEIR_PARAMETER_EXPERTS || first->kind == WEIR_PARAMETER_HEADS)
        out->shape[out->n_dims++] = first->n_matrices;
    out->shape[out->n_dims++] = n_rows;
    out->shape[out->n_dims++] = first->n_in;
    out->n_matrices = first->n_matrices;
    out->n_rows = n_rows * first->n_matrices;
    out->n_in = first->n_in;
    out->from = weir_source_dtype(c->model, first);
    for (size_t i = 1; i < t->n_parts; i++)
        if (weir_source_dtype(c->model, &t->parts[i].source) != out->from) out->from = WEIR_F32;
}

weir_status weir_checkpoint_name(
    const weir_checkpoint *c, const target *t, char out[WEIR_CHECKPOINT_NAME], weir_error *error
)
{
    const weir_parameter_source *const first = t->n_parts > 0 ? &t->parts[0].source : NULL;
    const char *const parameter = first != NULL ? first->name : t->factor_name;
    const char *const pattern = pattern_of(c, parameter);
    if (pattern == NULL)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: [tensor] has no gguf name for \"%s\"", c->arch->file,
            parameter
        );
    expand(out, pattern, first != NULL ? first->layer : 0);
    return WEIR_OK;
}

static weir_status plan_target(
    weir_plan *plan, weir_checkpoint *c, size_t index, weir_typed typed, const weir_mix *mix,
    weir_error *error
)
{
    const target *const t = &c->targets[index];
    const weir_parameter_source *const first = t->n_parts > 0 ? &t->parts[0].source : NULL;
    weir_planned planned = { .index = index };
    char name[WEIR_CHECKPOINT_NAME];
    WEIR_TRY(weir_checkpoint_name(c, t, name, error));
    if (first == NULL) {
        planned.n_dims = 1;
        planned.shape[0] = planned.n_in = t->n_factors;
        planned.n_matrices = planned.n_rows = 1;
        planned.from = planned.to = WEIR_F32;
    } else if (first->kind == WEIR_PARAMETER_VECTOR) {
        shape_vector(&planned, c, &t->parts[0]);
    } else {
        shape_matrices(&planned, c, t);
        typed.name = name;
        typed.n_dims = planned.n_dims;
        typed.n_in = planned.n_in;
        planned.to = weir_mix_type(mix, &typed);
        /* What a checkpoint has in blocks loses by any other type. */
        if (weir_dtype_of(planned.from).quantised) planned.to = planned.from;
        planned.is_copied = planned.to == planned.from && weir_dtype_of(planned.from).quantised;
    }
    planned.name = weir_memory_text(name);
    return planned.name != NULL
               ? weir_plan_add(plan, &planned, error)
               : weir_error_set(error, WEIR_ENOMEM, "no memory to plan the tensors");
}

weir_status weir_plan_from_checkpoint(
    weir_plan *plan, weir_checkpoint *c, const weir_mix *mix, weir_error *error
)
{
    const weir_shape *const shape = weir_model_shape(c->model);
    const weir_typed typed = { .n_layers = shape->n_layers,
                               .n_experts = shape->n_experts,
                               .n_grouped =
                                   shape->n_kv_heads > 0 ? shape->n_heads / shape->n_kv_heads : 1,
                               .is_tied = weir_model_tied(c->model) };
    for (size_t i = 0; i < c->n; i++) WEIR_TRY(plan_target(plan, c, i, typed, mix, error));
    return WEIR_OK;
}
