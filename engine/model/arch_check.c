/* engine/model/arch_check.c - checks arch files (docs/guides/adding-an-architecture.md) when they
 * are read: every table, key, type and reference, for both containers, so the code that uses them
 * need not. Unknown keys are errors: a misspelt option would give wrong results. */
#include <stdio.h>
#include <string.h>

#include "engine/formats/printable.h"
#include "engine/model/arch_check.h"

static const member arch_keys[] = { { "name", FORM_TEXT, NEEDED },
                                    { "base", FORM_TEXT, ONCE },
                                    { "match", FORM_LIST, DIFFERS },
                                    { "prefixes", FORM_LIST, ONCE },
                                    { "skip", FORM_LIST, DIFFERS },
                                    { "when", FORM_TABLE, ONCE },
                                    { "written_as", FORM_TEXT, ONCE },
                                    { "images", FORM_LIST, ONCE },
                                    { 0 } };
static const member when_keys[] = { { "gguf", FORM_TEXT, ONCE },        { "hf", FORM_TEXT, ONCE },
                                    { "above", FORM_NUMBER, ONCE },     { "is", FORM_TEXT, ONCE },
                                    { "gguf_tensor", FORM_TEXT, ONCE }, { 0 } };
static const member shape_keys[] = { { "gguf", FORM_NAMES, ONCE },
                                     { "gguf_minus", FORM_NAMES, ONCE },
                                     { "gguf_over", FORM_NAMES, ONCE },
                                     { "gguf_times", FORM_TEXT, ONCE },
                                     { "hf", FORM_NAMES, ONCE },
                                     { "hf_times", FORM_TEXT, ONCE },
                                     { "hf_rows", FORM_TEXT, ONCE },
                                     { "hf_length", FORM_TEXT, ONCE },
                                     { "default", FORM_DEFAULT, ONCE },
                                     { "power", FORM_NUMBER, ONCE },
                                     { "hf_double", FORM_TEXT, ONCE },
                                     { "layers", FORM_NAMES, ONCE },
                                     { 0 } };
static const member rope_keys[] = { { "scaling", FORM_NAMES, DIFFERS },
                                    { "truncate", FORM_FLAG, ONCE },
                                    { "scale_scores", FORM_FLAG, ONCE },
                                    { 0 } };
static const member mask_keys[] = { { "gguf", FORM_TEXT, ONCE },
                                    { "hf", FORM_TEXT, ONCE },
                                    { "set", FORM_TEXT, NEEDED },
                                    { "unset", FORM_TEXT, ONCE },
                                    { 0 } };
static const member list_keys[] = { { "gguf", FORM_TEXT, ONCE },      { "hf", FORM_TEXT, ONCE },
                                    { "set", FORM_TEXT, NEEDED },     { "others", FORM_TEXT, ONCE },
                                    { "from_zero", FORM_FLAG, ONCE }, { 0 } };
static const member types_keys[] = {
    { "gguf", FORM_TEXT, ONCE }, { "hf", FORM_NAMES, ONCE }, { "names", FORM_WORDS, NEEDED }, { 0 }
};
static const member interval_keys[] = { { "gguf", FORM_TEXT, ONCE },
                                        { "hf", FORM_TEXT, ONCE },
                                        { "last", FORM_TEXT, NEEDED },
                                        { "others", FORM_TEXT, NEEDED },
                                        { 0 } };
static const member last_keys[] = {
    { "gguf", FORM_TEXT, ONCE }, { "hf", FORM_TEXT, ONCE }, { "names", FORM_WORDS, NEEDED }, { 0 }
};
static const member ffn_rule_keys[] = { { "gguf", FORM_TEXT, ONCE },
                                        { "hf", FORM_TEXT, ONCE },
                                        { "first", FORM_TEXT, NEEDED },
                                        { "others", FORM_TEXT, NEEDED },
                                        { 0 } };
static const member refuse_keys[] = { { "gguf", FORM_TEXT, ONCE },
                                      { "hf", FORM_TEXT, ONCE },
                                      { "unless", FORM_SCALARS, NEEDED },
                                      { "because", FORM_TEXT, ONCE },
                                      { 0 } };

static const member mtp_keys[] = {
    { "block", FORM_TEXT, NEEDED },     { "ffn", FORM_TEXT, ONCE },
    { "hf_prefix", FORM_TEXT, ONCE },   { "hf_layer", FORM_NUMBER, ONCE },
    { "next_hidden", FORM_TEXT, ONCE }, { 0 }
};

