/* engine/formats/gguf.c - GGUF: magic "GGUF", u32 version, u64 tensors, u64 keys; then keys
 * { name, type, value }; tensors { name, u32 n_dims, u64 ne[] fastest first, u32 type, u64 offset
 * in data }; padding; data. Dimensions in weir_tensor are slowest first. */
#include "engine/formats/gguf.h"

#include <inttypes.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/formats/printable.h"

/* NOLINTBEGIN(clang-analyzer-core.*): the analyzer does not see that weir_gguf_bad never says OK */

enum { GGUF_DIMS = 4, ALIGNMENT_DEFAULT = 32, ALIGNMENT_MAX = 1 << 20 };

/* Tensor types by their number in the file. Types without a dtype are named for the error
 * message. */
typedef struct ggml_type {
    const char *name;
    bool known;
    weir_dtype dtype;
} ggml_type;

static const ggml_type ggml_types[] = {
    [0] = { "F32", true, WEIR_F32 },          [1] = { "F16", true, WEIR_F16 },
    [2] = { "Q4_0", true, WEIR_Q4_0 },        [3] = { "Q4_1", true, WEIR_Q4_1 },
    [6] = { "Q5_0", true, WEIR_Q5_0 },        [7] = { "Q5_1", true, WEIR_Q5_1 },
    [8] = { "Q8_0", true, WEIR_Q8_0 },        [9] = { .name = "Q8_1" },
    [10] = { "Q2_K", true, WEIR_Q2_K },       [11] = { "Q3_K", true, WEIR_Q3_K },
    [12] = { "Q4_K", true, WEIR_Q4_K },       [13] = { "Q5_K", true, WEIR_Q5_K },
    [14] = { "Q6_K", true, WEIR_Q6_K },       [15] = { .name = "Q8_K" },
    [16] = { "IQ2_XXS", true, WEIR_IQ2_XXS }, [17] = { "IQ2_XS", true, WEIR_IQ2_XS },
    [18] = { "IQ3_XXS", true, WEIR_IQ3_XXS }, [19] = { "IQ1_S", true, WEIR_IQ1_S },
    [20] = { "IQ4_NL", true, WEIR_IQ4_NL },   [21] = { "IQ3_S", true, WEIR_IQ3_S },
    [22] = { "IQ2_S", true, WEIR_IQ2_S },     [23] = { "IQ4_XS", true, WEIR_IQ4_XS },
    [24] = { "I8", true, WEIR_I8 },           [25] = { "I16", true, WEIR_I16 },
    [26] = { "I32", true, WEIR_I32 },         [27] = { "I64", true, WEIR_I64 },
    [28] = { "F64", true, WEIR_F64 },         [29] = { "IQ1_M", true, WEIR_IQ1_M },
    [30] = { "BF16", true, WEIR_BF16 },       [34] = { "TQ1_0", true, WEIR_TQ1_0 },
    [35] = { "TQ2_0", true, WEIR_TQ2_0 },     [39] = { "MXFP4", true, WEIR_MXFP4 },
    [40] = { "NVFP4", true, WEIR_NVFP4 },     [41] = { "Q1_0", true, WEIR_Q1_0 },
    [42] = { "Q2_0", true, WEIR_Q2_0 },
};

bool weir_gguf_number_of(weir_dtype dtype, uint32_t *out)
{
    for (size_t i = 0; i < sizeof ggml_types / sizeof ggml_types[0]; i++) {
        if (!ggml_types[i].known || ggml_types[i].dtype != dtype) continue;
        *out = (uint32_t)i;
        return true;
    }
    return false;
}

typedef struct counts {
    uint64_t tensors, keys;
} counts;

static weir_status read_start(weir_gguf_cursor *cursor, counts *out)
{
    uint32_t magic, version;
    WEIR_TRY(weir_gguf_u32(cursor, &magic, "the magic"));
    if (magic != 0x46554747)
        return weir_gguf_bad(cursor, 0, "not a GGUF file: it does not begin with \"GGUF\"");
    WEIR_TRY(weir_gguf_u32(cursor, &version, "the version"));
    if ((version & 0xFFFF) == 0)
        return weir_gguf_bad(cursor, 4, "a big-endian GGUF file; only little-endian ones are read");
    if (version != 2 && version != 3)
        return weir_gguf_bad(
            cursor, 4, "GGUF version %" PRIu32 "; versions 2 and 3 are read%s", version,
            version == 1 ? ": convert the model again" : ""
        );
    WEIR_TRY(weir_gguf_u64(cursor, &out->tensors, "the number of tensors"));
    if (out->tensors > WEIR_FILE_TENSORS_MAX)
        return weir_gguf_bad(
            cursor, 8, "%" PRIu64 " tensors, at most %d are read", out->tensors,
            WEIR_FILE_TENSORS_MAX
        );
    WEIR_TRY(weir_gguf_u64(cursor, &out->keys, "the number of keys"));
    if (out->keys > WEIR_META_MAX)
        return weir_gguf_bad(
            cursor, 16, "%" PRIu64 " metadata keys, at most %d are read", out->keys, WEIR_META_MAX
        );
    return WEIR_OK;
}

