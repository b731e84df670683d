/* engine/cli/run_plan.c - weir plan, and serve --plan. */
#include "engine/cli/open.h"

int weir_print_plan(const weir_config *config, bool json)
{
    weir_plan plan;
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    const weir_status status = weir_engine_plan(
        &plan,
        &(weir_engine_options){ .config = config, .with_service = true, .with_server = true },
        &error
    );
    if (status != WEIR_OK) return weir_fail(status, &error);
    const weir_status printed =
        json ? weir_plan_print_json(&plan, &text) : weir_plan_print(&plan, &text);
    const int code = printed == WEIR_OK ? weir_print(&text) : WEIR_EXIT_FAILED;
    weir_buffer_free(&text);
    return code;
}

/* Refuses options that do not apply to a plan. */
static weir_status refuse_report_options(const weir_arguments *arguments, weir_error *error)
{
    static const char *const names[] = { "shape",   "format",      "batch", "bandwidth",
                                         "weights", "assumptions", "svg" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (weir_argument_given(arguments, names[i]))
            return weir_error_set(error, WEIR_ECONFIG, "--%s belongs to --report", names[i]);
    return WEIR_OK;
}

int weir_run_plan(const weir_arguments *arguments)
{
    weir_error error = { 0 };
    weir_config config = arguments->config;
    int64_t contexts[WEIR_OPTION_NUMBERS];
    if (weir_argument_given(arguments, "report")) return weir_run_report(arguments);
    weir_status status = refuse_report_options(arguments, &error);
    const size_t n = weir_argument_numbers(arguments, "context", contexts);
    if (status == WEIR_OK && n > 1)
        status = weir_error_set(
            &error, WEIR_ECONFIG, "--context: a plan has one window; a list needs --report"
        );
    if (status == WEIR_OK && n == 1)
        status =
            weir_config_set(&config, "model.context", weir_argument(arguments, "context"), &error);
    return status == WEIR_OK ? weir_print_plan(&config, weir_argument_given(arguments, "json"))
                             : weir_fail(status, &error);
}
