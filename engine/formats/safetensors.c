/* engine/formats/safetensors.c - safetensors: a u64 length, a JSON object of that length, the data,
 * unaligned. Entries: { "dtype", "shape" slowest first, "data_offsets": [begin, end] }. Spans tile
 * the data: no gap, no overlap, nothing after the last one. */
#include "engine/formats/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/formats/printable.h"

enum { HEADER_DEPTH = 8 };

static const struct {
    const char *name;
    weir_dtype dtype;
} dtypes[] = {
    { "F32", WEIR_F32 },   { "F16", WEIR_F16 },         { "BF16", WEIR_BF16 },
    { "F64", WEIR_F64 },   { "I8", WEIR_I8 },           { "I16", WEIR_I16 },
    { "I32", WEIR_I32 },   { "I64", WEIR_I64 },         { "U8", WEIR_U8 },
    { "U16", WEIR_U16 },   { "U32", WEIR_U32 },         { "U64", WEIR_U64 },
    { "BOOL", WEIR_BOOL }, { "F8_E4M3", WEIR_F8_E4M3 }, { "F8_E5M2", WEIR_F8_E5M2 },
};

/* The file being read. */
typedef struct reader {
    weir_tensor_directory *directory;
    const weir_safetensors_args *args;
    const unsigned char *data;
    size_t data_size;
    weir_error *error;
} reader;

static weir_status __attribute__((format(printf, 3, 4))) bad_tensor(
    const reader *r, const char *label, const char *format, ...
)
{
    char text[400];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return weir_error_set(r->error, WEIR_EFORMAT, "%s: tensor %s: %s", r->args->name, label, text);
}

static weir_status read_dtype(
    const reader *r, const json_t *entry, weir_tensor *tensor, const char *label
)
{
    const json_t *const value = json_object_get(entry, "dtype");
    if (!json_is_string(value)) return bad_tensor(r, label, "dtype is not a string");
    const char *const text = json_string_value(value);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(text, dtypes[i].name) != 0 || strlen(text) != json_string_length(value))
            continue;
        tensor->dtype = dtypes[i].dtype;
        return WEIR_OK;
    }
    char shown[40];
    return bad_tensor(
        r, label, "unknown dtype %s",
        weir_printable(shown, sizeof shown, text, json_string_length(value))
    );
}

/* Reads the shape and computes the size in bytes. */
static weir_status read_shape(
    const reader *r, const json_t *entry, weir_tensor *tensor, const char *label
)
{
    const json_t *const shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return bad_tensor(r, label, "shape is not an array");
    const size_t n_dims = json_array_size(shape);
    if (n_dims > WEIR_TENSOR_DIMS)
        return bad_tensor(
            r, label, "it has %zu dimensions, at most %d are read", n_dims, WEIR_TENSOR_DIMS
        );
    tensor->n_dims = (int32_t)n_dims;
    int64_t elements = 1;
    for (size_t i = 0; i < WEIR_TENSOR_DIMS; i++) {
        const json_t *const extent = json_array_get(shape, i);
        if (i < n_dims && !json_is_integer(extent))
            return bad_tensor(r, label, "a dimension is not an integer");
        tensor->shape[i] = i < n_dims ? json_integer_value(extent) : 1;
        if (tensor->shape[i] < 0) return bad_tensor(r, label, "a dimension is negative");
        if (!weir_mul_i64(&elements, elements, tensor->shape[i]))
            return bad_tensor(r, label, "the product of its dimensions does not fit");
    }
    if (!weir_mul_size(
            &tensor->bytes, (size_t)elements, (size_t)weir_dtype_of(tensor->dtype).block_bytes
        ))
        return bad_tensor(r, label, "the product of its dimensions does not fit");
    return WEIR_OK;
}

static weir_status read_span(
    const reader *r, const json_t *entry, weir_tensor *tensor, weir_file_span *span,
    const char *label
)
{
    const json_t *const offsets = json_object_get(entry, "data_offsets");
    const json_t *const begin = json_array_get(offsets, 0), *const end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return bad_tensor(r, label, "data_offsets is not an array of two integers");
    const json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > r->data_size)
        return bad_tensor(
            r, label, "bytes %lld to %lld of a data section of %zu; is the file whole?",
            (long long)from, (long long)to, r->data_size
        );
    if ((size_t)(to - from) != tensor->bytes)
        return bad_tensor(
            r, label, "data_offsets span %lld bytes, its shape takes %zu", (long long)(to - from),
            tensor->bytes
        );
    *span = (weir_file_span){ .begin = (size_t)from, .end = (size_t)to };
    tensor->data = r->data + from;
    return WEIR_OK;
}

static bool is_wanted(const reader *r, const char *name)
{
    if (r->args->wanted == NULL) return true;
    const char *const file = json_string_value(json_object_get(r->args->wanted, name));
    return file != NULL && strcmp(file, r->args->wanted_file) == 0;
}

