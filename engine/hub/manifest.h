/* engine/hub/manifest.h - the file ".weir.json" in the folder of a repository: which files belong
 * to which model, their sizes and sums, and from which commit they are. It is written before the
 * first byte of a model arrives, so files that are not there yet are known, too. */
#pragma once
#include "engine/hub/name.h"
#include "engine/hub/select.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_HUB_REVISION = 200, WEIR_HUB_MODELS = 1000, WEIR_HUB_DATE = 20 };

/* One GGUF file or split set, one checkpoint, or one other file. */
typedef struct weir_hub_model {
    weir_hub_kind kind;
    char quant[WEIR_HUB_QUANT + 1]; /* of the first file's name; "": none */
    char revision[WEIR_HUB_REVISION + 1];
    char commit[WEIR_HUB_COMMIT + 1]; /* "": the hub did not say */
    char date[WEIR_HUB_DATE + 1]; /* "2026-11-27T09:30:00Z" */
    weir_hub_listing files; /* at least one; sums may be added when a file has arrived */
} weir_hub_model;

/* Zero-initialise. */
typedef struct weir_hub_manifest {
    weir_hub_model *models; /* owned [n] */
    size_t n;
} weir_hub_manifest;

/* Reads folder/.weir.json; no models if there is none.
 * errors : EFORMAT, EIO, ENOMEM */
WEIR_MUST_CHECK weir_status
weir_hub_manifest_read(weir_hub_manifest *out, const char *folder, weir_error *error);
/* The same from memory; `name` is used in messages. */
WEIR_MUST_CHECK weir_status weir_hub_manifest_parse(
    weir_hub_manifest *out, const char *json, size_t n, const char *name, weir_error *error
);
/* Replaces folder/.weir.json, or removes it if there are no models. */
WEIR_MUST_CHECK weir_status weir_hub_manifest_write(
    const weir_hub_manifest *manifest, const char *folder, const weir_hub_name *name,
    weir_error *error
);
/* The model with the same first file, or the checkpoint if `kind` is one; NULL: none. */
weir_hub_model *weir_hub_manifest_find(
    const weir_hub_manifest *manifest, weir_hub_kind kind, const char *first_file
);
/* Takes ownership of model->files, also on failure; replaces the model that is the same. *out is
 * valid until the next change. */
WEIR_MUST_CHECK weir_status weir_hub_manifest_put(
    weir_hub_manifest *manifest, weir_hub_model *model, weir_hub_model **out, weir_error *error
);
void weir_hub_manifest_drop(weir_hub_manifest *manifest, size_t index);
void weir_hub_manifest_free(weir_hub_manifest *manifest); /* idempotent */

void weir_hub_now(char out[WEIR_HUB_DATE + 1]); /* the date */

#ifdef __cplusplus
}
#endif
