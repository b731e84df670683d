#include "engine/serve/recall.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"

enum { MOST_CALLS = 4096 }; /* of a conversation; further ones are rendered as they are */

void weir_recall_free(weir_recall *recall)
{
    for (size_t i = 0; i < recall->n_calls; i++) weir_buffer_free(&recall->calls[i].arguments);
    weir_memory_give(recall->calls);
    json_decref(recall->marked);
    json_decref(recall->ordered);
    *recall = (weir_recall){ 0 };
}

/* The remembered arguments of a call, if they are equal to its own; *value: parsed. */
static weir_status remembered(
    weir_call_memory *memory, const json_t *call, weir_buffer *text, json_t **value
)
{
    const char *const id = json_string_value(json_object_get(call, "id"));
    const json_t *const own = json_object_get(json_object_get(call, "function"), "arguments");
    bool found = false;
    if (id == NULL || !json_is_object(own)) return WEIR_OK;
    WEIR_TRY(weir_call_memory_get(memory, id, text, &found));
    if (!found) return WEIR_OK;
    json_t *parsed = NULL;
    const weir_json_fault fault =
        weir_json_build(&parsed, NULL, text->data, text->size, &weir_json_request);
    if (fault == WEIR_JSON_NO_MEMORY) return WEIR_ENOMEM;
    if (fault == WEIR_JSON_FINE && json_equal(parsed, own) == 1)
        *value = parsed;
    else
        json_decref(parsed);
    return WEIR_OK;
}

static weir_status set_arguments(json_t *messages, size_t message, size_t call, json_t *arguments)
{
    json_t *const calls = json_object_get(json_array_get(messages, message), "tool_calls");
    json_t *const function = json_object_get(json_array_get(calls, call), "function");
    return json_object_set_new(function, "arguments", arguments) == 0 ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status copy_messages(weir_recall *recall, const json_t *messages)
{
    if (recall->marked != NULL) return WEIR_OK;
    recall->marked = json_deep_copy(messages);
    recall->ordered = json_deep_copy(messages);
    return recall->marked != NULL && recall->ordered != NULL ? WEIR_OK : WEIR_ENOMEM;
}

/* A key that no client can guess. */
static void make_mark(char *out, size_t size)
{
    uint64_t random[2] = { 0, 0 };
    (void)!getrandom(random, sizeof random, 0);
    (void)snprintf(
        out, size, "call%016llx%016llx", (unsigned long long)random[0],
        (unsigned long long)random[1]
    );
}

/* Takes over `value`. */
static weir_status add_call(
    weir_recall *recall, const json_t *messages, size_t message, size_t call, weir_buffer *text,
    json_t *value
)
{
    const size_t n = recall->n_calls;
    weir_recalled_call *const larger =
        (n & (n - 1)) == 0
            ? weir_memory_resize(recall->calls, (n == 0 ? 1 : 2 * n) * sizeof *larger)
            : recall->calls;
    if (larger == NULL || copy_messages(recall, messages) != WEIR_OK) {
        if (larger != NULL) recall->calls = larger;
        json_decref(value);
        return WEIR_ENOMEM;
    }
    recall->calls = larger;
    weir_recalled_call *const added = &larger[n];
    *added = (weir_recalled_call){ .arguments = *text };
    *text = (weir_buffer){ NULL, 0, 0 };
    recall->n_calls++;
    make_mark(added->mark, sizeof added->mark);
    WEIR_TRY(set_arguments(recall->ordered, message, call, value));
    json_t *const mark = json_object();
    if (mark == NULL || json_object_set_new(mark, added->mark, json_integer(0)) != 0) {
        json_decref(mark);
        return WEIR_ENOMEM;
    }
    return set_arguments(recall->marked, message, call, mark);
}

weir_status weir_recall_open(weir_recall *out, weir_call_memory *memory, const json_t *messages)
{
    *out = (weir_recall){ 0 };
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *const calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls) && out->n_calls < MOST_CALLS; k++) {
            weir_buffer text = { 0 };
            json_t *value = NULL;
            weir_status status = remembered(memory, json_array_get(calls, k), &text, &value);
            if (status == WEIR_OK && value != NULL)
                status = add_call(out, messages, i, k, &text, value);
            weir_buffer_free(&text);
            WEIR_TRY(status);
        }
    }
    return WEIR_OK;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

