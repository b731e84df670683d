/* engine/text/jinja/value.c - see value.h. */
#include "engine/text/jinja/value.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "engine/text/jinja/string.h"

enum { JSON_DEPTH = 100, VALUE_DEPTH = 64, FEW_ENTRIES = 8, KEY_PARTS = 16 };

const char *weir_jinja_type_name(weir_jinja_value v)
{
    switch (v.kind) {
    case WEIR_JINJA_UNDEFINED: return "Undefined";
    case WEIR_JINJA_NONE: return "NoneType";
    case WEIR_JINJA_BOOL: return "bool";
    case WEIR_JINJA_INT: return "int";
    case WEIR_JINJA_FLOAT: return "float";
    case WEIR_JINJA_STRING: return "str";
    case WEIR_JINJA_LIST: return "list";
    case WEIR_JINJA_TUPLE: return "tuple";
    case WEIR_JINJA_GENERATOR: return "generator";
    case WEIR_JINJA_DICT: return "dict";
    case WEIR_JINJA_NAMESPACE: return "Namespace";
    case WEIR_JINJA_MACRO: return "Macro";
    case WEIR_JINJA_FUNCTION: return "function";
    case WEIR_JINJA_METHOD: return "method";
    case WEIR_JINJA_LOOP: return "LoopContext";
    }
    return "?";
}

bool weir_jinja_truth(weir_jinja_value v)
{
    switch (v.kind) {
    case WEIR_JINJA_UNDEFINED:
    case WEIR_JINJA_NONE: return false;
    case WEIR_JINJA_BOOL: return v.as.boolean;
    case WEIR_JINJA_INT: return v.as.integer != 0;
    case WEIR_JINJA_FLOAT: return v.as.real != 0;
    case WEIR_JINJA_STRING: return v.as.string->size > 0;
    case WEIR_JINJA_LIST:
    case WEIR_JINJA_TUPLE: return v.as.list->count > 0;
    case WEIR_JINJA_DICT: return v.as.dict->live > 0;
    case WEIR_JINJA_GENERATOR:
    case WEIR_JINJA_NAMESPACE:
    case WEIR_JINJA_MACRO:
    case WEIR_JINJA_FUNCTION:
    case WEIR_JINJA_METHOD:
    case WEIR_JINJA_LOOP: return true;
    }
    return false;
}

static bool equal(weir_jinja_value a, weir_jinja_value b, int64_t *budget, int depth);

static bool equal_lists(
    const weir_jinja_list *a, const weir_jinja_list *b, int64_t *budget, int depth
)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!equal(a->items[i], b->items[i], budget, depth - 1)) return false;
    return true;
}

static bool equal_dicts(
    const weir_jinja_dict *a, const weir_jinja_dict *b, int64_t *budget, int depth
)
{
    if (a->live != b->live) return false;
    for (size_t i = 0; i < a->count; i++) {
        if (!a->entries[i].live) continue;
        const weir_jinja_entry *other = weir_jinja_dict_find(b, a->entries[i].key);
        if (!other || !equal(a->entries[i].value, other->value, budget, depth - 1)) return false;
    }
    return true;
}

static bool equal_strings(const weir_jinja_string *a, const weir_jinja_string *b, int64_t *budget)
{
    if (a->size != b->size) return false;
    *budget -= (int64_t)(a->size >> 10);
    return *budget >= 0 && weir_jinja_string_same(a, b);
}

static bool equal(weir_jinja_value a, weir_jinja_value b, int64_t *budget, int depth)
{
    if (depth <= 0 || --*budget < 0) return false;
    if (weir_jinja_is_integer(a) && weir_jinja_is_integer(b))
        return weir_jinja_as_int(a) == weir_jinja_as_int(b);
    if (weir_jinja_is_number(a) && weir_jinja_is_number(b))
        return weir_jinja_as_float(a) == weir_jinja_as_float(b);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case WEIR_JINJA_STRING: return equal_strings(a.as.string, b.as.string, budget);
    case WEIR_JINJA_LIST:
    case WEIR_JINJA_TUPLE: return equal_lists(a.as.list, b.as.list, budget, depth);
    case WEIR_JINJA_DICT: return equal_dicts(a.as.dict, b.as.dict, budget, depth);
    case WEIR_JINJA_UNDEFINED:
    case WEIR_JINJA_NONE: return true;
    case WEIR_JINJA_FUNCTION: return a.as.function == b.as.function;
    case WEIR_JINJA_METHOD:
        return a.as.bound->method == b.as.bound->method &&
               equal(a.as.bound->receiver, b.as.bound->receiver, budget, depth - 1);
    case WEIR_JINJA_GENERATOR: return a.as.list == b.as.list;
    case WEIR_JINJA_NAMESPACE: return a.as.dict == b.as.dict;
    case WEIR_JINJA_MACRO: return a.as.macro == b.as.macro;
    case WEIR_JINJA_LOOP: return a.as.loop == b.as.loop;
    case WEIR_JINJA_BOOL:
    case WEIR_JINJA_INT:
    case WEIR_JINJA_FLOAT: return false; /* handled above */
    }
    return false;
}

