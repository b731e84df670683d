/* engine/serve/kv_out.h - writes as JSON what was kept of sequences and what was not. */
#pragma once
#include "engine/schedule/service.h"
#include "engine/serve/json_out.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes an object. */
void weir_bank_stats_write(weir_json_out *json, const weir_bank_stats *banks);
/* Writes the key "kv" and its object if rows were dropped or quantised. */
void weir_usage_kv_write(
    weir_json_out *json, const weir_engine_facts *facts, const weir_usage *usage
);

#ifdef __cplusplus
}
#endif
