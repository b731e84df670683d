/* engine/model/arch_check_blocks.c - checks the tables of an arch file that name blocks,
 * [block.NAME] and [ffn]: their keys must be options that the blocks declare. */
#include <stdio.h>
#include <string.h>

#include "engine/model/arch_check.h"

/* A table that names a block for each container, or for one of them. */
typedef struct block_table {
    const checker *checker;
    weir_block_kind kind;
    const weir_toml_node *node;
    const char *where; /* "block.attn" */
    const weir_block *in[2]; /* by container */
} block_table;

/* Keys that are not options: the block's name, and the FFN of a mixer. */
static const member mixer_keys[] = { { "mixer", FORM_TEXT, DIFFERS },
                                     { "ffn", FORM_TEXT, DIFFERS },
                                     { 0 } };
static const member ffn_keys[] = { { "kind", FORM_TEXT, DIFFERS }, { 0 } };

static const member *own_keys(weir_block_kind kind)
{
    return kind == WEIR_BLOCK_MIXER ? mixer_keys : ffn_keys;
}

/* The table's own keys, then the options of its blocks. */
static const char *block_key_at(const void *names, size_t index)
{
    const block_table *const t = names;
    for (const member *m = own_keys(t->kind); m->name != NULL; m++)
        if (index-- == 0) return m->name;
    for (size_t b = 0; b < 2; b++) {
        const weir_block_option *option = t->in[b] != NULL ? t->in[b]->options : NULL;
        for (; option != NULL && option->name != NULL; option++)
            if (index-- == 0) return option->name;
    }
    return NULL;
}

/* A value, or one for each container. */
static weir_status check_option(
    const block_table *t, const weir_toml_node *value, const weir_block_option *option
)
{
    const checker *const c = t->checker;
    char at[2 * TEXT_LENGTH];
    if (weir_toml_type_of(value) == WEIR_TOML_TABLE) {
        const weir_toml_node *const gguf = weir_toml_get(value, "gguf"), *const hf = weir_toml_get(
                                                                             value, "hf"
                                                                         );
        if (weir_toml_size(value) != (size_t)(gguf != NULL) + (size_t)(hf != NULL))
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s %s: a value by container is { gguf = .., hf = .. }",
                arch_place(at, value, t->where), option->name
            );
        if (gguf != NULL) WEIR_TRY(check_option(t, gguf, option));
        return hf != NULL ? check_option(t, hf, option) : WEIR_OK;
    }
    weir_error why = { 0 };
    if (weir_block_option_set(NULL, option, value, &why) == WEIR_OK) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s %s", arch_place(at, value, t->where), why.text
    );
}

static weir_status check_block_key(
    const block_table *t, const char *key, const weir_toml_node *value
)
{
    for (const member *m = own_keys(t->kind); m->name != NULL; m++)
        if (strcmp(m->name, key) == 0) return arch_check_value(t->checker, value, t->where, m);
    for (size_t b = 0; b < 2; b++) {
        const weir_block_option *const option =
            t->in[b] != NULL ? weir_block_option_find(t->in[b]->options, key) : NULL;
        if (option != NULL) return check_option(t, value, option);
    }
    return arch_unknown(t->checker, value, t->where, "key", key, block_key_at, t);
}

static const char *block_name_at(const void *names, size_t index)
{
    const block_table *const t = names;
    const weir_block *block;
    for (size_t i = 0; (block = weir_block_at(t->checker->arch->blocks, i)) != NULL; i++)
        if (block->kind == t->kind && index-- == 0) return block->name;
    return NULL;
}

/* The block of one container; it must exist if the table names one. */
static weir_status find_block(block_table *t, weir_container container, const weir_block **out)
{
    const char *const key = weir_block_key(t->kind);
    const weir_toml_node *const node = weir_arch_choice(weir_toml_get(t->node, key), container);
    const char *const name = node != NULL ? weir_toml_string(node, NULL) : NULL;
    char at[2 * TEXT_LENGTH], text[80];
    *out = weir_arch_table_block(t->checker->arch, t->kind, t->node, container);
    if (*out != NULL || name == NULL) return WEIR_OK;
    return weir_error_set(
        t->checker->error, WEIR_ECONFIG, "%s %s '%s' is not known; the nearest is '%s'",
        arch_place(at, node, t->where), key, arch_shown(text, name),
        arch_nearest(name, block_name_at, t)
    );
}

