/* engine/states/log.c - the log's bytes: a header, then records of one size. Checksums are checked
 * first, then the range of every field. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/bytes.h"
#include "engine/states/states_internal.h"

#define MAGIC "WEIRSTAT"

/* Header. */
enum {
    AT_VERSION = 8,
    AT_HEADER_BYTES = 12,
    AT_RECORD_BYTES = 16,
    AT_DIM = 20,
    AT_ID = 24,
    AT_MODEL = 32,
    AT_CREATED = 48,
    AT_NEXT_SERIAL = 56,
    AT_EMBEDDING = 64,
    AT_STATE_BITS = AT_EMBEDDING + WEIR_STATE_EMBEDDING + 1,
    AT_HEADER_END = AT_STATE_BITS + 4,
    AT_HEADER_CHECKSUM = STATE_HEADER - 8
};

/* Record. */
enum {
    AT_MARK = 0,
    AT_TYPE = 4,
    AT_SERIAL = 8,
    AT_ADDED = 16,
    AT_TOKENS = 24,
    AT_BYTES = 32,
    AT_PAYLOAD = 40,
    AT_SOURCE = 56,
    AT_FLAGS = 72,
    AT_N_METADATA = 76,
    AT_NAME = 80,
    AT_LABEL = AT_NAME + WEIR_STATE_NAME + 1,
    AT_NUMERICS = AT_LABEL + WEIR_STATE_LABEL + 1,
    AT_RECORD_END = AT_NUMERICS + 16,
    AT_METADATA = 512,
    MARK = 0x52545357, /* "WSTR" */
    FLAG_VECTOR = 1,
    FLAG_MERGED = 2,
    FLAG_8_BITS = 4,
    FLAG_4_BITS = 8
};
_Static_assert(
    AT_METADATA + WEIR_STATE_METADATA == STATE_RECORD_VECTOR,
    "metadata ends where the vector begins"
);
_Static_assert((int)AT_RECORD_END <= (int)AT_METADATA, "fields end before the metadata");

static void put(unsigned char *at, uint64_t value, int n)
{
    for (int i = 0; i < n; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *at, int n)
{
    uint64_t value = 0;
    for (int i = n; i-- > 0;) value = value << 8 | at[i];
    return value;
}

static bool is_count(int64_t n) { return n >= 0 && n <= INT64_MAX / 2; }

/* ---- header ---------------------------------------------------------------------------------- */
size_t state_record_bytes(int32_t dim)
{
    enum { CHECKSUM = 8, LINE = 64 };
    return (STATE_RECORD_VECTOR + (size_t)dim * sizeof(float) + CHECKSUM + LINE - 1) / LINE * LINE;
}

void state_header_encode(unsigned char out[STATE_HEADER], const state_log_header *header)
{
    memset(out, 0, STATE_HEADER);
    memcpy(out, MAGIC, 8);
    put(out + AT_VERSION, WEIR_STATES_VERSION, 4);
    put(out + AT_HEADER_BYTES, STATE_HEADER, 4);
    put(out + AT_RECORD_BYTES, state_record_bytes(header->kind.dim), 4);
    put(out + AT_DIM, (uint64_t)header->kind.dim, 4);
    put(out + AT_ID, header->id, 8);
    for (int i = 0; i < 2; i++) put(out + AT_MODEL + 8 * i, header->kind.model[i], 8);
    put(out + AT_CREATED, (uint64_t)header->created, 8);
    put(out + AT_NEXT_SERIAL, (uint64_t)header->next_serial, 8);
    memcpy(out + AT_EMBEDDING, header->kind.embedding, sizeof header->kind.embedding);
    put(out + AT_STATE_BITS, (uint64_t)header->kind.state_bits, 4);
    put(out + AT_HEADER_CHECKSUM, XXH3_64bits(out, AT_HEADER_CHECKSUM), 8);
}

static weir_status damaged(const char *path, const char *what, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EFORMAT, "%s: damaged: %s; put back a good copy of it", path, what
    );
}