/* ---- tables ---------------------------------------------------------------------------------- */
static const char *const tables[] = { "arch",   "shape",  "rope", "layers", "block", "ffn",
                                      "tensor", "refuse", "gguf", "mtp",    NULL };

static const char *text_at(const void *names, size_t index)
{
    return ((const char *const *)names)[index];
}

/* Checks the tables that the file itself has. */
static weir_status check_own_tables(const checker *c)
{
    for (size_t i = 0; i < weir_toml_size(c->arch->root); i++) {
        const char *key;
        const weir_toml_node *const table = weir_toml_at(c->arch->root, i, &key);
        char text[80], at[2 * TEXT_LENGTH];
        if (!arch_is_listed(key, text_at, tables))
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s: unknown table [%s]; the nearest is [%s]",
                c->arch->file, arch_shown(text, key), arch_nearest(key, text_at, tables)
            );
        const weir_toml_type wanted =
            strcmp(key, "refuse") == 0 ? WEIR_TOML_ARRAY : WEIR_TOML_TABLE;
        if (weir_toml_type_of(table) != wanted)
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s must be %s", arch_place(at, table, key),
                wanted == WEIR_TOML_ARRAY ? "an array of tables, written [[refuse]]" : "a table"
            );
    }
    return WEIR_OK;
}

static weir_status check_all_tables(const checker *c)
{
    for (size_t k = 0; tables[k] != NULL; k++) {
        const bool may_miss = strcmp(tables[k], "rope") == 0 || strcmp(tables[k], "refuse") == 0 ||
                              strcmp(tables[k], "gguf") == 0 || strcmp(tables[k], "mtp") == 0;
        if (!may_miss && weir_toml_get(c->arch->root, tables[k]) == NULL)
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s: table [%s] is missing", c->arch->file, tables[k]
            );
    }
    return WEIR_OK;
}

const weir_toml_node *arch_get(const checker *c, const char *table, const char *key)
{
    return weir_toml_get(weir_toml_get(c->arch->root, table), key);
}

static const char *shape_at(const void *names, size_t index)
{
    return (void)names, weir_shape_name(index);
}

/* A shape that the entry at `index` refers to must be above it: those below are not read yet. */
static weir_status check_reference(
    const checker *c, const weir_toml_node *node, size_t index, const char *other, size_t length
)
{
    const weir_toml_node *const table = weir_toml_get(c->arch->root, "shape");
    const char *name, *key;
    char at[2 * TEXT_LENGTH], text[80];
    bool is_below = false;
    (void)weir_toml_at(table, index, &name);
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        (void)weir_toml_at(table, i, &key);
        if (strlen(key) != length || memcmp(key, other, length) != 0) continue;
        if (i < index) return WEIR_OK;
        is_below = true;
    }
    (void)weir_printable(text, sizeof text, other, length);
    if (is_below)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s %s refers to %s, which must be above it",
            arch_place(at, node, "shape"), name, text
        );
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s has no %s, which %s needs", arch_place(at, node, "shape"), text,
        name
    );
}

/* "SHAPE" or "SHAPE / SHAPE". */
static weir_status check_references(const checker *c, const weir_toml_node *node, size_t index)
{
    const char *const text = weir_toml_string(node, NULL), *const slash = text != NULL
                                                                              ? strstr(text, " / ")
                                                                              : NULL;
    if (text == NULL) return WEIR_OK;
    if (slash != NULL) WEIR_TRY(check_reference(c, node, index, slash + 3, strlen(slash + 3)));
    return check_reference(
        c, node, index, text, slash != NULL ? (size_t)(slash - text) : strlen(text)
    );
}

const char *arch_key_at(const void *table, size_t index)
{
    const char *key = NULL;
    return weir_toml_at(table, index, &key) != NULL ? key : NULL;
}

/* The texts of a node must be names of blocks. */
static weir_status check_names_block(const checker *c, const weir_toml_node *node)
{
    const weir_toml_node *const blocks = weir_toml_get(c->arch->root, "block");
    for (size_t i = 0; node != NULL && i < weir_toml_size(node); i++)
        WEIR_TRY(check_names_block(c, weir_toml_at(node, i, NULL)));
    const char *const name = weir_toml_string(node, NULL);
    if (name == NULL || weir_toml_get(blocks, name) != NULL) return WEIR_OK;
    return arch_unknown(c, node, "layers", "block", name, arch_key_at, blocks);
}

/* Blocks whose layers a list is about: n_layers must be above the entry. */
static weir_status check_shape_layers(const checker *c, const weir_toml_node *node, size_t index)
{
    static const char layers[] = "n_layers";
    if (node == NULL) return WEIR_OK;
    WEIR_TRY(check_reference(c, node, index, layers, sizeof layers - 1));
    return check_names_block(c, node);
}

