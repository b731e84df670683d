/* engine/session/file/session_file.h - a cached sequence in a file: token ids, KV pages and
 * recurrent states, for a later process.
 *
 * docs/session-format.md has the layout. A file appears under its name complete or not at all; a
 * section is used only if its checksum is right. Sequences whose format has unsealed pages are cut
 * at whole pages before they are saved. Pages are written and read as bytes; their content is
 * defined by the KV format that the header names. */
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/kv/tiers/residency.h"
#include "engine/session/file/numerics.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_SESSION_VERSION = 7,
    WEIR_SESSION_ALIGNMENT = 4096,
    WEIR_SESSION_FORMAT = 80,
    WEIR_SESSION_SINK_FORMAT = 32,
    WEIR_SESSION_POLICY = 64,
    WEIR_SESSION_STATES = 16,
    WEIR_SESSION_OPTIONS = 4096 /* most bytes of a policy's name and options */
};

/* How far a file is that one thread writes or reads while others watch: atomic operations only. */
typedef struct weir_session_progress {
    int64_t done, total; /* bytes */
    bool is_stopped; /* set by others: a read fails with ECANCELED before its next piece */
    /* Not atomic. Called after each piece that is written: pauses as long, if others compute. NULL:
     * it need not. */
    void (*give_way)(void *user, int64_t ns);
    void *user;
} weir_session_progress;
static inline void weir_session_progress_begin(weir_session_progress *progress, int64_t total)
{
    __atomic_store_n(&progress->done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&progress->total, total, __ATOMIC_RELAXED);
}
static inline void weir_session_progress_add(weir_session_progress *progress, int64_t n)
{
    if (progress != NULL) (void)__atomic_fetch_add(&progress->done, n, __ATOMIC_RELAXED);
}

/* What must be equal for another process to use the rows. */
typedef struct weir_session_identity {
    uint64_t model[2]; /* digest of architecture, shapes and weights, without an adapter */
    uint64_t tokenizer[2]; /* digest of the vocabulary; 0: none */
    char format[WEIR_SESSION_FORMAT]; /* of K and V rows, with the layers that differ */
    /* Format of the first n_sinks blocks; "": there are none. */
    char sink_format[WEIR_SESSION_SINK_FORMAT];
    /* "full:0" for an engine; "NAME:BUDGET" for the file of a sequence with a policy. */
    char policy[WEIR_SESSION_POLICY];
    int64_t n_layers, n_heads, state_bytes; /* n_heads: KV heads of all layers */
    /* Layers that keep only the rows that their window reads, which no other number counts, the
     * longest window, and bytes of their block of 64 tokens; 0: there are none. */
    int64_t n_window_layers, window, window_block_bytes;
    /* [n_layers + n_window_layers], borrowed; NULL in a header that was read: the geometry in the
     * file is checked by weir_session_check_layers. */
    const weir_kv_geometry *geometry;
    int64_t block_bytes; /* of the pages of 64 tokens over all layers and heads */
    /* Sink blocks of every sequence, and bytes of the pages of one; 0: none. */
    int64_t n_sinks, sink_block_bytes;
    weir_numerics numerics; /* that the rows are computed with */
    /* Of an engine: files of other numerics are continued too (sessions.numerics). Not in files. */
    bool takes_any_numerics;
} weir_session_identity;

/* Copies bytes [at, at + n) of part i. */
typedef weir_status weir_session_copy(
    void *user, void *bytes, int64_t i, size_t at, size_t n, weir_error *error
);

/* Source of a sequence's bytes that may be revoked while it is written; then ECANCELED. Bytes are
 * aligned to 4096. */
typedef struct weir_session_source {
    /* Copies a page of weir_kv_page_stride bytes. */
    weir_status (*page)(void *user, void *bytes, int64_t block, int64_t head, weir_error *error);
    weir_session_copy *state; /* i: the state */
    weir_session_copy *window; /* i: the window block, of those in the file */
    void *user;
    /* [weir_session_copy_bytes] for what is copied and not written yet. */
    void *memory;
} weir_session_source;

