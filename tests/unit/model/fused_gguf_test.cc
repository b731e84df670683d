/* llama.cpp's converter may write q, k and v as one tensor (--fuse-qkv), and gate and up of experts
 * (--fuse-gate-up-exps). The golden GGUF files with these tensors fused compute the same bits. */
#include <map>

#include "tests/unit/model/published.h"

namespace {

using published::logits_of;
using support::Folder;
using support::read_file;
using support::write_file;

struct Tensor {
    std::vector<uint64_t> dims; /* as in the file: fastest first */
    uint32_t type;
    std::string data;
};

/* A GGUF file in parts: the keys as bytes, and the tensors. */
struct File {
    std::string keys;
    uint64_t n_keys = 0;
    std::map<std::string, Tensor> tensors;
};

class Reader {
  public:
    explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}
    template <typename T> T number()
    {
        T out = {};
        EXPECT_LE(at + sizeof out, bytes_.size());
        memcpy(&out, bytes_.data() + at, sizeof out);
        at += sizeof out;
        return out;
    }
    std::string text()
    {
        const auto n = number<uint64_t>();
        at += n;
        return bytes_.substr(at - n, n);
    }
    void skip_value(uint32_t type)
    {
        static const size_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
        if (type == 8) {
            (void)text();
        } else if (type == 9) {
            const auto element = number<uint32_t>();
            const auto n = number<uint64_t>();
            for (uint64_t i = 0; i < n; i++) skip_value(element);
        } else {
            at += sizes[type];
        }
    }
    const std::string &bytes() const { return bytes_; }
    size_t at = 0;

  private:
    std::string bytes_;
};

size_t aligned(size_t n) { return (n + 31) / 32 * 32; }

/* Bytes of an element of f32 and f16, the types of the golden files; 0: another type. */
size_t element_bytes(uint32_t type) { return type == 0 ? 4 : type == 1 ? 2 : 0; }

File read_gguf(const std::string &path)
{
    Reader in(read_file(path));
    File out;
    in.at = 8;
    const auto n_tensors = in.number<uint64_t>();
    out.n_keys = in.number<uint64_t>();
    const size_t begin = in.at;
    for (uint64_t i = 0; i < out.n_keys; i++) {
        (void)in.text();
        in.skip_value(in.number<uint32_t>());
    }
    out.keys = in.bytes().substr(begin, in.at - begin);
    std::map<uint64_t, std::string> names; /* by offset */
    for (uint64_t i = 0; i < n_tensors; i++) {
        const std::string name = in.text();
        Tensor tensor = {};
        tensor.dims.resize(in.number<uint32_t>());
        for (uint64_t &dim : tensor.dims) dim = in.number<uint64_t>();
        tensor.type = in.number<uint32_t>();
        names[in.number<uint64_t>()] = name;
        out.tensors[name] = tensor;
    }
    const size_t data = aligned(in.at);
    for (auto it = names.begin(); it != names.end(); ++it) {
        const auto next = std::next(it);
        const size_t end = next != names.end() ? data + next->first : in.bytes().size();
        out.tensors[it->second].data = in.bytes().substr(data + it->first, end - data - it->first);
    }
    for (auto &[name, tensor] : out.tensors) { /* without what aligns the next one */
        size_t n = element_bytes(tensor.type);
        for (const uint64_t dim : tensor.dims) n *= dim;
        if (n > 0) tensor.data.resize(n);
    }
    return out;
}

void write_gguf(const std::string &path, const File &file)
{
    const auto number = [](auto value) {
        return std::string(reinterpret_cast<const char *>(&value), sizeof value);
    };
    std::string head = "GGUF" + number((uint32_t)3) + number((uint64_t)file.tensors.size()) +
                       number(file.n_keys) + file.keys,
                data;
    for (const auto &[name, tensor] : file.tensors) {
        data.resize(aligned(data.size()));
        head += number((uint64_t)name.size()) + name + number((uint32_t)tensor.dims.size());
        for (const uint64_t dim : tensor.dims) head += number(dim);
        head += number(tensor.type) + number((uint64_t)data.size());
        data += tensor.data;
    }
    head.resize(aligned(head.size()));
    data.resize(aligned(data.size()));
    write_file(path, head + data);
}

/* Puts the rows of the parts one after another into one tensor, for each matrix of a stack. Returns
 * false if they do not exist. */
