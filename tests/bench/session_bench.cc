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

/* A session with random pages, in memory and in a file. */
class Session {
  public:
    Session(const char *path, int32_t n_tokens)
        : path_(path), tokens_(static_cast<size_t>(n_tokens), 7)
    {
        weir_kv_number_heads(geometry_.data(), kLayers);
        spec_.n_layers = kLayers, spec_.geometry = geometry_.data();
        spec_.formats = formats_.data();
        id_.n_layers = kLayers, id_.n_heads = kHeads, id_.geometry = geometry_.data();
        id_.block_bytes = static_cast<int64_t>(weir_kv_block_bytes(&spec_));
        id_.state_bytes = kState;
        strcpy(id_.format, "f16");
        strcpy(id_.policy, "full:0");
        id_.numerics = { "v3", "cpu", "fast", "none", "none", false };
        n_blocks_ = (tokens_.size() + 63) / 64;
        table_.resize(n_blocks_ * kHeads);
        pool_ = fresh(pool_bytes());
        point();
        for (size_t i = 0; i < pool_bytes(); i += 8)
            *reinterpret_cast<uint64_t *>(pool_ + i) = i * 0x9e3779b97f4a7c15u;
    }
    ~Session() { (void)munmap(pool_, pool_bytes()); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    /* GB/s. */
    weir_status write(double *speed)
    {
        const int32_t n = static_cast<int32_t>(tokens_.size());
        weir_prefix_snapshot marks[2] = { { n / 2, state_.data() }, { n, state_.data() } };
        weir_session_content content = {};
        content.tokens = tokens_.data(), content.n_tokens = n, content.n_states = 2;
        content.salt = WEIR_PREFIX_NO_SALT, content.pages = table_.data();
        content.page_stride = static_cast<int64_t>(n_blocks_), content.spec = &spec_;
        content.states = marks;
        const int64_t start = weir_clock_ns();
        const weir_status status = weir_session_write(path_, &id_, &content, &bytes_, &error_);
        *speed = speed_since(start);
        return status;
    }
    weir_status restore(double *speed)
    {
        float *const states[2] = { state_.data(), state_.data() };
        (void)munmap(pool_, pool_bytes());
        pool_ = fresh(pool_bytes());
        point();
        forget(path_);
        weir_session_reader *reader = nullptr;
        const int64_t start = weir_clock_ns();
        weir_status status = weir_session_open(&reader, path_, &error_);
        if (status == WEIR_OK)
            status = weir_session_read_tokens(reader, tokens_.data(), 1000, &error_);
        if (status == WEIR_OK) status = weir_session_read_states(reader, states, &error_);
        if (status == WEIR_OK)
            status = weir_session_read_pages(
                reader, table_.data(), static_cast<int64_t>(n_blocks_), &spec_, &error_
            );
        *speed = speed_since(start);
        weir_session_close(reader);
        return status;
    }
    size_t bytes() const { return bytes_; }
    const char *problem() const { return error_.text; }

  private:
    enum { kLayers = 6, kHeads = 12, kState = 19 << 20 };
    size_t pool_bytes() const { return table_.size() * weir_kv_page_bytes(&spec_, 0); }
    void point()
    {
        for (size_t i = 0; i < table_.size(); i++)
            table_[i] = pool_ + i * weir_kv_page_bytes(&spec_, 0);
    }
    double speed_since(int64_t start) const
    {
        return static_cast<double>(bytes_) / static_cast<double>(weir_clock_ns() - start);
    }

    const char *path_;
    std::vector<weir_kv_geometry> geometry_ =
        std::vector<weir_kv_geometry>(kLayers, { 2, 256, 256, 0, 0, false });
    std::vector<weir_kv_pair> formats_ =
        std::vector<weir_kv_pair>(kLayers, { WEIR_KV_F16, WEIR_KV_F16 });
    std::vector<int32_t> tokens_;
    std::vector<float> state_ = std::vector<float>(kState / 4, 1.0f);
    std::vector<void *> table_;
    size_t n_blocks_ = 0, bytes_ = 0;
    char *pool_ = nullptr;
    weir_session_identity id_ = {};
    weir_kv_spec spec_ = {};
    weir_error error_ = {};
};

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    const char *const path = argv[1];
    const int32_t n_tokens = argc > 2 ? atoi(argv[2]) : 100000;
    Session session(path, n_tokens);
    std::vector<double> plain, restored(5);
    double written = 0;
    weir_status status = session.write(&written);
    for (size_t i = 0; i < restored.size() && status == WEIR_OK; i++) {
        plain.push_back(plain_read(path));
        status = session.restore(&restored[i]);
    }
    if (status != WEIR_OK) {
        (void)fprintf(stderr, "%s\n", session.problem());
        return 1;
    }
    (void)unlink(path);
    (void)printf(
        "{\"tokens\": %d, \"bytes\": %zu, \"write_gb_s\": %.2f, \"read_gb_s\": %.2f, "
        "\"restore_gb_s\": %.2f, \"ratio\": %.2f}\n",
        n_tokens, session.bytes(), written, median(plain), median(restored),
        median(restored) / median(plain)
    );
    return 0;
}
