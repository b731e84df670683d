/* engine/session/file/session_file.h - a kept text in a file: token ids, KV pages and recurrent states, for a
 * process that comes later.
 *
 * docs/session-format.md has the layout. A file appears under its name whole or not at all; what is
 * read is believed only after its checksum. Texts whose format has open rows are cut at whole pages
 * before they come here. Pages go out and come in as bytes: what they hold is the business of the
 * KV format that the header names. */
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/kv/tiers/residency.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_SESSION_VERSION = 5,
    WEIR_SESSION_ALIGNMENT = 4096,
    WEIR_SESSION_FORMAT = 80,
    WEIR_SESSION_SINK_FORMAT = 32,
    WEIR_SESSION_POLICY = 64,
    WEIR_SESSION_STATES = 16,
    WEIR_SESSION_OPTIONS = 4096 /* bytes of a policy's name and options, at most */
};

/* What must be equal for rows of one process to be of use to another. */
typedef struct weir_session_identity {
    uint64_t model[2]; /* digest of architecture, shapes and weights */
    uint64_t tokenizer[2]; /* digest of the vocabulary; 0: none */
    char format[WEIR_SESSION_FORMAT]; /* of K and V rows, with the layers that differ */
    char
        sink_format[WEIR_SESSION_SINK_FORMAT]; /* of the first n_sinks blocks; "": there are none */
    /* Which rows stay: "full:0" of an engine; "NAME:BUDGET" of the file of a text that a policy
     * watched */
    char policy[WEIR_SESSION_POLICY];
    int64_t n_layers, n_heads, state_bytes; /* n_heads: KV heads of all layers */
    /* [n_layers], borrowed; NULL in a header that was read: weir_session_check_layers */
    const weir_kv_geometry *geometry;
    int64_t block_bytes; /* the pages of 64 tokens over all layers and heads */
    int64_t n_sinks, sink_block_bytes; /* blocks of every text, the pages of one; 0 */
} weir_session_identity;

/* Where the bytes of a text come from that may be taken away while it is written. ECANCELED: they
 * were. Bytes are aligned to 4096. */
typedef struct weir_session_source {
    /* weir_kv_page_stride of them */
    weir_status (*page)(void *user, void *bytes, int64_t block, int64_t head, weir_error *error);
    weir_status (*state)(
        void *user, void *bytes, int32_t state, size_t at, size_t n, weir_error *error
    );
    void *user;
    void *memory; /* weir_session_copy_bytes, for what was copied and is not written yet */
} weir_session_source;

/* What a policy left of a text and remembers of it. */
typedef struct weir_session_pruned {
    const int32_t *head_rows; /* [KV heads of all layers] rows that are there */
    /* weir_kv_open_rows_bytes: rows that wait for their page to be full; NULL: no format has any */
    const void *open;
    weir_policy_history past; /* the last turn ends with the text */
    const char *policy; /* as weir_policy_options_print prints it */
    const void *state; /* as weir_policy_write leaves it */
    size_t state_bytes;
} weir_session_pruned;

/* How a file keeps a text that is asked from more than continued; zero: as it is in memory. A state
 * that is not exact is the only one of its file. */
typedef struct weir_session_form {
    /* 8, 4: of keys and values in states, which then take packed_bytes each; 0: states are as in
     * memory */
    int32_t state_bits;
    int32_t n_rest; /* tokens behind the text that are known and not computed */
    size_t packed_bytes;
    /* The state is made of those of several texts, the last of which has the tokens */
    bool is_merged;
} weir_session_form;

/* The state is what computing the tokens leaves, to the bit. */
static inline bool weir_session_form_is_exact(const weir_session_form *form)
{
    return form->state_bits == 0 && !form->is_merged;
}

/* A text to be written: all borrowed, and not changed meanwhile. */
typedef struct weir_session_text {
    const int32_t *tokens; /* [n_tokens + form.n_rest] */
    int32_t n_tokens, n_states;
    const char *salt; /* as weir_prefix_next gives it */
    void *const
        *pages; /* [KV heads of all layers, page_stride]: the first (n_tokens + 63) / 64 of each */
    int64_t page_stride;
    const weir_kv_spec *spec; /* of the pages */
    weir_kv_store
        *store; /* whose pages may be on disk, and move meanwhile; NULL: they are in memory */
    const weir_prefix_snapshot
        *states; /* [n_states], ascending; at most WEIR_SESSION_STATES; packed
                                       ones in form.packed_bytes */
    const weir_session_source *source; /* NULL: `pages` and the states' memory are read */
    /* NULL: every row is there. Else at most one state, after all tokens, and no source */
    const weir_session_pruned *pruned;
    bool is_automatic; /* nobody asked for it: may be deleted when there are too many */
    weir_session_form form; /* not with cut */
} weir_session_text;

