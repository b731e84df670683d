/* engine/constrain/schema.c - compiles a JSON schema. */
#include "engine/constrain/schema.h"

#include <string.h>

#include "engine/base/memory.h"

static uint32_t count(const weir_tree *tree)
{
    uint32_t n = 1;
    for (size_t i = 0; i < tree->n; i++) n += count(&tree->items[i]);
    return n;
}

static void list(weir_schema *s, const weir_tree *tree)
{
    s->by_id[tree->id] = tree;
    for (size_t i = 0; i < tree->n; i++) list(s, &tree->items[i]);
}

static bool prepare(weir_schema *s)
{
    s->n_nodes = count(s->root);
    s->by_id = weir_scratch_take(&s->scratch, s->n_nodes * sizeof(const weir_tree *));
    s->seen = weir_scratch_take(&s->scratch, s->n_nodes);
    s->base = weir_scratch_take(&s->scratch, s->n_nodes * sizeof(const char *));
    if (s->by_id == NULL || s->seen == NULL || s->base == NULL) {
        weir_schema_no_memory(s);
        return false;
    }
    memset(s->seen, 0, s->n_nodes);
    memset(s->base, 0, s->n_nodes * sizeof(const char *));
    list(s, s->root);
    weir_schema_find_ids(s);
    weir_schema_check(s, s->root);
    return s->status == WEIR_OK;
}

typedef struct building {
    uint32_t start;
} building;

static bool build_leaf(weir_schema *s, const weir_schema_leaf *leaf, void *context)
{
    building *const b = context;
    b->start = weir_nfa_split(s->nfa, b->start, weir_schema_build(s, leaf));
    return s->nfa->status == WEIR_OK;
}

static bool build_arguments(weir_schema *s, const weir_schema_leaf *leaf, void *context)
{
    building *const b = context;
    b->start = weir_nfa_split(s->nfa, b->start, weir_schema_arguments(s, leaf));
    return s->status == WEIR_OK && s->nfa->status == WEIR_OK;
}

/* Builds the rules that wait; each may add others. */
static void build_rules(weir_schema *s)
{
    while (s->n_built < s->n_made && s->status == WEIR_OK && s->nfa->status == WEIR_OK) {
        const weir_schema_rule made = s->made[s->n_built++];
        building b = { 0 };
        weir_schema_leaves(s, made.set, build_leaf, &b);
        s->rules->rules[made.rule].start = b.start;
        if (s->nfa->status == WEIR_OK || s->status != WEIR_OK) continue;
        char path[sizeof s->compiler->fault->path];
        weir_tree_path(s->by_id[made.set.members[0] / 2], path, sizeof path);
        s->status = weir_compile_status(s->compiler, "schema", path);
    }
}

static weir_status check_duties(weir_schema *s)
{
    for (uint32_t i = 0; i < s->n_duties && s->status == WEIR_OK; i++) {
        const weir_schema_duty *const duty = &s->duties[i];
        if (!s->rules->rules[duty->rule].productive) continue;
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, duty->node, duty->keyword,
            strcmp(duty->keyword, "oneOf") == 0
                ? "two branches of \"oneOf\" have values in common; use \"anyOf\""
                : "two of the \"%s\" match the same key",
            duty->keyword
        );
    }
    return s->status;
}

weir_status weir_schemas_check(weir_compiler *compiler)
{
    for (weir_schema *s = *compiler->schemas; s != NULL; s = s->next) {
        const weir_status status = s->is_lenient ? WEIR_OK : check_duties(s);
        if (status != WEIR_OK) return weir_compile_name(compiler, s->name, status);
    }
    return WEIR_OK;
}

/* The rule of the root: of its values, or of arguments. */
static uint32_t root_rule(weir_schema *s)
{
    const weir_schema_set set = weir_schema_one(s, s->root);
    building b = { 0 };
    if (s->style == NULL) return weir_schema_rule_of(s, set);
    const uint32_t rule = weir_rules_add(s->rules);
    weir_schema_leaves(s, set, build_arguments, &b);
    if (s->nfa->status == WEIR_OK) s->rules->rules[rule].start = b.start;
    return rule;
}

static weir_status build_all(weir_schema *s, uint32_t *rule)
{
    if (!prepare(s)) return s->status;
    *rule = root_rule(s);
    build_rules(s);
    if (s->status != WEIR_OK) return s->status;
    return weir_compile_status(s->compiler, "schema", "#");
}

weir_status weir_schema_open(
    weir_schema **out, weir_compiler *compiler, const char *text, size_t n,
    const weir_schema_style *style, uint32_t *rule
)
{
    weir_schema *const s = weir_memory_take_zero(1, sizeof *s);
    if (s == NULL) {
        return weir_error_set(compiler->error, WEIR_ENOMEM, "no memory to compile the schema");
    }
    *out = s;
    s->next = *compiler->schemas;
    *compiler->schemas = s;
    s->compiler = compiler;
    s->style = style;
    s->rules = compiler->rules;
    s->nfa = &compiler->rules->nfa;
    s->white = s->any = s->string = s->raw = UINT32_MAX;
    WEIR_TRY(weir_tree_read(&s->reader, &s->root, text, n, "schema", compiler->error));
    return build_all(s, rule);
}

void weir_schemas_close_newest(weir_compiler *compiler)
{
    weir_schema *const s = *compiler->schemas;
    if (s == NULL) return;
    *compiler->schemas = s->next;
    weir_memory_give(s->made);
    weir_memory_give(s->texts);
    weir_memory_give(s->duties);
    weir_scratch_free(&s->scratch);
    weir_tree_reader_free(&s->reader);
    weir_memory_give(s);
}

void weir_schemas_close(weir_compiler *compiler)
{
    while (*compiler->schemas != NULL) weir_schemas_close_newest(compiler);
}

weir_status weir_compile_schema(weir_compiler *compiler)
{
    weir_schema *schema;
    return weir_schema_open(&schema, compiler, compiler->text, compiler->n, NULL, &compiler->root);
}
