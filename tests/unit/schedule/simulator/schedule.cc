#include "tests/unit/schedule/simulator/schedule.h"

#include <algorithm>

#include "engine/schedule/job.h"
#include "tests/unit/schedule/simulator/shares.h"

namespace sim {

void Counts::add(const Counts &other)
{
    const auto *const from = reinterpret_cast<const int64_t *>(&other);
    auto *const to = reinterpret_cast<int64_t *>(this);
    for (size_t i = 0; i < sizeof *this / sizeof *to; i++) to[i] += from[i];
}

class Schedule {
  public:
    Schedule(const World &world, uint64_t seed, const Limits &limits, bool with_log)
        : seed_(seed), limits_(limits), random_(seed), leaving_(~seed), with_log_(with_log),
          setup_(setup_of(seed, (limits.features & DISK) != 0, limits.prunes)),
          n_jobs_(std::min(limits.n_jobs, 4 + static_cast<int>(seed % 13)))
    {
        sim_disk_reset();
        sim_forward_reset();
        sim_when_step_waits(on_step_wait, this);
        sim_when_step_runs(on_step, this);
        log(setup_.print());
        fail(machine_.open(world, setup_));
    }

    Result run()
    {
        while (problem_.empty() && !is_over()) iterate();
        finish();
        sim_when_step_waits(nullptr, nullptr);
        sim_when_step_runs(nullptr, nullptr);
        return { problem_, log_, counts_ };
    }

  private:
    static constexpr int64_t kMostTurns = 6000, kHealthyFrom = 150, kMostIdle = 60;

    void log(const std::string &line)
    {
        if (limits_.prints) (void)printf("%s\n", line.c_str());
        if (limits_.prints) (void)fflush(stdout);
        if (with_log_) log_ += line + "\n";
    }
    void fail(const std::string &what)
    {
        if (what.empty() || !problem_.empty()) return;
        problem_ = "iteration " + std::to_string(iteration_) + ": " + what;
        log("FAILS: " + problem_);
    }
    bool has(Feature feature) const { return (limits_.features & feature) != 0; }
    bool is_over() const
    {
        return static_cast<int>(jobs_.size()) == n_jobs_ && n_done_ == n_submitted_;
    }
    // True once everything has come: then the machine is healthy, and all must end.
    bool is_calm() const
    {
        return static_cast<int>(jobs_.size()) == n_jobs_ &&
               iteration_ > last_submit_ + kHealthyFrom;
    }

