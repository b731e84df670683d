// The reasoning split: the result may not depend on how the text is cut into pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/toolcalls/reasoning.h"

namespace {

struct Split {
    std::string content, reasoning;
    bool operator==(const Split &other) const
    {
        return content == other.content && reasoning == other.reasoning;
    }
};

Split split(weir_reasoning_start start, const std::string &text, size_t n)
{
    weir_reasoning_splitter splitter = {};
    weir_buffer content = {}, reasoning = {};
    splitter.at = start;
    for (size_t i = 0; i < text.size(); i += n)
        EXPECT_EQ(
            WEIR_OK,
            weir_reasoning_push(
                &splitter, &content, &reasoning, text.data() + i, std::min(n, text.size() - i)
            )
        );
    EXPECT_EQ(WEIR_OK, weir_reasoning_finish(&splitter, &content, &reasoning));
    const Split result = { std::string(content.data != nullptr ? content.data : ""),
                           std::string(reasoning.data != nullptr ? reasoning.data : "") };
    weir_buffer_free(&splitter.held);
    weir_buffer_free(&content);
    weir_buffer_free(&reasoning);
    return result;
}

Split split(weir_reasoning_state state, const std::string &text, size_t n)
{
    return split(weir_reasoning_start{ state, 0 }, text, n);
}

TEST(Reasoning, SplitsHoweverTheTextIsCut)
{
    const std::string text = "\n<think>\nhm, a < b</thin\n</think>\n\nSo: <think> is text.";
    for (size_t n = 1; n <= text.size(); n++)
        EXPECT_EQ(
            (Split{ "So: <think> is text.", "hm, a < b</thin" }), split(WEIR_THINK_MAYBE, text, n)
        ) << n;
}

TEST(Reasoning, HasTheTagsOfItsFamily)
{
    for (size_t n = 1; n <= 12; n++) {
        EXPECT_EQ(
            (Split{ "b", "a</think>" }), split(WEIR_THINK_MAYBE, "[THINK]a</think>[/THINK]b", n)
        );
        EXPECT_EQ((Split{ "b", "a" }), split(WEIR_THINK_MAYBE, "<seed:think>a</seed:think>b", n));
        EXPECT_EQ(
            (Split{ "b", "a" }), split(WEIR_THINK_MAYBE, "<|channel>thought\na\n<channel|>b", n)
        );
    }
}

TEST(Reasoning, BlockOpenedByTheTemplate)
{
    for (size_t n = 1; n <= 20; n++) {
        EXPECT_EQ((Split{ "b", "a" }), split(WEIR_THINK_INSIDE, "a</think>\n\nb", n)) << n;
        EXPECT_EQ(
            (Split{ "", "never closed</th" }), split(WEIR_THINK_INSIDE, "never closed</th", n)
        ) << n;
        EXPECT_EQ((Split{ "b", "" }), split(WEIR_THINK_INSIDE, "\n</think>\n\nb", n)) << n;
    }
}

TEST(Reasoning, ContentStaysAsItIs)
{
    for (size_t n = 1; n <= 12; n++) {
        EXPECT_EQ((Split{ " <thin air>", "" }), split(WEIR_THINK_MAYBE, " <thin air>", n)) << n;
        EXPECT_EQ((Split{ "  \n", "" }), split(WEIR_THINK_MAYBE, "  \n", n)) << n;
        EXPECT_EQ(
            (Split{ "<think>x</think>", "" }), split(WEIR_THINK_CONTENT, "<think>x</think>", n)
        ) << n;
    }
}

/* White space within reasoning is kept, a long run of it passed on. */
TEST(Reasoning, WhiteSpaceInside)
{
    const std::string run(1000, ' ');
    for (size_t n : { 1u, 7u, 5000u }) {
        EXPECT_EQ((Split{ "c", "a \n b" }), split(WEIR_THINK_INSIDE, "a \n b \n</think>c", n));
        EXPECT_EQ(
            (Split{ "c", "a" + run + "b" }), split(WEIR_THINK_INSIDE, "a" + run + "b</think>c", n)
        );
    }
}

TEST(Reasoning, StartFollowsFromThePrompt)
{
    const struct {
        const char *prompt;
        weir_reasoning_state reasons, plain;
        int tags;
    } cases[] = {
        { "<|im_start|>assistant\n<think>\n\n</think>\n\n", WEIR_THINK_CONTENT, WEIR_THINK_CONTENT,
          0 },
        { "<|im_start|>assistant\n<think>\n", WEIR_THINK_INSIDE, WEIR_THINK_INSIDE, 0 },
        { "[THINK]", WEIR_THINK_INSIDE, WEIR_THINK_INSIDE, 1 },
        { "<|channel>thought\n", WEIR_THINK_INSIDE, WEIR_THINK_INSIDE, 3 },
        { "<|channel>thought\n<channel|>", WEIR_THINK_CONTENT, WEIR_THINK_CONTENT, 3 },
        { "<|assistant|></think>", WEIR_THINK_CONTENT, WEIR_THINK_CONTENT, 0 },
        { "<|im_start|>assistant\n", WEIR_THINK_MAYBE, WEIR_THINK_CONTENT, 0 },
        { "", WEIR_THINK_MAYBE, WEIR_THINK_CONTENT, 0 },
    };
    for (const auto &c : cases)
        for (const bool reasons : { false, true }) {
            const weir_reasoning_start start =
                weir_reasoning_after(c.prompt, std::string(c.prompt).size(), reasons);
            EXPECT_EQ(reasons ? c.reasons : c.plain, start.state) << c.prompt;
            EXPECT_EQ(c.tags, start.tags) << c.prompt;
        }
}

} // namespace
