#include "tools/eval/item.h"

#include <jansson.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"

static const char *const scorings[WEIR_EVAL_SCORINGS] = { "exact", "all", "part", "line", "state" };

bool weir_eval_scoring_find(weir_eval_scoring *out, const char *name)
{
    for (int i = 0; i < WEIR_EVAL_SCORINGS; i++) {
        if (strcmp(scorings[i], name) != 0) continue;
        *out = (weir_eval_scoring)i;
        return true;
    }
    return false;
}

void weir_eval_item_clear(weir_eval_item *item)
{
    weir_buffer_clear(&item->context);
    weir_buffer_clear(&item->question);
    weir_buffer_clear(&item->prefix);
    weir_buffer_clear(&item->answers);
    item->n_answers = 0;
    item->depth = -1;
}

void weir_eval_item_free(weir_eval_item *item)
{
    weir_buffer_free(&item->context);
    weir_buffer_free(&item->question);
    weir_buffer_free(&item->prefix);
    weir_buffer_free(&item->answers);
    *item = (weir_eval_item){ 0 };
}

weir_status weir_eval_item_answer(weir_eval_item *item, const char *text)
{
    WEIR_TRY(weir_buffer_add(&item->answers, text, strlen(text) + 1));
    item->n_answers++;
    return WEIR_OK;
}

/* A string, or a list if the score is a fraction or there are alternatives. */
static json_t *answers_json(const weir_eval_item *item)
{
    if (item->scoring != WEIR_EVAL_ALL && item->scoring != WEIR_EVAL_PART)
        return json_string(item->answers.data);
    json_t *const list = json_array();
    const char *at = item->answers.data;
    for (size_t i = 0; i < item->n_answers; i++, at += strlen(at) + 1)
        (void)json_array_append_new(list, json_string(at));
    return list;
}

static const char *text_of(const weir_buffer *buffer)
{
    return buffer->size > 0 ? buffer->data : "";
}

weir_status weir_eval_item_print(const weir_eval_item *item, weir_buffer *out, weir_error *error)
{
    json_t *const line = json_pack(
        "{s:s, s:i, s:s, s:[[s, o]], s:s, s:s, s:i}", "task", item->task, "length",
        (int)item->length, "context", text_of(&item->context), "questions",
        text_of(&item->question), answers_json(item), "prefix", text_of(&item->prefix), "score",
        scorings[item->scoring], "max_tokens", (int)item->max_tokens
    );
    if (line != NULL && item->depth >= 0)
        (void)json_object_set_new(line, "depth", json_integer(item->depth));
    char *const text = line != NULL ? weir_json_text(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (text == NULL)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: an item is not valid UTF-8, or there is no memory for it",
            item->task
        );
    const weir_status status = weir_buffer_format(out, "%s\n", text);
    weir_memory_give(text);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_set(error, status, "%s: no memory for an item", item->task);
}
