#include "engine/base/machine_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/cgroup.h"
#include "kernels/abi/minmax.h"

/* Assumed when /proc/meminfo cannot be read: enough for a small model. */
static const size_t unknown_machine = (size_t)1 << 30;
/* cgroup v1 reports LONG_MAX rounded down to pages of up to 64 KiB for "no limit". */
static const unsigned long long unlimited = (unsigned long long)LONG_MAX - (1 << 16);

typedef struct files {
    const char *limits[2], *usage, *cache; /* cache: the key in memory.stat */
} files;
static const files version_1 = { { "memory.limit_in_bytes", NULL },
                                 "memory.usage_in_bytes",
                                 "total_inactive_file" };
static const files version_2 = { { "memory.max", "memory.high" },
                                 "memory.current",
                                 "inactive_file" };

/* Reads a number. SIZE_MAX if the file is missing, says "max", or has the v1 value for "no
 * limit". */
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

/* The number in the line "NAME NUMBER" or "NAME: NUMBER"; 0 if there is no such line. */
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

static size_t group_limit(const char *folder, const files *names)
{
    const size_t limit = number(folder, names->limits[0]);
    return names->limits[1] != NULL ? weir_min_size(limit, number(folder, names->limits[1]))
                                    : limit;
}

/* The limit of one group minus its usage. */
static size_t group_leaves(const char *folder, const files *names)
{
    const size_t limit = group_limit(folder, names);
    size_t used = number(folder, names->usage);
    if (limit == SIZE_MAX) return SIZE_MAX;
    if (used == SIZE_MAX) used = 0;
    char stat[2 * PATH_MAX];
    (void)snprintf(stat, sizeof stat, "%s/memory.stat", folder);
    used -= weir_min_size(used, line(stat, names->cache));
    return limit > used ? limit - used : 0;
}

/* Measures one group: its limit, or the limit minus the usage. SIZE_MAX: no limit. */
typedef size_t measure(const char *folder, const files *names);

typedef struct least {
    measure *of;
    size_t value;
} least;

static void measure_group(void *user, const char *folder, int version)
{
    least *const l = user;
    l->value = weir_min_size(l->value, l->of(folder, version == 1 ? &version_1 : &version_2));
}

/* The value in /proc/meminfo, or the smallest group limit of this process if that is less. */
static size_t least_of(const char *root, const char *name, size_t unknown, measure *of)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const size_t kib = line(path, name);
    least l = { .of = of, .value = kib > 0 && kib < SIZE_MAX / 1024 ? kib * 1024 : unknown };
    weir_cgroups(root, "memory", measure_group, &l);
    return l.value;
}

size_t weir_machine_memory(const char *root)
{
    return least_of(root, "MemAvailable", unknown_machine, group_leaves);
}

size_t weir_machine_memory_total(const char *root)
{
    return least_of(root, "MemTotal", SIZE_MAX, group_limit);
}
