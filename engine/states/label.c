/* engine/states/label.c - labels of states, and the names made from them. */
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/states/states_internal.h"

/* Bytes of a name that come from the label, so that a number fits after them. */
enum { SLUG = 48 };

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

weir_status weir_state_label(char out[WEIR_STATE_LABEL + 1], const char *label, weir_error *error)
{
    while (is_space(*label)) label++;
    size_t n = strlen(label);
    while (n > 0 && is_space(label[n - 1])) n--;
    if (n == 0)
        return weir_error_set(error, WEIR_EINVAL, "the label is empty: give the state a label");
    if (n > WEIR_STATE_LABEL)
        return weir_error_set(
            error, WEIR_EINVAL, "the label has %zu bytes, at most %d are allowed; shorten it", n,
            (int)WEIR_STATE_LABEL
        );
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)label[i] < 0x20 || label[i] == 0x7F)
            return weir_error_set(
                error, WEIR_EINVAL, "the label has a control character at byte %zu", i
            );
    if (!weir_utf8_valid(label, n))
        return weir_error_set(error, WEIR_EINVAL, "the label is not UTF-8");
    memmove(out, label, n);
    out[n] = '\0';
    return WEIR_OK;
}

static char plain(char c)
{
    if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '-';
}

void weir_state_owner(char out[WEIR_STATE_OWNER + 2], const char *name)
{
    const bool is_owned = name[0] == 'k' &&
                          strspn(name + 1, "0123456789abcdef") == WEIR_STATE_OWNER &&
                          name[WEIR_STATE_OWNER + 1] == '-';
    memcpy(out, name, is_owned ? WEIR_STATE_OWNER + 1 : 0);
    out[is_owned ? WEIR_STATE_OWNER + 1 : 0] = '\0';
}

void weir_state_slug(char out[WEIR_STATE_NAME + 1], const char *label)
{
    size_t n = 0;
    for (; *label != '\0' && n < SLUG; label++) {
        const char c = plain(*label);
        if (c != '-' || (n > 0 && out[n - 1] != '-')) out[n++] = c;
    }
    while (n > 0 && out[n - 1] == '-') n--;
    if (n == 0) n = strlen(strcpy(out, "state"));
    out[n] = '\0';
}
