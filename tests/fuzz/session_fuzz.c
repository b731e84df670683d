/* tests/fuzz/session_fuzz.c - any bytes as a session file: as they are, with the header's checksum
 * put right, and with those of the sections, so that what is checked after a checksum is reached
 * too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/fuzz/session_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static void read_file(const char *path, size_t size)
{
    weir_error error = { 0 };
    int n_sections;
    const bool is_good = session_probe_read(path, size, &n_sections, &error) == WEIR_OK;
    require(
        !is_good || n_sections == SESSION_PROBE_SECTIONS || n_sections == SESSION_PROBE_CUT_SECTIONS
    );
}

/* A new file: ext4 writes one that was truncated to the disk when it is closed. */
static void write_file(const char *path, const void *bytes, size_t size)
{
    (void)unlink(path);
    FILE *const file = fopen(path, "wb");
    require(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

enum {
    HEADER = WEIR_SESSION_ALIGNMENT,
    CHECKSUM = HEADER - 8,
    N_SECTIONS = 272,
    TABLE = 280,
    ENTRY = 40
}; /* docs/session-format.md */

static uint64_t get(const uint8_t *at)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static void put(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static void seal_header(uint8_t *file) { put(file + CHECKSUM, XXH3_64bits(file, CHECKSUM)); }

static void seal_sections(uint8_t *file, size_t size)
{
    const int n = file[N_SECTIONS] == SESSION_PROBE_CUT_SECTIONS ? SESSION_PROBE_CUT_SECTIONS
                                                                 : SESSION_PROBE_SECTIONS;
    for (int i = 0; i < n; i++) {
        uint8_t *const entry = file + TABLE + i * ENTRY;
        const uint64_t offset = get(entry + 8),
                       length = (get(entry + 16) + HEADER - 1) / HEADER * HEADER;
        if (offset > size || length > size - offset) continue;
        const XXH128_hash_t hash = XXH3_128bits(file + offset, (size_t)length);
        put(entry + 24, hash.low64);
        put(entry + 32, hash.high64);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const folder = getenv("TEST_TMPDIR");
    char path[4096];
    (void)snprintf(
        path, sizeof path, "%s/fuzz.%ld.session", folder != NULL ? folder : "/tmp", (long)getpid()
    );
    write_file(path, data, size);
    read_file(path, size);
    if (size >= HEADER) {
        uint8_t *const sealed = malloc(size);
        require(sealed != NULL);
        memcpy(sealed, data, size);
        seal_header(sealed);
        write_file(path, sealed, size);
        read_file(path, size);
        seal_sections(sealed, size);
        seal_header(sealed);
        write_file(path, sealed, size);
        read_file(path, size);
        free(sealed);
    }
    (void)unlink(path);
    return 0;
}
