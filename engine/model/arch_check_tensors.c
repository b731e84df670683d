/* engine/model/arch_check_tensors.c - checks [tensor] of arch files: parameters, their keys, and
 * the parameters that they refer to. */
#include <stdio.h>
#include <string.h>

#include "engine/model/arch_check.h"

static const member tensor_keys[] = { { "gguf", FORM_NAMES, ONCE },
                                      { "hf", FORM_NAMES, ONCE },
                                      { "adapter", FORM_NAMES, ONCE },
                                      { "gguf_transform", FORM_TEXT, ONCE },
                                      { "hf_transform", FORM_TEXT, ONCE },
                                      { "hf_scales", FORM_TEXT, ONCE },
                                      { "hf_factors", FORM_LIST, ONCE },
                                      { "hf_inputs_first", FORM_FLAG, ONCE },
                                      { "or", FORM_TEXT, ONCE },
                                      { "optional", FORM_FLAG, ONCE },
                                      { "fused", FORM_LIST, DIFFERS },
                                      { "groups", FORM_TEXT, DIFFERS },
                                      { "transposed", FORM_FLAG, ONCE },
                                      { "gguf_column", FORM_FLAG, ONCE },
                                      { 0 } };

/* Parameters that the model itself binds (bind.c), in addition to those of its blocks. */
static const char *const model_parameters[] = {
    "embed",
    "norm",
    "output",
    "rope.factors",
    "rope.short",
    "rope.long",
    "embed.layers",
    "embed.layers_proj",
    "embed.layers_norm",
    "layer.mixer_norm",
    "layer.mixer_norm_after",
    "layer.ffn_norm",
    "layer.ffn_norm_after",
    "layer.input_norm_after",
    "layer.scale",
    "mtp.embed_norm",
    "mtp.hidden_norm",
    "mtp.proj",
    "mtp.norm",
};

static const char *parameter_at(const void *names, size_t index)
{
    const weir_arch *const arch = names;
    const weir_block *block;
    if (index < sizeof model_parameters / sizeof *model_parameters) return model_parameters[index];
    index -= sizeof model_parameters / sizeof *model_parameters;
    for (size_t b = 0; (block = weir_block_at(arch->blocks, b)) != NULL; b++) {
        for (const weir_parameter *parameter = block->parameters; parameter->name != NULL;
             parameter++) {
            if (index-- == 0) return parameter->name;
        }
    }
    return NULL;
}

static bool is_per_layer(const char *parameter)
{
    return strncmp(parameter, "embed", 5) != 0 && strcmp(parameter, "norm") != 0 &&
           strcmp(parameter, "output") != 0 && strncmp(parameter, "rope.", 5) != 0;
}

/* `or` uses another parameter's own names: one step, so there can be no cycle. */
static weir_status check_or(const checker *c, const char *parameter, const weir_toml_node *entry)
{
    const weir_toml_node *const node = weir_toml_get(entry, "or");
    const char *const other = weir_toml_string(node, NULL);
    char at[2 * TEXT_LENGTH], text[80];
    if (other == NULL) return WEIR_OK;
    const weir_toml_node *const instead = arch_get(c, "tensor", other);
    const char *wrong = NULL;
    if (!arch_is_listed(other, parameter_at, c->arch))
        return arch_unknown(c, node, "tensor", "parameter after or", other, parameter_at, c->arch);
    if (strcmp(other, parameter) == 0)
        wrong = "is the parameter itself";
    else if (instead == NULL)
        wrong = "has no entry in [tensor]";
    else if (weir_toml_get(instead, "or") != NULL)
        wrong = "has an `or` itself; name the last parameter";
    else if (is_per_layer(parameter) != is_per_layer(other))
        wrong = "belongs to layers where this parameter does not, or vice versa";
    if (wrong == NULL) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s \"%s\": or = \"%s\" %s", arch_place(at, node, "tensor"),
        parameter, arch_shown(text, other), wrong
    );
}

