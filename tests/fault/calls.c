/* tests/fault/calls.c - the calls in front of libc's. They are functions of the program, which the
 * dynamic linker prefers to those of libraries, and reach the allocator or the kernel by
 * themselves. */
#include "tests/fault/calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/fault/events.h"

/* AddressSanitizer's where it is linked. This file is not instrumented: the dynamic linker
 * allocates before there is shadow memory. */
#define REAL(result, name, parameters)                                                             \
    result __libc_##name parameters;                                                               \
    result __interceptor_##name parameters __attribute__((weak))
REAL(void *, malloc, (size_t n));
REAL(void *, calloc, (size_t count, size_t size));
REAL(void *, realloc, (void *block, size_t n));
REAL(void, free, (void *block));
REAL(void *, memalign, (size_t alignment, size_t n));
#define CALL(name, ...)                                                                            \
    (__interceptor_##name != NULL ? __interceptor_##name(__VA_ARGS__) : __libc_##name(__VA_ARGS__))

enum { MOST_PIECES = 1024, MOST_DESCRIPTORS = 256 };

typedef struct counts {
    bool is_armed;
    fault_plan plan;
    fault_report report;
    int n_descriptors;
} counts;
static _Thread_local counts state;
static _Thread_local bool is_apart; /* fault_start_elsewhere was called here */
static counts elsewhere; /* under its lock */
static pthread_mutex_t elsewhere_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_next_of(counts *of, fault_calls calls, int64_t *count, const char *name)
{
    const int64_t number = (*count)++, nth = of->plan.nth;
    if (of->plan.calls != calls || nth < 0) return false;
    const bool goes_on = of->plan.way == FAULT_FROM_THERE || of->plan.way == FAULT_SHORTEN;
    if (number != nth && !(goes_on && number > nth)) return false;
    if (!of->report.was_hit) of->report.call = name;
    of->report.was_hit = true;
    return true;
}

static bool is_next(fault_calls calls, int64_t *count, const char *name)
{
    return state.is_armed && is_next_of(&state, calls, count, name);
}

/* The way in which a file call fails; false: it does not. */
static bool is_next_file(fault_way *way, const char *name)
{
    *way = state.plan.way;
    if (is_next(FAULT_FILES, &state.report.n_files, name)) return true;
    if (state.is_armed || is_apart || !__atomic_load_n(&elsewhere.is_armed, __ATOMIC_ACQUIRE))
        return false;
    (void)pthread_mutex_lock(&elsewhere_lock);
    const bool hit =
        elsewhere.is_armed && is_next_of(&elsewhere, FAULT_FILES, &elsewhere.report.n_files, name);
    *way = elsewhere.plan.way;
    (void)pthread_mutex_unlock(&elsewhere_lock);
    return hit;
}

static bool refuses_memory(const char *name)
{
    if (!is_next(FAULT_ALLOCATIONS, &state.report.n_allocations, name)) return false;
    errno = ENOMEM;
    return true;
}

static bool fails(const char *name, int reason)
{
    fault_way way;
    if (!is_next_file(&way, name) || way == FAULT_INTERRUPT || way == FAULT_SHORTEN) return false;
    errno = reason;
    return true;
}

/* For calls that the kernel may interrupt or cut short. *n: bytes that it may move. */
static bool fails_moving(const char *name, int reason, size_t *n)
{
    fault_way way;
    if (!is_next_file(&way, name)) return false;
    if (way == FAULT_SHORTEN) {
        if (*n > 1) *n /= 2;
        return false;
    }
    errno = way == FAULT_INTERRUPT ? EINTR : reason;
    return true;
}

static void *counted(void *block)
{
    if (state.is_armed && block != NULL) state.report.n_blocks++;
    return block;
}

static int open_now(const char *path, int flags, mode_t mode)
{
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0) events_open(fd, path, (flags & O_TRUNC) != 0);
    return fd;
}

static size_t total_of(const struct iovec *pieces, int n)
{
    size_t total = 0;
    for (int i = 0; i < n; i++) total += pieces[i].iov_len;
    return total;
}

/* out [MOST_PIECES]: as many of the pieces as hold n bytes. */
static int cut(struct iovec *out, const struct iovec *pieces, int n_pieces, size_t n)
{
    int count = 0;
    for (; count < n_pieces && count < MOST_PIECES && n > 0; count++) {
        out[count] = pieces[count];
        if (out[count].iov_len > n) out[count].iov_len = n;
        n -= out[count].iov_len;
    }
    return count;
}

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < MOST_DESCRIPTORS; fd++) n += syscall(SYS_fcntl, fd, F_GETFD) >= 0;
    return n;
}

