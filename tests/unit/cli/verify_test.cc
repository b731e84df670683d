// weir verify: against programs that answer well, wrongly, or not at all.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/unit/cli/json.h"
#include "tests/unit/cli/program.h"

namespace {

using program::Json;
using program::Outcome;
using program::run;

const char kModel[] = "tests/golden/models/tq/tq-f32.gguf";
const char kTokens[] = "5,17,200,3,9";
constexpr int kRows = 5, kVocabulary = 320;

class VerifyCommand : public program::Folder {
  protected:
    /* Weir's own logits of a prompt, row by row. */
    std::vector<float> logits(const std::string &tokens = kTokens) const
    {
        const Outcome o =
            run({ "logits", "--model", kModel, "--tokens", tokens, "--out", path("own.safetensors"),
                  "--kv-format", "f32", "--activations", "f32" });
        EXPECT_EQ(o.code, 0) << o.err;
        std::ifstream in(path("own.safetensors"), std::ios::binary);
        const std::string all((std::istreambuf_iterator<char>(in)), {});
        uint64_t header = 0;
        memcpy(&header, all.data(), sizeof header);
        const std::string text = all.substr(8, header);
        const size_t entry = text.find("\"logits\""), at = text.find("data_offsets\":[", entry);
        const size_t begin = std::stoul(text.substr(at + 15));
        std::vector<float> out((std::count(tokens.begin(), tokens.end(), ',') + 1) * kVocabulary);
        memcpy(out.data(), all.data() + 8 + header + begin, out.size() * sizeof(float));
        return out;
    }

    /* The three ids that follow greedily. */
    std::string ids() const
    {
        std::string tokens = kTokens, out;
        for (int i = 0; i < 3; i++) {
            const std::vector<float> all = logits(tokens);
            const auto last = all.end() - kVocabulary;
            const std::string id = std::to_string(std::max_element(last, all.end()) - last);
            tokens += "," + id;
            out += (i > 0 ? ", " : "") + id;
        }
        return "[" + out + "]";
    }

    static std::string answer(
        const std::vector<float> &logits, const std::string &ids, int rows = kRows,
        int vocabulary = kVocabulary
    )
    {
        return "{\"rows\": " + std::to_string(rows) + ", \"vocab\": " + std::to_string(vocabulary) +
               "}\n" +
               std::string(
                   reinterpret_cast<const char *>(logits.data()), logits.size() * sizeof(float)
               ) +
               ids + "\n";
    }

    /* A program that says this, whatever it is asked. */
    std::string saying(const std::string &text, const char *after = "") const
    {
        put("said", text);
        const std::string script =
            put("peer",
                "#!/bin/sh\ncat >" + path("asked") + "\ncat " + path("said") + "\n" + after);
        EXPECT_EQ(chmod(script.c_str(), 0755), 0);
        return script;
    }

    Outcome verify(const std::string &peer, std::vector<std::string> more = {}) const
    {
        std::vector<std::string> words = { "verify", "--model",     kModel, "--tokens",
                                           kTokens,  "--gen",       "3",    "--program",
                                           peer,     "--kv-format", "f32",  "--activations",
                                           "f32" };
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    }
};

TEST_F(VerifyCommand, EqualLogitsAndTokens)
{
    const Outcome o = verify(saying(answer(logits(), ids())), { "--json", "--same-tokens" });
    ASSERT_EQ(o.code, 0) << o.err << o.out;
    const Json json(o.out);
    EXPECT_EQ(json.number("rows"), kRows);
    EXPECT_EQ(json.number("max_difference"), 0);
    EXPECT_EQ(json.number("kl_mean"), 0);
    EXPECT_EQ(json.number("greedy_tokens"), 3);
    EXPECT_EQ(json.number("greedy_same"), 3);
    std::ifstream asked(path("asked"));
    std::string line;
    ASSERT_TRUE(std::getline(asked, line));
    EXPECT_SAYS(line, "tq-f32.gguf\"");
    EXPECT_SAYS(line, "\"generate\": 3");
    ASSERT_TRUE(std::getline(asked, line));
    EXPECT_EQ(line, std::string("[") + kTokens + "]");
}

TEST_F(VerifyCommand, OneLogitThatDiffers)
{
    std::vector<float> other = logits();
    other[2 * kVocabulary + 7] += 0.25f;
    const Outcome o = verify(saying(answer(other, ids())), { "--json" });
    ASSERT_EQ(o.code, 0) << "a small divergence: " << o.err;
    EXPECT_NEAR(Json(o.out).number("max_difference"), 0.25, 1e-5);
    EXPECT_NEAR(Json(o.out).number("mean_difference"), 0.25 / (kRows * kVocabulary), 1e-6);
    EXPECT_GT(Json(o.out).number("kl_max"), 0);
    const Outcome strict = verify(saying(answer(other, ids())), { "--max-kl", "0" });
    EXPECT_EQ(strict.code, 1);
    EXPECT_SAYS(strict.err, "--max-kl");
}

TEST_F(VerifyCommand, OtherLogits)
{
    const Outcome o = verify(saying(answer(std::vector<float>(kRows * kVocabulary), ids())));
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "KL divergence");
    EXPECT_SAYS(o.out, "5 rows: logits differ by at most");
}

