/* tools/measure/bench_json.h - parts of the JSON of benchmarks. */
#pragma once
#include <jansson.h>

#include "tools/measure/bench.h"

/* New; NULL without memory. */
json_t *weir_bench_rate_json(const weir_bench_rate *rate);
