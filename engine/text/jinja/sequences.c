/* engine/text/jinja/sequences.c - filters of lists and dictionaries. Sorting is stable. */
#include <string.h>

#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/state.h"

typedef weir_jinja_state S;
typedef weir_jinja_value V;
typedef const weir_jinja_arguments A;

#define BIND(names)                                                                                \
    V given_values[6] = { 0 };                                                                     \
    unsigned given = 0;                                                                            \
    WEIR_TRY(weir_jinja_bind(s, "the filter", names, given_values, &given, a))
#define GIVEN(i) (given >> (i) & 1)

static V from_list(weir_jinja_kind kind, weir_jinja_list *list)
{
    return (V){ .kind = kind, .as.list = list };
}

/* Resolves the path a.b.0 of an item, by the rules of a['b']; `fallback` replaces undefined
 * values. */
static weir_status path(S *s, V *out, V item, V attribute, const V *fallback)
{
    *out = item;
    if (attribute.kind == WEIR_JINJA_NONE ||
        (attribute.kind == WEIR_JINJA_UNDEFINED && !attribute.as.name))
        return WEIR_OK;
    if (attribute.kind != WEIR_JINJA_STRING) return weir_jinja_item(s, out, item, attribute);
    const weir_jinja_string *name = attribute.as.string;
    for (size_t at = 0; at <= name->size;) {
        const char *dot = at < name->size ? memchr(name->bytes + at, '.', name->size - at) : NULL;
        const size_t end = dot ? (size_t)(dot - name->bytes) : name->size;
        V key;
        int64_t number = 0;
        bool digits = end > at && end - at < 10;
        for (size_t i = at; i < end && digits; i++) {
            digits = name->bytes[i] >= '0' && name->bytes[i] <= '9';
            number = number * 10 + (name->bytes[i] - '0');
        }
        WEIR_TRY(weir_jinja_work(s, end - at, WEIR_JINJA_MOVED));
        WEIR_TRY(weir_jinja_substring(s->arena, &key, name, at, end - at));
        WEIR_TRY(weir_jinja_item(s, out, *out, digits ? weir_jinja_int(number) : key));
        if (out->kind == WEIR_JINJA_UNDEFINED && fallback) *out = *fallback;
        at = end + 1;
    }
    return WEIR_OK;
}

static weir_status fold(S *s, V *out, V v, bool ignore_case)
{
    *out = v;
    return ignore_case && v.kind == WEIR_JINJA_STRING
               ? weir_jinja_change_case(s, out, v.as.string, WEIR_JINJA_LOWER)
               : WEIR_OK;
}

/* ---- sorting --------------------------------------------------------------------------------- */

typedef struct keyed {
    V key, item;
} keyed;

static weir_status before(S *s, bool *out, V a, V b)
{
    return weir_jinja_relation(s, out, '<', a, b);
}

/* Stable merge sort: n log n comparisons, each of which may fail. `reverse` keeps the order of
 * equal items, as in Python. */
static weir_status sort_keyed(S *s, keyed *items, keyed *spare, size_t n, bool reverse)
{
    if (n < 2) return WEIR_OK;
    const size_t half = n / 2;
    WEIR_TRY(sort_keyed(s, items, spare, half, reverse));
    WEIR_TRY(sort_keyed(s, items + half, spare, n - half, reverse));
    size_t i = 0, j = half;
    for (size_t k = 0; k < n; k++) {
        bool right = i == half;
        if (i < half && j < n)
            WEIR_TRY(
                reverse ? before(s, &right, items[i].key, items[j].key)
                        : before(s, &right, items[j].key, items[i].key)
            );
        spare[k] = right ? items[j++] : items[i++];
    }
    memcpy(items, spare, n * sizeof *items);
    return WEIR_OK;
}

