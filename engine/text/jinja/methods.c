/* engine/text/jinja/methods.c - methods of lists and dictionaries, and the lookup of methods by
 * name. All names of Python's methods are known, so they hide dictionary keys of the same name as
 * in Python; those that templates do not need fail when called. */
#include "engine/text/jinja/methods.h"

#include <string.h>

weir_status weir_jinja_method_int(weir_jinja_method_call *c, size_t i, int64_t absent, int64_t *out)
{
    *out = absent;
    if (!weir_jinja_has(c, i)) return WEIR_OK;
    if (!weir_jinja_is_integer(c->given[i]))
        return weir_jinja_fail(
            c->state, "a method needs an integer, not %s", weir_jinja_type_name(c->given[i])
        );
    *out = weir_jinja_as_int(c->given[i]);
    return WEIR_OK;
}

/* ---- lists and dictionaries ------------------------------------------------------------------ */

/* Methods change a list or a dictionary, as published templates do; Jinja2's immutable sandbox
 * forbids it. */
static weir_status list_append(weir_jinja_method_call *c)
{
    *c->out = weir_jinja_none();
    return weir_jinja_list_add(c->state->arena, c->self.as.list, c->given[0]);
}

static weir_status list_extend(weir_jinja_method_call *c)
{
    weir_jinja_list *items = NULL;
    WEIR_TRY(weir_jinja_items(c->state, &items, c->given[0]));
    const size_t count = items->count; /* `items` may be the list itself */
    WEIR_TRY(weir_jinja_step(c->state, count * sizeof c->self));
    for (size_t i = 0; i < count; i++)
        WEIR_TRY(weir_jinja_list_add(c->state->arena, c->self.as.list, items->items[i]));
    *c->out = weir_jinja_none();
    return WEIR_OK;
}

static weir_status list_pop(weir_jinja_method_call *c)
{
    weir_jinja_list *list = c->self.as.list;
    int64_t at = -1;
    WEIR_TRY(weir_jinja_method_int(c, 0, -1, &at));
    if (at < 0) at += (int64_t)list->count;
    if (at < 0 || (size_t)at >= list->count)
        return weir_jinja_fail(c->state, "pop: the list has no such item");
    WEIR_TRY(weir_jinja_step(c->state, list->count * sizeof c->self));
    *c->out = list->items[at];
    list->count--;
    memmove(
        &list->items[at], &list->items[at + 1], (list->count - (size_t)at) * sizeof *list->items
    );
    return WEIR_OK;
}

static weir_status list_insert(weir_jinja_method_call *c)
{
    weir_jinja_list *list = c->self.as.list;
    int64_t at = 0;
    WEIR_TRY(weir_jinja_method_int(c, 0, 0, &at));
    if (at < 0) at += (int64_t)list->count;
    if (at < 0) at = 0;
    if ((size_t)at > list->count) at = (int64_t)list->count;
    WEIR_TRY(weir_jinja_step(c->state, list->count * sizeof c->self));
    WEIR_TRY(weir_jinja_list_add(c->state->arena, list, c->given[1]));
    memmove(
        &list->items[at + 1], &list->items[at], (list->count - 1 - (size_t)at) * sizeof *list->items
    );
    list->items[at] = c->given[1];
    *c->out = weir_jinja_none();
    return WEIR_OK;
}

static weir_status list_find(weir_jinja_method_call *c)
{
    const weir_jinja_list *list = c->self.as.list;
    int64_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        WEIR_TRY(weir_jinja_step(c->state, 0));
        if (!weir_jinja_equal(list->items[i], c->given[0], &c->state->steps_left)) continue;
        count++;
        *c->out = weir_jinja_int((int64_t)i);
        if (!(c->variant & WEIR_JINJA_FIND_COUNT)) return WEIR_OK;
    }
    if (!(c->variant & WEIR_JINJA_FIND_COUNT))
        return weir_jinja_fail(c->state, "the item is not in the list");
    *c->out = weir_jinja_int(count);
    return WEIR_OK;
}

static weir_status list_copy(weir_jinja_method_call *c)
{
    const weir_jinja_value all[3] = { weir_jinja_none(), weir_jinja_none(), weir_jinja_none() };
    return weir_jinja_slice(c->state, c->out, c->self, all);
}

