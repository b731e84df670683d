/* engine/text/tokenizer_gguf_pieces.c - SentencePiece vocabularies from GGUF: `llama` (BPE by
 * scores), `t5` (unigram), `gemma4` (BPE by merges, as tokenizers). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/base/utf8.h"
#include "engine/text/tokenizer_gguf.h"

#define KEY WEIR_GGUF_KEY

static weir_status read_bool(const weir_gguf_loader *loader, const char *key, bool *value)
{
    weir_meta meta;
    if (!weir_tensor_directory_meta(loader->directory, key, &meta)) return WEIR_OK;
    if (meta.type != WEIR_META_BOOL)
        return weir_error_set(loader->error, WEIR_EFORMAT, "%s is not a boolean", key);
    *value = meta.boolean;
    return WEIR_OK;
}

static weir_status load_charsmap(const weir_gguf_loader *loader)
{
    static const char key[] = KEY "precompiled_charsmap";
    weir_meta map;
    if (!weir_tensor_directory_meta(loader->directory, key, &map)) return WEIR_OK;
    WEIR_TRY(weir_gguf_array(loader, key, WEIR_META_INT, WEIR_CHARSMAP_BYTES, &map));
    if (map.length == 0) return WEIR_OK;
    char *const bytes = weir_memory_take(map.length);
    if (bytes == NULL)
        return weir_error_set(loader->error, WEIR_ENOMEM, "%s: no memory for the map", key);
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < map.length && status == WEIR_OK; i++) {
        weir_meta byte;
        if (weir_meta_at(&map, i, &byte) && byte.integer >= -128 && byte.integer <= 255)
            bytes[i] = (char)byte.integer;
        else
            status = weir_error_set(loader->error, WEIR_EFORMAT, "%s[%zu] is not a byte", key, i);
    }
    if (status == WEIR_OK) {
        status = weir_charsmap_open(
            &loader->tokenizer->spm->normalizer.charsmap, bytes, map.length, loader->error
        );
        if (status != WEIR_OK) status = weir_error_prefix(loader->error, status, "%s", key);
    }
    weir_memory_give(bytes);
    return status;
}

/* Spaces become U+2581 and merges apply to the whole text, as in the model's tokenizer.json. */
static void set_gemma4(weir_spm *spm, bool adds_prefix)
{
    weir_normalizer *const normalizer = &spm->normalizer;
    static const weir_normalizer_step replace = { .kind = WEIR_NORMALIZER_REPLACE,
                                                  .from = " ",
                                                  .to = WEIR_SPACE_SYMBOL,
                                                  .n_from = 1,
                                                  .n_to = 3 };
    static const weir_normalizer_step prepend = { .kind = WEIR_NORMALIZER_PREPEND,
                                                  .to = WEIR_SPACE_SYMBOL,
                                                  .n_to = 3 };
    if (adds_prefix) (void)weir_normalizer_add(normalizer, &prepend);
    (void)weir_normalizer_add(normalizer, &replace);
    spm->decoder.is_tokenizers = true;
    spm->decoder.n_start = 1;
    spm->decoder.start = adds_prefix ? WEIR_SPM_START_TEXT : WEIR_SPM_START_AS_IT_IS;
}

