/* engine/constrain/utf8_next.h - decodes code points. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Decodes one code point of text [n], n > 0. Returns its bytes; 0: ill-formed UTF-8. */
size_t weir_utf8_next(uint32_t *c, const char *text, size_t n);