weir_status weir_jinja_dict_list(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_dict *dict, char what
)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_work(state, dict->count, WEIR_JINJA_MADE));
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, dict->live));
    for (size_t i = 0; i < dict->count; i++) {
        const weir_jinja_entry *entry = &dict->entries[i];
        weir_jinja_value item = what == 'k' ? entry->key : entry->value;
        if (!entry->live) continue;
        if (what == 'i') WEIR_TRY(weir_jinja_pair(state->arena, &item, entry->key, entry->value));
        WEIR_TRY(weir_jinja_list_add(state->arena, list, item));
    }
    *out = (weir_jinja_value){ .kind = WEIR_JINJA_LIST, .as.list = list };
    return WEIR_OK;
}

static weir_status dict_list(weir_jinja_method_call *c)
{
    return weir_jinja_dict_list(c->state, c->out, c->self.as.dict, (char)c->variant);
}

static weir_status find_key(weir_jinja_method_call *c, weir_jinja_entry **out)
{
    if (!weir_jinja_hashable(c->given[0]))
        return weir_jinja_fail(
            c->state, "unhashable type: '%s'", weir_jinja_type_name(c->given[0])
        );
    WEIR_TRY(weir_jinja_look(c->state, c->given[0]));
    *out = weir_jinja_dict_find(c->self.as.dict, c->given[0]);
    return WEIR_OK;
}

static weir_status dict_get(weir_jinja_method_call *c)
{
    weir_jinja_entry *entry = NULL;
    WEIR_TRY(find_key(c, &entry));
    *c->out = entry ? entry->value : c->mask & 2 ? c->given[1] : weir_jinja_none();
    if (entry || c->variant != 's') return WEIR_OK;
    /* This is setdefault. */
    return weir_jinja_dict_set(c->state->arena, c->self.as.dict, c->given[0], *c->out);
}

static weir_status dict_pop(weir_jinja_method_call *c)
{
    weir_jinja_entry *entry = NULL;
    WEIR_TRY(find_key(c, &entry));
    if (!entry && !(c->mask & 2))
        return weir_jinja_fail(c->state, "pop: the dictionary has no such key");
    *c->out = entry ? entry->value : c->given[1];
    if (entry) weir_jinja_dict_remove(c->self.as.dict, entry);
    return WEIR_OK;
}

static weir_status copy_entries(
    weir_jinja_method_call *c, weir_jinja_dict *to, const weir_jinja_dict *from
)
{
    const size_t count = from->count;
    WEIR_TRY(weir_jinja_work(c->state, count, WEIR_JINJA_MADE));
    for (size_t i = 0; i < count; i++) {
        if (!from->entries[i].live) continue;
        WEIR_TRY(weir_jinja_look(c->state, from->entries[i].key));
        WEIR_TRY(
            weir_jinja_dict_set(c->state->arena, to, from->entries[i].key, from->entries[i].value)
        );
    }
    return WEIR_OK;
}

static weir_status dict_update(weir_jinja_method_call *c)
{
    if (c->given[0].kind != WEIR_JINJA_DICT)
        return weir_jinja_fail(c->state, "update needs a dictionary");
    *c->out = weir_jinja_none();
    return copy_entries(c, c->self.as.dict, c->given[0].as.dict);
}

static weir_status dict_copy(weir_jinja_method_call *c)
{
    weir_jinja_dict *dict = NULL;
    WEIR_TRY(weir_jinja_dict_new(c->state->arena, &dict));
    dict->user = c->self.as.dict->user;
    *c->out = (weir_jinja_value){ .kind = WEIR_JINJA_DICT, .as.dict = dict };
    return copy_entries(c, dict, c->self.as.dict);
}

