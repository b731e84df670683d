/* Normal forms against utf8proc's own (which are right but slow on long runs of marks), and the
 * repair of ill-formed text with its spans. */
#include "engine/text/normalizer.h"
#include "engine/text/repair.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

const weir_normal_form forms[] = { WEIR_NFC, WEIR_NFD, WEIR_NFKC, WEIR_NFKD };

std::string normal(weir_normal_form form, const std::string &text)
{
    weir_buffer out = {};
    EXPECT_EQ(weir_normalize(&out, form, text.data(), text.size()), WEIR_OK);
    const std::string result(out.data == nullptr ? "" : out.data, out.size);
    weir_buffer_free(&out);
    return result;
}

std::string nfc(const std::string &text) { return normal(WEIR_NFC, text); }

std::string reference(weir_normal_form form, const std::string &text)
{
    const auto bytes = reinterpret_cast<const utf8proc_uint8_t *>(text.c_str());
    utf8proc_uint8_t *const out = form == WEIR_NFC    ? utf8proc_NFC(bytes)
                                  : form == WEIR_NFD  ? utf8proc_NFD(bytes)
                                  : form == WEIR_NFKC ? utf8proc_NFKC(bytes)
                                                      : utf8proc_NFKD(bytes);
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
    EXPECT_TRUE(weir_is_normal(WEIR_NFC, "na\u00efve \u02ff", 9));
    EXPECT_FALSE(weir_is_normal(WEIR_NFC, "e\u0301", 3));
}

/* Facts of UAX #15, its figures 5 and 6, and of the standard's chapter 3. */
TEST(Forms, KnownForms)
{
    const struct {
        const char *text, *nfd, *nfkc, *nfkd;
    } cases[] = {
        { "", "", "", "" },
        { "plain", "plain", "plain", "plain" },
        { "\u00e9", "e\u0301", "\u00e9", "e\u0301" },
        { "\ufb01", "\ufb01", "fi", "fi" },
        { "2\u2075", "2\u2075", "25", "25" },
        { "\u1e9b\u0323", "\u017f\u0323\u0307", "\u1e69", "s\u0323\u0307" },
        { "\u212b", "A\u030a", "\u00c5", "A\u030a" },
        { "\uac01", "\u1100\u1161\u11a8", "\uac01", "\u1100\u1161\u11a8" },
        { "\u00a0\u00bd", "\u00a0\u00bd", " 1\u20442", " 1\u20442" },
        { "\u00a8\u0301", "\u00a8\u0301", " \u0308\u0301", " \u0308\u0301" },
        { "\uff21\uff42\u3000\u338f", "\uff21\uff42\u3000\u338f", "Ab kg", "Ab kg" },
        { "\uff76\uff9e", "\uff76\uff9e", "\u30ac", "\u30ab\u3099" },
        { "a\u0302\u0323", "a\u0323\u0302", "\u1ead", "a\u0323\u0302" },
    };
    for (const auto &c : cases) {
        EXPECT_EQ(normal(WEIR_NFD, c.text), c.nfd);
        EXPECT_EQ(normal(WEIR_NFKC, c.text), c.nfkc);
        EXPECT_EQ(normal(WEIR_NFKD, c.text), c.nfkd);
    }
    EXPECT_EQ(normal(WEIR_NFKC, "\ufdfa").size(), 33u); /* the longest decomposition */
    EXPECT_TRUE(weir_is_normal(WEIR_NFKC, "ASCII", 5));
    EXPECT_FALSE(weir_is_normal(WEIR_NFKC, "\u00a0", 2));
    EXPECT_TRUE(weir_is_normal(WEIR_NFD, "\u00a0\u00bf", 4));
    EXPECT_FALSE(weir_is_normal(WEIR_NFD, "\u00c0", 2));
}

TEST(Forms, EveryCharacterIsThatOfTheReference)
{
    for (const weir_normal_form form : forms)
        for (int32_t code = 1; code < 0x32000; code++) { /* the rest has no decompositions */
            if (code >= 0xD800 && code < 0xE000) continue;
            const std::string text = utf8(code);
            ASSERT_EQ(normal(form, text), reference(form, text)) << form << " " << code;
            if (weir_is_normal(form, text.data(), text.size()))
                ASSERT_EQ(reference(form, text), text) << form << " " << code;
        }
}

TEST(Forms, AgreeWithTheReferenceOnRandomText)
{
    static const std::pair<int32_t, int32_t> ranges[] = {
        { 0x20, 0x7E },       { 0xC0, 0x24F },    { 0x300, 0x36F },   { 0x300, 0x345 },
        { 0x5B0, 0x5EA },     { 0x900, 0x97F },   { 0xF40, 0xF84 },   { 0x1100, 0x11FF },
        { 0x1E00, 0x1FFF },   { 0x2126, 0x212B }, { 0xAC00, 0xAC20 }, { 0xF900, 0xFAD9 },
        { 0x1D15E, 0x1D172 }, { 0x20D0, 0x20F0 }, { 0xA0, 0xBF },     { 0xFB00, 0xFB4F },
        { 0xFDF0, 0xFDFC },   { 0xFF01, 0xFF9F }, { 0x3131, 0x318E }, { 0x11935, 0x11938 }
    };
    uint64_t state = 2463534242;
    const auto below = [&](uint64_t n) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (state >> 20) % n;
    };
    for (int round = 0; round < 20000; round++) {
        std::string text;
        for (uint64_t n = below(12) + 1; n > 0; n--) {
            const auto &range = ranges[below(sizeof ranges / sizeof ranges[0])];
            text += utf8(
                range.first +
                static_cast<int32_t>(below(static_cast<uint64_t>(range.second - range.first + 1)))
            );
        }
        for (const weir_normal_form form : forms) {
            const std::string out = normal(form, text);
            ASSERT_EQ(out, reference(form, text)) << form << testing::PrintToString(text);
            ASSERT_EQ(normal(form, out), out) << form << testing::PrintToString(text);
        }
    }
}