bool weir_jinja_equal(weir_jinja_value a, weir_jinja_value b, int64_t *budget)
{
    return equal(a, b, budget, VALUE_DEPTH);
}

static int order_of_strings(const weir_jinja_string *a, const weir_jinja_string *b)
{
    const size_t least = a->size < b->size ? a->size : b->size;
    const int order =
        /* UTF-8 preserves the order of code points. */
        least ? memcmp(a->bytes, b->bytes, least) : 0;
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static bool compare(int *order, weir_jinja_value a, weir_jinja_value b, int64_t *budget, int depth)
{
    if (depth <= 0 || --*budget < 0) return false;
    if (weir_jinja_is_integer(a) && weir_jinja_is_integer(b)) {
        const int64_t x = weir_jinja_as_int(a), y = weir_jinja_as_int(b);
        *order = (x > y) - (x < y);
        return true;
    }
    if (weir_jinja_is_number(a) && weir_jinja_is_number(b)) {
        const double x = weir_jinja_as_float(a), y = weir_jinja_as_float(b);
        *order = (x > y) - (x < y);
        return true;
    }
    if (a.kind != b.kind) return false;
    if (a.kind == WEIR_JINJA_STRING) {
        *order = order_of_strings(a.as.string, b.as.string);
        return true;
    }
    if (a.kind != WEIR_JINJA_LIST && a.kind != WEIR_JINJA_TUPLE) return false;
    const weir_jinja_list *x = a.as.list, *y = b.as.list;
    for (size_t i = 0; i < x->count && i < y->count; i++)
        if (!equal(x->items[i], y->items[i], budget, depth - 1))
            return compare(order, x->items[i], y->items[i], budget, depth - 1);
    *order = (x->count > y->count) - (x->count < y->count);
    return true;
}

bool weir_jinja_compare(int *order, weir_jinja_value a, weir_jinja_value b, int64_t *budget)
{
    return compare(order, a, b, budget, VALUE_DEPTH);
}

bool weir_jinja_hashable(weir_jinja_value v)
{
    if (v.kind == WEIR_JINJA_LIST || v.kind == WEIR_JINJA_DICT || v.kind == WEIR_JINJA_METHOD)
        return false;
    if (v.kind != WEIR_JINJA_TUPLE) return true;
    if (v.as.list->count > KEY_PARTS) return false;
    for (size_t i = 0; i < v.as.list->count; i++)
        if (v.as.list->items[i].kind == WEIR_JINJA_TUPLE ||
            !weir_jinja_hashable(v.as.list->items[i]))
            return false;
    return true;
}

/* ---- lists ----------------------------------------------------------------------------------- */

weir_status weir_jinja_list_new(weir_jinja_arena *arena, weir_jinja_list **out, size_t capacity)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_alloc(arena, &list, sizeof *list));
    WEIR_TRY(weir_jinja_grow(arena, &list->items, &list->capacity, 0, capacity, sizeof *list->items)
    );
    *out = list;
    return WEIR_OK;
}

weir_status weir_jinja_list_add(
    weir_jinja_arena *arena, weir_jinja_list *list, weir_jinja_value item
)
{
    WEIR_TRY(
        weir_jinja_grow(arena, &list->items, &list->capacity, list->count, 1, sizeof *list->items)
    );
    list->items[list->count++] = item;
    return WEIR_OK;
}

