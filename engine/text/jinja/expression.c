/* engine/text/jinja/expression.c - the grammar of expressions: precedence climbing in the order of
 * Jinja2, lowest first: conditional, or, and, not, comparison, + -, ~, * / // %, **, unary,
 * postfix, filter and test. */
#include <string.h>

#include "engine/text/jinja/parser.h"

static weir_status parse_or(weir_jinja_parser *p, weir_jinja_node **out);
static weir_status parse_unary(weir_jinja_parser *p, weir_jinja_node **out, bool filters);
static weir_status parse_primary(weir_jinja_parser *p, weir_jinja_node **out);

static weir_status binary(
    weir_jinja_parser *p, weir_jinja_node **out, weir_jinja_node_kind kind, int operation,
    weir_jinja_node *left, weir_jinja_node *right
)
{
    weir_jinja_node *node = NULL;
    WEIR_TRY(weir_jinja_node_new(p, &node, kind));
    if (left) node->line = left->line;
    node->operation = operation;
    node->left = left;
    node->right = right;
    *out = node;
    return WEIR_OK;
}

/* ---- literals and brackets ------------------------------------------------------------------- */

static bool ends_list(const weir_jinja_parser *p)
{
    return p->token->kind == WEIR_JINJA_TOKEN_PRINT_END ||
           p->token->kind == WEIR_JINJA_TOKEN_BLOCK_END || p->token->kind == WEIR_JINJA_TOKEN_END ||
           weir_jinja_at_op(p, ')') || weir_jinja_at_op(p, ']') || weir_jinja_at_name(p, "in") ||
           weir_jinja_at_name(p, "recursive");
}

weir_status weir_jinja_parse_tuple(weir_jinja_parser *p, weir_jinja_node **out, bool conditional)
{
    weir_jinja_node *item = NULL, *tuple = NULL;
    WEIR_TRY(weir_jinja_parse_expression(p, &item, conditional));
    *out = item;
    if (!weir_jinja_at_op(p, ',')) return WEIR_OK;
    WEIR_TRY(weir_jinja_node_new(p, &tuple, WEIR_JINJA_TUPLE_OF));
    WEIR_TRY(weir_jinja_node_add(p, &tuple->items, item));
    while (weir_jinja_skip_op(p, ',') && !ends_list(p)) {
        WEIR_TRY(weir_jinja_parse_expression(p, &item, conditional));
        WEIR_TRY(weir_jinja_node_add(p, &tuple->items, item));
    }
    *out = tuple;
    return WEIR_OK;
}

static weir_status parse_list(weir_jinja_parser *p, weir_jinja_node **out)
{
    weir_jinja_node *list = NULL, *item = NULL;
    WEIR_TRY(weir_jinja_node_new(p, &list, WEIR_JINJA_LIST_OF));
    while (!weir_jinja_skip_op(p, ']')) {
        if (list->items.count) WEIR_TRY(weir_jinja_expect_op(p, ',', "',' in a list"));
        if (weir_jinja_skip_op(p, ']')) break;
        WEIR_TRY(weir_jinja_parse_expression(p, &item, true));
        WEIR_TRY(weir_jinja_node_add(p, &list->items, item));
    }
    *out = list;
    return WEIR_OK;
}

static weir_status parse_dict(weir_jinja_parser *p, weir_jinja_node **out)
{
    weir_jinja_node *dict = NULL, *item = NULL;
    WEIR_TRY(weir_jinja_node_new(p, &dict, WEIR_JINJA_DICT_OF));
    while (!weir_jinja_skip_op(p, '}')) {
        if (dict->items.count) WEIR_TRY(weir_jinja_expect_op(p, ',', "',' in a dictionary"));
        if (weir_jinja_skip_op(p, '}')) break;
        WEIR_TRY(weir_jinja_parse_expression(p, &item, true));
        WEIR_TRY(weir_jinja_node_add(p, &dict->items, item));
        WEIR_TRY(weir_jinja_expect_op(p, ':', "':' in a dictionary"));
        WEIR_TRY(weir_jinja_parse_expression(p, &item, true));
        WEIR_TRY(weir_jinja_node_add(p, &dict->items, item));
    }
    *out = dict;
    return WEIR_OK;
}

