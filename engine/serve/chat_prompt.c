/* engine/serve/chat_prompt.c - from messages and tools to the tokens of a prompt, by the model's
 * chat template. Templates without tool support silently drop tools: tools are then written into
 * the system message and calls into their messages, in the form of Hermes. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/serve/internal.h"
#include "engine/serve/recall.h"
#include "engine/serve/tool_text.h"

/* What is rendered: the messages and tools of the request, or replacements. */
typedef struct texts {
    const json_t *messages, *tools;
} texts;

static weir_status render(
    weir_chat_output *out, const weir_server *server, const weir_openai_request *request,
    texts what, weir_api_error *error
)
{
    const weir_tokenizer *const tokenizer = server->options.tokenizer;
    const weir_chat_input input = {
        .messages = what.messages,
        .tools = what.tools,
        .variables = request->variables,
        .bos_token = request->state != NULL ? "" : weir_tokenizer_bos_text(tokenizer),
        .eos_token = weir_tokenizer_eos_text(tokenizer),
        .add_generation_prompt = request->add_generation_prompt,
        .continue_final_message = request->continue_final_message,
        .now_unix_seconds = weir_clock_unix_seconds(),
    };
    weir_error why = { 0 };
    const weir_status status = weir_chat_render(server->options.chat, out, &input, &why);
    if (status == WEIR_EINVAL || status == WEIR_EFULL)
        return weir_api_bad(
            error, "messages", "the chat template refuses these messages: %s", why.text
        );
    if (status != WEIR_OK) weir_api_from_status(error, status, why.text);
    return status;
}

/* ---- templates without tools ----------------------------------------------------------------- */

static bool has_calls(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (json_object_get(json_array_get(messages, i), "tool_calls") != NULL) return true;
    return false;
}

static bool same_text(const weir_buffer *a, const weir_buffer *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

/* True if the template produces the same text without some part. */
static bool is_same_with(
    const weir_chat_output *whole, const weir_server *server, const weir_openai_request *request,
    texts other
)
{
    weir_chat_output output = { 0 };
    weir_api_error refused;
    const weir_status status = render(&output, server, request, other, &refused);
    const bool same = status == WEIR_OK && same_text(&output.text, &whole->text);
    weir_chat_output_free(&output);
    return same;
}

typedef struct lost {
    bool tools, calls;
} lost;

static weir_status find_lost(
    lost *out, const weir_chat_output *whole, const weir_server *server,
    const weir_openai_request *request
)
{
    const texts no_tools = { request->messages, NULL };
    json_t *bare = NULL;
    if (request->tools != NULL) out->tools = is_same_with(whole, server, request, no_tools);
    if (!has_calls(request->messages)) return WEIR_OK;
    WEIR_TRY(weir_messages_strip(&bare, request->messages));
    out->calls = is_same_with(whole, server, request, (texts){ bare, request->tools });
    json_decref(bare);
    return WEIR_OK;
}

static weir_status render_request(
    weir_chat_output *out, const weir_server *server, const weir_openai_request *request,
    weir_api_error *error
)
{
    lost lost = { false, false };
    json_t *messages = NULL;
    WEIR_TRY(render(out, server, request, (texts){ request->messages, request->tools }, error));
    if (find_lost(&lost, out, server, request) != WEIR_OK) return weir_api_no_memory(error);
    if (!lost.tools && !lost.calls) return WEIR_OK;
    const json_t *const tools = lost.tools ? request->tools : NULL;
    if (weir_messages_with_tools(&messages, request->messages, tools, lost.calls) != WEIR_OK)
        return weir_api_no_memory(error);
    weir_chat_output_free(out);
    *out = (weir_chat_output){ 0 };
    const texts what = { messages, lost.tools ? NULL : request->tools };
    const weir_status status = render(out, server, request, what, error);
    json_decref(messages);
    return status;
}

/* ---- calls as the model wrote them ----------------------------------------------------------- */

/* Other messages instead of the request's; *done is false if the template refuses them. */
static weir_status try_messages(
    weir_chat_output *out, const weir_server *server, const weir_openai_request *request,
    json_t *messages, bool *done
)
{
    weir_openai_request other = *request;
    weir_api_error refused = { 0 };
    other.messages = messages;
    const weir_status status = render_request(out, server, &other, &refused);
    *done = status == WEIR_OK;
    return status == WEIR_ENOMEM ? status : WEIR_OK;
}

/* With marks, which are replaced; if that is not possible, with the keys in the model's order. */
static weir_status render_recalled(
    weir_chat_output *out, const weir_server *server, const weir_openai_request *request,
    const weir_recall *recall, bool *done
)
{
    WEIR_TRY(try_messages(out, server, request, recall->marked, done));
    if (*done) WEIR_TRY(weir_recall_replace(recall, out, done));
    if (*done) return WEIR_OK;
    weir_chat_output_free(out);
    *out = (weir_chat_output){ 0 };
    return try_messages(out, server, request, recall->ordered, done);
}

static weir_status render_conversation(
    weir_chat_output *out, const weir_server *server, const weir_openai_request *request,
    weir_api_error *error
)
{
    weir_recall recall;
    bool done = false;
    weir_status status = weir_recall_open(&recall, server->calls, request->messages);
    if (status == WEIR_OK && recall.n_calls > 0)
        status = render_recalled(out, server, request, &recall, &done);
    weir_recall_free(&recall);
    if (status != WEIR_OK) weir_api_from_status(error, status, NULL);
    if (status != WEIR_OK || done) return status;
    weir_chat_output_free(out);
    *out = (weir_chat_output){ 0 };
    return render_request(out, server, request, error);
}

/* ---- thinking -------------------------------------------------------------------------------- */

static bool variable_is_read(
    const weir_server *server, const json_t *messages, json_t *one, json_t *other
)
{
    weir_openai_request request = { .add_generation_prompt = true, .variables = one };
    weir_chat_output a = { 0 }, b = { 0 };
    weir_api_error ignored;
    const texts what = { messages, NULL };
    bool read = render(&a, server, &request, what, &ignored) == WEIR_OK;
    request.variables = other;
    if (read)
        read =
            render(&b, server, &request, what, &ignored) == WEIR_OK && !same_text(&a.text, &b.text);
    weir_chat_output_free(&a);
    weir_chat_output_free(&b);
    json_decref(one);
    json_decref(other);
    return read;
}

bool weir_chat_reads_effort(const weir_server *server)
{
    json_t *const messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "a");
    const char *name = "enable_thinking";
    json_t *one = json_pack("{s:b}", name, 1), *other = json_pack("{s:b}", name, 0);
    bool read = variable_is_read(server, messages, one, other);
    name = "reasoning_effort";
    one = json_pack("{s:s}", name, "low");
    other = json_pack("{s:s}", name, "high");
    read = variable_is_read(server, messages, one, other) || read;
    json_decref(messages);
    return read;
}

