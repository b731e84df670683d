/* engine/base/buffer.h - a growable byte buffer. Zero-initialise it; weir_buffer_free releases
 * it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/abi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_buffer {
    char *data; /* owned; NUL-terminated after the first append */
    size_t size, capacity;
} weir_buffer;

/* These functions return ENOMEM and leave the buffer unchanged when memory runs out. */
WEIR_MUST_CHECK weir_status weir_buffer_reserve(weir_buffer *buffer, size_t extra);
WEIR_MUST_CHECK weir_status weir_buffer_add(weir_buffer *buffer, const void *bytes, size_t n);
WEIR_MUST_CHECK weir_status weir_buffer_text(weir_buffer *buffer, const char *text);
WEIR_MUST_CHECK weir_status weir_buffer_format(weir_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends `text` escaped for XML: markup and quotes become character references, control characters
 * become spaces. */
WEIR_MUST_CHECK weir_status weir_buffer_xml(weir_buffer *buffer, const char *text);
void weir_buffer_clear(weir_buffer *buffer); /* sets size to 0 and keeps the memory */
void weir_buffer_free(weir_buffer *buffer);

#ifdef __cplusplus
}
#endif
