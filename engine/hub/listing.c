/* engine/hub/listing.c - parses replies of the hub. */
#include "engine/hub/listing.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/hub/name.h"

/* ---- lists of files -------------------------------------------------------------------------- */

static weir_status no_memory(weir_error *error)
{
    return weir_error_set(error, WEIR_ENOMEM, "no memory for the list of files");
}

weir_status weir_hub_listing_put(
    weir_hub_listing *listing, const weir_hub_file *file, weir_error *error
)
{
    if (listing->n == WEIR_HUB_FILES)
        return weir_error_set(
            error, WEIR_EFORMAT, "the list has more than %d files", (int)WEIR_HUB_FILES
        );
    if (listing->n == listing->capacity) {
        const size_t wanted = listing->capacity > 0 ? 2 * listing->capacity : 64;
        weir_hub_file *const larger =
            weir_memory_resize(listing->files, wanted * sizeof *listing->files);
        if (larger == NULL) return no_memory(error);
        listing->files = larger;
        listing->capacity = wanted;
    }
    weir_hub_file copy = *file;
    copy.name = weir_memory_text(file->name);
    if (copy.name == NULL) return no_memory(error);
    listing->files[listing->n++] = copy;
    return WEIR_OK;
}

/* Reads "lfs", which large files have: their real size, and their sum. */
static bool read_lfs(weir_hub_file *file, const json_t *lfs)
{
    static const char prefix[] = "sha256:";
    const json_t *const size = json_object_get(lfs, "size");
    const char *oid = json_string_value(json_object_get(lfs, "oid"));
    if (oid == NULL) return false;
    if (strncmp(oid, prefix, sizeof prefix - 1) == 0) oid += sizeof prefix - 1;
    file->has_sum = strlen(oid) == WEIR_SHA256_HEX && weir_sha256_parse(&file->sum, oid);
    if (json_is_integer(size)) file->bytes = json_integer_value(size);
    return file->has_sum;
}

static weir_status add_entry(weir_hub_listing *listing, const json_t *entry, weir_error *error)
{
    const json_t *const path = json_object_get(entry, "path"),
                        *const size = json_object_get(entry, "size"),
                        *const lfs = json_object_get(entry, "lfs");
    const char *const type = json_string_value(json_object_get(entry, "type"));
    if (type != NULL && strcmp(type, "file") != 0) return WEIR_OK; /* "directory" */
    if (!json_is_string(path) || !json_is_integer(size))
        return weir_error_set(
            error, WEIR_EFORMAT, "entry %zu of the list has no path or no size", listing->n
        );
    if (!weir_hub_file_is_safe(json_string_value(path), json_string_length(path))) return WEIR_OK;
    /* The name is copied by weir_hub_listing_put. */
    weir_hub_file file = { .name = (char *)(uintptr_t)json_string_value(path),
                           .bytes = json_integer_value(size) };
    if (lfs != NULL && !json_is_null(lfs) && !read_lfs(&file, lfs))
        return weir_error_set(error, WEIR_EFORMAT, "%s: the list has no SHA-256 of it", file.name);
    if (file.bytes < 0 || file.bytes > WEIR_HUB_FILE_BYTES)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: %lld bytes by the list, which cannot be", file.name,
            (long long)file.bytes
        );
    return weir_hub_listing_put(listing, &file, error);
}

weir_status weir_hub_listing_add(
    weir_hub_listing *listing, const char *json, size_t n, weir_error *error
)
{
    json_t *root = NULL;
    WEIR_TRY(weir_json_parse_within(&root, json, n, "list of files", &weir_json_file, error));
    weir_status status = WEIR_OK;
    if (!json_is_array(root))
        status = weir_error_set(error, WEIR_EFORMAT, "the list of files is no JSON array");
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(root); i++)
        status = add_entry(listing, json_array_get(root, i), error);
    json_decref(root);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weir_hub_file *)a)->name, ((const weir_hub_file *)b)->name);
}

