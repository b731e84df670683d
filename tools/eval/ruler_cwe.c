/* tools/eval/ruler_cwe.c - common words: a numbered list in which ten words occur often, all others
 * a few times. */
#include <stdlib.h>
#include <string.h>

#include "tools/eval/ruler.h"
#include "tools/eval/words.h"

enum { COMMON = 10 };

typedef struct words {
    uint32_t *ids; /* [n], the common ones first */
    /* Indices into ids, in the order of the text. */
    uint32_t *list;
    uint32_t n, n_list;
} words;

static void free_words(words *w)
{
    free(w->ids);
    free(w->list);
}

static weir_status draw_words(
    words *w, uint32_t n, uint32_t often, uint32_t seldom, weir_eval_random *r
)
{
    const uint32_t n_all = (uint32_t)weir_eval_words();
    *w = (words){ .ids = malloc(n_all * sizeof *w->ids),
                  .n = n,
                  .n_list = COMMON * often + (n - COMMON) * seldom };
    w->list = malloc(w->n_list * sizeof *w->list);
    if (w->ids == NULL || w->list == NULL) return WEIR_ENOMEM;
    for (uint32_t i = 0; i < n_all; i++) w->ids[i] = i;
    weir_eval_random_shuffle(r, w->ids, n_all);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < (i < COMMON ? often : seldom); j++) w->list[at++] = w->ids[i];
    weir_eval_random_shuffle(r, w->list, w->n_list);
    return WEIR_OK;
}

static weir_status put_list(weir_buffer *out, const uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        WEIR_TRY(
            weir_buffer_format(out, "%s%u. %s", i > 0 ? " " : "", i + 1, weir_eval_word(list[i]))
        );
    return WEIR_OK;
}

static const char question[] = "Which are the 10 most common words in the list above?",
                  prefix[] = "The 10 most common words are:";

static weir_status put_all(weir_eval_item *out, const words *example, const words *asked)
{
    WEIR_TRY(weir_buffer_text(
        &out->context, "Below is a numbered list of words, some of which "
                       "come more often than the others. Find those.\n\n"
    ));
    WEIR_TRY(put_list(&out->context, example->list, example->n_list));
    WEIR_TRY(weir_buffer_format(&out->context, "\n%s\n%s ", question, prefix));
    WEIR_TRY(put_list(&out->context, example->ids, COMMON));
    WEIR_TRY(weir_buffer_text(&out->context, "\n\nNow another list.\n\n"));
    WEIR_TRY(put_list(&out->context, asked->list, asked->n_list));
    WEIR_TRY(weir_buffer_text(&out->question, question));
    WEIR_TRY(weir_buffer_text(&out->prefix, prefix));
    for (uint32_t i = 0; i < COMMON; i++)
        WEIR_TRY(weir_eval_item_answer(out, weir_eval_word(asked->ids[i])));
    return WEIR_OK;
}

weir_status weir_cwe_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
)
{
    const bool is_short = setting->length < WEIR_EVAL_SHORT;
    words example = { 0 }, asked = { 0 };
    (void)task, (void)sample, (void)error;
    weir_status status =
        draw_words(&example, is_short ? 20 : 40, is_short ? 3 : 10, is_short ? 1 : 3, r);
    if (status == WEIR_OK)
        status = draw_words(&asked, (uint32_t)n_units, is_short ? 6 : 30, is_short ? 1 : 3, r);
    if (status == WEIR_OK) status = put_all(out, &example, &asked);
    free_words(&example);
    free_words(&asked);
    return status;
}

/* The word list is finite: contexts of more than about 20,000 tokens are not filled. */
void weir_cwe_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
)
{
    (void)task, (void)setting;
    *out = (weir_eval_units){ .least = COMMON + 1, .step = 10, .most = (int32_t)weir_eval_words() };
}