/* ---- parameters of blocks -------------------------------------------------------------------- */
/* Returns NULL if the block has no such parameter. */
static const weir_parameter *find_parameter(const weir_block *block, const char *name)
{
    const weir_parameter *parameter = block->parameters;
    while (parameter->name != NULL && strcmp(parameter->name, name) != 0) parameter++;
    return parameter->name != NULL ? parameter : NULL;
}

static bool is_of_experts(const checker *c, const char *name)
{
    const weir_block *block;
    for (size_t b = 0; (block = weir_block_at(c->arch->blocks, b)) != NULL; b++) {
        const weir_parameter *const parameter = find_parameter(block, name);
        if (parameter != NULL && parameter->kind == WEIR_PARAMETER_EXPERTS) return true;
    }
    return false;
}

/* NAME or [NAMES] or, in an entry, those of its keys. */
static bool names_experts(const weir_toml_node *node)
{
    const char *const text = weir_toml_string(node, NULL);
    bool is_named = text != NULL && strstr(text, "{e}") != NULL;
    for (size_t i = 0; !is_named && i < weir_toml_size(node); i++)
        is_named = names_experts(weir_toml_at(node, i, NULL));
    return is_named;
}

static weir_status check_experts(
    const checker *c, const char *parameter, const weir_toml_node *entry
)
{
    char at[2 * TEXT_LENGTH];
    if (!names_experts(entry) || is_of_experts(c, parameter)) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG,
        "%s \"%s\": {e} is the number of an expert, and this parameter has no matrix for each",
        arch_place(at, entry, "tensor"), parameter
    );
}

/* ---- fused ----------------------------------------------------------------------------------- */
/* True if a block has all parameters of the list, and they are of one kind. */
static bool is_in_one_block(const checker *c, const char *own, const weir_toml_node *list)
{
    const weir_block *block;
    for (size_t b = 0; (block = weir_block_at(c->arch->blocks, b)) != NULL; b++) {
        const weir_parameter *const first = find_parameter(block, own);
        bool has_all = first != NULL;
        for (size_t i = 0; has_all && i < weir_toml_size(list); i++) {
            const weir_parameter *const parameter =
                find_parameter(block, weir_toml_string(weir_toml_at(list, i, NULL), NULL));
            has_all = parameter != NULL && parameter->kind == first->kind;
        }
        if (has_all) return true;
    }
    return false;
}

static size_t count_text(const weir_toml_node *list, const char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < weir_toml_size(list); i++)
        n += strcmp(weir_toml_string(weir_toml_at(list, i, NULL), NULL), text) == 0;
    return n;
}

static bool is_same_list(const weir_toml_node *a, const weir_toml_node *b)
{
    bool is_same = a != NULL && b != NULL && weir_toml_size(a) == weir_toml_size(b);
    for (size_t i = 0; is_same && i < weir_toml_size(a); i++)
        is_same = strcmp(
                      weir_toml_string(weir_toml_at(a, i, NULL), NULL),
                      weir_toml_string(weir_toml_at(b, i, NULL), NULL)
                  ) == 0;
    return is_same;
}

/* The list of one container. Two parameters with different lists would be bound to the same
 * rows. */
static weir_status check_fused_list(
    const checker *c, const char *parameter, const weir_toml_node *list, weir_container container
)
{
    char at[2 * TEXT_LENGTH];
    const char *wrong = NULL, *other = parameter;
    for (size_t i = 0; i < weir_toml_size(list); i++) {
        const weir_toml_node *const node = weir_toml_at(list, i, NULL);
        const char *const name = weir_toml_string(node, NULL);
        if (!arch_is_listed(name, parameter_at, c->arch))
            return arch_unknown(
                c, node, "tensor", "parameter in fused", name, parameter_at, c->arch
            );
        const weir_toml_node *const theirs =
            weir_arch_choice(weir_toml_get(arch_get(c, "tensor", name), "fused"), container);
        other = name;
        if (count_text(list, name) > 1)
            wrong = "is in the list twice";
        else if (!is_same_list(list, theirs))
            wrong = "must have the same list, as the tensor is the same";
        if (wrong != NULL) break;
    }
    if (wrong == NULL && !is_in_one_block(c, parameter, list))
        wrong = "is not of the same block and kind as all others";
    if (wrong == NULL && count_text(list, parameter) == 0) {
        other = parameter;
        wrong = "is not in the list itself";
    }
    if (wrong == NULL) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s \"%s\": fused: \"%s\" %s", arch_place(at, list, "tensor"),
        parameter, other, wrong
    );
}

