/* engine/text/vocabulary.c - tables of tokens, independent of file formats. */
#include "engine/text/vocabulary.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"

/* Printable bytes stand for themselves; the others, in increasing order, map to U+0100 and up
 * (Radford et al. 2019, encoder.py). */
static bool prints(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

void weir_vocabulary_init(weir_vocabulary *vocabulary)
{
    *vocabulary = (weir_vocabulary){ .added = { { .n_nodes = 1 }, { .n_nodes = 1 } } };
    for (size_t i = 0; i < sizeof vocabulary->alphabet / sizeof vocabulary->alphabet[0]; i++)
        vocabulary->alphabet[i] = -1;
    for (int16_t byte = 0, next = 0x100; byte < 256; byte++)
        vocabulary->alphabet[prints((unsigned)byte) ? byte : next++] = byte;
}

void weir_vocabulary_free(weir_vocabulary *vocabulary)
{
    weir_memory_give(vocabulary->tokens);
    weir_memory_give(vocabulary->names);
    weir_buffer_free(&vocabulary->bytes);
    for (int i = 0; i < 2; i++) weir_pair_free(&vocabulary->added[i].edges);
    *vocabulary = (weir_vocabulary){ 0 };
}

bool weir_vocabulary_unmap(
    const weir_vocabulary *vocabulary, char *out, size_t *n, const char *name, size_t length
)
{
    if (vocabulary->is_verbatim) {
        memcpy(out, name, length);
        *n = length;
        return true;
    }
    *n = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned code = (unsigned char)name[i];
        if (code >= 0x80) {
            if (code < 0xC2 || code > 0xC5 || i + 1 == length ||
                ((unsigned char)name[i + 1] & 0xC0) != 0x80)
                return false;
            code = (code & 0x1F) << 6 | ((unsigned char)name[++i] & 0x3F);
        }
        if (code >= sizeof vocabulary->alphabet / sizeof vocabulary->alphabet[0] ||
            vocabulary->alphabet[code] < 0)
            return false;
        out[(*n)++] = (char)vocabulary->alphabet[code];
    }
    return true;
}

/* ---- ids by bytes ---------------------------------------------------------------------------- */

static uint32_t hash_of(const char *bytes, size_t length)
{
    return (uint32_t)XXH3_64bits(bytes, length);
}

static weir_name_entry *entry_of(
    const weir_vocabulary *vocabulary, uint32_t hash, const char *bytes, size_t length
)
{
    for (size_t i = hash & vocabulary->names_mask;; i = (i + 1) & vocabulary->names_mask) {
        weir_name_entry *const entry = &vocabulary->names[i];
        if (entry->id < 0) return entry;
        if (entry->hash == hash && entry->length == length &&
            memcmp(vocabulary->bytes.data + entry->offset, bytes, length) == 0)
            return entry;
    }
}

weir_status weir_vocabulary_reserve(weir_vocabulary *vocabulary, size_t count)
{
    size_t n_entries = 1024;
    while (n_entries / 2 < count && n_entries < 4 * (size_t)WEIR_VOCABULARY_IDS) n_entries *= 2;
    if (vocabulary->names != NULL && n_entries <= vocabulary->names_mask + 1) return WEIR_OK;
    weir_name_entry *const entries = weir_memory_take(n_entries * sizeof *entries);
    if (entries == NULL) return WEIR_ENOMEM;
    for (size_t i = 0; i < n_entries; i++) entries[i].id = -1;
    for (size_t i = 0; vocabulary->names != NULL && i <= vocabulary->names_mask; i++) {
        const weir_name_entry *const old = &vocabulary->names[i];
        if (old->id < 0) continue;
        size_t place = old->hash & (n_entries - 1);
        while (entries[place].id >= 0) place = (place + 1) & (n_entries - 1);
        entries[place] = *old;
    }
    weir_memory_give(vocabulary->names);
    vocabulary->names = entries;
    vocabulary->names_mask = n_entries - 1;
    return WEIR_OK;
}

/* The base token `id` has the bytes at `offset`. */
static weir_status add_name(
    weir_vocabulary *vocabulary, int32_t id, uint32_t offset, uint32_t length, weir_error *error
)
{
    if (weir_vocabulary_reserve(vocabulary, vocabulary->n_names + 1) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the table of tokens");
    const char *const bytes = vocabulary->bytes.data + offset;
    const uint32_t hash = hash_of(bytes, length);
    weir_name_entry *const entry = entry_of(vocabulary, hash, bytes, length);
    if (entry->id == id) return WEIR_OK;
    if (entry->id >= 0)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "ids %" PRId32 " and %" PRId32 " are the same token; a token has one id", entry->id, id
        );
    *entry = (weir_name_entry){ .hash = hash, .offset = offset, .length = length, .id = id };
    vocabulary->n_names++;
    return WEIR_OK;
}

int32_t weir_vocabulary_find_base(
    const weir_vocabulary *vocabulary, const char *bytes, size_t length
)
{
    return vocabulary->names == NULL
               ? -1
               : entry_of(vocabulary, hash_of(bytes, length), bytes, length)->id;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

weir_status weir_trie_add(
    weir_trie *trie, int32_t id, const char *text, size_t length, weir_error *error
)
{
    uint32_t node = 0;
    weir_pair_entry *entry = NULL;
    for (size_t i = 0; i < length; i++) {
        entry = weir_pair_put(&trie->edges, weir_pair_key(node, (unsigned char)text[i]));
        if (entry == NULL)
            return weir_error_set(error, WEIR_ENOMEM, "no memory for a table of tokens");
        if (entry->number == 0) entry->number = trie->n_nodes++;
        node = entry->number;
    }
    if (entry->id >= 0)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "ids %" PRId32 " and %" PRId32 " are the same token; a token has one id", entry->id, id
        );
    entry->id = id;
    trie->first[(unsigned char)text[0]] = true;
    trie->n_tokens++;
    return WEIR_OK;
}

