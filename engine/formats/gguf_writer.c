#include "engine/formats/gguf_writer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/formats/gguf.h"
#include "engine/formats/printable.h"

enum { VERSION = 3, MAGIC = 0x46554747, ALIGNMENT = 32, DIMS = 4 };

/* The names are texts in `names`. */
typedef struct entry {
    size_t name; /* offset in names */
    uint64_t bytes; /* of data; keys have none */
} entry;

struct weir_gguf_writer {
    weir_buffer keys, tensors, names;
    entry *key_entries, *tensor_entries; /* owned */
    size_t n_keys, n_tensors, key_capacity, tensor_capacity;
    size_t n_expected; /* elements of the open array that are missing */
    weir_packed_type expected;
    uint64_t data_bytes; /* of all tensors, padded */
    size_t at; /* tensor being written */
    uint64_t written; /* of its data */
    weir_new_file file;
    weir_status failed;
    weir_error error; /* of the first failure */
};

weir_gguf_writer *weir_gguf_writer_new(void)
{
    weir_gguf_writer *const writer = weir_memory_take_zero(1, sizeof *writer);
    if (writer != NULL) writer->file.fd = -1;
    return writer;
}

void weir_gguf_writer_close(weir_gguf_writer *writer)
{
    if (writer == NULL) return;
    weir_new_file_drop(&writer->file);
    weir_buffer_free(&writer->keys);
    weir_buffer_free(&writer->tensors);
    weir_buffer_free(&writer->names);
    weir_memory_give(writer->key_entries);
    weir_memory_give(writer->tensor_entries);
    weir_memory_give(writer);
}

/* ---- the header ------------------------------------------------------------------------------ */

static void keep_status(weir_gguf_writer *writer, weir_status status)
{
    if (status == WEIR_OK || writer->failed != WEIR_OK) return;
    writer->failed = weir_error_set(&writer->error, status, "no memory for a GGUF header");
}

__attribute__((format(printf, 2, 3))) static void refuse(
    weir_gguf_writer *writer, const char *format, ...
)
{
    char text[400];
    va_list list;
    if (writer->failed != WEIR_OK) return;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    writer->failed = weir_error_set(&writer->error, WEIR_EINVAL, "%s", text);
}

/* Little-endian. */
static void put_bytes(weir_gguf_writer *writer, weir_buffer *out, uint64_t value, size_t n)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(value >> 8 * i);
    keep_status(writer, weir_buffer_add(out, bytes, n));
}

static void put_string(weir_gguf_writer *writer, weir_buffer *out, const char *text, size_t n)
{
    put_bytes(writer, out, n, sizeof(uint64_t));
    keep_status(writer, weir_buffer_add(out, text, n));
}

/* Adds a name to a table. Returns NULL if it cannot. */
static entry *add_entry(
    weir_gguf_writer *writer, entry **table, size_t *n, size_t *capacity, const char *name
)
{
    const size_t length = strlen(name), more = *capacity > 0 ? 2 * *capacity : 64;
    char shown[80];
    if (!weir_name_valid(name, length))
        refuse(writer, "'%s' is no name", weir_printable(shown, sizeof shown, name, length));
    if (*n == *capacity && writer->failed == WEIR_OK) {
        entry *const grown = weir_memory_resize(*table, more * sizeof **table);
        if (grown == NULL) {
            keep_status(writer, WEIR_ENOMEM);
        } else {
            *table = grown;
            *capacity = more;
        }
    }
    const size_t at = writer->names.size;
    keep_status(writer, weir_buffer_add(&writer->names, name, length + 1));
    if (writer->failed != WEIR_OK) return NULL;
    entry *const out = &(*table)[(*n)++];
    *out = (entry){ .name = at };
    return out;
}

static void check_array(weir_gguf_writer *writer)
{
    if (writer->n_expected > 0)
        refuse(writer, "an array of GGUF lacks %zu elements", writer->n_expected);
    writer->n_expected = 0;
}

