/* tools/measure/run_eval_generate.c - weir eval generate: items for `weir eval retrieval`; the
 * model lends its tokenizer and its chat template. weir eval constructed: a model that answers
 * questions of its own kind. */
#include <stdio.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/open.h"
#include "engine/formats/tensor_directory.h"
#include "tools/eval/constructed.h"
#include "tools/eval/generate.h"
#include "tools/measure/evaluate.h"

enum { MOST_BYTES = 1 << 28, MOST_TEXT = 1 << 28 }; /* what eval retrieval reads */

typedef struct run {
    weir_tensor_directory *directory;
    weir_tokenizer *tokenizer;
    weir_chat_template *chat;
    weir_eval_essay essay;
    weir_eval_qa qa;
    weir_ids ids; /* of the item being counted */
    weir_buffer out;
    weir_error *error;
    weir_status status; /* of the last item taken */
    int32_t n_done, n_samples;
} run;

static weir_status open_model(run *r, const char *path, weir_error *error)
{
    WEIR_TRY(weir_tensor_directory_open(&r->directory, path, error));
    WEIR_TRY(weir_tokenizer_open(&r->tokenizer, r->directory, error));
    const char *const source = weir_tokenizer_chat_template(r->tokenizer);
    if (source == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s: no chat template, so the length of a conversation is not known", path
        );
    return weir_chat_template_open(&r->chat, source, strlen(source), error);
}

static weir_status open_texts(run *r, const char *text, const char *questions, weir_error *error)
{
    weir_buffer bytes = { 0 };
    weir_status status = WEIR_OK;
    if (text != NULL) {
        status = weir_file_read_input(&bytes, text, MOST_TEXT, error);
        if (status == WEIR_OK)
            status = weir_eval_essay_open(&r->essay, bytes.data, bytes.size, text, error);
    } else {
        status = weir_eval_essay_bundled(&r->essay, error);
    }
    weir_buffer_clear(&bytes);
    if (status == WEIR_OK && questions != NULL) {
        status = weir_file_read_input(&bytes, questions, MOST_TEXT, error);
        if (status == WEIR_OK)
            status = weir_eval_qa_open(&r->qa, bytes.data, bytes.size, questions, error);
    }
    weir_buffer_free(&bytes);
    return status;
}

static weir_status count_tokens(
    void *user, const weir_eval_item *item, int32_t *n_tokens, weir_error *error
)
{
    run *const r = user;
    r->ids.count = 0;
    const weir_status status = weir_eval_prompt(
        &r->ids, r->tokenizer, r->chat, item->context.data, item->question.data,
        item->prefix.size > 0 ? item->prefix.data : "", error
    );
    *n_tokens = r->ids.count < INT32_MAX ? (int32_t)r->ids.count : INT32_MAX;
    return status;
}

static bool take_item(void *user, const weir_eval_item *item)
{
    run *const r = user;
    r->status = weir_eval_item_print(item, &r->out, r->error);
    if (r->status == WEIR_OK && r->out.size > MOST_BYTES)
        r->status = weir_error_set(
            r->error, WEIR_EINVAL, "more than %d bytes of items; ask for fewer samples or lengths",
            (int)MOST_BYTES
        );
    r->n_done++;
    if (r->status == WEIR_OK) r->status = weir_progress_step(r->n_done, r->error);
    return r->status == WEIR_OK;
}

/* One task at one length. */
static weir_status generate(
    run *r, const weir_eval_task *task, weir_eval_setting *setting, int32_t length,
    weir_error *error
)
{
    bool stopped;
    char what[48];
    setting->length = length;
    r->n_done = 0;
    (void)snprintf(what, sizeof what, "%.24s, %d tokens", task->name, (int)length);
    weir_progress_begin(what, "items", r->n_samples);
    const weir_status status = weir_eval_generate(task, setting, &stopped, error);
    weir_progress_end();
    return status == WEIR_OK && stopped ? r->status : status;
}

