/* engine/model/arch_internal.h - what the files about architectures share. */
#pragma once
#include "engine/model/arch.h"

/* arch_check.c: every table, key and type of an arch file, before anything reads it. ECONFIG names
 * the line and the nearest known name. The head is what a file says of itself: checked before it is
 * joined with its base, the rest afterwards. */
WEIR_MUST_CHECK weir_status weir_arch_check_head(const weir_arch *arch, weir_error *error);
WEIR_MUST_CHECK weir_status weir_arch_check(const weir_arch *arch, weir_error *error);

/* Which of the mixers with the options of engine/model/coda_options.h a [block.NAME] has; NULL:
 * another one. */
const weir_block *weir_arch_differential(const weir_toml_node *block, weir_container container);

/* arch_refuse.c: [[refuse]] against a checkpoint. EUNSUPPORTED names the setting, its value and
 * what is computed instead. */
WEIR_MUST_CHECK weir_status weir_arch_check_refusals(const weir_arch             *arch,
                                                     const weir_tensor_directory *directory,
                                                     weir_error                  *error);
