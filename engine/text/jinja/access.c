/* engine/text/jinja/access.c - attributes, items, slices and iteration. Nothing of the host is
 * reachable. */
#include <string.h>

#include "engine/text/jinja/state.h"

static weir_status loop_length(
    weir_jinja_state *state, weir_jinja_loop *loop, weir_jinja_value *out, int64_t less
)
{
    WEIR_TRY(weir_jinja_loop_fill(state, loop, SIZE_MAX));
    *out = weir_jinja_int((int64_t)loop->passed->count - less);
    return WEIR_OK;
}

static weir_status loop_attribute(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v,
    const weir_jinja_string *name
)
{
    weir_jinja_loop *loop = v.as.loop;
    const size_t index = loop->index;
    *out = weir_jinja_undefined("an attribute of loop");
    if (weir_jinja_string_is(name, "index"))
        *out = weir_jinja_int((int64_t)index + 1);
    else if (weir_jinja_string_is(name, "index0"))
        *out = weir_jinja_int((int64_t)index);
    else if (weir_jinja_string_is(name, "first"))
        *out = weir_jinja_bool(index == 0);
    else if (weir_jinja_string_is(name, "depth"))
        *out = weir_jinja_int(loop->depth + 1);
    else if (weir_jinja_string_is(name, "depth0"))
        *out = weir_jinja_int(loop->depth);
    else if (weir_jinja_string_is(name, "length"))
        return loop_length(state, loop, out, 0);
    else if (weir_jinja_string_is(name, "revindex"))
        return loop_length(state, loop, out, (int64_t)index);
    else if (weir_jinja_string_is(name, "revindex0"))
        return loop_length(state, loop, out, (int64_t)index + 1);
    else if (weir_jinja_string_is(name, "previtem")) {
        if (index > 0) *out = loop->passed->items[index - 1];
    } else if (weir_jinja_string_is(name, "last") || weir_jinja_string_is(name, "nextitem")) {
        WEIR_TRY(weir_jinja_loop_fill(state, loop, index + 2));
        const bool last = loop->passed->count < index + 2;
        if (name->bytes[0] == 'l')
            *out = weir_jinja_bool(last);
        else if (!last)
            *out = loop->passed->items[index + 1];
    }
    return WEIR_OK;
}

static weir_status bind_method(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v, int method
)
{
    weir_jinja_bound *bound = NULL;
    WEIR_TRY(weir_jinja_alloc(state->arena, &bound, sizeof *bound));
    *bound = (weir_jinja_bound){ .receiver = v, .method = method };
    *out = (weir_jinja_value){ .kind = WEIR_JINJA_METHOD, .as.bound = bound };
    return WEIR_OK;
}

/* Python's getattr. *found is false if there is no such attribute. */
static weir_status own_attribute(
    weir_jinja_state *state, weir_jinja_value *out, bool *found, weir_jinja_value v,
    weir_jinja_string *name
)
{
    const int method = weir_jinja_method_find(v, name);
    *found = method >= 0;
    if (method >= 0) return bind_method(state, out, v, method);
    if (v.kind == WEIR_JINJA_LOOP) {
        WEIR_TRY(loop_attribute(state, out, v, name));
        *found = true;
    }
    if (v.kind == WEIR_JINJA_MACRO && weir_jinja_string_is(name, "name")) {
        *out = weir_jinja_from_string(v.as.macro->node->name);
        *found = true;
    }
    if (v.kind == WEIR_JINJA_NAMESPACE) {
        WEIR_TRY(weir_jinja_look(state, weir_jinja_from_string(name)));
        const weir_jinja_entry *entry =
            weir_jinja_dict_find(v.as.dict, weir_jinja_from_string(name));
        if (entry) *out = entry->value;
        *found = entry != NULL;
    }
    return WEIR_OK;
}

static bool index_of(int64_t index, size_t count, size_t *out)
{
    if (index < 0) index += (int64_t)count;
    *out = (size_t)index;
    return index >= 0 && (uint64_t)index < count;
}

