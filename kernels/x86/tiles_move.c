/* kernels/x86/tiles_move.c - packs the types whose codes are in the file as records have them, in
 * words of four bytes: a transposition, at several times the speed of decoding. It counts where
 * experts are read while a model runs. */
#include <stddef.h>
#include <string.h>

#include "kernels/abi/quant.h"
#include "kernels/x86/tiles_blocks.h"

typedef uint32_t words __attribute__((vector_size(16)));

/* Where a block has what. */
typedef struct block_layout {
    size_t block, codes, d, m; /* bytes; m: SIZE_MAX without minima */
    int n_words; /* of codes */
    uint32_t flip; /* of each word: makes signed codes unsigned */
} block_layout;

static inline __attribute__((always_inline)) words load(const uint8_t *at, uint32_t flip)
{
    words w;
    memcpy(&w, at, sizeof w);
    return w ^ (words) { flip, flip, flip, flip };
}

static inline __attribute__((always_inline)) void store(uint8_t *at, words w)
{
    memcpy(at, &w, sizeof w);
}

/* Word i of four blocks becomes vector i of four rows of a record, each 128 bytes. */
static inline __attribute__((always_inline)) void transpose(
    uint8_t *at, const uint8_t *codes, size_t row_bytes, block_layout l
)
{
    for (int i = 0; i < l.n_words; i += 4) {
        const uint8_t *const from = codes + 4 * i;
        const words a = load(from, l.flip), b = load(from + row_bytes, l.flip),
                    c = load(from + 2 * row_bytes, l.flip), d = load(from + 3 * row_bytes, l.flip);
        const words low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                    low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                    high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7),
                    high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        uint8_t *const to = at + i * 128;
        store(to, __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5));
        store(to + 128, __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7));
        store(to + 256, __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5));
        store(to + 384, __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7));
    }
}

/* Copies a half of each of four blocks; false if one is not finite. */
static inline __attribute__((always_inline)) bool copy_halves(
    uint8_t *to, const uint8_t *from, size_t row_bytes
)
{
    bool is_finite = true;
    for (size_t i = 0; i < 4; i++) {
        uint16_t bits;
        memcpy(&bits, from + i * row_bytes, sizeof bits);
        memcpy(to + i * sizeof bits, &bits, sizeof bits);
        is_finite = is_finite && (bits & 0x7C00) != 0x7C00;
    }
    return is_finite;
}

static inline __attribute__((always_inline)) bool move(
    uint8_t *record, const uint8_t *src, size_t row_bytes, int64_t n_blocks, int row, block_layout l
)
{
    const bool has_minimum = l.m != SIZE_MAX;
    const size_t codes = (size_t)l.n_words * 128, halves = 2 * WEIR_PANEL_ROWS,
                 step = codes + halves * (has_minimum ? 2 : 1);
    bool is_finite = true;
    for (int64_t b = 0; b < n_blocks; b++, record += step, src += l.block) {
        uint8_t *const scales = record + codes + 2 * row;
        /* The same place of the next panel. */
        for (size_t i = 0; i < 4; i++)
            __builtin_prefetch(src + (WEIR_PANEL_ROWS + i) * row_bytes, 0, 2);
        transpose(record + 4 * row, src + l.codes, row_bytes, l);
        is_finite = copy_halves(scales, src + l.d, row_bytes) && is_finite;
        if (has_minimum)
            is_finite = copy_halves(scales + halves, src + l.m, row_bytes) && is_finite;
    }
    return is_finite;
}

#define MOVE(type, words, minimum, flip)                                                           \
    static bool move_##type(                                                                       \
        uint8_t *record, const uint8_t *src, size_t row_bytes, int64_t n_blocks, int row           \
    )                                                                                              \
    {                                                                                              \
        const block_layout layout = { sizeof(weir_block_##type),                                   \
                                      offsetof(weir_block_##type, q),                              \
                                      offsetof(weir_block_##type, d),                              \
                                      minimum,                                                     \
                                      words,                                                       \
                                      flip };                                                      \
        return move(record, src, row_bytes, n_blocks, row, layout);                                \
    }
MOVE(q8_0, 8, SIZE_MAX, 0x80808080u)
MOVE(q4_0, 4, SIZE_MAX, 0)
MOVE(q4_1, 4, offsetof(weir_block_q4_1, m), 0)
MOVE(iq4_nl, 4, SIZE_MAX, 0)

weir_tile_move weir_tile_move_of(weir_dtype dtype)
{
    switch (dtype) {
    case WEIR_Q8_0: return move_q8_0;
    case WEIR_Q4_0: return move_q4_0;
    case WEIR_Q4_1: return move_q4_1;
    case WEIR_IQ4_NL: return move_iq4_nl;
    default: return NULL;
    }
}
