/* weir eval as a user runs it, on the demo model: items that are generated, answered, scored and
 * drawn; perplexity by position. */
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/cli/json.h"
#include "tests/unit/cli/program.h"

namespace {

using program::Json;
using program::Outcome;
using program::run;

/* weir eval NAME on the demo model. */
Outcome eval(std::vector<std::string> words)
{
    words.insert(words.begin(), "eval");
    words.insert(words.begin() + 2, { "--model", "models/weir-demo" });
    return run(words);
}

class Eval : public program::Folder {
  protected:
    std::string read(const std::string &name) const
    {
        std::ifstream in(path(name), std::ios::binary);
        std::stringstream all;
        all << in.rdbuf();
        return all.str();
    }
    size_t lines(const std::string &name) const
    {
        const std::string text = read(name);
        return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    }
};

/* The demo model finds needles in prose; all of them but few, whatever rounding its kernels
 * have. */
TEST_F(Eval, GeneratedNeedlesAreFoundAndDrawn)
{
    const Outcome made = eval({ "generate", "--task", "niah_grid", "--length", "400,600",
                                "--samples", "11", "--out", path("grid.jsonl") });
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(lines("grid.jsonl"), 22u);
    const Outcome asked =
        eval({ "retrieval", "--items", path("grid.jsonl"), "--json", "--svg", path("grid.svg") });
    ASSERT_EQ(asked.code, 0) << asked.err;
    const Json got(asked.out);
    EXPECT_GE(got.number("accuracy"), 0.9);
    EXPECT_EQ(got.number("items"), 22);
    EXPECT_EQ(json_array_size(got.at("rows")), 22u); /* a row per depth */
    const double low = json_number_value(json_array_get(got.at("likely"), 0)),
                 high = json_number_value(json_array_get(got.at("likely"), 1));
    EXPECT_LT(low, got.number("accuracy"));
    EXPECT_LE(got.number("accuracy"), high);
    EXPECT_SAYS(read("grid.svg"), "length and depth");
    /* The window that items ask for is kept: none is longer than it says. */
    EXPECT_EQ(
        eval({ "retrieval", "--items", path("grid.jsonl"), "--context", "600", "--limit", "4" })
            .code,
        0
    );
    const Outcome text = eval({ "retrieval", "--items", path("grid.jsonl"), "--limit", "12" });
    EXPECT_SAYS(text.out, "100 %");
    EXPECT_SAYS(text.out, "(95 %: ");
}

TEST_F(Eval, TheSameSeedWritesTheSameFile)
{
    const auto make = [&](const char *out, const char *seed) {
        return eval({ "generate", "--task", "niah_multikey_2", "--length", "1024", "--samples", "3",
                      "--seed", seed, "--out", path(out) })
            .code;
    };
    ASSERT_EQ(make("a", "5"), 0);
    ASSERT_EQ(make("b", "5"), 0);
    ASSERT_EQ(make("c", "6"), 0);
    EXPECT_EQ(read("a"), read("b"));
    EXPECT_NE(read("a"), read("c"));
}

TEST_F(Eval, AllTasksAtOnceNameThoseThatDoNotFit)
{
    const std::string squad =
        R"([{"question": "Where?", "answer": "Bonn", "supporting_facts": [["X", 0]], "context": [["X", ["In Bonn."]], ["Y", ["No."]]]}])";
    const Outcome made = eval(
        { "generate", "--task", "all", "--length", "512", "--samples", "2", "--out", path("all"),
          "--questions", put("q", squad), "--text",
          put("t", "Some words make a text. They are few, but they go on and on, in a circle.") }
    );
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_SAYS(made.err, "left out: cwe does not fit 512 tokens");
    EXPECT_SAYS(made.err, "left out: qa_1 takes questions in the form of SQuAD");
    EXPECT_SAYS(read("all"), "\"task\":\"qa_2\"");
    EXPECT_SAYS(read("all"), "They are few");
    EXPECT_EQ(lines("all") % 2, 0u);
    const Outcome asked =
        eval({ "retrieval", "--items", path("all"), "--svg", path("all.svg"), "--json" });
    ASSERT_EQ(asked.code, 0) << asked.err;
    EXPECT_EQ(Json(asked.out).number("items"), static_cast<double>(lines("all")));
    EXPECT_SAYS(read("all.svg"), ">niah_single_2</text>");
}

TEST_F(Eval, GenerateRefusesWhatItCannotMake)
{
    const std::string out = path("none");
    struct {
        std::vector<std::string> words;
        int code;
        const char *says;
    } const cases[] = {
        { { "--task", "niah", "--length", "512" }, 2, "\"niah\" is not a task" },
        { { "--task", "vt", "--length", "100" }, 2, "vt does not fit 100 tokens" },
        { { "--task", "all", "--length", "16" }, 2, "no task can be made" },
        { { "--task", "vt", "--length", "15" }, 2, "--length" },
        { { "--task", "vt", "--length", "512", "--samples", "0" }, 2, "--samples" },
        { { "--task", "vt", "--length", "512", "--seed", "-1" }, 2, "--seed" },
        { { "--task", "qa_1", "--length", "512" }, 2, "--questions" },
        { { "--task", "qa_1", "--length", "512", "--questions", put("q", "{}") },
          1,
          "no question with an answer" },
        { { "--task", "niah_grid", "--length", "512", "--text", put("t", "three words only") },
          1,
          "3 words" },
        { { "--task", "niah_grid", "--length", "512", "--text", path("absent") }, 1, "absent" },
        { { "--task", "niah_grid", "--length", "512", "--text",
            put("b", "bad \xff bytes here a b c d e f g h i j.") },
          1,
          "UTF-8" },
    };
    for (const auto &c : cases) {
        std::vector<std::string> words = { "generate", "--out", out, "--samples", "2" };
        if (std::find(c.words.begin(), c.words.end(), "--samples") != c.words.end())
            words.resize(3);
        words.insert(words.end(), c.words.begin(), c.words.end());
        const Outcome o = eval(words);
        EXPECT_EQ(o.code, c.code) << o.err;
        EXPECT_SAYS(o.err, c.says);
        EXPECT_FALSE(std::filesystem::exists(out));
    }
    EXPECT_EQ(
        eval({ "generate", "--task", "niah_grid", "--length", "512", "--samples", "1", "--out",
               path("no/such/folder") })
            .code,
        1
    );
}

/* What the model answers is known: it repeats. So every rule is seen to give and to take. */
TEST_F(Eval, RepliesAreScoredByTheirRule)
{
    const auto accuracy = [&](const std::string &rest) {
        const std::string item =
            R"({"context": "The secret number of the old mill is 4821.", "questions": [["What is the secret number of the old mill?", )";
        const Outcome o = eval({ "retrieval", "--json", "--items", put("i", item + rest + "\n") });
        EXPECT_EQ(o.code, 0) << o.err;
        return Json(o.out).number("accuracy");
    };
    EXPECT_EQ(accuracy(R"("The secret number of the old mill is 4821."]]})"), 1.0);
    /* To the letter, and ends there */
    EXPECT_EQ(accuracy(R"("The secret number of the old mill is 4821"]]})"), 0.0);
    EXPECT_EQ(accuracy(R"(["4821"]]]})"), 1.0);
    EXPECT_EQ(accuracy(R"(["4821", "OLD MILL", "9999", "x"]]]})"), 0.5);
    EXPECT_EQ(accuracy(R"(["9999", "4821"]]], "score": "part"})"), 1.0);
    EXPECT_EQ(accuracy(R"(["9999", "9998"]]], "score": "part"})"), 0.0);
    EXPECT_EQ(
        accuracy(R"("4821."]], "score": "line", "prefix": "The secret number of the old mill is"})"
        ),
        1.0
    );
    EXPECT_EQ(
        accuracy(R"("4822."]], "score": "line", "prefix": "The secret number of the old mill is"})"
        ),
        0.0
    );
    /* The prefix is no answer */
    EXPECT_EQ(accuracy(R"(["number"]]], "prefix": "The secret number of the old mill is"})"), 0.0);
    EXPECT_EQ(accuracy(R"(["4821"]]], "max_tokens": 3})"), 0.0); /* cut before it comes */
    const std::string state =
        R"("{\"current_node\": 1, \"stack\": [0, 1], \"visited_nodes\": [0, 1]}")";
    EXPECT_EQ(
        accuracy(
            state +
            R"(]], "score": "state", "prefix": "Answer: {\"current_node\": 1, \"stack\": [0, 1], \"visited_nodes\": [1, 0]}"})"
        ),
        1.0
    );
    EXPECT_EQ(accuracy(state + R"(]], "score": "state"})"), 0.0);
}

