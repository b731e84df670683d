/* kernels/abi/kv_format_text.h - lists of KV formats for messages and help, as string literals. */
#pragma once
#include "kernels/abi/kv_format.h"

/* The words of a configuration key: "f32|f16|...". */
#define WEIR_KV_WORD_(name, text, ...) "|" text
#define WEIR_KV_FORMAT_WORDS (&WEIR_KV_FORMAT_MAP(WEIR_KV_WORD_)[1])

/* Formats of one kind, such as " f16 bf16": coded by page; that attention's single source reads on
 * GPUs; that CUDA's attention reads; that CUDA's kv_write writes. */
#define WEIR_KV_PAGE_TEXT WEIR_KV_FORMAT_MAP(WEIR_KV_TEXT_PAGE_)
#define WEIR_KV_DEVICE_READ_TEXT WEIR_KV_FORMAT_MAP(WEIR_KV_TEXT_DEVICE_)
#define WEIR_KV_CUDA_READ_TEXT WEIR_KV_FORMAT_MAP(WEIR_KV_TEXT_READ_)
#define WEIR_KV_CUDA_WRITE_TEXT WEIR_KV_FORMAT_MAP(WEIR_KV_TEXT_WRITE_)

#define WEIR_KV_TEXT_PAGE_(name, text, bits, scheme, coded, ...) WEIR_KV_TEXT_PAGE_##coded(text)
#define WEIR_KV_TEXT_PAGE_ROW(text)
#define WEIR_KV_TEXT_PAGE_ROTATED(text)
#define WEIR_KV_TEXT_PAGE_PAGE(text) " " text

#define WEIR_KV_TEXT_DEVICE_(name, text, bits, scheme, coded, attention, device, cuda)             \
    WEIR_KV_TEXT_DEVICE_##device(text)
#define WEIR_KV_TEXT_DEVICE_NONE(text)
#define WEIR_KV_TEXT_DEVICE_READ(text) " " text

#define WEIR_KV_TEXT_READ_(name, text, bits, scheme, coded, attention, device, cuda)               \
    WEIR_KV_TEXT_READ_##cuda(text)
#define WEIR_KV_TEXT_READ_NONE(text)
#define WEIR_KV_TEXT_READ_READ(text) " " text
#define WEIR_KV_TEXT_READ_WRITE(text)
#define WEIR_KV_TEXT_READ_BOTH(text) " " text

#define WEIR_KV_TEXT_WRITE_(name, text, bits, scheme, coded, attention, device, cuda)              \
    WEIR_KV_TEXT_WRITE_##cuda(text)
#define WEIR_KV_TEXT_WRITE_NONE(text)
#define WEIR_KV_TEXT_WRITE_READ(text)
#define WEIR_KV_TEXT_WRITE_WRITE(text) " " text
#define WEIR_KV_TEXT_WRITE_BOTH(text) " " text
