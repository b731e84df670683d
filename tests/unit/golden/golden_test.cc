/* The golden runner on the stored folders, on values that are wrong, and on folders that are broken
 * in every way that a copy can be. */
#include "tests/golden/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

namespace fs = std::filesystem;

const char *const models = "tests/golden/models";
const char *const kv = "tests/golden/kv";

/* A folder of its own for each test, removed with it. */
class Runner : public ::testing::Test {
  protected:
    Runner()
    {
        folder_ = ::testing::TempDir() + "/golden." +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name();
        fs::remove_all(folder_);
        fs::create_directories(folder_);
    }
    ~Runner() override { fs::remove_all(folder_); }

    std::string at(const std::string &name) const { return folder_ + "/" + name; }
    void copy(const char *from, const std::string &name) const
    {
        fs::create_directories(fs::path(at(name)).parent_path());
        fs::copy_file(
            std::string(from) + "/" + fs::path(name).filename().string(), at(name),
            fs::copy_options::overwrite_existing
        );
        fs::permissions(at(name), fs::perms::owner_write, fs::perm_options::add);
    }
    void write(const std::string &name, const std::string &text) const
    {
        fs::create_directories(fs::path(at(name)).parent_path());
        std::ofstream(at(name), std::ios::binary) << text;
    }
    std::string read(const std::string &name) const
    {
        std::ifstream in(at(name), std::ios::binary);
        std::stringstream all;
        all << in.rdbuf();
        return all.str();
    }
    void replace(const std::string &name, const std::string &was, const std::string &now) const
    {
        std::string text = read(name);
        const size_t place = text.find(was);
        ASSERT_NE(place, std::string::npos) << was;
        write(name, text.replace(place, was.size(), now));
    }
    /* Where a tensor's data lies in the text of a safetensors file; 0 when it is not there. */
    static size_t place(const std::string &text, const std::string &tensor)
    {
        uint64_t length = 0;
        memcpy(&length, text.data(), sizeof length);
        json_t *const header = json_loadb(text.data() + 8, length, 0, nullptr);
        json_t *const offsets =
            json_object_get(json_object_get(header, tensor.c_str()), "data_offsets");
        const size_t at =
            json_array_size(offsets) == 2
                ? 8 + length + static_cast<size_t>(json_integer_value(json_array_get(offsets, 0)))
                : 0;
        json_decref(header);
        return at;
    }
    /* Changes one value of an f32 tensor of a safetensors file. */
    void spoil(const std::string &name, const std::string &tensor, size_t index, float value) const
    {
        std::string text = read(name);
        const size_t at = place(text, tensor);
        ASSERT_GT(at, 0u) << tensor;
        memcpy(&text[at + index * sizeof value], &value, sizeof value);
        write(name, text);
    }
    golden::Counts run(
        void (*part)(const std::string &, golden::Counts *), const std::string &filter = ""
    ) const
    {
        golden::Counts counts;
        counts.filter = filter;
        part(folder_, &counts);
        return counts;
    }
    std::string folder_;
};

TEST(Stored, EveryOperationAgrees)
{
    golden::Counts counts;
    golden::run_modules(models, &counts);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(counts.passed, 55);
    EXPECT_EQ(counts.skipped, 2) << "bf16 norms, image positions";
}

TEST(Stored, EveryBlockFormatAgrees)
{
    golden::Counts counts;
    golden::run_quant_blocks(models, &counts);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(counts.passed, 18);
    EXPECT_EQ(counts.skipped, 0);
}

TEST(Stored, EveryAttentionCaseAgrees)
{
    golden::Counts counts;
    counts.filter = "kv/attn";
    golden::run_kv(kv, &counts);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(counts.passed, 13);
    EXPECT_EQ(counts.skipped, 0);
}

TEST(Stored, EveryPolicyAgrees)
{
    golden::Counts counts;
    counts.filter = "kv/policy/";
    golden::run_kv(kv, &counts);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(counts.passed, 33);
    EXPECT_EQ(counts.skipped, 0);
}

TEST(Stored, EveryCodecAgrees)
{
    golden::Counts counts;
    counts.filter = "kv/codec/";
    golden::run_kv(kv, &counts);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(counts.passed, 56);
    /* When KIVI codes its rows, sketches of residuals, a book of 1 bit */
    EXPECT_EQ(counts.skipped, 3);
}