/* Finds {"MARK": 0}, with or without the space, from byte `from` on. *n: its length; SIZE_MAX: it
 * is not there once. */
static size_t find_mark(const weir_buffer *text, size_t from, const char *mark, size_t *n)
{
    const size_t length = strlen(mark);
    const char *const end = text->data + text->size;
    const char *const at = memmem(text->data + from, text->size - from, mark, length);
    if (at == NULL || at - text->data < (ptrdiff_t)from + 2 || memcmp(at - 2, "{\"", 2) != 0)
        return SIZE_MAX;
    const char *after = at + length;
    if (memmem(after, (size_t)(end - after), mark, length) != NULL) return SIZE_MAX;
    static const char *const rests[] = { "\": 0}", "\":0}" };
    for (size_t i = 0; i < 2; i++) {
        const size_t rest = strlen(rests[i]);
        if ((size_t)(end - after) < rest || memcmp(after, rests[i], rest) != 0) continue;
        *n = length + 2 + rest;
        return (size_t)(at - text->data) - 2;
    }
    return SIZE_MAX;
}

/* A prompt while it is copied: text and spans up to `at` of the old one are done. */
typedef struct copying {
    const weir_chat_output *from;
    weir_chat_output to;
    size_t at, next_span, capacity;
} copying;

static weir_status add_span(copying *c, weir_span span)
{
    if (span.end <= span.begin) return WEIR_OK;
    if (c->to.n_user == c->capacity) {
        const size_t capacity = c->capacity == 0 ? 32 : 2 * c->capacity;
        weir_span *const larger = weir_memory_resize(c->to.user, capacity * sizeof *larger);
        if (larger == NULL) return WEIR_ENOMEM;
        c->to.user = larger;
        c->capacity = capacity;
    }
    c->to.user[c->to.n_user++] = span;
    return WEIR_OK;
}

/* Copies up to `end` of the old text; spans that begin behind it wait. */
static weir_status copy_to(copying *c, size_t end)
{
    const size_t base = c->to.text.size;
    WEIR_TRY(weir_buffer_add(&c->to.text, c->from->text.data + c->at, end - c->at));
    for (; c->next_span < c->from->n_user; c->next_span++) {
        const weir_span old = c->from->user[c->next_span];
        if (old.begin >= end) break;
        const size_t begin = old.begin < c->at ? c->at : old.begin,
                     stop = old.end < end ? old.end : end;
        if (stop > begin)
            WEIR_TRY(add_span(c, (weir_span){ base + begin - c->at, base + stop - c->at }));
        if (old.end > end) break; /* the rest of it follows */
    }
    c->at = end;
    return WEIR_OK;
}

static weir_status replace_all(const weir_recall *recall, copying *c, bool *done)
{
    *done = true;
    for (size_t i = 0; i < recall->n_calls && *done; i++) {
        const weir_buffer *const arguments = &recall->calls[i].arguments;
        size_t n = 0;
        const size_t at = find_mark(&c->from->text, c->at, recall->calls[i].mark, &n);
        *done = at != SIZE_MAX;
        if (!*done) return WEIR_OK;
        WEIR_TRY(copy_to(c, at));
        const size_t begin = c->to.text.size;
        WEIR_TRY(weir_buffer_add(&c->to.text, arguments->data, arguments->size));
        WEIR_TRY(add_span(c, (weir_span){ begin, begin + arguments->size }));
        c->at = at + n;
    }
    return copy_to(c, c->from->text.size);
}

weir_status weir_recall_replace(const weir_recall *recall, weir_chat_output *prompt, bool *done)
{
    copying c = { .from = prompt };
    const weir_status status = replace_all(recall, &c, done);
    if (status == WEIR_OK && *done) {
        weir_chat_output_free(prompt);
        *prompt = c.to;
    } else {
        weir_chat_output_free(&c.to);
    }
    return status;
}
