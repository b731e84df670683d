// Traces of experts: the hits of all sizes against a cache that is simulated, and files that are
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/model/expert_trace.h"

namespace {

const weir_expert_trace_head kHead = { 3, 8, 24, 1000 };

struct Stack {
    weir_expert_stack stack = {};
    weir_error error = {};
    ~Stack() { weir_expert_stack_close(&stack); }
    weir_status read(const std::string &text)
    {
        return weir_expert_trace_read(&stack, text.data(), text.size(), "FILE", &error);
    }
};

struct Use {
    int64_t layer;
    std::vector<int32_t> experts;
};

std::vector<Use> uses()
{
    std::vector<Use> out;
    uint32_t state = 1;
    for (int step = 0; step < 300; step++)
        for (int64_t layer = 0; layer < 3; layer++) {
            Use use{ layer, {} };
            for (int i = 0; i < 3; i++) {
                state = state * 1664525u + 1013904223u;
                use.experts.push_back(static_cast<int32_t>((state >> 16) % 8 * (state >> 24) / 256)
                );
            }
            std::sort(use.experts.begin(), use.experts.end());
            use.experts.erase(
                std::unique(use.experts.begin(), use.experts.end()), use.experts.end()
            );
            out.push_back(use);
        }
    return out;
}

/* The share of hits of a cache that evicts what was used least recently. */
double simulate(const std::vector<Use> &all, size_t n_entries)
{
    std::vector<int64_t> here; /* the oldest first */
    int64_t hits = 0, n = 0;
    for (const Use &use : all) {
        for (const int32_t e : use.experts)
            hits += std::count(here.begin(), here.end(), use.layer * 8 + e);
        for (const int32_t e : use.experts) {
            const int64_t number = use.layer * 8 + e;
            here.erase(std::remove(here.begin(), here.end(), number), here.end());
            here.push_back(number);
        }
        while (here.size() > n_entries) here.erase(here.begin());
        n += static_cast<int64_t>(use.experts.size());
    }
    return static_cast<double>(hits) / static_cast<double>(n);
}

TEST(ExpertTrace, HitsOfAllSizes)
{
    weir_buffer text = {};
    const auto all = uses();
    ASSERT_EQ(weir_expert_trace_begin(&text, &kHead), WEIR_OK);
    for (const Use &use : all)
        ASSERT_EQ(
            weir_expert_trace_add(
                &text, use.layer, use.experts.data(), static_cast<int32_t>(use.experts.size())
            ),
            WEIR_OK
        );
    Stack s;
    ASSERT_EQ(s.read(std::string(text.data, text.size)), WEIR_OK) << s.error.text;
    weir_buffer_free(&text);
    EXPECT_EQ(s.stack.n_passes, 300);
    EXPECT_EQ(s.stack.head.expert_bytes, 1000);
    double last = 0;
    for (size_t n = 3; n <= 24; n++) {
        const double hits = weir_expert_stack_hits(&s.stack, static_cast<int64_t>(n));
        EXPECT_DOUBLE_EQ(hits, simulate(all, n)) << n;
        EXPECT_GE(hits, last);
        last = hits;
    }
    EXPECT_GT(last, 0.9);
    EXPECT_LT(weir_expert_stack_hits(&s.stack, 6), 0.8);
}

TEST(ExpertTrace, BadFilesAreRefused)
{
    const std::string title = "weir experts trace 1\n",
                      good = title + "layers 3 experts 8 total 24 bytes 1000\n";
    const struct {
        std::string text;
        const char *says;
    } cases[] = {
        { "", "FILE: line 1: this is no trace" },
        { "weir experts trace 2\n", "line 1: this is no trace" },
        { title, "line 2: the sizes are incomplete" },
        { title + "layers 3 experts 8 total 24 bytes \n", "FILE: line 2" },
        { title + "layers 3 experts 8 total 24 bytes 1000", "does not end" },
        { title + "layers 4096 experts 65536 total 24 bytes 1000\n", "FILE: line 2: 4096 layers" },
        { title + "layers 9999999999999 experts 9999999999999 total 1 bytes 1\n", "line 2" },
        { title + "layers 3 experts 8 total 25 bytes 1000\n", "line 2" },
        { title + "layers 3 experts 8 total 0 bytes 1000\n", "line 2" },
        { good, "no experts are in it" },
        { good + "0: 1 2\n3: 1\n", "line 4: a line begins with" },
        { good + "-1: 1\n", "line 3" },
        { good + "0:\n", "line 3: a line has the numbers" },
        { good + "0: 8\n", "line 3: an expert is not one" },
        { good + "0: x\n", "line 3: an expert is not one" },
        { good + "0: 2 2\n", "line 3: the experts are not ascending" },
        { good + "0: 1 2", "line 3: a line has" },
        { title + "layers 3 experts 8 total 2 bytes 1\n0: 1 2 3\n", "has more experts than" },
    };
    for (const auto &c : cases) {
        Stack s;
        EXPECT_EQ(s.read(c.text), WEIR_EFORMAT) << c.text;
        EXPECT_NE(std::string(s.error.text).find(c.says), std::string::npos)
            << c.text << ": " << s.error.text;
        EXPECT_EQ(s.stack.recent, nullptr);
    }
}

} // namespace
