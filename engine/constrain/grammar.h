/* engine/constrain/grammar.h - a grammar and its states, for the files of this folder. */
#pragma once
#include <pthread.h>

#include "engine/constrain/constrain.h"
#include "engine/constrain/parser.h"

struct weir_grammar {
    pthread_mutex_t lock; /* of everything below but `references` and `bytes` */
    uint32_t references; /* atomic */
    size_t bytes; /* atomic: its size after the last call */
    weir_grammar_kind kind;
    weir_grammar_limits limits;
    weir_memory_tracker *tracker;
    weir_token_trie *trie; /* retained, may be NULL */
    weir_rules rules; /* does not change after compile */
    uint32_t root;
    weir_parser parser;
};

struct weir_grammar_state {
    weir_grammar *grammar; /* retained */
    weir_item *items; /* owned, kept (weir_parser_keep) */
    uint32_t n_items;
};

/* Counts its size. With the lock. */
void weir_grammar_measure(weir_grammar *grammar);

/* What a front end fills in: rules, and where it stands for messages. */
typedef struct weir_compiler {
    weir_rules *rules;
    const weir_grammar_limits *limits;
    const char *text;
    size_t n;
    uint32_t root; /* out */
    weir_grammar_fault *fault; /* never NULL */
    weir_error *error;
} weir_compiler;

/* Notes keyword and path, and writes the message. */
WEIR_MUST_CHECK weir_status weir_compile_refuse(
    weir_compiler *compiler, weir_status status, const char *keyword, const char *path,
    const char *format, ...
) __attribute__((format(printf, 5, 6)));
/* The message of rules->nfa.status, if it is not WEIR_OK. */
WEIR_MUST_CHECK weir_status
weir_compile_status(weir_compiler *compiler, const char *keyword, const char *path);

WEIR_MUST_CHECK weir_status weir_compile_regex(weir_compiler *compiler);
WEIR_MUST_CHECK weir_status weir_compile_choice(weir_compiler *compiler);
WEIR_MUST_CHECK weir_status weir_compile_gbnf(weir_compiler *compiler);
WEIR_MUST_CHECK weir_status weir_compile_schema(weir_compiler *compiler);
/* Finds out which products match anything, then finishes the rules. */
WEIR_MUST_CHECK weir_status weir_compile_finish(weir_compiler *compiler);
