/* engine/text/jinja/print.c - values as text: Python's str() and repr(), and JSON like json.dumps.
 * Brackets and commas of a user's container count as user text, so the output of tojson for it is
 * one span. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja/state.h"

static weir_jinja_origin origin_of(weir_jinja_value v)
{
    const bool user = (weir_jinja_is_list(v) && v.as.list->user) ||
                      (v.kind == WEIR_JINJA_DICT && v.as.dict->user);
    return user ? WEIR_JINJA_USER : WEIR_JINJA_TEMPLATE;
}

/* The origin of the quotes around a string: that of the string. */
static weir_jinja_origin origin_of_string(const weir_jinja_string *string)
{
    size_t end = 0;
    return string->size ? weir_jinja_string_origin(string, 0, &end) : string->origin;
}

void weir_jinja_float_text(char out[32], double value)
{
    char digits[32];
    if (!isfinite(value)) {
        (void)snprintf(out, 32, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 1; /* the shortest text that reads back the same; 17 digits always suffice */
    do (void)snprintf(digits, sizeof digits, "%.*e", precision - 1, value);
    while (strtod(digits, NULL) != value && precision++ < 17);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        char *mark = strchr(digits, 'e'), *last = mark - 1;
        while (*last == '0') last--;
        if (*last == '.') last--;
        (void)snprintf(
            out, 32, "%.*se%c%02d", (int)(last + 1 - digits), digits, exponent < 0 ? '-' : '+',
            abs(exponent)
        );
        return;
    }
    const int decimals = precision - 1 - exponent;
    (void)snprintf(out, 32, "%.*f", decimals > 1 ? decimals : 1, value);
    char *last = out + strlen(out) - 1;
    while (*last == '0' && last[-1] != '.') *last-- = 0;
}

static weir_status print_number(
    weir_jinja_builder *out, weir_jinja_value v, weir_jinja_origin origin
)
{
    char text[32];
    if (v.kind == WEIR_JINJA_INT)
        (void)snprintf(text, sizeof text, "%lld", (long long)v.as.integer);
    else
        weir_jinja_float_text(text, v.as.real);
    return weir_jinja_add_text(out, text, origin);
}

/* ---- repr ------------------------------------------------------------------------------------ */

static const char *simple_escape(uint32_t code, bool json)
{
    switch (code) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\\': return "\\\\";
    case '\b': return json ? "\\b" : NULL;
    case '\f': return json ? "\\f" : NULL;
    case '"': return json ? "\\\"" : NULL;
    default: return NULL;
    }
}

static weir_status repr_string(weir_jinja_builder *out, const weir_jinja_string *string)
{
    const bool single = memchr(string->bytes, '\'', string->size) != NULL,
               twofold = memchr(string->bytes, '"', string->size) != NULL;
    const char *quote = single && !twofold ? "\"" : "'";
    const weir_jinja_origin around = origin_of_string(string);
    WEIR_TRY(weir_jinja_add(out, quote, 1, around));
    for (size_t at = 0, size = 0, end = 0; at < string->size; at += size) {
        char text[16];
        const uint32_t code = weir_jinja_decode(string->bytes + at, string->size - at, &size);
        const weir_jinja_origin origin = weir_jinja_string_origin(string, at, &end);
        const char *escaped = simple_escape(code, false);
        if (code == (unsigned char)*quote) escaped = "\\'";
        if (!escaped && !weir_jinja_printable(code)) {
            (void)snprintf(
                text, sizeof text,
                code < 0x100     ? "\\x%02x"
                : code < 0x10000 ? "\\u%04x"
                                 : "\\U%08x",
                code
            );
            escaped = text;
        }
        if (escaped)
            WEIR_TRY(weir_jinja_add_text(out, escaped, origin));
        else
            WEIR_TRY(weir_jinja_add(out, string->bytes + at, size, origin));
    }
    return weir_jinja_add(out, quote, 1, around);
}

