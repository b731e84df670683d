/* engine/kv/policy/policy.c - opens a policy: options, shape and calibration are checked once, so
 * that no step has to. */
#include "engine/kv/policy/policy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/kv/policy/budget.h"
#include "engine/kv/policy/plan.h"
#include "kernels/abi/kv_format_text.h"

enum { METHODS_TEXT = 400 }; /* names of methods in a message */

static weir_status check_shape(const weir_policy_shape *s, weir_error *error)
{
    const bool is_sane =
        s->n_layers >= 1 && s->n_layers <= 1 << 16 && s->n_kv_heads >= 1 && s->n_heads <= 1 << 16 &&
        s->n_heads >= s->n_kv_heads && s->n_heads % s->n_kv_heads == 0 && s->key_dim >= 1 &&
        s->key_dim <= 1 << 16 && s->value_dim >= 1 && s->value_dim <= 1 << 16 &&
        s->rotary_dim >= 0 && s->rotary_dim <= s->key_dim && s->rotary_dim % 2 == 0 &&
        s->max_rows >= 1 && s->max_rows <= INT32_MAX && s->n_pinned >= 0 &&
        s->n_pinned <= INT32_MAX && s->scale > 0 && isfinite(s->scale) && s->rope_magnitude > 0 &&
        isfinite(s->rope_magnitude) && (s->rotary_dim == 0 || s->frequencies != NULL);
    if (!is_sane)
        return weir_error_set(
            error, WEIR_EINVAL, "KV policy: heads, widths and rows of the model are inconsistent"
        );
    for (int64_t f = 0; f < s->rotary_dim / 2; f++)
        if (!isfinite(s->frequencies[f]))
            return weir_error_set(
                error, WEIR_EINVAL, "KV policy: RoPE frequency %" PRId64 " is not a number", f
            );
    return WEIR_OK;
}

static weir_status check_options(
    const weir_policy_options *options, const weir_policy_shape *shape, const policy_layout *layout,
    weir_error *error
)
{
    const char *const name = weir_policy_name(options);
    if (layout->is_per_layer &&
        (options->split == WEIR_SPLIT_ADAPTIVE || options->split == WEIR_SPLIT_HEADS))
        return weir_error_set(
            error, WEIR_ECONFIG,
            "%s keeps the same rows in all heads of a layer: split must be uniform or pyramid", name
        );
    if (options->split == WEIR_SPLIT_HEADS && options->heads[0] == '\0')
        return weir_error_set(error, WEIR_ECONFIG, "%s: split=heads needs a list in heads", name);
    WEIR_TRY(
        weir_budget_parse_heads(NULL, shape->n_layers, shape->n_kv_heads, options->heads, error)
    );
    if (options->kernel % 2 == 0 && options->kernel != 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: kernel is %" PRId64 ", it must be odd", name, options->kernel
        );
    return options->ops->check != NULL ? options->ops->check(options, shape, error) : WEIR_OK;
}

/* Lists the methods whose defaults fit: "sinks, tova, ...". */
static void list_methods(
    char *out, size_t size, const weir_policy_shape *shape,
    bool (*fits)(const weir_policy_shape *shape, const policy_layout *layout)
)
{
    const char *name, *summary;
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; (name = weir_policy_at(i, &summary)) != NULL; i++) {
        weir_policy_options options;
        weir_error unused;
        policy_layout layout = { 0 };
        if (weir_policy_options_default(&options, name, &unused) != WEIR_OK ||
            weir_policy_is_full(&options))
            continue;
        options.ops->layout(&layout, &options, shape);
        if (!fits(shape, &layout)) continue;
        const int n = snprintf(out + at, size - at, "%s%s", at > 0 ? ", " : "", name);
        if (n < 0 || (size_t)n >= size - at) return;
        at += (size_t)n;
    }
}

/* What a method needs of attention can be seen. */
static bool has_sight(const weir_policy_shape *shape, const policy_layout *layout)
{
    const unsigned mass = WEIR_POLICY_MASS | WEIR_POLICY_BELOW | WEIR_POLICY_LAST;
    return !shape->hides_mass || (layout->needs & mass) == 0;
}

