/* engine/model/arch_check_tensors.c - checks [tensor] of arch files: slots, their keys, and the
 * slots that they refer to. */
#include <stdio.h>
#include <string.h>

#include "engine/model/arch_check.h"

static const member tensor_keys[] = {
    { "gguf", FORM_NAMES, ONCE },        { "hf", FORM_NAMES, ONCE },
    { "adapter", FORM_NAMES, ONCE },     { "gguf_transform", FORM_TEXT, ONCE },
    { "hf_transform", FORM_TEXT, ONCE }, { "hf_scales", FORM_TEXT, ONCE },
    { "or", FORM_TEXT, ONCE },           { "optional", FORM_FLAG, ONCE },
    { "fused", FORM_LIST, DIFFERS },     { "groups", FORM_TEXT, DIFFERS },
    { "transposed", FORM_FLAG, ONCE },   { 0 }
};

/* Slots that the model itself binds (bind.c), in addition to those of its blocks. */
static const char *const model_slots[] = {
    "embed",
    "norm",
    "output",
    "rope.factors",
    "layer.mixer_norm",
    "layer.mixer_norm_after",
    "layer.ffn_norm",
    "layer.ffn_norm_after",
};

static const char *slot_at(const void *names, size_t index)
{
    const weir_arch *const arch = names;
    const weir_block *block;
    if (index < sizeof model_slots / sizeof *model_slots) return model_slots[index];
    index -= sizeof model_slots / sizeof *model_slots;
    for (size_t b = 0; (block = weir_block_at(arch->blocks, b)) != NULL; b++) {
        for (const weir_slot *slot = block->slots; slot->name != NULL; slot++) {
            if (index-- == 0) return slot->name;
        }
    }
    return NULL;
}

static bool is_per_layer(const char *slot)
{
    return strcmp(slot, "embed") != 0 && strcmp(slot, "norm") != 0 && strcmp(slot, "output") != 0 &&
           strcmp(slot, "rope.factors") != 0;
}

/* `or` uses another slot's own names: one step, so there can be no cycle. */
static weir_status check_or(const checker *c, const char *slot, const weir_toml_node *entry)
{
    const weir_toml_node *const node = weir_toml_get(entry, "or");
    const char *const other = weir_toml_string(node, NULL);
    char at[2 * TEXT_LENGTH], text[80];
    if (other == NULL) return WEIR_OK;
    const weir_toml_node *const instead = arch_get(c, "tensor", other);
    const char *wrong = NULL;
    if (!arch_is_listed(other, slot_at, c->arch))
        return arch_unknown(c, node, "tensor", "slot after or", other, slot_at, c->arch);
    if (strcmp(other, slot) == 0)
        wrong = "is the slot itself";
    else if (instead == NULL)
        wrong = "has no entry in [tensor]";
    else if (weir_toml_get(instead, "or") != NULL)
        wrong = "has an `or` itself; name the last slot";
    else if (is_per_layer(slot) != is_per_layer(other))
        wrong = "belongs to layers where this slot does not, or vice versa";
    if (wrong == NULL) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s \"%s\": or = \"%s\" %s", arch_place(at, node, "tensor"), slot,
        arch_shown(text, other), wrong
    );
}

/* ---- slots of blocks ------------------------------------------------------------------------- */
/* Returns NULL if the block has no such slot. */
static const weir_slot *find_slot(const weir_block *block, const char *name)
{
    const weir_slot *slot = block->slots;
    while (slot->name != NULL && strcmp(slot->name, name) != 0) slot++;
    return slot->name != NULL ? slot : NULL;
}

