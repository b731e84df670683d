/* engine/hub/hub.h - downloads models from a hub that speaks the API of huggingface.co.
 *
 * GET /api/models/OWNER/NAME/revision/REVISION   the commit, {"sha": ...}
 * GET /api/models/OWNER/NAME/tree/REVISION       the files; pages follow the Link header
 * GET /OWNER/NAME/resolve/REVISION/FILE          the bytes; redirects, Range
 *
 * Files go to the folder of models.h. A file arrives as FILE.part and gets its name when it has the
 * size and the SHA-256 of the list. */
#pragma once
#include "engine/hub/models.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_HUB_ENDPOINT "https://huggingface.co"

/* All borrowed; NULL where it says so. */
typedef struct weir_hub_options {
    const char *models; /* the folder of weir_models_folder */
    weir_hub_name name;
    const char *endpoint; /* "https://HOST"; may have a path */
    const char *token; /* NULL: none */
    const char *revision; /* NULL: "main" */
    const char *file; /* NULL: chosen by name.quant (select.h) */
    const char *agent; /* names this program to the hub: "weir/1.0" */
    int64_t wait_ms; /* before the second try of a request; doubles with each */
    bool (*is_cancelled)(void *user); /* asked a few times a second; NULL: never */
    /* Bytes of this download so far and in all. Called often. NULL: none. */
    void (*progress)(void *user, int64_t done, int64_t total);
    void (*warn)(void *user, const char *text); /* why something is done again; may be NULL */
    void *user;
} weir_hub_options;

typedef struct weir_hub_result {
    char path[PATH_MAX]; /* what opens the model */
    size_t n_files, n_downloaded; /* of the model; those that were not here */
    int64_t bytes; /* of the model */
} weir_hub_result;

/* Downloads what is not here yet of one model. After ECANCELED and EIO the same call goes on.
 * errors : EINVAL: endpoint, token or revision; ENOTFOUND: no such model, revision or file; EIO:
 *          network, disk; EFORMAT: a wrong reply or sum; EUNSUPPORTED: no libcurl; ECANCELED;
 *          ENOMEM */
WEIR_MUST_CHECK weir_status
weir_hub_get(const weir_hub_options *options, weir_hub_result *out, weir_error *error);

#ifdef __cplusplus
}
#endif
