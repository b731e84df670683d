/* engine/kv/policy/calibration_file.c - reads and writes query statistics (layout in
 * engine/kv/policy/calibration.h). Every number is checked: the sizes must add up to exactly the
 * file's length before anything is allocated. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/base/file.h"
#include "engine/kv/policy/calibration_internal.h"

enum {
    HEADER = 64,
    AT_THETA = 28,
    AT_ADDED = 36,
    ADDED_FIXED = 8 + 8 + 8 + 4 + 4,
    CHECKSUM = 8,
    FILE_LIMIT = 1 << 30
};
enum { FLAG_AFTER_NORM = 1, FLAG_INTERLEAVED = 2 };
static const uint32_t magic = 0x54524941, version = 2, added_magic = 0x52494557, added_version = 1;

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get64(const unsigned char *at) { return get32(at) | (uint64_t)get32(at + 4) << 32; }

static float get_float(const unsigned char *at)
{
    const uint32_t bits = get32(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const unsigned char *get_floats(float *out, const unsigned char *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = get_float(at + 4 * i);
    return at + 4 * n;
}

static weir_status damaged(const char *name, const char *what, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EFORMAT, "%s: %s; make it again with `weir calibrate`", name, what
    );
}

/* ---- reading --------------------------------------------------------------------------------- */

static weir_status parse_header(
    weir_calibration *c, const unsigned char *bytes, size_t n, const char *name, weir_error *error
)
{
    if (n < HEADER || get32(bytes) != magic)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: not a file of query statistics (TRIA)", name
        );
    if (get32(bytes + 4) != version)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s: query statistics of version %" PRIu32 ", this program reads version 2", name,
            get32(bytes + 4)
        );
    c->n_layers = get32(bytes + 8), c->n_heads = get32(bytes + 12),
    c->n_kv_heads = get32(bytes + 16);
    c->head_dim = get32(bytes + 20), c->n_bands = get32(bytes + 24);
    c->theta = get_float(bytes + AT_THETA);
    c->magnitude = get_float(bytes + AT_THETA + 4);
    if (c->magnitude == 0) c->magnitude = 1; /* some writers omit it */
    c->rotary_dim = 2 * c->n_bands;
    const bool is_sane =
        c->n_layers >= 1 && c->n_layers <= 1 << 16 && c->n_heads >= 1 && c->n_heads <= 1 << 16 &&
        c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0 && c->head_dim >= 2 &&
        c->head_dim <= 1 << 16 && c->n_bands >= 1 && c->rotary_dim <= c->head_dim && c->theta > 0 &&
        isfinite(c->theta) && c->magnitude > 0 && isfinite(c->magnitude);
    return is_sane ? WEIR_OK : damaged(name, "its header has impossible sizes", error);
}

/* Sizes of the TRIA part and of Weir's additions; with the header's bounds both stay far below
 * 2^64. */
static bool sizes_of(size_t *tria, size_t *added, const weir_calibration *c)
{
    size_t heads;
    if (!weir_mul_size(&heads, (size_t)(c->n_layers * c->n_heads), (size_t)c->n_bands * 16) ||
        heads > FILE_LIMIT)
        return false;
    *tria = HEADER + 4 * (size_t)c->n_layers + heads;
    *added = ADDED_FIXED + 4 * (size_t)c->n_bands +
             4 * (size_t)(c->n_layers * c->n_heads) * (size_t)(c->head_dim - c->rotary_dim) +
             CHECKSUM;
    return *added <= FILE_LIMIT;
}

static weir_status parse_frame(
    weir_calibration *c, const unsigned char *bytes, size_t n, size_t *tria, const char *name,
    weir_error *error
)
{
    size_t added;
    WEIR_TRY(parse_header(c, bytes, n, name, error));
    if (!sizes_of(tria, &added, c))
        return damaged(name, "its header needs more than the largest file", error);
    c->has_identity = get32(bytes + AT_ADDED) == added_magic;
    if (c->has_identity && get32(bytes + AT_ADDED + 4) != added_version)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s: written by another version of Weir; make it again with `weir calibrate`", name
        );
    const size_t want = *tria + (c->has_identity ? added : 0);
    if (n != want || (c->has_identity && get32(bytes + AT_ADDED + 8) != (uint32_t)added))
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: %zu bytes, its header says %zu; make it again with `weir calibrate`", name, n, want
        );
    if (c->has_identity && get64(bytes + n - CHECKSUM) != XXH3_64bits(bytes, n - CHECKSUM))
        return damaged(name, "its checksum is wrong", error);
    return WEIR_OK;
}

static weir_status parse_identity(
    weir_calibration *c, const unsigned char *at, const char *name, weir_error *error
)
{
    const uint32_t flags = get32(at + 24);
    c->model[0] = get64(at), c->model[1] = get64(at + 8), c->n_queries = get64(at + 16);
    c->is_after_norm = (flags & FLAG_AFTER_NORM) != 0;
    c->is_interleaved = (flags & FLAG_INTERLEAVED) != 0;
    if (flags > (FLAG_AFTER_NORM | FLAG_INTERLEAVED) || get32(at + 28) != (uint64_t)c->rotary_dim)
        return damaged(name, "its model identity is out of range", error);
    return WEIR_OK;
}

