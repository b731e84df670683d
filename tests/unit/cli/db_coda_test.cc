/* weir db on a model whose layers are CoDA: states of one size whatever the document, in fewer
 * bits, and two as one. */
#include <filesystem>
#include <fstream>

#include "tests/unit/cli/program.h"
#include "tests/unit/model/coda_text.h"

namespace {

using program::Outcome;
using program::run;

/* 150 and 300 tokens: a token is a byte, and a state is after 128 and 288 of them. */
std::string text_of(int seed, size_t n)
{
    std::string text;
    for (int i = 0; text.size() < n; i++)
        text += "Item " + std::to_string(seed) + " holds " +
                std::to_string((seed * 7919 + i * 104729) % 997) + ". ";
    return text.substr(0, n);
}

std::string field(const std::string &json, const std::string &name)
{
    size_t at = json.find("\"" + name + "\":");
    if (at == std::string::npos) return "none";
    at += name.size() + 3;
    at += json[at] == ' ';
    return json.substr(
        at, json[at] == '[' ? json.find(']', at) - at + 1 : json.find_first_of(",}", at) - at
    );
}

class DbCoda : public testing::Test {
  protected:
    void model(const std::string &pattern)
    {
        settings_.clear();
        support::write_coda_text(folder_, pattern, &settings_);
    }
    std::vector<std::string> words(
        std::vector<std::string> first, const std::vector<std::string> &more
    ) const
    {
        first.insert(
            first.end(), { "--model", folder_.path(), "--arch-dir", folder_ / "archs", "--memory",
                           "1GiB", "--context", "512", "--activations", "f32" }
        );
        first.insert(first.end(), more.begin(), more.end());
        return first;
    }
    Outcome db(const std::string &command, const std::vector<std::string> &more = {}) const
    {
        return run(words({ "db", command, "--dir", folder_ / "base" }, more));
    }
    Outcome list() const
    {
        return run({ "db", "list", "--dir", folder_ / "base", "--json", "--metadata" });
    }
    Outcome ask(const std::string &state) const
    {
        return db(
            "query", { "--question", "What is 7?", "--state", state, "--temperature", "0", "-n",
                       "12", "--json" }
        );
    }
    Outcome cold(const std::string &text) const
    {
        return run(words(
            { "generate" }, { "--temperature", "0", "-n", "12", "--json", "--prompt",
                              text + "\n\nQuestion: What is 7?\nAnswer:" }
        ));
    }
    void fill(const std::vector<std::string> &create = {}) const
    {
        Outcome o = db("create", create);
        ASSERT_EQ(o.code, 0) << o.err;
        o = db("ingest", { "--label", "A", "--prompt", text_of(1, 150) });
        ASSERT_EQ(o.code, 0) << o.err;
        o = db("ingest", { "--label", "B", "--prompt", text_of(2, 300) });
        ASSERT_EQ(o.code, 0) << o.err;
    }
    std::string file_of(const std::string &name) const
    {
        for (const auto &entry : std::filesystem::directory_iterator(folder_ / "base"))
            if (entry.path().filename().string().rfind(name + ".", 0) == 0) return entry.path();
        return "";
    }
    support::Folder folder_;
    support::Settings settings_;
};

TEST_F(DbCoda, ADocumentOfAnyLengthGoesOnAsIfItWereReadAgain)
{
    for (const char *const pattern : { "\"coda\"", "\"coda\", \"attn\"" }) {
        std::filesystem::remove_all(folder_ / "base");
        model(pattern);
        fill();
        const Outcome a = ask("a"), b = ask("b");
        ASSERT_EQ(a.code, 0) << a.err;
        EXPECT_EQ(field(a.out, "tokens"), field(cold(text_of(1, 150)).out, "tokens"));
        EXPECT_EQ(field(b.out, "tokens"), field(cold(text_of(2, 300)).out, "tokens"));
        EXPECT_EQ(field(a.out, "cached_tokens"), "128");
        EXPECT_EQ(field(b.out, "cached_tokens"), "288");
        EXPECT_EQ(field(a.out, "state_exact"), "true");
        EXPECT_EQ(
            db("ingest", { "--label", "A", "--prompt", text_of(1, 150) })
                .out.find("there already: a: 150 tokens"),
            0u
        );
        const Outcome o = db("ingest", { "--label", "short", "--prompt", text_of(3, 20) });
        EXPECT_EQ(o.code, 1);
        EXPECT_SAYS(o.err, "nothing of 20 tokens can be saved");
    }
}

TEST_F(DbCoda, StatesHaveOneSizeAndFewerBitsMakeThemSmaller)
{
    model("\"coda\"");
    std::string exact;
    size_t sizes[3] = {};
    for (const char *const form : { "exact", "int8", "int4" }) {
        const bool is_exact = std::string(form) == "exact";
        std::filesystem::remove_all(folder_ / "base");
        fill({ "--states", form });
        const size_t short_one = std::filesystem::file_size(file_of("a")),
                     long_one = std::filesystem::file_size(file_of("b"));
        EXPECT_EQ(short_one, long_one) << "tokens of both fit one block of the file";
        sizes[is_exact ? 0 : form[3] == '8' ? 1 : 2] = short_one;
        const Outcome o = ask("b");
        ASSERT_EQ(o.code, 0) << o.err;
        if (is_exact) exact = field(o.out, "tokens");
        EXPECT_EQ(field(o.out, "cached_tokens"), "288");
        EXPECT_EQ(field(o.out, "state_exact"), is_exact ? "true" : "false");
        EXPECT_EQ(field(o.out, "state_bits"), is_exact ? "0" : std::string(form + 3));
        EXPECT_EQ(field(list().out, "state_bits"), is_exact ? "0" : std::string(form + 3));
        const Outcome said = db("query", { "--question", "What is 7?", "--state", "b", "-n", "3" });
        EXPECT_EQ(said.err.find("not equal") == std::string::npos, is_exact) << said.err;
    }
    EXPECT_LT(sizes[1], sizes[0]);
    EXPECT_LE(sizes[2], sizes[1]) << "sections are multiples of 4096";
}

TEST_F(DbCoda, TwoStatesBecomeOne)
{
    model("\"coda\"");
    for (const char *const form : { "exact", "int8" }) {
        std::filesystem::remove_all(folder_ / "base");
        fill({ "--states", form });
        Outcome o =
            db("merge", { "--earlier", "a", "--later", "b", "--label", "Both", "--metadata",
                          "{\"kind\": 1}", "--json" });
        ASSERT_EQ(o.code, 0) << o.err;
        EXPECT_EQ(field(o.out, "name"), "\"both\"");
        EXPECT_EQ(field(o.out, "tokens"), "300");
        o = list();
        EXPECT_SAYS(o.out, R"("merged":{"earlier":"a","later":"b"})");
        EXPECT_SAYS(o.out, R"("kind":1)");
        const Outcome merged = ask("both"), later = ask("b");
        ASSERT_EQ(merged.code, 0) << merged.err;
        EXPECT_EQ(field(merged.out, "cached_tokens"), "288");
        EXPECT_EQ(field(merged.out, "state_merged"), "true");
        EXPECT_EQ(field(later.out, "state_merged"), "false");
        o = db("query", { "--question", text_of(1, 150), "--nearest", "3", "--json" });
        EXPECT_EQ(o.out.find("{\"state\": \"a\""), 0u) << o.out;
        EXPECT_SAYS(o.out, "\"both\"");
        o = db("query", { "--question", "What?", "--state", "both", "-n", "3" });
        EXPECT_SAYS(o.err, "is merged from two");
        o = db("merge", { "--earlier", "both", "--later", "a", "--label", "again" });
        ASSERT_EQ(o.code, 0) << o.err;
        EXPECT_SAYS(o.out, "prototypes became");
        EXPECT_EQ(ask("again").code, 0);
    }
}

TEST_F(DbCoda, WhatCannotBeIsRefusedWithTheReason)
{
    model("\"coda\"");
    fill({ "--states", "int8" });
    Outcome o = db("merge", { "--earlier", "a", "--later", "a", "--label", "x" });
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "cannot be merged with itself");
    o = db("merge", { "--earlier", "a", "--later", "c", "--label", "x" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "no state c");
    o =
        db("merge", { "--earlier", "a", "--later", "b", "--label", "x", "--metadata",
                      "{\"x\": \"" + std::string(1000, 'y') + "\"}" });
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "at most 1024");
    o = db("create", { "--states", "int2" });
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "exact, int8 or int4");
    /* A packed state is no session. */
    std::filesystem::create_directories(folder_ / "sessions");
    std::filesystem::copy_file(file_of("a"), folder_ / "sessions/a.session");
    o = run(words({ "session", "restore", "--dir", folder_ / "sessions", "--name", "a" }, {}));
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "state of a database");
    /* Damage is found before anything is merged or asked, and leaves nothing behind. */
    std::ofstream(file_of("a"), std::ios::binary | std::ios::in | std::ios::out)
            .seekp(3 * 4096 + 100)
        << "damage";
    o = ask("a");
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "checksum");
    o = db("merge", { "--earlier", "a", "--later", "b", "--label", "x" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "checksum");
    EXPECT_EQ(file_of("x"), "");
    EXPECT_EQ(list().out.find("\"x\""), std::string::npos);
    model("\"coda\", \"attn\"");
    std::filesystem::remove_all(folder_ / "base");
    fill();
    o = db("merge", { "--earlier", "a", "--later", "b", "--label", "x" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "attend to all rows of a sequence");
    EXPECT_EQ(file_of("x"), "");
    o = run({ "db", "create", "--dir", folder_ / "other", "--model", "models/weir-demo", "--memory",
              "1GiB", "--states", "int4" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "no layer of this model");
}

} // namespace
