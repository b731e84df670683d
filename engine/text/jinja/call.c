/* engine/text/jinja/call.c - calls: functions available to templates, macros, methods, recursive
 * loops. */
#include <string.h>
#include <time.h>

#include "engine/text/jinja/state.h"

enum { RANGE_LIMIT = 100000 };
typedef enum function {
    FUNCTION_NAMESPACE,
    FUNCTION_RAISE,
    FUNCTION_RANGE,
    FUNCTION_DICT,
    FUNCTION_STRFTIME_NOW,
    FUNCTION_COUNT
} function;
static const char *const function_names[FUNCTION_COUNT] = { "namespace", "raise_exception", "range",
                                                            "dict", "strftime_now" };

weir_status weir_jinja_define_functions(weir_jinja_state *state, weir_jinja_scope *scope)
{
    for (int i = 0; i < FUNCTION_COUNT; i++)
        WEIR_TRY(weir_jinja_scope_set(
            state, scope, function_names[i],
            (weir_jinja_value){ .kind = WEIR_JINJA_FUNCTION, .as.function = i }
        ));
    return WEIR_OK;
}

/* Index of `name` in the list "a b c"; -1: not found. */
static int place_of(const char *names, const weir_jinja_string *name)
{
    int place = 0;
    for (const char *at = names; *at; place++) {
        const size_t size = strcspn(at, " ");
        if (size == name->size && memcmp(at, name->bytes, size) == 0) return place;
        at += size + (at[size] == ' ');
    }
    return -1;
}

weir_status weir_jinja_bind(
    weir_jinja_state *state, const char *what, const char *names, weir_jinja_value *values,
    unsigned *given, const weir_jinja_arguments *arguments
)
{
    size_t count = *names != 0;
    for (const char *at = names; *at; at++) count += *at == ' ';
    if (arguments->count > count)
        return weir_jinja_fail(state, "%s takes not more than %zu argument(s)", what, count);
    *given = 0;
    for (size_t i = 0; i < arguments->count; i++) {
        values[i] = arguments->items[i];
        *given |= 1u << i;
    }
    for (size_t i = 0; i < arguments->n_named; i++) {
        const int place = place_of(names, arguments->names[i]);
        if (place < 0)
            return weir_jinja_fail(
                state, "%s has no argument '%.60s'", what, arguments->names[i]->bytes
            );
        if (*given >> place & 1)
            return weir_jinja_fail(state, "%s got '%.60s' twice", what, arguments->names[i]->bytes);
        values[place] = arguments->named[i];
        *given |= 1u << place;
    }
    return WEIR_OK;
}

/* dict(...) and namespace(...): takes a mapping or pairs, then named arguments. */
static weir_status make_mapping(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_kind kind,
    const weir_jinja_arguments *arguments
)
{
    weir_jinja_dict *dict = NULL;
    WEIR_TRY(weir_jinja_dict_new(state->arena, &dict));
    if (arguments->count > 1)
        return weir_jinja_fail(state, "dict and namespace take one positional argument");
    if (arguments->count == 1) {
        const weir_jinja_value from = arguments->items[0];
        weir_jinja_list *items = NULL;
        WEIR_TRY(weir_jinja_items(state, &items, from));
        for (size_t i = 0; i < items->count; i++) {
            weir_jinja_value key = items->items[i], value;
            if (from.kind == WEIR_JINJA_DICT)
                value = weir_jinja_dict_find(from.as.dict, key)->value;
            else {
                weir_jinja_list *pair = NULL;
                WEIR_TRY(weir_jinja_items(state, &pair, items->items[i]));
                if (pair->count != 2)
                    return weir_jinja_fail(state, "a dictionary is made of pairs");
                key = pair->items[0];
                value = pair->items[1];
            }
            if (!weir_jinja_hashable(key))
                return weir_jinja_fail(state, "unhashable type: '%s'", weir_jinja_type_name(key));
            WEIR_TRY(weir_jinja_look(state, key));
            WEIR_TRY(weir_jinja_dict_set(state->arena, dict, key, value));
        }
    }
    for (size_t i = 0; i < arguments->n_named; i++)
        WEIR_TRY(weir_jinja_dict_set(
            state->arena, dict, weir_jinja_from_string(arguments->names[i]), arguments->named[i]
        ));
    *out = (weir_jinja_value){ .kind = kind, .as.dict = dict };
    return WEIR_OK;
}