static weir_status read_name(
    weir_gguf_cursor *cursor, weir_arena *arena, const char **out, const char *what
)
{
    const size_t at = cursor->at;
    weir_text text;
    WEIR_TRY(weir_gguf_text(cursor, arena, &text, what));
    if (!weir_name_valid(text.bytes, text.length))
        return weir_gguf_bad(
            cursor, at, "%s is empty, longer than %d bytes, or not UTF-8 without NUL", what,
            WEIR_NAME_BYTES
        );
    *out = text.bytes;
    return WEIR_OK;
}

/* Reads keys that describe the file itself. `at` is the offset of the key. */
static weir_status note_key(
    weir_gguf_cursor *cursor, weir_gguf_header *header, size_t at, const char *key,
    const weir_meta *value
)
{
    int64_t alignment = 0;
    struct {
        const char *key;
        int64_t *out, low, high;
    } const known[] = {
        { "general.alignment", &alignment, 1, ALIGNMENT_MAX },
        { "split.no", &header->split_number, 0, WEIR_SET_FILES_MAX - 1 },
        { "split.count", &header->split_count, 0, WEIR_SET_FILES_MAX },
        { "split.tensors.count", &header->split_tensors, 0, WEIR_SET_TENSORS_MAX },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(key, known[i].key) != 0) continue;
        if (value->type != WEIR_META_INT || value->integer < known[i].low ||
            value->integer > known[i].high)
            return weir_gguf_bad(
                cursor, at, "%s is not an integer from %" PRId64 " to %" PRId64, key, known[i].low,
                known[i].high
            );
        *known[i].out = value->integer;
    }
    if (alignment == 0) return WEIR_OK;
    if ((alignment & (alignment - 1)) != 0)
        return weir_gguf_bad(
            cursor, at, "general.alignment %" PRId64 " is not a power of two", alignment
        );
    header->alignment = (size_t)alignment;
    return WEIR_OK;
}

static weir_status read_key(
    weir_gguf_cursor *cursor, weir_tensor_directory *directory, weir_gguf_header *header
)
{
    const size_t at = cursor->at;
    const char *key;
    weir_meta value;
    WEIR_TRY(read_name(cursor, &directory->arena, &key, "a metadata key"));
    WEIR_TRY(weir_gguf_value(cursor, &directory->arena, &value, key));
    WEIR_TRY(note_key(cursor, header, at, key, &value));
    return weir_directory_add_meta(directory, key, &value, cursor->error);
}

/* Sets the tensor's type and size; `label` is its printable name. */
static weir_status measure(
    weir_gguf_cursor *cursor, weir_tensor *tensor, uint32_t type, const char *label
)
{
    const bool listed =
        type < sizeof ggml_types / sizeof ggml_types[0] && ggml_types[type].name != NULL;
    if (!listed || !ggml_types[type].known)
        return weir_gguf_bad(
            cursor, cursor->at - sizeof type,
            "tensor %s has type %" PRIu32 " (%s), which is not supported: use a file "
            "quantised to Q1_0 .. Q8_0, Q2_K .. Q6_K, IQ1_S .. IQ4_XS, MXFP4, NVFP4, TQ1_0 or "
            "TQ2_0",
            label, type, listed ? ggml_types[type].name : "unknown"
        );
    tensor->dtype = ggml_types[type].dtype;
    const weir_dtype_info info = weir_dtype_of(tensor->dtype);
    const int64_t row = tensor->shape[tensor->n_dims - 1];
    if (row % info.block_elements != 0)
        return weir_gguf_bad(
            cursor, cursor->at,
            "tensor %s: rows of %" PRId64 " elements are not whole blocks of %d (%s)", label, row,
            info.block_elements, info.name
        );
    int64_t elements = 1;
    bool fits = true;
    for (int i = 0; i < tensor->n_dims && fits; i++)
        fits = weir_mul_i64(&elements, elements, tensor->shape[i]);
    if (!fits ||
        !weir_mul_size(
            &tensor->bytes, (size_t)(elements / info.block_elements), (size_t)info.block_bytes
        ))
        return weir_gguf_bad(
            cursor, cursor->at, "tensor %s: the product of its dimensions does not fit", label
        );
    return WEIR_OK;
}

