/* engine/session/file/read.c - reads a cached sequence from a file. Each section is hashed as it is
 * read, and used only if the hash is right. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/base/memory.h"
#include "engine/session/file/session_file_internal.h"

/* Reads a few MiB at a time and hashes them while they are in cache; the kernel is told what comes
 * next, so that the disk works meanwhile. */
enum { PIECES = 1024, PIECE_BYTES = 2 << 20 };

struct weir_session_reader {
    char *path;
    int fd;
    weir_session_header header;
    session_layout layout;
    XXH3_state_t *hash;
    uint64_t at; /* offset in the file */
    struct iovec pieces[PIECES]; /* [n_pieces] to read */
    int n_pieces;
    size_t n_bytes; /* of the pieces */
    /* Destinations of pages and unsealed pages may be in this ledger's device memory; NULL: they
     * are not. */
    const weir_ledger *near;
    char *buffer; /* [PIECE_BYTES], owned: for such pieces; NULL: none so far */
    void *near_to[PIECES]; /* [n_pieces]: where a piece goes from there; NULL: it is in place */
    weir_session_progress *progress; /* may be NULL */
};

static weir_status read_at(
    weir_session_reader *r, struct iovec *pieces, int n_pieces, uint64_t at, weir_error *error
)
{
    for (int first = 0; first < n_pieces;) {
        const ssize_t n = preadv(r->fd, pieces + first, n_pieces - first, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return weir_error_set(
                error, n < 0 ? WEIR_EIO : WEIR_EFORMAT, "%s: cannot read at byte %" PRIu64 ": %s",
                r->path, at, n < 0 ? strerror(errno) : "the file ends here"
            );
        at += (uint64_t)n;
        size_t left = (size_t)n;
        while (first < n_pieces && left >= pieces[first].iov_len) left -= pieces[first++].iov_len;
        if (left == 0) continue;
        pieces[first].iov_base = (char *)pieces[first].iov_base + left;
        pieces[first].iov_len -= left;
    }
    return WEIR_OK;
}

/* Reads the pieces, then hashes them in order. */
static weir_status flush(weir_session_reader *r, weir_error *error)
{
    struct iovec asked[PIECES];
    if (r->progress != NULL && __atomic_load_n(&r->progress->is_stopped, __ATOMIC_RELAXED))
        return weir_error_set(error, WEIR_ECANCELED, "%s: reading it was cancelled", r->path);
    if (r->n_pieces == 0) return WEIR_OK;
    memcpy(asked, r->pieces, (size_t)r->n_pieces * sizeof *asked);
    WEIR_TRY(read_at(r, r->pieces, r->n_pieces, r->at, error));
    bool any_near = false;
    for (int i = 0; i < r->n_pieces; i++) {
        (void)XXH3_128bits_update(r->hash, asked[i].iov_base, asked[i].iov_len);
        if (r->near_to[i] == NULL) continue;
        weir_ledger_copy(r->near, r->near_to[i], asked[i].iov_base, asked[i].iov_len);
        any_near = true;
    }
    if (any_near) WEIR_TRY(weir_ledger_check(r->near, error));
    r->at += r->n_bytes;
    weir_session_progress_add(r->progress, (int64_t)r->n_bytes);
    r->n_pieces = 0;
    r->n_bytes = 0;
    return WEIR_OK;
}

static void begin_section(weir_session_reader *r, session_section_type type)
{
    r->at = r->layout.sections[type].offset;
    r->n_pieces = 0;
    r->n_bytes = 0;
    (void)XXH3_128bits_reset(r->hash);
}

/* near_to: where the piece goes after it was read; NULL: it is there. */
static weir_status add_piece(
    weir_session_reader *r, void *out, size_t n, void *near_to, weir_error *error
)
{
    r->near_to[r->n_pieces] = near_to;
    r->pieces[r->n_pieces++] = (struct iovec){ out, n };
    r->n_bytes += n;
    return r->n_pieces == PIECES || r->n_bytes >= PIECE_BYTES ? flush(r, error) : WEIR_OK;
}

static weir_status want(weir_session_reader *r, void *out, size_t n, weir_error *error)
{
    return n == 0 ? WEIR_OK : add_piece(r, out, n, NULL, error);
}

/* Like `want`, for memory near the kernels: reads many pages at a time and copies each. */
static weir_status want_near(weir_session_reader *r, void *out, size_t n, weir_error *error)
{
    if (r->near == NULL || weir_ledger_device(r->near) == NULL) return want(r, out, n, error);
    if (r->buffer == NULL) r->buffer = weir_memory_take(PIECE_BYTES);
    if (r->buffer == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory to read it", r->path);
    for (size_t at = 0; at < n;) {
        const size_t left = PIECE_BYTES - r->n_bytes, part = n - at < left ? n - at : left;
        WEIR_TRY(add_piece(r, r->buffer + r->n_bytes, part, (char *)out + at, error));
        at += part;
    }
    return WEIR_OK;
}

static weir_status end_section(weir_session_reader *r, session_section_type type, weir_error *error)
{
    static const char *const names[SESSION_SECTIONS] = {
        "layers", "tokens",        "salt",          "places of states", "states",
        "pages",  "window's rows", "rows of heads", "policy's state",   "unsealed rows"
    };
    const session_section *const section = &r->layout.sections[type];
    unsigned char padding[WEIR_SESSION_ALIGNMENT];
    WEIR_TRY(want(r, padding, (size_t)(session_padded(section->size) - section->size), error));
    WEIR_TRY(flush(r, error));
    const XXH128_hash_t hash = XXH3_128bits_digest(r->hash);
    if (hash.low64 != section->hash[0] || hash.high64 != section->hash[1])
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: damaged: the checksum of the %s is wrong; delete it or put back a good copy",
            r->path, names[type]
        );
    return WEIR_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */
static weir_status open_file(weir_session_reader *r, weir_error *error)
{
    struct stat st;
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (r->fd < 0) {
        const int reason = errno;
        return weir_error_set(
            error, reason == ENOENT ? WEIR_ENOTFOUND : WEIR_EIO, "%s: cannot open: %s", r->path,
            reason == ELOOP ? "it is a link" : strerror(reason)
        );
    }
    (void)posix_fadvise(r->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return weir_error_set(error, WEIR_EIO, "%s: not a regular file", r->path);
    if (st.st_size < SESSION_HEADER)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: damaged: %lld bytes are too few for a session file", r->path,
            (long long)st.st_size
        );
    unsigned char bytes[SESSION_HEADER];
    WEIR_TRY(read_at(r, &(struct iovec){ bytes, sizeof bytes }, 1, 0, error));
    return session_header_decode(
        &r->header, &r->layout, bytes, (uint64_t)st.st_size, r->path, error
    );
}

weir_status weir_session_open(weir_session_reader **out, const char *path, weir_error *error)
{
    weir_session_reader *const r = calloc(1, sizeof *r);
    if (r == NULL) return weir_error_set(error, WEIR_ENOMEM, "%s: no memory to read it", path);
    r->fd = -1;
    r->path = strdup(path);
    r->hash = XXH3_createState();
    const weir_status status =
        r->path != NULL && r->hash != NULL
            ? open_file(r, error)
            : weir_error_set(error, WEIR_ENOMEM, "%s: no memory to read it", path);
    if (status != WEIR_OK)
        weir_session_close(r);
    else
        *out = r;
    return status;
}

void weir_session_close(weir_session_reader *reader)
{
    if (reader == NULL) return;
    if (reader->fd >= 0) (void)close(reader->fd);
    (void)XXH3_freeState(reader->hash);
    weir_memory_give(reader->buffer);
    free(reader->path);
    free(reader);
}

void weir_session_read_near(weir_session_reader *reader, const weir_ledger *ledger)
{
    reader->near = ledger;
}

void weir_session_read_with(weir_session_reader *reader, weir_session_progress *progress)
{
    reader->progress = progress;
}

const char *session_path(const weir_session_reader *reader) { return reader->path; }

const weir_session_header *weir_session_header_of(const weir_session_reader *reader)
{
    return &reader->header;
}

/* The first difference found between a layer of the file and the model; layer -1: none so far. */
typedef struct layer_difference {
    int64_t layer;
    unsigned char theirs[SESSION_LAYER], ours[SESSION_LAYER];
} layer_difference;

static void compare_layer(
    layer_difference *out, const unsigned char *theirs, const weir_kv_geometry *own, int64_t layer
)
{
    unsigned char ours[SESSION_LAYER];
    session_put_layer(ours, own);
    if (out->layer >= 0 || memcmp(theirs, ours, sizeof ours) == 0) return;
    out->layer = layer;
    memcpy(out->theirs, theirs, sizeof ours);
    memcpy(out->ours, ours, sizeof ours);
}

static void print_layer(char *out, size_t size, const unsigned char *at)
{
    (void)snprintf(
        out, size,
        "%" PRIu32 " KV heads, keys of %" PRIu32 ", values of %" PRIu32 ", window %" PRIu32,
        session_get32(at), session_get32(at + 4), session_get32(at + 8), session_get32(at + 12)
    );
}

weir_status weir_session_check_layers(
    weir_session_reader *r, const weir_kv_geometry *own, weir_error *error
)
{
    enum { LAYERS = 64 }; /* layers read at a time */
    unsigned char bytes[LAYERS * SESSION_LAYER];
    layer_difference found = { .layer = -1 };
    const int64_t n_layers = r->header.identity.n_layers + r->header.identity.n_window_layers;
    begin_section(r, SESSION_LAYERS);
    for (int64_t first = 0; first < n_layers; first += LAYERS) {
        const int64_t n = n_layers - first < LAYERS ? n_layers - first : LAYERS;
        WEIR_TRY(want(r, bytes, (size_t)n * SESSION_LAYER, error));
        WEIR_TRY(flush(r, error));
        for (int64_t i = 0; i < n; i++)
            compare_layer(&found, bytes + i * SESSION_LAYER, &own[first + i], first + i);
    }
    WEIR_TRY(end_section(r, SESSION_LAYERS, error));
    if (found.layer < 0) return WEIR_OK;
    char theirs[128], ours[sizeof theirs];
    print_layer(theirs, sizeof theirs, found.theirs);
    print_layer(ours, sizeof ours, found.ours);
    return weir_error_set(
        error, WEIR_EMISMATCH, "%s: of another model: KV layer %" PRId64 " has %s; here %s",
        r->path, found.layer, theirs, ours
    );
}

/* ---- sections -------------------------------------------------------------------------------- */
weir_status session_read_whole(
    weir_session_reader *r, session_section_type type, void *out, weir_error *error
)
{
    begin_section(r, type);
    WEIR_TRY(want(r, out, (size_t)r->layout.sections[type].size, error));
    return end_section(r, type, error);
}

weir_status weir_session_read_tokens(
    weir_session_reader *reader, int32_t *tokens, int32_t n_vocab, weir_error *error
)
{
    WEIR_TRY(session_read_whole(reader, SESSION_TOKENS, tokens, error));
    for (int32_t i = 0; i < reader->header.n_tokens + reader->header.form.n_rest; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: token %d is %d, the vocabulary ends at %d", reader->path,
                (int)i, (int)tokens[i], (int)n_vocab
            );
    return WEIR_OK;
}

weir_status weir_session_read_salt(
    weir_session_reader *reader, char salt[WEIR_PREFIX_SALT + 1], weir_error *error
)
{
    const size_t n = reader->header.salt_bytes;
    WEIR_TRY(session_read_whole(reader, SESSION_SALT, salt, error));
    salt[n] = '\0';
    return strlen(salt) == n
               ? WEIR_OK
               : weir_error_set(error, WEIR_EFORMAT, "%s: its salt contains a NUL", reader->path);
}

weir_status weir_session_read_places(
    weir_session_reader *reader, int32_t *places, weir_error *error
)
{
    WEIR_TRY(session_read_whole(reader, SESSION_PLACES, places, error));
    for (int32_t i = 0; i < reader->header.n_states; i++)
        if (places[i] < 1 || places[i] > reader->header.n_tokens ||
            (i > 0 && places[i] <= places[i - 1]))
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: state %d is after token %d, out of order or range",
                reader->path, (int)i, (int)places[i]
            );
    if (reader->header.is_pruned && reader->header.n_states > 0 &&
        places[0] != reader->header.n_tokens)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: the state is after token %d, the sequence ends at %d",
            reader->path, (int)places[0], (int)reader->header.n_tokens
        );
    return WEIR_OK;
}

