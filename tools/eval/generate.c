/* tools/eval/generate.c - finds the most units that fit in a length, once per task and length, then
 * reduces them per sample if needed. */
#include "tools/eval/generate.h"

#include <string.h>

typedef struct fitting {
    const weir_eval_task *task;
    const weir_eval_setting *setting;
    weir_eval_units units;
    weir_eval_item item; /* the last one built */
    int32_t task_number;
} fitting;

/* Builds sample number `sample` with n_units. Gets its tokens, including those reserved for the
 * answer. */
static weir_status try_units(
    fitting *f, int32_t sample, int32_t n_units, int32_t *n_tokens, weir_error *error
)
{
    weir_eval_random r = { .seed = f->setting->seed,
                           .task = (uint32_t)f->task_number,
                           .length = (uint32_t)f->setting->length,
                           .sample = (uint32_t)sample };
    weir_eval_item_clear(&f->item);
    f->item.task = f->task->name;
    f->item.scoring = f->task->scoring;
    f->item.length = f->setting->length;
    f->item.max_tokens = f->task->max_tokens;
    const weir_status status =
        f->task->build(&f->item, f->task, f->setting, sample, n_units, &r, error);
    if (status == WEIR_ENOMEM)
        return weir_error_set(
            error, status, "%s: no memory for a sample of %d tokens", f->task->name,
            f->setting->length
        );
    if (status != WEIR_OK) return status;
    int32_t n_prompt = 0;
    WEIR_TRY(f->setting->counter->count(f->setting->counter->user, &f->item, &n_prompt, error));
    *n_tokens =
        n_prompt > INT32_MAX - f->item.max_tokens ? INT32_MAX : n_prompt + f->item.max_tokens;
    return WEIR_OK;
}

static int32_t rung(const weir_eval_units *units, int32_t i)
{
    return units->least + i * units->step;
}

/* The most units with which sample 0 fits; 0 if none do: then each sample is tried by itself. */
static weir_status find_rung(fitting *f, int32_t *out, weir_error *error)
{
    int32_t low = 0, high = 1;
    const int32_t last = (f->units.most - f->units.least) / f->units.step;
    /* Doubles first: the range is unknown, and counting a text that is far too long is slow. */
    for (;;) {
        int32_t n_tokens = 0;
        if (high > last) high = last + 1;
        if (high > last) break;
        WEIR_TRY(try_units(f, 0, rung(&f->units, high), &n_tokens, error));
        if (n_tokens > f->setting->length) break;
        low = high;
        high = high > last / 2 ? last + 1 : 2 * high;
    }
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        int32_t n_tokens = 0;
        WEIR_TRY(try_units(f, 0, rung(&f->units, middle), &n_tokens, error));
        *(n_tokens <= f->setting->length ? &low : &high) = middle;
    }
    *out = low;
    return WEIR_OK;
}

/* Leaves the sample in f->item. */
static weir_status fit_sample(fitting *f, int32_t sample, int32_t first_rung, weir_error *error)
{
    int32_t n_tokens = 0;
    for (int32_t i = first_rung; i >= 0; i--) {
        WEIR_TRY(try_units(f, sample, rung(&f->units, i), &n_tokens, error));
        if (n_tokens <= f->setting->length) return WEIR_OK;
    }
    return weir_error_set(
        error, WEIR_EINVAL,
        "%s does not fit %d tokens: sample %d takes %d with %d %s, the least, %d of them for the "
        "answer; use a larger length",
        f->task->name, (int)f->setting->length, (int)sample, (int)n_tokens, (int)f->units.least,
        f->task->unit, (int)f->item.max_tokens
    );
}

weir_status weir_eval_generate(
    const weir_eval_task *task, const weir_eval_setting *setting, bool *stopped, weir_error *error
)
{
    size_t n_tasks;
    fitting f = { .task = task,
                  .setting = setting,
                  .task_number = (int32_t)(task - weir_eval_tasks(&n_tasks)) };
    int32_t first_rung = 0;
    *stopped = false;
    if (task->needs_qa && setting->qa == NULL)
        return weir_error_set(
            error, WEIR_EINVAL, "%s asks about documents: give a file of questions (--questions)",
            task->name
        );
    task->units(&f.units, task, setting);
    weir_status status = find_rung(&f, &first_rung, error);
    for (int32_t i = 0; status == WEIR_OK && !*stopped && i < setting->n_samples; i++) {
        status = fit_sample(&f, i, first_rung, error);
        if (status == WEIR_OK) *stopped = !setting->take(setting->user, &f.item);
    }
    weir_eval_item_free(&f.item);
    return status;
}

const weir_eval_task *weir_eval_task_find(const char *name)
{
    size_t n;
    const weir_eval_task *const tasks = weir_eval_tasks(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(tasks[i].name, name) == 0) return &tasks[i];
    return NULL;
}