static bool is_of_experts(const checker *c, const char *name)
{
    const weir_block *block;
    for (size_t b = 0; (block = weir_block_at(c->arch->blocks, b)) != NULL; b++) {
        const weir_slot *const slot = find_slot(block, name);
        if (slot != NULL && slot->kind == WEIR_SLOT_EXPERTS) return true;
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

static weir_status check_experts(const checker *c, const char *slot, const weir_toml_node *entry)
{
    char at[2 * TEXT_LENGTH];
    if (!names_experts(entry) || is_of_experts(c, slot)) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG,
        "%s \"%s\": {e} is the number of an expert, and this slot has no matrix for each",
        arch_place(at, entry, "tensor"), slot
    );
}

/* ---- fused ----------------------------------------------------------------------------------- */
/* True if a block has all slots of the list, and they are of one kind. */
static bool is_in_one_block(const checker *c, const char *own, const weir_toml_node *list)
{
    const weir_block *block;
    for (size_t b = 0; (block = weir_block_at(c->arch->blocks, b)) != NULL; b++) {
        const weir_slot *const first = find_slot(block, own);
        bool has_all = first != NULL;
        for (size_t i = 0; has_all && i < weir_toml_size(list); i++) {
            const weir_slot *const slot =
                find_slot(block, weir_toml_string(weir_toml_at(list, i, NULL), NULL));
            has_all = slot != NULL && slot->kind == first->kind;
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

/* The list of one container. Two slots with different lists would be bound to the same rows. */
static weir_status check_fused_list(
    const checker *c, const char *slot, const weir_toml_node *list, weir_container container
)
{
    char at[2 * TEXT_LENGTH];
    const char *wrong = NULL, *other = slot;
    for (size_t i = 0; i < weir_toml_size(list); i++) {
        const weir_toml_node *const node = weir_toml_at(list, i, NULL);
        const char *const name = weir_toml_string(node, NULL);
        if (!arch_is_listed(name, slot_at, c->arch))
            return arch_unknown(c, node, "tensor", "slot in fused", name, slot_at, c->arch);
        const weir_toml_node *const theirs =
            weir_arch_choice(weir_toml_get(arch_get(c, "tensor", name), "fused"), container);
        other = name;
        if (count_text(list, name) > 1)
            wrong = "is in the list twice";
        else if (!is_same_list(list, theirs))
            wrong = "must have the same list, as the tensor is the same";
        if (wrong != NULL) break;
    }
    if (wrong == NULL && !is_in_one_block(c, slot, list))
        wrong = "is not of the same block and kind as all others";
    if (wrong == NULL && count_text(list, slot) == 0) {
        other = slot;
        wrong = "is not in the list itself";
    }
    if (wrong == NULL) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s \"%s\": fused: \"%s\" %s", arch_place(at, list, "tensor"), slot,
        other, wrong
    );
}

static weir_status check_fused(const checker *c, const char *slot, const weir_toml_node *entry)
{
    static const weir_container containers[] = { WEIR_CONTAINER_GGUF, WEIR_CONTAINER_SAFETENSORS };
    const weir_toml_node *const fused = weir_toml_get(entry, "fused");
    for (size_t i = 0; fused != NULL && i < 2; i++) {
        const weir_toml_node *const list = weir_arch_choice(fused, containers[i]);
        if (list != NULL) WEIR_TRY(check_fused_list(c, slot, list, containers[i]));
    }
    return WEIR_OK;
}

static const char *shape_name_at(const void *names, size_t index)
{
    return (void)names, weir_shape_name(index);
}

/* `groups` is a shape, which [shape] must have. */
static weir_status check_groups(const checker *c, const char *slot, const weir_toml_node *entry)
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
                arch_place(at, node, "tensor"), slot, name,
                weir_toml_get(entry, "fused") == NULL ? "a list `fused`" : "this shape in [shape]"
            );
    }
    return WEIR_OK;
}

/* `transposed` is about the place of matrices in a fused tensor. */
static weir_status check_transposed(const checker *c, const char *slot, const weir_toml_node *entry)
{
    const weir_toml_node *const node = weir_toml_get(entry, "transposed");
    const weir_block *block;
    char at[2 * TEXT_LENGTH];
    const char *wrong = NULL;
    if (node == NULL) return WEIR_OK;
    if (weir_toml_get(entry, "fused") == NULL) wrong = "needs a list `fused`";
    for (size_t b = 0; (block = weir_block_at(c->arch->blocks, b)) != NULL; b++) {
        const weir_slot *const found = find_slot(block, slot);
        if (found != NULL && found->kind == WEIR_SLOT_VECTOR) wrong = "is about matrices";
    }
    if (wrong == NULL) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s \"%s\": transposed %s", arch_place(at, node, "tensor"), slot,
        wrong
    );
}

weir_status arch_check_tensors(const checker *c)
{
    const weir_toml_node *const table = weir_toml_get(c->arch->root, "tensor");
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *slot;
        const weir_toml_node *const entry = weir_toml_at(table, i, &slot);
        char where[120];
        if (!arch_is_listed(slot, slot_at, c->arch))
            return arch_unknown(c, entry, "tensor", "slot", slot, slot_at, c->arch);
        (void)snprintf(where, sizeof where, "tensor] [\"%s\"", slot);
        WEIR_TRY(check_experts(c, slot, entry));
        if (arch_fits(entry, FORM_NAMES)) continue; /* the same names in both containers */
        WEIR_TRY(arch_check_members(c, entry, where, tensor_keys));
        WEIR_TRY(check_or(c, slot, entry));
        WEIR_TRY(check_fused(c, slot, entry));
        WEIR_TRY(check_groups(c, slot, entry));
        WEIR_TRY(check_transposed(c, slot, entry));
    }
    return WEIR_OK;
}
