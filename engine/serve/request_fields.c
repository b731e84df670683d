#include "engine/serve/request_fields.h"

#include <stdio.h>
#include <string.h>

#include "engine/config/distance.h"
#include "engine/serve/json_in.h"
#include "engine/serve/off_fields.h"

bool weir_field_is_read(const char *key, unsigned bodies)
{
    size_t n_rows;
    const weir_field_row *const rows = weir_field_rows(&n_rows);
    for (size_t i = 0; i < n_rows; i++)
        if ((rows[i].bodies & bodies) == bodies && rows[i].use == WEIR_FIELD_READ &&
            strcmp(rows[i].key, key) == 0)
            return true;
    return false;
}

/* ---- unknown fields -------------------------------------------------------------------------- */

void weir_unknown_add(weir_unknown_fields *unknown, const char *name, const char *nearest)
{
    if (unknown->count < WEIR_UNKNOWN_NAMED) {
        unknown->name[unknown->count] = weir_quote(name);
        unknown->nearest[unknown->count] = nearest;
    }
    unknown->count++;
}

/* The nearest field of the body that begins with `begin` and differs by at most `most` letters;
 * NULL: none. */
static const char *nearest_of(const char *key, weir_body body, const char *begin, size_t most)
{
    const char *nearest = NULL;
    size_t least = most + 1, n_rows;
    const weir_field_row *const rows = weir_field_rows(&n_rows);
    for (size_t i = 0; i < n_rows; i++) {
        if (!(rows[i].bodies & body) || strncmp(rows[i].key, begin, strlen(begin)) != 0) continue;
        const size_t distance = weir_edit_distance(key, rows[i].key);
        if (distance < least) {
            least = distance;
            nearest = rows[i].key;
        }
    }
    return nearest;
}

/* A misspelt kv_ field could keep or drop rows against the client's intent, so it is an error. */
static weir_status take_unknown(
    const char *key, weir_body body, weir_unknown_fields *unknown, weir_api_error *error
)
{
    static const char kv[] = "kv_";
    const size_t length = sizeof kv - 1;
    const bool begins = strncmp(key, kv, length) == 0;
    const char *const nearest = begins ? nearest_of(key, body, kv, WEIR_DISTANCE_BYTES)
                                       : nearest_of(key, body, "", strlen(key) / 3);
    if (!begins && (nearest == NULL || strncmp(nearest, kv, length) != 0)) {
        weir_unknown_add(unknown, key, nearest);
        return WEIR_OK;
    }
    const weir_quoted name = weir_quote(key);
    if (nearest == NULL) return weir_api_bad(error, name.text, "unknown field %s", name.text);
    return weir_api_bad(
        error, name.text, "unknown field %s; the nearest is %s", name.text, nearest
    );
}

/* ---- known fields ---------------------------------------------------------------------------- */

bool weir_field_has_range(const weir_field_row *row)
{
    return row->use == WEIR_FIELD_OFF || row->least != 0 || row->most != 0;
}

static weir_status check_integer(
    const weir_field_row *row, const json_t *root, weir_api_error *error
)
{
    const bool has_range = weir_field_has_range(row);
    const int64_t least = has_range ? (int64_t)row->least : INT64_MIN;
    const int64_t most = has_range && row->most < WEIR_FIELD_LARGE ? (int64_t)row->most : INT64_MAX;
    const json_t *const value = weir_field(root, row->key);
    int64_t number = 0;
    /* Other code knows the most: it says so. */
    if (json_is_integer(value) && json_integer_value(value) < least && most >= INT32_MAX)
        return weir_api_bad(
            error, row->key, "%s is %lld; it must be %lld or more", row->key,
            (long long)json_integer_value(value), (long long)least
        );
    return weir_field_integer(root, row->key, least, most, &number, error);
}

static weir_status check_number(
    const weir_field_row *row, const json_t *root, weir_api_error *error
)
{
    double number = 1;
    WEIR_TRY(weir_field_number(root, row->key, row->least, row->most, &number, error));
    if (!row->above || number > row->least) return WEIR_OK;
    return weir_api_bad(error, row->key, "%s must be above %g", row->key, row->least);
}

static weir_status check_string(
    const weir_field_row *row, const json_t *value, weir_api_error *error
)
{
    if (!json_is_string(value))
        return weir_api_bad(error, row->key, "%s must be a string", row->key);
    if (row->most == 0 || json_string_length(value) <= (size_t)row->most) return WEIR_OK;
    return weir_api_bad(error, row->key, "%s is longer than %g bytes", row->key, row->most);
}

