/* engine/open/identity.c - the digest of a model: architecture, shape, and of every tensor its
 * name, type, shape and a sample of its bytes. Adapters and the rounding of activations are not
 * part of the model but of the numerics (docs/decisions/0043). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/buffer.h"
#include "engine/open/identity.h"

enum { WHOLE_BYTES = 64 << 10, PIECE_BYTES = 4 << 10, PIECES = 16 };

static void add(XXH3_state_t *hash, const void *bytes, size_t n)
{
    if (n > 0) (void)XXH3_128bits_update(hash, bytes, n);
}

static void add_number(XXH3_state_t *hash, int64_t number) { add(hash, &number, sizeof number); }

static void add_text(XXH3_state_t *hash, const char *text) { add(hash, text, strlen(text) + 1); }

/* Up to 64 KiB are hashed whole, more in 16 pieces of 4 KiB spread evenly: cheap relative to
 * loading, and training changes more than the bytes between them. */
static void add_tensor(XXH3_state_t *hash, const weir_tensor *tensor)
{
    add_text(hash, tensor->name);
    add_text(hash, weir_dtype_of(tensor->dtype).name);
    add_number(hash, tensor->n_dims);
    for (int32_t i = 0; i < tensor->n_dims; i++) add_number(hash, tensor->shape[i]);
    if (tensor->bytes <= WHOLE_BYTES) {
        add(hash, tensor->data, tensor->bytes);
        return;
    }
    const size_t step = (tensor->bytes - PIECE_BYTES) / (PIECES - 1);
    for (size_t i = 0; i < PIECES; i++)
        add(hash, tensor->data + (i + 1 < PIECES ? i * step : tensor->bytes - PIECE_BYTES),
            PIECE_BYTES);
}

static void add_tensors(XXH3_state_t *hash, const weir_tensor_directory *directory)
{
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const tensor = weir_tensor_directory_at(directory, i);
        add_tensor(hash, tensor);
        weir_tensor_release(directory, tensor);
    }
}

static void add_bytes(void *user, const void *bytes, size_t n) { add(user, bytes, n); }

/* Adds the options of the arch file that determine what states hold. */
static void add_state(XXH3_state_t *hash, const weir_model *model, int64_t layer)
{
    const weir_state_ops *const state = weir_model_layer_mixer(model, layer)->state;
    if (state == NULL || state->identify == NULL) return;
    add_number(hash, layer);
    state->identify(
        weir_model_layer_options(model, layer), &(weir_digest){ .add = add_bytes, .user = hash }
    );
}

static void add_model(XXH3_state_t *hash, const weir_identity_parts *parts)
{
    const weir_shape *const shape = weir_model_shape(parts->model);
    add_text(hash, weir_model_arch(parts->model));
#define X(name, least, most) add_number(hash, shape->name);
    WEIR_SHAPE_INTEGERS(X)
#undef X
#define X(name, least, most) add(hash, &shape->name, sizeof shape->name);
    WEIR_SHAPE_NUMBERS(X)
#undef X
    for (int64_t i = 0; i < shape->n_layers; i++) add_state(hash, parts->model, i);
    if (weir_model_has_long_rope(parts->model)) add_text(hash, "long rope");
    add_tensors(hash, parts->directory);
}

static void add_vocabulary(XXH3_state_t *hash, const weir_tokenizer *tokenizer)
{
    for (size_t id = 0; id < weir_tokenizer_size(tokenizer); id++) {
        size_t n = 0;
        bool special = false;
        const char *const bytes = weir_tokenizer_token_bytes(tokenizer, (int32_t)id, &n, &special);
        add_number(hash, (int64_t)n);
        add(hash, bytes, n);
        add_number(hash, special);
    }
}

static void digest(XXH3_state_t *hash, uint64_t out[2])
{
    const XXH128_hash_t value = XXH3_128bits_digest(hash);
    out[0] = value.low64;
    out[1] = value.high64;
    (void)XXH3_128bits_reset(hash);
}

static XXH3_state_t *begin(weir_error *error)
{
    XXH3_state_t *const hash = XXH3_createState();
    if (hash == NULL)
        (void)weir_error_set(error, WEIR_ENOMEM, "no memory for the digest of the model");
    if (hash != NULL) (void)XXH3_128bits_reset(hash);
    return hash;
}

weir_status weir_identity_model(
    uint64_t out[2], const weir_identity_parts *parts, weir_error *error
)
{
    XXH3_state_t *const hash = begin(error);
    if (hash == NULL) return WEIR_ENOMEM;
    add_model(hash, parts);
    add_number(hash, parts->f32_activations);
    if (parts->adapter != NULL) add_tensors(hash, parts->adapter);
    digest(hash, out);
    (void)XXH3_freeState(hash);
    return WEIR_OK;
}

