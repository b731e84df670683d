#include "tools/eval/qa_source.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/formats/json.h"

typedef struct reading {
    weir_eval_qa *qa;
    const char *name;
    weir_error *error;
} reading;

/* Makes space for one more element of `size` bytes. */
static bool grow(void **list, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity) return true;
    const uint32_t more = *capacity > 0 ? *capacity * 2 : 64;
    void *const grown = more > *capacity ? realloc(*list, more * size) : NULL;
    if (grown == NULL) return false;
    *list = grown;
    *capacity = more;
    return true;
}

static weir_status no_memory(const reading *in)
{
    return weir_error_set(in->error, WEIR_ENOMEM, "%s: no memory for its questions", in->name);
}

static weir_status add_paragraph(const reading *in, const char *text, uint32_t article)
{
    weir_eval_qa *const qa = in->qa;
    char *const copy = strdup(text);
    if (copy == NULL || !grow(
                            (void **)&qa->paragraphs, qa->n_paragraphs, &qa->paragraph_capacity,
                            sizeof *qa->paragraphs
                        )) {
        free(copy);
        return no_memory(in);
    }
    qa->paragraphs[qa->n_paragraphs++] = (weir_eval_paragraph){ copy, article };
    return WEIR_OK;
}

static weir_status add_question(const reading *in, const weir_eval_qa_question *question)
{
    weir_eval_qa *const qa = in->qa;
    if (!grow(
            (void **)&qa->questions, qa->n_questions, &qa->question_capacity, sizeof *qa->questions
        ))
        return no_memory(in);
    qa->questions[qa->n_questions++] = *question;
    return WEIR_OK;
}

/* ---- SQuAD ----------------------------------------------------------------------------------- */

static weir_status read_squad_questions(const reading *in, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const entry = json_array_get(list, i), *const answers =
                                                                 json_object_get(entry, "answers");
        weir_eval_qa_question question = {
            .text = json_string_value(json_object_get(entry, "question")),
            .gold = { in->qa->n_paragraphs - 1 },
            .n_gold = 1
        };
        for (size_t j = 0;
             j < json_array_size(answers) && question.n_answers < WEIR_EVAL_QA_ANSWERS; j++) {
            const char *const text =
                json_string_value(json_object_get(json_array_get(answers, j), "text"));
            bool is_new = text != NULL && *text != '\0';
            for (uint32_t k = 0; is_new && k < question.n_answers; k++)
                is_new = strcmp(question.answers[k], text) != 0;
            if (is_new) question.answers[question.n_answers++] = text;
        }
        const bool is_answerable =
            question.n_answers > 0 && !json_is_true(json_object_get(entry, "is_impossible"));
        if (question.text != NULL && is_answerable) WEIR_TRY(add_question(in, &question));
    }
    return WEIR_OK;
}

static weir_status read_squad(const reading *in, const json_t *articles)
{
    for (size_t a = 0; a < json_array_size(articles); a++) {
        const json_t *const paragraphs = json_object_get(json_array_get(articles, a), "paragraphs");
        for (size_t p = 0; p < json_array_size(paragraphs); p++) {
            const json_t *const paragraph = json_array_get(paragraphs, p);
            const char *const text = json_string_value(json_object_get(paragraph, "context"));
            if (text == NULL)
                return weir_error_set(
                    in->error, WEIR_EFORMAT, "%s: paragraph %zu of article %zu has no \"context\"",
                    in->name, p, a
                );
            WEIR_TRY(add_paragraph(in, text, (uint32_t)a));
            WEIR_TRY(read_squad_questions(in, json_object_get(paragraph, "qas")));
        }
    }
    return WEIR_OK;
}

/* ---- HotpotQA -------------------------------------------------------------------------------- */

static bool supports(const json_t *facts, const char *title)
{
    for (size_t i = 0; i < json_array_size(facts); i++) {
        const char *const named = json_string_value(json_array_get(json_array_get(facts, i), 0));
        if (named != NULL && strcmp(named, title) == 0) return true;
    }
    return false;
}

/* Adds [title, [sentences]] as a paragraph below its title. */
static weir_status add_titled(const reading *in, const json_t *document, uint32_t article)
{
    const json_t *const sentences = json_array_get(document, 1);
    weir_buffer text = { 0 };
    weir_status status =
        weir_buffer_format(&text, "%s\n", json_string_value(json_array_get(document, 0)));
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(sentences); i++) {
        const char *const sentence = json_string_value(json_array_get(sentences, i));
        status = weir_buffer_text(&text, sentence != NULL ? sentence : "");
    }
    status = status == WEIR_OK ? add_paragraph(in, text.data, article) : no_memory(in);
    weir_buffer_free(&text);
    return status;
}

static weir_status read_hotpot(const reading *in, const json_t *list)
{
    in->qa->is_hotpot = true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const entry = json_array_get(list, i), *const documents =
                                                                 json_object_get(entry, "context");
        weir_eval_qa_question question = {
            .text = json_string_value(json_object_get(entry, "question")),
            .answers = { json_string_value(json_object_get(entry, "answer")) },
            .n_answers = 1
        };
        for (size_t d = 0; d < json_array_size(documents); d++) {
            const json_t *const document = json_array_get(documents, d);
            const char *const title = json_string_value(json_array_get(document, 0));
            if (title == NULL)
                return weir_error_set(
                    in->error, WEIR_EFORMAT,
                    "%s: document %zu of question %zu is not [title, [sentences]]", in->name, d, i
                );
            if (supports(json_object_get(entry, "supporting_facts"), title) &&
                question.n_gold < WEIR_EVAL_QA_GOLD)
                question.gold[question.n_gold++] = in->qa->n_paragraphs;
            WEIR_TRY(add_titled(in, document, (uint32_t)i));
        }
        if (question.text != NULL && question.answers[0] != NULL && question.n_gold > 0)
            WEIR_TRY(add_question(in, &question));
    }
    return WEIR_OK;
}

weir_status weir_eval_qa_open(
    weir_eval_qa *out, const char *bytes, size_t n, const char *name, weir_error *error
)
{
    enum { DEPTH = 16 };
    weir_eval_qa qa = { 0 };
    const reading in = { .qa = &qa, .name = name, .error = error };
    WEIR_TRY(weir_json_parse(&qa.root, bytes, n, name, DEPTH, error));
    const json_t *const articles = json_object_get(qa.root, "data");
    weir_status status = WEIR_OK;
    if (json_is_array(articles))
        status = read_squad(&in, articles);
    else if (json_is_array(qa.root))
        status = read_hotpot(&in, qa.root);
    if (status == WEIR_OK && qa.n_questions == 0)
        status = weir_error_set(
            error, WEIR_EFORMAT,
            "%s: no question with an answer; files of SQuAD or HotpotQA (distractor) are read", name
        );
    if (status == WEIR_OK)
        *out = qa;
    else
        weir_eval_qa_close(&qa);
    return status;
}

void weir_eval_qa_close(weir_eval_qa *qa)
{
    for (uint32_t i = 0; i < qa->n_paragraphs; i++) free(qa->paragraphs[i].text);
    free(qa->paragraphs);
    free(qa->questions);
    json_decref(qa->root);
    *qa = (weir_eval_qa){ 0 };
}
