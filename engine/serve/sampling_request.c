#include "engine/serve/sampling_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "engine/base/memory.h"
#include "engine/serve/json_in.h"

/* weir_fields_check has checked its range. */
static void read_real(const json_t *root, const char *key, float *out)
{
    const json_t *const value = weir_field(root, key);
    if (value != NULL) *out = (float)json_number_value(value);
}

static weir_status read_seed(
    const json_t *root, bool has_default, uint64_t *seed, weir_api_error *error
)
{
    int64_t value = 0;
    if (weir_field(root, "seed") != NULL) {
        WEIR_TRY(weir_field_integer(root, "seed", INT64_MIN, INT64_MAX, &value, error));
        *seed = (uint64_t)value;
    } else if (!has_default && getrandom(seed, sizeof *seed, 0) != (ssize_t)sizeof *seed) {
        return weir_api_fail(error, 500, NULL, NULL, "no random numbers");
    }
    return WEIR_OK;
}

/* Reads a token id used as a key: decimal digits only. */
static bool read_id_key(const char *key, int32_t n_vocab, int32_t *id)
{
    const size_t digits = strspn(key, "0123456789");
    if (digits == 0 || digits > 9 || key[digits] != 0) return false;
    *id = (int32_t)strtol(key, NULL, 10);
    return *id < n_vocab;
}

static weir_status read_bias(
    weir_openai_request *request, const json_t *root, int32_t n_vocab, weir_api_error *error
)
{
    static const char key[] = "logit_bias";
    const json_t *const bias = weir_field(root, key);
    if (bias == NULL) return WEIR_OK;
    const size_t count = json_object_size(bias);
    if (!json_is_object(bias) || count > WEIR_BIAS_ENTRIES)
        return weir_api_bad(
            error, key, "logit_bias must be an object of at most %d entries", WEIR_BIAS_ENTRIES
        );
    request->bias = weir_memory_take_zero(count + 1, sizeof *request->bias);
    if (request->bias == NULL) return weir_api_no_memory(error);
    const char *name;
    json_t *value;
    size_t i = 0;
    json_object_foreach((json_t *)bias, name, value)
    {
        const double number = json_number_value(value);
        if (!read_id_key(name, n_vocab, &request->bias[i].id))
            return weir_api_bad(
                error, key, "logit_bias: %s is not a token id of this model", weir_quote(name).text
            );
        if (!json_is_number(value) || !(fabs(number) <= 100))
            return weir_api_bad(
                error, key, "logit_bias: the value of %s must be -100 to 100", name
            );
        request->bias[i++].bias = (float)number;
    }
    request->sampling.bias = request->bias;
    request->sampling.n_bias = count;
    return WEIR_OK;
}

weir_status weir_sampling_request_read(
    weir_openai_request *request, const json_t *root, const weir_request_limits *limits,
    weir_api_error *error
)
{
    weir_sampling *const s = &request->sampling;
    *s = limits->sampling;
    s->bias = NULL;
    s->n_bias = 0;
    read_real(root, "temperature", &s->temperature);
    read_real(root, "top_p", &s->top_p);
    if (s->top_p <= 0) return weir_api_bad(error, "top_p", "top_p must be above 0");
    read_real(root, "min_p", &s->min_p);
    /* -1 and 0 mean off, as in other servers. */
    const json_t *const top_k = weir_field(root, "top_k");
    if (top_k != NULL)
        s->top_k = json_integer_value(top_k) > 0 ? (int32_t)json_integer_value(top_k) : 0;
    read_real(root, "repetition_penalty", &s->repetition_penalty);
    read_real(root, "presence_penalty", &s->presence_penalty);
    read_real(root, "frequency_penalty", &s->frequency_penalty);
    WEIR_TRY(read_seed(root, limits->has_seed, &s->seed, error));
    return read_bias(request, root, limits->n_vocab, error);
}
