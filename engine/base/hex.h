/* engine/base/hex.h - hexadecimal digits. */
#pragma once

/* The value of a digit; -1: it is none. */
static inline int weir_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