static void begin_key(weir_gguf_writer *writer, const char *key, weir_packed_type type)
{
    check_array(writer);
    if (add_entry(writer, &writer->key_entries, &writer->n_keys, &writer->key_capacity, key) ==
        NULL)
        return;
    put_string(writer, &writer->keys, key, strlen(key));
    put_bytes(writer, &writer->keys, type, sizeof(uint32_t));
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void weir_gguf_put_u32(weir_gguf_writer *writer, const char *key, uint32_t value)
{
    begin_key(writer, key, WEIR_PACKED_U32);
    put_bytes(writer, &writer->keys, value, sizeof value);
}

void weir_gguf_put_f32(weir_gguf_writer *writer, const char *key, float value)
{
    begin_key(writer, key, WEIR_PACKED_F32);
    put_bytes(writer, &writer->keys, bits_of(value), sizeof value);
}

void weir_gguf_put_bool(weir_gguf_writer *writer, const char *key, bool value)
{
    begin_key(writer, key, WEIR_PACKED_BOOL);
    put_bytes(writer, &writer->keys, value, 1);
}

void weir_gguf_put_text(weir_gguf_writer *writer, const char *key, const char *text, size_t n)
{
    begin_key(writer, key, WEIR_PACKED_STRING);
    put_string(writer, &writer->keys, text, n);
}

/* The bits of a number of this type. */
static uint64_t packed_bits(const weir_meta *value, weir_packed_type type)
{
    uint64_t bits = 0;
    switch (type) {
    case WEIR_PACKED_F32: bits = bits_of((float)value->number); break;
    case WEIR_PACKED_F64: memcpy(&bits, &value->number, sizeof bits); break;
    case WEIR_PACKED_BOOL: bits = value->boolean; break;
    default: bits = (uint64_t)value->integer; break;
    }
    return bits;
}

static weir_packed_type element_type_of(const weir_elements *elements)
{
    if (elements->packed != NULL) return elements->packed_type;
    return elements->values != NULL ? WEIR_PACKED_ARRAY : WEIR_PACKED_STRING;
}

static void put_elements(weir_gguf_writer *writer, const weir_meta *array)
{
    const weir_elements *const elements = array->elements;
    const weir_packed_type type = element_type_of(elements);
    put_bytes(writer, &writer->keys, type, sizeof(uint32_t));
    put_bytes(writer, &writer->keys, array->length, sizeof(uint64_t));
    if (elements->packed != NULL)
        keep_status(
            writer, weir_buffer_add(
                        &writer->keys, elements->packed, array->length * weir_packed_bytes(type)
                    )
        );
    for (size_t i = 0; elements->texts != NULL && i < array->length; i++)
        put_string(writer, &writer->keys, elements->texts[i].bytes, elements->texts[i].length);
    /* The reader limits how deep arrays are nested. */
    for (size_t i = 0; elements->values != NULL && i < array->length; i++)
        put_elements(writer, &elements->values[i]); /* NOLINT(misc-no-recursion) */
}

void weir_gguf_put_meta(weir_gguf_writer *writer, const char *key, const weir_meta *value)
{
    if (value->type == WEIR_META_STRING) {
        weir_gguf_put_text(writer, key, value->string, value->length);
        return;
    }
    const weir_packed_type type =
        value->type == WEIR_META_ARRAY ? WEIR_PACKED_ARRAY : (weir_packed_type)value->packed_type;
    begin_key(writer, key, type);
    if (type == WEIR_PACKED_ARRAY)
        put_elements(writer, value);
    else
        put_bytes(writer, &writer->keys, packed_bits(value, type), weir_packed_bytes(type));
}

static void begin_array(weir_gguf_writer *writer, const char *key, weir_packed_type type, size_t n)
{
    begin_key(writer, key, WEIR_PACKED_ARRAY);
    put_bytes(writer, &writer->keys, type, sizeof(uint32_t));
    put_bytes(writer, &writer->keys, n, sizeof(uint64_t));
    writer->n_expected = n;
    writer->expected = type;
}

void weir_gguf_put_u8s(weir_gguf_writer *writer, const char *key, const void *bytes, size_t n)
{
    begin_array(writer, key, WEIR_PACKED_U8, n);
    keep_status(writer, weir_buffer_add(&writer->keys, bytes, n));
    writer->n_expected = 0;
}

void weir_gguf_begin_texts(weir_gguf_writer *writer, const char *key, size_t n)
{
    begin_array(writer, key, WEIR_PACKED_STRING, n);
}

void weir_gguf_begin_i32s(weir_gguf_writer *writer, const char *key, size_t n)
{
    begin_array(writer, key, WEIR_PACKED_I32, n);
}

void weir_gguf_begin_f32s(weir_gguf_writer *writer, const char *key, size_t n)
{
    begin_array(writer, key, WEIR_PACKED_F32, n);
}

void weir_gguf_begin_bools(weir_gguf_writer *writer, const char *key, size_t n)
{
    begin_array(writer, key, WEIR_PACKED_BOOL, n);
}

/* False if the open array takes no such element. */
static bool expects(weir_gguf_writer *writer, weir_packed_type type)
{
    if (writer->n_expected == 0 || writer->expected != type) {
        refuse(writer, "an array of GGUF takes no further element, or one of another type");
        return false;
    }
    writer->n_expected--;
    return true;
}

void weir_gguf_add_text(weir_gguf_writer *writer, const char *text, size_t n)
{
    if (expects(writer, WEIR_PACKED_STRING)) put_string(writer, &writer->keys, text, n);
}

void weir_gguf_add_i32(weir_gguf_writer *writer, int32_t value)
{
    if (expects(writer, WEIR_PACKED_I32))
        put_bytes(writer, &writer->keys, (uint32_t)value, sizeof value);
}

void weir_gguf_add_f32(weir_gguf_writer *writer, float value)
{
    if (expects(writer, WEIR_PACKED_F32))
        put_bytes(writer, &writer->keys, bits_of(value), sizeof value);
}

void weir_gguf_add_bool(weir_gguf_writer *writer, bool value)
{
    if (expects(writer, WEIR_PACKED_BOOL)) put_bytes(writer, &writer->keys, value, 1);
}

/* Bytes of the tensor's data; false if GGUF cannot have such a tensor. */
static bool size_of(const weir_tensor *tensor, uint64_t *out)
{
    const weir_dtype_info info = weir_dtype_of(tensor->dtype);
    size_t n = 1, bytes;
    if (tensor->n_dims < 1 || tensor->n_dims > DIMS) return false;
    for (int32_t i = 0; i < tensor->n_dims; i++)
        if (tensor->shape[i] < 1 || !weir_mul_size(&n, n, (size_t)tensor->shape[i])) return false;
    if (tensor->shape[tensor->n_dims - 1] % info.block_elements != 0 ||
        !weir_mul_size(&bytes, n / (size_t)info.block_elements, (size_t)info.block_bytes))
        return false;
    *out = bytes;
    return bytes <= INT64_MAX;
}

static uint64_t padded(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void weir_gguf_add_tensor(weir_gguf_writer *writer, const weir_tensor *tensor)
{
    uint32_t type;
    uint64_t bytes = 0;
    char shown[80];
    check_array(writer);
    if (!weir_gguf_number_of(tensor->dtype, &type) || !size_of(tensor, &bytes) ||
        bytes > INT64_MAX - ALIGNMENT - writer->data_bytes)
        refuse(
            writer, "tensor %s: GGUF has no tensor of this shape and type (%s)",
            weir_printable(shown, sizeof shown, tensor->name, strlen(tensor->name)),
            weir_dtype_of(tensor->dtype).name
        );
    entry *const own = add_entry(
        writer, &writer->tensor_entries, &writer->n_tensors, &writer->tensor_capacity, tensor->name
    );
    if (own == NULL) return;
    own->bytes = bytes;
    put_string(writer, &writer->tensors, tensor->name, strlen(tensor->name));
    put_bytes(writer, &writer->tensors, (uint64_t)tensor->n_dims, sizeof(uint32_t));
    for (int32_t i = tensor->n_dims; i-- > 0;)
        put_bytes(writer, &writer->tensors, (uint64_t)tensor->shape[i], sizeof(uint64_t));
    put_bytes(writer, &writer->tensors, type, sizeof(uint32_t));
    put_bytes(writer, &writer->tensors, writer->data_bytes, sizeof(uint64_t));
    writer->data_bytes += padded(bytes);
}

/* ---- the data -------------------------------------------------------------------------------- */

/* Magic, version and the two counts. */
enum { START_BYTES = 24 };

static uint64_t header_bytes(const weir_gguf_writer *writer)
{
    return padded(START_BYTES + writer->keys.size + writer->tensors.size);
}

uint64_t weir_gguf_writer_bytes(const weir_gguf_writer *writer)
{
    const uint64_t header = header_bytes(writer);
    return writer->data_bytes <= INT64_MAX - header ? header + writer->data_bytes : 0;
}

static int compare_names(const void *a, const void *b, void *names)
{
    return strcmp(
        (const char *)names + ((const entry *)a)->name,
        (const char *)names + ((const entry *)b)->name
    );
}

/* Refuses a name that is twice in a table of n. */
static void check_names(weir_gguf_writer *writer, const entry *table, size_t n, const char *what)
{
    entry *const sorted = n > 1 ? weir_memory_take(n * sizeof *sorted) : NULL;
    if (n < 2 || writer->failed != WEIR_OK) {
        weir_memory_give(sorted);
        return;
    }
    if (sorted == NULL) {
        keep_status(writer, WEIR_ENOMEM);
        return;
    }
    memcpy(sorted, table, n * sizeof *sorted);
    qsort_r(sorted, n, sizeof *sorted, compare_names, writer->names.data);
    for (size_t i = 1; i < n; i++) {
        char shown[80];
        const char *const name = writer->names.data + sorted[i].name;
        if (strcmp(name, writer->names.data + sorted[i - 1].name) == 0)
            refuse(
                writer, "%s %s would be written twice", what,
                weir_printable(shown, sizeof shown, name, strlen(name))
            );
    }
    weir_memory_give(sorted);
}

static weir_status write_bytes(
    weir_gguf_writer *writer, const void *bytes, size_t n, weir_error *error
)
{
    const char *at = bytes;
    for (size_t left = n; left > 0;) {
        const ssize_t written = write(writer->file.fd, at, left);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return weir_error_set(
                error, WEIR_EIO, "%s: cannot write %zu bytes: %s", writer->file.path, n,
                written < 0 ? strerror(errno) : "the disk takes no more"
            );
        at += written;
        left -= (size_t)written;
    }
    return WEIR_OK;
}

static weir_status write_header(weir_gguf_writer *writer, weir_error *error)
{
    weir_buffer start = { 0 };
    static const char zeros[ALIGNMENT];
    const uint64_t n = START_BYTES + writer->keys.size + writer->tensors.size;
    put_bytes(writer, &start, MAGIC, sizeof(uint32_t));
    put_bytes(writer, &start, VERSION, sizeof(uint32_t));
    put_bytes(writer, &start, writer->n_tensors, sizeof(uint64_t));
    put_bytes(writer, &start, writer->n_keys, sizeof(uint64_t));
    weir_status status = writer->failed;
    if (status != WEIR_OK) status = weir_error_set(error, status, "%s", writer->error.text);
    if (status == WEIR_OK) status = write_bytes(writer, start.data, start.size, error);
    if (status == WEIR_OK)
        status = write_bytes(writer, writer->keys.data, writer->keys.size, error);
    if (status == WEIR_OK)
        status = write_bytes(writer, writer->tensors.data, writer->tensors.size, error);
    if (status == WEIR_OK) status = write_bytes(writer, zeros, padded(n) - n, error);
    weir_buffer_free(&start);
    return status;
}

weir_status weir_gguf_writer_begin(weir_gguf_writer *writer, const char *path, weir_error *error)
{
    check_array(writer);
    check_names(writer, writer->key_entries, writer->n_keys, "key");
    check_names(writer, writer->tensor_entries, writer->n_tensors, "tensor");
    const uint64_t bytes = weir_gguf_writer_bytes(writer);
    if (header_bytes(writer) > WEIR_HEADER_BYTES_MAX || writer->n_keys > WEIR_META_MAX ||
        writer->n_tensors > WEIR_FILE_TENSORS_MAX || bytes == 0)
        refuse(writer, "the file would be too large for readers of GGUF");
    if (writer->failed != WEIR_OK)
        return weir_error_set(error, writer->failed, "%s: %s", path, writer->error.text);
    WEIR_TRY(weir_new_file_open_public(&writer->file, path, (size_t)bytes, error));
    return write_header(writer, error);
}

weir_status weir_gguf_writer_add(
    weir_gguf_writer *writer, const void *bytes, size_t n, weir_error *error
)
{
    static const char zeros[ALIGNMENT];
    const char *at = bytes;
    while (n > 0) {
        WEIR_ASSERT(writer->at < writer->n_tensors); /* the caller knows the sizes it named */
        const entry *const own = &writer->tensor_entries[writer->at];
        const uint64_t left = own->bytes - writer->written;
        const size_t part = n < left ? n : (size_t)left;
        WEIR_TRY(write_bytes(writer, at, part, error));
        writer->written += part;
        at += part;
        n -= part;
        if (writer->written < own->bytes) continue;
        WEIR_TRY(write_bytes(writer, zeros, padded(own->bytes) - own->bytes, error));
        writer->at++;
        writer->written = 0;
    }
    return WEIR_OK;
}

const char *weir_gguf_writer_path(const weir_gguf_writer *writer) { return writer->file.temporary; }

weir_status weir_gguf_writer_finish(weir_gguf_writer *writer, weir_error *error)
{
    if (writer->at < writer->n_tensors)
        return weir_error_set(
            error, WEIR_EINVAL, "%s: the data of tensor %s is not complete", writer->file.path,
            writer->names.data + writer->tensor_entries[writer->at].name
        );
    return weir_new_file_keep(&writer->file, error);
}