size_t weir_session_copy_bytes(const weir_kv_spec *spec);
/* 0: out of range. */
size_t weir_session_file_bytes(
    const weir_session_identity *identity, const weir_session_text *text
);
WEIR_MUST_CHECK weir_status weir_session_write(
    const char *path, const weir_session_identity *identity, const weir_session_text *text,
    size_t *n_bytes, weir_error *error
);

typedef struct weir_session_header {
    weir_session_identity identity;
    int64_t created; /* seconds since 1970 */
    size_t bytes, salt_bytes;
    int32_t n_tokens, n_states;
    weir_session_form form;
    bool is_automatic;
    bool is_pruned; /* a policy watched it */
    size_t pages_bytes, policy_bytes, open_bytes; /* of such a text's sections */
} weir_session_header;

typedef struct weir_session_reader weir_session_reader;

/* Reads and checks the header. EFORMAT: damaged, or no session; EUNSUPPORTED: of another version;
 * EIO, ENOTFOUND. */
WEIR_MUST_CHECK weir_status
weir_session_open(weir_session_reader **out, const char *path, weir_error *error);
/* Pages and open rows that are read from now on are near the kernels of this ledger, which is
 * borrowed. */
void weir_session_read_near(weir_session_reader *reader, const weir_ledger *ledger);
void weir_session_close(weir_session_reader *reader); /* NULL-safe */
const weir_session_header *weir_session_header_of(const weir_session_reader *reader);
/* EMISMATCH: the text says what differs. Of a text that a policy watched the policy is not looked
 * at: who asks for it has it or has not. */
WEIR_MUST_CHECK weir_status weir_session_check(
    weir_session_reader *reader, const weir_session_identity *own, weir_error *error
);

/* The part of it about what each layer keeps, which is in a section of its own: EFORMAT when that
 * is damaged. */
WEIR_MUST_CHECK weir_status weir_session_check_layers(
    weir_session_reader *reader, const weir_kv_geometry *own, weir_error *error
);

/* It is of a state database (engine/states), and no session. */
static inline bool weir_session_has_form(const weir_session_header *header)
{
    return header->form.n_rest > 0 || !weir_session_form_is_exact(&header->form);
}
/* Bytes of a state in the file. */
size_t weir_session_state_bytes(const weir_session_header *header);
/* The other sections, in the order of the file. On failure what was written to is of no use. tokens
 * [n_tokens + form.n_rest]: below n_vocab. */
WEIR_MUST_CHECK weir_status weir_session_read_tokens(
    weir_session_reader *reader, int32_t *tokens, int32_t n_vocab, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_session_read_salt(
    weir_session_reader *reader, char salt[WEIR_PREFIX_SALT + 1], weir_error *error
);
/* places [n_states]: ascending numbers of tokens. */
WEIR_MUST_CHECK weir_status
weir_session_read_places(weir_session_reader *reader, int32_t *places, weir_error *error);
/* states [n_states] of weir_session_state_bytes each; two may be the same memory, which then holds
 * the later one. */
WEIR_MUST_CHECK weir_status
weir_session_read_states(weir_session_reader *reader, float *const *states, weir_error *error);
WEIR_MUST_CHECK weir_status weir_session_read_pages(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const weir_kv_spec *spec,
    weir_error *error
);
/* ---- of a text that a policy watched (header is_pruned) -------------------------------------- */
/* head_rows [KV heads of all layers], at most n_tokens each; the pages are those of these rows. */
WEIR_MUST_CHECK weir_status weir_session_read_rows(
    weir_session_reader *reader, int32_t *head_rows, const weir_kv_spec *spec, weir_error *error
);
/* Into `memory` [policy_bytes of the header + 1]; out->policy and out->state lie in it,
 * out->head_rows and out->open are left alone. Turns are checked, the state is what its policy
 * makes of it. */
WEIR_MUST_CHECK weir_status weir_session_read_policy(
    weir_session_reader *reader, weir_session_pruned *out, void *memory, weir_error *error
);
/* open_bytes of the header */
WEIR_MUST_CHECK weir_status
weir_session_read_open(weir_session_reader *reader, void *open, weir_error *error);
WEIR_MUST_CHECK weir_status weir_session_read_pruned_pages(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const int32_t *head_rows,
    const weir_kv_spec *spec, weir_error *error
);

/* weir_session_read_pages in pieces: the pages of blocks [first, end), from 0 upwards without gaps;
 * those before them may have moved. The last piece finds out whether the checksum of all is
 * right. */
WEIR_MUST_CHECK weir_status weir_session_read_blocks(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const weir_kv_spec *spec,
    int64_t first, int64_t end, weir_error *error
);

#ifdef __cplusplus
}
#endif
