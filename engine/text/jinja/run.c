/* engine/text/jinja/run.c - runs statements: printing, branches, loops, assignments, macros. Scopes
 * are those of Jinja2: each iteration of a loop, each macro and each block that captures text has
 * its own; `if` has none. */
#include <string.h>

#include "engine/text/jinja/state.h"

typedef enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } jump;

static weir_status run_body(weir_jinja_state *state, const weir_jinja_nodes *body, jump *to);

weir_status weir_jinja_scope_new(
    weir_jinja_state *state, weir_jinja_scope **out, weir_jinja_scope *parent
)
{
    WEIR_TRY(weir_jinja_alloc(state->arena, out, sizeof **out));
    (*out)->parent = parent;
    return WEIR_OK;
}

weir_status weir_jinja_scope_set(
    weir_jinja_state *state, weir_jinja_scope *scope, const char *name, weir_jinja_value value
)
{
    weir_jinja_value key;
    WEIR_TRY(weir_jinja_string_view(state->arena, &key, name, strlen(name), WEIR_JINJA_TEMPLATE));
    return weir_jinja_dict_set(state->arena, &scope->names, key, value);
}

/* ---- assignment ------------------------------------------------------------------------------ */

static weir_status assign(
    weir_jinja_state *state, const weir_jinja_node *target, weir_jinja_value v
);

static weir_status assign_attribute(
    weir_jinja_state *state, const weir_jinja_node *target, weir_jinja_value v
)
{
    weir_jinja_value object;
    WEIR_TRY(weir_jinja_eval(state, &object, target->left));
    if (object.kind != WEIR_JINJA_NAMESPACE)
        return weir_jinja_fail(
            state, "cannot assign attribute on non-namespace object (%s)",
            weir_jinja_type_name(object)
        );
    return weir_jinja_dict_set(
        state->arena, object.as.dict, weir_jinja_from_string(target->name), v
    );
}

static weir_status assign_tuple(
    weir_jinja_state *state, const weir_jinja_node *target, weir_jinja_value v
)
{
    weir_jinja_list *items = NULL;
    WEIR_TRY(weir_jinja_items(state, &items, v));
    if (items->count != target->items.count)
        return weir_jinja_fail(
            state, "%zu values for %zu names", items->count, target->items.count
        );
    for (size_t i = 0; i < target->items.count; i++)
        WEIR_TRY(assign(state, target->items.items[i], items->items[i]));
    return WEIR_OK;
}

static weir_status assign(
    weir_jinja_state *state, const weir_jinja_node *target, weir_jinja_value v
)
{
    if (target->kind == WEIR_JINJA_ATTRIBUTE) return assign_attribute(state, target, v);
    if (target->kind == WEIR_JINJA_TUPLE_OF) return assign_tuple(state, target, v);
    if (target->kind == WEIR_JINJA_NAME)
        return weir_jinja_dict_set(
            state->arena, &state->scope->names, weir_jinja_from_string(target->name), v
        );
    return weir_jinja_fail(state, "invalid target of an assignment");
}

/* ---- loops ----------------------------------------------------------------------------------- */

weir_status weir_jinja_loop_fill(weir_jinja_state *state, weir_jinja_loop *loop, size_t count)
{
    weir_jinja_scope *outer = state->scope;
    while (loop->passed->count < count && loop->cursor < loop->source->count) {
        const weir_jinja_value item = loop->source->items[loop->cursor++];
        weir_jinja_value test = weir_jinja_bool(true);
        if (loop->node->test) {
            WEIR_TRY(weir_jinja_scope_new(state, &state->scope, loop->outer));
            WEIR_TRY(assign(state, loop->node->left, item));
            WEIR_TRY(weir_jinja_eval(state, &test, loop->node->test));
            state->scope = outer;
        }
        if (weir_jinja_truth(test)) WEIR_TRY(weir_jinja_list_add(state->arena, loop->passed, item));
    }
    return WEIR_OK;
}

/* Enters a scope that holds nothing but `loop`. Iterations share it unless a macro keeps it, or
 * long loops would fill the memory. */
static weir_status enter_turn(weir_jinja_state *state, weir_jinja_loop *loop)
{
    if (loop->turn && !loop->turn->names.buckets &&
        !(loop->node->operation & WEIR_JINJA_KEEPS_SCOPE)) {
        loop->turn->names.count = loop->turn->names.live = 1;
        state->scope = loop->turn;
        return WEIR_OK;
    }
    WEIR_TRY(weir_jinja_scope_new(state, &loop->turn, loop->outer));
    state->scope = loop->turn;
    return weir_jinja_scope_set(
        state, loop->turn, "loop", (weir_jinja_value){ .kind = WEIR_JINJA_LOOP, .as.loop = loop }
    );
}

