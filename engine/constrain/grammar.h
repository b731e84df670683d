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
    const char *kind; /* of the grammar, for messages */
    struct weir_schema **schemas; /* the list of those that were read, the newest first */
    weir_grammar_fault *fault; /* never NULL */
    weir_error *error;
} weir_compiler;

/* Notes keyword and path, and writes the message. */
WEIR_MUST_CHECK weir_status weir_compile_refuse(
    weir_compiler *compiler, weir_status status, const char *keyword, const char *path,
    const char *format, ...
) __attribute__((format(printf, 5, 6)));
/* Puts a tool's name before the message of a failure; "": none. Returns the status. */
WEIR_MUST_CHECK weir_status
weir_compile_name(weir_compiler *compiler, const char *name, weir_status status);
/* The message of rules->nfa.status, if it is not WEIR_OK. */
WEIR_MUST_CHECK weir_status
weir_compile_status(weir_compiler *compiler, const char *keyword, const char *path);

/* Front ends: make the rules and set `root`. */
WEIR_MUST_CHECK weir_status weir_compile_regex(weir_compiler *compiler);
WEIR_MUST_CHECK weir_status weir_compile_choice(weir_compiler *compiler);
WEIR_MUST_CHECK weir_status weir_compile_gbnf(weir_compiler *compiler);
WEIR_MUST_CHECK weir_status weir_compile_schema(weir_compiler *compiler);
WEIR_MUST_CHECK weir_status weir_compile_calls(weir_compiler *compiler); /* calls.h */
/* The front end of a kind. */
WEIR_MUST_CHECK weir_status weir_compile_kind(weir_compiler *compiler, weir_grammar_kind kind);

/* schema.c: of the schemas that were read. After the rules are finished: refuses branches that are
 * not disjoint. */
WEIR_MUST_CHECK weir_status weir_schemas_check(weir_compiler *compiler);
void weir_schemas_close_newest(weir_compiler *compiler);
void weir_schemas_close(weir_compiler *compiler);
