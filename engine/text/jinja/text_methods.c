/* engine/text/jinja/text_methods.c - methods of text: "...".name(...). Indices are code points. */
#include <string.h>

#include "engine/text/jinja/methods.h"

static weir_status want_string(weir_jinja_method_call *c, size_t i)
{
    if (c->given[i].kind == WEIR_JINJA_STRING) return WEIR_OK;
    if (c->given[i].kind == WEIR_JINJA_UNDEFINED)
        return weir_jinja_fail_undefined(c->state, c->given[i]);
    return weir_jinja_fail(
        c->state, "a string method needs a string, not %s", weir_jinja_type_name(c->given[i])
    );
}

/* Each possible start is a step, because it may compare nearly all of the needle. */
weir_status weir_jinja_find_last(
    weir_jinja_state *state, size_t *out, const weir_jinja_string *string, size_t end,
    const weir_jinja_string *needle
)
{
    *out = needle->size == 0 ? end : SIZE_MAX;
    if (needle->size == 0 || needle->size > end) return WEIR_OK;
    WEIR_TRY(weir_jinja_work(state, end, WEIR_JINJA_SEARCHED));
    for (size_t at = end - needle->size + 1; at > 0;) {
        const char *const hit = memrchr(string->bytes, needle->bytes[0], at);
        if (!hit) return WEIR_OK;
        at = (size_t)(hit - string->bytes);
        WEIR_TRY(weir_jinja_work(state, needle->size, WEIR_JINJA_MOVED));
        if (memcmp(hit, needle->bytes, needle->size) != 0) continue;
        *out = at;
        return WEIR_OK;
    }
    return WEIR_OK;
}

static bool in_set(const weir_jinja_string *set, const char *bytes, size_t size, uint32_t code)
{
    if (!set) return weir_jinja_is_space(code);
    return size <= set->size && memmem(set->bytes, set->size, bytes, size) != NULL;
}

/* Each code point costs a step plus the search in the set. */
weir_status weir_jinja_strip(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *string,
    const weir_jinja_string *set, bool left, bool right
)
{
    const size_t width = set ? set->size : 0;
    size_t begin = 0, end = string->size, size = 0;
    WEIR_TRY(weir_jinja_work(state, string->size, WEIR_JINJA_MOVED));
    while (left && begin < end) {
        WEIR_TRY(weir_jinja_work(state, width, WEIR_JINJA_SEARCHED));
        const uint32_t code = weir_jinja_decode(string->bytes + begin, end - begin, &size);
        if (!in_set(set, string->bytes + begin, size, code)) break;
        begin += size;
    }
    while (right && end > begin) {
        WEIR_TRY(weir_jinja_work(state, width, WEIR_JINJA_SEARCHED));
        const uint32_t code = weir_jinja_decode_last(string->bytes + begin, end - begin, &size);
        if (!in_set(set, string->bytes + end - size, size, code)) break;
        end -= size;
    }
    return weir_jinja_substring(state->arena, out, string, begin, end - begin);
}

enum { LEFT = 1, RIGHT = 2 };

static weir_status strip(weir_jinja_method_call *c)
{
    if (weir_jinja_has(c, 0)) WEIR_TRY(want_string(c, 0));
    return weir_jinja_strip(
        c->state, c->out, c->self.as.string, weir_jinja_has(c, 0) ? c->given[0].as.string : NULL,
        c->variant & LEFT, c->variant & RIGHT
    );
}

static weir_status add_part(
    weir_jinja_method_call *c, weir_jinja_list *list, size_t begin, size_t end
)
{
    weir_jinja_value part;
    WEIR_TRY(weir_jinja_step(c->state, 0));
    WEIR_TRY(weir_jinja_substring(c->state->arena, &part, c->self.as.string, begin, end - begin));
    return weir_jinja_list_add(c->state->arena, list, part);
}

