/* engine/serve/http_reply.h - lines of replies that a server and a router both send. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_HTTP_DATE = 48 };

const char *weir_http_reason(int status);
/* Writes the field Date, a whole line; "": the clock is not set to a date. */
void weir_http_date(char out[WEIR_HTTP_DATE]);

/* Whole lines. Against browsers that guess other content types or embed answers: */
#define WEIR_HTTP_GUARD                                                                            \
    "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n"
/* To a page whose origin, %s, is listed: in all replies, in those to a preflight, and in others. */
#define WEIR_CORS_ORIGIN "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n"
#define WEIR_CORS_PREFLIGHT                                                                        \
    "Access-Control-Allow-Methods: GET, POST, DELETE\r\n"                                          \
    "Access-Control-Allow-Headers: authorization, content-type, x-api-key, x-request-id, "         \
    "anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access\r\n"             \
    "Access-Control-Max-Age: 600\r\n"
#define WEIR_CORS_EXPOSE                                                                           \
    "Access-Control-Expose-Headers: x-request-id, x-weir-warning, x-weir-kv-format, "              \
    "x-weir-kv-banks, x-weir-kv-policy, x-weir-kv-budget\r\n"

#ifdef __cplusplus
}
#endif
