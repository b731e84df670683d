/* engine/text/spm_build.c - the tables of a SentencePiece vocabulary, made once all pieces are
 * known. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hex.h"
#include "engine/base/memory.h"
#include "engine/text/tokenizer_internal.h"

weir_spm *weir_spm_new(void)
{
    weir_spm *const spm = weir_memory_take_zero(1, sizeof *spm);
    if (spm == NULL) return NULL;
    spm->unknown = -1;
    spm->pieces.n_nodes = spm->blanks.n_nodes = 1;
    return spm;
}

weir_status weir_tokenizer_make_spm(
    weir_tokenizer *tokenizer, weir_spm_kind kind, weir_error *error
)
{
    tokenizer->spm = weir_spm_new();
    if (tokenizer->spm == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a vocabulary of pieces");
    tokenizer->spm->kind = kind;
    tokenizer->vocabulary.is_verbatim = true;
    return WEIR_OK;
}

void weir_spm_free(weir_spm *spm)
{
    if (spm == NULL) return;
    weir_memory_give(spm->scores);
    weir_memory_give(spm->ranks);
    weir_pair_free(&spm->pieces.edges);
    weir_pair_free(&spm->blanks.edges);
    weir_normalizer_free(&spm->normalizer);
    weir_memory_give(spm);
}

int weir_spm_byte_of(const char *name, size_t length)
{
    if (length != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>') return -1;
    const int high = weir_hex_digit(name[3]), low = weir_hex_digit(name[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static const char *name_of(const weir_tokenizer *tokenizer, size_t id)
{
    return tokenizer->vocabulary.bytes.data + tokenizer->vocabulary.tokens[id].offset;
}

/* GGUF marks byte pieces; in tokenizer.json their names make them. */
static weir_status find_byte_pieces(weir_tokenizer *tokenizer, weir_error *error)
{
    const weir_vocabulary *const vocabulary = &tokenizer->vocabulary;
    unsigned n_found = 0, missing = 0;
    for (int i = 0; i < 256; i++) tokenizer->byte_ids[i] = -1;
    for (size_t id = 0; id < vocabulary->size; id++) {
        if ((vocabulary->tokens[id].flags & WEIR_TOKEN_BYTE) == 0) continue;
        const int byte = weir_spm_byte_of(name_of(tokenizer, id), vocabulary->tokens[id].length);
        if (tokenizer->byte_ids[byte] >= 0)
            return weir_error_set(
                error, WEIR_EFORMAT, "ids %d and %zu are both the byte piece <0x%02X>",
                tokenizer->byte_ids[byte], id, (unsigned)byte
            );
        tokenizer->byte_ids[byte] = (int32_t)id;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", byte);
        int32_t *const id = &tokenizer->byte_ids[byte];
        if (*id < 0 && !tokenizer->spm->is_sentencepiece)
            *id = weir_vocabulary_find_base(vocabulary, name, 6);
        if (*id >= 0)
            n_found++;
        else
            missing = byte;
    }
    if (n_found > 0 && n_found < 256 && tokenizer->spm->has_bytes)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%u of 256 byte pieces are there, <0x%02X> is not: byte fallback needs all", n_found,
            missing
        );
    tokenizer->spm->has_bytes = tokenizer->spm->has_bytes && n_found == 256;
    return WEIR_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* True if text may become this token: it has a name, and is no control token. */
static bool is_piece(const weir_vocabulary *vocabulary, size_t id)
{
    const weir_token *const token = &vocabulary->tokens[id];
    return token->flags != 0 && (token->flags & WEIR_TOKEN_SPECIAL) == 0 &&
           weir_vocabulary_find_base(
               vocabulary, vocabulary->bytes.data + token->offset, token->length
           ) == (int32_t)id;
}

static void note_spaces(weir_spm *spm, const char *name, size_t length)
{
    for (size_t i = 1; i + 3 <= length; i++)
        if (memcmp(name + i, WEIR_SPACE_SYMBOL, 3) == 0)
            spm->crosses[(unsigned char)name[i - 1]] = true;
}

static bool is_blank(const char *name, size_t length)
{
    for (size_t i = 0; i < length;) {
        const bool symbol = length - i >= 3 && memcmp(name + i, WEIR_SPACE_SYMBOL, 3) == 0;
        if (!symbol && strchr(" \t\r\n", name[i]) == NULL) return false;
        i += symbol ? 3 : 1;
    }
    return true;
}

static weir_status add_piece(weir_tokenizer *tokenizer, size_t id, weir_error *error)
{
    weir_spm *const spm = tokenizer->spm;
    const weir_token *const token = &tokenizer->vocabulary.tokens[id];
    const char *const name = name_of(tokenizer, id);
    if (token->length > WEIR_PIECE_BYTES)
        return weir_error_set(
            error, WEIR_EFORMAT, "the piece of id %zu has %u bytes, at most %d are read", id,
            (unsigned)token->length, WEIR_PIECE_BYTES
        );
    if (token->length > spm->longest) spm->longest = token->length;
    note_spaces(spm, name, token->length);
    if ((token->flags & WEIR_TOKEN_USER) != 0 && is_blank(name, token->length))
        WEIR_TRY(weir_trie_add(&spm->blanks, (int32_t)id, name, token->length, error));
    return spm->kind == WEIR_SPM_UNIGRAM && id < spm->n_scored &&
                   (token->flags & WEIR_TOKEN_UNUSED) == 0
               ? weir_trie_add(&spm->pieces, (int32_t)id, name, token->length, error)
               : WEIR_OK;
}