weir_status weir_session_read_states(
    weir_session_reader *reader, float *const *states, weir_error *error
)
{
    begin_section(reader, SESSION_STATES);
    for (int32_t i = 0; i < reader->header.n_states; i++) {
        WEIR_TRY(want(reader, states[i], weir_session_state_bytes(&reader->header), error));
        WEIR_TRY(flush(reader, error)); /* the next state may use the same memory */
    }
    return end_section(reader, SESSION_STATES, error);
}

static bool are_sizes_ours(const weir_session_reader *r, const weir_kv_spec *spec)
{
    const weir_session_identity *const id = &r->header.identity;
    return (int64_t)weir_kv_block_bytes(spec) == id->block_bytes &&
           (int64_t)weir_kv_sink_block_bytes(spec) == id->sink_block_bytes &&
           spec->sinks.n_pages == id->n_sinks && spec->n_layers == id->n_layers &&
           weir_kv_n_heads(spec) == id->n_heads;
}

static bool are_windows_ours(const weir_session_reader *r, const weir_kv_windows_spec *spec)
{
    const weir_session_identity *const id = &r->header.identity;
    return spec->n_layers == id->n_window_layers && weir_kv_windows_length(spec) == id->window &&
           (int64_t)weir_kv_windows_block_bytes(spec) == id->window_block_bytes;
}