/* ---- numerics -------------------------------------------------------------------------------- */
/* The device "checked" runs the host's kernels (capability 0): its results have the same bits. */
static void print_device(char *out, size_t bytes, const weir_device *device)
{
    const int capability = device != NULL ? weir_device_capability(device) : 0;
    char text[160] = "cpu";
    if (capability > 0) {
        const char *const name = weir_device_name(device);
        (void)snprintf(
            text, sizeof text, "%.*s sm_%d %s", (int)strcspn(name, ":"), name, capability,
            weir_device_title(device)
        );
    }
    weir_numerics_field(out, bytes, text);
}

static const char *pin_of(const weir_config *config, weir_op op)
{
    const weir_config_pin *const end = config->kernels.pin + WEIR_CONFIG_PINS;
    const char *found = NULL;
    for (const weir_config_pin *pin = config->kernels.pin; pin < end && pin->op[0] != '\0'; pin++)
        if (strcmp(pin->op, weir_op_name(op)) == 0) found = pin->kernel; /* the last one counts */
    return found;
}

/* In the order of ops, whatever the order in the configuration; a list too long for the field is
 * given by its digest. */
static weir_status print_pins(char *out, size_t bytes, const weir_config *config)
{
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    for (int op = 0; op < WEIR_OP_COUNT && status == WEIR_OK; op++) {
        const char *const pin = pin_of(config, (weir_op)op);
        if (pin == NULL) continue;
        status = weir_buffer_format(
            &text, "%s%s=%s", text.size > 0 ? "," : "", weir_op_name((weir_op)op), pin
        );
    }
    if (status == WEIR_OK && text.size >= bytes) {
        const XXH128_hash_t hash = XXH3_128bits(text.data, text.size);
        char digest_text[64];
        (void)snprintf(
            digest_text, sizeof digest_text, "digest %016" PRIx64 "%016" PRIx64,
            (uint64_t)hash.high64, (uint64_t)hash.low64
        );
        weir_numerics_field(out, bytes, digest_text);
    } else
        weir_numerics_field(out, bytes, text.size > 0 ? text.data : "none");
    weir_buffer_free(&text);
    return status;
}

static void print_adapter(
    char *out, size_t bytes, XXH3_state_t *hash, const weir_tensor_directory *adapter
)
{
    char text[40] = "none";
    if (adapter != NULL) {
        uint64_t value[2];
        add_tensors(hash, adapter);
        digest(hash, value);
        (void)snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, value[1], value[0]);
    }
    weir_numerics_field(out, bytes, text);
}

/* hash: reset, and left so. */
static weir_status numerics_of(
    weir_numerics *out, const weir_identity_parts *parts, XXH3_state_t *hash
)
{
    char isa[WEIR_STREAM_ISA];
    weir_stream_print_isa(isa, parts->stream);
    weir_numerics_field(out->isa, sizeof out->isa, isa);
    print_device(out->device, sizeof out->device, weir_stream_device(parts->stream));
    weir_numerics_field(
        out->activations, sizeof out->activations, parts->f32_activations ? "f32" : "fast"
    );
    print_adapter(out->adapter, sizeof out->adapter, hash, parts->adapter);
    out->is_mixed = false;
    return print_pins(out->pins, sizeof out->pins, parts->config);
}

/* ---- all of it ------------------------------------------------------------------------------- */

weir_status weir_identity_of(
    weir_session_identity *out, const weir_identity_parts *parts, weir_error *error
)
{
    weir_session_identity identity = {
        .n_layers = parts->spec->n_layers,
        .n_heads = weir_kv_n_heads(parts->spec),
        .geometry = parts->spec->geometry,
        .block_bytes = (int64_t)weir_kv_block_bytes(parts->spec),
        .n_window_layers = parts->spec->windows.n_layers,
        .window = weir_kv_windows_length(&parts->spec->windows),
        .window_block_bytes = (int64_t)weir_kv_windows_block_bytes(&parts->spec->windows),
        .n_sinks = parts->spec->sinks.n_pages,
        .sink_block_bytes = (int64_t)weir_kv_sink_block_bytes(parts->spec),
        .state_bytes = (int64_t)weir_model_recurrent_bytes(parts->model)
    };
    XXH3_state_t *const hash = begin(error);
    if (hash == NULL) return WEIR_ENOMEM;
    add_model(hash, parts);
    digest(hash, identity.model);
    if (parts->tokenizer != NULL) {
        add_vocabulary(hash, parts->tokenizer);
        digest(hash, identity.tokenizer);
    }
    const weir_status status = numerics_of(&identity.numerics, parts, hash);
    (void)XXH3_freeState(hash);
    if (status != WEIR_OK)
        return weir_error_set(error, status, "no memory for the names of the kernel pins");
    identity.takes_any_numerics = strcmp(parts->config->sessions.numerics, "any") == 0;
    char format[WEIR_KV_FORMATS_TEXT];
    weir_kv_choice_print_layers(format, parts->formats);
    (void)snprintf(identity.format, sizeof identity.format, "%s", format);
    if (identity.n_sinks > 0) weir_kv_pair_print(identity.sink_format, parts->spec->sinks.pair);
    /* A pruned sequence is saved with its own policy. */
    (void)snprintf(identity.policy, sizeof identity.policy, "full:0");
    *out = identity;
    return WEIR_OK;
}
