/* engine/text/tokenizer_build.c - the steps of building a tokenizer that both file formats
 * share. */
#include <string.h>

#include "engine/base/memory.h"
#include "engine/base/utf8.h"
#include "engine/text/tokenizer_internal.h"

weir_tokenizer *weir_tokenizer_new(void)
{
    weir_tokenizer *const tokenizer = weir_memory_take_zero(1, sizeof *tokenizer);
    if (tokenizer == NULL) return NULL;
    weir_vocabulary_init(&tokenizer->vocabulary);
    tokenizer->normalized.n_nodes = 1;
    tokenizer->bos = tokenizer->eos = tokenizer->end = -1;
    return tokenizer;
}

/* Finds the base token of a name; `out` has room for its bytes. */
static int32_t base_of(
    const weir_tokenizer *tokenizer, char *out, size_t *n, const char *name, size_t length
)
{
    if (!weir_vocabulary_unmap(&tokenizer->vocabulary, out, n, name, length)) return -1;
    return weir_vocabulary_find_base(&tokenizer->vocabulary, out, *n);
}

weir_status weir_tokenizer_add_merge(
    weir_tokenizer *tokenizer, uint32_t rank, const char *left, size_t left_length,
    const char *right, size_t right_length, weir_error *error
)
{
    if (rank >= WEIR_MERGES)
        return weir_error_set(error, WEIR_EFORMAT, "more than %d merges", WEIR_MERGES);
    weir_buffer *const scratch = &tokenizer->scratch;
    weir_buffer_clear(scratch);
    if (left_length > WEIR_VOCABULARY_BYTES || right_length > WEIR_VOCABULARY_BYTES ||
        weir_buffer_reserve(scratch, left_length + right_length) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a merge");
    size_t n_left = 0, n_right = 0;
    const int32_t a = base_of(tokenizer, scratch->data, &n_left, left, left_length);
    const int32_t b =
        a < 0 ? -1 : base_of(tokenizer, scratch->data + n_left, &n_right, right, right_length);
    const int32_t joined =
        b < 0 ? -1
              : weir_vocabulary_find_base(&tokenizer->vocabulary, scratch->data, n_left + n_right);
    if (joined < 0)
        return weir_error_set(
            error, WEIR_EMISMATCH, "the merge '%.*s' + '%.*s': %s in the vocabulary",
            (int)(left_length < 64 ? left_length : 64), left,
            (int)(right_length < 64 ? right_length : 64), right,
            a < 0   ? "the left part is not"
            : b < 0 ? "the right part is not"
                    : "their join is not"
        );
    if ((tokenizer->vocabulary.tokens[joined].flags & WEIR_TOKEN_SPECIAL) != 0) return WEIR_OK;
    weir_pair_entry *const entry =
        weir_pair_put(&tokenizer->merges, weir_pair_key((uint32_t)a, (uint32_t)b));
    if (entry == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for merges");
    entry->number = rank;
    entry->id = joined;
    return WEIR_OK;
}

weir_status weir_tokenizer_add_merge_text(
    weir_tokenizer *tokenizer, uint32_t rank, const char *text, size_t length, weir_error *error
)
{
    const char *const space = length < 3 ? NULL : memchr(text + 1, ' ', length - 1);
    if (space == NULL || space == text + length - 1)
        return weir_error_set(
            error, WEIR_EFORMAT, "the merge '%.*s' is not two tokens with a space between",
            (int)(length < 64 ? length : 64), text
        );
    const size_t left = (size_t)(space - text);
    return weir_tokenizer_add_merge(
        tokenizer, rank, text, left, space + 1, length - left - 1, error
    );
}

void weir_tokenizer_add_stop(weir_tokenizer *tokenizer, int64_t id)
{
    const weir_token *const token = weir_vocabulary_at(&tokenizer->vocabulary, id);
    if (token == NULL || token->flags == 0 || (token->flags & WEIR_TOKEN_PADDING) != 0 ||
        tokenizer->n_stop == WEIR_STOP_IDS)
        return;
    for (size_t i = 0; i < tokenizer->n_stop; i++)
        if (tokenizer->stop[i] == id) return;
    tokenizer->stop[tokenizer->n_stop++] = (int32_t)id;
}

weir_status weir_tokenizer_set_template(
    weir_tokenizer *tokenizer, const char *text, size_t length, weir_error *error
)
{
    if (memchr(text, '\0', length) != NULL)
        return weir_error_set(error, WEIR_EFORMAT, "the chat template holds a NUL");
    char *const copy = weir_memory_take(length + 1);
    if (copy == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the chat template");
    memcpy(copy, text, length);
    copy[length] = '\0';
    weir_memory_give(tokenizer->chat_template);
    tokenizer->chat_template = copy;
    return WEIR_OK;
}

bool weir_tokenizer_is_padding(const char *name, size_t length)
{
    if (length < 6 || memcmp(name, "[PAD", 4) != 0 || name[length - 1] != ']') return false;
    for (size_t i = 4; i < length - 1; i++)
        if (name[i] < '0' || name[i] > '9') return false;
    return true;
}

/* True for bytes that occur in well-formed UTF-8: all but C0, C1 and F5 to FF. */
static bool is_used(unsigned byte)
{
    return weir_utf8_length((unsigned char)byte) > 0 || (byte >= 0x80 && byte < 0xC0);
}

static weir_status find_bytes(weir_tokenizer *tokenizer, weir_error *error)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        const char character = (char)byte;
        tokenizer->byte_ids[byte] =
            weir_vocabulary_find_base(&tokenizer->vocabulary, &character, 1);
        if (tokenizer->byte_ids[byte] < 0 && is_used(byte))
            return weir_error_set(
                error, WEIR_EFORMAT, "no token for the byte 0x%02X: not a byte-level vocabulary",
                byte
            );
    }
    return WEIR_OK;
}

/* The id of a control token; -1: none has this text. */
static int32_t control_token(const weir_tokenizer *tokenizer, const char *name)
{
    const weir_vocabulary *const vocabulary = &tokenizer->vocabulary;
    const int32_t id = weir_vocabulary_find_added(vocabulary, name, strlen(name));
    return id >= 0 && (vocabulary->tokens[id].flags & WEIR_TOKEN_SPECIAL) != 0 ? id : -1;
}

/* Control tokens known to end a turn, because several checkpoints declare only one of theirs. An
 * ordinary token of the same name (Qwen has a plain `</s>`) does not count. */
static void add_known_stops(weir_tokenizer *tokenizer)
{
    static const char *const names[] = {
        "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>",
        "<|eom_id|>", "[EOT]",      "[EOS]",         "</s>",
        "<|return|>", "<|call|>",   "<end_of_turn>", "<｜end▁of▁sentence｜>",
        "<|end|>"
    };
    /* In gpt-oss `<|end|>` ends a message, of which an answer has several; in Phi the answer. */
    const bool has_messages = control_token(tokenizer, "<|return|>") >= 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int32_t id = control_token(tokenizer, names[i]);
        if (id >= 0 && !(has_messages && strcmp(names[i], "<|end|>") == 0))
            weir_tokenizer_add_stop(tokenizer, id);
    }
}

