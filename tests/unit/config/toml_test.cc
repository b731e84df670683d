#include <gtest/gtest.h>

#include <string>

#include "engine/config/toml.h"

namespace {

struct Document {
    weir_toml *toml = nullptr;
    weir_error error = {};
    weir_status status;
    explicit Document(const std::string &text, const char *name = "t.toml")
    {
        status = weir_toml_parse(&toml, text.data(), text.size(), name, &error);
    }
    ~Document() { weir_toml_close(toml); }
    Document(const Document &) = delete;
    const weir_toml_node *get(const char *key) const
    {
        return weir_toml_get(weir_toml_root(toml), key);
    }
};

std::string repeat(const std::string &text, size_t n)
{
    std::string out;
    for (size_t i = 0; i < n; i++) out += text;
    return out;
}

} // namespace

TEST(Toml, TypesAndValues)
{
    Document d("i = -7\nf = 1.5\nb = true\ns = 'a\\b'\nd = 2020-01-02\na = [1, 'x']\n[t]\nx = 1\n");
    ASSERT_EQ(d.status, WEIR_OK) << d.error.text;
    int64_t i = 0;
    double f = 0;
    bool b = false;
    EXPECT_TRUE(weir_toml_int(d.get("i"), &i));
    EXPECT_EQ(i, -7);
    EXPECT_TRUE(weir_toml_float(d.get("f"), &f));
    EXPECT_EQ(f, 1.5);
    EXPECT_TRUE(weir_toml_float(d.get("i"), &f));
    EXPECT_EQ(f, -7);
    EXPECT_FALSE(weir_toml_int(d.get("f"), &i));
    EXPECT_TRUE(weir_toml_bool(d.get("b"), &b));
    EXPECT_TRUE(b);
    size_t length = 0;
    EXPECT_STREQ(weir_toml_string(d.get("s"), &length), "a\\b");
    EXPECT_EQ(length, 3u);
    EXPECT_EQ(weir_toml_string(d.get("i"), nullptr), nullptr);
    EXPECT_EQ(weir_toml_type_of(d.get("d")), WEIR_TOML_DATE);
    EXPECT_EQ(weir_toml_type_of(d.get("a")), WEIR_TOML_ARRAY);
    EXPECT_EQ(weir_toml_size(d.get("a")), 2u);
    EXPECT_EQ(weir_toml_at(d.get("a"), 2, nullptr), nullptr);
    EXPECT_EQ(weir_toml_get(d.get("a"), "x"), nullptr);
    EXPECT_EQ(weir_toml_get(d.get("t"), "y"), nullptr);
    EXPECT_EQ(weir_toml_type_of(weir_toml_get(d.get("t"), "x")), WEIR_TOML_INT);
}

TEST(Toml, MembersComeInFileOrderWithPositions)
{
    Document d(
        "zebra = 1\n[middle]\nbeta = 1\nalpha.deep = 2\n\n[apple]\n  kiwi = { b = 1, a = 2 }\n"
    );
    ASSERT_EQ(d.status, WEIR_OK) << d.error.text;
    std::string order;
    for (size_t i = 0; i < weir_toml_size(weir_toml_root(d.toml)); i++) {
        const char *key = nullptr;
        ASSERT_NE(weir_toml_at(weir_toml_root(d.toml), i, &key), nullptr);
        order += std::string(key) + " ";
    }
    EXPECT_EQ(order, "zebra middle apple ");
    const char *key = nullptr;
    weir_toml_at(d.get("middle"), 0, &key);
    EXPECT_STREQ(key, "beta");
    uint32_t line = 0, column = 0;
    weir_toml_position(weir_toml_get(d.get("apple"), "kiwi"), &line, &column);
    EXPECT_EQ(line, 7u);
    EXPECT_EQ(column, 3u);
    weir_toml_at(weir_toml_get(d.get("apple"), "kiwi"), 0, &key);
    EXPECT_STREQ(key, "b");
}

TEST(Toml, ErrorsCarryLineAndColumn)
{
    Document syntax("a = 1\nb = = 2\n");
    EXPECT_EQ(syntax.status, WEIR_ECONFIG);
    EXPECT_EQ(std::string(syntax.error.text).rfind("t.toml:2:", 0), 0u) << syntax.error.text;
    Document table("[a]\nx = 1\n[b]\n[a]\n");
    EXPECT_EQ(table.status, WEIR_ECONFIG);
    EXPECT_EQ(std::string(table.error.text).rfind("t.toml:4:", 0), 0u) << table.error.text;
    Document key("[a]\nx = 1\nx = 2\n");
    EXPECT_EQ(key.status, WEIR_ECONFIG);
    EXPECT_EQ(std::string(key.error.text).rfind("t.toml:3:", 0), 0u) << key.error.text;
}

