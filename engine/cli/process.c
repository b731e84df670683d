#include "engine/cli/process.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static int n_arguments;
static char **arguments;

void weir_process_begin(int argc, char **argv)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR); /* the lowest free number */
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) (void)close(fd);
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
        if (fcntl(i, F_GETFD) < 0) _exit(1); /* there is nowhere to report it */
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    n_arguments = argc;
    arguments = argv;
}

/* Returns what follows `name` and '=' (spaces allowed), or NULL if the text does not begin so. */
static char *value_of(char *text, const char *name)
{
    const size_t n = strlen(name);
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): no argument is NULL */
    if (strncmp(text, name, n) != 0) return NULL;
    text += n + strspn(text + n, " \t");
    return *text == '=' ? text + 1 : NULL;
}

/* The value of the option or key at argument i, which may be in the next argument; NULL: none. */
static char *secret_of(int i, const char *option, const char *key)
{
    char *const set = value_of(arguments[i], "--set");
    char *value = value_of(set != NULL ? set : arguments[i], key);
    if (value == NULL) value = value_of(arguments[i], option);
    if (value != NULL || i + 1 == n_arguments) return value;
    return strcmp(arguments[i], option) == 0 ? arguments[i + 1] : NULL;
}

bool weir_process_wipe(const char *option, const char *key)
{
    bool found = false;
    for (int i = 1; i < n_arguments; i++) {
        char *const value = secret_of(i, option, key);
        if (value == NULL || *value == '\0') continue;
        memset(value, 'x', strlen(value));
        found = true;
    }
    return found;
}

void weir_process_hide(void)
{
    const struct rlimit none = { 0, 0 };
    (void)setrlimit(RLIMIT_CORE, &none);
    /* A pipe in core_pattern ignores the limit. */
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