/* Splits at white space. */
static weir_status split_words(weir_jinja_method_call *c, weir_jinja_list *list, int64_t limit)
{
    const weir_jinja_string *s = c->self.as.string;
    size_t at = 0, size = 0;
    for (;;) {
        while (at < s->size &&
               weir_jinja_is_space(weir_jinja_decode(s->bytes + at, s->size - at, &size)))
            at += size;
        if (at == s->size) return WEIR_OK;
        const size_t begin = at;
        /* The rest keeps the white space at its end, as in Python. */
        if (limit-- == 0) return add_part(c, list, begin, s->size);
        while (at < s->size &&
               !weir_jinja_is_space(weir_jinja_decode(s->bytes + at, s->size - at, &size)))
            at += size;
        WEIR_TRY(add_part(c, list, begin, at));
    }
}

static void reverse(weir_jinja_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        const weir_jinja_value item = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = item;
    }
}

static weir_status split_words_right(
    weir_jinja_method_call *c, weir_jinja_list *list, int64_t limit
)
{
    const weir_jinja_string *s = c->self.as.string;
    size_t end = s->size, size = 0;
    for (;;) {
        while (end > 0 && weir_jinja_is_space(weir_jinja_decode_last(s->bytes, end, &size)))
            end -= size;
        if (end == 0) break;
        size_t begin = end;
        if (limit-- == 0) {
            WEIR_TRY(add_part(c, list, 0, end));
            break;
        }
        while (begin > 0 && !weir_jinja_is_space(weir_jinja_decode_last(s->bytes, begin, &size)))
            begin -= size;
        WEIR_TRY(add_part(c, list, begin, end));
        end = begin;
    }
    reverse(list);
    return WEIR_OK;
}

static weir_status split_at(
    weir_jinja_method_call *c, weir_jinja_list *list, const weir_jinja_string *separator,
    int64_t limit
)
{
    const weir_jinja_string *s = c->self.as.string;
    size_t begin = 0, end = s->size, hit = 0;
    while (c->variant == LEFT && limit-- != 0 &&
           (hit = weir_jinja_find(s, begin, separator)) != SIZE_MAX) {
        WEIR_TRY(add_part(c, list, begin, hit));
        begin = hit + separator->size;
    }
    while (c->variant == RIGHT && limit-- != 0) {
        WEIR_TRY(weir_jinja_find_last(c->state, &hit, s, end, separator));
        if (hit == SIZE_MAX) break;
        WEIR_TRY(add_part(c, list, hit + separator->size, end));
        end = hit;
    }
    WEIR_TRY(add_part(c, list, begin, end));
    if (c->variant == RIGHT) reverse(list);
    return WEIR_OK;
}

static weir_status split(weir_jinja_method_call *c)
{
    weir_jinja_list *list = NULL;
    int64_t limit = -1;
    WEIR_TRY(weir_jinja_method_int(c, 1, -1, &limit));
    if (limit < 0) limit = -1;
    WEIR_TRY(weir_jinja_work(
        c->state, c->self.as.string->size,
        weir_jinja_has(c, 0) ? WEIR_JINJA_SEARCHED : WEIR_JINJA_READ
    ));
    WEIR_TRY(weir_jinja_list_new(c->state->arena, &list, 4));
    *c->out = (weir_jinja_value){ .kind = WEIR_JINJA_LIST, .as.list = list };
    if (!weir_jinja_has(c, 0))
        return c->variant == LEFT ? split_words(c, list, limit) : split_words_right(c, list, limit);
    WEIR_TRY(want_string(c, 0));
    if (c->given[0].as.string->size == 0) return weir_jinja_fail(c->state, "empty separator");
    return split_at(c, list, c->given[0].as.string, limit);
}

