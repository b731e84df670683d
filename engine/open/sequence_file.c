/* engine/open/sequence_file.c - saves a sequence to a file and restores it in another process, for
 * the library. The file is a session file (docs/session-format.md). */
#include "engine/base/memory.h"
#include "engine/open/engine_internal.h"

static weir_status need_sessions(const weir_engine *engine, weir_error *error)
{
    if (engine->sessions != NULL) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "with kv.reuse = \"off\" nothing is cached that could be saved; set it to "
        "\"on\""
    );
}

/* The last token is left to compute, so that a prompt of exactly these tokens can continue from the
 * file. */
weir_status weir_engine_write_sequence(
    weir_engine *engine, const int32_t *tokens, int32_t n_tokens, const char *salt,
    const char *path, weir_session_result *result, weir_error *error
)
{
    const weir_session_request request = {
        .name = "text", .salt = salt, .tokens = tokens, .n_tokens = n_tokens
    };
    WEIR_TRY(need_sessions(engine, error));
    return weir_sessions_write_sequence(engine->sessions, &request, path, result, error);
}

static weir_status read_tokens(
    weir_engine *engine, weir_ids *out, weir_session_reader *reader, weir_error *error
)
{
    const weir_session_header *const header = weir_session_header_of(reader);
    const int64_t n = (int64_t)header->n_tokens + header->form.n_rest;
    const int32_t n_vocab = weir_service_facts_of(engine->service)->n_vocab;
    WEIR_TRY(weir_session_check(reader, weir_sessions_identity_of(engine->sessions), error));
    if (n > engine->plan.facts.window)
        return weir_error_set(
            error, WEIR_EFULL, "%lld tokens, the window here is %d; raise model.context",
            (long long)n, (int)engine->plan.facts.window
        );
    int32_t *const tokens = weir_memory_take((size_t)n * sizeof *tokens);
    if (tokens == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %lld tokens", (long long)n);
    weir_status status = weir_session_read_tokens(reader, tokens, n_vocab, error);
    for (int64_t i = 0; status == WEIR_OK && i < n; i++) status = weir_ids_add(out, tokens[i]);
    weir_memory_give(tokens);
    return status;
}

weir_status weir_engine_read_sequence(
    weir_engine *engine, weir_ids *tokens, const char *salt, const char *path,
    weir_session_result *result, weir_error *error
)
{
    weir_session_reader *reader = NULL;
    WEIR_TRY(need_sessions(engine, error));
    WEIR_TRY(weir_session_open(&reader, path, error));
    weir_status status = read_tokens(engine, tokens, reader, error);
    weir_session_close(reader);
    if (status == WEIR_OK) status = weir_sessions_read(engine->sessions, path, salt, result, error);
    return status;
}