TEST_F(VerifyCommand, OtherTokens)
{
    const std::string peer = saying(answer(logits(), "[1, 2, 3]"));
    const Outcome o = verify(peer);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "prompt 1: token 0 after it is");
    EXPECT_SAYS(o.out, "of 3 greedy tokens 0 come before one that differs");
    const Outcome strict = verify(peer, { "--same-tokens" });
    EXPECT_EQ(strict.code, 1);
    EXPECT_SAYS(strict.err, "--same-tokens");
}

TEST_F(VerifyCommand, LogitsThatAreNotFinite)
{
    std::vector<float> other = logits();
    other[0] = NAN;
    const Outcome o = verify(saying(answer(other, ids())));
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "not finite");
}

TEST_F(VerifyCommand, AnswersThatAreNone)
{
    const struct {
        std::string text;
        const char *after, *says;
    } bad[] = {
        { "", "exit 3\n", "ended with code 3" },
        { "", "kill -9 $$\n", "ended by signal 9" },
        { "hello\n", "", "peer" },
        { "[1]\n", "", "without \"rows\"" },
        { answer({}, "[]", 4), "", "another model" },
        { answer({}, "[]", kRows, 10), "", "another model" },
        { answer(std::vector<float>(kRows * kVocabulary), "[1, 2]"), "", "with 3 ids" },
        { answer(std::vector<float>(kRows * kVocabulary), "[1, 2, 320]"), "", "with 3 ids" },
        { answer(std::vector<float>(17), ""), "", "before it answered" },
        { std::string(2 << 20, 'x'), "", "no answer" },
    };
    for (const auto &b : bad) {
        const Outcome o = verify(saying(b.text, b.after));
        EXPECT_EQ(o.code, 1) << b.says << o.out;
        EXPECT_SAYS(o.err, b.says);
    }
}

TEST_F(VerifyCommand, UsageErrors)
{
    EXPECT_EQ(run({ "verify", "--model", kModel, "--tokens", "1" }).code, 2) << "no peer";
    EXPECT_EQ(run({ "verify", "--model", kModel, "--tokens", "1", "--against", "vllm" }).code, 2);
    EXPECT_EQ(run({ "verify", "--model", kModel, "--against", "llama.cpp" }).code, 2) << "no text";
    EXPECT_EQ(verify("/no/such/program").code, 1);
    EXPECT_EQ(verify(saying(""), { "--max-kl", "x" }).code, 2);
    const Outcome ids = run({ "verify", "--model", kModel, "--tokens", "1,999", "--program", "x" });
    EXPECT_EQ(ids.code, 2);
    EXPECT_SAYS(ids.err, "no id below 320");
}

TEST_F(VerifyCommand, TheScriptSaysWhatIsMissing)
{
    // A Python without the package: the script names it, whatever the machine has.
    const std::string python = put("python", "#!/bin/sh\nexec python3 -S -E \"$@\"\n");
    ASSERT_EQ(chmod(python.c_str(), 0755), 0);
    const Outcome o = run({ "verify", "--model", kModel, "--tokens", kTokens, "--against",
                            "transformers", "--python", python });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "ended with code 1");
}

} // namespace
