/* engine/text/jinja/operators.c - arithmetic and comparison as in Python. Integers have 64 bits; an
 * overflow is an error. */
#include <math.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/state.h"

weir_status weir_jinja_escape(weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v)
{
    WEIR_TRY(weir_jinja_to_string(state, &v, v));
    const weir_jinja_string *string = v.as.string;
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    *out = v;
    if (string->markup) return WEIR_OK;
    WEIR_TRY(weir_jinja_work(state, string->size, WEIR_JINJA_READ));
    for (size_t at = 0, run = 0, end = 0; at <= string->size; at++) {
        const char c = at < string->size ? string->bytes[at] : 0;
        const char *entity = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '\'' ? "&#39;"
                             : c == '"'  ? "&#34;"
                                         : NULL;
        if (!entity && at < string->size) continue;
        WEIR_TRY(weir_jinja_add_part(&text, string, run, at - run));
        if (entity)
            WEIR_TRY(weir_jinja_add_text(&text, entity, weir_jinja_string_origin(string, at, &end))
            );
        run = at + 1;
    }
    WEIR_TRY(weir_jinja_builder_finish(&text, out));
    out->as.string->markup = true;
    return WEIR_OK;
}

static weir_status unsupported(
    weir_jinja_state *state, const char *operation, weir_jinja_value a, weir_jinja_value b
)
{
    if (a.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(state, a);
    if (b.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(state, b);
    return weir_jinja_fail(
        state, "unsupported operand types for %s: '%s' and '%s'", operation,
        weir_jinja_type_name(a), weir_jinja_type_name(b)
    );
}

static weir_status overflow(weir_jinja_state *state)
{
    return weir_jinja_fail(state, "a number is out of range: it does not fit into 64 bits");
}

static weir_status add_strings(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value a, weir_jinja_value b
)
{
    const bool markup = a.as.string->markup || b.as.string->markup;
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    if (markup) {
        WEIR_TRY(weir_jinja_escape(state, &a, a));
        WEIR_TRY(weir_jinja_escape(state, &b, b));
    }
    WEIR_TRY(weir_jinja_step(state, a.as.string->size + b.as.string->size));
    WEIR_TRY(weir_jinja_grow(
        state->arena, &text.bytes, &text.capacity, 0, a.as.string->size + b.as.string->size, 1
    ));
    WEIR_TRY(weir_jinja_add_string(&text, a.as.string));
    WEIR_TRY(weir_jinja_add_string(&text, b.as.string));
    WEIR_TRY(weir_jinja_builder_finish(&text, out));
    out->as.string->markup = markup;
    return WEIR_OK;
}

static weir_status add_lists(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value a, weir_jinja_value b
)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_step(state, (a.as.list->count + b.as.list->count) * sizeof a));
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, a.as.list->count + b.as.list->count));
    for (size_t i = 0; i < a.as.list->count; i++) list->items[list->count++] = a.as.list->items[i];
    for (size_t i = 0; i < b.as.list->count; i++) list->items[list->count++] = b.as.list->items[i];
    *out = (weir_jinja_value){ .kind = a.kind, .as.list = list };
    return WEIR_OK;
}

/* "ab" * 3, [1] * 3. The builder's limit and the steps bound the result. */
static weir_status repeat(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v, int64_t times
)
{
    if (times < 0) times = 0;
    if (v.kind == WEIR_JINJA_STRING) {
        weir_jinja_builder text = weir_jinja_builder_new(state->arena);
        for (int64_t i = 0; i < times && v.as.string->size; i++) {
            WEIR_TRY(weir_jinja_step(state, v.as.string->size));
            WEIR_TRY(weir_jinja_add_string(&text, v.as.string));
        }
        WEIR_TRY(weir_jinja_builder_finish(&text, out));
        out->as.string->markup = v.as.string->markup;
        return WEIR_OK;
    }
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, 0));
    for (int64_t i = 0; i < times && v.as.list->count; i++) {
        WEIR_TRY(weir_jinja_step(state, v.as.list->count * sizeof v));
        for (size_t k = 0; k < v.as.list->count; k++)
            WEIR_TRY(weir_jinja_list_add(state->arena, list, v.as.list->items[k]));
    }
    *out = (weir_jinja_value){ .kind = v.kind, .as.list = list };
    return WEIR_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static weir_status power(
    weir_jinja_state *state, weir_jinja_value *out, int64_t base, int64_t exponent
)
{
    int64_t result = 1;
    if (exponent < 0) {
        *out = weir_jinja_float(pow((double)base, (double)exponent));
        return WEIR_OK;
    }
    for (bool fits = true; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && (!fits || !weir_mul_i64(&result, result, base)))
            return overflow(state);
        fits = fits && weir_mul_i64(&base, base, base);
    }
    *out = weir_jinja_int(result);
    return WEIR_OK;
}

