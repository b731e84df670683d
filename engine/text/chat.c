/* engine/text/chat.c - see chat.h. The interpreter is in jinja/; this file sets its limits and
 * converts messages and output. */
#include "engine/text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/text/jinja/state.h"

enum { TEMPLATE_LIMIT = 1 << 20, STEP_LIMIT = 5000000 };
static const size_t parse_memory = (size_t)256 << 20, render_memory = (size_t)256 << 20;

/* Marks the end of the message to be continued. Its last byte is white space, so a template that
 * strips the message is noticed. */
static const char mark[] = "\x02 ";

struct weir_chat_template {
    weir_jinja_arena arena;
    weir_jinja_node *root;
};

weir_status weir_chat_template_open(
    weir_chat_template **out, const char *text, size_t length, weir_error *error
)
{
    weir_error detail = { 0 };
    weir_chat_template *chat = NULL;
    if (length > TEMPLATE_LIMIT)
        return weir_error_set(
            error, WEIR_EFORMAT, "chat template: %zu bytes; the limit is %d", length, TEMPLATE_LIMIT
        );
    chat = weir_memory_take_zero(1, sizeof *chat);
    if (!chat) return weir_error_set(error, WEIR_ENOMEM, "chat template: no memory");
    chat->arena.limit = parse_memory;
    const weir_status status = weir_jinja_parse(&chat->arena, &chat->root, text, length, &detail);
    if (status == WEIR_OK) {
        *out = chat;
        return WEIR_OK;
    }
    weir_chat_template_close(chat);
    if (detail.code == status) return weir_error_set(error, status, "%s", detail.text);
    if (status == WEIR_ENOMEM) return weir_error_set(error, status, "chat template: no memory");
    return weir_error_set(error, WEIR_EFORMAT, "chat template: too large to parse");
}

void weir_chat_template_close(weir_chat_template *chat)
{
    if (!chat) return;
    weir_jinja_arena_free(&chat->arena);
    weir_memory_give(chat);
}

void weir_chat_output_free(weir_chat_output *output)
{
    if (!output) return;
    weir_buffer_free(&output->text);
    weir_memory_give(output->user);
    *output = (weir_chat_output){ 0 };
}

/* ---- input ----------------------------------------------------------------------------------- */

static weir_status set_json(
    weir_jinja_state *state, const char *name, const json_t *json, weir_jinja_origin origin
)
{
    weir_jinja_value v;
    const weir_status status = weir_jinja_from_json(state->arena, &v, json, origin, false);
    if (status == WEIR_EINVAL)
        return weir_error_set(state->error, status, "%s: nested too deep", name);
    if (status != WEIR_OK) return status;
    return weir_jinja_scope_set(state, state->scope, name, v);
}

static weir_status set_text(weir_jinja_state *state, const char *name, const char *text)
{
    weir_jinja_value v;
    if (!text) return WEIR_OK;
    WEIR_TRY(weir_jinja_string_view(state->arena, &v, text, strlen(text), WEIR_JINJA_TEMPLATE));
    return weir_jinja_scope_set(state, state->scope, name, v);
}

static weir_status set_variables(weir_jinja_state *state, const json_t *variables)
{
    json_t *object =
        (json_t *)(uintptr_t)variables; /* jansson's iterators take no const; nothing is changed */
    if (!json_is_object(variables)) return WEIR_OK;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
        WEIR_TRY(set_json(
            state, json_object_iter_key(at), json_object_iter_value(at), WEIR_JINJA_TEMPLATE
        ));
    return WEIR_OK;
}

/* Some templates build control tokens from roles ("<|" + role + "|>"). Known roles are trusted like
 * the template's text; others count as user text. */