TEST_F(Eval, BadItemsAreNamed)
{
    for (const auto &[line, says] : std::vector<std::pair<std::string, std::string>>{
             { R"({"context": "a", "questions": [["b", []]]})", "no answer" },
             { R"({"context": "a", "questions": [["b", [1]]]})", "is not [question, answer]" },
             { R"({"context": "a", "questions": [["b", ["c"]]], "score": "best"})",
               "not one of exact" },
             { R"({"context": "a", "questions": [["b", ["c"]]], "score": "exact"})", "takes one" },
             { R"({"context": "a", "questions": [["b", "c"]], "depth": 101})", "\"depth\"" },
             { R"({"context": "a", "questions": [["b", "c"]], "length": -1})", "\"length\"" },
             { R"({"context": "a", "questions": [["b", "c"]], "max_tokens": 0})",
               "\"max_tokens\"" },
             { R"({"context": "a", "questions": [["b", "c"]], "prefix": 3})", "\"prefix\"" },
             { R"({"context": "a\u0000b", "questions": [["b", "c"]]})", "NUL" },
             { R"({"context": "a", "questions": 3})", "needs" } }) {
        const Outcome o = eval({ "retrieval", "--items", put("i", "\n" + line + "\n") });
        EXPECT_EQ(o.code, 1) << line;
        EXPECT_SAYS(o.err, says);
        EXPECT_SAYS(o.err, "line 2");
    }
}