    // ---- what happens ---------------------------------------------------------------------------
    void submit()
    {
        auto request = std::make_unique<Request>();
        make_request(
            request.get(), seed_, static_cast<int>(jobs_.size()), setup_, limits_.features, jobs_
        );
        request->schedule = this;
        weir_request wanted = {};
        wanted.prompt = request->prompt.data();
        wanted.n_prompt = static_cast<int32_t>(request->prompt.size());
        wanted.max_tokens = request->max_tokens;
        wanted.n_choices = request->n_choices;
        wanted.ignore_eos = request->ignores_stop;
        wanted.cache_prompt = request->caches;
        wanted.sampling = request->sampling;
        wanted.cache_salt = request->has_salt ? "other" : nullptr;
        wanted.client = request->client;
        wanted.priority = request->priority;
        if (request->timeout_ns > 0)
            request->deadline_ns = wanted.deadline_ns = sim_clock_ns() + request->timeout_ns;
        weir_policy_options policy;
        weir_error error = {};
        wanted.policy = request->policy != nullptr ? &policy : nullptr;
        wanted.kv_budget = request->kv_budget;
        if (request->policy != nullptr &&
            (weir_policy_options_default(&policy, request->policy, &error) != WEIR_OK ||
             weir_policy_options_set(&policy, request->policy_options.c_str(), &error) != WEIR_OK))
            fail(error.text);
        wanted.callback = on_event;
        wanted.user = request.get();
        const weir_status status =
            weir_service_submit(machine_.service(), &request->job, &wanted, &error);
        const bool may_refuse = status == WEIR_EINVAL || status == WEIR_EFULL; // too long; too many
        if (status != WEIR_OK && !may_refuse) fail(request->name() + " is refused: " + error.text);
        if (status != WEIR_OK) request->job = nullptr;
        log("  " + request->print() + (status == WEIR_OK ? "" : std::string(": ") + error.text));
        (status == WEIR_OK ? n_submitted_ : counts_.refused) += 1;
        last_submit_ = iteration_;
        jobs_.push_back(std::move(request));
    }
    void cancel(Request *request)
    {
        if (request->job == nullptr || request->is_done || request->cancel_iteration >= 0) return;
        request->cancel_iteration = iteration_;
        weir_job_cancel(request->job);
        log("  " + request->name() + " is cancelled");
    }
    // The disk stays as it is for a while.
    void change_disk()
    {
        sim_disk disk = {};
        const int kind = random_.pick(12), amount = random_.between(1, 255);
        disk.seed = random_.bits();
        const bool is_faulty = has(FAULTS) && !is_calm();
        if (is_faulty && (kind == 0 || kind == 1)) disk.write_fails = kind == 0 ? 256 : amount;
        if (is_faulty && (kind == 2 || kind == 3)) disk.read_fails = kind == 2 ? 256 : amount;
        if (is_faulty && kind == 4) disk.garbles = amount;
        if (kind == 5) disk.is_short = amount;
        sim_disk_set(&disk);
        const int pace = random_.pick(8), iterations = random_.between(2, 12);
        const bool is_late = has(STALLS) && !is_calm();
        stalls_ = is_late && pace < 2;
        const bool is_slow = pace == 2 || (setup_.prunes && pace > 3);
        slow_ = is_late && is_slow ? iterations : 0;
        log("  disk: writes fail " + std::to_string(disk.write_fails) + ", reads " +
            std::to_string(disk.read_fails) + ", garbles " + std::to_string(disk.garbles) +
            (stalls_ ? ", stalls" : "") +
            (slow_ > 0 ? ", one in " + std::to_string(slow_) + " iterations" : ""));
    }
    void run_workers(int n)
    {
        if (stalls_ || (slow_ > 0 && iteration_ % slow_ > 0)) return;
        sim_workers_run(slow_ > 0 ? 0 : n);
    }
    void act()
    {
        const bool is_alone = n_done_ == n_submitted_;
        for (int n = iteration_ == 0                 ? random_.between(1, 6)
                     : is_alone || random_.one_in(5) ? 1
                                                     : 0;
             n > 0 && static_cast<int>(jobs_.size()) < n_jobs_; n--)
            submit();
        if (has(CANCELS) && random_.one_in(40) && !jobs_.empty())
            cancel(jobs_[static_cast<size_t>(random_.pick(static_cast<int>(jobs_.size())))].get());
        if (has(FAILURES) && random_.one_in(400)) {
            log("  the next forward pass fails");
            sim_forward_fail();
            has_failures_ = true;
        }
        if (setup_.disk_blocks > 0 && iteration_ % 16 == 0) change_disk();
        const int n = random_.one_in(3) ? random_.between(0, 2) : 1000;
        run_workers(is_calm() ? 1000 : n);
        sim_clock_add(int64_t{ 1000000 } * (n_idle_ > 1 ? 10 : random_.between(1, 9)));
    }

