// What is sent and when: the same for a seed, and distributed as asked.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tools/load/due.h"
#include "tools/load/workload.h"

namespace {

weir_length length(const char *text)
{
    weir_length out = {};
    weir_error error = {};
    EXPECT_EQ(weir_length_parse(&out, text, "prompt", &error), WEIR_OK) << error.text;
    return out;
}

weir_workload_options options(int64_t n_requests)
{
    weir_workload_options o = {};
    o.n_requests = n_requests;
    o.seed = 7;
    o.prompt = length("100");
    o.answer = length("10");
    o.n_groups = o.n_turns = 1;
    return o;
}

struct Workload {
    weir_workload w = {};
    weir_error error = {};
    weir_status status;
    explicit Workload(const weir_workload_options &o) : status(weir_workload_make(&w, &o, &error))
    {
    }
    Workload(const Workload &) = delete;
    Workload &operator=(const Workload &) = delete;
    ~Workload() { weir_workload_free(&w); }
};

TEST(Lengths, AreDrawnAsAsked)
{
    const struct {
        const char *text;
        double mean, deviation, least, most;
    } rows[] = {
        { "512", 512, 0, 512, 512 },
        { "100-200", 150, 29.2, 100, 200 },
        { "normal:1000,50", 1000, 50, 500, 1500 },
        { "exponential:200", 200, 200, 1, 1 << 20 },
    };
    for (const auto &row : rows) {
        const weir_length l = length(row.text);
        double sum = 0, squares = 0;
        const int n = 20000;
        for (int i = 0; i < n; i++) {
            const double value = weir_length_draw(&l, 3, 1, (uint64_t)i);
            ASSERT_GE(value, row.least) << row.text;
            ASSERT_LE(value, row.most) << row.text;
            sum += value, squares += value * value;
        }
        const double mean = sum / n, deviation = std::sqrt(std::fmax(0, squares / n - mean * mean));
        EXPECT_NEAR(mean, row.mean, 0.02 * row.mean) << row.text;
        EXPECT_NEAR(deviation, row.deviation, 0.03 * row.deviation + 1e-3) << row.text;
    }
    weir_length out;
    weir_error error = {};
    for (const char *const bad :
         { "", "0", "-5", "5-", "9-8", "5-1048577", "1048577", "1.5", "normal:5", "normal:5,",
           "normal:0,1", "exponential:", "uniform:1,2", "5 ", "99999999999999999999" })
        EXPECT_EQ(weir_length_parse(&out, bad, "prompt", &error), WEIR_EINVAL) << bad;
    EXPECT_NE(std::string(error.text).find("--prompt"), std::string::npos);
}

TEST(Arrivals, AreAPoissonProcess)
{
    weir_workload_options o = options(20000);
    o.rate = 50;
    const Workload a(o), again(o);
    ASSERT_EQ(a.status, WEIR_OK) << a.error.text;
    ASSERT_EQ(a.w.n_conversations, 20000);
    double squares = 0, sum = 0;
    int64_t before = 0;
    int within = 0;
    for (int i = 0; i < 20000; i++) {
        const int64_t at = a.w.conversations[i].arrival_ns;
        const double gap = (double)(at - before) * 1e-9;
        ASSERT_GE(gap, 0);
        EXPECT_EQ(at, again.w.conversations[i].arrival_ns);
        sum += gap, squares += gap * gap;
        within += gap < 0.02;
        before = at;
    }
    const double mean = sum / 20000;
    EXPECT_NEAR(mean, 0.02, 0.0005);
    EXPECT_NEAR(std::sqrt(squares / 20000 - mean * mean), 0.02, 0.0008);
    EXPECT_NEAR(within / 20000.0, 1 - std::exp(-1), 0.01);
    o.seed = 8;
    const Workload other(o);
    EXPECT_NE(other.w.conversations[0].arrival_ns, a.w.conversations[0].arrival_ns);
}

TEST(Arrivals, EndWithTheDuration)
{
    weir_workload_options o = options(0);
    o.rate = 100;
    o.seconds = 5;
    const Workload a(o);
    ASSERT_EQ(a.status, WEIR_OK) << a.error.text;
    EXPECT_NEAR(a.w.n_conversations, 500, 100);
    EXPECT_EQ(a.w.n_turns, a.w.n_conversations);
    EXPECT_LT(a.w.conversations[a.w.n_conversations - 1].arrival_ns, 5000000000);
    o.rate = 1e-6;
    const Workload none(o);
    EXPECT_EQ(none.status, WEIR_EINVAL);
    EXPECT_NE(std::string(none.error.text).find("--rate"), std::string::npos);
}

TEST(Conversations, HaveTheirTurnsGroupsAndThoughts)
{
    weir_workload_options o = options(1000);
    o.n_turns = 3;
    o.n_groups = 4;
    o.think = 2;
    const Workload a(o);
    ASSERT_EQ(a.w.n_conversations, 334);
    ASSERT_EQ(a.w.n_turns, 1000);
    EXPECT_EQ(a.w.conversations[333].n_turns, 1) << "what is left";
    std::vector<int> groups(4);
    double think = 0;
    int next = 0;
    for (int i = 0; i < 334; i++) {
        const weir_conversation &c = a.w.conversations[i];
        ASSERT_GE(c.group, 0);
        ASSERT_LT(c.group, 4);
        groups[(size_t)c.group]++;
        EXPECT_EQ(c.first, next);
        EXPECT_EQ(c.arrival_ns, 0) << "a closed loop";
        EXPECT_EQ(a.w.turns[c.first].think_ns, 0);
        for (int t = 1; t < c.n_turns; t++) think += (double)a.w.turns[c.first + t].think_ns * 1e-9;
        next += c.n_turns;
    }
    for (const int n : groups) EXPECT_GT(n, 50);
    EXPECT_NEAR(think / 666, 2, 0.25);
}

TEST(Workload, MistakesAreNamed)
{
    const auto says = [](const weir_workload_options &o, const char *part) {
        const Workload w(o);
        EXPECT_EQ(w.status, WEIR_EINVAL) << part;
        EXPECT_NE(std::string(w.error.text).find(part), std::string::npos) << w.error.text;
    };
    weir_workload_options o = options(0);
    says(o, "--requests or --duration");
    o = options(1 << 21);
    says(o, "at most");
    o = options(1);
    o.rate = NAN;
    says(o, "--rate");
    o = options(1);
    o.n_turns = 0;
    says(o, "--turns");
    o = options(1);
    o.think = -1;
    says(o, "--think");
    o = options(1);
    o.seconds = INFINITY;
    says(o, "--duration");
}

std::string words(uint32_t stream, uint32_t number, int n)
{
    weir_buffer out = {};
    EXPECT_EQ(weir_load_words(&out, 7, stream, number, n), WEIR_OK);
    const std::string text = out.data;
    weir_buffer_free(&out);
    return text;
}

TEST(Words, AreTheSameForASeedAndDifferOtherwise)
{
    EXPECT_EQ(words(1, 2, 40), words(1, 2, 40));
    EXPECT_EQ(words(1, 2, 40).rfind(words(1, 2, 10), 0), 0u) << "a prefix of the same text";
    std::set<std::string> begins;
    for (uint32_t i = 0; i < 1000; i++) begins.insert(words(1, i, 6));
    EXPECT_EQ(begins.size(), 1000u) << "no two prompts begin alike";
    const std::string text = words(1, 2, 40);
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 39);
}

TEST(Due, TheEarliestComesFirst)
{
    std::vector<weir_due> room(200);
    weir_due_heap heap = { room.data(), 0 };
    for (int i = 0; i < 200; i++) weir_due_push(&heap, { (i * 37) % 50, i });
    weir_due before = { -1, -1 };
    for (int i = 0; i < 200; i++) {
        const weir_due next = weir_due_pop(&heap);
        EXPECT_TRUE(weir_due_before(&before, &next));
        before = next;
    }
    EXPECT_EQ(heap.n, 0);
}

} // namespace
