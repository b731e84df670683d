#include "engine/model/arch.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/base/file.h"
#include "engine/model/arch_internal.h"

enum { MAX_BASES = 4 };

static const char *head_text(const weir_arch *arch, const char *key)
{
    return weir_toml_string(weir_toml_get(weir_toml_get(arch->root, "arch"), key), NULL);
}

size_t weir_arch_index(const weir_arch_set *set, const char *name)
{
    size_t i = 0;
    while (i < set->count && strcmp(set->archs[i].name, name) != 0) i++;
    return i;
}

weir_buffer weir_arch_list_known(const weir_arch_set *set)
{
    weir_buffer known = { 0 };
    for (size_t i = 0; i < set->count; i++)
        (void)!weir_buffer_format(&known, "%s%s", i > 0 ? ", " : "", set->archs[i].name);
    return known;
}

static bool has_head(const weir_arch *arch, const char *key)
{
    return weir_toml_get(weir_toml_get(arch->root, "arch"), key) != NULL;
}

/* Replaces the document by that of a text, and reads its head. */
static weir_status read_text(weir_arch *arch, const char *text, size_t length, weir_error *error)
{
    weir_arch now = *arch;
    WEIR_TRY(weir_toml_parse(&now.document, text, length, now.file, error));
    now.root = weir_toml_root(now.document);
    const weir_status status = weir_arch_check_head(&now, error);
    if (status != WEIR_OK) {
        weir_toml_close(now.document);
        return status;
    }
    now.name = head_text(&now, "name");
    now.base = head_text(&now, "base");
    now.has_match = has_head(&now, "match");
    now.has_written_as = has_head(&now, "written_as");
    now.has_when = has_head(&now, "when");
    weir_toml_close(arch->document);
    *arch = now;
    return WEIR_OK;
}

static weir_status read_whole(weir_arch *arch, weir_error *error)
{
    if (arch->text == NULL) return WEIR_OK;
    WEIR_TRY(read_text(arch, arch->text, strlen(arch->text), error));
    arch->text = NULL;
    return WEIR_OK;
}

/* Takes the document of `arch`, also after an error. */
static weir_status add_arch(weir_arch_set *set, weir_arch arch, weir_error *error)
{
    const size_t at = weir_arch_index(set, arch.name);
    if (at == WEIR_MAX_ARCHS) {
        weir_toml_close(arch.document);
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: more than %d architectures", arch.file, (int)WEIR_MAX_ARCHS
        );
    }
    if (at < set->count) weir_toml_close(set->archs[at].document);
    set->archs[at] = arch;
    set->count += at == set->count;
    return WEIR_OK;
}

static weir_status add_text(
    weir_arch_set *set, const char *file, const char *text, size_t length, weir_arch arch,
    weir_error *error
)
{
    arch.blocks = set->blocks;
    (void)snprintf(arch.file, sizeof arch.file, "%s", file);
    WEIR_TRY(read_text(&arch, text, length, error));
    return add_arch(set, arch, error);
}

/* The text up to the first table but [arch], which comes first. */
static size_t head_length(const char *text)
{
    const char *table = text;
    while ((table = strstr(table, "\n[")) != NULL && strncmp(table, "\n[arch]", 7) == 0) table++;
    return table != NULL ? (size_t)(table + 1 - text) : strlen(text);
}

static weir_status add_embedded(
    weir_arch_set *set, const weir_embedded_file *file, weir_error *error
)
{
    const weir_arch arch = { .text = file->text };
    return add_text(set, file->name, file->text, head_length(file->text), arch, error);
}

static weir_status no_base(const weir_arch_set *set, const weir_arch *arch, weir_error *error)
{
    uint32_t line, column;
    weir_toml_position(weir_toml_get(weir_toml_get(arch->root, "arch"), "base"), &line, &column);
    weir_buffer known = weir_arch_list_known(set);
    const weir_status status = weir_error_set(
        error, WEIR_ECONFIG, "%s:%u: [arch] base = \"%.80s\": not known; known are %s", arch->file,
        line, arch->base, known.data != NULL ? known.data : "none"
    );
    weir_buffer_free(&known);
    return status;
}

/* Joins the file with its base, after the base with its own; `depth`: number of files based on this
 * one. */