static bool ends_line(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

static weir_status split_lines(weir_jinja_method_call *c)
{
    const weir_jinja_string *s = c->self.as.string;
    weir_jinja_list *list = NULL;
    const bool keep = (c->mask & 1) && weir_jinja_truth(c->given[0]);
    WEIR_TRY(weir_jinja_work(c->state, s->size, WEIR_JINJA_READ));
    WEIR_TRY(weir_jinja_list_new(c->state->arena, &list, 4));
    *c->out = (weir_jinja_value){ .kind = WEIR_JINJA_LIST, .as.list = list };
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
    return part->size <= s->size &&
           (part->size == 0 ||
            memcmp(s->bytes + (front ? 0 : s->size - part->size), part->bytes, part->size) == 0);
}

/* Startswith, endswith: a string or a tuple of strings, optionally with a range. */
static weir_status has_affix(weir_jinja_method_call *c)
{
    weir_jinja_value self = c->self;
    if (c->mask & 6) {
        const weir_jinja_value bounds[3] = { weir_jinja_has(c, 1) ? c->given[1] : weir_jinja_none(),
                                             weir_jinja_has(c, 2) ? c->given[2] : weir_jinja_none(),
                                             weir_jinja_none() };
        WEIR_TRY(weir_jinja_slice(c->state, &self, self, bounds));
    }
    *c->out = weir_jinja_bool(false);
    if (c->given[0].kind != WEIR_JINJA_TUPLE) {
        WEIR_TRY(want_string(c, 0));
        WEIR_TRY(weir_jinja_work(c->state, c->given[0].as.string->size, WEIR_JINJA_MOVED));
        *c->out = weir_jinja_bool(affix(self.as.string, c->given[0].as.string, c->variant == LEFT));
        return WEIR_OK;
    }
    const weir_jinja_list *list = c->given[0].as.list;
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].kind != WEIR_JINJA_STRING)
            return weir_jinja_fail(c->state, "a tuple of strings is expected");
        WEIR_TRY(weir_jinja_work(c->state, list->items[i].as.string->size, WEIR_JINJA_MOVED));
        if (affix(self.as.string, list->items[i].as.string, c->variant == LEFT))
            *c->out = weir_jinja_bool(true);
    }
    return WEIR_OK;
}

static weir_status remove_affix(weir_jinja_method_call *c)
{
    WEIR_TRY(want_string(c, 0));
    const weir_jinja_string *s = c->self.as.string, *part = c->given[0].as.string;
    WEIR_TRY(weir_jinja_work(c->state, s->size, WEIR_JINJA_MOVED));
    const size_t n = affix(s, part, c->variant == LEFT) ? part->size : 0;
    return weir_jinja_substring(
        c->state->arena, c->out, s, c->variant == LEFT ? n : 0, s->size - n
    );
}

/* With an empty `old`, inserts the new text before each code point and at the end. */
static weir_status replace_between(
    weir_jinja_state *state, weir_jinja_builder *text, const weir_jinja_string *string,
    const weir_jinja_string *new_text, int64_t limit
)
{
    size_t at = 0, size = 0;
    for (; limit-- != 0; at += size) {
        WEIR_TRY(weir_jinja_work(state, new_text->size, WEIR_JINJA_MOVED));
        WEIR_TRY(weir_jinja_add_string(text, new_text));
        if (at == string->size) return WEIR_OK;
        (void)weir_jinja_decode(string->bytes + at, string->size - at, &size);
        WEIR_TRY(weir_jinja_add_part(text, string, at, size));
    }
    return weir_jinja_add_part(text, string, at, string->size - at);
}