static weir_status integers(
    weir_jinja_state *state, weir_jinja_value *out, int operation, int64_t a, int64_t b
)
{
    int64_t result = 0;
    if (operation == '+' && !weir_add_i64(&result, a, b)) return overflow(state);
    if (operation == '-' && __builtin_sub_overflow(a, b, &result)) return overflow(state);
    if (operation == '*' && !weir_mul_i64(&result, a, b)) return overflow(state);
    if (operation == WEIR_JINJA_OP('*', '*')) return power(state, out, a, b);
    if (operation == '/' || operation == '%' || operation == WEIR_JINJA_OP('/', '/')) {
        if (b == 0) return weir_jinja_fail(state, "division by zero");
        if (operation == '/') {
            *out = weir_jinja_float((double)a / (double)b);
            return WEIR_OK;
        }
        if (a == INT64_MIN && b == -1) {
            if (operation != '%') return overflow(state);
        } else {
            /* Python rounds towards minus infinity. */
            const bool floors = a % b != 0 && (a < 0) != (b < 0);
            result = operation == '%' ? a % b + (floors ? b : 0) : a / b - floors;
        }
    }
    *out = weir_jinja_int(result);
    return WEIR_OK;
}

static weir_status floats(
    weir_jinja_state *state, weir_jinja_value *out, int operation, double a, double b
)
{
    double result = 0;
    if (operation == '+') result = a + b;
    if (operation == '-') result = a - b;
    if (operation == '*') result = a * b;
    if (operation == WEIR_JINJA_OP('*', '*')) result = pow(a, b);
    if (operation == '/' || operation == '%' || operation == WEIR_JINJA_OP('/', '/')) {
        if (b == 0) return weir_jinja_fail(state, "division by zero");
        double rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
        result = operation == '/' ? a / b : operation == '%' ? rest : floor((a - rest) / b + 0.5);
    }
    *out = weir_jinja_float(result);
    return WEIR_OK;
}

weir_status weir_jinja_binary(
    weir_jinja_state *state, weir_jinja_value *out, int operation, weir_jinja_value a,
    weir_jinja_value b
)
{
    const char name[] = { (char)(operation & 0xff), (char)(operation >> 8), 0 };
    if (weir_jinja_is_integer(a) && weir_jinja_is_integer(b))
        return integers(state, out, operation, weir_jinja_as_int(a), weir_jinja_as_int(b));
    if (weir_jinja_is_number(a) && weir_jinja_is_number(b))
        return floats(state, out, operation, weir_jinja_as_float(a), weir_jinja_as_float(b));
    if (operation == '%' && a.kind == WEIR_JINJA_STRING)
        return weir_jinja_format(state, out, a.as.string, b);
    if (operation == '+' && a.kind == WEIR_JINJA_STRING && b.kind == WEIR_JINJA_STRING)
        return add_strings(state, out, a, b);
    const bool sequence_a = a.kind == WEIR_JINJA_LIST || a.kind == WEIR_JINJA_TUPLE,
               sequence_b = b.kind == WEIR_JINJA_LIST || b.kind == WEIR_JINJA_TUPLE;
    if (operation == '+' && sequence_a && a.kind == b.kind) return add_lists(state, out, a, b);
    if (operation == '*' && (sequence_a || a.kind == WEIR_JINJA_STRING) && weir_jinja_is_integer(b))
        return repeat(state, out, a, weir_jinja_as_int(b));
    if (operation == '*' && (sequence_b || b.kind == WEIR_JINJA_STRING) && weir_jinja_is_integer(a))
        return repeat(state, out, b, weir_jinja_as_int(a));
    return unsupported(state, name, a, b);
}