static weir_status check_fused(const checker *c, const char *parameter, const weir_toml_node *entry)
{
    static const weir_container containers[] = { WEIR_CONTAINER_GGUF, WEIR_CONTAINER_SAFETENSORS };
    const weir_toml_node *const fused = weir_toml_get(entry, "fused");
    for (size_t i = 0; fused != NULL && i < 2; i++) {
        const weir_toml_node *const list = weir_arch_choice(fused, containers[i]);
        if (list != NULL) WEIR_TRY(check_fused_list(c, parameter, list, containers[i]));
    }
    return WEIR_OK;
}

static const char *shape_name_at(const void *names, size_t index)
{
    return (void)names, weir_shape_name(index);
}

/* `groups` is a shape, which [shape] must have. */
static weir_status check_groups(
    const checker *c, const char *parameter, const weir_toml_node *entry
)
{
    static const weir_container containers[] = { WEIR_CONTAINER_GGUF, WEIR_CONTAINER_SAFETENSORS };
    const weir_toml_node *const groups = weir_toml_get(entry, "groups");
    char at[2 * TEXT_LENGTH];
    for (size_t i = 0; groups != NULL && i < 2; i++) {
        const weir_toml_node *const node = weir_arch_choice(groups, containers[i]);
        const char *const name = node != NULL ? weir_toml_string(node, NULL) : NULL;
        if (name == NULL) continue;
        if (!arch_is_listed(name, shape_name_at, NULL))
            return arch_unknown(c, node, "tensor", "shape in groups", name, shape_name_at, NULL);
        if (arch_get(c, "shape", name) == NULL || weir_toml_get(entry, "fused") == NULL)
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s \"%s\": groups = \"%s\" needs %s",
                arch_place(at, node, "tensor"), parameter, name,
                weir_toml_get(entry, "fused") == NULL ? "a list `fused`" : "this shape in [shape]"
            );
    }
    return WEIR_OK;
}

/* `transposed` is about the place of matrices in a fused tensor. */
static weir_status check_transposed(
    const checker *c, const char *parameter, const weir_toml_node *entry
)
{
    const weir_toml_node *const node = weir_toml_get(entry, "transposed");
    const weir_block *block;
    char at[2 * TEXT_LENGTH];
    const char *wrong = NULL;
    if (node == NULL) return WEIR_OK;
    if (weir_toml_get(entry, "fused") == NULL) wrong = "needs a list `fused`";
    for (size_t b = 0; (block = weir_block_at(c->arch->blocks, b)) != NULL; b++) {
        const weir_parameter *const found = find_parameter(block, parameter);
        if (found != NULL && found->kind == WEIR_PARAMETER_VECTOR) wrong = "is about matrices";
    }
    if (wrong == NULL) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s \"%s\": transposed %s", arch_place(at, node, "tensor"),
        parameter, wrong
    );
}

weir_status arch_check_tensors(const checker *c)
{
    const weir_toml_node *const table = weir_toml_get(c->arch->root, "tensor");
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *parameter;
        const weir_toml_node *const entry = weir_toml_at(table, i, &parameter);
        char where[120];
        if (!arch_is_listed(parameter, parameter_at, c->arch))
            return arch_unknown(c, entry, "tensor", "parameter", parameter, parameter_at, c->arch);
        (void)snprintf(where, sizeof where, "tensor] [\"%s\"", parameter);
        WEIR_TRY(check_experts(c, parameter, entry));
        if (arch_fits(entry, FORM_NAMES)) continue; /* the same names in both containers */
        WEIR_TRY(arch_check_members(c, entry, where, tensor_keys));
        WEIR_TRY(check_or(c, parameter, entry));
        WEIR_TRY(check_fused(c, parameter, entry));
        WEIR_TRY(check_groups(c, parameter, entry));
        WEIR_TRY(check_transposed(c, parameter, entry));
    }
    return WEIR_OK;
}
