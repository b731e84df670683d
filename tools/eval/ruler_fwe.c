/* tools/eval/ruler_fwe.c - frequent words: made-up words whose counts fall with the square of their
 * rank; the first rank is a filler. */
#include <stdlib.h>
#include <string.h>

#include "tools/eval/ruler.h"

enum { LETTERS = 6, ASKED = 3 };

uint32_t weir_fwe_count(uint32_t n_draws, uint32_t rank)
{
    static const double zeta_2 = 1.6449340668482264365; /* pi^2 / 6 */
    return (uint32_t)((double)n_draws / ((double)rank * (double)rank) / zeta_2);
}

/* At most n_draws, such that the last rank asked for is more frequent than the next: otherwise the
 * answer would be ambiguous. */
static uint32_t clear_draws(uint32_t n_draws)
{
    while (n_draws > 0 && weir_fwe_count(n_draws, ASKED + 1) == weir_fwe_count(n_draws, ASKED + 2))
        n_draws--;
    return n_draws;
}

typedef char coded_word[LETTERS + 1];

static void draw_word(coded_word out, weir_eval_random *r)
{
    for (int i = 0; i < LETTERS; i++) out[i] = (char)('a' + weir_eval_random_below(r, 26));
    out[LETTERS] = '\0';
}

/* words [n], all different. */
static void draw_words(coded_word *words, uint32_t n, weir_eval_random *r)
{
    for (uint32_t i = 0; i < n; i++) {
        bool is_new;
        do {
            draw_word(words[i], r);
            is_new = true;
            for (uint32_t j = 0; j < i; j++) is_new = is_new && strcmp(words[i], words[j]) != 0;
        } while (!is_new);
    }
}

static weir_status put_text(
    weir_buffer *out, coded_word *words, uint32_t n_words, uint32_t n_draws, weir_eval_random *r
)
{
    uint32_t *const list = malloc((n_draws + 1) * sizeof *list);
    uint32_t n = 0;
    weir_status status = list != NULL ? WEIR_OK : WEIR_ENOMEM;
    for (uint32_t i = 0; status == WEIR_OK && i < n_words; i++)
        for (uint32_t j = weir_fwe_count(n_draws, i + 1); j > 0; j--) list[n++] = i;
    if (status == WEIR_OK) weir_eval_random_shuffle(r, list, n);
    for (uint32_t i = 0; status == WEIR_OK && i < n; i++)
        status = weir_buffer_format(
            out, "%s%s", i > 0 ? " " : "", list[i] == 0 ? "..." : words[list[i]]
        );
    free(list);
    return status;
}

weir_status weir_fwe_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
)
{
    enum { TOKENS_PER_WORD = 50, MOST_WORDS = 4096 };
    (void)task, (void)sample, (void)error;
    int32_t n_words = setting->length / TOKENS_PER_WORD;
    if (n_words < ASKED + 2) n_words = ASKED + 2;
    if (n_words > MOST_WORDS) n_words = MOST_WORDS;
    coded_word *const words = malloc((size_t)n_words * sizeof *words);
    if (words == NULL) return WEIR_ENOMEM;
    draw_words(words, (uint32_t)n_words, r);
    weir_status status = weir_buffer_text(
        &out->context,
        "The text below is in code. Count how often each word comes. Three dots are no word.\n\n"
    );
    if (status == WEIR_OK)
        status =
            put_text(&out->context, words, (uint32_t)n_words, clear_draws((uint32_t)n_units), r);
    if (status == WEIR_OK)
        status = weir_buffer_text(
            &out->question, "Which are the three most frequent words of the coded text above?"
        );
    if (status == WEIR_OK)
        status = weir_buffer_text(&out->prefix, "The three most frequent words are:");
    for (int i = 1; status == WEIR_OK && i <= ASKED; i++)
        status = weir_eval_item_answer(out, words[i]);
    free(words);
    return status;
}

void weir_fwe_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
)
{
    enum { LEAST = 27 }; /* the fourth rank occurs once, the fifth never */
    (void)task;
    const int32_t step = setting->length / 32;
    *out = (weir_eval_units){ .least = LEAST,
                              .step = step > 0 ? step : 1,
                              .most = setting->length > LEAST ? setting->length : LEAST };
}