/* ---- order of messages ----------------------------------------------------------------------- */

/* Templates may refuse it, or leave it out. */
bool weir_chat_takes_after_user(const weir_server *server, const char *role)
{
    static const char word[] = "reminder";
    const weir_openai_request request = { .add_generation_prompt = true };
    weir_chat_output output = { 0 };
    weir_api_error refused;
    json_t *const messages = json_pack(
        "[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a", "role",
        "assistant", "content", "b", "role", "user", "content", "c", "role", role, "content", word
    );
    const bool takes =
        messages != NULL &&
        render(&output, server, &request, (texts){ messages, NULL }, &refused) == WEIR_OK &&
        memmem(output.text.data, output.text.size, word, sizeof word - 1) != NULL;
    weir_chat_output_free(&output);
    json_decref(messages);
    return takes;
}

/* ---- a query and a document ------------------------------------------------------------------ */

json_t *weir_chat_pair(const char *prompt, const json_t *query, const json_t *document)
{
    json_t *const messages = json_pack(
        "[{s:s, s:O}, {s:s, s:O}]", "role", "query", "content", query, "role", "document",
        "content", document
    );
    if (messages == NULL || prompt[0] == '\0') return messages;
    json_t *const system = json_pack("{s:s, s:s}", "role", "system", "content", prompt);
    if (json_array_insert_new(messages, 0, system) == 0) return messages;
    json_decref(messages);
    return NULL;
}

static bool holds(const weir_buffer *text, const char *word)
{
    return text->data != NULL && memmem(text->data, text->size, word, strlen(word)) != NULL;
}

weir_status weir_chat_check_pairs(bool *are_lost, const weir_server *server, const char *prompt)
{
    static const char question[] = "reminder", found[] = "quotation";
    const weir_openai_request request = { .add_generation_prompt = true };
    weir_chat_output output = { 0 };
    weir_api_error refused;
    json_t *const query = json_string(question), *const document = json_string(found);
    json_t *const messages =
        query != NULL && document != NULL ? weir_chat_pair(prompt, query, document) : NULL;
    const weir_status status =
        messages == NULL ? WEIR_ENOMEM
                         : render(&output, server, &request, (texts){ messages, NULL }, &refused);
    *are_lost = status == WEIR_OK && !(holds(&output.text, question) && holds(&output.text, found));
    weir_chat_output_free(&output);
    json_decref(messages);
    json_decref(query);
    json_decref(document);
    return status == WEIR_ENOMEM ? status : WEIR_OK;
}

/* ---- prompts --------------------------------------------------------------------------------- */

weir_status weir_text_encode(
    weir_ids *ids, const weir_server *server, const char *text, size_t n,
    const weir_encode_options *options, const char *param, weir_api_error *error
)
{
    weir_error why = { 0 };
    const weir_status status =
        weir_tokenizer_encode(server->options.tokenizer, ids, text, n, options, &why);
    if (status == WEIR_EINVAL || status == WEIR_EFORMAT)
        return weir_api_bad(error, param, "%s", why.text);
    if (status != WEIR_OK) weir_api_from_status(error, status, why.text);
    return status;
}

static weir_status need_template(const weir_server *server, weir_api_error *error)
{
    static const char code[] = "chat_unsupported";
    const char *const problem = server->options.chat_problem;
    if (server->options.chat != NULL) return WEIR_OK;
    if (problem == NULL)
        return weir_api_fail(
            error, 400, code, "messages", "this model has no chat template; use /v1/completions"
        );
    return weir_api_fail(
        error, 400, code, "messages",
        "this model's chat template cannot be used (%s); use /v1/completions", problem
    );
}

weir_status weir_chat_prompt(
    weir_ids *ids, const weir_server *server, const weir_openai_request *request, weir_buffer *text,
    weir_api_error *error
)
{
    weir_chat_output rendered = { 0 };
    WEIR_TRY(need_template(server, error));
    weir_status status = render_conversation(&rendered, server, request, error);
    if (status == WEIR_OK) {
        const weir_encode_options options = { .parse_special = true,
                                              .plain = rendered.user,
                                              .n_plain = rendered.n_user };
        status = weir_text_encode(
            ids, server, rendered.text.data, rendered.text.size, &options, "messages", error
        );
    }
    if (status == WEIR_OK) *text = rendered.text, rendered.text = (weir_buffer){ 0 };
    weir_chat_output_free(&rendered);
    return status;
}