static weir_status repr_list(weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v)
{
    const bool tuple = v.kind == WEIR_JINJA_TUPLE;
    const weir_jinja_origin origin = origin_of(v);
    WEIR_TRY(weir_jinja_add_text(out, tuple ? "(" : "[", origin));
    for (size_t i = 0; i < v.as.list->count; i++) {
        if (i) WEIR_TRY(weir_jinja_add_text(out, ", ", origin));
        WEIR_TRY(weir_jinja_repr(state, out, v.as.list->items[i]));
    }
    return weir_jinja_add_text(out, !tuple ? "]" : v.as.list->count == 1 ? ",)" : ")", origin);
}

static weir_status repr_dict(weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v)
{
    const weir_jinja_origin origin = origin_of(v);
    bool first = true;
    WEIR_TRY(weir_jinja_add_text(out, "{", origin));
    for (size_t i = 0; i < v.as.dict->count; i++) {
        const weir_jinja_entry *entry = &v.as.dict->entries[i];
        if (!entry->live) continue;
        if (!first) WEIR_TRY(weir_jinja_add_text(out, ", ", origin));
        first = false;
        WEIR_TRY(weir_jinja_repr(state, out, entry->key));
        WEIR_TRY(weir_jinja_add_text(out, ": ", origin));
        WEIR_TRY(weir_jinja_repr(state, out, entry->value));
    }
    return weir_jinja_add_text(out, "}", origin);
}

static weir_status repr_value(weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v)
{
    switch (v.kind) {
    case WEIR_JINJA_UNDEFINED: return weir_jinja_add_text(out, "Undefined", WEIR_JINJA_TEMPLATE);
    case WEIR_JINJA_NONE: return weir_jinja_add_text(out, "None", WEIR_JINJA_TEMPLATE);
    case WEIR_JINJA_BOOL:
        return weir_jinja_add_text(out, v.as.boolean ? "True" : "False", WEIR_JINJA_TEMPLATE);
    case WEIR_JINJA_INT:
    case WEIR_JINJA_FLOAT: return print_number(out, v, WEIR_JINJA_TEMPLATE);
    case WEIR_JINJA_STRING: return repr_string(out, v.as.string);
    case WEIR_JINJA_LIST:
    case WEIR_JINJA_TUPLE: return repr_list(state, out, v);
    case WEIR_JINJA_DICT: return repr_dict(state, out, v);
    case WEIR_JINJA_GENERATOR:
    case WEIR_JINJA_NAMESPACE:
    case WEIR_JINJA_MACRO:
    case WEIR_JINJA_FUNCTION:
    case WEIR_JINJA_METHOD:
    case WEIR_JINJA_LOOP: break;
    }
    /* Python would print an address. */
    return weir_jinja_fail(state, "a %s has no text form", weir_jinja_type_name(v));
}

weir_status weir_jinja_repr(weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v)
{
    WEIR_TRY(weir_jinja_enter(state));
    WEIR_TRY(
        weir_jinja_work(state, v.kind == WEIR_JINJA_STRING ? v.as.string->size : 0, WEIR_JINJA_MADE)
    );
    WEIR_TRY(repr_value(state, out, v));
    weir_jinja_leave(state);
    return WEIR_OK;
}

weir_status weir_jinja_print(weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v)
{
    if (v.kind == WEIR_JINJA_UNDEFINED) return WEIR_OK;
    if (v.kind != WEIR_JINJA_STRING) return weir_jinja_repr(state, out, v);
    WEIR_TRY(weir_jinja_step(state, v.as.string->size));
    return weir_jinja_add_string(out, v.as.string);
}

