/* engine/session/file/session_file_internal.h - the layout of session files
 * (docs/session-format.md), shared by writer and reader. */
#pragma once
#include <xxhash.h>

#include "engine/session/file/session_file.h"

enum { SESSION_HEADER = WEIR_SESSION_ALIGNMENT, SESSION_PAGE_LAYOUT = 1 };

#define SESSION_MAGIC "WEIRSESS"

/* The types in the file are these numbers + 1. */
typedef enum session_section_type {
    SESSION_LAYERS,
    SESSION_TOKENS,
    SESSION_SALT,
    SESSION_PLACES,
    SESSION_STATES,
    SESSION_PAGES,
    SESSION_WINDOWS,
    SESSION_ROWS, /* this and later ones: only of sequences with a policy */
    SESSION_POLICY_STATE,
    SESSION_UNSEALED_ROWS,
    SESSION_SECTIONS
} session_section_type;
enum { SESSION_SECTIONS_WHOLE = SESSION_ROWS }; /* of sequences without a policy */

typedef struct session_section {
    /* Over the section and the zeros up to the next multiple of 4096. */
    uint64_t offset, size, hash[2];
} session_section;

/* All offsets follow from the header's numbers alone. Returns false if they are out of range. */
typedef struct session_layout {
    session_section sections[SESSION_SECTIONS]; /* [n_sections] */
    int n_sections;
    uint64_t file_bytes;
    int64_t n_heads, n_blocks; /* pages [n_blocks, n_heads] in the file */
    int64_t first_window; /* window blocks first_window .. n_blocks - 1 are in the file */
} session_layout;
bool session_layout_of(session_layout *layout, const weir_session_header *header);

void session_header_encode(
    unsigned char out[SESSION_HEADER], const weir_session_header *header,
    const session_layout *layout
);
/* Decodes a header whose checksum is right; sets the sections' hashes. */
WEIR_MUST_CHECK weir_status session_header_decode(
    weir_session_header *header, session_layout *layout, const unsigned char bytes[SESSION_HEADER],
    uint64_t file_bytes, const char *path, weir_error *error
);

/* Bytes of a layer: u32 KV heads, key width, value width, window. */
enum { SESSION_LAYER = 16 };
void session_put_layer(unsigned char *at, const weir_kv_geometry *layer);

/* The policy section: these bytes, the turns (i32 each), the policy's text, its state. */
enum { SESSION_POLICY_FIXED = 40, SESSION_TURN = 8 };
/* Pages of a head with this many rows. */
static inline int64_t session_pages_of(int32_t rows)
{
    return ((int64_t)rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
}
/* Bytes of all pages of heads with these row counts. */
size_t session_pruned_pages_bytes(const weir_kv_spec *spec, const int32_t *head_rows);
/* Prints "NAME:BUDGET" for the header. */
void session_print_policy(char out[WEIR_SESSION_POLICY], const char *text, int64_t budget);
/* Fills in the header of a sequence that is written. */
void session_header_of(
    weir_session_header *header, const weir_session_identity *identity,
    const weir_session_content *content
);

const char *session_path(const weir_session_reader *reader); /* the path of the file */
/* Reads a section and checks its hash. */
WEIR_MUST_CHECK weir_status session_read_whole(
    weir_session_reader *reader, session_section_type type, void *out, weir_error *error
);

void session_put32(unsigned char *at, uint32_t value);
void session_put64(unsigned char *at, uint64_t value);
uint32_t session_get32(const unsigned char *at);
uint64_t session_get64(const unsigned char *at);

static inline uint64_t session_padded(uint64_t size)
{
    return (size + WEIR_SESSION_ALIGNMENT - 1) & ~(uint64_t)(WEIR_SESSION_ALIGNMENT - 1);
}
