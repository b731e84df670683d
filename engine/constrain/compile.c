/* engine/constrain/compile.c - from a text to a grammar. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/grammar.h"

const weir_grammar_limits weir_grammar_default_limits = {
    .text_bytes = 4 << 20,
    .states = 1 << 20,
    .rules = 1 << 16,
    .cache_bytes = 32 << 20,
    .depth = 1024,
    .white_space = 160,
    .steps = 50 * 1000 * 1000,
};

const char *weir_grammar_kind_name(weir_grammar_kind kind)
{
    static const char *const names[WEIR_GRAMMAR_COUNT] = { "schema", "regex", "choice", "grammar",
                                                           "calls" };
    return kind < WEIR_GRAMMAR_COUNT ? names[kind] : "?";
}

weir_status weir_compile_refuse(
    weir_compiler *compiler, weir_status status, const char *keyword, const char *path,
    const char *format, ...
)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    snprintf(compiler->fault->keyword, sizeof compiler->fault->keyword, "%s", keyword);
    snprintf(compiler->fault->path, sizeof compiler->fault->path, "%s", path);
    if (path[0] == '\0') return weir_error_set(compiler->error, status, "%s: %s", keyword, text);
    return weir_error_set(
        compiler->error, status, "schema: %s (at %s)", text, compiler->fault->path
    );
}

weir_status weir_compile_name(weir_compiler *compiler, const char *name, weir_status status)
{
    if (compiler->error == NULL || name[0] == '\0' || status == WEIR_ENOMEM) return status;
    const weir_error before = *compiler->error;
    return weir_error_set(compiler->error, status, "%s: %.900s", name, before.text);
}

weir_status weir_compile_status(weir_compiler *compiler, const char *keyword, const char *path)
{
    switch (compiler->rules->nfa.status) {
    case WEIR_OK: return WEIR_OK;
    case WEIR_EFULL:
        return weir_compile_refuse(
            compiler, WEIR_EUNSUPPORTED, keyword, path,
            "\"%s\" needs more than %zu automaton states or %zu rules; make counts and repetitions "
            "smaller",
            keyword, compiler->limits->states, compiler->limits->rules
        );
    default:
        return weir_error_set(compiler->error, WEIR_ENOMEM, "no memory to compile the grammar");
    }
}

/* Finds out which products match anything, then finishes the rules. */
static weir_status finish_rules(weir_compiler *compiler)
{
    weir_rules *const rules = compiler->rules;
    const char *const kind = compiler->kind;
    weir_machine machine;
    weir_rules_mark_live(rules); /* products do not call rules */
    if (weir_machine_init(&machine, rules) != WEIR_OK) {
        return weir_error_set(compiler->error, WEIR_ENOMEM, "no memory to compile the grammar");
    }
    machine.step_limit = compiler->limits->steps; /* of all products */
    for (uint32_t i = 0; i < rules->n_rules && machine.status == WEIR_OK; i++) {
        if (rules->rules[i].n_parts == 0) continue;
        const uint32_t entry = weir_machine_enter(&machine, i);
        rules->rules[i].productive =
            entry > WEIR_MACHINE_DEAD && weir_machine_is_live(&machine, entry);
        if (entry > WEIR_MACHINE_DEAD) { /* it is not entered again */
            machine.states[entry]->pins--;
            machine.entries[i] = 0;
        }
        if (machine.bytes > compiler->limits->cache_bytes) weir_machine_drop(&machine);
    }
    rules->nfa.status = machine.status;
    weir_machine_free(&machine);
    WEIR_TRY(weir_compile_status(compiler, kind, ""));
    uint32_t rule = 0;
    const weir_status status = weir_rules_finish(rules, &rule);
    if (status == WEIR_EUNSUPPORTED) {
        return weir_compile_refuse(
            compiler, status, kind, "", "a rule calls itself before anything else (left recursion)"
        );
    }
    if (status == WEIR_EFULL) {
        rules->nfa.status = status;
        return weir_compile_status(compiler, kind, "");
    }
    if (status != WEIR_OK) {
        return weir_error_set(compiler->error, status, "no memory to compile the grammar");
    }
    return WEIR_OK;
}

weir_status weir_compile_kind(weir_compiler *compiler, weir_grammar_kind kind)
{
    weir_status (*const front[WEIR_GRAMMAR_COUNT])(weir_compiler *) = {
        [WEIR_GRAMMAR_SCHEMA] = weir_compile_schema, [WEIR_GRAMMAR_REGEX] = weir_compile_regex,
        [WEIR_GRAMMAR_CHOICE] = weir_compile_choice, [WEIR_GRAMMAR_GBNF] = weir_compile_gbnf,
        [WEIR_GRAMMAR_CALLS] = weir_compile_calls,
    };
    compiler->kind = weir_grammar_kind_name(kind);
    return front[kind](compiler);
}

