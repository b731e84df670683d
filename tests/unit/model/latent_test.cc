/* Checkpoints with latent attention: tensors of old and new GGUF files, the scale of scores, and
 * what is said about files that do not fit. */
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "kernels/abi/convert.h"
#include "kernels/abi/quant.h"
#include "offload/weights.h"
#include "tests/unit/model/arch_files.h"

namespace {

using arch_files::copy_checkpoint;
using arch_files::last_logits;
using support::Engine;
using support::Folder;
using support::golden;
using support::read_file;
using support::Settings;
using support::write_file;

const Settings exact = { "kernels.activations=f32", "kv.format=f32" };
const char *const checkpoint = "../families/deepseek3";
const std::string gguf = golden("../families/deepseek3/deepseek3-f16.gguf");

std::vector<float> logits_of(const std::string &path)
{
    Engine engine;
    EXPECT_EQ(engine.open(path, exact), WEIR_OK) << engine.text();
    return last_logits(&engine);
}

/* ---- GGUF ------------------------------------------------------------------------------------ */
struct GgufTensor {
    std::string name;
    std::vector<uint64_t> shape; /* fastest first */
    uint32_t type; /* 0: f32, 1: f16, 8: q8_0 */
    std::string bytes;
};

struct Gguf {
    std::vector<std::pair<std::string, std::string>> keys; /* name, type and value */
    std::vector<GgufTensor> tensors;

    GgufTensor *find(const std::string &name)
    {
        for (GgufTensor &t : tensors)
            if (t.name == name) return &t;
        return nullptr;
    }
    void drop(const std::string &name)
    {
        for (size_t i = tensors.size(); i-- > 0;)
            if (tensors[i].name == name) tensors.erase(tensors.begin() + (ptrdiff_t)i);
    }
    void set(const std::string &name, uint32_t value)
    {
        for (auto &[key, bytes] : keys)
            if (key == name) bytes = little(4, 4) + little(value, 4);
    }
    void forget(const std::string &name)
    {
        for (size_t i = keys.size(); i-- > 0;)
            if (keys[i].first == name) keys.erase(keys.begin() + (ptrdiff_t)i);
    }
    static std::string little(uint64_t value, int n)
    {
        std::string out;
        for (int i = 0; i < n; i++) out += static_cast<char>(value >> (8 * i));
        return out;
    }
};

class GgufReader {
  public:
    explicit GgufReader(std::string bytes) : bytes_(std::move(bytes)), at_(8) {}
    Gguf read()
    {
        Gguf out;
        const uint64_t n_tensors = number(8), n_keys = number(8);
        for (uint64_t i = 0; i < n_keys; i++) {
            const std::string name = text();
            const size_t from = at_;
            value(static_cast<uint32_t>(number(4)));
            out.keys.emplace_back(name, bytes_.substr(from, at_ - from));
        }
        std::vector<uint64_t> offsets;
        for (uint64_t i = 0; i < n_tensors; i++) {
            GgufTensor t = { text(), {}, 0, "" };
            const uint64_t n = number(4);
            for (uint64_t d = 0; d < n; d++) t.shape.push_back(number(8));
            t.type = static_cast<uint32_t>(number(4));
            offsets.push_back(number(8));
            out.tensors.push_back(t);
        }
        const size_t data = (at_ + 31) / 32 * 32;
        for (size_t i = 0; i < out.tensors.size(); i++) {
            size_t n = out.tensors[i].type == 0 ? 4 : 2;
            for (const uint64_t d : out.tensors[i].shape) n *= d;
            out.tensors[i].bytes = bytes_.substr(data + offsets[i], n);
        }
        return out;
    }

  private:
    uint64_t number(int n)
    {
        uint64_t out = 0;
        for (int i = 0; i < n; i++)
            out |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_.at(at_++))) << (8 * i);
        return out;
    }
    std::string text()
    {
        const uint64_t n = number(8);
        at_ += n;
        return bytes_.substr(at_ - n, n);
    }
    void value(uint32_t type)
    {
        static const int sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
        if (type == 8) {
            (void)text();
        } else if (type == 9) {
            const uint32_t of = static_cast<uint32_t>(number(4));
            const uint64_t n = number(8);
            for (uint64_t i = 0; i < n; i++) value(of);
        } else {
            at_ += (size_t)sizes[type];
        }
    }
    std::string bytes_;
    size_t at_;
};

void write_gguf(const std::string &path, const Gguf &file)
{
    const auto little = Gguf::little;
    std::string head = "GGUF" + little(3, 4) + little(file.tensors.size(), 8) +
                       little(file.keys.size(), 8),
                data;
    for (const auto &[name, bytes] : file.keys) head += little(name.size(), 8) + name + bytes;
    for (const GgufTensor &t : file.tensors) {
        data.resize((data.size() + 31) / 32 * 32);
        head += little(t.name.size(), 8) + t.name + little(t.shape.size(), 4);
        for (const uint64_t d : t.shape) head += little(d, 8);
        head += little(t.type, 4) + little(data.size(), 8);
        data += t.bytes;
    }
    head.resize((head.size() + 31) / 32 * 32);
    data.resize((data.size() + 31) / 32 * 32);
    write_file(path, head + data);
}

