/* engine/base/sha256.c - FIPS 180-4, section 6.2. */
#include "engine/base/sha256.h"

#include <string.h>

#include "engine/base/hex.h"
#include "engine/base/sha256_constants.h"

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5],
             g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        const uint32_t t1 = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                            ((e & f) ^ (~e & g)) + weir_sha256_constants[i] + w[i];
        const uint32_t t2 =
            (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f,
        state[6] += g, state[7] += h;
}

void weir_sha256_blocks_plain(uint32_t state[8], const uint8_t *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) compress(state, blocks + 64 * i);
}

static void add_blocks(uint32_t state[8], const uint8_t *blocks, size_t n)
{
    if (n == 0) return;
    if (weir_sha256_has_shani())
        weir_sha256_blocks_shani(state, blocks, n);
    else
        weir_sha256_blocks_plain(state, blocks, n);
}

void weir_sha256_begin(weir_sha256_stream *stream)
{
    *stream = (weir_sha256_stream){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void weir_sha256_add(weir_sha256_stream *stream, const void *data, size_t n)
{
    const uint8_t *at = data;
    const size_t held = stream->n_bytes % 64;
    if (n == 0) return;
    stream->n_bytes += n;
    if (held > 0) {
        const size_t taken = n < 64 - held ? n : 64 - held;
        memcpy(stream->block + held, at, taken);
        if (held + taken < 64) return;
        add_blocks(stream->state, stream->block, 1);
        at += taken;
        n -= taken;
    }
    add_blocks(stream->state, at, n / 64);
    if (n % 64 > 0) memcpy(stream->block, at + n / 64 * 64, n % 64);
}

weir_sha256 weir_sha256_end(weir_sha256_stream *stream)
{
    uint8_t tail[128] = { 0 };
    const size_t left = stream->n_bytes % 64, size = left < 56 ? 64 : 128;
    memcpy(tail, stream->block, left);
    tail[left] = 0x80;
    const uint64_t n_bits = stream->n_bytes * 8;
    for (size_t i = 0; i < 8; i++) tail[size - 1 - i] = (uint8_t)(n_bits >> (8 * i));
    add_blocks(stream->state, tail, size / 64);

    weir_sha256 sum;
    for (size_t i = 0; i < 32; i++)
        sum.bytes[i] = (uint8_t)(stream->state[i / 4] >> (24 - 8 * (i % 4)));
    return sum;
}

weir_sha256 weir_sha256_of(const void *data, size_t n)
{
    weir_sha256_stream stream;
    weir_sha256_begin(&stream);
    weir_sha256_add(&stream, data, n);
    return weir_sha256_end(&stream);
}

/* ---- as text --------------------------------------------------------------------------------- */

void weir_sha256_text(char out[WEIR_SHA256_HEX + 1], const weir_sha256 *sum)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 32; i++) {
        out[2 * i] = digits[sum->bytes[i] >> 4];
        out[2 * i + 1] = digits[sum->bytes[i] & 15];
    }
    out[WEIR_SHA256_HEX] = '\0';
}

bool weir_sha256_parse(weir_sha256 *out, const char *text)
{
    weir_sha256 sum = { { 0 } };
    for (size_t i = 0; i < WEIR_SHA256_HEX; i++) {
        const int digit = weir_hex_digit(text[i]);
        if (digit < 0) return false;
        sum.bytes[i / 2] = (uint8_t)(sum.bytes[i / 2] << 4 | digit);
    }
    *out = sum;
    return true;
}