static weir_status check_shape(const checker *c)
{
    const weir_toml_node *const table = weir_toml_get(c->arch->root, "shape");
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *name;
        const weir_toml_node *const source = weir_toml_at(table, i, &name);
        char where[120];
        if (!arch_is_listed(name, shape_at, NULL))
            return arch_unknown(c, source, "shape", "shape", name, shape_at, NULL);
        (void)snprintf(where, sizeof where, "shape] [%s", name);
        WEIR_TRY(arch_check_members(c, source, where, shape_keys));
        WEIR_TRY(check_references(c, weir_toml_get(source, "gguf_times"), i));
        WEIR_TRY(check_references(c, weir_toml_get(source, "hf_times"), i));
        WEIR_TRY(check_references(c, weir_toml_get(source, "default"), i));
        WEIR_TRY(check_shape_layers(c, weir_toml_get(source, "layers"), i));
    }
    return WEIR_OK;
}

/* ---- layers and blocks ----------------------------------------------------------------------- */
/* A name of [ffn.NAME], in the table `where`. */
static weir_status check_names_ffn(const checker *c, const weir_toml_node *node, const char *where)
{
    const weir_toml_node *const all = weir_toml_get(c->arch->root, "ffn");
    const char *const name = weir_toml_string(node, NULL);
    const weir_toml_node *const table = weir_toml_get(all, name);
    if (table != NULL && weir_toml_type_of(table) == WEIR_TOML_TABLE) return WEIR_OK;
    return arch_unknown(c, node, where, "ffn", name, arch_key_at, all);
}

/* A mask, the last of which also names the layers that are not set. */
static weir_status check_mask(const checker *c, const weir_toml_node *node, bool is_last)
{
    char at[2 * TEXT_LENGTH];
    WEIR_TRY(arch_check_members(c, node, "layers] [mask", mask_keys));
    if ((weir_toml_get(node, "unset") != NULL) != is_last)
        return weir_error_set(
            c->error, WEIR_ECONFIG,
            is_last ? "%s unset is missing" : "%s unset: only the last mask has it",
            arch_place(at, node, "layers] [mask")
        );
    WEIR_TRY(check_names_block(c, weir_toml_get(node, "set")));
    return check_names_block(c, weir_toml_get(node, "unset"));
}

static weir_status check_masks(const checker *c, const weir_toml_node *node)
{
    const size_t n = weir_toml_size(node);
    char at[2 * TEXT_LENGTH];
    if (weir_toml_type_of(node) != WEIR_TOML_ARRAY) return check_mask(c, node, true);
    if (n == 0 || n > MAX_NAMES)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s mask: must be a table or a list of 1 to %d tables",
            arch_place(at, node, "layers"), (int)MAX_NAMES
        );
    for (size_t i = 0; i < n; i++) WEIR_TRY(check_mask(c, weir_toml_at(node, i, NULL), i + 1 == n));
    return WEIR_OK;
}

/* A list must be in the containers that the first one is in. */
static weir_status check_like_first(
    const checker *c, const weir_toml_node *first, const weir_toml_node *list
)
{
    static const char *const containers[] = { "gguf", "hf" };
    char at[2 * TEXT_LENGTH];
    for (size_t i = 0; i < sizeof containers / sizeof containers[0]; i++)
        if ((weir_toml_get(first, containers[i]) != NULL) !=
            (weir_toml_get(list, containers[i]) != NULL))
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s %s: all lists have it, or none",
                arch_place(at, list, "layers] [lists"), containers[i]
            );
    return WEIR_OK;
}

static weir_status check_lists(const checker *c, const weir_toml_node *node)
{
    const size_t n = weir_toml_type_of(node) == WEIR_TOML_ARRAY ? weir_toml_size(node) : 0;
    char at[2 * TEXT_LENGTH];
    if (n == 0 || n > MAX_NAMES)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s lists: must be a list of 1 to %d tables",
            arch_place(at, node, "layers"), (int)MAX_NAMES
        );
    for (size_t i = 0; i < n; i++) {
        const weir_toml_node *const list = weir_toml_at(node, i, NULL);
        WEIR_TRY(arch_check_members(c, list, "layers] [lists", list_keys));
        WEIR_TRY(check_names_block(c, weir_toml_get(list, "set")));
        WEIR_TRY(check_like_first(c, weir_toml_at(node, 0, NULL), list));
        WEIR_TRY(check_names_block(c, weir_toml_get(list, "others")));
        if (weir_toml_get(list, "others") != NULL && i + 1 < n)
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s others: only the last list has it",
                arch_place(at, list, "layers] [lists")
            );
    }
    return WEIR_OK;
}

