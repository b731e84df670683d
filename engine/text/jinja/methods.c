/* engine/text/jinja/methods.c - methods of text, lists and dictionaries. All names that Python knows are known here, so that they
 * hide keys of the same name as they do there; those that a template has no need of refuse to be called.
 *
 * append, pop and the like change a list or a dictionary, which Jinja2's immutable sandbox refuses: published templates call them. */
#include <string.h>

#include "engine/text/jinja/state.h"

typedef struct call {
    weir_jinja_state *state;
    weir_jinja_value *out;
    weir_jinja_value  self;
    weir_jinja_value  given[3]; /* undefined where not given */
    unsigned          mask;
    int               variant;
} call;

typedef struct method {
    weir_jinja_kind kind;
    const char     *name, *parameters;
    weir_status (*run)(call *c);
    int variant;
    int required;
} method;

static weir_status want_string(call *c, size_t i)
{
    if (c->given[i].kind == WEIR_JINJA_STRING) return WEIR_OK;
    if (c->given[i].kind == WEIR_JINJA_UNDEFINED) return weir_jinja_fail_undefined(c->state, c->given[i]);
    return weir_jinja_fail(c->state, "a method of text wants text, not %s", weir_jinja_type_name(c->given[i]));
}

static bool has(const call *c, size_t i) { return (c->mask >> i & 1) && c->given[i].kind != WEIR_JINJA_NONE; }

static weir_status integer(call *c, size_t i, int64_t absent, int64_t *out)
{
    *out = absent;
    if (!has(c, i)) return WEIR_OK;
    if (!weir_jinja_is_integer(c->given[i])) return weir_jinja_fail(c->state, "a method wants an integer, not %s", weir_jinja_type_name(c->given[i]));
    *out = weir_jinja_as_int(c->given[i]);
    return WEIR_OK;
}

static weir_status refuse(call *c) { return weir_jinja_fail(c->state, "this method of %s is not supported", weir_jinja_type_name(c->self)); }

/* Text ------------------------------------------------------------------------------------------------------------------------- */

enum { LEFT = 1, RIGHT = 2 };

static weir_status strip(call *c)
{
    if (has(c, 0)) WEIR_TRY(want_string(c, 0));
    return weir_jinja_strip(c->state->arena, c->out, c->self.as.string, has(c, 0) ? c->given[0].as.string : NULL, c->variant & LEFT, c->variant & RIGHT);
}

static weir_status add_part(call *c, weir_jinja_list *list, size_t begin, size_t end)
{
    weir_jinja_value part;
    WEIR_TRY(weir_jinja_step(c->state, 0));
    WEIR_TRY(weir_jinja_substring(c->state->arena, &part, c->self.as.string, begin, end - begin));
    return weir_jinja_list_add(c->state->arena, list, part);
}

/* Words between white space. */
static weir_status split_words(call *c, weir_jinja_list *list, int64_t limit)
{
    const weir_jinja_string *s  = c->self.as.string;
    size_t                   at = 0, size = 0;
    for (;;) {
        while (at < s->size && weir_jinja_is_space(weir_jinja_decode(s->bytes + at, s->size - at, &size))) at += size;
        if (at == s->size) return WEIR_OK;
        const size_t begin = at;
        if (limit-- == 0) return add_part(c, list, begin, s->size); /* with the white space at its end, as in Python */
        while (at < s->size && !weir_jinja_is_space(weir_jinja_decode(s->bytes + at, s->size - at, &size))) at += size;
        WEIR_TRY(add_part(c, list, begin, at));
    }
}

static void reverse(weir_jinja_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        const weir_jinja_value item          = list->items[i];
        list->items[i]                       = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = item;
    }
}

