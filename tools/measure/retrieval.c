#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/answer.h"
#include "engine/cli/prompt.h"
#include "engine/formats/json.h"
#include "tools/eval/score.h"
#include "tools/measure/evaluate.h"

enum {
    MAX_ITEMS_FILE = 1 << 28,
    JSON_DEPTH = 16,
    MAX_ROWS = 4096,
    MAX_REPLY = 1 << 20,
    DEFAULT_REPLY = 128
};

/* Answers and prefix are borrowed from the line's JSON, which `lines` owns. */
typedef struct item {
    weir_ids want; /* EXACT: the tokens of the answer */
    weir_buffer answers; /* each followed by NUL */
    size_t n_answers, row;
    const char *prefix;
    weir_eval_scoring scoring;
} item;

typedef struct items {
    weir_prompt *prompts;
    item *list;
    size_t count, capacity;
    json_t *lines; /* array */
} items;

/* The fields of a line that are the same for all its questions. */
typedef struct header {
    const char *context, *task, *prefix, *score;
    json_int_t length, depth, max_tokens;
} header;

static weir_status find_row(weir_retrieval *out, size_t *row, const header *h, weir_error *error)
{
    const int32_t length = (int32_t)h->length, depth = (int32_t)h->depth;
    for (*row = 0; *row < out->n_rows; (*row)++) {
        const weir_retrieval_row *const r = &out->rows[*row];
        if (r->length == length && r->depth == depth &&
            strncmp(r->task, h->task, sizeof r->task - 1) == 0)
            return WEIR_OK;
    }
    if (out->n_rows == MAX_ROWS)
        return weir_error_set(
            error, WEIR_EFORMAT, "more than %d tasks, lengths and depths", (int)MAX_ROWS
        );
    weir_retrieval_row *const r = &out->rows[out->n_rows++];
    (void)snprintf(r->task, sizeof r->task, "%.63s", h->task);
    r->length = length;
    r->depth = depth;
    return WEIR_OK;
}

