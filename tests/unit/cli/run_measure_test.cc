/* What commands compute on the demo model, and that settings which must not change it do not. */
#include <csignal>
#include <cstring>
#include <sys/resource.h>

#include "engine/base/file.h"
#include "engine/cli/open.h"
#include "tests/unit/cli/commands.h"

namespace program {
namespace {

TEST(Url, PutsBracketsAroundIPv6)
{
    char url[WEIR_URL];
    weir_url(url, "127.0.0.1", 8080);
    EXPECT_STREQ(url, "http://127.0.0.1:8080");
    weir_url(url, "::1", 80);
    EXPECT_STREQ(url, "http://[::1]:80");
    weir_url(url, "[fe80::1]", 80);
    EXPECT_STREQ(url, "http://[fe80::1]:80");
    weir_url(url, "localhost", 1);
    EXPECT_STREQ(url, "http://localhost:1");
}

TEST_F(Commands, ToolCallsOfAnswers)
{
    const std::string text = R"("text": "<tool_call>{\"name\": \"f\"}</tool_call>")",
                      known = R"({"id": "a", "family": "qwen3", "stop": "stop", )" + text + "}\n",
                      unknown = R"({"id": "b", "family": "x", "stop": "length", )" + text + "}\n",
                      templated = R"({"id": "c", "family": "x", "stop": "length", "template": )"
                                  R"("t.jinja", )" +
                                  text + "}\n";
    const auto eval = [&](const std::string &cases, std::vector<std::string> more = {}) {
        std::vector<std::string> words = { "eval", "toolcalls", "--cases", put("cases", cases) };
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    };
    put("t.jinja", "{% for m in messages %}{% for c in m.tool_calls or [] %}<tool_call>{\"name\": "
                   "\"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}"
                   "</tool_call>{% endfor %}{% endfor %}");
    const Outcome o = eval(known + "\n" + unknown);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, "a (hermes): tool_calls f {}\nb: no format of this family is known\n");
    const Outcome json = eval(templated, { "--templates", folder_, "--json" });
    EXPECT_EQ(json.code, 0) << json.err;
    for (const char *part : { R"("format":"hermes")", R"("finish_reason":"length")",
                              R"({"tool_calls":[{"index":0,"id":"call_0")" })
        EXPECT_SAYS(json.out, part);
    const Outcome bad = eval("{\"id\": 1}");
    EXPECT_EQ(bad.code, 1);
    EXPECT_SAYS(bad.err, "a case needs \"id\", \"text\" and \"stop\"");
    EXPECT_SAYS(eval("{").err, "line 1");
    EXPECT_EQ(eval(known, { "--tools", path("none") }).code, 1);
    put("t.jinja", "{% if %}");
    EXPECT_SAYS(eval(templated, { "--templates", folder_ }).err, "t.jinja");
}

TEST_F(Commands, KvQualityIsMeasuredAgainstF32)
{
    std::string text;
    for (int i = 0; i < 200; i++) text += "One two three " + std::to_string(i) + ". ";
    const std::string file = put("t", text);
    const auto measure = [&](const char *formats) {
        return run({ "eval", "kv-quality", "--model", demo, "--text", file, "--window", "128",
                     "--limit", "2", "--json", "--formats", formats });
    };
    const Outcome o = measure("f32,f16,int8/kivi4,turbo2");
    ASSERT_EQ(o.code, 0) << o.err;
    for (const char *part : { "\"scored\": 254", "\"kl_mean\": 0.0", "\"format\": \"int8/kivi4\"",
                              "\"bytes_per_token\": 1024", "\"v_format\": \"turbo2\"" })
        EXPECT_SAYS(o.out, part);
    EXPECT_EQ(measure("q8").code, 2);
    EXPECT_EQ(measure("q8_0,").code, 2);
    EXPECT_EQ(measure("").code, 2);
}

// Formats that kv.format refuses are not measured: Gemma 4's last layers read the rows of others.
TEST_F(Commands, KvQualityMeasuresWhatTheModelAllows)
{
    const std::string model = "tests/golden/families/gemma4/gemma4-f16.gguf",
                      file = put("t", std::string(200, 'a'));
    const auto measure = [&](std::vector<std::string> more) {
        std::vector<std::string> words = { "eval", "kv-quality", "--model", model,   "--text",
                                           file,   "--window",   "64",      "--json" };
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    };
    const Outcome all = measure({});
    ASSERT_EQ(all.code, 0) << all.err;
    EXPECT_SAYS(all.out, "\"format\": \"turbo4\"");
    EXPECT_EQ(all.out.find("int8"), std::string::npos) << all.out;
    const Outcome one = measure({ "--formats", "f16,int8" });
    EXPECT_NE(one.code, 0);
    EXPECT_SAYS(one.err, "layers of this model read the KV rows of others");
}

// The rows of the depth are noise that went the way of computed ones: coded, counted, some of them
// on the disk, and attention reads them.
TEST_F(Commands, BenchDecodesAtADepthThatWasNotComputed)
{
    const auto bench = [&](const char *format, const char *depth, const char *memory,
                           std::vector<std::string> more) {
        std::vector<std::string> words = { "bench", "--model",       demo, "--depth",
                                           depth,   "--gen",         "4",  "--repeat",
                                           "1",     "--synthetic-kv" };
        words.insert(
            words.end(),
            { "--set", "kernels.threads=1", "--set", std::string("kv.format=") + format }
        );
        if (memory != nullptr)
            words.insert(
                words.end(), { "--set", "memory.disk=64MiB", "--set", "memory.disk_dir=" + folder_,
                               "--set", memory }
            );
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    };
    const Outcome whole = bench("f16", "2000", nullptr, { "--json" });
    ASSERT_EQ(whole.code, 0) << whole.err;
    EXPECT_SAYS(whole.out, "\"synthetic_kv\": true");
    EXPECT_EQ(whole.out.find("disk"), std::string::npos) << whole.out;
    EXPECT_EQ(whole.out.find("prefill_tokens"), std::string::npos) << whole.out;
    for (const char *const format : { "f16", "int8/kivi4" }) {
        /* How much the rest takes differs with the instruction set: what is left for KV pages shall
         * be half of them. */
        const Outcome roomy = bench(format, "16000", "memory.host=96MiB", { "--json" });
        ASSERT_EQ(roomy.code, 0) << roomy.err;
        const double rest =
            number(roomy.out, "memory_peak_bytes") - number(roomy.out, "kv_pool_bytes");
        const auto host = std::to_string((int64_t)(rest + number(roomy.out, "kv_bytes") / 2));
        const Outcome tiered =
            bench(format, "16000", ("memory.host=" + host + "B").c_str(), { "--json" });
        ASSERT_EQ(tiered.code, 0) << tiered.err;
        EXPECT_GT(number(tiered.out, "disk_bytes_per_decoded_token"), 1e6) << tiered.out;
        EXPECT_LT(
            number(tiered.out, "disk_bytes_per_decoded_token"), number(tiered.out, "kv_bytes") * 1.2
        ) << tiered.out;
        EXPECT_GT(number(tiered.out, "disk_gb_per_second"), 0) << tiered.out;
        EXPECT_GT(number(tiered.out, "disk_share"), 0) << tiered.out;
        EXPECT_GT(number(tiered.out, "memory_peak_bytes"), 0);
        EXPECT_LE(number(tiered.out, "memory_peak_bytes"), number(tiered.out, "memory_cap_bytes"));
    }
    const Outcome text = bench("f16", "500", "memory.host=64MiB", {});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_SAYS(text.out, "there is no prefill rate");
    EXPECT_SAYS(text.out, "disk GB/s");
}

TEST_F(Commands, KvQualityCountsAnswersToo)
{
    std::string text, items;
    for (int i = 0; i < 100; i++) text += "One two three " + std::to_string(i) + ". ";
    for (const char *const what : { "red house", "old bridge", "black boat", "last harbour" }) {
        const std::string fact = std::string("The number of the ") + what + " is 48" +
                                 std::to_string(items.size() % 90 + 10) + ".";
        items += R"({"context": "It was late when they came home. )" + fact +
                 R"( Nobody spoke.", "questions": [["What is the number of the )" + what +
                 R"(?", ")" + (items.empty() ? "Nobody knows." : fact) + "\"]]}\n";
    }
    const std::string file = put("t", text), facts = put("facts.jsonl", items),
                      more_facts = put("more.facts.jsonl", items);
    const auto measure = [&](const std::string &list, std::vector<std::string> more) {
        std::vector<std::string> words = { "eval", "kv-quality", "--model", demo,      "--text",
                                           file,   "--window",   "64",      "--limit", "1" };
        words.insert(
            words.end(), { "--formats", "f16,turbo2", "--item-limit", "3", "--items", list }
        );
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    };
    const Outcome o = measure(facts + "," + more_facts, { "--json" });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "\"file\": \"more.facts.jsonl\"");
    for (const char *format : { "f16", "turbo2" }) {
        const Outcome alone =
            run({ "eval", "retrieval", "--model", demo, "--items", facts, "--limit", "3", "--json",
                  "--set", std::string("kv.format=") + format });
        ASSERT_EQ(alone.code, 0) << alone.err;
        const std::string row = o.out.substr(o.out.find(std::string("\"format\": \"") + format));
        EXPECT_EQ(number(row, "items"), 3) << row;
        EXPECT_EQ(number(row, "right"), number(alone.out, "right")) << format << ": " << o.out;
        if (strcmp(format, "f16") == 0)
            EXPECT_EQ(number(row, "right"), 2) << "all but the one without an answer";
    }
    const Outcome table = measure(facts, {});
    ASSERT_EQ(table.code, 0) << table.err;
    EXPECT_SAYS(table.out, "facts\n");
    EXPECT_SAYS(table.out, "2/3\n");
    EXPECT_EQ(measure(folder_ + "/none.jsonl", {}).code, 1);
    EXPECT_EQ(measure(facts + ",", {}).code, 2);
}

TEST(Prompt, ATextFromAFileIsTheSameAsOneGivenByHand)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/prompt.txt",
                      text = "The harbour\n\"quoted\" \xc3\xa9t\xc3\xa9";
    std::ofstream(path) << text;
    const auto answer = [](const std::string &option, const std::string &value) {
        return run({ "generate", "--model", demo, "--context", "256", option, value, "--json",
                     "--temperature", "0", "--max-tokens", "8" });
    };
    const auto tokens_of = [](const Outcome &o) { return o.out.substr(0, o.out.find(']')); };
    const Outcome given = answer("--prompt", text), file = answer("--file", path),
                  absent = answer("--file", path + ".none");
    ASSERT_EQ(given.code, 0) << given.err;
    EXPECT_EQ(tokens_of(file), tokens_of(given)) << file.err;
    {
        const Piped in(text);
        EXPECT_EQ(tokens_of(answer("-f", "-")), tokens_of(given));
    }
    EXPECT_EQ(absent.code, 1);
    EXPECT_SAYS(absent.err, path + ".none");
}

