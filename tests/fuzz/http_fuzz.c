/* tests/fuzz/http_fuzz.c - any bytes as a request: its head and its chunks, in one piece and byte
 * by byte, with the same outcome. */
#include "engine/serve/http_chunks.h"
#include "engine/serve/http_head.h"
#include "tests/fuzz/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER_LIMIT = 1 << 10 };

typedef struct outcome {
    weir_http_progress progress;
    weir_http_problem problem;
    weir_http_head head;
    char *bytes; /* owned */
} outcome;

static void check_text(const outcome *o, size_t offset)
{
    probe_require(offset < o->head.scanned);
    probe_require(memchr(o->bytes + offset, 0, o->head.scanned - offset) != NULL);
}

/* With memory of exactly its size, so that the address sanitizer sees what is read beyond it. */
static outcome read_head(const uint8_t *data, size_t size, size_t step)
{
    outcome o = { .progress = WEIR_HTTP_MORE,
                  .head.limit = HEADER_LIMIT,
                  .bytes = malloc(size + 1) };
    probe_require(o.bytes != NULL);
    memcpy(o.bytes, data, size);
    for (size_t n = 0; n < size && o.progress == WEIR_HTTP_MORE;) {
        n = step < size - n ? n + step : size;
        o.progress = weir_http_head_read(&o.head, o.bytes, n, &o.problem);
        probe_require(o.head.scanned <= n);
    }
    if (o.progress == WEIR_HTTP_BAD)
        probe_require(o.problem.status >= 400 && o.problem.status < 600 && o.problem.text != NULL);
    if (o.progress != WEIR_HTTP_DONE) return o;
    probe_require(
        o.bytes[o.head.target] == '/' && o.head.length >= -1 &&
        !(o.head.chunked && o.head.length >= 0)
    );
    check_text(&o, o.head.method);
    check_text(&o, o.head.target);
    for (int i = 0; i < WEIR_HTTP_FIELD_COUNT; i++)
        if (o.head.value[i] != 0) check_text(&o, o.head.value[i]);
    return o;
}

static uint64_t read_chunks(
    const uint8_t *data, size_t size, size_t step, weir_http_progress *progress, size_t *at
)
{
    weir_http_chunks chunks = { 0 };
    weir_http_problem problem = { 0 };
    uint64_t total = 0;
    *at = 0;
    *progress = WEIR_HTTP_MORE;
    for (size_t end = 0; *progress == WEIR_HTTP_MORE && end < size;) {
        end = step < size - end ? end + step : size;
        while (*at < end && *progress == WEIR_HTTP_MORE) {
            size_t used = 0, n_data = 0;
            *progress = weir_http_chunks_read(
                &chunks, (const char *)data + *at, end - *at, &used, &n_data, &problem
            );
            if (*progress == WEIR_HTTP_BAD) return total;
            probe_require(used > 0 && n_data <= used && used <= end - *at);
            total += n_data;
            *at += used;
        }
    }
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    outcome whole = read_head(data, size, size), bytes = read_head(data, size, 1);
    probe_require(whole.progress == bytes.progress && whole.problem.status == bytes.problem.status);
    if (whole.progress == WEIR_HTTP_DONE) {
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): both began as zeros */
        probe_require(memcmp(&whole.head, &bytes.head, sizeof whole.head) == 0);
        data += whole.head.scanned;
        size -= whole.head.scanned;
    }
    free(whole.bytes);
    free(bytes.bytes);
    weir_http_progress a, b;
    size_t at_a, at_b;
    probe_require(
        read_chunks(data, size, size, &a, &at_a) == read_chunks(data, size, 1, &b, &at_b)
    );
    probe_require(a == b && (a != WEIR_HTTP_DONE || at_a == at_b));
    return 0;
}
