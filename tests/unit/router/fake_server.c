/* A model's server for tests of the router: answers on the UNIX socket of --set server.host=PATH.
 * Its second argument is its name, the third what it does at the start: "serve", "fail" (ends with
 * 7) or "wait" (never listens).
 *
 * Paths: /die ends the process with 3. /stream sends a piece, and the rest after a request for /go.
 * /hold and /page/hold answer nothing until the client has gone; /gone answers once that happened.
 * /big sends 4 MiB. /cut sends the process number, which is less than its Content-Length, and goes
 * on when the client has gone. Any other: name and request. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *name;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int n_go, n_gone;

static void count(int *counter)
{
    (void)pthread_mutex_lock(&lock);
    *counter += 1;
    (void)pthread_cond_broadcast(&change);
    (void)pthread_mutex_unlock(&lock);
}

static void wait_for(const int *counter)
{
    (void)pthread_mutex_lock(&lock);
    while (*counter == 0) (void)pthread_cond_wait(&change, &lock);
    (void)pthread_mutex_unlock(&lock);
}

static void put(int fd, const char *text, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0) return;
        text += sent;
        n -= (size_t)sent;
    }
}

static void say(int fd, const char *text) { put(fd, text, strlen(text)); }

static int is_complete(const char *text, size_t n)
{
    const char *const end = strstr(text, "\r\n\r\n"), *const length =
                                                          strstr(text, "Content-Length: ");
    if (end == NULL) return 0;
    if (strstr(text, "Transfer-Encoding: chunked") != NULL) return strstr(end, "0\r\n\r\n") != NULL;
    return length == NULL || n - (size_t)(end + 4 - text) >= (size_t)atol(length + 16);
}

static void answer(int fd, const char *request, size_t n)
{
    static const char ok[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    static char zeros[1 << 16];
    const char *const path = strchr(request, ' ') != NULL ? strchr(request, ' ') + 1 : "";
    char pid[80];
    if (strncmp(path, "/die", 4) == 0) _exit(3);
    if (strncmp(path, "/hold", 5) == 0 || strncmp(path, "/page/hold", 10) == 0) {
        char byte;
        while (recv(fd, &byte, 1, 0) > 0) continue;
        count(&n_gone);
        return;
    }
    if (strncmp(path, "/gone", 5) == 0) wait_for(&n_gone);
    if (strncmp(path, "/go ", 4) == 0) count(&n_go);
    if (strncmp(path, "/cut", 4) == 0) {
        (void)snprintf(
            pid, sizeof pid, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n%d\n", (int)getpid()
        );
        say(fd, pid);
        char byte;
        while (recv(fd, &byte, 1, 0) > 0) continue;
        return;
    }
    say(fd, ok);
    if (strncmp(path, "/stream", 7) == 0) {
        say(fd, "first;");
        wait_for(&n_go);
        say(fd, "second;");
        return;
    }
    if (strncmp(path, "/big", 4) == 0) {
        for (int i = 0; i < 64; i++) put(fd, zeros, sizeof zeros);
        return;
    }
    say(fd, name);
    say(fd, "\n");
    put(fd, request, n);
}

static void *serve(void *argument)
{
    enum { MOST = 1 << 21 };
    const int fd = (int)(intptr_t)argument;
    char *const text = calloc(1, MOST + 1);
    size_t n = 0;
    while (text != NULL && n < MOST) {
        const ssize_t got = recv(fd, text + n, MOST - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
        text[n] = '\0';
        if (!is_complete(text, n)) continue;
        answer(fd, text, n);
        break;
    }
    free(text);
    (void)close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const char *const setting = argc > 4 ? argv[argc - 1] : "";
    if (strncmp(setting, "server.host=", 12) != 0 || strlen(setting) > 100) return 9;
    name = argv[1];
    if (strcmp(argv[2], "fail") == 0) return 7;
    if (strcmp(argv[2], "wait") == 0)
        for (;;) (void)pause();
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", setting + 12);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 64) != 0)
        return 8;
    for (;;) {
        pthread_t thread;
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0 || pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) != 0) return 8;
        (void)pthread_detach(thread);
    }
}