static weir_status other_sizes(const weir_session_reader *r, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EMISMATCH, "%s: its pages are of another size than those here", r->path
    );
}

weir_status weir_session_read_windows(
    weir_session_reader *reader, const weir_session_windows *windows,
    const weir_kv_windows_spec *spec, weir_error *error
)
{
    const int64_t n = reader->layout.n_blocks - reader->layout.first_window;
    const size_t bytes = (size_t)reader->header.identity.window_block_bytes;
    if (!are_windows_ours(reader, spec)) return other_sizes(reader, error);
    begin_section(reader, SESSION_WINDOWS);
    for (int64_t i = 0; i < n; i++)
        WEIR_TRY(want(reader, windows->memory + (size_t)windows->blocks[i] * bytes, bytes, error));
    return end_section(reader, SESSION_WINDOWS, error);
}

/* ---- sequences with a policy ----------------------------------------------------------------- */
weir_status weir_session_read_rows(
    weir_session_reader *reader, int32_t *head_rows, const weir_kv_spec *spec, weir_error *error
)
{
    WEIR_ASSERT(reader->header.is_pruned);
    if (!are_sizes_ours(reader, spec)) return other_sizes(reader, error);
    WEIR_TRY(session_read_whole(reader, SESSION_ROWS, head_rows, error));
    for (int64_t h = 0; h < reader->layout.n_heads; h++)
        if (head_rows[h] < 0 || head_rows[h] > reader->header.n_tokens)
            return weir_error_set(
                error, WEIR_EFORMAT,
                "%s: head %" PRId64 " has %" PRId32 " rows of a sequence of %" PRId32 " tokens",
                reader->path, h, head_rows[h], reader->header.n_tokens
            );
    const size_t unsealed = weir_kv_unsealed_rows_bytes(spec);
    if (session_pruned_pages_bytes(spec, head_rows) != reader->header.pages_bytes ||
        reader->header.unsealed_bytes != unsealed)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: its pages do not match its rows", reader->path
        );
    return WEIR_OK;
}