TEST_F(Eval, TheConstructedModelIsWrittenAndAnswers)
{
    const auto answer = [&](const char *tokens) {
        const Outcome o =
            run({ "generate", "--model", path("model"), "--context", "512", "--tokens", tokens,
                  "--max-tokens", "1", "--json", "--temperature", "0" });
        EXPECT_EQ(o.code, 0) << o.err;
        return json_integer_value(json_array_get(Json(o.out).at("tokens"), 0));
    };
    ASSERT_EQ(run({ "eval", "constructed", "--out", path("model") }).code, 0);
    EXPECT_EQ(answer("1,70,3000,5,9,9,9,9,9,70"), 3000);
    EXPECT_EQ(answer("1,70,3000,5,71,3001,9,9,9,71"), 3001);
    ASSERT_EQ(
        run({ "eval", "constructed", "--out", path("model"), "--window", "5", "--vocabulary",
              "4000" })
            .code,
        0
    );
    EXPECT_EQ(answer("1,70,3000,5,9,9,70"), 3000);
    EXPECT_NE(answer("1,70,3000,5,9,9,9,70"), 3000); /* out of the window */
    const Outcome wrong = run({ "eval", "constructed", "--out", path("model"), "--heads", "3" });
    EXPECT_EQ(wrong.code, 2);
    EXPECT_SAYS(wrong.err, "3 heads over 2 KV heads");
}

/* With layers of memory of fixed size the same weights say what they keep. */
TEST_F(Eval, GenerateAndExplainTellOfMemoryOfFixedSize)
{
    ASSERT_EQ(run({ "eval", "constructed", "--out", path("model") }).code, 0);
    std::string tokens = "1,70,3000";
    for (int i = 0; i < 400; i++) tokens += "," + std::to_string(100 + i * 37 % 900);
    const auto generate = [&](std::vector<std::string> more) {
        std::vector<std::string> words = {
            "generate", "--model",      path("model"), "--context",     "512", "--tokens",
            tokens,     "--max-tokens", "3",           "--temperature", "0",   "--json"
        };
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    };
    const std::vector<std::string> with_coda = { "--set", "model.arch=llama-coda" };
    const Outcome coda = generate(with_coda), plain = generate({});
    ASSERT_EQ(coda.code, 0) << coda.err;
    ASSERT_EQ(plain.code, 0) << plain.err;
    const Json got(coda.out);
    const json_t *const kv = got.at("kv"), *const banks = json_object_get(kv, "banks");
    const auto number = [](const json_t *of, const char *key) {
        return json_integer_value(json_object_get(of, key));
    };
    const int64_t n = 403 + static_cast<int64_t>(got.number("completion_tokens")) - 1;
    EXPECT_EQ(number(kv, "live") + number(kv, "evicted"), n) << coda.out;
    EXPECT_LE(number(kv, "live"), 256 + 64);
    EXPECT_EQ(
        number(json_object_get(banks, "counts"), "evictions"), number(banks, "layers") * (n - 256)
    );
    EXPECT_EQ(Json(plain.out).at("kv"), nullptr) << "all rows are there";
    EXPECT_SAYS(
        generate({ with_coda[0], with_coda[1], "--explain" }).out,
        "the last 256 rows, 64 older exact rows, 64 prototypes"
    );
}

/* ---- perplexity ------------------------------------------------------------------------------ */

