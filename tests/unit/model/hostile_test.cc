/* Broken model files on the way that a user's file takes: bind, and plan, open and compute for
 * those that still bind. Each is a success or an error with a text; none crashes or allocates what
 * its file could not justify. Run under ASan and UBSan to see more. */
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/every_nth.h"
#include "tests/sanitizer.h"
#include "tests/unit/model/hostile.h"

namespace hostile {
namespace {

/* Bytes of a file on disk, changed in place. */
class File {
  public:
    explicit File(const std::string &path)
        : path_(path), bytes_(read_file(path)), fd_(open(path.c_str(), O_WRONLY | O_CLOEXEC))
    {
        EXPECT_GE(fd_, 0) << path;
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    ~File() { close(fd_); }
    void set(size_t at, unsigned char byte)
    {
        EXPECT_EQ(pwrite(fd_, &byte, 1, static_cast<off_t>(at)), 1);
    }
    void flip(size_t at, unsigned char bits)
    {
        set(at, static_cast<unsigned char>(static_cast<unsigned char>(bytes_[at]) ^ bits));
    }
    void restore(size_t at) { set(at, static_cast<unsigned char>(bytes_[at])); }
    void cut(size_t n) { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(n)), 0); }
    void restore()
    {
        EXPECT_EQ(
            pwrite(fd_, bytes_.data(), bytes_.size(), 0), static_cast<ssize_t>(bytes_.size())
        );
        cut(bytes_.size());
    }
    const std::string &bytes() const { return bytes_; }

