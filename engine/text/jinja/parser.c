/* engine/text/jinja/parser.c - the grammar of statements. Recursion is bounded, and loops are
 * bounded by the tokens. */
#include "engine/text/jinja/parser.h"

#include <string.h>

enum { PARSE_DEPTH = 400 };

weir_status weir_jinja_parse_fail(weir_jinja_parser *p, const char *reason)
{
    return weir_error_set(
        p->error, WEIR_EFORMAT, "chat template, line %d: %s", p->token->line, reason
    );
}

weir_status weir_jinja_parse_enter(weir_jinja_parser *p)
{
    return ++p->depth > PARSE_DEPTH ? weir_jinja_parse_fail(p, "nested too deep") : WEIR_OK;
}

bool weir_jinja_at_name(const weir_jinja_parser *p, const char *name)
{
    return p->token->kind == WEIR_JINJA_TOKEN_NAME &&
           weir_jinja_string_is(p->token->value.as.string, name);
}

bool weir_jinja_at_op(const weir_jinja_parser *p, int operation)
{
    return p->token->kind == WEIR_JINJA_TOKEN_OPERATOR && p->token->operation == operation;
}

bool weir_jinja_skip_name(weir_jinja_parser *p, const char *name)
{
    const bool there = weir_jinja_at_name(p, name);
    if (there) p->token++;
    return there;
}

bool weir_jinja_skip_op(weir_jinja_parser *p, int operation)
{
    const bool there = weir_jinja_at_op(p, operation);
    if (there) p->token++;
    return there;
}

weir_status weir_jinja_expect_op(weir_jinja_parser *p, int operation, const char *what)
{
    if (weir_jinja_skip_op(p, operation)) return WEIR_OK;
    return weir_error_set(
        p->error, WEIR_EFORMAT, "chat template, line %d: %s is expected here", p->token->line, what
    );
}

weir_status weir_jinja_expect_name(weir_jinja_parser *p, weir_jinja_string **out)
{
    if (p->token->kind != WEIR_JINJA_TOKEN_NAME)
        return weir_jinja_parse_fail(p, "a name is expected here");
    *out = p->token++->value.as.string;
    return WEIR_OK;
}

weir_status weir_jinja_node_new(
    weir_jinja_parser *p, weir_jinja_node **out, weir_jinja_node_kind kind
)
{
    WEIR_TRY(weir_jinja_alloc(p->arena, out, sizeof **out));
    (*out)->kind = kind;
    (*out)->line = p->token->line;
    return WEIR_OK;
}

