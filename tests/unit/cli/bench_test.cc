/* weir bench --policies, --streams and --explain on the demo model: what they print and what they
 * refuse. How long anything takes decides nothing. */
#include <sstream>

#include "tests/unit/cli/json.h"
#include "tests/unit/cli/program.h"

namespace {

using program::Json;
using program::Outcome;
using program::run;

const std::string demo = "models/weir-demo";

/* Two pairs of runs of 4 tokens, unless `more` says otherwise. */
Outcome bench(const std::string &policies, const std::vector<std::string> &more)
{
    std::vector<std::string> words = { "bench",      "--model", demo, "--set", "kernels.threads=1",
                                       "--policies", policies };
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
}

/* Least, median and most of a rate that was measured. */
void expect_rate(const json_t *row, const char *name)
{
    const json_t *const rate = json_object_get(row, name);
    ASSERT_TRUE(json_is_object(rate)) << name;
    const double least = json_number_value(json_object_get(rate, "min")),
                 median = json_number_value(json_object_get(rate, "median")),
                 most = json_number_value(json_object_get(rate, "max"));
    EXPECT_GT(least, 0) << name;
    EXPECT_LE(least, median) << name;
    EXPECT_LE(median, most) << name;
}

/* One layer of Gemma 4 keeps all rows, 256 bytes a token, and the last one reads them again. */
TEST(Bench, RowsThatLayersShareAreReadByEach)
{
    const Outcome o =
        run({ "bench", "--model", "tests/golden/families/gemma4/gemma4-f16.gguf", "--depth", "320",
              "--gen", "2", "--repeat", "1", "--synthetic-kv", "--set", "kernels.threads=1",
              "--set", "memory.host=128MiB", "--json" });
    ASSERT_EQ(o.code, 0) << o.err;
    const Json got(o.out);
    const json_t *const row = json_array_get(got.at("rows"), 0);
    EXPECT_EQ(json_number_value(json_object_get(row, "kv_bytes")), 2 * 256 * 321) << o.out;
}

TEST(BenchPolicies, EachIsMeasuredNextToAPlainCache)
{
    const Outcome o = bench(
        "sinks:every=1;snapkv:window=8,every=0",
        { "--budget", "100", "--depth", "200", "--gen", "4", "--pairs", "2", "--json" }
    );
    ASSERT_EQ(o.code, 0) << o.err;
    const Json got(o.out);
    EXPECT_STREQ(json_string_value(got.at("model")), "weir-demo");
    EXPECT_GT(json_string_length(got.at("arch")), 0u);
    for (const auto &[name, value] : { std::pair("depth", 200), std::pair("budget", 100),
                                       std::pair("pairs", 2), std::pair("tokens", 4) })
        EXPECT_EQ(got.number(name), value) << name;
    const json_t *const rows = got.at("policies");
    ASSERT_EQ(json_array_size(rows), 2u) << o.out;
    for (size_t i = 0; i < 2; i++) {
        const json_t *const row = json_array_get(rows, i);
        EXPECT_STREQ(
            json_string_value(json_object_get(row, "policy")),
            i == 0 ? "sinks:every=1" : "snapkv:window=8,every=0"
        );
        for (const char *const name :
             { "speed_ratio", "plain_tokens_per_second", "tokens_per_second" })
            expect_rate(row, name);
        EXPECT_EQ(json_number_value(json_object_get(row, "rows")), 100)
            << "of 200, and what was decoded after them";
        EXPECT_GT(json_number_value(json_object_get(row, "memory_bytes")), 0);
        EXPECT_GT(json_number_value(json_object_get(row, "prompt_evict_ms")), 0);
        EXPECT_GT(json_number_value(json_object_get(row, "bandwidth_gb_per_second")), 0);
        EXPECT_TRUE(json_is_number(json_object_get(row, "evict_ms_per_token")));
    }
}

TEST(BenchPolicies, TheTableHasAColumnForEachFigure)
{
    const Outcome o = bench(
        "h2o:every=4,recent=16",
        { "--budget", "80", "--depth", "160", "--gen", "2", "--pairs", "1" }
    );
    ASSERT_EQ(o.code, 0) << o.err;
    std::istringstream text(o.out);
    std::string about, head, row, end;
    for (std::string *const line : { &about, &head, &row, &end })
        ASSERT_TRUE(std::getline(text, *line)) << o.out;
    EXPECT_SAYS(about, "160 rows of noise pruned to 80");
    EXPECT_SAYS(about, "1 pairs of runs of 2 tokens");
    EXPECT_EQ(row.rfind("h2o:every=4,recent=16 ", 0), 0u) << row;
    EXPECT_SAYS(end, "medians over the pairs");
    for (const char *const column : { "policy", "speed ratio (min..max)", "plain t/s", "t/s",
                                      "evict ms", "at prompt ms", "rows", "memory MB", "GB/s" })
        EXPECT_SAYS(head, column);
    for (const char *const column :
         { "rows", "memory MB", "GB/s" }) { /* figures end below their names */
        const size_t last = head.find(column) + strlen(column) - 1;
        ASSERT_LT(last, row.size()) << row;
        EXPECT_TRUE(isdigit(static_cast<unsigned char>(row[last]))) << column << ": " << row;
    }
}

TEST(BenchPolicies, MistakesAreNamed)
{
    const std::vector<std::string> good = { "--budget", "100", "--depth", "200",
                                            "--gen",    "2",   "--pairs", "1" };
    const struct {
        const char *policies;
        std::vector<std::string> more;
        const char *says;
    } cases[] = {
        { "snapvk", good, "snapkv" },
        { "sinks:evry=1", good, "every" },
        { "full", good, "keeps every row" },
        { ";", good, "one is empty" },
        { "sinks", { "--depth", "200" }, "--budget ROWS" },
        { "sinks", { "--budget", "100" }, "one --depth" },
        { "sinks", { "--budget", "100", "--depth", "200,300" }, "one --depth" },
        { "sinks", { "--budget", "201", "--depth", "200" }, "a depth of at least that" },
        { "sinks", { "--budget", "32", "--depth", "64" }, "more than 64" },
        { "sinks", { "--budget", "100", "--depth", "200", "--gen", "0" }, "at least 1 token" },
        { "sinks", { "--budget", "100", "--depth", "200", "--pairs", "65" }, "--pairs" },
        { "sinks", { "--budget", "100", "--depth", "200", "--context", "256" }, "model.context" },
        { "sinks:sinks=100", good, "leaves nothing to evict" },
    };
    for (const auto &c : cases) {
        const Outcome o = bench(c.policies, c.more);
        EXPECT_EQ(o.code, 2) << c.policies << ": " << o.out;
        EXPECT_SAYS(o.err, c.says);
    }
}

/* The last name of a list, before the model is loaded, and statistics that are missing, before
 * anything is measured. */
TEST(BenchPolicies, TheWholeListIsCheckedFirst)
{
    const std::vector<std::string> good = { "--budget", "100", "--depth", "200",
                                            "--gen",    "2",   "--pairs", "1" };
    const Outcome typo = bench("sinks;h2o:recent=16;snapvk", good),
                  missing = bench("sinks;triattention", good);
    EXPECT_EQ(typo.code, 2);
    EXPECT_SAYS(typo.err, "snapkv");
    EXPECT_EQ(typo.out, "");
    EXPECT_NE(missing.code, 0);
    EXPECT_SAYS(missing.err, "triattention: ");
    EXPECT_SAYS(missing.err, "weir calibrate");
    EXPECT_EQ(missing.out.find("\nsinks "), std::string::npos) << missing.out;
}

/* ---- --streams ------------------------------------------------------------------------------- */

Outcome streams(const std::string &counts, const std::vector<std::string> &more)
{
    std::vector<std::string> words = {
        "bench",    "--model", demo,    "--set", "kernels.threads=1", "--streams", counts,
        "--prompt", "100",     "--gen", "6",     "--repeat",          "2"
    };
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
}

TEST(BenchStreams, ARowForEachCount)
{
    const Outcome o = streams("1,3", { "--json" });
    ASSERT_EQ(o.code, 0) << o.err;
    const Json got(o.out);
    for (const auto &[name, value] :
         { std::pair("prompt", 100), std::pair("gen", 6), std::pair("repeats", 2) })
        EXPECT_EQ(got.number(name), value) << name;
    EXPECT_GT(got.number("weight_bytes"), 0);
    const json_t *const rows = got.at("rows");
    ASSERT_EQ(json_array_size(rows), 2u) << o.out;
    double kv[2] = {}, decode[2] = {};
    for (size_t i = 0; i < 2; i++) {
        const json_t *const row = json_array_get(rows, i);
        const auto number = [&](const char *name) {
            return json_number_value(json_object_get(row, name));
        };
        EXPECT_EQ(number("streams"), i == 0 ? 1 : 3);
        expect_rate(row, "prefill_tokens_per_second");
        expect_rate(row, "decode_tokens_per_second");
        for (const char *const name :
             { "decode_tokens_per_second_per_stream", "batch_efficiency", "peak_rss_bytes",
               "bandwidth_gb_per_second", "bandwidth_share" })
            EXPECT_GT(number(name), 0) << name;
        for (const char *const name : { "ttft_ms", "itl_ms" }) {
            const json_t *const times = json_object_get(row, name);
            const double p50 = json_number_value(json_object_get(times, "p50"));
            EXPECT_GT(p50, 0) << name;
            EXPECT_LE(p50, json_number_value(json_object_get(times, "p99"))) << name;
        }
        kv[i] = number("kv_bytes");
        decode[i] = json_number_value(
            json_object_get(json_object_get(row, "decode_tokens_per_second"), "median")
        );
    }
    EXPECT_GE(kv[1], 3 * kv[0]) << "each stream has pages of its own";
    EXPECT_EQ(json_number_value(json_object_get(json_array_get(rows, 0), "batch_efficiency")), 1);
    EXPECT_NEAR(
        json_number_value(json_object_get(json_array_get(rows, 1), "batch_efficiency")),
        decode[1] / decode[0] / 3, 1e-6
    );
}

/* More streams than chunks of a step: the first ones answer long before the last one begins. */
TEST(BenchStreams, TheFirstWaitForTheLastToBegin)
{
    const Outcome o = streams("12", { "--json", "--chunk", "64" });
    ASSERT_EQ(o.code, 0) << o.err;
    const Json got(o.out);
    const json_t *const row = json_array_get(got.at("rows"), 0);
    EXPECT_EQ(json_number_value(json_object_get(row, "streams")), 12);
    EXPECT_TRUE(json_is_null(json_object_get(row, "batch_efficiency"))) << "one was not measured";
}

TEST(BenchStreams, TheTableHasAColumnForEachFigure)
{
    const Outcome o = streams("1,2", {});
    ASSERT_EQ(o.code, 0) << o.err;
    std::istringstream text(o.out);
    std::string about, head, one, two;
    for (std::string *const line : { &about, &head, &one, &two })
        ASSERT_TRUE(std::getline(text, *line)) << o.out;
    EXPECT_SAYS(about, "prompts of 100 tokens, 6 decoded tokens of each stream, 2 rounds");
    for (const char *const column :
         { "streams", "prefill/s", "decode/s", "per stream", "efficient", "TTFT p50", "TTFT p99",
           "ITL p50", "ITL p99", "RSS MB", "KV MB", "GB/s", "of limit" }) {
        ASSERT_NE(head.find(column), std::string::npos) << column;
        const size_t last = head.find(column) + strlen(column) - 1; /* figures end below it */
        ASSERT_LT(last, two.size()) << two;
        EXPECT_NE(two[last], ' ') << column << ": " << two;
    }
    EXPECT_LE(two.size(), 132u);
}

TEST(BenchStreams, MistakesAreNamed)
{
    const struct {
        const char *counts;
        std::vector<std::string> more;
        const char *says;
    } cases[] = {
        { "0", {}, "--streams" },
        { "1,", {}, "--streams" },
        { "2000", {}, "--streams" },
        { "1", { "--depth", "64" }, "takes no --depth" },
        { "1", { "--policies", "sinks" }, "takes no --depth, --policies" },
        { "1", { "--context", "128" }, "model.context" },
    };
    for (const auto &c : cases) {
        const Outcome o = streams(c.counts, c.more);
        EXPECT_EQ(o.code, 2) << c.counts << ": " << o.out;
        EXPECT_SAYS(o.err, c.says);
    }
    const Outcome zero = run({ "bench", "--model", demo, "--streams", "1", "--prompt", "0" });
    EXPECT_EQ(zero.code, 2);
    EXPECT_SAYS(zero.err, "--prompt and --gen of 1 or more");
    const Outcome narrow = run({ "bench", "--model", demo, "--streams", "300", "--prompt", "186",
                                 "--gen", "6", "--context", "256", "--chunk", "64" });
    EXPECT_EQ(narrow.code, 2) << narrow.out << "the first answer has 70 tokens to wait in";
    EXPECT_SAYS(narrow.err, "raise --context");
}

/* ---- --explain ------------------------------------------------------------------------------- */

/* The line of a policy in the table that begins so; empty: there is none. */
std::string line_of(const std::string &text, const std::string &table, const std::string &policy)
{
    const size_t begin = text.find(table);
    if (begin == std::string::npos) return "";
    const size_t at = text.find("\n  " + policy + " ", begin);
    return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

TEST(Explain, SaysWhatTheConfiguredPolicyCosts)
{
    const std::vector<std::string> policy = { "--model",          demo,
                                              "--context",        "512",
                                              "--policy",         "snapkv",
                                              "--budget",         "64",
                                              "--policy-options", "window=8,every=7" };
    for (const char *const command : { "generate", "serve", "bench" }) {
        std::vector<std::string> words = { command, "--explain" };
        words.insert(words.end(), policy.begin(), policy.end());
        const Outcome o = run(words);
        ASSERT_EQ(o.code, 0) << o.err;
        EXPECT_SAYS(o.out, "  attention\n");
        const std::string own = line_of(o.out, "KV policy as configured, with 64 rows", "snapkv");
        EXPECT_SAYS(own, "last 8 queries keys");
        EXPECT_NE(own.find(" 7 "), std::string::npos) << own;
        const std::string of_all =
            line_of(o.out, "KV policies with their own options, with 64 rows", "snapkv");
        EXPECT_EQ(of_all.empty(), std::string(command) != "bench") << o.out;
        EXPECT_NE(of_all, own);
    }
}

TEST(Explain, RunsUnderTheConfiguredPolicy)
{
    for (const char *const command : { "generate", "serve", "bench" }) {
        const std::vector<std::string> plain = { command, "--explain", "--model",
                                                 demo,    "--context", "512" };
        std::vector<std::string> watched = plain;
        watched.insert(watched.end(), { "--policy", "h2o", "--budget", "100" });
        const Outcome without = run(plain), with = run(watched);
        ASSERT_EQ(with.code, 0) << with.err;
        EXPECT_SAYS(with.out, "  attention_mass\n");
        EXPECT_EQ(without.out.find("attention_mass"), std::string::npos) << without.out;
    }
}

TEST(Explain, SaysNothingOfPoliciesWhereThereIsNone)
{
    const Outcome one = run({ "generate", "--explain", "--model", demo, "--context", "512" }),
                  all = run({ "bench", "--explain", "--model", demo });
    ASSERT_EQ(one.code, 0) << one.err;
    EXPECT_SAYS(one.out, "  attention\n");
    EXPECT_EQ(one.out.find("KV polic"), std::string::npos) << one.out;
    ASSERT_EQ(all.code, 0) << all.err;
    EXPECT_EQ(all.out.find("as configured"), std::string::npos) << all.out;
    for (const char *const name : { "sinks", "h2o", "snapkv", "rkv" })
        EXPECT_NE(line_of(all.out, "KV policies", name), "") << name;
    EXPECT_SAYS(line_of(all.out, "KV policies", "triattention"), "weir calibrate");
    const Outcome bad = run({ "serve", "--explain", "--model", demo, "--policy", "snapkv" });
    EXPECT_EQ(bad.code, 2);
    EXPECT_SAYS(bad.err, "kv.policy.budget");
}

} // namespace