static weir_status check_block(
    const checker *c, weir_block_kind kind, const weir_toml_node *node, const char *where
)
{
    block_table t = { .checker = c, .kind = kind, .node = node, .where = where };
    const member *const names_block = own_keys(kind);
    const weir_toml_node *const named = weir_toml_get(node, names_block->name);
    char at[2 * TEXT_LENGTH];
    if (weir_toml_type_of(node) != WEIR_TOML_TABLE)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s must be a table, not %s", arch_place(at, node, where),
            weir_toml_type_name(weir_toml_type_of(node))
        );
    if (named != NULL) WEIR_TRY(arch_check_value(c, named, where, names_block));
    WEIR_TRY(find_block(&t, WEIR_CONTAINER_GGUF, &t.in[0]));
    WEIR_TRY(find_block(&t, WEIR_CONTAINER_SAFETENSORS, &t.in[1]));
    if (t.in[0] == NULL && t.in[1] == NULL)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s has no %s", arch_place(at, node, where), names_block->name
        );
    for (size_t i = 0; i < weir_toml_size(node); i++) {
        const char *key;
        const weir_toml_node *const value = weir_toml_at(node, i, &key);
        WEIR_TRY(check_block_key(&t, key, value));
    }
    return WEIR_OK;
}

/* True if [ffn] with its kind is the FFN of all layers. Otherwise it has tables [ffn.NAME]. */
static bool has_one_ffn(const checker *c) { return arch_get(c, "ffn", "kind") != NULL; }

static weir_status check_ffns(const checker *c)
{
    const weir_toml_node *const all = weir_toml_get(c->arch->root, "ffn");
    char at[2 * TEXT_LENGTH];
    if (has_one_ffn(c)) return check_block(c, WEIR_BLOCK_FFN, all, "ffn");
    for (size_t i = 0; i < weir_toml_size(all); i++) {
        const char *name;
        const weir_toml_node *const node = weir_toml_at(all, i, &name);
        char where[120], text[80];
        if (weir_toml_type_of(node) != WEIR_TOML_TABLE)
            return arch_unknown(c, node, "ffn", "key", name, arch_member_at, ffn_keys);
        (void)snprintf(where, sizeof where, "ffn.%s", arch_shown(text, name));
        WEIR_TRY(check_block(c, WEIR_BLOCK_FFN, node, where));
    }
    if (weir_toml_size(all) > 0) return WEIR_OK;
    return weir_error_set(c->error, WEIR_ECONFIG, "%s has no kind", arch_place(at, all, "ffn"));
}

/* A block must name an FFN of [ffn.NAME] if and only if there are such, and [layers] has no rule
 * for them. */
static weir_status check_choice(const checker *c, const weir_toml_node *block, const char *where)
{
    static const weir_container containers[] = { WEIR_CONTAINER_GGUF, WEIR_CONTAINER_SAFETENSORS };
    const weir_toml_node *const all = weir_toml_get(c->arch->root, "ffn"), *const choice =
                                                                               weir_toml_get(
                                                                                   block, "ffn"
                                                                               );
    char at[2 * TEXT_LENGTH];
    const bool has_rule = arch_get(c, "layers", "ffn") != NULL;
    if (has_rule && choice != NULL)
        return weir_error_set(
            c->error, WEIR_ECONFIG,
            "%s ffn: the rule [layers] ffn chooses it; leave one of them out",
            arch_place(at, choice, where)
        );
    if (!has_rule && has_one_ffn(c) != (choice == NULL))
        return weir_error_set(
            c->error, WEIR_ECONFIG,
            choice == NULL ? "%s has no ffn: name one of the tables [ffn.NAME]"
                           : "%s ffn: [ffn] has a kind, which is that of all "
                             "layers; write [ffn.NAME] to choose one per block",
            arch_place(at, choice != NULL ? choice : block, where)
        );
    for (size_t i = 0; choice != NULL && i < 2; i++) {
        const weir_toml_node *const node = weir_arch_choice(choice, containers[i]);
        const char *const name = node != NULL ? weir_toml_string(node, NULL) : NULL;
        if (name != NULL && weir_toml_get(all, name) == NULL)
            return arch_unknown(c, node, where, "ffn", name, arch_key_at, all);
    }
    return WEIR_OK;
}

weir_status arch_check_blocks(const checker *c)
{
    const weir_toml_node *const blocks = weir_toml_get(c->arch->root, "block");
    WEIR_TRY(check_ffns(c));
    for (size_t i = 0; i < weir_toml_size(blocks); i++) {
        const char *name;
        const weir_toml_node *const block = weir_toml_at(blocks, i, &name);
        char where[120], text[80];
        (void)snprintf(where, sizeof where, "block.%s", arch_shown(text, name));
        WEIR_TRY(check_block(c, WEIR_BLOCK_MIXER, block, where));
        WEIR_TRY(check_choice(c, block, where));
    }
    return WEIR_OK;
}