static weir_status split_words_right(call *c, weir_jinja_list *list, int64_t limit)
{
    const weir_jinja_string *s    = c->self.as.string;
    size_t                   end  = s->size, size = 0;
    for (;;) {
        while (end > 0 && weir_jinja_is_space(weir_jinja_decode_last(s->bytes, end, &size))) end -= size;
        if (end == 0) break;
        size_t begin = end;
        if (limit-- == 0) {
            WEIR_TRY(add_part(c, list, 0, end));
            break;
        }
        while (begin > 0 && !weir_jinja_is_space(weir_jinja_decode_last(s->bytes, begin, &size))) begin -= size;
        WEIR_TRY(add_part(c, list, begin, end));
        end = begin;
    }
    reverse(list);
    return WEIR_OK;
}

static weir_status split_at(call *c, weir_jinja_list *list, const weir_jinja_string *separator, int64_t limit)
{
    const weir_jinja_string *s = c->self.as.string;
    size_t                   begin = 0, end = s->size, hit = 0;
    while (c->variant == LEFT && limit-- != 0 && (hit = weir_jinja_find(s, begin, separator)) != SIZE_MAX) {
        WEIR_TRY(add_part(c, list, begin, hit));
        begin = hit + separator->size;
    }
    while (c->variant == RIGHT && limit-- != 0 && (hit = weir_jinja_find_last(s, end, separator)) != SIZE_MAX) {
        WEIR_TRY(add_part(c, list, hit + separator->size, end));
        end = hit;
    }
    WEIR_TRY(add_part(c, list, begin, end));
    if (c->variant == RIGHT) reverse(list);
    return WEIR_OK;
}

static weir_status split(call *c)
{
    weir_jinja_list *list  = NULL;
    int64_t          limit = -1;
    WEIR_TRY(integer(c, 1, -1, &limit));
    if (limit < 0) limit = -1;
    WEIR_TRY(weir_jinja_step(c->state, c->self.as.string->size));
    WEIR_TRY(weir_jinja_list_new(c->state->arena, &list, 4));
    *c->out = (weir_jinja_value){.kind = WEIR_JINJA_LIST, .as.list = list};
    if (!has(c, 0)) return c->variant == LEFT ? split_words(c, list, limit) : split_words_right(c, list, limit);
    WEIR_TRY(want_string(c, 0));
    if (c->given[0].as.string->size == 0) return weir_jinja_fail(c->state, "empty separator");
    return split_at(c, list, c->given[0].as.string, limit);
}

static bool ends_line(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 || code == 0x2029;
}

static weir_status split_lines(call *c)
{
    const weir_jinja_string *s    = c->self.as.string;
    weir_jinja_list         *list = NULL;
    const bool               keep = (c->mask & 1) && weir_jinja_truth(c->given[0]);
    WEIR_TRY(weir_jinja_step(c->state, s->size));
    WEIR_TRY(weir_jinja_list_new(c->state->arena, &list, 4));
    *c->out = (weir_jinja_value){.kind = WEIR_JINJA_LIST, .as.list = list};
    size_t begin = 0;
    for (size_t at = 0, size = 0; at < s->size; at += size) {
        if (!ends_line(weir_jinja_decode(s->bytes + at, s->size - at, &size))) continue;
        if (s->bytes[at] == '\r' && at + 1 < s->size && s->bytes[at + 1] == '\n') size = 2;
        WEIR_TRY(add_part(c, list, begin, keep ? at + size : at));
        begin = at + size;
    }
    return begin < s->size ? add_part(c, list, begin, s->size) : WEIR_OK;
}

static bool affix(const weir_jinja_string *s, const weir_jinja_string *part, bool front)
{
    return part->size <= s->size && (part->size == 0 || memcmp(s->bytes + (front ? 0 : s->size - part->size), part->bytes, part->size) == 0);
}

