#include "engine/serve/http_reply.h"

#include <stddef.h>
#include <time.h>

#include "engine/base/clock.h"

const char *weir_http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        { 200, "OK" },
        { 204, "No Content" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 411, "Length Required" },
        { 413, "Content Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 502, "Bad Gateway" },
        { 503, "Service Unavailable" },
        { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "Unknown";
}

void weir_http_date(char out[WEIR_HTTP_DATE])
{
    struct tm parts;
    const time_t now = (time_t)weir_clock_unix_seconds();
    if (gmtime_r(&now, &parts) == NULL ||
        strftime(out, WEIR_HTTP_DATE, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts) == 0)
        out[0] = '\0';
}
