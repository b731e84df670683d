/* engine/formats/gguf_writer.h - writes one GGUF 3 file: first all keys and tensors are named, then
 * the data of the tensors follows in that order.
 *
 * The file appears under its name when it is complete and on the disk; until then it has a
 * temporary one. The data passes through: the writer holds the header only. */
#pragma once
#include "engine/formats/tensor_directory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_gguf_writer weir_gguf_writer;

/* NULL: no memory. */
weir_gguf_writer *weir_gguf_writer_new(void);
/* Drops a file that is not finished. NULL-safe. */
void weir_gguf_writer_close(weir_gguf_writer *writer);

/* ---- the header; what fails here is reported by begin ---------------------------------------- */

void weir_gguf_put_u32(weir_gguf_writer *writer, const char *key, uint32_t value);
void weir_gguf_put_f32(weir_gguf_writer *writer, const char *key, float value);
void weir_gguf_put_bool(weir_gguf_writer *writer, const char *key, bool value);
void weir_gguf_put_text(weir_gguf_writer *writer, const char *key, const char *text, size_t n);
/* An array of bytes. */
void weir_gguf_put_u8s(weir_gguf_writer *writer, const char *key, const void *bytes, size_t n);
/* A value that was read from a GGUF file, with the type it has there. */
void weir_gguf_put_meta(weir_gguf_writer *writer, const char *key, const weir_meta *value);

/* An array: its elements follow, exactly n of the named type. */
void weir_gguf_begin_texts(weir_gguf_writer *writer, const char *key, size_t n);
void weir_gguf_begin_i32s(weir_gguf_writer *writer, const char *key, size_t n);
void weir_gguf_begin_f32s(weir_gguf_writer *writer, const char *key, size_t n);
void weir_gguf_begin_bools(weir_gguf_writer *writer, const char *key, size_t n);
void weir_gguf_add_text(weir_gguf_writer *writer, const char *text, size_t n);
void weir_gguf_add_i32(weir_gguf_writer *writer, int32_t value);
void weir_gguf_add_f32(weir_gguf_writer *writer, float value);
void weir_gguf_add_bool(weir_gguf_writer *writer, bool value);

/* The name and key lengths, shape and type are those of weir_tensor; `data` is not used. A tensor
 * has at most 4 dimensions, and its rows are whole blocks. */
void weir_gguf_add_tensor(weir_gguf_writer *writer, const weir_tensor *tensor);

/* ---- the data -------------------------------------------------------------------------------- */

/* Bytes of the whole file; 0: more than a file can have. */
uint64_t weir_gguf_writer_bytes(const weir_gguf_writer *writer);
/* Creates the file with room for all of it, and writes the header.
 * errors : EINVAL (a name twice, a shape that GGUF cannot have, an array with another number of
 *          elements), ENOMEM, EIO (no such folder, no space) */
WEIR_MUST_CHECK weir_status
weir_gguf_writer_begin(weir_gguf_writer *writer, const char *path, weir_error *error);
/* The next bytes of the data of all tensors, in their order; padding is added between them. */
WEIR_MUST_CHECK weir_status
weir_gguf_writer_add(weir_gguf_writer *writer, const void *bytes, size_t n, weir_error *error);
/* The temporary name of the file that was begun. */
const char *weir_gguf_writer_path(const weir_gguf_writer *writer);
/* The data is complete: the file takes its name.
 * errors : EINVAL (data is missing), EIO */
WEIR_MUST_CHECK weir_status weir_gguf_writer_finish(weir_gguf_writer *writer, weir_error *error);

#ifdef __cplusplus
}
#endif