/* startswith, endswith: text or a tuple of texts; a range may follow. */
static weir_status has_affix(call *c)
{
    weir_jinja_value self = c->self;
    if (c->mask & 6) {
        const weir_jinja_value bounds[3] = {has(c, 1) ? c->given[1] : weir_jinja_none(), has(c, 2) ? c->given[2] : weir_jinja_none(), weir_jinja_none()};
        WEIR_TRY(weir_jinja_slice(c->state, &self, self, bounds));
    }
    *c->out = weir_jinja_bool(false);
    if (c->given[0].kind != WEIR_JINJA_TUPLE) {
        WEIR_TRY(want_string(c, 0));
        *c->out = weir_jinja_bool(affix(self.as.string, c->given[0].as.string, c->variant == LEFT));
        return WEIR_OK;
    }
    const weir_jinja_list *list = c->given[0].as.list;
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].kind != WEIR_JINJA_STRING) return weir_jinja_fail(c->state, "a tuple of text is wanted");
        if (affix(self.as.string, list->items[i].as.string, c->variant == LEFT)) *c->out = weir_jinja_bool(true);
    }
    return WEIR_OK;
}

static weir_status remove_affix(call *c)
{
    WEIR_TRY(want_string(c, 0));
    const weir_jinja_string *s = c->self.as.string, *part = c->given[0].as.string;
    const size_t             n = affix(s, part, c->variant == LEFT) ? part->size : 0;
    return weir_jinja_substring(c->state->arena, c->out, s, c->variant == LEFT ? n : 0, s->size - n);
}

/* With an empty `old`, the new text goes before each code point and to the end. */
static weir_status replace_between(weir_jinja_builder *text, const weir_jinja_string *string, const weir_jinja_string *new_text, int64_t limit)
{
    size_t at = 0, size = 0;
    for (; limit-- != 0; at += size) {
        WEIR_TRY(weir_jinja_add_string(text, new_text));
        if (at == string->size) return WEIR_OK;
        (void)weir_jinja_decode(string->bytes + at, string->size - at, &size);
        WEIR_TRY(weir_jinja_add_part(text, string, at, size));
    }
    return weir_jinja_add_part(text, string, at, string->size - at);
}

weir_status weir_jinja_replace(weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *string, const weir_jinja_string *old,
                               const weir_jinja_string *new_text, int64_t limit)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    size_t             at = 0, hit = 0;
    if (limit < 0) limit = -1;
    WEIR_TRY(weir_jinja_step(state, string->size));
    if (old->size == 0) {
        WEIR_TRY(replace_between(&text, string, new_text, limit));
        at = string->size;
    }
    while (old->size && limit-- != 0 && (hit = weir_jinja_find(string, at, old)) != SIZE_MAX) {
        WEIR_TRY(weir_jinja_step(state, new_text->size));
        WEIR_TRY(weir_jinja_add_part(&text, string, at, hit - at));
        WEIR_TRY(weir_jinja_add_string(&text, new_text));
        at = hit + old->size;
    }
    WEIR_TRY(weir_jinja_add_part(&text, string, at, string->size - at));
    WEIR_TRY(weir_jinja_builder_finish(&text, out));
    out->as.string->markup = string->markup;
    return WEIR_OK;
}

static weir_status replace(call *c)
{
    int64_t limit = -1;
    WEIR_TRY(want_string(c, 0));
    WEIR_TRY(want_string(c, 1));
    WEIR_TRY(integer(c, 2, -1, &limit));
    return weir_jinja_replace(c->state, c->out, c->self.as.string, c->given[0].as.string, c->given[1].as.string, limit);
}

static weir_status change_case(call *c) { return weir_jinja_change_case(c->state, c->out, c->self.as.string, (weir_jinja_case)c->variant); }

static weir_status join(call *c)
{
    weir_jinja_list   *items = NULL;
    weir_jinja_builder text  = weir_jinja_builder_new(c->state->arena);
    if (c->given[0].kind == WEIR_JINJA_UNDEFINED && c->given[0].as.name == NULL) return weir_jinja_fail_undefined(c->state, c->given[0]);
    WEIR_TRY(weir_jinja_items(c->state, &items, c->given[0]));
    for (size_t i = 0; i < items->count; i++) {
        if (items->items[i].kind != WEIR_JINJA_STRING)
            return weir_jinja_fail(c->state, "join: item %zu is %s, not text", i, weir_jinja_type_name(items->items[i]));
        WEIR_TRY(weir_jinja_step(c->state, items->items[i].as.string->size));
        if (i) WEIR_TRY(weir_jinja_add_string(&text, c->self.as.string));
        WEIR_TRY(weir_jinja_add_string(&text, items->items[i].as.string));
    }
    return weir_jinja_builder_finish(&text, c->out);
}

