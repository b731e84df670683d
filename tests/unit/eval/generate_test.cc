/* Generated tasks: lengths that are never exceeded, samples that repeat, and contexts whose right
 * answer is the given one. */
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "engine/formats/json.h"
#include "tests/unit/eval/samples.h"
#include "tools/eval/ruler.h"
#include "tools/eval/words.h"

namespace {

using samples::count;
using samples::generate;
using samples::Outcome;
using samples::Sample;

const char squad[] = R"({"version": "v2", "data": [
  {"title": "A", "paragraphs": [
    {"context": "The first paragraph of A says that gold is yellow.", "qas": [
      {"question": "What is yellow?",
       "answers": [{"text": "gold"}, {"text": "Gold"}, {"text": "gold"}]},
      {"question": "What is unknown?", "answers": [], "is_impossible": true}]},
    {"context": "The second paragraph of A is about silver.", "qas": []},
    {"context": "The third paragraph of A is about iron.", "qas": [
      {"question": "What is the third about?", "answers": [{"text": "iron"}]}]}]},
  {"title": "B", "paragraphs": [
    {"context": "B has one paragraph only.", "qas": []}, {"context": "B has another."}]}]})";

const char hotpot[] = R"([{"question": "Where was the author of X born?", "answer": "Bonn",
  "supporting_facts": [["X", 0], ["Y", 1], ["Y", 0]],
  "context": [["W", ["W is nothing."]], ["X", ["X was written by Y."]],
              ["Y", ["Y was a writer. ", "He was born in Bonn."]]]}])";

class Questions {
  public:
    explicit Questions(const std::string &text)
    {
        weir_error error = {};
        status = weir_eval_qa_open(&qa, text.data(), text.size(), "questions.json", &error);
        said = error.text;
    }
    Questions(const Questions &) = delete;
    Questions &operator=(const Questions &) = delete;
    ~Questions() { weir_eval_qa_close(&qa); }
    weir_eval_qa qa = {};
    weir_status status;
    std::string said;
};

std::vector<std::string> words_of(const std::string &text)
{
    std::istringstream in(text);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
}

TEST(Generate, LengthsAreNeverExceededAndNearlyReached)
{
    const Questions one(squad), several(hotpot);
    ASSERT_EQ(one.status, WEIR_OK) << one.said;
    ASSERT_EQ(several.status, WEIR_OK) << several.said;
    size_t n_tasks;
    const weir_eval_task *const tasks = weir_eval_tasks(&n_tasks);
    EXPECT_EQ(n_tasks, 17u);
    for (size_t t = 0; t < n_tasks; t++)
        for (int length : { 1024, 1500, 2048, 4095, 4096, 8192 }) {
            const std::string name = tasks[t].name;
            const Outcome got =
                generate(name.c_str(), length, 12, 7, name == "qa_2" ? &several.qa : &one.qa);
            ASSERT_EQ(got.status, WEIR_OK) << name << " " << length << ": " << got.text;
            ASSERT_EQ(got.samples.size(), 12u);
            for (const Sample &sample : got.samples) {
                EXPECT_LE(sample.n_tokens + sample.max_tokens, length) << name;
                if (name.rfind("niah", 0) != 0 && name != "vt") continue;
                EXPECT_GE(
                    sample.n_tokens + sample.max_tokens, length * (length == 4096 ? 70 : 85) / 100
                ) << name; /* steps of 500 words */
            }
        }
}

TEST(Generate, WhatCannotFitIsAnErrorThatSaysSo)
{
    for (const char *name : { "niah_single_1", "niah_multiquery", "vt", "cwe", "fwe", "dfs",
                              "dfs_traced", "dfs_probe", "niah_grid" }) {
        const Outcome got = generate(name, 100, 3);
        EXPECT_EQ(got.status, WEIR_EINVAL) << name;
        EXPECT_NE(got.text.find(std::string(name) + " does not fit 100 tokens"), std::string::npos)
            << got.text;
        EXPECT_TRUE(got.samples.empty());
    }
    EXPECT_EQ(generate("vt", 1, 1).status, WEIR_EINVAL);
    const Outcome bare = generate("qa_1", 4096, 1);
    EXPECT_EQ(bare.status, WEIR_EINVAL);
    EXPECT_NE(bare.text.find("give a file of questions"), std::string::npos) << bare.text;
}

