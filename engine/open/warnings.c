/* engine/open/warnings.c - what an engine logs once when it opens: settings that are likely not
 * meant, and parts of the model that are not used. */
#include <inttypes.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/machine_memory.h"
#include "engine/open/engine_internal.h"

void weir_engine_warn_of_limit(const weir_config *config)
{
    const size_t cap = weir_plan_cap(config), machine = weir_machine_memory_total("");
    const double mib = 1024.0 * 1024.0;
    if (cap <= machine) return;
    weir_log(
        WEIR_LOG_WARNING,
        "%s is %.1f MiB, more than the %.1f MiB that this machine or its control group has: "
        "the system may end the process before the limit is reached",
        config->memory.host > 0 ? "memory.host" : "the memory found free", (double)cap / mib,
        (double)machine / mib
    );
}

/* Static text, or the model's. */
static const char *why_no_head(const weir_engine *engine)
{
    const char *const problem = weir_model_mtp_problem(engine->model);
    if (problem != NULL) return problem;
    if (engine->device != NULL) return "there are no drafts with a GPU (kernels.device)";
    return engine->with_mtp ? "the model's file, or its architecture, has no draft head"
                            : "there are no drafts with speculation.method = \"off\", "
                              "memory.experts, or without a service";
}

/* Rows that follow the window (positions=cache) are never further apart than the budget. */
static void warn_of_context(const weir_engine *engine)
{
    const weir_engine_facts *const facts = &engine->plan.facts;
    const int64_t reach = weir_model_reach(engine->model);
    if (facts->window <= reach ||
        engine->policies.service.options.positions == WEIR_POSITIONS_CACHE)
        return;
    weir_log(
        WEIR_LOG_WARNING,
        "%s: model.context = %d is more than the %" PRId64 " tokens that the model %s: what it "
        "writes further on may be poor",
        facts->model, (int)facts->window, reach,
        reach > facts->trained_context ? "reaches with its RoPE scaling" : "was trained for"
    );
}

void weir_engine_warn(const weir_engine *engine)
{
    warn_of_context(engine);
    if (engine->plan.skips_images)
        weir_log(
            WEIR_LOG_INFO, "%s: only text is computed; the vision tower is not read",
            engine->plan.facts.model
        );
    if (strcmp(engine->config.speculation.mtp, "on") == 0 &&
        weir_model_mtp_bytes(engine->model) == 0)
        weir_log(WEIR_LOG_WARNING, "speculation.mtp = \"on\": %s", why_no_head(engine));
    if (engine->plan.n_unused > 0)
        weir_log(
            WEIR_LOG_WARNING, "%s: %zu tensors are not used by architecture %s, the first is %s",
            engine->plan.facts.model, engine->plan.n_unused, engine->plan.facts.arch,
            engine->plan.first_unused
        );
}
