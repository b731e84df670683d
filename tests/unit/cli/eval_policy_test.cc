/* weir eval with KV policies: budgets, calibration, and matrices of settings that are continued. */
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/cli/eval.h"

namespace eval_test {
namespace {

class EvalPolicy : public Eval {
  protected:
    std::string text() const
    {
        std::string all;
        for (int i = 0; i < 500; i++)
            all += "One two three " + std::to_string(i * 7919 % 1000) + " four five. ";
        return put("t", all);
    }
    /* Perplexity in windows of 200 with a policy. */
    Outcome score(const std::vector<std::string> &more) const
    {
        std::vector<std::string> words = { "perplexity", "--text", path("t"),
                                           "--window",   "200",    "--json" };
        words.insert(words.end(), more.begin(), more.end());
        return eval(words);
    }
};

TEST_F(EvalPolicy, ABudgetIsHeldAndSaid)
{
    (void)text();
    const Outcome whole = score({}), part = score({ "--policy", "sinks", "--budget", "64" }),
                  roomy = score({ "--policy", "h2o", "--budget", "190", "--policy-options",
                                  "every=1" });
    ASSERT_EQ(part.code, 0) << part.err;
    ASSERT_EQ(roomy.code, 0) << roomy.err;
    EXPECT_EQ(Json(whole.out).number("kept"), 200);
    EXPECT_EQ(Json(whole.out).number("evicted"), 0);
    EXPECT_LE(Json(part.out).number("kept"), 64 + 64);
    EXPECT_EQ(Json(part.out).number("kept") + Json(part.out).number("evicted"), 200);
    EXPECT_LT(Json(part.out).number("bytes"), Json(whole.out).number("bytes"));
    EXPECT_NE(Json(part.out).number("nll"), Json(whole.out).number("nll"));
    EXPECT_EQ(Json(part.out).number("budget"), 64);
    EXPECT_NEAR(Json(roomy.out).number("nll"), Json(whole.out).number("nll"), 0.02)
        << "ten rows of two hundred went";
}

TEST_F(EvalPolicy, CalibrationServesItsOwnModelOnly)
{
    const Outcome made = run({ "calibrate", "--model", "models/weir-demo", "--text", text(),
                               "--out", path("demo.tria"), "--window", "256" });
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_SAYS(made.out, "queries of each head");
    const Outcome with = score({ "--policy", "triattention", "--budget", "96", "--policy-options",
                                 "every=16", "--calibration", path("demo.tria") });
    ASSERT_EQ(with.code, 0) << with.err;
    EXPECT_GT(Json(with.out).number("evicted"), 50);
    const Outcome without = score({ "--policy", "triattention", "--budget", "96" });
    EXPECT_NE(without.code, 0);
    EXPECT_SAYS(without.err, "weir calibrate");
    ASSERT_EQ(run({ "eval", "constructed", "--out", path("model") }).code, 0);
    const Outcome other =
        run({ "generate", "--model", path("model"), "--context", "512", "--tokens", "1,70,3000",
              "--max-tokens", "1", "--policy", "triattention", "--budget", "200", "--calibration",
              path("demo.tria") });
    EXPECT_NE(other.code, 0);
    EXPECT_SAYS(other.err, "model");
    std::string bytes = read("demo.tria");
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    (void)put("demo.tria", bytes);
    const Outcome flipped =
        score({ "--policy", "triattention", "--budget", "96", "--calibration", path("demo.tria") });
    EXPECT_NE(flipped.code, 0);
    EXPECT_SAYS(flipped.err, "demo.tria");
    EXPECT_NE(
        run({ "calibrate", "--model", "models/weir-demo", "--text", path("t"), "--out", path("x"),
              "--window", "500000" })
            .code,
        0
    );
}

TEST_F(EvalPolicy, MistakesAreNamed)
{
    (void)text();
    const struct {
        std::vector<std::string> more;
        const char *says;
    } cases[] = {
        { { "--policy", "snapvk", "--budget", "64" }, "snapkv" },
        { { "--policy", "sinks" }, "kv.policy.budget" },
        { { "--budget", "64" }, "keeps every row" },
        { { "--policy", "sinks", "--budget", "4" }, "leaves nothing to evict" },
        { { "--policy", "sinks", "--budget", "64", "--policy-options", "evry=2" }, "every" },
        { { "--policy", "sinks", "--budget", "64", "--calibration", "/nowhere" }, "/nowhere" },
    };
    for (const auto &c : cases) {
        const Outcome o = score(c.more);
        EXPECT_NE(o.code, 0) << c.more[1];
        EXPECT_SAYS(o.err, c.says);
    }
    const Outcome list = run({ "eval", "policies" });
    EXPECT_EQ(list.code, 0);
    for (const char *const name :
         { "full:", "sinks:", "h2o:", "snapkv:", "triattention:", "in_prompt" })
        EXPECT_SAYS(list.out, name);
}

TEST_F(EvalPolicy, AMatrixIsTakenUpWhereItStopped)
{
    (void)text();
    const auto matrix = [&](const std::vector<std::string> &more) {
        std::vector<std::string> words = { "matrix",  "--out",    path("m"), "--text",
                                           path("t"), "--window", "200" };
        words.insert(words.end(), more.begin(), more.end());
        return eval(words);
    };
    const Outcome first =
        matrix({ "--policies", "full;sinks", "--budgets", "50%,64", "--formats", "f16,q8_0" });
    ASSERT_EQ(first.code, 0) << first.err;
    const std::string lines = read("m/results.jsonl");
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 6);
    const std::string csv = read("m/results.csv");
    EXPECT_SAYS(csv, "f16,full,\"\",100%,,,,");
    EXPECT_SAYS(csv, "q8_0,sinks,\"\",64,");
    EXPECT_SAYS(csv, ",tokens_per_second,text_tokens_per_second,seconds,");
    EXPECT_SAYS(lines, "\"text_tokens_per_second\":");
    EXPECT_SAYS(read("m/perplexity-f16.svg"), "<svg");
    EXPECT_FALSE(std::filesystem::exists(path("m/accuracy-f16.svg")));
    /* As if it had been stopped */
    (void)put("m/results.jsonl", lines.substr(0, lines.find('\n', lines.size() / 2) + 1));
    const Outcome again =
        matrix({ "--policies", "full;sinks", "--budgets", "50%,64", "--formats", "f16,q8_0" });
    ASSERT_EQ(again.code, 0) << again.err;
    const std::string whole = read("m/results.jsonl");
    EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 6);
    EXPECT_EQ(whole.substr(0, lines.size() / 2), lines.substr(0, lines.size() / 2))
        << "what was there is not measured again, seconds and all";
    const Outcome small = matrix({ "--policies", "h2o", "--budgets", "10" });
    ASSERT_EQ(small.code, 0) << small.err;
    EXPECT_SAYS(read("m/results.csv"), "leaves nothing to evict");
    const struct {
        std::vector<std::string> more;
        const char *says;
    } cases[] = {
        { { "--policies", "snapvk" }, "snapkv" },      { { "--policies", ";" }, "policies" },
        { { "--policies", "sinks:evry=1" }, "every" }, { { "--budgets", "101%" }, "not a budget" },
        { { "--budgets", "0" }, "not a budget" },      { { "--budgets", "x" }, "not a budget" },
        { { "--formats", "f17" }, "not a KV format" },
    };
    for (const auto &c : cases) {
        const Outcome o = matrix(c.more);
        EXPECT_NE(o.code, 0) << c.more[1];
        EXPECT_SAYS(o.err, c.says);
    }
    (void)put("m/results.jsonl", "{broken");
    const Outcome broken = matrix({});
    EXPECT_NE(broken.code, 0);
    EXPECT_SAYS(broken.err, "results.jsonl");
}