TEST(Stored, EveryCodaCaseAgrees)
{
    golden::Counts counts;
    counts.filter = "kv/coda_";
    golden::run_kv(kv, &counts);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(counts.passed, 73);
    EXPECT_EQ(counts.skipped, 1); /* gradients */
}

TEST(Stored, WhatNothingRunsIsSkippedByName)
{
    golden::Counts counts;
    counts.filter = "kv/pack_llama/";
    golden::run_kv(kv, &counts);
    EXPECT_EQ(counts.passed + counts.failed, 0);
    EXPECT_GT(counts.skipped, 0);
}

TEST(Checks, TheWorstErrorIsAShareOfTheTolerance)
{
    golden::Check check;
    check.close("a", { 1.0f, 2.0f }, { 1.0f, 2.5f }, { 0, 1.0, 0 });
    EXPECT_FALSE(check.failed());
    EXPECT_EQ(check.summary(), "2 values, worst error 0.5 of the tolerance (a)");
    check.close("b", { 1.0f }, { 2.5f }, { 0, 1.0, 0 });
    EXPECT_TRUE(check.failed());
}

TEST(Checks, NanNeverAgreesAndSizesMustFit)
{
    golden::Check nan, size, zero;
    nan.close("a", { NAN }, { NAN }, { 0, INFINITY, 0 });
    EXPECT_TRUE(nan.failed());
    size.close("a", { 1.0f }, { 1.0f, 1.0f }, { 0, 1, 0 });
    EXPECT_TRUE(size.failed());
    zero.close("a", { 1.0f }, { std::nextafter(1.0f, 2.0f) }, {});
    EXPECT_TRUE(zero.failed());
}

/* What is infinite is equal or wrong, and loosens nothing for the others. */
TEST(Checks, InfinityAgreesWithItselfOnly)
{
    const golden::Tolerance loose = { 1e-3, 1e-3, 1e-3 };
    golden::Check same, finite, others, infinite;
    same.close("a", { INFINITY, 1.0f }, { INFINITY, 1.0f }, loose);
    EXPECT_FALSE(same.failed());
    finite.close("a", { 1.0f }, { INFINITY }, loose);
    EXPECT_TRUE(finite.failed());
    others.close("a", { INFINITY, 1.0f }, { INFINITY, 2.0f }, loose);
    EXPECT_TRUE(others.failed());
    infinite.close("a", { INFINITY }, { 1.0f }, loose);
    EXPECT_TRUE(infinite.failed());
}

TEST(Checks, TolerancesAreReadFromTheirText)
{
    const golden::Tolerance both = golden::Tolerance::parse("rtol 1e-4 atol 2e-4"),
                            one = golden::Tolerance::parse("atol 0.5"),
                            none = golden::Tolerance::parse("equal");
    EXPECT_EQ(both.rtol, 1e-4);
    EXPECT_EQ(both.atol, 2e-4);
    EXPECT_EQ(one.rtol, 0);
    EXPECT_EQ(one.atol, 0.5);
    EXPECT_EQ(none.rtol + none.atol, 0);
}

/* One wrong value in each operation's expected results fails its case and no other. */
TEST_F(Runner, AWrongValueFailsItsCase)
{
    for (const char *tensor :
         { "G1.y_plain_eps1e-05", "G2.y", "G3.q_rot", "G3.sin", "G4.cos", "G5.y_T4", "G6.beta",
           "G7.y", "G8.o", "G8_dv.S", "G9.S_S0_T65", "G12.mlp_y", "G19.release_inv_freq",
           "G21.inv_freq.3", "G25.table" }) {
        copy(models, "modules.json");
        copy(models, "modules.safetensors");
        spoil("modules.safetensors", tensor, 3, 7.5f);
        EXPECT_EQ(run(golden::run_modules).failed, 1) << tensor;
    }
    copy(models, "samplers.json");
    copy(models, "samplers.safetensors");
    spoil("samplers.safetensors", "16.probs", 3, 0.5f);
    EXPECT_EQ(run(golden::run_samplers).failed, 1);
    copy(models, "quant_blocks.json");
    copy(models, "quant_blocks.safetensors");
    spoil("quant_blocks.safetensors", "Q4_K.f32", 3, 7.5f);
    EXPECT_EQ(run(golden::run_quant_blocks).failed, 1);
}

