/* engine/formats/directory.h - what the readers fill: tensors, metadata and the memory behind them.
 * Private to engine/formats. */
#pragma once
#include "engine/formats/arena.h"
#include "engine/formats/tensor_directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits on one file; an index of shards may name WEIR_SET_TENSORS_MAX (DeepSeek-V3 has 92
 * thousand). */
enum {
    WEIR_FILE_TENSORS_MAX = 65536,
    WEIR_SET_TENSORS_MAX = 1 << 20,
    WEIR_META_MAX = 65536,
    WEIR_SET_FILES_MAX = 4096
};
enum { WEIR_HEADER_BYTES_MAX = 100000000 };

/* Value types of GGUF metadata, by their number in the file. Numbers stay packed in the file's
 * bytes until they are asked for. */
typedef enum weir_packed_type {
    WEIR_PACKED_U8,
    WEIR_PACKED_I8,
    WEIR_PACKED_U16,
    WEIR_PACKED_I16,
    WEIR_PACKED_U32,
    WEIR_PACKED_I32,
    WEIR_PACKED_F32,
    WEIR_PACKED_BOOL,
    WEIR_PACKED_STRING,
    WEIR_PACKED_ARRAY,
    WEIR_PACKED_U64,
    WEIR_PACKED_I64,
    WEIR_PACKED_F64,
    WEIR_PACKED_TYPES
} weir_packed_type;

/* 0 for strings and arrays. */
size_t weir_packed_bytes(weir_packed_type type);
/* False when the value cannot be a weir_meta: an unsigned integer past INT64_MAX, a bool that is
 * neither 0 nor 1. */
bool weir_packed_read(weir_meta *out, weir_packed_type type, const unsigned char *bytes);

typedef struct weir_text {
    const char *bytes; /* NUL-terminated */
    size_t length;
} weir_text;

/* Elements of an array: exactly one of the pointers is set unless the array is empty. */
typedef struct weir_elements {
    const unsigned char *packed; /* unaligned numbers of packed_type */
    weir_packed_type packed_type;
    const weir_text *texts;
    /* Arrays, and JSON; type ARRAY with elements NULL marks what has no value (null, objects) */
    const weir_meta *values;
} weir_elements;

typedef struct weir_meta_entry {
    const char *key;
    weir_meta value;
    size_t order; /* of being added */
} weir_meta_entry;

typedef struct weir_source {
    weir_map map;
    char *path; /* owned */
} weir_source;

struct weir_tensor_directory {
    weir_container container;
    char *path, *folder; /* owned */
    weir_source *sources; /* owned, with their maps */
    size_t n_sources;
    weir_tensor *tensors; /* owned; in the order of the files */
    size_t n_tensors, tensor_capacity;
    uint32_t *by_name; /* owned; indexes of tensors, sorted by name */
    weir_meta_entry *entries; /* owned; sorted by key once finished */
    size_t n_entries, entry_capacity;
    weir_arena arena;
};

/* An empty one; NULL when memory is short. `path` is copied and begins error texts. Ended by
 * weir_tensor_directory_close. */
weir_tensor_directory *weir_directory_create(weir_container container, const char *path);
/* Both copy the struct; name, key and everything behind the value must live in the arena or the
 * file. */
WEIR_MUST_CHECK weir_status weir_directory_add_tensor(
    weir_tensor_directory *directory, const weir_tensor *tensor, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_directory_add_meta(
    weir_tensor_directory *directory, const char *key, const weir_meta *value, weir_error *error
);
/* Makes names and keys searchable. A tensor name that appears twice is refused, and so is a key of
 * GGUF; of equal keys in config.json the first stays. */
WEIR_MUST_CHECK weir_status
weir_directory_finish(weir_tensor_directory *directory, weir_error *error);
WEIR_MUST_CHECK weir_status weir_directory_no_memory(weir_error *error, const char *name);

/* Bytes [begin, end) of a data section that a tensor takes. */
typedef struct weir_file_span {
    size_t begin, end;
    uint32_t tensor;
} weir_file_span;
void weir_file_span_sort(weir_file_span *spans, size_t n);

#ifdef __cplusplus
}
#endif
