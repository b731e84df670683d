/* kernels/abi/kv_format.h - the number formats of KV rows: one line per format, and one folder in
 * kernels/kv per scheme (kernels/kv/schemes.inc).
 *
 * A page is the K part and then the V part of 64 tokens of one KV head, each in its own format.
 * Parts, tiles and arrays start at multiples of 64 bytes. weir_kv_layout_of gives all offsets.
 * kernels/kv/<scheme>/codec.h defines the codes.
 *
 * K part: two tiles of 32 tokens, each [scales][mins][codes], the token innermost. A lane is a
 * token, in SIMD registers and in warps:
 *
 *     f32 f16 bf16   codes [dim][32] values
 *     others         codes [word][32] of 32 bits: word w of token t holds dims w*n .. w*n+n-1,
 *                    dim i at bit bits*(i - w*n), n = 32/bits; zeros past the last dim
 *                        8 bits: d0 d1 d2 d3 | 4 bits: d0 .. d7 | 2 bits: d0 .. d15
 *                        3 bits: the words of the low 2 bits, then words of the high bit, 32 dims
 *                        each
 *                    One load serves all dims of a word with shifts by constants; VNNI and dp4a
 *                    multiply 8-bit words. A token has its own words, so a row is written,
 *                    moved and dropped without touching its neighbours.
 *
 * V part: [scales][mins][codes], a row per token, the dim innermost. A lane is a dim; a row moves
 * as bytes:
 *
 *     f32 f16 bf16   codes [64][dim] values
 *     8 bits         codes [64][dim] bytes
 *     others         codes [64][dim/32 rounded up] blocks of 32 dims:
 *                        4 bits, 16 bytes: byte j holds dim j low, dim j+16 high
 *                        2 bits,  8 bytes: two words, dim i at bit 2*(i%16) of word i/16
 *                        3 bits, 12 bytes: the two words of the low 2 bits, then a word of the high
 *                        bits
 *
 * weir_kv_scales says where the scales are; mins, of formats that code by PAGE, are the same way.
 *
 * Unsealed pages. Formats that code by PAGE code values relative to their neighbours in time, so a
 * page is coded as a whole ("sealed"). Until its 64th token is written it is unsealed: its rows are
 * f16, in separate memory (weir_kv_unsealed_bytes: an f16 K part, then an f16 V part, of the parts
 * that need it). Writing token 63 codes the part from the f16 rows, in any cut of the rows. Sealed
 * pages are never written again; dropping rows from one means dropping the page. A query at
 * position p reads the rows of its own page unsealed, even its 64th, and the rows of earlier pages
 * sealed: that depends on positions alone. A sequence has at most one unsealed page per layer and
 * head between steps, and a step has one for every page that it writes to (docs/decisions/0008).
 * Other formats code each row by itself, once, and every query reads the coded row. The store
 * chooses the format of each layer; the first pages of a sequence may have another one
 * (weir_kv_sinks). */
#pragma once
#include <string.h>

#include "kernels/abi/dtype.h"
#include "kernels/abi/kv_page.h"

typedef enum weir_kv_scheme {
#define WEIR_KV_SCHEME(NAME, ...) WEIR_KV_##NAME,
#include "kernels/kv/schemes.inc"
} weir_kv_scheme;

/* What a scale belongs to, and the array of scales:
 *              of a tile of K    of a token of V
 *     TOKEN    [32]              [1]
 *     GROUP    [dim/32][32]      [dim/32]
 *     DIM      [dim]
 *     PAGE     [dim] of the 64 tokens of a page, once for the part; K: before the first tile */
typedef enum weir_kv_scales {
    WEIR_KV_SCALES_NONE,
    WEIR_KV_SCALES_TOKEN,
    WEIR_KV_SCALES_GROUP,
    WEIR_KV_SCALES_DIM,
    WEIR_KV_SCALES_PAGE
} weir_kv_scales;

/* Constants of a scheme. */
enum {
#define WEIR_KV_SCHEME(NAME, name, bytes, k_scales, v_scales)                                      \
    WEIR_KV_##NAME##_SCALE_BYTES = (bytes), WEIR_KV_##NAME##_K_SCALES = WEIR_KV_SCALES_##k_scales, \
    WEIR_KV_##NAME##_V_SCALES = WEIR_KV_SCALES_##v_scales,
#include "kernels/kv/schemes.inc"
};

