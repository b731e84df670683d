/* engine/hub/select.h - which files of a repository are the model that was asked for. */
#pragma once
#include "engine/hub/listing.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_hub_kind {
    WEIR_HUB_GGUF, /* a GGUF file, or a split set */
    WEIR_HUB_CHECKPOINT, /* safetensors files with configuration and tokenizer */
    WEIR_HUB_SINGLE /* any other file, asked for by name */
} weir_hub_kind;

/* Copies the chosen files to *out, a set of one model:
 * - `file` not NULL: the file of this name, with the others of its split set;
 * - `quant` not "": the first GGUF file by name with this quantisation or base name;
 * - else the first with Q4_K_M, then with Q8_0, then the first GGUF file, as llama.cpp does; in a
 *   repository without GGUF files, its checkpoint.
 * `listing` is sorted; `repository` is used in messages.
 * errors : ENOTFOUND: lists what there is; EFORMAT: a file of the set is missing; ENOMEM */
WEIR_MUST_CHECK weir_status weir_hub_select(
    weir_hub_listing *out, weir_hub_kind *kind, const weir_hub_listing *listing, const char *quant,
    const char *file, const char *repository, weir_error *error
);

#ifdef __cplusplus
}
#endif
