#include "engine/serve/grammars.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"

/* As much as a line end and an indentation take: small models write it until an answer is cut. */
enum { WHITE_SPACE = 20 };
/* Automaton steps of one call, which all sequences wait for. */
enum { STEPS = 16 << 20 };

typedef struct entry {
    weir_grammar *grammar; /* NULL: free */
    weir_grammar_kind kind;
    char *text; /* [n] */
    size_t n;
    uint64_t used; /* when it was used last */
} entry;

struct weir_grammars {
    const weir_tokenizer *tokenizer;
    size_t n_valid;
    weir_memory_tracker *tracker;
    pthread_mutex_t lock; /* of what follows */
    weir_token_trie *trie; /* NULL: not read yet */
    entry entries[WEIR_GRAMMARS_KEPT];
    uint64_t clock;
};

weir_status weir_grammars_open(
    weir_grammars **out, const weir_tokenizer *tokenizer, size_t n_valid,
    weir_memory_tracker *tracker, weir_error *error
)
{
    weir_grammars *const g = calloc(1, sizeof *g);
    if (g == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a list of grammars");
    g->tokenizer = tokenizer;
    g->n_valid = n_valid;
    g->tracker = tracker;
    (void)pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return WEIR_OK;
}

static void drop(entry *e)
{
    weir_grammar_release(e->grammar);
    weir_memory_give(e->text);
    *e = (entry){ 0 };
}

void weir_grammars_close(weir_grammars *grammars)
{
    if (grammars == NULL) return;
    for (int i = 0; i < WEIR_GRAMMARS_KEPT; i++) drop(&grammars->entries[i]);
    weir_token_trie_close(grammars->trie);
    (void)pthread_mutex_destroy(&grammars->lock);
    free(grammars);
}

/* ---- the vocabulary -------------------------------------------------------------------------- */

/* A token's bytes; those of control tokens have the byte FF before them, which no text has, and
 * grammars name them so (engine/constrain/calls.h). *at: where these are put. */
static weir_token_bytes token_bytes(const weir_tokenizer *tokenizer, int32_t id, char **at)
{
    weir_token_bytes token;
    bool is_control = false;
    token.bytes = weir_tokenizer_token_bytes(tokenizer, id, &token.length, &is_control);
    if (token.length == 0) return token;
    /* The token of the byte FF alone would pass for the mark before a control token. */
    if (!is_control && memchr(token.bytes, 0xFF, token.length) != NULL)
        return (weir_token_bytes){ .bytes = token.bytes };
    if (!is_control) return token;
    if (*at == NULL) return (weir_token_bytes){ NULL, token.length + 1 };
    **at = (char)0xFF;
    memcpy(*at + 1, token.bytes, token.length);
    token = (weir_token_bytes){ *at, token.length + 1 };
    *at += token.length;
    return token;
}

/* Bytes that control tokens need in all. */
static size_t control_bytes(const weir_tokenizer *tokenizer, size_t n)
{
    size_t total = 1;
    for (size_t id = 0; id < n; id++) {
        char *none = NULL;
        const weir_token_bytes token = token_bytes(tokenizer, (int32_t)id, &none);
        if (token.bytes == NULL) total += token.length;
    }
    return total;
}

static weir_status read_vocabulary(weir_grammars *g, weir_error *error)
{
    size_t n_ends = 0;
    const size_t size = weir_tokenizer_size(g->tokenizer),
                 n = size < g->n_valid ? size : g->n_valid;
    const int32_t *const ends = weir_tokenizer_stop_ids(g->tokenizer, &n_ends);
    weir_token_bytes *const tokens = weir_memory_take_zero(n, sizeof *tokens);
    char *const control = weir_memory_take(control_bytes(g->tokenizer, n)), *at = control;
    weir_status status = WEIR_OK;
    if (tokens == NULL || control == NULL)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for the bytes of %zu tokens", n);
    for (size_t id = 0; id < n && status == WEIR_OK; id++)
        tokens[id] = token_bytes(g->tokenizer, (int32_t)id, &at);
    if (status == WEIR_OK) status = weir_token_trie_open(&g->trie, tokens, n, ends, n_ends, error);
    weir_memory_give(control);
    weir_memory_give(tokens);
    return status;
}

/* ---- grammars -------------------------------------------------------------------------------- */

/* Under the lock. */
static weir_grammar *find(weir_grammars *g, weir_grammar_kind kind, const char *text, size_t n)
{
    for (int i = 0; i < WEIR_GRAMMARS_KEPT; i++) {
        entry *const e = &g->entries[i];
        if (e->grammar == NULL || e->kind != kind || e->n != n || memcmp(e->text, text, n) != 0)
            continue;
        e->used = ++g->clock;
        weir_grammar_retain(e->grammar);
        return e->grammar;
    }
    return NULL;
}

/* Under the lock. Replaces the one that was used longest ago; without memory it is not kept. */
static void keep(
    weir_grammars *g, weir_grammar *grammar, weir_grammar_kind kind, const char *text, size_t n
)
{
    entry *oldest = &g->entries[0];
    for (int i = 1; i < WEIR_GRAMMARS_KEPT; i++)
        if (g->entries[i].used < oldest->used) oldest = &g->entries[i];
    char *const copy = weir_memory_take(n + 1);
    if (copy == NULL) return;
    memcpy(copy, text, n);
    drop(oldest);
    weir_grammar_retain(grammar);
    *oldest = (entry){ .grammar = grammar, .kind = kind, .text = copy, .n = n, .used = ++g->clock };
}

static weir_status compile(
    weir_grammars *g, weir_grammar **out, weir_grammar_kind kind, const char *text, size_t n,
    weir_error *error
)
{
    (void)pthread_mutex_lock(&g->lock);
    weir_status status = g->trie == NULL ? read_vocabulary(g, error) : WEIR_OK;
    (void)pthread_mutex_unlock(&g->lock);
    weir_grammar_limits limits = weir_grammar_default_limits;
    limits.white_space = WHITE_SPACE;
    limits.steps = STEPS;
    limits.closed_objects = true;
    if (status == WEIR_OK)
        status =
            weir_grammar_compile(out, kind, text, n, g->trie, &limits, g->tracker, NULL, error);
    if (status != WEIR_OK) return status;
    (void)pthread_mutex_lock(&g->lock);
    keep(g, *out, kind, text, n);
    (void)pthread_mutex_unlock(&g->lock);
    return WEIR_OK;
}

/* Under the lock. Grammars grow while they are used, and nothing but this server's next grammar
 * asks for their memory back. */
static void trim(weir_grammars *g)
{
    const size_t most = 64 << 20;
    for (;;) {
        size_t bytes = 0;
        entry *oldest = NULL;
        for (int i = 0; i < WEIR_GRAMMARS_KEPT; i++) {
            entry *const e = &g->entries[i];
            if (e->grammar == NULL) continue;
            bytes += weir_grammar_bytes(e->grammar) + e->n;
            if (oldest == NULL || e->used < oldest->used) oldest = e;
        }
        if (bytes <= most) return;
        drop(oldest);
    }
}

/* Under the lock. For memory: what no job holds goes. */
static bool drop_all(weir_grammars *g)
{
    bool any = false;
    for (int i = 0; i < WEIR_GRAMMARS_KEPT; i++) {
        any = any || g->entries[i].grammar != NULL;
        drop(&g->entries[i]);
    }
    return any;
}

weir_status weir_grammars_get(
    weir_grammars *g, weir_grammar **out, weir_grammar_kind kind, const char *text, size_t n,
    weir_error *error
)
{
    weir_memory_tracker *const before = weir_memory_tracker_set(g->tracker);
    (void)pthread_mutex_lock(&g->lock);
    *out = find(g, kind, text, n);
    trim(g);
    (void)pthread_mutex_unlock(&g->lock);
    weir_status status = *out != NULL ? WEIR_OK : compile(g, out, kind, text, n, error);
    if (status == WEIR_ENOMEM) {
        (void)pthread_mutex_lock(&g->lock);
        const bool any = drop_all(g);
        (void)pthread_mutex_unlock(&g->lock);
        if (any) status = compile(g, out, kind, text, n, error);
    }
    (void)weir_memory_tracker_set(before);
    return status;
}
