/* tests/unit/text/chat_golden_test.cc - the stored chat templates, every rendering byte for byte;
 * the others need fetch.py. */
#include <gtest/gtest.h>

#include <string>

#include "tests/golden/chat_golden.h"

TEST(ChatGolden, StoredTemplates)
{
    weir_golden_counts counts = {};
    EXPECT_EQ(weir_golden_chat("tests/golden/text", nullptr, "", &counts), 0);
    EXPECT_EQ(counts.failed, 0u);
    EXPECT_EQ(counts.skipped, 3u); /* Llama 3.1, Llama 3.2 and Kimi K2 may not be stored */
    EXPECT_EQ(counts.passed, 15u);
    EXPECT_EQ(counts.records, 1690u);
}

TEST(ChatGolden, AnAbsentFolderFails)
{
    const std::string absent = testing::TempDir() + "/absent";
    weir_golden_counts counts = {};
    EXPECT_EQ(weir_golden_chat(absent.c_str(), nullptr, "", &counts), 1);
    EXPECT_EQ(counts.failed, 1u);
}
