// weir imatrix: sums of the inputs of matrices, by their names in GGUF.
#include <cmath>
#include <map>

#include "engine/formats/tensor_directory.h"
#include "tests/unit/cli/program.h"
#include "tests/unit/convert/pieces.h"

namespace {

using program::Outcome;
using program::run;

/* Means of squares by tensor, all its matrices one after another. */
using Means = std::map<std::string, std::vector<double>>;

class ImatrixCommand : public program::Folder {
  protected:
    std::string text() const
    {
        std::string out;
        for (int i = 0; i < 400; i++)
            out += "abc a" + std::to_string(i * 7919 % 1000) + " cab bc. ";
        return put("text", out);
    }

    std::vector<float> floats(const weir_tensor *tensor) const
    {
        std::vector<float> out(tensor->bytes / sizeof(float));
        memcpy(out.data(), tensor->data, tensor->bytes);
        return out;
    }

    Means read(const std::string &file, double *rows = nullptr) const
    {
        weir_tensor_directory *directory = nullptr;
        weir_error error = {};
        Means out;
        EXPECT_EQ(weir_tensor_directory_open(&directory, file.c_str(), &error), WEIR_OK)
            << error.text;
        for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
            const weir_tensor *const sums = weir_tensor_directory_at(directory, i);
            const std::string name = sums->name;
            const size_t end = name.rfind(".in_sum2");
            if (end == std::string::npos) continue;
            const std::string own = name.substr(0, end);
            const weir_tensor *const counts =
                weir_tensor_directory_find(directory, (own + ".counts").c_str());
            EXPECT_NE(counts, nullptr) << own;
            const std::vector<float> s = floats(sums), n = floats(counts);
            const size_t width = s.size() / n.size();
            for (size_t j = 0; j < s.size(); j++) {
                const double count = static_cast<double>(n[j / width]);
                out[own].push_back(count > 0 ? static_cast<double>(s[j]) / count : 0.0);
                if (rows != nullptr && own == "token_embd.weight") *rows = count;
            }
        }
        weir_tensor_directory_close(directory);
        return out;
    }

    static void expect_near(const Means &a, const Means &b)
    {
        EXPECT_EQ(a.size(), b.size());
        for (const auto &[name, x] : a) {
            const auto y = b.find(name);
            ASSERT_NE(y, b.end()) << name;
            ASSERT_EQ(x.size(), y->second.size()) << name;
            double sum = 0;
            for (const double v : x) sum += v;
            for (size_t i = 0; i < x.size(); i++)
                EXPECT_NEAR(x[i], y->second[i], 1e-3 * (x[i] + sum / static_cast<double>(x.size())))
                    << name << " column " << i;
        }
    }
};

TEST_F(ImatrixCommand, CheckpointAndGgufHaveTheSameColumns)
{
    // Three V heads of a K head, which GGUF has in another order: the columns of ssm_out move.
    const std::string model = path("model");
    std::filesystem::create_directories(model);
    for (const char *const name : { "config.json", "model.safetensors" })
        std::filesystem::copy(std::string("tests/golden/models/tq/") + name, model + "/" + name);
    put("model/tokenizer.json", converted::pieces(false, true));
    const Outcome made =
        run({ "convert", "--model", model, "--out", path("model.gguf"), "--type", "f32" });
    ASSERT_EQ(made.code, 0) << made.err;
    const Outcome a = run({ "imatrix", "--model", model, "--text", text(), "--out", path("a"),
                            "--window", "128" }),
                  b = run({ "imatrix", "--model", path("model.gguf"), "--text", text(), "--out",
                            path("b"), "--window", "128" });
    ASSERT_EQ(a.code, 0) << a.err;
    ASSERT_EQ(b.code, 0) << b.err;
    const Means own = read(path("a")), other = read(path("b"));
    EXPECT_EQ(own.count("blk.0.ssm_out.weight"), 1u);
    EXPECT_EQ(own.count("output.weight"), 1u);
    expect_near(own, other);
    const Outcome used = run({ "convert", "--model", model, "--out", path("q.gguf"), "--type",
                               "q4_0", "--imatrix", path("a") });
    EXPECT_EQ(used.code, 0) << used.err;
}

TEST_F(ImatrixCommand, EveryRowCountsOnce)
{
    const Outcome o = run({ "imatrix", "--model", "models/weir-demo", "--text", text(), "--out",
                            path("a"), "--window", "64", "--limit", "3" });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "over 192 tokens");
    double rows = 0;
    (void)read(path("a"), &rows);
    EXPECT_EQ(rows, 192) << "the logits of all rows";
}

TEST_F(ImatrixCommand, ExpertsAreCountedByTheRowsThatChoseThem)
{
    const Outcome o =
        run({ "imatrix", "--model", "tests/golden/families/mixtral/mixtral-f16.gguf", "--text",
              text(), "--out", path("a"), "--window", "64", "--limit", "4" });
    ASSERT_EQ(o.code, 0) << o.err;
    weir_tensor_directory *directory = nullptr;
    weir_error error = {};
    ASSERT_EQ(weir_tensor_directory_open(&directory, path("a").c_str(), &error), WEIR_OK);
    const weir_tensor *const counts =
        weir_tensor_directory_find(directory, "blk.0.ffn_down_exps.weight.counts");
    ASSERT_NE(counts, nullptr);
    double sum = 0;
    for (const float n : floats(counts)) sum += static_cast<double>(n);
    EXPECT_EQ(counts->shape[0], 6);
    EXPECT_EQ(sum, 2 * 4 * 64) << "two of six for each row";
    weir_tensor_directory_close(directory);
}

TEST_F(ImatrixCommand, WhatItCannotDo)
{
    EXPECT_EQ(run({ "imatrix", "--model", "models/weir-demo", "--text", text() }).code, 2);
    const Outcome small = run({ "imatrix", "--model", "models/weir-demo", "--text",
                                put("short", "word"), "--out", path("a") });
    EXPECT_EQ(small.code, 2);
    EXPECT_SAYS(small.err, "fewer than one window");
    const Outcome experts = run({ "imatrix", "--model", "models/weir-demo", "--text", text(),
                                  "--out", path("a"), "--set", "memory.experts=1M" });
    EXPECT_EQ(experts.code, 2);
    EXPECT_SAYS(experts.err, "memory.experts");
    EXPECT_FALSE(std::filesystem::exists(path("a")));
}

} // namespace