static weir_status grow(items *all, weir_error *error)
{
    if (all->count < all->capacity) return WEIR_OK;
    const size_t capacity = all->capacity > 0 ? all->capacity * 2 : 64;
    weir_prompt *const prompts = realloc(all->prompts, capacity * sizeof *prompts);
    if (prompts != NULL) all->prompts = prompts;
    item *const list = realloc(all->list, capacity * sizeof *list);
    if (list != NULL) all->list = list;
    if (prompts == NULL || list == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %zu items", capacity);
    all->capacity = capacity;
    return WEIR_OK;
}

weir_status weir_eval_prompt(
    weir_ids *ids, const weir_tokenizer *tokenizer, const weir_chat_template *chat,
    const char *context, const char *question, const char *prefix, weir_error *error
)
{
    weir_buffer message = { 0 };
    weir_status status = weir_buffer_format(&message, "%s\n\n%s", context, question);
    json_t *const messages =
        status == WEIR_OK ? json_pack("[{s:s, s:s}]", "role", "user", "content", message.data)
                          : NULL;
    weir_buffer_free(&message);
    if (messages == NULL)
        return weir_error_set(error, WEIR_EFORMAT, "the context or question is not valid text");
    status = weir_prompt_render(ids, NULL, tokenizer, chat, messages, error);
    json_decref(messages);
    if (status == WEIR_OK && *prefix != '\0')
        status = weir_tokenizer_encode(
            tokenizer, ids, prefix, strlen(prefix), &(weir_encode_options){ 0 }, error
        );
    return status;
}

static weir_status add_answer(item *one, const json_t *answer, size_t number, weir_error *error)
{
    const char *const text = json_string_value(answer);
    if (text == NULL || strlen(text) != json_string_length(answer))
        return weir_error_set(
            error, WEIR_EFORMAT, "question %zu is not [question, answer] or [question, [answers]]",
            number
        );
    if (weir_buffer_add(&one->answers, text, strlen(text) + 1) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for answers");
    one->n_answers++;
    return WEIR_OK;
}

/* Reads a string or a list of them; chooses the rule by their kind if the line names none. */
static weir_status read_answers(
    item *one, const header *h, const json_t *answer, size_t number, weir_error *error
)
{
    const bool is_list = json_is_array(answer);
    one->scoring = is_list ? WEIR_EVAL_ALL : WEIR_EVAL_EXACT;
    if (h->score != NULL && !weir_eval_scoring_find(&one->scoring, h->score))
        return weir_error_set(
            error, WEIR_EFORMAT,
            "\"score\": \"%.40s\" is not one of exact, all, part, line and state", h->score
        );
    if (!is_list) return add_answer(one, answer, number, error);
    if (json_array_size(answer) == 0)
        return weir_error_set(error, WEIR_EFORMAT, "question %zu has no answer", number);
    if (one->scoring != WEIR_EVAL_ALL && one->scoring != WEIR_EVAL_PART)
        return weir_error_set(
            error, WEIR_EFORMAT, "question %zu has a list of answers, but its score takes one",
            number
        );
    for (size_t i = 0; i < json_array_size(answer); i++)
        WEIR_TRY(add_answer(one, json_array_get(answer, i), number, error));
    return WEIR_OK;
}

static weir_status add_item(
    items *all, const weir_engine *engine, const header *h, const json_t *pair, size_t number,
    size_t row, weir_error *error
)
{
    const char *const question = json_string_value(json_array_get(pair, 0));
    if (question == NULL)
        return weir_error_set(
            error, WEIR_EFORMAT, "question %zu is not [question, answer]", number
        );
    WEIR_TRY(grow(all, error));
    weir_prompt *const prompt = &all->prompts[all->count];
    item *const one = &all->list[all->count++];
    *prompt =
        (weir_prompt){ .max_tokens = h->max_tokens > 0 ? (int32_t)h->max_tokens : DEFAULT_REPLY };
    *one = (item){ .row = row, .prefix = h->prefix };
    WEIR_TRY(read_answers(one, h, json_array_get(pair, 1), number, error));
    WEIR_TRY(weir_eval_prompt(
        &prompt->ids, weir_engine_tokenizer(engine), weir_engine_chat(engine), h->context, question,
        h->prefix, error
    ));
    if (one->scoring != WEIR_EVAL_EXACT) return WEIR_OK;
    WEIR_TRY(weir_tokenizer_encode(
        weir_engine_tokenizer(engine), &one->want, one->answers.data, strlen(one->answers.data),
        &(weir_encode_options){ 0 }, error
    ));
    prompt->max_tokens = (int32_t)one->want.count + 1; /* one more shows whether it ends there */
    return WEIR_OK;
}

/* Reads field `name`, if present, as a text without NULs. */
static weir_status read_text(
    const char **out, const json_t *line, const char *name, weir_error *error
)
{
    const json_t *const value = json_object_get(line, name);
    if (value == NULL) return WEIR_OK;
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return weir_error_set(error, WEIR_EFORMAT, "\"%s\" is not a text, or holds a NUL", name);
    *out = json_string_value(value);
    return WEIR_OK;
}

static weir_status read_number(
    json_int_t *out, const json_t *line, const char *name, json_int_t least, json_int_t most,
    weir_error *error
)
{
    const json_t *const value = json_object_get(line, name);
    if (value == NULL) return WEIR_OK;
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= least && *out <= most) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFORMAT, "\"%s\" is not a number from %lld to %lld", name, (long long)least,
        (long long)most
    );
}

static weir_status read_header(header *h, const json_t *line, weir_error *error)
{
    *h = (header){ .task = "retrieval", .prefix = "", .depth = -1 };
    WEIR_TRY(read_text(&h->context, line, "context", error));
    WEIR_TRY(read_text(&h->task, line, "task", error));
    WEIR_TRY(read_text(&h->prefix, line, "prefix", error));
    WEIR_TRY(read_text(&h->score, line, "score", error));
    WEIR_TRY(read_number(&h->length, line, "length", 0, INT32_MAX, error));
    WEIR_TRY(read_number(&h->depth, line, "depth", 0, 100, error));
    WEIR_TRY(read_number(&h->max_tokens, line, "max_tokens", 1, MAX_REPLY, error));
    if (h->context == NULL || !json_is_array(json_object_get(line, "questions")))
        return weir_error_set(error, WEIR_EFORMAT, "an item needs \"context\" and \"questions\"");
    return WEIR_OK;
}

