/* engine/constrain/gbnf.c - llama.cpp's grammars: rules of literals, classes, groups and
 * repetitions. Token references are refused. */
#include <stdio.h>
#include <string.h>

#include "engine/base/hex.h"
#include "engine/base/memory.h"
#include "engine/constrain/grammar.h"
#include "engine/constrain/regex.h"

typedef struct name { /* of a rule */
    const char *text;
    size_t length;
    weir_regex *body; /* NULL: not defined yet */
    uint32_t chain; /* the next of the same hash + 1 */
} name;

typedef struct gbnf {
    weir_compiler *compiler;
    weir_scratch scratch;
    const char *text;
    size_t n, at;
    int depth;
    name *names; /* owned */
    uint32_t n_names, capacity;
    uint32_t base; /* the rule of the first name */
    uint32_t heads[1 << 14]; /* index + 1 */
    bool no_memory;
} gbnf;

static weir_status malformed(gbnf *g, const char *why)
{
    size_t line = 1;
    for (size_t i = 0; i < g->at && i < g->n; i++) line += g->text[i] == '\n';
    (void)weir_compile_refuse(
        g->compiler, WEIR_EFORMAT, "grammar", "", "%s (line %zu, at byte %zu)", why, line, g->at
    );
    return WEIR_EFORMAT;
}

static weir_status no_memory(gbnf *g)
{
    if (g->compiler->rules->nfa.status == WEIR_EFULL) {
        const weir_status status = weir_compile_status(g->compiler, "grammar", "");
        return status != WEIR_OK ? status : WEIR_EFULL;
    }
    (void)weir_error_set(g->compiler->error, WEIR_ENOMEM, "no memory to compile the grammar");
    return WEIR_ENOMEM;
}

static bool looking_at(const gbnf *g, const char *text)
{
    const size_t n = strlen(text);
    return g->n - g->at >= n && memcmp(g->text + g->at, text, n) == 0;
}

static bool skip(gbnf *g, const char *text)
{
    if (!looking_at(g, text)) return false;
    g->at += strlen(text);
    return true;
}