/* What is stored in fewer bits costs what it saves, and 16 bits cost next to nothing. */
TEST_F(Eval, StatesInFewerBitsLoseMore)
{
    const auto measure = [&](std::vector<std::string> more) {
        std::vector<std::string> words = { "states", "--text",
                                           "models/weir-demo/eval/val_novel.txt", "--limit", "2" };
        words.insert(words.end(), more.begin(), more.end());
        return eval(words);
    };
    const std::vector<std::string> arch = { "--set", "model.arch=qwen35-coda" };
    const Outcome table = measure(arch);
    ASSERT_EQ(table.code, 0) << table.err;
    EXPECT_SAYS(table.out, "510 tokens, 257 to 511 of each window");
    /* The banks are full */
    const Outcome o = measure({ arch[0], arch[1], "--json", "--window", "640", "--before", "520" });
    ASSERT_EQ(o.code, 0) << o.err;
    const Json got(o.out);
    EXPECT_EQ(got.number("before"), 512) << "blocks of 64";
    EXPECT_EQ(got.number("scored"), 2 * (640 - 512 - 1));
    const json_t *const rows = got.at("rows");
    const auto value = [&](size_t form, const char *name) {
        return json_number_value(json_object_get(json_array_get(rows, form), name));
    };
    ASSERT_EQ(json_array_size(rows), 5u);
    EXPECT_EQ(value(0, "kl_mean"), 0);
    EXPECT_EQ(value(0, "same_token"), 1);
    for (const auto &[form, most] :
         { std::pair<size_t, double>(1, 1e-4), { 2, 1e-3 }, { 3, 1e-3 }, { 4, 0.1 } }) {
        EXPECT_GT(value(form, "kl_mean"), 0) << form;
        EXPECT_LE(value(form, "kl_mean"), most) << form;
        if (form < 4) EXPECT_LT(4 * value(form, "kl_mean"), value(4, "kl_mean")) << form;
        EXPECT_LT(value(form, "bytes"), value(form - 1, "bytes") + (form == 2)) << form;
    }
    EXPECT_EQ(measure({}).code, 2);
    EXPECT_SAYS(measure({}).err, "no layer of qwen35 has memory of fixed size");
    EXPECT_EQ(measure({ arch[0], arch[1], "--window", "256", "--before", "256" }).code, 2);
    EXPECT_EQ(measure({ arch[0], arch[1], "--window", "100" }).code, 2);
}

TEST_F(Eval, PositionsAddUpToTheWhole)
{
    std::string text;
    for (int i = 0; i < 400; i++) text += "One two three " + std::to_string(i) + ". ";
    const std::string file = put("t", text);
    for (const std::vector<std::string> &how :
         { std::vector<std::string>{ "--window", "200" }, { "--stream", "--context", "1000" } }) {
        std::vector<std::string> words = { "perplexity", "--text", file, "--json",
                                           "--by-position" };
        words.insert(words.end(), how.begin(), how.end());
        const Outcome o = eval(words);
        ASSERT_EQ(o.code, 0) << o.err;
        const Json got(o.out);
        double nll = 0, scored = 0, end = 0;
        size_t i;
        const json_t *place;
        json_array_foreach(got.at("positions"), i, place)
        {
            /* One after the other */
            EXPECT_EQ(json_number_value(json_object_get(place, "first")), end);
            end = json_number_value(json_object_get(place, "end"));
            scored += json_number_value(json_object_get(place, "scored"));
            nll += json_number_value(json_object_get(place, "scored")) *
                   json_number_value(json_object_get(place, "nll"));
        }
        EXPECT_EQ(end, got.number("window"));
        EXPECT_EQ(scored, got.number("scored"));
        EXPECT_NEAR(nll / scored, got.number("nll"), 1e-6);
        EXPECT_EQ(json_array_size(got.at("positions")), how[0] == "--window" ? 4u : 16u);
    }
    /* The stream is one window of the context's length, and in it later text is easier than the
     * first: it repeats itself. */
    const Json stream(
        eval({ "perplexity", "--text", file, "--json", "--stream", "--context", "1000" }).out
    ),
        window(eval({ "perplexity", "--text", file, "--json", "--window", "64" }).out);
    EXPECT_EQ(stream.number("scored"), 999);
    EXPECT_EQ(stream.at("positions"), nullptr);
    EXPECT_LT(stream.number("nll"), window.number("nll"));
    /* A text shorter than the context is one stream as it is. */
    const Json whole(
        eval({ "perplexity", "--text", put("s", "One two three."), "--json", "--stream" }).out
    );
    EXPECT_EQ(whole.number("scored"), whole.number("tokens") - 1);
    EXPECT_SAYS(eval({ "perplexity", "--text", file, "--by-position" }).out, "positions");
    const Outcome both = eval({ "perplexity", "--text", file, "--stream", "--window", "64" });
    EXPECT_EQ(both.code, 2);
    EXPECT_SAYS(both.err, "--stream takes no --window");
    EXPECT_EQ(eval({ "perplexity", "--text", put("e", ""), "--stream" }).code, 2);
}

/* ---- policies -------------------------------------------------------------------------------- */

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
