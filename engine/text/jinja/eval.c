/* engine/text/jinja/eval.c - evaluates expressions by walking the tree. */
#include <stdarg.h>
#include <stdio.h>

#include "engine/text/jinja/state.h"

enum { EVAL_DEPTH = 1500, BYTES_A_STEP = 1024 };

weir_status weir_jinja_fail(weir_jinja_state *state, const char *format, ...)
{
    char text[700];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return weir_error_set(
        state->error, WEIR_EINVAL, "chat template, line %d: %s", state->line, text
    );
}

weir_status weir_jinja_fail_undefined(weir_jinja_state *state, weir_jinja_value v)
{
    return weir_jinja_fail(state, "'%.100s' is undefined", v.as.name ? v.as.name : "a value");
}

weir_status weir_jinja_step(weir_jinja_state *state, size_t bytes)
{
    state->steps_left -= 1 + (int64_t)(bytes / BYTES_A_STEP);
    if (state->steps_left >= 0) return WEIR_OK;
    return weir_error_set(
        state->error, WEIR_EFULL,
        "chat template, line %d: too many steps; the template may loop forever", state->line
    );
}

weir_status weir_jinja_look(weir_jinja_state *state, weir_jinja_value key)
{
    size_t bytes = key.kind == WEIR_JINJA_STRING ? key.as.string->size : 0;
    for (size_t i = 0; key.kind == WEIR_JINJA_TUPLE && i < key.as.list->count; i++)
        if (key.as.list->items[i].kind == WEIR_JINJA_STRING)
            bytes += key.as.list->items[i].as.string->size;
    return weir_jinja_work(state, bytes, WEIR_JINJA_MOVED);
}

weir_status weir_jinja_enter(weir_jinja_state *state)
{
    if (++state->depth <= EVAL_DEPTH) return WEIR_OK;
    return weir_error_set(
        state->error, WEIR_EFULL, "chat template, line %d: nested too deep", state->line
    );
}

weir_status weir_jinja_eval_arguments(
    weir_jinja_state *state, weir_jinja_arguments *out, const weir_jinja_node *call
)
{
    *out = (weir_jinja_arguments){ .count = call->items.count, .n_named = call->named.count };
    if (out->count)
        WEIR_TRY(weir_jinja_alloc(state->arena, &out->items, out->count * sizeof *out->items));
    for (size_t i = 0; i < out->count; i++)
        WEIR_TRY(weir_jinja_eval(state, &out->items[i], call->items.items[i]));
    if (out->n_named == 0) return WEIR_OK;
    WEIR_TRY(weir_jinja_alloc(state->arena, &out->named, out->n_named * sizeof *out->named));
    WEIR_TRY(weir_jinja_alloc(state->arena, &out->names, out->n_named * sizeof *out->names));
    for (size_t i = 0; i < out->n_named; i++) {
        out->names[i] = call->named.items[i]->name;
        WEIR_TRY(weir_jinja_eval(state, &out->named[i], call->named.items[i]->left));
    }
    return WEIR_OK;
}

static weir_status eval_name(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    for (const weir_jinja_scope *scope = state->scope; scope; scope = scope->parent) {
        WEIR_TRY(weir_jinja_look(state, weir_jinja_from_string(node->name)));
        const weir_jinja_entry *entry =
            weir_jinja_dict_find(&scope->names, weir_jinja_from_string(node->name));
        if (!entry) continue;
        *out = entry->value;
        return WEIR_OK;
    }
    *out = weir_jinja_undefined(node->name->bytes);
    return WEIR_OK;
}

static weir_status eval_items(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, node->items.count));
    for (size_t i = 0; i < node->items.count; i++) {
        weir_jinja_value item;
        WEIR_TRY(weir_jinja_eval(state, &item, node->items.items[i]));
        WEIR_TRY(weir_jinja_list_add(state->arena, list, item));
    }
    *out = (weir_jinja_value){ .kind = node->kind == WEIR_JINJA_LIST_OF ? WEIR_JINJA_LIST
                                                                        : WEIR_JINJA_TUPLE,
                               .as.list = list };
    return WEIR_OK;
}

