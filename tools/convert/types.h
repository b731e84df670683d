/* tools/convert/types.h - which tensor of a file gets which type. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "kernels/abi/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What --type names: one type for all matrices, or a mix. */
typedef struct weir_mix {
    const char *name; /* "q4_k_m" */
    weir_dtype base; /* of matrices that no rule of the mix names */
    bool is_pure; /* all matrices are of the base */
    uint32_t file_type; /* general.file_type */
    bool has_importance; /* set by the caller: with one, some mixes have other types */
} weir_mix;

/* ECONFIG: no such type; the message lists them. */
WEIR_MUST_CHECK weir_status
weir_mix_find(weir_mix *out, const char *name, bool is_pure, weir_error *error);

/* A tensor of which the type is chosen. */
typedef struct weir_typed {
    const char *name; /* in GGUF */
    int32_t n_dims;
    int64_t n_in;
    int64_t n_layers; /* of the model */
    int64_t n_experts, n_grouped; /* n_grouped: query heads of a KV head */
    bool is_tied; /* the embedding is also the output matrix */
} weir_typed;

/* True for tensors that are never quantised: vectors, norms, routers, short convolutions. */
bool weir_stays_plain(const weir_typed *tensor);
/* The type of a tensor: that of the mix; f32 of what stays plain; another type of about the same
 * size, or f16, where rows are not whole blocks. */
weir_dtype weir_mix_type(const weir_mix *mix, const weir_typed *tensor);
/* True for the types that lose too much without an importance matrix, as in llama-quantize; never
 * for embeddings and outputs, of which such files have none. */
bool weir_needs_importance(weir_dtype type, const char *name);

#ifdef __cplusplus
}
#endif