/* The formats. All lists of formats are generated from this one: names, the words of kv.format, the
 * kernels' switches, what they reject, and messages (kv_format_text.h).
 * coded:     ROW: each row is coded by itself; ROTATED: each row, after a rotation, so that its
 *            dims cannot be read one by one; PAGE: a page as a whole, from its unsealed rows.
 * attention: how the CPU's attention reads codes. DIRECT: converted in registers, with scales of
 *            tokens or groups, f16, outside the sums; kv_value (kernels/omp/kv_tile.h) must then
 *            ignore the bits above a code. EXPANDED: to f32 tiles first.
 * device:    READ: attention's single source reads such pages on GPUs, too; else NONE.
 * cuda:      what the CUDA kernels do with pages of the format: READ (attention), WRITE (kv_write),
 *            BOTH or NONE.
 *     name   text   bits   scheme   coded   attention   device   cuda */
// clang-format off
#define WEIR_KV_FORMAT_MAP(X) \
    X(F32, "f32", 32, PLAIN, ROW, DIRECT, READ, WRITE) \
    X(F16, "f16", 16, PLAIN, ROW, DIRECT, READ, BOTH) \
    X(BF16, "bf16", 16, PLAIN, ROW, DIRECT, NONE, BOTH) \
    X(Q8_0, "q8_0", 8, BLOCK, ROW, DIRECT, NONE, BOTH) \
    X(Q4_0, "q4_0", 4, BLOCK, ROW, EXPANDED, NONE, NONE) \
    X(INT8, "int8", 8, CHANNEL, PAGE, EXPANDED, NONE, NONE) \
    X(FP8_E4M3, "fp8_e4m3", 8, FLOAT8, ROW, EXPANDED, NONE, NONE) \
    X(FP8_E5M2, "fp8_e5m2", 8, FLOAT8, ROW, EXPANDED, NONE, NONE) \
    X(KIVI2, "kivi2", 2, KIVI, PAGE, EXPANDED, NONE, NONE) \
    X(KIVI4, "kivi4", 4, KIVI, PAGE, EXPANDED, NONE, NONE) \
    X(KIVI8, "kivi8", 8, KIVI, PAGE, EXPANDED, NONE, NONE) \
    X(TURBO2, "turbo2", 2, TURBO, ROTATED, EXPANDED, NONE, NONE) \
    X(TURBO3, "turbo3", 3, TURBO, ROTATED, EXPANDED, NONE, NONE) \
    X(TURBO4, "turbo4", 4, TURBO, ROTATED, DIRECT, NONE, READ)
// clang-format on

typedef enum weir_kv_format {
#define X(name, ...) WEIR_KV_##name,
    WEIR_KV_FORMAT_MAP(X)
#undef X
        WEIR_KV_FORMAT_COUNT
} weir_kv_format;

typedef enum weir_kv_side { WEIR_KV_K, WEIR_KV_V } weir_kv_side;

/* The formats of a layer's pages. */
typedef struct weir_kv_pair {
    weir_kv_format k, v;
} weir_kv_pair;

/* Pages 0 .. n_pages - 1 of every sequence have this pair, whatever the other pages of their layer
 * have; n_pages 0: no sinks. */
typedef struct weir_kv_sinks {
    weir_kv_pair pair;
    int32_t n_pages;
} weir_kv_sinks;

static inline weir_kv_pair weir_kv_pair_at(weir_kv_pair others, weir_kv_sinks sinks, int64_t page)
{
    return page < sinks.n_pages ? sinks.pair : others;
}

enum {
    WEIR_KV_GROUP = 32, /* dims or tokens that share a scale */
    WEIR_KV_DIM_MAX = 576, /* MLA's latent rows */
    WEIR_KV_ALIGNMENT = 64,
};

/* ---- the table: switches, because kernels on devices call them too --------------------------- */
static inline int weir_kv_bits(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, ...)                                                                   \
    case WEIR_KV_##name: return bits;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return 0;
}

