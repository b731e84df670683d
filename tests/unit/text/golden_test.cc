/* Every tokenizer record of tests/golden/text: ids, decoded text, pieces, streams, plain text,
 * prompts. */
#include "tests/golden/text_golden.h"

#include <gtest/gtest.h>

#include <string>

TEST(TextGolden, EveryRecordAgrees)
{
    weir_golden_counts counts;
    EXPECT_EQ(weir_golden_text("tests/golden/text", "", &counts), 0);
    EXPECT_EQ(counts.failed, 0u);
    EXPECT_EQ(counts.passed, 26u);
    EXPECT_EQ(counts.records, 24190u);
    EXPECT_EQ(counts.skipped, 1u); /* the real ranks are not stored */
}

TEST(TextGolden, NormalizersAndAddedTokensAgreeWithTokenizers)
{
    weir_golden_counts counts;
    EXPECT_EQ(weir_golden_text("tests/golden/normalizers", "", &counts), 0);
    EXPECT_EQ(counts.failed, 0u);
    EXPECT_EQ(counts.passed, 9u);
    EXPECT_EQ(counts.records, 4008u);
    EXPECT_EQ(counts.skipped, 0u);
}

TEST(TextGolden, PiecesAgreeWithSentencepieceAndTokenizers)
{
    weir_golden_counts counts;
    for (const char *name : { "spm-prefix", "spm-plain", "ranks-plain" })
        EXPECT_TRUE(weir_golden_pieces(
            (std::string("tests/golden/families/tokenizers/") + name + ".json").c_str(), "", &counts
        ));
    EXPECT_EQ(counts.failed, 0u);
    EXPECT_EQ(counts.passed, 4u);
    EXPECT_EQ(counts.records, 256u);
}

TEST(TextGolden, AFilterRunsItsCasesAlone)
{
    weir_golden_counts counts;
    EXPECT_EQ(weir_golden_text("tests/golden/text", "qwen35.stream", &counts), 0);
    EXPECT_EQ(counts.records, 260u);
    EXPECT_EQ(counts.passed, 1u);
}

TEST(TextGolden, AMissingFolderFails)
{
    weir_golden_counts counts;
    EXPECT_EQ(weir_golden_text("tests/golden/none", "", &counts), 1);
    EXPECT_EQ(counts.failed, 1u);
}

TEST(TextGolden, VocabulariesThatWereNotFetchedAreSkipped)
{
    weir_golden_counts counts;
    EXPECT_EQ(weir_golden_realvocab("tests/golden/realvocab", nullptr, "", &counts), 0);
    EXPECT_EQ(counts.skipped, 5u);
    EXPECT_EQ(counts.passed, 0u);
}
