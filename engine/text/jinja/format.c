/* engine/text/jinja/format.c - "..." % values, like Python: flags, width, precision; conversions s
 * r d i x X o f F e E g G c %. */
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja/state.h"

enum { FIELD_LIMIT = 10000 };

typedef struct formatter {
    weir_jinja_state *state;
    const weir_jinja_string *format;
    size_t at;
    weir_jinja_value values;
    size_t next; /* index into a tuple */
    weir_jinja_builder text;
} formatter;

typedef struct field {
    bool left, plus, space, zero, alternate;
    int width, precision; /* precision -1: none */
    char kind;
} field;

static weir_status take(formatter *f, weir_jinja_value *out)
{
    const bool tuple = f->values.kind == WEIR_JINJA_TUPLE;
    const size_t count = tuple ? f->values.as.list->count : 1;
    if (f->next >= count)
        return weir_jinja_fail(f->state, "not enough arguments for format string");
    *out = tuple ? f->values.as.list->items[f->next] : f->values;
    f->next++;
    return WEIR_OK;
}

static char peek(const formatter *f)
{
    return f->at < f->format->size ? f->format->bytes[f->at] : 0;
}

static weir_status read_number(formatter *f, int *out)
{
    weir_jinja_value v;
    *out = 0;
    if (peek(f) == '*') {
        f->at++;
        WEIR_TRY(take(f, &v));
        if (!weir_jinja_is_integer(v)) return weir_jinja_fail(f->state, "* needs an integer");
        if (weir_jinja_as_int(v) < 0 || weir_jinja_as_int(v) > FIELD_LIMIT)
            return weir_jinja_fail(f->state, "a format is too wide");
        *out = (int)weir_jinja_as_int(v);
        return WEIR_OK;
    }
    for (; peek(f) >= '0' && peek(f) <= '9'; f->at++) {
        *out = *out * 10 + (peek(f) - '0');
        if (*out > FIELD_LIMIT) return weir_jinja_fail(f->state, "a format is too wide");
    }
    return WEIR_OK;
}

static weir_status read_field(formatter *f, field *out, weir_jinja_value *named)
{
    *out = (field){ .precision = -1 };
    if (peek(f) == '(') {
        const char *close = memchr(f->format->bytes + f->at, ')', f->format->size - f->at);
        if (!close || f->values.kind != WEIR_JINJA_DICT)
            return weir_jinja_fail(f->state, "format requires a mapping");
        const size_t begin = f->at + 1, end = (size_t)(close - f->format->bytes);
        WEIR_TRY(weir_jinja_work(f->state, end - begin, WEIR_JINJA_MOVED));
        const weir_jinja_entry *entry =
            weir_jinja_dict_find_text(f->values.as.dict, f->format->bytes + begin, end - begin);
        if (!entry) return weir_jinja_fail(f->state, "a key of the format is missing");
        *named = entry->value;
        f->at = end + 1;
    }
    for (;; f->at++) {
        const char c = peek(f);
        if (c == '-')
            out->left = true;
        else if (c == '+')
            out->plus = true;
        else if (c == ' ')
            out->space = true;
        else if (c == '0')
            out->zero = true;
        else if (c == '#')
            out->alternate = true;
        else
            break;
    }
    WEIR_TRY(read_number(f, &out->width));
    if (peek(f) == '.') {
        f->at++;
        WEIR_TRY(read_number(f, &out->precision));
    }
    while (peek(f) == 'l' || peek(f) == 'h' || peek(f) == 'L') f->at++;
    out->kind = peek(f);
    if (!out->kind) return weir_jinja_fail(f->state, "incomplete format");
    f->at++;
    return WEIR_OK;
}

static weir_status pad(formatter *f, const field *field, weir_jinja_string *body)
{
    const size_t count = weir_jinja_string_count(body), width = (size_t)field->width;
    const size_t padding = count < width ? width - count : 0;
    WEIR_TRY(weir_jinja_work(f->state, padding, WEIR_JINJA_READ));
    if (field->left) WEIR_TRY(weir_jinja_add_string(&f->text, body));
    for (size_t i = 0; i < padding; i++)
        WEIR_TRY(weir_jinja_add(&f->text, " ", 1, WEIR_JINJA_TEMPLATE));
    return field->left ? WEIR_OK : weir_jinja_add_string(&f->text, body);
}