/* Results are of their settings, and no run costs another its own. */
TEST_F(EvalPolicy, AMatrixKeepsTheResultsOfOtherRuns)
{
    (void)text();
    const auto matrix = [&](const std::vector<std::string> &more) {
        std::vector<std::string> words = {
            "matrix",    "--out", path("m"),   "--text", path("t"), "--window",         "200",
            "--budgets", "64",    "--formats", "f16",    "--set",   "kernels.threads=1"
        };
        words.insert(words.end(), more.begin(), more.end());
        return eval(words);
    };
    const auto lines = [&] {
        const std::string all = read("m/results.jsonl");
        return std::count(all.begin(), all.end(), '\n');
    };
    ASSERT_EQ(matrix({ "--policies", "sinks" }).code, 0);
    const std::string first = read("m/results.jsonl");
    ASSERT_EQ(matrix({ "--policies", "knorm" }).code, 0);
    EXPECT_EQ(lines(), 2);
    EXPECT_EQ(read("m/results.csv").find("sinks"), std::string::npos) << "the table is of this run";
    ASSERT_EQ(matrix({ "--policies", "sinks", "--set", "kv.wide_layers=1" }).code, 0);
    EXPECT_EQ(lines(), 3) << "other settings, other results";
    ASSERT_EQ(matrix({ "--policies", "sinks" }).code, 0);
    EXPECT_EQ(lines(), 3);
    EXPECT_NE(read("m/results.jsonl").find(first), std::string::npos)
        << "measured once, seconds and all";

    const Outcome problem = matrix({ "--policies", "sinks:sinks=64" });
    ASSERT_EQ(problem.code, 0) << problem.err;
    const std::string csv = read("m/results.csv"),
                      quotes = csv.substr(csv.find(",\"", csv.find("sinks=64")));
    EXPECT_EQ(std::count(quotes.begin(), quotes.end(), '"') % 2, 0) << quotes;

    const Outcome missing = matrix({ "--policies", "random;triattention" });
    EXPECT_NE(missing.code, 0);
    EXPECT_SAYS(missing.err, "triattention in f16: ");
    EXPECT_SAYS(missing.err, "weir calibrate");
    EXPECT_EQ(missing.out, "") << "it was found before anything was measured";
    const Outcome file = eval({ "matrix", "--out", put("file", ""), "--text", path("t") });
    EXPECT_NE(file.code, 0);
    EXPECT_SAYS(file.err, "cannot create the folder");
    (void)put("m/results.jsonl", first + "{torn");
    const Outcome torn = matrix({ "--policies", "sinks" });
    EXPECT_NE(torn.code, 0);
    EXPECT_SAYS(torn.err, "results.jsonl, result 2");
    EXPECT_SAYS(torn.err, "--out");
}

} // namespace
} // namespace eval_test
