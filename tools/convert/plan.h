/* tools/convert/plan.h - what a conversion writes: tensors in the order of the file, each with its
 * type there, and how its rows are read. */
#pragma once
#include "engine/formats/gguf_writer.h"
#include "tools/convert/convert.h"
#include "tools/convert/imatrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor of the file. Rows are those of all its matrices, one after another. */
typedef struct weir_planned {
    char *name; /* owned */
    int64_t shape[4]; /* slowest first */
    int32_t n_dims;
    weir_dtype from, to; /* in the checkpoint and in the file */
    int64_t n_matrices, n_rows, n_in; /* n_rows: of all matrices together */
    size_t index; /* of the reader's own */
    bool is_copied; /* from == to: its bytes are copied as they are */
} weir_planned;

typedef struct weir_plan weir_plan;

/* Where rows come from. */
typedef struct weir_row_reader {
    void *user;
    /* Rows [first, first + n) of a tensor as f32, [n, n_in]. */
    weir_status (*read)(
        void *user, const weir_planned *tensor, int64_t first, int64_t n, float *out,
        weir_error *error
    );
    /* The same as they are in the checkpoint, for tensors whose type stays. */
    weir_status (*copy)(
        void *user, const weir_planned *tensor, int64_t first, int64_t n, unsigned char *out,
        weir_error *error
    );
    /* The pages read so far are not needed again. */
    void (*release)(void *user, const weir_planned *tensor);
    const char *path; /* for messages */
} weir_row_reader;

struct weir_plan {
    weir_planned *tensors; /* owned, with their names */
    size_t n, capacity;
};

/* Adds a tensor; takes the name, which is freed on failure. */
WEIR_MUST_CHECK weir_status
weir_plan_add(weir_plan *plan, const weir_planned *tensor, weir_error *error);
void weir_plan_free(weir_plan *plan);

/* Writes the planned tensors after the keys that the writer has: begins and fills the file, does
 * not finish it. Reports progress; Ctrl-C ends it with ECANCELED.
 * imatrix : NULL: none
 * memory  : two pieces of some MiB, or of one row where that is longer */
WEIR_MUST_CHECK weir_status weir_plan_write(
    const weir_plan *plan, weir_gguf_writer *writer, const weir_row_reader *reader,
    const weir_imatrix *imatrix, weir_importance_use *use, const char *out, weir_error *error
);

#ifdef __cplusplus
}
#endif