/* A value that would have an effect. */
static weir_status check_off(const weir_field_row *row, const json_t *root, weir_api_error *error)
{
    const weir_off_field off = { row->key, row->least, row->most };
    return weir_off_fields_check(root, &off, 1, error);
}

static weir_status check_type(
    const weir_field_row *row, const json_t *root, const json_t *value, weir_api_error *error
)
{
    switch (row->type) {
    case WEIR_FIELD_ANY:
    case WEIR_FIELD_FORM: return WEIR_OK;
    case WEIR_FIELD_STRING: return check_string(row, value, error);
    case WEIR_FIELD_OBJECT:
        if (json_is_object(value)) return WEIR_OK;
        return weir_api_bad(error, row->key, "%s must be an object", row->key);
    case WEIR_FIELD_BOOL:
        if (json_is_boolean(value)) return WEIR_OK;
        return weir_api_bad(error, row->key, "%s must be true or false", row->key);
    case WEIR_FIELD_INTEGER: return check_integer(row, root, error);
    case WEIR_FIELD_NUMBER:
        return row->use == WEIR_FIELD_OFF ? check_off(row, root, error)
                                          : check_number(row, root, error);
    }
    return WEIR_OK;
}

weir_status weir_api_unsupported(weir_api_error *error, const char *key)
{
    return weir_api_fail(
        error, 400, "unsupported_parameter", key, "%s is not supported by this server", key
    );
}

static weir_status check_row(
    const weir_field_row *row, const json_t *root, const json_t *value, weir_api_error *error
)
{
    if (json_is_null(value)) return WEIR_OK;
    WEIR_TRY(check_type(row, root, value, error));
    const bool off = row->type == WEIR_FIELD_BOOL && json_is_false(value);
    return row->use == WEIR_FIELD_UNSUPPORTED && !off ? weir_api_unsupported(error, row->key)
                                                      : WEIR_OK;
}

weir_status weir_fields_check(
    const json_t *root, weir_body body, weir_unknown_fields *unknown, weir_api_error *error
)
{
    const char *key;
    json_t *value;
    size_t n_rows;
    const weir_field_row *const rows = weir_field_rows(&n_rows);
    json_object_foreach((json_t *)root, key, value)
    {
        const weir_field_row *row = rows;
        while (row < rows + n_rows && (!(row->bodies & body) || strcmp(row->key, key) != 0)) row++;
        if (row < rows + n_rows)
            WEIR_TRY(check_row(row, root, value, error));
        else
            WEIR_TRY(take_unknown(key, body, unknown, error));
    }
    return WEIR_OK;
}

/* ---- warnings -------------------------------------------------------------------------------- */

void weir_warning_add(char warning[WEIR_WARNING_BYTES], const char *text)
{
    static const char cut[] = "...";
    const size_t used = strlen(warning);
    const char *const between = used > 0 ? "; " : "";
    const int n = snprintf(warning + used, WEIR_WARNING_BYTES - used, "%s%s", between, text);
    if (n >= 0 && (size_t)n < WEIR_WARNING_BYTES - used) return;
    memcpy(warning + WEIR_WARNING_BYTES - sizeof cut, cut, sizeof cut);
}

void weir_warning_unknown(char warning[WEIR_WARNING_BYTES], const weir_unknown_fields *unknown)
{
    char text[2 * WEIR_WARNING_BYTES];
    size_t used = (size_t)snprintf(text, sizeof text, "unknown fields are ignored:");
    if (unknown->count == 0) return;
    for (size_t i = 0; i < unknown->count && i < WEIR_UNKNOWN_NAMED && used < WEIR_WARNING_BYTES;
         i++) {
        const char *const nearest = unknown->nearest[i], *const comma = i > 0 ? "," : "";
        const char *const name = unknown->name[i].text;
        used +=
            (size_t)(nearest != NULL
                         ? snprintf(
                               text + used, sizeof text - used, "%s %s (%s?)", comma, name, nearest
                           )
                         : snprintf(text + used, sizeof text - used, "%s %s", comma, name));
    }
    if (unknown->count > WEIR_UNKNOWN_NAMED && used < WEIR_WARNING_BYTES)
        (void)snprintf(
            text + used, sizeof text - used, ", and %zu more", unknown->count - WEIR_UNKNOWN_NAMED
        );
    weir_warning_add(warning, text);
}

void weir_unknown_write(weir_json_out *json, const weir_unknown_fields *unknown)
{
    weir_json_open(json, '[');
    for (size_t i = 0; i < unknown->count && i < WEIR_UNKNOWN_NAMED; i++)
        weir_json_string(json, unknown->name[i].text);
    weir_json_close(json, ']');
}
