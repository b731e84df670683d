/* tools/eval/qa_source.h - questions about paragraphs, from files in the format of SQuAD or
 * HotpotQA (distractor setting). */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_EVAL_QA_GOLD = 8, WEIR_EVAL_QA_ANSWERS = 16 };

typedef struct weir_eval_paragraph {
    char *text; /* owned */
    uint32_t article; /* paragraphs of the same article are likely distractors */
} weir_eval_paragraph;

typedef struct weir_eval_qa_question {
    const char *text, *answers[WEIR_EVAL_QA_ANSWERS]; /* borrowed from `root` */
    uint32_t gold[WEIR_EVAL_QA_GOLD]; /* paragraphs needed for the answer */
    uint32_t n_answers, n_gold;
} weir_eval_qa_question;

typedef struct weir_eval_qa {
    json_t *root;
    weir_eval_paragraph *paragraphs;
    weir_eval_qa_question *questions; /* those with an answer */
    uint32_t n_paragraphs, n_questions, paragraph_capacity, question_capacity;
    bool is_hotpot;
} weir_eval_qa;

/* {"data": [{"paragraphs": [{"context", "qas": [{"question", "answers": [{"text"}],
 * "is_impossible"}]}]}]}, or [{"question", "answer", "context": [[title, [sentences]]],
 * "supporting_facts": [[title, n]]}].
 * errors : EFORMAT if it is neither, or has no question with an answer */
WEIR_MUST_CHECK weir_status weir_eval_qa_open(
    weir_eval_qa *out, const char *bytes, size_t n, const char *name, weir_error *error
);
void weir_eval_qa_close(weir_eval_qa *qa); /* also for a zeroed struct */

#ifdef __cplusplus
}
#endif
