#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/answer.h"
#include "engine/cli/evaluate.h"
#include "engine/cli/prompt.h"
#include "engine/formats/json.h"

enum { MAX_ITEMS_FILE = 1 << 28, JSON_DEPTH = 16, MAX_ROWS = 1024 };

typedef struct item {
    weir_ids want; /* the answer's tokens */
    size_t   row;
} item;

typedef struct items {
    weir_prompt *prompts;
    item        *list;
    size_t       count, capacity;
} items;

static weir_status find_row(weir_retrieval *out, size_t *row, const char *task, int32_t length, weir_error *error)
{
    for (*row = 0; *row < out->n_rows; (*row)++) {
        if (out->rows[*row].length == length && strcmp(out->rows[*row].task, task) == 0) return WEIR_OK;
    }
    if (out->n_rows == MAX_ROWS) return weir_error_set(error, WEIR_EFORMAT, "more than %d tasks and lengths", (int)MAX_ROWS);
    (void)snprintf(out->rows[out->n_rows].task, sizeof out->rows[0].task, "%.63s", task);
    out->rows[out->n_rows++].length = length;
    return WEIR_OK;
}

static weir_status grow(items *all, weir_error *error)
{
    if (all->count < all->capacity) return WEIR_OK;
    const size_t       capacity = all->capacity > 0 ? all->capacity * 2 : 64;
    weir_prompt *const prompts = realloc(all->prompts, capacity * sizeof *prompts);
    if (prompts != NULL) all->prompts = prompts;
    item *const list = realloc(all->list, capacity * sizeof *list);
    if (list != NULL) all->list = list;
    if (prompts == NULL || list == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for %zu items", capacity);
    all->capacity = capacity;
    return WEIR_OK;
}

static weir_status add_item(items *all, const weir_engine *engine, const char *context, const char *question, const char *answer,
                            size_t row, weir_error *error)
{
    WEIR_TRY(grow(all, error));
    weir_prompt *const prompt = &all->prompts[all->count];
    item *const        one = &all->list[all->count++];
    *prompt = (weir_prompt){ 0 };
    *one = (item){ .row = row };
    weir_buffer   message = { 0 };
    weir_status   status = weir_buffer_format(&message, "%s\n\n%s", context, question);
    json_t *const chat = status == WEIR_OK ? json_pack("[{s:s, s:s}]", "role", "user", "content", message.data) : NULL;
    weir_buffer_free(&message);
    if (chat == NULL) return weir_error_set(error, WEIR_EFORMAT, "the context or question is not valid text");
    status = weir_prompt_from_messages(&prompt->ids, NULL, engine, chat, error);
    json_decref(chat);
    if (status == WEIR_OK)
        status =
            weir_tokenizer_encode(weir_engine_tokenizer(engine), &one->want, answer, strlen(answer), &(weir_encode_options){ 0 }, error);
    prompt->max_tokens = (int32_t)one->want.count + 1; /* one more shows whether it ends there */
    return status;
}

static weir_status add_line(items *all, weir_retrieval *out, const weir_engine *engine, const json_t *line, int32_t most, weir_error *error)
{
    const char         *context = NULL, *task = "retrieval";
    json_int_t          length = 0;
    const json_t *const questions = json_object_get(line, "questions");
    (void)json_unpack((json_t *)line, "{s:s, s?s, s?I}", "context", &context, "task", &task, "length", &length);
    if (context == NULL || !json_is_array(questions))
        return weir_error_set(error, WEIR_EFORMAT, "an item needs \"context\" and \"questions\"");
    size_t row;
    WEIR_TRY(find_row(out, &row, task, (int32_t)length, error));
    for (size_t i = 0; i < json_array_size(questions) && (most == 0 || all->count < (size_t)most); i++) {
        const char *const question = json_string_value(json_array_get(json_array_get(questions, i), 0));
        const char *const answer = json_string_value(json_array_get(json_array_get(questions, i), 1));
        if (question == NULL || answer == NULL) return weir_error_set(error, WEIR_EFORMAT, "question %zu is not [question, answer]", i);
        WEIR_TRY(add_item(all, engine, context, question, answer, row, error));
    }
    return WEIR_OK;
}

static weir_status read_items(items *all, weir_retrieval *out, const weir_engine *engine, const char *path, int32_t most, weir_error *error)
{
    weir_buffer text = { 0 };
    weir_status status = weir_file_read_input(&text, path, MAX_ITEMS_FILE, error);
    size_t      at = 0, number = 0;
    while (status == WEIR_OK && at < text.size && (most == 0 || all->count < (size_t)most)) {
        const char *const end = memchr(text.data + at, '\n', text.size - at);
        const size_t      length = end != NULL ? (size_t)(end - text.data) - at : text.size - at;
        json_t           *line = NULL;
        number++;
        if (length > 0) status = weir_json_parse(&line, text.data + at, length, path, JSON_DEPTH, error);
        if (status == WEIR_OK && line != NULL) {
            status = add_line(all, out, engine, line, most, error);
            if (status != WEIR_OK) status = weir_error_prefix(error, status, "%s, line %zu", path, number);
        }
        json_decref(line);
        at += length + 1;
    }
    weir_buffer_free(&text);
    if (status == WEIR_OK && all->count == 0) status = weir_error_set(error, WEIR_EFORMAT, "%s: no items", path);
    return status;
}

static bool is_right(const weir_cli_answer *answer, const item *one)
{
    return answer->finish == WEIR_FINISH_STOP && answer->tokens.count == one->want.count &&
           memcmp(answer->tokens.data, one->want.data, one->want.count * sizeof *one->want.data) == 0;
}

static void count_answers(weir_retrieval *out, const items *all, const weir_cli_answer *answers)
{
    for (size_t i = 0; i < all->count; i++) {
        weir_retrieval_row *const row = &out->rows[all->list[i].row];
        row->n_items++;
        out->n_kept += answers[i].usage.n_prompt + answers[i].usage.n_answer;
        out->n_items++;
        if (!is_right(&answers[i], &all->list[i])) continue;
        row->n_right++;
        out->n_right++;
    }
}

weir_status weir_eval_retrieval(weir_retrieval *out, const weir_engine *engine, const char *path, int32_t most, weir_error *error)
{
    items            all = { 0 };
    weir_cli_answer *answers = NULL;
    *out = (weir_retrieval){ .rows = calloc(MAX_ROWS, sizeof *out->rows) };
    weir_status status = out->rows != NULL ? WEIR_OK : weir_error_set(error, WEIR_ENOMEM, "no memory for the results");
    if (status == WEIR_OK) status = read_items(&all, out, engine, path, most, error);
    if (status == WEIR_OK) {
        answers = calloc(all.count, sizeof *answers);
        status = answers != NULL ? weir_cli_answer_all(answers, weir_engine_service(engine), all.prompts, all.count, error)
                                 : weir_error_set(error, WEIR_ENOMEM, "no memory for %zu answers", all.count);
    }
    if (status == WEIR_OK) count_answers(out, &all, answers);
    for (size_t i = 0; i < all.count; i++) {
        if (answers != NULL) weir_cli_answer_free(&answers[i]);
        weir_ids_free(&all.prompts[i].ids);
        weir_ids_free(&all.list[i].want);
    }
    free(answers);
    free(all.prompts);
    free(all.list);
    if (status != WEIR_OK) weir_retrieval_free(out);
    return status;
}

void weir_retrieval_free(weir_retrieval *retrieval)
{
    free(retrieval->rows);
    *retrieval = (weir_retrieval){ 0 };
}