/* [H, rank, nope] and [H, v, rank] of f16 as old files have them: [H * (nope + v), rank]. */
GgufTensor join(const GgufTensor &k, const GgufTensor &v, const std::string &name)
{
    const uint64_t nope = k.shape[0], rank = k.shape[1], heads = k.shape[2], width = v.shape[1];
    GgufTensor out = { name, { rank, heads * (nope + width) }, 1, "" };
    for (uint64_t h = 0; h < heads; h++) {
        for (uint64_t p = 0; p < nope; p++)
            for (uint64_t r = 0; r < rank; r++)
                out.bytes += k.bytes.substr(2 * ((h * rank + r) * nope + p), 2);
        out.bytes += v.bytes.substr(2 * h * width * rank, 2 * width * rank);
    }
    return out;
}

/* The file before llama.cpp split the tensor, and what `change` makes of it. */
Gguf old_file(const std::function<void(GgufTensor *)> &change = nullptr)
{
    Gguf file = GgufReader(read_file(gguf)).read();
    uint64_t nope = 0, width = 0, heads = 0;
    for (int i = 0;; i++) {
        const std::string layer = "blk." + std::to_string(i) + ".";
        const GgufTensor *const k = file.find(layer + "attn_k_b.weight"), *const v = file.find(
                                                                              layer +
                                                                              "attn_v_b.weight"
                                                                          );
        if (k == nullptr || v == nullptr) break;
        nope = k->shape[0], width = v->shape[1], heads = k->shape[2];
        GgufTensor both = join(*k, *v, layer + "attn_kv_b.weight");
        if (change) change(&both);
        file.drop(layer + "attn_k_b.weight");
        file.drop(layer + "attn_v_b.weight");
        file.tensors.push_back(both);
    }
    EXPECT_GT(heads, 1u);
    const std::string keys = "deepseek2.attention.";
    file.set(keys + "key_length", static_cast<uint32_t>(nope) + 8);
    file.set(keys + "value_length", static_cast<uint32_t>(width));
    file.set(keys + "head_count_kv", static_cast<uint32_t>(heads));
    file.forget(keys + "key_length_mla");
    file.forget(keys + "value_length_mla");
    return file;
}

float half_at(const std::string &bytes, size_t i)
{
    uint16_t bits;
    memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
    return weir_f16_to_f32(bits);
}

TEST(Latents, OldGgufFilesAreTheSameModel)
{
    const Folder folder;
    write_gguf(folder / "old.gguf", old_file());
    EXPECT_EQ(logits_of(folder / "old.gguf"), logits_of(gguf));
}

TEST(Latents, OldGgufFilesMayBeQuantised)
{
    const Folder folder;
    const auto quantise = [](GgufTensor *t) {
        std::string out;
        for (size_t i = 0; i < t->bytes.size() / 2; i += 32) {
            weir_block_q8_0 block = {};
            float most = 0;
            for (size_t j = 0; j < 32; j++)
                most = std::fmax(most, std::fabs(half_at(t->bytes, i + j)));
            block.d = weir_f16_from_f32(most / 127);
            for (size_t j = 0; j < 32; j++)
                block.q[j] = static_cast<int8_t>(std::lround(
                    std::fmin(127.0f, half_at(t->bytes, i + j) / weir_f16_to_f32(block.d))
                ));
            out.append(reinterpret_cast<const char *>(&block), sizeof block);
        }
        t->type = 8, t->bytes = out;
    };
    const auto values = [&](GgufTensor *t) {
        quantise(t);
        std::vector<float> x(t->bytes.size() / sizeof(weir_block_q8_0) * 32);
        ASSERT_EQ(
            weir_dequantise(x.data(), t->bytes.data(), WEIR_Q8_0, static_cast<int64_t>(x.size())),
            WEIR_OK
        );
        t->type = 0;
        t->bytes.assign(reinterpret_cast<const char *>(x.data()), x.size() * sizeof(float));
    };
    write_gguf(folder / "q8_0.gguf", old_file(quantise));
    write_gguf(folder / "f32.gguf", old_file(values));
    const std::vector<float> logits = logits_of(folder / "q8_0.gguf");
    EXPECT_EQ(logits, logits_of(folder / "f32.gguf"));
    EXPECT_NE(logits, logits_of(gguf));
}

TEST(Latents, AnotherShapeIsNamed)
{
    const Folder folder;
    Engine engine;
    write_gguf(folder / "short.gguf", old_file([](GgufTensor *t) {
                   t->shape[1]--;
                   t->bytes.resize(2 * t->shape[0] * t->shape[1]);
               }));
    EXPECT_EQ(engine.plan(folder / "short.gguf"), WEIR_EMISMATCH);
    EXPECT_SAYS(
        engine.text(), "attn_kv_b.weight is [159, 32], want [4, 32, 16], or [4, 40, 32] with the "
                       "rows of all fused parameters"
    );
}

