/* engine/constrain/schema_arguments.c - arguments that are not a JSON object: values between tags,
 * of which strings are raw text, or keywords of Python. Only declared properties. */
#include <string.h>

#include "engine/constrain/calls.h"

/* ---- raw text -------------------------------------------------------------------------------- */

static const weir_range all_chars = { 0, 0x10FFFF };

static uint32_t any_chars(weir_nfa *nfa, uint32_t next)
{
    const uint32_t head = weir_nfa_loop(nfa);
    weir_nfa_loop_join(
        nfa, head, weir_nfa_class(nfa, &all_chars, 1, WEIR_ENCODING_PLAIN, head), next
    );
    return head;
}

/* low to high characters, low above 0; high may be WEIR_LENGTH_UNLIMITED. */
static uint32_t counted_chars(weir_nfa *nfa, uint64_t low, uint64_t high, uint32_t end)
{
    const bool limited = high != WEIR_LENGTH_UNLIMITED;
    uint32_t at = limited ? end : any_chars(nfa, end);
    for (uint64_t i = limited ? high : low; i-- > 0 && nfa->status == WEIR_OK;) {
        at = weir_nfa_class(nfa, &all_chars, 1, WEIR_ENCODING_PLAIN, at);
        if (i >= low) at = weir_nfa_split(nfa, at, end);
    }
    return at;
}

static void add_match(weir_schema *s, uint32_t start)
{
    weir_rules_part(s->rules, (weir_part){ .kind = WEIR_PART_MATCH, .start = start });
}

/* Adds the search for a pattern in the text. */
static void add_search(weir_schema *s, const weir_tree *node, const char *pattern, size_t n)
{
    weir_nfa *const nfa = s->nfa;
    weir_regex *const regex = weir_schema_regex(s, node, pattern, n);
    if (regex == NULL) return;
    const uint32_t end = weir_nfa_accept(nfa);
    const uint32_t match = weir_regex_build(nfa, regex, WEIR_ENCODING_PLAIN, any_chars(nfa, end));
    const uint32_t start = any_chars(nfa, match);
    add_match(s, weir_regex_has_anchors(regex) ? weir_nfa_anchor(nfa, start, end) : start);
}

static void add_searches(weir_schema *s, const weir_schema_leaf *leaf)
{
    for (uint32_t i = 0; i < leaf->n && s->status == WEIR_OK; i++) {
        const weir_tree *const node = leaf->nodes[i];
        const weir_tree *const pattern = weir_tree_get(node, "pattern");
        const weir_tree *const format = weir_tree_get(node, "format");
        const char *const known = format != NULL ? weir_schema_format_pattern(format) : NULL;
        if (pattern != NULL) add_search(s, node, pattern->text, pattern->length);
        if (known != NULL) add_search(s, node, known, strlen(known));
        if (format == NULL || known != NULL) continue;
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, node, "format", "the \"format\" \"%.*s\" is not supported",
            (int)(format->length < 100 ? format->length : 100), format->text
        );
    }
}

/* Strings that a leaf allows, as raw text, then `next`. */
static uint32_t raw_string(weir_schema *s, const weir_schema_leaf *leaf, uint32_t next)
{
    weir_nfa *const nfa = s->nfa;
    uint64_t low = 0, high = WEIR_LENGTH_UNLIMITED;
    weir_schema_limit(s, leaf, "minLength", true, &low);
    weir_schema_limit(s, leaf, "maxLength", false, &high);
    if (low > high || s->status != WEIR_OK) return 0;
    const uint32_t rule = weir_rules_add(s->rules);
    if (rule == UINT32_MAX) return 0;
    /* Products match one byte at least: the empty text is a way around them. */
    if (high > 0) add_match(s, counted_chars(nfa, low > 0 ? low : 1, high, weir_nfa_accept(nfa)));
    add_searches(s, leaf);
    weir_calls_never(s->rules, &s->style->never, 1);
    if (s->status != WEIR_OK || nfa->status != WEIR_OK) return 0;
    bool empty = low == 0;
    for (uint32_t p = high > 0 ? 1 : 0; empty && p < s->rules->rules[rule].n_parts; p++) {
        const weir_part part = s->rules->parts[s->rules->rules[rule].first_part + p];
        if (part.kind == WEIR_PART_MATCH) empty = weir_schema_accepts(s, part.start, "", 0);
    }
    const uint32_t text = high > 0 ? weir_nfa_call(nfa, rule, next) : 0;
    return empty ? weir_nfa_split(nfa, text, next) : text;
}

