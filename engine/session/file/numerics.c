#include "engine/session/file/numerics.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/bytes.h"

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr(" ._+=,-", c) != NULL);
}

static bool is_sound(const char *text)
{
    const char *at = text;
    while (is_plain(*at)) at++;
    return at > text && *at == '\0';
}

bool weir_numerics_are_sound(const weir_numerics *numerics)
{
#define X(field, bytes, name)                                                                      \
    if (memchr(numerics->field, '\0', bytes) == NULL || !is_sound(numerics->field)) return false;
    WEIR_NUMERICS_FIELDS(X)
#undef X
    return true;
}

void weir_numerics_field(char *out, size_t bytes, const char *text)
{
    memset(out, 0, bytes);
    for (size_t i = 0; i + 1 < bytes && text[i] != '\0'; i++) out[i] = text[i];
    for (char *at = out; *at != '\0'; at++)
        if (!is_plain(*at)) *at = '_';
}

bool weir_numerics_are_equal(const weir_numerics *a, const weir_numerics *b)
{
#define X(field, bytes, name)                                                                      \
    if (strcmp(a->field, b->field) != 0) return false;
    WEIR_NUMERICS_FIELDS(X)
#undef X
    return !a->is_mixed && !b->is_mixed;
}

void weir_numerics_print(char out[WEIR_NUMERICS_TEXT], const weir_numerics *numerics)
{
    size_t n = 0;
#define X(field, bytes, name)                                                                      \
    n += (size_t)snprintf(                                                                         \
        out + n, WEIR_NUMERICS_TEXT - n, "%s%s %s", n > 0 ? ", " : "", name, numerics->field       \
    );
    WEIR_NUMERICS_FIELDS(X)
#undef X
    (void)snprintf(
        out + n, WEIR_NUMERICS_TEXT - n, "%s", numerics->is_mixed ? "; continued with others" : ""
    );
}
#define X(field, bytes, name) +(bytes) + sizeof(name) + 2
_Static_assert(
    WEIR_NUMERICS_FIELDS(X) + sizeof "; continued with others" <= WEIR_NUMERICS_TEXT,
    "the longest fields fit the text"
);
#undef X

void weir_numerics_digest(uint64_t out[2], const weir_numerics *numerics)
{
    unsigned char bytes[WEIR_NUMERICS_BYTES + 1];
    weir_numerics_encode(bytes, numerics);
    bytes[WEIR_NUMERICS_BYTES] = numerics->is_mixed;
    const XXH128_hash_t hash = XXH3_128bits(bytes, sizeof bytes);
    out[0] = hash.low64;
    out[1] = hash.high64;
}

/* Adds ", NAME A (here B)". */
static void add_difference(
    char *out, size_t size, const char *name, const char *theirs, const char *own
)
{
    const size_t n = strlen(out);
    if (strcmp(theirs, own) == 0) return;
    (void
    )snprintf(out + n, size - n, "%s%s %.64s (here %.64s)", n > 0 ? ", " : "", name, theirs, own);
}

weir_status weir_numerics_check(
    const weir_numerics *theirs, const weir_numerics *own, const char *path, weir_error *error
)
{
    char what[600] = "";
    if (weir_numerics_are_equal(theirs, own)) return WEIR_OK;
#define X(field, bytes, name) add_difference(what, sizeof what, name, theirs->field, own->field);
    WEIR_NUMERICS_FIELDS(X)
#undef X
    return weir_error_set(
        error, WEIR_EMISMATCH,
        "%.300s: computed with %s%s; set sessions.numerics=any to continue it", path, what,
        !theirs->is_mixed ? ""
        : what[0] != '\0' ? ", then continued elsewhere"
                          : "these numerics, then continued elsewhere"
    );
}

void weir_numerics_encode(unsigned char out[WEIR_NUMERICS_BYTES], const weir_numerics *numerics)
{
    unsigned char *at = out;
    memset(out, 0, WEIR_NUMERICS_BYTES);
#define X(field, bytes, name)                                                                      \
    memcpy(at, numerics->field, strnlen(numerics->field, (bytes) - 1));                            \
    at += (bytes);
    WEIR_NUMERICS_FIELDS(X)
#undef X
}

bool weir_numerics_decode(weir_numerics *out, const unsigned char bytes[WEIR_NUMERICS_BYTES])
{
    const unsigned char *at = bytes;
    *out = (weir_numerics){ .is_mixed = false };
#define X(field, size, name)                                                                       \
    if (!weir_bytes_text(out->field, at, size)) return false;                                      \
    at += (size);
    WEIR_NUMERICS_FIELDS(X)
#undef X
    return weir_numerics_are_sound(out);
}
