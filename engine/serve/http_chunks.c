/* engine/serve/http_chunks.c - a state machine over bytes; chunk data is skipped as a whole. */
#include "engine/serve/http_chunks.h"

#include "engine/base/hex.h"

enum { SIZE_DIGITS = 15, EXTENSION_BYTES = 256, TRAILER_BYTES = 4 << 10 };

static bool refuse(weir_http_problem *problem, const char *text)
{
    *problem = (weir_http_problem){ .status = 400, .text = text };
    return false;
}

static bool is_text(char c)
{
    const unsigned char byte = (unsigned char)c;
    return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}

static bool read_size(weir_http_chunks *k, char c, weir_http_problem *problem)
{
    const int digit = weir_hex_digit(c);
    if (digit >= 0) {
        k->left = k->left << 4 | (unsigned)digit;
        return ++k->digits <= SIZE_DIGITS || refuse(problem, "the size of a chunk is too large");
    }
    if (k->digits == 0 || (c != '\r' && c != ';' && c != ' ' && c != '\t'))
        return refuse(problem, "the size of a chunk is not a hexadecimal number");
    k->state = c == '\r' ? WEIR_CHUNK_SIZE_LF : WEIR_CHUNK_EXTENSION;
    k->line = 0;
    return true;
}

static bool read_extension(weir_http_chunks *k, char c, weir_http_problem *problem)
{
    if (c == '\r') k->state = WEIR_CHUNK_SIZE_LF;
    if (c != '\r' && !is_text(c)) return refuse(problem, "a chunk's extension is malformed");
    return ++k->line <= EXTENSION_BYTES || refuse(problem, "a chunk's extension is too long");
}

static bool read_line_feed(
    weir_http_chunks *k, char c, weir_chunk_state next, weir_http_problem *problem
)
{
    if (c != '\n') return refuse(problem, "a line between chunks does not end with CR LF");
    k->state = next;
    k->digits = k->line = 0;
    return true;
}

/* An empty line ends the body. */
static bool read_trailer(weir_http_chunks *k, char c, weir_http_problem *problem)
{
    if (++k->trailers > TRAILER_BYTES) return refuse(problem, "the trailers are too long");
    if (c == '\r') {
        k->state = WEIR_CHUNK_TRAILER_LF;
        return true;
    }
    k->line++;
    return is_text(c) || refuse(problem, "a trailer is malformed");
}

static bool read_byte(weir_http_chunks *k, char c, weir_http_problem *problem)
{
    switch (k->state) {
    case WEIR_CHUNK_SIZE: return read_size(k, c, problem);
    case WEIR_CHUNK_EXTENSION: return read_extension(k, c, problem);
    case WEIR_CHUNK_SIZE_LF:
        return read_line_feed(k, c, k->left > 0 ? WEIR_CHUNK_DATA : WEIR_CHUNK_TRAILER, problem);
    case WEIR_CHUNK_DATA: return false; /* not read byte by byte */
    case WEIR_CHUNK_DATA_CR:
        k->state = WEIR_CHUNK_DATA_LF;
        return c == '\r' || refuse(problem, "a chunk is longer than its size");
    case WEIR_CHUNK_DATA_LF: return read_line_feed(k, c, WEIR_CHUNK_SIZE, problem);
    case WEIR_CHUNK_TRAILER: return read_trailer(k, c, problem);
    case WEIR_CHUNK_TRAILER_LF:
        return read_line_feed(k, c, k->line == 0 ? WEIR_CHUNK_END : WEIR_CHUNK_TRAILER, problem);
    case WEIR_CHUNK_END: break;
    }
    return refuse(problem, "bytes after the last chunk");
}

weir_http_progress weir_http_chunks_read(
    weir_http_chunks *k, const char *bytes, size_t n, size_t *used, size_t *n_data,
    weir_http_problem *problem
)
{
    size_t at = 0;
    *n_data = 0;
    while (at < n && k->state != WEIR_CHUNK_END && k->state != WEIR_CHUNK_DATA)
        if (!read_byte(k, bytes[at++], problem)) return WEIR_HTTP_BAD;
    if (k->state == WEIR_CHUNK_DATA) {
        *n_data = k->left < n - at ? (size_t)k->left : n - at;
        k->left -= *n_data;
        if (k->left == 0) k->state = WEIR_CHUNK_DATA_CR;
    }
    *used = at + *n_data;
    return k->state == WEIR_CHUNK_END ? WEIR_HTTP_DONE : WEIR_HTTP_MORE;
}
