/* engine/model/blocks/coda_options.h - options of differential attention and of CoDA's bounded
 * memory: one table has name, range and default. */
#pragma once
#include "engine/model/blocks/heads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* INT(name, least, most, default), REAL(name, least, most, default), FLAG(name, default),
 * WORD(name, "words", default: its index). The defaults are those of the published layer, except
 * for `candidates`, `band` and `start`: docs/models/coda.md says why. */
/* clang-format off */
/* Of differential attention. theta and lambda_bias are the initial values of parameters that the
 * checkpoint lacks. */
#define WEIR_DIFFERENTIAL_OPTIONS(INT, REAL, FLAG, WORD)                                           \
    REAL(theta, -1e3, 1e3, 1.57079632679489662)                                                    \
    REAL(lambda_bias, -1e4, 1e4, -6)                                                               \
    REAL(head_norm_eps, 0, 1, 1e-6)                                                                \
    WORD(head_norm, "full identity", 0)
/* Of the memory. The first three are required: their defaults are out of range. */
#define WEIR_MEMORY_OPTIONS(INT, REAL, FLAG, WORD)                                                 \
    INT (window, 1, 1 << 24, 0)             /* rows of the ring */                                 \
    INT (landmarks_exact, 0, 1 << 20, -1)   /* rows of the exact bank */                           \
    INT (landmarks_summary, 0, 1 << 20, -1) /* prototypes of the summary bank */                   \
    INT (least_exact, 0, 1 << 20, -1)       /* of these, open from the start; -1: all */           \
    INT (least_summary, 0, 1 << 20, -1)                                                            \
    INT (growth, 0, (int64_t)1 << 40, 1000000) /* tokens until all are open; 0: as needed */ \
    INT (block_rows, 1, 8192, 256)          /* of a prompt, attended before they are written */    \
    INT (exact_candidates, 0, 1 << 20, 8)   /* of the rows of a block that leave the ring */       \
    INT (summary_candidates, 0, 1 << 20, 64)                                                       \
    REAL(exact_gate, 0, 1, 0.10)            /* minimum write gates */                              \
    REAL(summary_gate, 0, 1, 0.05)                                                                 \
    REAL(match, -2, 2, 0.90)                /* cosine of values from which two rows match */       \
    REAL(novelty, -2, 2, 0.70)              /* below this cosine a row is new */                   \
    REAL(gate_bias, -1e4, 1e4, -2)          /* initial value of a parameter, as the next */        \
    REAL(rate_logit, -1e4, 1e4, -3)                                                                \
    FLAG(differential, true)                /* false: plain attention */                           \
    WORD(gate, "learned constant value_norm", 0) /* constant: 1; value_norm: coda_gates.h */       \
    FLAG(refresh, false)                    /* a matching row replaces the one it matches */       \
    FLAG(found, true)                       /* a prototype starts as its first row */              \
    WORD(candidates, "fixed compat", 0)     /* compat: in the order of the published package */    \
    WORD(band, "by_rope upper_half slow_pairs", 0)                                                 \
    WORD(start, "zeros noise", 0)           /* contents of unused slots */
/* clang-format on */

#define NUMBER(name, least, most, value) int64_t name;
#define REAL(name, least, most, value) double name;
#define FLAG(name, value) bool name;
#define WORD(name, words, value) int32_t name; /* of the words */
/* Options of blocks with differential attention begin with these. */
typedef struct weir_differential_options {
    weir_heads_options heads;
    bool is_on; /* false: plain attention; set by the block */
    WEIR_DIFFERENTIAL_OPTIONS(NUMBER, REAL, FLAG, WORD)
} weir_differential_options;

typedef struct weir_coda_options {
    weir_differential_options base;
    WEIR_MEMORY_OPTIONS(NUMBER, REAL, FLAG, WORD)
    weir_kv_format format; /* of the rows of the memory; follows kv.format */
} weir_coda_options;
#undef NUMBER
#undef REAL
#undef FLAG
#undef WORD

enum { WEIR_HEAD_NORM_FULL, WEIR_HEAD_NORM_IDENTITY };
enum { WEIR_CODA_GATE_LEARNED, WEIR_CODA_GATE_CONSTANT, WEIR_CODA_GATE_VALUE_NORM };
enum { WEIR_CANDIDATES_FIXED, WEIR_CANDIDATES_COMPAT };
enum { WEIR_BAND_BY_ROPE, WEIR_BAND_UPPER_HALF, WEIR_BAND_SLOW_PAIRS };
enum { WEIR_START_ZEROS, WEIR_START_NOISE };

extern const weir_block_option weir_differential_option_table[]; /* of weir_differential_options */
extern const weir_block_option weir_coda_option_table[]; /* of weir_coda_options */

/* Checks the options of a mixer with memory together, once all are set. */
WEIR_MUST_CHECK weir_status weir_coda_options_check(const void *options, weir_error *error);
/* Derives values from the options and kv.format, once all are set. */
void weir_coda_options_complete(void *options, weir_kv_format format);
/* Adds the options that determine the memory's contents to the digest. */
void weir_coda_options_identify(const void *options, const weir_digest *digest);

#ifdef __cplusplus
}
#endif