/* FNV-1a of all lines: what a seed gives is the same on every machine and in every version. */
TEST(Generate, SeedsNameTheirSamplesForGood)
{
    static const struct {
        const char *task;
        uint64_t digest;
    } known[] = {
        { "niah_single_1", 0xe0676520c68e874e },
        { "niah_single_3", 0xf815a01f47954fc8 },
        { "niah_multikey_3", 0x1419c97eb2736541 },
        { "niah_multiquery", 0xcffecb7e9207ce46 },
        { "vt", 0x5bdba086618d03e6 },
        { "cwe", 0xba44a6bb407450eb },
        { "fwe", 0x5729730569a007d7 },
        { "niah_grid", 0x88c26db042109ea0 },
        { "dfs", 0xff4f6d08310ae12e },
        { "dfs_probe", 0xc29787999de025bc },
    };
    for (const auto &k : known) {
        uint64_t digest = 0xcbf29ce484222325u;
        const Outcome first = generate(k.task, 1024, 3, 42), again = generate(k.task, 1024, 3, 42),
                      other = generate(k.task, 1024, 3, 43);
        ASSERT_EQ(first.samples.size(), 3u) << first.text;
        for (size_t i = 0; i < 3; i++) {
            for (const char c : first.samples[i].line)
                digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
            EXPECT_EQ(first.samples[i].line, again.samples[i].line);
            EXPECT_NE(first.samples[i].line, other.samples[i].line);
        }
        EXPECT_NE(first.samples[0].line, first.samples[1].line) << k.task;
        EXPECT_EQ(digest, k.digest) << k.task << std::hex << " 0x" << digest;
    }
    /* A sample does not depend on how many are asked for. */
    EXPECT_EQ(
        generate("niah_single_1", 1024, 2).samples[1].line,
        generate("niah_single_1", 1024, 9).samples[1].line
    );
}

TEST(Generate, LinesAreItemsOfRetrieval)
{
    const Sample sample = generate("niah_multivalue", 1024, 1).samples[0];
    weir_error error = {};
    json_t *line = nullptr;
    ASSERT_EQ(
        weir_json_parse(&line, sample.line.data(), sample.line.size(), "line", 8, &error), WEIR_OK
    ) << error.text;
    const json_t *const question = json_array_get(json_object_get(line, "questions"), 0);
    EXPECT_STREQ(json_string_value(json_object_get(line, "task")), "niah_multivalue");
    EXPECT_STREQ(json_string_value(json_object_get(line, "score")), "all");
    EXPECT_EQ(json_string_value(json_object_get(line, "context")), sample.context);
    EXPECT_EQ(json_string_value(json_object_get(line, "prefix")), sample.prefix);
    EXPECT_EQ(json_string_value(json_array_get(question, 0)), sample.question);
    EXPECT_EQ(json_array_size(json_array_get(question, 1)), 4u);
    EXPECT_EQ(json_integer_value(json_object_get(line, "max_tokens")), 128);
    EXPECT_EQ(json_integer_value(json_object_get(line, "length")), 1024);
    EXPECT_EQ(json_object_get(line, "depth"), nullptr);
    json_decref(line);
}

/* ---- needles --------------------------------------------------------------------------------- */