weir_status state_header_decode(
    state_log_header *out, const unsigned char bytes[STATE_HEADER], const char *path,
    weir_error *error
)
{
    const uint64_t version = get(bytes + AT_VERSION, 4), dim = get(bytes + AT_DIM, 4),
                   bits = get(bytes + AT_STATE_BITS, 4);
    if (memcmp(bytes, MAGIC, 8) != 0)
        return weir_error_set(error, WEIR_EFORMAT, "%s: not the log of a state database", path);
    if (version != WEIR_STATES_VERSION)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s: a state database of version %" PRIu64
            ", this program reads version %d; use the program that wrote it",
            path, version, (int)WEIR_STATES_VERSION
        );
    if (get(bytes + AT_HEADER_CHECKSUM, 8) != XXH3_64bits(bytes, AT_HEADER_CHECKSUM))
        return damaged(path, "the header's checksum is wrong", error);
    state_log_header header = { .kind = { .dim = (int32_t)dim, .state_bits = (int32_t)bits },
                                .id = get(bytes + AT_ID, 8),
                                .created = (int64_t)get(bytes + AT_CREATED, 8),
                                .next_serial = (int64_t)get(bytes + AT_NEXT_SERIAL, 8) };
    for (int i = 0; i < 2; i++) header.kind.model[i] = get(bytes + AT_MODEL + 8 * i, 8);
    if (dim > WEIR_STATE_DIM || get(bytes + AT_HEADER_BYTES, 4) != STATE_HEADER ||
        get(bytes + AT_RECORD_BYTES, 4) != state_record_bytes((int32_t)dim) ||
        (bits != 0 && bits != 8 && bits != 4) || header.next_serial < 1 ||
        !is_count(header.next_serial) ||
        !weir_bytes_text(
            header.kind.embedding, bytes + AT_EMBEDDING, sizeof header.kind.embedding
        ) ||
        !weir_bytes_are_zero(bytes + AT_HEADER_END, AT_HEADER_CHECKSUM - AT_HEADER_END))
        return damaged(path, "the header has fields that this version does not have", error);
    *out = header;
    return WEIR_OK;
}

/* ---- records --------------------------------------------------------------------------------- */
/* The square root of a sum of squares; 0 where floats have no cosine: too small, too large, or not
 * a number. */
static double length_of(double squares)
{
    return squares >= 1e-60 && squares <= 1e60 ? sqrt(squares) : 0;
}

double state_vector_length(const float *vector, int32_t dim)
{
    double squares = 0;
    for (int32_t i = 0; i < dim; i++) squares += (double)vector[i] * (double)vector[i];
    return length_of(squares);
}

static uint64_t flags_of(const state_record *record)
{
    const weir_state_info *const info = &record->info;
    return (record->vector != NULL ? FLAG_VECTOR : 0u) | (info->is_merged ? FLAG_MERGED : 0u) |
           (info->state_bits == 8   ? FLAG_8_BITS
            : info->state_bits == 4 ? FLAG_4_BITS
                                    : 0u);
}

static uint64_t checksum(const unsigned char *record, const state_log_header *header)
{
    return XXH3_64bits_withSeed(record, state_record_bytes(header->kind.dim) - 8, header->id);
}

void state_record_encode(
    unsigned char *out, const state_record *record, const state_log_header *header
)
{
    const weir_state_info *const info = &record->info;
    const size_t n = state_record_bytes(header->kind.dim);
    memset(out, 0, n);
    put(out + AT_MARK, MARK, 4);
    put(out + AT_TYPE, (uint64_t)record->type, 4);
    put(out + AT_SERIAL, (uint64_t)info->serial, 8);
    put(out + AT_ADDED, (uint64_t)info->created, 8);
    if (record->type == STATE_ADDED) {
        put(out + AT_TOKENS, (uint64_t)info->n_tokens, 8);
        put(out + AT_BYTES, (uint64_t)info->n_bytes, 8);
        for (int i = 0; i < 2; i++) put(out + AT_PAYLOAD + 8 * i, info->payload[i], 8);
        for (int i = 0; i < 2; i++) put(out + AT_SOURCE + 8 * i, info->source[i], 8);
        for (int i = 0; i < 2; i++) put(out + AT_NUMERICS + 8 * i, info->numerics[i], 8);
        put(out + AT_FLAGS, flags_of(record), 4);
        put(out + AT_N_METADATA, record->n_metadata, 4);
        (void)snprintf((char *)out + AT_NAME, sizeof info->name, "%s", info->name);
        (void)snprintf((char *)out + AT_LABEL, sizeof info->label, "%s", info->label);
        if (record->n_metadata > 0) memcpy(out + AT_METADATA, record->metadata, record->n_metadata);
        for (int32_t i = 0; record->vector != NULL && i < header->kind.dim; i++) {
            uint32_t bits;
            memcpy(&bits, record->vector + i, sizeof bits);
            put(out + STATE_RECORD_VECTOR + 4 * (size_t)i, bits, 4);
        }
    }
    put(out + n - 8, checksum(out, header), 8);
}

