/* engine/cli/get.h - downloads of models, with their progress; used by get and run. */
#pragma once
#include "engine/hub/hub.h"

/* What a user may say of a download; NULL: as docs/guides/models.md says. */
typedef struct weir_get {
    const char *name; /* OWNER/NAME[:QUANT] */
    const char *revision, *file, *endpoint;
} weir_get;

/* Downloads what is not here yet, and logs what that was. Ctrl-C ends it with ECANCELED. */
WEIR_MUST_CHECK weir_status
weir_get_model(weir_hub_result *out, const weir_get *get, weir_error *error);
