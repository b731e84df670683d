/* engine/text/jinja/tests.c - "x is name". */
#include <string.h>

#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/state.h"

/* Tests that need only the value; -1: no test of this name. */
static int kind_test(const weir_jinja_string *name, weir_jinja_value v)
{
    const weir_jinja_kind kind = v.kind;
    const bool sequence = kind == WEIR_JINJA_STRING || kind == WEIR_JINJA_LIST ||
                          kind == WEIR_JINJA_TUPLE || kind == WEIR_JINJA_DICT ||
                          kind == WEIR_JINJA_UNDEFINED;
    const struct {
        const char *name;
        bool holds;
    } tests[] = {
        { "defined", kind != WEIR_JINJA_UNDEFINED },
        { "undefined", kind == WEIR_JINJA_UNDEFINED },
        { "none", kind == WEIR_JINJA_NONE },
        { "string", kind == WEIR_JINJA_STRING },
        { "mapping", kind == WEIR_JINJA_DICT },
        { "iterable", weir_jinja_iterable(v) },
        { "sequence", sequence },
        { "boolean", kind == WEIR_JINJA_BOOL },
        { "true", kind == WEIR_JINJA_BOOL && v.as.boolean },
        { "false", kind == WEIR_JINJA_BOOL && !v.as.boolean },
        { "integer", kind == WEIR_JINJA_INT },
        { "float", kind == WEIR_JINJA_FLOAT },
        { "number", weir_jinja_is_number(v) },
        { "callable", kind == WEIR_JINJA_MACRO || kind == WEIR_JINJA_FUNCTION ||
                          kind == WEIR_JINJA_METHOD || kind == WEIR_JINJA_LOOP ||
                          kind == WEIR_JINJA_UNDEFINED },
        { "escaped", kind == WEIR_JINJA_STRING && v.as.string->markup },
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (weir_jinja_string_is(name, tests[i].name)) return tests[i].holds;
    return -1;
}

static int relation_of(const weir_jinja_string *name)
{
    static const struct {
        const char *names[4];
        int operation;
    } relations[] = {
        { { "eq", "equalto", "==", NULL }, WEIR_JINJA_OP('=', '=') },
        { { "ne", "!=", NULL }, WEIR_JINJA_OP('!', '=') },
        { { "lt", "lessthan", "<", NULL }, '<' },
        { { "le", "<=", NULL }, WEIR_JINJA_OP('<', '=') },
        { { "gt", "greaterthan", ">", NULL }, '>' },
        { { "ge", ">=", NULL }, WEIR_JINJA_OP('>', '=') },
        { { "in", NULL }, 'i' },
    };
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++)
        for (size_t k = 0; relations[i].names[k]; k++)
            if (weir_jinja_string_is(name, relations[i].names[k])) return relations[i].operation;
    return 0;
}

static bool same_object(weir_jinja_value a, weir_jinja_value b)
{
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case WEIR_JINJA_UNDEFINED:
    case WEIR_JINJA_NONE:
    case WEIR_JINJA_BOOL:
    case WEIR_JINJA_INT:
    case WEIR_JINJA_FLOAT:
    case WEIR_JINJA_FUNCTION: return weir_jinja_equal(a, b, &(int64_t){ 8 });
    case WEIR_JINJA_STRING:
    case WEIR_JINJA_LIST:
    case WEIR_JINJA_TUPLE:
    case WEIR_JINJA_GENERATOR:
    case WEIR_JINJA_DICT:
    case WEIR_JINJA_NAMESPACE:
    case WEIR_JINJA_MACRO:
    case WEIR_JINJA_METHOD:
    case WEIR_JINJA_LOOP: return a.as.list == b.as.list; /* compares the pointers */
    }
    return false;
}

static weir_status divides(
    weir_jinja_state *state, bool *out, weir_jinja_value v, int64_t by, int64_t rest
)
{
    weir_jinja_value left;
    WEIR_TRY(weir_jinja_binary(state, &left, '%', v, weir_jinja_int(by)));
    *out = weir_jinja_equal(left, weir_jinja_int(rest), &state->steps_left);
    return WEIR_OK;
}

/* str.islower, str.isupper: at least one letter has this case and none has the other. */
static weir_status has_case(
    weir_jinja_state *state, bool *out, weir_jinja_value v, weir_jinja_case letters
)
{
    weir_jinja_value same, other;
    WEIR_TRY(weir_jinja_to_string(state, &v, v));
    WEIR_TRY(weir_jinja_change_case(state, &same, v.as.string, letters));
    WEIR_TRY(weir_jinja_change_case(
        state, &other, v.as.string,
        letters == WEIR_JINJA_LOWER ? WEIR_JINJA_UPPER : WEIR_JINJA_LOWER
    ));
    *out = weir_jinja_string_same(same.as.string, v.as.string) &&
           !weir_jinja_string_same(other.as.string, v.as.string);
    return WEIR_OK;
}

weir_status weir_jinja_apply_test(
    weir_jinja_state *state, bool *out, const weir_jinja_string *name, weir_jinja_value v,
    const weir_jinja_arguments *arguments
)
{
    const int kind = kind_test(name, v), relation = relation_of(name);
    const bool one = arguments->count == 1 && arguments->n_named == 0;
    if (kind >= 0 && arguments->count + arguments->n_named == 0) {
        *out = kind != 0;
        return WEIR_OK;
    }
    if (relation && one) return weir_jinja_relation(state, out, relation, v, arguments->items[0]);
    if (weir_jinja_string_is(name, "odd")) return divides(state, out, v, 2, 1);
    if (weir_jinja_string_is(name, "even")) return divides(state, out, v, 2, 0);
    if (weir_jinja_string_is(name, "lower")) return has_case(state, out, v, WEIR_JINJA_LOWER);
    if (weir_jinja_string_is(name, "upper")) return has_case(state, out, v, WEIR_JINJA_UPPER);
    if (weir_jinja_string_is(name, "divisibleby") && one &&
        weir_jinja_is_integer(arguments->items[0]))
        return divides(state, out, v, weir_jinja_as_int(arguments->items[0]), 0);
    if (weir_jinja_string_is(name, "sameas") && one) {
        *out = same_object(v, arguments->items[0]);
        return WEIR_OK;
    }
    return weir_jinja_fail(
        state, "no test '%.*s' with %zu argument(s)", (int)(name->size < 60 ? name->size : 60),
        name->bytes, arguments->count + arguments->n_named
    );
}
