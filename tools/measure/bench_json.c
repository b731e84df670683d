#include "tools/measure/bench_json.h"

json_t *weir_bench_rate_json(const weir_bench_rate *rate)
{
    return json_pack(
        "{s:f, s:f, s:f}", "median", rate->median, "min", rate->least, "max", rate->most
    );
}
