/* engine/formats/gguf.h - reader of GGUF 2 and 3, little-endian. Private to engine/formats and its
 * tests. */
#pragma once
#include "engine/formats/directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the header says about the file itself. */
typedef struct weir_gguf_header {
    size_t n_tensors, alignment;
    /* 0, 1 and -1 if the file is not part of a split set. */
    int64_t split_number, split_count, split_tensors;
} weir_gguf_header;

/* Adds the tensors and the metadata of one file. `bytes` must outlive the directory; `source` is
 * the index of the file; `name` begins error messages. After an error the directory may be half
 * filled and can only be closed. */
WEIR_MUST_CHECK weir_status weir_gguf_parse(
    weir_tensor_directory *directory, weir_gguf_header *header, int32_t source,
    const unsigned char *bytes, size_t n, const char *name, weir_error *error
);

/* The number of a tensor's type in GGUF; false: it has none. */
bool weir_gguf_number_of(weir_dtype dtype, uint32_t *out);

/* Reads the header sequentially. Every read names the field for the error message. */
typedef struct weir_gguf_cursor {
    const unsigned char *bytes;
    size_t size, at;
    size_t n_inner_arrays;
    const char *name;
    weir_error *error;
} weir_gguf_cursor;

/* Fails with "name: byte AT: text". */
WEIR_MUST_CHECK weir_status
weir_gguf_bad(const weir_gguf_cursor *cursor, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
WEIR_MUST_CHECK weir_status weir_gguf_need(weir_gguf_cursor *cursor, uint64_t n, const char *what);
WEIR_MUST_CHECK weir_status
weir_gguf_u32(weir_gguf_cursor *cursor, uint32_t *out, const char *what);
WEIR_MUST_CHECK weir_status
weir_gguf_u64(weir_gguf_cursor *cursor, uint64_t *out, const char *what);
/* Reads a string into the arena as a C string. */
WEIR_MUST_CHECK weir_status
weir_gguf_text(weir_gguf_cursor *cursor, weir_arena *arena, weir_text *out, const char *what);
/* Reads the type number and the value that follow a key. */
WEIR_MUST_CHECK weir_status
weir_gguf_value(weir_gguf_cursor *cursor, weir_arena *arena, weir_meta *out, const char *key);

#ifdef __cplusplus
}
#endif
