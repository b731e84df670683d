/* engine/session/file/check.c - checks that a session file belongs to this model, format, policy
 * and numerics. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/session/file/session_file_internal.h"

static void print_sinks(char *out, size_t size, const weir_session_identity *id)
{
    if (id->n_sinks == 0)
        (void)snprintf(out, size, "none");
    else
        (void
        )snprintf(out, size, "%" PRId64 " in %s", id->n_sinks * WEIR_PAGE_TOKENS, id->sink_format);
}

weir_status weir_session_check(
    weir_session_reader *reader, const weir_session_identity *own, weir_error *error
)
{
    const weir_session_header *const header = weir_session_header_of(reader);
    const weir_session_identity *const id = &header->identity;
    const char *const path = session_path(reader);
    const struct {
        const char *name;
        int64_t theirs, ours;
    } numbers[] = { { "layers with KV", id->n_layers, own->n_layers },
                    { "KV heads in all layers", id->n_heads, own->n_heads },
                    { "bytes per 64 tokens", id->block_bytes, own->block_bytes },
                    { "bytes per 64 wide tokens", id->sink_block_bytes, own->sink_block_bytes },
                    { "tokens in a window", id->window, own->window },
                    { "bytes per 64 tokens in a window", id->window_block_bytes,
                      own->window_block_bytes },
                    { "bytes per state", id->state_bytes, own->state_bytes } };
    if (strcmp(id->format, own->format) != 0)
        return weir_error_set(
            error, WEIR_EMISMATCH, "%s: its KV format is %s, the one here is %s (kv.format)", path,
            id->format, own->format
        );
    if (id->n_sinks != own->n_sinks || strcmp(id->sink_format, own->sink_format) != 0) {
        char theirs[WEIR_SESSION_SINK_FORMAT + 64], ours[sizeof theirs];
        print_sinks(theirs, sizeof theirs, id);
        print_sinks(ours, sizeof ours, own);
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "%s: format of the first tokens: %s, here %s (kv.wide_sinks, "
            "kv.wide_format)",
            path, theirs, ours
        );
    }
    if ((id->n_window_layers > 0) != (own->n_window_layers > 0))
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "%s: of layers with a window it has %s, here they keep %s (kv.full_windows)", path,
            id->n_window_layers > 0 ? "the rows of the window" : "all rows",
            own->n_window_layers > 0 ? "those of the window" : "all"
        );
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].theirs != numbers[i].ours)
            return weir_error_set(
                error, WEIR_EMISMATCH,
                "%s: of another model: %" PRId64 " %s, the model here has %" PRId64, path,
                numbers[i].theirs, numbers[i].name, numbers[i].ours
            );
    WEIR_TRY(weir_session_check_layers(reader, own->geometry, error));
    if (memcmp(id->model, own->model, sizeof id->model) != 0)
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "%s: of another model: its digest is %016" PRIx64
            ", that of the model here %016" PRIx64,
            path, id->model[0], own->model[0]
        );
    if (memcmp(id->tokenizer, own->tokenizer, sizeof id->tokenizer) != 0)
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "%s: made with another tokenizer: its digest is %016" PRIx64 ", here %016" PRIx64, path,
            id->tokenizer[0], own->tokenizer[0]
        );
    if (!header->is_pruned && strcmp(id->policy, own->policy) != 0)
        return weir_error_set(
            error, WEIR_EMISMATCH, "%s: made with the policy %s, the one here is %s (kv.policy)",
            path, id->policy, own->policy
        );
    return own->takes_any_numerics
               ? WEIR_OK
               : weir_numerics_check(&id->numerics, &own->numerics, path, error);
}