static weir_status compile(weir_grammar *grammar, weir_compiler *compiler)
{
    weir_status status =
        weir_rules_init(&grammar->rules, grammar->limits.states, grammar->limits.rules);
    if (status != WEIR_OK) {
        return weir_error_set(compiler->error, status, "no memory to compile the grammar");
    }
    if (compiler->n > grammar->limits.text_bytes) {
        return weir_compile_refuse(
            compiler, WEIR_EUNSUPPORTED, weir_grammar_kind_name(grammar->kind), "",
            "%zu bytes are more than %zu", compiler->n, grammar->limits.text_bytes
        );
    }
    WEIR_TRY(weir_compile_kind(compiler, grammar->kind));
    grammar->root = compiler->root;
    WEIR_TRY(finish_rules(compiler));
    WEIR_TRY(weir_schemas_check(compiler));
    if (!grammar->rules.rules[grammar->root].productive) {
        return weir_compile_refuse(
            compiler, WEIR_EUNSUPPORTED, compiler->kind,
            grammar->kind == WEIR_GRAMMAR_SCHEMA ? "#" : "", "nothing satisfies it"
        );
    }
    status = weir_parser_init(
        &grammar->parser, &grammar->rules,
        grammar->limits.depth > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)grammar->limits.depth,
        grammar->limits.cache_bytes
    );
    if (status == WEIR_OK && grammar->trie != NULL) {
        status = weir_parser_levels(&grammar->parser, grammar->trie->longest);
    }
    if (status != WEIR_OK) {
        return weir_error_set(compiler->error, status, "no memory to compile the grammar");
    }
    compiler->fault->keyword[0] = '\0';
    return WEIR_OK;
}

static void free_grammar(weir_grammar *grammar)
{
    weir_parser_free(&grammar->parser);
    weir_rules_free(&grammar->rules);
    weir_token_trie_close(grammar->trie);
    pthread_mutex_destroy(&grammar->lock);
    weir_memory_give(grammar);
}

weir_status weir_grammar_compile(
    weir_grammar **out, weir_grammar_kind kind, const char *text, size_t n, weir_token_trie *trie,
    const weir_grammar_limits *limits, weir_memory_tracker *tracker, weir_grammar_fault *fault,
    weir_error *error
)
{
    WEIR_ASSERT(kind < WEIR_GRAMMAR_COUNT);
    weir_grammar_fault own;
    weir_memory_tracker *const before = weir_memory_tracker_set(tracker);
    weir_status status;
    weir_grammar *const grammar = weir_memory_take_zero(1, sizeof *grammar);
    if (grammar == NULL) {
        status = weir_error_set(error, WEIR_ENOMEM, "no memory to compile the grammar");
        goto done;
    }
    grammar->references = 1;
    grammar->kind = kind;
    grammar->limits = limits != NULL ? *limits : weir_grammar_default_limits;
    grammar->tracker = tracker;
    grammar->trie = trie;
    if (trie != NULL) weir_token_trie_retain(trie);
    pthread_mutex_init(&grammar->lock, NULL);
    struct weir_schema *schemas = NULL;
    weir_compiler compiler = { .rules = &grammar->rules,
                               .schemas = &schemas,
                               .limits = &grammar->limits,
                               .text = text,
                               .n = n,
                               .fault = fault != NULL ? fault : &own,
                               .error = error };
    *compiler.fault = (weir_grammar_fault){ 0 };
    status = compile(grammar, &compiler);
    weir_schemas_close(&compiler);
    if (status == WEIR_OK) {
        weir_grammar_measure(grammar);
        *out = grammar;
    } else {
        free_grammar(grammar);
    }
done:
    weir_memory_tracker_set(before);
    return status;
}

void weir_grammar_retain(weir_grammar *grammar)
{
    __atomic_fetch_add(&grammar->references, 1, __ATOMIC_RELAXED);
}

void weir_grammar_release(weir_grammar *grammar)
{
    if (grammar == NULL) return;
    if (__atomic_sub_fetch(&grammar->references, 1, __ATOMIC_ACQ_REL) == 0) free_grammar(grammar);
}

void weir_grammar_measure(weir_grammar *grammar)
{
    const weir_rules *const rules = &grammar->rules;
    const weir_parser *const parser = &grammar->parser;
    const size_t bytes = sizeof *grammar + rules->nfa.capacity * sizeof *rules->nfa.states +
                         rules->rules_capacity * sizeof *rules->rules +
                         rules->parts_capacity * sizeof *rules->parts + parser->machine.bytes +
                         parser->frame_bytes + rules->nfa.count * 4 * sizeof(uint32_t) +
                         parser->items_capacity * sizeof *parser->items +
                         parser->pending_capacity * sizeof *parser->pending +
                         parser->seen_capacity * sizeof *parser->seen;
    __atomic_store_n(&grammar->bytes, bytes, __ATOMIC_RELAXED);
}

size_t weir_grammar_bytes(const weir_grammar *grammar)
{
    return __atomic_load_n(&grammar->bytes, __ATOMIC_RELAXED);
}
