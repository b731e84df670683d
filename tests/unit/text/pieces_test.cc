/* Encoding with pieces: against plain loops over random vocabularies, and what a text may not
 * become. */
#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/memory.h"
#include "engine/text/tokenizer_internal.h"
#include "tests/unit/text/vocabularies.h"

namespace {

const std::string space = "\xE2\x96\x81";
const std::vector<std::string> letters = { "a", "b", "c", space, "\xC3\xA9" };

std::vector<std::string> characters(const std::string &text)
{
    std::vector<std::string> out;
    for (const char c : text) {
        if ((static_cast<unsigned char>(c) & 0xC0) == 0x80)
            out.back() += c;
        else
            out.emplace_back(1, c);
    }
    return out;
}

std::string random_text(Random *random, size_t most)
{
    std::string text;
    for (size_t n = random->below(most + 1); n > 0; n--) text += random->of(letters);
    return text;
}

std::string with_spaces(const std::string &text)
{
    std::string out;
    for (const std::string &c : characters(text)) out += c == space ? " " : c;
    return out;
}

/* Some letters and random pieces; scores are often equal. */
Pieces random_pieces(Random *random, bool with_bytes)
{
    Pieces pieces = base_pieces(with_bytes);
    std::vector<std::string> seen;
    for (const std::string &letter : letters)
        if (random->below(5) > 0) {
            seen.push_back(letter);
            pieces.push_back({ letter, -20 - static_cast<float>(random->below(4)), NORMAL });
        }
    for (size_t n = 4 + random->below(20); n > 0; n--) {
        const std::string text = random->of(letters) + random->of(letters) + random_text(random, 2);
        if (std::count(seen.begin(), seen.end(), text) > 0) continue;
        seen.push_back(text);
        pieces.push_back({ text, -1 - static_cast<float>(random->below(6)), NORMAL });
    }
    return pieces;
}

std::map<std::string, int32_t> ids_by_name(const Pieces &pieces)
{
    std::map<std::string, int32_t> ids;
    for (size_t i = 0; i < pieces.size(); i++)
        if (pieces[i].type == NORMAL) ids[pieces[i].text] = static_cast<int32_t>(i);
    return ids;
}

/* The ids of parts; characters without a piece become bytes, or one <unk> for several. */
Ids ids_of(const Pieces &pieces, const std::vector<std::string> &parts, bool with_bytes)
{
    const auto ids = ids_by_name(pieces);
    Ids out;
    bool after_unknown = false;
    for (const std::string &part : parts) {
        const auto found = ids.find(part);
        if (found != ids.end())
            out.push_back(found->second);
        else if (with_bytes)
            for (const char c : part) out.push_back(3 + static_cast<unsigned char>(c));
        else if (!after_unknown)
            out.push_back(0);
        after_unknown = found == ids.end();
    }
    return out;
}

/* Joins the neighbours whose text has the highest score, the leftmost on ties, one at a time. */
Ids merge_slowly(const Pieces &pieces, const std::string &text, bool with_bytes)
{
    const auto ids = ids_by_name(pieces);
    std::vector<std::string> parts = characters(text);
    for (;;) {
        float best = -INFINITY;
        size_t at = parts.size();
        for (size_t i = 0; i + 1 < parts.size(); i++) {
            const auto found = ids.find(parts[i] + parts[i + 1]);
            if (found == ids.end()) continue;
            const float score = pieces[static_cast<size_t>(found->second)].score;
            if (score > best) best = score, at = i;
        }
        if (at == parts.size()) return ids_of(pieces, parts, with_bytes);
        parts[at] += parts[at + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
}

TEST(Pieces, MergesByScoreAreThoseOfAPlainLoop)
{
    Random random(1);
    for (int round = 0; round < 60; round++) {
        const bool with_bytes = round % 2 == 0;
        const Pieces pieces = random_pieces(&random, with_bytes);
        const auto t = open_pieces(pieces);
        for (int i = 0; i < 30; i++) {
            const std::string text = random_text(&random, 30);
            const Ids want = merge_slowly(pieces, text, with_bytes);
            ASSERT_EQ(encode(t.get(), with_spaces(text)), want) << text;
            if (with_bytes && ids_by_name(pieces).count(space) > 0) { /* else bytes stand for it */
                ASSERT_EQ(decode(t.get(), want), with_spaces(text));
            }
        }
    }
}

/* The greatest sum over all ways to cut the text, computed from the end: scores are whole numbers,
 * so that sums are exact. */
float best_sum(
    const Pieces &pieces, const std::vector<std::string> &parts, size_t begin, float unknown
)
{
    const auto ids = ids_by_name(pieces);
    std::vector<float> sums(parts.size() + 1, -INFINITY);
    sums[parts.size()] = 0;
    for (size_t i = parts.size(); i-- > begin;) {
        std::string text;
        for (size_t end = i; end < parts.size(); end++) {
            text += parts[end];
            const auto found = ids.find(text);
            if (found != ids.end())
                sums[i] = std::max(
                    sums[i], pieces[static_cast<size_t>(found->second)].score + sums[end + 1]
                );
        }
        if (ids.count(parts[i]) == 0) sums[i] = std::max(sums[i], unknown + sums[i + 1]);
    }
    return sums[begin];
}

TEST(Pieces, UnigramFindsTheGreatestSumOfScores)
{
    Random random(2);
    Options options;
    options.model = "t5";
    for (int round = 0; round < 60; round++) {
        const Pieces pieces = random_pieces(&random, false);
        const auto t = open_pieces(pieces, options);
        float least = 0;
        for (const Piece &piece : pieces)
            if (piece.type == NORMAL) least = std::min(least, piece.score);
        for (int i = 0; i < 30; i++) {
            const std::string text = random_text(&random, 30);
            const std::vector<std::string> parts = characters(text);
            float sum = 0;
            std::string joined;
            for (const int32_t id : encode(t.get(), with_spaces(text))) {
                const Piece &piece = pieces.at(static_cast<size_t>(id));
                if (id != 0) sum += piece.score;
                joined += id == 0 ? "?" : piece.text;
            }
            if (joined.find('?') != std::string::npos) continue; /* how many is not told */
            ASSERT_EQ(joined, text);
            ASSERT_EQ(sum, best_sum(pieces, parts, 0, least - 10)) << text;
        }
    }
}

/* The pieces differ by 1/8. Sums in float32 are whole quarters past 2^21. */
TEST(Pieces, SumsOfALongTextStayExact)
{
    Pieces pieces = base_pieces(false);
    pieces.push_back({ "a", -10, NORMAL });
    pieces.push_back({ "b", -10.25F, NORMAL });
    pieces.push_back({ "ab", -20.375F, NORMAL });
    Options options;
    options.model = "t5";
    const auto t = open_pieces(pieces, options);
    std::string text;
    for (int i = 0; i < 200000; i++) text += "ab";
    const Ids ids = encode(t.get(), text);
    EXPECT_EQ(ids.size(), text.size());
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 5), 0);
}

TEST(Pieces, MergesByRankAreThoseOfAPlainLoop)
{
    Random random(3);
    for (int round = 0; round < 60; round++) {
        Pieces pieces = base_pieces(true);
        for (const std::string &letter : letters) pieces.push_back({ letter, 0, NORMAL });
        Options options;
        options.model = "gemma4";
        std::vector<std::pair<std::string, std::string>> merges;
        for (int i = 0; i < 20; i++) {
            const std::string left = pieces[259 + random.below(pieces.size() - 259)].text,
                              right = pieces[259 + random.below(pieces.size() - 259)].text;
            if (ids_by_name(pieces).count(left + right) > 0 || left.size() + right.size() > 20)
                continue;
            pieces.push_back({ left + right, 0, NORMAL });
            merges.emplace_back(left, right);
            options.merges.push_back(left + " " + right);
        }
        const auto t = open_pieces(pieces, options);
        for (int i = 0; i < 30; i++) {
            const std::string text = random_text(&random, 30);
            std::vector<std::string> parts = characters(text);
            for (;;) {
                size_t best = merges.size(), at = 0;
                for (size_t k = 0; k + 1 < parts.size(); k++)
                    for (size_t rank = 0; rank < best; rank++)
                        if (merges[rank] == std::make_pair(parts[k], parts[k + 1]))
                            best = rank, at = k;
                if (best == merges.size()) break;
                parts[at] += parts[at + 1];
                parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
            }
            ASSERT_EQ(encode(t.get(), with_spaces(text)), ids_of(pieces, parts, true)) << text;
        }
    }
}

/* ---- sentencepiece's rules ------------------------------------------------------------------- */

TEST(Pieces, ASpaceStandsInFrontOfTextAndAfterControlTokens)
{
    Pieces pieces = base_pieces(true);
    for (const std::string &text : { space, std::string("a"), space + "a" })
        pieces.push_back({ text, -static_cast<float>(pieces.size()), NORMAL });
    Options options;
    options.prefix = true;
    const auto t = open_pieces(pieces, options);
    EXPECT_EQ(names_of(pieces, encode(t.get(), "a")), space + "a");
    EXPECT_EQ(names_of(pieces, encode(t.get(), "")), "");
    EXPECT_EQ(names_of(pieces, encode(t.get(), " a")), space + "|" + space + "a");
    EXPECT_EQ(names_of(pieces, encode(t.get(), "a<s>a")), space + "a|<s>|" + space + "a");
    EXPECT_EQ(decode(t.get(), encode(t.get(), " a")), " a");
}

TEST(Pieces, ExtraSpacesAreRemovedIfTheFileSaysSo)
{
    Pieces pieces = base_pieces(true);
    pieces.push_back({ space, -1, NORMAL });
    pieces.push_back({ "a", -2, NORMAL });
    Options options;
    options.remove_spaces = true;
    const auto t = open_pieces(pieces, options);
    EXPECT_EQ(names_of(pieces, encode(t.get(), "  a   a  ")), "a|" + space + "|a");
    EXPECT_EQ(names_of(pieces, encode(t.get(), "   ")), "");
    options.prefix = true;
    const auto p = open_pieces(pieces, options);
    EXPECT_EQ(names_of(pieces, encode(p.get(), "  a  ")), space + "|a");
    EXPECT_EQ(names_of(pieces, encode(p.get(), "  ")), "");
}

TEST(Pieces, UserDefinedPiecesComeBeforeMerges)
{
    Pieces pieces = base_pieces(true);
    for (const char *text : { "a", "b", "c", "ab", "abc" })
        pieces.push_back({ text, -static_cast<float>(pieces.size()), NORMAL });
    pieces.push_back({ "bc", 0, USER });
    pieces.push_back({ "bcc", 0, USER });
    for (const char *model : { "llama", "t5" }) {
        Options options;
        options.model = model;
        const auto t = open_pieces(pieces, options);
        EXPECT_EQ(names_of(pieces, encode(t.get(), "abc")), "a|bc") << model;
        EXPECT_EQ(names_of(pieces, encode(t.get(), "abccab")), "a|bcc|ab") << model;
    }
}

TEST(Pieces, UnusedPiecesAreTakenApartAgain)
{
    Pieces pieces = base_pieces(true);
    for (const char *text : { "a", "b", "c" }) pieces.push_back({ text, -9, NORMAL });
    pieces.push_back({ "ab", -1, UNUSED });
    pieces.push_back({ "abc", -2, NORMAL });
    pieces.push_back({ "abcc", -3, UNUSED });
    const auto t = open_pieces(pieces);
    EXPECT_EQ(names_of(pieces, encode(t.get(), "ab")), "a|b");
    EXPECT_EQ(names_of(pieces, encode(t.get(), "abc")), "abc");
    EXPECT_EQ(names_of(pieces, encode(t.get(), "abccab")), "abc|c|a|b");
}

TEST(Pieces, PlainTextHasNoControlTokensAndOnlyBlankUserDefinedPieces)
{
    Pieces pieces = base_pieces(true);
    for (const char *text : { "<", "u", ">", "s", "a", "\n" })
        pieces.push_back({ text, -9, NORMAL });
    pieces.push_back({ space, -9, NORMAL });
    pieces.push_back({ "<u>", 0, USER });
    pieces.push_back({ "  ", 0, USER }); /* as converters write it */
    const auto t = open_pieces(pieces);
    const std::string text = "<u><s>  a";
    EXPECT_EQ(names_of(pieces, encode(t.get(), text)), "<u>|<s>|  |a");
    EXPECT_EQ(names_of(pieces, encode(t.get(), text, false)), "<|u|>|<|s|>|  |a");
    EXPECT_EQ(names_of(pieces, encode(t.get(), text, true, { { 0, 6 } })), "<|u|>|<|s|>|  |a");
    EXPECT_EQ(names_of(pieces, encode(t.get(), text, true, { { 3, 6 } })), "<u>|<|s|>|  |a");
    EXPECT_EQ(names_of(pieces, encode(t.get(), "<u>  <u>", true, { { 3, 8 } })), "<u>|  |<|u|>");
    EXPECT_EQ(decode(t.get(), encode(t.get(), text)), text);
}

/* ---- cost ------------------------------------------------------------------------------------ */

class Job {
  public:
    explicit Job(const weir_tokenizer *tokenizer)
    {
        job_.spm = tokenizer->spm;
        job_.vocabulary = &tokenizer->vocabulary;
        job_.byte_ids = tokenizer->byte_ids;
        job_.out = &ids_;
        job_.bpe = &bpe_;
    }
    ~Job()
    {
        weir_spm_job_free(&job_);
        weir_bpe_scratch_free(&bpe_);
        weir_ids_free(&ids_);
    }
    weir_status run(const std::string &text)
    {
        return weir_spm_encode_text(&job_, text.data(), 0, text.size(), nullptr, 0);
    }
    size_t n_ids() const { return ids_.count; }
    const weir_bpe_scratch &scratch() const { return bpe_; }