static weir_status sort_list(
    S *s, V *out, weir_jinja_list *from, V attribute, bool ignore_case, bool reverse
)
{
    keyed *items = NULL, *spare = NULL;
    weir_jinja_list *list = NULL;
    const size_t n = from->count;
    WEIR_TRY(weir_jinja_alloc(s->arena, &items, n * sizeof *items));
    WEIR_TRY(weir_jinja_alloc(s->arena, &spare, n * sizeof *spare));
    WEIR_TRY(weir_jinja_list_new(s->arena, &list, n));
    for (size_t i = 0; i < n; i++) {
        WEIR_TRY(path(s, &items[i].key, from->items[i], attribute, NULL));
        WEIR_TRY(fold(s, &items[i].key, items[i].key, ignore_case));
        items[i].item = from->items[i];
    }
    WEIR_TRY(sort_keyed(s, items, spare, n, reverse));
    for (; list->count < n; list->count++) list->items[list->count] = items[list->count].item;
    list->user = from->user;
    *out = from_list(WEIR_JINJA_LIST, list);
    return WEIR_OK;
}

static weir_status filter_sort(S *s, V *out, V v, A *a)
{
    BIND("reverse case_sensitive attribute");
    weir_jinja_list *items = NULL;
    WEIR_TRY(weir_jinja_items(s, &items, v));
    if (GIVEN(2) && given_values[2].kind == WEIR_JINJA_STRING &&
        memchr(given_values[2].as.string->bytes, ',', given_values[2].as.string->size))
        return weir_jinja_fail(s, "sort by several attributes is not supported");
    return sort_list(
        s, out, items, given_values[2], !(GIVEN(1) && weir_jinja_truth(given_values[1])),
        GIVEN(0) && weir_jinja_truth(given_values[0])
    );
}

