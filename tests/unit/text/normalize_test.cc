/* NFC against utf8proc's own (which is right but slow on long runs of marks), and the repair of
 * ill-formed text with its spans. */
#include "engine/text/normalize.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/text/utf8.h"

namespace {

std::string nfc(const std::string &text)
{
    weir_buffer out = {};
    EXPECT_EQ(weir_nfc(&out, text.data(), text.size()), WEIR_OK);
    const std::string result(out.data == nullptr ? "" : out.data, out.size);
    weir_buffer_free(&out);
    return result;
}

std::string reference(const std::string &text)
{
    utf8proc_uint8_t *const out =
        utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t *>(text.c_str()));
    const std::string result(reinterpret_cast<const char *>(out));
    free(out);
    return result;
}

std::string utf8(int32_t code)
{
    utf8proc_uint8_t bytes[4];
    return std::string(
        reinterpret_cast<const char *>(bytes),
        static_cast<size_t>(utf8proc_encode_char(code, bytes))
    );
}

TEST(Nfc, KnownForms)
{
    EXPECT_EQ(nfc(""), "");
    EXPECT_EQ(nfc("plain"), "plain");
    EXPECT_EQ(nfc("e\u0301"), "\u00e9");
    EXPECT_EQ(nfc("xe\u0301 \u0301y"), "x\u00e9 \u0301y");
    EXPECT_EQ(nfc("\u0301"), "\u0301");
    EXPECT_EQ(nfc("a\u0302\u0323"), "\u1ead");
    EXPECT_EQ(nfc("\u212b\u2126"), "\u00c5\u03a9");
    EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");
    EXPECT_EQ(nfc("\u0958"), "\u0915\u093c"); /* excluded from composition */
    EXPECT_EQ(nfc("<\u0338>\u0338"), "\u226e\u226f");
    EXPECT_TRUE(weir_nfc_is_trivial("na\u00efve \u02ff", 9));
    EXPECT_FALSE(weir_nfc_is_trivial("e\u0301", 3));
}

TEST(Nfc, AgreesWithTheReferenceOnRandomText)
{
    static const std::pair<int32_t, int32_t> ranges[] = {
        { 0x20, 0x7E },       { 0xC0, 0x24F },    { 0x300, 0x36F },   { 0x300, 0x345 },
        { 0x5B0, 0x5EA },     { 0x900, 0x97F },   { 0xF40, 0xF84 },   { 0x1100, 0x11FF },
        { 0x1E00, 0x1FFF },   { 0x2126, 0x212B }, { 0xAC00, 0xAC20 }, { 0xF900, 0xFAD9 },
        { 0x1D15E, 0x1D172 }, { 0x20D0, 0x20F0 }
    };
    uint64_t state = 2463534242;
    const auto below = [&](uint64_t n) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (state >> 20) % n;
    };
    for (int round = 0; round < 60000; round++) {
        std::string text;
        for (uint64_t n = below(12) + 1; n > 0; n--) {
            const auto &range = ranges[below(sizeof ranges / sizeof ranges[0])];
            text += utf8(
                range.first +
                static_cast<int32_t>(below(static_cast<uint64_t>(range.second - range.first + 1)))
            );
        }
        ASSERT_EQ(nfc(text), reference(text)) << testing::PrintToString(text);
        ASSERT_EQ(nfc(nfc(text)), nfc(text)) << testing::PrintToString(text);
    }
}

TEST(Nfc, AMegabyteOfMarksIsOrderedInOnePass)
{
    std::string text = "q", want = "q";
    const int n = 250000; /* 300 and 323 alternate: swapping neighbours would need 3e10 swaps */
    for (int i = 0; i < n; i++) text += "\u0300\u0323";
    for (int i = 0; i < n; i++) want += "\u0323";
    for (int i = 0; i < n; i++) want += "\u0300";
    EXPECT_EQ(nfc(text) == want, true);
    std::string tibetan = "q",
                ordered = "q"; /* U+0F73 becomes U+0F71 U+0F72, classes 129 and 130 */
    for (int i = 0; i < n; i++) tibetan += "\u0f73";
    for (int i = 0; i < n; i++) ordered += "\u0f71";
    for (int i = 0; i < n; i++) ordered += "\u0f72";
    EXPECT_EQ(nfc(tibetan) == ordered, true);
}

TEST(Utf8, RepairMovesSpansToWholeParts)
{
    const std::string text = "a\xFFz\xE2\x82y\xC3\xA9"; /* a ? z ?? y é */
    std::vector<weir_span> spans = { { 0, 1 }, { 1, 2 }, { 2, 4 }, { 4, 5 }, { 6, 8 }, { 8, 8 } };
    weir_buffer out = {};
    ASSERT_EQ(
        weir_utf8_repair(&out, text.data(), text.size(), spans.data(), spans.size()), WEIR_OK
    );
    EXPECT_EQ(std::string(out.data, out.size), "a\uFFFDz\uFFFDy\u00e9");
    const std::vector<weir_span> want = { { 0, 1 }, { 1, 4 },  { 4, 8 },
                                          { 5, 8 }, { 9, 11 }, { 11, 11 } };
    for (size_t i = 0; i < want.size(); i++) {
        EXPECT_EQ(spans[i].begin, want[i].begin) << i;
        EXPECT_EQ(spans[i].end, want[i].end) << i;
    }
    weir_buffer_free(&out);
}

} // namespace