static weir_status eval_dict(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_dict *dict = NULL;
    WEIR_TRY(weir_jinja_dict_new(state->arena, &dict));
    for (size_t i = 0; i + 1 < node->items.count; i += 2) {
        weir_jinja_value key, value;
        WEIR_TRY(weir_jinja_eval(state, &key, node->items.items[i]));
        WEIR_TRY(weir_jinja_eval(state, &value, node->items.items[i + 1]));
        if (!weir_jinja_hashable(key))
            return weir_jinja_fail(state, "unhashable type: '%s'", weir_jinja_type_name(key));
        WEIR_TRY(weir_jinja_look(state, key));
        WEIR_TRY(weir_jinja_dict_set(state->arena, dict, key, value));
    }
    *out = (weir_jinja_value){ .kind = WEIR_JINJA_DICT, .as.dict = dict };
    return WEIR_OK;
}

static weir_status eval_concat(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    for (size_t i = 0; i < node->items.count; i++) {
        weir_jinja_value part;
        WEIR_TRY(weir_jinja_eval(state, &part, node->items.items[i]));
        WEIR_TRY(weir_jinja_print(state, &text, part));
    }
    return weir_jinja_builder_finish(&text, out);
}

static weir_status eval_compare(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_value left, right;
    bool holds = true;
    WEIR_TRY(weir_jinja_eval(state, &left, node->left));
    for (size_t i = 0; i < node->items.count && holds; i++, left = right) { /* a < b < c */
        const weir_jinja_node *operand = node->items.items[i];
        WEIR_TRY(weir_jinja_eval(state, &right, operand->left));
        WEIR_TRY(weir_jinja_relation(state, &holds, operand->operation, left, right));
    }
    *out = weir_jinja_bool(holds);
    return WEIR_OK;
}

static weir_status eval_conditional(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_value test;
    WEIR_TRY(weir_jinja_eval(state, &test, node->test));
    if (weir_jinja_truth(test)) return weir_jinja_eval(state, out, node->left);
    if (node->right) return weir_jinja_eval(state, out, node->right);
    *out = weir_jinja_undefined("the value of an if expression without else");
    return WEIR_OK;
}

static weir_status eval_slice(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_value v, bounds[3] = { weir_jinja_none(), weir_jinja_none(), weir_jinja_none() };
    WEIR_TRY(weir_jinja_eval(state, &v, node->left));
    for (size_t i = 0; i < 3; i++)
        if (node->items.items[i])
            WEIR_TRY(weir_jinja_eval(state, &bounds[i], node->items.items[i]));
    return weir_jinja_slice(state, out, v, bounds);
}

static weir_status eval_call(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_value callee;
    weir_jinja_arguments arguments;
    WEIR_TRY(weir_jinja_eval(state, &callee, node->left));
    WEIR_TRY(weir_jinja_eval_arguments(state, &arguments, node));
    state->line = node->line;
    return weir_jinja_call(state, out, callee, &arguments);
}

static weir_status eval_filter(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_value v;
    weir_jinja_arguments arguments;
    if (node->left)
        WEIR_TRY(weir_jinja_eval(state, &v, node->left));
    else
        WEIR_TRY(weir_jinja_builder_finish(state->out, &v)); /* the text of the enclosing block */
    WEIR_TRY(weir_jinja_eval_arguments(state, &arguments, node));
    state->line = node->line;
    return weir_jinja_apply_filter(state, out, node->name, v, &arguments);
}

static weir_status eval_test(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_value v;
    weir_jinja_arguments arguments;
    bool holds = false;
    WEIR_TRY(weir_jinja_eval(state, &v, node->left));
    WEIR_TRY(weir_jinja_eval_arguments(state, &arguments, node));
    WEIR_TRY(weir_jinja_apply_test(state, &holds, node->name, v, &arguments));
    *out = weir_jinja_bool(holds);
    return WEIR_OK;
}

