/* engine/serve/access.c - API keys by their digests, always all compared in full; hosts and origins
 * by name. */
#include "engine/serve/access.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Reads " priority=N" after a key of `length` bytes, if it is there. */
static weir_status read_priority(
    int32_t *priority, const char *text, size_t length, weir_error *error
)
{
    static const char name[] = "priority=";
    char number[8] = "", *end = number;
    while (length > 0 && *text == ' ') text++, length--;
    if (length == 0) return WEIR_OK;
    const size_t n = sizeof name - 1;
    if (length > n && length - n < sizeof number && memcmp(text, name, n) == 0)
        memcpy(number, text + n, length - n);
    const long value = strtol(number, &end, 10);
    if (end == number || *end != '\0' || value < -WEIR_PRIORITY || value > WEIR_PRIORITY)
        return weir_error_set(
            error, WEIR_EINVAL,
            "what follows an API key must be priority=N with N from -%d to %d; keys have no spaces",
            WEIR_PRIORITY, WEIR_PRIORITY
        );
    *priority = (int32_t)value;
    return WEIR_OK;
}

weir_status weir_access_add(weir_access *access, const char *key, size_t length, weir_error *error)
{
    int32_t priority = 0;
    const char *const space = memchr(key, ' ', length);
    if (space != NULL && space > key) {
        const size_t n_key = (size_t)(space - key);
        WEIR_TRY(read_priority(&priority, space, length - n_key, error));
        length = n_key;
    }
    if (length == 0)
        return weir_error_set(
            error, WEIR_EINVAL, "an API key is empty; give at least one character"
        );
    if (access->n_keys == WEIR_ACCESS_KEYS)
        return weir_error_set(
            error, WEIR_EINVAL, "more than %d API keys; remove some", (int)WEIR_ACCESS_KEYS
        );
    for (size_t i = 0; i < length; i++)
        if (key[i] <= 0x20 || key[i] >= 0x7f)
            return weir_error_set(
                error, WEIR_EINVAL,
                "an API key holds a character that is not printable ASCII; choose another key"
            );
    access->priority[access->n_keys] = priority;
    access->key[access->n_keys++] = weir_sha256_of(key, length);
    return WEIR_OK;
}

static bool equal_in_constant_time(const weir_sha256 *a, const weir_sha256 *b)
{
    unsigned difference = 0;
    for (size_t i = 0; i < sizeof a->bytes; i++)
        difference |= (unsigned)(a->bytes[i] ^ b->bytes[i]);
    return difference == 0;
}

