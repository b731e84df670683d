/* engine/base/cgroup.h - the control groups that this process is in. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* `folder`: of one group. version: 1, or 2. */
typedef void weir_cgroup_visit(void *user, const char *folder, int version);
/* Visits the group that has the controller ("memory", "cpu"), and each ancestor, of version 1 and
 * of version 2. `root` is put before /proc and /sys: "" normally, a folder in tests. */
void weir_cgroups(const char *root, const char *controller, weir_cgroup_visit *visit, void *user);

#ifdef __cplusplus
}
#endif
