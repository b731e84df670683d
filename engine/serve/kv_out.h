/* engine/serve/kv_out.h - what was kept of texts and what was not, as JSON. */
#pragma once
#include "engine/schedule/service.h"
#include "engine/serve/json_out.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An object. */
void weir_banks_write(weir_json_out *json, const weir_banks *banks);
/* The key "kv" and its object, if rows were not kept, or not as they were computed. */
void weir_usage_kv_write(
    weir_json_out *json, const weir_engine_facts *facts, const weir_usage *usage
);

#ifdef __cplusplus
}
#endif
