/* text.h - for the examples: a growing text, and JSON strings. */
#ifndef TEXT_H
#define TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing text; exits if out of memory. */
typedef struct text {
    char *data;
    size_t size, capacity;
} text;

static inline void add(text *t, const char *bytes, size_t n)
{
    if (n > SIZE_MAX / 4 - t->size) abort();
    if (t->size + n + 1 > t->capacity) {
        t->capacity = 2 * (t->size + n + 1);
        t->data = realloc(t->data, t->capacity);
        if (t->data == NULL) abort();
    }
    memcpy(t->data + t->size, bytes, n);
    t->size += n;
    t->data[t->size] = '\0';
}

/* Appends a JSON string. */
static inline void add_json(text *t, const char *bytes, size_t n)
{
    add(t, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        char escaped[8];
        if (c == '"' || c == '\\' || c < ' ')
            add(t, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", c));
        else
            add(t, bytes + i, 1);
    }
    add(t, "\"", 1);
}

#endif