static weir_status make_range(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_arguments *arguments
)
{
    int64_t bounds[3] = { 0, 0, 1 };
    if (arguments->n_named || arguments->count < 1 || arguments->count > 3)
        return weir_jinja_fail(state, "range takes one to three arguments");
    for (size_t i = 0; i < arguments->count; i++) {
        if (arguments->items[i].kind == WEIR_JINJA_UNDEFINED)
            return weir_jinja_fail_undefined(state, arguments->items[i]);
        if (!weir_jinja_is_integer(arguments->items[i]))
            return weir_jinja_fail(state, "range needs integers");
        bounds[arguments->count == 1 ? 1 : i] = weir_jinja_as_int(arguments->items[i]);
    }
    const int64_t step = bounds[2];
    if (step == 0 || step == INT64_MIN)
        return weir_jinja_fail(state, "the step of range must not be zero");
    const uint64_t distance =
        step > 0 ? (bounds[1] > bounds[0] ? (uint64_t)bounds[1] - (uint64_t)bounds[0] : 0)
                 : (bounds[0] > bounds[1] ? (uint64_t)bounds[0] - (uint64_t)bounds[1] : 0);
    const uint64_t count = distance ? (distance - 1) / (uint64_t)(step > 0 ? step : -step) + 1 : 0;
    weir_jinja_list *list = NULL;
    if (count > RANGE_LIMIT)
        return weir_error_set(
            state->error, WEIR_EFULL, "chat template, line %d: range of more than %d numbers",
            state->line, RANGE_LIMIT
        );
    WEIR_TRY(weir_jinja_step(state, count * sizeof(weir_jinja_value)));
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, count));
    for (; list->count < count; list->count++)
        list->items[list->count] = weir_jinja_int(bounds[0] + (int64_t)list->count * step);
    *out = (weir_jinja_value){ .kind = WEIR_JINJA_LIST, .as.list = list };
    return WEIR_OK;
}

static weir_status raise_exception(weir_jinja_state *state, const weir_jinja_arguments *arguments)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    if (arguments->count + arguments->n_named != 1)
        return weir_jinja_fail(state, "raise_exception takes one argument");
    WEIR_TRY(
        weir_jinja_print(state, &text, arguments->count ? arguments->items[0] : arguments->named[0])
    );
    return weir_error_set(
        state->error, WEIR_EINVAL, "%.*s", (int)(text.size < 900 ? text.size : 900),
        text.size ? text.bytes : ""
    );
}

static weir_status strftime_now(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_arguments *arguments
)
{
    char text[1024], format[256];
    struct tm parts;
    const time_t seconds = (time_t)state->now;
    if (arguments->count != 1 || arguments->items[0].kind != WEIR_JINJA_STRING)
        return weir_jinja_fail(state, "strftime_now needs a format");
    const weir_jinja_string *string = arguments->items[0].as.string;
    if (string->size >= sizeof format || memchr(string->bytes, 0, string->size))
        return weir_jinja_fail(state, "the time format is too long");
    if (string->size) memcpy(format, string->bytes, string->size);
    format[string->size] = 0;
    if (!gmtime_r(&seconds, &parts)) return weir_jinja_fail(state, "the time is out of range");
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
    const size_t size = strftime(text, sizeof text, format, &parts);
#pragma clang diagnostic pop
    return weir_jinja_string_copy(state->arena, out, text, size, WEIR_JINJA_TEMPLATE);
}

/* loop(items) inside a recursive loop: renders the loop over these items. */
static weir_status call_loop(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_loop *loop,
    const weir_jinja_arguments *arguments
)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena), *outer = state->out;
    if (!(loop->node->operation & WEIR_JINJA_RECURSIVE))
        return weir_jinja_fail(state, "this loop is not marked as recursive");
    if (arguments->count != 1 || arguments->n_named)
        return weir_jinja_fail(state, "loop takes one argument");
    state->out = &text;
    WEIR_TRY(
        weir_jinja_loop_run(state, loop->node, arguments->items[0], loop->outer, loop->depth + 1)
    );
    state->out = outer;
    return weir_jinja_builder_finish(&text, out);
}

static weir_status call_function(
    weir_jinja_state *state, weir_jinja_value *out, int called,
    const weir_jinja_arguments *arguments
)
{
    switch ((function)called) {
    case FUNCTION_NAMESPACE: return make_mapping(state, out, WEIR_JINJA_NAMESPACE, arguments);
    case FUNCTION_DICT: return make_mapping(state, out, WEIR_JINJA_DICT, arguments);
    case FUNCTION_RAISE: return raise_exception(state, arguments);
    case FUNCTION_RANGE: return make_range(state, out, arguments);
    case FUNCTION_STRFTIME_NOW: return strftime_now(state, out, arguments);
    case FUNCTION_COUNT: break;
    }
    return weir_jinja_fail(state, "no such function");
}

weir_status weir_jinja_call(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value callee,
    const weir_jinja_arguments *arguments
)
{
    if (callee.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(state, callee);
    if (callee.kind == WEIR_JINJA_MACRO)
        return weir_jinja_call_macro(state, out, callee.as.macro, arguments);
    if (callee.kind == WEIR_JINJA_METHOD)
        return weir_jinja_call_method(state, out, callee.as.bound, arguments);
    if (callee.kind == WEIR_JINJA_FUNCTION)
        return call_function(state, out, callee.as.function, arguments);
    if (callee.kind == WEIR_JINJA_LOOP) return call_loop(state, out, callee.as.loop, arguments);
    return weir_jinja_fail(state, "'%s' object is not callable", weir_jinja_type_name(callee));
}