/* Python's obj[key]. *found is false where Python would raise. */
static weir_status own_item(
    weir_jinja_state *state, weir_jinja_value *out, bool *found, weir_jinja_value v,
    weir_jinja_value key
)
{
    size_t index = 0;
    *found = false;
    if (v.kind == WEIR_JINJA_DICT) {
        WEIR_TRY(weir_jinja_look(state, key));
        const weir_jinja_entry *entry =
            weir_jinja_hashable(key) ? weir_jinja_dict_find(v.as.dict, key) : NULL;
        if (entry) *out = entry->value;
        *found = entry != NULL;
        return WEIR_OK;
    }
    if (!weir_jinja_is_integer(key)) return WEIR_OK;
    if (v.kind == WEIR_JINJA_LIST || v.kind == WEIR_JINJA_TUPLE) {
        *found = index_of(weir_jinja_as_int(key), v.as.list->count, &index);
        if (*found) *out = v.as.list->items[index];
        return WEIR_OK;
    }
    if (v.kind != WEIR_JINJA_STRING) return WEIR_OK;
    WEIR_TRY(weir_jinja_work(state, v.as.string->size, WEIR_JINJA_READ));
    *found = index_of(weir_jinja_as_int(key), weir_jinja_string_count(v.as.string), &index);
    if (!*found) return WEIR_OK;
    const size_t begin = weir_jinja_string_offset(v.as.string, index);
    size_t size = 0;
    (void)weir_jinja_decode(v.as.string->bytes + begin, v.as.string->size - begin, &size);
    return weir_jinja_substring(state->arena, out, v.as.string, begin, size);
}

