/* engine/formats/tensor_directory.h - one view of a checkpoint for both containers: tensors by
 * name, metadata by key.
 *
 * Everything here was checked against the file: names are NUL-terminated UTF-8, dimensions are
 * not negative (0 only in safetensors, which may hold empty tensors), their product does not
 * overflow, data lies inside the mapping. Nothing is converted. The directory owns everything;
 * borrowed pointers live until weir_tensor_directory_close. */
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

/* shape is slowest first, as in [n_out, n_in]; the reader reverses GGUF's order. `file` is the
 * index of the file in the checkpoint. */
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

/* A metadata value. Integers of any width are i64 (a u64 past INT64_MAX is a read error). Elements
 * of arrays are read with weir_meta_at. Strings are NUL-terminated and may contain NUL: use
 * `length`. */
typedef struct weir_meta {
    weir_meta_type type;
    union {
        int64_t integer;
        double number;
        bool boolean;
        const char *string;
    };
    size_t length; /* bytes of the string, or elements of the array */
    unsigned char packed_type; /* private: of a number or boolean in a GGUF file */
    weir_meta_type element_type; /* of an array */
    const void *elements; /* private to the reader */
} weir_meta;

typedef struct weir_tensor_directory weir_tensor_directory;

/* Opens a GGUF file (or the first of a split set), a safetensors file, or a checkpoint folder
 * (model.safetensors, an index with shards, or a single *.gguf). For safetensors the metadata is
 * the config.json next to the weights. Nested objects are addressed as
 * "rope_parameters.rope_theta"; if there is a `text_config`, its keys come before those of the
 * root.
 * errors : EIO, ENOTFOUND, EFORMAT with file, place and reason */
WEIR_MUST_CHECK weir_status
weir_tensor_directory_open(weir_tensor_directory **out, const char *path, weir_error *error);
void weir_tensor_directory_close(weir_tensor_directory *directory);

weir_container weir_tensor_directory_container(const weir_tensor_directory *directory);
/* The file or folder that was opened. */
const char *weir_tensor_directory_path(const weir_tensor_directory *directory);
/* The folder of the checkpoint, where tokenizer.json is expected. */
const char *weir_tensor_directory_folder(const weir_tensor_directory *directory);
size_t weir_tensor_directory_count(const weir_tensor_directory *directory);
/* The tensors form one array: at(i) == at(0) + i. */
const weir_tensor *weir_tensor_directory_at(const weir_tensor_directory *directory, size_t index);
/* Returns NULL if there is no such tensor. */
const weir_tensor *weir_tensor_directory_find(
    const weir_tensor_directory *directory, const char *name
);
/* Reads a value by key: for GGUF the full key ("qwen35.block_count"), for safetensors a path in
 * config.json. Returns false if it is absent or null. */
bool weir_tensor_directory_meta(
    const weir_tensor_directory *directory, const char *key, weir_meta *out
);
/* The value `index` in the order of keys, and its key; false past the last. */
bool weir_tensor_directory_meta_at(
    const weir_tensor_directory *directory, size_t index, const char **key, weir_meta *out
);
bool weir_meta_at(const weir_meta *array, size_t index, weir_meta *out);
/* The same as weir_tensor_directory_meta, or for a key LIST.N element N of a list. */
bool weir_tensor_directory_element(
    const weir_tensor_directory *directory, const char *key, weir_meta *out
);
/* The files of the checkpoint, and a path of one; `file` of a tensor is below their number. */
int32_t weir_tensor_directory_files(const weir_tensor_directory *directory);
const char *weir_tensor_directory_file(const weir_tensor_directory *directory, int32_t file);
/* Where these bytes of the tensor are in its file. */
size_t weir_tensor_offset(
    const weir_tensor_directory *directory, const weir_tensor *tensor, const void *bytes
);
/* Releases the tensor's pages after its data was copied into a packed layout. */
void weir_tensor_release(const weir_tensor_directory *directory, const weir_tensor *tensor);

#ifdef __cplusplus
}
#endif