static weir_status eval_operation(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_value a, b;
    WEIR_TRY(weir_jinja_eval(state, &a, node->left));
    if (node->kind == WEIR_JINJA_UNARY && node->operation == '!') {
        *out = weir_jinja_bool(!weir_jinja_truth(a));
        return WEIR_OK;
    }
    if (node->kind == WEIR_JINJA_UNARY) return weir_jinja_unary(state, out, node->operation, a);
    if (node->kind != WEIR_JINJA_BINARY && weir_jinja_truth(a) == (node->kind == WEIR_JINJA_OR)) {
        *out = a; /* `and` and `or` return one of their operands */
        return WEIR_OK;
    }
    WEIR_TRY(weir_jinja_eval(state, &b, node->right));
    state->line = node->line;
    if (node->kind == WEIR_JINJA_BINARY)
        return weir_jinja_binary(state, out, node->operation, a, b);
    *out = b;
    return WEIR_OK;
}

static weir_status eval_access(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_value v, key;
    WEIR_TRY(weir_jinja_eval(state, &v, node->left));
    if (node->kind == WEIR_JINJA_ATTRIBUTE) return weir_jinja_attribute(state, out, v, node->name);
    WEIR_TRY(weir_jinja_eval(state, &key, node->right));
    return weir_jinja_item(state, out, v, key);
}

static weir_status eval_node(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    switch (node->kind) {
    case WEIR_JINJA_CONST: *out = node->value; return WEIR_OK;
    case WEIR_JINJA_NAME: return eval_name(state, out, node);
    case WEIR_JINJA_LIST_OF:
    case WEIR_JINJA_TUPLE_OF: return eval_items(state, out, node);
    case WEIR_JINJA_DICT_OF: return eval_dict(state, out, node);
    case WEIR_JINJA_UNARY:
    case WEIR_JINJA_BINARY:
    case WEIR_JINJA_AND:
    case WEIR_JINJA_OR: return eval_operation(state, out, node);
    case WEIR_JINJA_CONCAT: return eval_concat(state, out, node);
    case WEIR_JINJA_COMPARE: return eval_compare(state, out, node);
    case WEIR_JINJA_CONDITIONAL: return eval_conditional(state, out, node);
    case WEIR_JINJA_ATTRIBUTE:
    case WEIR_JINJA_ITEM: return eval_access(state, out, node);
    case WEIR_JINJA_SLICE: return eval_slice(state, out, node);
    case WEIR_JINJA_CALL: return eval_call(state, out, node);
    case WEIR_JINJA_FILTER: return eval_filter(state, out, node);
    case WEIR_JINJA_TEST: return eval_test(state, out, node);
    case WEIR_JINJA_OPERAND:
    case WEIR_JINJA_KEYWORD:
    case WEIR_JINJA_DATA:
    case WEIR_JINJA_PRINT:
    case WEIR_JINJA_IF:
    case WEIR_JINJA_BODY:
    case WEIR_JINJA_FOR:
    case WEIR_JINJA_SET:
    case WEIR_JINJA_SET_BLOCK:
    case WEIR_JINJA_MACRO_OF:
    case WEIR_JINJA_CALL_BLOCK:
    case WEIR_JINJA_FILTER_BLOCK:
    case WEIR_JINJA_WITH:
    case WEIR_JINJA_BREAK:
    case WEIR_JINJA_CONTINUE: break;
    }
    return weir_jinja_fail(state, "a statement stands where an expression is expected");
}

weir_status weir_jinja_eval(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    WEIR_TRY(weir_jinja_step(state, 0));
    WEIR_TRY(weir_jinja_enter(state));
    state->line = node->line;
    WEIR_TRY(eval_node(state, out, node));
    weir_jinja_leave(state);
    return WEIR_OK;
}
