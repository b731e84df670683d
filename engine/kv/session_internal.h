/* engine/kv/session_internal.h - the layout of session files (docs/session-format.md), shared by writer and reader. */
#pragma once
#include <xxhash.h>

#include "engine/kv/session_file.h"

enum { SESSION_HEADER = WEIR_SESSION_ALIGNMENT, SESSION_PAGE_LAYOUT = 1 };

#define SESSION_MAGIC "WEIRSESS"

/* Types in the file are these numbers + 1. */
typedef enum session_section_type {
    SESSION_TOKENS,
    SESSION_SALT,
    SESSION_PLACES,
    SESSION_STATES,
    SESSION_PAGES,
    SESSION_SECTIONS
} session_section_type;

typedef struct session_section {
    uint64_t offset, size, hash[2]; /* the hash is over the section and the zeros to the next multiple of 4096 */
} session_section;

/* Where everything is follows from the header's numbers alone; false when they are out of range. */
typedef struct session_layout {
    session_section sections[SESSION_SECTIONS];
    uint64_t        file_bytes;
    int64_t         n_heads, n_blocks; /* pages [n_blocks, n_heads] in the file */
} session_layout;
bool session_layout_of(session_layout *layout, const weir_session_header *header);

void session_header_encode(unsigned char out[SESSION_HEADER], const weir_session_header *header, const session_layout *layout);
/* A header whose checksum is right; sections get the hashes that it holds. */
WEIR_MUST_CHECK weir_status session_header_decode(weir_session_header *header, session_layout *layout,
                                                  const unsigned char bytes[SESSION_HEADER], uint64_t file_bytes, const char *path,
                                                  weir_error *error);

static inline uint64_t session_padded(uint64_t size)
{
    return (size + WEIR_SESSION_ALIGNMENT - 1) & ~(uint64_t)(WEIR_SESSION_ALIGNMENT - 1);
}