/* tokenizers normalises the text of an added token that is matched in normalised text, and decodes
 * it to that; the text of a control token stays, because templates contain it. Tokens that become
 * equal are found as the first. */
static weir_status normalize_token(
    weir_tokenizer *tokenizer, weir_buffer buffers[2], size_t id, weir_error *error
)
{
    weir_vocabulary *const vocabulary = &tokenizer->vocabulary;
    weir_trie *const trie = &tokenizer->normalized;
    const weir_token *const token = &vocabulary->tokens[id];
    const char *const name = vocabulary->bytes.data + token->offset, *text = name;
    size_t n = token->length, length = 0;
    const weir_status status =
        weir_normalizer_run(weir_tokenizer_normalizer(tokenizer), buffers, &text, &n);
    if (status != WEIR_OK)
        return weir_error_set(error, status, "cannot normalise the token of id %zu", id);
    if (n == 0) return WEIR_OK;
    if (weir_trie_match(trie, text, n, &length) < 0 || length < n)
        WEIR_TRY(weir_trie_add(trie, (int32_t)id, text, n, error));
    const bool stays = (token->flags & WEIR_TOKEN_SPECIAL) != 0 ||
                       (n == token->length && memcmp(text, name, n) == 0);
    return stays ? WEIR_OK : weir_vocabulary_set_bytes(vocabulary, (int32_t)id, text, n, error);
}

weir_status weir_tokenizer_normalize_added(weir_tokenizer *tokenizer, weir_error *error)
{
    static const unsigned wanted = WEIR_TOKEN_ADDED | WEIR_TOKEN_NORMALIZED;
    weir_buffer buffers[2] = { { 0 }, { 0 } };
    weir_status status = WEIR_OK;
    for (size_t id = 0; id < tokenizer->vocabulary.size && status == WEIR_OK; id++)
        if ((tokenizer->vocabulary.tokens[id].flags & wanted) == wanted)
            status = normalize_token(tokenizer, buffers, id, error);
    for (int i = 0; i < 2; i++) weir_buffer_free(&buffers[i]);
    return status;
}

weir_status weir_tokenizer_finish(weir_tokenizer *tokenizer, weir_error *error)
{
    if (tokenizer->spm == NULL) WEIR_TRY(find_bytes(tokenizer, error));
    const weir_vocabulary *const vocabulary = &tokenizer->vocabulary;
    tokenizer->size = vocabulary->size;
    while (tokenizer->size > 0 &&
           (vocabulary->tokens[tokenizer->size - 1].flags & WEIR_TOKEN_PADDING) != 0)
        tokenizer->size--;
    add_known_stops(tokenizer);
    const weir_status status = tokenizer->spm == NULL
                                   ? weir_tokenizer_normalize_added(tokenizer, error)
                                   : weir_spm_finish(tokenizer, error);
    weir_buffer_free(&tokenizer->scratch);
    return status;
}
