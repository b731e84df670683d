/* tests/fuzz/text_probe.h - what both text targets share: promises that abort when broken, names of
 * bytes. */
#pragma once
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer_internal.h"

static inline void probe_require(bool condition)
{
    if (!condition) abort();
}

/* Success, or a failure that says something. */
static inline void probe_status(weir_status status, const weir_error *error)
{
    probe_require(
        status == WEIR_OK || (error->code == status && error->text[0] != '\0' &&
                              strlen(error->text) < sizeof error->text)
    );
}

/* A base token for every byte that has none: id `first` + byte. Stops at an id that is taken. */
static inline void probe_add_bytes(weir_vocabulary *vocabulary, int64_t first)
{
    for (unsigned code = 0; code < sizeof vocabulary->alphabet / sizeof vocabulary->alphabet[0];
         code++) {
        const char character = (char)vocabulary->alphabet[code];
        if (vocabulary->alphabet[code] < 0 ||
            weir_vocabulary_find_base(vocabulary, &character, 1) >= 0)
            continue;
        const char name[2] = { (char)(code < 0x80 ? code : 0xC0 | code >> 6),
                               (char)(0x80 | (code & 0x3F)) };
        weir_error error = { 0 };
        const size_t length = code < 0x80 ? 1 : 2;
        if (weir_vocabulary_add(
                vocabulary, first + vocabulary->alphabet[code], name, length, 0, &error
            ) != WEIR_OK)
            return;
    }
}