/* Past a thousand code points a text is normalised in parts, which must not show. */
TEST(Forms, LongTextsAgreeWithTheReference)
{
    const std::string units[] = { "\ufdfa",
                                  "\u1100\u1161\u11a8",
                                  "\u0915\u093c\u0301",
                                  "\u00e9\u0323",
                                  "\uac00\u11a8",
                                  "\u0f73\u0f71",
                                  "\u09c7\u09be",
                                  "\uff76\uff9e",
                                  "\U00011935\U00011930",
                                  "\u4f60",
                                  "a" };
    uint64_t state = 88172645463325252;
    for (int round = 0; round < 60; round++) {
        std::string text;
        for (int i = 0; i < 3000; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            const size_t which = (state >> 33) % (sizeof units / sizeof units[0]);
            text += units[round < 11 ? static_cast<size_t>(round) : which];
        }
        for (const weir_normal_form form : forms)
            ASSERT_EQ(normal(form, text) == reference(form, text), true) << form << " " << round;
    }
}

TEST(Forms, AMegabyteOfMarksIsOrderedInOnePass)
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

/* ---- steps ----------------------------------------------------------------------------------- */

std::string step(weir_normalizer_kind kind, const std::string &text)
{
    weir_normalizer normalizer = {};
    weir_normalizer_step one = {};
    one.kind = kind;
    EXPECT_TRUE(weir_normalizer_add(&normalizer, &one));
    weir_buffer buffers[2] = {};
    const char *out = text.data();
    size_t n = text.size();
    EXPECT_EQ(weir_normalizer_run(&normalizer, buffers, &out, &n), WEIR_OK);
    const std::string result(out, n);
    for (weir_buffer &buffer : buffers) weir_buffer_free(&buffer);
    return result;
}

TEST(Steps, NmtDropsControlsAndMakesSpaces)
{
    const auto nmt = [](const std::string &text) { return step(WEIR_NORMALIZER_NMT, text); };
    for (int32_t code = 0; code < 0x20000; code++) {
        if (code >= 0xD800 && code < 0xE000) continue;
        const bool gone = (code > 0 && code < 9) || code == 11 || (code > 13 && code < 32) ||
                          code == 127 || code == 0x8F || code == 0x9F;
        const bool space = code == 9 || code == 10 || code == 12 || code == 13 || code == 0x1680 ||
                           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
                           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
        ASSERT_EQ(nmt(utf8(code)), gone ? "" : space ? " " : utf8(code)) << code;
    }
    EXPECT_EQ(nmt("a\x01\tb\r\n\u200dc\x7f"), "a b   c");
    EXPECT_EQ(nmt(""), "");
}

TEST(Steps, LowercaseIsThatOfEachCharacter)
{
    const auto lower = [](const std::string &text) {
        return step(WEIR_NORMALIZER_LOWERCASE, text);
    };
    EXPECT_EQ(lower("AbC \u00c9\u0416"), "abc \u00e9\u0436");
    EXPECT_EQ(lower("\u039f\u0394\u039f\u03a3"), "\u03bf\u03b4\u03bf\u03c3"); /* no final sigma */
    EXPECT_EQ(lower("\u0130I"), "i\u0307i");
    EXPECT_EQ(lower("\u01c5\u1e9e\u212a\u2160\u24b6"), "\u01c6\u00dfk\u2170\u24d0");
    EXPECT_EQ(lower("\u023a\U00010400"), "\u2c65\U00010428");
    EXPECT_EQ(lower("\u00df\u4f60 e\u0301"), "\u00df\u4f60 e\u0301");
}

TEST(Steps, StripAccentsDropsMarksThatStandAlone)
{
    const auto strip = [](const std::string &text) {
        return step(WEIR_NORMALIZER_STRIP_ACCENTS, text);
    };
    EXPECT_EQ(strip("e\u0301\u0323x"), "ex");
    EXPECT_EQ(strip("\u00e9"), "\u00e9"); /* composed: NFD goes before */
    EXPECT_EQ(strip("\u0915\u093f\u0e33\u0e34"), "\u0915\u0e33"); /* Mc and Mn, not Lo */
    EXPECT_EQ(strip("a\u20dd\u0301"), "a");
    EXPECT_EQ(strip("\u0301"), "");
}

TEST(Steps, AreTakenInOrderAndAtMostSixteen)
{
    weir_normalizer normalizer = {};
    weir_normalizer_step one = {};
    one.kind = WEIR_NORMALIZER_STRIP_ACCENTS;
    EXPECT_TRUE(weir_normalizer_add(&normalizer, &one));
    one.kind = WEIR_NORMALIZER_FORM;
    one.form = WEIR_NFD;
    EXPECT_TRUE(weir_normalizer_add(&normalizer, &one));
    weir_buffer buffers[2] = {};
    const char *out = "\u00e9e\u0301";
    size_t n = 5;
    ASSERT_EQ(weir_normalizer_run(&normalizer, buffers, &out, &n), WEIR_OK);
    EXPECT_EQ(std::string(out, n), "e\u0301e");
    for (int i = normalizer.n_steps; i < WEIR_NORMALIZER_STEPS; i++)
        EXPECT_TRUE(weir_normalizer_add(&normalizer, &one));
    EXPECT_FALSE(weir_normalizer_add(&normalizer, &one));
    for (weir_buffer &buffer : buffers) weir_buffer_free(&buffer);
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
