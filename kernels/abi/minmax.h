/* kernels/abi/minmax.h - minimum and maximum of integers. */
#pragma once
#include <stddef.h>
#include <stdint.h>

static inline int64_t weir_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t weir_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int32_t weir_min_i32(int32_t a, int32_t b) { return a < b ? a : b; }
static inline size_t weir_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t weir_max_size(size_t a, size_t b) { return a > b ? a : b; }