  private:
    std::string path_, bytes_;
    int fd_;
};

struct Counts {
    int n_files = 0, n_bound = 0, n_opened = 0, n_computed = 0;
};

/* What weir_engine_plan does before it plans, with the architectures read and the stream opened
 * once for all files. */
weir_status bind(const std::string &path, weir_error *error)
{
    static weir_arch_set *archs = nullptr;
    static weir_stream *stream = nullptr;
    weir_tensor_directory *directory = nullptr;
    weir_model *model = nullptr;
    const weir_arch *arch = nullptr;
    weir_stream_options options = {};
    options.n_threads = 1;
    if (archs == nullptr) EXPECT_EQ(weir_arch_set_open(&archs, nullptr, nullptr, error), WEIR_OK);
    if (stream == nullptr) EXPECT_EQ(weir_stream_open(&stream, &options, error), WEIR_OK);
    weir_status status = weir_tensor_directory_open(&directory, path.c_str(), error);
    if (status == WEIR_OK) status = weir_arch_match(&arch, archs, directory, error);
    weir_model_settings settings = {};
    settings.activations = WEIR_ACTIVATIONS_FAST;
    settings.kv_format = { WEIR_KV_F16, WEIR_KV_F16 };
    if (status == WEIR_OK)
        status = weir_model_bind(&model, directory, arch, stream, &settings, error);
    weir_model_close(model);
    weir_tensor_directory_close(directory);
    return status;
}

/* Binds; if it is to run and bound, plans, opens and computes two tokens. */
void probe(const std::string &model, bool run, Counts *counts, const std::string &how)
{
    static Engine engine;
    weir_error error = {};
    const weir_status bound = bind(model, &error);
    counts->n_files++;
    if (bound == WEIR_OK)
        counts->n_bound++;
    else
        EXPECT_NE(error.text[0], '\0') << how;
    if (bound != WEIR_OK || !run) return;
    if (engine.plan(model, small) != WEIR_OK) {
        EXPECT_NE(engine.text()[0], '\0') << how;
        return;
    }
    counts->n_opened++;
    if (engine.open(model, small) != WEIR_OK) {
        EXPECT_NE(engine.text()[0], '\0') << how;
        return;
    }
    {
        support::Sequence sequence(engine);
        const int32_t tokens[] = { 1, 0 };
        weir_evaluation evaluation = {};
        evaluation.tokens = tokens;
        evaluation.n_tokens = 2;
        evaluation.decode_from = 1;
        if (weir_evaluate(engine.runner(), sequence.get(), &evaluation, engine.error()) == WEIR_OK)
            counts->n_computed++;
        else
            EXPECT_NE(engine.text()[0], '\0') << how;
    }
    engine.close();
}

void flip_every_byte(
    const std::string &model, const std::string &path, size_t n_header, int run_every,
    Counts *counts
)
{
    File file(path);
    ASSERT_LE(n_header, file.bytes().size());
    Counts untouched;
    probe(model, true, &untouched, "untouched");
    ASSERT_EQ(untouched.n_computed, 1);
    int i = 0;
    for (size_t at = 0; at < n_header; at += (size_t)weir_test::every_nth(3)) {
        for (const unsigned char bits : { 0x01, 0x80, 0xff }) {
            file.flip(at, bits);
            probe(
                model, i++ % run_every == 0, counts,
                "byte " + std::to_string(at) + " ^ " + std::to_string(bits)
            );
        }
        file.restore(at);
        if (::testing::Test::HasFailure()) break;
    }
}

void cut_everywhere(
    const std::string &model, const std::string &path, size_t n_header, Counts *counts
)
{
    File file(path);
    const size_t n = file.bytes().size();
    const auto at = [&](size_t length) {
        file.cut(length);
        probe(model, true, counts, "cut to " + std::to_string(length));
        file.restore();
    };
    for (size_t length = 0; length < n_header; length += 13) at(length);
    for (size_t i = 0; i < 20; i++) at(n_header + (n - n_header) * i / 20);
    at(n - 1);
}

void expect_modest_memory()
{
    if (weir_test::has_address_sanitizer()) return;
    struct rusage usage;
    ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    EXPECT_LT(usage.ru_maxrss, 1 << 20) << "KiB of peak RSS, with a budget of 256 MiB";
}

/* Where the tensor data of a GGUF begins. */
size_t gguf_header(const std::string &bytes) { return (bytes.rfind(".weight") / 32 + 3) * 32; }

TEST(Hostile, GgufWithFlippedBits)
{
    const Folder folder;
    Counts counts;
    copy_to(folder, "qwen3/qwen3-bf16.gguf", "m.gguf");
    flip_every_byte(
        folder / "m.gguf", folder / "m.gguf", gguf_header(read_file(folder / "m.gguf")), 16, &counts
    );
    printf(
        "%d files, %d bound, of %d opened %d computed\n", counts.n_files, counts.n_bound,
        counts.n_opened, counts.n_computed
    );
    EXPECT_GT(counts.n_bound, 0);
    EXPECT_LT(counts.n_bound, counts.n_files);
    expect_modest_memory();
}

TEST(Hostile, HybridGgufWithFlippedBits)
{
    const Folder folder;
    Counts counts;
    copy_to(folder, "tq/tq-q4_0.gguf", "m.gguf");
    /* The vocabulary lies at the end of the metadata and was covered above: its own numbers come
     * before. */
    const size_t n = read_file(folder / "m.gguf").find("tokenizer.ggml.");
    flip_every_byte(folder / "m.gguf", folder / "m.gguf", n, 4, &counts);
    EXPECT_LT(counts.n_bound, counts.n_files);
    expect_modest_memory();
}

TEST(Hostile, SafetensorsWithFlippedBits)
{
    const Folder folder;
    Counts counts;
    copy_to(folder, "mistral/model.safetensors", "model.safetensors");
    copy_to(folder, "mistral/config.json", "config.json");
    uint64_t n;
    memcpy(&n, read_file(folder / "model.safetensors").data(), sizeof n);
    flip_every_byte(folder.path(), folder / "model.safetensors", 8 + n, 4, &counts);
    flip_every_byte(
        folder.path(), folder / "config.json", read_file(folder / "config.json").size(), 1, &counts
    );
    EXPECT_GT(counts.n_bound, 0);
    EXPECT_LT(counts.n_bound, counts.n_files);
    expect_modest_memory();
}

TEST(Hostile, CutFiles)
{
    const Folder gguf, tensors;
    Counts counts;
    copy_to(gguf, "qwen3/qwen3-bf16.gguf", "m.gguf");
    cut_everywhere(
        gguf / "m.gguf", gguf / "m.gguf", gguf_header(read_file(gguf / "m.gguf")), &counts
    );
    EXPECT_EQ(counts.n_bound, 0);
    copy_to(tensors, "mistral/model.safetensors", "model.safetensors");
    copy_to(tensors, "mistral/config.json", "config.json");
    cut_everywhere(tensors.path(), tensors / "model.safetensors", 2120, &counts);
    EXPECT_EQ(counts.n_bound, 0);
    cut_everywhere(tensors.path(), tensors / "config.json", 0, &counts);
    EXPECT_EQ(counts.n_bound, 0);
}

} // namespace
} // namespace hostile
