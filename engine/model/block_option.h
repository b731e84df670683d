/* engine/model/block_option.h - options of blocks, which [block.NAME] and [ffn] of an arch file may
 * set. A block declares them as a table of name, type, range and default, which reading and
 * checking of arch files use. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/config/toml.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_block_option_type {
    WEIR_BLOCK_OPTION_INT, /* int64_t */
    WEIR_BLOCK_OPTION_REAL, /* double */
    WEIR_BLOCK_OPTION_FLAG, /* bool */
    WEIR_BLOCK_OPTION_WORD, /* int32_t: index of one of `words` */
} weir_block_option_type;

typedef struct weir_block_option {
    const char *name, *words; /* words: of a WORD, separated by spaces */
    weir_block_option_type type;
    size_t offset; /* in the block's options */
    double least, most, value; /* value: the default */
} weir_block_option;

/* Rows of an option table for a struct `options_type`; the member may be named differently from the
 * option. Tables end with { 0 }. */
#define WEIR_INT_OPTION(options_type, member, text, from, to, otherwise)                           \
    { .name = text,                                                                                \
      .type = WEIR_BLOCK_OPTION_INT,                                                               \
      .offset = offsetof(options_type, member),                                                    \
      .least = (double)(from),                                                                     \
      .most = (double)(to),                                                                        \
      .value = (double)(otherwise) }
#define WEIR_REAL_OPTION(options_type, member, text, from, to, otherwise)                          \
    { .name = text,                                                                                \
      .type = WEIR_BLOCK_OPTION_REAL,                                                              \
      .offset = offsetof(options_type, member),                                                    \
      .least = (from),                                                                             \
      .most = (to),                                                                                \
      .value = (otherwise) }
#define WEIR_FLAG_OPTION(options_type, member, text, otherwise)                                    \
    { .name = text,                                                                                \
      .type = WEIR_BLOCK_OPTION_FLAG,                                                              \
      .offset = offsetof(options_type, member),                                                    \
      .most = 1,                                                                                   \
      .value = (otherwise) }
#define WEIR_WORD_OPTION(options_type, member, text, list, otherwise)                              \
    { .name = text,                                                                                \
      .words = list,                                                                               \
      .type = WEIR_BLOCK_OPTION_WORD,                                                              \
      .offset = offsetof(options_type, member),                                                    \
      .value = (otherwise) }

/* `table` may be NULL: no options. */
void weir_block_options_default(void *options, const weir_block_option *table);
/* Returns NULL if there is none of this name. */
const weir_block_option *weir_block_option_find(const weir_block_option *table, const char *name);
double weir_block_option_value(const void *options, const weir_block_option *option);
/* ECONFIG messages begin with the name of the option. options may be NULL: only checks the
 * value. */
WEIR_MUST_CHECK weir_status weir_block_option_set(
    void *options, const weir_block_option *option, const weir_toml_node *value, weir_error *error
);

#ifdef __cplusplus
}
#endif
