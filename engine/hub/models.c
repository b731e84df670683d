/* engine/hub/models.c - finds and lists the models on this machine. */
#include "engine/hub/models.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"

weir_status weir_models_folder(char out[PATH_MAX], weir_error *error)
{
    const char *const data = getenv("XDG_DATA_HOME"), *const home = getenv("HOME");
    int n = PATH_MAX;
    if (data != NULL && data[0] == '/') /* a relative one is to be ignored (XDG base directories) */
        n = snprintf(out, PATH_MAX, "%s/weir/models", data);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/.local/share/weir/models", home);
    else
        return weir_error_set(
            error, WEIR_ECONFIG,
            "there is no folder for models: neither XDG_DATA_HOME nor HOME is set"
        );
    return n < PATH_MAX - WEIR_HUB_FILE ? WEIR_OK
                                        : weir_error_set(
                                              error, WEIR_ECONFIG,
                                              "%.100s...: the path of the folder of models is too "
                                              "long",
                                              out
                                          );
}

weir_status weir_models_repository(
    char out[PATH_MAX], const char *models, const weir_hub_name *name, weir_error *error
)
{
    if (snprintf(out, PATH_MAX, "%s/%s/%s", models, name->owner, name->name) <
        PATH_MAX - WEIR_HUB_FILE)
        return WEIR_OK;
    return weir_error_set(error, WEIR_ECONFIG, "%.300s: this path is too long", models);
}

/* ---- one model ------------------------------------------------------------------------------- */

/* Size of a regular file; -1: there is none. */
static int64_t size_of(const char *folder, const char *name, const char *ending)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s%s", folder, name, ending) >= (int)sizeof path) return -1;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
}

int64_t weir_models_here(const weir_hub_model *model, const char *folder, bool *is_complete)
{
    int64_t here = 0;
    *is_complete = true;
    for (size_t i = 0; i < model->files.n; i++) {
        const weir_hub_file *const file = &model->files.files[i];
        if (size_of(folder, file->name, "") == file->bytes) {
            here += file->bytes;
            continue;
        }
        const int64_t part = size_of(folder, file->name, ".part");
        if (part > 0) here += part < file->bytes ? part : file->bytes;
        *is_complete = false;
    }
    return here;
}

weir_status weir_models_path(
    char out[PATH_MAX], const weir_hub_model *model, const char *folder, weir_error *error
)
{
    const bool is_folder = model->kind == WEIR_HUB_CHECKPOINT;
    const char *const file = is_folder ? "" : model->files.files[0].name;
    if (snprintf(out, PATH_MAX, "%s%s%s", folder, is_folder ? "" : "/", file) < PATH_MAX)
        return WEIR_OK;
    return weir_error_set(error, WEIR_ECONFIG, "%.300s: this path is too long", folder);
}

static bool can_be_opened(const weir_hub_model *model)
{
    return model->kind != WEIR_HUB_SINGLE ||
           weir_hub_ends_with(model->files.files[0].name, ".safetensors");
}

static bool is_called(const weir_hub_model *model, const char *quant)
{
    const char *const first = model->files.files[0].name;
    if (model->kind == WEIR_HUB_CHECKPOINT) return false;
    return strcasecmp(weir_hub_base_name(first), quant) == 0 ||
           (model->kind == WEIR_HUB_GGUF && weir_hub_file_has_quant(first, quant));
}

/* ---- names instead of paths ------------------------------------------------------------------ */

/* The model of this quantisation (NULL: any) that is complete, else one that is not; NULL: none. */
static const weir_hub_model *find_model(
    const weir_hub_manifest *manifest, const char *folder, const char *quant, bool *is_complete
)
{
    const weir_hub_model *partial = NULL;
    for (size_t i = 0; i < manifest->n; i++) {
        const weir_hub_model *const model = &manifest->models[i];
        if (!can_be_opened(model) || (quant != NULL && !is_called(model, quant))) continue;
        (void)weir_models_here(model, folder, is_complete);
        if (*is_complete) return model;
        if (partial == NULL) partial = model;
    }
    *is_complete = false;
    return partial;
}

static const weir_hub_model *choose_model(
    const weir_hub_manifest *manifest, const char *folder, const char *quant, bool *is_complete
)
{
    static const char *const order[] = { "Q4_K_M", "Q8_0", NULL };
    if (quant[0] != '\0') return find_model(manifest, folder, quant, is_complete);
    const weir_hub_model *model = NULL;
    for (size_t i = 0; i < 3; i++) {
        const weir_hub_model *const found = find_model(manifest, folder, order[i], is_complete);
        if (found != NULL && *is_complete) return found;
        if (model == NULL) model = found;
    }
    *is_complete = false;
    return model;
}

