#include "engine/base/machine_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Where /proc/meminfo cannot be read: enough for a small model, no danger to the machine. */
static const size_t unknown_machine = (size_t)1 << 30;
/* Version 1 writes LONG_MAX rounded down to pages of up to 64 KiB. */
static const unsigned long long unlimited = (unsigned long long)LONG_MAX - (1 << 16);

typedef struct files {
    const char *limits[2], *usage, *cache; /* cache: the name in memory.stat */
} files;
static const files version_1 = { { "memory.limit_in_bytes", NULL },
                                 "memory.usage_in_bytes",
                                 "total_inactive_file" };
static const files version_2 = { { "memory.max", "memory.high" },
                                 "memory.current",
                                 "inactive_file" };

/* SIZE_MAX when there is no such number: no file, "max", or the "no limit" of version 1. */
static size_t number(const char *folder, const char *name)
{
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "re");
    unsigned long long value;
    const bool found = file != NULL && fscanf(file, "%llu", &value) == 1;
    if (file != NULL) (void)fclose(file);
    return found && value < unlimited ? (size_t)value : SIZE_MAX;
}

/* The number on the line "NAME NUMBER" or "NAME: NUMBER", 0 when there is none. */
static size_t line(const char *path, const char *name)
{
    FILE *const file = fopen(path, "re");
    const size_t n = strlen(name);
    char text[256];
    size_t found = 0;
    while (file != NULL && found == 0 && fgets(text, sizeof text, file) != NULL) {
        unsigned long long value;
        const char *const rest = text + n;
        if (strncmp(text, name, n) == 0 && (*rest == ' ' || *rest == ':') &&
            sscanf(rest + 1, "%llu", &value) == 1 && value < unlimited)
            found = (size_t)value;
    }
    if (file != NULL) (void)fclose(file);
    return found;
}

static size_t less(size_t a, size_t b) { return a < b ? a : b; }

static size_t group_limit(const char *folder, const files *names)
{
    const size_t limit = number(folder, names->limits[0]);
    return names->limits[1] != NULL ? less(limit, number(folder, names->limits[1])) : limit;
}

/* What one group leaves. */
static size_t group_leaves(const char *folder, const files *names)
{
    const size_t limit = group_limit(folder, names);
    size_t used = number(folder, names->usage);
    if (limit == SIZE_MAX) return SIZE_MAX;
    if (used == SIZE_MAX) used = 0;
    char stat[2 * PATH_MAX];
    (void)snprintf(stat, sizeof stat, "%s/memory.stat", folder);
    used -= less(used, line(stat, names->cache));
    return limit > used ? limit - used : 0;
}

/* Of one group: its limit, or what it leaves of it; SIZE_MAX: none. */
typedef size_t measure(const char *folder, const files *names);

/* The group at `mount``path` and its ancestors. In a container the path can be one of the host,
 * which is not there: the mount itself is the group then. */
static size_t path_least(
    const char *root, const char *mount, const char *path, const files *names, measure *of
)
{
    char folder[PATH_MAX];
    if (snprintf(
            folder, sizeof folder, "%s%s%s", root, mount, strstr(path, "..") == NULL ? path : ""
        ) >= (int)sizeof folder)
        return SIZE_MAX;
    const size_t base = strlen(root) + strlen(mount);
    size_t left = SIZE_MAX;
    for (;;) {
        size_t n = strlen(folder);
        while (n > base && folder[n - 1] == '/') folder[--n] = '\0';
        left = less(left, of(folder, names));
        if (n <= base) return left;
        *strrchr(folder, '/') = '\0';
    }
}

/* "memory" as one of the comma-separated controllers. */
static bool has_memory(const char *controllers, size_t n)
{
    for (const char *at = controllers, *const end = controllers + n; at < end;) {
        const char *const comma = memchr(at, ',', (size_t)(end - at));
        const size_t length = (size_t)((comma != NULL ? comma : end) - at);
        if (length == 6 && memcmp(at, "memory", 6) == 0) return true;
        at += length + 1;
    }
    return false;
}

/* "ID:CONTROLLERS:PATH"; version 2 is the line "0::PATH". */
static size_t entry_least(const char *root, char *entry, measure *of)
{
    entry[strcspn(entry, "\n")] = '\0';
    char *const controllers = strchr(entry, ':');
    char *const path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL) return SIZE_MAX;
    const size_t n = (size_t)(path - controllers - 1);
    if (has_memory(controllers + 1, n))
        return path_least(root, "/sys/fs/cgroup/memory", path + 1, &version_1, of);
    if (n > 0) return SIZE_MAX;
    return less(
        path_least(root, "/sys/fs/cgroup", path + 1, &version_2, of),
        path_least(root, "/sys/fs/cgroup/unified", path + 1, &version_2, of)
    );
}

/* The line of /proc/meminfo, or less where a group of this process has less. */
static size_t least_of(const char *root, const char *name, size_t unknown, measure *of)
{
    char path[PATH_MAX], entry[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const size_t kib = line(path, name);
    size_t least = kib > 0 && kib < SIZE_MAX / 1024 ? kib * 1024 : unknown;
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *const file = fopen(path, "re");
    while (file != NULL && fgets(entry, sizeof entry, file) != NULL)
        least = less(least, entry_least(root, entry, of));
    if (file != NULL) (void)fclose(file);
    return least;
}

size_t weir_machine_memory(const char *root)
{
    return least_of(root, "MemAvailable", unknown_machine, group_leaves);
}

size_t weir_machine_memory_total(const char *root)
{
    return least_of(root, "MemTotal", SIZE_MAX, group_limit);
}
