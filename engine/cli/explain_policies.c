/* engine/cli/explain_policies.c - --explain: what KV policies need to observe and what that costs;
 * which layers keep a fixed number of rows. */
#include <stdio.h>

#include "engine/cli/explain.h"
#include "engine/engine_parts.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/model/model.h"

static weir_status print_price(
    weir_buffer *out, const weir_policy *policy, size_t bytes, int64_t budget
)
{
    const weir_policy_price p = weir_policy_price_of(policy, budget);
    const weir_policy_options *const options = weir_policy_options_of(policy);
    char sees[96], every[24];
    (void)snprintf(every, sizeof every, options->every > 0 ? "%d" : "prompts", (int)options->every);
    int n = snprintf(
        sees, sizeof sees, "%s%s", p.sees_mass ? "attention " : "",
        p.sees_all_queries ? "all queries " : ""
    );
    if (p.window > 0)
        n += snprintf(sees + n, sizeof sees - (size_t)n, "last %d queries ", (int)p.window);
    (void)snprintf(
        sees + n, sizeof sees - (size_t)n, "%s%s", p.reads_keys ? "keys " : "",
        p.reads_values ? "values " : ""
    );
    return weir_buffer_format(
        out, "  %-16s %-34s %9.3f %9.3f %8s %14.1f %9s %9.2f\n", weir_policy_name(options),
        sees[0] != '\0' ? sees : "nothing", p.step_bytes * 1e-6, p.step_flops * 1e-6,
        p.reads_prompt_keys_again ? "yes" : "no", p.prompt_flops * 1e-6, every, (double)bytes * 1e-6
    );
}

/* Says so if the policy needs statistics that are missing. */
static weir_status print_policy(
    weir_buffer *out, const weir_service_policy *model, const weir_policy_options *options,
    int64_t budget, int64_t rows
)
{
    weir_error why = { 0 };
    weir_policy *policy = NULL;
    weir_policy_run_size size;
    weir_policy_run_options run = { .policy = options,
                                    .budget = budget,
                                    .shape = model->shape,
                                    .layers = model->layers,
                                    .calibration = model->calibration,
                                    .n_sequences = 1,
                                    .n_new = 1,
                                    .n_prompt = (int32_t)rows };
    run.shape.max_rows = rows;
    weir_status status = weir_policy_open(&policy, options, &run.shape, model->calibration, &why);
    if (status == WEIR_OK) status = weir_policy_run_measure(&size, &run, &why);
    status = status == WEIR_OK
                 ? print_price(out, policy, size.bytes, budget)
                 : weir_buffer_format(out, "  %-16s %s\n", weir_policy_name(options), why.text);
    weir_policy_close(policy);
    return status;
}

static weir_status print_head(weir_buffer *out, const char *what, int64_t budget, int64_t window)
{
    return weir_buffer_format(
        out,
        "%s, with %lld rows of each head after a prompt of %lld: what they observe, the additional "
        "cost of a decoded token and of a prompt row, tokens between evictions, memory per "
        "sequence\n"
        "  %-16s %-34s %9s %9s %8s %14s %9s %9s\n",
        what, (long long)budget, (long long)window, "policy", "sees", "MB/token", "MFLOP",
        "K again", "MFLOP/prompt", "every", "MB"
    );
}

static weir_status print_all(
    weir_buffer *out, const weir_service_policy *model, int64_t budget, int64_t window,
    weir_error *error
)
{
    const char *name, *summary;
    WEIR_TRY(print_head(out, "KV policies with their own options", budget, window));
    for (size_t i = 0; (name = weir_policy_at(i, &summary)) != NULL; i++) {
        weir_policy_options options;
        WEIR_TRY(weir_policy_options_default(&options, name, error));
        if (!weir_policy_is_full(&options))
            WEIR_TRY(print_policy(out, model, &options, budget, window));
    }
    return WEIR_OK;
}

static weir_status print_banks(weir_buffer *out, const weir_engine *engine)
{
    const weir_bank_stats banks = weir_model_bank_stats(weir_engine_model(engine), NULL);
    const int64_t n = banks.n_layers;
    if (n == 0) return WEIR_OK;
    return weir_buffer_format(
        out,
        "fixed-size memory in %lld of %lld layers, on average: the last %lld rows, %lld older "
        "exact rows, %lld prototypes; other rows are dropped, and replies count them (usage.kv)\n",
        (long long)n, (long long)weir_model_shape(weir_engine_model(engine))->n_layers,
        (long long)(banks.ring.slots / n), (long long)(banks.exact.slots / n),
        (long long)(banks.summary.slots / n)
    );
}

static weir_status print_policies(
    weir_buffer *out, const weir_service_policy *model, int64_t window, bool all, weir_error *error
)
{
    const int64_t wanted = model->budget > 0 ? model->budget : 2048,
                  budget = wanted < window ? wanted : window;
    if (!weir_policy_is_full(&model->options)) {
        WEIR_TRY(print_head(out, "KV policy as configured", budget, window));
        WEIR_TRY(print_policy(out, model, &model->options, budget, window));
    }
    return all ? print_all(out, model, budget, window, error) : WEIR_OK;
}

weir_status weir_policies_explain(
    weir_buffer *out, const weir_engine *engine, bool all, weir_error *error
)
{
    const weir_service_policy *const model = weir_engine_policy(engine);
    weir_status status = print_banks(out, engine);
    if (status == WEIR_OK && model != NULL)
        status = print_policies(out, model, weir_engine_plan_of(engine)->facts.window, all, error);
    return status == WEIR_ENOMEM ? weir_error_set(error, status, "no memory for the explanation")
                                 : status;
}