/* Of the next library that has it. */
static void *next(const char *name)
{
    void *const function = dlsym(RTLD_NEXT, name);
    if (function == NULL) abort();
    return function;
}

void fault_start(const fault_plan *plan)
{
    state = (counts){ .plan = *plan, .n_descriptors = count_descriptors(), .is_armed = true };
}

fault_report fault_stop(void)
{
    state.is_armed = false;
    if (__interceptor_malloc != NULL) state.report.n_blocks = 0;
    state.report.n_descriptors = count_descriptors() - state.n_descriptors;
    return state.report;
}

void fault_start_elsewhere(const fault_plan *plan)
{
    is_apart = true;
    (void)pthread_mutex_lock(&elsewhere_lock);
    elsewhere = (counts){ .plan = *plan };
    __atomic_store_n(&elsewhere.is_armed, true, __ATOMIC_RELEASE);
    (void)pthread_mutex_unlock(&elsewhere_lock);
}

fault_report fault_stop_elsewhere(void)
{
    is_apart = false;
    (void)pthread_mutex_lock(&elsewhere_lock);
    elsewhere.is_armed = false;
    const fault_report report = elsewhere.report;
    (void)pthread_mutex_unlock(&elsewhere_lock);
    return report;
}

static bool charge(weir_memory_tracker *tracker, size_t bytes)
{
    (void)tracker, (void)bytes;
    return !is_next(FAULT_CHARGES, &state.report.n_charges, "charge");
}
static void refund(weir_memory_tracker *tracker, size_t bytes) { (void)tracker, (void)bytes; }

weir_memory_tracker *fault_tracker(void)
{
    static weir_memory_tracker tracker = { .charge = charge, .refund = refund };
    return &tracker;
}

/* ---- memory ---------------------------------------------------------------------------------- */
void *malloc(size_t n) { return refuses_memory("malloc") ? NULL : counted(CALL(malloc, n)); }

void *calloc(size_t count, size_t size)
{
    return refuses_memory("calloc") ? NULL : counted(CALL(calloc, count, size));
}

void *realloc(void *block, size_t n)
{
    if (refuses_memory("realloc")) return NULL;
    void *const moved = CALL(realloc, block, n);
    return block == NULL ? counted(moved) : moved;
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return refuses_memory("aligned_alloc") ? NULL : counted(CALL(memalign, alignment, n));
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *const block =
        refuses_memory("posix_memalign") ? NULL : counted(CALL(memalign, alignment, n));
    if (block == NULL) return ENOMEM;
    *out = block;
    return 0;
}

void free(void *block)
{
    if (state.is_armed && block != NULL) state.report.n_blocks--;
    CALL(free, block);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    const bool is_file = (flags & MAP_ANONYMOUS) == 0;
    if (is_file ? fails("mmap", ENOMEM) : refuses_memory("mmap")) return MAP_FAILED;
    void *const memory = (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
    if (state.is_armed && memory != MAP_FAILED) state.report.n_mappings++;
    return memory;
}

int munmap(void *at, size_t n)
{
    if (state.is_armed) state.report.n_mappings--;
    return (int)syscall(SYS_munmap, at, n);
}

void *mremap(void *at, size_t before, size_t n, int flags, ...)
{
    if (refuses_memory("mremap")) return MAP_FAILED;
    va_list list;
    va_start(list, flags);
    void *const wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(list, void *) : NULL;
    va_end(list);
    return (void *)syscall(SYS_mremap, at, before, n, flags, wanted);
}

/* ---- files ----------------------------------------------------------------------------------- */
int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fails("open", EMFILE) ? -1 : open_now(path, flags, mode);
}

int close(int fd)
{
    events_close(fd);
    const int result = (int)syscall(SYS_close, fd); /* it is closed, whatever is said */
    return fails("close", EIO) ? -1 : result;
}

ssize_t read(int fd, void *bytes, size_t n)
{
    return fails_moving("read", EIO, &n) ? -1 : syscall(SYS_read, fd, bytes, n);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    return fails_moving("pread", EIO, &n) ? -1 : syscall(SYS_pread64, fd, bytes, n, at);
}