static weir_status join_base(weir_arch_set *set, weir_arch *arch, int depth, weir_error *error)
{
    weir_toml *whole = NULL;
    if (arch->base == NULL) return WEIR_OK;
    weir_arch *const base = &set->archs[weir_arch_index(set, arch->base)];
    if (base == set->archs + set->count) return no_base(set, arch, error);
    WEIR_TRY(read_whole(base, error));
    if (depth < MAX_BASES) WEIR_TRY(join_base(set, base, depth + 1, error));
    if (depth == MAX_BASES || base->n_bases == MAX_BASES)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "%s: [arch] base = \"%.80s\": more than %d bases in a chain, or in a cycle", arch->file,
            arch->base, (int)MAX_BASES
        );
    /* Options of another kind of block are not inherited. */
    static const char *const replaced[] = { "ffn", NULL };
    WEIR_TRY(weir_toml_join(&whole, base->document, arch->document, replaced, error));
    weir_toml_close(arch->document);
    arch->document = whole;
    arch->root = weir_toml_root(whole);
    arch->base = NULL;
    arch->n_bases = base->n_bases + 1;
    return WEIR_OK;
}

static weir_status join(weir_arch_set *set, weir_arch *arch, weir_error *error)
{
    WEIR_TRY(read_whole(arch, error));
    return join_base(set, arch, 0, error);
}

static weir_status check(weir_arch *arch, weir_error *error)
{
    WEIR_TRY(weir_arch_check(arch, error));
    arch->is_checked = true;
    return WEIR_OK;
}

weir_status weir_arch_complete(weir_arch_set *set, weir_arch *arch, weir_error *error)
{
    if (arch->is_checked) return WEIR_OK;
    WEIR_TRY(join(set, arch, error));
    return check(arch, error);
}

/* Whether a file of the folder is among it and its bases. All others are as they were built, which
 * a test has completed. */
static bool is_of_folder(const weir_arch_set *set, const weir_arch *arch)
{
    for (int depth = 0; depth <= MAX_BASES && !arch->is_folders && arch->base != NULL; depth++) {
        const size_t at = weir_arch_index(set, arch->base);
        if (at == set->count) return true;
        arch = &set->archs[at];
    }
    return arch->is_folders;
}

static weir_status complete_folders(weir_arch_set *set, weir_error *error)
{
    bool wanted[WEIR_MAX_ARCHS] = { false };
    for (size_t i = 0; i < set->count; i++) wanted[i] = is_of_folder(set, &set->archs[i]);
    for (size_t i = 0; i < set->count; i++)
        if (wanted[i]) WEIR_TRY(join(set, &set->archs[i], error));
    for (size_t i = 0; i < set->count; i++)
        if (wanted[i]) WEIR_TRY(check(&set->archs[i], error));
    return WEIR_OK;
}

static int is_toml(const struct dirent *entry)
{
    const size_t n = strlen(entry->d_name);
    return n > 5 && strcmp(entry->d_name + n - 5, ".toml") == 0;
}

static weir_status add_folder(weir_arch_set *set, const char *folder, weir_error *error)
{
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, is_toml, alphasort);
    if (n < 0)
        return weir_error_set(
            error, errno == ENOENT || errno == ENOTDIR ? WEIR_ENOTFOUND : WEIR_EIO,
            "%s: cannot read the folder of architectures (--arch-dir): %s", folder, strerror(errno)
        );
    weir_status status = WEIR_OK;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        weir_buffer text = { 0 };
        if (status == WEIR_OK) {
            if (snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name) >=
                (int)sizeof path)
                status = weir_error_set(error, WEIR_EINVAL, "%s: path too long", folder);
            else
                status = weir_file_read(&text, path, 1 << 20, error);
            const weir_arch arch = { .is_folders = true };
            if (status == WEIR_OK) status = add_text(set, path, text.data, text.size, arch, error);
        }
        weir_buffer_free(&text);
        free(entries[i]);
    }
    free(entries);
    return status;
}

