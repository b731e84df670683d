// Stop strings: the result may not depend on how the text is cut into
// pieces.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/memory.h"
#include "engine/serve/stop.h"

namespace {

struct Stopped {
    std::string text;
    bool matched;
    bool operator==(const Stopped &other) const
    {
        return text == other.text && matched == other.matched;
    }
};

weir_stop_list make_list(const std::vector<std::string> &strings)
{
    weir_stop_list list = {};
    for (const std::string &s : strings) {
        list.text[list.count] = static_cast<char *>(weir_memory_take(s.size()));
        memcpy(list.text[list.count], s.data(), s.size());
        list.length[list.count++] = s.size();
    }
    return list;
}

Stopped run_stop(const std::vector<std::string> &strings, const std::vector<std::string> &pieces)
{
    weir_stop_list list = make_list(strings);
    weir_stop_matcher matcher = {};
    weir_buffer out = {};
    matcher.list = &list;
    for (const std::string &piece : pieces)
        EXPECT_EQ(WEIR_OK, weir_stop_push(&matcher, &out, piece.data(), piece.size()));
    EXPECT_EQ(WEIR_OK, weir_stop_finish(&matcher, &out));
    const Stopped result = { std::string(out.data != nullptr ? out.data : "", out.size),
                             matcher.matched };
    weir_buffer_free(&matcher.held);
    weir_buffer_free(&out);
    weir_stop_list_free(&list);
    return result;
}

std::vector<std::string> cut(const std::string &text, size_t n)
{
    std::vector<std::string> pieces;
    for (size_t i = 0; i < text.size(); i += n) pieces.push_back(text.substr(i, n));
    return pieces;
}

TEST(Stop, EndsBeforeTheMatchHoweverTheTextIsCut)
{
    const std::string text = "one two three four";
    for (size_t n = 1; n <= text.size(); n++) {
        EXPECT_EQ((Stopped{ "one ", true }), run_stop({ "two th" }, cut(text, n))) << n;
        EXPECT_EQ((Stopped{ text, false }), run_stop({ "two thx", "fourx" }, cut(text, n))) << n;
    }
}

TEST(Stop, TheMatchThatEndsFirstWins)
{
    for (size_t n = 1; n <= 8; n++) {
        EXPECT_EQ((Stopped{ "a", true }), run_stop({ "bcde", "bcd" }, cut("abcdefgh", n))) << n;
        EXPECT_EQ((Stopped{ "ab", true }), run_stop({ "abcdef", "c" }, cut("abcdefgh", n))) << n;
        EXPECT_EQ((Stopped{ "", true }), run_stop({ "c", "abc" }, cut("abcdefgh", n)))
            << n << ": equal ends, the earlier begin";
    }
}

TEST(Stop, OverlappingPrefixes)
{
    for (size_t n = 1; n <= 9; n++) {
        EXPECT_EQ((Stopped{ "aa", true }), run_stop({ "aab" }, cut("aaaabaaaa", n))) << n;
        EXPECT_EQ((Stopped{ "aaaaaaaa", false }), run_stop({ "ab" }, cut("aaaaaaaa", n))) << n;
    }
}

TEST(Stop, HoldsBackOnlyWhatMayStillMatch)
{
    weir_stop_list list = make_list({ "###" });
    weir_stop_matcher matcher = {};
    weir_buffer out = {};
    matcher.list = &list;
    ASSERT_EQ(WEIR_OK, weir_stop_push(&matcher, &out, "ab#", 3));
    EXPECT_STREQ("ab", out.data);
    ASSERT_EQ(WEIR_OK, weir_stop_push(&matcher, &out, "#c", 2));
    EXPECT_STREQ("ab##c", out.data);
    ASSERT_EQ(WEIR_OK, weir_stop_push(&matcher, &out, "###zzz", 6));
    EXPECT_STREQ("ab##c", out.data);
    EXPECT_TRUE(matcher.matched);
    ASSERT_EQ(WEIR_OK, weir_stop_push(&matcher, &out, "more", 4));
    EXPECT_STREQ("ab##c", out.data) << "nothing follows a match";
    weir_buffer_free(&matcher.held);
    weir_buffer_free(&out);
    weir_stop_list_free(&list);
}

TEST(Stop, BytesAreBytes)
{
    const std::string nul("\0x", 2), text("ab\0xcd", 6);
    EXPECT_EQ((Stopped{ "ab", true }), run_stop({ nul }, cut(text, 1)));
    EXPECT_EQ((Stopped{ "caf", true }), run_stop({ "\xc3\xa9" }, { "caf\xc3", "\xa9!" }));
}

} // namespace
