/* tools/measure/matrix.h - KV policies by budget and format: the cells of weir eval matrix, and the
 * files that they are kept in. */
#pragma once
#include <jansson.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

enum { WEIR_MATRIX_CELLS = 4096, WEIR_MATRIX_TEXT = 256 };

typedef struct weir_matrix_cell {
    char policy[32], options[WEIR_MATRIX_TEXT], format[32];
    int64_t budget; /* rows; 0: by percent */
    int32_t percent; /* of each text's rows */
    json_t *result; /* owned; NULL: not there yet */
} weir_matrix_cell;

typedef struct weir_matrix {
    weir_matrix_cell *cells; /* [n], owned */
    int32_t n;
    const char *folder; /* borrowed */
    json_t *others; /* owned: results in the folder that are of no cell; they stay there */
} weir_matrix;

/* Policies "name" or "name:options", with ';' between; budgets "50%,256"; formats "f16,q8_0". full
 * is there once per format, whatever the budgets. EINVAL names what is wrong. */
WEIR_MUST_CHECK weir_status weir_matrix_plan(
    weir_matrix *matrix, const char *policies, const char *budgets, const char *formats,
    weir_error *error
);
void weir_matrix_free(weir_matrix *matrix);
/* Takes the results that are in the folder (made when it is not there) and were made from the same
 * `source`. EFORMAT for a file that holds something else; EIO when the folder cannot be written to,
 * which is tried. */
WEIR_MUST_CHECK weir_status
weir_matrix_resume(weir_matrix *matrix, const char *folder, const char *source, weir_error *error);
/* Writes results.jsonl: a crash leaves the old one or the new one. */
WEIR_MUST_CHECK weir_status weir_matrix_save(const weir_matrix *matrix, weir_error *error);
/* Writes results.csv and, for what was measured, accuracy.svg and perplexity.svg: a curve per
 * policy over the budgets in percent, one file per format. */
WEIR_MUST_CHECK weir_status weir_matrix_finish(const weir_matrix *matrix, weir_error *error);
/* "50%", "256". */
void weir_matrix_budget(char out[24], const weir_matrix_cell *cell);
