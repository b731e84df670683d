/* engine/session/file/session_file_internal.h - the layout of session files
 * (docs/session-format.md), shared by writer and reader. */
#pragma once
#include <xxhash.h>

#include "engine/session/file/session_file.h"

enum { SESSION_HEADER = WEIR_SESSION_ALIGNMENT, SESSION_PAGE_LAYOUT = 1 };

#define SESSION_MAGIC "WEIRSESS"

/* Types in the file are these numbers + 1. */
typedef enum session_section_type {
    SESSION_TOKENS,
    SESSION_SALT,
    SESSION_PLACES,
    SESSION_STATES,
    SESSION_PAGES,
    SESSION_ROWS, /* this and those behind it: version 3 */
    SESSION_POLICY_STATE,
    SESSION_UNSEALED_ROWS,
    SESSION_SECTIONS
} session_section_type;
enum { SESSION_SECTIONS_BEFORE = SESSION_ROWS }; /* of versions 1 and 2 */

typedef struct session_section {
    uint64_t offset, size,
        hash[2]; /* the hash is over the section and the zeros to the next multiple of 4096 */
} session_section;

/* Where everything is follows from the header's numbers alone; false when they are out of range. */
typedef struct session_layout {
    session_section sections[SESSION_SECTIONS]; /* [n_sections] */
    int n_sections;
    uint64_t file_bytes;
    int64_t n_heads, n_blocks; /* pages [n_blocks, n_heads] in the file */
} session_layout;
bool session_layout_of(session_layout *layout, const weir_session_header *header);

void session_header_encode(
    unsigned char out[SESSION_HEADER], const weir_session_header *header,
    const session_layout *layout
);
/* A header whose checksum is right; sections get the hashes that it holds. */
WEIR_MUST_CHECK weir_status session_header_decode(
    weir_session_header *header, session_layout *layout, const unsigned char bytes[SESSION_HEADER],
    uint64_t file_bytes, const char *path, weir_error *error
);

/* The section of the policy: these bytes, the turns, i32 each, the policy's text, its state. */
enum { SESSION_POLICY_FIXED = 40, SESSION_TURN = 8 };
/* Pages of a head with so many rows. */
static inline int64_t session_pages_of(int32_t rows)
{
    return ((int64_t)rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
}
/* Bytes of all pages of heads with so many rows. */
size_t session_pruned_pages_bytes(const weir_kv_spec *spec, const int32_t *head_rows);
/* What the header says of it: the name and the budget. */
void session_print_policy(char out[WEIR_SESSION_POLICY], const char *text, int64_t budget);
/* Header numbers of a text that is written. */
void session_header_of(
    weir_session_header *header, const weir_session_identity *identity,
    const weir_session_text *text
);

void session_put32(unsigned char *at, uint32_t value);
void session_put64(unsigned char *at, uint64_t value);
uint32_t session_get32(const unsigned char *at);
uint64_t session_get64(const unsigned char *at);

static inline uint64_t session_padded(uint64_t size)
{
    return (size + WEIR_SESSION_ALIGNMENT - 1) & ~(uint64_t)(WEIR_SESSION_ALIGNMENT - 1);
}
