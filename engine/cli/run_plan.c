/* engine/cli/run_plan.c - weir plan, and serve --plan. */
#include <inttypes.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/cli/open.h"
#include "engine/model/expert_trace.h"

/* EMISMATCH: a trace is of another model. */
static weir_status check_trace(
    const weir_expert_trace_head *head, const weir_engine_facts *facts, const char *path,
    weir_error *error
)
{
    if (head->n_total == facts->n_experts && head->n_layers == facts->n_layers &&
        head->n_experts == facts->n_layer_experts)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EMISMATCH,
        "%s is a trace of a model with %" PRId64 " experts (%" PRId64 " layers, %" PRId64
        " in one), and this one has %" PRId64 " (%d layers, %" PRId64 " in one)",
        path, head->n_total, head->n_layers, head->n_experts, facts->n_experts,
        (int)facts->n_layers, facts->n_layer_experts
    );
}

/* Reads a trace of experts (`weir experts trace`) of the planned model, whose experts may have been
 * in another format: they get the plan's size. */
static weir_status read_trace(
    weir_expert_stack *out, const weir_plan *plan, const char *path, weir_error *error
)
{
    const size_t most = (size_t)1 << 32;
    weir_buffer text = { 0 };
    weir_expert_trace_head head = { 0 };
    weir_status status = weir_file_read_input(&text, path, most, error);
    if (status == WEIR_OK)
        status = weir_expert_trace_sizes(&head, text.data, text.size, path, error);
    if (status == WEIR_OK) status = check_trace(&head, &plan->facts, path, error);
    if (status == WEIR_OK) status = weir_expert_trace_read(out, text.data, text.size, path, error);
    weir_buffer_free(&text);
    if (status == WEIR_OK) out->head.expert_bytes = plan->facts.expert_bytes;
    return status;
}

/* Adds the hits of each memory.experts to a plan; a JSON object gets another member. */
static weir_status print_trace(
    weir_buffer *text, const weir_expert_stack *stack, const weir_plan *plan, bool json
)
{
    const int64_t own = plan->facts.n_experts_here;
    if (!json) {
        WEIR_TRY(weir_buffer_text(text, "\n"));
        return weir_expert_stack_print(text, stack, own);
    }
    text->size -= sizeof "}\n" - 1;
    WEIR_TRY(weir_buffer_text(text, ", \"experts_trace\": {"));
    WEIR_TRY(weir_expert_stack_print_json(text, stack, own));
    return weir_buffer_text(text, "}}\n");
}

/* A terminal gets a picture, too. */
static weir_status print_bar(weir_buffer *text, const weir_plan *plan)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO)) return WEIR_OK;
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return weir_plan_print_bar(plan, is_known ? size.ws_col : 80, text);
}

/* trace: a file, NULL: none. */
static int print_plan(const weir_config *config, bool json, const char *trace)
{
    weir_plan plan;
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    weir_expert_stack stack = { 0 };
    weir_status status = weir_engine_plan_least(
        &plan,
        &(weir_engine_options){ .config = config, .with_service = true, .with_server = true },
        &error
    );
    if (status == WEIR_OK && trace != NULL) status = read_trace(&stack, &plan, trace, &error);
    if (status != WEIR_OK) return weir_fail(status, &error);
    status = json ? weir_plan_print_json(&plan, &text) : weir_plan_print(&plan, &text);
    if (status == WEIR_OK && !json) status = print_bar(&text, &plan);
    if (status == WEIR_OK && trace != NULL) status = print_trace(&text, &stack, &plan, json);
    const int code = status == WEIR_OK ? weir_print(&text) : WEIR_EXIT_FAILED;
    weir_buffer_free(&text);
    weir_expert_stack_close(&stack);
    return code;
}

int weir_print_plan(const weir_config *config, bool json) { return print_plan(config, json, NULL); }

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
    const char *const trace = weir_argument_given(arguments, "experts-trace")
                                  ? weir_argument(arguments, "experts-trace")
                                  : NULL;
    if (weir_argument_given(arguments, "report") && trace != NULL)
        return weir_fail(
            weir_error_set(
                &error, WEIR_ECONFIG, "--experts-trace is of a plan, and --report prints none"
            ),
            &error
        );
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
    return status == WEIR_OK ? print_plan(&config, weir_argument_given(arguments, "json"), trace)
                             : weir_fail(status, &error);
}