weir_status weir_jinja_replace(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *string,
    const weir_jinja_string *old, const weir_jinja_string *new_text, int64_t limit
)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    size_t at = 0, hit = 0;
    if (limit < 0) limit = -1;
    WEIR_TRY(weir_jinja_work(state, string->size, WEIR_JINJA_SEARCHED));
    if (old->size == 0) {
        WEIR_TRY(replace_between(state, &text, string, new_text, limit));
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

static weir_status replace(weir_jinja_method_call *c)
{
    int64_t limit = -1;
    WEIR_TRY(want_string(c, 0));
    WEIR_TRY(want_string(c, 1));
    WEIR_TRY(weir_jinja_method_int(c, 2, -1, &limit));
    return weir_jinja_replace(
        c->state, c->out, c->self.as.string, c->given[0].as.string, c->given[1].as.string, limit
    );
}

static weir_status change_case(weir_jinja_method_call *c)
{
    return weir_jinja_change_case(c->state, c->out, c->self.as.string, (weir_jinja_case)c->variant);
}

static weir_status join(weir_jinja_method_call *c)
{
    weir_jinja_list *items = NULL;
    weir_jinja_builder text = weir_jinja_builder_new(c->state->arena);
    if (c->given[0].kind == WEIR_JINJA_UNDEFINED && c->given[0].as.name == NULL)
        return weir_jinja_fail_undefined(c->state, c->given[0]);
    WEIR_TRY(weir_jinja_items(c->state, &items, c->given[0]));
    for (size_t i = 0; i < items->count; i++) {
        if (items->items[i].kind != WEIR_JINJA_STRING)
            return weir_jinja_fail(
                c->state, "join: item %zu is %s, not a string", i,
                weir_jinja_type_name(items->items[i])
            );
        WEIR_TRY(weir_jinja_work(
            c->state, items->items[i].as.string->size + c->self.as.string->size, WEIR_JINJA_MOVED
        ));
        if (i) WEIR_TRY(weir_jinja_add_string(&text, c->self.as.string));
        WEIR_TRY(weir_jinja_add_string(&text, items->items[i].as.string));
    }
    return weir_jinja_builder_finish(&text, c->out);
}

/* Find, rfind, index, rindex, count: in code points, without a range. */
static weir_status find(weir_jinja_method_call *c)
{
    WEIR_TRY(want_string(c, 0));
    weir_jinja_string *s = c->self.as.string;
    const weir_jinja_string *needle = c->given[0].as.string;
    WEIR_TRY(weir_jinja_work(c->state, s->size, WEIR_JINJA_SEARCHED));
    if (c->variant & WEIR_JINJA_FIND_COUNT) {
        int64_t count = needle->size ? 0 : (int64_t)weir_jinja_string_count(s) + 1;
        for (size_t at = 0; needle->size && (at = weir_jinja_find(s, at, needle)) != SIZE_MAX;
             at += needle->size) {
            WEIR_TRY(weir_jinja_step(c->state, 0));
            count++;
        }
        *c->out = weir_jinja_int(count);
        return WEIR_OK;
    }
    size_t hit = 0;
    if (c->variant & WEIR_JINJA_FIND_LAST)
        WEIR_TRY(weir_jinja_find_last(c->state, &hit, s, s->size, needle));
    else
        hit = weir_jinja_find(s, 0, needle);
    if (hit == SIZE_MAX && (c->variant & WEIR_JINJA_FIND_OR_FAIL))
        return weir_jinja_fail(c->state, "substring not found");
    *c->out = weir_jinja_int(-1);
    if (hit == SIZE_MAX) return WEIR_OK;
    WEIR_TRY(weir_jinja_work(c->state, hit, WEIR_JINJA_READ));
    weir_jinja_string before = { .bytes = s->bytes, .size = hit, .count = SIZE_MAX };
    *c->out = weir_jinja_int((int64_t)weir_jinja_string_count(&before));
    return WEIR_OK;
}

static weir_status partition(weir_jinja_method_call *c)
{
    weir_jinja_list *list = NULL;
    WEIR_TRY(want_string(c, 0));
    const weir_jinja_string *s = c->self.as.string, *separator = c->given[0].as.string;
    if (separator->size == 0) return weir_jinja_fail(c->state, "empty separator");
    size_t hit = 0;
    WEIR_TRY(weir_jinja_work(c->state, s->size, WEIR_JINJA_SEARCHED));
    if (c->variant == LEFT)
        hit = weir_jinja_find(s, 0, separator);
    else
        WEIR_TRY(weir_jinja_find_last(c->state, &hit, s, s->size, separator));
    const size_t a = hit != SIZE_MAX      ? hit
                     : c->variant == LEFT ? s->size
                                          : 0,
                 b = hit != SIZE_MAX ? hit + separator->size : a;
    WEIR_TRY(weir_jinja_list_new(c->state->arena, &list, 3));
    WEIR_TRY(add_part(c, list, 0, a));
    WEIR_TRY(add_part(c, list, a, b));
    WEIR_TRY(add_part(c, list, b, s->size));
    *c->out = (weir_jinja_value){ .kind = WEIR_JINJA_TUPLE, .as.list = list };
    return WEIR_OK;
}

/* Isdigit, isspace, ... for ASCII; letters are recognised by having a case. */
enum { IS_DIGIT, IS_SPACE, IS_ALPHA, IS_ALNUM, IS_ASCII };

static weir_status all_are(weir_jinja_method_call *c)
{
    const weir_jinja_string *s = c->self.as.string;
    bool all = s->size > 0 || c->variant == IS_ASCII;
    WEIR_TRY(weir_jinja_work(c->state, s->size, WEIR_JINJA_MADE));
    for (size_t at = 0, size = 0; at < s->size && all; at += size) {
        const uint32_t code = weir_jinja_decode(s->bytes + at, s->size - at, &size);
        const bool digit = weir_jinja_is_digit(code), alpha = weir_jinja_is_letter(code);
        all = c->variant == IS_DIGIT   ? digit
              : c->variant == IS_SPACE ? weir_jinja_is_space(code)
              : c->variant == IS_ALPHA ? alpha
              : c->variant == IS_ALNUM ? alpha || digit
                                       : code < 128;
    }
    *c->out = weir_jinja_bool(all);
    return WEIR_OK;
}

static weir_status is_case(weir_jinja_method_call *c)
{
    static weir_jinja_string lower = { .bytes = "lower", .size = 5, .count = 5 },
                             upper = { .bytes = "upper", .size = 5, .count = 5 };
    const weir_jinja_arguments none = { 0 };
    bool holds = false;
    WEIR_TRY(weir_jinja_apply_test(
        c->state, &holds, c->variant == WEIR_JINJA_LOWER ? &lower : &upper, c->self, &none
    ));
    *c->out = weir_jinja_bool(holds);
    return WEIR_OK;
}

/* Ljust, rjust, center. */
static weir_status justify(weir_jinja_method_call *c)
{
    int64_t width = 0;
    WEIR_TRY(weir_jinja_method_int(c, 0, 0, &width));
    if (weir_jinja_has(c, 1)) WEIR_TRY(want_string(c, 1));
    const char *fill = weir_jinja_has(c, 1) ? c->given[1].as.string->bytes : " ";
    const size_t size = weir_jinja_has(c, 1) ? c->given[1].as.string->size : 1,
                 count = weir_jinja_string_count(c->self.as.string);
    const size_t padding = width > (int64_t)count ? (size_t)width - count : 0;
    const size_t left = c->variant == RIGHT  ? padding
                        : c->variant == LEFT ? 0
                                             : padding / 2 + (padding & (size_t)width & 1);
    weir_jinja_builder text = weir_jinja_builder_new(c->state->arena);
    for (size_t i = 0; i <= padding; i++) {
        if (i == left) WEIR_TRY(weir_jinja_add_string(&text, c->self.as.string));
        WEIR_TRY(weir_jinja_work(c->state, size, WEIR_JINJA_MOVED));
        if (i < padding) WEIR_TRY(weir_jinja_add(&text, fill, size, WEIR_JINJA_TEMPLATE));
    }
    return weir_jinja_builder_finish(&text, c->out);
}

const weir_jinja_method weir_jinja_text_methods[] = {
    { WEIR_JINJA_STRING, "strip", "chars", strip, LEFT | RIGHT, 0 },
    { WEIR_JINJA_STRING, "lstrip", "chars", strip, LEFT, 0 },
    { WEIR_JINJA_STRING, "rstrip", "chars", strip, RIGHT, 0 },
    { WEIR_JINJA_STRING, "split", "sep maxsplit", split, LEFT, 0 },
    { WEIR_JINJA_STRING, "rsplit", "sep maxsplit", split, RIGHT, 0 },
    { WEIR_JINJA_STRING, "splitlines", "keepends", split_lines, 0, 0 },
    { WEIR_JINJA_STRING, "startswith", "prefix start end", has_affix, LEFT, 1 },
    { WEIR_JINJA_STRING, "endswith", "suffix start end", has_affix, RIGHT, 1 },
    { WEIR_JINJA_STRING, "removeprefix", "prefix", remove_affix, LEFT, 1 },
    { WEIR_JINJA_STRING, "removesuffix", "suffix", remove_affix, RIGHT, 1 },
    { WEIR_JINJA_STRING, "replace", "old new count", replace, 0, 2 },
    { WEIR_JINJA_STRING, "upper", "", change_case, WEIR_JINJA_UPPER, 0 },
    { WEIR_JINJA_STRING, "lower", "", change_case, WEIR_JINJA_LOWER, 0 },
    { WEIR_JINJA_STRING, "title", "", change_case, WEIR_JINJA_TITLE, 0 },
    { WEIR_JINJA_STRING, "capitalize", "", change_case, WEIR_JINJA_CAPITALIZE, 0 },
    { WEIR_JINJA_STRING, "join", "iterable", join, 0, 1 },
    { WEIR_JINJA_STRING, "find", "sub", find, 0, 1 },
    { WEIR_JINJA_STRING, "rfind", "sub", find, WEIR_JINJA_FIND_LAST, 1 },
    { WEIR_JINJA_STRING, "index", "sub", find, WEIR_JINJA_FIND_OR_FAIL, 1 },
    { WEIR_JINJA_STRING, "rindex", "sub", find, WEIR_JINJA_FIND_LAST | WEIR_JINJA_FIND_OR_FAIL, 1 },
    { WEIR_JINJA_STRING, "count", "sub", find, WEIR_JINJA_FIND_COUNT, 1 },
    { WEIR_JINJA_STRING, "partition", "sep", partition, LEFT, 1 },
    { WEIR_JINJA_STRING, "rpartition", "sep", partition, RIGHT, 1 },
    { WEIR_JINJA_STRING, "isdigit", "", all_are, IS_DIGIT, 0 },
    { WEIR_JINJA_STRING, "isdecimal", "", all_are, IS_DIGIT, 0 },
    { WEIR_JINJA_STRING, "isnumeric", "", all_are, IS_DIGIT, 0 },
    { WEIR_JINJA_STRING, "isspace", "", all_are, IS_SPACE, 0 },
    { WEIR_JINJA_STRING, "isalpha", "", all_are, IS_ALPHA, 0 },
    { WEIR_JINJA_STRING, "isalnum", "", all_are, IS_ALNUM, 0 },
    { WEIR_JINJA_STRING, "isascii", "", all_are, IS_ASCII, 0 },
    { WEIR_JINJA_STRING, "islower", "", is_case, WEIR_JINJA_LOWER, 0 },
    { WEIR_JINJA_STRING, "isupper", "", is_case, WEIR_JINJA_UPPER, 0 },
    { WEIR_JINJA_STRING, "ljust", "width fillchar", justify, LEFT, 1 },
    { WEIR_JINJA_STRING, "rjust", "width fillchar", justify, RIGHT, 1 },
    { WEIR_JINJA_STRING, "center", "width fillchar", justify, LEFT | RIGHT, 1 },
    { WEIR_JINJA_STRING, "casefold", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "encode", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "expandtabs", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "format", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "format_map", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "isidentifier", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "isprintable", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "istitle", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "maketrans", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "swapcase", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "translate", "", NULL, 0, 0 },
    { WEIR_JINJA_STRING, "zfill", "", NULL, 0, 0 },
};
const int weir_jinja_text_methods_count =
    sizeof weir_jinja_text_methods / sizeof *weir_jinja_text_methods;
