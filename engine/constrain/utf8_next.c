/* engine/constrain/utf8_next.c - decodes code points. */
#include "engine/constrain/utf8_next.h"

#include <stdbool.h>

size_t weir_utf8_next(uint32_t *c, const char *text, size_t n)
{
    const unsigned char *const t = (const unsigned char *)text;
    const size_t length = t[0] < 0x80 ? 1 : t[0] < 0xC2 ? 0 : t[0] < 0xE0 ? 2 : t[0] < 0xF0 ? 3 : 4;
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (length == 0 || length > n || t[0] > 0xF4) return 0;
    *c = length == 1 ? t[0] : t[0] & (0x7F >> length);
    for (size_t i = 1; i < length; i++) {
        if ((t[i] & 0xC0) != 0x80) return 0;
        *c = *c << 6 | (t[i] & 0x3F);
    }
    const bool right = *c >= least[length] && *c <= 0x10FFFF && (*c < 0xD800 || *c > 0xDFFF);
    return right ? length : 0;
}
