/* engine/session/file/write.c - writes a cached sequence to a file: sections in order, hashed as
 * they are written, the header last. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/direct_io.h"
#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/session/file/session_file_internal.h"

/* What is hashed is written while it is in a cache. */
enum { PIECES = 256, PIECE_BYTES = 2 << 20, COPIES = 16, BATCH_BYTES = 8 << 20 };

typedef struct writer {
    weir_new_file file;
    weir_direct_io io;
    const char *path;
    XXH3_state_t *hash;
    uint64_t at; /* offset in the file */
    int64_t since_ns; /* when the last piece was written */
    uint64_t sent, arrived; /* bytes before these are on their way to the disk, and there */
    struct iovec pieces[PIECES]; /* [n_pieces], not written yet */
    int n_pieces;
    size_t n_bytes; /* of the pieces */
    void *memory; /* owned, for the copies */
    /* [COPIES, copy_bytes] of pages that may move, n_copies of them among the pieces; NULL: pages
     * are written in place. */
    char *copies;
    size_t copy_bytes;
    int n_copies;
    weir_session_progress *progress; /* may be NULL */
    weir_error *error;
} writer;

static const unsigned char zeros[WEIR_SESSION_ALIGNMENT];

/* Gigabytes that only fsync writes take memory and bus from the engine at once, and then the disk
 * for a long time. So each batch is sent to the disk when it is complete, and the one before it is
 * waited for. Failures cost only that; fsync reports those of the disk. */
static void send_batch(writer *w)
{
    const uint64_t end = w->at / BATCH_BYTES * BATCH_BYTES, before = w->sent;
    if (end <= before) return;
    (void)sync_file_range(w->file.fd, (off_t)before, (off_t)(end - before), SYNC_FILE_RANGE_WRITE);
    if (before > w->arrived)
        (void)sync_file_range(
            w->file.fd, (off_t)w->arrived, (off_t)(before - w->arrived),
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
        );
    w->arrived = before;
    w->sent = end;
}

/* Steps wait for the slowest of their threads, so a writer that hashes on the same processors
 * delays each of them. While others compute it works a seventh of the time. */
static void give_way(writer *w)
{
    static const int64_t longest_ns = 100000000;
    const weir_session_progress *const p = w->progress;
    const int64_t pause = 6 * (weir_clock_ns() - w->since_ns);
    if (p == NULL || p->give_way == NULL) return;
    p->give_way(p->user, pause < longest_ns ? pause : longest_ns);
    w->since_ns = weir_clock_ns();
}

