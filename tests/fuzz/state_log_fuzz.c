/* tests/fuzz/state_log_fuzz.c - any bytes as the log of a state database: as they are, and with all
 * checksums put right. What a record says is in range and is the same bytes when it is written
 * again; a database with this log opens or says why not, and is whole after it was settled. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/log.h"
#include "engine/states/states_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

/* ---- bytes ----------------------------------------------------------------------------------- */
static void touch(const unsigned char *bytes, const state_log_header *header)
{
    const size_t n = state_record_bytes(header->kind.dim);
    state_record record;
    if (!state_record_decode(&record, bytes, header)) return;
    const weir_state_info *const info = &record.info;
    require(record.type == STATE_ADDED || record.type == STATE_REMOVED);
    require(
        info->serial >= 1 && strlen(info->name) <= WEIR_STATE_NAME &&
        strlen(info->label) <= WEIR_STATE_LABEL
    );
    unsigned char *const again = malloc(n);
    float *const vector = calloc((size_t)header->kind.dim + 1, sizeof *vector);
    require(again != NULL && vector != NULL);
    if (record.type == STATE_ADDED)
        require(state_name_is_good(info->name) && info->label[0] != '\0' && info->n_tokens >= 0);
    if (info->has_vector) {
        memcpy(vector, bytes + STATE_RECORD_VECTOR, (size_t)header->kind.dim * sizeof *vector);
        for (int32_t i = 0; i < header->kind.dim; i++) require(isfinite(vector[i]));
        require(
            record.length > 0 && record.length == state_vector_length(vector, header->kind.dim)
        );
        record.vector = vector;
    }
    state_record_encode(again, &record, header);
    require(memcmp(again, bytes, n) == 0);
    free(vector);
    free(again);
}

static void touch_all(const uint8_t *data, size_t size)
{
    state_log_header header;
    weir_error error = { 0 };
    if (size < STATE_HEADER) return;
    const weir_status status = state_header_decode(&header, data, "fuzz.log", &error);
    require(status == WEIR_OK || error.text[0] != '\0');
    if (status != WEIR_OK) return;
    unsigned char again[STATE_HEADER];
    state_header_encode(again, &header);
    require(memcmp(again, data, sizeof again) == 0);
    const size_t n = state_record_bytes(header.kind.dim);
    for (size_t at = STATE_HEADER; at + n <= size; at += n) touch(data + at, &header);
}

/* ---- a database ------------------------------------------------------------------------------ */
static void open_one(const char *folder, bool writes)
{
    weir_states *states = NULL;
    weir_error error = { 0 };
    weir_state_info *list = NULL;
    size_t n = 0, total = 0;
    const weir_states_options options = { .folder = folder, .writes = writes };
    const weir_status status = weir_states_open(&states, &options, &error);
    require(
        (status == WEIR_OK) == (states != NULL) && (status == WEIR_OK || error.text[0] != '\0')
    );
    if (status != WEIR_OK) return;
    const weir_states_page page = { .most = 100 };
    /* There are no files */
    require(weir_states_list(states, &page, &list, &n, &total, &error) == WEIR_OK && total == 0);
    weir_memory_give(list);
    weir_states_close(states);
}

static void open_all(const uint8_t *data, size_t size)
{
    const char *const temporary = getenv("TEST_TMPDIR");
    char folder[4096], path[4200];
    (void)snprintf(
        folder, sizeof folder, "%s/fuzz.%ld", temporary != NULL ? temporary : "/tmp", (long)getpid()
    );
    (void)mkdir(folder, 0700);
    (void)snprintf(path, sizeof path, "%s/states.log", folder);
    FILE *const file = fopen(path, "wb");
    require(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    open_one(folder, false);
    open_one(folder, true);
    open_one(folder, true);
    (void)unlink(path);
}

/* ---- */
static uint64_t get(const uint8_t *at, int n)
{
    uint64_t value = 0;
    for (int i = n; i-- > 0;) value = value << 8 | at[i];
    return value;
}

static void put(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* docs/state-database.md */
enum { RECORD_BYTES = 16, ID = 24 };

static void seal(uint8_t *log, size_t size)
{
    put(log + STATE_HEADER - 8, XXH3_64bits(log, STATE_HEADER - 8));
    const size_t n = (size_t)get(log + RECORD_BYTES, 4);
    for (size_t at = STATE_HEADER; n >= 64 && at + n <= size; at += n)
        put(log + at + n - 8, XXH3_64bits_withSeed(log + at, n - 8, get(log + ID, 8)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_log_set_level(WEIR_LOG_ERROR);
    touch_all(data, size);
    if (size < STATE_HEADER) return 0;
    uint8_t *const sealed = malloc(size);
    require(sealed != NULL);
    memcpy(sealed, data, size);
    seal(sealed, size);
    touch_all(sealed, size);
    open_all(sealed, size);
    free(sealed);
    return 0;
}