static weir_status parse_parentheses(weir_jinja_parser *p, weir_jinja_node **out)
{
    if (weir_jinja_skip_op(p, ')')) return weir_jinja_node_new(p, out, WEIR_JINJA_TUPLE_OF);
    WEIR_TRY(weir_jinja_parse_tuple(p, out, true));
    return weir_jinja_expect_op(p, ')', "')'");
}

/* Adjacent literals 'a' 'b' are one string. */
static weir_status parse_literal(weir_jinja_parser *p, weir_jinja_node **out)
{
    const weir_jinja_token *first = p->token++;
    WEIR_TRY(weir_jinja_node_new(p, out, WEIR_JINJA_CONST));
    (*out)->value = first->value;
    if (first->value.kind != WEIR_JINJA_STRING) return WEIR_OK;
    if (p->token->kind != WEIR_JINJA_TOKEN_LITERAL || p->token->value.kind != WEIR_JINJA_STRING)
        return WEIR_OK;
    weir_jinja_builder text = weir_jinja_builder_new(p->arena);
    WEIR_TRY(weir_jinja_add_string(&text, first->value.as.string));
    while (p->token->kind == WEIR_JINJA_TOKEN_LITERAL && p->token->value.kind == WEIR_JINJA_STRING)
        WEIR_TRY(weir_jinja_add_string(&text, p->token++->value.as.string));
    WEIR_TRY(weir_jinja_builder_finish(&text, &(*out)->value));
    (void)weir_jinja_string_count((*out)->value.as.string);
    return WEIR_OK;
}

static weir_status parse_name(weir_jinja_parser *p, weir_jinja_node **out)
{
    static const struct {
        const char *name;
        weir_jinja_kind kind;
        bool value;
    } constants[] = {
        { "true", WEIR_JINJA_BOOL, true },   { "True", WEIR_JINJA_BOOL, true },
        { "false", WEIR_JINJA_BOOL, false }, { "False", WEIR_JINJA_BOOL, false },
        { "none", WEIR_JINJA_NONE, false },  { "None", WEIR_JINJA_NONE, false },
    };
    weir_jinja_string *name = p->token->value.as.string;
    WEIR_TRY(weir_jinja_node_new(p, out, WEIR_JINJA_NAME));
    p->token++;
    (*out)->name = name;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!weir_jinja_string_is(name, constants[i].name)) continue;
        (*out)->kind = WEIR_JINJA_CONST;
        (*out)->value = constants[i].kind == WEIR_JINJA_BOOL ? weir_jinja_bool(constants[i].value)
                                                             : weir_jinja_none();
    }
    if (weir_jinja_string_is(name, "caller")) p->wants |= WEIR_JINJA_WANTS_CALLER;
    if (weir_jinja_string_is(name, "varargs")) p->wants |= WEIR_JINJA_WANTS_VARARGS;
    if (weir_jinja_string_is(name, "kwargs")) p->wants |= WEIR_JINJA_WANTS_KWARGS;
    return WEIR_OK;
}

static weir_status parse_primary(weir_jinja_parser *p, weir_jinja_node **out)
{
    if (p->token->kind == WEIR_JINJA_TOKEN_NAME) return parse_name(p, out);
    if (p->token->kind == WEIR_JINJA_TOKEN_LITERAL) return parse_literal(p, out);
    WEIR_TRY(weir_jinja_parse_enter(p));
    if (weir_jinja_skip_op(p, '('))
        WEIR_TRY(parse_parentheses(p, out));
    else if (weir_jinja_skip_op(p, '['))
        WEIR_TRY(parse_list(p, out));
    else if (weir_jinja_skip_op(p, '{'))
        WEIR_TRY(parse_dict(p, out));
    else
        return weir_jinja_parse_fail(p, "an expression is expected here");
    weir_jinja_parse_leave(p);
    return WEIR_OK;
}

