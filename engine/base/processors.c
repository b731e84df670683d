#include "engine/base/processors.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/cgroup.h"

enum { MOST = 8192 };

static bool is_among(const int *processors, size_t n, long wanted)
{
    for (size_t i = 0; i < n; i++)
        if (processors[i] == wanted) return true;
    return false;
}

/* True if one of the earlier processors is of the same core. An unreadable file counts as a core
 * of its own. */
static bool shares_core(const char *root, int processor, const int *earlier, size_t n)
{
    char path[PATH_MAX], text[4096] = "";
    (void)snprintf(
        path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root,
        processor
    );
    FILE *const file = fopen(path, "re");
    const bool is_read = file != NULL && fgets(text, sizeof text, file) != NULL;
    if (file != NULL) (void)fclose(file);
    if (!is_read) return false;
    /* Such as "0,64" or "0-1". */
    for (char *at = text, *end; *at != '\0' && *at != '\n'; at = end + (*end == ',')) {
        const long first = strtol(at, &end, 10);
        if (end == at || first < 0) return false;
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long sibling = first; sibling <= last && sibling < MOST; sibling++)
            if (is_among(earlier, n, sibling)) return true;
        if (*end != ',' && *end != '\0' && *end != '\n') return false;
    }
    return false;
}

static long long number(const char *folder, const char *name)
{
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "re");
    long long value;
    const bool is_read = file != NULL && fscanf(file, "%lld", &value) == 1;
    if (file != NULL) (void)fclose(file);
    return is_read ? value : -1;
}

/* "QUOTA PERIOD", or "max PERIOD", in microseconds. */
static void read_cpu_max(const char *folder, long long *quota, long long *period)
{
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *const file = fopen(path, "re");
    if (file != NULL && fscanf(file, "%lld %lld", quota, period) != 2) *quota = -1;
    if (file != NULL) (void)fclose(file);
}

static void limit(void *user, const char *folder, int version)
{
    long long *const most = user, quota = -1, period = 0;
    if (version == 2) {
        read_cpu_max(folder, &quota, &period);
    } else {
        quota = number(folder, "cpu.cfs_quota_us");
        period = number(folder, "cpu.cfs_period_us");
    }
    if (quota > 0 && period > 0 && quota / period < *most) *most = quota / period;
}

int weir_processors_among(const char *root, const int *processors, size_t n)
{
    long long n_cores = 0, most = MOST;
    for (size_t i = 0; i < n; i++) n_cores += !shares_core(root, processors[i], processors, i);
    weir_cgroups(root, "cpu", limit, &most);
    if (n_cores > most) n_cores = most;
    return n_cores > 1 ? (int)n_cores : 1;
}

int weir_processors(const char *root)
{
    cpu_set_t sets[MOST / CPU_SETSIZE];
    int processors[MOST];
    size_t n = 0;
    if (sched_getaffinity(0, sizeof sets, sets) != 0) return 1;
    for (int i = 0; i < MOST; i++)
        if (CPU_ISSET_S((size_t)i, sizeof sets, sets)) processors[n++] = i;
    return weir_processors_among(root, processors, n);
}

int weir_request_threads(int64_t wanted)
{
    enum { FEWEST = 4, MANY = 1024 };
    if (wanted > 0) return wanted < MANY ? (int)wanted : MANY;
    const int n = weir_processors("");
    return n < FEWEST ? FEWEST : n > MANY ? MANY : n;
}
