/* engine/constrain/schema_string.c - rules of strings: length, pattern, format. */
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/base/memory.h"
#include "engine/constrain/decimal.h"
#include "engine/constrain/schema.h"

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261U;
    for (; *text != '\0'; text++) hash = (hash ^ (unsigned char)*text) * 16777619U;
    return hash % WEIR_SCHEMA_HEADS;
}

uint32_t weir_schema_known_text(weir_schema *s, const char *signature)
{
    for (uint32_t i = s->text_heads[hash_of(signature)]; i != 0; i = s->texts[i - 1].chain) {
        if (strcmp(s->texts[i - 1].signature, signature) == 0) return s->texts[i - 1].rule;
    }
    return UINT32_MAX;
}

void weir_schema_know_text(weir_schema *s, const char *signature, uint32_t rule)
{
    if (s->n_texts == s->texts_capacity) {
        const uint32_t capacity = s->texts_capacity == 0 ? 16 : s->texts_capacity * 2;
        void *const larger = weir_memory_resize(s->texts, capacity * sizeof *s->texts);
        if (larger == NULL) {
            weir_schema_no_memory(s);
            return;
        }
        s->texts = larger;
        s->texts_capacity = capacity;
    }
    uint32_t *const head = &s->text_heads[hash_of(signature)];
    s->texts[s->n_texts] =
        (weir_schema_text){ .signature = signature, .rule = rule, .chain = *head };
    *head = ++s->n_texts;
}

bool weir_schema_limit(
    weir_schema *s, const weir_schema_leaf *leaf, const char *keyword, bool largest, uint64_t *value
)
{
    bool found = false;
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const limit = weir_tree_get(leaf->nodes[i], keyword);
        weir_decimal decimal;
        uint64_t count = 0;
        if (limit == NULL) continue;
        if (!weir_decimal_read(&decimal, &s->scratch, limit->text, limit->length)) {
            weir_schema_no_memory(s);
            return false;
        }
        weir_decimal_count(&decimal, UINT32_MAX, &count);
        if (!found || (largest ? count > *value : count < *value)) *value = count;
        found = true;
    }
    return found;
}

weir_regex *weir_schema_regex(weir_schema *s, const weir_tree *node, const char *pattern, size_t n)
{
    weir_regex *regex = NULL;
    const char *why = NULL;
    size_t at = 0;
    const weir_status status = weir_regex_parse(&regex, &s->scratch, pattern, n, &why, &at);
    if (status == WEIR_OK) return regex;
    if (status == WEIR_ENOMEM) weir_schema_no_memory(s);
    weir_schema_refuse(
        s, status, node, "pattern", "\"pattern\" %.*s: %s (at byte %zu)", (int)(n < 100 ? n : 100),
        pattern, why, at
    );
    return NULL;
}

static uint32_t build_pattern(weir_schema *s, const weir_tree *node, const char *pattern, size_t n)
{
    weir_nfa *const nfa = s->nfa;
    weir_regex *const regex = weir_schema_regex(s, node, pattern, n);
    if (regex == NULL) return 0;
    /* Anchors are about the value, so its automaton is made before the quotation marks are added.
     * The search: any characters, the pattern, any characters. */
    static const weir_range all = { 0, 0x10FFFF };
    const uint32_t end = weir_nfa_byte(nfa, '"', '"', weir_nfa_accept(nfa));
    const uint32_t after = weir_nfa_loop(nfa);
    weir_nfa_loop_join(nfa, after, weir_nfa_class(nfa, &all, 1, WEIR_ENCODING_JSON, after), end);
    const uint32_t match = weir_regex_build(nfa, regex, WEIR_ENCODING_JSON, after);
    const uint32_t before = weir_nfa_loop(nfa);
    weir_nfa_loop_join(
        nfa, before, weir_nfa_class(nfa, &all, 1, WEIR_ENCODING_JSON, before), match
    );
    uint32_t start = before;
    if (weir_regex_has_anchors(regex)) start = weir_nfa_anchor(nfa, before, end);
    return weir_nfa_byte(nfa, '"', '"', start);
}

uint32_t weir_schema_pattern(weir_schema *s, const weir_tree *node, const char *pattern, size_t n)
{
    char *const name = weir_scratch_take(&s->scratch, n + 10);
    if (name == NULL) {
        weir_schema_no_memory(s);
        return 0;
    }
    memcpy(name, "pattern /", 9);
    for (size_t i = 0; i < n; i++) name[9 + i] = pattern[i];
    name[9 + n] = '\0';
    const bool has_nul = memchr(pattern, 0, n) != NULL;
    const uint32_t known = has_nul ? UINT32_MAX : weir_schema_known_text(s, name);
    if (known != UINT32_MAX) return known;
    const uint32_t start = build_pattern(s, node, pattern, n);
    if (!has_nul && s->status == WEIR_OK) weir_schema_know_text(s, name, start);
    return start;
}

