#include "tools/eval/words.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const nouns[] = {
#include "tools/eval/nouns.inc"
};
static const char *const adjectives[] = {
#include "tools/eval/adjectives.inc"
};
static const char *const verbs[] = {
#include "tools/eval/verbs.inc"
};

enum {
    NOUNS = sizeof nouns / sizeof nouns[0],
    ADJECTIVES = sizeof adjectives / sizeof adjectives[0],
    VERBS = sizeof verbs / sizeof verbs[0]
};

size_t weir_eval_words(void) { return NOUNS + ADJECTIVES + VERBS; }

const char *weir_eval_word(size_t i)
{
    if (i < NOUNS) return nouns[i];
    return i < NOUNS + ADJECTIVES ? adjectives[i - NOUNS] : verbs[i - NOUNS - ADJECTIVES];
}

const char *weir_eval_noun(weir_eval_random *r) { return nouns[weir_eval_random_below(r, NOUNS)]; }
const char *weir_eval_adjective(weir_eval_random *r)
{
    return adjectives[weir_eval_random_below(r, ADJECTIVES)];
}

void weir_eval_uuid(char out[WEIR_EVAL_UUID], weir_eval_random *r)
{
    const uint64_t a = weir_eval_random_bits(r), b = weir_eval_random_bits(r);
    (void)snprintf(
        out, WEIR_EVAL_UUID, "%08" PRIx64 "-%04" PRIx64 "-4%03" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
        a >> 32, a >> 16 & 0xffff, a & 0xfff, 0x8000 | (b >> 48 & 0x3fff), b & 0xffffffffffff
    );
}