static weir_status run_turn(weir_jinja_state *state, weir_jinja_loop *loop, jump *to)
{
    weir_jinja_scope *before = state->scope;
    WEIR_TRY(weir_jinja_step(state, 0));
    WEIR_TRY(enter_turn(state, loop));
    WEIR_TRY(assign(state, loop->node->left, loop->passed->items[loop->index]));
    WEIR_TRY(run_body(state, &loop->node->body, to));
    state->scope = before;
    return WEIR_OK;
}

weir_status weir_jinja_loop_run(
    weir_jinja_state *state, const weir_jinja_node *node, weir_jinja_value items,
    weir_jinja_scope *outer, int depth
)
{
    weir_jinja_loop *loop = NULL;
    jump to = JUMP_NONE;
    WEIR_TRY(weir_jinja_alloc(state->arena, &loop, sizeof *loop));
    *loop = (weir_jinja_loop){ .node = node, .outer = outer, .depth = depth };
    WEIR_TRY(weir_jinja_items(state, &loop->source, items));
    WEIR_TRY(weir_jinja_list_new(state->arena, &loop->passed, loop->source->count));
    for (; to != JUMP_BREAK; loop->index++) {
        WEIR_TRY(weir_jinja_loop_fill(state, loop, loop->index + 1));
        if (loop->index >= loop->passed->count) break;
        WEIR_TRY(run_turn(state, loop, &to));
    }
    if (loop->index > 0 || node->otherwise.count == 0) return WEIR_OK;
    weir_jinja_scope *before = state->scope;
    to = JUMP_NONE;
    WEIR_TRY(weir_jinja_scope_new(state, &state->scope, outer));
    WEIR_TRY(run_body(state, &node->otherwise, &to));
    state->scope = before;
    return WEIR_OK;
}

static weir_status run_for(weir_jinja_state *state, const weir_jinja_node *node)
{
    weir_jinja_value items;
    WEIR_TRY(weir_jinja_eval(state, &items, node->right));
    return weir_jinja_loop_run(state, node, items, state->scope, 0);
}

/* ---- captured text --------------------------------------------------------------------------- */

/* Runs a body in its own scope and returns its output, through `filters` if there are any. */
static weir_status capture(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_nodes *body,
    const weir_jinja_node *filters
)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    weir_jinja_builder *outer = state->out;
    weir_jinja_scope *scope = state->scope;
    jump to = JUMP_NONE;
    WEIR_TRY(weir_jinja_scope_new(state, &state->scope, scope));
    state->out = &text;
    WEIR_TRY(run_body(state, body, &to));
    if (filters)
        WEIR_TRY(weir_jinja_eval(state, out, filters));
    else
        WEIR_TRY(weir_jinja_builder_finish(&text, out));
    state->out = outer;
    state->scope = scope;
    return WEIR_OK;
}

static weir_status run_set_block(weir_jinja_state *state, const weir_jinja_node *node)
{
    weir_jinja_value text;
    WEIR_TRY(capture(state, &text, &node->body, node->right));
    return assign(state, node->left, text);
}

static weir_status run_filter_block(weir_jinja_state *state, const weir_jinja_node *node)
{
    weir_jinja_value text;
    WEIR_TRY(capture(state, &text, &node->body, node->right));
    return weir_jinja_print(state, state->out, text);
}

/* ---- macros ---------------------------------------------------------------------------------- */

static weir_status make_macro(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node
)
{
    weir_jinja_macro *macro = NULL;
    WEIR_TRY(weir_jinja_alloc(state->arena, &macro, sizeof *macro));
    *macro = (weir_jinja_macro){ .node = node, .scope = state->scope };
    *out = (weir_jinja_value){ .kind = WEIR_JINJA_MACRO, .as.macro = macro };
    return WEIR_OK;
}