weir_status weir_jinja_node_add(
    weir_jinja_parser *p, weir_jinja_nodes *nodes, weir_jinja_node *node
)
{
    WEIR_TRY(weir_jinja_grow(
        p->arena, &nodes->items, &nodes->capacity, nodes->count, 1, sizeof *nodes->items
    ));
    nodes->items[nodes->count++] = node;
    return WEIR_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static weir_status parse_statement(weir_jinja_parser *p, weir_jinja_nodes *out);

static weir_status end_tag(weir_jinja_parser *p)
{
    if (p->token->kind != WEIR_JINJA_TOKEN_BLOCK_END)
        return weir_jinja_parse_fail(p, "'%}' is expected here");
    p->token++;
    return WEIR_OK;
}

static bool at_tag(const weir_jinja_parser *p, const char *const *names)
{
    if (p->token->kind != WEIR_JINJA_TOKEN_BLOCK_BEGIN || p->token[1].kind != WEIR_JINJA_TOKEN_NAME)
        return false;
    for (; *names; names++)
        if (weir_jinja_string_is(p->token[1].value.as.string, *names)) return true;
    return false;
}

/* Parses text, prints and statements up to one of the tags `ends` (NULL: the end of the template).
 * Consumes the "{%" of that tag. */
static weir_status parse_body(weir_jinja_parser *p, weir_jinja_nodes *out, const char *const *ends)
{
    weir_jinja_node *node = NULL;
    WEIR_TRY(weir_jinja_parse_enter(p));
    for (;;) {
        if (p->token->kind == WEIR_JINJA_TOKEN_END) {
            if (!ends) break;
            return weir_error_set(
                p->error, WEIR_EFORMAT,
                "chat template, line %d: the template ends where '%s' is missing", p->token->line,
                ends[0]
            );
        }
        if (ends && at_tag(p, ends)) {
            p->token++;
            break;
        }
        if (p->token->kind == WEIR_JINJA_TOKEN_BLOCK_BEGIN) {
            p->token++;
            WEIR_TRY(parse_statement(p, out));
            continue;
        }
        const bool data = p->token->kind == WEIR_JINJA_TOKEN_DATA;
        WEIR_TRY(weir_jinja_node_new(p, &node, data ? WEIR_JINJA_DATA : WEIR_JINJA_PRINT));
        node->value = p->token++->value;
        if (!data) {
            WEIR_TRY(weir_jinja_parse_tuple(p, &node->left, true));
            if (p->token++->kind != WEIR_JINJA_TOKEN_PRINT_END) {
                p->token--;
                return weir_jinja_parse_fail(p, "'}}' is expected here");
            }
        }
        WEIR_TRY(weir_jinja_node_add(p, out, node));
    }
    weir_jinja_parse_leave(p);
    return WEIR_OK;
}

/* Parses a body and its end tag. */
static weir_status parse_block(weir_jinja_parser *p, weir_jinja_nodes *out, const char *end)
{
    const char *const ends[] = { end, NULL };
    WEIR_TRY(end_tag(p));
    WEIR_TRY(parse_body(p, out, ends));
    p->token++;
    return WEIR_OK;
}

static weir_status parse_if(weir_jinja_parser *p, weir_jinja_node *node)
{
    static const char *const ends[] = { "endif", "elif", "else", NULL }, *const end[] = { "endif",
                                                                                          NULL };
    node->kind = WEIR_JINJA_IF;
    do {
        weir_jinja_node *test = NULL, *body = NULL;
        p->token++; /* if, elif */
        WEIR_TRY(weir_jinja_parse_tuple(p, &test, false));
        WEIR_TRY(end_tag(p));
        WEIR_TRY(weir_jinja_node_new(p, &body, WEIR_JINJA_BODY));
        WEIR_TRY(parse_body(p, &body->body, ends));
        WEIR_TRY(weir_jinja_node_add(p, &node->items, test));
        WEIR_TRY(weir_jinja_node_add(p, &node->items, body));
    } while (weir_jinja_at_name(p, "elif"));
    if (weir_jinja_skip_name(p, "else")) {
        WEIR_TRY(end_tag(p));
        WEIR_TRY(parse_body(p, &node->body, end));
    }
    p->token++; /* endif */
    return WEIR_OK;
}

static weir_status parse_for(weir_jinja_parser *p, weir_jinja_node *node)
{
    static const char *const ends[] = { "endfor", "else", NULL }, *const end[] = { "endfor", NULL };
    node->kind = WEIR_JINJA_FOR;
    p->token++;
    WEIR_TRY(weir_jinja_parse_target(p, &node->left));
    if (!weir_jinja_skip_name(p, "in")) return weir_jinja_parse_fail(p, "'in' is expected here");
    WEIR_TRY(weir_jinja_parse_tuple(p, &node->right, false));
    if (weir_jinja_skip_name(p, "if")) WEIR_TRY(weir_jinja_parse_expression(p, &node->test, true));
    const int macros = p->macros;
    node->operation = weir_jinja_skip_name(p, "recursive") ? WEIR_JINJA_RECURSIVE : 0;
    WEIR_TRY(end_tag(p));
    p->loops++;
    WEIR_TRY(parse_body(p, &node->body, ends));
    p->loops--;
    if (p->macros > macros) node->operation |= WEIR_JINJA_KEEPS_SCOPE;
    if (weir_jinja_skip_name(p, "else")) {
        WEIR_TRY(end_tag(p));
        WEIR_TRY(parse_body(p, &node->otherwise, end));
    }
    p->token++;
    return WEIR_OK;
}

static weir_status parse_set(weir_jinja_parser *p, weir_jinja_node *node)
{
    p->token++;
    WEIR_TRY(weir_jinja_parse_target(p, &node->left));
    if (weir_jinja_skip_op(p, '=')) {
        node->kind = WEIR_JINJA_SET;
        return weir_jinja_parse_tuple(p, &node->right, true);
    }
    node->kind = WEIR_JINJA_SET_BLOCK;
    if (weir_jinja_skip_op(p, '|')) WEIR_TRY(weir_jinja_parse_filters(p, &node->right, NULL));
    return parse_block(p, &node->body, "endset");
}

/* (a, b=1): names go to items, defaults to named. The macro's own variables follow its
 * arguments. */
static weir_status parse_parameters(weir_jinja_parser *p, weir_jinja_node *macro)
{
    WEIR_TRY(weir_jinja_expect_op(p, '(', "'('"));
    while (!weir_jinja_skip_op(p, ')')) {
        weir_jinja_node *name = NULL, *keyword = NULL;
        if (macro->items.count)
            WEIR_TRY(weir_jinja_expect_op(p, ',', "',' or ')' between parameters"));
        WEIR_TRY(weir_jinja_node_new(p, &name, WEIR_JINJA_NAME));
        WEIR_TRY(weir_jinja_expect_name(p, &name->name));
        WEIR_TRY(weir_jinja_node_add(p, &macro->items, name));
        if (weir_jinja_skip_op(p, '=')) {
            WEIR_TRY(weir_jinja_node_new(p, &keyword, WEIR_JINJA_KEYWORD));
            keyword->name = name->name;
            WEIR_TRY(weir_jinja_parse_expression(p, &keyword->left, true));
            WEIR_TRY(weir_jinja_node_add(p, &macro->named, keyword));
        } else if (macro->named.count)
            return weir_jinja_parse_fail(
                p, "a parameter without default follows one with a default"
            );
    }
    return WEIR_OK;
}

static weir_status parse_macro_body(weir_jinja_parser *p, weir_jinja_node *macro, const char *end)
{
    const int outer_wants = p->wants, outer_loops = p->loops;
    p->wants = p->loops = 0;
    p->macros++;
    WEIR_TRY(parse_block(p, &macro->body, end));
    macro->operation = p->wants;
    p->wants = outer_wants;
    p->loops = outer_loops;
    return WEIR_OK;
}

static weir_status parse_macro(weir_jinja_parser *p, weir_jinja_node *node)
{
    node->kind = WEIR_JINJA_MACRO_OF;
    p->token++;
    WEIR_TRY(weir_jinja_expect_name(p, &node->name));
    WEIR_TRY(parse_parameters(p, node));
    return parse_macro_body(p, node, "endmacro");
}

static weir_status parse_call_block(weir_jinja_parser *p, weir_jinja_node *node)
{
    weir_jinja_node *caller = NULL;
    node->kind = WEIR_JINJA_CALL_BLOCK;
    WEIR_TRY(weir_jinja_node_new(p, &caller, WEIR_JINJA_MACRO_OF));
    weir_jinja_value name;
    WEIR_TRY(weir_jinja_string_view(p->arena, &name, "caller", 6, WEIR_JINJA_TEMPLATE));
    (void)weir_jinja_string_count(name.as.string);
    caller->name = name.as.string;
    p->token++;
    if (weir_jinja_at_op(p, '(')) WEIR_TRY(parse_parameters(p, caller));
    WEIR_TRY(weir_jinja_parse_expression(p, &node->left, true));
    if (node->left->kind != WEIR_JINJA_CALL)
        return weir_jinja_parse_fail(p, "a call is expected here");
    node->right = caller;
    return parse_macro_body(p, caller, "endcall");
}

static weir_status parse_with(weir_jinja_parser *p, weir_jinja_node *node)
{
    node->kind = WEIR_JINJA_WITH;
    p->token++;
    while (p->token->kind != WEIR_JINJA_TOKEN_BLOCK_END) {
        weir_jinja_node *target = NULL, *value = NULL;
        if (node->items.count) WEIR_TRY(weir_jinja_expect_op(p, ',', "','"));
        WEIR_TRY(weir_jinja_parse_target(p, &target));
        WEIR_TRY(weir_jinja_expect_op(p, '=', "'='"));
        WEIR_TRY(weir_jinja_parse_expression(p, &value, true));
        WEIR_TRY(weir_jinja_node_add(p, &node->items, target));
        WEIR_TRY(weir_jinja_node_add(p, &node->items, value));
    }
    return parse_block(p, &node->body, "endwith");
}

static weir_status parse_filter_block(weir_jinja_parser *p, weir_jinja_node *node)
{
    node->kind = WEIR_JINJA_FILTER_BLOCK;
    p->token++;
    WEIR_TRY(weir_jinja_parse_filters(p, &node->right, NULL));
    return parse_block(p, &node->body, "endfilter");
}

/* "generation" marks the assistant's text for training; here it is a scope that prints its body. */
static weir_status parse_generation(weir_jinja_parser *p, weir_jinja_node *node)
{
    node->kind = WEIR_JINJA_WITH;
    p->token++;
    return parse_block(p, &node->body, "endgeneration");
}

static weir_status parse_jump(weir_jinja_parser *p, weir_jinja_node *node)
{
    if (p->loops == 0)
        return weir_jinja_parse_fail(p, "break and continue need a loop around them");
    node->kind = weir_jinja_at_name(p, "break") ? WEIR_JINJA_BREAK : WEIR_JINJA_CONTINUE;
    p->token++;
    return WEIR_OK;
}

static weir_status parse_statement(weir_jinja_parser *p, weir_jinja_nodes *out)
{
    static const struct {
        const char *name;
        weir_status (*parse)(weir_jinja_parser *, weir_jinja_node *);
    } statements[] = {
        { "if", parse_if },           { "for", parse_for },
        { "set", parse_set },         { "macro", parse_macro },
        { "break", parse_jump },      { "continue", parse_jump },
        { "call", parse_call_block }, { "filter", parse_filter_block },
        { "with", parse_with },       { "generation", parse_generation },
    };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        weir_jinja_node *node = NULL;
        if (!weir_jinja_at_name(p, statements[i].name)) continue;
        WEIR_TRY(weir_jinja_node_new(p, &node, WEIR_JINJA_BODY));
        WEIR_TRY(statements[i].parse(p, node));
        WEIR_TRY(weir_jinja_node_add(p, out, node));
        return end_tag(p);
    }
    if (p->token->kind != WEIR_JINJA_TOKEN_NAME)
        return weir_jinja_parse_fail(p, "the name of a statement is expected here");
    const weir_jinja_string *name = p->token->value.as.string;
    return weir_error_set(
        p->error, WEIR_EFORMAT, "chat template, line %d: no statement '%.*s' here", p->token->line,
        (int)(name->size < 64 ? name->size : 64), name->bytes
    );
}

weir_status weir_jinja_parse(
    weir_jinja_arena *arena, weir_jinja_node **out, const char *text, size_t size, weir_error *error
)
{
    weir_jinja_tokens tokens = { 0 };
    WEIR_TRY(weir_jinja_lex(arena, &tokens, text, size, error));
    weir_jinja_parser parser = { .arena = arena, .error = error, .token = tokens.items };
    WEIR_TRY(weir_jinja_node_new(&parser, out, WEIR_JINJA_BODY));
    return parse_body(&parser, &(*out)->body, NULL);
}