/* Files of both kinds of router have one name. */
TEST(Latents, TheSelectionBiasChoosesTheArchitecture)
{
    const struct {
        const char *file, *arch;
    } files[] = { { "deepseek2-lite/deepseek2-lite-f16.gguf", "deepseek2" },
                  { "deepseek3/deepseek3-f16.gguf", "deepseek3" },
                  { "glm4-moe-lite/glm4-moe-lite-f16.gguf", "deepseek3" },
                  { "glm4-moe-lite", "glm4moelite" } };
    for (const auto &each : files) {
        Engine engine;
        ASSERT_EQ(engine.open(golden(std::string("../families/") + each.file), exact), WEIR_OK)
            << engine.text();
        EXPECT_STREQ(weir_model_arch(weir_engine_model(engine.get())), each.arch) << each.file;
    }
}

/* YaRN's factor 4 and mscale_all_dim 1: (0.1 ln 4 + 1)^2 / sqrt(24). */
TEST(Latents, ScoresHaveTheFactorOfYarn)
{
    const Folder folder;
    copy_checkpoint(folder, checkpoint);
    arch_files::change_config(folder, "\"mscale_all_dim\": 1.0", "\"mscale_all_dim\": 0");
    const struct {
        std::string path;
        float scale;
    } files[] = { { gguf, 0.26464226f },
                  { golden(checkpoint), 0.26464226f },
                  { folder.path(), 0.20412415f } };
    for (const auto &each : files) {
        Engine engine;
        ASSERT_EQ(engine.open(each.path, exact), WEIR_OK) << engine.text();
        const weir_block_kv *const kv = weir_model_layer_kv(weir_engine_model(engine.get()), 0);
        ASSERT_NE(kv, nullptr);
        EXPECT_FLOAT_EQ(kv->scale, each.scale) << each.path;
        EXPECT_EQ(kv->geometry.n_heads, 1);
        EXPECT_EQ(kv->geometry.key_dim, 40);
        EXPECT_EQ(kv->geometry.value_dim, 32);
    }
}

/* Three layers with 40 f32 a token, and nothing for values. */
TEST(Latents, APageHasNoValues)
{
    Engine engine;
    ASSERT_EQ(engine.open(golden(checkpoint), exact), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_engine_plan_of(engine.get())->facts.kv_bytes_per_token, 3 * 40 * 4);
    EXPECT_EQ(engine.plan(golden(checkpoint), { "kv.format=f32/f16" }), WEIR_ECONFIG);
    EXPECT_SAYS(engine.text(), "f16 for values is not the format of keys");
    EXPECT_EQ(engine.plan(golden(checkpoint), { "kv.format=q8_0" }), WEIR_ECONFIG);
    EXPECT_SAYS(engine.text(), "q8_0 for keys takes head widths that are multiples of 32");
}

/* Methods that turn the first dims of keys would turn latents. */
TEST(Latents, PoliciesThatTurnKeysAreRefused)
{
    const struct {
        const char *name, *options, *says;
    } methods[] = { { "h2o", "", "" },
                    { "snapkv", "", "" },
                    { "landmarks", "", "" },
                    { "expected", "", "expected rotates the first dims of keys" },
                    { "sinks", "positions=cache",
                      "sinks with positions=cache rotates the first" } };
    for (const auto &each : methods) {
        Engine engine;
        Settings settings = exact;
        settings.push_back(std::string("kv.policy.name=") + each.name);
        settings.push_back(std::string("kv.policy.options=") + each.options);
        settings.emplace_back("kv.policy.budget=256");
        const weir_status status = engine.open(golden(checkpoint), settings, true);
        EXPECT_EQ(status, each.says[0] != '\0' ? WEIR_EUNSUPPORTED : WEIR_OK)
            << each.name << ": " << engine.text();
        if (status != WEIR_OK) EXPECT_SAYS(engine.text(), each.says);
    }
}

/* Nothing rotates those of Kimi Linear, and no policy is told that something does. */
TEST(Latents, LatentsWithoutRopeAreNotCalledRotated)
{
    const std::pair<const char *, const char *> methods[] = {
        { "expected", "this model's keys are latents that nothing rotates" },
        { "triattention", "scores keys by their rotation, this model's keys have none" }
    };
    for (const auto &[name, says] : methods) {
        Engine engine;
        const std::string policy = std::string("kv.policy.name=") + name;
        EXPECT_EQ(
            engine.open(
                golden("../families/kimi-linear"), { policy, "kv.policy.budget=256" }, true
            ),
            WEIR_EUNSUPPORTED
        );
        EXPECT_SAYS(engine.text(), says);
    }
}

} // namespace