bool state_name_is_good(const char *name)
{
    const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && name[n] == '\0' && name[0] != '-';
}

static double decode_length(const unsigned char *at, int32_t dim)
{
    double squares = 0;
    for (int32_t i = 0; i < dim; i++) {
        const uint32_t bits = (uint32_t)get(at + 4 * (size_t)i, 4);
        float value;
        memcpy(&value, &bits, sizeof value);
        squares += (double)value * (double)value;
    }
    return length_of(squares);
}

static bool decode_added(state_record *out, const unsigned char *bytes, int32_t dim, size_t n)
{
    weir_state_info *const info = &out->info;
    const uint64_t flags = get(bytes + AT_FLAGS, 4), n_metadata = get(bytes + AT_N_METADATA, 4);
    const size_t end = STATE_RECORD_VECTOR + (size_t)dim * sizeof(float);
    info->n_tokens = (int64_t)get(bytes + AT_TOKENS, 8);
    info->n_bytes = (int64_t)get(bytes + AT_BYTES, 8);
    const uint64_t most = FLAG_VECTOR | FLAG_MERGED | FLAG_8_BITS | FLAG_4_BITS;
    info->has_vector = (flags & FLAG_VECTOR) != 0;
    info->is_merged = (flags & FLAG_MERGED) != 0;
    info->state_bits = (flags & FLAG_8_BITS) != 0 ? 8 : (flags & FLAG_4_BITS) != 0 ? 4 : 0;
    for (int i = 0; i < 2; i++) {
        info->payload[i] = get(bytes + AT_PAYLOAD + 8 * i, 8);
        info->source[i] = get(bytes + AT_SOURCE + 8 * i, 8);
        info->numerics[i] = get(bytes + AT_NUMERICS + 8 * i, 8);
    }
    if (flags > most || ((flags & FLAG_8_BITS) != 0 && (flags & FLAG_4_BITS) != 0) ||
        n_metadata > WEIR_STATE_METADATA || !is_count(info->n_tokens) || !is_count(info->n_bytes) ||
        !weir_bytes_text(info->name, bytes + AT_NAME, sizeof info->name) ||
        !weir_bytes_text(info->label, bytes + AT_LABEL, sizeof info->label) ||
        !state_name_is_good(info->name) || info->label[0] == '\0' ||
        !weir_bytes_are_zero(bytes + AT_RECORD_END, AT_METADATA - AT_RECORD_END) ||
        !weir_bytes_are_zero(
            bytes + AT_METADATA + n_metadata, WEIR_STATE_METADATA - (size_t)n_metadata
        ) ||
        !weir_bytes_are_zero(bytes + end, n - 8 - end))
        return false;
    out->metadata = (const char *)bytes + AT_METADATA;
    out->n_metadata = (size_t)n_metadata;
    if (info->has_vector) out->length = decode_length(bytes + STATE_RECORD_VECTOR, dim);
    return info->has_vector
               ? out->length > 0
               : weir_bytes_are_zero(bytes + STATE_RECORD_VECTOR, (size_t)dim * sizeof(float));
}

bool state_record_decode(
    state_record *out, const unsigned char *bytes, const state_log_header *header
)
{
    const size_t n = state_record_bytes(header->kind.dim);
    const uint64_t type = get(bytes + AT_TYPE, 4);
    if (get(bytes + AT_MARK, 4) != MARK || get(bytes + n - 8, 8) != checksum(bytes, header))
        return false;
    *out = (state_record){ .type = (state_record_type)type,
                           .info = { .serial = (int64_t)get(bytes + AT_SERIAL, 8),
                                     .created = (int64_t)get(bytes + AT_ADDED, 8) } };
    if (out->info.serial < 1 || !is_count(out->info.serial)) return false;
    if (type == STATE_ADDED) return decode_added(out, bytes, header->kind.dim, n);
    return type == STATE_REMOVED && weir_bytes_are_zero(bytes + AT_TOKENS, n - 8 - AT_TOKENS);
}