weir_status weir_session_read_unsealed(
    weir_session_reader *reader, void *unsealed, weir_error *error
)
{
    begin_section(reader, SESSION_UNSEALED_ROWS);
    WEIR_TRY(want_near(
        reader, unsealed, (size_t)reader->layout.sections[SESSION_UNSEALED_ROWS].size, error
    ));
    return end_section(reader, SESSION_UNSEALED_ROWS, error);
}

weir_status weir_session_read_pruned_pages(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const int32_t *head_rows,
    const weir_kv_spec *spec, weir_error *error
)
{
    if (!are_sizes_ours(reader, spec)) return other_sizes(reader, error);
    WEIR_ASSERT(session_pruned_pages_bytes(spec, head_rows) == reader->header.pages_bytes);
    begin_section(reader, SESSION_PAGES);
    for (int64_t block = 0; block < reader->layout.n_blocks; block++)
        for (int64_t head = 0; head < reader->layout.n_heads; head++)
            if (block < session_pages_of(head_rows[head]))
                WEIR_TRY(want_near(
                    reader, pages[head * page_stride + block],
                    weir_kv_page_bytes_at(spec, weir_kv_layer_of(spec, head), block), error
                ));
    return end_section(reader, SESSION_PAGES, error);
}

/* ---- pages of all rows ----------------------------------------------------------------------- */
weir_status weir_session_read_blocks(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const weir_kv_spec *spec,
    int64_t first, int64_t end, weir_error *error
)
{
    if (!are_sizes_ours(reader, spec)) return other_sizes(reader, error);
    WEIR_ASSERT(end <= reader->layout.n_blocks && !reader->header.is_pruned);
    if (first == 0) begin_section(reader, SESSION_PAGES);
    for (int64_t block = first; block < end; block++)
        for (int64_t head = 0; head < reader->layout.n_heads; head++)
            WEIR_TRY(want_near(
                reader, pages[head * page_stride + block],
                weir_kv_page_bytes_at(spec, weir_kv_layer_of(spec, head), block), error
            ));
    return end == reader->layout.n_blocks ? end_section(reader, SESSION_PAGES, error)
                                          : flush(reader, error);
}

weir_status weir_session_read_pages(
    weir_session_reader *reader, void *const *pages, int64_t page_stride, const weir_kv_spec *spec,
    weir_error *error
)
{
    return weir_session_read_blocks(
        reader, pages, page_stride, spec, 0, reader->layout.n_blocks, error
    );
}
