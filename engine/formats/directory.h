/* engine/formats/directory.h - tensors, metadata and their memory, as filled by the readers.
 * Private to engine/formats. */
#pragma once
#include "engine/formats/arena.h"
#include "engine/formats/tensor_directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits for one file. An index of shards may name WEIR_SET_TENSORS_MAX (DeepSeek-V3 has 92
 * thousand). */
enum {
    WEIR_FILE_TENSORS_MAX = 65536,
    WEIR_SET_TENSORS_MAX = 1 << 20,
    WEIR_META_MAX = 65536,
    WEIR_SET_FILES_MAX = 4096
};
enum { WEIR_HEADER_BYTES_MAX = 100000000 };

/* Value types of GGUF metadata, by their number in the file. Numbers stay packed in the file until
 * they are read. */
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

/* Bytes of one value; 0 for strings and arrays. */
size_t weir_packed_bytes(weir_packed_type type);
/* Returns false if the value does not fit a weir_meta: an unsigned integer past INT64_MAX, or a
 * bool that is neither 0 nor 1. */
bool weir_packed_read(weir_meta *out, weir_packed_type type, const unsigned char *bytes);

typedef struct weir_text {
    const char *bytes; /* NUL-terminated */
    size_t length;
} weir_text;

/* Elements of an array. Exactly one pointer is set unless the array is empty. */
typedef struct weir_elements {
    const unsigned char *packed; /* numbers of packed_type, unaligned */
    weir_packed_type packed_type;
    const weir_text *texts;
    /* Arrays, and JSON. Type ARRAY with NULL elements means no value (null, an object). */
    const weir_meta *values;
} weir_elements;

typedef struct weir_meta_entry {
    const char *key;
    weir_meta value;
    size_t order; /* in which it was added */
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
    uint32_t *by_name; /* owned; tensor indexes, sorted by name */
    weir_meta_entry *entries; /* owned; weir_directory_finish sorts it by key */
    size_t n_entries, entry_capacity;
    weir_arena arena;
};

/* Creates an empty directory; NULL when memory runs out. `path` is copied and begins error
 * messages. Closed by weir_tensor_directory_close. */
weir_tensor_directory *weir_directory_create(weir_container container, const char *path);
/* Both copy the struct. Name, key and the data of the value must lie in the arena or the file. */
WEIR_MUST_CHECK weir_status weir_directory_add_tensor(
    weir_tensor_directory *directory, const weir_tensor *tensor, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_directory_add_meta(
    weir_tensor_directory *directory, const char *key, const weir_meta *value, weir_error *error
);
/* Makes names and keys searchable. A duplicate tensor name or GGUF key is an error; of equal keys
 * in config.json the first wins. */
WEIR_MUST_CHECK weir_status
weir_directory_finish(weir_tensor_directory *directory, weir_error *error);
WEIR_MUST_CHECK weir_status weir_directory_no_memory(weir_error *error, const char *name);

/* Bytes [begin, end) of a tensor in the data section. */
typedef struct weir_file_span {
    size_t begin, end;
    uint32_t tensor;
} weir_file_span;
void weir_file_span_sort(weir_file_span *spans, size_t n);

#ifdef __cplusplus
}
#endif