    // ---- what the service says ------------------------------------------------------------------
    static bool on_event(void *user, const weir_event *event)
    {
        Request *const request = static_cast<Request *>(user);
        return request->schedule->take(request, event);
    }
    bool take(Request *request, const weir_event *event)
    {
        if (request->is_done) fail(request->name() + ": an event after the last");
        switch (event->type) {
        case WEIR_EVENT_ADMITTED: admitted(request, event); return true;
        case WEIR_EVENT_TOKEN: return token(request, event);
        case WEIR_EVENT_CHOICE: choice(request, event); return true;
        case WEIR_EVENT_DONE: done(request, event); return true;
        case WEIR_EVENT_PROMPT:
        case WEIR_EVENT_LOGITS: fail(request->name() + " asked for no scores");
        }
        return true;
    }
    void admitted(Request *request, const weir_event *event)
    {
        if (request->is_admitted) fail(request->name() + " is admitted twice");
        request->is_admitted = has_come_ = true;
        log("  " + request->name() + " is admitted, cached " + std::to_string(event->usage.n_cached)
        );
        counts_.cached_tokens += event->usage.n_cached;
        const bool was_reading = std::any_of(before_.begin(), before_.end(), [&](const auto &c) {
            return request_of(c) == request;
        });
        if (!was_reading)
            fail(check_admission(jobs_, *request, view(), int64_t{ 64 } * setup_.window_blocks));
    }
    bool token(Request *request, const weir_event *event)
    {
        Answer &answer = request->answers[static_cast<size_t>(event->choice)];
        const std::string what = request->name() + " choice " + std::to_string(event->choice) +
                                 " token " + std::to_string(answer.n_tokens);
        const int32_t wanted = oracle_.next(*request, event->choice);
        if (answer.finish != WEIR_FINISH_NONE) fail(what + " after its end");
        if (answer.n_tokens >= request->max_tokens) fail(what + ": too many");
        if (event->token != wanted)
            fail(
                what + " is " + std::to_string(event->token) + ", alone it is " +
                std::to_string(wanted)
            );
        answer.tokens.push_back(event->token);
        answer.hash = sim_hash(answer.hash, event->token);
        answer.n_tokens++;
        answer.token_iteration = iteration_;
        counts_.tokens++;
        if (has(CANCELS) && random_.one_in(300)) cancel(request);
        answer.is_stopped = has(CANCELS) && random_.one_in(200);
        return !answer.is_stopped;
    }
    void choice(Request *request, const weir_event *event)
    {
        Answer &answer = request->answers[static_cast<size_t>(event->choice)];
        const std::string what = request->name() + " choice " + std::to_string(event->choice) +
                                 " ends with " + std::to_string(event->finish);
        if (answer.finish != WEIR_FINISH_NONE) fail(what + " after its end");
        answer.finish = event->finish;
        const size_t window = static_cast<size_t>(setup_.window_blocks) * 64;
        const size_t pool =
            static_cast<size_t>(setup_.near_blocks + setup_.disk_blocks - 1) * 64; // submit.c
        switch (event->finish) {
        case WEIR_FINISH_STOP:
            if (!answer.is_stopped &&
                (request->ignores_stop || oracle_.next(*request, event->choice) != SIM_STOP))
                fail(what + ", and no stop id came");
            break;
        case WEIR_FINISH_LENGTH:
            if (answer.n_tokens < request->max_tokens &&
                answer.tokens.size() < std::min(window, pool))
                fail(what + " after " + std::to_string(answer.n_tokens) + " tokens");
            break;
        case WEIR_FINISH_CANCELED:
            if (request->cancel_iteration < 0) fail(what + ", and was not cancelled");
            break;
        case WEIR_FINISH_TIMEOUT:
            if (request->deadline_ns == 0 || request->deadline_ns > sim_clock_ns())
                fail(what + " before its time");
            break;
        case WEIR_FINISH_ERROR:
        case WEIR_FINISH_NONE: break;
        }
    }
    // It does not fit near the kernels, which is all there is if nothing can be written, also with
    // the rows that a policy keeps, which go to new pages.
    bool has_no_room(const Request &request, weir_status status) const
    {
        size_t longest = 0;
        for (const Answer &answer : request.answers)
            longest = std::max(longest, answer.tokens.size());
        if (request.policy != nullptr) longest += static_cast<size_t>(request.kv_budget);
        return status == WEIR_EFULL && longest + 64 > static_cast<size_t>(setup_.near_blocks) * 64;
    }
    void done(Request *request, const weir_event *event)
    {
        request->is_done = true;
        request->done_iteration = iteration_;
        request->status = event->status;
        n_done_++;
        counts_.jobs++;
        log("  " + request->name() + " is done" +
            (event->status == WEIR_OK ? "" : std::string(": ") + event->message));
        const bool was_cancelled = event->status == WEIR_ECANCELED,
                   by_disk = (event->status == WEIR_EIO || has_no_room(*request, event->status)) &&
                             sim_disk_faults() > 0,
                   by_pass = event->status == WEIR_EDEVICE && has_failures_;
        counts_.cancelled += was_cancelled;
        counts_.late += request->answers[0].finish == WEIR_FINISH_TIMEOUT;
        if (was_cancelled && request->cancel_iteration < 0)
            fail(request->name() + " was not cancelled, and ends so");
        counts_.failed += by_disk || by_pass;
        if (event->status != WEIR_OK && !was_cancelled && !by_disk && !by_pass)
            fail(request->name() + " fails: " + event->message);
        for (const Answer &answer : request->answers)
            if (answer.finish == WEIR_FINISH_NONE && event->status == WEIR_OK)
                fail(request->name() + " is done, and a choice has not ended");
    }

