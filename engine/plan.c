/* engine/plan.c - the memory plan: what the weights, the activations and the states take, and what that leaves for KV pages. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/engine_internal.h"

enum { SMALLEST_WINDOW = 256 };
/* Below this many bytes of f32 weights a step is not bound by reading them, and exact activations cost nothing that is felt. */
static const int64_t small_model_bytes = 64 << 20;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* One "Name: N kB" line of /proc/meminfo in bytes, 0 when it is not there. */
static size_t meminfo(const char *name)
{
    FILE *const file = fopen("/proc/meminfo", "re");
    char        line[256];
    size_t      found = 0;
    while (file != NULL && found == 0 && fgets(line, sizeof line, file) != NULL) {
        unsigned long long kib;
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), ": %llu kB", &kib) == 1) found = (size_t)kib * 1024;
    }
    if (file != NULL) (void)fclose(file);
    return found;
}

/* A cgroup v2 number, SIZE_MAX for "max" or when there is none. */
static size_t cgroup_number(const char *path)
{
    FILE *const        file = fopen(path, "re");
    unsigned long long value;
    const bool         found = file != NULL && fscanf(file, "%llu", &value) == 1;
    if (file != NULL) (void)fclose(file);
    return found ? (size_t)value : SIZE_MAX;
}

size_t weir_plan_free_memory(void)
{
    size_t       available = meminfo("MemAvailable");
    const size_t limit = cgroup_number("/sys/fs/cgroup/memory.max"), used = cgroup_number("/sys/fs/cgroup/memory.current");
    if (available == 0) available = (size_t)1 << 30;
    if (limit != SIZE_MAX && used != SIZE_MAX && limit > used && limit - used < available) available = limit - used;
    return available / 10 * 9;
}

bool weir_plan_wants_f32(const weir_config *config, const weir_tensor_directory *directory)
{
    if (strcmp(config->kernels.activations, "f32") == 0) return true;
    if (strcmp(config->kernels.activations, "fast") == 0) return false;
    int64_t elements = 0;
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const tensor = weir_tensor_directory_at(directory, i);
        int64_t                  count = 1;
        for (int d = 0; d < tensor->n_dims; d++) count *= tensor->shape[d];
        elements += count;
    }
    return elements * (int64_t)sizeof(float) <= small_model_bytes;
}

static size_t fixed_bytes(const weir_plan *plan) { return plan->weights + plan->activations + plan->recurrent; }

static weir_status too_small(const weir_plan *plan, weir_error *error)
{
    const double mib = 1024.0 * 1024.0;
    return weir_error_set(
        error, WEIR_EFULL,
        "the plan does not fit: weights %.1f MiB, activations %.1f MiB and states %.1f MiB take %.1f MiB of %.1f MiB (%s), which leaves "
        "no room for %d rows of KV; raise memory.host, or lower batch.max_sequences, batch.chunk or model.context",
        (double)plan->weights / mib, (double)plan->activations / mib, (double)plan->recurrent / mib, (double)fixed_bytes(plan) / mib,
        (double)plan->cap / mib, plan->cap_is_configured ? "memory.host" : "found free", (int)SMALLEST_WINDOW);
}