static weir_status run_call_block(weir_jinja_state *state, const weir_jinja_node *node)
{
    weir_jinja_value callee, caller, text;
    weir_jinja_arguments given;
    WEIR_TRY(weir_jinja_eval(state, &callee, node->left->left));
    WEIR_TRY(weir_jinja_eval_arguments(state, &given, node->left));
    WEIR_TRY(make_macro(state, &caller, node->right));
    weir_jinja_arguments arguments = given;
    WEIR_TRY(
        weir_jinja_alloc(state->arena, &arguments.named, (given.n_named + 1) * sizeof *given.named)
    );
    WEIR_TRY(
        weir_jinja_alloc(state->arena, &arguments.names, (given.n_named + 1) * sizeof *given.names)
    );
    for (size_t i = 0; i < given.n_named; i++) {
        arguments.named[i] = given.named[i];
        arguments.names[i] = given.names[i];
    }
    arguments.named[given.n_named] = caller;
    arguments.names[given.n_named] = node->right->name;
    arguments.n_named++;
    WEIR_TRY(weir_jinja_call(state, &text, callee, &arguments));
    return weir_jinja_print(state, state->out, text);
}

/* The value of parameter `index`: by position, by name, or the default. used[] marks the named
 * arguments that were consumed. */
static weir_status bind_parameter(
    weir_jinja_state *state, const weir_jinja_node *node, size_t index,
    const weir_jinja_arguments *arguments, bool *used
)
{
    weir_jinja_string *name = node->items.items[index]->name;
    const size_t first_default = node->items.count - node->named.count;
    weir_jinja_value v = weir_jinja_undefined(name->bytes);
    bool given = index < arguments->count;
    if (given) v = arguments->items[index];
    for (size_t i = 0; i < arguments->n_named; i++) {
        if (used[i] || !weir_jinja_string_same(arguments->names[i], name)) continue;
        if (given)
            return weir_jinja_fail(
                state, "macro got multiple values for argument '%.60s'", name->bytes
            );
        v = arguments->named[i];
        used[i] = given = true;
    }
    if (!given && index >= first_default)
        WEIR_TRY(weir_jinja_eval(state, &v, node->named.items[index - first_default]->left));
    return weir_jinja_dict_set(state->arena, &state->scope->names, weir_jinja_from_string(name), v);
}

/* Handles the arguments left over: caller, kwargs, varargs, or an error. */
static weir_status bind_rest(
    weir_jinja_state *state, const weir_jinja_node *node, const weir_jinja_arguments *arguments,
    const bool *used
)
{
    weir_jinja_dict *kwargs = NULL;
    weir_jinja_list *varargs = NULL;
    weir_jinja_value caller = weir_jinja_undefined("caller");
    WEIR_TRY(weir_jinja_dict_new(state->arena, &kwargs));
    WEIR_TRY(weir_jinja_list_new(state->arena, &varargs, 0));
    for (size_t i = 0; i < arguments->n_named; i++) {
        const weir_jinja_value key = weir_jinja_from_string(arguments->names[i]);
        if (used[i]) continue;
        if (weir_jinja_string_is(key.as.string, "caller") &&
            (node->operation & WEIR_JINJA_WANTS_CALLER))
            caller = arguments->named[i];
        else if (node->operation & WEIR_JINJA_WANTS_KWARGS)
            WEIR_TRY(weir_jinja_dict_set(state->arena, kwargs, key, arguments->named[i]));
        else
            return weir_jinja_fail(
                state, "macro '%.60s' takes no keyword argument '%.60s'", node->name->bytes,
                key.as.string->bytes
            );
    }
    for (size_t i = node->items.count; i < arguments->count; i++)
        WEIR_TRY(weir_jinja_list_add(state->arena, varargs, arguments->items[i]));
    if (varargs->count && !(node->operation & WEIR_JINJA_WANTS_VARARGS))
        return weir_jinja_fail(
            state, "macro '%.60s' takes not more than %zu argument(s)", node->name->bytes,
            node->items.count
        );
    if (node->operation & WEIR_JINJA_WANTS_CALLER)
        WEIR_TRY(weir_jinja_scope_set(state, state->scope, "caller", caller));
    if (node->operation & WEIR_JINJA_WANTS_KWARGS)
        WEIR_TRY(weir_jinja_scope_set(
            state, state->scope, "kwargs",
            (weir_jinja_value){ .kind = WEIR_JINJA_DICT, .as.dict = kwargs }
        ));
    if (node->operation & WEIR_JINJA_WANTS_VARARGS)
        WEIR_TRY(weir_jinja_scope_set(
            state, state->scope, "varargs",
            (weir_jinja_value){ .kind = WEIR_JINJA_TUPLE, .as.list = varargs }
        ));
    return WEIR_OK;
}

