#include "tools/eval/score.h"

#include <gtest/gtest.h>

#include <string>

namespace {

const char three[] = "Alpha\0beta\0a b";
const size_t n_three = 3;

TEST(Score, AllIsTheShareThatIsHeld)
{
    EXPECT_DOUBLE_EQ(weir_score_all("ALPHA, BETA and A B.", three, n_three), 1.0);
    EXPECT_DOUBLE_EQ(weir_score_all("alphabet", three, n_three), 1.0 / 3);
    /* "a b" is in it: substrings count */
    EXPECT_DOUBLE_EQ(weir_score_all("alpha beta", three, n_three), 1.0);
    EXPECT_DOUBLE_EQ(weir_score_all("", three, n_three), 0.0);
    EXPECT_DOUBLE_EQ(weir_score_all("x", three, 0), 0.0);
}

TEST(Score, PartIsOneForAny)
{
    EXPECT_DOUBLE_EQ(weir_score_part("it is Beta", three, n_three), 1.0);
    EXPECT_DOUBLE_EQ(weir_score_part("it is bet a", three, n_three), 0.0);
    /* The end of the reply is no match */
    EXPECT_DOUBLE_EQ(weir_score_part("alph", three, n_three), 0.0);
}

TEST(Score, LineIsTheFirstThatHoldsAnything)
{
    EXPECT_DOUBLE_EQ(weir_score_line(" \n at 3 \t\nmore", "at 3"), 1.0);
    EXPECT_DOUBLE_EQ(weir_score_line("at 3", "at 3"), 1.0);
    EXPECT_DOUBLE_EQ(weir_score_line("at 33", "at 3"), 0.0);
    EXPECT_DOUBLE_EQ(weir_score_line("at", "at 3"), 0.0);
    EXPECT_DOUBLE_EQ(weir_score_line("no\nat 3", "at 3"), 0.0);
    EXPECT_DOUBLE_EQ(weir_score_line("", ""), 1.0);
}

std::string state(const std::string &current, const std::string &stack, const std::string &visited)
{
    return "{\"current_node\": " + current + ", \"stack\": [" + stack + "], \"visited_nodes\": [" +
           visited + "]}";
}

TEST(State, IsTheLastOneAfterTheAnswer)
{
    weir_state got;
    const std::string first = state("1", "0, 1", "0, 1"), last = state("2", "0, 2", "0, 1, 2");
    ASSERT_TRUE(
        weir_state_read(&got, ("Step: " + first + " Answer: it is " + last + " I think.").c_str())
    );
    EXPECT_EQ(got.current, 2);
    /* The last of several */
    ASSERT_TRUE(weir_state_read(&got, ("Answer: " + first + " no, " + last).c_str()));
    EXPECT_EQ(got.current, 2);
    ASSERT_TRUE(weir_state_read(&got, ("Answer: " + last + " {\"other\": 3} {broken").c_str()));
    EXPECT_EQ(got.current, 2);
    ASSERT_TRUE(weir_state_read(&got, first.c_str())); /* without the word */
    EXPECT_EQ(got.current, 1);
    ASSERT_TRUE(weir_state_read(&got, ("Answer: " + first + "\nAnswer: " + last).c_str()));
    EXPECT_EQ(got.current, 2);
    /* What stands before is no answer */
    EXPECT_FALSE(weir_state_read(&got, (first + " Answer: unknown").c_str()));
    ASSERT_TRUE(weir_state_read(&got, state("null", "", "0, 1").c_str()));
    EXPECT_EQ(got.current, -1);
    EXPECT_EQ(got.n_stack, 0);
    EXPECT_EQ(got.visited, 3u);
}

TEST(State, WhatIsNoneIsNotRead)
{
    weir_state got;
    for (const std::string &text :
         { state("64", "", ""), state("-1", "", ""), state("\"1\"", "", ""), state("1", "1.5", ""),
           state("1", "", "99"), state("1", "[1]", ""), std::string("{\"current_node\": 1}"),
           std::string("{"), std::string("}"), std::string(""),
           std::string("{\"current_node\": 1, \"stack\": 3, \"visited_nodes\": []}"),
           std::string(100000, '{'), "{\"current_node\": 1, \"stack\": [" + [] {
               std::string many = "0";
               for (int i = 0; i < 64; i++) many += ",0";
               return many;
           }() + "], \"visited_nodes\": []}" })
        EXPECT_FALSE(weir_state_read(&got, text.c_str())) << text.substr(0, 80);
}

weir_state_score compare(const std::string &got, const std::string &want)
{
    weir_state a, b;
    EXPECT_TRUE(weir_state_read(&a, got.c_str()));
    EXPECT_TRUE(weir_state_read(&b, want.c_str()));
    return weir_score_state(&a, &b);
}

TEST(State, IsRightAsAWholeAndMeasuredInParts)
{
    const std::string want = state("2", "0, 2", "0, 1, 2, 3");
    const weir_state_score same =
        compare(state("2", "0,2", "3, 2, 1, 0, 0"), want); /* visited is a set */
    EXPECT_TRUE(same.is_correct && same.current && same.depth && same.top && same.stack);
    EXPECT_DOUBLE_EQ(same.f1, 1.0);
    EXPECT_DOUBLE_EQ(same.visited_share, 1.0);

    const weir_state_score order = compare(state("2", "2, 0", "0, 1, 2, 3"), want);
    EXPECT_TRUE(order.current && order.depth);
    EXPECT_FALSE(order.is_correct || order.stack || order.top);

    const weir_state_score taller = compare(state("2", "0, 1, 2", "0, 1, 4"), want);
    EXPECT_TRUE(taller.current && taller.top);
    EXPECT_FALSE(taller.is_correct || taller.depth || taller.stack);
    EXPECT_DOUBLE_EQ(taller.precision, 2.0 / 3);
    EXPECT_DOUBLE_EQ(taller.recall, 0.5);
    EXPECT_DOUBLE_EQ(taller.f1, 4.0 / 7);
    EXPECT_DOUBLE_EQ(taller.visited_share, 2.0 / 5);

    EXPECT_FALSE(compare(state("1", "0, 2", "0, 1, 2, 3"), want).is_correct);
    EXPECT_FALSE(compare(state("2", "0, 2", "0, 2"), want).is_correct);
    const weir_state_score empty = compare(state("null", "", ""), state("null", "", ""));
    EXPECT_TRUE(empty.is_correct && empty.top);
    EXPECT_FALSE(compare(state("null", "", "0"), want).top);
}

TEST(Score, RepliesGoByTheirRule)
{
    const std::string want = state("2", "0, 2", "0, 2");
    EXPECT_DOUBLE_EQ(weir_score_reply(WEIR_EVAL_ALL, "beta", three, n_three), 1.0 / 3);
    EXPECT_DOUBLE_EQ(weir_score_reply(WEIR_EVAL_PART, "beta", three, n_three), 1.0);
    EXPECT_DOUBLE_EQ(weir_score_reply(WEIR_EVAL_LINE, "alpha\n", "alpha", 1), 1.0);
    EXPECT_DOUBLE_EQ(
        weir_score_reply(WEIR_EVAL_STATE, ("Answer: " + want).c_str(), want.c_str(), 1), 1.0
    );
    EXPECT_DOUBLE_EQ(weir_score_reply(WEIR_EVAL_STATE, "Answer: none", want.c_str(), 1), 0.0);
    const char *const names[] = { "exact", "all", "part", "line", "state" };
    static_assert(sizeof names / sizeof names[0] == WEIR_EVAL_SCORINGS);
    for (int i = 0; i < WEIR_EVAL_SCORINGS; i++) {
        weir_eval_scoring found;
        ASSERT_TRUE(weir_eval_scoring_find(&found, names[i])) << names[i];
        EXPECT_EQ(found, i);
    }
    weir_eval_scoring none;
    EXPECT_FALSE(weir_eval_scoring_find(&none, "best"));
}

} // namespace