static weir_status add_pieces(weir_tokenizer *tokenizer, weir_error *error)
{
    weir_spm *const spm = tokenizer->spm;
    size_t count = 0;
    for (size_t id = 0; id < tokenizer->vocabulary.size; id++) {
        if (!is_piece(&tokenizer->vocabulary, id)) continue;
        WEIR_TRY(add_piece(tokenizer, id, error));
        count++;
    }
    if (count == 0 && !spm->has_bytes)
        return weir_error_set(error, WEIR_EFORMAT, "the vocabulary has no pieces that make text");
    /* Unknown characters are fused over a U+2581 that is one. */
    if (weir_vocabulary_find_base(&tokenizer->vocabulary, WEIR_SPACE_SYMBOL, 3) < 0)
        memset(spm->crosses, true, sizeof spm->crosses);
    return WEIR_OK;
}

/* ---- scores ---------------------------------------------------------------------------------- */

typedef struct scored {
    double score;
    uint32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    const double x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x < y) - (x > y);
}

/* Equal scores share a rank: the leftmost pair is then merged first. */
static weir_status rank_scores(weir_tokenizer *tokenizer, weir_error *error)
{
    weir_spm *const spm = tokenizer->spm;
    const size_t n = tokenizer->vocabulary.size;
    scored *const order = weir_memory_take(n * sizeof *order);
    spm->ranks = weir_memory_take(n * sizeof *spm->ranks);
    if (order == NULL || spm->ranks == NULL) {
        weir_memory_give(order);
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the ranks of %zu pieces", n);
    }
    for (size_t i = 0; i < n; i++) order[i] = (scored){ spm->scores[i], (uint32_t)i };
    qsort(order, n, sizeof *order, by_score);
    uint32_t rank = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && order[i].score < order[i - 1].score) rank++;
        spm->ranks[order[i].id] = rank;
    }
    weir_memory_give(order);
    return WEIR_OK;
}

/* What an unknown character scores: less than every piece. sentencepiece looks at normal pieces,
 * tokenizers at all. */
static void set_unigram(weir_tokenizer *tokenizer)
{
    static const double penalty = 10;
    const weir_vocabulary *const vocabulary = &tokenizer->vocabulary;
    weir_spm *const spm = tokenizer->spm;
    double least = INFINITY;
    for (size_t id = 0; id < spm->n_scored; id++) {
        const unsigned flags = vocabulary->tokens[id].flags;
        if (spm->is_sentencepiece ? flags != WEIR_TOKEN_PRESENT : flags == 0) continue;
        if (spm->scores[id] < least) least = spm->scores[id];
    }
    if (isinf(least)) least = 0;
    const double score = least - penalty;
    spm->unigram =
        (weir_unigram){ .vocabulary = vocabulary,
                        .trie = &spm->pieces,
                        .scores = spm->scores,
                        .longest = spm->longest,
                        .unknown_score = spm->is_sentencepiece ? (double)(float)score : score,
                        .is_single = spm->is_sentencepiece };
}

/* ---- what tokens decode to ------------------------------------------------------------------- */

static weir_status unescape(weir_tokenizer *tokenizer, size_t id, weir_error *error)
{
    weir_token *const token = &tokenizer->vocabulary.tokens[id];
    weir_buffer *const scratch = &tokenizer->scratch;
    weir_buffer_clear(scratch);
    if (weir_buffer_reserve(scratch, token->length) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for tokens");
    const char *const name = name_of(tokenizer, id);
    size_t n = 0;
    for (size_t i = 0; i < token->length;) {
        const bool is_space = token->length - i >= 3 && memcmp(name + i, WEIR_SPACE_SYMBOL, 3) == 0;
        scratch->data[n++] = is_space ? ' ' : name[i];
        i += is_space ? 3 : 1;
    }
    if (n == token->length) return WEIR_OK;
    token->flags |= WEIR_TOKEN_SPACED;
    return weir_vocabulary_set_bytes(&tokenizer->vocabulary, (int32_t)id, scratch->data, n, error);
}

static weir_status set_bytes(weir_tokenizer *tokenizer, weir_error *error)
{
    const weir_spm *const spm = tokenizer->spm;
    for (size_t id = 0; id < tokenizer->vocabulary.size; id++) {
        weir_token *const token = &tokenizer->vocabulary.tokens[id];
        if (token->flags == 0) continue;
        const int byte = spm->decoder.joins_bytes &&
                                 (!spm->is_sentencepiece || (token->flags & WEIR_TOKEN_BYTE) != 0)
                             ? weir_spm_byte_of(name_of(tokenizer, id), token->length)
                             : -1;
        if (byte >= 0) {
            const char bytes[1] = { (char)byte };
            token->flags |= WEIR_TOKEN_BYTE;
            WEIR_TRY(weir_vocabulary_set_bytes(&tokenizer->vocabulary, (int32_t)id, bytes, 1, error)
            );
        } else if (spm->decoder.unescapes &&
                   !(spm->is_sentencepiece && (token->flags & WEIR_TOKEN_SPECIAL) != 0)) {
            WEIR_TRY(unescape(tokenizer, id, error));
        }
    }
    return WEIR_OK;
}

weir_status weir_spm_finish(weir_tokenizer *tokenizer, weir_error *error)
{
    weir_spm *const spm = tokenizer->spm;
    WEIR_TRY(find_byte_pieces(tokenizer, error));
    if (spm->unknown < 0 && !spm->has_bytes && spm->kind != WEIR_SPM_RANKS)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "there is neither an unknown piece nor the 256 byte pieces: characters without a piece "
            "have no id"
        );
    WEIR_TRY(add_pieces(tokenizer, error));
    if (spm->kind == WEIR_SPM_SCORES) WEIR_TRY(rank_scores(tokenizer, error));
    if (spm->kind == WEIR_SPM_UNIGRAM) set_unigram(tokenizer);
    WEIR_TRY(weir_tokenizer_normalize_added(tokenizer, error));
    return set_bytes(tokenizer, error);
}
