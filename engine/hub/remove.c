/* engine/hub/remove.c - removes models from this machine. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <unistd.h>

#include "engine/hub/models.h"

weir_status weir_models_lock(int *fd, const char *folder, weir_error *error)
{
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return weir_error_set(error, WEIR_EIO, "%s: cannot open: %s", folder, strerror(errno));
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return WEIR_OK;
    (void)close(*fd);
    *fd = -1;
    return weir_error_set(
        error, WEIR_EIO, "%s: another `weir get` or `weir models rm` is at work here; wait for it",
        folder
    );
}

typedef struct removal {
    const char *folder;
    void (*removed)(void *user, const char *path);
    void *user;
    weir_error *error;
} removal;

/* Removes folder/name and its ending, and then the folders between that are empty. */
static weir_status remove_file(const removal *r, const char *name, const char *ending)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s%s", r->folder, name, ending) >= (int)sizeof path)
        return WEIR_OK;
    if (unlink(path) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return WEIR_OK;
        return weir_error_set(r->error, WEIR_EIO, "%s: cannot remove: %s", path, strerror(errno));
    }
    if (r->removed != NULL) r->removed(r->user, path);
    const size_t root = strlen(r->folder);
    for (char *at = dirname(path); strlen(at) > root && rmdir(at) == 0; at = dirname(at)) continue;
    return WEIR_OK;
}

/* True if another model of the manifest has this file, too. */
static bool is_shared(const weir_hub_manifest *manifest, size_t own, const char *file)
{
    for (size_t m = 0; m < manifest->n; m++)
        for (size_t i = 0; m != own && i < manifest->models[m].files.n; i++)
            if (strcmp(manifest->models[m].files.files[i].name, file) == 0) return true;
    return false;
}

static weir_status remove_model(const removal *r, weir_hub_manifest *manifest, size_t index)
{
    const weir_hub_listing *const files = &manifest->models[index].files;
    for (size_t i = 0; i < files->n; i++) {
        if (is_shared(manifest, index, files->files[i].name)) continue;
        WEIR_TRY(remove_file(r, files->files[i].name, ""));
        WEIR_TRY(remove_file(r, files->files[i].name, ".part"));
    }
    weir_hub_manifest_drop(manifest, index);
    return WEIR_OK;
}

static bool is_meant(const weir_hub_model *model, const char *quant)
{
    if (quant[0] == '\0') return true;
    if (model->kind == WEIR_HUB_CHECKPOINT) return false;
    return (model->quant[0] != '\0' && strcasecmp(model->quant, quant) == 0) ||
           strcasecmp(weir_hub_base_name(model->files.files[0].name), quant) == 0;
}

weir_status weir_models_remove(
    const char *models, const weir_hub_name *name, void (*removed)(void *user, const char *path),
    void *user, weir_error *error
)
{
    char folder[PATH_MAX];
    int lock = -1;
    size_t n = 0;
    weir_hub_manifest manifest = { 0 };
    WEIR_TRY(weir_models_repository(folder, models, name, error));
    const removal r = { folder, removed, user, error };
    if (access(folder, F_OK) == 0) WEIR_TRY(weir_models_lock(&lock, folder, error));
    weir_status status = weir_hub_manifest_read(&manifest, folder, error);
    for (size_t i = manifest.n; status == WEIR_OK && i-- > 0;) {
        if (!is_meant(&manifest.models[i], name->quant)) continue;
        status = remove_model(&r, &manifest, i);
        n++;
    }
    if (status == WEIR_OK && n == 0)
        status = weir_error_set(
            error, WEIR_ENOTFOUND,
            "%s/%s%s%s: no such model on this machine; `weir models` lists them", name->owner,
            name->name, name->quant[0] != '\0' ? ":" : "", name->quant
        );
    if (status == WEIR_OK) status = weir_hub_manifest_write(&manifest, folder, name, error);
    if (status == WEIR_OK && manifest.n == 0 && rmdir(folder) == 0)
        (void)rmdir(dirname(folder)); /* fails while others of this owner are there */
    weir_hub_manifest_free(&manifest);
    if (lock >= 0) (void)close(lock);
    return status;
}
