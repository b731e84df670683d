/* engine/router/children.c - the servers of models: processes that listen on UNIX sockets in a
 * folder that only this user reads. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/router/internal.h"

enum { MOST_ARGUMENTS = 512 };

/* In the new process, where only async-signal-safe functions are allowed. A group of its own, so
 * that a Ctrl-C in the router's terminal reaches it once, from the router. */
static void become(
    const weir_router *router, const char *const *arguments, int keys_fd, pid_t parent
)
{
    static const int changed[] = { SIGPIPE, SIGTERM, SIGINT, SIGHUP };
    const struct sigaction normal = { .sa_handler = SIG_DFL };
    sigset_t none;
    (void)setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent) _exit(126);
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
        (void)sigaction(changed[i], &normal, NULL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC); /* where the kernel has it */
    if (keys_fd >= 0 && fcntl(keys_fd, F_SETFD, 0) != 0) _exit(126);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) _exit(126);
    static const char *const empty[] = { NULL };
    const char *const *const environment = router->options.environment;
    (void)execve(
        router->options.program, (char *const *)arguments,
        (char *const *)(environment != NULL ? environment : empty)
    );
    _exit(127);
}

static weir_status watch(weir_router *router, weir_child *child, weir_error *error)
{
    const int fd = pidfd_open(child->pid, 0);
    child->source = (weir_route_source){ WEIR_ROUTE_CHILD, fd, EPOLLIN, child };
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &child->source };
    if (fd >= 0 && epoll_ctl(router->epoll, EPOLL_CTL_ADD, fd, &event) == 0) return WEIR_OK;
    const int why = errno;
    (void)kill(child->pid, SIGKILL);
    (void)waitpid(child->pid, NULL, 0);
    if (fd >= 0) (void)close(fd);
    child->pid = 0;
    return weir_error_set(error, WEIR_EIO, "cannot watch a new process: %s", strerror(why));
}

/* What cleans /tmp removes a folder in which nothing was for days. Another user may then have made
 * one of its name, and would get the requests. */
static weir_status keep_folder(const weir_router *router, weir_error *error)
{
    struct stat info;
    if (mkdir(router->folder, S_IRWXU) != 0 && errno != EEXIST)
        return weir_error_set(error, WEIR_EIO, "%s: %s", router->folder, strerror(errno));
    if (lstat(router->folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
        (info.st_mode & (S_IRWXG | S_IRWXO)) == 0)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EIO, "%s is no longer a folder of this user alone", router->folder
    );
}

weir_status weir_child_start(weir_router *router, size_t i, weir_error *error)
{
    WEIR_TRY(keep_folder(router, error));
    weir_child *const child = &router->children[i];
    const char *const *const own = router->options.models[i].arguments;
    const char *arguments[MOST_ARGUMENTS];
    char setting[sizeof child->socket + 16];
    size_t n = 0;
    (void)snprintf(child->socket, sizeof child->socket, "%s/%zu.sock", router->folder, i);
    (void)snprintf(setting, sizeof setting, "server.host=%s", child->socket);
    for (; own[n] != NULL && n + 3 < MOST_ARGUMENTS; n++) arguments[n] = own[n];
    arguments[n++] = "--set";
    arguments[n++] = setting;
    arguments[n] = NULL;
    (void)unlink(child->socket);
    /* A signal that arrives before the new process has its own actions must not run the router's
     * handler there, which would tell the router and be lost for the process. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) become(router, arguments, router->options.models[i].keys_fd, parent);
    const int why = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return weir_error_set(error, WEIR_EIO, "cannot start a process: %s", strerror(why));
    child->pid = pid;
    child->kill_ns = 0;
    return watch(router, child, error);
}

int weir_child_connect(const weir_router *router, size_t i)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path, router->children[i].socket, sizeof address.sun_path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
    const int why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

void weir_child_stop(weir_router *router, size_t i, int64_t now_ns)
{
    weir_child *const child = &router->children[i];
    if (child->pid == 0 || child->kill_ns != 0) return;
    child->kill_ns = now_ns + router->options.stop_ms * 1000000;
    (void)kill(child->pid, SIGTERM);
}

void weir_child_tick(weir_router *router, size_t i, int64_t now_ns)
{
    weir_child *const child = &router->children[i];
    if (child->pid == 0 || child->kill_ns == 0 || now_ns < child->kill_ns) return;
    weir_log(
        WEIR_LOG_WARNING, "model %s: its server did not end in %lld ms and is killed",
        router->loads.of[i].name, (long long)router->options.stop_ms
    );
    child->kill_ns = INT64_MAX;
    (void)kill(child->pid, SIGKILL);
}

int weir_child_end(weir_router *router, size_t i)
{
    weir_child *const child = &router->children[i];
    int status = 0;
    pid_t ended;
    do {
        ended = waitpid(child->pid, &status, 0);
    } while (ended < 0 && errno == EINTR);
    (void)epoll_ctl(router->epoll, EPOLL_CTL_DEL, child->source.fd, NULL);
    (void)close(child->source.fd);
    child->source.fd = -1;
    child->pid = 0;
    (void)unlink(child->socket); /* one that was killed leaves it */
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
