/* engine/cli/sandbox_filter.c - filters the system calls of a running server, with libseccomp.
 * Listed calls are allowed, calls that only an attacker needs kill the process, and any other call
 * fails with EPERM, which the C library and its callers handle (docs/decisions/0035). */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/cli/sandbox.h"

/* clang-format off */
static const char *const allowed[] = {
    /* Files below the folders that Landlock allows, and open descriptors. */
    "openat", "close", "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv",
    "pwritev", "preadv2", "pwritev2", "lseek", "newfstatat", "fstat", "stat", "lstat", "statx",
    "fstatfs", "getdents64", "rename", "renameat", "renameat2", "unlink", "unlinkat", "fsync",
    "fdatasync", "sync_file_range", "ftruncate", "fallocate", "fadvise64", "flock",
    "utimensat", "fchmod", "fcntl", "dup", "access", "faccessat", "faccessat2", "readlink",
    "readlinkat", "getcwd", "umask",
    /* Memory. */
    "munmap", "mremap", "madvise", "brk", "msync", "mincore", "mlock", "munlock",
    "membarrier", "get_mempolicy",
    /* Accepted connections. */
    "accept", "accept4", "recvfrom", "recvmsg", "sendto", "sendmsg", "sendfile", "splice",
    "shutdown", "getsockopt", "setsockopt", "getsockname", "getpeername", "epoll_create1",
    "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select",
    "pselect6", "pipe2", "eventfd2",
    /* Threads, time, signals to itself. */
    "futex", "futex_waitv", "set_robust_list", "get_robust_list", "rseq", "set_tid_address",
    "gettid", "getpid", "getppid", "exit", "exit_group", "sched_yield", "sched_getaffinity",
    "sched_setaffinity", "sched_getparam", "sched_getscheduler", "sched_get_priority_max",
    "sched_get_priority_min", "getcpu", "nanosleep", "clock_nanosleep", "clock_gettime",
    "clock_getres", "gettimeofday", "time", "times", "getrusage", "sysinfo", "uname",
    "getrandom", "getrlimit", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "rt_sigtimedwait", "sigaltstack", "restart_syscall", "getuid", "geteuid",
    "getgid", "getegid",
};

static const char *const deadly[] = {
    "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "kcmp",
    "pidfd_getfd", "socket", "socketpair", "connect", "bind", "mount", "umount2", "move_mount",
    "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "pivot_root",
    "chroot", "setns", "unshare", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup",
    "io_uring_enter", "io_uring_register", "keyctl", "add_key", "request_key", "kexec_load",
    "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon",
    "swapoff", "acct", "quotactl", "iopl", "ioperm", "modify_ldt", "personality",
    "open_by_handle_at", "name_to_handle_at", "setuid", "setgid", "setreuid", "setregid",
    "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capset", "settimeofday",
    "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname",
    "fanotify_init", "lookup_dcookie", "vhangup", "syslog", "mknod", "mknodat", "fork",
    "vfork",
};

/* clang-format on */
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* Calls that this libseccomp does not know by name get the default action. */
static int add_names(scmp_filter_ctx filter, uint32_t action, const char *const *names, size_t n)
{
    int why = 0;
    for (size_t i = 0; i < n && why == 0; i++) {
        const int number = seccomp_syscall_resolve_name(names[i]);
        if (number >= 0) why = seccomp_rule_add(filter, action, number, 0);
    }
    return why;
}

typedef struct argument_rule {
    uint32_t action;
    int call;
    struct scmp_arg_cmp when;
} argument_rule;

/* Calls whose arguments decide. clone3 has its flags behind a pointer: on ENOSYS the C library uses
 * clone, which may create threads only. Signals and limits: of this process only. No executable
 * mmap; mprotect may make memory executable (oneDNN does) if it is not writable too. */
static int add_arguments(scmp_filter_ctx filter)
{
    const uint32_t allow = SCMP_ACT_ALLOW;
    const argument_rule rules[] = {
        { allow, SCMP_SYS(mmap), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
        { allow, SCMP_SYS(mprotect), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
        { allow, SCMP_SYS(mprotect), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_WRITE, 0) },
        { allow, SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD) },
        { allow, SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0) },
        { allow, SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_EQ, 0, 0) },
    };
    int why = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    for (size_t i = 0; i < COUNT(rules) && why == 0; i++)
        why = seccomp_rule_add_array(filter, rules[i].action, rules[i].call, 1, &rules[i].when);
    return why;
}

weir_status weir_filter_enter(weir_error *error)
{
    const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (filter == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the filter of system calls");
    int why = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (why == 0) why = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 1);
    if (why == 0) why = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    /* A tree: about 8 comparisons per call. */
    if (why == 0) why = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (why == 0) why = add_names(filter, SCMP_ACT_ALLOW, allowed, COUNT(allowed));
    if (why == 0) why = add_names(filter, SCMP_ACT_KILL_PROCESS, deadly, COUNT(deadly));
    if (why == 0) why = add_arguments(filter);
    if (why == 0) why = seccomp_load(filter);
    seccomp_release(filter);
    if (why == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "server.sandbox = \"strict\": the kernel refuses the system call filter (%s); set it to "
        "\"auto\"",
        strerror(why < 0 ? -why : why)
    );
}
