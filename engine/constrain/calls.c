/* engine/constrain/calls.c - compiles the grammar of an answer with tool calls. */
#include "engine/constrain/calls.h"

#include <stdio.h>
#include <string.h>

enum { MOST_CALLS = 64, MOST_TOOLS = 1024, MOST_TEXTS = 4096, SPACE_AFTER_REASONING = 4 };

/* White space in one place of JSON: no model needs more, and small ones do not end it. */
enum { WHITE_SPACE = 1 };

static const char control_mark[] = "\xF4\x8F\xBF\xBF", number_mark[] = "\xF4\x8F\xBF\xBE";
enum { MARK_BYTES = 4 };

typedef struct calls {
    weir_compiler *compiler;
    weir_grammar_limits limits; /* for the schemas */
    weir_compiler inner; /* likewise */
    weir_rules *rules;
    weir_nfa *nfa;
    weir_tree_reader reader;
    const weir_tree *spec;
    weir_schema_style style;
    uint32_t call; /* the rule of a call */
} calls;

/* ---- texts ----------------------------------------------------------------------------------- */

/* One to three digits. */
static uint32_t number(weir_nfa *nfa, uint32_t next)
{
    uint32_t at = weir_nfa_byte(nfa, '0', '9', next);
    for (int i = 0; i < 2; i++) at = weir_nfa_byte(nfa, '0', '9', weir_nfa_split(nfa, at, next));
    return at;
}

static bool ends_with(const char *text, size_t n, const char *mark)
{
    return n >= MARK_BYTES && memcmp(text + n - MARK_BYTES, mark, MARK_BYTES) == 0;
}

uint32_t weir_calls_literal(weir_nfa *nfa, const weir_tree *text, bool marked, uint32_t next)
{
    size_t n = text != NULL ? text->length : 0;
    while (n > 0 && next != 0) {
        const bool is_control = ends_with(text->text, n, control_mark);
        if (is_control) {
            n -= MARK_BYTES;
            if (marked) next = weir_nfa_byte(nfa, 0xFF, 0xFF, next);
        } else if (ends_with(text->text, n, number_mark)) {
            n -= MARK_BYTES;
            next = number(nfa, next);
        } else {
            const unsigned byte = (unsigned char)text->text[--n];
            next = weir_nfa_byte(nfa, byte, byte, next);
        }
    }
    return next;
}

static uint32_t any_bytes(weir_nfa *nfa, uint32_t next)
{
    const uint32_t head = weir_nfa_loop(nfa);
    weir_nfa_loop_join(nfa, head, weir_nfa_byte(nfa, 0, 0xFF, head), next);
    return head;
}

static uint32_t any_chars(weir_nfa *nfa, uint32_t next)
{
    static const weir_range all = { 0, 0x10FFFF };
    const uint32_t head = weir_nfa_loop(nfa);
    weir_nfa_loop_join(nfa, head, weir_nfa_class(nfa, &all, 1, WEIR_ENCODING_PLAIN, head), next);
    return weir_nfa_class(nfa, &all, 1, WEIR_ENCODING_PLAIN, head);
}

static bool has_text(const weir_tree *text, bool marked)
{
    bool is_mark = text->length >= MARK_BYTES && text->length % MARK_BYTES == 0;
    for (size_t i = 0; is_mark && i < text->length; i += MARK_BYTES)
        is_mark = memcmp(text->text + i, control_mark, MARK_BYTES) == 0;
    return text->length > 0 && (marked || !is_mark);
}

void weir_calls_never(weir_rules *rules, const weir_tree *const *never, size_t n)
{
    weir_nfa *const nfa = &rules->nfa;
    const uint32_t after = any_bytes(nfa, weir_nfa_accept(nfa));
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++) {
        /* As control tokens, and spelled out: what reads the answer makes no difference. */
        for (int marked = 0; marked < 2; marked++)
            if (has_text(never[i], marked != 0))
                any =
                    weir_nfa_split(nfa, any, weir_calls_literal(nfa, never[i], marked != 0, after));
    }
    if (any == 0) return;
    const uint32_t head = weir_nfa_loop(nfa);
    weir_nfa_loop_join(nfa, head, weir_nfa_byte(nfa, 0, 0xFF, head), any);
    weir_rules_part(rules, (weir_part){ .kind = WEIR_PART_EXCLUDE, .start = head });
}

uint32_t weir_calls_text(weir_rules *rules, const weir_tree *const *never, size_t n, bool is_utf8)
{
    weir_nfa *const nfa = &rules->nfa;
    const uint32_t rule = weir_rules_add(rules);
    if (rule == UINT32_MAX) return rule;
    const uint32_t end = weir_nfa_accept(nfa);
    const uint32_t start =
        is_utf8 ? any_chars(nfa, end) : weir_nfa_byte(nfa, 0, 0xFF, any_bytes(nfa, end));
    weir_rules_part(rules, (weir_part){ .kind = WEIR_PART_MATCH, .start = start });
    weir_calls_never(rules, never, n);
    return nfa->status == WEIR_OK ? rule : UINT32_MAX;
}

