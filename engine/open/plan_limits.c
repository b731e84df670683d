/* engine/open/plan_limits.c - the limits that a plan starts from, and which parts the configuration
 * requires. */
#include <string.h>

#include "engine/base/machine_memory.h"
#include "engine/open/plan_internal.h"

/* A step with fewer bytes of f32 weights is not bound by reading them, so exact activations cost
 * little. */
static const int64_t small_model_bytes = 64 << 20;

size_t weir_plan_cap(const weir_config *config)
{
    if (config->memory.host > 0) return (size_t)config->memory.host;
    const size_t free = weir_machine_memory("") / 10 * 9;
    return free > 0 ? free : 1;
}

size_t weir_plan_device_cap(const weir_config *config, const weir_device *device)
{
    if (device == NULL) return 0;
    const size_t found = weir_device_memory_bytes(device) / 10 * 9;
    return config->memory.device > 0 ? (size_t)config->memory.device : found > 0 ? found : 1;
}

int64_t weir_plan_context(const weir_config *config, const weir_model *model)
{
    return config->model.context > 0 ? config->model.context : weir_model_shape(model)->context;
}

bool weir_plan_wants_f32(const weir_config *config, const weir_tensor_directory *directory)
{
    if (strcmp(config->kernels.activations, "f32") == 0) return true;
    if (strcmp(config->kernels.activations, "fast") == 0) return false;
    int64_t elements = 0;
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const tensor = weir_tensor_directory_at(directory, i);
        int64_t count = 1;
        for (int d = 0; d < tensor->n_dims; d++) count *= tensor->shape[d];
        elements += count;
    }
    return elements * (int64_t)sizeof(float) <= small_model_bytes;
}

bool weir_plan_has_sessions(const weir_config *config, bool with_service)
{
    return with_service && config->sessions.dir[0] != '\0' && strcmp(config->kv.reuse, "on") == 0;
}

bool weir_plan_has_files(const weir_config *config, bool with_files)
{
    return with_files && strcmp(config->kv.reuse, "on") == 0;
}

bool weir_plan_has_states(const weir_config *config, bool with_server)
{
    return with_server && config->states.dir[0] != '\0' && strcmp(config->kv.reuse, "on") == 0;
}

int32_t weir_plan_session_transfers(const weir_plan_parts *parts)
{
    const bool has_sessions = weir_plan_has_sessions(parts->config, parts->with_service);
    if (parts->with_server &&
        (has_sessions || weir_plan_has_states(parts->config, parts->with_server)))
        return (int32_t)parts->config->sessions.io_threads;
    return has_sessions || weir_plan_has_files(parts->config, parts->with_files);
}

/* Saving under memory pressure uses one more. */
int32_t plan_session_sequences(const weir_plan_parts *parts)
{
    return weir_plan_session_transfers(parts) +
           (weir_plan_has_sessions(parts->config, parts->with_service) &&
            parts->config->sessions.autosave);
}

bool plan_reuses(const weir_plan_parts *parts)
{
    return parts->with_service && strcmp(parts->config->kv.reuse, "on") == 0;
}

int32_t weir_plan_drafts(const weir_config *config, const weir_model *model, bool has_device)
{
    const bool is_on = strcmp(config->speculation.method, "off") != 0 && !has_device &&
                       weir_model_block_rows(model) == 1;
    return is_on ? (int32_t)config->speculation.tokens : 0;
}

int32_t weir_plan_step_rows(
    const weir_config *config, const weir_model *model, int64_t chunk, int32_t n_slots,
    bool has_device
)
{
    const bool computes_again =
        weir_plan_drafts(config, model, has_device) > 0 && weir_model_recurrent_bytes(model) > 0;
    return (int32_t)chunk + n_slots + (computes_again ? WEIR_STEP_DRAFTS : 0);
}

int32_t weir_plan_scored_rows(const weir_model *model)
{
    const int32_t block = weir_model_block_rows(model);
    return block > WEIR_SCORED_ROWS ? block : WEIR_SCORED_ROWS / block * block;
}
