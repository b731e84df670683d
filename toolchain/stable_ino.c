/* toolchain/stable_ino.c - LD_PRELOAD shim that makes objects with OpenMP target regions
 * reproducible.
 *
 * clang names such a region __omp_offloading_<device>_<inode>_<function>_l<line> after the source
 * file's stat(): the inode would be in the binary. The files that STABLE_SRC names (suffixes of
 * their paths, parted by colons) get a device and inode made from them. Used by toolchain/gpu.bzl
 * for its compile actions only. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned long inode_of(const char *text, size_t length)
{
    unsigned long hash = 1469598103934665603ul; /* FNV-1a */
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211ul;
    return (hash & 0xffffffffff) |
           0x10000000000; /* clang takes files of one inode for one file: 40 bits keep them apart */
}

static void settle(const char *path, mode_t mode, dev_t *device, ino_t *inode)
{
    const char *source = getenv("STABLE_SRC");
    if (!source || !path || !S_ISREG(mode)) return;
    const size_t length = strlen(path);
    while (*source) {
        const size_t n = strcspn(source, ":");
        if (n > 0 && length >= n && memcmp(path + length - n, source, n) == 0 &&
            (length == n || path[length - n - 1] == '/')) {
            *device = 1;
            *inode = inode_of(source, n);
            return;
        }
        source += n + (source[n] == ':');
    }
}

static void path_of_descriptor(int descriptor, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t n = readlink(link, path, size - 1);
    path[n < 0 ? 0 : n] = '\0';
}

#define BY_PATH(function, type)                                                                    \
    int function(const char *path, struct type *status)                                            \
    {                                                                                              \
        static int (*real)(const char *, struct type *);                                           \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #function);                                  \
        const int result = real(path, status);                                                     \
        if (result == 0) settle(path, status->st_mode, &status->st_dev, &status->st_ino);          \
        return result;                                                                             \
    }
#define BY_DESCRIPTOR(function, type)                                                              \
    int function(int descriptor, struct type *status)                                              \
    {                                                                                              \
        static int (*real)(int, struct type *);                                                    \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #function);                                  \
        const int result = real(descriptor, status);                                               \
        char path[4096];                                                                           \
        if (result == 0) {                                                                         \
            path_of_descriptor(descriptor, path, sizeof path);                                     \
            settle(path, status->st_mode, &status->st_dev, &status->st_ino);                       \
        }                                                                                          \
        return result;                                                                             \
    }

BY_PATH(stat, stat)
BY_PATH(lstat, stat)
BY_PATH(stat64, stat64)
BY_PATH(lstat64, stat64)
BY_DESCRIPTOR(fstat, stat)
BY_DESCRIPTOR(fstat64, stat64)
