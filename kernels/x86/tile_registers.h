/* kernels/x86/tile_registers.h - the tile instructions of AMX-BF16: the processor's, or with
 * WEIR_EMULATED their definition in C. */
#pragma once
#include <stdint.h>

#ifdef WEIR_EMULATED
#include "kernels/x86/amx_emulated.h"
#define TILE_OPERATION(operation, ...) emulated_##operation(__VA_ARGS__)
#define RELEASE() ((void)0)
#define STREAM_LOAD loadd
#else
#include <immintrin.h>
#define TILE_OPERATION(operation, ...) _tile_##operation(__VA_ARGS__)
#define RELEASE() _tile_release()
/* Leaves in L1 what is there. */
#define STREAM_LOAD stream_loadd
#endif
/* Twice, so that an operation may be a macro. */
#define TILE(operation, ...) TILE_OPERATION(operation, __VA_ARGS__)

enum { TILE_ROW_BYTES = 64 };

/* In the format of LDTILECFG. */
typedef struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;