static const weir_jinja_method container_methods[] = {
    { WEIR_JINJA_LIST, "append", "item", list_append, 0, 1 },
    { WEIR_JINJA_LIST, "extend", "items", list_extend, 0, 1 },
    { WEIR_JINJA_LIST, "insert", "index item", list_insert, 0, 2 },
    { WEIR_JINJA_LIST, "pop", "index", list_pop, 0, 0 },
    { WEIR_JINJA_LIST, "index", "item", list_find, 0, 1 },
    { WEIR_JINJA_LIST, "count", "item", list_find, WEIR_JINJA_FIND_COUNT, 1 },
    { WEIR_JINJA_LIST, "copy", "", list_copy, 0, 0 },
    { WEIR_JINJA_LIST, "clear", "", NULL, 0, 0 },
    { WEIR_JINJA_LIST, "remove", "", NULL, 0, 0 },
    { WEIR_JINJA_LIST, "reverse", "", NULL, 0, 0 },
    { WEIR_JINJA_LIST, "sort", "", NULL, 0, 0 },
    { WEIR_JINJA_TUPLE, "index", "item", list_find, 0, 1 },
    { WEIR_JINJA_TUPLE, "count", "item", list_find, WEIR_JINJA_FIND_COUNT, 1 },
    { WEIR_JINJA_DICT, "items", "", dict_list, 'i', 0 },
    { WEIR_JINJA_DICT, "keys", "", dict_list, 'k', 0 },
    { WEIR_JINJA_DICT, "values", "", dict_list, 'v', 0 },
    { WEIR_JINJA_DICT, "get", "key default", dict_get, 'g', 1 },
    { WEIR_JINJA_DICT, "setdefault", "key default", dict_get, 's', 1 },
    { WEIR_JINJA_DICT, "pop", "key default", dict_pop, 0, 1 },
    { WEIR_JINJA_DICT, "update", "other", dict_update, 0, 1 },
    { WEIR_JINJA_DICT, "copy", "", dict_copy, 0, 0 },
    { WEIR_JINJA_DICT, "clear", "", NULL, 0, 0 },
    { WEIR_JINJA_DICT, "fromkeys", "", NULL, 0, 0 },
    { WEIR_JINJA_DICT, "popitem", "", NULL, 0, 0 },
};

/* Methods are numbers: text methods, then those of containers, then loop.cycle and loop.changed. */
enum { CONTAINER_METHODS = 1000, METHOD_CYCLE = 2000, METHOD_CHANGED };

static int find_in(
    const weir_jinja_method *methods, int count, weir_jinja_kind kind, const weir_jinja_string *name
)
{
    for (int i = 0; i < count; i++)
        if (methods[i].kind == kind && weir_jinja_string_is(name, methods[i].name)) return i;
    return -1;
}

int weir_jinja_method_find(weir_jinja_value receiver, const weir_jinja_string *name)
{
    if (receiver.kind == WEIR_JINJA_LOOP)
        return weir_jinja_string_is(name, "cycle")     ? METHOD_CYCLE
               : weir_jinja_string_is(name, "changed") ? METHOD_CHANGED
                                                       : -1;
    if (receiver.kind == WEIR_JINJA_STRING)
        return find_in(weir_jinja_text_methods, weir_jinja_text_methods_count, receiver.kind, name);
    const int found = find_in(
        container_methods, (int)(sizeof container_methods / sizeof *container_methods),
        receiver.kind, name
    );
    return found < 0 ? -1 : CONTAINER_METHODS + found;
}

static weir_status call_loop_method(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_bound *bound,
    const weir_jinja_arguments *arguments
)
{
    weir_jinja_loop *loop = bound->receiver.as.loop;
    if (arguments->n_named || (bound->method == METHOD_CYCLE && arguments->count == 0))
        return weir_jinja_fail(state, "loop.cycle needs items");
    if (bound->method == METHOD_CYCLE) {
        *out = arguments->items[loop->index % arguments->count];
        return WEIR_OK;
    }
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, arguments->count));
    for (size_t i = 0; i < arguments->count; i++)
        WEIR_TRY(weir_jinja_list_add(state->arena, list, arguments->items[i]));
    const weir_jinja_value now = { .kind = WEIR_JINJA_TUPLE, .as.list = list };
    *out = weir_jinja_bool(!weir_jinja_equal(now, loop->changed, &state->steps_left));
    loop->changed = now;
    return WEIR_OK;
}

weir_status weir_jinja_call_method(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_bound *bound,
    const weir_jinja_arguments *arguments
)
{
    if (bound->method >= METHOD_CYCLE) return call_loop_method(state, out, bound, arguments);
    const weir_jinja_method *m = bound->method >= CONTAINER_METHODS
                                     ? &container_methods[bound->method - CONTAINER_METHODS]
                                     : &weir_jinja_text_methods[bound->method];
    weir_jinja_method_call c = {
        .state = state, .out = out, .self = bound->receiver, .variant = m->variant
    };
    if (!m->run)
        return weir_jinja_fail(
            state, "%s of %s is not supported", m->name, weir_jinja_type_name(bound->receiver)
        );
    WEIR_TRY(weir_jinja_bind(state, m->name, m->parameters, c.given, &c.mask, arguments));
    const unsigned needed = (1u << m->required) - 1;
    if ((c.mask & needed) != needed)
        return weir_jinja_fail(state, "%s needs %d argument(s)", m->name, m->required);
    return m->run(&c);
}