TEST(Session, ATextIsSavedContinuedListedAndDeleted)
{
    const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/sessions";
    std::string list = "1";
    for (int i = 2; i <= 100; i++) list += "," + std::to_string(i);
    std::filesystem::remove_all(folder);
    const std::vector<std::string> common = { "--model", demo, "--context", "512" };
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.end(), common.begin(), common.end());
        return run(words);
    };
    const Outcome saved =
        with({ "session", "save", "--dir", folder, "--name", "talk", "--tokens", list });
    EXPECT_EQ(saved.code, 0) << saved.err;
    EXPECT_SAYS(saved.out, "saved talk: 100 tokens");
    EXPECT_SAYS(
        with({ "session", "restore", "--dir", folder, "--name", "talk" }).out,
        "restored talk: 100 tokens"
    );
    EXPECT_EQ(with({ "session", "restore", "--dir", folder, "--name", "none" }).code, 1);
    const std::vector<std::string> generate = {
        "generate", "--tokens", list + ",5", "--json", "--temperature", "0", "--max-tokens", "8"
    };
    const Outcome cold = with(generate);
    auto warm_words = generate;
    warm_words.insert(warm_words.end(), { "--session", "talk", "--set", "sessions.dir=" + folder });
    const Outcome warm = with(warm_words);
    EXPECT_EQ(warm.code, 0) << warm.err;
    EXPECT_SAYS(cold.out, "\"cached_tokens\":0");
    EXPECT_SAYS(warm.out, "\"cached_tokens\":100");
    EXPECT_EQ(warm.out.substr(0, warm.out.find(']')), cold.out.substr(0, cold.out.find(']')));
    EXPECT_SAYS(run({ "session", "list", "--dir", folder }).out, "talk");
    EXPECT_SAYS(
        run({ "session", "list", "--dir", folder, "--json" }).out,
        "{\"name\": \"talk\", \"tokens\": 108,"
    );
    EXPECT_EQ(run({ "session", "delete", "--dir", folder, "--name", "talk" }).code, 0);
    EXPECT_EQ(run({ "session", "delete", "--dir", folder, "--name", "talk" }).code, 1);
    EXPECT_EQ(run({ "session", "delete", "--dir", folder, "--name", "../x" }).code, 2);
    const Outcome none = run({ "session", "list", "--dir", folder });
    EXPECT_EQ(none.code, 0);
    EXPECT_EQ(none.out, "");
    EXPECT_SAYS(none.err, folder + ": no sessions here");
    EXPECT_EQ(run({ "session", "list" }).code, 2);
}

TEST(Limits, AFileThatMayNotGrowIsAnError)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/large.safetensors";
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small = { 8192, before.rlim_max };
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Outcome outcome = run({ "logits", "--model", demo, "--tokens", "1,2,3", "--out", path });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_SAYS(outcome.err, "File too large");
    EXPECT_FALSE(std::filesystem::exists(path));
}

} // namespace
} // namespace program