/* ---- postfix: attributes, items, calls, filters, tests --------------------------------------- */

/* Parses "(a, b, name=c)" after the opening bracket. */
static weir_status parse_arguments(weir_jinja_parser *p, weir_jinja_node *call)
{
    bool first = true;
    WEIR_TRY(weir_jinja_parse_enter(p));
    while (!weir_jinja_skip_op(p, ')')) {
        weir_jinja_node *item = NULL, *keyword = NULL;
        if (!first) WEIR_TRY(weir_jinja_expect_op(p, ',', "',' or ')' between arguments"));
        if (weir_jinja_skip_op(p, ')')) break;
        first = false;
        if (p->token->kind == WEIR_JINJA_TOKEN_NAME && p->token[1].operation == '=') {
            WEIR_TRY(weir_jinja_node_new(p, &keyword, WEIR_JINJA_KEYWORD));
            WEIR_TRY(weir_jinja_expect_name(p, &keyword->name));
            p->token++;
            WEIR_TRY(weir_jinja_parse_expression(p, &keyword->left, true));
            WEIR_TRY(weir_jinja_node_add(p, &call->named, keyword));
            continue;
        }
        if (call->named.count)
            return weir_jinja_parse_fail(p, "an argument without a name follows one with a name");
        WEIR_TRY(weir_jinja_parse_expression(p, &item, true));
        WEIR_TRY(weir_jinja_node_add(p, &call->items, item));
    }
    weir_jinja_parse_leave(p);
    return WEIR_OK;
}

/* Parses [a], [a:b:c] or [a, b] after the opening bracket. */
static weir_status parse_item(weir_jinja_parser *p, weir_jinja_node **out, weir_jinja_node *left)
{
    weir_jinja_node *node = NULL, *part = NULL;
    int n = 0;
    WEIR_TRY(binary(p, &node, WEIR_JINJA_SLICE, 0, left, NULL));
    for (bool colon = true; colon && n < 3; n++) {
        part = NULL;
        if (!weir_jinja_at_op(p, ':') && !weir_jinja_at_op(p, ']'))
            WEIR_TRY(weir_jinja_parse_tuple(p, &part, true));
        WEIR_TRY(weir_jinja_node_add(p, &node->items, part));
        colon = weir_jinja_skip_op(p, ':');
    }
    WEIR_TRY(weir_jinja_expect_op(p, ']', "']'"));
    if (n == 1) {
        if (!part) return weir_jinja_parse_fail(p, "an index is missing");
        node->kind = WEIR_JINJA_ITEM;
        node->right = part;
    }
    while (n > 1 && node->items.count < 3) WEIR_TRY(weir_jinja_node_add(p, &node->items, NULL));
    *out = node;
    return WEIR_OK;
}

static weir_status parse_attribute(
    weir_jinja_parser *p, weir_jinja_node **out, weir_jinja_node *left
)
{
    weir_jinja_node *node = NULL;
    if (p->token->kind == WEIR_JINJA_TOKEN_LITERAL && p->token->value.kind == WEIR_JINJA_INT) {
        weir_jinja_node *index = NULL;
        WEIR_TRY(parse_literal(p, &index));
        return binary(p, out, WEIR_JINJA_ITEM, 0, left, index);
    }
    WEIR_TRY(binary(p, &node, WEIR_JINJA_ATTRIBUTE, 0, left, NULL));
    WEIR_TRY(weir_jinja_expect_name(p, &node->name));
    *out = node;
    return WEIR_OK;
}

static weir_status parse_call(weir_jinja_parser *p, weir_jinja_node **node)
{
    weir_jinja_node *call = NULL;
    WEIR_TRY(binary(p, &call, WEIR_JINJA_CALL, 0, *node, NULL));
    WEIR_TRY(parse_arguments(p, call));
    *node = call;
    return WEIR_OK;
}

