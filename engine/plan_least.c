/* engine/plan_least.c - what a refused plan asks for: the least memory.host that fits, found by
 * planning again under other limits. Headers and tokenizer are read once more for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"

static const size_t mib = (size_t)1 << 20;
static const size_t most = (size_t)1 << 50; /* as large as memory.host may be */

/* Everything is read under a limit that refuses nothing; what that took at its peak is needed. */
typedef struct probe {
    weir_engine               *engine;
    weir_kv_spec               spec;
    const weir_engine_options *options;
    size_t                     peak;
} probe;

static bool open_probe(probe *p, weir_config *config)
{
    weir_error ignored;
    p->engine = calloc(1, sizeof *p->engine);
    if (p->engine == NULL) return false;
    config->memory.host = (int64_t)most;
    if (weir_engine_read(p->engine, p->options, &p->spec, &ignored) != WEIR_OK) return false;
    p->peak = weir_ledger_peak(p->engine->ledger, WEIR_TIER_HOST);
    return true;
}

static bool fits(probe *p, size_t host)
{
    weir_error ignored;
    weir_plan  plan;
    p->engine->config.memory.host = (int64_t)host;
    weir_plan_parts parts = weir_engine_plan_parts(p->engine, p->options, &p->spec);
    parts.cap = host;
    return host >= p->peak && weir_plan_make(&plan, &parts, &ignored) == WEIR_OK;
}

/* In whole MiB; 0: no limit fits. */
static size_t find_least(probe *p)
{
    size_t below = 0, enough = mib;
    while (!fits(p, enough)) {
        if (enough >= most) return 0;
        below = enough;
        enough *= 2;
    }
    while (enough - below > mib) {
        const size_t middle = (below + (enough - below) / 2) / mib * mib;
        *(fits(p, middle) ? &enough : &below) = middle;
    }
    return enough;
}

weir_status weir_plan_say_least(const weir_engine_options *options, weir_status status,
                                weir_error *error)
{
    if (status != WEIR_EFULL || error == NULL) return status;
    weir_config *const config = malloc(sizeof *config);
    if (config == NULL) return status;
    *config = *options->config;
    weir_engine_options wish = *options;
    wish.config = config;
    probe        p = { .options = &wish };
    const size_t least = open_probe(&p, config) ? find_least(&p) : 0;
    weir_engine_close(p.engine);
    free(config);
    const size_t n = strlen(error->text);
    if (least > 0)
        (void)snprintf(error->text + n, sizeof error->text - n,
                       "; memory.host = %zuMiB is the least that fits", least / mib);
    return status;
}
