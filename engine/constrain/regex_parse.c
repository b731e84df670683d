/* engine/constrain/regex_parse.c - parses regular expressions. */
#include <string.h>

#include "engine/base/hex.h"
#include "engine/constrain/regex.h"

typedef struct parser {
    weir_scratch *scratch;
    const char *text;
    size_t n, at;
    int depth;
    bool any_case; /* of ASCII letters */
    const char *why;
} parser;

static weir_status malformed(parser *p, const char *why)
{
    p->why = why;
    return WEIR_EFORMAT;
}

static weir_status unsupported(parser *p, const char *why)
{
    p->why = why;
    return WEIR_EUNSUPPORTED;
}

static bool looking_at(const parser *p, const char *text)
{
    const size_t n = strlen(text);
    return p->n - p->at >= n && memcmp(p->text + p->at, text, n) == 0;
}

static bool skip(parser *p, const char *text)
{
    if (!looking_at(p, text)) return false;
    p->at += strlen(text);
    return true;
}

static weir_status hex(parser *p, int digits, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const char c = p->at < p->n ? p->text[p->at] : '\0';
        const int digit = weir_hex_digit(c);
        if (digit < 0) return malformed(p, "an escape with too few hexadecimal digits");
        value = value << 4 | (uint32_t)digit;
    }
    *out = value;
    return WEIR_OK;
}

/* The escapes of sets: \d \w \s and their complements. False: another escape. */
static bool is_set(char letter) { return letter != '\0' && strchr("dDwWsS", letter) != NULL; }

