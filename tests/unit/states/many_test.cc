// Ten thousand states in one database: the same answers as a plain search, after adding, opening
// again, and removing.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/unit/states/support.h"

/* Nothing here survives a power cut, and need not. */
extern "C" int fsync(int) { return 0; }

namespace {

enum { N = 10000, DIM = 96, K = 20 };

class Many : public Database {
  protected:
    Many() { dim_ = DIM; }

    std::vector<std::string> search(const std::vector<float> &question)
    {
        std::vector<std::pair<double, size_t>> order;
        for (size_t i = 0; i < vectors_.size(); i++) {
            if (vectors_[i].empty()) continue;
            double product = 0, own = 0;
            for (size_t d = 0; d < DIM; d++)
                product += (double)question[d] * vectors_[i][d],
                    own += (double)vectors_[i][d] * vectors_[i][d];
            order.push_back({ -product / std::sqrt(own), i });
        }
        std::sort(order.begin(), order.end());
        std::vector<std::string> out;
        for (size_t i = 0; i < K; i++) out.push_back(name(order[i].second));
        return out;
    }
    static std::string name(size_t i)
    {
        return i == 0 ? "document" : "document-" + std::to_string(i + 1);
    }
    std::vector<float> draw()
    {
        std::normal_distribution<float> normal;
        std::vector<float> out(DIM);
        for (float &x : out) x = normal(random_);
        return out;
    }
    void check()
    {
        for (int i = 0; i < 20; i++) {
            const std::vector<float> question = draw();
            EXPECT_EQ(route(question, K), search(question));
        }
    }
    std::mt19937 random_{ 7 };
    std::vector<std::vector<float>> vectors_; /* [N] empty: removed */
};

TEST_F(Many, TenThousand)
{
    for (size_t i = 0; i < N; i++) {
        vectors_.push_back(draw());
        ASSERT_EQ(added("document", vectors_.back()), name(i));
    }
    check();
    open(false);
    check();
    std::vector<std::string> all = names();
    ASSERT_EQ(all.size(), (size_t)N);
    for (size_t i = 0; i < N; i++) ASSERT_EQ(all[N - 1 - i], name(i));
    open();
    for (size_t i = 0; i < N; i += 2) {
        ASSERT_EQ(weir_states_remove(states_, name(i).c_str(), &error_), WEIR_OK) << error_.text;
        vectors_[i].clear();
    }
    EXPECT_EQ(names().size(), (size_t)N / 2);
    EXPECT_EQ(n_files(), (size_t)N / 2);
    check();
    open(false);
    check();
    EXPECT_EQ(names().size(), (size_t)N / 2);
}

} // namespace
