/* tests/fuzz/replay.c - main of a fuzz target without libFuzzer: its corpus, then mutations of it,
 * the same on every run with the same seed. Every input has memory of exactly its size, so a
 * sanitizer sees a read past its end. */
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 20, CHANGES_MAX = 6 };

static uint64_t state;

/* xorshift64* (Vigna 2016). */
static uint64_t below(uint64_t limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545F4914F6CDD1D >> 16) % limit;
}

static void run(const char *bytes, size_t n)
{
    uint8_t *const exact = malloc(n > 0 ? n : 1);
    if (exact == NULL) abort();
    if (n > 0) memcpy(exact, bytes, n);
    (void)LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static void overwrite_integer(weir_buffer *input, size_t at)
{
    static const uint64_t values[] = { 0,
                                       1,
                                       2,
                                       3,
                                       4,
                                       5,
                                       31,
                                       33,
                                       64,
                                       255,
                                       256,
                                       65535,
                                       65537,
                                       0x7FFFFFFF,
                                       0x80000000,
                                       0xFFFFFFFF,
                                       0x7FFFFFFFFFFFFFFF,
                                       0x8000000000000000,
                                       0xFFFFFFFFFFFFFFFF,
                                       0x2000000000000000 };
    const uint64_t value = values[below(sizeof values / sizeof values[0])];
    const size_t width = (size_t)1 << below(4);
    for (size_t i = 0; i < width && at + i < input->size; i++)
        input->data[at + i] = (char)(value >> (8 * i));
}

static void insert(weir_buffer *input, size_t at, const char *bytes, size_t n)
{
    if (weir_buffer_reserve(input, n) != WEIR_OK) abort();
    memmove(input->data + at + n, input->data + at, input->size - at + 1);
    memcpy(input->data + at, bytes, n);
    input->size += n;
}

static void change(weir_buffer *input, const weir_buffer *other)
{
    static const char tokens[] = "\"\\{}[],:0-9e.nulltrue\0\xff\xc3";
    if (input->size == 0) return;
    const size_t at = (size_t)below(input->size), n = (size_t)below(input->size - at) + 1;
    switch (below(8)) {
    case 0: input->data[at] = (char)(input->data[at] ^ 1 << below(8)); break;
    case 1: input->data[at] = (char)below(256); break;
    case 2: overwrite_integer(input, at); break;
    case 3: input->size = at; break;
    case 4:
        memmove(input->data + at, input->data + at + n, input->size - at - n);
        input->size -= n;
        break;
    case 5: insert(input, at, tokens + below(sizeof tokens - 4), 1 + (size_t)below(4)); break;
    case 6: memmove(input->data + below(input->size - n + 1), input->data + at, n); break;
    default:
        if (other->size > 0) {
            const size_t from = (size_t)below(other->size),
                         length = (size_t)below(other->size - from) + 1;
            insert(input, at, other->data + from, length < 64 ? length : 64);
        }
    }
    input->data[input->size] = '\0';
}

static void mutate(
    const weir_buffer *files, size_t n_files, const weir_buffer *file, long mutations
)
{
    weir_buffer input = { 0 };
    for (long i = 0; i < mutations; i++) {
        weir_buffer_clear(&input);
        if (weir_buffer_add(&input, file->data, file->size) != WEIR_OK) abort();
        for (uint64_t changes = below(CHANGES_MAX) + 1; changes > 0; changes--)
            change(&input, &files[below(n_files)]);
        run(input.data, input.size);
    }
    weir_buffer_free(&input);
}

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void load(weir_buffer *file, const char *folder, const char *name)
{
    char path[4096];
    weir_error error = { 0 };
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (weir_file_read(file, path, INPUT_BYTES_MAX, &error) == WEIR_OK) return;
    (void)fprintf(stderr, "%s\n", error.text);
    exit(1);
}

/* A quarter with AddressSanitizer, but in .ci/nightly: as tests/every_nth.h. */
static long part_of(long mutations)
{
    const char *const cases = getenv("WEIR_CASES");
    bool is_part = cases != NULL && strcmp(cases, "part") == 0;
#if __has_feature(address_sanitizer)
    is_part = is_part || cases == NULL;
#endif
    return is_part ? (mutations + 3) / 4 : mutations;
}

int main(int argc, char **argv)
{
    struct dirent **names;
    const bool is_usage = argc == 3 || argc == 4;
    const long mutations = is_usage ? part_of(strtol(argv[1], NULL, 10)) : 0;
    const uint64_t seed = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    const int n = is_usage ? scandir(argv[2], &names, visible, alphasort) : 0;
    if (n <= 0) {
        (void)fprintf(
            stderr, "usage: %s MUTATIONS FOLDER [SEED] (a folder with at least one file)\n", argv[0]
        );
        return 2;
    }
    weir_buffer *const files = calloc((size_t)n, sizeof *files);
    if (files == NULL) return 1;
    for (int i = 0; i < n; i++) load(&files[i], argv[2], names[i]->d_name);
    for (int i = 0; i < n; i++) {
        state = 0x9E3779B97F4A7C15 + (uint64_t)i + seed * 0xD1342543DE82EF95;
        if (state == 0) state = 1;
        run(files[i].data, files[i].size);
        mutate(files, (size_t)n, &files[i], mutations);
    }
    (void)printf("%d inputs, %ld mutations of each, seed %" PRIu64 "\n", n, mutations, seed);
    for (int i = 0; i < n; i++) {
        weir_buffer_free(&files[i]);
        free(names[i]);
    }
    free(names);
    free(files);
    return 0;
}
