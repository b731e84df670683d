/* engine/constrain/schema.h - JSON schemas to rules.
 *
 * A set of schemas that must all hold is the unit: a rule is made for each one that is met. It is
 * flattened ($ref and allOf add members), and expanded to leaves, one for each choice of anyOf and
 * oneOf; a leaf is merged keyword by keyword. The schemas of a property or item are again a set. So
 * allOf is exact, recursion ends because there are finitely many sets, and two branches of a oneOf
 * exclude each other if nothing satisfies the set of both. */
#pragma once
#include "engine/constrain/grammar.h"
#include "engine/constrain/regex.h"
#include "engine/constrain/tree.h"

/* A member of a set: the id of a schema, times 2; plus 1: without its anyOf and oneOf. */
typedef struct weir_schema_set {
    uint32_t *members; /* in the scratch, ascending */
    uint32_t n;
} weir_schema_set;

typedef struct weir_schema_choice {
    const weir_tree *branches; /* the list of anyOf or oneOf */
} weir_schema_choice;

/* Schemas that must all hold. In a leaf no choice is left. */
typedef struct weir_schema_leaf {
    const weir_tree **nodes; /* owned, objects in order of their discovery */
    uint8_t *stripped; /* owned: without its anyOf and oneOf */
    uint32_t *before; /* owned: of the target of a $ref: the schema that refers to it */
    weir_schema_choice *choices; /* owned */
    uint32_t n, capacity, done; /* nodes before `done` are flattened */
    uint32_t n_choices, choices_capacity;
    bool never; /* a member is false */
} weir_schema_leaf;

typedef struct weir_schema_rule { /* a rule that is made, or waits to be */
    weir_schema_set set;
    uint32_t rule, chain;
} weir_schema_rule;

typedef struct weir_schema_text { /* the rule of a string or number by its constraints */
    const char *signature;
    uint32_t rule, chain;
} weir_schema_text;

typedef struct weir_schema_duty { /* a rule that must match nothing */
    uint32_t rule;
    const weir_tree *node;
    const char *keyword;
} weir_schema_duty;

enum { WEIR_SCHEMA_HEADS = 1024, WEIR_SCHEMA_LEAVES = 4096, WEIR_SCHEMA_DUTIES = 4096 };

/* Types of values, as bits. */
enum {
    WEIR_TYPE_NULL = 1,
    WEIR_TYPE_BOOLEAN = 2,
    WEIR_TYPE_NUMBER = 4,
    WEIR_TYPE_STRING = 8,
    WEIR_TYPE_ARRAY = 16,
    WEIR_TYPE_OBJECT = 32,
    WEIR_TYPE_ALL = 63,
    WEIR_TYPE_FRACTION = 64, /* with NUMBER: numbers that are not whole, too */
};

/* How arguments are written that are not a JSON object. Texts are those of calls.h. */
typedef struct weir_schema_style {
    bool python; /* a=1, b="x" */
    /* Otherwise, of each: `key` NAME `string` TEXT `end`, or `key` NAME `json` JSON `end`. A text
     * never holds `never`. */
    const weir_tree *key, *string, *json, *end, *never;
} weir_schema_style;

typedef struct weir_schema_member { /* a declared property */
    const char *key;
    size_t length;
    bool required;
} weir_schema_member;

typedef struct weir_schema {
    struct weir_schema *next; /* of the compiler's list */
    char name[72]; /* of the tool that it belongs to, for messages; "": none */
    bool is_lenient; /* its duties are not checked */
    weir_tree_reader reader; /* owns the tree */
    const weir_schema_style *style; /* NULL: JSON */
    weir_compiler *compiler;
    weir_rules *rules;
    weir_nfa *nfa;
    weir_scratch scratch;
    const weir_tree *root;
    const weir_tree **by_id; /* [n_nodes] */
    uint8_t *seen; /* [n_nodes]: bits of schema_check.c */
    const char **base; /* [n_nodes]: the resolved $id of a node, NULL: none */
    uint32_t n_nodes;
    uint64_t work; /* weir_schema_spend */
    bool has_ids;
    weir_schema_rule *made; /* owned */
    weir_schema_text *texts; /* owned */
    weir_schema_duty *duties; /* owned */
    uint32_t n_made, made_capacity, n_built, n_texts, texts_capacity, n_duties, duties_capacity;
    uint32_t made_heads[WEIR_SCHEMA_HEADS], text_heads[WEIR_SCHEMA_HEADS]; /* index + 1 */
    uint32_t white, any, string; /* rules; UINT32_MAX: not made */
    uint32_t raw; /* the rule of any text between tags, of a byte at least; likewise */
    weir_status status; /* the first failure, whose message is written */
} weir_schema;

/* schema.c: reads a schema, which is copied, and makes its rules; *rule: that of its values, or of
 * arguments in a style.
 * owner  : the compiler's list of schemas, also on failure
 * errors : as weir_grammar_compile */
WEIR_MUST_CHECK weir_status weir_schema_open(
    weir_schema **out, weir_compiler *compiler, const char *text, size_t n,
    const weir_schema_style *style, uint32_t *rule
);

/* All return a status or a rule or state; once schema->status is set, nothing more is done. */

