/* engine/serve/llama_request.c - the fields of llama-server's completions. What this engine samples
 * too gets OpenAI's name and is read as one of its completions; of the rest, only values that have
 * no effect are accepted. */
#include "engine/serve/llama_request.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "engine/serve/json_in.h"
#include "engine/serve/off_fields.h"

enum { MOST_PROBS = 20, RANDOM_SEED = -1 };
static const int64_t random_seed_32 = 0xffffffff; /* the same, as llama.cpp stores it */

/* ---- fields that must be off ----------------------------------------------------------------- */

static weir_status check_off(const json_t *root, weir_api_error *error)
{
    static const char *const lists[] = { "lora", "image_data" };
    const json_t *const breakers = weir_field(root, "dry_sequence_breakers");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const json_t *const list = weir_field(root, lists[i]);
        if (list != NULL && !(json_is_array(list) && json_array_size(list) == 0))
            return weir_api_unsupported(error, lists[i]);
    }
    if (breakers == NULL || json_is_array(breakers)) return WEIR_OK;
    return weir_api_bad(
        error, "dry_sequence_breakers", "dry_sequence_breakers must be an array of strings"
    );
}

/* ---- fields with another name or form -------------------------------------------------------- */

static weir_status put(json_t *out, const char *key, json_t *value, weir_api_error *error)
{
    return json_object_set_new(out, key, value) == 0 ? WEIR_OK : weir_api_no_memory(error);
}

static weir_status copy(
    json_t *out, const char *to, const json_t *root, const char *from, weir_api_error *error
)
{
    json_t *const value = json_object_get(root, from);
    return value != NULL ? put(out, to, json_incref(value), error) : WEIR_OK;
}