    static void on_step(void *user)
    {
        Schedule *const self = static_cast<Schedule *>(user);
        self->fail(check_step_memory(self->view()));
    }
    static void on_step_wait(void *user)
    {
        auto *const self = static_cast<Schedule *>(user);
        self->counts_.step_waits++;
        self->fail(check_step_wait(self->view()));
        self->leave(self->view());
    }
    // Of those in a step that waits. When it waits again they have their last event.
    void leave(const View &now)
    {
        for (const auto &job : jobs_) {
            const bool is_over = job->cancel_iteration >= 0 ||
                                 (job->deadline_ns > 0 && job->deadline_ns <= sim_clock_ns());
            if (job->job != nullptr && !job->is_done && is_over)
                fail(job->name() + " is over, and waits with a step");
        }
        if (!has(LEAVES) || !leaving_.one_in(100)) return;
        for (const sim_choice &c : now) {
            if (!c.is_in_step || request_of(c)->is_done) continue;
            counts_.left++;
            cancel(request_of(c));
            return;
        }
    }

    // ---- an iteration ---------------------------------------------------------------------------
    View view() const
    {
        View all(static_cast<size_t>(setup_.slots));
        all.resize(static_cast<size_t>(sim_choices(machine_.service(), all.data())));
        return all;
    }
    void iterate()
    {
        log("iteration " + std::to_string(iteration_));
        act();
        for (const auto &job : jobs_)
            if (job->deadline_ns > 0 && job->deadline_ns <= sim_clock_ns() &&
                job->late_iteration < 0)
                job->late_iteration = iteration_;
        before_ = view();
        has_come_ = false;
        waits_ = counts_.step_waits;
        const weir_service_stats past = machine_.stats();
        const bool is_withheld = sim_workers_are_busy(),
                   prunes = sim_prunes(machine_.service()) && sim_policies_are_busy();
        (void)sim_engine_waits();
        const std::vector<const void *> ended = slots_of_ended(machine_.service());
        const bool has_stepped = weir_service_iterate(machine_.service(), false);
        n_idle_ = has_stepped ? 0 : n_idle_ + 1;
        check(past, machine_.stats(), is_withheld);
        check_slots(ended);
        if (prunes && machine_.stats().preemptions > past.preemptions)
            fail("a sequence is preempted while a thread drops rows");
        iteration_++;
        counts_.iterations++;
    }
    void check(const weir_service_stats &past, const weir_service_stats &now, bool is_withheld)
    {
        const View after = view();
        const int64_t n_rows = now.batch_rows - past.batch_rows;
        log("  " + std::to_string(n_rows) + " rows;" + print_view(after));
        if (sim_forward_defect() != nullptr) fail(sim_forward_defect());
        const char *const unsound = sim_audit(machine_.service(), &machine_.fixed());
        if (unsound != nullptr) fail(unsound);
        check_tokens(after);
        const int64_t n_preempted = now.preemptions - past.preemptions;
        fail(check_victims(before_, after, has_come_, n_preempted));
        check_waits(after, now.steps - past.steps);
        if (n_gaps_ > 0) check_rows(n_rows, now.steps - past.steps);
        if (now.steps - past.steps == 1) fail(check_cost(after, setup_));
        fail(shares_.check(before_, after, setup_, now.steps - past.steps == 1));
        counts_.nested += std::max(now.steps - past.steps - 2, int64_t{ 0 });
        const bool is_one = now.steps - past.steps <= 1 && waits_ == counts_.step_waits;
        fail(check_pace(before_, after, setup_.is_slow, is_one, n_preempted));
        fail(check_progress(before_, after, iteration_, is_withheld));
        for (const sim_choice &c : after) counts_.followed += c.leader >= 0;
        for (const sim_choice &c : after) counts_.unforked += c.is_unforked;
        check_ends(is_withheld);
    }
    // Of those that had ended and kept their slots at least one has left.
    void check_slots(const std::vector<const void *> &before)
    {
        const std::vector<const void *> after = slots_of_ended(machine_.service());
        size_t n_before = 0, n_left = 0;
        for (size_t i = 0; i < after.size(); i++) {
            n_before += before[i] != nullptr;
            n_left += before[i] != nullptr && after[i] == before[i];
            counts_.kept_slots += after[i] != nullptr;
        }
        if (n_before > 0 && n_left == n_before) fail("no ended sequence is released");
    }
    // Of the engine, and of sequences.
    void check_waits(const View &after, int64_t n_steps)
    {
        const int64_t n_waits = sim_engine_waits();
        const bool has_policy = std::any_of(jobs_.begin(), jobs_.end(), [&](const auto &job) {
            return job->policy != nullptr && job->is_admitted &&
                   (!job->is_done || job->done_iteration == iteration_);
        });
        if (n_waits > 0) fail("the engine waits for the disk");
        for (const sim_choice &c : after) counts_.pruning += c.is_pruning;
        const bool has_moves = sim_moves(machine_.service());
        n_gaps_ = 0;
        // What moved may have ended in an iteration within a step.
        const bool moved = has_moves || waits_ < counts_.step_waits || n_steps > 1;
        fail(check_gaps(before_, after, iteration_, moved, &n_gaps_, &counts_.stalled));
        counts_.gaps += n_gaps_;
        const bool is_alone = !has_come_ && !has_policy && waits_ == counts_.step_waits;
        fail(check_memory(before_, after, iteration_, moved, is_alone, n_steps <= 1));
        fail(check_pruned(before_, after, &counts_.lack_rows));
    }
    void check_tokens(const View &after)
    {
        for (const sim_choice &c : after) {
            const Answer &answer = answer_of(c);
            if (!c.is_waiting && !sim_has_tokens(
                                     machine_.service(), &c, answer.tokens.data(),
                                     static_cast<int32_t>(answer.tokens.size())
                                 ))
                fail(request_of(c)->name() + " holds other tokens than its own");
        }
    }
    int32_t drafts() const { return setup_.drafts > 0 ? WEIR_STEP_DRAFTS : 0; }
    // The time between two tokens has a bound, whatever comes in.
    void check_rows(int64_t rows, int64_t n_steps)
    {
        const int32_t busy = setup_.mixed_chunk > 0 ? setup_.mixed_chunk : 128;
        const int64_t most = n_steps * (std::min(busy, setup_.chunk) + setup_.slots + drafts());
        if (rows > most) fail("a step of " + std::to_string(rows) + " rows stalls an answer");
        // A whole chunk of a policy fits next to sequences of one row each.
        const int32_t redone = setup_.evicts ? drafts() : 0;
        if (setup_.step_rows > 0 && rows > n_steps * (setup_.step_rows + redone))
            fail("a step of " + std::to_string(rows) + " rows");
    }
    void check_ends(bool is_withheld)
    {
        enum { ITERATIONS = 2 };
        for (const auto &job : jobs_) {
            if (job->job == nullptr || job->is_done) continue;
            const bool is_cancelled = job->cancel_iteration >= 0 &&
                                      iteration_ >= job->cancel_iteration + ITERATIONS,
                       is_late = job->late_iteration >= 0 &&
                                 iteration_ >= job->late_iteration + ITERATIONS;
            if (is_cancelled) fail(job->name() + " was cancelled two iterations ago, and runs");
            if (is_late) fail(job->name() + " was late two iterations ago, and runs");
        }
        n_stuck_ = n_idle_ > 0 && !is_withheld && n_done_ < n_submitted_ ? n_stuck_ + 1 : 0;
        if (n_stuck_ > kMostIdle) fail("no step for " + std::to_string(n_stuck_) + " iterations");
        if (iteration_ > kMostTurns) fail("jobs do not end");
    }

