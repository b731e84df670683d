/* engine/open/plan_least.c - finds the smallest memory.host that fits a plan, by planning again
 * with other limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/open/engine_internal.h"

static const size_t mib = (size_t)1 << 20;
static const size_t most = (size_t)1 << 50; /* the largest memory.host */
/* If memory.host is too small for headers and tokenizer, they are read again within this limit. */
static const size_t reading = (size_t)32 << 20;

/* Everything that a plan needs has been read; the peak of that is needed, too. */
typedef struct probe {
    weir_engine *engine;
    const weir_kv_spec *spec;
    const weir_engine_options *options;
} probe;

static bool fits(const probe *p, size_t host)
{
    weir_error ignored;
    weir_plan plan;
    const int64_t before = p->engine->config.memory.host;
    if (host < weir_ledger_peak(p->engine->ledger, WEIR_TIER_HOST)) return false;
    weir_plan_parts parts = weir_engine_plan_parts(p->engine, p->options, p->spec);
    parts.cap = host;
    p->engine->config.memory.host = (int64_t)host;
    const weir_status status = weir_plan_make(&plan, &parts, &ignored);
    p->engine->config.memory.host = before;
    return status == WEIR_OK;
}

/* In whole MiB; 0: no limit fits. */
static size_t find_least(const probe *p)
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

size_t weir_plan_least(
    weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec
)
{
    const probe p = { .engine = engine, .options = options, .spec = spec };
    return find_least(&p);
}

static void say(weir_error *error, const probe *p)
{
    const size_t least = find_least(p), n = strlen(error->text);
    if (least == 0) return;
    (void)snprintf(
        error->text + n, sizeof error->text - n, "; memory.host = %zuMiB is the least that fits",
        least / mib
    );
}

weir_status weir_plan_say_least(
    weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec,
    weir_status status, weir_error *error
)
{
    const probe p = { .engine = engine, .options = options, .spec = spec };
    if (status == WEIR_EFULL && error != NULL) say(error, &p);
    return status;
}

weir_status weir_plan_read_least(
    const weir_engine_options *options, bool with_files, weir_status status, weir_error *error
)
{
    if (status != WEIR_EFULL || error == NULL || weir_plan_cap(options->config) >= reading)
        return status;
    weir_kv_spec spec;
    weir_error ignored;
    weir_engine *engine = calloc(1, sizeof *engine);
    weir_config *config = malloc(sizeof *config);
    weir_engine_options tried = *options;
    tried.config = config;
    if (engine != NULL && config != NULL) {
        *config = *options->config;
        config->memory.host = (int64_t)reading;
        if (strcmp(config->speculation.mtp, "auto") == 0) /* it fits without the draft head */
            (void)snprintf(config->speculation.mtp, sizeof config->speculation.mtp, "off");
        engine->with_files = with_files;
        if (weir_engine_read(engine, &tried, &spec, &ignored) == WEIR_OK)
            (void)weir_plan_say_least(engine, &tried, &spec, status, error);
    }
    weir_engine_close(engine);
    free(config);
    return status;
}
