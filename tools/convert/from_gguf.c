#include "tools/convert/from_gguf.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "kernels/ref/dequantise.h"

/* ---- rows ------------------------------------------------------------------------------------ */
static const weir_tensor *tensor_of(void *user, const weir_planned *planned)
{
    return weir_tensor_directory_at(user, planned->index);
}

static weir_status copy_rows(
    void *user, const weir_planned *planned, int64_t first, int64_t n, unsigned char *out,
    weir_error *error
)
{
    const size_t row = weir_row_bytes(planned->from, planned->n_in);
    (void)error;
    memcpy(out, tensor_of(user, planned)->data + (size_t)first * row, (size_t)n * row);
    return WEIR_OK;
}

static weir_status read_rows(
    void *user, const weir_planned *planned, int64_t first, int64_t n, float *out, weir_error *error
)
{
    const weir_tensor *const tensor = tensor_of(user, planned);
    const size_t row = weir_row_bytes(planned->from, planned->n_in);
    if (weir_k_ref_dequantise(
            out, tensor->data + (size_t)first * row, planned->from, n * planned->n_in
        ) == WEIR_OK)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "%s: tensor %s is of type %s, which is no type of weights",
        weir_tensor_directory_path(user), tensor->name, weir_dtype_of(tensor->dtype).name
    );
}

static void release(void *user, const weir_planned *planned)
{
    weir_tensor_release(user, tensor_of(user, planned));
}

weir_row_reader weir_gguf_row_reader(const weir_tensor_directory *directory)
{
    return (weir_row_reader){ .user = (void *)(uintptr_t)directory,
                              .read = read_rows,
                              .copy = copy_rows,
                              .release = release,
                              .path = weir_tensor_directory_path(directory) };
}

/* ---- the plan -------------------------------------------------------------------------------- */
/* An integer of the architecture, of a list its largest; 0: there is none. */
static int64_t number_of(const weir_tensor_directory *directory, const char *key)
{
    weir_meta arch, value;
    char full[400];
    int64_t most = 0;
    if (!weir_tensor_directory_meta(directory, "general.architecture", &arch) ||
        arch.type != WEIR_META_STRING)
        return 0;
    (void)snprintf(full, sizeof full, "%.300s.%s", arch.string, key);
    if (!weir_tensor_directory_meta(directory, full, &value)) return 0;
    if (value.type == WEIR_META_INT) return value.integer;
    for (size_t i = 0; value.type == WEIR_META_ARRAY && i < value.length; i++) {
        weir_meta element;
        if (weir_meta_at(&value, i, &element) && element.type == WEIR_META_INT &&
            element.integer > most)
            most = element.integer;
    }
    return most;
}

static weir_typed model_of(const weir_tensor_directory *directory)
{
    const int64_t heads = number_of(directory, "attention.head_count"),
                  kv_heads = number_of(directory, "attention.head_count_kv");
    return (weir_typed){
        .n_layers = number_of(directory, "block_count"),
        .n_experts = number_of(directory, "expert_count"),
        .n_grouped = kv_heads > 0 ? heads / kv_heads : 1,
        .is_tied = weir_tensor_directory_find(directory, "output.weight") == NULL,
    };
}

static weir_status plan_tensor(
    weir_plan *plan, const weir_tensor_directory *directory, size_t index, weir_typed typed,
    const weir_mix *mix, weir_error *error
)
{
    const weir_tensor *const tensor = weir_tensor_directory_at(directory, index);
    weir_planned planned = { .name = weir_memory_text(tensor->name),
                             .n_dims = tensor->n_dims,
                             .from = tensor->dtype,
                             .to = tensor->dtype,
                             .n_matrices = 1,
                             .n_rows = 1,
                             .n_in = tensor->shape[tensor->n_dims - 1],
                             .index = index };
    if (planned.name == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory to plan the tensors");
    for (int32_t i = 0; i < tensor->n_dims; i++) {
        planned.shape[i] = tensor->shape[i];
        if (i + 1 < tensor->n_dims) planned.n_rows *= tensor->shape[i]; /* checked by the reader */
    }
    if (tensor->n_dims > 2) planned.n_matrices = planned.n_rows / tensor->shape[tensor->n_dims - 2];
    typed.name = planned.name;
    typed.n_dims = planned.n_dims;
    typed.n_in = planned.n_in;
    if (!weir_stays_plain(&typed)) planned.to = weir_mix_type(mix, &typed);
    planned.is_copied = planned.to == planned.from;
    return weir_plan_add(plan, &planned, error);
}

/* Keys that the new file has a value of its own for, and those of a set of files. */
static bool is_replaced(const char *key)
{
    static const char *const keys[] = { "general.file_type", "general.quantization_version",
                                        "general.alignment" };
    if (strncmp(key, "split.", 6) == 0) return true;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

weir_status weir_plan_from_gguf(
    weir_plan *plan, weir_gguf_writer *writer, const weir_tensor_directory *directory,
    const weir_mix *mix, weir_error *error
)
{
    const weir_typed typed = model_of(directory);
    const char *key;
    weir_meta value;
    /* Programs that look at the beginning of a file find its architecture. */
    if (weir_tensor_directory_meta(directory, "general.architecture", &value))
        weir_gguf_put_meta(writer, "general.architecture", &value);
    for (size_t i = 0; weir_tensor_directory_meta_at(directory, i, &key, &value); i++)
        if (!is_replaced(key) && strcmp(key, "general.architecture") != 0)
            weir_gguf_put_meta(writer, key, &value);
    weir_gguf_put_u32(writer, "general.file_type", mix->file_type);
    weir_gguf_put_u32(writer, "general.quantization_version", 2);
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++)
        WEIR_TRY(plan_tensor(plan, directory, i, typed, mix, error));
    return WEIR_OK;
}
