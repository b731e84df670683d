/* tests/unit/schedule/simulator/shares.h - prompt rows of steps by client: while a client has a
 * prompt that could be computed, no other gets more than some pieces ahead of it. */
#pragma once
#include <map>
#include <tuple>

#include "tests/unit/schedule/simulator/checks.h"

namespace sim {

class Shares {
  public:
    /* After each iteration. Returns what is wrong, or "". */
    std::string check(const View &before, const View &after, const Setup &setup, bool has_one_step);
    int64_t n_waits() const { return n_waits_; } /* iterations that one waits for another */

  private:
    /* Of a priority, short or long prompts, a client that waits, another one. */
    using Pair = std::tuple<int32_t, bool, int32_t, int32_t>;
    std::map<Pair, int64_t> ahead_; /* cost of what the other got more, since the first waits */
    int64_t n_waits_ = 0;
};

} // namespace sim