TEST(Toml, LimitsAreCheckedBeforeParsing)
{
    EXPECT_EQ(Document(std::string(WEIR_TOML_BYTES, '\n')).status, WEIR_OK);
    EXPECT_EQ(Document(std::string(WEIR_TOML_BYTES + 1, '\n')).status, WEIR_ECONFIG);
    EXPECT_EQ(Document(repeat("a.", 31) + "a = 1").status, WEIR_OK);
    EXPECT_EQ(Document(repeat("a.", 32) + "a = 1").status, WEIR_ECONFIG);
    EXPECT_EQ(Document(repeat("a.", 400000) + "a = 1").status, WEIR_ECONFIG);
    EXPECT_EQ(Document("[" + repeat("'a' . ", 200) + "a]").status, WEIR_ECONFIG);
    EXPECT_EQ(Document("x = { " + repeat("\"a\".", 200) + "a = 1 }").status, WEIR_ECONFIG);
    EXPECT_EQ(Document("x = " + repeat("[", 31) + repeat("]", 31)).status, WEIR_OK);
    EXPECT_EQ(Document("x = " + repeat("[", 33) + repeat("]", 33)).status, WEIR_ECONFIG);
    EXPECT_EQ(Document("x = " + repeat("[", 300000)).status, WEIR_ECONFIG);
    EXPECT_EQ(Document("x = " + repeat("{a=", 200000)).status, WEIR_ECONFIG);
    EXPECT_EQ(Document("x = [" + repeat("1,", 100000) + "]").status, WEIR_ECONFIG);
    Document deep("ok = 1\nx = " + repeat("[", 40));
    EXPECT_EQ(std::string(deep.error.text).rfind("t.toml:2:37: nested", 0), 0u) << deep.error.text;
}

TEST(Toml, DotsAndBracketsInStringsAndCommentsDoNotCount)
{
    const std::string dots(500, '.'), brackets(500, '[');
    Document d(
        "a = '" + dots + "'\nb = \"\\\"" + brackets + "\" # " + dots + brackets + "\nc = '''\n'" +
        dots + "\n" + brackets + "'''\nd = \"\"\"\"" + brackets + "\"\"\"\"\"\n"
    );
    ASSERT_EQ(d.status, WEIR_OK) << d.error.text;
    size_t length = 0;
    ASSERT_NE(weir_toml_string(d.get("d"), &length), nullptr);
    EXPECT_EQ(length, 503u);
}

TEST(Toml, LettersBeyondAsciiAreNoWhiteSpace)
{
    Document d("a = \"\"\"x\\\n  \xc3\xa9 \xc9\x96\"\"\"\n\"\xc3\xa9\" = 1\n");
    ASSERT_EQ(d.status, WEIR_OK) << d.error.text;
    EXPECT_STREQ(weir_toml_string(d.get("a"), nullptr), "x\xc3\xa9 \xc9\x96");
    EXPECT_NE(d.get("\xc3\xa9"), nullptr);
    EXPECT_EQ(Document("\xc3\xa9 = 1").status, WEIR_ECONFIG);
    EXPECT_EQ(Document("a = [2020-01-02T\xc9\x96]").status, WEIR_ECONFIG);
}

TEST(Toml, HostileTextIsRefused)
{
    const char *const cases[] = { "a",
                                  "=",
                                  "[",
                                  "[a",
                                  "a = ",
                                  "a = \"",
                                  "a = '''",
                                  "a = 1 b = 2",
                                  "a = 99999999999999999999",
                                  "[[a]]\n[a]",
                                  "a = [1, 2",
                                  "a = {b = 1",
                                  "a = \"\\q\"",
                                  "a = \"\\ud800\"",
                                  "a = 0x",
                                  "a = 1__2",
                                  "a.b = 1\na = 2",
                                  "a = {}\na.b = 1",
                                  "a = 2020-13-45",
                                  "a = \xff",
                                  "\xef\xbb",
                                  "a = \"\x01\"",
                                  "]",
                                  "}",
                                  "[=",
                                  "[\x01",
                                  "[[=]]",
                                  "[a.=]",
                                  "a.= 1" };
    for (const char *text : cases) {
        Document d(text);
        EXPECT_EQ(d.status, WEIR_ECONFIG) << text;
        EXPECT_EQ(std::string(d.error.text).rfind("t.toml:", 0), 0u)
            << text << ": " << d.error.text;
    }
    EXPECT_EQ(Document(std::string("a\0b = 1", 7)).status, WEIR_ECONFIG);
    EXPECT_EQ(Document("\"a\\u0000b\" = 1").status, WEIR_ECONFIG);
    EXPECT_EQ(Document("").status, WEIR_OK);
    EXPECT_EQ(
        Document("\xef\xbb\xbf"
                 "a = 1")
            .status,
        WEIR_OK
    );
}

