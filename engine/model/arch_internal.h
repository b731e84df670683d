/* engine/model/arch_internal.h - shared by the files about architectures. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/model/arch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_MAX_ARCHS = 256 };

struct weir_arch_set {
    weir_arch archs[WEIR_MAX_ARCHS];
    size_t count;
    weir_block_list blocks;
};

/* Returns set->count if there is none. */
size_t weir_arch_index(const weir_arch_set *set, const char *name);
/* Reads all of an architecture, joins it with its bases and checks it, unless that was done. */
WEIR_MUST_CHECK weir_status
weir_arch_complete(weir_arch_set *set, weir_arch *arch, weir_error *error);
/* Lists the known names, "llama, qwen3"; the caller frees it. */
weir_buffer weir_arch_list_known(const weir_arch_set *set);

/* arch_check.c: checks every table, key and type of an arch file before it is used. ECONFIG names
 * the line and the nearest known name. The head is checked before the file is joined with its base,
 * the rest afterwards. */
WEIR_MUST_CHECK weir_status weir_arch_check_head(const weir_arch *arch, weir_error *error);
WEIR_MUST_CHECK weir_status weir_arch_check(const weir_arch *arch, weir_error *error);

/* arch.c: the key of a table that names its block; the block, or NULL if unknown. */
const char *weir_block_key(weir_block_kind kind);
const weir_block *weir_arch_table_block(
    const weir_arch *arch, weir_block_kind kind, const weir_toml_node *table,
    weir_container container
);

/* arch_refuse.c: checks [[refuse]] for a checkpoint. EUNSUPPORTED names the setting, its value and
 * what is computed instead. */
WEIR_MUST_CHECK weir_status weir_arch_check_refusals(
    const weir_arch *arch, const weir_tensor_directory *directory, weir_error *error
);

#ifdef __cplusplus
}
#endif