/* Adds the parts of the patterns and formats of a leaf. */
static void add_patterns(weir_schema *s, const weir_schema_leaf *leaf)
{
    for (uint32_t i = 0; i < leaf->n && s->status == WEIR_OK; i++) {
        const weir_tree *const node = leaf->nodes[i];
        const weir_tree *const pattern = weir_tree_get(node, "pattern");
        const weir_tree *const format = weir_tree_get(node, "format");
        if (pattern != NULL) {
            const uint32_t start = weir_schema_pattern(s, node, pattern->text, pattern->length);
            weir_rules_part(s->rules, (weir_part){ .kind = WEIR_PART_MATCH, .start = start });
        }
        if (format == NULL) continue;
        const char *const known = weir_schema_format_pattern(format);
        if (known == NULL) {
            weir_schema_refuse(
                s, WEIR_EUNSUPPORTED, node, "format", "the \"format\" \"%.*s\" is not supported",
                (int)(format->length < 100 ? format->length : 100), format->text
            );
            return;
        }
        const uint32_t start = weir_schema_pattern(s, node, known, strlen(known));
        weir_rules_part(s->rules, (weir_part){ .kind = WEIR_PART_MATCH, .start = start });
        if (weir_tree_is(format, "hostname")) {
            weir_rules_part(s->rules, (weir_part){ .kind = WEIR_PART_LENGTH, .high = 253 });
        }
    }
}

/* The constraints as a text, which is the same for the same rule; "" if there are none. */
static const char *signature(
    weir_schema *s, const weir_schema_leaf *leaf, uint64_t low, uint64_t high
)
{
    weir_buffer buffer = { 0 };
    weir_status status = WEIR_OK;
    if (low > 0 || high < WEIR_LENGTH_UNLIMITED) {
        status = weir_buffer_format(
            &buffer, "string %llu-%llu", (unsigned long long)low, (unsigned long long)high
        );
    }
    for (uint32_t i = 0; i < leaf->n * 2 && status == WEIR_OK; i++) {
        const weir_tree *const value =
            weir_tree_get(leaf->nodes[i / 2], i % 2 == 0 ? "pattern" : "format");
        if (value == NULL) continue;
        status = weir_buffer_format(&buffer, " %c%zu:", i % 2 == 0 ? 'p' : 'f', value->length);
        for (size_t k = 0; k < value->length && status == WEIR_OK; k++) {
            /* NUL would end the text. */
            status = value->text[k] == '\0' ? weir_buffer_text(&buffer, "\xFF")
                                            : weir_buffer_add(&buffer, &value->text[k], 1);
        }
    }
    char *const out = status == WEIR_OK ? weir_scratch_take(&s->scratch, buffer.size + 1) : NULL;
    if (out != NULL && buffer.size > 0) memcpy(out, buffer.data, buffer.size);
    if (out != NULL) out[buffer.size] = '\0';
    weir_buffer_free(&buffer);
    if (out == NULL) weir_schema_no_memory(s);
    return out;
}

uint32_t weir_schema_string(weir_schema *s, const weir_schema_leaf *leaf)
{
    weir_nfa *const nfa = s->nfa;
    uint64_t low = 0, high = WEIR_LENGTH_UNLIMITED;
    weir_schema_limit(s, leaf, "minLength", true, &low);
    weir_schema_limit(s, leaf, "maxLength", false, &high);
    const char *const text = signature(s, leaf, low, high);
    if (text == NULL) return 0;
    if (text[0] == '\0') return weir_schema_any_string(s);
    uint32_t rule = weir_schema_known_text(s, text);
    if (rule != UINT32_MAX) return rule;
    if (low == WEIR_LENGTH_UNLIMITED) {
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, leaf->nodes[0], "minLength", "\"minLength\" is too large"
        );
    }
    rule = weir_rules_add(s->rules);
    if (rule == UINT32_MAX) return 0;
    if (low > high) { /* matches nothing */
        weir_schema_know_text(s, text, rule);
        return rule;
    }
    add_patterns(s, leaf);
    const bool limited = low > 0 || high < WEIR_LENGTH_UNLIMITED;
    const bool patterns = s->rules->rules[rule].n_parts > 0;
    if (!patterns) {
        const uint32_t end = weir_nfa_byte(nfa, '"', '"', weir_nfa_accept(nfa));
        const uint32_t head = weir_nfa_loop(nfa);
        weir_nfa_loop_join(nfa, head, weir_nfa_json_char(nfa, head), end);
        const uint32_t start = weir_nfa_byte(nfa, '"', '"', head);
        weir_rules_part(s->rules, (weir_part){ .kind = WEIR_PART_MATCH, .start = start });
        s->rules->rules[rule].text_end = end;
    }
    if (limited) {
        weir_rules_part(
            s->rules, (weir_part){ .kind = WEIR_PART_LENGTH, .low = low, .high = high }
        );
    }
    if (nfa->status != WEIR_OK || s->status != WEIR_OK) return 0;
    weir_rule *const made = &s->rules->rules[rule];
    made->always_live = !patterns;
    if (made->n_parts == 1) { /* one automaton needs no product */
        made->start = s->rules->parts[made->first_part].start;
        made->n_parts = 0;
    }
    weir_schema_know_text(s, text, rule);
    return rule;
}