/* Text of a member of a table of the document; "": there is none. */
static std::string text_at(const weir_toml *toml, const char *table, const char *key)
{
    const char *const text =
        weir_toml_string(weir_toml_get(weir_toml_get(weir_toml_root(toml), table), key), nullptr);
    return text != nullptr ? text : "";
}

TEST(Toml, JoinedDocumentsTakeWhatTheyLackFromTheirBase)
{
    weir_toml *toml = nullptr;
    {
        Document base(
            "[a]\nx = 'bx'\ny = 'by'\nt = { p = 'bp', q = 'bq' }\n[b]\nz = "
            "'bz'\n[[l]]\nn = 'first'\n[c]\nw = 'bw'\n[f]\nkind = 'bk'\nm = 'bm'\n",
            "base.toml"
        );
        Document own(
            "[a]\nn = 'new'\ny = 'own'\nt = { p = 'op' }\n[[l]]\nn = 'second'\n[[l]]\nn = "
            "'third'\n[d]\nv = 'ov'\nc = 7\n[f]\nkind = 'ok'\n",
            "own.toml"
        );
        const char *const whole[] = { "f", "c", nullptr };
        ASSERT_EQ(weir_toml_join(&toml, base.toml, own.toml, whole, nullptr), WEIR_OK);
    }
    EXPECT_EQ(text_at(toml, "f", "kind"), "ok");
    EXPECT_EQ(weir_toml_size(weir_toml_get(weir_toml_root(toml), "f")), 1u) << "taken whole";
    EXPECT_EQ(text_at(toml, "a", "x"), "bx");
    EXPECT_EQ(text_at(toml, "a", "y"), "own");
    EXPECT_EQ(text_at(toml, "a", "n"), "new");
    EXPECT_EQ(text_at(toml, "b", "z"), "bz");
    EXPECT_EQ(text_at(toml, "c", "w"), "bw");
    EXPECT_EQ(text_at(toml, "d", "v"), "ov");
    const weir_toml_node *const a = weir_toml_get(weir_toml_root(toml), "a");
    EXPECT_EQ(weir_toml_size(weir_toml_get(a, "t")), 1u) << "an entry is taken whole";
    std::string order, list;
    for (size_t i = 0; i < weir_toml_size(a); i++) {
        const char *key = nullptr;
        (void)weir_toml_at(a, i, &key);
        order += std::string(key) + " ";
    }
    EXPECT_EQ(order, "x y t n ");
    const weir_toml_node *const l = weir_toml_get(weir_toml_root(toml), "l");
    for (size_t i = 0; i < weir_toml_size(l); i++)
        list +=
            std::string(weir_toml_string(weir_toml_get(weir_toml_at(l, i, nullptr), "n"), nullptr)
            ) +
            " ";
    EXPECT_EQ(list, "first second third ");
    uint32_t line = 0, column = 0;
    weir_toml_position(weir_toml_get(a, "y"), &line, &column);
    EXPECT_EQ(line, 3u);
    EXPECT_STREQ(weir_toml_name(weir_toml_get(a, "y")), "own.toml");
    EXPECT_STREQ(weir_toml_name(weir_toml_get(a, "x")), "base.toml");
    weir_toml_close(toml);
}

TEST(Toml, WhatIsOfAnotherTypeIsNotJoined)
{
    Document base("a = 1\n[b]\nx = 1\n[[c]]\nx = 1\n"),
        own("[a]\nx = 'own'\n[[b]]\ny = 1\n[c]\nx = 'own'\n");
    weir_toml *toml = nullptr;
    ASSERT_EQ(weir_toml_join(&toml, base.toml, own.toml, nullptr, nullptr), WEIR_OK);
    EXPECT_EQ(text_at(toml, "a", "x"), "own");
    EXPECT_EQ(weir_toml_type_of(weir_toml_get(weir_toml_root(toml), "b")), WEIR_TOML_ARRAY);
    EXPECT_EQ(weir_toml_size(weir_toml_get(weir_toml_root(toml), "b")), 1u);
    EXPECT_EQ(text_at(toml, "c", "x"), "own");
    weir_toml_close(toml);
}
