/* engine/text/detokenizer.c - converts bytes of tokens to well-formed text as they arrive. */
#include <string.h>

#include "engine/text/utf8.h"

/* Replaces held bytes that cannot become a code point: one U+FFFD for a maximal part, one for each
 * byte of half a surrogate. */
static weir_status replace_held(weir_detokenizer *stream, weir_buffer *out)
{
    const int parts =
        stream->held[0] == 0xED && stream->n_held == 2 && stream->held[1] > 0x9F ? 2 : 1;
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