TEST_F(Runner, AWrongValueFailsItsAttentionCase)
{
    copy(kv, "index.json");
    copy(kv, "attn.safetensors");
    spoil("attn.safetensors", "paged.q", 3, 70.0f);
    spoil("attn.safetensors", "kept.out", 3, 7.5f);
    spoil("attn.safetensors", "causal.lse", 3, 7.5f); /* compared by chunked too */
    spoil("attn.safetensors", "split.l", 3, 7.5f);
    const golden::Counts counts = run(golden::run_kv, "kv/attn/");
    EXPECT_EQ(counts.failed, 5);
    EXPECT_EQ(counts.passed, 8);
}

/* A bit of each tensor that has a tolerance. What a sketch gives is compared with nothing. */
TEST_F(Runner, AWrongBitFailsItsCodecCase)
{
    copy(kv, "index.json");
    const golden::Document index(at("index.json"));
    const json_t *const tensors =
        json_object_get(json_object_get(index["files"], "codec.safetensors"), "tensors");
    const std::string good = (copy(kv, "codec.safetensors"), read("codec.safetensors"));
    const char *name;
    const json_t *fields;
    json_object_foreach(const_cast<json_t *>(tensors), name, fields)
    {
        const std::string tensor = name, dtype = golden::string_at(fields, "dtype"),
                          group = tensor.substr(0, tensor.find('.'));
        if (golden::string_at(fields, "tol") == "input" || group == "qjl") continue;
        std::string text = good;
        const size_t at = place(text, tensor), last_byte = dtype == "F32"   ? 3
                                                           : dtype == "U16" ? 1
                                                                            : 0;
        ASSERT_GT(at, 0u) << tensor;
        text[at + last_byte] = static_cast<char>(text[at + last_byte] ^ 0x40);
        write("codec.safetensors", text);
        EXPECT_EQ(run(golden::run_kv, "kv/codec/" + group).failed, 1) << tensor;
    }
}

/* Names, types and shapes that codecs need and do not find. */
TEST_F(Runner, CodecFilesThatContradictThemselvesFail)
{
    const std::pair<const char *, const char *> changes[] = {
        { "\"rows64\":{\"dtype\":\"F32\",\"shape\":[20,64]",
          "\"rows64\":{\"dtype\":\"F32\",\"shape\":[64,20]" },
        { "\"att.q\":{\"dtype\":\"F32\",\"shape\":[4,64]",
          "\"att.q\":{\"dtype\":\"F32\",\"shape\":[256,1]" },
        { "\"kivi2.k.scale\":{\"dtype\":\"U16\"", "\"kivi2.k.scale\":{\"dtype\":\"F16\"" },
        { "\"turbo.d64.sign\"", "\"turbo.d65.sign\"" },
        { "\"residual.v\":{\"dtype\":\"F32\",\"shape\":[150,64]",
          "\"residual.v\":{\"dtype\":\"F32\",\"shape\":[75,128]" },
    };
    for (const auto &[was, now] : changes) {
        copy(kv, "index.json");
        copy(kv, "codec.safetensors");
        replace("codec.safetensors", was, now);
        EXPECT_GE(run(golden::run_kv, "kv/codec/").failed, 1) << now;
    }
    const std::pair<const char *, const char *> statements[] = {
        { "[150, 128, 22, 86, 64]", "[150, 151, 22, 86, 64]" }, /* more rows coded than there are */
        { "[150, 128, 22, 86, 64]", "[150, 100, 22, 86, 64]" }, /* no whole groups                */
        { "[150, 128, 22, 86, 64]", "[150, -1, 22, 86, 64]" },
        { "\"q8_0\": [8, 32, 0, 107", "\"q8_0\": [8, 32, 107" },
        { "\"nan\": [127, 255]", "\"nan\": 127" },
        { "\"mse\": {", "\"mse\": 1, \"x\": {" },
    };
    for (const auto &[was, now] : statements) {
        copy(kv, "index.json");
        copy(kv, "codec.safetensors");
        replace("index.json", was, now);
        EXPECT_EQ(run(golden::run_kv, "kv/codec/").failed, 1) << now;
    }
}