static weir_status check_sight(
    const weir_policy_options *options, const weir_policy_shape *shape, const policy_layout *layout,
    weir_error *error
)
{
    char others[METHODS_TEXT];
    if (has_sight(shape, layout)) return WEIR_OK;
    list_methods(others, sizeof others, shape, has_sight);
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "%s needs the attention mass of each row, which the device has no kernel for in this "
        "kv.format; set kv.format to one of" WEIR_KV_DEVICE_READ_TEXT ", or use one of: %s",
        weir_policy_name(options), others
    );
}

/* Methods that compare keys and queries at other positions turn the first dims. */
static bool fits_rotation(const weir_policy_shape *shape, const policy_layout *layout)
{
    const unsigned turn = WEIR_POLICY_PLAIN_QUERIES | WEIR_POLICY_CALIBRATION;
    return !shape->rotates_last || ((layout->needs & turn) == 0 && layout->first_keys == 0);
}

static weir_status check_rotation(
    const weir_policy_options *options, const weir_policy_shape *shape, const policy_layout *layout,
    weir_error *error
)
{
    char others[METHODS_TEXT];
    if (fits_rotation(shape, layout)) return WEIR_OK;
    list_methods(others, sizeof others, shape, fits_rotation);
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "%s%s rotates the first dims of keys, and this model's %s; use one of: %s",
        weir_policy_name(options), layout->first_keys > 0 ? " with positions=cache" : "",
        shape->rotary_dim > 0 ? "rotated dims are the last of a latent row"
                              : "keys are latents that nothing rotates",
        others
    );
}

static weir_status check_calibration(
    const weir_policy_options *options, const weir_policy_shape *shape, const policy_layout *layout,
    const weir_calibration *calibration, weir_error *error
)
{
    if ((layout->needs & WEIR_POLICY_CALIBRATION) == 0) return WEIR_OK;
    if (calibration == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s needs statistics of the model's queries: set calibration to a "
            "file of `weir calibrate`",
            weir_policy_name(options)
        );
    return weir_calibration_check(calibration, shape, options->foreign, error);
}

/* Hashes the options, the parts of the shape that size the state, and the statistics. */
static weir_status digest(weir_policy *policy, weir_error *error)
{
    weir_policy_options options = policy->options;
    const policy_layout *l = &policy->layout;
    const weir_policy_shape *s = &policy->shape;
    const int64_t numbers[] = { s->n_layers,  s->n_heads,    s->n_kv_heads, s->key_dim,
                                s->value_dim, s->rotary_dim, l->row_values, l->is_per_layer,
                                l->ring,      l->sums };
    /* The path of the file does not matter. */
    memset(options.calibration, 0, sizeof options.calibration);
    weir_buffer text = { 0 };
    weir_status status = weir_policy_options_print(&text, &options);
    if (status == WEIR_OK) status = weir_buffer_add(&text, numbers, sizeof numbers);
    if (status == WEIR_OK) status = weir_buffer_add(&text, s->model, sizeof s->model);
    if (status == WEIR_OK && l->first_keys > 0)
        status = weir_buffer_add(&text, &l->first_keys, sizeof l->first_keys);
    if (status == WEIR_OK && policy->calibration != NULL) {
        const uint64_t statistics = weir_calibration_digest(policy->calibration);
        status = weir_buffer_add(&text, &statistics, sizeof statistics);
    }
    if (status == WEIR_OK) {
        const XXH128_hash_t hash = XXH3_128bits(text.data, text.size);
        policy->digest[0] = hash.low64, policy->digest[1] = hash.high64;
    }
    weir_buffer_free(&text);
    return status == WEIR_OK ? WEIR_OK
                             : weir_error_set(error, status, "KV policy: no memory to open it");
}