ssize_t preadv(int fd, const struct iovec *pieces, int n_pieces, off_t at)
{
    struct iovec some[MOST_PIECES];
    size_t n = total_of(pieces, n_pieces);
    if (fails_moving("preadv", EIO, &n)) return -1;
    return syscall(SYS_preadv, fd, some, cut(some, pieces, n_pieces, n), at, 0);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    if (fails_moving("write", ENOSPC, &n)) return -1;
    const off_t at = (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
    const ssize_t written = syscall(SYS_write, fd, bytes, n);
    if (written > 0) events_write(fd, bytes, (size_t)written, at);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    if (fails_moving("pwrite", ENOSPC, &n)) return -1;
    const ssize_t written = syscall(SYS_pwrite64, fd, bytes, n, at);
    if (written > 0) events_write(fd, bytes, (size_t)written, at);
    return written;
}

ssize_t pwritev(int fd, const struct iovec *pieces, int n_pieces, off_t at)
{
    struct iovec some[MOST_PIECES];
    size_t n = total_of(pieces, n_pieces);
    if (fails_moving("pwritev", ENOSPC, &n)) return -1;
    const int count = cut(some, pieces, n_pieces, n);
    const ssize_t written = syscall(SYS_pwritev, fd, some, count, at, 0);
    for (ssize_t left = written, i = 0; left > 0; i++) {
        const size_t part = some[i].iov_len < (size_t)left ? some[i].iov_len : (size_t)left;
        events_write(fd, some[i].iov_base, part, at + (written - left));
        left -= (ssize_t)part;
    }
    return written;
}

int fsync(int fd)
{
    if (fails("fsync", EIO)) return -1;
    events_sync(fd);
    return 0; /* the disk of the machine is not what is tested */
}

int ftruncate(int fd, off_t n)
{
    if (fails("ftruncate", EIO)) return -1;
    const int result = (int)syscall(SYS_ftruncate, fd, n);
    if (result == 0) events_truncate(fd, n);
    return result;
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    size_t whole = (size_t)n; /* cannot be cut short */
    if (fails_moving("fallocate", ENOSPC, &whole)) return -1;
    return (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int sync_file_range(int fd, off64_t at, off64_t n, unsigned flags)
{
    return fails("sync_file_range", EIO) ? -1 : (int)syscall(SYS_sync_file_range, fd, at, n, flags);
}

int rename(const char *from, const char *to)
{
    if (fails("rename", EIO)) return -1;
    const int result = (int)syscall(SYS_rename, from, to);
    if (result == 0) events_rename(from, to);
    return result;
}

int unlink(const char *path)
{
    if (fails("unlink", EIO)) return -1;
    const int result = (int)syscall(SYS_unlink, path);
    if (result == 0) events_unlink(path);
    return result;
}

int link(const char *from, const char *to)
{
    if (fails("link", EIO)) return -1;
    const int result = (int)syscall(SYS_link, from, to);
    if (result == 0) events_link(from, to);
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    return fails("mkdir", ENOSPC) ? -1 : (int)syscall(SYS_mkdir, path, mode);
}

int fchmod(int fd, mode_t mode)
{
    return fails("fchmod", EIO) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int flock(int fd, int how)
{
    return fails("flock", ENOLCK) ? -1 : (int)syscall(SYS_flock, fd, how);
}

int stat(const char *path, struct stat *out)
{
    return fails("stat", EIO) ? -1 : (int)syscall(SYS_stat, path, out);
}

int lstat(const char *path, struct stat *out)
{
    return fails("lstat", EIO) ? -1 : (int)syscall(SYS_lstat, path, out);
}

int fstat(int fd, struct stat *out)
{
    return fails("fstat", EIO) ? -1 : (int)syscall(SYS_fstat, fd, out);
}

int access(const char *path, int mode)
{
    return fails("access", EIO) ? -1 : (int)syscall(SYS_access, path, mode);
}

int utimensat(int folder, const char *path, const struct timespec times[2], int flags)
{
    return fails("utimensat", EIO) ? -1 : (int)syscall(SYS_utimensat, folder, path, times, flags);
}

/* ---- folders and streams --------------------------------------------------------------------- */
DIR *opendir(const char *path)
{
    typedef DIR *function(const char *);
    return fails("opendir", EMFILE) ? NULL : ((function *)next("opendir"))(path);
}

struct dirent *readdir(DIR *folder)
{
    typedef struct dirent *function(DIR *);
    return fails("readdir", EIO) ? NULL : ((function *)next("readdir"))(folder);
}

int scandir(
    const char *path, struct dirent ***list, int (*wanted)(const struct dirent *),
    int (*order)(const struct dirent **, const struct dirent **)
)
{
    typedef int function(
        const char *, struct dirent ***, int (*)(const struct dirent *),
        int (*)(const struct dirent **, const struct dirent **)
    );
    return fails("scandir", EIO) ? -1 : ((function *)next("scandir"))(path, list, wanted, order);
}
