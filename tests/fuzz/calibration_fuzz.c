/* tests/fuzz/calibration_fuzz.c - any bytes as statistics of queries: as they are, and with the
 * checksum put right. What is read holds only numbers, and is the same when it is written and read
 * again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/kv/policy/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

/* Of a file that was read: its own header tells the sizes. */
static void touch(const weir_calibration *calibration, const uint8_t *data)
{
    uint32_t sizes[5]; /* layers, heads, KV heads, width, bands */
    memcpy(sizes, data + 8, sizeof sizes);
    for (int64_t layer = 0; layer < sizes[0]; layer++) {
        for (int64_t h = 0; h < sizes[1]; h++) {
            const weir_calibration_head head = weir_calibration_at(calibration, layer, h);
            for (int64_t f = 0; f < sizes[4]; f++) {
                require(isfinite(head.re[f]) && isfinite(head.im[f]) && head.length[f] >= 0);
                require(weir_calibration_concentration(calibration, layer, h, f) <= 1.01f);
            }
            for (int64_t d = 0; head.plain != NULL && d < (int64_t)sizes[3] - 2 * (int64_t)sizes[4];
                 d++)
                require(isfinite(head.plain[d]));
        }
    }
}

static void again(const weir_calibration *calibration)
{
    weir_buffer bytes = { 0 };
    weir_calibration *copy = NULL;
    weir_error error = { 0 };
    require(weir_calibration_print(&bytes, calibration, false) == WEIR_OK);
    require(weir_calibration_parse(&copy, bytes.data, bytes.size, "again", &error) == WEIR_OK);
    require(weir_calibration_digest(copy) == weir_calibration_digest(calibration));
    weir_calibration_close(copy);
    weir_buffer_free(&bytes);
}

static void read_one(const uint8_t *data, size_t size)
{
    weir_calibration *calibration = NULL;
    weir_error error = { 0 };
    const weir_status status =
        weir_calibration_parse(&calibration, data, size, "fuzz.tria", &error);
    require(
        (status == WEIR_OK) == (calibration != NULL) && (status == WEIR_OK || error.text[0] != '\0')
    );
    if (status != WEIR_OK) return;
    /* a small file takes no large memory */
    require(weir_calibration_bytes(calibration) <= 64 * size + 65536);
    touch(calibration, data);
    again(calibration);
    weir_calibration_close(calibration);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_one(data, size);
    if (size < 72) return 0;
    uint8_t *const sealed = malloc(size);
    require(sealed != NULL);
    memcpy(sealed, data, size);
    const uint64_t sum = XXH3_64bits(sealed, size - 8);
    memcpy(sealed + size - 8, &sum, sizeof sum);
    read_one(sealed, size);
    free(sealed);
    return 0;
}
