/* engine/cli/editor.c - libedit for the lines, a file of ours for the history: a line is added to
 * it at once, so that it outlives the process and is shared by all that run. */
#include "engine/cli/editor.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/utf8.h"
#include "engine/cli/progress.h"

/* Lines in memory, and in the file before it is cut to these; bytes of a line that is kept. */
enum { LINES = 500, FILE_LINES = 2 * LINES, LINE_BYTES = 2048, FILE_BYTES = 4 << 20 };

/* What is used of <histedit.h>, editline(3). Its package would add headers of others to what every
 * compilation may include, and so change the keys of all. */
typedef struct editline EditLine;
typedef struct history History;
typedef struct HistEvent {
    int num;
    const char *str;
} HistEvent;
enum { EL_PROMPT = 0, EL_EDITOR = 2, EL_BIND = 4, EL_HIST = 10, EL_GETCFN = 13, EL_PREP_TERM = 16 };
enum { H_SETSIZE = 1, H_ENTER = 10, H_SETUNIQUE = 20 };

struct weir_editor {
    EditLine *(*el_init)(const char *program, FILE *in, FILE *out, FILE *err);
    void (*el_end)(EditLine *line);
    const char *(*el_gets)(EditLine *line, int *n);
    int (*el_set)(EditLine *line, int what, ...);
    int (*el_source)(EditLine *line, const char *path);
    int (*history)(History *lines, HistEvent *event, int what, ...);
    void (*history_end)(History *lines);
    History *(*history_init)(void);
    EditLine *line;
    History *lines;
    char path[PATH_MAX]; /* of the history; "": none */
};
#define EDIT_FUNCTIONS(X)                                                                          \
    X(el_init)                                                                                     \
    X(el_end)                                                                                      \
    X(el_gets)                                                                                     \
    X(el_set)                                                                                      \
    X(el_source)                                                                                   \
    X(history)                                                                                     \
    X(history_end)                                                                                 \
    X(history_init)

static weir_status load(weir_editor *edit, weir_error *error)
{
    /* Never unloaded. The second is its name everywhere but in Debian. */
    void *library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) library = dlopen("libedit.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "lines are not edited: libedit is not here (%s); install it: apt-get install libedit2",
            dlerror()
        );
#define X(name)                                                                                    \
    edit->name = (__typeof__(edit->name))dlsym(library, #name);                                    \
    if (edit->name == NULL)                                                                        \
        return weir_error_set(error, WEIR_EUNSUPPORTED, "libedit has no function " #name);
    EDIT_FUNCTIONS(X)
#undef X
    return WEIR_OK;
}

/* ---- the history ----------------------------------------------------------------------------- */

bool weir_editor_history(char *out, size_t capacity, const char *name)
{
    const char *const state = getenv("XDG_STATE_HOME"), *const home = getenv("HOME");
    const bool is_set = state != NULL && state[0] == '/'; /* a relative one is to be ignored */
    if (!is_set && (home == NULL || home[0] != '/')) return false;
    const int n = snprintf(
        out, capacity, "%s%s/weir/%s", is_set ? state : home, is_set ? "" : "/.local/state", name
    );
    if (n < 0 || (size_t)n >= capacity) return false;
    for (char *slash = out + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(out, 0700); /* opening the file tells */
        *slash = '/';
    }
    return true;
}

static void remember(weir_editor *edit, const char *line)
{
    HistEvent event;
    (void)edit->history(edit->lines, &event, H_ENTER, line);
}

static bool is_good(const char *line, size_t length)
{
    return length > 0 && length <= LINE_BYTES && memchr(line, '\0', length) == NULL &&
           weir_utf8_valid(line, length);
}

/* The last LINES lines of a file; *kept: where they begin. Returns the number of all. */
static size_t remember_last(weir_editor *edit, char *text, size_t size, const char **kept)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < size; i++) n += text[i] == '\n';
    for (size_t skipped = 0; skipped + LINES < n; at++) skipped += text[at] == '\n';
    *kept = text + at;
    for (size_t i = at; i < size; i++) {
        if (text[i] != '\n') continue;
        text[i] = '\0';
        if (is_good(text + at, i - at)) remember(edit, text + at);
        text[i] = '\n';
        at = i + 1;
    }
    return n;
}

static void forget_file(weir_editor *edit, const weir_error *error)
{
    weir_log(WEIR_LOG_WARNING, "the history is not kept: %s", error->text);
    edit->path[0] = '\0';
}

static void read_history(weir_editor *edit)
{
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    const char *kept;
    weir_status status = weir_file_read(&text, edit->path, FILE_BYTES, &error);
    while (text.size > 0 && text.data[text.size - 1] != '\n') text.size--; /* a torn line */
    if (status == WEIR_OK && text.size > 0 &&
        remember_last(edit, text.data, text.size, &kept) > FILE_LINES)
        status = weir_file_write_private(
            edit->path, kept, (size_t)(text.data + text.size - kept), &error
        );
    if (status != WEIR_OK && status != WEIR_ENOTFOUND) forget_file(edit, &error);
    weir_buffer_free(&text);
}

