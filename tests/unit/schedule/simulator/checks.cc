#include "tests/unit/schedule/simulator/checks.h"

#include <algorithm>
#include <set>

#include "engine/schedule/job.h"

namespace sim {
namespace {

std::string name_of(const sim_choice &c)
{
    return request_of(c)->name() + " choice " + std::to_string(c.index);
}

bool is_before(const sim_choice &a, const sim_choice &b)
{
    if (a.priority != b.priority) return a.priority < b.priority;
    return a.serial != b.serial ? a.serial < b.serial : a.index < b.index;
}

/* Rows of all its choices at most, in whole pages; the last token of an answer has none. */
int64_t rows_of(const Request &r, int64_t window)
{
    const int64_t rows = static_cast<int64_t>(r.prompt.size()) + std::max(r.max_tokens, 1) - 1;
    return r.n_choices * ((std::min(rows, window) + 63) / 64 * 64);
}

/* It has rows that a preemption takes. */
bool has_rows(const sim_choice &c) { return !c.is_waiting && !c.is_reading && c.n_computed > 0; }

bool is_preempted(const sim_choice &past, const sim_choice &now)
{
    return now.is_stalled || now.n_computed < past.n_computed;
}

bool can_run(const sim_choice &c)
{
    return !c.is_waiting && !c.is_stalled && !c.is_reading && !c.is_pruning;
}

/* It could have been in the iteration's step, and lacked memory; a prompt may not fit in it. */
bool is_stalled(const sim_choice &past, const sim_choice &now, int64_t iteration)
{
    return (now.is_decoding || now.lacks_memory) && can_run(past) && can_run(now) &&
           now.leader < 0 && !past.is_last_cold && !now.is_last_cold &&
           now.n_computed == past.n_computed && now.step_rows == 0 &&
           answer_of(now).token_iteration != iteration;
}

/* Its rows of the step began a block; not known of one whose rows were dropped since. Drafts begin
 * none. */
bool took_page(const View &before, const sim_choice &c)
{
    const auto blocks = [](int32_t rows) { return (rows + 63) / 64; };
    const sim_choice *const past = find(before, c);
    const bool decoded = past != nullptr && past->is_decoding;
    const int32_t from = decoded ? past->n_computed : c.n_computed - c.step_rows;
    return c.step_rows > 0 && c.n_pages >= blocks(c.n_computed) &&
           blocks(c.n_computed) > blocks(from);
}

/* None that is before it in order is known to have asked for memory. Of several steps a prompt may
 * have been in another one, and decode since. */
bool may_be_first(const View &before, const View &after, const sim_choice &c, bool is_one_step)
{
    return std::none_of(after.begin(), after.end(), [&](const sim_choice &other) {
        const sim_choice *const was = find(before, other);
        const bool asked = is_one_step ? other.step_rows > 0 || other.is_decoding
                                       : was != nullptr && was->is_decoding;
        return is_before(other, c) && can_run(other) && asked;
    });
}

/* Another choice of its job was in one of several steps: those within it leave the job alone. */
bool may_be_in_step(const View &after, const sim_choice &c)
{
    return std::any_of(after.begin(), after.end(), [&](const sim_choice &other) {
        return other.user == c.user && other.index != c.index && other.step_rows > 0;
    });
}

} // namespace

const sim_choice *find(const View &view, const sim_choice &c)
{
    for (const sim_choice &other : view)
        if (other.user == c.user && other.index == c.index) return &other;
    return nullptr;
}

std::string check_admission(
    const std::vector<std::unique_ptr<Request>> &all, const Request &admitted, const View &view,
    int64_t window
)
{
    const auto running = [&](int32_t client) {
        std::set<const Request *> jobs;
        for (const sim_choice &c : view)
            if (request_of(c) != &admitted && request_of(c)->client == client)
                jobs.insert(request_of(c));
        return jobs.size();
    };
    const auto has_slot = [&](const Request *r) {
        return std::any_of(view.begin(), view.end(), [&](const sim_choice &c) {
            return request_of(c) == r;
        });
    };
    std::vector<const Request *> waiting;
    for (const auto &other : all)
        if (other->job != nullptr && !other->is_done && !other->is_admitted &&
            !has_slot(other.get()) && other.get() != &admitted && other->cancel_iteration < 0 &&
            (other->deadline_ns == 0 || other->deadline_ns > sim_clock_ns()))
            waiting.push_back(other.get());
    /* What may pass one that does not fit (docs/decisions/0047): simulation_test has the order and
     * the bound of all that pass. A policy may keep few rows, and counts one more. */
    const int64_t rows = admitted.policy != nullptr ? 0 : rows_of(admitted, window);
    const auto most_rows = [&](const Request &other) {
        return rows_of(other, window) + (other.policy != nullptr ? 64 * other.n_choices : 0);
    };
    const bool may_backfill =
        std::any_of(waiting.begin(), waiting.end(), [&](const Request *other) {
            return other->priority == admitted.priority && rows <= most_rows(*other);
        });
    for (const Request *const other : waiting) {
        const std::string pair = admitted.name() + " goes before " + other->name();
        if (other->priority < admitted.priority) return pair + ", whose priority is better";
        if (other->priority > admitted.priority || may_backfill) continue;
        if (other->client == admitted.client && other->number < admitted.number)
            return pair + ", which its client sent first";
        if (running(other->client) < running(admitted.client))
            return pair + ", whose client has fewer running";
    }
    return "";
}

std::string check_victims(const View &before, const View &after, bool has_come, int64_t n_preempted)
{
    int64_t n_back = n_preempted;
    for (const sim_choice &c : after) {
        const sim_choice *const past = find(before, c);
        n_back -= past != nullptr && !past->is_stalled && is_preempted(*past, c);
    }
    for (const sim_choice &c : after) {
        const sim_choice *const past = find(before, c);
        if (past == nullptr || !has_rows(*past) || c.n_computed >= past->n_computed) continue;
        const auto goes_first = [&](const sim_choice &other) { return is_before(other, *past); };
        const bool is_first = std::none_of(before.begin(), before.end(), goes_first) &&
                              std::none_of(after.begin(), after.end(), goes_first);
        if (is_first && !has_come) return name_of(c) + ", the first in order, lost its rows";
        for (const sim_choice &other : after) {
            const sim_choice *const was = find(before, other);
            const bool may_be_back = n_back > 0 && other.is_again;
            if (was != nullptr && has_rows(*was) && has_rows(other) && is_before(c, other) &&
                other.n_computed >= was->n_computed && !may_be_back)
                return name_of(c) + " lost its rows, and " + name_of(other) +
                       ", which goes after it, has its own";
        }
    }
    return "";
}

std::string check_gaps(
    const View &before, const View &after, int64_t iteration, bool has_moves, int64_t *n_gaps,
    int64_t *n_out
)
{
    for (const sim_choice &past : before) {
        const sim_choice *const now = find(after, past);
        if (!past.is_decoding || now == nullptr || is_preempted(past, *now)) continue;
        if (answer_of(past).token_iteration == iteration) {
            *n_gaps += 1;
            continue;
        }
        *n_out += 1;
        const bool prunes = past.is_pruning || now->is_pruning;
        if (!past.is_last_cold && !now->is_last_cold && !past.needs_page && !now->needs_page &&
            !prunes)
            return name_of(past) + ": an iteration without it, and it needs no memory";
        if (!has_moves) return name_of(past) + ": an iteration without it, and nothing moves";
    }
    return "";
}

std::string check_memory(
    const View &before, const View &after, int64_t iteration, bool has_moves, bool is_alone,
    bool is_one_step
)
{
    /* Else a prompt may have followed one that is gone, or not have fit in the step. */
    const bool all_stay =
        is_alone && std::all_of(before.begin(), before.end(), [&](const sim_choice &past) {
            const sim_choice *const now = find(after, past);
            return now != nullptr && !is_preempted(past, *now) && !now->goes_first;
        });
    for (const sim_choice &c : after) {
        const sim_choice *const past = find(before, c);
        if (past == nullptr || !is_stalled(*past, c, iteration)) continue;
        if (!is_one_step && may_be_in_step(after, c)) continue;
        const bool is_first = &c == &after.front();
        if (!c.is_decoding && !(is_first && all_stay)) continue;
        if (!has_moves) return name_of(c) + " stalls, and nothing moves";
        for (const sim_choice &other : after) {
            const sim_choice *const was = find(before, other);
            const bool decodes =
                was != nullptr && (was->is_decoding || was->is_unforked || was->is_held);
            const bool is_small = other.step_rows == 1 || decodes,
                       may = may_be_first(before, after, other, is_one_step) ||
                             (is_small && c.is_decoding && is_before(other, c));
            /* It may be the turn of another client's prompt. */
            const bool is_other =
                !c.is_decoding && !is_small && request_of(other)->client != request_of(c)->client;
            if (took_page(before, other) && !is_other && (is_first || !may))
                return name_of(c) + " stalls, and " + name_of(other) + " got memory before it";
        }
    }
    return "";
}

std::string check_pruned(const View &before, const View &after, int64_t *n_two)
{
    const sim_choice *first = nullptr;
    int64_t n = 0;
    for (const sim_choice &c : after) {
        const sim_choice *const past = find(before, c);
        /* One that computed rows meanwhile had got some, and lacks others now. */
        if (!c.lacks_rows || past == nullptr || !past->lacks_rows ||
            past->n_computed != c.n_computed)
            continue;
        n++;
        if (first == nullptr) first = &c;
    }
    *n_two += n > 1;
    for (const sim_choice &other : after)
        if (first != nullptr && is_before(*first, other) && took_page(before, other))
            return name_of(*first) + " waits for memory for the rows that stay, and " +
                   name_of(other) + ", which goes after it, got some";
    return "";
}

/* In the last step. */
bool decodes(const sim_choice &c) { return c.step_rows > 0 && !c.is_piece; }

int64_t cost_of(const View &after, const Setup &setup, const sim_choice &c)
{
    const bool is_busy = std::any_of(after.begin(), after.end(), decodes);
    const int64_t past = std::max(c.n_computed - c.step_rows, 0), even = setup.even_depth,
                  unit = is_busy ? even : 2 * even;
    const bool is_priced = even > 0 && request_of(c)->policy == nullptr;
    return is_priced ? c.step_rows * std::max(even + past, unit) / unit : c.step_rows;
}

std::string check_cost(const View &after, const Setup &setup)
{
    enum { BUSY = 128 }; /* rows of a step by default */
    const bool is_busy = std::any_of(after.begin(), after.end(), decodes);
    const int64_t busy = setup.mixed_chunk > 0 ? setup.mixed_chunk : BUSY,
                  most = is_busy ? std::min<int64_t>(busy, setup.chunk) : setup.chunk;
    int64_t sum = 0, least = 0;
    for (const sim_choice &c : after) {
        if (!c.is_piece) continue;
        if (request_of(c)->policy != nullptr) return "";
        const int64_t cost = cost_of(after, setup, c);
        sum += cost;
        if (c.step_rows <= LEAST_PIECE) least = std::max(least, cost);
    }
    return sum > most + least
               ? "prompt rows cost " + std::to_string(sum) + " of " + std::to_string(most)
               : "";
}

/* It has rows that another computed. */
bool took_rows(const sim_choice &c) { return !c.is_waiting && c.n_computed > c.step_rows; }

std::string check_pace(
    const View &before, const View &after, bool is_slow, bool is_one_step, int64_t n_preempted
)
{
    int n_resumed = 0, n_forked = 0, n_unforked = 0, n_left = 0;
    for (const sim_choice &past : before) {
        const sim_choice *const now = find(after, past);
        if (now != nullptr && (past.is_stalled || past.is_reading)) n_resumed += took_rows(*now);
        n_unforked += past.is_unforked; /* one may end with its next token */
        n_left += past.is_unforked && now != nullptr && now->is_unforked;
    }
    for (const sim_choice &c : after) {
        const sim_choice *const past = find(before, c);
        /* With a policy choice 0, if it ends, leaves its rows to the last one at once. */
        const bool is_left = request_of(c)->policy != nullptr &&
                             request_of(c)->answers[0].finish != WEIR_FINISH_NONE;
        n_forked +=
            c.index > 0 && !is_left && took_rows(c) && (past == nullptr || past->is_waiting);
    }
    if (n_unforked > 0 && n_left == n_unforked) return "no choice forks its prompt";
    if (!is_slow || !is_one_step) return "";
    if (n_preempted > 1) return std::to_string(n_preempted) + " sequences are preempted";
    if (n_resumed > 1) return std::to_string(n_resumed) + " sequences go on with cached rows";
    return n_forked > 1 ? std::to_string(n_forked) + " choices fork their prompts" : "";
}

std::string check_step_memory(const View &now)
{
    const auto asks = [](const sim_choice &c) { return c.asks_memory; };
    const auto first = std::find_if(now.begin(), now.end(), asks);
    const auto is_small = [](const sim_choice &c) {
        return c.is_decoding || c.is_returning || c.step_rows == 1 ||
               c.n_tokens - c.n_computed == 1;
    };
    for (const sim_choice &c : now) {
        if (!c.lacks_memory) continue;
        for (const sim_choice &other : now) {
            const bool may =
                &other == &*first ||
                (&c != &*first &&
                 (is_small(other) != is_small(c) ? is_small(other) : is_before(other, c)));
            if (other.begins_block && !may)
                return "a step begins a block of " + name_of(other) + ", and " + name_of(c) +
                       " lacks memory before it";
        }
    }
    return "";
}

std::string check_step_wait(const View &now)
{
    const bool lack_some = std::any_of(now.begin(), now.end(), [](const sim_choice &c) {
        return c.lacks_memory && !c.is_cold;
    });
    for (const sim_choice &c : now) {
        const bool lacks_none = c.is_decoding
                                    ? !c.needs_page
                                    : !c.is_held && !lack_some && request_of(c)->policy == nullptr;
        if (can_run(c) && lacks_none && !c.is_in_step && !c.is_cold && !c.is_last_cold &&
            c.leader < 0)
            return name_of(c) + " has no block on disk, and waits for a read of others";
    }
    return "";
}

/* A sequence before this one got its last token in this iteration and is gone. */
bool has_ended_before(const View &before, const View &after, const sim_choice &c, int64_t iteration)
{
    return std::any_of(before.begin(), before.end(), [&](const sim_choice &past) {
        return find(after, past) == nullptr && is_before(past, c) &&
               answer_of(past).token_iteration == iteration;
    });
}

std::string check_progress(
    const View &before, const View &after, int64_t iteration, bool is_withheld
)
{
    /* Rows of a prompt that a step computes at least for one that others leave a quarter. */
    enum { LEAST_ROWS = 8, PATIENCE = 12 };
    std::vector<bool> has_progressed;
    bool any = false; /* before it in order */
    int32_t again = 0;
    for (const sim_choice &c : after) {
        Answer &answer = answer_of(c);
        const bool own = answer.token_iteration == iteration || c.n_computed > answer.furthest;
        answer.furthest = std::max(answer.furthest, c.n_computed);
        has_progressed.push_back(own);
    }
    for (size_t i = 0; i < after.size(); i++) {
        const sim_choice &c = after[i];
        Answer &answer = answer_of(c);
        bool follows = false;
        int32_t at = c.leader;
        for (size_t n = 0; at >= 0 && n < after.size(); n++) {
            follows = follows || has_progressed[static_cast<size_t>(at)];
            at = after[static_cast<size_t>(at)].leader;
        }
        any = any || has_progressed[i] || has_ended_before(before, after, c, iteration);
        /* A choice that waits does so for the first one of its request; forks: check_pace. */
        if (any || follows || c.is_waiting || c.is_held)
            answer.patience = 0;
        else if (!is_withheld)
            answer.patience++;
        /* What it or one before it has to compute again: with a policy a recomputed answer goes row
         * by row, as it did at first. */
        const int32_t least = request_of(c)->policy != nullptr ? 1 : LEAST_ROWS;
        again = std::max(again, c.n_tokens / least);
        if (answer.patience > PATIENCE + again)
            return name_of(c) + " has not got further for " + std::to_string(answer.patience) +
                   " iterations, nor has one before it";
    }
    return "";
}

std::string print_view(const View &view)
{
    std::string line;
    for (const sim_choice &c : view)
        line += " " + std::to_string(request_of(c)->number) + "." + std::to_string(c.index) + ":" +
                std::to_string(c.n_computed) + "/" + std::to_string(c.n_tokens) +
                (c.is_waiting ? "w" : "") + (c.is_stalled ? "s" : "") + (c.is_reading ? "r" : "") +
                (c.is_last_cold ? "c" : "") + (c.is_pruning ? "p" : "") +
                (c.leader >= 0 ? "f" : "");
    return line;
}

std::vector<const void *> slots_of_ended(const weir_service *service)
{
    std::vector<const void *> all;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].ended;
        all.push_back(c != nullptr && !weir_choice_is_held(c) ? c : nullptr);
    }
    return all;
}

} // namespace sim
