/* tools/eval/ruler_qa.c - a question about documents, the relevant ones among others. */
#include <stdlib.h>

#include "tools/eval/ruler.h"

/* Gold paragraphs, then those of the same articles, then others; at most n. */
static uint32_t choose(
    uint32_t *out, uint32_t n, const weir_eval_qa *qa, const weir_eval_qa_question *question,
    weir_eval_random *r
)
{
    uint32_t *const order = malloc(qa->n_paragraphs * sizeof *order);
    uint32_t count = 0;
    if (order == NULL) return 0;
    for (uint32_t i = 0; i < qa->n_paragraphs; i++) order[i] = i;
    weir_eval_random_shuffle(r, order, qa->n_paragraphs);
    for (uint32_t i = 0; i < question->n_gold; i++) out[count++] = question->gold[i];
    for (int same = 1; same >= 0; same--)
        for (uint32_t i = 0; i < qa->n_paragraphs && count < n; i++) {
            bool is_gold = false, is_same = false;
            for (uint32_t j = 0; j < question->n_gold; j++) {
                is_gold = is_gold || question->gold[j] == order[i];
                is_same = is_same || qa->paragraphs[question->gold[j]].article ==
                                         qa->paragraphs[order[i]].article;
            }
            if (!is_gold && is_same == (same == 1)) out[count++] = order[i];
        }
    free(order);
    return count;
}

weir_status weir_qa_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
)
{
    const weir_eval_qa *const qa = setting->qa;
    const weir_eval_qa_question *const question =
        &qa->questions[(uint32_t)sample % qa->n_questions];
    if (qa->is_hotpot != (task->variant == WEIR_QA_HOTPOT))
        return weir_error_set(
            error, WEIR_EINVAL, "%s takes questions in the form of %s", task->name,
            qa->is_hotpot ? "SQuAD" : "HotpotQA"
        );
    uint32_t n = (uint32_t)n_units > qa->n_paragraphs ? qa->n_paragraphs : (uint32_t)n_units;
    if (n < question->n_gold) n = question->n_gold;
    uint32_t *const chosen = malloc(n * sizeof *chosen);
    const uint32_t count = chosen != NULL ? choose(chosen, n, qa, question, r) : 0;
    weir_status status =
        count > 0 ? weir_buffer_text(
                        &out->context,
                        "Here are documents. Answer the question after them from what they "
                        "say, with the answer alone.\n\n"
                    )
                  : WEIR_ENOMEM;
    if (status == WEIR_OK) weir_eval_random_shuffle(r, chosen, count);
    for (uint32_t i = 0; status == WEIR_OK && i < count; i++)
        status = weir_buffer_format(
            &out->context, "%sDocument %u:\n%s", i > 0 ? "\n\n" : "", i + 1,
            qa->paragraphs[chosen[i]].text
        );
    if (status == WEIR_OK)
        status = weir_buffer_format(&out->question, "Question: %s", question->text);
    if (status == WEIR_OK) status = weir_buffer_text(&out->prefix, "Answer:");
    for (uint32_t i = 0; status == WEIR_OK && i < question->n_answers; i++)
        status = weir_eval_item_answer(out, question->answers[i]);
    free(chosen);
    return status;
}

void weir_qa_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
)
{
    (void)task;
    *out = (weir_eval_units){ .least = 1,
                              .step = setting->length < WEIR_EVAL_SHORT ? 1 : 10,
                              .most = setting->qa->n_paragraphs < INT32_MAX
                                          ? (int32_t)setting->qa->n_paragraphs
                                          : INT32_MAX };
}
