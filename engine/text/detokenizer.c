/* engine/text/detokenizer.c - converts tokens to well-formed text as they arrive. */
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/tokenizer_internal.h"

/* Replaces held bytes that cannot become a code point: one U+FFFD for a maximal part, one for each
 * byte of half a surrogate. */
static weir_status replace_held(weir_detokenizer *stream, weir_buffer *out)
{
    const bool surrogate = stream->held[0] == 0xED && stream->n_held == 2 && stream->held[1] > 0x9F;
    const int parts = stream->per_byte ? stream->n_held : surrogate ? 2 : 1;
    stream->n_held = 0;
    for (int i = 0; i < parts; i++) WEIR_TRY(weir_buffer_text(out, WEIR_UTF8_REPLACEMENT));
    return WEIR_OK;
}

/* ED A0..BF begins a surrogate and is already ill-formed. The reference decoder rejects it only
 * with the next byte, so it is held until then. */
static bool begins_surrogate(const weir_detokenizer *stream, unsigned char byte)
{
    return stream->n_held == 1 && stream->held[0] == 0xED && byte >= 0xA0 && byte <= 0xBF;
}

static weir_status push_byte(weir_detokenizer *stream, weir_buffer *out, unsigned char byte)
{
    const bool surrogate = stream->n_held == 2 && stream->held[0] == 0xED && stream->held[1] > 0x9F;
    if (stream->n_held > 0 &&
        (begins_surrogate(stream, byte) ||
         (!surrogate && weir_utf8_continues(stream->held[0], stream->n_held, byte)))) {
        stream->held[stream->n_held++] = byte;
        if (stream->n_held < weir_utf8_length(stream->held[0])) return WEIR_OK;
        const size_t n = (size_t)stream->n_held;
        stream->n_held = 0;
        return weir_buffer_add(out, stream->held, n);
    }
    if (stream->n_held > 0) WEIR_TRY(replace_held(stream, out));
    if (byte < 0x80) return weir_buffer_add(out, &byte, 1);
    if (weir_utf8_length(byte) == 0) return weir_buffer_text(out, WEIR_UTF8_REPLACEMENT);
    stream->held[0] = byte;
    stream->n_held = 1;
    return WEIR_OK;
}

weir_status weir_detokenizer_push(
    weir_detokenizer *stream, weir_buffer *out, const char *bytes, size_t n
)
{
    for (size_t i = 0; i < n;) {
        size_t run = i;
        if (stream->n_held == 0)
            while (run < n && (unsigned char)bytes[run] < 0x80) run++;
        if (run > i)
            WEIR_TRY(weir_buffer_add(out, bytes + i, run - i));
        else
            WEIR_TRY(push_byte(stream, out, (unsigned char)bytes[run++]));
        i = run;
    }
    return WEIR_OK;
}

weir_status weir_detokenizer_finish(weir_detokenizer *stream, weir_buffer *out)
{
    return stream->n_held > 0 ? replace_held(stream, out) : WEIR_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Drops what the decoder drops at the start of a text from a token's bytes. */
static void drop_start(
    weir_detokenizer *stream, const weir_spm *spm, const weir_token *token, const char **bytes,
    size_t *n
)
{
    const bool is_byte = (token->flags & WEIR_TOKEN_BYTE) != 0;
    const int limit = spm->decoder.n_start;
    switch (spm->decoder.start) {
    case WEIR_SPM_START_AS_IT_IS: stream->at_start = false; return;
    case WEIR_SPM_START_PIECE:
        if (!is_byte && (token->flags & WEIR_TOKEN_SPACED) != 0 && (*bytes)[0] == ' ') {
            ++*bytes, --*n;
            stream->at_start = spm->normalizer.removes_spaces;
        }
        break;
    case WEIR_SPM_START_TEXT:
        for (; *n > 0 && (*bytes)[0] == ' ' && stream->n_dropped < limit; ++*bytes, --*n)
            stream->n_dropped++;
        break;
    case WEIR_SPM_START_TOKEN: break;
    }
    if (*n > 0) stream->at_start = false;
}

/* Pushes the bytes of the first token without its spaces. */
static weir_status push_unspaced(
    weir_detokenizer *stream, weir_buffer *out, const char *bytes, size_t n
)
{
    stream->at_start = false;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != ' ') WEIR_TRY(weir_detokenizer_push(stream, out, bytes + i, 1));
    return WEIR_OK;
}