static void trust_known_roles(const weir_jinja_list *messages)
{
    static const char *const roles[] = { "system",    "user",     "assistant", "tool",
                                         "developer", "function", "ipython",   "model" };
    for (size_t i = 0; i < messages->count; i++) {
        if (messages->items[i].kind != WEIR_JINJA_DICT) continue;
        const weir_jinja_entry *entry =
            weir_jinja_dict_find_text(messages->items[i].as.dict, "role", 4);
        for (size_t r = 0;
             entry && entry->value.kind == WEIR_JINJA_STRING && r < sizeof roles / sizeof *roles;
             r++)
            if (weir_jinja_string_is(entry->value.as.string, roles[r]))
                entry->value.as.string->origin = WEIR_JINJA_TEMPLATE;
    }
}

static weir_status append_mark(weir_jinja_state *state, weir_jinja_value *text)
{
    weir_jinja_builder marked = weir_jinja_builder_new(state->arena);
    WEIR_TRY(weir_jinja_add_string(&marked, text->as.string));
    WEIR_TRY(weir_jinja_add_text(&marked, mark, WEIR_JINJA_MARK));
    return weir_jinja_builder_finish(&marked, text);
}

/* Appends the mark to the content of the last message: a string, or the last text part. */
static weir_status mark_last_message(weir_jinja_state *state, const weir_jinja_list *messages)
{
    const weir_jinja_value last =
        messages->count ? messages->items[messages->count - 1] : weir_jinja_none();
    weir_jinja_entry *content =
        last.kind == WEIR_JINJA_DICT ? weir_jinja_dict_find_text(last.as.dict, "content", 7) : NULL;
    if (content && content->value.kind == WEIR_JINJA_STRING)
        return append_mark(state, &content->value);
    const weir_jinja_list *parts =
        content && content->value.kind == WEIR_JINJA_LIST ? content->value.as.list : NULL;
    for (size_t i = parts ? parts->count : 0; i > 0; i--) {
        if (parts->items[i - 1].kind != WEIR_JINJA_DICT) continue;
        weir_jinja_entry *text = weir_jinja_dict_find_text(parts->items[i - 1].as.dict, "text", 4);
        if (text && text->value.kind == WEIR_JINJA_STRING) return append_mark(state, &text->value);
    }
    return weir_error_set(
        state->error, WEIR_EINVAL,
        "continue_final_message: the last message has no text to continue"
    );
}