/* Every value that a policy's case has to compare, changed in turn: the case fails. */
TEST_F(Runner, AnyWrongPolicyValueFailsItsCase)
{
    copy(kv, "index.json");
    copy(kv, "policy.safetensors");
    const golden::Document index(folder_ + "/index.json");
    const json_t *const entry = json_object_get(index["files"], "policy.safetensors");
    const std::string good = read("policy.safetensors");
    const char *tensor;
    const json_t *fields;
    size_t n = 0;
    json_object_foreach(json_object_get(const_cast<json_t *>(entry), "tensors"), tensor, fields)
    {
        if (golden::string_at(fields, "tol") == "input") continue;
        const std::string name = tensor, dtype = golden::string_at(fields, "dtype");
        std::string text = good, label = name.substr(0, name.rfind('.'));
        while (label.find('.') != std::string::npos &&
               json_object_get(json_object_get(entry, "cases"), label.c_str()) == nullptr)
            label.resize(label.rfind('.'));
        const size_t at = place(text, tensor) + (dtype == "F32" ? 3 : 0);
        ASSERT_GT(at, 3u) << tensor;
        text[at] = static_cast<char>(text[at] ^ 0x40);
        write("policy.safetensors", text);
        EXPECT_GE(run(golden::run_kv, "kv/policy/" + label).failed, 1) << tensor;
        n++;
    }
    EXPECT_GT(n, 90u);
}

TEST_F(Runner, PolicyFilesThatContradictThemselvesFail)
{
    const std::pair<const char *, const char *> changes[] = {
        { "\"head_dim\": 16, \"tokens\": 96", "\"head_dim\": 16, \"tokens\": 97" },
        { "\"n_kept\": 48, \"source\": \"kvpress 0.5.5\", \"window\": 8",
          "\"n_kept\": 48, \"source\": \"kvpress 0.5.5\", \"window\": 97" },
        { "\"window\": 8, \"kernel\": 5, \"capacity\": 48",
          "\"window\": 8, \"kernel\": 4, \"capacity\": 48" },
        { "\"future\": 64, \"sinks\": 4", "\"future\": 64, \"sinks\": 400" },
        { "\"sinks\": 4, \"lag\": 16", "\"sinks\": 4, \"lag\": 1.5" },
        { "\"prefill\": 32, \"sinks\": 4", "\"prefill\": 0, \"sinks\": 4" },
        { "\"layers\": 36, \"n\": 4096", "\"layers\": -1, \"n\": 4096" },
        { "\"budget\": 48, \"pinned\": 16", "\"budget\": 4800, \"pinned\": 16" },
        { "half-split, base 10000", "pairs" },
    };
    for (const auto &[was, now] : changes) {
        copy(kv, "index.json");
        copy(kv, "policy.safetensors");
        replace("index.json", was, now);
        EXPECT_GE(run(golden::run_kv, "kv/policy/").failed, 1) << now;
    }
}

/* Files that nothing reads may be left out of a copy; one that is read may not. */
TEST_F(Runner, AttentionValuesThatAreNotThereFail)
{
    copy(kv, "index.json");
    const golden::Counts counts = run(golden::run_kv);
    EXPECT_EQ(counts.failed, 7); /* attn, codec, policy, four of CoDA */
    EXPECT_EQ(counts.passed, 0);
    EXPECT_EQ(run(golden::run_kv, "kv/policy/").failed, 1);
    EXPECT_EQ(run(golden::run_kv, "kv/pack/").failed, 0);
}

TEST_F(Runner, AWrongValueFailsItsModel)
{
    for (const char *name :
         { "config.json", "golden.json", "golden.safetensors", "model.safetensors" })
        copy("tests/golden/models/mistral", std::string("other name/") + name);
    EXPECT_EQ(run(golden::run_models).passed, 1);
    spoil("other name/golden.safetensors", "decode.last_logits", 3, 7.5f);
    EXPECT_EQ(run(golden::run_models).failed, 1);
}