int32_t weir_trie_match(const weir_trie *trie, const char *text, size_t n, size_t *length)
{
    int32_t found = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        const weir_pair_entry *const entry =
            weir_pair_find(&trie->edges, weir_pair_key(node, (unsigned char)text[i]));
        if (entry == NULL) break;
        node = entry->number;
        if (entry->id < 0) continue;
        found = entry->id;
        *length = i + 1;
    }
    return found;
}

int32_t weir_vocabulary_find_added(
    const weir_vocabulary *vocabulary, const char *text, size_t length
)
{
    for (int i = 0; i < 2; i++) {
        size_t matched = 0;
        const int32_t id = weir_trie_match(&vocabulary->added[i], text, length, &matched);
        if (id >= 0 && matched == length) return id;
    }
    return -1;
}

/* ---- building -------------------------------------------------------------------------------- */

static weir_status grow_tokens(weir_vocabulary *vocabulary, size_t id)
{
    if (id >= vocabulary->capacity) {
        size_t capacity = vocabulary->capacity == 0 ? 1024 : vocabulary->capacity;
        while (capacity <= id) capacity *= 2; /* id < WEIR_VOCABULARY_IDS */
        weir_token *const tokens =
            weir_memory_resize(vocabulary->tokens, capacity * sizeof *tokens);
        if (tokens == NULL) return WEIR_ENOMEM;
        memset(
            tokens + vocabulary->capacity, 0, (capacity - vocabulary->capacity) * sizeof *tokens
        );
        vocabulary->tokens = tokens;
        vocabulary->capacity = capacity;
    }
    if (id >= vocabulary->size) vocabulary->size = id + 1;
    return WEIR_OK;
}

/* Appends `name` to the bytes, decoded from the byte alphabet if `mapped`. *mapped becomes false if
 * it is not in that alphabet. */
static weir_status store(
    weir_vocabulary *vocabulary, weir_token *token, const char *name, size_t length, bool *mapped,
    weir_error *error
)
{
    if (length == 0 || vocabulary->bytes.size + length + 1 > WEIR_VOCABULARY_BYTES)
        return weir_error_set(
            error, WEIR_EFORMAT,
            length == 0 ? "the token is empty" : "the tokens are larger than %d bytes together",
            WEIR_VOCABULARY_BYTES
        );
    if (weir_buffer_reserve(&vocabulary->bytes, length + 1) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for tokens");
    char *const out = vocabulary->bytes.data + vocabulary->bytes.size;
    size_t n = length;
    if (*mapped) *mapped = weir_vocabulary_unmap(vocabulary, out, &n, name, length);
    if (!*mapped) {
        memcpy(out, name, length);
        n = length;
    }
    out[n] = '\0';
    token->offset = (uint32_t)vocabulary->bytes.size;
    token->length = (uint32_t)n;
    vocabulary->bytes.size += n + 1;
    return WEIR_OK;
}

weir_status weir_vocabulary_add(
    weir_vocabulary *vocabulary, int64_t id, const char *name, size_t length, unsigned flags,
    weir_error *error
)
{
    if (id < 0 || id >= WEIR_VOCABULARY_IDS)
        return weir_error_set(
            error, WEIR_EFORMAT, "id %" PRId64 " is not in 0 .. %d", id, WEIR_VOCABULARY_IDS - 1
        );
    const bool added = (flags & WEIR_TOKEN_ADDED) != 0;
    if (added && length > WEIR_ADDED_TOKEN_BYTES)
        return weir_error_set(
            error, WEIR_EFORMAT, "the added token has %zu bytes, at most %d are read", length,
            WEIR_ADDED_TOKEN_BYTES
        );
    if (grow_tokens(vocabulary, (size_t)id) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for tokens");
    weir_token *const token = &vocabulary->tokens[id];
    if (token->flags != 0)
        return weir_error_set(error, WEIR_EFORMAT, "id %" PRId64 " is taken by another token", id);
    bool mapped = !added && (flags & (WEIR_TOKEN_PADDING | WEIR_TOKEN_BYTE)) == 0;
    WEIR_TRY(store(vocabulary, token, name, length, &mapped, error));
    token->flags = flags | WEIR_TOKEN_PRESENT;
    if (added) {
        weir_trie *const trie = &vocabulary->added[(flags & WEIR_TOKEN_NORMALIZED) != 0];
        if (trie->n_tokens == WEIR_ADDED_TOKENS)
            return weir_error_set(
                error, WEIR_EFORMAT, "more than %d added tokens", WEIR_ADDED_TOKENS
            );
        return weir_trie_add(trie, (int32_t)id, name, length, error);
    }
    return mapped ? add_name(vocabulary, (int32_t)id, token->offset, token->length, error)
                  : WEIR_OK;
}

weir_status weir_vocabulary_add_base_name(
    weir_vocabulary *vocabulary, int32_t id, const char *name, size_t length, weir_error *error
)
{
    bool mapped = true;
    weir_token place = { 0 };
    WEIR_TRY(store(vocabulary, &place, name, length, &mapped, error));
    return mapped ? add_name(vocabulary, id, place.offset, place.length, error) : WEIR_OK;
}

weir_status weir_vocabulary_set_bytes(
    weir_vocabulary *vocabulary, int32_t id, const char *bytes, size_t length, weir_error *error
)
{
    bool mapped = false;
    return store(vocabulary, &vocabulary->tokens[id], bytes, length, &mapped, error);
}