weir_status weir_detokenizer_token(
    weir_detokenizer *stream, const weir_tokenizer *tokenizer, weir_buffer *out, int32_t id,
    bool skip_special
)
{
    size_t n;
    bool special;
    const char *bytes = weir_tokenizer_token_bytes(tokenizer, id, &n, &special);
    const weir_spm *const spm = tokenizer->spm;
    const bool skipped = special && skip_special;
    if (spm == NULL || n == 0)
        return skipped ? WEIR_OK : weir_detokenizer_push(stream, out, bytes, n);
    const weir_token *const token = &tokenizer->vocabulary.tokens[id];
    stream->per_byte = true;
    /* In sentencepiece a control piece ends a run of bytes; tokenizers does not see what it
     * skips. */
    if ((token->flags & WEIR_TOKEN_BYTE) == 0 && stream->n_held > 0 &&
        (!skipped || spm->is_sentencepiece))
        WEIR_TRY(replace_held(stream, out));
    if (skipped) return WEIR_OK;
    if (stream->at_start && spm->decoder.start == WEIR_SPM_START_TOKEN &&
        (token->flags & WEIR_TOKEN_SPACED) != 0)
        return push_unspaced(stream, out, bytes, n);
    if (stream->at_start) drop_start(stream, spm, token, &bytes, &n);
    return weir_detokenizer_push(stream, out, bytes, n);
}

/* tokenizers' ByteFallback: the byte pieces from ids[*i] on are text if all of them are, else each
 * is U+FFFD. Moves *i past them. */
static weir_status decode_run(
    const weir_tokenizer *tokenizer, weir_detokenizer *stream, weir_buffer *out, weir_buffer *run,
    const int32_t *ids, size_t n, bool skip_special, size_t *i
)
{
    weir_buffer_clear(run);
    const size_t first = *i;
    for (; *i < n; ++*i) {
        const weir_token *const token = weir_vocabulary_at(&tokenizer->vocabulary, ids[*i]);
        const unsigned flags = token == NULL ? 0 : token->flags;
        if ((flags & WEIR_TOKEN_SPECIAL) != 0 && skip_special) continue;
        if ((flags & WEIR_TOKEN_BYTE) == 0) break;
        WEIR_TRY(
            weir_buffer_add(run, tokenizer->vocabulary.bytes.data + token->offset, token->length)
        );
    }
    if (run->size > 0 && !weir_utf8_valid(run->data, run->size)) {
        stream->at_start = false;
        for (size_t k = 0; k < run->size; k++)
            WEIR_TRY(weir_buffer_text(out, WEIR_UTF8_REPLACEMENT));
        return WEIR_OK;
    }
    for (size_t k = first; k < *i; k++)
        WEIR_TRY(weir_detokenizer_token(stream, tokenizer, out, ids[k], skip_special));
    return WEIR_OK;
}

weir_status weir_tokenizer_decode(
    const weir_tokenizer *tokenizer, weir_buffer *out, const int32_t *ids, size_t n,
    bool skip_special
)
{
    weir_detokenizer stream = { .at_start = true };
    weir_buffer run = { 0 };
    const bool in_runs = tokenizer->spm != NULL && tokenizer->spm->decoder.is_tokenizers &&
                         tokenizer->spm->decoder.joins_bytes;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < n && status == WEIR_OK;) {
        const size_t before = i;
        if (in_runs) status = decode_run(tokenizer, &stream, out, &run, ids, n, skip_special, &i);
        if (i == before && status == WEIR_OK)
            status = weir_detokenizer_token(&stream, tokenizer, out, ids[i++], skip_special);
    }
    weir_buffer_free(&run);
    return status == WEIR_OK ? weir_detokenizer_finish(&stream, out) : status;
}
