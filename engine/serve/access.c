/* engine/serve/access.c - key check over digests, all keys always compared in full. */
#include "engine/serve/access.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

weir_status weir_access_add(weir_access *access, const char *key, size_t length, weir_error *error)
{
    if (length == 0) return weir_error_set(error, WEIR_EINVAL, "an API key is empty; give at least one character");
    if (access->n_keys == WEIR_ACCESS_KEYS)
        return weir_error_set(error, WEIR_EINVAL, "more than %d API keys; remove some", (int)WEIR_ACCESS_KEYS);
    for (size_t i = 0; i < length; i++)
        if (key[i] <= 0x20 || key[i] >= 0x7f)
            return weir_error_set(error, WEIR_EINVAL, "an API key holds a character that is not printable ASCII; choose another key");
    access->key[access->n_keys++] = weir_sha256_of(key, length);
    return WEIR_OK;
}

static bool equal_in_constant_time(const weir_sha256 *a, const weir_sha256 *b)
{
    unsigned difference = 0;
    for (size_t i = 0; i < sizeof a->bytes; i++) difference |= (unsigned)(a->bytes[i] ^ b->bytes[i]);
    return difference == 0;
}

int weir_access_check(const weir_access *access, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    const bool        bearer = authorization != NULL && strncasecmp(authorization, scheme, sizeof scheme - 1) == 0;
    const char *const token = bearer ? authorization + sizeof scheme - 1 : "";
    const weir_sha256 digest = weir_sha256_of(token, strlen(token));
    int               found = -1;
    for (size_t i = 0; i < access->n_keys; i++)
        if (equal_in_constant_time(&digest, &access->key[i])) found = (int)i;
    return bearer ? found : -1;
}

static bool port_or_end(const char *text)
{
    if (*text == 0) return true;
    if (*text != ':') return false;
    const size_t digits = strspn(text + 1, "0123456789");
    return digits >= 1 && digits <= 5 && text[1 + digits] == 0;
}

bool weir_host_is_loopback(const char *host)
{
    char         name[64];
    const bool   bracket = host[0] == '[';
    const size_t length = bracket ? strcspn(host + 1, "]") : strcspn(host, ":");
    if (length >= sizeof name || (bracket && host[1 + length] != ']')) return false;
    memcpy(name, host + bracket, length);
    name[length] = 0;
    if (!port_or_end(host + length + (bracket ? 2 : 0))) return false;

    struct in6_addr six;
    struct in_addr  four;
    if (bracket) return inet_pton(AF_INET6, name, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
    return strcasecmp(name, "localhost") == 0 || (inet_pton(AF_INET, name, &four) == 1 && ntohl(four.s_addr) >> 24 == 127);
}