/* find, rfind, index, rindex, count: code points, without a range. */
enum { FIND_LAST = 1, FIND_OR_FAIL = 2, FIND_COUNT = 4 };

static weir_status find(call *c)
{
    WEIR_TRY(want_string(c, 0));
    weir_jinja_string *s = c->self.as.string;
    const weir_jinja_string *needle = c->given[0].as.string;
    WEIR_TRY(weir_jinja_step(c->state, s->size));
    if (c->variant & FIND_COUNT) {
        int64_t count = needle->size ? 0 : (int64_t)weir_jinja_string_count(s) + 1;
        for (size_t at = 0; needle->size && (at = weir_jinja_find(s, at, needle)) != SIZE_MAX; at += needle->size) count++;
        *c->out = weir_jinja_int(count);
        return WEIR_OK;
    }
    const size_t hit = c->variant & FIND_LAST ? weir_jinja_find_last(s, s->size, needle) : weir_jinja_find(s, 0, needle);
    if (hit == SIZE_MAX && (c->variant & FIND_OR_FAIL)) return weir_jinja_fail(c->state, "substring not found");
    *c->out = weir_jinja_int(-1);
    if (hit == SIZE_MAX) return WEIR_OK;
    weir_jinja_string before = {.bytes = s->bytes, .size = hit, .count = SIZE_MAX};
    *c->out                  = weir_jinja_int((int64_t)weir_jinja_string_count(&before));
    return WEIR_OK;
}

static weir_status partition(call *c)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(want_string(c, 0));
    const weir_jinja_string *s = c->self.as.string, *separator = c->given[0].as.string;
    if (separator->size == 0) return weir_jinja_fail(c->state, "empty separator");
    const size_t hit = c->variant == LEFT ? weir_jinja_find(s, 0, separator) : weir_jinja_find_last(s, s->size, separator);
    const size_t a = hit != SIZE_MAX ? hit : c->variant == LEFT ? s->size : 0, b = hit != SIZE_MAX ? hit + separator->size : a;
    WEIR_TRY(weir_jinja_list_new(c->state->arena, &list, 3));
    WEIR_TRY(add_part(c, list, 0, a));
    WEIR_TRY(add_part(c, list, a, b));
    WEIR_TRY(add_part(c, list, b, s->size));
    *c->out = (weir_jinja_value){.kind = WEIR_JINJA_TUPLE, .as.list = list};
    return WEIR_OK;
}

/* isdigit and the like, of ASCII and white space; letters by whether they have a case. */
enum { IS_DIGIT, IS_SPACE, IS_ALPHA, IS_ALNUM, IS_ASCII };

static weir_status all_are(call *c)
{
    const weir_jinja_string *s = c->self.as.string;
    bool                     all = s->size > 0 || c->variant == IS_ASCII;
    WEIR_TRY(weir_jinja_step(c->state, s->size));
    for (size_t at = 0, size = 0; at < s->size && all; at += size) {
        const uint32_t code  = weir_jinja_decode(s->bytes + at, s->size - at, &size);
        const bool     digit = weir_jinja_is_digit(code), alpha = weir_jinja_is_letter(code);
        all                  = c->variant == IS_DIGIT ? digit : c->variant == IS_SPACE ? weir_jinja_is_space(code)
                                                            : c->variant == IS_ALPHA ? alpha : c->variant == IS_ALNUM ? alpha || digit : code < 128;
    }
    *c->out = weir_jinja_bool(all);
    return WEIR_OK;
}