static weir_status copy_same(json_t *out, const json_t *root, weir_api_error *error)
{
    static const char *const keys[] = {
        "model",
        "stream",
        "stop",
        "ignore_eos",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "cache_prompt",
        "cache_salt",
        "sse_ping_interval",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        WEIR_TRY(copy(out, keys[i], root, keys[i], error));
    return WEIR_OK;
}

/* Checked here under their own names. */
static weir_status copy_renamed(
    json_t *out, const json_t *root, const weir_request_limits *limits, weir_api_error *error
)
{
    double penalty = 1;
    int64_t n = 1;
    WEIR_TRY(weir_field_number(root, "repeat_penalty", 0.01, 10, &penalty, error));
    WEIR_TRY(copy(out, "repetition_penalty", root, "repeat_penalty", error));
    WEIR_TRY(weir_field_integer(root, "n_cmpl", 1, limits->n_slots, &n, error));
    return copy(out, "n", root, "n_cmpl", error);
}

/* Without the field the request gets the server's, which may be fixed. */
static weir_status copy_seed(
    json_t *out, const json_t *root, const weir_request_limits *limits, weir_api_error *error
)
{
    int64_t seed = RANDOM_SEED;
    WEIR_TRY(weir_field_integer(root, "seed", INT64_MIN, INT64_MAX, &seed, error));
    if (seed == RANDOM_SEED || seed == random_seed_32) {
        if (!limits->has_seed || weir_field(root, "seed") == NULL) return WEIR_OK;
        if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
            return weir_api_fail(error, 500, NULL, NULL, "no random numbers");
    }
    return put(out, "seed", json_integer(seed), error);
}

/* An empty grammar is none. */
static weir_status copy_form(json_t *out, const json_t *root, weir_api_error *error)
{
    const json_t *const grammar = weir_field(root, "grammar");
    if (!json_is_string(grammar) || json_string_length(grammar) > 0)
        WEIR_TRY(copy(out, "grammar", root, "grammar", error));
    return copy(out, "json_schema", root, "json_schema", error);
}

/* [[id, bias], ...], where false stands for a token that never comes. */
static weir_status copy_bias_pair(json_t *out, const json_t *pair, weir_api_error *error)
{
    static const char key[] = "logit_bias";
    const json_t *const id = json_array_get(pair, 0), *const bias = json_array_get(pair, 1);
    char name[24];
    if (json_array_size(pair) != 2 || !json_is_integer(id) ||
        !(json_is_number(bias) || json_is_false(bias)))
        return weir_api_bad(
            error, key, "logit_bias must hold pairs of a token id and a number or false"
        );
    (void)snprintf(name, sizeof name, "%lld", (long long)json_integer_value(id));
    const double value = json_is_false(bias) ? -100 : json_number_value(bias);
    return put(out, name, json_real(value), error);
}

static weir_status copy_bias(json_t *out, const json_t *root, weir_api_error *error)
{
    static const char key[] = "logit_bias";
    const json_t *const bias = weir_field(root, key);
    if (!json_is_array(bias)) return copy(out, key, root, key, error);
    if (json_array_size(bias) > WEIR_BIAS_ENTRIES)
        return weir_api_bad(error, key, "logit_bias holds more than %d entries", WEIR_BIAS_ENTRIES);
    json_t *const object = json_object();
    WEIR_TRY(put(out, key, object, error));
    for (size_t i = 0; i < json_array_size(bias); i++)
        WEIR_TRY(copy_bias_pair(object, json_array_get(bias, i), error));
    return WEIR_OK;
}

static weir_status translate(
    json_t *out, const json_t *root, json_t *prompt, const weir_request_limits *limits,
    weir_api_error *error
)
{
    if (prompt != NULL) WEIR_TRY(put(out, "prompt", json_incref(prompt), error));
    WEIR_TRY(copy_same(out, root, error));
    WEIR_TRY(copy_renamed(out, root, limits, error));
    WEIR_TRY(copy_seed(out, root, limits, error));
    WEIR_TRY(copy_form(out, root, error));
    return copy_bias(out, root, error);
}

/* ---- whole requests -------------------------------------------------------------------------- */

static weir_status read_own(
    weir_llama_request *out, const json_t *root, const weir_request_limits *limits,
    weir_api_error *error
)
{
    int64_t n_probs = 0, slot = -1;
    out->n_predict = limits->max_tokens > 0 ? limits->max_tokens : -1;
    WEIR_TRY(weir_field_integer(root, "max_tokens", -2, INT32_MAX, &out->n_predict, error));
    WEIR_TRY(weir_field_integer(root, "n_predict", -2, INT32_MAX, &out->n_predict, error));
    if (out->n_predict < 0) out->n_predict = -1; /* -2: until the window is full */
    WEIR_TRY(weir_field_integer(root, "n_probs", 0, MOST_PROBS, &n_probs, error));
    WEIR_TRY(weir_field_integer(root, "id_slot", -1, limits->n_slots - 1, &slot, error));
    if (slot >= 0 && weir_field(root, "cache_salt") != NULL) /* /slots has no salt to find it by */
        return weir_api_bad(error, "id_slot", "id_slot and cache_salt exclude each other");
    WEIR_TRY(weir_field_bool(root, "return_tokens", &out->return_tokens, error));
    WEIR_TRY(weir_field_bool(root, "timings_per_token", &out->timings_per_token, error));
    out->n_probs = (int32_t)n_probs;
    out->id_slot = (int32_t)slot;
    return WEIR_OK;
}

/* What completions of OpenAI's API cannot say. */
static void adjust(weir_llama_request *llama)
{
    weir_openai_request *const r = &llama->request;
    r->max_tokens = llama->n_predict;
    r->logprobs = llama->n_probs > 0;
    r->n_top_logprobs = llama->n_probs;
    r->keep_ids = llama->return_tokens || llama->id_slot >= 0;
}

void weir_llama_name_error(weir_api_error *error)
{
    static const weir_api_name names[] = {
        { "repetition_penalty", "repeat_penalty" },
        { "max_tokens", "n_predict" },
        { "logprobs", "n_probs" },
        { "n", "n_cmpl" },
    };
    weir_api_rename(error, names, sizeof names / sizeof names[0]);
}

weir_status weir_llama_request_read(
    weir_llama_request *out, const json_t *root, json_t *prompt, weir_body body,
    const weir_request_limits *limits, weir_api_error *error
)
{
    weir_llama_request llama = { .id_slot = -1 };
    weir_unknown_fields unknown = { 0 };
    WEIR_TRY(weir_fields_check(root, body, &unknown, error));
    WEIR_TRY(check_off(root, error));
    WEIR_TRY(read_own(&llama, root, limits, error));
    json_t *const body_of = json_object();
    weir_status status = body_of != NULL ? WEIR_OK : weir_api_no_memory(error);
    if (status == WEIR_OK) status = translate(body_of, root, prompt, limits, error);
    if (status != WEIR_OK) {
        json_decref(body_of);
        return status;
    }
    status = weir_openai_request_take(&llama.request, false, body_of, limits, error);
    if (status != WEIR_OK) {
        weir_llama_name_error(error);
        return status;
    }
    status = weir_last_n_check(root, &llama.request.sampling, error);
    if (status != WEIR_OK) {
        weir_openai_request_free(&llama.request);
        return status;
    }
    adjust(&llama);
    llama.request.unknown = unknown;
    *out = llama;
    return WEIR_OK;
}
