/* engine/cli/sandbox_landlock.c - Landlock by direct system calls (linux/landlock.h,
 * Documentation/userspace-api/landlock.rst): every right that the kernel knows is removed, then
 * granted below the folders. Open descriptors keep their rights (docs/decisions/0035). */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/cli/sandbox.h"

/* ABI 2 to 6, spelled out: the C library's headers lag behind kernels. */
static const uint64_t fs_refer = 1u << 13, fs_truncate = 1u << 14, fs_ioctl_device = 1u << 15;
static const uint64_t net_bind_tcp = 1u << 0, net_connect_tcp = 1u << 1;
static const uint64_t scope_abstract_unix_socket = 1u << 0, scope_signal = 1u << 1;

/* As of ABI 6. A kernel accepts a longer struct if the fields that it does not know are 0. */
typedef struct ruleset {
    uint64_t fs, net, scoped;
} ruleset;

static ruleset all_of(int abi)
{
    ruleset r = { .fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1 }; /* ABI 1: execute to make_sym */
    if (abi >= 2) r.fs |= fs_refer;
    if (abi >= 3) r.fs |= fs_truncate;
    if (abi >= 4) r.net = net_bind_tcp | net_connect_tcp;
    if (abi >= 5) r.fs |= fs_ioctl_device;
    if (abi >= 6) r.scoped = scope_abstract_unix_socket | scope_signal;
    return r;
}

static weir_status allow_folder(int rules, uint64_t known, const char *folder, weir_error *error)
{
    const uint64_t wanted = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                            LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                            LANDLOCK_ACCESS_FS_REMOVE_FILE | fs_truncate;
    const int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return weir_error_set(
            error, WEIR_EIO, "%.400s: cannot open this folder for the sandbox: %s", folder,
            strerror(errno)
        );
    const struct landlock_path_beneath_attr rule = { .allowed_access = wanted & known,
                                                     .parent_fd = fd };
    const long failed = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    const int why = errno;
    (void)close(fd);
    if (failed == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EIO, "%.400s: the kernel refuses a Landlock rule for it: %s", folder,
        strerror(why)
    );
}

weir_status weir_landlock_open(
    int *rules, int *abi, const weir_sandbox_options *options, weir_error *error
)
{
    *rules = -1;
    *abi = 0;
    const long found =
        syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    /* ENOSYS: not built in; EOPNOTSUPP: disabled at boot; EPERM: a container's filter. */
    if (found <= 0) return WEIR_OK;
    const ruleset wanted = all_of((int)found);
    const int fd = (int)syscall(SYS_landlock_create_ruleset, &wanted, sizeof wanted, 0);
    if (fd < 0)
        return weir_error_set(
            error, WEIR_EIO, "the kernel cannot create a Landlock ruleset of ABI %ld: %s", found,
            strerror(errno)
        );
    for (size_t i = 0; i < options->n_folders; i++) {
        const weir_status status = allow_folder(fd, wanted.fs, options->folders[i], error);
        if (status == WEIR_OK) continue;
        (void)close(fd);
        return status;
    }
    *rules = fd;
    *abi = (int)found;
    return WEIR_OK;
}

int weir_landlock_restrict(int rules)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
    return syscall(SYS_landlock_restrict_self, rules, 0) == 0 ? 0 : errno;
}