static weir_status is_case(call *c)
{
    static weir_jinja_string lower = {.bytes = "lower", .size = 5, .count = 5}, upper = {.bytes = "upper", .size = 5, .count = 5};
    const weir_jinja_arguments none = {0};
    bool                       holds = false;
    WEIR_TRY(weir_jinja_apply_test(c->state, &holds, c->variant == WEIR_JINJA_LOWER ? &lower : &upper, c->self, &none));
    *c->out = weir_jinja_bool(holds);
    return WEIR_OK;
}

/* ljust, rjust, center. */
static weir_status justify(call *c)
{
    int64_t width = 0;
    WEIR_TRY(integer(c, 0, 0, &width));
    if (has(c, 1)) WEIR_TRY(want_string(c, 1));
    const char  *fill = has(c, 1) ? c->given[1].as.string->bytes : " ";
    const size_t size = has(c, 1) ? c->given[1].as.string->size : 1, count = weir_jinja_string_count(c->self.as.string);
    const size_t room = width > (int64_t)count ? (size_t)width - count : 0;
    const size_t left = c->variant == RIGHT ? room : c->variant == LEFT ? 0 : room / 2 + (room & (size_t)width & 1);
    weir_jinja_builder text = weir_jinja_builder_new(c->state->arena);
    for (size_t i = 0; i <= room; i++) {
        if (i == left) WEIR_TRY(weir_jinja_add_string(&text, c->self.as.string));
        WEIR_TRY(weir_jinja_step(c->state, 0));
        if (i < room) WEIR_TRY(weir_jinja_add(&text, fill, size, WEIR_JINJA_TEMPLATE));
    }
    return weir_jinja_builder_finish(&text, c->out);
}

/* Lists and dictionaries --------------------------------------------------------------------------------------------------------- */

static weir_status list_append(call *c)
{
    *c->out = weir_jinja_none();
    return weir_jinja_list_add(c->state->arena, c->self.as.list, c->given[0]);
}

static weir_status list_extend(call *c)
{
    weir_jinja_list *items = NULL;
    WEIR_TRY(weir_jinja_items(c->state, &items, c->given[0]));
    const size_t count = items->count; /* it may be the list itself */
    WEIR_TRY(weir_jinja_step(c->state, count * sizeof c->self));
    for (size_t i = 0; i < count; i++) WEIR_TRY(weir_jinja_list_add(c->state->arena, c->self.as.list, items->items[i]));
    *c->out = weir_jinja_none();
    return WEIR_OK;
}

static weir_status list_pop(call *c)
{
    weir_jinja_list *list = c->self.as.list;
    int64_t          at   = -1;
    WEIR_TRY(integer(c, 0, -1, &at));
    if (at < 0) at += (int64_t)list->count;
    if (at < 0 || (size_t)at >= list->count) return weir_jinja_fail(c->state, "pop: the list has no such item");
    WEIR_TRY(weir_jinja_step(c->state, list->count * sizeof c->self));
    *c->out = list->items[at];
    list->count--;
    memmove(&list->items[at], &list->items[at + 1], (list->count - (size_t)at) * sizeof *list->items);
    return WEIR_OK;
}

static weir_status list_insert(call *c)
{
    weir_jinja_list *list = c->self.as.list;
    int64_t          at   = 0;
    WEIR_TRY(integer(c, 0, 0, &at));
    if (at < 0) at += (int64_t)list->count;
    if (at < 0) at = 0;
    if ((size_t)at > list->count) at = (int64_t)list->count;
    WEIR_TRY(weir_jinja_step(c->state, list->count * sizeof c->self));
    WEIR_TRY(weir_jinja_list_add(c->state->arena, list, c->given[1]));
    memmove(&list->items[at + 1], &list->items[at], (list->count - 1 - (size_t)at) * sizeof *list->items);
    list->items[at] = c->given[1];
    *c->out         = weir_jinja_none();
    return WEIR_OK;
}