TEST_F(Runner, NamesThatAreNotKnownAreSkipped)
{
    copy(models, "modules.json");
    copy(models, "modules.safetensors");
    for (const char *name : { "modules.json", "modules.safetensors" })
        replace(name, "\"G7.x\"", "\"G0.x\"");
    const golden::Counts counts = run(golden::run_modules, "modules/G0");
    EXPECT_EQ(counts.skipped, 1);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(run(golden::run_modules, "modules/G7").failed, 1); /* its input is gone */
}

TEST_F(Runner, UnknownStepsOfASamplerAreSkipped)
{
    copy(models, "samplers.json");
    copy(models, "samplers.safetensors");
    replace("samplers.json", "\"top_k\"", "\"typical_p\"");
    const golden::Counts counts = run(golden::run_samplers);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_GE(counts.skipped, 1);
}

TEST_F(Runner, BrokenFilesFailWithAMessage)
{
    for (const char *text : { "", "{", "[]", "{}", "{\"tensors\": 3, \"cases\": 4, \"files\": 5}",
                              "{\"tensors\": {}, \"cases\": [1], \"files\": {\"x\": 1}}" }) {
        for (const char *name : { "golden.json", "modules.json", "samplers.json", "index.json" })
            write(name, text);
        write("modules.safetensors", "not one");
        write("samplers.safetensors", "");
        write("quant_blocks.safetensors", std::string(8, '\xff'));
        EXPECT_EQ(run(golden::run_models).failed, 1) << text;
        EXPECT_EQ(run(golden::run_modules).failed, 1) << text;
        EXPECT_EQ(run(golden::run_samplers).failed, 1) << text;
        EXPECT_EQ(run(golden::run_quant_blocks).failed, 1) << text;
        const golden::Counts index = run(golden::run_kv);
        EXPECT_EQ(index.failed + index.skipped, 1) << text;
        EXPECT_EQ(index.passed, 0) << text;
    }
}

/* Shapes, counts and ids that do not fit each other. */
TEST_F(Runner, FoldersThatContradictThemselvesFail)
{
    const std::pair<const char *, const char *> changes[] = {
        { "\"G1.x\":{\"dtype\":\"F32\",\"shape\":[6,48]",
          "\"G1.x\":{\"dtype\":\"F32\",\"shape\":[48,6]" },
        { "\"G2.o\":{\"dtype\":\"F32\",\"shape\":[7,6,16]",
          "\"G2.o\":{\"dtype\":\"F32\",\"shape\":[7,96,1]" },
        { "\"G8.q\":{\"dtype\":\"F32\",\"shape\":[7,2,16]",
          "\"G8.q\":{\"dtype\":\"F32\",\"shape\":[2,7,16]" },
        { "\"G5.w\":{\"dtype\":\"F32\",\"shape\":[128,4]",
          "\"G5.w\":{\"dtype\":\"F32\",\"shape\":[4,128]" },
    };
    for (const auto &[was, now] : changes) {
        copy(models, "modules.json");
        copy(models, "modules.safetensors");
        replace("modules.safetensors", was, now);
        EXPECT_GE(run(golden::run_modules).failed, 1) << now;
    }
    copy(models, "samplers.json");
    copy(models, "samplers.safetensors");
    replace("samplers.json", "\"row\": 0", "\"row\": 9");
    EXPECT_EQ(run(golden::run_samplers).failed, 1);
}

TEST_F(Runner, WeightsAndResultsThatAreNotThereFail)
{
    for (const char *name : { "config.json", "golden.json", "golden.safetensors" })
        copy("tests/golden/models/mistral", name);
    EXPECT_EQ(run(golden::run_models).failed, 1);
    copy("tests/golden/models/mistral", "model.safetensors");
    EXPECT_EQ(run(golden::run_models).passed, 1);
    fs::resize_file(at("golden.safetensors"), fs::file_size(at("golden.safetensors")) / 2);
    EXPECT_EQ(run(golden::run_models).failed, 1);
    fs::remove(at("golden.safetensors"));
    EXPECT_EQ(run(golden::run_models).failed, 1);
}

TEST_F(Runner, LinksThatTurnInCirclesEnd)
{
    write("a/modules.json", "{}");
    fs::create_directory_symlink(folder_, at("a/up"));
    fs::create_directory_symlink(at("a"), at("again"));
    EXPECT_EQ(golden::find_files(folder_, "modules.json").size(), 1u);
}

} // namespace
