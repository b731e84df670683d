/* engine/session/session_state.c - states as databases keep them (docs/session-format.md): one
 * of a sequence, in fewer bits if wanted, with the tokens after it; and one made of two. */
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/session/session_internal.h"

static const weir_model *model_of(const weir_sessions *s)
{
    return weir_runner_model(s->service->runner);
}

size_t weir_sessions_packed_bytes(const weir_sessions *sessions, int32_t state_bits)
{
    return state_bits == 0 ? 0 : weir_state_packed_bytes(model_of(sessions), state_bits);
}

/* Memory for states in transit, charged to the ledger. */
typedef struct scratch {
    void *memory;
    size_t bytes;
} scratch;

static weir_status take(const weir_sessions *s, scratch *out, size_t bytes, weir_error *error)
{
    out->bytes = bytes;
    return weir_ledger_alloc(
        s->service->ledger, &out->memory, WEIR_ACCOUNT_SNAPSHOTS, bytes, error
    );
}

static void give(const weir_sessions *s, scratch *taken)
{
    weir_ledger_free(s->service->ledger, taken->memory, WEIR_ACCOUNT_SNAPSHOTS, taken->bytes);
}

/* ---- to files -------------------------------------------------------------------------------- */
static weir_status write_file(
    const weir_sessions *s, const weir_session_content *content, int64_t max_bytes,
    const char *path, weir_session_result *result, weir_error *error
)
{
    const weir_session_content file = session_as_written(s, content);
    const size_t wanted = weir_session_file_bytes(&s->identity, &file);
    size_t written = 0;
    if (max_bytes > 0 && wanted > (size_t)max_bytes)
        return weir_error_set(
            error, WEIR_EFULL, "the state takes %zu bytes, %lld are left for states (states.disk)",
            wanted, (long long)max_bytes
        );
    WEIR_TRY(weir_session_write(path, &s->identity, &file, &written, error));
    *result = (weir_session_result){ .n_tokens = content->n_tokens, .n_bytes = (int64_t)written };
    return WEIR_OK;
}

/* Writes the sequence with the one state `state`, packed if wanted. */
static weir_status write_form(
    const weir_sessions *s, weir_session_content *content, const float *state, int64_t max_bytes,
    const char *path, weir_session_result *result, weir_error *error
)
{
    weir_session_form *const form = &content->form;
    weir_prefix_snapshot mark = { .at = content->n_tokens,
                                  .state =
                                      (float *)(uintptr_t)state }; /* The sequence is only read. */
    scratch packed = { 0 };
    content->states = &mark;
    content->n_states = state != NULL;
    if (form->state_bits == 0) return write_file(s, content, max_bytes, path, result, error);
    form->packed_bytes = state != NULL ? weir_state_packed_bytes(model_of(s), form->state_bits) : 0;
    if (form->packed_bytes == 0)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "no layer of this model keeps keys and values in a memory of fixed "
            "size, so its states cannot be packed in %d bits",
            (int)form->state_bits
        );
    WEIR_TRY(take(s, &packed, form->packed_bytes, error));
    weir_status status =
        weir_state_pack(model_of(s), state, form->state_bits, packed.memory, error);
    mark.state = packed.memory;
    if (status == WEIR_OK) status = write_file(s, content, max_bytes, path, result, error);
    give(s, &packed);
    return status;
}

weir_status session_write_state(
    session_transfer *own, const weir_session_request *save, const weir_state_request *state,
    const weir_session_content *shared, const char *path, weir_session_result *result,
    weir_error *error
)
{
    const weir_sessions *const s = own->sessions;
    weir_session_content content = *shared;
    const int32_t n_rest = save->tokens != NULL ? save->n_tokens - content.n_tokens : 0;
    if (content.pruned != NULL) {
        if (n_rest == 0 && state->state_bits == 0)
            return write_file(s, &content, state->max_bytes, path, result, error);
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "a KV policy has dropped rows of this sequence: its state cannot be packed or shortened"
        );
    }
    if (s->identity.state_bytes > 0 &&
        (own->n_marks < 1 || own->marks[own->n_marks - 1].at != content.n_tokens))
        return weir_error_set(
            error, WEIR_ENOTFOUND,
            "the state at the end of this sequence is no longer cached; compute it again"
        );
    if (save->tokens != NULL) content.tokens = save->tokens;
    content.form = (weir_session_form){ .state_bits = state->state_bits, .n_rest = n_rest };
    return write_form(
        s, &content, own->n_marks > 0 ? own->marks[own->n_marks - 1].state : NULL, state->max_bytes,
        path, result, error
    );
}

/* ---- from files ------------------------------------------------------------------------------ */
static weir_status check_packed(
    const weir_sessions *s, const weir_session_header *header, weir_error *error
)
{
    const size_t wanted = weir_state_packed_bytes(model_of(s), header->form.state_bits);
    if (wanted == header->form.packed_bytes) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFORMAT,
        "the file's state takes %zu bytes in %d bits, those of this model take %zu",
        header->form.packed_bytes, (int)header->form.state_bits, wanted
    );
}