weir_status weir_arch_set_open(
    weir_arch_set **out, const char *folder, weir_block_list blocks, weir_error *error
)
{
    weir_arch_set *const set = calloc(1, sizeof *set);
    if (set == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the architectures");
    set->blocks = blocks;
    weir_status status = WEIR_OK;
    for (const weir_embedded_file *file = weir_arch_files; status == WEIR_OK && file->name != NULL;
         file++)
        status = add_embedded(set, file, error);
    if (status == WEIR_OK && folder != NULL) status = add_folder(set, folder, error);
    if (status == WEIR_OK) status = complete_folders(set, error);
    if (status != WEIR_OK) {
        weir_arch_set_close(set);
        return status;
    }
    *out = set;
    return WEIR_OK;
}

void weir_arch_set_keep(weir_arch_set *set, const weir_arch *arch)
{
    for (size_t i = 0; i < set->count; i++) {
        if (&set->archs[i] == arch) continue;
        weir_toml_close(set->archs[i].document);
        set->archs[i] = (weir_arch){ 0 };
    }
}

void weir_arch_set_close(weir_arch_set *set)
{
    if (set == NULL) return;
    for (size_t i = 0; i < set->count; i++) weir_toml_close(set->archs[i].document);
    free(set);
}

const weir_toml_node *weir_arch_choice(const weir_toml_node *node, weir_container container)
{
    if (node == NULL || weir_toml_type_of(node) != WEIR_TOML_TABLE) return node;
    return weir_toml_get(node, container == WEIR_CONTAINER_GGUF ? "gguf" : "hf");
}

/* ---- blocks ---------------------------------------------------------------------------------- */
const char *weir_block_key(weir_block_kind kind)
{
    return kind == WEIR_BLOCK_MIXER ? "mixer" : "kind";
}

const weir_block *weir_arch_table_block(
    const weir_arch *arch, weir_block_kind kind, const weir_toml_node *table,
    weir_container container
)
{
    const weir_toml_node *const value =
        weir_arch_choice(weir_toml_get(table, weir_block_key(kind)), container);
    const char *const name = value != NULL ? weir_toml_string(value, NULL) : NULL;
    return name != NULL ? weir_block_find(arch->blocks, kind, name) : NULL;
}

void weir_block_use_close(weir_block_use *use)
{
    free(use->options);
    *use = (weir_block_use){ 0 };
}

static weir_status set_options(
    const weir_block_use *use, const weir_toml_node *table, weir_container container,
    weir_error *error
)
{
    weir_block_options_default(use->options, use->block->options);
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *key;
        const weir_toml_node *const value =
            weir_arch_choice(weir_toml_at(table, i, &key), container);
        const weir_block_option *const option = weir_block_option_find(use->block->options, key);
        const bool is_own = strcmp(key, weir_block_key(use->block->kind)) == 0 ||
                            (use->block->kind == WEIR_BLOCK_MIXER && strcmp(key, "ffn") == 0);
        if (value == NULL || is_own) continue; /* NULL: given for the other container only */
        if (option == NULL)
            return weir_error_set(
                error, WEIR_ECONFIG, "%s: %s has no such option", key, use->block->name
            );
        WEIR_TRY(weir_block_option_set(use->options, option, value, error));
    }
    return use->block->check != NULL ? use->block->check(use->options, error) : WEIR_OK;
}

/* `where` is the table's name. */
static weir_status use_block(
    weir_block_use *use, const weir_arch *arch, weir_block_kind kind, const weir_toml_node *table,
    const char *where, weir_container container, weir_error *error
)
{
    use->block = weir_arch_table_block(arch, kind, table, container);
    if (use->block == NULL)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: [%s] has no %s", arch->file, where, weir_block_key(kind)
        );
    use->options = calloc(1, use->block->options_bytes + 1);
    if (use->options == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the options of [%s]", where);
    const weir_status status = set_options(use, table, container, error);
    return status == WEIR_OK ? WEIR_OK
                             : weir_error_prefix(error, status, "%s: [%s]", arch->file, where);
}

weir_status weir_arch_block(
    const weir_arch *arch, const char *name, const char *ffn_name, weir_container container,
    weir_block_use *mixer, weir_block_use *ffn, weir_error *error
)
{
    const weir_toml_node *const table = weir_toml_get(weir_toml_get(arch->root, "block"), name);
    const weir_toml_node *const all = weir_toml_get(arch->root, "ffn");
    const char *own = ffn_name;
    char where[120], ffn_where[120];
    *mixer = *ffn = (weir_block_use){ 0 };
    if (table == NULL)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: [layers] names block '%s', but there is no [block.%s]",
            arch->file, name, name
        );
    const weir_toml_node *const choice = weir_arch_choice(weir_toml_get(table, "ffn"), container);
    if (own == NULL && choice != NULL) own = weir_toml_string(choice, NULL);
    (void)snprintf(where, sizeof where, "block.%.100s", name);
    (void)snprintf(
        ffn_where, sizeof ffn_where, "ffn%s%.100s", own != NULL ? "." : "", own != NULL ? own : ""
    );
    WEIR_TRY(use_block(mixer, arch, WEIR_BLOCK_MIXER, table, where, container, error));
    return use_block(
        ffn, arch, WEIR_BLOCK_FFN, own != NULL ? weir_toml_get(all, own) : all, ffn_where,
        container, error
    );
}