weir_status weir_jinja_unary(
    weir_jinja_state *state, weir_jinja_value *out, int operation, weir_jinja_value v
)
{
    const char name[] = { (char)operation, 0 };
    if (v.kind == WEIR_JINJA_FLOAT)
        *out = weir_jinja_float(operation == '-' ? -v.as.real : v.as.real);
    else if (!weir_jinja_is_integer(v))
        return unsupported(state, name, v, v);
    else if (operation == '-' && weir_jinja_as_int(v) == INT64_MIN)
        return overflow(state);
    else
        *out = weir_jinja_int(operation == '-' ? -weir_jinja_as_int(v) : weir_jinja_as_int(v));
    return WEIR_OK;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Upper bound of the cost of comparing two values: bytes of strings, items of lists. */
static size_t cost(weir_jinja_value v)
{
    return v.kind == WEIR_JINJA_STRING ? v.as.string->size
           : weir_jinja_is_list(v)     ? v.as.list->count * 32
           : v.kind == WEIR_JINJA_DICT ? v.as.dict->count * 64
                                       : 0;
}

static weir_status contains(
    weir_jinja_state *state, bool *out, weir_jinja_value item, weir_jinja_value in
)
{
    weir_jinja_list *items = NULL;
    WEIR_TRY(weir_jinja_step(state, cost(in)));
    if (in.kind == WEIR_JINJA_STRING) {
        if (item.kind != WEIR_JINJA_STRING) return unsupported(state, "in", item, in);
        WEIR_TRY(weir_jinja_work(state, in.as.string->size, WEIR_JINJA_SEARCHED));
        *out = weir_jinja_find(in.as.string, 0, item.as.string) != SIZE_MAX;
        return WEIR_OK;
    }
    if (in.kind == WEIR_JINJA_DICT) {
        if (!weir_jinja_hashable(item))
            return weir_jinja_fail(state, "unhashable type: '%s'", weir_jinja_type_name(item));
        WEIR_TRY(weir_jinja_look(state, item));
        *out = weir_jinja_dict_find(in.as.dict, item) != NULL;
        return WEIR_OK;
    }
    if (!weir_jinja_iterable(in))
        return weir_jinja_fail(
            state, "argument of type '%s' is not iterable", weir_jinja_type_name(in)
        );
    WEIR_TRY(weir_jinja_items(state, &items, in));
    *out = false;
    for (size_t i = 0; i < items->count && !*out; i++)
        *out = weir_jinja_equal(items->items[i], item, &state->steps_left);
    return WEIR_OK;
}

weir_status weir_jinja_relation(
    weir_jinja_state *state, bool *out, int operation, weir_jinja_value a, weir_jinja_value b
)
{
    int order = 0;
    if (operation == 'i' || operation == 'n') {
        WEIR_TRY(contains(state, out, a, b));
        *out = *out == (operation == 'i');
        return WEIR_OK;
    }
    const size_t cost_a = cost(a), cost_b = cost(b);
    WEIR_TRY(weir_jinja_step(state, cost_a < cost_b ? cost_a : cost_b));
    if (operation == WEIR_JINJA_OP('=', '=') || operation == WEIR_JINJA_OP('!', '=')) {
        *out = weir_jinja_equal(a, b, &state->steps_left) == (operation == WEIR_JINJA_OP('=', '='));
        return WEIR_OK;
    }
    const bool nan = (a.kind == WEIR_JINJA_FLOAT && isnan(a.as.real)) ||
                     (b.kind == WEIR_JINJA_FLOAT && isnan(b.as.real));
    if (!weir_jinja_compare(&order, a, b, &state->steps_left))
        return unsupported(state, "comparison", a, b);
    if (operation == '<')
        *out = order < 0;
    else if (operation == '>')
        *out = order > 0;
    else if (operation == WEIR_JINJA_OP('<', '='))
        *out = order <= 0;
    else
        *out = order >= 0;
    *out = *out && !nan;
    return WEIR_OK;
}
