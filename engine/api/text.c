/* engine/api/text.c - text to tokens and back, and chats to prompts. Temporary memory is charged to
 * the account of requests; results are copies that the caller owns. */
#include <jansson.h>
#include <string.h>

#include "engine/api/api_internal.h"
#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/text/messages.h"

/* Between begin and end, this thread's memory is charged to the engine. */
typedef struct charge {
    weir_ledger_tracker tracker;
    weir_memory_tracker *before;
} charge;

static void begin_charge(charge *c, const weir_engine *engine)
{
    weir_ledger_tracker_init(&c->tracker, weir_engine_ledger(engine), WEIR_ACCOUNT_HTTP, NULL);
    c->before = weir_memory_tracker_set(&c->tracker.tracker);
}

static void end_charge(charge *c) { (void)weir_memory_tracker_set(c->before); }

/* Copies the result for the caller, with a terminating NUL. */
static weir_status copy_out(void **out, const void *bytes, size_t n, weir_error *error)
{
    char *const copy = weir_memory_take(n + 1);
    if (copy == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for %zu bytes", n);
    if (n > 0) memcpy(copy, bytes, n);
    copy[n] = '\0';
    *out = copy;
    return WEIR_OK;
}

static weir_status copy_ids(int32_t **out, size_t *n, const weir_ids *ids, weir_error *error)
{
    void *copy = NULL;
    WEIR_TRY(copy_out(&copy, ids->data, ids->count * sizeof *ids->data, error));
    *out = copy;
    *n = ids->count;
    return WEIR_OK;
}

static weir_status need_tokenizer(const weir_engine *engine, weir_error *error)
{
    if (weir_engine_tokenizer(engine) != NULL) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "the model has no tokenizer: give tokens instead of text"
    );
}

weir_status weir_tokenize(
    const weir_engine *engine, const char *text, size_t length, int flags, int32_t **out,
    size_t *n_out, weir_error *error
)
{
    const weir_encode_options options = { .add_special = (flags & WEIR_TOKENIZE_BOS) != 0,
                                          .parse_special = (flags & WEIR_TOKENIZE_SPECIAL) != 0 };
    weir_ids ids = { 0 };
    charge c;
    if ((flags & ~(WEIR_TOKENIZE_BOS | WEIR_TOKENIZE_SPECIAL)) != 0)
        return weir_error_set(error, WEIR_EINVAL, "weir_tokenize: unknown flags %#x", flags);
    WEIR_TRY(need_tokenizer(engine, error));
    begin_charge(&c, engine);
    weir_status status =
        weir_tokenizer_encode(weir_engine_tokenizer(engine), &ids, text, length, &options, error);
    end_charge(&c);
    if (status == WEIR_OK) status = copy_ids(out, n_out, &ids, error);
    weir_ids_free(&ids);
    return status;
}

weir_status weir_detokenize(
    const weir_engine *engine, const int32_t *tokens, size_t n, char **out, size_t *length,
    weir_error *error
)
{
    weir_buffer text = { 0 };
    void *copy = NULL;
    charge c;
    WEIR_TRY(need_tokenizer(engine, error));
    begin_charge(&c, engine);
    weir_status status =
        weir_tokenizer_decode(weir_engine_tokenizer(engine), &text, tokens, n, true);
    end_charge(&c);
    status = status == WEIR_OK
                 ? copy_out(&copy, text.data, text.size, error)
                 : weir_error_set(error, status, "no memory for the text of %zu tokens", n);
    if (status == WEIR_OK) {
        *out = copy;
        *length = text.size;
    }
    weir_buffer_free(&text);
    return status;
}

int weir_token_is_eog(const weir_engine *engine, int32_t token)
{
    size_t n = 0;
    if (weir_engine_tokenizer(engine) == NULL) return 0;
    const int32_t *const ids = weir_tokenizer_stop_ids(weir_engine_tokenizer(engine), &n);
    for (size_t i = 0; i < n; i++)
        if (ids[i] == token) return 1;
    return 0;
}

/* ---- chats ----------------------------------------------------------------------------------- */
static weir_status need_chat(const weir_engine *engine, weir_error *error)
{
    WEIR_TRY(need_tokenizer(engine, error));
    if (weir_engine_chat(engine) != NULL) return WEIR_OK;
    const char *const problem = weir_engine_chat_problem(engine);
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "the model's chat template cannot be used: %s",
        problem != NULL ? problem : "it has none"
    );
}

static weir_status give_prompt(
    const weir_buffer *prompt, const weir_ids *ids, int32_t **out, size_t *n_out, char **text,
    weir_error *error
)
{
    void *copy = NULL;
    if (text != NULL) WEIR_TRY(copy_out(&copy, prompt->data, prompt->size, error));
    const weir_status status = out != NULL ? copy_ids(out, n_out, ids, error) : WEIR_OK;
    if (status == WEIR_OK && text != NULL)
        *text = copy;
    else
        weir_memory_give(copy);
    return status;
}

/* Holds an upper bound of what jansson, which uses the host program's allocator, needs for the
 * values of a text. */
static bool hold_values(weir_hold *hold, const char *text, size_t length)
{
    enum { VALUE = 128, CONTAINER = 256 };
    size_t bytes = 0, part;
    for (size_t i = 0; i < length; i++) {
        const bool opens = text[i] == '{' || text[i] == '[';
        bytes += opens ? CONTAINER : text[i] == ',' || text[i] == ':' ? VALUE : 0;
    }
    return weir_mul_size(&part, length, 2) && weir_add_size(&bytes, bytes, part) &&
           weir_hold_take(hold, bytes);
}

static weir_status parse(
    json_t **out, weir_hold *hold, const char *messages, size_t length, weir_error *error
)
{
    if (hold_values(hold, messages, length))
        return weir_json_parse_within(out, messages, length, "messages", &weir_json_request, error);
    return weir_error_set(
        error, WEIR_ENOMEM,
        "no memory for messages of %zu bytes; raise "
        "memory.host",
        length
    );
}

weir_status weir_render_chat(
    const weir_engine *engine, const char *messages, size_t length, int32_t **out, size_t *n_out,
    char **text, weir_error *error
)
{
    json_t *chat = NULL;
    weir_buffer prompt = { 0 };
    weir_ids ids = { 0 };
    weir_hold hold = { 0 };
    charge c;
    WEIR_TRY(need_chat(engine, error));
    begin_charge(&c, engine);
    weir_status status = parse(&chat, &hold, messages, length, error);
    if (status == WEIR_OK)
        status = weir_messages_render(
            out != NULL ? &ids : NULL, &prompt, weir_engine_tokenizer(engine),
            weir_engine_chat(engine), chat, (weir_messages_place){ .is_question = true }, error
        );
    end_charge(&c);
    if (status == WEIR_OK) status = give_prompt(&prompt, &ids, out, n_out, text, error);
    json_decref(chat);
    weir_hold_give(&hold);
    weir_buffer_free(&prompt);
    weir_ids_free(&ids);
    return status;
}