static weir_status add_line(
    items *all, weir_retrieval *out, const weir_engine *engine, json_t *line, int32_t most,
    weir_error *error
)
{
    header h;
    size_t row;
    WEIR_TRY(read_header(&h, line, error));
    WEIR_TRY(find_row(out, &row, &h, error));
    if (json_array_append(all->lines, line) != 0)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the items");
    const json_t *const questions = json_object_get(line, "questions");
    for (size_t i = 0; i < json_array_size(questions) && (most == 0 || all->count < (size_t)most);
         i++)
        WEIR_TRY(add_item(all, engine, &h, json_array_get(questions, i), i, row, error));
    return WEIR_OK;
}

static weir_status read_items(
    items *all, weir_retrieval *out, const weir_engine *engine, const char *path, int32_t most,
    weir_error *error
)
{
    weir_buffer text = { 0 };
    weir_status status = weir_file_read_input(&text, path, MAX_ITEMS_FILE, error);
    size_t at = 0, number = 0;
    while (status == WEIR_OK && at < text.size && (most == 0 || all->count < (size_t)most)) {
        const char *const end = memchr(text.data + at, '\n', text.size - at);
        const size_t length = end != NULL ? (size_t)(end - text.data) - at : text.size - at;
        json_t *line = NULL;
        number++;
        if (length > 0)
            status = weir_json_parse(&line, text.data + at, length, path, JSON_DEPTH, error);
        if (status == WEIR_OK && line != NULL) {
            status = add_line(all, out, engine, line, most, error);
            if (status != WEIR_OK)
                status = weir_error_prefix(error, status, "%s, line %zu", path, number);
        }
        json_decref(line);
        at += length + 1;
    }
    weir_buffer_free(&text);
    if (status == WEIR_OK && all->count == 0)
        status = weir_error_set(error, WEIR_EFORMAT, "%s: no items", path);
    return status;
}

static bool is_right(const weir_cli_answer *answer, const item *one)
{
    return answer->finish == WEIR_FINISH_STOP && answer->tokens.count == one->want.count &&
           memcmp(answer->tokens.data, one->want.data, one->want.count * sizeof *one->want.data) ==
               0;
}

static weir_status score_answer(
    double *out, const weir_cli_answer *answer, const item *one, const weir_tokenizer *tokenizer,
    weir_error *error
)
{
    if (one->scoring == WEIR_EVAL_EXACT) {
        *out = is_right(answer, one) ? 1.0 : 0.0;
        return WEIR_OK;
    }
    weir_buffer reply = { 0 };
    weir_status status = WEIR_OK;
    if (one->scoring == WEIR_EVAL_STATE)
        status = weir_buffer_text(&reply, one->prefix); /* it may contain "Answer:" */
    if (status == WEIR_OK)
        status = weir_tokenizer_decode(
            tokenizer, &reply, answer->tokens.data, answer->tokens.count, true
        );
    if (status == WEIR_OK)
        *out = weir_score_reply(
            one->scoring, reply.data != NULL ? reply.data : "", one->answers.data, one->n_answers
        );
    else
        status = weir_error_set(error, status, "no memory for a reply");
    weir_buffer_free(&reply);
    return status;
}

