// Calls as the model wrote them: which are remembered, and how they come into a prompt.
#include "engine/serve/recall.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

class Recall : public testing::Test {
  protected:
    void SetUp() override
    {
        weir_error error = {};
        ASSERT_EQ(WEIR_OK, weir_call_memory_open(&memory_, nullptr, &error)) << error.text;
    }
    void TearDown() override { weir_call_memory_close(memory_); }
    std::string get(const std::string &id) const
    {
        weir_buffer text = {};
        bool found;
        EXPECT_EQ(WEIR_OK, weir_call_memory_get(memory_, id.c_str(), &text, &found));
        const std::string out = found ? std::string(text.data, text.size) : "none";
        weir_buffer_free(&text);
        return out;
    }
    /* The prompt that prints `before`, the arguments in `form` (%s: the mark) and `after`, with the
     * user's text "before". "no": the mark cannot be replaced. */
    std::string replaced(const char *form, std::vector<weir_span> *spans)
    {
        json_t *const messages = json_pack(
            "[{s:[{s:s,s:{s:{s:i,s:i}}},{s:s,s:{s:{}}}]}]", "tool_calls", "id", "known", "function",
            "arguments", "a", 1, "b", 2, "id", "new", "function", "arguments"
        );
        weir_recall recall;
        EXPECT_EQ(WEIR_OK, weir_recall_open(&recall, memory_, messages));
        EXPECT_EQ(recall.n_calls, 1u);
        char printed[256];
        snprintf(printed, sizeof printed, form, recall.calls[0].mark);
        const std::string text = "before " + std::string(printed) + " after";
        weir_chat_output prompt = {};
        EXPECT_EQ(WEIR_OK, weir_buffer_add(&prompt.text, text.data(), text.size()));
        prompt.user = (weir_span *)weir_memory_take(3 * sizeof *prompt.user);
        prompt.user[0] = { 0, 6 };
        prompt.user[1] = { 8, 12 }; /* within the mark */
        prompt.user[2] = { text.size() - 5, text.size() };
        prompt.n_user = 3;
        bool done = false;
        EXPECT_EQ(WEIR_OK, weir_recall_replace(&recall, &prompt, &done));
        const std::string out = done ? std::string(prompt.text.data, prompt.text.size) : "no";
        if (done) spans->assign(prompt.user, prompt.user + prompt.n_user);
        weir_chat_output_free(&prompt);
        weir_recall_free(&recall);
        json_decref(messages);
        return out;
    }
    weir_call_memory *memory_ = nullptr;
};

TEST_F(Recall, TheLastCallsAreKept)
{
    for (int i = 0; i < WEIR_CALLS_KEPT + 3; i++)
        weir_call_memory_put(memory_, ("c" + std::to_string(i)).c_str(), "{}");
    EXPECT_EQ(get("c2"), "none");
    EXPECT_EQ(get("c3"), "{}");
    EXPECT_EQ(get("c" + std::to_string(WEIR_CALLS_KEPT + 2)), "{}");
    const std::string large(WEIR_CALLS_KEPT_BYTES / 2, 'x');
    weir_call_memory_put(memory_, "large", large.c_str());
    EXPECT_EQ(get("large"), large);
    weir_call_memory_put(memory_, "too large", std::string(WEIR_CALLS_KEPT_BYTES, 'x').c_str());
    EXPECT_EQ(get("too large"), "none");
    EXPECT_EQ(get("large"), large) << "nothing made room for it";
    weir_call_memory_put(memory_, "second", large.c_str());
    EXPECT_EQ(get("large"), "none");
    EXPECT_EQ(get("second"), large);
}

TEST_F(Recall, MarksAreReplacedAndSpansFollow)
{
    weir_call_memory_put(memory_, "known", R"({"b":2,  "a":1})");
    std::vector<weir_span> spans;
    for (const char *form : { R"({"%s": 0})", R"({"%s":0})" }) {
        EXPECT_EQ(replaced(form, &spans), R"(before {"b":2,  "a":1} after)");
        ASSERT_EQ(spans.size(), 3u);
        EXPECT_EQ(spans[0].end, 6u);
        EXPECT_EQ(spans[1].begin, 7u);
        EXPECT_EQ(spans[1].end, 22u);
        EXPECT_EQ(spans[2].begin, 23u);
        EXPECT_EQ(spans[2].end, 28u);
    }
    EXPECT_EQ(replaced("<p=%s>0</p>", &spans), "no");
    EXPECT_EQ(replaced(R"({"%1$s": 0}{"%1$s": 0})", &spans), "no") << "printed twice";
    EXPECT_EQ(replaced("nothing", &spans), "no");
}

TEST_F(Recall, OtherCallsStayAsTheyAre)
{
    weir_call_memory_put(memory_, "one", R"({"a": 1})");
    weir_call_memory_put(memory_, "cut", R"({"a": )");
    json_t *const messages = json_pack(
        "[{s:[{s:s,s:{s:{s:i}}},{s:s,s:{s:s}},{s:s,s:{s:{s:i}}}]}]", "tool_calls", "id", "one",
        "function", "arguments", "a", 2, "id", "one", "function", "arguments", "text", "id", "cut",
        "function", "arguments", "a", 1
    );
    ASSERT_NE(messages, nullptr);
    weir_recall recall;
    EXPECT_EQ(WEIR_OK, weir_recall_open(&recall, memory_, messages));
    EXPECT_EQ(recall.n_calls, 0u);
    weir_recall_free(&recall);
    json_decref(messages);
}

} // namespace
