#include "engine/cli/process.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static int    n_arguments;
static char **arguments;

void weir_process_begin(int argc, char **argv)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR); /* the lowest free number */
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) (void)close(fd);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    n_arguments = argc;
    arguments = argv;
}

bool weir_process_wipe(const char *secret)
{
    const size_t n = strlen(secret);
    bool         found = false;
    for (int i = 1; i < n_arguments && n > 0; i++) {
        const size_t length = strlen(arguments[i]);
        char *const  end = length >= n ? arguments[i] + length - n : NULL;
        if (end == NULL || strcmp(end, secret) != 0 || (end > arguments[i] && end[-1] != '=')) continue;
        memset(end, 'x', n);
        found = true;
    }
    return found;
}

void weir_process_hide(void)
{
    const struct rlimit none = { 0, 0 };
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* pipes of core_pattern ignore the limit */
}
