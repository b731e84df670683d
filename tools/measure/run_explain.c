/* tools/measure/run_explain.c - generate --explain, serve --explain, and the output of bench
 * --explain. */
#include "engine/cli/explain.h"
#include "engine/cli/open.h"
#include "tools/measure/bench.h"

int weir_print_explanation(const weir_engine *engine, bool all_policies)
{
    weir_buffer text = { 0 };
    weir_error error = { 0 };
    weir_status status = weir_bench_explain(&text, engine, &error);
    if (status == WEIR_OK) status = weir_policies_explain(&text, engine, all_policies, &error);
    const int code = status == WEIR_OK ? weir_print(&text) : weir_fail(status, &error);
    weir_buffer_free(&text);
    return code;
}

int weir_run_explain(const weir_config *config)
{
    weir_engine *engine = NULL;
    int code = weir_open(&engine, config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    code = weir_print_explanation(engine, false);
    weir_engine_close(engine);
    return code;
}
