/* engine/base/buffer.h - growable bytes: text being built, files being read. Zero-initialise;
 * weir_buffer_free ends it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/abi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_buffer {
    char *data; /* always NUL-terminated once anything was added; owned */
    size_t size, capacity;
} weir_buffer;

/* All return ENOMEM and leave the buffer as it was when memory is short. */
WEIR_MUST_CHECK weir_status weir_buffer_reserve(weir_buffer *buffer, size_t extra);
WEIR_MUST_CHECK weir_status weir_buffer_add(weir_buffer *buffer, const void *bytes, size_t n);
WEIR_MUST_CHECK weir_status weir_buffer_text(weir_buffer *buffer, const char *text);
WEIR_MUST_CHECK weir_status weir_buffer_format(weir_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As text of an XML document: markup and quotes as character references, control characters as
 * spaces. */
WEIR_MUST_CHECK weir_status weir_buffer_xml(weir_buffer *buffer, const char *text);
void weir_buffer_clear(weir_buffer *buffer); /* keeps the memory */
void weir_buffer_free(weir_buffer *buffer);

#ifdef __cplusplus
}
#endif