static weir_status take(
    weir_policy **out, const weir_policy_shape *shape, const policy_layout *layout,
    weir_error *error
)
{
    size_t state, scratch, bytes = sizeof(weir_policy), table;
    if (!policy_state_size(&state, shape, layout) ||
        !policy_plan_scratch(&scratch, shape, layout) ||
        !weir_mul_size(&table, (size_t)layout->table, sizeof(double)) ||
        !weir_add_size(&bytes, bytes, (size_t)shape->rotary_dim / 2 * sizeof(double)) ||
        !weir_align_size(&bytes, bytes, 16) || !weir_add_size(&bytes, bytes, table))
        return weir_error_set(
            error, WEIR_EINVAL,
            "KV policy: its state for %" PRId64 " rows is too large; give it a smaller budget",
            shape->max_rows
        );
    weir_policy *const policy = weir_memory_take_zero(1, bytes);
    if (policy == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "KV policy: no memory for %zu bytes", bytes);
    policy->shape = *shape;
    policy->layout = *layout;
    policy->bytes = bytes;
    policy->state_bytes = state;
    policy->scratch_bytes = scratch;
    policy->table = (double *)((char *)policy + bytes - table);
    if (shape->rotary_dim > 0)
        memcpy(
            policy->frequencies, shape->frequencies, (size_t)shape->rotary_dim / 2 * sizeof(double)
        );
    policy->shape.frequencies = policy->frequencies;
    *out = policy;
    return WEIR_OK;
}

weir_status weir_policy_open(
    weir_policy **out, const weir_policy_options *options, const weir_policy_shape *shape,
    const weir_calibration *calibration, weir_error *error
)
{
    policy_layout layout = { 0 };
    weir_policy *policy = NULL;
    WEIR_TRY(check_shape(shape, error));
    options->ops->layout(&layout, options, shape);
    WEIR_TRY(check_options(options, shape, &layout, error));
    WEIR_TRY(check_sight(options, shape, &layout, error));
    WEIR_TRY(check_rotation(options, shape, &layout, error));
    WEIR_TRY(check_calibration(options, shape, &layout, calibration, error));
    WEIR_TRY(take(&policy, shape, &layout, error));
    policy->options = *options;
    policy->calibration = (layout.needs & WEIR_POLICY_CALIBRATION) != 0 ? calibration : NULL;
    const weir_status status = digest(policy, error);
    if (status != WEIR_OK) {
        weir_policy_close(policy);
        return status;
    }
    if (options->ops->prepare != NULL) options->ops->prepare(policy, policy->table);
    *out = policy;
    return WEIR_OK;
}

void weir_policy_tighten(weir_policy *policy, int64_t max_rows)
{
    weir_policy_shape *const shape = &policy->shape;
    WEIR_ASSERT(max_rows >= 1 && max_rows <= shape->max_rows);
    shape->max_rows = max_rows;
    policy->layout = (policy_layout){ 0 };
    policy->options.ops->layout(&policy->layout, &policy->options, shape);
    const bool fits = policy_state_size(&policy->state_bytes, shape, &policy->layout) &&
                      policy_plan_scratch(&policy->scratch_bytes, shape, &policy->layout);
    WEIR_ASSERT(fits); /* larger max_rows did */
}

void weir_policy_close(weir_policy *policy) { weir_memory_give(policy); }

unsigned weir_policy_needs(const weir_policy *policy) { return policy->layout.needs; }

int64_t weir_policy_window(const weir_policy *policy) { return policy->layout.ring; }

const weir_policy_options *weir_policy_options_of(const weir_policy *policy)
{
    return &policy->options;
}

void weir_policy_digest(const weir_policy *policy, uint64_t out[2])
{
    memcpy(out, policy->digest, sizeof policy->digest);
}

size_t weir_policy_bytes(const weir_policy *policy) { return policy->bytes; }

size_t weir_policy_scratch_bytes(const weir_policy *policy) { return policy->scratch_bytes; }

weir_status weir_policy_check_budget(const weir_policy *policy, int64_t budget, weir_error *error)
{
    const weir_policy_options *const options = &policy->options;
    const int64_t last = policy_n_last(policy), least = options->sinks + last + 1;
    if (options->ops->score == NULL && options->ops->plan == NULL) return WEIR_OK;
    if (budget >= least) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG,
        "%s keeps %" PRId64 " sinks and the last %" PRId64 " rows in any case: a budget of %" PRId64
        " rows leaves nothing to evict; give it at least %" PRId64,
        weir_policy_name(options), options->sinks, last, budget, least
    );
}
