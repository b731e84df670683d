// Reading a session against reading the same file and doing nothing with it, both from the disk:
// the page cache is emptied of it before. bazel run -c opt //tests/bench:session_bench -- FILE
// [TOKENS]     (the shape is that of a hybrid model of 0.8 billion parameters)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/session/file/session_file.h"

namespace {

void forget(const char *path)
{
    const int fd = open(path, O_RDONLY);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(fd);
}

char *fresh(size_t bytes)
{
    void *const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* as the ledger does with the pool of pages */
    return static_cast<char *>(memory);
}

double plain_read(const char *path)
{
    static std::vector<char> buffer(8 << 20);
    forget(path);
    const int fd = open(path, O_RDONLY);
    const int64_t start = weir_clock_ns();
    size_t all = 0;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;)
        all += static_cast<size_t>(n);
    (void)close(fd);
    return static_cast<double>(all) / static_cast<double>(weir_clock_ns() - start);
}

double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    const char *const path = argv[1];
    const int32_t n_tokens = argc > 2 ? atoi(argv[2]) : 100000;
    weir_session_identity id = {};
    std::vector<weir_kv_geometry> geometry(6, { 2, 256, 256, 0, 0, false });
    weir_kv_number_heads(geometry.data(), 6);
    id.n_layers = 6, id.n_heads = 12, id.geometry = geometry.data();
    const std::vector<weir_kv_pair> formats(6, { WEIR_KV_F16, WEIR_KV_F16 });
    weir_kv_spec spec = {};
    spec.n_layers = 6, spec.geometry = geometry.data(), spec.formats = formats.data();
    id.block_bytes = static_cast<int64_t>(weir_kv_block_bytes(&spec)), id.state_bytes = 19 << 20;
    strcpy(id.format, "f16");
    strcpy(id.policy, "full:0");
    id.numerics = { "v3", "cpu", "fast", "none", "none", false };
    const size_t blocks = (static_cast<size_t>(n_tokens) + 63) / 64, n_pages = blocks * 12,
                 page = weir_kv_page_bytes(&spec, 0);
    std::vector<int32_t> tokens(static_cast<size_t>(n_tokens), 7);
    std::vector<void *> table(n_pages);
    std::vector<float> state(static_cast<size_t>(id.state_bytes) / 4, 1.0f);
    char *pool = fresh(n_pages * page);
    for (size_t i = 0; i < n_pages; i++) table[i] = pool + i * page;
    for (size_t i = 0; i < n_pages * page; i += 8)
        *reinterpret_cast<uint64_t *>(pool + i) = i * 0x9e3779b97f4a7c15u;
    weir_prefix_snapshot marks[2] = { { n_tokens / 2, state.data() }, { n_tokens, state.data() } };
    weir_session_content content = { tokens.data(),
                                     n_tokens,
                                     2,
                                     WEIR_PREFIX_NO_SALT,
                                     table.data(),
                                     static_cast<int64_t>(blocks),
                                     &spec,
                                     {},
                                     nullptr,
                                     marks,
                                     nullptr,
                                     nullptr,
                                     false,
                                     {},
                                     nullptr,
                                     nullptr };
    weir_error error = {};
    size_t bytes = 0;
    const int64_t start = weir_clock_ns();
    if (weir_session_write(path, &id, &content, &bytes, &error) != WEIR_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const double write_speed =
        static_cast<double>(bytes) / static_cast<double>(weir_clock_ns() - start);
    std::vector<double> plain, restore;
    float *const states[2] = { state.data(), state.data() };
    for (int i = 0; i < 5; i++) {
        plain.push_back(plain_read(path));
        (void)munmap(pool, n_pages * page);
        pool = fresh(n_pages * page);
        for (size_t k = 0; k < n_pages; k++) table[k] = pool + k * page;
        forget(path);
        weir_session_reader *reader = nullptr;
        const int64_t begin = weir_clock_ns();
        weir_status status = weir_session_open(&reader, path, &error);
        if (status == WEIR_OK)
            status = weir_session_read_tokens(reader, tokens.data(), 1000, &error);
        if (status == WEIR_OK) status = weir_session_read_states(reader, states, &error);
        if (status == WEIR_OK)
            status = weir_session_read_pages(
                reader, table.data(), static_cast<int64_t>(blocks), &spec, &error
            );
        restore.push_back(
            static_cast<double>(bytes) / static_cast<double>(weir_clock_ns() - begin)
        );
        weir_session_close(reader);
        if (status != WEIR_OK) {
            (void)fprintf(stderr, "%s\n", error.text);
            return 1;
        }
    }
    (void)unlink(path);
    (void)printf(
        "{\"tokens\": %d, \"bytes\": %zu, \"write_gb_s\": %.2f, \"read_gb_s\": %.2f, "
        "\"restore_gb_s\": %.2f, \"ratio\": %.2f}\n",
        n_tokens, bytes, write_speed, median(plain), median(restore),
        median(restore) / median(plain)
    );
    return 0;
}