/* The fourth vector of a head is skipped: writers disagree about it, and it follows from the
 * others. */
static void parse_numbers(weir_calibration *c, const unsigned char *at, const unsigned char *added)
{
    const int64_t n_plain = c->head_dim - c->rotary_dim;
    at = get_floats(c->budget_scale, at, c->n_layers);
    if (c->has_identity) added = get_floats(c->frequencies, added + ADDED_FIXED, c->n_bands);
    for (int64_t i = 0; i < c->n_layers * c->n_heads; i++) {
        float *const head = calibration_head(c, 0, i);
        at = get_floats(head, at, 3 * c->n_bands) + 4 * c->n_bands;
        if (c->has_identity) added = get_floats(head + 3 * c->n_bands, added, n_plain);
    }
}

weir_status weir_calibration_parse(
    weir_calibration **out, const void *bytes, size_t n, const char *name, weir_error *error
)
{
    const unsigned char *const at = bytes;
    weir_calibration sizes = { 0 }, *made = NULL;
    size_t tria;
    WEIR_TRY(parse_frame(&sizes, at, n, &tria, name, error));
    if (sizes.has_identity) WEIR_TRY(parse_identity(&sizes, at + tria, name, error));
    WEIR_TRY(calibration_take(&made, &sizes, error));
    parse_numbers(made, at + HEADER, at + tria);
    const char *const why = calibration_reject(made);
    if (why != NULL) {
        weir_calibration_close(made);
        return damaged(name, why, error);
    }
    *out = made;
    return WEIR_OK;
}

weir_status weir_calibration_read(weir_calibration **out, const char *path, weir_error *error)
{
    weir_buffer bytes = { 0 };
    weir_status status = weir_file_read(&bytes, path, FILE_LIMIT, error);
    if (status == WEIR_OK)
        status = weir_calibration_parse(out, bytes.data, bytes.size, path, error);
    weir_buffer_free(&bytes);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static void put64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static unsigned char *put_floats(unsigned char *at, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        put32(at + 4 * i, bits);
    }
    return at + 4 * n;
}

static unsigned char *put_header(unsigned char *at, const weir_calibration *c, size_t added)
{
    const int64_t sizes[] = { magic,         version,     c->n_layers, c->n_heads,
                              c->n_kv_heads, c->head_dim, c->n_bands };
    const float rope[] = { c->theta, c->magnitude };
    memset(at, 0, HEADER);
    for (int i = 0; i < 7; i++) put32(at + 4 * i, (uint32_t)sizes[i]);
    (void)put_floats(at + AT_THETA, rope, 2);
    if (added > 0) {
        put32(at + AT_ADDED, added_magic);
        put32(at + AT_ADDED + 4, added_version);
        put32(at + AT_ADDED + 8, (uint32_t)added);
    }
    return at + HEADER;
}

static unsigned char *put_heads(unsigned char *at, const weir_calibration *c)
{
    at = put_floats(at, c->budget_scale, c->n_layers);
    for (int64_t i = 0; i < c->n_layers * c->n_heads; i++) {
        at = put_floats(at, calibration_head(c, 0, i), 3 * c->n_bands);
        for (int64_t f = 0; f < c->n_bands; f++) {
            const float concentration = weir_calibration_concentration(c, 0, i, f);
            at = put_floats(at, &concentration, 1);
        }
    }
    return at;
}

static void put_added(unsigned char *at, const weir_calibration *c)
{
    put64(at, c->model[0]), put64(at + 8, c->model[1]), put64(at + 16, c->n_queries);
    put32(
        at + 24,
        (c->is_after_norm ? FLAG_AFTER_NORM : 0u) | (c->is_interleaved ? FLAG_INTERLEAVED : 0u)
    );
    put32(at + 28, (uint32_t)c->rotary_dim);
    at = put_floats(at + ADDED_FIXED, c->frequencies, c->n_bands);
    for (int64_t i = 0; i < c->n_layers * c->n_heads; i++)
        at =
            put_floats(at, calibration_head(c, 0, i) + 3 * c->n_bands, c->head_dim - c->rotary_dim);
}

weir_status weir_calibration_print(weir_buffer *out, const weir_calibration *c, bool is_plain)
{
    size_t tria, added;
    if (!sizes_of(&tria, &added, c)) return WEIR_ENOMEM;
    if (is_plain || !c->has_identity) added = 0;
    WEIR_TRY(weir_buffer_reserve(out, tria + added));
    unsigned char *const first = (unsigned char *)out->data + out->size;
    (void)put_heads(put_header(first, c, added), c);
    if (added > 0) {
        put_added(first + tria, c);
        put64(first + tria + added - CHECKSUM, XXH3_64bits(first, tria + added - CHECKSUM));
    }
    out->size += tria + added;
    out->data[out->size] = '\0';
    return WEIR_OK;
}

weir_status weir_calibration_write(
    const char *path, const weir_calibration *calibration, weir_error *error
)
{
    weir_buffer bytes = { 0 };
    weir_status status = weir_calibration_print(&bytes, calibration, false);
    if (status == WEIR_OK)
        status = weir_file_write_atomic(path, bytes.data, bytes.size, error);
    else
        status = weir_error_set(error, status, "%s: no memory to write the query statistics", path);
    weir_buffer_free(&bytes);
    return status;
}