void weir_hub_listing_sort(weir_hub_listing *listing)
{
    size_t kept = 0;
    if (listing->n > 0) qsort(listing->files, listing->n, sizeof *listing->files, by_name);
    for (size_t i = 0; i < listing->n; i++) {
        if (kept > 0 && strcmp(listing->files[kept - 1].name, listing->files[i].name) == 0)
            weir_memory_give(listing->files[i].name);
        else
            listing->files[kept++] = listing->files[i];
    }
    listing->n = kept;
}

void weir_hub_listing_free(weir_hub_listing *listing)
{
    for (size_t i = 0; i < listing->n; i++) weir_memory_give(listing->files[i].name);
    weir_memory_give(listing->files);
    *listing = (weir_hub_listing){ 0 };
}

/* ---- commits --------------------------------------------------------------------------------- */

bool weir_hub_is_commit(const char *text)
{
    size_t n = 0;
    while ((text[n] >= '0' && text[n] <= '9') || (text[n] >= 'a' && text[n] <= 'f')) n++;
    return n == WEIR_HUB_COMMIT && text[n] == '\0';
}

bool weir_hub_commit_parse(char out[WEIR_HUB_COMMIT + 1], const char *json, size_t n)
{
    json_t *root = NULL;
    if (weir_json_build(&root, NULL, json, n, &weir_json_file) != WEIR_JSON_FINE) return false;
    const char *const sha = json_string_value(json_object_get(root, "sha"));
    const bool is_good = sha != NULL && weir_hub_is_commit(sha);
    if (is_good) memcpy(out, sha, WEIR_HUB_COMMIT + 1);
    json_decref(root);
    return is_good;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* True if the parameters after a link's '>' name it the next page; *end is where they end. */
static bool is_next(const char *parameters, const char **end)
{
    *end = parameters + strcspn(parameters, "<");
    for (const char *at = parameters; at < *end; at++) {
        if (strncasecmp(at, "rel=", 4) != 0) continue;
        at += at[4] == '"' ? 5 : 4;
        if (strncasecmp(at, "next", 4) == 0 && strchr("\";, ", at[4]) != NULL) return true;
    }
    return false;
}

bool weir_hub_next_query(char out[WEIR_HUB_QUERY], const char *link)
{
    const char *at = strchr(link, '<');
    while (at != NULL) {
        const char *const close = strchr(at, '>');
        const char *end;
        if (close == NULL) return false;
        const char *const query = memchr(at, '?', (size_t)(close - at));
        const size_t n = query != NULL ? (size_t)(close - query) - 1 : 0;
        if (is_next(close + 1, &end)) {
            if (n == 0 || n >= WEIR_HUB_QUERY) return false;
            for (size_t i = 0; i < n; i++)
                if (query[1 + i] <= ' ' || query[1 + i] > '~' || query[1 + i] == '#') return false;
            memcpy(out, query + 1, n);
            out[n] = '\0';
            return true;
        }
        at = *end == '<' ? end : NULL;
    }
    return false;
}

/* Reads digits; false: none, or the number overflows. */
static bool take_number(int64_t *out, const char **text)
{
    const char *const start = *text;
    int64_t number = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++)
        if (!weir_mul_i64(&number, number, 10) || !weir_add_i64(&number, number, **text - '0'))
            return false;
    *out = number;
    return *text > start;
}

bool weir_hub_content_range(int64_t *first, int64_t *total, const char *text)
{
    int64_t a, b, n = -1;
    if (strncasecmp(text, "bytes ", 6) != 0) return false;
    text += 6;
    if (!take_number(&a, &text) || *text++ != '-' || !take_number(&b, &text) || *text++ != '/')
        return false;
    if (*text == '*')
        text++;
    else if (!take_number(&n, &text) || b >= n)
        return false;
    if (*text != '\0' || b < a) return false;
    *first = a;
    *total = n;
    return true;
}
