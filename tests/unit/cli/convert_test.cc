// weir convert as a user runs it.
#include <fstream>

#include "tests/unit/cli/program.h"

namespace {

using program::Outcome;
using program::run;

const char kModel[] = "tests/golden/models/tq/tq-f32.gguf";

class ConvertCommand : public program::Folder {};

TEST_F(ConvertCommand, WritesAModelThatAnswers)
{
    const Outcome made = run({ "convert", "--model", "models/weir-demo", "--out", path("demo.gguf"),
                               "--type", "q8_0" });
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_SAYS(made.out, "108 tensors");
    EXPECT_SAYS(made.out, "bits per weight");
    const std::vector<std::string> ask = {
        "generate", "--prompt", "The price of the museum is", "--max-tokens", "8", "--temperature",
        "0",        "--model"
    };
    std::vector<std::string> own = ask, golden = ask;
    own.push_back(path("demo.gguf"));
    golden.push_back("models/weir-demo/weir-demo-q8_0.gguf");
    const Outcome a = run(own), b = run(golden);
    ASSERT_EQ(a.code, 0) << a.err;
    EXPECT_EQ(a.out, b.out);
}

TEST_F(ConvertCommand, DefaultsToF16)
{
    const Outcome o = run({ "convert", "--model", kModel, "--out", path("out.gguf") });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "16.");
}

TEST_F(ConvertCommand, ACheckpointWithoutATokenizerSaysSo)
{
    const Outcome o =
        run({ "convert", "--model", "tests/golden/models/llama3", "--out", path("out.gguf") });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.err, "has no tokenizer");
}

TEST_F(ConvertCommand, QuantisedTwiceIsSaid)
{
    const char model[] = "tests/golden/models/tq/tq-q8_0.gguf";
    const Outcome twice =
        run({ "convert", "--model", model, "--out", path("out.gguf"), "--type", "q4_0" });
    ASSERT_EQ(twice.code, 0) << twice.err;
    EXPECT_SAYS(twice.err, "quantised again");
    const Outcome once =
        run({ "convert", "--model", model, "--out", path("out.gguf"), "--type", "f32" });
    ASSERT_EQ(once.code, 0) << once.err;
    EXPECT_EQ(once.err.find("quantised again"), std::string::npos) << once.err;
}

TEST_F(ConvertCommand, UsageErrors)
{
    EXPECT_EQ(run({ "convert", "--model", kModel }).code, 2) << "--out is missing";
    const Outcome type =
        run({ "convert", "--model", kModel, "--out", path("o.gguf"), "--type", "q9" });
    EXPECT_EQ(type.code, 2);
    EXPECT_SAYS(type.err, "q4_k_m");
    const Outcome adapter = run({ "convert", "--model", kModel, "--out", path("o.gguf"), "--set",
                                  "model.adapter=x.safetensors" });
    EXPECT_EQ(adapter.code, 2);
    EXPECT_SAYS(adapter.err, "model.adapter");
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ConvertCommand, FewBitsWantAnImportanceMatrix)
{
    const std::string model = "tests/golden/models/tq-k/tq-k-q6_k.gguf", text = path("text.txt");
    const std::vector<std::string> convert = { "convert",      "--model", model,    "--out",
                                               path("o.gguf"), "--type",  "iq2_xxs" };
    const Outcome without = run(convert);
    EXPECT_EQ(without.code, 2);
    EXPECT_SAYS(without.err, "weir imatrix");
    EXPECT_FALSE(std::filesystem::exists(path("o.gguf")));

    std::ofstream(text) << std::string(64, 'x') << " and some other words, of which it learns.";
    const Outcome made = run({ "imatrix", "--model", model, "--text", text, "--window", "32",
                               "--out", path("imatrix.gguf") });
    ASSERT_EQ(made.code, 0) << made.err;
    std::vector<std::string> with = convert;
    with.insert(with.end(), { "--imatrix", path("imatrix.gguf") });
    const Outcome done = run(with);
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(done.err.find("types of few bits"), std::string::npos) << done.err;
    EXPECT_TRUE(std::filesystem::exists(path("o.gguf")));
}

TEST_F(ConvertCommand, MissingFilesFail)
{
    const Outcome model = run({ "convert", "--model", path("none"), "--out", path("out.gguf") });
    EXPECT_EQ(model.code, 1);
    EXPECT_SAYS(model.err, "no such file");
    const Outcome imatrix = run({ "convert", "--model", kModel, "--out", path("out.gguf"),
                                  "--imatrix", path("none.gguf") });
    EXPECT_EQ(imatrix.code, 1);
    const Outcome folder = run({ "convert", "--model", kModel, "--out", path("no/such/out.gguf") });
    EXPECT_EQ(folder.code, 1);
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

} // namespace