/* Any text or none, then `next`. */
static uint32_t any_raw(weir_schema *s, uint32_t next)
{
    if (s->raw == UINT32_MAX) s->raw = weir_calls_text(s->rules, &s->style->never, 1, true);
    if (s->raw == UINT32_MAX) return 0;
    return weir_nfa_split(s->nfa, weir_nfa_call(s->nfa, s->raw, next), next);
}

/* ---- values between tags --------------------------------------------------------------------- */

/* The value of a property, while its leaves are visited. */
typedef struct value {
    uint32_t next; /* what follows it */
    uint32_t text, json; /* so far: as raw text, as JSON; 0: none */
} value;

static bool holds(const weir_tree *text, const weir_tree *part)
{
    return memmem(text->text, text->length, part->text, part->length) != NULL;
}

static void add_listed(
    weir_schema *s, const weir_schema_leaf *leaf, const weir_tree *listed, value *v
)
{
    if (!weir_schema_fits(s, listed, leaf)) return;
    if (listed->kind != WEIR_TREE_STRING)
        v->json = weir_nfa_split(s->nfa, v->json, weir_schema_literal(s, listed, v->next));
    else if (!holds(listed, s->style->never))
        v->text = weir_nfa_split(
            s->nfa, v->text, weir_nfa_text(s->nfa, listed->text, listed->length, v->next)
        );
}

static bool add_leaf(weir_schema *s, const weir_schema_leaf *leaf, void *context)
{
    value *const v = context;
    size_t n = 0;
    const weir_tree *const values = weir_schema_enum(leaf, &n);
    const unsigned types = weir_schema_types(leaf), others = types & ~(unsigned)WEIR_TYPE_STRING;
    for (size_t i = 0; values != NULL && i < n && s->status == WEIR_OK; i++)
        add_listed(s, leaf, &values[i], v);
    if (values != NULL) return s->status == WEIR_OK && s->nfa->status == WEIR_OK;
    if (weir_schema_is_free(leaf)) {
        v->text = weir_nfa_split(s->nfa, v->text, any_raw(s, v->next));
    } else {
        if ((types & WEIR_TYPE_STRING) != 0)
            v->text = weir_nfa_split(s->nfa, v->text, raw_string(s, leaf, v->next));
        if ((others & WEIR_TYPE_ALL) != 0)
            v->json =
                weir_nfa_split(s->nfa, v->json, weir_schema_build_types(s, leaf, others, v->next));
    }
    return s->status == WEIR_OK && s->nfa->status == WEIR_OK;
}

/* A parameter with its tags, then `next`. */
static uint32_t tagged(
    weir_schema *s, const weir_schema_leaf *leaf, const weir_schema_member *member, uint32_t next
)
{
    const weir_schema_style *const style = s->style;
    weir_nfa *const nfa = s->nfa;
    bool declared;
    value v = { .next = weir_calls_literal(nfa, style->end, true, next) };
    const weir_schema_set set =
        weir_schema_property(s, leaf, member->key, member->length, &declared);
    weir_schema_leaves(s, set, add_leaf, &v);
    const uint32_t text = weir_calls_literal(nfa, style->string, true, v.text),
                   json = weir_calls_literal(nfa, style->json, true, v.json);
    const uint32_t rest = weir_nfa_split(nfa, text, json);
    return weir_calls_literal(
        nfa, style->key, true, weir_nfa_text(nfa, member->key, member->length, rest)
    );
}

