#include "tools/convert/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/formats/json.h"

enum { LINE_BYTES = 1 << 20 };

extern char **environ;

const char *weir_peer_script(void) { return weir_peer_files[0].text; }

/* ---- process --------------------------------------------------------------------------------- */
static weir_status failed(const char *name, const char *what, int reason, weir_error *error)
{
    return weir_error_set(error, WEIR_EIO, "%s: cannot %s: %s", name, what, strerror(reason));
}

/* A file in memory with these lines, read from its start. */
static int open_lines(const weir_buffer *lines)
{
    const int fd = memfd_create("weir-verify", MFD_CLOEXEC);
    size_t at = 0;
    while (fd >= 0 && at < lines->size) {
        const ssize_t n = write(fd, lines->data + at, lines->size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            (void)close(fd);
            return -1;
        }
        at += (size_t)n;
    }
    if (fd >= 0) (void)lseek(fd, 0, SEEK_SET);
    return fd;
}

weir_status weir_peer_start(
    weir_peer *peer, const char *name, const char *const *argv, const weir_buffer *lines,
    weir_error *error
)
{
    int ends[2];
    *peer = (weir_peer){ .name = name, .fd = -1 };
    const int input = open_lines(lines);
    if (input < 0) return failed(name, "pass the prompts", errno, error);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        const int reason = errno;
        (void)close(input);
        return failed(name, "open a pipe", reason, error);
    }
    posix_spawn_file_actions_t actions;
    int result = posix_spawn_file_actions_init(&actions);
    if (result == 0) result = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    if (result == 0) result = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (result == 0)
        result = posix_spawnp(
            &peer->process, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ
        );
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(input);
    (void)close(ends[1]);
    peer->fd = ends[0];
    if (result == 0) return WEIR_OK;
    peer->process = 0;
    weir_peer_stop(peer);
    return failed(argv[0], "run", result, error);
}

void weir_peer_stop(weir_peer *peer)
{
    if (peer->fd >= 0) (void)close(peer->fd);
    peer->fd = -1;
    if (peer->process > 0) {
        (void)kill(peer->process, SIGTERM);
        while (waitpid(peer->process, NULL, 0) < 0 && errno == EINTR) continue;
    }
    peer->process = 0;
}

/* The output ended early: says how the program did. */
static weir_status ended(weir_peer *peer, weir_error *error)
{
    int status = 0;
    pid_t done;
    while ((done = waitpid(peer->process, &status, 0)) < 0 && errno == EINTR) continue;
    if (done > 0) peer->process = 0;
    if (done > 0 && WIFSIGNALED(status))
        return weir_error_set(
            error, WEIR_EIO, "%s was ended by signal %d", peer->name, WTERMSIG(status)
        );
    return weir_error_set(
        error, WEIR_EIO, "%s ended with code %d before it answered all prompts", peer->name,
        done > 0 ? WEXITSTATUS(status) : -1
    );
}

static weir_status read_bytes(weir_peer *peer, void *out, size_t n, weir_error *error)
{
    char *at = out;
    while (n > 0) {
        const ssize_t got = read(peer->fd, at, n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed(peer->name, "read its answer", errno, error);
        if (got == 0) return ended(peer, error);
        at += got;
        n -= (size_t)got;
    }
    return WEIR_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */
static weir_status read_line(weir_peer *peer, json_t **out, weir_error *error)
{
    weir_buffer line = { 0 };
    weir_status status = WEIR_OK;
    char c = 0;
    while (status == WEIR_OK) {
        status = read_bytes(peer, &c, 1, error);
        if (status != WEIR_OK || c == '\n') break;
        status = line.size < LINE_BYTES
                     ? weir_buffer_add(&line, &c, 1)
                     : weir_error_set(
                           error, WEIR_EFORMAT, "%s wrote a line that is no answer", peer->name
                       );
    }
    if (status == WEIR_OK)
        status = weir_json_parse_within(
            out, line.size > 0 ? line.data : "", line.size, peer->name, &weir_json_request, error
        );
    weir_buffer_free(&line);
    return status;
}

static weir_status read_head(weir_peer *peer, int64_t n_rows, int64_t n_vocab, weir_error *error)
{
    json_t *head = NULL;
    WEIR_TRY(read_line(peer, &head, error));
    const json_t *const rows = json_object_get(head, "rows"), *const vocab =
                                                                  json_object_get(head, "vocab");
    weir_status status = WEIR_OK;
    if (!json_is_integer(rows) || !json_is_integer(vocab))
        status = weir_error_set(
            error, WEIR_EFORMAT, "%s answered without \"rows\" and \"vocab\"", peer->name
        );
    else if (json_integer_value(rows) != n_rows || json_integer_value(vocab) != n_vocab)
        status = weir_error_set(
            error, WEIR_EMISMATCH,
            "%s has %lld rows of %lld logits where Weir has %lld of %lld: it is another model",
            peer->name, (long long)json_integer_value(rows), (long long)json_integer_value(vocab),
            (long long)n_rows, (long long)n_vocab
        );
    json_decref(head);
    return status;
}

static weir_status read_ids(
    weir_peer *peer, int32_t *ids, int64_t n_ids, int64_t n_vocab, weir_error *error
)
{
    json_t *list = NULL;
    WEIR_TRY(read_line(peer, &list, error));
    bool is_good = json_array_size(list) == (size_t)n_ids;
    for (int64_t i = 0; is_good && i < n_ids; i++) {
        const json_t *const id = json_array_get(list, (size_t)i);
        is_good =
            json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < n_vocab;
        ids[i] = (int32_t)json_integer_value(id);
    }
    json_decref(list);
    return is_good ? WEIR_OK
                   : weir_error_set(
                         error, WEIR_EFORMAT, "%s did not answer with %lld ids", peer->name,
                         (long long)n_ids
                     );
}

weir_status weir_peer_read(
    weir_peer *peer, float *logits, int64_t n_rows, int64_t n_vocab, int32_t *ids, int64_t n_ids,
    weir_error *error
)
{
    WEIR_TRY(read_head(peer, n_rows, n_vocab, error));
    WEIR_TRY(read_bytes(peer, logits, (size_t)n_rows * (size_t)n_vocab * sizeof *logits, error));
    return read_ids(peer, ids, n_ids, n_vocab, error);
}