static weir_status list_find(call *c)
{
    const weir_jinja_list *list  = c->self.as.list;
    int64_t                count = 0;
    for (size_t i = 0; i < list->count; i++) {
        WEIR_TRY(weir_jinja_step(c->state, 0));
        if (!weir_jinja_equal(list->items[i], c->given[0], &c->state->steps_left)) continue;
        count++;
        *c->out = weir_jinja_int((int64_t)i);
        if (!(c->variant & FIND_COUNT)) return WEIR_OK;
    }
    if (!(c->variant & FIND_COUNT)) return weir_jinja_fail(c->state, "the item is not in the list");
    *c->out = weir_jinja_int(count);
    return WEIR_OK;
}

static weir_status list_copy(call *c)
{
    const weir_jinja_value all[3] = {weir_jinja_none(), weir_jinja_none(), weir_jinja_none()};
    return weir_jinja_slice(c->state, c->out, c->self, all);
}

weir_status weir_jinja_dict_list(weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_dict *dict, char what)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_step(state, dict->count * sizeof *out));
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, dict->live));
    for (size_t i = 0; i < dict->count; i++) {
        const weir_jinja_entry *entry = &dict->entries[i];
        weir_jinja_value        item  = what == 'k' ? entry->key : entry->value;
        if (!entry->live) continue;
        if (what == 'i') WEIR_TRY(weir_jinja_pair(state->arena, &item, entry->key, entry->value));
        WEIR_TRY(weir_jinja_list_add(state->arena, list, item));
    }
    *out = (weir_jinja_value){.kind = WEIR_JINJA_LIST, .as.list = list};
    return WEIR_OK;
}

static weir_status dict_list(call *c) { return weir_jinja_dict_list(c->state, c->out, c->self.as.dict, (char)c->variant); }

static weir_status find_key(call *c, weir_jinja_entry **out)
{
    if (!weir_jinja_hashable(c->given[0])) return weir_jinja_fail(c->state, "unhashable type: '%s'", weir_jinja_type_name(c->given[0]));
    *out = weir_jinja_dict_find(c->self.as.dict, c->given[0]);
    return WEIR_OK;
}

static weir_status dict_get(call *c)
{
    weir_jinja_entry *entry = NULL;
    WEIR_TRY(find_key(c, &entry));
    *c->out = entry ? entry->value : c->mask & 2 ? c->given[1] : weir_jinja_none();
    if (entry || c->variant != 's') return WEIR_OK;
    return weir_jinja_dict_set(c->state->arena, c->self.as.dict, c->given[0], *c->out); /* setdefault */
}

static weir_status dict_pop(call *c)
{
    weir_jinja_entry *entry = NULL;
    WEIR_TRY(find_key(c, &entry));
    if (!entry && !(c->mask & 2)) return weir_jinja_fail(c->state, "pop: the dictionary has no such key");
    *c->out = entry ? entry->value : c->given[1];
    if (entry) weir_jinja_dict_remove(c->self.as.dict, entry);
    return WEIR_OK;
}

static weir_status copy_entries(call *c, weir_jinja_dict *to, const weir_jinja_dict *from)
{
    const size_t count = from->count;
    WEIR_TRY(weir_jinja_step(c->state, count * sizeof c->self));
    for (size_t i = 0; i < count; i++)
        if (from->entries[i].live) WEIR_TRY(weir_jinja_dict_set(c->state->arena, to, from->entries[i].key, from->entries[i].value));
    return WEIR_OK;
}

static weir_status dict_update(call *c)
{
    if (c->given[0].kind != WEIR_JINJA_DICT) return weir_jinja_fail(c->state, "update wants a dictionary");
    *c->out = weir_jinja_none();
    return copy_entries(c, c->self.as.dict, c->given[0].as.dict);
}

static weir_status dict_copy(call *c)
{
    weir_jinja_dict *dict = NULL;
    WEIR_TRY(weir_jinja_dict_new(c->state->arena, &dict));
    dict->user = c->self.as.dict->user;
    *c->out    = (weir_jinja_value){.kind = WEIR_JINJA_DICT, .as.dict = dict};
    return copy_entries(c, dict, c->self.as.dict);
}

