/* tools/convert/tokenizer_pieces.c - SentencePiece vocabularies: scores, from which the pairs that
 * merge are known, or merges where scores would merge others. */
#include <string.h>

#include "engine/base/memory.h"
#include "tools/convert/vocabulary.h"

/* A piece's score is less the rank of the first merge that makes it: the pair with the highest
 * score is then the one with the lowest rank. */
static weir_status set_scores(vocabulary *v)
{
    const json_t *const merges = json_object_get(json_object_get(v->root, "model"), "merges");
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    int64_t last = -1;
    size_t i;
    const json_t *merge;
    json_array_foreach(merges, i, merge)
    {
        if (status == WEIR_OK) status = weir_merge_text(v, &text, merge);
        if (status != WEIR_OK) break;
        char *const space = text.size > 2 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
        if (space == NULL) continue; /* only if the file changed after its reader checked it */
        const size_t left = (size_t)(space - text.data);
        memmove(space, space + 1, text.size - left); /* with its NUL */
        const json_t *const id =
            json_object_get(json_object_get(json_object_get(v->root, "model"), "vocab"), text.data);
        const int64_t at = json_integer_value(id);
        if (!json_is_integer(id) || at < 0 || at >= v->n) continue;
        if (!(v->tokens[at].score < 0.0f))
            v->tokens[at].score = -(float)(i + 1);
        else if (at != last)
            v->has_scattered_merges = true;
        last = at;
    }
    weir_buffer_free(&text);
    return status;
}

static bool has_type(const json_t *component, const char *type)
{
    const char *const own = json_string_value(json_object_get(component, "type"));
    return own != NULL && strcmp(own, type) == 0;
}

/* The component of the type in the section or in one of its lists; NULL: none. */
static const json_t *find_component(const json_t *section, const char *type)
{
    static const char *const lists[] = { "normalizers", "pretokenizers" };
    if (has_type(section, type)) return section;
    for (size_t l = 0; l < 2; l++) {
        size_t i;
        const json_t *part;
        json_array_foreach(json_object_get(section, lists[l]), i, part)
        {
            const json_t *const found = find_component(part, type); /* NOLINT(misc-no-recursion) */
            if (found != NULL) return found;
        }
    }
    return NULL;
}

bool weir_adds_prefix(const json_t *root)
{
    const json_t *const metaspace =
        find_component(json_object_get(root, "pre_tokenizer"), "Metaspace");
    const char *const scheme = json_string_value(json_object_get(metaspace, "prepend_scheme"));
    if (find_component(json_object_get(root, "normalizer"), "Prepend") != NULL) return true;
    if (metaspace == NULL) return false;
    return scheme != NULL ? strcmp(scheme, "never") != 0
                          : !json_is_false(json_object_get(metaspace, "add_prefix_space"));
}

static weir_status no_memory(const vocabulary *v)
{
    return weir_error_set(v->error, WEIR_ENOMEM, "no memory for merges");
}

static const json_t *piece_of(const vocabulary *v, const char *name, size_t length)
{
    return json_object_getn(
        json_object_get(json_object_get(v->root, "model"), "vocab"), name, length
    );
}

/* True if every split of the piece into two others is among `listed`, the texts of merges. */
static bool is_complete(const vocabulary *v, const token *t, const json_t *listed, char *scratch)
{
    for (size_t i = 1; i < t->length; i++) {
        if (((unsigned char)t->name[i] & 0xC0) == 0x80 || piece_of(v, t->name, i) == NULL ||
            piece_of(v, t->name + i, t->length - i) == NULL)
            continue;
        memcpy(scratch, t->name, i);
        scratch[i] = ' ';
        memcpy(scratch + i + 1, t->name + i, t->length - i);
        if (json_object_getn(listed, scratch, t->length + 1) == NULL) return false;
    }
    return true;
}

static weir_status list_merges(const vocabulary *v, json_t *listed)
{
    const json_t *const merges = json_object_get(json_object_get(v->root, "model"), "merges");
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    size_t i;
    const json_t *merge;
    json_array_foreach(merges, i, merge)
    {
        if (status == WEIR_OK) status = weir_merge_text(v, &text, merge);
        if (status == WEIR_OK &&
            json_object_setn_new_nocheck(listed, text.data, text.size, json_true()) != 0)
            status = no_memory(v);
    }
    weir_buffer_free(&text);
    return status;
}

/* True if merging by scores gives what merging by ranks does: any two pieces whose text is a third
 * merge by scores, so all of them must be in the list, those of one piece together. */
static weir_status is_by_scores(const vocabulary *v, bool *out)
{
    json_t *const listed = json_object();
    size_t longest = 0;
    for (int64_t i = 0; i < v->n; i++)
        if (v->tokens[i].length > longest) longest = v->tokens[i].length;
    char *const scratch = weir_memory_take(longest + 2);
    weir_status status = listed == NULL || scratch == NULL ? no_memory(v) : list_merges(v, listed);
    *out = !v->has_scattered_merges;
    for (int64_t i = 0; status == WEIR_OK && *out && i < v->n; i++)
        if (v->tokens[i].type == NORMAL) *out = is_complete(v, &v->tokens[i], listed, scratch);
    weir_memory_give(scratch);
    json_decref(listed);
    return status;
}

weir_status weir_put_pieces(vocabulary *v)
{
    static const char *const normalizers[] = { "Prepend", "Replace", NULL };
    bool by_scores = false;
    WEIR_TRY(weir_check_normalizer(v, json_object_get(v->root, "normalizer"), normalizers));
    WEIR_TRY(set_scores(v));
    WEIR_TRY(is_by_scores(v, &by_scores));
    const char *const model = by_scores ? "llama" : "gemma4";
    weir_gguf_put_text(v->writer, KEY "model", model, strlen(model));
    weir_gguf_put_text(v->writer, KEY "pre", "default", strlen("default"));
    weir_put_tokens(v);
    weir_put_scores(v);
    weir_gguf_put_bool(v->writer, KEY "add_space_prefix", weir_adds_prefix(v->root));
    return by_scores ? WEIR_OK : weir_put_merges(v);
}