weir_status weir_models_resolve(char *path, size_t capacity, weir_error *error)
{
    char models[PATH_MAX], folder[PATH_MAX], found[PATH_MAX];
    weir_hub_name name;
    if (weir_file_exists(path) || !weir_hub_name_parse(&name, path)) return WEIR_OK;
    weir_hub_manifest manifest = { 0 };
    if (weir_models_folder(models, NULL) == WEIR_OK) { /* else there are none */
        WEIR_TRY(weir_models_repository(folder, models, &name, error));
        WEIR_TRY(weir_hub_manifest_read(&manifest, folder, error));
    }
    bool is_complete = false;
    weir_status status = WEIR_OK;
    const weir_hub_model *const model = choose_model(&manifest, folder, name.quant, &is_complete);
    if (model == NULL)
        status = weir_error_set(
            error, WEIR_ENOTFOUND,
            "%s: there is no such file or folder, and no model of this name on this machine; "
            "`weir get %s` downloads it, `weir models` lists those that are here",
            path, path
        );
    else if (!is_complete)
        status = weir_error_set(
            error, WEIR_ENOTFOUND,
            "%s: its download is not complete; `weir get %s` goes on with it", path, path
        );
    else
        status = weir_models_path(found, model, folder, error);
    if (status == WEIR_OK && strlen(found) >= capacity)
        status = weir_error_set(error, WEIR_ECONFIG, "%s: its path is too long", path);
    if (status == WEIR_OK) memcpy(path, found, strlen(found) + 1);
    weir_hub_manifest_free(&manifest);
    return status;
}

/* ---- lists ----------------------------------------------------------------------------------- */

typedef struct list {
    weir_model_entry *entries; /* owned [n] */
    size_t n;
} list;

static weir_status add_entry(
    list *out, const weir_hub_manifest *manifest, const weir_hub_model *model,
    const weir_hub_name *name, const char *folder, weir_error *error
)
{
    weir_model_entry *const larger =
        weir_memory_resize(out->entries, (out->n + 1) * sizeof *larger);
    if (larger == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the models");
    out->entries = larger;
    weir_model_entry *const entry = &larger[out->n];
    *entry = (weir_model_entry){ .kind = model->kind };
    WEIR_TRY(weir_models_path(entry->path, model, folder, error));
    const char *label = model->kind == WEIR_HUB_GGUF ? model->quant : "";
    for (size_t i = 0; i < manifest->n; i++)
        if (&manifest->models[i] != model && label[0] != '\0' &&
            strcmp(manifest->models[i].quant, label) == 0)
            label = "";
    if (label[0] == '\0' && model->kind != WEIR_HUB_CHECKPOINT)
        label = weir_hub_base_name(model->files.files[0].name);
    (void)snprintf(
        entry->name, sizeof entry->name, "%s/%s%s%s", name->owner, name->name,
        label[0] != '\0' ? ":" : "", label
    );
    memcpy(entry->quant, model->quant, sizeof entry->quant);
    memcpy(entry->revision, model->revision, sizeof entry->revision);
    memcpy(entry->commit, model->commit, sizeof entry->commit);
    memcpy(entry->date, model->date, sizeof entry->date);
    for (size_t i = 0; i < model->files.n; i++) entry->bytes += model->files.files[i].bytes;
    entry->here = weir_models_here(model, folder, &entry->is_complete);
    out->n++;
    return WEIR_OK;
}

/* A manifest that cannot be read hides its models, not those of others. */
static weir_status add_repository(
    list *out, const char *models, const weir_hub_name *name, weir_error *error
)
{
    char folder[PATH_MAX];
    weir_error problem = { 0 };
    weir_hub_manifest manifest;
    WEIR_TRY(weir_models_repository(folder, models, name, error));
    const weir_status read = weir_hub_manifest_read(&manifest, folder, &problem);
    if (read == WEIR_ENOMEM) return weir_error_set(error, read, "%s", problem.text);
    if (read != WEIR_OK) {
        weir_log(WEIR_LOG_WARNING, "%s", problem.text);
        return WEIR_OK;
    }
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < manifest.n; i++)
        status = add_entry(out, &manifest, &manifest.models[i], name, folder, error);
    weir_hub_manifest_free(&manifest);
    return status;
}

/* Calls add_repository for OWNER/NAME of every folder OWNER (owner NULL), or of this one. */
static weir_status walk(list *out, const char *models, const char *owner, weir_error *error)
{
    char path[PATH_MAX], text[2 * WEIR_HUB_WORD + 2];
    if (snprintf(
            path, sizeof path, "%s%s%s", models, owner != NULL ? "/" : "",
            owner != NULL ? owner : ""
        ) >= (int)sizeof path)
        return WEIR_OK;
    DIR *const folder = opendir(path);
    if (folder == NULL && (errno == ENOENT || errno == ENOTDIR)) return WEIR_OK;
    if (folder == NULL)
        return weir_error_set(error, WEIR_EIO, "%s: cannot list: %s", path, strerror(errno));
    weir_status status = WEIR_OK;
    const struct dirent *entry;
    while (status == WEIR_OK && (entry = readdir(folder)) != NULL) {
        weir_hub_name name;
        if (strlen(entry->d_name) > WEIR_HUB_WORD || strchr(entry->d_name, ':') != NULL) continue;
        (void)snprintf(
            text, sizeof text, "%s/%s", owner != NULL ? owner : entry->d_name,
            owner != NULL ? entry->d_name : "x"
        );
        if (!weir_hub_name_parse(&name, text)) continue;
        status = owner != NULL ? add_repository(out, models, &name, error)
                               : walk(out, models, name.owner, error);
    }
    (void)closedir(folder);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weir_model_entry *)a)->name, ((const weir_model_entry *)b)->name);
}

weir_status weir_models_list(
    weir_model_entry **out, size_t *n, const char *models, weir_error *error
)
{
    list found = { 0 };
    const weir_status status = walk(&found, models, NULL, error);
    if (status != WEIR_OK) {
        weir_memory_give(found.entries);
        return status;
    }
    if (found.n > 0) qsort(found.entries, found.n, sizeof *found.entries, by_name);
    *out = found.entries;
    *n = found.n;
    return WEIR_OK;
}