static weir_status read_entry(
    const reader *r, const char *name, const json_t *entry, weir_file_span *span
)
{
    char label[80];
    weir_tensor tensor = { .file = r->args->source };
    (void)weir_printable(label, sizeof label, name, strlen(name));
    if (!weir_name_valid(name, strlen(name)))
        return bad_tensor(r, label, "its name is empty or longer than %d bytes", WEIR_NAME_BYTES);
    if (!json_is_object(entry)) return bad_tensor(r, label, "its entry is not an object");
    WEIR_TRY(read_dtype(r, entry, &tensor, label));
    WEIR_TRY(read_shape(r, entry, &tensor, label));
    WEIR_TRY(read_span(r, entry, &tensor, span, label));
    if (!is_wanted(r, name)) return WEIR_OK;
    tensor.name = weir_arena_text(&r->directory->arena, name, strlen(name));
    if (tensor.name == NULL) return weir_directory_no_memory(r->error, r->args->name);
    return weir_directory_add_tensor(r->directory, &tensor, r->error);
}

/* Sorted spans must be contiguous from 0 to the end of the data. */
static weir_status check_tiling(const reader *r, weir_file_span *spans, size_t n)
{
    weir_file_span_sort(spans, n);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].begin != at)
            return weir_error_set(
                r->error, WEIR_EFORMAT,
                "%s: %s in the data section: one tensor ends at %zu, the next begins at %zu",
                r->args->name, spans[i].begin < at ? "overlap" : "gap", at, spans[i].begin
            );
        at = spans[i].end;
    }
    if (at != r->data_size)
        return weir_error_set(
            r->error, WEIR_EFORMAT,
            "%s: the last tensor ends at %zu of a data section of %zu bytes", r->args->name, at,
            r->data_size
        );
    return WEIR_OK;
}

static weir_status check_metadata(const reader *r, const json_t *metadata)
{
    const char *key;
    const json_t *value;
    if (!json_is_object(metadata)) return bad_tensor(r, "__metadata__", "it is not an object");
    json_object_foreach(
        (json_t *)(uintptr_t)metadata, key, value
    ) if (!json_is_string(value)) return bad_tensor(r, "__metadata__", "a value is not a string");
    return WEIR_OK;
}

static weir_status read_entries(const reader *r, json_t *header)
{
    const size_t n_entries = json_object_size(header);
    if (n_entries > WEIR_FILE_TENSORS_MAX)
        return weir_error_set(
            r->error, WEIR_EFORMAT, "%s: %zu tensors, at most %d are read", r->args->name,
            n_entries, WEIR_FILE_TENSORS_MAX
        );
    weir_file_span *const spans = weir_memory_take_zero(n_entries + 1, sizeof *spans);
    if (spans == NULL) return weir_directory_no_memory(r->error, r->args->name);
    weir_status status = WEIR_OK;
    size_t n = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            status = check_metadata(r, entry);
        else
            status = read_entry(r, name, entry, &spans[n++]);
        if (status != WEIR_OK) break;
    }
    if (status == WEIR_OK) status = check_tiling(r, spans, n);
    weir_memory_give(spans);
    return status;
}

static weir_status header_length(const weir_safetensors_args *args, size_t *out, weir_error *error)
{
    if (args->n < sizeof(uint64_t))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: byte 0: a file of %zu bytes has no safetensors header",
            args->name, args->n
        );
    uint64_t length = 0;
    for (size_t i = sizeof length; i-- > 0;) length = length << 8 | args->bytes[i];
    if (length > WEIR_HEADER_BYTES_MAX || length > args->n - sizeof length)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: byte 0: a header of %" PRIu64 " bytes; the file has %zu more, %d are allowed",
            args->name, length, args->n - sizeof length, WEIR_HEADER_BYTES_MAX
        );
    if (length == 0 || args->bytes[sizeof length] != '{')
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: byte 8: not a safetensors file: its header does not begin with {", args->name
        );
    *out = (size_t)length;
    return WEIR_OK;
}

weir_status weir_safetensors_parse(
    weir_tensor_directory *directory, const weir_safetensors_args *args, weir_error *error
)
{
    size_t length;
    json_t *header;
    WEIR_TRY(header_length(args, &length, error));
    const char *const text = (const char *)args->bytes + sizeof(uint64_t);
    const weir_status parsed =
        weir_json_parse(&header, text, length, "header", HEADER_DEPTH, error);
    if (parsed != WEIR_OK) return weir_error_prefix(error, parsed, "%s", args->name);
    const reader r = {
        .directory = directory,
        .args = args,
        .data = (const unsigned char *)text + length,
        .data_size = args->n - sizeof(uint64_t) - length,
        .error = error,
    };
    const weir_status status = read_entries(&r, header);
    json_decref(header);
    return status;
}