weir_status weir_jinja_attribute(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v, weir_jinja_string *name
)
{
    bool found = false;
    if (v.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(state, v);
    WEIR_TRY(own_attribute(state, out, &found, v, name));
    if (!found) WEIR_TRY(own_item(state, out, &found, v, weir_jinja_from_string(name)));
    if (!found) *out = weir_jinja_undefined(name->bytes);
    return WEIR_OK;
}

weir_status weir_jinja_item(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v, weir_jinja_value key
)
{
    bool found = false;
    if (v.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(state, v);
    WEIR_TRY(own_item(state, out, &found, v, key));
    if (!found && key.kind == WEIR_JINJA_STRING)
        WEIR_TRY(own_attribute(state, out, &found, v, key.as.string));
    if (!found) *out = weir_jinja_undefined(NULL);
    return WEIR_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* Resolves slice bounds over `count` items to start, number and step, by Python's rule. */
static weir_status resolve_slice(
    weir_jinja_state *state, const weir_jinja_value bounds[3], size_t count, int64_t *start,
    size_t *n, int64_t *step
)
{
    const int64_t size = (int64_t)count;
    for (size_t i = 0; i < 3; i++)
        if (bounds[i].kind != WEIR_JINJA_NONE && !weir_jinja_is_integer(bounds[i]))
            return weir_jinja_fail(
                state, "slice indices must be integers or None, not '%s'",
                weir_jinja_type_name(bounds[i])
            );
    *step = bounds[2].kind == WEIR_JINJA_NONE ? 1 : weir_jinja_as_int(bounds[2]);
    if (*step == 0) return weir_jinja_fail(state, "slice step cannot be zero");
    if (*step < -INT64_MAX) *step = -INT64_MAX;
    const int64_t low = *step > 0 ? 0 : -1, high = *step > 0 ? size : size - 1;
    int64_t edge[2] = { *step > 0 ? low : high, *step > 0 ? high : low };
    for (size_t i = 0; i < 2; i++) {
        if (bounds[i].kind == WEIR_JINJA_NONE) continue;
        int64_t at = weir_jinja_as_int(bounds[i]);
        if (at < 0)
            at = at < -size ? -1 : at + size;
        else if (at > size)
            at = size;
        edge[i] = at < low ? low : at > high ? high : at;
    }
    *start = edge[0];
    const int64_t distance = *step > 0 ? edge[1] - edge[0] : edge[0] - edge[1];
    *n = distance > 0 ? (size_t)((distance - 1) / (*step > 0 ? *step : -*step)) + 1 : 0;
    return WEIR_OK;
}

static weir_status slice_string(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_string *string, int64_t start,
    size_t n, int64_t step
)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    if (step == 1) {
        const size_t begin = weir_jinja_string_offset(string, (size_t)start);
        return weir_jinja_substring(
            state->arena, out, string, begin,
            weir_jinja_string_offset(string, (size_t)start + n) - begin
        );
    }
    size_t at = weir_jinja_string_offset(string, (size_t)start), size = 0;
    WEIR_TRY(weir_jinja_work(state, n, WEIR_JINJA_MADE));
    for (size_t i = 0; i < n; i++) {
        (void)weir_jinja_decode(string->bytes + at, string->size - at, &size);
        WEIR_TRY(weir_jinja_add_part(&text, string, at, size));
        for (int64_t k = 0; k < step && at < string->size; k++, at += size)
            (void)weir_jinja_decode(string->bytes + at, string->size - at, &size);
        for (int64_t k = 0; k > step && at > 0; k--, at -= size)
            (void)weir_jinja_decode_last(string->bytes, at, &size);
    }
    WEIR_TRY(weir_jinja_builder_finish(&text, out));
    out->as.string->markup = string->markup;
    return WEIR_OK;
}

weir_status weir_jinja_slice(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v,
    const weir_jinja_value bounds[3]
)
{
    int64_t start = 0, step = 1;
    size_t n = 0;
    if (v.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(state, v);
    if (v.kind == WEIR_JINJA_STRING) {
        WEIR_TRY(weir_jinja_work(state, v.as.string->size, WEIR_JINJA_READ));
        WEIR_TRY(
            resolve_slice(state, bounds, weir_jinja_string_count(v.as.string), &start, &n, &step)
        );
        return slice_string(state, out, v.as.string, start, n, step);
    }
    if (v.kind != WEIR_JINJA_LIST && v.kind != WEIR_JINJA_TUPLE)
        return weir_jinja_fail(state, "'%s' object cannot be sliced", weir_jinja_type_name(v));
    weir_jinja_list *list = NULL;
    WEIR_TRY(resolve_slice(state, bounds, v.as.list->count, &start, &n, &step));
    WEIR_TRY(weir_jinja_step(state, n * sizeof v));
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, n));
    for (; list->count < n; start += step) list->items[list->count++] = v.as.list->items[start];
    list->user = v.as.list->user;
    *out = (weir_jinja_value){ .kind = v.kind, .as.list = list };
    return WEIR_OK;
}

/* ---- iteration ------------------------------------------------------------------------------- */

bool weir_jinja_iterable(weir_jinja_value v)
{
    return weir_jinja_is_list(v) || v.kind == WEIR_JINJA_STRING || v.kind == WEIR_JINJA_DICT ||
           v.kind == WEIR_JINJA_UNDEFINED || v.kind == WEIR_JINJA_LOOP;
}

static weir_status characters(
    weir_jinja_state *state, weir_jinja_list *list, const weir_jinja_string *string
)
{
    for (size_t at = 0, size = 0; at < string->size; at += size) {
        weir_jinja_value part;
        WEIR_TRY(weir_jinja_step(state, 0));
        (void)weir_jinja_decode(string->bytes + at, string->size - at, &size);
        WEIR_TRY(weir_jinja_substring(state->arena, &part, string, at, size));
        WEIR_TRY(weir_jinja_list_add(state->arena, list, part));
    }
    return WEIR_OK;
}

weir_status weir_jinja_items(weir_jinja_state *state, weir_jinja_list **out, weir_jinja_value v)
{
    if (v.kind == WEIR_JINJA_LIST || v.kind == WEIR_JINJA_TUPLE) {
        *out = v.as.list;
        return weir_jinja_work(state, v.as.list->count, WEIR_JINJA_MADE);
    }
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, 0));
    *out = list;
    if (v.kind == WEIR_JINJA_UNDEFINED) return WEIR_OK;
    if (v.kind == WEIR_JINJA_STRING) return characters(state, list, v.as.string);
    if (v.kind == WEIR_JINJA_GENERATOR) {
        *list = *v.as.list;
        *v.as.list = (weir_jinja_list){ 0 };
        return weir_jinja_work(state, list->count, WEIR_JINJA_MADE);
    }
    if (v.kind != WEIR_JINJA_DICT)
        return weir_jinja_fail(state, "'%s' object is not iterable", weir_jinja_type_name(v));
    WEIR_TRY(weir_jinja_work(state, v.as.dict->count, WEIR_JINJA_MADE));
    for (size_t i = 0; i < v.as.dict->count; i++)
        if (v.as.dict->entries[i].live)
            WEIR_TRY(weir_jinja_list_add(state->arena, list, v.as.dict->entries[i].key));
    return WEIR_OK;
}

weir_status weir_jinja_length(weir_jinja_state *state, size_t *out, weir_jinja_value v)
{
    *out = 0;
    if (v.kind == WEIR_JINJA_STRING) {
        const size_t unknown = v.as.string->count == SIZE_MAX ? v.as.string->size : 0;
        WEIR_TRY(weir_jinja_work(state, unknown, WEIR_JINJA_READ));
        *out = weir_jinja_string_count(v.as.string);
    } else if (v.kind == WEIR_JINJA_LIST || v.kind == WEIR_JINJA_TUPLE)
        *out = v.as.list->count;
    else if (v.kind == WEIR_JINJA_DICT)
        *out = v.as.dict->live;
    else if (v.kind == WEIR_JINJA_LOOP) {
        WEIR_TRY(weir_jinja_loop_fill(state, v.as.loop, SIZE_MAX));
        *out = v.as.loop->passed->count;
    } else if (v.kind != WEIR_JINJA_UNDEFINED)
        return weir_jinja_fail(state, "object of type '%s' has no len()", weir_jinja_type_name(v));
    return WEIR_OK;
}
