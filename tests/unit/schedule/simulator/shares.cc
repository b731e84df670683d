#include "tests/unit/schedule/simulator/shares.h"

#include <algorithm>

namespace sim {
namespace {

/* A prompt that could be in a step. */
bool is_open(const sim_choice &c)
{
    return !c.is_waiting && !c.is_stalled && !c.is_reading && !c.is_pruning && !c.is_last_cold &&
           !c.lacks_memory && !c.is_decoding && request_of(c)->policy == nullptr;
}

bool is_long(const sim_choice &c, const Setup &setup)
{
    return c.n_tokens - c.n_computed >
           (setup.long_prompt > 0 ? setup.long_prompt : 4 * setup.chunk);
}

/* What a client got in an iteration. */
struct Use {
    int64_t cost = 0;
    bool waits = false; /* with a prompt that is open before and after */
    bool is_known = true; /* it got no more */
    /* It has pieces that may not fit together with others, so that it is owed some. */
    bool has_policy = false;
};

using Kind = std::pair<int32_t, bool>; /* priority; long ones */
using Uses = std::map<Kind, std::map<int32_t, Use>>;

Uses uses_of(const View &before, const View &after, const Setup &setup)
{
    Uses uses;
    std::map<int32_t, bool> has_new;
    for (const sim_choice &c : after)
        if (find(before, c) == nullptr) has_new[request_of(c)->client] = true;
    for (const sim_choice &c : before) {
        if (c.is_decoding || c.is_held) continue;
        const sim_choice *const now = find(after, c);
        const bool is_known = now != nullptr && now->n_computed == c.n_computed + now->step_rows;
        Use &use = uses[{ c.priority, is_long(c, setup) }][request_of(c)->client];
        if (is_known && now->is_piece) use.cost += cost_of(after, setup, *now);
        use.has_policy = use.has_policy || request_of(c)->policy != nullptr;
        use.is_known = use.is_known && is_known && !has_new[request_of(c)->client];
        use.waits = use.waits || (is_known && is_open(c) && is_open(*now) &&
                                  is_long(c, setup) == is_long(*now, setup));
    }
    return uses;
}

} // namespace

std::string Shares::check(
    const View &before, const View &after, const Setup &setup, bool has_one_step
)
{
    const auto follows = [](const sim_choice &c) { return c.leader >= 0; };
    const bool is_plain = has_one_step && std::none_of(before.begin(), before.end(), follows) &&
                          std::none_of(after.begin(), after.end(), follows);
    const int64_t even = setup.even_depth, window = int64_t{ 64 } * setup.window_blocks,
                  deep = even > 0 ? LEAST_PIECE * (even + window) / even : LEAST_PIECE,
                  piece = std::max<int64_t>(setup.chunk, deep), most = 2 * piece + setup.chunk;
    std::map<Pair, int64_t> ahead;
    const Uses uses = is_plain ? uses_of(before, after, setup) : Uses();
    for (const auto &[kind, clients] : uses)
        for (const auto &[one, use] : clients)
            for (const auto &[other, its] : clients) {
                const Pair pair = { kind.first, kind.second, one, other };
                if (one == other || !use.waits || !use.is_known || its.has_policy) continue;
                const int64_t sum = std::max<int64_t>(ahead_[pair] + its.cost - use.cost, 0);
                n_waits_ += use.cost == 0 && its.cost > 0;
                ahead[pair] = sum;
                if (sum > most)
                    return "client " + std::to_string(one) + " waits, and client " +
                           std::to_string(other) + " got prompt rows of " + std::to_string(sum) +
                           " more";
            }
    ahead_ = ahead;
    return "";
}

} // namespace sim