/* What a policy left of a sequence, and its state. */
typedef struct weir_session_pruned {
    const int32_t *head_rows; /* [KV heads of all layers] rows of each head */
    /* Unsealed rows of all heads, weir_kv_unsealed_rows_bytes; NULL: no format has any. */
    const void *unsealed;
    weir_policy_history past; /* the last turn ends with the sequence */
    const char *policy; /* printed by weir_policy_options_print */
    const void *state; /* written by weir_policy_write */
    size_t state_bytes;
} weir_session_pruned;

/* How a state database stores a sequence; zero: as it is in memory. A file with a state that is not
 * exact holds no other state. */
typedef struct weir_session_form {
    /* Bits of keys and values in states (8 or 4), which then take packed_bytes each; 0: states are
     * as in memory. */
    int32_t state_bits;
    int32_t n_rest; /* known tokens after the sequence that are not computed */
    size_t packed_bytes;
    /* The state is merged from those of several sequences; the tokens are those of the last. */
    bool is_merged;
} weir_session_form;

/* True if the state equals what computing the tokens gives, bit for bit. */
static inline bool weir_session_form_is_exact(const weir_session_form *form)
{
    return form->state_bits == 0 && !form->is_merged;
}

/* Window blocks of a sequence (engine/kv/pool/windows.h), from the first that row n_tokens reads to
 * its last: block i is at memory + blocks[i] * weir_kv_windows_block_bytes. */
typedef struct weir_session_windows {
    char *memory;
    const int32_t *blocks;
} weir_session_windows;
static inline weir_session_windows weir_session_windows_of(
    const weir_kv_table *table, const weir_kv_store *store
)
{
    const weir_kv_windows *const windows = weir_kv_store_windows(store);
    return windows == NULL ? (weir_session_windows){ NULL, NULL }
                           : (weir_session_windows){ (char *)weir_kv_window_memory(windows, 0),
                                                     table->windows.blocks };
}

/* A sequence to be written: all borrowed, and unchanged meanwhile. */
typedef struct weir_session_content {
    const int32_t *tokens; /* [n_tokens + form.n_rest] */
    int32_t n_tokens, n_states;
    const char *salt; /* as weir_prefix_next returns it */
    /* [KV heads of all layers, page_stride]: the first (n_tokens + 63) / 64 pages of each. */
    void *const *pages;
    int64_t page_stride;
    const weir_kv_spec *spec; /* of the pages */
    weir_session_windows windows; /* zero: there are none, or there is a source */
    /* Set if its pages may be on disk or move meanwhile; NULL: they are in memory. */
    weir_kv_store *store;
    /* [n_states], ascending; at most WEIR_SESSION_STATES. Packed ones in form.packed_bytes [2L]. */
    const weir_prefix_snapshot *states;
    /* NULL: reads `pages` and the states' memory. */
    const weir_session_source *source;
    /* NULL: every row is there. Otherwise at most one state, after all tokens, and no source. */
    const weir_session_pruned *pruned;
    bool is_automatic; /* saved without a request: may be deleted when there are too many */
    weir_session_form form; /* not with `pruned` */
    /* NULL: those of the identity. Otherwise the sequence was begun with these and continued with
     * others: the file says so, and "same" continues it nowhere. */
    const weir_numerics *numerics;
    weir_session_progress *progress; /* may be NULL */
} weir_session_content;

size_t weir_session_copy_bytes(const weir_kv_spec *spec);
/* Returns 0 if out of range. */
size_t weir_session_file_bytes(
    const weir_session_identity *identity, const weir_session_content *content
);
WEIR_MUST_CHECK weir_status weir_session_write(
    const char *path, const weir_session_identity *identity, const weir_session_content *content,
    size_t *n_bytes, weir_error *error
);

typedef struct weir_session_header {
    weir_session_identity identity;
    int64_t created; /* seconds since 1970 */
    size_t bytes, salt_bytes;
    int32_t n_tokens, n_states;
    weir_session_form form;
    bool is_automatic;
    bool is_pruned; /* the sequence has a policy */
    size_t pages_bytes, policy_bytes, unsealed_bytes; /* Sections of a sequence with a policy. */
} weir_session_header;

typedef struct weir_session_reader weir_session_reader;

/* Reads and checks the header. Returns EFORMAT if it is damaged or no session, EUNSUPPORTED for
 * another version, EIO, ENOTFOUND. */