weir_status weir_jinja_call_macro(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_macro *macro,
    const weir_jinja_arguments *arguments
)
{
    const weir_jinja_node *node = macro->node;
    weir_jinja_scope *scope = state->scope;
    weir_jinja_builder text = weir_jinja_builder_new(state->arena), *outer = state->out;
    bool *used = NULL;
    jump to = JUMP_NONE;
    WEIR_TRY(weir_jinja_alloc(state->arena, &used, arguments->n_named * sizeof *used));
    WEIR_TRY(weir_jinja_scope_new(state, &state->scope, macro->scope));
    for (size_t i = 0; i < node->items.count; i++)
        WEIR_TRY(bind_parameter(state, node, i, arguments, used));
    WEIR_TRY(bind_rest(state, node, arguments, used));
    state->out = &text;
    WEIR_TRY(run_body(state, &node->body, &to));
    state->out = outer;
    state->scope = scope;
    return weir_jinja_builder_finish(&text, out);
}

/* ---- statements ------------------------------------------------------------------------------ */

static weir_status run_if(weir_jinja_state *state, const weir_jinja_node *node, jump *to)
{
    for (size_t i = 0; i + 1 < node->items.count; i += 2) {
        weir_jinja_value test;
        WEIR_TRY(weir_jinja_eval(state, &test, node->items.items[i]));
        if (weir_jinja_truth(test)) return run_body(state, &node->items.items[i + 1]->body, to);
    }
    return run_body(state, &node->body, to);
}

static weir_status run_with(weir_jinja_state *state, const weir_jinja_node *node, jump *to)
{
    weir_jinja_scope *outer = state->scope, *inner = NULL;
    WEIR_TRY(weir_jinja_scope_new(state, &inner, outer));
    /* Assigned values are visible outside. */
    for (size_t i = 0; i + 1 < node->items.count; i += 2) {
        weir_jinja_value v;
        state->scope = outer;
        WEIR_TRY(weir_jinja_eval(state, &v, node->items.items[i + 1]));
        state->scope = inner;
        WEIR_TRY(assign(state, node->items.items[i], v));
    }
    state->scope = inner;
    WEIR_TRY(run_body(state, &node->body, to));
    state->scope = outer;
    return WEIR_OK;
}

static weir_status run_value(weir_jinja_state *state, const weir_jinja_node *node)
{
    weir_jinja_value v;
    if (node->kind == WEIR_JINJA_MACRO_OF) {
        WEIR_TRY(make_macro(state, &v, node));
        return weir_jinja_dict_set(
            state->arena, &state->scope->names, weir_jinja_from_string(node->name), v
        );
    }
    if (node->kind == WEIR_JINJA_DATA)
        return weir_jinja_add_string(state->out, node->value.as.string);
    WEIR_TRY(weir_jinja_eval(state, &v, node->kind == WEIR_JINJA_PRINT ? node->left : node->right));
    return node->kind == WEIR_JINJA_PRINT ? weir_jinja_print(state, state->out, v)
                                          : assign(state, node->left, v);
}

static weir_status run_statement(weir_jinja_state *state, const weir_jinja_node *node, jump *to)
{
    switch ((int)node->kind) {
    case WEIR_JINJA_IF: return run_if(state, node, to);
    case WEIR_JINJA_FOR: return run_for(state, node);
    case WEIR_JINJA_WITH: return run_with(state, node, to);
    case WEIR_JINJA_SET_BLOCK: return run_set_block(state, node);
    case WEIR_JINJA_FILTER_BLOCK: return run_filter_block(state, node);
    case WEIR_JINJA_CALL_BLOCK: return run_call_block(state, node);
    case WEIR_JINJA_BREAK: *to = JUMP_BREAK; return WEIR_OK;
    case WEIR_JINJA_CONTINUE: *to = JUMP_CONTINUE; return WEIR_OK;
    default: return run_value(state, node);
    }
}

static weir_status run_body(weir_jinja_state *state, const weir_jinja_nodes *body, jump *to)
{
    WEIR_TRY(weir_jinja_enter(state));
    *to = JUMP_NONE;
    for (size_t i = 0; i < body->count && *to == JUMP_NONE; i++) {
        WEIR_TRY(weir_jinja_step(state, 0));
        state->line = body->items[i]->line;
        WEIR_TRY(run_statement(state, body->items[i], to));
    }
    weir_jinja_leave(state);
    return WEIR_OK;
}

weir_status weir_jinja_run(weir_jinja_state *state, const weir_jinja_nodes *body)
{
    jump to = JUMP_NONE;
    return run_body(state, body, &to);
}