static weir_status add_set(parser *p, weir_ranges *out, char letter)
{
    static const weir_range digits[] = { { '0', '9' } };
    static const weir_range words[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
    static const weir_range spaces[] = {
        { '\t', '\r' },     { ' ', ' ' },       { 0xA0, 0xA0 },     { 0x1680, 0x1680 },
        { 0x2000, 0x200A }, { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F },
        { 0x3000, 0x3000 }, { 0xFEFF, 0xFEFF },
    };
    const char kind = letter | 0x20;
    const weir_range *const set = kind == 'd' ? digits : kind == 'w' ? words : spaces;
    const size_t n = kind == 'd' ? 1 : kind == 'w' ? 4 : 10;
    weir_ranges ranges = { 0 };
    for (size_t i = 0; i < n; i++) {
        WEIR_TRY(weir_ranges_add(&ranges, p->scratch, set[i].low, set[i].high));
    }
    if (letter != kind) WEIR_TRY(weir_ranges_finish(&ranges, p->scratch, true));
    for (size_t i = 0; i < ranges.n; i++) {
        WEIR_TRY(weir_ranges_add(out, p->scratch, ranges.data[i].low, ranges.data[i].high));
    }
    return WEIR_OK;
}

/* \uXXXX, with the second half of a pair, and \u{X...}. */
static weir_status unicode_escape(parser *p, uint32_t *out)
{
    if (skip(p, "{")) {
        uint32_t value = 0;
        int digits = 0;
        while (p->at < p->n && p->text[p->at] != '}' && digits++ < 6) {
            uint32_t digit;
            WEIR_TRY(hex(p, 1, &digit));
            value = value << 4 | digit;
        }
        if (digits == 0 || !skip(p, "}")) return malformed(p, "\\u{ without digits and }");
        *out = value;
        return value <= 0x10FFFF ? WEIR_OK : malformed(p, "a code point above 10FFFF");
    }
    WEIR_TRY(hex(p, 4, out));
    if (*out >= 0xD800 && *out <= 0xDBFF && skip(p, "\\u")) {
        uint32_t low;
        WEIR_TRY(hex(p, 4, &low));
        if (low < 0xDC00 || low > 0xDFFF) return malformed(p, "half of a surrogate pair");
        *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    }
    return WEIR_OK;
}

/* Reads the rest of an escape of one character, after the backslash. */
static weir_status escape(parser *p, bool in_class, uint32_t *out)
{
    if (p->at >= p->n) return malformed(p, "a backslash at the end");
    const char c = p->text[p->at];
    static const char letters[] = "tnrfv", codes[] = "\t\n\r\f\v";
    const char *const known = c == '\0' ? NULL : strchr(letters, c);
    if (known != NULL) {
        p->at++;
        *out = (unsigned char)codes[known - letters];
        return WEIR_OK;
    }
    if (in_class && skip(p, "b")) {
        *out = '\b';
        return WEIR_OK;
    }
    if (skip(p, "x")) return hex(p, 2, out);
    if (skip(p, "u")) return unicode_escape(p, out);
    if (c == 'c' && p->n - p->at > 1 && ((p->text[p->at + 1] | 0x20) >= 'a') &&
        ((p->text[p->at + 1] | 0x20) <= 'z')) {
        *out = (uint32_t)p->text[p->at + 1] & 31;
        p->at += 2;
        return WEIR_OK;
    }
    const bool digit_follows =
        p->n - p->at > 1 && p->text[p->at + 1] >= '0' && p->text[p->at + 1] <= '9';
    if (c == '0' && !digit_follows) {
        p->at++;
        *out = 0;
        return WEIR_OK;
    }
    if (c >= '0' && c <= '9') return unsupported(p, "back-references are not supported");
    if (c == 'b' || c == 'B') return unsupported(p, "\\b and \\B are not supported");
    if (c == 'p' || c == 'P') return unsupported(p, "\\p{...} is not supported; list the ranges");
    if (c == 'k') return unsupported(p, "back-references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return malformed(p, "unknown escape");
    const size_t length = weir_utf8_next(out, p->text + p->at, p->n - p->at);
    if (length == 0) return malformed(p, "ill-formed UTF-8");
    p->at += length;
    return WEIR_OK;
}

static weir_status character(parser *p, uint32_t *out)
{
    const size_t length = weir_utf8_next(out, p->text + p->at, p->n - p->at);
    if (length == 0) return malformed(p, "ill-formed UTF-8");
    p->at += length;
    return WEIR_OK;
}

/* Reads a member of a class; *set: the letter of \d and the like, else 0. */
static weir_status class_member(parser *p, uint32_t *out, char *set)
{
    *set = '\0';
    if (!skip(p, "\\")) return character(p, out);
    if (p->at < p->n && is_set(p->text[p->at])) {
        *set = p->text[p->at++];
        return WEIR_OK;
    }
    return escape(p, true, out);
}

static weir_status add_other_case(parser *p, weir_ranges *ranges)
{
    const size_t n = ranges->n;
    for (size_t i = 0; i < n && p->any_case; i++) {
        static const uint32_t cases[2][2] = { { 'a', 'A' }, { 'A', 'a' } };
        for (int k = 0; k < 2; k++) {
            const uint32_t first = cases[k][0];
            const weir_range r = ranges->data[i];
            const uint32_t low = r.low > first ? r.low : first;
            const uint32_t high = r.high < first + 25 ? r.high : first + 25;
            if (low > high) continue;
            const uint32_t shift = cases[k][1] - first;
            WEIR_TRY(weir_ranges_add(ranges, p->scratch, low + shift, high + shift));
        }
    }
    return WEIR_OK;
}

static weir_status finish_class(parser *p, weir_regex **out, weir_ranges *ranges, bool negated)
{
    WEIR_TRY(add_other_case(p, ranges));
    WEIR_TRY(weir_ranges_finish(ranges, p->scratch, negated));
    *out = weir_regex_node(p->scratch, WEIR_REGEX_CLASS);
    if (*out == NULL) return WEIR_ENOMEM;
    (*out)->ranges = ranges->data;
    (*out)->n = ranges->n;
    return WEIR_OK;
}

/* Reads the rest of a class, after [. */
static weir_status parse_class(parser *p, weir_regex **out)
{
    weir_ranges ranges = { 0 };
    const bool negated = skip(p, "^");
    for (;;) {
        uint32_t low = 0, high;
        char set, set_after = '\0';
        if (p->at >= p->n) return malformed(p, "[ without ]");
        if (skip(p, "]")) return finish_class(p, out, &ranges, negated);
        WEIR_TRY(class_member(p, &low, &set));
        high = low;
        const bool range = looking_at(p, "-") && p->n - p->at > 1 && p->text[p->at + 1] != ']';
        if (range && set == '\0') {
            p->at++;
            WEIR_TRY(class_member(p, &high, &set_after));
            if (set_after != '\0') { /* [a-\d] lists all three */
                WEIR_TRY(weir_ranges_add(&ranges, p->scratch, '-', '-'));
                WEIR_TRY(add_set(p, &ranges, set_after));
                high = low;
            }
            if (high < low) return malformed(p, "a range whose end is before its begin");
        }
        if (set != '\0') {
            WEIR_TRY(add_set(p, &ranges, set));
        } else {
            WEIR_TRY(weir_ranges_add(&ranges, p->scratch, low, high));
        }
    }
}

static weir_status one_range(parser *p, weir_regex **out, uint32_t c)
{
    weir_ranges ranges = { 0 };
    WEIR_TRY(weir_ranges_add(&ranges, p->scratch, c, c));
    return finish_class(p, out, &ranges, false);
}

static weir_status parse_either(parser *p, weir_regex **out);

/* Reads the rest of a group, after (. */
static weir_status parse_group(parser *p, weir_regex **out)
{
    if (skip(p, "?")) {
        if (looking_at(p, "=") || looking_at(p, "!") || looking_at(p, "<=") ||
            looking_at(p, "<!")) {
            return unsupported(p, "look-around is not supported");
        }
        if (skip(p, "<")) {
            while (p->at < p->n && p->text[p->at] != '>') p->at++;
            if (!skip(p, ">")) return malformed(p, "a group name without >");
        } else if (!skip(p, ":")) {
            return unsupported(p, "unknown kind of group");
        }
    }
    if (++p->depth > WEIR_REGEX_DEPTH) return unsupported(p, "more than 200 groups in each other");
    WEIR_TRY(parse_either(p, out));
    p->depth--;
    return skip(p, ")") ? WEIR_OK : malformed(p, "( without )");
}

static weir_status parse_atom(parser *p, weir_regex **out)
{
    uint32_t c = 0;
    if (skip(p, "(")) return parse_group(p, out);
    if (skip(p, "[")) return parse_class(p, out);
    if (looking_at(p, "^") || looking_at(p, "$")) {
        const bool begins = p->text[p->at++] == '^';
        *out = weir_regex_node(p->scratch, begins ? WEIR_REGEX_BEGIN : WEIR_REGEX_END);
        return *out == NULL ? WEIR_ENOMEM : WEIR_OK;
    }
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?")) {
        return malformed(p, "nothing to repeat");
    }
    if (skip(p, ".")) {
        weir_ranges ranges = { 0 };
        static const uint32_t ends[] = { '\n', '\r', 0x2028, 0x2029 };
        for (int i = 0; i < 4; i++) {
            WEIR_TRY(weir_ranges_add(&ranges, p->scratch, ends[i], ends[i]));
        }
        return finish_class(p, out, &ranges, true);
    }
    if (!skip(p, "\\")) {
        WEIR_TRY(character(p, &c));
        return one_range(p, out, c);
    }
    if (p->at < p->n && is_set(p->text[p->at])) {
        weir_ranges ranges = { 0 };
        WEIR_TRY(add_set(p, &ranges, p->text[p->at++]));
        return finish_class(p, out, &ranges, false);
    }
    WEIR_TRY(escape(p, false, &c));
    return one_range(p, out, c);
}

/* Reads a number of a repetition; -1: none, or too large. */
static int32_t number(parser *p)
{
    int32_t value = -1;
    for (; p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++) {
        if (value < 0) value = 0;
        value = value > WEIR_REGEX_REPEATS ? value : value * 10 + (p->text[p->at] - '0');
    }
    return value;
}

/* Reads {m}, {m,} or {m,n}. False: the brace is a character. */
static bool braces(parser *p, int32_t *low, int32_t *high)
{
    const size_t begin = p->at;
    if (!skip(p, "{")) return false;
    *low = *high = number(p);
    if (*low >= 0 && skip(p, ",")) *high = looking_at(p, "}") ? WEIR_REGEX_ENDLESS : number(p);
    if (*low >= 0 && skip(p, "}")) return true;
    p->at = begin;
    return false;
}

static weir_status parse_repeat(parser *p, weir_regex **out)
{
    WEIR_TRY(parse_atom(p, out));
    int32_t low = 0, high = WEIR_REGEX_ENDLESS;
    if (skip(p, "+")) {
        low = 1;
    } else if (skip(p, "?")) {
        high = 1;
    } else if (!skip(p, "*") && !braces(p, &low, &high)) {
        return WEIR_OK;
    }
    if (low > WEIR_REGEX_REPEATS || high > WEIR_REGEX_REPEATS) {
        return unsupported(p, "more than 100000 repetitions");
    }
    if (high != WEIR_REGEX_ENDLESS && high < low) return malformed(p, "{m,n} with n below m");
    skip(p, "?"); /* as few as possible: the same texts */
    weir_regex *const repeat = weir_regex_node(p->scratch, WEIR_REGEX_REPEAT);
    if (repeat == NULL) return WEIR_ENOMEM;
    repeat->low = low;
    repeat->high = high;
    repeat->child = *out;
    *out = repeat;
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?")) {
        return malformed(p, "nothing to repeat");
    }
    return WEIR_OK;
}

