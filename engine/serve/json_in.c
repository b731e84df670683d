/* engine/serve/json_in.c - jansson reads, a scan before it bounds what jansson may build: depth, counts, sizes of numbers.
 * The scan knows only strings, brackets and numbers; syntax is jansson's to judge. */
#include "engine/serve/json_in.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct scan {
    const char *text, *at, *end;
    const char *string;   /* the last string at depth 1, without quotes: the key when a colon follows */
    size_t      string_length;
    char        key[48];  /* the top-level key whose value is being read */
    int         depth;
    int64_t     n_values, n_keys;
} scan;

static long long offset_of(const scan *s) { return (long long)(s->at - s->text); }

static void skip_string(scan *s)
{
    const char *const begin = ++s->at;
    while (s->at < s->end && *s->at != '"') s->at += *s->at == '\\' && s->at + 1 < s->end ? 2 : 1;
    if (s->depth == 1) s->string = begin, s->string_length = (size_t)((s->at < s->end ? s->at : s->end) - begin);
    s->at++;
}

static void take_key(scan *s)
{
    s->n_keys++;
    if (s->depth != 1 || s->string == NULL) return;
    size_t n = 0;
    for (; n < s->string_length && n < sizeof s->key - 1; n++)
        s->key[n] = (char)(s->string[n] > 0x20 && s->string[n] < 0x7f ? s->string[n] : '?');
    s->key[n] = 0;
}

static weir_status check_number(scan *s, weir_api_error *error)
{
    const size_t      length = strspn(s->at, "+-0123456789.eE");
    const bool        fraction = strspn(s->at, "+-0123456789") < length;
    const char *const param = s->depth >= 1 && s->key[0] != 0 ? s->key : NULL;
    errno = 0;
    if (fraction) {
        if (!isfinite(strtod(s->at, NULL))) return weir_api_bad(error, param, "a number at byte %lld is too large", offset_of(s));
    } else {
        (void)strtoll(s->at, NULL, 10);
        if (errno == ERANGE) return weir_api_bad(error, param, "an integer at byte %lld does not fit 64 bits", offset_of(s));
    }
    s->at += length;
    return WEIR_OK;
}

static weir_status step(scan *s, weir_api_error *error)
{
    switch (*s->at) {
    case '"': skip_string(s); return WEIR_OK;
    case ':': take_key(s); break;
    case ',': s->n_values++; break;
    case '[':
    case '{':
        s->n_values++;
        if (++s->depth > WEIR_JSON_DEPTH)
            return weir_api_bad(error, NULL, "the JSON at byte %lld is nested deeper than %d levels", offset_of(s), WEIR_JSON_DEPTH);
        break;
    case ']':
    case '}': s->depth--; break;
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return check_number(s, error);
    default: break;
    }
    s->at++;
    return WEIR_OK;
}

static weir_status check_bounds(const char *text, size_t n, weir_api_error *error)
{
    scan s = { .text = text, .at = text, .end = text + n };
    while (s.at < s.end) {
        WEIR_TRY(step(&s, error));
        if (s.n_values > WEIR_JSON_VALUES || s.n_keys > WEIR_JSON_KEYS)
            return weir_api_bad(error, s.key[0] != 0 ? s.key : NULL, "the JSON holds more than %d values or %d keys", WEIR_JSON_VALUES,
                                WEIR_JSON_KEYS);
    }
    return WEIR_OK;
}

weir_status weir_json_read(json_t **out, const char *text, size_t n, weir_api_error *error)
{
    if (n == 0) return weir_api_bad(error, NULL, "the body is empty; send a JSON object");
    WEIR_TRY(check_bounds(text, n, error));
    json_error_t  why;
    json_t *const root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (root == NULL) return weir_api_bad(error, NULL, "the body is not valid JSON: %s (byte %d)", weir_quote(why.text).text, why.position);
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

weir_status weir_field_integer(const json_t *object, const char *key, int64_t least, int64_t most, int64_t *out, weir_api_error *error)
{
    const json_t *const value = weir_field(object, key);
    if (value == NULL) return WEIR_OK;
    if (!json_is_integer(value)) return weir_api_bad(error, key, "%s must be an integer", key);
    const int64_t number = json_integer_value(value);
    if (number < least || number > most)
        return weir_api_bad(error, key, "%s is %lld; it must be %lld to %lld", key, (long long)number, (long long)least, (long long)most);
    *out = number;
    return WEIR_OK;
}

weir_status weir_field_number(const json_t *object, const char *key, double least, double most, double *out, weir_api_error *error)
{
    const json_t *const value = weir_field(object, key);
    if (value == NULL) return WEIR_OK;
    if (!json_is_number(value)) return weir_api_bad(error, key, "%s must be a number", key);
    const double number = json_number_value(value);
    if (!(number >= least && number <= most)) return weir_api_bad(error, key, "%s is %g; it must be %g to %g", key, number, least, most);
    *out = number;
    return WEIR_OK;
}

weir_status weir_field_text(const json_t *object, const char *key, const char **out, weir_api_error *error)
{
    const json_t *const value = weir_field(object, key);
    if (value == NULL) return WEIR_OK;
    if (!json_is_string(value)) return weir_api_bad(error, key, "%s must be a string", key);
    if (strlen(json_string_value(value)) != json_string_length(value)) return weir_api_bad(error, key, "%s holds a NUL", key);
    *out = json_string_value(value);
    return WEIR_OK;
}