weir_status weir_gguf_open_pieces(const weir_gguf_loader *loader, const char *model, bool *add_bos)
{
    static const struct {
        const char *name;
        weir_spm_kind kind;
    } models[] = { { "llama", WEIR_SPM_SCORES },
                   { "t5", WEIR_SPM_UNIGRAM },
                   { "gemma4", WEIR_SPM_RANKS } };
    size_t i = 0;
    while (i < sizeof models / sizeof models[0] && strcmp(models[i].name, model) != 0) i++;
    if (i == sizeof models / sizeof models[0])
        return weir_error_set(
            loader->error, WEIR_EUNSUPPORTED,
            KEY "model is '%.64s'; known are gpt2 (byte-level BPE), llama, t5 and gemma4 "
                "(SentencePiece)",
            model
        );
    const weir_spm_kind kind = models[i].kind;
    weir_meta types;
    if (!weir_tensor_directory_meta(loader->directory, KEY "token_type", &types))
        return weir_error_set(
            loader->error, WEIR_EFORMAT,
            KEY "token_type is missing: the file does not say which pieces are bytes or control "
                "tokens; convert the model again"
        );
    WEIR_TRY(weir_tokenizer_make_spm(loader->tokenizer, kind, loader->error));
    weir_spm *const spm = loader->tokenizer->spm;
    bool adds_prefix = kind != WEIR_SPM_RANKS;
    WEIR_TRY(read_bool(loader, KEY "add_space_prefix", &adds_prefix));
    spm->has_bytes = spm->fuses_unknown = true;
    spm->decoder.joins_bytes = spm->decoder.unescapes = true;
    *add_bos = kind == WEIR_SPM_SCORES;
    if (kind == WEIR_SPM_RANKS) {
        set_gemma4(spm, adds_prefix);
        return WEIR_OK;
    }
    spm->is_sentencepiece = true;
    spm->normalizer.adds_prefix = adds_prefix;
    WEIR_TRY(read_bool(loader, KEY "remove_extra_whitespaces", &spm->normalizer.removes_spaces));
    if (adds_prefix || spm->normalizer.removes_spaces) spm->decoder.start = WEIR_SPM_START_PIECE;
    return load_charsmap(loader);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Converters write user-defined pieces with spaces instead of U+2581. */
static weir_status add_user_defined(
    const weir_gguf_loader *loader, size_t id, const char *text, size_t length
)
{
    weir_vocabulary *const vocabulary = &loader->tokenizer->vocabulary;
    weir_buffer *const name = &loader->tokenizer->scratch;
    weir_status status = WEIR_OK;
    weir_buffer_clear(name);
    for (size_t i = 0; i < length && status == WEIR_OK; i++)
        status = text[i] == ' ' ? weir_buffer_text(name, WEIR_SPACE_SYMBOL)
                                : weir_buffer_add(name, text + i, 1);
    if (status != WEIR_OK) return weir_error_set(loader->error, status, "no memory for a piece");
    const char *const bytes = name->size > 0 ? name->data : "";
    WEIR_TRY(weir_vocabulary_add(
        vocabulary, (int64_t)id, bytes, name->size, WEIR_TOKEN_USER, loader->error
    ));
    return weir_trie_add(&vocabulary->added[1], (int32_t)id, bytes, name->size, loader->error);
}

static weir_status add_flagged(
    const weir_gguf_loader *loader, size_t id, const weir_meta *name, unsigned flags
)
{
    return weir_vocabulary_add(
        &loader->tokenizer->vocabulary, (int64_t)id, name->string, name->length, flags,
        loader->error
    );
}

weir_status weir_gguf_add_piece(
    const weir_gguf_loader *loader, size_t id, const weir_meta *name, int64_t type
)
{
    weir_spm *const spm = loader->tokenizer->spm;
    if (!weir_utf8_valid(name->string, name->length))
        return weir_error_set(loader->error, WEIR_EFORMAT, "the piece is not UTF-8");
    if (name->length > WEIR_PIECE_BYTES)
        return weir_error_set(
            loader->error, WEIR_EFORMAT, "the piece has %zu bytes, at most %d are read",
            name->length, WEIR_PIECE_BYTES
        );
    const bool padding = weir_tokenizer_is_padding(name->string, name->length);
    switch (type) {
    case WEIR_GGUF_NORMAL: return add_flagged(loader, id, name, 0);
    case WEIR_GGUF_UNKNOWN:
        if (spm->unknown >= 0)
            return weir_error_set(
                loader->error, WEIR_EFORMAT, "it is a second unknown piece, after id %" PRId32,
                spm->unknown
            );
        spm->unknown = (int32_t)id;
        return add_flagged(loader, id, name, WEIR_TOKEN_PADDING | WEIR_TOKEN_SPECIAL);
    case WEIR_GGUF_CONTROL:
        return add_flagged(loader, id, name, WEIR_TOKEN_ADDED | WEIR_TOKEN_SPECIAL);
    case WEIR_GGUF_USER_DEFINED:
        if (spm->is_sentencepiece) return add_user_defined(loader, id, name->string, name->length);
        WEIR_TRY(add_flagged(loader, id, name, WEIR_TOKEN_ADDED));
        return weir_vocabulary_add_base_name(
            &loader->tokenizer->vocabulary, (int32_t)id, name->string, name->length, loader->error
        );
    case WEIR_GGUF_UNUSED:
        if (padding) return add_flagged(loader, id, name, WEIR_TOKEN_PADDING | WEIR_TOKEN_SPECIAL);
        spm->has_unused = true;
        return add_flagged(loader, id, name, spm->is_sentencepiece ? WEIR_TOKEN_UNUSED : 0);
    case WEIR_GGUF_BYTE:
        if (weir_spm_byte_of(name->string, name->length) < 0)
            return weir_error_set(
                loader->error, WEIR_EFORMAT, "the byte piece '%.32s' is not named <0x00> to <0xFF>",
                name->string
            );
        return add_flagged(loader, id, name, WEIR_TOKEN_BYTE);
    default:
        return weir_error_set(
            loader->error, WEIR_EFORMAT, "the type %" PRId64 " is not 1 to 6", type
        );
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

static weir_status load_scores(const weir_gguf_loader *loader)
{
    weir_spm *const spm = loader->tokenizer->spm;
    const size_t n = loader->tokenizer->vocabulary.size;
    weir_meta scores;
    WEIR_TRY(weir_gguf_array(loader, KEY "scores", WEIR_META_FLOAT, WEIR_VOCABULARY_IDS, &scores));
    if (scores.length != n)
        return weir_error_set(
            loader->error, WEIR_EFORMAT, KEY "scores has %zu entries, " KEY "tokens %zu",
            scores.length, n
        );
    spm->scores = weir_memory_take(n * sizeof *spm->scores);
    if (spm->scores == NULL)
        return weir_error_set(loader->error, WEIR_ENOMEM, KEY "scores: no memory");
    spm->n_scored = n;
    for (size_t i = 0; i < n; i++) {
        weir_meta score;
        if (!weir_meta_at(&scores, i, &score) || !isfinite((float)score.number))
            return weir_error_set(
                loader->error, WEIR_EFORMAT, KEY "scores[%zu] is not a finite number", i
            );
        spm->scores[i] = (double)(float)score.number;
    }
    return WEIR_OK;
}

weir_status weir_gguf_load_pieces(const weir_gguf_loader *loader)
{
    weir_spm *const spm = loader->tokenizer->spm;
    if (loader->tokenizer->vocabulary.size == 0)
        return weir_error_set(loader->error, WEIR_EFORMAT, KEY "tokens is empty");
    if (spm->unknown < 0) WEIR_TRY(weir_gguf_id(loader, KEY "unknown_token_id", &spm->unknown));
    return spm->kind == WEIR_SPM_RANKS ? WEIR_OK : load_scores(loader);
}
