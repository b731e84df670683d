/* engine/session/file/read_policy.c - reads the policy of a pruned sequence: its turns, its name
 * and options, its state. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/session/file/session_file_internal.h"

/* True if the turns follow each other to the end of the sequence. */
static bool are_turns(const weir_session_header *header, const weir_policy_history *past)
{
    int32_t at = 0;
    for (int32_t i = 0; i < past->n_turns; i++) {
        const weir_turn turn = past->turns[i];
        if (turn.prompt <= at || turn.end < turn.prompt) return false;
        at = turn.end;
    }
    return at == header->n_tokens && past->budget >= 1 && past->budget <= INT32_MAX &&
           past->n_pinned >= 0 && past->n_pinned <= past->turns[0].prompt;
}

weir_status weir_session_read_policy(
    weir_session_reader *reader, weir_session_pruned *out, void *memory, weir_error *error
)
{
    const weir_session_header *const header = weir_session_header_of(reader);
    char *const bytes = memory;
    const unsigned char *const at = memory;
    const size_t n = header->policy_bytes;
    WEIR_ASSERT(header->is_pruned);
    WEIR_TRY(session_read_whole(reader, SESSION_POLICY_STATE, memory, error));
    const uint32_t n_pinned = session_get32(at + 24), n_turns = session_get32(at + 28),
                   text = session_get32(at + 32);
    const size_t before = SESSION_POLICY_FIXED + (size_t)n_turns * SESSION_TURN;
    if (n_turns < 1 || n_turns > WEIR_TURNS || text < 1 || text > WEIR_SESSION_OPTIONS ||
        n < before + text || session_get32(at + 36) != 0)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: the sizes of its KV policy are out of range",
            session_path(reader)
        );
    weir_policy_history past = { .policy = { session_get64(at), session_get64(at + 8) },
                                 .budget = (int64_t)session_get64(at + 16),
                                 .n_pinned = (int32_t)n_pinned,
                                 .n_turns = (int32_t)n_turns };
    for (uint32_t i = 0; i < n_turns; i++) {
        const unsigned char *const turn = at + SESSION_POLICY_FIXED + i * SESSION_TURN;
        past.turns[i] = (weir_turn){ .prompt = (int32_t)session_get32(turn),
                                     .end = (int32_t)session_get32(turn + 4) };
    }
    if (!are_turns(header, &past) || memchr(bytes + before, '\0', text) != NULL)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: turns, budget or policy are out of range",
            session_path(reader)
        );
    out->past = past;
    /* Terminates the policy's text where the state began: the state moves by one byte, for which
     * the memory has space. */
    memmove(bytes + before + text + 1, bytes + before + text, n - before - text);
    bytes[before + text] = '\0';
    out->policy = bytes + before;
    out->state = bytes + before + text + 1;
    out->state_bytes = n - before - text;
    char name[WEIR_SESSION_POLICY];
    session_print_policy(name, out->policy, past.budget);
    if (strcmp(name, header->identity.policy) == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFORMAT, "%s: its header says that it was made with %s, its policy is %s",
        session_path(reader), header->identity.policy, name
    );
}