weir_status weir_jinja_pair(
    weir_jinja_arena *arena, weir_jinja_value *out, weir_jinja_value a, weir_jinja_value b
)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_list_new(arena, &list, 2));
    list->items[0] = a;
    list->items[1] = b;
    list->count = 2;
    *out = (weir_jinja_value){ .kind = WEIR_JINJA_TUPLE, .as.list = list };
    return WEIR_OK;
}

/* ---- dictionaries ---------------------------------------------------------------------------- */

/* Chosen at random once per process, so that keys cannot be made to collide. The order of a
 * dictionary does not depend on it. */
static uint64_t hash_seed(void)
{
    static _Atomic uint64_t seed;
    uint64_t drawn = 0, none = 0;
    const uint64_t known = atomic_load_explicit(&seed, memory_order_relaxed);
    if (known) return known;
    if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) != (ssize_t)sizeof drawn)
        drawn = (uint64_t)(uintptr_t)&drawn;
    drawn |= 1;
    return atomic_compare_exchange_strong(&seed, &none, drawn) ? drawn : none;
}

static uint64_t hash_bytes(const char *bytes, size_t size)
{
    return XXH3_64bits_withSeed(bytes, size, hash_seed());
}

static uint64_t hash_value(weir_jinja_value v)
{
    if (v.kind == WEIR_JINJA_STRING) return hash_bytes(v.as.string->bytes, v.as.string->size);
    if (weir_jinja_is_number(v)) { /* equal numbers of all types hash alike */
        const double number = weir_jinja_as_float(v) + 0.0;
        return hash_bytes((const char *)&number, sizeof number);
    }
    uint64_t hash = (uint64_t)v.kind + 1;
    if (v.kind == WEIR_JINJA_TUPLE)
        for (size_t i = 0; i < v.as.list->count; i++)
            hash = hash * 31 + hash_value(v.as.list->items[i]);
    return hash;
}

weir_status weir_jinja_dict_new(weir_jinja_arena *arena, weir_jinja_dict **out)
{
    return weir_jinja_alloc(arena, out, sizeof **out);
}

/* Comparing keys needs no budget: keys are flat, and only those with the same hash are compared. */
static bool same_key(const weir_jinja_entry *entry, weir_jinja_value key, uint64_t hash)
{
    int64_t unbounded = INT64_MAX;
    return entry->live && entry->hash == hash && equal(entry->key, key, &unbounded, 3);
}

static weir_jinja_entry *find(const weir_jinja_dict *dict, weir_jinja_value key, uint64_t hash)
{
    if (!dict->buckets) {
        for (size_t i = 0; i < dict->count; i++)
            if (same_key(&dict->entries[i], key, hash)) return &dict->entries[i];
        return NULL;
    }
    for (size_t bucket = hash & (dict->n_buckets - 1); dict->buckets[bucket];
         bucket = (bucket + 1) & (dict->n_buckets - 1)) {
        weir_jinja_entry *entry = &dict->entries[dict->buckets[bucket] - 1];
        if (same_key(entry, key, hash)) return entry;
    }
    return NULL;
}

weir_jinja_entry *weir_jinja_dict_find(const weir_jinja_dict *dict, weir_jinja_value key)
{
    return find(dict, key, hash_value(key));
}

weir_jinja_entry *weir_jinja_dict_find_text(
    const weir_jinja_dict *dict, const char *bytes, size_t size
)
{
    weir_jinja_string string = { .bytes = bytes, .size = size, .count = SIZE_MAX };
    return weir_jinja_dict_find(dict, weir_jinja_from_string(&string));
}

static void put_bucket(weir_jinja_dict *dict, size_t entry)
{
    size_t bucket = dict->entries[entry].hash & (dict->n_buckets - 1);
    while (dict->buckets[bucket]) bucket = (bucket + 1) & (dict->n_buckets - 1);
    dict->buckets[bucket] = (uint32_t)(entry + 1);
}