  private:
    weir_spm_job job_ = {};
    weir_bpe_scratch bpe_ = {};
    weir_ids ids_ = {};
};

TEST(Pieces, AMillionEqualBytesTakeLinearlyManySteps)
{
    Pieces pieces = base_pieces(true);
    for (size_t n = 1; n <= 512; n *= 2)
        pieces.push_back({ std::string(n, 'a'), -static_cast<float>(n), NORMAL });
    const auto t = open_pieces(pieces);
    Job job(t.get());
    const std::string text(1 << 20, 'a');
    ASSERT_EQ(job.run(text), WEIR_OK);
    EXPECT_EQ(job.n_ids(), text.size() / 512);
    EXPECT_LE(job.scratch().steps, 3 * text.size());
}

TEST(Pieces, ScratchMemoryIsThatOfTheLongestWord)
{
    Pieces pieces = base_pieces(true);
    for (const std::string &text : { space, std::string("a"), space + "a" })
        pieces.push_back({ text, -static_cast<float>(pieces.size()), NORMAL });
    std::string text;
    for (int i = 0; i < 100000; i++) text += "aaa ";
    const auto cut = open_pieces(pieces);
    Job small(cut.get());
    ASSERT_EQ(small.run(text), WEIR_OK);
    EXPECT_LT(small.scratch().symbols_capacity, 200u);
    pieces.push_back({ "a" + space, -1, NORMAL }); /* reaches over the end of a word */
    const auto whole = open_pieces(pieces);
    Job large(whole.get());
    ASSERT_EQ(large.run(text), WEIR_OK);
    EXPECT_GE(large.scratch().symbols_capacity, text.size());
}

TEST(Pieces, MemoryThatTheTrackerRefusesIsAnError)
{
    Pieces pieces = base_pieces(true);
    pieces.push_back({ "a", -1, NORMAL });
    for (const char *model : { "llama", "t5" }) {
        Options options;
        options.model = model;
        const auto t = open_pieces(pieces, options);
        const std::string text(1 << 16, 'a');
        weir_memory_budget budget;
        weir_memory_budget_init(&budget, 1 << 18);
        weir_memory_tracker *const before = weir_memory_tracker_set(&budget.tracker);
        weir_ids ids = {};
        weir_error error = {};
        const weir_encode_options plain = {};
        const weir_status status =
            weir_tokenizer_encode(t.get(), &ids, text.data(), text.size(), &plain, &error);
        weir_ids_free(&ids);
        (void)weir_memory_tracker_set(before);
        EXPECT_EQ(status, WEIR_ENOMEM) << model;
        EXPECT_NE(std::string(error.text).find("memory"), std::string::npos) << error.text;
        EXPECT_EQ(budget.left, static_cast<size_t>(1) << 18) << model;
    }
}

} // namespace
