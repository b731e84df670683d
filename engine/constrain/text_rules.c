/* engine/constrain/text_rules.c - grammars of one rule: a regular expression, choices. */
#include "engine/constrain/grammar.h"
#include "engine/constrain/regex.h"
#include "engine/constrain/tree.h"

static weir_status add_root(weir_compiler *compiler, uint32_t start, const char *kind)
{
    compiler->root = weir_rules_add(compiler->rules);
    WEIR_TRY(weir_compile_status(compiler, kind, ""));
    compiler->rules->rules[compiler->root].start = start;
    return WEIR_OK;
}

weir_status weir_compile_regex(weir_compiler *compiler)
{
    weir_scratch scratch = { 0 };
    weir_regex *regex = NULL;
    const char *why = NULL;
    size_t at = 0;
    weir_nfa *const nfa = &compiler->rules->nfa;
    weir_status status = weir_regex_parse(&regex, &scratch, compiler->text, compiler->n, &why, &at);
    if (status == WEIR_ENOMEM) {
        status = weir_error_set(compiler->error, status, "no memory to compile the regex");
    } else if (status != WEIR_OK) {
        status = weir_compile_refuse(compiler, status, "regex", "", "%s (at byte %zu)", why, at);
    } else {
        const uint32_t accept = weir_nfa_accept(nfa);
        uint32_t start = weir_regex_build(nfa, regex, WEIR_ENCODING_PLAIN, accept);
        if (weir_regex_has_anchors(regex)) start = weir_nfa_anchor(nfa, start, accept);
        status = add_root(compiler, start, "regex");
    }
    weir_scratch_free(&scratch);
    return status;
}

weir_status weir_compile_choice(weir_compiler *compiler)
{
    weir_tree_reader reader = { 0 };
    weir_nfa *const nfa = &compiler->rules->nfa;
    const weir_tree *list;
    weir_status status =
        weir_tree_read(&reader, &list, compiler->text, compiler->n, "choice", compiler->error);
    if (status != WEIR_OK) goto done;
    if (list->kind != WEIR_TREE_ARRAY || list->n == 0) {
        status = weir_compile_refuse(
            compiler, WEIR_EFORMAT, "choice", "", "a list of at least one string is needed"
        );
        goto done;
    }
    const uint32_t accept = weir_nfa_accept(nfa);
    uint32_t start = 0;
    for (size_t i = 0; i < list->n; i++) {
        const weir_tree *const item = &list->items[i];
        if (item->kind != WEIR_TREE_STRING) {
            status = weir_compile_refuse(
                compiler, WEIR_EFORMAT, "choice", "", "item %zu is not a string", i
            );
            goto done;
        }
        start = weir_nfa_split(nfa, start, weir_nfa_text(nfa, item->text, item->length, accept));
    }
    status = add_root(compiler, start, "choice");
done:
    weir_tree_reader_free(&reader);
    return status;
}