/* ---- reading --------------------------------------------------------------------------------- */

static weir_status malformed(const calls *c, const char *key)
{
    (void)weir_compile_refuse(
        c->compiler, WEIR_EFORMAT, "calls", "", "\"%s\" is missing, or not what it must be", key
    );
    return WEIR_EFORMAT;
}

/* *out: NULL if there is none. */
static weir_status get_text(
    const calls *c, const weir_tree **out, const weir_tree *object, const char *key
)
{
    *out = weir_tree_get(object, key);
    if (*out == NULL || (*out)->kind == WEIR_TREE_STRING) return WEIR_OK;
    return malformed(c, key);
}

/* Pointers to the strings of a list, in the scratch of the reader; none if there is no list. */
static weir_status get_texts(
    calls *c, const weir_tree *const **out, size_t *n, const weir_tree *object, const char *key
)
{
    const weir_tree *const list = weir_tree_get(object, key);
    *out = NULL;
    *n = list != NULL ? list->n : 0;
    if (list != NULL && (list->kind != WEIR_TREE_ARRAY || *n > MOST_TEXTS))
        return malformed(c, key);
    const weir_tree **const texts =
        weir_scratch_take(&c->reader.scratch, (*n + 1) * sizeof(const weir_tree *));
    if (texts == NULL) {
        (void)weir_error_set(c->compiler->error, WEIR_ENOMEM, "no memory to compile the grammar");
        return WEIR_ENOMEM;
    }
    for (size_t i = 0; i < *n; i++) {
        texts[i] = &list->items[i];
        if (texts[i]->kind != WEIR_TREE_STRING) return malformed(c, key);
    }
    *out = texts;
    return WEIR_OK;
}

static weir_status read_style(calls *c)
{
    const weir_tree *const tags = weir_tree_get(c->spec, "tags"), *const python = weir_tree_get(
                                                                      c->spec, "python"
                                                                  );
    c->style.python = python != NULL && python->kind == WEIR_TREE_TRUE;
    c->nfa->python = c->style.python;
    if (tags == NULL) return WEIR_OK;
    WEIR_TRY(get_text(c, &c->style.key, tags, "key"));
    WEIR_TRY(get_text(c, &c->style.string, tags, "string"));
    WEIR_TRY(get_text(c, &c->style.json, tags, "json"));
    WEIR_TRY(get_text(c, &c->style.end, tags, "end"));
    WEIR_TRY(get_text(c, &c->style.never, tags, "never"));
    const bool whole = c->style.key != NULL && c->style.string != NULL && c->style.json != NULL &&
                       c->style.end != NULL && c->style.never != NULL;
    /* An empty one is in every text, and would make an endless loop of an empty call. */
    if (whole && c->style.never->length > 0 && c->style.key->length > 0) return WEIR_OK;
    return malformed(c, "tags");
}

static bool is_json(const calls *c) { return !c->style.python && c->style.key == NULL; }

/* ---- tools ----------------------------------------------------------------------------------- */

/* Rules as they were before a schema. */
typedef struct rules_mark {
    uint32_t n_rules, n_parts, n_states;
} rules_mark;

static void roll_back(weir_rules *rules, rules_mark mark)
{
    rules->n_rules = mark.n_rules;
    rules->n_parts = mark.n_parts;
    rules->nfa.count = mark.n_states;
    rules->nfa.status = WEIR_OK;
}

/* Any arguments. */
static weir_status open_any(calls *c, uint32_t *rule)
{
    static const char object[] = "{\"type\":\"object\"}";
    weir_schema *schema;
    WEIR_TRY(weir_schema_open(&schema, &c->inner, object, sizeof object - 1, &c->style, rule));
    if (is_json(c)) return WEIR_OK;
    *rule = weir_rules_add(c->rules);
    const uint32_t start = weir_schema_any_arguments(schema, weir_nfa_accept(c->nfa));
    if (c->nfa->status == WEIR_OK) c->rules->rules[*rule].start = start;
    return schema->status != WEIR_OK ? schema->status
                                     : weir_compile_status(c->compiler, "calls", "");
}

