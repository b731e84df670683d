/* tests/fuzz/constrain_fuzz.c - any bytes as a schema, regular expression, choice or grammar (the
 * first byte says which): it is refused with a message, or its masks and its steps agree. */
#include <stdbool.h>

#include "engine/constrain/constrain.h"
#include "tests/fuzz/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const longer[] = { "\":", "{}", "true", "d8", "\xC3\xA9", "aab", "\"}",   "[[",
                                      "]]",  ", ", "\n  ", "10", "0.",       "\\u", "ab\",", "" };
enum { LONGER = sizeof longer / sizeof *longer, TOKENS = 256 + LONGER, END = TOKENS - 1 };
enum { WORDS = (TOKENS + 63) / 64 };

/* All bytes, some longer tokens, and the end. */
static weir_token_trie *make_trie(void)
{
    static char bytes[256];
    weir_token_bytes tokens[TOKENS];
    const int32_t end = END;
    weir_token_trie *trie = NULL;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (weir_token_bytes){ .bytes = &bytes[i], .length = 1 };
    }
    for (int i = 0; i < LONGER; i++) {
        tokens[256 + i] = (weir_token_bytes){ .bytes = longer[i], .length = strlen(longer[i]) };
    }
    probe_require(weir_token_trie_open(&trie, tokens, TOKENS, &end, 1, NULL) == WEIR_OK);
    return trie;
}

static bool has(const uint64_t *mask, int32_t id) { return (mask[id / 64] >> (id % 64) & 1) != 0; }

/* Checks a mask against copies of the state; returns a token that it allows, chosen by `seed`. */
static int32_t check_mask(
    weir_grammar_state *state, weir_grammar_state *copy, const uint64_t *mask, uint32_t seed
)
{
    int32_t n = 0, chosen = -1;
    for (int32_t i = 0; i < TOKENS; i++) n += has(mask, i);
    probe_require(n > 0); /* never a dead end */
    const int32_t wanted = (int32_t)(seed % (uint32_t)n);
    n = 0;
    for (int32_t i = 0; i < TOKENS; i++) {
        bool accepted = false;
        if (has(mask, i) && n++ == wanted) chosen = i;
        probe_require(weir_grammar_state_copy(copy, state, NULL) == WEIR_OK);
        if (weir_grammar_accept_token(copy, i, &accepted, NULL) != WEIR_OK) return -1;
        probe_require(accepted == has(mask, i));
    }
    return chosen;
}

static void walk(weir_grammar *grammar, const uint8_t *data, size_t size)
{
    weir_grammar_state *state = NULL, *copy = NULL;
    probe_require(weir_grammar_state_open(&state, grammar, NULL) == WEIR_OK);
    probe_require(weir_grammar_state_clone(&copy, state, NULL) == WEIR_OK);
    for (size_t step = 0; step < 12; step++) {
        uint64_t mask[WORDS];
        weir_error error = { 0 };
        const weir_status status = weir_grammar_mask(state, mask, &error);
        probe_status(status, &error);
        if (status != WEIR_OK) break;
        const uint32_t seed = (uint32_t)(data[(step * 7 + 1) % size] + step * 31);
        const int32_t next = check_mask(state, copy, mask, seed);
        bool accepted = false;
        if (next < 0 || next == END) break;
        if (weir_grammar_accept_token(state, next, &accepted, NULL) != WEIR_OK) break;
        probe_require(accepted);
    }
    weir_grammar_state_close(copy);
    weir_grammar_state_close(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weir_token_trie *trie;
    static const weir_grammar_limits limits = { .text_bytes = 1 << 16,
                                                .states = 20000,
                                                .rules = 1000,
                                                .cache_bytes = 1 << 18,
                                                .depth = 4000,
                                                .steps = 200000 };
    if (size < 2) return 0;
    if (trie == NULL) trie = make_trie();
    weir_grammar *grammar = NULL;
    weir_grammar_fault fault;
    weir_error error = { 0 };
    const weir_grammar_kind kind = (weir_grammar_kind)(data[0] % WEIR_GRAMMAR_COUNT);
    const weir_status status = weir_grammar_compile(
        &grammar, kind, (const char *)data + 1, size - 1, trie, &limits, NULL, &fault, &error
    );
    probe_status(status, &error);
    if (status == WEIR_OK) walk(grammar, data, size);
    weir_grammar_release(grammar);
    return 0;
}