static weir_status format_text(formatter *f, const field *field, weir_jinja_value v)
{
    weir_jinja_value body;
    weir_jinja_builder text = weir_jinja_builder_new(f->state->arena);
    if (field->kind == 'c' && weir_jinja_is_integer(v)) {
        const int64_t code = weir_jinja_as_int(v);
        if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return weir_jinja_fail(f->state, "%%c needs a code point");
        WEIR_TRY(weir_jinja_add_code(&text, (uint32_t)code, WEIR_JINJA_TEMPLATE));
    } else if (field->kind == 'c' &&
               (v.kind != WEIR_JINJA_STRING || weir_jinja_string_count(v.as.string) != 1)) {
        return weir_jinja_fail(f->state, "%%c needs an integer or one character");
    } else if (field->kind == 's' || field->kind == 'c')
        WEIR_TRY(weir_jinja_print(f->state, &text, v));
    else
        WEIR_TRY(weir_jinja_repr(f->state, &text, v));
    WEIR_TRY(weir_jinja_builder_finish(&text, &body));
    if (field->precision >= 0 && field->kind != 'c')
        WEIR_TRY(weir_jinja_substring(
            f->state->arena, &body, body.as.string, 0,
            weir_jinja_string_offset(body.as.string, (size_t)field->precision)
        ));
    return pad(f, field, body.as.string);
}

static weir_status format_number(formatter *f, const field *field, weir_jinja_value v)
{
    char spec[16], *at = spec;
    char *out = NULL;
    const bool whole = strchr("dixXo", field->kind) != NULL;
    if (!weir_jinja_is_number(v))
        return weir_jinja_fail(
            f->state, "%%%c format: a number is required, not %s", field->kind,
            weir_jinja_type_name(v)
        );
    if (whole && v.kind == WEIR_JINJA_FLOAT) {
        if (field->kind != 'd' && field->kind != 'i')
            return weir_jinja_fail(f->state, "%%%c format: an integer is required", field->kind);
        if (!(v.as.real > -9.2e18 && v.as.real < 9.2e18))
            return weir_jinja_fail(f->state, "a number does not fit into 64 bits");
        v = weir_jinja_int((int64_t)v.as.real);
    }
    if (whole && field->kind != 'd' && field->kind != 'i' && weir_jinja_as_int(v) < 0)
        return weir_jinja_fail(f->state, "%%%c of a negative number", field->kind);
    *at++ = '%';
    if (field->left) *at++ = '-';
    if (field->plus) *at++ = '+';
    if (field->space) *at++ = ' ';
    if (field->zero) *at++ = '0';
    if (field->alternate) *at++ = '#';
    memcpy(at, whole ? "*.*ll" : "*.*", whole ? 6 : 4);
    at += strlen(at);
    *at++ = field->kind;
    *at = 0;
    const size_t capacity =
        (size_t)field->width + (size_t)(field->precision > 0 ? field->precision : 0) + 400;
    WEIR_TRY(weir_jinja_work(f->state, capacity, WEIR_JINJA_READ));
    WEIR_TRY(weir_jinja_alloc(f->state->arena, &out, capacity));
#pragma clang diagnostic push
/* The format was built above from known letters. */
#pragma clang diagnostic ignored "-Wformat-nonliteral"
    if (whole)
        (void)snprintf(
            out, capacity, spec, field->width, field->precision, (long long)weir_jinja_as_int(v)
        );
    else
        (void)snprintf(out, capacity, spec, field->width, field->precision, weir_jinja_as_float(v));
#pragma clang diagnostic pop
    return weir_jinja_add_text(&f->text, out, WEIR_JINJA_TEMPLATE);
}

static weir_status format_field(formatter *f)
{
    field field;
    weir_jinja_value v = weir_jinja_undefined(NULL);
    const size_t before = f->at;
    WEIR_TRY(read_field(f, &field, &v));
    if (field.kind == '%') return weir_jinja_add(&f->text, "%", 1, WEIR_JINJA_TEMPLATE);
    if (f->format->bytes[before] != '(') WEIR_TRY(take(f, &v));
    if (strchr("src", field.kind) || field.kind == 'a') return format_text(f, &field, v);
    if (v.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(f->state, v);
    if (strchr("diuxXofFeEgG", field.kind)) {
        if (field.kind == 'u') field.kind = 'd';
        return format_number(f, &field, v);
    }
    return weir_jinja_fail(f->state, "unsupported format character");
}

weir_status weir_jinja_format(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *format,
    weir_jinja_value v
)
{
    formatter f = {
        .state = state, .format = format, .values = v, .text = weir_jinja_builder_new(state->arena)
    };
    while (f.at < format->size) {
        const char *mark = memchr(format->bytes + f.at, '%', format->size - f.at);
        const size_t end = mark ? (size_t)(mark - format->bytes) : format->size;
        WEIR_TRY(weir_jinja_step(state, end - f.at));
        WEIR_TRY(weir_jinja_add_part(&f.text, format, f.at, end - f.at));
        f.at = end + 1;
        if (mark) WEIR_TRY(format_field(&f));
    }
    const bool all_used = v.kind == WEIR_JINJA_TUPLE ? f.next == v.as.list->count
                                                     : f.next > 0 || v.kind == WEIR_JINJA_DICT ||
                                                           v.kind == WEIR_JINJA_LIST;
    if (!all_used)
        return weir_jinja_fail(state, "not all arguments converted during string formatting");
    WEIR_TRY(weir_jinja_builder_finish(&f.text, out));
    out->as.string->markup = format->markup;
    return WEIR_OK;
}