TEST(Niah, TheAnswersAreInTheContextAsStated)
{
    static const struct {
        const char *task;
        size_t n_answers, n_needles; /* n_needles 0: as many as lines */
        const char *type;
    } kinds[] = {
        { "niah_single_1", 1, 1, "number" },   { "niah_single_2", 1, 1, "number" },
        { "niah_single_3", 1, 1, "uuid" },     { "niah_multikey_1", 1, 4, "number" },
        { "niah_multikey_2", 1, 0, "number" }, { "niah_multikey_3", 1, 0, "uuid" },
        { "niah_multivalue", 4, 4, "number" }, { "niah_multiquery", 4, 4, "number" },
        { "niah_grid", 1, 1, "number" },
    };
    for (const auto &kind : kinds)
        for (const Sample &sample : generate(kind.task, 1200, 20).samples) {
            const std::string begin = std::string("The secret ") + kind.type;
            const size_t lines =
                count(sample.context, "\n") - 1; /* the first two are the introduction */
            EXPECT_EQ(sample.answers.size(), kind.n_answers) << kind.task;
            EXPECT_EQ(
                std::set<std::string>(sample.answers.begin(), sample.answers.end()).size(),
                kind.n_answers
            );
            EXPECT_EQ(
                count(sample.context, begin + " of "), kind.n_needles > 0 ? kind.n_needles : lines
            ) << kind.task;
            for (const std::string &answer : sample.answers) {
                EXPECT_EQ(count(sample.context, " is " + answer + "."), 1u) << answer;
                EXPECT_EQ(answer.size(), strcmp(kind.type, "uuid") == 0 ? 36u : 7u) << answer;
                /* What the value belongs to is what is asked about. */
                const size_t end = sample.context.find(" is " + answer + "."),
                             start = sample.context.rfind(begin + " of ", end);
                const size_t key = start + begin.size() + 4;
                EXPECT_NE(
                    sample.question.find(sample.context.substr(key, end - key)), std::string::npos
                ) << sample.question;
                EXPECT_NE(
                    sample.prefix.find(sample.context.substr(key, end - key)), std::string::npos
                ) << sample.prefix;
            }
        }
}

TEST(Niah, TheWordingIsThatOfOneOrMany)
{
    const Sample one = generate("niah_single_1", 1024, 1).samples[0],
                 many = generate("niah_multiquery", 1024, 1).samples[0];
    EXPECT_EQ(one.question.rfind("What is the secret number of the ", 0), 0u) << one.question;
    EXPECT_EQ(one.prefix.substr(one.prefix.size() - 3), " is");
    EXPECT_EQ(many.question.rfind("What are the secret numbers of the ", 0), 0u) << many.question;
    EXPECT_EQ(count(many.question, ", "), 3u);
    EXPECT_EQ(count(many.question, ", and "), 1u);
    EXPECT_EQ(many.prefix.substr(many.prefix.size() - 4), " are");
}

TEST(Niah, TheGridPutsTheNeedleAtItsDepth)
{
    const Outcome got = generate("niah_grid", 4000, 22);
    ASSERT_EQ(got.samples.size(), 22u) << got.text;
    for (size_t i = 0; i < got.samples.size(); i++) {
        const Sample &sample = got.samples[i];
        EXPECT_EQ(sample.depth, static_cast<int>(i % 11) * 10);
        double before = 0, all = 0; /* sentences */
        bool seen = false;
        for (const std::string &word :
             words_of(sample.context.substr(sample.context.find("\n\n") + 2))) {
            const size_t last = word.find_last_not_of("\"')]");
            const bool ends = last != std::string::npos && strchr(".!?", word[last]) != nullptr;
            seen = seen || word == sample.answers[0] + ".";
            if (!ends) continue;
            all++;
            before += !seen;
        }
        EXPECT_NEAR(before / all, sample.depth / 100.0, 0.02) << i;
    }
}

/* ---- variables ------------------------------------------------------------------------------- */

TEST(VariableTracking, ExactlyTheAnswersHaveTheValue)
{
    for (const Sample &sample : generate("vt", 2000, 20).samples) {
        std::map<std::string, std::string> value;
        const std::string text = sample.context.substr(sample.context.find("Now another text."));
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            const std::vector<std::string> words = words_of(line);
            if (words.size() < 4 || words[0] != "VAR") continue;
            value[words[1]] = words[3] == "VAR" ? value.at(words[4]) : words[3];
        }
        EXPECT_EQ(value.size(), 5u);
        ASSERT_EQ(sample.answers.size(), 5u);
        for (const std::string &name : sample.answers)
            EXPECT_NE(sample.question.find(value.at(name)), std::string::npos) << name;
        EXPECT_EQ(count(sample.context, "VAR "), 2u * (5 + 4)); /* the example's, too */
        EXPECT_EQ(
            sample.context.find(value.begin()->second), sample.context.rfind(value.begin()->second)
        );
    }
}