/* Gives what the fixed parts leave to KV pages; false when that is no window worth the name. */
static bool plan_rows(weir_plan *plan, const weir_kv_spec *spec, int64_t wanted)
{
    const int64_t per_block = weir_kv_pages_for(spec, WEIR_PAGE_TOKENS); /* pages for 64 tokens */
    const size_t  fixed = fixed_bytes(plan), left = plan->cap > fixed ? plan->cap - fixed : 0;
    plan->kv_rows = wanted * plan->n_slots;
    if (per_block > 0) {
        /* Unless a budget was given, half of what is free is left to others. */
        const size_t  room = plan->cap_is_configured ? left : left / 2;
        const int64_t full = (wanted + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS * plan->n_slots;
        const int64_t blocks = least((int64_t)(room / ((size_t)plan->kv_page_bytes * (size_t)per_block)), full);
        plan->kv_pages = least(blocks * per_block, INT32_MAX / per_block * per_block);
        plan->kv = (size_t)plan->kv_pages * (size_t)plan->kv_page_bytes;
        plan->kv_rows = plan->kv_pages / per_block * WEIR_PAGE_TOKENS;
    }
    plan->window = (int32_t)least(wanted, plan->kv_rows);
    return left > 0 && plan->window >= least(wanted, SMALLEST_WINDOW);
}

weir_status weir_plan_make(weir_plan *plan, const weir_config *config, const weir_model *model, const weir_kv_spec *base, weir_error *error)
{
    const weir_shape *const shape = weir_model_shape(model);
    const weir_kv_spec      spec = *base;
    const int64_t           wanted = config->model.context > 0 ? config->model.context : shape->context;
    *plan = (weir_plan){ .cap = config->memory.host > 0 ? (size_t)config->memory.host : weir_plan_free_memory(),
                         .cap_is_configured = config->memory.host > 0,
                         .n_slots = (int32_t)config->batch.max_sequences,
                         .trained_context = (int32_t)shape->context,
                         .weights = weir_model_weight_bytes(model),
                         .kv_page_bytes = (int64_t)weir_kv_page_bytes(&spec) };
    (void)snprintf(plan->arch, sizeof plan->arch, "%s", weir_model_arch(model));
    (void)snprintf(plan->format, sizeof plan->format, "%s", weir_dtype_of(spec.dtype).name);
    weir_workspace_limits limits = { .rows = (int32_t)config->batch.chunk + plan->n_slots,
                                     .segments = plan->n_slots,
                                     .logits = plan->n_slots + WEIR_SCORED_ROWS,
                                     .context = (int32_t)wanted };
    plan->activations = weir_workspace_bytes(model, &limits);
    plan->recurrent = weir_model_recurrent_bytes(model) * (size_t)plan->n_slots;
    if (!plan_rows(plan, &spec, wanted)) return too_small(plan, error);

    /* The kernels' scratch grows with the window, and takes from it: it is planned for the window without it. */
    size_t scratch;
    limits.context = plan->window;
    WEIR_TRY(weir_workspace_scratch(&scratch, model, &limits, spec.dtype, error));
    plan->activations += scratch;
    if (!plan_rows(plan, &spec, wanted) || (config->model.context > 0 && plan->window < config->model.context))
        return too_small(plan, error);
    return WEIR_OK;
}

weir_status weir_plan_print(const weir_plan *plan, weir_buffer *out)
{
    const double mib = 1024.0 * 1024.0;
    const size_t total = plan->weights + plan->activations + plan->recurrent + plan->kv;
    WEIR_TRY(weir_buffer_format(out, "memory plan for %s (%s)\n", plan->model, plan->arch));
    WEIR_TRY(weir_buffer_format(out, "  %-22s %12.1f MiB\n", "weights", (double)plan->weights / mib));
    WEIR_TRY(weir_buffer_format(out, "  %-22s %12.1f MiB\n", "activations", (double)plan->activations / mib));
    WEIR_TRY(weir_buffer_format(out, "  %-22s %12.1f MiB   %d sequences\n", "recurrent state", (double)plan->recurrent / mib,
                                (int)plan->n_slots));
    WEIR_TRY(weir_buffer_format(out, "  %-22s %12.1f MiB   %" PRId64 " pages of %" PRId64 " bytes, %s, %" PRId64 " tokens\n", "kv",
                                (double)plan->kv / mib, plan->kv_pages, plan->kv_page_bytes, plan->format, plan->kv_rows));
    WEIR_TRY(weir_buffer_format(out, "  %-22s %12.1f MiB   of %.1f MiB %s\n", "total", (double)total / mib, (double)plan->cap / mib,
                                plan->cap_is_configured ? "(memory.host)" : "found free"));
    return weir_buffer_format(out, "  %-22s %12d tokens per sequence (trained for %d)\n", "window", (int)plan->window,
                              (int)plan->trained_context);
}