/* The table ---------------------------------------------------------------------------------------------------------------------- */

#define TEXT WEIR_JINJA_STRING
#define LIST WEIR_JINJA_LIST
#define DICT WEIR_JINJA_DICT
static const method methods[] = {
    {TEXT, "strip", "chars", strip, LEFT | RIGHT, 0},
    {TEXT, "lstrip", "chars", strip, LEFT, 0},
    {TEXT, "rstrip", "chars", strip, RIGHT, 0},
    {TEXT, "split", "sep maxsplit", split, LEFT, 0},
    {TEXT, "rsplit", "sep maxsplit", split, RIGHT, 0},
    {TEXT, "splitlines", "keepends", split_lines, 0, 0},
    {TEXT, "startswith", "prefix start end", has_affix, LEFT, 1},
    {TEXT, "endswith", "suffix start end", has_affix, RIGHT, 1},
    {TEXT, "removeprefix", "prefix", remove_affix, LEFT, 1},
    {TEXT, "removesuffix", "suffix", remove_affix, RIGHT, 1},
    {TEXT, "replace", "old new count", replace, 0, 2},
    {TEXT, "upper", "", change_case, WEIR_JINJA_UPPER, 0},
    {TEXT, "lower", "", change_case, WEIR_JINJA_LOWER, 0},
    {TEXT, "title", "", change_case, WEIR_JINJA_TITLE, 0},
    {TEXT, "capitalize", "", change_case, WEIR_JINJA_CAPITALIZE, 0},
    {TEXT, "join", "iterable", join, 0, 1},
    {TEXT, "find", "sub", find, 0, 1},
    {TEXT, "rfind", "sub", find, FIND_LAST, 1},
    {TEXT, "index", "sub", find, FIND_OR_FAIL, 1},
    {TEXT, "rindex", "sub", find, FIND_LAST | FIND_OR_FAIL, 1},
    {TEXT, "count", "sub", find, FIND_COUNT, 1},
    {TEXT, "partition", "sep", partition, LEFT, 1},
    {TEXT, "rpartition", "sep", partition, RIGHT, 1},
    {TEXT, "isdigit", "", all_are, IS_DIGIT, 0},
    {TEXT, "isdecimal", "", all_are, IS_DIGIT, 0},
    {TEXT, "isnumeric", "", all_are, IS_DIGIT, 0},
    {TEXT, "isspace", "", all_are, IS_SPACE, 0},
    {TEXT, "isalpha", "", all_are, IS_ALPHA, 0},
    {TEXT, "isalnum", "", all_are, IS_ALNUM, 0},
    {TEXT, "isascii", "", all_are, IS_ASCII, 0},
    {TEXT, "islower", "", is_case, WEIR_JINJA_LOWER, 0},
    {TEXT, "isupper", "", is_case, WEIR_JINJA_UPPER, 0},
    {TEXT, "ljust", "width fillchar", justify, LEFT, 1},
    {TEXT, "rjust", "width fillchar", justify, RIGHT, 1},
    {TEXT, "center", "width fillchar", justify, LEFT | RIGHT, 1},
    {TEXT, "casefold", "", refuse, 0, 0},
    {TEXT, "encode", "", refuse, 0, 0},
    {TEXT, "expandtabs", "", refuse, 0, 0},
    {TEXT, "format", "", refuse, 0, 0},
    {TEXT, "format_map", "", refuse, 0, 0},
    {TEXT, "isidentifier", "", refuse, 0, 0},
    {TEXT, "isprintable", "", refuse, 0, 0},
    {TEXT, "istitle", "", refuse, 0, 0},
    {TEXT, "maketrans", "", refuse, 0, 0},
    {TEXT, "swapcase", "", refuse, 0, 0},
    {TEXT, "translate", "", refuse, 0, 0},
    {TEXT, "zfill", "", refuse, 0, 0},
    {LIST, "append", "item", list_append, 0, 1},
    {LIST, "extend", "items", list_extend, 0, 1},
    {LIST, "insert", "index item", list_insert, 0, 2},
    {LIST, "pop", "index", list_pop, 0, 0},
    {LIST, "index", "item", list_find, 0, 1},
    {LIST, "count", "item", list_find, FIND_COUNT, 1},
    {LIST, "copy", "", list_copy, 0, 0},
    {LIST, "clear", "", refuse, 0, 0},
    {LIST, "remove", "", refuse, 0, 0},
    {LIST, "reverse", "", refuse, 0, 0},
    {LIST, "sort", "", refuse, 0, 0},
    {WEIR_JINJA_TUPLE, "index", "item", list_find, 0, 1},
    {WEIR_JINJA_TUPLE, "count", "item", list_find, FIND_COUNT, 1},
    {DICT, "items", "", dict_list, 'i', 0},
    {DICT, "keys", "", dict_list, 'k', 0},
    {DICT, "values", "", dict_list, 'v', 0},
    {DICT, "get", "key default", dict_get, 'g', 1},
    {DICT, "setdefault", "key default", dict_get, 's', 1},
    {DICT, "pop", "key default", dict_pop, 0, 1},
    {DICT, "update", "other", dict_update, 0, 1},
    {DICT, "copy", "", dict_copy, 0, 0},
    {DICT, "clear", "", refuse, 0, 0},
    {DICT, "fromkeys", "", refuse, 0, 0},
    {DICT, "popitem", "", refuse, 0, 0},
};
#undef TEXT
#undef LIST
#undef DICT
enum { N_METHODS = sizeof methods / sizeof *methods };