    // ---- the end --------------------------------------------------------------------------------
    void finish()
    {
        if (machine_.service() == nullptr) return;
        const weir_service_stats stats = machine_.stats();
        const weir_prefix_stats prefix = machine_.prefix_stats();
        counts_.preemptions = stats.preemptions;
        counts_.faults = sim_disk_faults();
        counts_.holes = sim_disk_holes();
        counts_.demoted_bytes = stats.kv_bytes_out;
        counts_.promoted_bytes = stats.kv_bytes_back;
        counts_.cold_bytes_read = stats.kv_bytes_read;
        counts_.states_out = prefix.snapshots_out;
        counts_.states_back = prefix.snapshots_back;
        counts_.evicted_tokens = stats.evicted_tokens;
        counts_.drafted = stats.drafted_tokens;
        counts_.accepted = stats.accepted_tokens;
        counts_.turns = shares_.n_waits();
        const bool has_failed = !problem_.empty();
        for (const auto &job : jobs_)
            if (job->job != nullptr) weir_job_cancel(job->job);
        sim_workers_run(1000000);
        (void)weir_service_iterate(machine_.service(), false); // takes what threads have done
        for (int i = 0; i < setup_.slots && machine_.service()->n_ended > 0; i++)
            (void)weir_service_iterate(machine_.service(), false);
        (void)weir_service_iterate(machine_.service(), true);
        for (const auto &job : jobs_)
            if (job->job != nullptr) weir_job_release(job->job);
        if (machine_.request_bytes() > 0) fail("bytes of requests are charged after the last");
        const std::string left = machine_.close();
        if (!has_failed) fail(left);
    }

    uint64_t seed_;
    Limits limits_;
    Random random_, leaving_;
    bool with_log_;
    Setup setup_;
    int n_jobs_;
    Machine machine_;
    Oracle oracle_;
    std::vector<std::unique_ptr<Request>> jobs_;
    View before_;
    Shares shares_;
    int64_t iteration_ = 0, last_submit_ = 0, n_idle_ = 0, n_stuck_ = 0;
    int64_t waits_ = 0; // step_waits before the iteration
    int64_t n_submitted_ = 0, n_done_ = 0, n_gaps_ = 0;
    int slow_ = 0; // iterations between two reads or writes
    bool stalls_ = false, has_failures_ = false, has_come_ = false;
    std::string problem_, log_;
    Counts counts_ = {};
};

Result run_schedule(const World &world, uint64_t seed, const Limits &limits, bool with_log)
{
    return Schedule(world, seed, limits, with_log).run();
}

} // namespace sim