static weir_status parse_postfix(weir_jinja_parser *p, weir_jinja_node **node)
{
    for (;;) {
        if (weir_jinja_skip_op(p, '.'))
            WEIR_TRY(parse_attribute(p, node, *node));
        else if (weir_jinja_skip_op(p, '('))
            WEIR_TRY(parse_call(p, node));
        else if (weir_jinja_skip_op(p, '[')) {
            WEIR_TRY(weir_jinja_parse_enter(p));
            WEIR_TRY(parse_item(p, node, *node));
            weir_jinja_parse_leave(p);
        } else
            return WEIR_OK;
    }
}

static weir_status parse_filter(weir_jinja_parser *p, weir_jinja_node **out, weir_jinja_node *input)
{
    weir_jinja_node *node = NULL;
    WEIR_TRY(binary(p, &node, WEIR_JINJA_FILTER, 0, input, NULL));
    node->line = p->token->line;
    WEIR_TRY(weir_jinja_expect_name(p, &node->name));
    if (weir_jinja_skip_op(p, '(')) WEIR_TRY(parse_arguments(p, node));
    *out = node;
    return WEIR_OK;
}

weir_status weir_jinja_parse_filters(
    weir_jinja_parser *p, weir_jinja_node **out, weir_jinja_node *input
)
{
    do WEIR_TRY(parse_filter(p, &input, input));
    while (weir_jinja_skip_op(p, '|'));
    *out = input;
    return WEIR_OK;
}

/* The argument of a test may follow without brackets: x is divisibleby 3. */
static bool bare_argument_follows(const weir_jinja_parser *p)
{
    if (p->token->kind == WEIR_JINJA_TOKEN_NAME)
        return !weir_jinja_at_name(p, "else") && !weir_jinja_at_name(p, "or") &&
               !weir_jinja_at_name(p, "and");
    return p->token->kind == WEIR_JINJA_TOKEN_LITERAL || weir_jinja_at_op(p, '[') ||
           weir_jinja_at_op(p, '{');
}

static weir_status parse_test(weir_jinja_parser *p, weir_jinja_node **node)
{
    weir_jinja_node *test = NULL, *argument = NULL;
    const bool negated = weir_jinja_skip_name(p, "not");
    WEIR_TRY(binary(p, &test, WEIR_JINJA_TEST, 0, *node, NULL));
    WEIR_TRY(weir_jinja_expect_name(p, &test->name));
    if (weir_jinja_skip_op(p, '('))
        WEIR_TRY(parse_arguments(p, test));
    else if (bare_argument_follows(p)) {
        if (weir_jinja_at_name(p, "is"))
            return weir_jinja_parse_fail(p, "tests cannot be chained with is");
        WEIR_TRY(parse_primary(p, &argument));
        WEIR_TRY(parse_postfix(p, &argument));
        WEIR_TRY(weir_jinja_node_add(p, &test->items, argument));
    }
    *node = test;
    return negated ? binary(p, node, WEIR_JINJA_UNARY, '!', test, NULL) : WEIR_OK;
}

static weir_status parse_filters_and_tests(weir_jinja_parser *p, weir_jinja_node **node)
{
    for (;;) {
        if (weir_jinja_skip_op(p, '|'))
            WEIR_TRY(parse_filter(p, node, *node));
        else if (weir_jinja_skip_name(p, "is"))
            WEIR_TRY(parse_test(p, node));
        else if (weir_jinja_skip_op(p, '('))
            WEIR_TRY(parse_call(p, node));
        else
            return WEIR_OK;
    }
}

/* ---- operators ------------------------------------------------------------------------------- */