/* loop.cycle and loop.changed come after the table. */
enum { METHOD_CYCLE = N_METHODS, METHOD_CHANGED };

int weir_jinja_method_find(weir_jinja_value receiver, const weir_jinja_string *name)
{
    if (receiver.kind == WEIR_JINJA_LOOP)
        return weir_jinja_string_is(name, "cycle") ? METHOD_CYCLE : weir_jinja_string_is(name, "changed") ? METHOD_CHANGED : -1;
    for (int i = 0; i < N_METHODS; i++)
        if (methods[i].kind == receiver.kind && weir_jinja_string_is(name, methods[i].name)) return i;
    return -1;
}

static weir_status call_loop_method(weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_bound *bound, const weir_jinja_arguments *arguments)
{
    weir_jinja_loop *loop = bound->receiver.as.loop;
    if (arguments->n_named || (bound->method == METHOD_CYCLE && arguments->count == 0)) return weir_jinja_fail(state, "loop.cycle wants items to choose from");
    if (bound->method == METHOD_CYCLE) {
        *out = arguments->items[loop->index % arguments->count];
        return WEIR_OK;
    }
    weir_jinja_list *list = NULL;
    WEIR_TRY(weir_jinja_list_new(state->arena, &list, arguments->count));
    for (size_t i = 0; i < arguments->count; i++) WEIR_TRY(weir_jinja_list_add(state->arena, list, arguments->items[i]));
    const weir_jinja_value now = {.kind = WEIR_JINJA_TUPLE, .as.list = list};
    *out                       = weir_jinja_bool(!weir_jinja_equal(now, loop->changed, &state->steps_left));
    loop->changed              = now;
    return WEIR_OK;
}

weir_status weir_jinja_method_call(weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_bound *bound, const weir_jinja_arguments *arguments)
{
    if (bound->method >= N_METHODS) return call_loop_method(state, out, bound, arguments);
    const method *m = &methods[bound->method];
    call          c = {.state = state, .out = out, .self = bound->receiver, .variant = m->variant};
    if (m->run == refuse) return refuse(&c);
    WEIR_TRY(weir_jinja_bind(state, m->name, m->parameters, c.given, &c.mask, arguments));
    const unsigned needed = (1u << m->required) - 1;
    if ((c.mask & needed) != needed) return weir_jinja_fail(state, "%s wants %d argument(s)", m->name, m->required);
    return m->run(&c);
}