bool fuse(File *file, const std::vector<std::string> &parts, const std::string &whole, size_t rows)
{
    std::vector<const Tensor *> found;
    for (const std::string &part : parts) {
        const auto it = file->tensors.find(part);
        if (it == file->tensors.end()) return false;
        found.push_back(&it->second);
    }
    Tensor out = { found[0]->dims, found[0]->type, "" };
    const uint64_t n_matrices = out.dims.size() > rows + 1 ? out.dims.back() : 1;
    out.dims[rows] = 0;
    for (const Tensor *const part : found) {
        EXPECT_EQ(part->type, out.type) << whole;
        out.dims[rows] += part->dims[rows];
    }
    for (uint64_t i = 0; i < n_matrices; i++)
        for (const Tensor *const part : found) {
            const size_t bytes = part->data.size() / n_matrices;
            out.data += part->data.substr(i * bytes, bytes);
        }
    for (const std::string &part : parts) file->tensors.erase(part);
    file->tensors[whole] = out;
    return true;
}

int fuse_all(
    File *file, const std::string &name, const std::vector<std::string> &names, size_t rows
)
{
    int n = 0;
    for (int i = 0; i < 32; i++)
        for (const char *const end : { ".weight", ".bias" }) {
            const std::string block = "blk." + std::to_string(i) + ".";
            std::vector<std::string> parts;
            parts.reserve(names.size());
            for (const std::string &part : names) parts.push_back(block + part + end);
            n += fuse(file, parts, block + name + end, std::string(end) == ".bias" ? 0 : rows);
        }
    return n;
}

struct Family {
    const char *folder, *arch;
};
const Family families[] = {
    { "ernie4_5-moe", "ernie4_5-moe" },
    { "falcon-h1", "falcon-h1" },
    { "glm4-moe", "glm4moe" },
    { "gpt-oss", "gpt-oss" },
    { "granite", "granite" },
    { "granite-hybrid", "granitehybridmoe" },
    { "kimi-linear", "kimi-linear" },
    { "lfm2", "lfm2" },
    { "lfm2-moe", "lfm2moe" },
    { "minimax-m2", "minimax-m2" },
    { "ministral3", "mistral3" },
    { "mixtral", "mixtral" },
    { "nemotron-h", "nemotron_h" },
    { "nemotron-h-moe", "nemotron_h_moe" },
    { "olmo2", "olmo2" },
    { "olmo3", "olmo3" },
    { "qwen3-moe", "qwen3moe" },
    { "smollm3", "smollm3" },
};

std::string path_of(const Family &family)
{
    const std::string name = family.folder;
    return "tests/golden/families/" + name + "/" + name + "-f16.gguf";
}

class Fused : public ::testing::TestWithParam<Family> {};

TEST_P(Fused, QueriesKeysAndValuesInOneTensor)
{
    const Folder folder;
    std::filesystem::create_directories(folder.path());
    File file = read_gguf(path_of(GetParam()));
    EXPECT_GT(fuse_all(&file, "attn_qkv", { "attn_q", "attn_k", "attn_v" }, 1), 0);
    write_gguf(folder / "fused.gguf", file);
    EXPECT_EQ(
        logits_of(folder / "fused.gguf", GetParam().arch),
        logits_of(path_of(GetParam()), GetParam().arch)
    );
}
INSTANTIATE_TEST_SUITE_P(Families, Fused, ::testing::ValuesIn(families), [](const auto &info) {
    std::string name = info.param.folder;
    for (char &c : name)
        if (!isalnum(c)) c = '_';
    return name;
});

TEST(FusedExperts, GateAndUpInOneTensor)
{
    const Folder folder;
    std::filesystem::create_directories(folder.path());
    for (const Family &family :
         { Family{ "qwen3-moe", "qwen3moe" }, Family{ "qwen3-next", "qwen3next" } }) {
        File file = read_gguf(path_of(family));
        EXPECT_GT(fuse_all(&file, "ffn_gate_up_exps", { "ffn_gate_exps", "ffn_up_exps" }, 1), 0);
        write_gguf(folder / "fused.gguf", file);
        EXPECT_EQ(
            logits_of(folder / "fused.gguf", family.arch), logits_of(path_of(family), family.arch)
        ) << family.folder;
    }
}

} // namespace