/* schema_check.c: notes a failure at a node. */
void weir_schema_refuse(
    weir_schema *s, weir_status status, const weir_tree *node, const char *keyword,
    const char *format, ...
) __attribute__((format(printf, 5, 6)));
/* Counts steps of work of the whole compilation; false: too many, and the schema is refused. */
bool weir_schema_spend(weir_schema *schema, uint64_t steps);
void weir_schema_no_memory(weir_schema *s);
/* Checks the keywords of a schema that is met for the first time, and that it does not refer to
 * itself. */
void weir_schema_check(weir_schema *s, const weir_tree *node);

/* schema_ref.c: the target of "$ref" of a schema; NULL: refused. */
const weir_tree *weir_schema_target(weir_schema *s, const weir_tree *node);
void weir_schema_find_ids(weir_schema *s);

/* schema_set.c */
weir_schema_set weir_schema_one(weir_schema *s, const weir_tree *node);
void weir_schema_add(weir_schema *s, weir_schema_set *set, const weir_tree *node, bool stripped);
/* The rule of a set, which is built later. */
uint32_t weir_schema_rule_of(weir_schema *s, weir_schema_set set);
void weir_schema_add_duty(weir_schema *s, weir_schema_duty duty);
typedef bool weir_schema_visit(weir_schema *s, const weir_schema_leaf *leaf, void *context);
/* Calls `visit` for each leaf of a set until it returns false. */
void weir_schema_leaves(
    weir_schema *s, weir_schema_set set, weir_schema_visit *visit, void *context
);

/* schema_leaf.c */
/* The schemas of a leaf in the order of their properties: targets of $ref first. order [n] */
void weir_schema_order(const weir_schema_leaf *leaf, const weir_tree **order);
unsigned weir_schema_types(const weir_schema_leaf *leaf);
const weir_tree *weir_schema_enum(const weir_schema_leaf *leaf, size_t *n); /* NULL: none */
/* The automaton of a leaf, then an end. */
uint32_t weir_schema_build(weir_schema *s, const weir_schema_leaf *leaf);
/* Of these types, without looking at enum and const, then `end`. */
uint32_t weir_schema_build_types(
    weir_schema *s, const weir_schema_leaf *leaf, unsigned types, uint32_t end
);
bool weir_schema_is_free(const weir_schema_leaf *leaf); /* nothing is constrained */
uint32_t weir_schema_white(weir_schema *s, uint32_t next); /* white space or none, then `next` */
uint32_t weir_schema_any(weir_schema *s); /* the rule of any value */
uint32_t weir_schema_any_string(weir_schema *s); /* the rule of any string */

/* schema_number.c, schema_string.c: rules of their texts. */
uint32_t weir_schema_number(weir_schema *s, const weir_schema_leaf *leaf, bool whole);
uint32_t weir_schema_string(weir_schema *s, const weir_schema_leaf *leaf);
/* The rule known by this signature; UINT32_MAX: none yet. */
uint32_t weir_schema_known_text(weir_schema *s, const char *signature);
void weir_schema_know_text(weir_schema *s, const char *signature, uint32_t rule);
/* The parsed pattern, in s->scratch; NULL: refused. */
weir_regex *weir_schema_regex(weir_schema *s, const weir_tree *node, const char *pattern, size_t n);
/* The automaton of a JSON string whose value matches a pattern anywhere; 0: refused. */
uint32_t weir_schema_pattern(weir_schema *s, const weir_tree *node, const char *pattern, size_t n);
/* A list of the distinct values of keywords, smallest or largest numbers. */
bool weir_schema_limit(
    weir_schema *s, const weir_schema_leaf *leaf, const char *keyword, bool largest, uint64_t *value
);
const char *weir_schema_format_pattern(const weir_tree *format); /* NULL: unknown */

/* schema_array.c, schema_object.c */
uint32_t weir_schema_array(weir_schema *s, const weir_schema_leaf *leaf, uint32_t next);
uint32_t weir_schema_object(weir_schema *s, const weir_schema_leaf *leaf, uint32_t next);
/* The declared properties in their order, in the scratch. Returns how many. */
uint32_t weir_schema_members(
    weir_schema *s, const weir_schema_leaf *leaf, weir_schema_member **members
);
weir_schema_set weir_schema_item(weir_schema *s, const weir_schema_leaf *leaf, size_t index);
weir_schema_set weir_schema_property(
    weir_schema *s, const weir_schema_leaf *leaf, const char *key, size_t length, bool *declared
);

/* schema_arguments.c: arguments in a style, then an end; any arguments, then `next`. */
uint32_t weir_schema_arguments(weir_schema *s, const weir_schema_leaf *leaf);
uint32_t weir_schema_any_arguments(weir_schema *s, uint32_t next);

/* schema_value.c */
/* null, false or true. */
uint32_t weir_schema_word(weir_schema *s, weir_tree_kind kind, uint32_t next);
/* The automaton of one value, as `enum` has it. */
uint32_t weir_schema_literal(weir_schema *s, const weir_tree *value, uint32_t next);
/* Whether a value satisfies a leaf, without looking at enum and const. */
bool weir_schema_fits(weir_schema *s, const weir_tree *value, const weir_schema_leaf *leaf);
/* Whether an automaton without calls accepts a text. */
bool weir_schema_accepts(weir_schema *s, uint32_t start, const char *text, size_t n);
/* Whether a key, in quotation marks, is of an automaton without calls. */
bool weir_schema_key_matches(weir_schema *s, uint32_t start, const char *key, size_t n);
/* Whether a text is of a rule without calls. */
bool weir_schema_matches(weir_schema *s, uint32_t rule, const char *text, size_t n);
