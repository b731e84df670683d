/* tests/fuzz/session_fuzz.c - any bytes as a session file: as they are, and with the header's checksum put right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/kv/session_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

/* What the reader's own process keeps: pages of other sizes are refused. */
static const weir_kv_pair formats[] = { { WEIR_KV_F16, WEIR_KV_F16 }, { WEIR_KV_F16, WEIR_KV_F16 } };
static const weir_kv_spec own = { .n_layers = 2, .n_kv_heads = 1, .key_dim = 16, .value_dim = 16, .formats = formats };

/* Reads what the header promises; all of it lies in the file, so its size bounds what is allocated. */
static weir_status read_sections(weir_session_reader *reader, size_t size, weir_error *error)
{
    const weir_session_header *const h = weir_session_header_of(reader);
    const size_t                     blocks = ((size_t)h->n_tokens + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    const size_t                     pages = (size_t)(own.n_layers * own.n_kv_heads) * blocks;
    int32_t                          places[WEIR_SESSION_STATES];
    float                           *states[WEIR_SESSION_STATES];
    char                             salt[WEIR_PREFIX_SALT + 1];
    require(h->bytes == size && h->n_tokens >= 1 && h->n_states <= WEIR_SESSION_STATES);
    require((size_t)h->n_tokens * sizeof(int32_t) <= size && blocks * (size_t)h->identity.block_bytes <= size);
    int32_t *const tokens = malloc((size_t)h->n_tokens * sizeof *tokens);
    char *const    page = malloc(weir_kv_block_bytes(&own));
    float *const   state = malloc((size_t)h->identity.state_bytes + 1);
    void **const   table = malloc(pages * sizeof *table);
    require(tokens != NULL && page != NULL && state != NULL && table != NULL);
    for (size_t i = 0; i < pages; i++) table[i] = page;
    for (size_t i = 0; i < WEIR_SESSION_STATES; i++) states[i] = state;
    weir_status status = weir_session_read_tokens(reader, tokens, 1000, error);
    for (int32_t i = 0; status == WEIR_OK && i < h->n_tokens; i++) require(tokens[i] >= 0 && tokens[i] < 1000);
    if (status == WEIR_OK) status = weir_session_read_salt(reader, salt, error);
    if (status == WEIR_OK) status = weir_session_read_places(reader, places, error);
    for (int32_t i = 0; status == WEIR_OK && i < h->n_states; i++) require(places[i] >= 1 && places[i] <= h->n_tokens);
    if (status == WEIR_OK) status = weir_session_read_states(reader, states, error);
    if (status == WEIR_OK && h->identity.n_layers * h->identity.n_kv_heads == own.n_layers * own.n_kv_heads)
        status = weir_session_read_pages(reader, table, (int64_t)blocks, &own, error);
    free(tokens);
    free(page);
    free(state);
    free(table);
    return status;
}

static void read_file(const char *path, size_t size)
{
    weir_error           error = { 0 };
    weir_session_reader *reader = NULL;
    weir_status          status = weir_session_open(&reader, path, &error);
    require((status == WEIR_OK) == (reader != NULL));
    if (status == WEIR_OK) status = read_sections(reader, size, &error);
    require(status == WEIR_OK || error.text[0] != '\0');
    weir_session_close(reader);
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *const file = fopen(path, "wb");
    require(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { HEADER = WEIR_SESSION_ALIGNMENT, CHECKSUM = HEADER - 8 };
    const char *const folder = getenv("TEST_TMPDIR");
    char              path[4096];
    (void)snprintf(path, sizeof path, "%s/fuzz.%ld.session", folder != NULL ? folder : "/tmp", (long)getpid());
    write_file(path, data, size);
    read_file(path, size);
    if (size >= HEADER) {
        uint8_t *const sealed = malloc(size);
        require(sealed != NULL);
        memcpy(sealed, data, size);
        const uint64_t sum = XXH3_64bits(sealed, CHECKSUM);
        for (size_t i = 0; i < 8; i++) sealed[CHECKSUM + i] = (uint8_t)(sum >> (8 * i));
        write_file(path, sealed, size);
        read_file(path, size);
        free(sealed);
    }
    (void)unlink(path);
    return 0;
}