/* Blocks by the names of those that they replace. */
static weir_status check_last(const checker *c, const weir_toml_node *node)
{
    const weir_toml_node *const names = weir_toml_get(node, "names"), *const blocks = weir_toml_get(
                                                                          c->arch->root, "block"
                                                                      );
    WEIR_TRY(arch_check_members(c, node, "layers] [last", last_keys));
    for (size_t i = 0; i < weir_toml_size(names); i++) {
        const char *replaced;
        const weir_toml_node *const name = weir_toml_at(names, i, &replaced);
        if (weir_toml_get(blocks, replaced) == NULL)
            return arch_unknown(c, name, "layers] [last", "block", replaced, arch_key_at, blocks);
    }
    return check_names_block(c, names);
}

static weir_status check_layers(const checker *c)
{
    const weir_toml_node *const table = weir_toml_get(c->arch->root, "layers");
    char at[2 * TEXT_LENGTH];
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *key;
        const weir_toml_node *const node = weir_toml_at(table, i, &key);
        if (strcmp(key, "pattern") == 0) {
            if (weir_toml_type_of(node) != WEIR_TOML_ARRAY || weir_toml_size(node) == 0 ||
                !arch_all_children(node, MAX_PATTERN, arch_is_text))
                return weir_error_set(
                    c->error, WEIR_ECONFIG, "%s pattern: must be a list of 1 to %d names of blocks",
                    arch_place(at, node, "layers"), (int)MAX_PATTERN
                );
            WEIR_TRY(check_names_block(c, node));
        } else if (strcmp(key, "mask") == 0) {
            WEIR_TRY(check_masks(c, node));
        } else if (strcmp(key, "lists") == 0) {
            WEIR_TRY(check_lists(c, node));
        } else if (strcmp(key, "types") == 0) {
            WEIR_TRY(arch_check_members(c, node, "layers] [types", types_keys));
            WEIR_TRY(check_names_block(c, weir_toml_get(node, "names")));
        } else if (strcmp(key, "interval") == 0) {
            WEIR_TRY(arch_check_members(c, node, "layers] [interval", interval_keys));
            WEIR_TRY(check_names_block(c, weir_toml_get(node, "last")));
            WEIR_TRY(check_names_block(c, weir_toml_get(node, "others")));
        } else if (strcmp(key, "last") == 0) {
            WEIR_TRY(check_last(c, node));
        } else if (strcmp(key, "norms") == 0) {
            static const char *const words[] = { "before", "after", "both", NULL };
            const char *const word = weir_toml_string(node, NULL);
            if (word == NULL || !arch_is_listed(word, text_at, words))
                return weir_error_set(
                    c->error, WEIR_ECONFIG, "%s norms: must be before, after or both",
                    arch_place(at, node, "layers")
                );
        } else if (strcmp(key, "ffn") == 0) {
            WEIR_TRY(arch_check_members(c, node, "layers] [ffn", ffn_rule_keys));
            WEIR_TRY(check_names_ffn(c, weir_toml_get(node, "first"), "layers] [ffn"));
            WEIR_TRY(check_names_ffn(c, weir_toml_get(node, "others"), "layers] [ffn"));
        } else {
            static const char *const known[] = { "pattern", "mask",  "lists", "types", "interval",
                                                 "last",    "norms", "ffn",   NULL };
            return arch_unknown(c, node, "layers", "key", key, text_at, known);
        }
    }
    return WEIR_OK;
}

/* ---- [mtp] ----------------------------------------------------------------------------------- */
static weir_status check_own_layer(const checker *c, const weir_toml_node *table)
{
    const weir_toml_node *const layer = weir_toml_get(table, "hf_layer");
    char at[2 * TEXT_LENGTH];
    int64_t number = 0;
    if (layer == NULL) return WEIR_OK;
    if (weir_toml_get(table, "hf_prefix") == NULL)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s hf_layer: only names with hf_prefix have their own layer",
            arch_place(at, layer, "mtp")
        );
    if (weir_toml_int(layer, &number) && number >= 0) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s hf_layer: must be 0 or above, without fraction",
        arch_place(at, layer, "mtp")
    );
}

