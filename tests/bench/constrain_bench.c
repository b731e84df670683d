/* tests/bench/constrain_bench.c - time of compiling grammars and of masks.
 *
 *   constrain_bench VOCABULARY CASES
 *
 * VOCABULARY: lines of tokens' bytes in hexadecimal, the ids in order; "" has no bytes, "end" ends
 * answers. CASES: lines of JSON {"id", "kind", "<kind>": ..., "walks": [[token ids]]}, which
 * tests/bench/constrain_peer.py writes. Each walk asks for a mask before each token and checks that
 * the token is in it. Prints one line of JSON; all times are of the processor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/buffer.h"
#include "engine/constrain/constrain.h"
#include "engine/constrain/tree.h"

static void require(bool right, const char *what)
{
    if (right) return;
    fprintf(stderr, "constrain_bench: %s\n", what);
    exit(1);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

typedef struct samples {
    double *us;
    size_t n, capacity;
} samples;

static void add(samples *s, double us)
{
    if (s->n == s->capacity) {
        s->capacity = s->capacity == 0 ? 1024 : 2 * s->capacity;
        double *const larger = realloc(s->us, s->capacity * sizeof *s->us);
        require(larger != NULL, "no memory");
        s->us = larger;
    }
    s->us[s->n++] = us;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, samples *s)
{
    double sum = 0;
    qsort(s->us, s->n, sizeof *s->us, compare);
    for (size_t i = 0; i < s->n; i++) sum += s->us[i];
    printf(
        "\"%s\": {\"n\": %zu, \"median_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f, "
        "\"max_us\": %.2f, \"mean_us\": %.2f}",
        name, s->n, s->us[s->n / 2], s->us[s->n * 9 / 10], s->us[s->n * 99 / 100], s->us[s->n - 1],
        sum / (double)s->n
    );
}

static weir_token_trie *read_vocabulary(const char *path)
{
    FILE *const file = fopen(path, "r");
    require(file != NULL, "cannot open the vocabulary");
    weir_token_bytes *tokens = NULL;
    int32_t ends[16];
    size_t n = 0, n_ends = 0, capacity = 0, room = 0;
    char *line = NULL;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0; n++) {
        if (n == capacity) {
            capacity = capacity == 0 ? 1024 : 2 * capacity;
            weir_token_bytes *const larger = realloc(tokens, capacity * sizeof *tokens);
            require(larger != NULL, "no memory");
            tokens = larger;
        }
        if (line[length - 1] == '\n') line[--length] = '\0';
        tokens[n] = (weir_token_bytes){ .bytes = "", .length = 0 };
        if (strcmp(line, "end") == 0) {
            require(n_ends < 16, "too many ends");
            ends[n_ends++] = (int32_t)n;
            continue;
        }
        char *const bytes = malloc((size_t)length / 2 + 1);
        require(bytes != NULL, "no memory");
        for (ssize_t i = 0; i + 1 < length; i += 2) {
            const char digits[3] = { line[i], line[i + 1], '\0' };
            bytes[i / 2] = (char)strtol(digits, NULL, 16);
        }
        tokens[n] = (weir_token_bytes){ .bytes = bytes, .length = (size_t)length / 2 };
    }
    fclose(file);
    free(line);
    weir_token_trie *trie = NULL;
    weir_error error = { 0 };
    require(weir_token_trie_open(&trie, tokens, n, ends, n_ends, &error) == WEIR_OK, error.text);
    for (size_t i = 0; i < n; i++) {
        if (tokens[i].length > 0) free((void *)tokens[i].bytes);
    }
    free(tokens);
    return trie;
}

typedef struct run {
    weir_token_trie *trie;
    samples compile, mask, first;
    uint64_t *bits;
    size_t wrong, refused;
} run;

static void walk(run *r, weir_grammar *grammar, const weir_tree *ids, const weir_tree *id)
{
    weir_grammar_state *state = NULL;
    weir_error error = { 0 };
    require(weir_grammar_state_open(&state, grammar, &error) == WEIR_OK, error.text);
    for (size_t i = 0; i < ids->n; i++) {
        const int32_t token = atoi(ids->items[i].text);
        bool accepted = false;
        const double begin = now_us();
        require(weir_grammar_mask(state, r->bits, &error) == WEIR_OK, error.text);
        add(i == 0 ? &r->first : &r->mask, now_us() - begin);
        const bool allowed = (r->bits[token / 64] >> (token % 64) & 1) != 0;
        require(weir_grammar_accept_token(state, token, &accepted, &error) == WEIR_OK, error.text);
        if (allowed && accepted) continue;
        fprintf(
            stderr, "%.*s: token %zu (%d): allowed %d, accepted %d\n", (int)id->length, id->text, i,
            token, allowed, accepted
        );
        r->wrong++;
        break;
    }
    weir_grammar_state_close(state);
}

static void run_case(run *r, const weir_tree *c)
{
    const weir_tree *const kind = weir_tree_get(c, "kind"), *const id = weir_tree_get(c, "id");
    const weir_tree *const walks = weir_tree_get(c, "walks");
    require(kind != NULL && id != NULL && walks != NULL, "a case has id, kind and walks");
    int k = 0;
    while (!weir_tree_is(kind, weir_grammar_kind_name((weir_grammar_kind)k))) k++;
    const weir_tree *const value = weir_tree_get(c, weir_grammar_kind_name((weir_grammar_kind)k));
    require(value != NULL, "a case has the field of its kind");
    const bool plain = value->kind == WEIR_TREE_STRING && k != WEIR_GRAMMAR_SCHEMA;
    weir_grammar *grammar = NULL;
    weir_error error = { 0 };
    const double begin = now_us();
    const weir_status status = weir_grammar_compile(
        &grammar, (weir_grammar_kind)k, plain ? value->text : value->raw,
        plain ? value->length : value->raw_length, r->trie, NULL, NULL, NULL, &error
    );
    add(&r->compile, now_us() - begin);
    if (status != WEIR_OK) {
        fprintf(stderr, "%.*s: %s\n", (int)id->length, id->text, error.text);
        r->refused++;
        return;
    }
    for (size_t i = 0; i < walks->n; i++) walk(r, grammar, &walks->items[i], id);
    weir_grammar_release(grammar);
}

int main(int argc, char **argv)
{
    require(argc == 3, "usage: constrain_bench VOCABULARY CASES");
    const double begin = now_us();
    weir_token_trie *const trie = read_vocabulary(argv[1]);
    const double trie_us = now_us() - begin;
    run r = { .trie = trie, .bits = calloc(weir_token_trie_words(trie), sizeof(uint64_t)) };
    FILE *const file = fopen(argv[2], "r");
    require(file != NULL && r.bits != NULL, "cannot open the cases");
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0;) {
        weir_tree_reader reader = { .most_depth = WEIR_TREE_DEEPEST };
        const weir_tree *c;
        weir_error error = { 0 };
        require(
            weir_tree_read(&reader, &c, line, (size_t)length, "case", &error) == WEIR_OK, error.text
        );
        run_case(&r, c);
        weir_tree_reader_free(&reader);
    }
    require(r.compile.n > 0 && r.mask.n > 0 && r.first.n > 0, "no cases");
    printf("{\"tokens\": %zu, \"trie_ms\": %.1f, ", weir_token_trie_size(trie), trie_us / 1e3);
    print("compile", &r.compile);
    printf(", ");
    print("first_mask", &r.first);
    printf(", ");
    print("mask", &r.mask);
    printf(", \"refused\": %zu, \"wrong\": %zu}\n", r.refused, r.wrong);
    free(line);
    fclose(file);
    free(r.bits);
    free(r.compile.us);
    free(r.mask.us);
    free(r.first.us);
    weir_token_trie_close(trie);
    return r.wrong == 0 ? 0 : 1;
}