static weir_status filter_dictsort(S *s, V *out, V v, A *a)
{
    BIND("case_sensitive by reverse");
    const bool by_value = GIVEN(1) && given_values[1].kind == WEIR_JINJA_STRING &&
                          weir_jinja_string_is(given_values[1].as.string, "value");
    V pairs;
    if (v.kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(s, v);
    if (v.kind != WEIR_JINJA_DICT)
        return weir_jinja_fail(s, "'%s' object has no attribute 'items'", weir_jinja_type_name(v));
    WEIR_TRY(weir_jinja_dict_list(s, &pairs, v.as.dict, 'i'));
    return sort_list(
        s, out, pairs.as.list, weir_jinja_int(by_value),
        !(GIVEN(0) && weir_jinja_truth(given_values[0])),
        GIVEN(2) && weir_jinja_truth(given_values[2])
    );
}

static weir_status filter_unique(S *s, V *out, V v, A *a)
{
    BIND("case_sensitive attribute");
    weir_jinja_list *items = NULL, *list = NULL;
    weir_jinja_dict *seen = NULL;
    WEIR_TRY(weir_jinja_items(s, &items, v));
    WEIR_TRY(weir_jinja_list_new(s->arena, &list, items->count));
    WEIR_TRY(weir_jinja_dict_new(s->arena, &seen));
    for (size_t i = 0; i < items->count; i++) {
        V key;
        WEIR_TRY(path(s, &key, items->items[i], given_values[1], NULL));
        WEIR_TRY(fold(s, &key, key, !(GIVEN(0) && weir_jinja_truth(given_values[0]))));
        if (!weir_jinja_hashable(key))
            return weir_jinja_fail(s, "unhashable type: '%s'", weir_jinja_type_name(key));
        WEIR_TRY(weir_jinja_look(s, key));
        if (weir_jinja_dict_find(seen, key)) continue;
        WEIR_TRY(weir_jinja_dict_set(s->arena, seen, key, weir_jinja_none()));
        WEIR_TRY(weir_jinja_list_add(s->arena, list, items->items[i]));
    }
    *out = from_list(WEIR_JINJA_GENERATOR, list);
    return WEIR_OK;
}

static weir_status extreme(S *s, V *out, V v, A *a, bool greatest)
{
    BIND("case_sensitive attribute");
    weir_jinja_list *items = NULL;
    V best = weir_jinja_none(), key;
    WEIR_TRY(weir_jinja_items(s, &items, v));
    *out = weir_jinja_undefined("the first of no items");
    for (size_t i = 0; i < items->count; i++) {
        bool better = i == 0;
        WEIR_TRY(path(s, &key, items->items[i], given_values[1], NULL));
        WEIR_TRY(fold(s, &key, key, !(GIVEN(0) && weir_jinja_truth(given_values[0]))));
        if (i > 0)
            WEIR_TRY(greatest ? before(s, &better, best, key) : before(s, &better, key, best));
        if (!better) continue;
        best = key;
        *out = items->items[i];
    }
    return WEIR_OK;
}
static weir_status filter_min(S *s, V *out, V v, A *a) { return extreme(s, out, v, a, false); }
static weir_status filter_max(S *s, V *out, V v, A *a) { return extreme(s, out, v, a, true); }

static weir_status filter_sum(S *s, V *out, V v, A *a)
{
    BIND("attribute start");
    weir_jinja_list *items = NULL;
    V item;
    WEIR_TRY(weir_jinja_items(s, &items, v));
    *out = GIVEN(1) ? given_values[1] : weir_jinja_int(0);
    for (size_t i = 0; i < items->count; i++) {
        WEIR_TRY(path(s, &item, items->items[i], given_values[0], NULL));
        WEIR_TRY(weir_jinja_binary(s, out, '+', *out, item));
    }
    return WEIR_OK;
}

/* ---- whole sequences ------------------------------------------------------------------------- */

static weir_status filter_length(S *s, V *out, V v, A *a)
{
    (void)a;
    size_t count = 0;
    WEIR_TRY(weir_jinja_length(s, &count, v));
    *out = weir_jinja_int((int64_t)count);
    return WEIR_OK;
}

static weir_status filter_list(S *s, V *out, V v, A *a)
{
    (void)a;
    const V all[3] = { weir_jinja_none(), weir_jinja_none(), weir_jinja_none() };
    weir_jinja_list *items = NULL;
    WEIR_TRY(weir_jinja_items(s, &items, v));
    return weir_jinja_slice(s, out, from_list(WEIR_JINJA_LIST, items), all);
}

static weir_status filter_items(S *s, V *out, V v, A *a)
{
    (void)a;
    weir_jinja_list *list = NULL;
    if (v.kind == WEIR_JINJA_DICT) {
        WEIR_TRY(weir_jinja_dict_list(s, out, v.as.dict, 'i'));
    } else if (v.kind == WEIR_JINJA_UNDEFINED) {
        WEIR_TRY(weir_jinja_list_new(s->arena, &list, 0));
        *out = from_list(WEIR_JINJA_LIST, list);
    } else
        return weir_jinja_fail(s, "Can only get item pairs from a mapping.");
    out->kind = WEIR_JINJA_GENERATOR;
    return WEIR_OK;
}

static weir_status filter_join(S *s, V *out, V v, A *a)
{
    BIND("d attribute");
    weir_jinja_list *items = NULL;
    weir_jinja_builder text = weir_jinja_builder_new(s->arena);
    V separator = weir_jinja_undefined(NULL), item;
    if (GIVEN(0)) WEIR_TRY(weir_jinja_to_string(s, &separator, given_values[0]));
    WEIR_TRY(weir_jinja_items(s, &items, v));
    for (size_t i = 0; i < items->count; i++) {
        WEIR_TRY(path(s, &item, items->items[i], given_values[1], NULL));
        if (i && GIVEN(0)) WEIR_TRY(weir_jinja_print(s, &text, separator));
        WEIR_TRY(weir_jinja_print(s, &text, item));
    }
    return weir_jinja_builder_finish(&text, out);
}

static weir_status filter_first(S *s, V *out, V v, A *a)
{
    (void)a;
    weir_jinja_list *items = NULL;
    if (v.kind == WEIR_JINJA_STRING) return weir_jinja_item(s, out, v, weir_jinja_int(0));
    WEIR_TRY(weir_jinja_items(s, &items, v));
    *out = items->count ? items->items[0] : weir_jinja_undefined("the first of no items");
    return WEIR_OK;
}

static weir_status filter_last(S *s, V *out, V v, A *a)
{
    (void)a;
    weir_jinja_list *items = NULL;
    if (v.kind == WEIR_JINJA_STRING) return weir_jinja_item(s, out, v, weir_jinja_int(-1));
    if (v.kind == WEIR_JINJA_GENERATOR) return weir_jinja_fail(s, "a generator cannot be reversed");
    WEIR_TRY(weir_jinja_items(s, &items, v));
    *out = items->count ? items->items[items->count - 1]
                        : weir_jinja_undefined("the last of no items");
    return WEIR_OK;
}

static weir_status filter_reverse(S *s, V *out, V v, A *a)
{
    (void)a;
    const V backwards[3] = { weir_jinja_none(), weir_jinja_none(), weir_jinja_int(-1) };
    weir_jinja_list *items = NULL;
    if (v.kind == WEIR_JINJA_STRING) return weir_jinja_slice(s, out, v, backwards);
    WEIR_TRY(weir_jinja_items(s, &items, v));
    WEIR_TRY(weir_jinja_slice(s, out, from_list(WEIR_JINJA_LIST, items), backwards));
    out->kind = WEIR_JINJA_GENERATOR;
    return WEIR_OK;
}

/* Batch: rows of `size`; slice: `size` columns of nearly equal length. The last ones are padded if
 * a filling is given. */
static weir_status rows(S *s, V *out, V v, A *a, bool columns)
{
    BIND("size fill_with");
    weir_jinja_list *items = NULL, *list = NULL;
    const bool fill = GIVEN(1) && given_values[1].kind != WEIR_JINJA_NONE;
    if (!GIVEN(0) || !weir_jinja_is_integer(given_values[0]) ||
        weir_jinja_as_int(given_values[0]) < 1 || weir_jinja_as_int(given_values[0]) > 100000)
        return weir_jinja_fail(s, "batch and slice need a number from 1 to 100000");
    const size_t n = (size_t)weir_jinja_as_int(given_values[0]);
    WEIR_TRY(weir_jinja_items(s, &items, v));
    WEIR_TRY(weir_jinja_list_new(s->arena, &list, 0));
    const size_t parts = columns ? n : (items->count + n - 1) / n,
                 least = columns ? items->count / n : n, longer = columns ? items->count % n : 0;
    for (size_t i = 0, at = 0; i < parts; i++) {
        weir_jinja_list *row = NULL;
        size_t size = least + (i < longer);
        WEIR_TRY(weir_jinja_step(s, size * sizeof v));
        WEIR_TRY(weir_jinja_list_new(s->arena, &row, size));
        for (; row->count < size && at < items->count; at++)
            row->items[row->count++] = items->items[at];
        if (columns && fill && i >= longer && longer) size++;
        while (fill && row->count < size)
            WEIR_TRY(weir_jinja_list_add(s->arena, row, given_values[1]));
        WEIR_TRY(weir_jinja_list_add(s->arena, list, from_list(WEIR_JINJA_LIST, row)));
    }
    *out = from_list(WEIR_JINJA_GENERATOR, list);
    return WEIR_OK;
}
static weir_status filter_batch(S *s, V *out, V v, A *a) { return rows(s, out, v, a, false); }
static weir_status filter_slice(S *s, V *out, V v, A *a) { return rows(s, out, v, a, true); }

/* ---- selecting and mapping ------------------------------------------------------------------- */

static A rest_of(A *a, size_t from)
{
    const size_t skip = from < a->count ? from : a->count;
    V *rest = skip ? a->items + skip : a->items;
    return (weir_jinja_arguments){ .items = rest,
                                   .count = a->count - skip,
                                   .names = a->names,
                                   .named = a->named,
                                   .n_named = a->n_named };
}

/* Select, reject (by item) and selectattr, rejectattr (by attribute): uses the named test, or
 * truth. */
static weir_status choose(S *s, V *out, V v, A *a, bool by_attribute, bool wanted)
{
    weir_jinja_list *items = NULL, *list = NULL;
    const size_t test_at = by_attribute;
    if (by_attribute && a->count == 0) return weir_jinja_fail(s, "the attribute is missing");
    if (a->count > test_at && a->items[test_at].kind != WEIR_JINJA_STRING)
        return weir_jinja_fail(s, "the name of a test is expected");
    const weir_jinja_arguments rest = rest_of(a, test_at + 1);
    WEIR_TRY(weir_jinja_list_new(s->arena, &list, 0));
    if (v.kind != WEIR_JINJA_UNDEFINED && weir_jinja_truth(v))
        WEIR_TRY(weir_jinja_items(s, &items, v)); /* None has no items */
    for (size_t i = 0; items && i < items->count; i++) {
        V subject = items->items[i];
        bool holds = false;
        WEIR_TRY(weir_jinja_step(s, 0));
        if (by_attribute) WEIR_TRY(path(s, &subject, subject, a->items[0], NULL));
        if (a->count > test_at)
            WEIR_TRY(weir_jinja_apply_test(s, &holds, a->items[test_at].as.string, subject, &rest));
        else
            holds = weir_jinja_truth(subject);
        if (holds == wanted) WEIR_TRY(weir_jinja_list_add(s->arena, list, items->items[i]));
    }
    *out = from_list(WEIR_JINJA_GENERATOR, list);
    return WEIR_OK;
}
static weir_status filter_select(S *s, V *out, V v, A *a)
{
    return choose(s, out, v, a, false, true);
}
static weir_status filter_reject(S *s, V *out, V v, A *a)
{
    return choose(s, out, v, a, false, false);
}
static weir_status filter_selectattr(S *s, V *out, V v, A *a)
{
    return choose(s, out, v, a, true, true);
}
static weir_status filter_rejectattr(S *s, V *out, V v, A *a)
{
    return choose(s, out, v, a, true, false);
}

static weir_status filter_map(S *s, V *out, V v, A *a)
{
    weir_jinja_list *items = NULL, *list = NULL;
    const V *attribute = NULL, *fallback = NULL;
    const weir_jinja_arguments rest = rest_of(a, 1);
    for (size_t i = 0; i < a->n_named && a->count == 0; i++) {
        if (weir_jinja_string_is(a->names[i], "attribute"))
            attribute = &a->named[i];
        else if (weir_jinja_string_is(a->names[i], "default"))
            fallback = &a->named[i];
        else
            return weir_jinja_fail(s, "map has no argument '%.60s'", a->names[i]->bytes);
    }
    if (!attribute && (a->count == 0 || a->items[0].kind != WEIR_JINJA_STRING))
        return weir_jinja_fail(s, "map needs a filter or an attribute");
    WEIR_TRY(weir_jinja_list_new(s->arena, &list, 0));
    if (v.kind != WEIR_JINJA_UNDEFINED && weir_jinja_truth(v))
        WEIR_TRY(weir_jinja_items(s, &items, v));
    for (size_t i = 0; items && i < items->count; i++) {
        V mapped;
        WEIR_TRY(weir_jinja_step(s, 0));
        if (attribute)
            WEIR_TRY(path(s, &mapped, items->items[i], *attribute, fallback));
        else
            WEIR_TRY(
                weir_jinja_apply_filter(s, &mapped, a->items[0].as.string, items->items[i], &rest)
            );
        WEIR_TRY(weir_jinja_list_add(s->arena, list, mapped));
    }
    *out = from_list(WEIR_JINJA_GENERATOR, list);
    return WEIR_OK;
}

const weir_jinja_filter_entry weir_jinja_sequence_filters[] = {
    { "length", filter_length },
    { "count", filter_length },
    { "list", filter_list },
    { "items", filter_items },
    { "dictsort", filter_dictsort },
    { "join", filter_join },
    { "first", filter_first },
    { "last", filter_last },
    { "reverse", filter_reverse },
    { "sort", filter_sort },
    { "unique", filter_unique },
    { "min", filter_min },
    { "max", filter_max },
    { "sum", filter_sum },
    { "select", filter_select },
    { "reject", filter_reject },
    { "selectattr", filter_selectattr },
    { "rejectattr", filter_rejectattr },
    { "map", filter_map },
    { "batch", filter_batch },
    { "slice", filter_slice },
    { NULL, NULL },
};