static weir_status read_shape(weir_gguf_cursor *cursor, weir_tensor *tensor, const char *label)
{
    uint32_t n_dims;
    WEIR_TRY(weir_gguf_u32(cursor, &n_dims, "the number of dimensions"));
    if (n_dims == 0 || n_dims > GGUF_DIMS)
        return weir_gguf_bad(
            cursor, cursor->at - sizeof n_dims, "tensor %s has %" PRIu32 " dimensions, not 1 to %d",
            label, n_dims, GGUF_DIMS
        );
    tensor->n_dims = (int32_t)n_dims;
    for (int i = 0; i < WEIR_TENSOR_DIMS; i++) tensor->shape[i] = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t extent;
        WEIR_TRY(weir_gguf_u64(cursor, &extent, "a dimension"));
        if (extent == 0 || extent > INT64_MAX)
            return weir_gguf_bad(
                cursor, cursor->at - sizeof extent, "tensor %s: dimension %" PRIu32 " is %" PRIu64,
                label, i, extent
            );
        tensor->shape[n_dims - 1 - i] = (int64_t)extent;
    }
    return WEIR_OK;
}

/* Reads one entry; *span is its place in the data section. */
static weir_status read_tensor(
    weir_gguf_cursor *cursor, weir_tensor_directory *directory, const weir_gguf_header *header,
    int32_t source, weir_file_span *span
)
{
    char label[80];
    weir_tensor tensor = { .file = source };
    uint32_t type;
    uint64_t offset;
    WEIR_TRY(read_name(cursor, &directory->arena, &tensor.name, "a tensor's name"));
    (void)weir_printable(label, sizeof label, tensor.name, strlen(tensor.name));
    WEIR_TRY(read_shape(cursor, &tensor, label));
    WEIR_TRY(weir_gguf_u32(cursor, &type, "a tensor's type"));
    WEIR_TRY(measure(cursor, &tensor, type, label));
    WEIR_TRY(weir_gguf_u64(cursor, &offset, "a tensor's offset"));
    if (offset % header->alignment != 0)
        return weir_gguf_bad(
            cursor, cursor->at - sizeof offset,
            "tensor %s: offset %" PRIu64 " is not a multiple of %zu", label, offset,
            header->alignment
        );
    *span = (weir_file_span){ .begin = (size_t)offset, .tensor = (uint32_t)directory->n_tensors };
    if (!weir_add_size(&span->end, span->begin, tensor.bytes))
        return weir_gguf_bad(
            cursor, cursor->at - sizeof offset, "tensor %s: offset %" PRIu64 " does not fit", label,
            offset
        );
    return weir_directory_add_tensor(directory, &tensor, cursor->error);
}

/* Sets the tensors' data pointers once the start of the data section is known. */
static weir_status place_tensors(
    const weir_gguf_cursor *cursor, weir_tensor_directory *directory,
    const weir_gguf_header *header, weir_file_span *spans
)
{
    size_t start;
    if (header->n_tensors == 0) return WEIR_OK;
    if (!weir_align_size(&start, cursor->at, header->alignment) || start > cursor->size)
        return weir_gguf_bad(cursor, cursor->at, "the file ends before its data section");
    weir_file_span_sort(spans, header->n_tensors);
    for (size_t i = 0; i < header->n_tensors; i++) {
        weir_tensor *const tensor = &directory->tensors[spans[i].tensor];
        char label[80], other[80];
        (void)weir_printable(label, sizeof label, tensor->name, strlen(tensor->name));
        if (spans[i].end > cursor->size - start)
            return weir_gguf_bad(
                cursor, start,
                "tensor %s takes bytes %zu to %zu of a data section of %zu; is the file whole?",
                label, spans[i].begin, spans[i].end, cursor->size - start
            );
        if (i > 0 && spans[i].begin < spans[i - 1].end) {
            const char *const name = directory->tensors[spans[i - 1].tensor].name;
            return weir_gguf_bad(
                cursor, start + spans[i].begin,
                "tensor %s begins %zu bytes before the end of tensor %s", label,
                spans[i - 1].end - spans[i].begin,
                weir_printable(other, sizeof other, name, strlen(name))
            );
        }
        tensor->data = cursor->bytes + start + spans[i].begin;
    }
    return WEIR_OK;
}

weir_status weir_gguf_parse(
    weir_tensor_directory *directory, weir_gguf_header *header, int32_t source,
    const unsigned char *bytes, size_t n, const char *name, weir_error *error
)
{
    weir_gguf_cursor cursor = { .bytes = bytes, .size = n, .name = name, .error = error };
    counts count;
    WEIR_TRY(read_start(&cursor, &count));
    *header = (weir_gguf_header){ .n_tensors = (size_t)count.tensors,
                                  .alignment = ALIGNMENT_DEFAULT,
                                  .split_count = 1,
                                  .split_tensors = -1 };
    for (uint64_t i = 0; i < count.keys; i++) WEIR_TRY(read_key(&cursor, directory, header));

    weir_file_span *const spans = weir_memory_take_zero(header->n_tensors + 1, sizeof *spans);
    if (spans == NULL) return weir_directory_no_memory(error, name);
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < header->n_tensors && status == WEIR_OK; i++)
        status = read_tensor(&cursor, directory, header, source, &spans[i]);
    if (status == WEIR_OK) status = place_tensors(&cursor, directory, header, spans);
    weir_memory_give(spans);
    return status;
}
/* NOLINTEND(clang-analyzer-core.*) */