weir_status weir_jinja_dict_set(
    weir_jinja_arena *arena, weir_jinja_dict *dict, weir_jinja_value key, weir_jinja_value value
)
{
    const uint64_t hash = hash_value(key);
    weir_jinja_entry *entry = find(dict, key, hash);
    if (entry) {
        entry->value = value;
        return WEIR_OK;
    }
    if (dict->count >= UINT32_MAX / 4) return WEIR_EFULL;
    WEIR_TRY(weir_jinja_grow(
        arena, &dict->entries, &dict->capacity, dict->count, 1, sizeof *dict->entries
    ));
    dict->entries[dict->count++] =
        (weir_jinja_entry){ .key = key, .value = value, .hash = hash, .live = true };
    dict->live++;
    if (dict->count <= FEW_ENTRIES) return WEIR_OK;
    if (dict->n_buckets >= dict->count * 2) {
        put_bucket(dict, dict->count - 1);
        return WEIR_OK;
    }
    size_t n_buckets = 32; /* at most a quarter full after growing, at most half full before */
    while (n_buckets < dict->count * 4) n_buckets *= 2;
    WEIR_TRY(weir_jinja_alloc(arena, &dict->buckets, n_buckets * sizeof *dict->buckets));
    dict->n_buckets = n_buckets;
    for (size_t i = 0; i < dict->count; i++) put_bucket(dict, i);
    return WEIR_OK;
}

void weir_jinja_dict_remove(weir_jinja_dict *dict, weir_jinja_entry *entry)
{
    entry->live = false;
    dict->live--;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct json_reader {
    weir_jinja_arena *arena;
    weir_jinja_origin origin;
    bool copy;
} json_reader;

static weir_status read_json(
    const json_reader *reader, weir_jinja_value *out, const json_t *json, int depth
);

static weir_status read_text(
    const json_reader *reader, weir_jinja_value *out, const char *bytes, size_t size
)
{
    return reader->copy ? weir_jinja_string_copy(reader->arena, out, bytes, size, reader->origin)
                        : weir_jinja_string_view(reader->arena, out, bytes, size, reader->origin);
}

static weir_status read_array(
    const json_reader *reader, weir_jinja_value *out, const json_t *json, int depth
)
{
    const size_t count = json_array_size(json);
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_list_new(reader->arena, &list, count));
    for (size_t i = 0; i < count; i++) {
        WEIR_TRY(read_json(reader, &list->items[i], json_array_get(json, i), depth - 1));
        list->count++;
    }
    list->user = reader->origin != WEIR_JINJA_TEMPLATE;
    *out = (weir_jinja_value){ .kind = WEIR_JINJA_LIST, .as.list = list };
    return WEIR_OK;
}

static weir_status read_object(
    const json_reader *reader, weir_jinja_value *out, const json_t *json, int depth
)
{
    weir_jinja_dict *dict = NULL;
    WEIR_TRY(weir_jinja_dict_new(reader->arena, &dict));
    json_t *object =
        (json_t *)(uintptr_t)json; /* jansson's iterators take no const; nothing is changed */
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const char *name = json_object_iter_key(at);
        weir_jinja_value key, value;
        WEIR_TRY(read_text(reader, &key, name, strlen(name)));
        WEIR_TRY(read_json(reader, &value, json_object_iter_value(at), depth - 1));
        WEIR_TRY(weir_jinja_dict_set(reader->arena, dict, key, value));
    }
    dict->user = reader->origin != WEIR_JINJA_TEMPLATE;
    *out = (weir_jinja_value){ .kind = WEIR_JINJA_DICT, .as.dict = dict };
    return WEIR_OK;
}

static weir_status read_json(
    const json_reader *reader, weir_jinja_value *out, const json_t *json, int depth
)
{
    if (depth <= 0) return WEIR_EINVAL;
    *out = weir_jinja_none();
    if (!json) return WEIR_OK;
    switch (json_typeof(json)) {
    case JSON_OBJECT: return read_object(reader, out, json, depth);
    case JSON_ARRAY: return read_array(reader, out, json, depth);
    case JSON_STRING:
        return read_text(reader, out, json_string_value(json), json_string_length(json));
    case JSON_INTEGER: *out = weir_jinja_int(json_integer_value(json)); break;
    case JSON_REAL: *out = weir_jinja_float(json_real_value(json)); break;
    case JSON_TRUE: *out = weir_jinja_bool(true); break;
    case JSON_FALSE: *out = weir_jinja_bool(false); break;
    case JSON_NULL: break;
    }
    return WEIR_OK;
}

weir_status weir_jinja_from_json(
    weir_jinja_arena *arena, weir_jinja_value *out, const json_t *json, weir_jinja_origin origin,
    bool copy
)
{
    const json_reader reader = { .arena = arena, .origin = origin, .copy = copy };
    return read_json(&reader, out, json, JSON_DEPTH);
}