static weir_status count_answers(
    weir_retrieval *out, const items *all, const weir_cli_answer *answers,
    const weir_tokenizer *tokenizer, weir_error *error
)
{
    int64_t kept = 0, evicted = 0, bytes = 0;
    for (size_t i = 0; i < all->count; i++) {
        weir_retrieval_row *const row = &out->rows[all->list[i].row];
        WEIR_TRY(score_answer(&out->scores[i], &answers[i], &all->list[i], tokenizer, error));
        const bool is_whole = out->scores[i] == 1.0;
        kept += answers[i].usage.n_rows;
        evicted += answers[i].usage.n_evicted;
        bytes += answers[i].usage.kv_bytes;
        row->n_items++, out->n_items++;
        row->n_right += is_whole, out->n_right += is_whole;
        row->score += out->scores[i], out->score += out->scores[i];
    }
    const int64_t n = all->count > 0 ? (int64_t)all->count : 1;
    out->n_kept = kept / n;
    out->n_evicted = evicted / n;
    out->kv_bytes = bytes / n;
    return WEIR_OK;
}

/* Wilson's interval for right and wrong answers; bootstrap if items have fractions. */
static weir_status find_interval(weir_retrieval *out, weir_error *error)
{
    enum { ROUNDS = 2000 };
    bool is_binary = true;
    for (int32_t i = 0; i < out->n_items; i++)
        is_binary = is_binary && (out->scores[i] == 0.0 || out->scores[i] == 1.0);
    if (is_binary) {
        out->likely = weir_wilson(out->n_right, out->n_items, 1.96);
        return WEIR_OK;
    }
    double *const scratch = malloc(ROUNDS * sizeof *scratch);
    if (scratch == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for an interval");
    out->likely = weir_bootstrap(out->scores, (size_t)out->n_items, 0.95, 1, scratch, ROUNDS);
    free(scratch);
    return WEIR_OK;
}

static weir_status answer_all(
    weir_retrieval *out, const items *all, const weir_engine *engine, weir_error *error
)
{
    weir_cli_answer *const answers = calloc(all->count, sizeof *answers);
    out->scores = calloc(all->count, sizeof *out->scores);
    weir_status status =
        answers != NULL && out->scores != NULL
            ? weir_cli_answer_all(
                  answers, weir_engine_service(engine), all->prompts, all->count, error
              )
            : weir_error_set(error, WEIR_ENOMEM, "no memory for %zu answers", all->count);
    if (status == WEIR_OK)
        status = count_answers(out, all, answers, weir_engine_tokenizer(engine), error);
    if (status == WEIR_OK) status = find_interval(out, error);
    for (size_t i = 0; answers != NULL && i < all->count; i++) weir_cli_answer_free(&answers[i]);
    free(answers);
    return status;
}

weir_status weir_eval_retrieval(
    weir_retrieval *out, const weir_engine *engine, const char *path, int32_t most,
    weir_error *error
)
{
    return weir_eval_retrieval_within(out, engine, path, most, 0, error);
}

weir_status weir_eval_retrieval_within(
    weir_retrieval *out, const weir_engine *engine, const char *path, int32_t most, int32_t percent,
    weir_error *error
)
{
    WEIR_TRY(weir_prompt_need_chat(engine, error));
    items all = { .lines = json_array() };
    *out = (weir_retrieval){ .rows = calloc(MAX_ROWS, sizeof *out->rows) };
    weir_status status = out->rows != NULL && all.lines != NULL
                             ? WEIR_OK
                             : weir_error_set(error, WEIR_ENOMEM, "no memory for the results");
    if (status == WEIR_OK) status = read_items(&all, out, engine, path, most, error);
    for (size_t i = 0; percent > 0 && i < all.count; i++) {
        const int64_t rows = (int64_t)all.prompts[i].ids.count * percent / 100;
        all.prompts[i].kv_budget = rows > 1 ? rows : 1;
    }
    if (status == WEIR_OK) status = answer_all(out, &all, engine, error);
    for (size_t i = 0; i < all.count; i++) {
        weir_ids_free(&all.prompts[i].ids);
        weir_ids_free(&all.list[i].want);
        weir_buffer_free(&all.list[i].answers);
    }
    free(all.prompts);
    free(all.list);
    json_decref(all.lines);
    if (status != WEIR_OK) weir_retrieval_free(out);
    return status;
}

void weir_retrieval_free(weir_retrieval *retrieval)
{
    free(retrieval->rows);
    free(retrieval->scores);
    *retrieval = (weir_retrieval){ 0 };
}