/* One write, so that lines of processes that run at the same time stay whole. */
static bool append(const char *path, const char *bytes, size_t n)
{
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    struct stat file;
    const bool written = fd >= 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
                         fchmod(fd, 0600) == 0 && write(fd, bytes, n) == (ssize_t)n;
    const int problem = errno;
    if (fd >= 0) (void)close(fd);
    errno = problem;
    return written;
}

void weir_editor_keep(weir_editor *edit, const char *line, size_t length)
{
    char text[LINE_BYTES + 2];
    if (!is_good(line, length) || line[0] == ' ' || memchr(line, '\n', length) != NULL) return;
    memcpy(text, line, length);
    text[length] = '\0';
    remember(edit, text);
    if (edit->path[0] == '\0') return;
    text[length] = '\n';
    weir_error error = { 0 };
    if (append(edit->path, text, length + 1)) return;
    (void)weir_error_set(&error, WEIR_EIO, "%s: cannot write: %s", edit->path, strerror(errno));
    forget_file(edit, &error);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Waits for a byte of standard input. False: weir_interrupted is set; no signal is missed between
 * the look at it and the wait. */
static bool wait_for_byte(void)
{
    sigset_t interrupt, before;
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    (void)sigemptyset(&interrupt);
    (void)sigaddset(&interrupt, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    while (!weir_interrupted && ppoll(&input, 1, NULL, &before) < 0 && errno == EINTR) {
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !weir_interrupted;
}

/* libedit reads on after a signal; this one ends the line. */
static int read_character(EditLine *line, wchar_t *out)
{
    (void)line;
    char bytes[4];
    size_t n = 0;
    for (;;) {
        if (!wait_for_byte()) return -1;
        const ssize_t got = read(STDIN_FILENO, bytes + n, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return (int)got;
        n++;
        while (n > 0) {
            bool valid;
            uint32_t code = 0;
            const size_t step = weir_utf8_step(bytes, n, &valid);
            if (valid) {
                (void)weir_utf8_next(&code, bytes, n);
                *out = (wchar_t)code;
                return 1;
            }
            if (step == n && weir_utf8_length((unsigned char)bytes[0]) > 0) break; /* not all */
            n -= step; /* what is not UTF-8 is dropped */
            memmove(bytes, bytes + step, n);
        }
    }
}

static const char *prompt_text; /* libedit's function has no argument for it */
static char *prompt_of(EditLine *line)
{
    (void)line;
    return (char *)prompt_text;
}

static weir_status start(weir_editor *edit, weir_error *error)
{
    HistEvent event;
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    edit->line = edit->el_init("weir", stdin, stdout, stderr);
    edit->lines = edit->history_init();
    if (edit->line == NULL || edit->lines == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "lines are not edited: libedit cannot use this terminal"
        );
    (void)edit->history(edit->lines, &event, H_SETSIZE, (int)LINES);
    (void)edit->history(edit->lines, &event, H_SETUNIQUE, 1);
    (void)edit->el_set(edit->line, EL_PROMPT, prompt_of);
    (void)edit->el_set(edit->line, EL_EDITOR, "emacs");
    (void)edit->el_set(edit->line, EL_HIST, edit->history, edit->lines);
    (void)edit->el_set(edit->line, EL_GETCFN, read_character);
    (void)edit->el_set(edit->line, EL_BIND, "^R", "em-inc-search-prev", NULL);
    (void)edit->el_source(edit->line, NULL); /* ~/.editrc */
    return WEIR_OK;
}

weir_status weir_editor_open(
    weir_editor **out, const char *prompt, const char *history, weir_error *error
)
{
    const char *const kind = getenv("TERM");
    *out = NULL;
    if (kind == NULL || kind[0] == '\0' || strcmp(kind, "dumb") == 0)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "lines are not edited: TERM does not name a terminal"
        );
    weir_editor *const edit = calloc(1, sizeof *edit);
    if (edit == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory to edit lines");
    weir_status status = load(edit, error);
    if (status == WEIR_OK) status = start(edit, error);
    if (status != WEIR_OK) {
        weir_editor_close(edit);
        return status;
    }
    prompt_text = prompt;
    if (history != NULL && strlen(history) < sizeof edit->path) {
        memcpy(edit->path, history, strlen(history) + 1);
        read_history(edit);
    }
    *out = edit;
    return WEIR_OK;
}

weir_editor_end weir_editor_read(weir_editor *edit, const char **line, size_t *length)
{
    int n = 0;
    /* Before the prompt: what is typed at it would else go through the terminal's own editing. */
    (void)edit->el_set(edit->line, EL_PREP_TERM, 1);
    *line = edit->el_gets(edit->line, &n);
    if (*line == NULL || n <= 0)
        return weir_interrupted ? WEIR_EDITOR_INTERRUPTED : WEIR_EDITOR_END;
    *length = (size_t)n;
    while (*length > 0 && ((*line)[*length - 1] == '\n' || (*line)[*length - 1] == '\r'))
        (*length)--;
    return WEIR_EDITOR_LINE;
}

void weir_editor_close(weir_editor *edit)
{
    if (edit == NULL) return;
    if (edit->line != NULL) edit->el_end(edit->line);
    if (edit->lines != NULL) edit->history_end(edit->lines);
    free(edit);
}
