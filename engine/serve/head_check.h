/* engine/serve/head_check.h - checks of a complete head that a server and a router share. Each
 * returns EINVAL with the answer in `error` where the request is refused. */
#pragma once
#include "engine/serve/access.h"
#include "engine/serve/errors.h"
#include "engine/serve/http_head.h"

#ifdef __cplusplus
extern "C" {
#endif

WEIR_MUST_CHECK weir_status weir_head_check_host(
    const weir_http_head *head, const char *bytes, const weir_access *access, weir_api_error *error
);
/* `cors` gets an origin that is listed. `is_page`: a GET of the page itself, which links may lead
 * to. */
WEIR_MUST_CHECK weir_status weir_head_check_origin(
    const weir_http_head *head, const char *bytes, const weir_access *access, bool is_page,
    char cors[WEIR_ACCESS_ORIGIN], weir_api_error *error
);
/* What it expects, and the length of its body. */
WEIR_MUST_CHECK weir_status weir_head_check_length(
    const weir_http_head *head, const char *bytes, int64_t body_limit, weir_api_error *error
);

#ifdef __cplusplus
}
#endif