int weir_access_check(const weir_access *access, const char *authorization, const char *api_key)
{
    static const char scheme[] = "Bearer ";
    const bool is_bearer =
        authorization != NULL && strncasecmp(authorization, scheme, sizeof scheme - 1) == 0;
    const char *const token = is_bearer ? authorization + sizeof scheme - 1
                              : authorization == NULL && api_key != NULL ? api_key
                                                                         : "";
    const weir_sha256 digest = weir_sha256_of(token, strlen(token));
    int found = -1;
    for (size_t i = 0; i < access->n_keys; i++)
        if (equal_in_constant_time(&digest, &access->key[i])) found = (int)i;
    return found;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* A Host header, split. */
typedef struct host_name {
    char name[256];
    bool in_brackets;
} host_name;

static bool is_port_or_end(const char *text)
{
    if (*text == 0) return true;
    if (*text != ':') return false;
    const size_t digits = strspn(text + 1, "0123456789");
    return digits >= 1 && digits <= 5 && text[1 + digits] == 0;
}

static bool split_host(host_name *out, const char *host)
{
    out->in_brackets = host[0] == '[';
    const size_t length = out->in_brackets ? strcspn(host + 1, "]") : strcspn(host, ":");
    if (length == 0 || length >= sizeof out->name || (out->in_brackets && host[1 + length] != ']'))
        return false;
    memcpy(out->name, host + out->in_brackets, length);
    out->name[length] = 0;
    return is_port_or_end(host + length + (out->in_brackets ? 2 : 0));
}

/* A trailing dot does not change a name. */
static bool is_name(const char *a, size_t n, const char *b)
{
    const size_t length = strlen(b),
                 same = length > 0 && b[length - 1] == '.' ? length - 1 : length;
    return n == same && n > 0 && strncasecmp(a, b, n) == 0;
}

static bool is_address(const host_name *host, bool is_loopback)
{
    struct in6_addr six;
    struct in_addr four;
    if (host->in_brackets)
        return inet_pton(AF_INET6, host->name, &six) == 1 &&
               (!is_loopback || IN6_IS_ADDR_LOOPBACK(&six));
    return inet_pton(AF_INET, host->name, &four) == 1 &&
           (!is_loopback || ntohl(four.s_addr) >> 24 == 127);
}

/* The next entry of a comma-separated list and its length *n; NULL at the end. */
static const char *next_entry(const char **list, size_t *n)
{
    static const char space[] = " \t";
    if (*list == NULL) return NULL;
    const char *const begin = *list + strspn(*list, " \t,");
    if (*begin == 0) return NULL;
    *n = strcspn(begin, ",");
    *list = begin + *n;
    while (*n > 0 && strchr(space, begin[*n - 1]) != NULL) *n -= 1;
    return begin;
}

bool weir_access_host(const weir_access *access, const char *text)
{
    host_name host;
    const char *list = access->hosts;
    size_t n = 0;
    if (!split_host(&host, text)) return false;
    if (is_address(&host, access->is_loopback) ||
        (!host.in_brackets && is_name("localhost", 9, host.name)))
        return true;
    if (!access->is_loopback && is_name(access->own_host, strlen(access->own_host), host.name))
        return true;
    for (const char *entry = next_entry(&list, &n); entry != NULL; entry = next_entry(&list, &n))
        if (is_name(entry, n, host.name)) return true;
    return false;
}

/* ---- origins --------------------------------------------------------------------------------- */

bool weir_access_origin(const weir_access *access, const char *origin)
{
    const char *list = access->origins;
    size_t n = 0;
    for (const char *entry = next_entry(&list, &n); entry != NULL; entry = next_entry(&list, &n)) {
        if (n == 1 && entry[0] == '*') return true;
        if (strlen(origin) == n && strncasecmp(entry, origin, n) == 0) return true;
    }
    return false;
}

/* Length of a host and port without the scheme's default port. */
static size_t without_default_port(const char *host, const char *port)
{
    const size_t n = strlen(host), n_port = strlen(port);
    return n > n_port && strcmp(host + n - n_port, port) == 0 ? n - n_port : n;
}

bool weir_origin_is_host(const char *origin, const char *host)
{
    static const struct {
        const char *scheme, *port;
    } kinds[] = { { "http://", ":80" }, { "https://", ":443" } };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t n = strlen(kinds[i].scheme);
        if (strncasecmp(origin, kinds[i].scheme, n) != 0) continue;
        const size_t a = without_default_port(origin + n, kinds[i].port),
                     b = without_default_port(host, kinds[i].port);
        return a == b && strncasecmp(origin + n, host, a) == 0;
    }
    return false;
}

static bool is_origin(const char *entry, size_t n)
{
    const size_t scheme = n > 7 && strncasecmp(entry, "http://", 7) == 0    ? 7
                          : n > 8 && strncasecmp(entry, "https://", 8) == 0 ? 8
                                                                            : 0;
    return scheme > 0 && n < WEIR_ACCESS_ORIGIN && memchr(entry + scheme, '/', n - scheme) == NULL;
}

static bool is_printable(const char *entry, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (entry[i] <= 0x20 || entry[i] >= 0x7f) return false;
    return true;
}

weir_status weir_access_check_lists(const weir_access *access, weir_error *error)
{
    const char *list = access->hosts;
    size_t n = 0;
    for (const char *entry = next_entry(&list, &n); entry != NULL; entry = next_entry(&list, &n))
        if (!is_printable(entry, n) || memchr(entry, ':', n) != NULL ||
            memchr(entry, '/', n) != NULL)
            return weir_error_set(
                error, WEIR_ECONFIG,
                "server.allowed_hosts: '%.*s' is not a host name; give names without port", (int)n,
                entry
            );
    list = access->origins;
    for (const char *entry = next_entry(&list, &n); entry != NULL; entry = next_entry(&list, &n)) {
        if (n == 1 && entry[0] == '*' && access->n_keys == 0)
            return weir_error_set(
                error, WEIR_ECONFIG,
                "server.allowed_origins: '*' lets every page use a server that "
                "has no key; set a key, or list the pages"
            );
        if (!(n == 1 && entry[0] == '*') && (!is_printable(entry, n) || !is_origin(entry, n)))
            return weir_error_set(
                error, WEIR_ECONFIG,
                "server.allowed_origins: '%.*s' is not an origin such as http://localhost:3000",
                (int)n, entry
            );
    }
    return WEIR_OK;
}
