/* engine/serve/sampling_request.h - the fields of sampling: temperature, penalties, seed, bias. */
#pragma once
#include "engine/serve/openai_request.h"

/* Reads them over the server's defaults. `bias` belongs to the request also on failure. */
WEIR_MUST_CHECK weir_status weir_sampling_request_read(
    weir_openai_request *request, const json_t *root, const weir_request_limits *limits,
    weir_api_error *error
);
