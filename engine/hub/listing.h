/* engine/hub/listing.h - what the hub says of a repository, parsed from hostile bytes: its files,
 * with sizes and sums, and the headers of its replies. */
#pragma once
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_HUB_FILES = 20000, /* of a repository */
    WEIR_HUB_PAGES = 200, /* of its list; a page of the hub has 1000 files */
    WEIR_HUB_PAGE_BYTES = 16 << 20,
    WEIR_HUB_QUERY = 2048,
};
#define WEIR_HUB_FILE_BYTES ((int64_t)1 << 44) /* 16 TiB */

typedef struct weir_hub_file {
    char *name; /* owned; safe (name.h) */
    int64_t bytes;
    weir_sha256 sum;
    bool has_sum; /* the hub knows sums of large files (LFS) only */
} weir_hub_file;

/* Zero-initialise. */
typedef struct weir_hub_listing {
    weir_hub_file *files; /* owned [n], by name after weir_hub_listing_sort */
    size_t n, capacity;
} weir_hub_listing;

/* Adds the files of one page, the JSON of `/api/models/OWNER/NAME/tree/REVISION`. Files whose names
 * are not safe are left out: they cannot be chosen.
 * errors : EFORMAT, ENOMEM */
WEIR_MUST_CHECK weir_status
weir_hub_listing_add(weir_hub_listing *listing, const char *json, size_t n, weir_error *error);
/* Adds a copy of a file. */
WEIR_MUST_CHECK weir_status
weir_hub_listing_put(weir_hub_listing *listing, const weir_hub_file *file, weir_error *error);
/* Sorts by name and drops repeated names. */
void weir_hub_listing_sort(weir_hub_listing *listing);
void weir_hub_listing_free(weir_hub_listing *listing); /* idempotent */

/* The commit of `/api/models/OWNER/NAME/revision/REVISION`: 40 hexadecimal digits. False: the JSON
 * has none. */
enum { WEIR_HUB_COMMIT = 40 };
bool weir_hub_commit_parse(char out[WEIR_HUB_COMMIT + 1], const char *json, size_t n);
bool weir_hub_is_commit(const char *text);

/* The query of the next page in a Link header: `<URL?QUERY>; rel="next"`. False: there is none. The
 * rest of the URL is not used, so that a page cannot lead to another host.
 * out    : WEIR_HUB_QUERY bytes, printable */
bool weir_hub_next_query(char out[WEIR_HUB_QUERY], const char *link);
/* "bytes 5-9/10": first 5, total 10 (-1: "*"). False: malformed. */
bool weir_hub_content_range(int64_t *first, int64_t *total, const char *text);

#ifdef __cplusplus
}
#endif
