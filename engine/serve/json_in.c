/* engine/serve/json_in.c - errors of engine/formats/json_reader.c as errors of the API. */
#include "engine/serve/json_in.h"

#include <string.h>

#include "engine/formats/json.h"

static weir_status refuse(weir_json_fault fault, const weir_json_place *at, weir_api_error *error)
{
    const char *const param = at->key[0] != 0 ? at->key : NULL;
    switch (fault) {
    case WEIR_JSON_FINE: break;
    case WEIR_JSON_NO_MEMORY: return weir_api_no_memory(error);
    case WEIR_JSON_SYNTAX:
        return weir_api_bad(
            error, NULL, "the body is not valid JSON: %s (byte %zu)", at->reason, at->offset
        );
    case WEIR_JSON_TOO_DEEP:
        return weir_api_bad(
            error, NULL, "the JSON at byte %zu is nested deeper than %d levels", at->offset,
            WEIR_JSON_DEPTH
        );
    case WEIR_JSON_TOO_MANY_VALUES:
    case WEIR_JSON_TOO_MANY_KEYS:
        return weir_api_bad(
            error, param, "the JSON holds more than %d values or %d keys", WEIR_JSON_VALUES,
            WEIR_JSON_KEYS
        );
    case WEIR_JSON_LARGE_INTEGER:
        return weir_api_bad(
            error, param, "an integer at byte %zu does not fit 64 bits", at->offset
        );
    case WEIR_JSON_LARGE_NUMBER:
        return weir_api_bad(error, param, "a number at byte %zu is too large", at->offset);
    }
    return WEIR_OK;
}

weir_status weir_json_read(json_t **out, const char *text, size_t n, weir_api_error *error)
{
    weir_json_place place = { 0 };
    json_t *root = NULL;
    if (n == 0) return weir_api_bad(error, NULL, "the body is empty; send a JSON object");
    const weir_json_fault fault = weir_json_build(&root, &place, text, n, &weir_json_request);
    if (fault != WEIR_JSON_FINE) return refuse(fault, &place, error);
    if (!json_is_object(root)) {
        json_decref(root);
        return weir_api_bad(error, NULL, "the body must be a JSON object");
    }
    *out = root;
    return WEIR_OK;
}

const json_t *weir_field(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

weir_status weir_field_bool(const json_t *object, const char *key, bool *out, weir_api_error *error)
{
    const json_t *const value = weir_field(object, key);
    if (value == NULL) return WEIR_OK;
    if (!json_is_boolean(value)) return weir_api_bad(error, key, "%s must be true or false", key);
    *out = json_is_true(value);
    return WEIR_OK;
}

weir_status weir_field_integer(
    const json_t *object, const char *key, int64_t least, int64_t most, int64_t *out,
    weir_api_error *error
)
{
    const json_t *const value = weir_field(object, key);
    if (value == NULL) return WEIR_OK;
    if (!json_is_integer(value)) return weir_api_bad(error, key, "%s must be an integer", key);
    const int64_t number = json_integer_value(value);
    if (number < least || number > most)
        return weir_api_bad(
            error, key, "%s is %lld; it must be %lld to %lld", key, (long long)number,
            (long long)least, (long long)most
        );
    *out = number;
    return WEIR_OK;
}

weir_status weir_field_number(
    const json_t *object, const char *key, double least, double most, double *out,
    weir_api_error *error
)
{
    const json_t *const value = weir_field(object, key);
    if (value == NULL) return WEIR_OK;
    if (!json_is_number(value)) return weir_api_bad(error, key, "%s must be a number", key);
    const double number = json_number_value(value);
    if (!(number >= least && number <= most))
        return weir_api_bad(error, key, "%s is %g; it must be %g to %g", key, number, least, most);
    *out = number;
    return WEIR_OK;
}

weir_status weir_field_text(
    const json_t *object, const char *key, const char **out, weir_api_error *error
)
{
    const json_t *const value = weir_field(object, key);
    if (value == NULL) return WEIR_OK;
    if (!json_is_string(value)) return weir_api_bad(error, key, "%s must be a string", key);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return weir_api_bad(error, key, "%s holds a NUL", key);
    *out = json_string_value(value);
    return WEIR_OK;
}