/* The rule of a tool's arguments. */
static weir_status read_arguments(calls *c, const weir_tree *tool, uint32_t *rule)
{
    static const char none[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    const weir_tree *const parameters = weir_tree_get(tool, "parameters"),
                           *const strict = weir_tree_get(tool, "strict"), *name;
    const rules_mark mark = { c->rules->n_rules, c->rules->n_parts, c->nfa->count };
    const bool is_strict = strict != NULL && strict->kind == WEIR_TREE_TRUE;
    weir_schema *schema = NULL;
    WEIR_TRY(get_text(c, &name, tool, "name"));
    const weir_status status = weir_schema_open(
        &schema, &c->inner, parameters != NULL ? parameters->raw : none,
        parameters != NULL ? parameters->raw_length : sizeof none - 1, &c->style, rule
    );
    if (schema != NULL) {
        const size_t n = name == NULL ? 0 : name->length;
        (void)snprintf(
            schema->name, sizeof schema->name, "%.*s", (int)(n < 64 ? n : 64),
            n > 0 ? name->text : ""
        );
        schema->is_lenient = !is_strict;
    }
    if (status == WEIR_OK || status == WEIR_ENOMEM) return status;
    if (is_strict) return weir_compile_name(c->compiler, schema->name, status);
    weir_schemas_close_newest(&c->inner);
    roll_back(c->rules, mark);
    return open_any(c, rule);
}

/* The rule of one call of any tool. */
static weir_status make_call(calls *c)
{
    const weir_tree *const tools = weir_tree_get(c->spec, "tools");
    if (tools == NULL || tools->kind != WEIR_TREE_ARRAY || tools->n == 0 || tools->n > MOST_TOOLS)
        return malformed(c, "tools");
    c->call = weir_rules_add(c->rules);
    uint32_t start = 0;
    for (size_t i = 0; i < tools->n; i++) {
        const weir_tree *const tool = &tools->items[i], *begin, *end;
        uint32_t rule = 0;
        WEIR_TRY(get_text(c, &begin, tool, "begin"));
        WEIR_TRY(get_text(c, &end, tool, "end"));
        if (begin == NULL || begin->length == 0) return malformed(c, "begin");
        WEIR_TRY(read_arguments(c, tool, &rule));
        const uint32_t after = weir_calls_literal(c->nfa, end, true, weir_nfa_accept(c->nfa));
        start = weir_nfa_split(
            c->nfa, start,
            weir_calls_literal(c->nfa, begin, true, weir_nfa_call(c->nfa, rule, after))
        );
    }
    if (c->nfa->status == WEIR_OK) c->rules->rules[c->call].start = start;
    return weir_compile_status(c->compiler, "calls", "");
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* Text or none, then `next`. */
static uint32_t maybe(calls *c, uint32_t text, uint32_t next)
{
    return weir_nfa_split(c->nfa, weir_nfa_call(c->nfa, text, next), next);
}

/* One block of calls; or if `text` is a rule, any number of them with text around. */
static weir_status make_blocks(calls *c, uint32_t text, uint32_t *start)
{
    const weir_tree *open, *separator, *close;
    const weir_tree *const limit = weir_tree_get(c->spec, "most");
    size_t most = MOST_CALLS;
    WEIR_TRY(get_text(c, &open, c->spec, "open"));
    WEIR_TRY(get_text(c, &separator, c->spec, "separator"));
    WEIR_TRY(get_text(c, &close, c->spec, "close"));
    if (limit != NULL && limit->length == 1 && limit->text[0] == '1') most = 1;
    const bool is_free = text != UINT32_MAX;
    weir_nfa *const nfa = c->nfa;
    const uint32_t end = weir_nfa_accept(nfa);
    uint32_t inside = 0, outside = 0; /* after i calls: in their block, and after it */
    for (size_t i = most + 1; i-- > 0;) {
        const uint32_t further = i < most ? weir_nfa_call(nfa, c->call, inside) : 0;
        const uint32_t block = weir_calls_literal(nfa, open, true, further);
        const uint32_t again = weir_calls_literal(nfa, separator, true, further);
        if (i == 0 || is_free) {
            outside = is_free ? maybe(c, text, weir_nfa_split(nfa, block, end)) : block;
        } else {
            outside = end;
        }
        inside = weir_nfa_split(nfa, again, weir_calls_literal(nfa, close, true, outside));
    }
    *start = outside;
    return weir_compile_status(c->compiler, "calls", "");
}

/* Reasoning, white space, then the answer. */
static weir_status add_reasoning(calls *c, const weir_tree *pair, uint32_t answer, uint32_t *start)
{
    const weir_tree *open, *close;
    const weir_tree *const *never;
    size_t n;
    weir_nfa *const nfa = c->nfa;
    WEIR_TRY(get_text(c, &open, pair, "open"));
    WEIR_TRY(get_text(c, &close, pair, "close"));
    WEIR_TRY(get_texts(c, &never, &n, pair, "never"));
    if (close == NULL || close->length == 0) return malformed(c, "close");
    const uint32_t thought = weir_calls_text(c->rules, never, n, false);
    uint32_t at = answer;
    for (int i = 0; i < SPACE_AFTER_REASONING; i++) {
        const uint32_t space = weir_nfa_split(
            nfa, weir_nfa_byte(nfa, '\n', '\n', at), weir_nfa_byte(nfa, ' ', ' ', at)
        );
        at = weir_nfa_split(nfa, space, answer);
    }
    at = maybe(c, thought, weir_calls_literal(nfa, close, true, at));
    *start = weir_nfa_split(nfa, *start, weir_calls_literal(nfa, open, true, at));
    return weir_compile_status(c->compiler, "calls", "");
}

/* The answer is of another grammar. */
static weir_status make_other(calls *c, uint32_t *start)
{
    const weir_tree *kind, *text, *open;
    int k = 0;
    WEIR_TRY(get_text(c, &kind, c->spec, "kind"));
    WEIR_TRY(get_text(c, &text, c->spec, "text"));
    WEIR_TRY(get_text(c, &open, c->spec, "open"));
    while (k < WEIR_GRAMMAR_CALLS &&
           !weir_tree_is(kind, weir_grammar_kind_name((weir_grammar_kind)k)))
        k++;
    if (k == WEIR_GRAMMAR_CALLS || text == NULL) return malformed(c, "kind");
    weir_compiler *const other = &c->inner;
    other->limits = c->compiler->limits;
    other->text = text->text;
    other->n = text->length;
    WEIR_TRY(weir_compile_kind(other, (weir_grammar_kind)k));
    c->compiler->kind = other->kind;
    const uint32_t end = weir_nfa_accept(c->nfa);
    *start = weir_calls_literal(c->nfa, open, true, weir_nfa_call(c->nfa, other->root, end));
    return weir_compile_status(c->compiler, "calls", "");
}

/* Calls, with text around them or without. */
static weir_status make_calls(calls *c, uint32_t *start)
{
    const weir_tree *const free_text = weir_tree_get(c->spec, "free");
    const weir_tree *const *stops;
    size_t n;
    uint32_t text = UINT32_MAX;
    WEIR_TRY(read_style(c));
    WEIR_TRY(make_call(c));
    WEIR_TRY(get_texts(c, &stops, &n, c->spec, "stops"));
    if (free_text != NULL && free_text->kind == WEIR_TREE_TRUE)
        text = weir_calls_text(c->rules, stops, n, false);
    WEIR_TRY(weir_compile_status(c->compiler, "calls", ""));
    return make_blocks(c, text, start);
}

static weir_status compile(calls *c)
{
    const weir_tree *const reasoning = weir_tree_get(c->spec, "reasoning");
    uint32_t answer = 0, start = 0;
    bool must_reason = false;
    if (c->spec->kind != WEIR_TREE_OBJECT) return malformed(c, "calls");
    const bool is_other = weir_tree_get(c->spec, "kind") != NULL;
    WEIR_TRY(is_other ? make_other(c, &answer) : make_calls(c, &answer));
    if (reasoning != NULL && (reasoning->kind != WEIR_TREE_ARRAY || reasoning->n > 16))
        return malformed(c, "reasoning");
    for (size_t i = 0; reasoning != NULL && i < reasoning->n; i++) {
        WEIR_TRY(add_reasoning(c, &reasoning->items[i], answer, &start));
        must_reason = must_reason || weir_tree_get(&reasoning->items[i], "open") == NULL;
    }
    if (!must_reason) start = weir_nfa_split(c->nfa, start, answer);
    c->compiler->root = weir_rules_add(c->rules);
    WEIR_TRY(weir_compile_status(c->compiler, "calls", ""));
    c->rules->rules[c->compiler->root].start = start;
    return WEIR_OK;
}

weir_status weir_compile_calls(weir_compiler *compiler)
{
    calls c = { .compiler = compiler, .rules = compiler->rules, .nfa = &compiler->rules->nfa };
    c.reader.most_depth = 2 * WEIR_TREE_DEPTH; /* the schemas are read again, with their limit */
    c.limits = *compiler->limits;
    if (c.limits.white_space > WHITE_SPACE) c.limits.white_space = WHITE_SPACE;
    c.inner = *compiler;
    c.inner.limits = &c.limits;
    weir_status status =
        weir_tree_read(&c.reader, &c.spec, compiler->text, compiler->n, "calls", compiler->error);
    if (status == WEIR_OK) status = compile(&c);
    /* What is theirs in this function ends here. */
    for (weir_schema *s = *compiler->schemas; s != NULL; s = s->next) s->compiler = compiler;
    weir_tree_reader_free(&c.reader);
    return status;
}
