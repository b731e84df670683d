/* tests/fuzz/probe.h - after a reader said yes: touch everything it promises, abort when a promise
 * is broken. */
#pragma once
#include <stdlib.h>
#include <string.h>

#include "engine/formats/directory.h"

static inline void probe_require(bool condition)
{
    if (!condition) abort();
}

static inline uint64_t probe_meta(const weir_meta *meta, int depth)
{
    uint64_t sum = (uint64_t)meta->type;
    if (meta->type == WEIR_META_STRING) {
        probe_require(meta->string[meta->length] == '\0');
        for (size_t i = 0; i < meta->length; i++) sum += (unsigned char)meta->string[i];
    }
    if (meta->type == WEIR_META_BOOL) probe_require(meta->boolean == 0 || meta->boolean == 1);
    if (meta->type != WEIR_META_ARRAY) return sum;
    probe_require(depth < 64);
    weir_meta element;
    for (size_t i = 0; i < meta->length; i++)
        if (weir_meta_at(meta, i, &element)) sum += probe_meta(&element, depth + 1);
    probe_require(!weir_meta_at(meta, meta->length, &element));
    return sum;
}

/* `bytes` [n] is the only file. */
static inline uint64_t probe_directory(
    const weir_tensor_directory *directory, const unsigned char *bytes, size_t n
)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const tensor = weir_tensor_directory_at(directory, i);
        probe_require(weir_tensor_directory_find(directory, tensor->name) == tensor);
        probe_require(
            strlen(tensor->name) > 0 && tensor->n_dims >= 0 && tensor->n_dims <= WEIR_TENSOR_DIMS
        );
        int64_t elements = 1;
        for (int d = 0; d < WEIR_TENSOR_DIMS; d++) {
            probe_require(tensor->shape[d] >= (directory->container == WEIR_CONTAINER_GGUF));
            probe_require(!__builtin_mul_overflow(elements, tensor->shape[d], &elements));
            probe_require(d < tensor->n_dims || tensor->shape[d] == 1);
        }
        probe_require(
            tensor->bytes == weir_row_bytes(tensor->dtype, elements) && tensor->bytes <= n
        );
        probe_require(tensor->data >= bytes && (size_t)(tensor->data - bytes) <= n - tensor->bytes);
        if (tensor->bytes > 0) sum += tensor->data[0] + tensor->data[tensor->bytes - 1];
    }
    for (size_t i = 0; i < directory->n_entries; i++) {
        weir_meta meta;
        probe_require(weir_tensor_directory_meta(directory, directory->entries[i].key, &meta));
        sum += probe_meta(&meta, 0);
    }
    return sum;
}

/* Success, or a failure that says something. */
static inline void probe_status(weir_status status, const weir_error *error)
{
    probe_require(
        status == WEIR_OK || (error->code == status && error->text[0] != '\0' &&
                              strlen(error->text) < sizeof error->text)
    );
}
