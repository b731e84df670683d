#include "engine/serve/off_fields.h"

#include "engine/serve/json_in.h"

static weir_status check(const weir_off_field *field, const json_t *value, weir_api_error *error)
{
    const double number = json_number_value(value);
    if (value == NULL) return WEIR_OK;
    if (!json_is_number(value))
        return weir_api_bad(error, field->key, "%s must be a number", field->key);
    if (number >= field->least && number <= field->most) return WEIR_OK;
    return weir_api_fail(
        error, 400, "unsupported_parameter", field->key,
        "%s: this value is not supported by this server; leave the field out", field->key
    );
}

weir_status weir_off_fields_check(
    const json_t *object, const weir_off_field *fields, size_t n_fields, weir_api_error *error
)
{
    for (size_t i = 0; i < n_fields; i++)
        WEIR_TRY(check(&fields[i], weir_field(object, fields[i].key), error));
    return WEIR_OK;
}

weir_status weir_last_n_check(
    const json_t *object, const weir_sampling *sampling, weir_api_error *error
)
{
    static const char key[] = "repeat_last_n";
    int64_t last = -1;
    WEIR_TRY(weir_field_integer(object, key, -1, INT32_MAX, &last, error));
    const bool has_penalty = sampling->repetition_penalty != 1 || sampling->presence_penalty != 0 ||
                             sampling->frequency_penalty != 0;
    if (last == -1 || !has_penalty) return WEIR_OK;
    return weir_api_fail(
        error, 400, "unsupported_parameter", key,
        "repeat_last_n: penalties are over the whole text here; send -1 or leave it out"
    );
}