static weir_status flush(writer *w)
{
    for (int first = 0; first < w->n_pieces;) {
        const ssize_t n =
            weir_direct_io_write(&w->io, w->pieces + first, w->n_pieces - first, (off_t)w->at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return weir_error_set(
                w->error, WEIR_EIO, "%s: cannot write: %s", w->path,
                n < 0 ? strerror(errno) : "nothing was written"
            );
        w->at += (uint64_t)n;
        weir_session_progress_add(w->progress, n);
        size_t left = (size_t)n;
        while (first < w->n_pieces && left >= w->pieces[first].iov_len)
            left -= w->pieces[first++].iov_len;
        if (left == 0) continue;
        w->pieces[first].iov_base = (char *)w->pieces[first].iov_base + left;
        w->pieces[first].iov_len -= left;
    }
    w->n_pieces = 0;
    w->n_bytes = 0;
    w->n_copies = 0;
    send_batch(w);
    give_way(w);
    return WEIR_OK;
}

/* Adds a piece; `bytes` must stay valid until the next flush. */
static weir_status add(writer *w, const void *bytes, size_t n)
{
    if (n == 0) return WEIR_OK;
    (void)XXH3_128bits_update(w->hash, bytes, n);
    w->pieces[w->n_pieces++] = (struct iovec){ (void *)bytes, n };
    w->n_bytes += n;
    return w->n_pieces == PIECES || w->n_bytes >= PIECE_BYTES ? flush(w) : WEIR_OK;
}

/* The largest page, rounded so that copies stay aligned. */
static size_t copy_bytes(const weir_kv_spec *spec)
{
    enum { WITHOUT_PAGES = 16384 }; /* states and window blocks are copied in pieces */
    size_t most = weir_kv_sink_page_stride(spec);
    if (spec->n_layers == 0) return WITHOUT_PAGES;
    for (int64_t layer = 0; layer < spec->n_layers; layer++) {
        const size_t bytes = weir_kv_page_stride(spec, layer);
        if (bytes > most) most = bytes;
    }
    return session_padded(most);
}

size_t weir_session_copy_bytes(const weir_kv_spec *spec)
{
    return COPIES * copy_bytes(spec) + WEIR_LOWER_TIER_ALIGNMENT;
}

static weir_status open_copies(writer *w, const weir_session_content *content)
{
    const bool is_apart =
        content->store != NULL && weir_ledger_device(weir_kv_store_ledger(content->store)) != NULL;
    if (content->source == NULL && !is_apart &&
        (content->store == NULL || weir_kv_cold_pages(content->spec) == 0))
        return WEIR_OK;
    w->copy_bytes = copy_bytes(content->spec);
    if (content->source == NULL)
        w->memory = weir_memory_take(weir_session_copy_bytes(content->spec));
    char *const memory = content->source != NULL ? content->source->memory : w->memory;
    if (memory == NULL)
        return weir_error_set(w->error, WEIR_ENOMEM, "%s: no memory to write it", w->path);
    w->copies =
        memory + (WEIR_LOWER_TIER_ALIGNMENT - (uintptr_t)memory % WEIR_LOWER_TIER_ALIGNMENT);
    return WEIR_OK;
}

static weir_status next_copy(writer *w, char **copy)
{
    if (w->n_copies == COPIES) WEIR_TRY(flush(w));
    *copy = w->copies + (size_t)w->n_copies++ * w->copy_bytes;
    return WEIR_OK;
}

/* Adds the page of a layer and head. */
static weir_status add_page(
    writer *w, const weir_session_content *content, int64_t block, int64_t head
)
{
    const size_t bytes =
        weir_kv_page_bytes_at(content->spec, weir_kv_layer_of(content->spec, head), block);
    char *copy;
    if (w->copies == NULL)
        return add(w, content->pages[head * content->page_stride + block], bytes);
    WEIR_TRY(next_copy(w, &copy));
    if (content->source != NULL)
        WEIR_TRY(content->source->page(content->source->user, copy, block, head, w->error));
    else
        WEIR_TRY(weir_kv_page_copy(
            content->store, copy, content->pages[head * content->page_stride + block], head,
            w->error
        ));
    return add(w, copy, bytes);
}

/* Adds part i of those that `copy` copies, in pieces. */
static weir_status add_copied(
    writer *w, void *user, weir_session_copy *copy, int64_t i, size_t bytes
)
{
    char *piece;
    for (size_t at = 0; at < bytes; at += w->copy_bytes) {
        const size_t n = bytes - at < w->copy_bytes ? bytes - at : w->copy_bytes;
        WEIR_TRY(next_copy(w, &piece));
        WEIR_TRY(copy(user, piece, i, at, n, w->error));
        WEIR_TRY(add(w, piece, n));
    }
    return WEIR_OK;
}

static weir_status add_state(
    writer *w, const weir_session_content *content, int32_t state, size_t bytes
)
{
    const weir_session_source *const source = content->source;
    return source != NULL ? add_copied(w, source->user, source->state, state, bytes)
                          : add(w, content->states[state].state, bytes);
}

/* Adds window block number `i` of those in the file. */
static weir_status add_window(
    writer *w, const weir_session_content *content, int64_t i, size_t bytes
)
{
    const weir_session_windows *const windows = &content->windows;
    const weir_session_source *const source = content->source;
    return source != NULL ? add_copied(w, source->user, source->window, i, bytes)
                          : add(w, windows->memory + (size_t)windows->blocks[i] * bytes, bytes);
}

static weir_status end_section(writer *w, session_section *section)
{
    WEIR_TRY(add(w, zeros, (size_t)(session_padded(section->size) - section->size)));
    WEIR_TRY(flush(w));
    const XXH128_hash_t hash = XXH3_128bits_digest(w->hash);
    section->hash[0] = hash.low64;
    section->hash[1] = hash.high64;
    WEIR_ASSERT(w->at == section->offset + session_padded(section->size));
    (void)XXH3_128bits_reset(w->hash);
    return WEIR_OK;
}

static weir_status write_layers(
    writer *w, const weir_session_identity *id, session_section *section
)
{
    enum { LAYERS = 64 }; /* layers written at a time */
    unsigned char bytes[LAYERS * SESSION_LAYER];
    const int64_t n_layers = id->n_layers + id->n_window_layers;
    for (int64_t first = 0; first < n_layers; first += LAYERS) {
        const int64_t n = n_layers - first < LAYERS ? n_layers - first : LAYERS;
        for (int64_t i = 0; i < n; i++)
            session_put_layer(bytes + i * SESSION_LAYER, &id->geometry[first + i]);
        WEIR_TRY(add(w, bytes, (size_t)n * SESSION_LAYER));
        WEIR_TRY(flush(w)); /* before `bytes` change */
    }
    return end_section(w, section);
}

static weir_status write_policy(
    writer *w, const weir_session_pruned *pruned, session_section *section
)
{
    unsigned char bytes[SESSION_POLICY_FIXED + WEIR_TURNS * SESSION_TURN] = { 0 }, *at = bytes;
    const size_t n = strlen(pruned->policy);
    for (int i = 0; i < 2; i++, at += 8) session_put64(at, pruned->past.policy[i]);
    session_put64(at, (uint64_t)pruned->past.budget);
    session_put32(at + 8, (uint32_t)pruned->past.n_pinned);
    session_put32(at + 12, (uint32_t)pruned->past.n_turns);
    session_put32(at + 16, (uint32_t)n);
    at = bytes + SESSION_POLICY_FIXED;
    for (int32_t i = 0; i < pruned->past.n_turns; i++, at += SESSION_TURN) {
        session_put32(at, (uint32_t)pruned->past.turns[i].prompt);
        session_put32(at + 4, (uint32_t)pruned->past.turns[i].end);
    }
    WEIR_TRY(add(w, bytes, (size_t)(at - bytes)));
    WEIR_TRY(add(w, pruned->policy, n));
    WEIR_TRY(add(w, pruned->state, pruned->state_bytes));
    return end_section(w, section); /* flushes before `bytes` goes out of scope */
}

/* Through a copy, since it may be device memory like pages. */
static weir_status add_unsealed(writer *w, const weir_session_content *content, size_t bytes)
{
    const char *const from = content->pruned->unsealed;
    char *copy;
    if (w->copies == NULL || content->store == NULL) return add(w, from, bytes);
    for (size_t at = 0; at < bytes; at += w->copy_bytes) {
        const size_t n = bytes - at < w->copy_bytes ? bytes - at : w->copy_bytes;
        WEIR_TRY(next_copy(w, &copy));
        weir_ledger_copy(weir_kv_store_ledger(content->store), copy, from + at, n);
        WEIR_TRY(weir_ledger_check(weir_kv_store_ledger(content->store), w->error));
        WEIR_TRY(add(w, copy, n));
    }
    return WEIR_OK;
}

static weir_status write_pruned(
    writer *w, const weir_session_content *content, session_layout *layout
)
{
    const weir_session_pruned *const pruned = content->pruned;
    WEIR_TRY(add(w, pruned->head_rows, layout->sections[SESSION_ROWS].size));
    WEIR_TRY(end_section(w, &layout->sections[SESSION_ROWS]));
    WEIR_TRY(write_policy(w, pruned, &layout->sections[SESSION_POLICY_STATE]));
    WEIR_TRY(add_unsealed(w, content, layout->sections[SESSION_UNSEALED_ROWS].size));
    return end_section(w, &layout->sections[SESSION_UNSEALED_ROWS]);
}

static weir_status write_sections(
    writer *w, const weir_session_content *content, const weir_session_header *header,
    session_layout *layout
)
{
    int32_t places[WEIR_SESSION_STATES];
    WEIR_TRY(write_layers(w, &header->identity, &layout->sections[SESSION_LAYERS]));
    for (int32_t i = 0; i < content->n_states; i++) places[i] = content->states[i].at;
    /* NOLINTBEGIN(clang-analyzer-core.StackAddressEscape): after a failure w writes nothing more */
    WEIR_TRY(add(w, content->tokens, layout->sections[SESSION_TOKENS].size));
    WEIR_TRY(end_section(w, &layout->sections[SESSION_TOKENS]));
    WEIR_TRY(add(w, content->salt, layout->sections[SESSION_SALT].size));
    WEIR_TRY(end_section(w, &layout->sections[SESSION_SALT]));
    WEIR_TRY(add(w, places, layout->sections[SESSION_PLACES].size));
    WEIR_TRY(end_section(w, &layout->sections[SESSION_PLACES]));
    /* NOLINTEND(clang-analyzer-core.StackAddressEscape) */
    for (int32_t i = 0; i < content->n_states; i++)
        WEIR_TRY(add_state(w, content, i, weir_session_state_bytes(header)));
    WEIR_TRY(end_section(w, &layout->sections[SESSION_STATES]));
    for (int64_t block = 0; block < layout->n_blocks; block++)
        for (int64_t head = 0; head < layout->n_heads; head++)
            if (content->pruned == NULL ||
                block < session_pages_of(content->pruned->head_rows[head]))
                WEIR_TRY(add_page(w, content, block, head));
    WEIR_TRY(end_section(w, &layout->sections[SESSION_PAGES]));
    for (int64_t i = 0; i < layout->n_blocks - layout->first_window; i++)
        WEIR_TRY(add_window(w, content, i, (size_t)header->identity.window_block_bytes));
    WEIR_TRY(end_section(w, &layout->sections[SESSION_WINDOWS]));
    return content->pruned != NULL ? write_pruned(w, content, layout) : WEIR_OK;
}

static weir_status write_file(
    writer *w, const weir_session_header *header, const weir_session_content *content,
    session_layout *layout
)
{
    unsigned char bytes[SESSION_HEADER];
    w->at = SESSION_HEADER;
    WEIR_TRY(write_sections(w, content, header, layout));
    session_header_encode(bytes, header, layout);
    w->at = 0;
    /* NOLINTBEGIN(clang-analyzer-core.StackAddressEscape): w ends with this function */
    WEIR_TRY(add(w, bytes, sizeof bytes));
    return flush(w);
    /* NOLINTEND(clang-analyzer-core.StackAddressEscape) */
}

weir_status weir_session_write(
    const char *path, const weir_session_identity *identity, const weir_session_content *content,
    size_t *n_bytes, weir_error *error
)
{
    session_layout layout;
    weir_session_header header;
    session_header_of(&header, identity, content);
    header.created = weir_clock_unix_seconds();
    if (!session_layout_of(&layout, &header))
        return weir_error_set(
            error, WEIR_EINVAL, "%s: a session of these sizes cannot be saved", path
        );
    writer w = { .path = path,
                 .hash = XXH3_createState(),
                 .progress = content->progress,
                 .since_ns = weir_clock_ns(),
                 .error = error };
    if (w.hash == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory to write it", path);
    (void)XXH3_128bits_reset(w.hash);
    weir_status status = weir_new_file_open(&w.file, path, layout.file_bytes, error);
    const bool is_open = status == WEIR_OK;
    if (is_open) weir_direct_io_open(&w.io, w.file.fd);
    if (status == WEIR_OK) status = open_copies(&w, content);
    if (status == WEIR_OK) status = write_file(&w, &header, content, &layout);
    if (status == WEIR_OK)
        status = weir_new_file_keep(&w.file, error);
    else if (is_open)
        weir_new_file_drop(&w.file);
    weir_memory_give(w.memory);
    (void)XXH3_freeState(w.hash);
    if (status == WEIR_OK) *n_bytes = layout.file_bytes;
    return status;
}
