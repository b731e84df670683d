#include "engine/base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"

weir_status weir_buffer_reserve(weir_buffer *buffer, size_t extra)
{
    size_t need;
    if (!weir_add_size(&need, buffer->size, extra) || !weir_add_size(&need, need, 1))
        return WEIR_ENOMEM;
    if (need <= buffer->capacity) return WEIR_OK;
    size_t capacity = buffer->capacity < 64 ? 64 : buffer->capacity;
    if (capacity < need && !weir_mul_size(&capacity, capacity, 2)) return WEIR_ENOMEM;
    if (capacity < need) capacity = need; /* a single large piece gets exactly its size */
    char *const data = weir_memory_resize(buffer->data, capacity);
    if (data == NULL) return WEIR_ENOMEM;
    buffer->data = data;
    buffer->capacity = capacity;
    return WEIR_OK;
}

weir_status weir_buffer_add(weir_buffer *buffer, const void *bytes, size_t n)
{
    WEIR_TRY(weir_buffer_reserve(buffer, n));
    if (n > 0) memcpy(buffer->data + buffer->size, bytes, n);
    buffer->size += n;
    buffer->data[buffer->size] = '\0';
    return WEIR_OK;
}

weir_status weir_buffer_text(weir_buffer *buffer, const char *text)
{
    return weir_buffer_add(buffer, text, strlen(text));
}

weir_status weir_buffer_format(weir_buffer *buffer, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    const int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    weir_status status = n < 0 ? WEIR_EINVAL : weir_buffer_reserve(buffer, (size_t)n);
    if (status == WEIR_OK) {
        (void)vsnprintf(buffer->data + buffer->size, (size_t)n + 1, format, again);
        buffer->size += (size_t)n;
    }
    va_end(again);
    return status;
}

weir_status weir_buffer_xml(weir_buffer *buffer, const char *text)
{
    const size_t before = buffer->size;
    weir_status status = WEIR_OK;
    for (; *text != '\0' && status == WEIR_OK; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c == '"' || c < 0x20)
            status = weir_buffer_format(buffer, "&#%d;", c < 0x20 ? ' ' : c);
        else
            status = weir_buffer_add(buffer, text, 1);
    }
    if (status != WEIR_OK && buffer->data != NULL) buffer->data[buffer->size = before] = '\0';
    return status;
}

void weir_buffer_clear(weir_buffer *buffer)
{
    buffer->size = 0;
    if (buffer->data != NULL) buffer->data[0] = '\0';
}

void weir_buffer_free(weir_buffer *buffer)
{
    weir_memory_give(buffer->data);
    *buffer = (weir_buffer){ 0 };
}
