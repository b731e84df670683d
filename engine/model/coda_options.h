/* engine/model/coda_options.h - what [block.NAME] says of differential attention and of CoDA's
 * bounded memory: one table gives name, range and default. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/config/toml.h"

#ifdef __cplusplus
extern "C" {
#endif

/* INT (name, least, most, default), REAL(name, least, most, default), FLAG(name, default),
 * WORD(name, "words", default: its index). The defaults are those of the published layer, but for
 * `candidates`, `band` and `start`: docs/models/coda.md says why. */
/* clang-format off */
/* Of differential attention, whatever it attends to. theta and lambda_bias: of parameters that the
 * checkpoint does not have. */
#define WEIR_DIFFERENTIAL_OPTIONS(INT, REAL, FLAG, WORD)                                                                                   \
    REAL(theta, -1e3, 1e3, 1.57079632679489662)                                                                                            \
    REAL(lambda_bias, -1e4, 1e4, -6)                                                                                                       \
    REAL(head_norm_eps, 0, 1, 1e-6)                                                                                                        \
    WORD(head_norm, "full identity", 0)
/* Of the memory. */
#define WEIR_MEMORY_OPTIONS(INT, REAL, FLAG, WORD)                                                                                         \
    INT (window, 1, 1 << 24, 0)                /* rows of the ring; 0: must be given */                                                    \
    INT (landmarks_exact, 0, 1 << 20, -1)      /* rows that are kept as they came; -1: must be given */                                    \
    INT (landmarks_summary, 0, 1 << 20, -1)    /* prototypes; -1: must be given */                                                         \
    INT (least_exact, 0, 1 << 20, -1)          /* of the landmarks, open from the start; -1: all */                                        \
    INT (least_summary, 0, 1 << 20, -1)                                                                                                    \
    INT (growth, 0, (int64_t)1 << 40, 1000000) /* all are open after so many tokens; 0: as they are needed */                              \
    INT (block_rows, 1, 8192, 256)             /* of a prompt, attended together before they are written */                                \
    INT (exact_candidates, 0, 1 << 20, 8)      /* of the rows of a block that leave the ring */                                            \
    INT (summary_candidates, 0, 1 << 20, 64)                                                                                               \
    REAL(exact_gate, 0, 1, 0.10)               /* least write gates */                                                                     \
    REAL(summary_gate, 0, 1, 0.05)                                                                                                         \
    REAL(match, -2, 2, 0.90)                   /* cosine of values from which two rows are one */                                          \
    REAL(novelty, -2, 2, 0.70)                 /* and below which a row is new */                                                          \
    REAL(gate_bias, -1e4, 1e4, -2)             /* this and the next: of parameters that the checkpoint does not have */                    \
    REAL(rate_logit, -1e4, 1e4, -3)                                                                                                        \
    FLAG(differential, true)                   /* false: plain attention */                                                                \
    WORD(gate, "learned constant value_norm", 0) /* constant: 1, and every row passes; value_norm: blocks/coda_gates.h */                   \
    FLAG(refresh, false)                       /* a row that matches replaces what it matches */                                           \
    FLAG(found, true)                          /* the first row of a prototype becomes it, whatever the rate */                            \
    WORD(candidates, "fixed compat", 0)        /* compat: in the order of the published package */                                         \
    WORD(band, "by_rope upper_half slow_pairs", 0)                                                                                         \
    WORD(start, "zeros noise", 0)              /* what unused slots hold */
/* clang-format on */

typedef struct weir_coda_options {
#define NUMBER(name, least, most, value) int64_t name;
#define REAL(name, least, most, value) double name;
#define FLAG(name, value) bool name;
#define WORD(name, words, value) int32_t name; /* of the words */
    WEIR_DIFFERENTIAL_OPTIONS(NUMBER, REAL, FLAG, WORD)
    WEIR_MEMORY_OPTIONS(NUMBER, REAL, FLAG, WORD)
#undef NUMBER
#undef REAL
#undef FLAG
#undef WORD
} weir_coda_options;

enum { WEIR_HEAD_NORM_FULL, WEIR_HEAD_NORM_IDENTITY };
enum { WEIR_CODA_GATE_LEARNED, WEIR_CODA_GATE_CONSTANT, WEIR_CODA_GATE_VALUE_NORM };
enum { WEIR_CANDIDATES_FIXED, WEIR_CANDIDATES_COMPAT };
enum { WEIR_BAND_BY_ROPE, WEIR_BAND_UPPER_HALF, WEIR_BAND_SLOW_PAIRS };
enum { WEIR_START_ZEROS, WEIR_START_NOISE };

typedef enum weir_coda_option_kind {
    WEIR_CODA_INT,
    WEIR_CODA_REAL,
    WEIR_CODA_FLAG,
    WEIR_CODA_WORD
} weir_coda_option_kind;
typedef struct weir_coda_option {
    const char           *name, *words; /* words: of a WORD */
    weir_coda_option_kind kind;
    size_t                offset;
    double                least, most, value;
    bool                  is_of_memory;
} weir_coda_option;
extern const weir_coda_option weir_coda_option_table[]; /* ends with name == NULL */

weir_coda_options weir_coda_options_default(void);
/* NULL: there is none. has_memory: those of the memory count, too. */
const weir_coda_option *weir_coda_option_find(const char *name, bool has_memory);
double weir_coda_option_value(const weir_coda_options *options, const weir_coda_option *option);
/* ECONFIG begins with the name of the option. */
WEIR_MUST_CHECK weir_status weir_coda_option_set(weir_coda_options      *options,
                                                 const weir_coda_option *option,
                                                 const weir_toml_node *value, weir_error *error);
/* What the options of a mixer with memory say together, once all are set. */
WEIR_MUST_CHECK weir_status weir_coda_options_check(const weir_coda_options *options,
                                                    weir_error              *error);

#ifdef __cplusplus
}
#endif
