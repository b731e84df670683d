/* engine/formats/tensor_directory.h - one view of a checkpoint for both containers: tensors by
 * name, metadata by key.
 *
 * Everything here was checked against the file: names are NUL-terminated UTF-8, shapes are not
 * negative (0 only in safetensors, which may hold empty tensors) and their product fits, data lies
 * inside the mapping. Nothing is converted. Owned by the directory; borrowed pointers live until
 * weir_tensor_directory_close. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "kernels/abi/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_TENSOR_DIMS = 6
}; /* GGUF has at most 4; image towers in safetensors checkpoints have 5 */

/* shape is slowest first, as in [n_out, n_in] (GGUF's order is reversed by the reader). `file`
 * counts the files of the checkpoint. */
typedef struct weir_tensor {
    const char *name;
    const unsigned char *data; /* unaligned */
    size_t bytes;
    int64_t shape[WEIR_TENSOR_DIMS];
    int32_t n_dims, file;
    weir_dtype dtype;
} weir_tensor;

typedef enum weir_container { WEIR_CONTAINER_GGUF, WEIR_CONTAINER_SAFETENSORS } weir_container;

typedef enum weir_meta_type {
    WEIR_META_INT,
    WEIR_META_FLOAT,
    WEIR_META_BOOL,
    WEIR_META_STRING,
    WEIR_META_ARRAY
} weir_meta_type;

/* A metadata value. Integers of any width are i64 (u64 past INT64_MAX is an error of the reader).
 * Array elements are read with weir_meta_at. Strings are NUL-terminated and may hold NULs: use
 * `length`. */
typedef struct weir_meta {
    weir_meta_type type;
    union {
        int64_t integer;
        double number;
        bool boolean;
        const char *string;
    };
    size_t length; /* of the string, or elements of the array */
    weir_meta_type element_type; /* of an array */
    const void *elements; /* private to the reader */
} weir_meta;

typedef struct weir_tensor_directory weir_tensor_directory;

/* Opens a GGUF file (also the first of a split set), a safetensors file, or a checkpoint folder
 * (model.safetensors, an index with shards, or a single *.gguf). For safetensors the metadata is
 * config.json beside the weights, with `text_config` taken as the root when present (its keys go
 * before the root's); nested objects are reached as "rope_parameters.rope_theta".
 * errors : EIO, ENOTFOUND, EFORMAT with file, place and reason */
WEIR_MUST_CHECK weir_status
weir_tensor_directory_open(weir_tensor_directory **out, const char *path, weir_error *error);
void weir_tensor_directory_close(weir_tensor_directory *directory);

weir_container weir_tensor_directory_container(const weir_tensor_directory *directory);
/* The file or folder that was opened */
const char *weir_tensor_directory_path(const weir_tensor_directory *directory);
/* Where tokenizer.json would be */
const char *weir_tensor_directory_folder(const weir_tensor_directory *directory);
size_t weir_tensor_directory_count(const weir_tensor_directory *directory);
/* One array: at(i) == at(0) + i */
const weir_tensor *weir_tensor_directory_at(const weir_tensor_directory *directory, size_t index);
/* NULL when absent */
const weir_tensor *weir_tensor_directory_find(
    const weir_tensor_directory *directory, const char *name
);
/* GGUF: full key ("qwen35.block_count"); safetensors: config.json path. False when absent or
 * null. */
bool weir_tensor_directory_meta(
    const weir_tensor_directory *directory, const char *key, weir_meta *out
);
bool weir_meta_at(const weir_meta *array, size_t index, weir_meta *out);
/* The tensor's bytes will not be read again soon: give its pages back (they were copied into a
 * packed layout). */
void weir_tensor_release(const weir_tensor_directory *directory, const weir_tensor *tensor);

#ifdef __cplusplus
}
#endif