static weir_status parse_unary(weir_jinja_parser *p, weir_jinja_node **out, bool filters)
{
    WEIR_TRY(weir_jinja_parse_enter(p));
    weir_jinja_node *operand = NULL;
    const int sign = weir_jinja_at_op(p, '-') ? '-' : weir_jinja_at_op(p, '+') ? '+' : 0;
    if (sign) {
        p->token++;
        WEIR_TRY(parse_unary(p, &operand, false));
        WEIR_TRY(binary(p, out, WEIR_JINJA_UNARY, sign, operand, NULL));
    } else
        WEIR_TRY(parse_primary(p, out));
    WEIR_TRY(parse_postfix(p, out));
    if (filters) WEIR_TRY(parse_filters_and_tests(p, out));
    weir_jinja_parse_leave(p);
    return WEIR_OK;
}

enum { LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVEL_POWER, LEVEL_UNARY };

static int operator_at(const weir_jinja_parser *p, int level)
{
    static const int operators[][5] = { { '+', '-' },
                                        { '~' },
                                        { '*', '/', WEIR_JINJA_OP('/', '/'), '%' },
                                        { WEIR_JINJA_OP('*', '*') } };
    if (p->token->kind != WEIR_JINJA_TOKEN_OPERATOR) return 0;
    for (int i = 0; operators[level][i]; i++)
        if (p->token->operation == operators[level][i]) return operators[level][i];
    return 0;
}

static weir_status parse_level(weir_jinja_parser *p, weir_jinja_node **out, int level)
{
    if (level == LEVEL_UNARY) return parse_unary(p, out, true);
    WEIR_TRY(parse_level(p, out, level + 1));
    weir_jinja_node *concat = NULL, *right = NULL;
    for (int operation; (operation = operator_at(p, level)) != 0;) {
        p->token++;
        WEIR_TRY(parse_level(p, &right, level + 1));
        if (operation != '~') {
            WEIR_TRY(binary(p, out, WEIR_JINJA_BINARY, operation, *out, right));
            continue;
        }
        if (!concat) {
            WEIR_TRY(binary(p, &concat, WEIR_JINJA_CONCAT, 0, *out, NULL));
            WEIR_TRY(weir_jinja_node_add(p, &concat->items, *out));
            *out = concat;
        }
        WEIR_TRY(weir_jinja_node_add(p, &concat->items, right));
    }
    return WEIR_OK;
}

/* Consumes a comparison operator and returns it; 0: none. "in" is 'i', "not in" is 'n'. */
static int take_comparison(weir_jinja_parser *p)
{
    static const int comparisons[] = { WEIR_JINJA_OP('=', '='),
                                       WEIR_JINJA_OP('!', '='),
                                       WEIR_JINJA_OP('<', '='),
                                       WEIR_JINJA_OP('>', '='),
                                       '<',
                                       '>' };
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++)
        if (weir_jinja_skip_op(p, comparisons[i])) return comparisons[i];
    if (weir_jinja_skip_name(p, "in")) return 'i';
    if (!weir_jinja_at_name(p, "not") || p->token[1].kind != WEIR_JINJA_TOKEN_NAME ||
        !weir_jinja_string_is(p->token[1].value.as.string, "in"))
        return 0;
    p->token += 2;
    return 'n';
}

static weir_status parse_compare(weir_jinja_parser *p, weir_jinja_node **out)
{
    WEIR_TRY(parse_level(p, out, LEVEL_SUM));
    weir_jinja_node *compare = NULL, *operand = NULL, *right = NULL;
    for (int operation; (operation = take_comparison(p)) != 0;) {
        if (!compare) WEIR_TRY(binary(p, &compare, WEIR_JINJA_COMPARE, 0, *out, NULL));
        WEIR_TRY(parse_level(p, &right, LEVEL_SUM));
        WEIR_TRY(binary(p, &operand, WEIR_JINJA_OPERAND, operation, right, NULL));
        WEIR_TRY(weir_jinja_node_add(p, &compare->items, operand));
        *out = compare;
    }
    return WEIR_OK;
}

