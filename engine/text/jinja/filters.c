/* engine/text/jinja/filters.c - filters of text and numbers, and the lookup of filters by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/state.h"

typedef weir_jinja_state S;
typedef weir_jinja_value V;
typedef const weir_jinja_arguments A;

enum { INDENT_LIMIT = 64 };

/* Binds up to six arguments; `given` has a bit for each one that is present. */
#define BIND(names)                                                                                \
    V given_values[6] = { 0 };                                                                     \
    unsigned given = 0;                                                                            \
    WEIR_TRY(weir_jinja_bind(s, "the filter", names, given_values, &given, a))
#define GIVEN(i) (given >> (i) & 1)

static weir_status want_string(S *s, V v)
{
    if (v.kind == WEIR_JINJA_STRING) return WEIR_OK;
    if (v.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(s, v);
    return weir_jinja_fail(s, "a string is expected, not %s", weir_jinja_type_name(v));
}

static weir_status want_int(S *s, V v, int64_t low, int64_t high, int64_t *out)
{
    if (!weir_jinja_is_integer(v))
        return weir_jinja_fail(s, "an integer is expected, not %s", weir_jinja_type_name(v));
    *out = weir_jinja_as_int(v);
    if (*out < low || *out > high)
        return weir_jinja_fail(s, "%lld is out of range", (long long)*out);
    return WEIR_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Indent: a number of spaces, or the indentation of one level; returned as a C string in the
 * arena. */
static weir_status indent_text(S *s, const char **out, V v)
{
    int64_t spaces = 0;
    char *text = NULL;
    if (v.kind == WEIR_JINJA_NONE) return WEIR_OK;
    if (v.kind != WEIR_JINJA_STRING) {
        WEIR_TRY(want_int(s, v, INT64_MIN, INDENT_LIMIT, &spaces));
        if (spaces < 0) spaces = 0;
        WEIR_TRY(weir_jinja_alloc(s->arena, &text, (size_t)spaces + 1));
        memset(text, ' ', (size_t)spaces);
    } else {
        if (v.as.string->size > INDENT_LIMIT)
            return weir_jinja_fail(s, "the indentation is too long");
        WEIR_TRY(weir_jinja_alloc(s->arena, &text, v.as.string->size + 1));
        if (v.as.string->size) memcpy(text, v.as.string->bytes, v.as.string->size);
    }
    *out = text;
    return WEIR_OK;
}

static weir_status separators(S *s, weir_jinja_json_style *style, V v)
{
    if (v.kind == WEIR_JINJA_NONE) return WEIR_OK;
    weir_jinja_list *pair = NULL;
    WEIR_TRY(weir_jinja_items(s, &pair, v));
    if (pair->count != 2) return weir_jinja_fail(s, "separators must be a pair of strings");
    WEIR_TRY(want_string(s, pair->items[0]));
    WEIR_TRY(want_string(s, pair->items[1]));
    WEIR_TRY(indent_text(s, &style->item, pair->items[0]));
    return indent_text(s, &style->key, pair->items[1]);
}

static weir_status filter_tojson(S *s, V *out, V v, A *a)
{
    BIND("ensure_ascii indent separators sort_keys");
    weir_jinja_json_style style = { .item = ", ", .key = ": " };
    weir_jinja_builder text = weir_jinja_builder_new(s->arena);
    style.ascii = GIVEN(0) && weir_jinja_truth(given_values[0]);
    style.sorted = GIVEN(3) && weir_jinja_truth(given_values[3]);
    if (GIVEN(1)) WEIR_TRY(indent_text(s, &style.indent, given_values[1]));
    if (style.indent) style.item = ",";
    if (GIVEN(2)) WEIR_TRY(separators(s, &style, given_values[2]));
    WEIR_TRY(weir_jinja_json(s, &text, v, &style));
    return weir_jinja_builder_finish(&text, out);
}

/* Charges several steps for each value in the JSON text. */
static weir_status pay_for_json(S *s, const weir_jinja_string *string)
{
    size_t values = 1;
    for (size_t i = 0; i < string->size; i++)
        values += string->bytes[i] == ',' || string->bytes[i] == '[' || string->bytes[i] == '{';
    WEIR_TRY(weir_jinja_work(s, string->size, WEIR_JINJA_READ));
    for (int i = 0; i < 8; i++) WEIR_TRY(weir_jinja_work(s, values, WEIR_JINJA_MADE));
    return WEIR_OK;
}

/* Parses JSON text. Strings in the result have the origin of the text's first byte, or are user
 * text if any of it is. */
static weir_status filter_from_json(S *s, V *out, V v, A *a)
{
    BIND("");
    (void)given;
    (void)given_values;
    WEIR_TRY(want_string(s, v));
    WEIR_TRY(pay_for_json(s, v.as.string));
    weir_error error = { 0 };
    json_t *json = NULL;
    weir_jinja_origin origin = WEIR_JINJA_TEMPLATE;
    for (size_t at = 0, end = 0; at < v.as.string->size; at = end)
        if (weir_jinja_string_origin(v.as.string, at, &end) != WEIR_JINJA_TEMPLATE)
            origin = WEIR_JINJA_USER;
    weir_status status = weir_json_parse_within(
        &json, v.as.string->bytes, v.as.string->size, "from_json", &weir_json_request, &error
    );
    if (status == WEIR_EFORMAT) return weir_jinja_fail(s, "%.140s", error.text);
    if (status != WEIR_OK) return status;
    status = weir_jinja_from_json(s->arena, out, json, origin, true);
    json_decref(json);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------ */

static weir_status filter_string(S *s, V *out, V v, A *a)
{
    BIND("");
    (void)given_values;
    (void)given;
    return weir_jinja_to_string(s, out, v);
}

static weir_status filter_trim(S *s, V *out, V v, A *a)
{
    BIND("chars");
    const bool set = GIVEN(0) && given_values[0].kind != WEIR_JINJA_NONE;
    WEIR_TRY(weir_jinja_to_string(s, &v, v));
    if (set) WEIR_TRY(want_string(s, given_values[0]));
    return weir_jinja_strip(
        s, out, v.as.string, set ? given_values[0].as.string : NULL, true, true
    );
}

static weir_status letters(S *s, V *out, V v, weir_jinja_case how)
{
    WEIR_TRY(weir_jinja_to_string(s, &v, v));
    return weir_jinja_change_case(s, out, v.as.string, how);
}
static weir_status filter_upper(S *s, V *out, V v, A *a)
{
    return (void)a, letters(s, out, v, WEIR_JINJA_UPPER);
}
static weir_status filter_lower(S *s, V *out, V v, A *a)
{
    return (void)a, letters(s, out, v, WEIR_JINJA_LOWER);
}
static weir_status filter_title(S *s, V *out, V v, A *a)
{
    return (void)a, letters(s, out, v, WEIR_JINJA_WORDS);
}
static weir_status filter_capitalize(S *s, V *out, V v, A *a)
{
    return (void)a, letters(s, out, v, WEIR_JINJA_CAPITALIZE);
}

static weir_status filter_safe(S *s, V *out, V v, A *a)
{
    (void)a;
    WEIR_TRY(weir_jinja_to_string(s, &v, v));
    WEIR_TRY(weir_jinja_work(s, v.as.string->size, WEIR_JINJA_MOVED));
    WEIR_TRY(weir_jinja_substring(s->arena, out, v.as.string, 0, v.as.string->size));
    out->as.string->markup = true;
    return WEIR_OK;
}

static weir_status filter_escape(S *s, V *out, V v, A *a)
{
    return (void)a, weir_jinja_escape(s, out, v);
}

static weir_status filter_replace(S *s, V *out, V v, A *a)
{
    BIND("old new count");
    int64_t limit = -1;
    if ((given & 3) != 3) return weir_jinja_fail(s, "replace needs two arguments");
    WEIR_TRY(weir_jinja_to_string(s, &v, v));
    for (int i = 0; i < 2; i++)
        WEIR_TRY(weir_jinja_to_string(s, &given_values[i], given_values[i]));
    if (GIVEN(2) && given_values[2].kind != WEIR_JINJA_NONE)
        WEIR_TRY(want_int(s, given_values[2], INT64_MIN, INT64_MAX, &limit));
    WEIR_TRY(weir_jinja_replace(
        s, out, v.as.string, given_values[0].as.string, given_values[1].as.string, limit
    ));
    out->as.string->markup = false;
    return WEIR_OK;
}

static bool is_line_break(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

/* Indents all lines but the first (unless `first`), and empty ones only if `blank`. Line breaks
 * become "\n". */
static weir_status filter_indent(S *s, V *out, V v, A *a)
{
    BIND("width first blank");
    const char *level = "    ";
    weir_jinja_builder text = weir_jinja_builder_new(s->arena);
    const bool first = GIVEN(1) && weir_jinja_truth(given_values[1]),
               blank = GIVEN(2) && weir_jinja_truth(given_values[2]);
    WEIR_TRY(want_string(s, v));
    if (GIVEN(0)) WEIR_TRY(indent_text(s, &level, given_values[0]));
    const weir_jinja_string *string = v.as.string;
    WEIR_TRY(weir_jinja_work(s, string->size, WEIR_JINJA_READ));
    if (first) WEIR_TRY(weir_jinja_add_text(&text, level, WEIR_JINJA_TEMPLATE));
    for (size_t at = 0, end = 0; at < string->size;) {
        size_t run = at, size = 0;
        while (run < string->size &&
               !is_line_break(weir_jinja_decode(string->bytes + run, string->size - run, &size)))
            run += size;
        if (at > 0 && (blank || run > at))
            WEIR_TRY(weir_jinja_add_text(&text, level, WEIR_JINJA_TEMPLATE));
        WEIR_TRY(weir_jinja_add_part(&text, string, at, run - at));
        if (run == string->size) break;
        WEIR_TRY(weir_jinja_step(s, 0));
        WEIR_TRY(weir_jinja_add(&text, "\n", 1, weir_jinja_string_origin(string, run, &end)));
        if (string->bytes[run] == '\r' && run + 1 < string->size && string->bytes[run + 1] == '\n')
            size = 2;
        at = run + size;
        if (at == string->size && blank)
            WEIR_TRY(weir_jinja_add_text(&text, level, WEIR_JINJA_TEMPLATE));
    }
    return weir_jinja_builder_finish(&text, out);
}

static weir_status filter_center(S *s, V *out, V v, A *a)
{
    BIND("width");
    V width = GIVEN(0) ? given_values[0] : weir_jinja_int(80);
    weir_jinja_string name = { .bytes = "center", .size = 6, .count = 6 };
    const int method = weir_jinja_method_find(weir_jinja_from_string(&name), &name);
    WEIR_TRY(weir_jinja_to_string(s, &v, v));
    const weir_jinja_bound bound = { .receiver = v, .method = method };
    const weir_jinja_arguments one = { .items = &width, .count = 1 };
    return weir_jinja_call_method(s, out, &bound, &one);
}

static weir_status filter_wordcount(S *s, V *out, V v, A *a)
{
    (void)a;
    int64_t count = 0;
    bool in = false;
    WEIR_TRY(weir_jinja_to_string(s, &v, v));
    /* Case tables are slower than copying. */
    WEIR_TRY(weir_jinja_work(s, v.as.string->size, WEIR_JINJA_MADE));
    for (size_t at = 0, size = 0; at < v.as.string->size; at += size) {
        const uint32_t code =
            weir_jinja_decode(v.as.string->bytes + at, v.as.string->size - at, &size);
        const bool word = weir_jinja_is_letter(code) || weir_jinja_is_digit(code) || code == '_';
        count += word && !in;
        in = word;
    }
    *out = weir_jinja_int(count);
    return WEIR_OK;
}

static weir_status filter_format(S *s, V *out, V v, A *a)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_to_string(s, &v, v));
    if (a->n_named) return weir_jinja_fail(s, "format takes arguments by place");
    WEIR_TRY(weir_jinja_list_new(s->arena, &list, a->count));
    for (size_t i = 0; i < a->count; i++)
        WEIR_TRY(weir_jinja_list_add(s->arena, list, a->items[i]));
    return weir_jinja_format(s, out, v.as.string, (V){ .kind = WEIR_JINJA_TUPLE, .as.list = list });
}

/* ---- numbers and others ---------------------------------------------------------------------- */

static weir_status filter_default(S *s, V *out, V v, A *a)
{
    BIND("default_value boolean");
    const bool falsy = GIVEN(1) && weir_jinja_truth(given_values[1]);
    *out = v;
    if (v.kind != WEIR_JINJA_UNDEFINED && (!falsy || weir_jinja_truth(v))) return WEIR_OK;
    if (GIVEN(0))
        *out = given_values[0];
    else
        return weir_jinja_string_view(s->arena, out, "", 0, WEIR_JINJA_TEMPLATE);
    return WEIR_OK;
}

/* Parses a number at the beginning; only white space may follow. */
static bool text_to_number(const weir_jinja_string *string, int base, bool real, V *out)
{
    char text[80], *end = text;
    size_t n = 0;
    for (size_t i = 0; i < string->size; i++) {
        if (n + 1 == sizeof text) return false;
        if (string->bytes[i] != '_') text[n++] = string->bytes[i];
    }
    text[n] = 0;
    if (real)
        *out = weir_jinja_float(strtod(text, &end));
    else
        *out = weir_jinja_int(strtoll(text, &end, base));
    if (end == text) return false;
    while (*end == ' ' || (*end >= 9 && *end <= 13)) end++;
    return *end == 0 && !(real && strpbrk(text, "xXpP"));
}

/* The text is parsed at most twice: as an integer and as a float. */
static weir_status pay_for_digits(S *s, const weir_jinja_string *string)
{
    return weir_jinja_work(s, string->size, WEIR_JINJA_MADE);
}

static weir_status filter_int(S *s, V *out, V v, A *a)
{
    BIND("default base");
    int64_t base = 10;
    V number;
    if (GIVEN(1)) WEIR_TRY(want_int(s, given_values[1], 2, 36, &base));
    if (v.kind == WEIR_JINJA_STRING) WEIR_TRY(pay_for_digits(s, v.as.string));
    *out = GIVEN(0) ? given_values[0] : weir_jinja_int(0);
    if (v.kind == WEIR_JINJA_STRING && text_to_number(v.as.string, (int)base, false, &number))
        *out = number;
    else if (v.kind == WEIR_JINJA_STRING && text_to_number(v.as.string, 10, true, &number))
        v = number;
    if (weir_jinja_is_integer(v)) *out = weir_jinja_int(weir_jinja_as_int(v));
    if (v.kind == WEIR_JINJA_FLOAT && v.as.real > -9.2e18 && v.as.real < 9.2e18)
        *out = weir_jinja_int((int64_t)v.as.real);
    return WEIR_OK;
}

static weir_status filter_float(S *s, V *out, V v, A *a)
{
    BIND("default");
    V number;
    if (v.kind == WEIR_JINJA_STRING) WEIR_TRY(pay_for_digits(s, v.as.string));
    *out = GIVEN(0) ? given_values[0] : weir_jinja_float(0);
    if (weir_jinja_is_number(v)) *out = weir_jinja_float(weir_jinja_as_float(v));
    if (v.kind == WEIR_JINJA_STRING && text_to_number(v.as.string, 10, true, &number))
        *out = number;
    return WEIR_OK;
}

static weir_status filter_abs(S *s, V *out, V v, A *a)
{
    (void)a;
    if (weir_jinja_is_number(v) && weir_jinja_as_float(v) < 0)
        return weir_jinja_unary(s, out, '-', v);
    return weir_jinja_unary(s, out, '+', v);
}

static weir_status filter_round(S *s, V *out, V v, A *a)
{
    BIND("precision method");
    int64_t precision = 0;
    if (GIVEN(0)) WEIR_TRY(want_int(s, given_values[0], -300, 300, &precision));
    if (!weir_jinja_is_number(v))
        return weir_jinja_fail(s, "a number is expected, not %s", weir_jinja_type_name(v));
    const bool up = GIVEN(1) && given_values[1].kind == WEIR_JINJA_STRING &&
                    weir_jinja_string_is(given_values[1].as.string, "ceil");
    const bool down = GIVEN(1) && given_values[1].kind == WEIR_JINJA_STRING &&
                      weir_jinja_string_is(given_values[1].as.string, "floor");
    const double number = weir_jinja_as_float(v), scale = pow(10, (double)precision);
    if (!up && !down && precision >= 0 && weir_jinja_is_integer(v))
        *out = weir_jinja_int(weir_jinja_as_int(v));
    else if (up || down)
        *out = weir_jinja_float((up ? ceil(number * scale) : floor(number * scale)) / scale);
    else if (precision >= 0) { /* correctly rounded, like Python's round() */
        char text[700];
        (void)snprintf(text, sizeof text, "%.*f", (int)precision, number);
        *out = weir_jinja_float(strtod(text, NULL));
    } else {
        const double rounded = nearbyint(number * scale) / scale;
        *out = weir_jinja_is_integer(v) && fabs(rounded) < 9e15 ? weir_jinja_int((int64_t)rounded)
                                                                : weir_jinja_float(rounded);
    }
    return WEIR_OK;
}

static weir_status filter_attr(S *s, V *out, V v, A *a)
{
    BIND("name");
    if (!GIVEN(0) || given_values[0].kind != WEIR_JINJA_STRING)
        return weir_jinja_fail(s, "attr needs a name");
    if (v.kind == WEIR_JINJA_DICT) { /* attributes only, no keys */
        const int method = weir_jinja_method_find(v, given_values[0].as.string);
        *out = weir_jinja_undefined("an attribute");
        if (method < 0) return WEIR_OK;
    }
    return weir_jinja_item(s, out, v, given_values[0]);
}

const weir_jinja_filter_entry weir_jinja_text_filters[] = {
    { "tojson", filter_tojson },
    { "from_json", filter_from_json },
    { "string", filter_string },
    { "trim", filter_trim },
    { "upper", filter_upper },
    { "lower", filter_lower },
    { "title", filter_title },
    { "capitalize", filter_capitalize },
    { "safe", filter_safe },
    { "escape", filter_escape },
    { "e", filter_escape },
    { "replace", filter_replace },
    { "indent", filter_indent },
    { "center", filter_center },
    { "wordcount", filter_wordcount },
    { "format", filter_format },
    { "default", filter_default },
    { "d", filter_default },
    { "int", filter_int },
    { "float", filter_float },
    { "abs", filter_abs },
    { "round", filter_round },
    { "attr", filter_attr },
    { NULL, NULL },
};

weir_status weir_jinja_apply_filter(S *s, V *out, const weir_jinja_string *name, V v, A *a)
{
    const weir_jinja_filter_entry *const tables[] = { weir_jinja_text_filters,
                                                      weir_jinja_sequence_filters };
    WEIR_TRY(weir_jinja_step(s, 0));
    for (size_t t = 0; t < 2; t++)
        for (const weir_jinja_filter_entry *entry = tables[t]; entry->name; entry++)
            if (weir_jinja_string_is(name, entry->name)) return entry->filter(s, out, v, a);
    return weir_jinja_fail(
        s, "no filter '%.*s'", (int)(name->size < 60 ? name->size : 60), name->bytes
    );
}