/* With `all`, what cannot be made is named and left out. */
static weir_status generate_all(
    run *r, const weir_eval_task *only, weir_eval_setting *setting, const int64_t *lengths,
    size_t n_lengths, weir_error *error
)
{
    size_t n_tasks;
    const weir_eval_task *const tasks = weir_eval_tasks(&n_tasks);
    for (size_t t = 0; t < n_tasks; t++)
        for (size_t i = 0; i < n_lengths; i++) {
            if (only != NULL && only != &tasks[t]) continue;
            const size_t before = r->out.size;
            const weir_status status = generate(r, &tasks[t], setting, (int32_t)lengths[i], error);
            if (status == WEIR_OK) continue;
            if (only != NULL || status != WEIR_EINVAL || r->status != WEIR_OK) return status;
            r->out.size = before; /* no task by halves */
            (void)fprintf(stderr, "weir: left out: %s\n", error->text);
        }
    if (r->out.size == 0)
        return weir_error_set(
            error, WEIR_EINVAL, "no task can be made as short as the lengths asked for"
        );
    return WEIR_OK;
}

static weir_status find_task(const weir_eval_task **only, const char *name, weir_error *error)
{
    *only = strcmp(name, "all") != 0 ? weir_eval_task_find(name) : NULL;
    if (*only != NULL || strcmp(name, "all") == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "--task: \"%.60s\" is no task; `weir eval generate --help` lists them",
        name
    );
}

int weir_run_eval_generate(const weir_arguments *arguments)
{
    weir_error error = { 0 };
    run r = { .error = &error, .n_samples = (int32_t)weir_argument_int(arguments, "samples", 50) };
    const weir_eval_counter counter = { .count = count_tokens, .user = &r };
    const weir_eval_task *only = NULL;
    int64_t lengths[WEIR_OPTION_NUMBERS] = { 0 };
    const size_t n_lengths = weir_argument_numbers(arguments, "length", lengths);
    weir_stop_on_interrupt();
    weir_status status = find_task(&only, weir_argument(arguments, "task"), &error);
    if (status == WEIR_OK) status = open_model(&r, arguments->config.model.path, &error);
    if (status == WEIR_OK)
        status = open_texts(
            &r, weir_argument(arguments, "text"), weir_argument(arguments, "questions"), &error
        );
    if (status == WEIR_OK)
        status = generate_all(
            &r, only,
            &(weir_eval_setting){ .n_samples = r.n_samples,
                                  .seed = (uint64_t)weir_argument_int(arguments, "seed", 42),
                                  .essay = &r.essay,
                                  .qa = r.qa.n_questions > 0 ? &r.qa : NULL,
                                  .counter = &counter,
                                  .take = take_item,
                                  .user = &r },
            lengths, n_lengths, &error
        );
    if (status == WEIR_OK)
        status =
            weir_file_write_atomic(weir_argument(arguments, "out"), r.out.data, r.out.size, &error);
    weir_buffer_free(&r.out);
    weir_ids_free(&r.ids);
    weir_eval_qa_close(&r.qa);
    weir_eval_essay_close(&r.essay);
    weir_chat_template_close(r.chat);
    weir_tokenizer_close(r.tokenizer);
    weir_tensor_directory_close(r.directory);
    return weir_end(status, &error);
}

int weir_run_eval_constructed(const weir_arguments *arguments)
{
    enum { CONTEXT = 1 << 16 }; /* layer 1 was looked at as far as 100,000 tokens */
    weir_error error = { 0 };
    const weir_constructed model = { .n_vocab =
                                         (int32_t)weir_argument_int(arguments, "vocabulary", 4096),
                                     .n_heads = (int32_t)weir_argument_int(arguments, "heads", 2),
                                     .n_kv_heads =
                                         (int32_t)weir_argument_int(arguments, "kv-heads", 2),
                                     .context = CONTEXT,
                                     .window = (int32_t)weir_argument_int(arguments, "window", 0) };
    const weir_status status =
        weir_constructed_write(weir_argument(arguments, "out"), &model, &error);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}
