/* engine/engine_internal.h - shared by planning and opening. */
#pragma once
#include "engine/kv/store.h"
#include "engine/model/model.h"
#include "engine/schedule/runner.h"
#include "engine/weir.h"

/* Logits rows beside one per slot: prompts that are scored come in pieces of so many. */
enum { WEIR_SCORED_ROWS = 64 };

size_t weir_plan_free_memory(void);
bool   weir_plan_wants_f32(const weir_config *config, const weir_tensor_directory *directory);
/* `base`: everything but n_pages and max_rows. */
WEIR_MUST_CHECK weir_status weir_plan_make(weir_plan *plan, const weir_config *config, const weir_model *model, const weir_kv_spec *base,
                                           weir_error *error);
