/* tools/measure/matrix.h - KV policies by budget and format: the cells of weir eval matrix, and the
 * files of their results. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

enum { WEIR_MATRIX_CELLS = 4096, WEIR_MATRIX_TEXT = 256 };

typedef struct weir_matrix_cell {
    char policy[32], options[WEIR_MATRIX_TEXT], format[32];
    int64_t budget; /* rows; 0: a percentage */
    int32_t percent; /* of each sequence's rows */
    json_t *result; /* owned; NULL: not measured yet */
} weir_matrix_cell;

typedef struct weir_matrix {
    weir_matrix_cell *cells; /* [n], owned */
    int32_t n;
    const char *folder; /* borrowed */
    /* Owned: results in the folder that belong to no cell; they are kept. */
    json_t *others;
} weir_matrix;

/* Appends "name;name:options;...": the policies that are run if none are given, with the options of
 * weir_policy_matrix_options. Returns ENOMEM. */
WEIR_MUST_CHECK weir_status
weir_matrix_policies(weir_buffer *out, bool has_calibration, weir_error *error);
/* Policies "name" or "name:options" separated by ';', budgets "50%,256", formats "f16,q8_0". The
 * policy full has one cell per format, whatever the budgets. Returns EINVAL with a message that
 * says what is wrong. */
WEIR_MUST_CHECK weir_status weir_matrix_plan(
    weir_matrix *matrix, const char *policies, const char *budgets, const char *formats,
    weir_error *error
);
void weir_matrix_free(weir_matrix *matrix);
/* Reads the results in the folder (created if missing) that were made from the same `source`.
 * Returns EFORMAT for a file with other content, EIO if the folder is not writable, which is
 * tested. */
WEIR_MUST_CHECK weir_status
weir_matrix_resume(weir_matrix *matrix, const char *folder, const char *source, weir_error *error);
/* Writes results.jsonl; a crash leaves the old file or the new one. */
WEIR_MUST_CHECK weir_status weir_matrix_save(const weir_matrix *matrix, weir_error *error);
/* Writes results.csv and, if measured, accuracy.svg and perplexity.svg: a curve per policy over the
 * budgets in percent, one file per format. */
WEIR_MUST_CHECK weir_status weir_matrix_finish(const weir_matrix *matrix, weir_error *error);
/* "50%", "256". */
void weir_matrix_budget(char out[24], const weir_matrix_cell *cell);