/* ---- words ----------------------------------------------------------------------------------- */

TEST(CommonWords, AreThoseThatComeMost)
{
    for (int length : { 3000, 8000 }) {
        const unsigned often = length < 4096 ? 6 : 30, seldom = length < 4096 ? 1 : 3;
        for (const Sample &sample : generate("cwe", length, 8).samples) {
            std::map<std::string, unsigned> times;
            const auto words =
                words_of(sample.context.substr(sample.context.find("Now another list.") + 17));
            for (size_t i = 0; i < words.size(); i += 2) {
                EXPECT_EQ(words[i], std::to_string(i / 2 + 1) + ".");
                times[words[i + 1]]++;
            }
            ASSERT_EQ(sample.answers.size(), 10u);
            for (const std::string &answer : sample.answers) EXPECT_EQ(times.at(answer), often);
            for (const auto &[word, n] : times)
                EXPECT_EQ(
                    n, std::count(sample.answers.begin(), sample.answers.end(), word) > 0 ? often
                                                                                          : seldom
                ) << word;
        }
    }
}

TEST(FrequentWords, CountsFallWithTheSquareOfTheRank)
{
    const uint32_t want[] = { 364, 91, 40, 22, 14, 10, 7, 5, 4, 3 };
    for (uint32_t i = 0; i < 10; i++) EXPECT_EQ(weir_fwe_count(600, i + 1), want[i]);
}

TEST(FrequentWords, TheThreeAfterTheDotsAreTheAnswer)
{
    for (int length : { 256, 300, 350, 400, 1024, 5000 })
        for (const Sample &sample : generate("fwe", length, 10).samples) {
            std::map<std::string, unsigned> times;
            std::vector<std::pair<unsigned, std::string>> ranks;
            for (const std::string &word :
                 words_of(sample.context.substr(sample.context.find("\n\n"))))
                times[word]++;
            for (const auto &[word, n] : times) ranks.emplace_back(n, word);
            std::sort(ranks.rbegin(), ranks.rend());
            ASSERT_GE(ranks.size(), 4u);
            EXPECT_EQ(ranks[0].second, "...");
            ASSERT_EQ(sample.answers.size(), 3u);
            for (size_t i = 0; i < 3; i++)
                EXPECT_EQ(times.at(sample.answers[i]), ranks[i + 1].first);
            if (ranks.size() > 4) {
                EXPECT_GT(ranks[3].first, ranks[4].first) << length;
            }
        }
}

TEST(Words, AreManyAndAllDifferent)
{
    std::set<std::string> all;
    for (size_t i = 0; i < weir_eval_words(); i++) all.insert(weir_eval_word(i));
    EXPECT_GE(all.size(), 2000u);
    EXPECT_EQ(all.size(), weir_eval_words());
    EXPECT_EQ(all.count(""), 0u);
}

/* ---- documents ------------------------------------------------------------------------------- */

TEST(Documents, SquadGivesTheParagraphAmongOthersOfItsArticleFirst)
{
    const Questions questions(squad);
    ASSERT_EQ(questions.status, WEIR_OK) << questions.said;
    EXPECT_EQ(questions.qa.n_questions, 2u);
    const Outcome whole = generate("qa_1", 1024, 4, 1, &questions.qa);
    ASSERT_EQ(whole.samples.size(), 4u) << whole.text;
    EXPECT_EQ(whole.samples[0].answers, (std::vector<std::string>{ "gold", "Gold" }));
    EXPECT_EQ(whole.samples[1].answers, (std::vector<std::string>{ "iron" }));
    EXPECT_EQ(whole.samples[2].question, whole.samples[0].question); /* in turn */
    for (const Sample &sample : whole.samples) EXPECT_EQ(count(sample.context, "Document "), 5u);
    const int room = whole.samples[0].n_tokens + 32 - 1; /* one document less */
    const Outcome less = generate("qa_1", room, 1, 1, &questions.qa);
    ASSERT_EQ(less.samples.size(), 1u) << less.text;
    EXPECT_EQ(count(less.samples[0].context, "Document "), 4u);
    EXPECT_NE(less.samples[0].context.find("gold is yellow"), std::string::npos);
    EXPECT_EQ(count(less.samples[0].context, "paragraph of A"), 3u);
}