static weir_status set_input(weir_jinja_state *state, const weir_chat_input *input)
{
    WEIR_TRY(weir_jinja_scope_new(state, &state->scope, NULL));
    WEIR_TRY(weir_jinja_define_functions(state, state->scope));
    WEIR_TRY(set_text(state, "bos_token", input->bos_token));
    WEIR_TRY(set_text(state, "eos_token", input->eos_token));
    WEIR_TRY(set_variables(state, input->variables));
    WEIR_TRY(set_json(state, "messages", input->messages, WEIR_JINJA_USER));
    WEIR_TRY(set_json(state, "tools", input->tools, WEIR_JINJA_USER));
    WEIR_TRY(set_json(state, "documents", input->documents, WEIR_JINJA_USER));
    WEIR_TRY(weir_jinja_scope_set(
        state, state->scope, "add_generation_prompt", weir_jinja_bool(input->add_generation_prompt)
    ));
    const weir_jinja_list *messages =
        weir_jinja_dict_find_text(&state->scope->names, "messages", 8)->value.as.list;
    trust_known_roles(messages);
    if (input->continue_final_message) WEIR_TRY(mark_last_message(state, messages));
    return weir_jinja_scope_new(state, &state->scope, state->scope);
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Ends the text at the last mark. If the template stripped the mark's white space, strips the text
 * before it too. */
static weir_status cut_at_mark(weir_jinja_builder *text, weir_error *error)
{
    size_t last = text->n_spans;
    while (last > 0 && text->spans[last - 1].origin != WEIR_JINJA_MARK) last--;
    if (last == 0)
        return weir_error_set(
            error, WEIR_EINVAL,
            "continue_final_message: the template does not print the last message"
        );
    const size_t begin = last > 1 ? text->spans[last - 2].end : 0,
                 size = text->spans[last - 1].end - begin;
    size_t end = begin, step = 0;
    const bool whole =
        size >= sizeof mark - 1 && memcmp(text->bytes + begin, mark, sizeof mark - 1) == 0;
    while (!whole && end > 0 && weir_jinja_is_space(weir_jinja_decode_last(text->bytes, end, &step))
    )
        end -= step;
    text->size = end;
    text->n_spans = last - 1;
    while (text->n_spans > 0 && (text->n_spans > 1 ? text->spans[text->n_spans - 2].end : 0) >= end)
        text->n_spans--;
    if (text->n_spans > 0) text->spans[text->n_spans - 1].end = end;
    return WEIR_OK;
}

static weir_status copy_out(weir_chat_output *out, const weir_jinja_builder *text)
{
    size_t n_user = 0;
    WEIR_TRY(weir_buffer_reserve(&out->text, text->size + 1));
    for (size_t i = 0; i < text->n_spans; i++) n_user += text->spans[i].origin == WEIR_JINJA_USER;
    if (n_user && !(out->user = weir_memory_take(n_user * sizeof *out->user))) return WEIR_ENOMEM;
    for (size_t i = 0, begin = 0; i < text->n_spans; begin = text->spans[i++].end) {
        const weir_jinja_span *span = &text->spans[i];
        const size_t at = out->text.size;
        if (span->origin == WEIR_JINJA_MARK) continue;
        WEIR_TRY(weir_buffer_add(&out->text, text->bytes + begin, span->end - begin));
        if (span->origin != WEIR_JINJA_USER) continue;
        if (out->n_user && out->user[out->n_user - 1].end == at)
            out->user[out->n_user - 1].end = out->text.size;
        else
            out->user[out->n_user++] = (weir_span){ .begin = at, .end = out->text.size };
    }
    return weir_buffer_add(&out->text, "", 0);
}

static weir_status render(
    const weir_chat_template *chat, weir_chat_output *out, const weir_chat_input *input,
    weir_jinja_arena *arena, weir_error *error
)
{
    weir_jinja_builder text = weir_jinja_builder_new(arena);
    weir_jinja_state state = { .arena = arena,
                               .error = error,
                               .out = &text,
                               .steps_left = STEP_LIMIT,
                               .line = 1,
                               .now = input->now_unix_seconds };
    WEIR_TRY(set_input(&state, input));
    WEIR_TRY(weir_jinja_run(&state, &chat->root->body));
    WEIR_TRY(weir_jinja_step(&state, 0)); /* the last comparison may have exceeded the step limit */
    if (input->continue_final_message) WEIR_TRY(cut_at_mark(&text, error));
    return copy_out(out, &text);
}

weir_status weir_chat_render(
    const weir_chat_template *chat, weir_chat_output *out, const weir_chat_input *input,
    weir_error *error
)
{
    weir_jinja_arena arena = { .limit = render_memory };
    weir_chat_output rendered = { 0 };
    weir_error detail = { 0 };
    if (!json_is_array(input->messages))
        return weir_error_set(error, WEIR_EINVAL, "messages must be an array");
    if (input->continue_final_message && input->add_generation_prompt)
        return weir_error_set(
            error, WEIR_EINVAL,
            "continue_final_message and add_generation_prompt exclude each other"
        );
    const weir_status status = render(chat, &rendered, input, &arena, &detail);
    weir_jinja_arena_free(&arena);
    if (status == WEIR_OK) {
        *out = rendered;
        return WEIR_OK;
    }
    weir_chat_output_free(&rendered);
    if (detail.code == status) return weir_error_set(error, status, "%s", detail.text);
    if (status == WEIR_ENOMEM) return weir_error_set(error, status, "chat template: no memory");
    return weir_error_set(
        error, status, "chat template: the prompt, or the memory to render it, exceeds the limit"
    );
}
