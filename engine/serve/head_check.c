#include "engine/serve/head_check.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

weir_status weir_head_check_host(
    const weir_http_head *head, const char *bytes, const weir_access *access, weir_api_error *error
)
{
    const char *const host = weir_http_value(head, bytes, WEIR_HTTP_HOST);
    if (host == NULL || weir_access_host(access, host)) return WEIR_OK;
    return weir_api_fail(
        error, 403, NULL, NULL,
        "the host %s is not one of this server's names; use its address, or list "
        "the name in server.allowed_hosts",
        weir_quote(host).text
    );
}

/* Pages of other sites must not call the server. Browsers name the calling page in Origin and
 * Sec-Fetch-Site; other clients send neither. Following a link to the page itself is harmless. */
weir_status weir_head_check_origin(
    const weir_http_head *head, const char *bytes, const weir_access *access, bool is_page,
    char cors[WEIR_ACCESS_ORIGIN], weir_api_error *error
)
{
    const char *const origin = weir_http_value(head, bytes, WEIR_HTTP_ORIGIN);
    const char *const host = weir_http_value(head, bytes, WEIR_HTTP_HOST);
    const char *const site = weir_http_value(head, bytes, WEIR_HTTP_FETCH_SITE);
    const char *const mode = weir_http_value(head, bytes, WEIR_HTTP_FETCH_MODE);
    if (origin != NULL && weir_access_origin(access, origin)) {
        (void)snprintf(cors, WEIR_ACCESS_ORIGIN, "%s", origin);
        return WEIR_OK;
    }
    const bool is_foreign = origin != NULL && (host == NULL || !weir_origin_is_host(origin, host));
    const bool is_link = is_page && mode != NULL && strcmp(mode, "navigate") == 0;
    if (!is_foreign && (site == NULL || strcmp(site, "cross-site") != 0 || is_link)) return WEIR_OK;
    return weir_api_fail(
        error, 403, NULL, NULL,
        "pages of %s may not use this server; list the origin in server.allowed_origins",
        weir_quote(origin != NULL ? origin : "other sites").text
    );
}

weir_status weir_head_check_length(
    const weir_http_head *head, const char *bytes, int64_t body_limit, weir_api_error *error
)
{
    const char *const expect = weir_http_value(head, bytes, WEIR_HTTP_EXPECT);
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
        return weir_api_fail(
            error, 417, NULL, NULL, "the only supported expectation is 100-continue"
        );
    if (head->length > body_limit)
        return weir_api_fail(
            error, 413, NULL, NULL, "the body is larger than %lld bytes", (long long)body_limit
        );
    return WEIR_OK;
}