static weir_status parse_join(parser *p, weir_regex **out)
{
    weir_regex *const join = weir_regex_node(p->scratch, WEIR_REGEX_JOIN);
    if (join == NULL) return WEIR_ENOMEM;
    weir_regex **last = &join->child;
    while (p->at < p->n && !looking_at(p, "|") && !looking_at(p, ")")) {
        WEIR_TRY(parse_repeat(p, last));
        last = &(*last)->next;
    }
    *out = join;
    return WEIR_OK;
}

static weir_status parse_either(parser *p, weir_regex **out)
{
    weir_regex *first;
    WEIR_TRY(parse_join(p, &first));
    *out = first;
    if (!looking_at(p, "|")) return WEIR_OK;
    *out = weir_regex_node(p->scratch, WEIR_REGEX_EITHER);
    if (*out == NULL) return WEIR_ENOMEM;
    (*out)->child = first;
    for (weir_regex *last = first; skip(p, "|"); last = last->next) {
        WEIR_TRY(parse_join(p, &last->next));
    }
    return WEIR_OK;
}

weir_status weir_regex_parse(
    weir_regex **out, weir_scratch *scratch, const char *text, size_t n, const char **why,
    size_t *at
)
{
    parser p = { .scratch = scratch, .text = text, .n = n };
    p.any_case = skip(&p, "(?i)");
    weir_status status = parse_either(&p, out);
    if (status == WEIR_OK && p.at < p.n) status = malformed(&p, ") without (");
    *why = p.why;
    *at = p.at;
    return status;
}