weir_status weir_jinja_to_string(weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    *out = v;
    if (v.kind == WEIR_JINJA_STRING) return WEIR_OK;
    WEIR_TRY(weir_jinja_print(state, &text, v));
    return weir_jinja_builder_finish(&text, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct json_writer {
    weir_jinja_state *state;
    weir_jinja_builder *out;
    const weir_jinja_json_style *style;
    int level;
} json_writer;

static weir_status write_value(json_writer *writer, weir_jinja_value v, weir_jinja_origin around);

static bool must_escape(unsigned char c, bool ascii)
{
    return c < 0x20 || c == '"' || c == '\\' || (ascii && c >= 0x7f);
}

static weir_status write_string(json_writer *writer, const weir_jinja_string *string)
{
    const weir_jinja_origin around = origin_of_string(string);
    WEIR_TRY(weir_jinja_work(writer->state, string->size, WEIR_JINJA_READ));
    WEIR_TRY(weir_jinja_add(writer->out, "\"", 1, around));
    for (size_t at = 0, end = 0, size = 0; at < string->size;) {
        size_t run = at;
        while (run < string->size &&
               !must_escape((unsigned char)string->bytes[run], writer->style->ascii))
            run++;
        WEIR_TRY(weir_jinja_add_part(writer->out, string, at, run - at));
        if (run == string->size) break;
        char text[16];
        WEIR_TRY(weir_jinja_step(writer->state, 0));
        const uint32_t code = weir_jinja_decode(string->bytes + run, string->size - run, &size);
        const char *escaped = simple_escape(code, true);
        if (!escaped && code >= 0x10000)
            (void)snprintf(
                text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                0xdc00 + ((code - 0x10000) & 0x3ff)
            );
        else if (!escaped)
            (void)snprintf(text, sizeof text, "\\u%04x", code);
        WEIR_TRY(weir_jinja_add_text(
            writer->out, escaped ? escaped : text, weir_jinja_string_origin(string, run, &end)
        ));
        at = run + size;
    }
    return weir_jinja_add(writer->out, "\"", 1, around);
}

static weir_status new_line(json_writer *writer, weir_jinja_origin origin)
{
    if (!writer->style->indent) return WEIR_OK;
    WEIR_TRY(weir_jinja_work(writer->state, (size_t)writer->level, WEIR_JINJA_MADE));
    WEIR_TRY(weir_jinja_add(writer->out, "\n", 1, origin));
    for (int i = 0; i < writer->level; i++)
        WEIR_TRY(weir_jinja_add_text(writer->out, writer->style->indent, origin));
    return WEIR_OK;
}

static weir_status write_list(
    json_writer *writer, const weir_jinja_list *list, weir_jinja_origin origin
)
{
    if (list->count == 0) return weir_jinja_add_text(writer->out, "[]", origin);
    WEIR_TRY(weir_jinja_add_text(writer->out, "[", origin));
    writer->level++;
    for (size_t i = 0; i < list->count; i++) {
        if (i) WEIR_TRY(weir_jinja_add_text(writer->out, writer->style->item, origin));
        WEIR_TRY(new_line(writer, origin));
        WEIR_TRY(write_value(writer, list->items[i], origin));
    }
    writer->level--;
    WEIR_TRY(new_line(writer, origin));
    return weir_jinja_add_text(writer->out, "]", origin);
}

static weir_status write_key(json_writer *writer, weir_jinja_value key, weir_jinja_origin origin)
{
    if (key.kind == WEIR_JINJA_STRING) return write_string(writer, key.as.string);
    if (key.kind != WEIR_JINJA_NONE && !weir_jinja_is_number(key))
        return weir_jinja_fail(
            writer->state, "keys of JSON must be strings, not %s", weir_jinja_type_name(key)
        );
    WEIR_TRY(weir_jinja_add(writer->out, "\"", 1, origin));
    WEIR_TRY(write_value(writer, key, origin));
    return weir_jinja_add(writer->out, "\"", 1, origin);
}

static int by_key(const void *a, const void *b)
{
    const weir_jinja_entry *const *x = a, *const *y = b;
    int order = 0;
    int64_t unbounded = INT64_MAX; /* keys are flat */
    (void)weir_jinja_compare(&order, (*x)->key, (*y)->key, &unbounded);
    return order;
}

/* Charges about log2(n) comparisons for each key. */
static weir_status pay_for_order(weir_jinja_state *state, weir_jinja_entry *const *order, size_t n)
{
    for (size_t rest = n; rest > 0; rest /= 2)
        for (size_t i = 0; i < n; i++) WEIR_TRY(weir_jinja_look(state, order[i]->key));
    return WEIR_OK;
}

static weir_status write_dict(
    json_writer *writer, const weir_jinja_dict *dict, weir_jinja_origin origin
)
{
    weir_jinja_entry **order = NULL;
    size_t count = 0;
    if (dict->live == 0) return weir_jinja_add_text(writer->out, "{}", origin);
    WEIR_TRY(weir_jinja_alloc(writer->state->arena, &order, dict->live * sizeof *order));
    for (size_t i = 0; i < dict->count; i++)
        if (dict->entries[i].live) order[count++] = &dict->entries[i];
    if (writer->style->sorted) WEIR_TRY(pay_for_order(writer->state, order, count));
    if (writer->style->sorted) /* Keys are unique, so stability does not matter. */
        qsort(order, count, sizeof *order, by_key);
    WEIR_TRY(weir_jinja_add_text(writer->out, "{", origin));
    writer->level++;
    for (size_t i = 0; i < count; i++) {
        if (i) WEIR_TRY(weir_jinja_add_text(writer->out, writer->style->item, origin));
        WEIR_TRY(new_line(writer, origin));
        WEIR_TRY(write_key(writer, order[i]->key, origin));
        WEIR_TRY(weir_jinja_add_text(writer->out, writer->style->key, origin));
        WEIR_TRY(write_value(writer, order[i]->value, origin));
    }
    writer->level--;
    WEIR_TRY(new_line(writer, origin));
    return weir_jinja_add_text(writer->out, "}", origin);
}

static weir_status write_scalar(json_writer *writer, weir_jinja_value v, weir_jinja_origin origin)
{
    if (v.kind == WEIR_JINJA_NONE) return weir_jinja_add_text(writer->out, "null", origin);
    if (v.kind == WEIR_JINJA_BOOL)
        return weir_jinja_add_text(writer->out, v.as.boolean ? "true" : "false", origin);
    if (v.kind == WEIR_JINJA_FLOAT && !isfinite(v.as.real))
        return weir_jinja_add_text(
            writer->out,
            isnan(v.as.real) ? "NaN"
            : v.as.real > 0  ? "Infinity"
                             : "-Infinity",
            origin
        );
    if (weir_jinja_is_number(v)) return print_number(writer->out, v, origin);
    return weir_jinja_fail(
        writer->state, "object of type %s is not JSON serializable", weir_jinja_type_name(v)
    );
}

/* `around`: the origin of the container, used for its numbers. */
static weir_status write_value(json_writer *writer, weir_jinja_value v, weir_jinja_origin around)
{
    WEIR_TRY(weir_jinja_step(writer->state, 0));
    if (v.kind == WEIR_JINJA_STRING) return write_string(writer, v.as.string);
    const bool list = v.kind == WEIR_JINJA_LIST || v.kind == WEIR_JINJA_TUPLE;
    if (!list && v.kind != WEIR_JINJA_DICT) return write_scalar(writer, v, around);
    WEIR_TRY(weir_jinja_enter(writer->state));
    WEIR_TRY(
        list ? write_list(writer, v.as.list, origin_of(v))
             : write_dict(writer, v.as.dict, origin_of(v))
    );
    weir_jinja_leave(writer->state);
    return WEIR_OK;
}

weir_status weir_jinja_json(
    weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v,
    const weir_jinja_json_style *style
)
{
    json_writer writer = { .state = state, .out = out, .style = style };
    return write_value(&writer, v, WEIR_JINJA_TEMPLATE);
}
