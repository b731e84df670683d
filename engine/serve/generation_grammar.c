/* engine/serve/generation_grammar.c - what the answers of a request are held to: its structured
 * form, or calls of its tools. Worker. */
#include <string.h>

#include "engine/serve/generation.h"
#include "engine/toolcalls/force.h"

/* Compiles a grammar for the answers; `field` is that of the request. */
static weir_status get_grammar(
    weir_generation *g, weir_grammar_kind kind, const weir_buffer *text, const char *field,
    weir_api_error *error
)
{
    weir_error why = { 0 };
    g->grammar_field = field;
    const weir_status status = weir_grammars_get(
        g->exchange->server->grammars, &g->grammar, kind, text->data != NULL ? text->data : "",
        text->size, &why
    );
    if (status == WEIR_OK) return WEIR_OK;
    if (status == WEIR_EFORMAT || status == WEIR_EUNSUPPORTED)
        return weir_api_bad(error, field, "%s: %s", field, why.text);
    weir_api_from_status(error, status, why.text);
    return status;
}

static weir_token_kind kind_of(const void *vocabulary, const char *text, size_t n)
{
    const weir_tokenizer *const tokenizer = vocabulary;
    const int32_t id = weir_tokenizer_find(tokenizer, text, n);
    size_t length;
    bool is_control;
    if (id < 0) return WEIR_TOKEN_NONE;
    (void)weir_tokenizer_token_bytes(tokenizer, id, &length, &is_control);
    return is_control ? WEIR_TOKEN_CONTROL : WEIR_TOKEN_PLAIN;
}

/* What of the answer comes before: a model that is asked not to reason does not begin to. */
static weir_call_force force_of(const weir_generation *g)
{
    const weir_server *const server = g->exchange->server;
    weir_call_force force = { .format = server->format,
                              .start = g->reasoning,
                              .token = kind_of,
                              .vocabulary = server->options.tokenizer };
    if (g->request.no_thought && force.start.state == WEIR_THINK_MAYBE)
        force.start.state = WEIR_THINK_CONTENT;
    return force;
}

/* ---- structured outputs ---------------------------------------------------------------------- */

/* The grammar is that of the content: reasoning comes before it. */
static weir_status begin_structured(weir_generation *g, weir_api_error *error)
{
    weir_structured *const form = &g->request.structured;
    const weir_call_force force = force_of(g);
    const bool reasons = force.format->is_harmony || force.start.state != WEIR_THINK_CONTENT;
    if (g->request.tools != NULL)
        return weir_api_bad(
            error, form->field, "%s and tools exclude each other, unless tool_choice is \"none\"",
            form->field
        );
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    if (g->request.chat && reasons) {
        status = weir_reasoned_write(
            &text, &force, weir_grammar_kind_name(form->kind), form->text.data, form->text.size
        );
        if (status != WEIR_OK) weir_api_from_status(error, status, NULL);
        if (status == WEIR_OK)
            status = get_grammar(g, WEIR_GRAMMAR_CALLS, &text, form->field, error);
        weir_buffer_free(&text);
    } else {
        status = get_grammar(g, form->kind, &form->text, form->field, error);
    }
    if (status == WEIR_OK) weir_buffer_free(&form->text);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Whether the calls can be held to the tools. A promise about their arguments only (`strict`) that
 * cannot be kept is a warning, because the model may not call them at all. */
weir_status weir_generation_open_grammar(weir_generation *g, weir_api_error *error)
{
    const weir_openai_request *const r = &g->request;
    const char *const problem = weir_call_force_problem(g->exchange->server->format);
    g->holds_calls = r->holds_calls && problem == NULL;
    if (!r->holds_calls || problem == NULL) return WEIR_OK;
    if (r->must_call || r->callable != NULL)
        return weir_api_fail(
            error, 400, "unsupported_parameter", "tool_choice",
            "tool_choice: calls cannot be forced: %s; use \"auto\"", problem
        );
    weir_warning_add(
        g->exchange->warning,
        "strict has no effect: no grammar for the calls of this model is known"
    );
    return WEIR_OK;
}

static weir_status begin_calls(weir_generation *g, weir_api_error *error)
{
    const weir_openai_request *const r = &g->request;
    weir_call_force force = force_of(g);
    force.tools = r->callable != NULL ? r->callable : r->tools;
    force.is_required = r->must_call;
    force.one_call = r->one_call;
    weir_buffer text = { 0 };
    weir_status status = weir_call_force_write(&text, &force);
    if (status != WEIR_OK)
        weir_api_from_status(error, status, NULL);
    else
        status = get_grammar(g, WEIR_GRAMMAR_CALLS, &text, "tools", error);
    weir_buffer_free(&text);
    return status;
}

/* ---- reasoning ------------------------------------------------------------------------------- */

static int32_t find_tag(const weir_generation *g, const char *tag)
{
    return weir_tokenizer_find(g->exchange->server->options.tokenizer, tag, strlen(tag));
}

/* Control tokens have no text. */
static const char *text_of(const void *vocabulary, int32_t token, size_t *n)
{
    bool is_control;
    const char *const bytes = weir_tokenizer_token_bytes(vocabulary, token, n, &is_control);
    if (is_control) *n = 0;
    return bytes;
}

/* The tokens between which the limit counts. Without reasoning there is nothing to limit. */
static weir_status limit_thought(weir_generation *g, weir_api_error *error)
{
    static const char key[] = "thinking_token_budget";
    weir_thought_limit *const thought = &g->thought;
    const weir_reasoning_start start = force_of(g).start;
    if (g->request.thought_tokens < 0) return WEIR_OK;
    if (g->exchange->server->format->is_harmony)
        return weir_api_fail(
            error, 400, "unsupported_parameter", key,
            "%s is not supported for models whose answers have channels", key
        );
    *thought = (weir_thought_limit){ .is_open = start.state == WEIR_THINK_INSIDE,
                                     .begin = -1,
                                     .end = -1,
                                     .n_tokens = (int32_t)g->request.thought_tokens,
                                     .text_of = text_of,
                                     .vocabulary = g->exchange->server->options.tokenizer };
    if (thought->is_open) thought->end_text = weir_reasoning_end_tag(start.tags);
    for (int i = 0; start.state == WEIR_THINK_MAYBE && weir_reasoning_tag(i) != NULL; i++) {
        const char *const open = weir_reasoning_tag(i); /* its first token, as in force.c */
        thought->begin = weir_tokenizer_find(
            g->exchange->server->options.tokenizer, open, strcspn(open, ">]") + 1
        );
        thought->end_text = weir_reasoning_end_tag(i);
        if (thought->begin >= 0) break;
    }
    if (thought->end_text != NULL) thought->end = find_tag(g, thought->end_text);
    thought->is_limited = thought->end >= 0 && (thought->is_open || thought->begin >= 0);
    if (thought->is_limited || !thought->is_open) return WEIR_OK;
    return weir_api_fail(
        error, 400, "unsupported_parameter", key,
        "%s: this model has no token that ends its reasoning", key
    );
}

/* ---- all ------------------------------------------------------------------------------------- */

weir_status weir_generation_begin_grammar(weir_generation *g, weir_api_error *error)
{
    WEIR_TRY(limit_thought(g, error));
    if (g->request.structured.field != NULL) return begin_structured(g, error);
    return g->holds_calls ? begin_calls(g, error) : WEIR_OK;
}
