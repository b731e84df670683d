/* engine/hub/models.h - the models of `weir get` on this machine: where they are, lists of them,
 * paths by name, removal. */
#pragma once
#include <limits.h>

#include "engine/hub/manifest.h"

#ifdef __cplusplus
extern "C" {
#endif

/* $XDG_DATA_HOME/weir/models, or ~/.local/share/weir/models.
 * errors : ECONFIG: neither XDG_DATA_HOME (absolute) nor HOME is set */
WEIR_MUST_CHECK weir_status weir_models_folder(char out[PATH_MAX], weir_error *error);
/* The folder of a repository below `models`. */
WEIR_MUST_CHECK weir_status weir_models_repository(
    char out[PATH_MAX], const char *models, const weir_hub_name *name, weir_error *error
);

/* The path that opens a model: its first file, or the folder of a checkpoint. */
WEIR_MUST_CHECK weir_status weir_models_path(
    char out[PATH_MAX], const weir_hub_model *model, const char *folder, weir_error *error
);

/* `path` [capacity], a path as a user wrote it. If nothing exists there and it is a name of a model
 * (name.h), it becomes the path of that model: of its first GGUF file, or of its folder. Without a
 * quantisation in the name: Q4_K_M, Q8_0, the first that is complete.
 * errors : ENOTFOUND: no such model, or it is incomplete; names the command that gets it */
WEIR_MUST_CHECK weir_status weir_models_resolve(char *path, size_t capacity, weir_error *error);

/* One model of a list. */
typedef struct weir_model_entry {
    char name[2 * WEIR_HUB_WORD + WEIR_HUB_FILE + 3]; /* what weir_models_resolve takes */
    char quant[WEIR_HUB_QUANT + 1], revision[WEIR_HUB_REVISION + 1], commit[WEIR_HUB_COMMIT + 1],
        date[WEIR_HUB_DATE + 1];
    char path[PATH_MAX];
    weir_hub_kind kind;
    int64_t bytes, here; /* in all, and on this disk */
    bool is_complete;
} weir_model_entry;

/* All models, by name.
 * owner  : the caller frees *out with weir_memory_give */
WEIR_MUST_CHECK weir_status
weir_models_list(weir_model_entry **out, size_t *n, const char *models, weir_error *error);
/* Bytes of the files of a model that are here, finished or not. */
int64_t weir_models_here(const weir_hub_model *model, const char *folder, bool *is_complete);

/* Does not wait: EIO if another process gets or removes files of this repository. *fd keeps the
 * folder locked until it is closed. */
WEIR_MUST_CHECK weir_status weir_models_lock(int *fd, const char *folder, weir_error *error);
/* Removes the files of a model, or of all models of a repository if the name has no quantisation;
 * files that no manifest names stay. `removed` is called with the path of each.
 * errors : ENOTFOUND, EIO */
WEIR_MUST_CHECK weir_status weir_models_remove(
    const char *models, const weir_hub_name *name, void (*removed)(void *user, const char *path),
    void *user, weir_error *error
);

#ifdef __cplusplus
}
#endif
