/* weir db as a user runs it, on the demo model: documents become states, answers from them are
 * those of a cold run, and the states stay as they are. */
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/unit/cli/program.h"

namespace {

using program::Outcome;
using program::run;

const std::string demo = "models/weir-demo";
const std::string weirs = "A weir is a low dam across a river. It raises the water upstream and "
                          "lets it flow over the top.";
const std::string bread = "To bake bread, mix flour, water, salt and yeast. Let the dough rise for "
                          "two hours, then bake it in a hot oven.";

/* What comes after a name in JSON, up to the next comma, bracket or brace. */
std::string field(const std::string &json, const std::string &name)
{
    const size_t at = json.find("\"" + name + "\":");
    if (at == std::string::npos) return "none";
    const size_t from = at + name.size() + 3;
    return json.substr(
        from,
        json[from] == '[' ? json.find(']', from) - from + 1 : json.find_first_of(",}", from) - from
    );
}

class Db : public testing::Test {
  protected:
    void SetUp() override
    {
        folder_ = testing::TempDir() + "/" +
                  testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
        dir_ = folder_ + "/base";
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    Outcome db(
        const std::string &command, std::vector<std::string> more = {},
        const std::string &model = demo
    )
    {
        std::vector<std::string> words = { "db", command, "--dir", dir_ };
        if (command != "list" && command != "delete")
            words.insert(words.end(), { "--model", model, "--memory", "1GiB", "--context", "512" });
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    }
    std::string put(const std::string &name, const std::string &text) const
    {
        std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
        return folder_ + "/" + name;
    }
    std::map<std::string, std::string> files() const
    {
        std::map<std::string, std::string> out;
        for (const auto &entry : std::filesystem::directory_iterator(dir_)) {
            std::ifstream in(entry.path(), std::ios::binary);
            out[entry.path().filename()] = std::string((std::istreambuf_iterator<char>(in)), {});
        }
        return out;
    }
    std::string folder_, dir_;
};

TEST_F(Db, AFileIsNoFolder)
{
    dir_ = put("file", "text");
    const Outcome o = db("create");
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "--dir " + dir_ + ": is no folder");
}

TEST_F(Db, AnswersFromAStateAreThoseOfAColdRun)
{
    ASSERT_EQ(db("create").code, 0);
    Outcome o = db("ingest", { "--label", "Weirs", "--prompt", weirs });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "added weirs: ");
    ASSERT_EQ(
        db("ingest",
           { "--label", "Bread", "--prompt", bread, "--metadata", "{\"kind\": \"recipe\"}" })
            .code,
        0
    );
    const auto before = files();
    EXPECT_EQ(before.size(), 4u);
    for (int i = 0; i < 2; i++) { /* a question leaves no trace in the state */
        o =
            db("query", { "--question", "How long?", "--state", "bread", "--temperature", "0", "-n",
                          "12", "--json", "--no-chat" });
        ASSERT_EQ(o.code, 0) << o.err;
        EXPECT_EQ(field(o.out, "state"), "\"bread\"");
        EXPECT_EQ(field(o.out, "similarity"), "none");
        const Outcome cold = run({ "generate", "--model", demo, "--memory", "1GiB", "--context",
                                   "512", "--temperature", "0", "-n", "12", "--json", "--prompt",
                                   bread + "\n\nQuestion: How long?\nAnswer:" });
        ASSERT_EQ(cold.code, 0) << cold.err;
        EXPECT_EQ(field(o.out, "tokens"), field(cold.out, "tokens"));
        EXPECT_GT(atoi(field(o.out, "cached_tokens").c_str()), 30);
        EXPECT_EQ(files(), before);
    }
    /* The document's own words are nearest to it. */
    o = db("query", { "--question", bread, "--nearest", "5", "--json" });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(
        o.out.find("{\"state\": \"bread\", \"similarity\": 1.000000}\n{\"state\": \"weirs\""), 0u
    ) << o.out;
    o = db("query", { "--question", weirs, "--plain", "-n", "3", "--json" });
    EXPECT_EQ(field(o.out, "state"), "\"weirs\"") << o.err;
    o = db("query", { "--question", "Where?", "-n", "3" });
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.err, "from state ");
    EXPECT_EQ(files(), before);
}

const std::string facts =
    "The pass code of the black boat is 7742. The lucky number of the north warehouse is 6497. "
    "The price of the museum is 1212.";
const std::string asked = "What is the lucky number of the north warehouse?";

/* What `weir generate` says to the document and the rendered question as one prompt. */
TEST_F(Db, QuestionsGoThroughTheChatTemplate)
{
    ASSERT_EQ(db("create").code, 0);
    ASSERT_EQ(db("ingest", { "--label", "Facts", "--prompt", facts }).code, 0);
    const std::string messages = R"([{"role": "user", "content": ")" + asked + "\"}]";
    const Outcome rendered =
        run({ "render", "--model", demo, "--messages", put("m.json", messages) });
    ASSERT_EQ(rendered.code, 0) << rendered.err;
    const Outcome cold =
        run({ "generate", "--model", demo, "--memory", "1GiB", "--context", "512", "--temperature",
              "0", "-n", "24", "--json", "--prompt", facts + rendered.out });
    ASSERT_EQ(cold.code, 0) << cold.err;
    const Outcome chat =
        db("query",
           { "--question", asked, "--state", "facts", "--temperature", "0", "-n", "24", "--json" });
    ASSERT_EQ(chat.code, 0) << chat.err;
    EXPECT_EQ(field(chat.out, "prompt_tokens"), field(cold.out, "prompt_tokens"));
    EXPECT_EQ(field(chat.out, "tokens"), field(cold.out, "tokens"));
    EXPECT_SAYS(field(chat.out, "text"), "6497");
}