TEST(Documents, HotpotKeepsAllThatTheAnswerNeeds)
{
    const Questions questions(hotpot);
    ASSERT_EQ(questions.status, WEIR_OK) << questions.said;
    const Outcome got = generate("qa_2", 1024, 3, 1, &questions.qa);
    ASSERT_EQ(got.samples.size(), 3u) << got.text;
    for (const Sample &sample : got.samples) {
        EXPECT_NE(sample.context.find("X\nX was written by Y."), std::string::npos);
        EXPECT_NE(
            sample.context.find("Y\nY was a writer. He was born in Bonn."), std::string::npos
        );
        EXPECT_EQ(sample.answers, (std::vector<std::string>{ "Bonn" }));
    }
    const Outcome wrong = generate("qa_1", 1024, 1, 1, &questions.qa);
    EXPECT_EQ(wrong.status, WEIR_EINVAL);
    EXPECT_NE(wrong.text.find("SQuAD"), std::string::npos) << wrong.text;
}

TEST(Documents, BadFilesAreRefused)
{
    for (const char *text :
         { "", "3", "{}", "[]", R"({"data": []})", R"({"data": [{"paragraphs": [{"qas": []}]}]})",
           R"([{"question": "x"}])", R"([{"question": "x", "answer": "y", "context": [[1, 2]]}])",
           R"({"data": [{"paragraphs": 3}, 4, null]})",
           R"([{"question": "x", "answer": "y", "context": [["T", ["s"]]],
                "supporting_facts": [["other", 0]]}])" }) {
        const Questions bad(text);
        EXPECT_EQ(bad.status, WEIR_EFORMAT) << text;
        EXPECT_NE(bad.said.find("questions.json"), std::string::npos) << bad.said;
    }
}

/* ---- essays ---------------------------------------------------------------------------------- */

TEST(Essay, WordsGoInACircleAndNeedlesBetweenSentences)
{
    weir_eval_essay essay = {};
    weir_error error = {};
    const std::string text = "One two  three.\nFour \"five!\" Six\tseven? Eight nine ten.";
    ASSERT_EQ(weir_eval_essay_open(&essay, text.data(), text.size(), "text", &error), WEIR_OK)
        << error.text;
    EXPECT_EQ(essay.n_words, 10u);
    weir_buffer out = {};
    const char *const needles[] = { "NEEDLE", "PIN" };
    const uint32_t depths[] = { 50, 100 };
    ASSERT_EQ(weir_eval_essay_print(&out, &essay, 0, 13, needles, depths, 2), WEIR_OK);
    EXPECT_STREQ(
        out.data,
        "One two three. Four \"five!\" NEEDLE Six seven? Eight nine ten. One two three. PIN"
    );
    weir_buffer_free(&out);
    weir_eval_essay_close(&essay);
    EXPECT_EQ(weir_eval_essay_open(&essay, "too short", 9, "text", &error), WEIR_EFORMAT);
    EXPECT_EQ(
        weir_eval_essay_open(&essay, "a b c d e f g h i j \xff", 21, "text", &error), WEIR_EFORMAT
    );
    EXPECT_NE(std::string(error.text).find("UTF-8"), std::string::npos) << error.text;
    const std::string zeros(40, '\0');
    EXPECT_EQ(
        weir_eval_essay_open(&essay, zeros.data(), zeros.size(), "text", &error), WEIR_EFORMAT
    );
}

} // namespace
