/* engine/open/policy.c - opens the policy of [kv.policy], with what policies need to know of the
 * model. */
#include <inttypes.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/open/policies.h"

/* Layers whose attention can be observed; *first is one of them. */
static int64_t list_layers(int32_t *out, const weir_block_kv **first, const weir_model *model)
{
    int64_t n = 0;
    *first = NULL;
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        const weir_block_kv *const kv = weir_model_layer_kv(model, i);
        if (kv == NULL || !kv->watched) continue;
        if (*first == NULL) *first = kv;
        if (out != NULL) out[n] = (int32_t)weir_model_layer_memory(model, i).kv_index;
        n++;
    }
    return n;
}

static weir_status read_options(
    weir_policy_options *out, const weir_config *config, weir_error *error
)
{
    weir_error why = { 0 };
    if (weir_policy_options_default(out, config->kv.policy.name, &why) != WEIR_OK)
        return weir_error_set(error, WEIR_ECONFIG, "kv.policy.name: %s", why.text);
    if (weir_policy_options_set(out, config->kv.policy.options, &why) != WEIR_OK)
        return weir_error_set(error, WEIR_ECONFIG, "kv.policy.options: %s", why.text);
    if (weir_policy_is_full(out) && config->kv.policy.budget > 0)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "kv.policy.budget = %" PRId64 ", but kv.policy.name = \"%s\" keeps every row; choose "
            "another policy, or remove the budget",
            config->kv.policy.budget, config->kv.policy.name
        );
    if (!weir_policy_is_full(out) && config->kv.policy.budget == 0)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "kv.policy.name = \"%s\" needs kv.policy.budget, the rows that each KV head keeps",
            config->kv.policy.name
        );
    return WEIR_OK;
}

/* Returns true if all observed layers keep rows of the same shape, which a policy requires. */
static bool are_alike(const weir_block_kv *first, const weir_model *model)
{
    bool are = true;
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        const weir_block_kv *const kv = weir_model_layer_kv(model, i);
        if (kv == NULL || !kv->watched) continue;
        are = are && kv->n_queries == first->n_queries && kv->no_rope == first->no_rope &&
              kv->rope_local == first->rope_local && kv->rope_last == first->rope_last &&
              kv->geometry.n_heads == first->geometry.n_heads &&
              kv->geometry.key_dim == first->geometry.key_dim &&
              kv->geometry.value_dim == first->geometry.value_dim &&
              kv->geometry.value_aliases_key == first->geometry.value_aliases_key;
    }
    return are;
}

weir_status weir_policies_open(
    weir_policies *policies, const weir_identity_parts *parts, weir_error *error
)
{
    const weir_config *const config = parts->config;
    const weir_shape *const shape = weir_model_shape(parts->model);
    weir_policy_shape *const s = &policies->service.shape;
    const weir_block_kv *kv;
    const int64_t n_watched = list_layers(NULL, &kv, parts->model), half = shape->rotary_dim / 2;
    const bool is_mixed = n_watched > 0 && !are_alike(kv, parts->model);
    const int64_t n_layers = is_mixed ? 0 : n_watched;
    WEIR_TRY(read_options(&policies->service.options, config, error));
    policies->service.budget = config->kv.policy.budget;
    if (n_layers == 0 && !weir_policy_is_full(&policies->service.options))
        return weir_error_set(
            error, WEIR_ECONFIG, "kv.policy.name = \"%s\": %s", config->kv.policy.name,
            is_mixed ? "layers of this model keep KV rows of different widths, heads or rotation"
                     : "no layer of this model keeps KV rows of the whole sequence"
        );
    if (n_layers == 0) return WEIR_OK;
    policies->layers = weir_memory_take_zero((size_t)n_layers, sizeof *policies->layers);
    policies->frequencies = weir_memory_take_zero((size_t)half + 1, sizeof *policies->frequencies);
    if (policies->layers == NULL || policies->frequencies == NULL)
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for %" PRId64 " layers of a policy", n_layers
        );
    (void)list_layers(policies->layers, &kv, parts->model);
    WEIR_ASSERT(kv != NULL); /* n_layers > 0 */
    *s = (weir_policy_shape){ .n_layers = n_layers,
                              .n_heads = kv->n_queries,
                              .n_kv_heads = kv->geometry.n_heads,
                              .key_dim = kv->geometry.key_dim,
                              .value_dim = kv->geometry.value_dim,
                              .rotary_dim = kv->no_rope ? 0 : shape->rotary_dim,
                              .rotates_last = kv->rope_last,
                              .is_interleaved = kv->rope == WEIR_ROPE_PAIRS,
                              .frequencies = policies->frequencies,
                              .rope_magnitude = 1.0f,
                              .scale = kv->scale };
    policies->service.layers = policies->layers;
    weir_policies_set_rope(policies, parts->model);
    const char *const own = policies->service.options.calibration,
                      *const path = own[0] != '\0' ? own : config->kv.policy.calibration;
    if (path[0] == '\0') return WEIR_OK;
    WEIR_TRY(weir_identity_model(s->model, parts, error));
    WEIR_TRY(weir_calibration_read(&policies->calibration, path, error));
    policies->service.calibration = policies->calibration;
    return WEIR_OK;
}

weir_status weir_policies_identify(
    weir_policies *policies, const weir_identity_parts *parts, weir_error *error
)
{
    if (!weir_policies_are_there(policies) || policies->calibration != NULL) return WEIR_OK;
    return weir_identity_model(policies->service.shape.model, parts, error);
}

void weir_policies_set_rope(weir_policies *policies, const weir_model *model)
{
    const weir_rope_table *const rope = weir_model_rope(model);
    if (policies->frequencies == NULL || rope->frequencies == NULL) return;
    for (int64_t f = 0; f < policies->service.shape.rotary_dim / 2; f++)
        policies->frequencies[f] = (double)rope->frequencies[f];
    policies->service.shape.rope_magnitude = rope->magnitude;
}

bool weir_policies_are_there(const weir_policies *policies) { return policies->layers != NULL; }

weir_policy_run_options weir_policies_run_options(
    const weir_service_policy *policy, int64_t rows, int32_t n_prompt, int32_t n_new
)
{
    weir_policy_run_options run = { .policy = &policy->options,
                                    .budget = policy->budget,
                                    .shape = policy->shape,
                                    .layers = policy->layers,
                                    .calibration = policy->calibration,
                                    .n_sequences = 1,
                                    .n_new = n_new,
                                    .n_prompt = n_prompt };
    run.shape.max_rows = rows;
    return run;
}

void weir_policies_close(weir_policies *policies)
{
    weir_calibration_close(policies->calibration);
    weir_memory_give(policies->frequencies);
    weir_memory_give(policies->layers);
    *policies = (weir_policies){ 0 };
}