/* Skips white space and comments; line ends only if `lines`. */
static void skip_space(gbnf *g, bool lines)
{
    while (g->at < g->n) {
        const char c = g->text[g->at];
        if (c == '#') {
            while (g->at < g->n && g->text[g->at] != '\n' && g->text[g->at] != '\r') g->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->at++;
        } else {
            return;
        }
    }
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Reads a rule's name and returns its index; UINT32_MAX: there is none, or no memory. */
static uint32_t rule_name(gbnf *g)
{
    const size_t begin = g->at;
    uint32_t hash = 2166136261U ^ (uint32_t)((uintptr_t)g >> 12); /* not known to the sender */
    for (; g->at < g->n && is_word(g->text[g->at]); g->at++) {
        hash = (hash ^ (unsigned char)g->text[g->at]) * 16777619U;
    }
    const size_t length = g->at - begin;
    if (length == 0) return UINT32_MAX;
    uint32_t *const head = &g->heads[hash * 0x9E3779B1U >> 18];
    for (uint32_t i = *head; i != 0; i = g->names[i - 1].chain) {
        const name *const known = &g->names[i - 1];
        if (known->length == length && memcmp(known->text, g->text + begin, length) == 0) {
            return i - 1;
        }
    }
    if (g->n_names >= g->compiler->limits->rules) {
        g->compiler->rules->nfa.status = WEIR_EFULL;
        g->no_memory = true;
        return UINT32_MAX;
    }
    if (g->n_names == g->capacity) {
        const uint32_t capacity = g->capacity == 0 ? 32 : g->capacity * 2;
        name *const larger = weir_memory_resize(g->names, capacity * sizeof *larger);
        if (larger == NULL) {
            g->no_memory = true;
            return UINT32_MAX;
        }
        g->names = larger;
        g->capacity = capacity;
    }
    g->names[g->n_names] = (name){ .text = g->text + begin, .length = length, .chain = *head };
    *head = ++g->n_names;
    return g->n_names - 1;
}

static weir_status hex(gbnf *g, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++, g->at++) {
        const char c = g->at < g->n ? g->text[g->at] : '\0';
        const int digit = weir_hex_digit(c);
        if (digit < 0) return malformed(g, "an escape with too few hexadecimal digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    return *out <= 0x10FFFF ? WEIR_OK : malformed(g, "a code point above 10FFFF");
}

/* Reads a character of a literal or class. */
static weir_status character(gbnf *g, uint32_t *out)
{
    if (g->at >= g->n) return malformed(g, "a literal or class without its end");
    if (!skip(g, "\\")) {
        const size_t size = weir_utf8_next(out, g->text + g->at, g->n - g->at);
        if (size == 0) return malformed(g, "ill-formed UTF-8");
        g->at += size;
        return WEIR_OK;
    }
    if (skip(g, "x")) return hex(g, 2, out);
    if (skip(g, "u")) return hex(g, 4, out);
    if (skip(g, "U")) return hex(g, 8, out);
    static const char letters[] = "nrt\\\"[]", codes[] = "\n\r\t\\\"[]";
    const char c = g->at < g->n ? g->text[g->at] : '\0';
    const char *const known = c == '\0' ? NULL : strchr(letters, c);
    if (known == NULL) return malformed(g, "unknown escape");
    g->at++;
    *out = (unsigned char)codes[known - letters];
    return WEIR_OK;
}

static weir_status class_node(gbnf *g, weir_regex **out, weir_ranges *ranges, bool negated)
{
    *out = weir_regex_node(&g->scratch, WEIR_REGEX_CLASS);
    if (*out == NULL || weir_ranges_finish(ranges, &g->scratch, negated) != WEIR_OK) {
        return no_memory(g);
    }
    (*out)->ranges = ranges->data;
    (*out)->n = ranges->n;
    return WEIR_OK;
}

static weir_status parse_literal(gbnf *g, weir_regex **out)
{
    *out = weir_regex_node(&g->scratch, WEIR_REGEX_JOIN);
    if (*out == NULL) return no_memory(g);
    weir_regex **last = &(*out)->child;
    while (!skip(g, "\"")) {
        weir_ranges ranges = { 0 };
        uint32_t c = 0;
        WEIR_TRY(character(g, &c));
        if (weir_ranges_add(&ranges, &g->scratch, c, c) != WEIR_OK) return no_memory(g);
        WEIR_TRY(class_node(g, last, &ranges, false));
        last = &(*last)->next;
    }
    return WEIR_OK;
}

static weir_status parse_class(gbnf *g, weir_regex **out)
{
    weir_ranges ranges = { 0 };
    const bool negated = skip(g, "^");
    while (!skip(g, "]")) {
        uint32_t low = 0, high;
        WEIR_TRY(character(g, &low));
        high = low;
        if (looking_at(g, "-") && g->n - g->at > 1 && g->text[g->at + 1] != ']') {
            g->at++;
            WEIR_TRY(character(g, &high));
        }
        if (high < low) return malformed(g, "a range whose end is before its begin");
        if (weir_ranges_add(&ranges, &g->scratch, low, high) != WEIR_OK) return no_memory(g);
    }
    return class_node(g, out, &ranges, negated);
}

static weir_status parse_either(gbnf *g, weir_regex **out, bool nested);

static weir_status parse_atom(gbnf *g, weir_regex **out)
{
    if (skip(g, "\"")) return parse_literal(g, out);
    if (skip(g, "[")) return parse_class(g, out);
    if (skip(g, ".")) {
        weir_ranges none = { 0 };
        return class_node(g, out, &none, true);
    }
    if (skip(g, "(")) {
        if (++g->depth > WEIR_REGEX_DEPTH)
            return malformed(g, "more than 200 groups in each other");
        WEIR_TRY(parse_either(g, out, true));
        g->depth--;
        return skip(g, ")") ? WEIR_OK : malformed(g, "( without )");
    }
    if (looking_at(g, "<") || looking_at(g, "!<")) {
        return malformed(g, "references to tokens are not supported");
    }
    const uint32_t rule = rule_name(g);
    if (g->no_memory) return no_memory(g);
    if (rule == UINT32_MAX) return malformed(g, "a literal, class, group or rule is expected");
    *out = weir_regex_node(&g->scratch, WEIR_REGEX_RULE);
    if (*out == NULL) return no_memory(g);
    (*out)->low = (int32_t)(g->base + rule);
    return WEIR_OK;
}

static int32_t number(gbnf *g)
{
    int32_t value = -1;
    for (; g->at < g->n && g->text[g->at] >= '0' && g->text[g->at] <= '9'; g->at++) {
        if (value < 0) value = 0;
        value = value > WEIR_REGEX_REPEATS ? value : value * 10 + (g->text[g->at] - '0');
    }
    return value;
}

static weir_status parse_count(gbnf *g, int32_t *low, int32_t *high)
{
    skip_space(g, true);
    *low = *high = number(g);
    skip_space(g, true);
    if (*low < 0) return malformed(g, "{ without a number");
    if (skip(g, ",")) {
        skip_space(g, true);
        *high = looking_at(g, "}") ? WEIR_REGEX_ENDLESS : number(g);
        skip_space(g, true);
    }
    if (!skip(g, "}")) return malformed(g, "{ without }");
    if (*low > WEIR_REGEX_REPEATS || *high > WEIR_REGEX_REPEATS) {
        return malformed(g, "more than 100000 repetitions");
    }
    if (*high != WEIR_REGEX_ENDLESS && *high < *low) return malformed(g, "{m,n} with n below m");
    return WEIR_OK;
}

static weir_status parse_repeat(gbnf *g, weir_regex **out, bool nested)
{
    WEIR_TRY(parse_atom(g, out));
    for (int levels = 0;; levels++) {
        int32_t low = 0, high = WEIR_REGEX_ENDLESS;
        skip_space(g, nested);
        if (skip(g, "+")) {
            low = 1;
        } else if (skip(g, "?")) {
            high = 1;
        } else if (skip(g, "{")) {
            WEIR_TRY(parse_count(g, &low, &high));
        } else if (!skip(g, "*")) {
            return WEIR_OK;
        }
        if (levels == 8) return malformed(g, "more than 8 repetitions of a repetition");
        weir_regex *const repeat = weir_regex_node(&g->scratch, WEIR_REGEX_REPEAT);
        if (repeat == NULL) return no_memory(g);
        repeat->low = low;
        repeat->high = high;
        repeat->child = *out;
        *out = repeat;
    }
}

/* Outside of groups a line end ends the alternatives, unless | comes next. */
static weir_status parse_join(gbnf *g, weir_regex **out, bool nested)
{
    *out = weir_regex_node(&g->scratch, WEIR_REGEX_JOIN);
    if (*out == NULL) return no_memory(g);
    weir_regex **last = &(*out)->child;
    for (;;) {
        skip_space(g, nested);
        if (g->at >= g->n || strchr("|)\r\n", g->text[g->at]) != NULL) return WEIR_OK;
        WEIR_TRY(parse_repeat(g, last, nested));
        last = &(*last)->next;
    }
}

static weir_status parse_either(gbnf *g, weir_regex **out, bool nested)
{
    weir_regex *const either = weir_regex_node(&g->scratch, WEIR_REGEX_EITHER);
    if (either == NULL) return no_memory(g);
    *out = either;
    for (weir_regex **last = &either->child;; last = &(*last)->next) {
        skip_space(g, true);
        WEIR_TRY(parse_join(g, last, nested));
        const size_t end = g->at;
        skip_space(g, true);
        if (skip(g, "|")) continue;
        if (!nested) g->at = end;
        return WEIR_OK;
    }
}

static weir_status parse_rules(gbnf *g)
{
    for (skip_space(g, true); g->at < g->n; skip_space(g, true)) {
        const uint32_t rule = rule_name(g);
        if (g->no_memory) return no_memory(g);
        if (rule == UINT32_MAX) return malformed(g, "the name of a rule is expected");
        skip_space(g, false);
        if (!skip(g, "::=")) return malformed(g, "::= is expected");
        skip_space(g, true);
        if (g->at >= g->n) return malformed(g, "the rule is empty: write \"\" for no text");
        weir_regex *body;
        WEIR_TRY(parse_either(g, &body, false));
        skip_space(g, false);
        if (g->at < g->n && g->text[g->at] != '\n' && g->text[g->at] != '\r') {
            return malformed(g, "the end of the line is expected");
        }
        g->names[rule].body = body;
    }
    return WEIR_OK;
}

static weir_status build(gbnf *g)
{
    weir_compiler *const c = g->compiler;
    weir_nfa *const nfa = &c->rules->nfa;
    c->root = UINT32_MAX;
    for (uint32_t i = 0; i < g->n_names; i++) {
        const name *const n = &g->names[i];
        if (n->length == 4 && memcmp(n->text, "root", 4) == 0) c->root = g->base + i;
        if (n->body == NULL) {
            return weir_compile_refuse(
                c, WEIR_EFORMAT, "grammar", "", "the rule \"%.*s\" is not defined",
                (int)(n->length < 100 ? n->length : 100), n->text
            );
        }
        if (weir_rules_add(c->rules) == UINT32_MAX) break;
    }
    if (nfa->status == WEIR_OK && c->root == UINT32_MAX) {
        return weir_compile_refuse(c, WEIR_EFORMAT, "grammar", "", "there is no rule \"root\"");
    }
    for (uint32_t i = 0; i < g->n_names && nfa->status == WEIR_OK; i++) {
        const uint32_t accept = weir_nfa_accept(nfa);
        c->rules->rules[g->base + i].start =
            weir_regex_build(nfa, g->names[i].body, WEIR_ENCODING_PLAIN, accept);
    }
    return weir_compile_status(c, "grammar", "");
}

weir_status weir_compile_gbnf(weir_compiler *compiler)
{
    gbnf *const g = weir_memory_take_zero(1, sizeof *g);
    if (g == NULL) {
        return weir_error_set(compiler->error, WEIR_ENOMEM, "no memory to compile the grammar");
    }
    g->compiler = compiler;
    g->text = compiler->text;
    g->n = compiler->n;
    g->base = compiler->rules->n_rules;
    weir_status status = parse_rules(g);
    if (status == WEIR_OK) status = build(g);
    weir_scratch_free(&g->scratch);
    weir_memory_give(g->names);
    weir_memory_give(g);
    return status;
}