static weir_status check_mtp(const checker *c)
{
    static const char *const places[] = { "after_norm", "before_norm", NULL };
    const weir_toml_node *const table = weir_toml_get(c->arch->root, "mtp");
    const weir_toml_node *const blocks = weir_toml_get(c->arch->root, "block");
    char at[2 * TEXT_LENGTH];
    if (table == NULL) return WEIR_OK;
    WEIR_TRY(arch_check_members(c, table, "mtp", mtp_keys));
    const weir_toml_node *const block = weir_toml_get(table, "block");
    const weir_toml_node *const ffn = weir_toml_get(table, "ffn");
    const weir_toml_node *const next = weir_toml_get(table, "next_hidden");
    const char *const name = weir_toml_string(block, NULL);
    if (weir_toml_get(blocks, name) == NULL)
        return arch_unknown(c, block, "mtp", "block", name, arch_key_at, blocks);
    if (next != NULL && !arch_is_listed(weir_toml_string(next, NULL), text_at, places))
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s next_hidden: must be after_norm or before_norm",
            arch_place(at, next, "mtp")
        );
    if (ffn != NULL) WEIR_TRY(check_names_ffn(c, ffn, "mtp"));
    return check_own_layer(c, table);
}

/* ---- [[refuse]] ------------------------------------------------------------------------------ */
static weir_status check_refuse(const checker *c)
{
    const weir_toml_node *const list = weir_toml_get(c->arch->root, "refuse");
    for (size_t i = 0; i < weir_toml_size(list); i++) {
        const weir_toml_node *const rule = weir_toml_at(list, i, NULL);
        char at[2 * TEXT_LENGTH];
        WEIR_TRY(arch_check_members(c, rule, "refuse", refuse_keys));
        if (weir_toml_get(rule, "gguf") == NULL && weir_toml_get(rule, "hf") == NULL)
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s names no setting: add gguf = KEY or hf = PATH",
                arch_place(at, rule, "refuse")
            );
    }
    return WEIR_OK;
}

/* [arch] when: a condition of `match`. */
static weir_status check_when(const checker *c)
{
    const weir_toml_node *const when = arch_get(c, "arch", "when");
    char at[2 * TEXT_LENGTH];
    if (when == NULL) return WEIR_OK;
    WEIR_TRY(arch_check_members(c, when, "arch] [when", when_keys));
    const bool has_gguf = weir_toml_get(when, "gguf") != NULL,
               has_setting = has_gguf || weir_toml_get(when, "hf") != NULL,
               has_above = weir_toml_get(when, "above") != NULL,
               has_is = weir_toml_get(when, "is") != NULL,
               has_tensor = weir_toml_get(when, "gguf_tensor") != NULL;
    const char *wrong = NULL;
    if (has_gguf && has_tensor)
        wrong = "has two conditions for GGUF: gguf and gguf_tensor";
    else if (has_above && has_is)
        wrong = "has two conditions for a setting: above and is";
    else if (has_setting && !has_above && !has_is)
        wrong = "above is missing";
    else if (!has_setting && (has_above || has_is || !has_tensor))
        wrong = "names no setting: add gguf = KEY or hf = PATH";
    if (wrong != NULL)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s %s", arch_place(at, when, "arch] [when"), wrong
        );
    if (arch_get(c, "arch", "match") == NULL)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s is a condition of match, which this file does not have",
            arch_place(at, when, "arch] [when")
        );
    return WEIR_OK;
}

weir_status weir_arch_check_head(const weir_arch *arch, weir_error *error)
{
    const checker c = { .arch = arch, .error = error };
    const weir_toml_node *const table = weir_toml_get(arch->root, "arch");
    char at[2 * TEXT_LENGTH];
    WEIR_TRY(check_own_tables(&c));
    if (table == NULL)
        return weir_error_set(error, WEIR_ECONFIG, "%s: table [arch] is missing", arch->file);
    WEIR_TRY(arch_check_members(&c, table, "arch", arch_keys));
    WEIR_TRY(check_when(&c));
    if (weir_toml_get(table, "match") == NULL && weir_toml_get(table, "base") == NULL)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s match is missing", arch_place(at, table, "arch")
        );
    return WEIR_OK;
}

weir_status weir_arch_check(const weir_arch *arch, weir_error *error)
{
    const checker c = { .arch = arch, .error = error };
    WEIR_TRY(check_all_tables(&c));
    WEIR_TRY(check_shape(&c));
    WEIR_TRY(arch_check_members(&c, weir_toml_get(arch->root, "rope"), "rope", rope_keys));
    WEIR_TRY(arch_check_blocks(&c));
    WEIR_TRY(check_layers(&c));
    WEIR_TRY(arch_check_tensors(&c));
    WEIR_TRY(arch_check_gguf(&c));
    WEIR_TRY(check_mtp(&c));
    return check_refuse(&c);
}