TEST_F(Db, AConversationIsAskedInItsNextTurn)
{
    ASSERT_EQ(db("create").code, 0);
    const std::string turns = R"([{"role": "user", "content": ")" + facts +
                              R"("}, {"role": "assistant", "content": "Yes."})";
    ASSERT_EQ(
        db("ingest", { "--label", "Talk", "--messages", put("talk.json", turns + "]") }).code, 0
    );
    const std::string whole = turns + R"(, {"role": "user", "content": ")" + asked + "\"}]";
    const Outcome cold =
        run({ "generate", "--model", demo, "--memory", "1GiB", "--context", "512", "--temperature",
              "0", "-n", "24", "--json", "--messages", put("whole.json", whole) });
    ASSERT_EQ(cold.code, 0) << cold.err;
    const Outcome chat =
        db("query",
           { "--question", asked, "--state", "talk", "--temperature", "0", "-n", "24", "--json" });
    ASSERT_EQ(chat.code, 0) << chat.err;
    EXPECT_EQ(field(chat.out, "prompt_tokens"), field(cold.out, "prompt_tokens"));
    EXPECT_EQ(field(chat.out, "tokens"), field(cold.out, "tokens"));
}

TEST_F(Db, ManyDocumentsGoOnWhereTheyWere)
{
    ASSERT_EQ(db("create").code, 0);
    const auto line = [](const std::string &label, const std::string &text) {
        return R"({"label": ")" + label + R"(", "text": ")" + text + "\"}\n";
    };
    Outcome o = db("ingest", { "--documents", put("first", line("Weirs", weirs)) });
    ASSERT_EQ(o.code, 0) << o.err;
    o =
        db("ingest", { "--documents", put("all", line("Weirs", weirs) + "\n" + line(" ", "x") +
                                                     "no json\n" + R"({"label": 1, "text": "x"})" +
                                                     "\n" + line("long", std::string(4000, 'x')) +
                                                     line("Weirs", bread)) });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.out, "there already: weirs: ");
    EXPECT_SAYS(o.out, "added weirs-2: ");
    EXPECT_SAYS(o.err, "line 3: the label is empty");
    EXPECT_SAYS(o.err, "line 4: ");
    EXPECT_SAYS(o.err, "line 5: ");
    EXPECT_SAYS(o.err, "line 6: context_length_exceeded");
    EXPECT_SAYS(o.err, "4 of 7 lines");
    o = db("list", { "--json", "--metadata" });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(field(o.out, "name"), "\"weirs-2\"");
    EXPECT_EQ(field(o.out, "metadata"), "{");
    o = db("list", { "--limit", "1" });
    EXPECT_SAYS(o.out, "weirs-2 ");
    EXPECT_SAYS(o.err, "1 of 2 states");
    ASSERT_EQ(db("delete", { "--name", "weirs-2" }).code, 0);
    EXPECT_EQ(db("delete", { "--name", "weirs-2" }).code, 1);
    EXPECT_EQ(files().size(), 3u);
}

TEST_F(Db, WhatCannotBeIsRefusedWithTheReason)
{
    Outcome o = db("list");
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "no state database here; `weir db create` makes one");
    o = db("ingest", { "--label", "x", "--prompt", "x" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "weir db create");
    ASSERT_EQ(db("create", { "--no-vectors" }).code, 0);
    o = db("create");
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "already");
    o = db("ingest", { "--prompt", "x" });
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "--label");
    o = db("ingest", { "--label", "x", "--prompt", weirs, "--metadata", "[]" });
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "metadata");
    o = db("ingest", { "--label", "x", "--prompt", "Too short.", "--kv-format", "kivi4" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "whole pages");
    EXPECT_EQ(files().size(), 2u);
    ASSERT_EQ(db("ingest", { "--label", "x", "--prompt", weirs }).code, 0);
    o = db("query", { "--question", "x" });
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "no vectors");
    o = db("query", { "--question", "x", "--state", "y" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "no state y");
    o = db("query", { "--question", "x", "--state", "x", "--nearest", "3" });
    EXPECT_EQ(o.code, 2);
    o = db("query", { "--question", "x", "--state", "x", "--kv-format", "f32" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "kv.format");
    o = db("ingest", { "--label", "x", "--tokens", "1,2,3" }, "tests/golden/models/tq");
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "another model");
    std::ofstream(dir_ + "/x.1.session", std::ios::binary | std::ios::in | std::ios::out).seekp(300)
        << "damage";
    o = db("query", { "--question", "x", "--state", "x" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "checksum");
}

} // namespace