static inline weir_kv_scheme weir_kv_scheme_of(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, scheme, ...)                                                           \
    case WEIR_KV_##name: return WEIR_KV_##scheme;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return WEIR_KV_PLAIN;
}

/* The name, as printed and as written in kv.format. */
static inline const char *weir_kv_format_name(weir_kv_format format)
{
    switch (format) {
#define X(name, text, ...)                                                                         \
    case WEIR_KV_##name: return text;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return "unknown";
}

/* The format with this name, or COUNT. */
static inline weir_kv_format weir_kv_format_named(const char *name)
{
    int format = 0;
    while (format < WEIR_KV_FORMAT_COUNT &&
           strcmp(name, weir_kv_format_name((weir_kv_format)format)) != 0)
        format++;
    return (weir_kv_format)format;
}

static inline int weir_kv_scale_bytes(weir_kv_format format)
{
    switch (weir_kv_scheme_of(format)) {
#define WEIR_KV_SCHEME(NAME, name, bytes, ...)                                                     \
    case WEIR_KV_##NAME: return bytes;
#include "kernels/kv/schemes.inc"
    }
    return 0;
}

static inline weir_kv_scales weir_kv_scales_of(weir_kv_format format, weir_kv_side side)
{
    switch (weir_kv_scheme_of(format)) {
#define WEIR_KV_SCHEME(NAME, name, bytes, k_scales, v_scales)                                      \
    case WEIR_KV_##NAME:                                                                           \
        return side == WEIR_KV_K ? WEIR_KV_SCALES_##k_scales : WEIR_KV_SCALES_##v_scales;
#include "kernels/kv/schemes.inc"
    }
    return WEIR_KV_SCALES_NONE;
}

/* The values of the columns `coded`, `attention`, `device` and `cuda`. */
enum { WEIR_KV_CODED_ROW, WEIR_KV_CODED_ROTATED, WEIR_KV_CODED_PAGE };
enum { WEIR_KV_ATTENTION_EXPANDED = false, WEIR_KV_ATTENTION_DIRECT = true };
enum { WEIR_KV_DEVICE_NONE = false, WEIR_KV_DEVICE_READ = true };
enum {
    WEIR_KV_CUDA_NONE = 0,
    WEIR_KV_CUDA_READ = 1,
    WEIR_KV_CUDA_WRITE = 2,
    WEIR_KV_CUDA_BOTH = 3
};

static inline int weir_kv_coded(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, scheme, coded, ...)                                                    \
    case WEIR_KV_##name: return WEIR_KV_CODED_##coded;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return WEIR_KV_CODED_ROW;
}

/* True if attention on the CPU converts the codes in registers. */
static inline bool weir_kv_is_direct(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, scheme, coded, attention, ...)                                         \
    case WEIR_KV_##name: return WEIR_KV_ATTENTION_##attention;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return false;
}

/* True if attention's single source reads the pages on GPUs. */
static inline bool weir_kv_is_read_on_devices(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, scheme, coded, attention, device, cuda)                                \
    case WEIR_KV_##name: return WEIR_KV_DEVICE_##device;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return false;
}

static inline int weir_kv_cuda_use(weir_kv_format format)
{
    switch (format) {
#define X(name, text, bits, scheme, coded, attention, device, cuda)                                \
    case WEIR_KV_##name: return WEIR_KV_CUDA_##cuda;
        WEIR_KV_FORMAT_MAP(X)
#undef X
    case WEIR_KV_FORMAT_COUNT: break;
    }
    return WEIR_KV_CUDA_NONE;
}

/* True if a page part of this format is coded as a whole: see "Unsealed pages". */
static inline bool weir_kv_seals_pages(weir_kv_format format)
{
    return weir_kv_coded(format) == WEIR_KV_CODED_PAGE;
}

/* True if codes are of rotated rows: a token's dims cannot be read one by one. */
static inline bool weir_kv_is_rotated(weir_kv_format format)
{
    return weir_kv_coded(format) == WEIR_KV_CODED_ROTATED;
}

/* True if it loses more than f16 rounding, which must be disclosed. */
static inline bool weir_kv_is_lossy(weir_kv_format format) { return weir_kv_bits(format) < 16; }

#include "kernels/abi/kv_layout.h"
