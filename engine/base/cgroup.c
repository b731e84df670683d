#include "engine/base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct walk {
    const char *root, *controller;
    weir_cgroup_visit *visit;
    void *user;
} walk;

/* Visits the group at `mount``path` and its ancestors. In a container `path` may be a path of the
 * host that does not exist; then the group is `mount` itself. */
static void visit_path(const walk *w, const char *mount, const char *path, int version)
{
    char folder[PATH_MAX];
    if (snprintf(
            folder, sizeof folder, "%s%s%s", w->root, mount, strstr(path, "..") == NULL ? path : ""
        ) >= (int)sizeof folder)
        return;
    const size_t base = strlen(w->root) + strlen(mount);
    for (;;) {
        size_t n = strlen(folder);
        while (n > base && folder[n - 1] == '/') folder[--n] = '\0';
        w->visit(w->user, folder, version);
        if (n <= base) return;
        *strrchr(folder, '/') = '\0';
    }
}

/* True if the name is among the comma-separated controllers. */
static bool has_controller(const char *controllers, size_t n, const char *name)
{
    for (const char *at = controllers, *const end = controllers + n; at < end;) {
        const char *const comma = memchr(at, ',', (size_t)(end - at));
        const size_t length = (size_t)((comma != NULL ? comma : end) - at);
        if (length == strlen(name) && memcmp(at, name, length) == 0) return true;
        at += length + 1;
    }
    return false;
}

/* Evaluates a line "ID:CONTROLLERS:PATH"; cgroup v2 is "0::PATH". */
static void visit_entry(const walk *w, char *entry)
{
    char mount[64];
    entry[strcspn(entry, "\n")] = '\0';
    char *const controllers = strchr(entry, ':');
    char *const path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL) return;
    const size_t n = (size_t)(path - controllers - 1);
    (void)snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", w->controller);
    if (has_controller(controllers + 1, n, w->controller)) visit_path(w, mount, path + 1, 1);
    if (n > 0) return;
    visit_path(w, "/sys/fs/cgroup", path + 1, 2);
    visit_path(w, "/sys/fs/cgroup/unified", path + 1, 2);
}

void weir_cgroups(const char *root, const char *controller, weir_cgroup_visit *visit, void *user)
{
    const walk w = { .root = root, .controller = controller, .visit = visit, .user = user };
    char path[PATH_MAX], entry[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) return;
    FILE *const file = fopen(path, "re");
    while (file != NULL && fgets(entry, sizeof entry, file) != NULL) visit_entry(&w, entry);
    if (file != NULL) (void)fclose(file);
}