WEIR_MUST_CHECK weir_status
weir_session_open(weir_session_reader **out, const char *path, weir_error *error);
/* From now on, pages and unsealed pages are read into this ledger's device memory; borrowed. */
void weir_session_read_near(weir_session_reader *reader, const weir_ledger *ledger);
/* From now on, counts what is read and stops when asked; borrowed. */
void weir_session_read_with(weir_session_reader *reader, weir_session_progress *progress);
void weir_session_close(weir_session_reader *reader); /* NULL-safe */
const weir_session_header *weir_session_header_of(const weir_session_reader *reader);
/* Returns EMISMATCH with a message that says what differs; numerics last. The policy of a sequence
 * is checked by the caller. */
WEIR_MUST_CHECK weir_status weir_session_check(
    weir_session_reader *reader, const weir_session_identity *own, weir_error *error
);

/* The part of the check that compares the geometry of the layers, which has its own section.
 * Returns EMISMATCH, or EFORMAT if the section is damaged. */
WEIR_MUST_CHECK weir_status weir_session_check_layers(
    weir_session_reader *reader, const weir_kv_geometry *own, weir_error *error
);

/* True for a file of a state database (engine/states), which is no session. */
static inline bool weir_session_has_form(const weir_session_header *header)
{
    return header->form.n_rest > 0 || !weir_session_form_is_exact(&header->form);
}
/* Bytes of a state in the file. */
size_t weir_session_state_bytes(const weir_session_header *header);
/* These functions read the other sections, in the order of the file. On failure the contents of the
 * output are undefined. tokens [n_tokens + form.n_rest]: all are below n_vocab. */
WEIR_MUST_CHECK weir_status weir_session_read_tokens(
    weir_session_reader *reader, int32_t *tokens, int32_t n_vocab, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_session_read_salt(
    weir_session_reader *reader, char salt[WEIR_PREFIX_SALT + 1], weir_error *error
);
/* places [n_states]: ascending token counts. */
WEIR_MUST_CHECK weir_status
weir_session_read_places(weir_session_reader *reader, int32_t *places, weir_error *error);
/* states [n_states], weir_session_state_bytes each; two may share memory, which then holds the
 * later one. */
WEIR_MUST_CHECK weir_status
weir_session_read_states(weir_session_reader *reader, float *const *states, weir_error *error);
WEIR_MUST_CHECK weir_status weir_session_read_pages(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const weir_kv_spec *spec,
    weir_error *error
);
/* After the pages; also without such layers. */
WEIR_MUST_CHECK weir_status weir_session_read_windows(
    weir_session_reader *reader, const weir_session_windows *windows,
    const weir_kv_windows_spec *spec, weir_error *error
);
/* ---- sequences with a policy (header is_pruned) ---------------------------------------------- */
/* head_rows [KV heads of all layers]: at most n_tokens each. The file has pages for these rows. */
WEIR_MUST_CHECK weir_status weir_session_read_rows(
    weir_session_reader *reader, int32_t *head_rows, const weir_kv_spec *spec, weir_error *error
);
/* Reads into `memory` [policy_bytes of the header + 1]; out->policy and out->state point into it.
 * Does not set out->head_rows and out->unsealed. The turns are checked; the state is checked by its
 * policy. */
WEIR_MUST_CHECK weir_status weir_session_read_policy(
    weir_session_reader *reader, weir_session_pruned *out, void *memory, weir_error *error
);
/* unsealed: [unsealed_bytes of the header]. */
WEIR_MUST_CHECK weir_status
weir_session_read_unsealed(weir_session_reader *reader, void *unsealed, weir_error *error);
WEIR_MUST_CHECK weir_status weir_session_read_pruned_pages(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const int32_t *head_rows,
    const weir_kv_spec *spec, weir_error *error
);

/* weir_session_read_pages in pieces: the pages of blocks [first, end), from 0 upwards without gaps;
 * earlier ones may have moved. The last piece checks the checksum of all. */
WEIR_MUST_CHECK weir_status weir_session_read_blocks(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const weir_kv_spec *spec,
    int64_t first, int64_t end, weir_error *error
);

#ifdef __cplusplus
}
#endif