weir_status session_read_states(
    const weir_sessions *s, weir_session_reader *reader, float *const *states, weir_error *error
)
{
    const weir_session_header *const header = weir_session_header_of(reader);
    scratch packed = { 0 };
    if (header->form.state_bits == 0) return weir_session_read_states(reader, states, error);
    WEIR_TRY(check_packed(s, header, error));
    WEIR_TRY(take(s, &packed, header->form.packed_bytes, error));
    float *const from[] = { packed.memory };
    weir_status status = weir_session_read_states(reader, from, error);
    if (status == WEIR_OK)
        status = weir_state_unpack(
            model_of(s), packed.memory, header->form.state_bits, states[0], error
        );
    give(s, &packed);
    return status;
}

/* ---- two as one ------------------------------------------------------------------------------ */
/* Reads the last state of a file, at the end of its sequence. The caller closes the reader. */
static weir_status read_last(
    const weir_sessions *s, weir_session_reader **reader, const char *path, float *state,
    weir_error *error
)
{
    float *states[WEIR_SESSION_STATES];
    int32_t places[WEIR_SESSION_STATES];
    for (int i = 0; i < WEIR_SESSION_STATES; i++) states[i] = state;
    WEIR_TRY(weir_session_open(reader, path, error));
    const weir_session_header *const header = weir_session_header_of(*reader);
    WEIR_TRY(weir_session_check(*reader, &s->identity, error));
    WEIR_TRY(weir_session_read_places(*reader, places, error));
    WEIR_TRY(session_read_states(s, *reader, states, error));
    if (places[header->n_states - 1] == header->n_tokens &&
        weir_runner_is_state(s->service->runner, state, header->n_tokens))
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFORMAT,
        "%s: its last state cannot be one of this model at the end of its tokens", path
    );
}

/* The numerics of the file if they are others; else NULL. */
static const weir_numerics *others_of(const weir_sessions *s, const weir_session_reader *reader)
{
    const weir_numerics *const theirs = &weir_session_header_of(reader)->identity.numerics;
    return weir_numerics_are_equal(theirs, &s->identity.numerics) ? NULL : theirs;
}

/* Uses tokens and salt of the later state; every layer has banks, so there are no pages. */
static weir_status write_merged(
    const weir_sessions *s, const weir_merge_request *request, const weir_session_reader *earlier,
    weir_session_reader *later, const float *state, const char *path, weir_session_result *result,
    weir_error *error
)
{
    const weir_session_header *const header = weir_session_header_of(later);
    const weir_numerics *const others = others_of(s, later);
    char salt[WEIR_PREFIX_SALT + 1];
    scratch tokens = { 0 };
    WEIR_TRY(take(
        s, &tokens, ((size_t)header->n_tokens + (size_t)header->form.n_rest) * sizeof(int32_t),
        error
    ));
    weir_session_content content = { .tokens = tokens.memory,
                                     .n_tokens = header->n_tokens,
                                     .salt = salt,
                                     .spec = weir_kv_store_spec(s->service->store),
                                     .numerics = others != NULL ? others : others_of(s, earlier),
                                     .form = { .state_bits = request->state.state_bits,
                                               .n_rest = header->form.n_rest,
                                               .is_merged = true } };
    weir_status status = weir_session_read_tokens(later, tokens.memory, s->n_vocab, error);
    if (status == WEIR_OK) status = weir_session_read_salt(later, salt, error);
    if (status == WEIR_OK)
        status = write_form(s, &content, state, request->state.max_bytes, path, result, error);
    give(s, &tokens);
    return status;
}

static weir_status merge(
    const weir_sessions *s, const weir_merge_request *request, const char *path,
    const scratch *memory, weir_state_merged *merged, weir_session_result *result, weir_error *error
)
{
    const size_t n = (size_t)s->identity.state_bytes / sizeof(float);
    float *const earlier = memory->memory, *const later = earlier + n, *const out = later + n;
    weir_session_reader *first = NULL, *second = NULL;
    weir_status status = read_last(s, &first, request->earlier, earlier, error);
    if (status == WEIR_OK) status = read_last(s, &second, request->later, later, error);
    if (status == WEIR_OK) {
        weir_state_merge(model_of(s), earlier, later, out, out + n, merged);
        status = write_merged(s, request, first, second, out, path, result, error);
    }
    weir_session_close(first);
    weir_session_close(second);
    return status;
}

weir_status weir_sessions_merge(
    const weir_sessions *sessions, const weir_merge_request *request, const char *path,
    weir_state_merged *merged, weir_session_result *result, weir_error *error
)
{
    const int64_t start = weir_clock_ns();
    const char *const problem = weir_state_merge_problem(model_of(sessions));
    scratch memory = { 0 };
    if (problem != NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "states of this model cannot be merged: %s", problem
        );
    WEIR_TRY(take(
        sessions, &memory,
        3 * (size_t)sessions->identity.state_bytes + weir_state_merge_scratch(model_of(sessions)),
        error
    ));
    const weir_status status = merge(sessions, request, path, &memory, merged, result, error);
    give(sessions, &memory);
    if (status == WEIR_OK) result->time_ns = weir_clock_ns() - start;
    return status;
}