static weir_status parse_not(weir_jinja_parser *p, weir_jinja_node **out)
{
    if (!weir_jinja_skip_name(p, "not")) return parse_compare(p, out);
    weir_jinja_node *operand = NULL;
    WEIR_TRY(weir_jinja_parse_enter(p));
    WEIR_TRY(parse_not(p, &operand));
    weir_jinja_parse_leave(p);
    return binary(p, out, WEIR_JINJA_UNARY, '!', operand, NULL);
}

static weir_status parse_and(weir_jinja_parser *p, weir_jinja_node **out)
{
    weir_jinja_node *right = NULL;
    WEIR_TRY(parse_not(p, out));
    while (weir_jinja_skip_name(p, "and")) {
        WEIR_TRY(parse_not(p, &right));
        WEIR_TRY(binary(p, out, WEIR_JINJA_AND, 0, *out, right));
    }
    return WEIR_OK;
}

static weir_status parse_or(weir_jinja_parser *p, weir_jinja_node **out)
{
    weir_jinja_node *right = NULL;
    WEIR_TRY(parse_and(p, out));
    while (weir_jinja_skip_name(p, "or")) {
        WEIR_TRY(parse_and(p, &right));
        WEIR_TRY(binary(p, out, WEIR_JINJA_OR, 0, *out, right));
    }
    return WEIR_OK;
}

weir_status weir_jinja_parse_expression(
    weir_jinja_parser *p, weir_jinja_node **out, bool conditional
)
{
    weir_jinja_node *node = NULL;
    WEIR_TRY(weir_jinja_parse_enter(p));
    WEIR_TRY(parse_or(p, out));
    while (conditional && weir_jinja_skip_name(p, "if")) {
        WEIR_TRY(binary(p, &node, WEIR_JINJA_CONDITIONAL, 0, *out, NULL));
        WEIR_TRY(parse_or(p, &node->test));
        if (weir_jinja_skip_name(p, "else"))
            WEIR_TRY(weir_jinja_parse_expression(p, &node->right, true));
        *out = node;
    }
    weir_jinja_parse_leave(p);
    return WEIR_OK;
}

static weir_status parse_target_part(weir_jinja_parser *p, weir_jinja_node **out)
{
    if (weir_jinja_skip_op(p, '(')) {
        WEIR_TRY(weir_jinja_parse_enter(p));
        WEIR_TRY(weir_jinja_parse_target(p, out));
        weir_jinja_parse_leave(p);
        return weir_jinja_expect_op(p, ')', "')'");
    }
    WEIR_TRY(weir_jinja_node_new(p, out, WEIR_JINJA_NAME));
    WEIR_TRY(weir_jinja_expect_name(p, &(*out)->name));
    static const char *const reserved[] = { "true", "True", "false", "False", "none", "None" };
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (weir_jinja_string_is((*out)->name, reserved[i]))
            return weir_jinja_parse_fail(p, "a constant cannot be set");
    if (!weir_jinja_skip_op(p, '.')) return WEIR_OK;
    return parse_attribute(p, out, *out);
}

weir_status weir_jinja_parse_target(weir_jinja_parser *p, weir_jinja_node **out)
{
    weir_jinja_node *tuple = NULL, *part = NULL;
    WEIR_TRY(parse_target_part(p, out));
    if (!weir_jinja_at_op(p, ',')) return WEIR_OK;
    WEIR_TRY(weir_jinja_node_new(p, &tuple, WEIR_JINJA_TUPLE_OF));
    WEIR_TRY(weir_jinja_node_add(p, &tuple->items, *out));
    while (weir_jinja_skip_op(p, ',') && p->token->kind == WEIR_JINJA_TOKEN_NAME &&
           !weir_jinja_at_name(p, "in")) {
        WEIR_TRY(parse_target_part(p, &part));
        WEIR_TRY(weir_jinja_node_add(p, &tuple->items, part));
    }
    *out = tuple;
    return WEIR_OK;
}