/* What reads the call takes for a name. */
static bool is_key(const weir_schema_member *member, bool python)
{
    for (size_t i = 0; i < member->length; i++) {
        const unsigned char c = (unsigned char)member->key[i];
        const bool word = c >= 0x80 || c == '_' || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (python ? !word : c <= ' ' || c == 0x7F || strchr("<>\"", c) != NULL) return false;
    }
    return member->length > 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* States of a place between properties: without and with members before it. */
typedef struct place {
    uint32_t first, more;
} place;

static place add_member(
    weir_schema *s, const weir_schema_leaf *leaf, const weir_schema_member *member, place after
)
{
    weir_nfa *const nfa = s->nfa;
    bool declared;
    place at = { 0, 0 };
    if (!is_key(member, s->style->python)) {
        /* Left out. */
    } else if (!s->style->python) {
        at.first = at.more = tagged(s, leaf, member, after.more);
    } else {
        const uint32_t rule = weir_schema_rule_of(
            s, weir_schema_property(s, leaf, member->key, member->length, &declared)
        );
        const uint32_t is = weir_nfa_byte(nfa, '=', '=', weir_nfa_call(nfa, rule, after.more));
        at.first = weir_nfa_text(nfa, member->key, member->length, is);
        at.more = weir_nfa_text(nfa, ", ", 2, at.first);
    }
    if (member->required) return at;
    return (place){ weir_nfa_split(nfa, at.first, after.first),
                    weir_nfa_split(nfa, at.more, after.more) };
}

/* Keywords about keys that are not declared have no meaning here. */
static void check(weir_schema *s, const weir_schema_leaf *leaf)
{
    static const char *const refused[] = { "patternProperties", "minProperties", "maxProperties",
                                           "enum", "const" };
    for (uint32_t i = 0; i < leaf->n; i++)
        for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
            if (weir_tree_get(leaf->nodes[i], refused[k]) != NULL)
                weir_schema_refuse(
                    s, WEIR_EUNSUPPORTED, leaf->nodes[i], refused[k],
                    "\"%s\" of all arguments is not supported for the calls of this model",
                    refused[k]
                );
}

/* Only objects, whatever else the schema allows: nothing else is read as a call. */
static uint32_t json_arguments(weir_schema *s, const weir_schema_leaf *leaf)
{
    const uint32_t end = weir_nfa_accept(s->nfa);
    uint32_t out = 0;
    size_t n = 0;
    const weir_tree *const values = weir_schema_enum(leaf, &n);
    if (values == NULL && (weir_schema_types(leaf) & WEIR_TYPE_OBJECT) != 0)
        return weir_schema_build_types(s, leaf, WEIR_TYPE_OBJECT, end);
    for (size_t i = 0; values != NULL && i < n && s->status == WEIR_OK; i++)
        if (values[i].kind == WEIR_TREE_OBJECT && weir_schema_fits(s, &values[i], leaf))
            out = weir_nfa_split(s->nfa, out, weir_schema_literal(s, &values[i], end));
    return out;
}

uint32_t weir_schema_arguments(weir_schema *s, const weir_schema_leaf *leaf)
{
    weir_schema_member *members = NULL;
    if (!s->style->python && s->style->key == NULL) return json_arguments(s, leaf);
    check(s, leaf);
    if ((weir_schema_types(leaf) & WEIR_TYPE_OBJECT) == 0 || s->status != WEIR_OK) return 0;
    uint32_t n = weir_schema_members(s, leaf, &members);
    const uint32_t end = weir_nfa_accept(s->nfa);
    place at = { end, end };
    while (n-- > 0 && s->status == WEIR_OK && s->nfa->status == WEIR_OK)
        at = add_member(s, leaf, &members[n], at);
    return at.first;
}

/* A name of 1 to 64 letters, digits and underscores, then `next`. */
static uint32_t any_name(weir_nfa *nfa, uint32_t next)
{
    static const weir_range letters[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
    uint32_t at = 0;
    for (int i = 0; i < 64; i++)
        at = weir_nfa_class(
            nfa, i < 63 ? letters : letters + 1, i < 63 ? 4 : 3, WEIR_ENCODING_PLAIN,
            i == 0 ? next : weir_nfa_split(nfa, at, next)
        );
    return at;
}

uint32_t weir_schema_any_arguments(weir_schema *s, uint32_t next)
{
    const weir_schema_style *const style = s->style;
    weir_nfa *const nfa = s->nfa;
    const uint32_t head = weir_nfa_loop(nfa);
    if (style->python) {
        const uint32_t value = weir_nfa_call(nfa, weir_schema_any(s), head);
        const uint32_t member = any_name(nfa, weir_nfa_byte(nfa, '=', '=', value));
        weir_nfa_loop_join(nfa, head, weir_nfa_text(nfa, ", ", 2, member), next);
        return weir_nfa_split(nfa, member, next);
    }
    const uint32_t value = any_raw(s, weir_calls_literal(nfa, style->end, true, head));
    const uint32_t name = any_name(nfa, weir_calls_literal(nfa, style->string, true, value));
    weir_nfa_loop_join(nfa, head, weir_calls_literal(nfa, style->key, true, name), next);
    return head;
}
