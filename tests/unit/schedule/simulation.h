/* Random schedules that can be replayed. Requests come and are cancelled only within callbacks, so
 * on the engine thread, where a seed decides: no clock and no other thread has a say. Every event
 * is checked against what the scheduler promises, and every token, with its log-probabilities,
 * against the same request alone. */
#pragma once
#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "tests/unit/schedule/support.h"

namespace support {

/* A request, and what each token of its answer carries when it runs alone. */
struct SimulatedTurn {
    std::vector<int32_t> prompt;
    const weir_policy_options *policy = nullptr;
    int64_t budget = 0; /* rows, with a policy */
    bool is_narrow = false; /* few different tokens in the answer: drafts are often right */
    uint64_t logits = 0; /* hash of those after the prompt */
    std::vector<std::string> answer; /* of each token the bytes of ids and log-probabilities */
};

inline void narrow(weir_request *request, const SimulatedTurn &turn)
{
    static const weir_logit_bias few[] = { { 3, 60 }, { 11, 60 }, { 19, 60 } };
    if (!turn.is_narrow) return;
    request->sampling.bias = few;
    request->sampling.n_bias = 3;
}

/* FNV-1a of the bits. */
inline uint64_t hash_of(const float *logits, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (const char *at = (const char *)logits; at != (const char *)(logits + n); at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3;
    return hash;
}

enum { SIMULATED_TOKENS = 40, SIMULATED_BUSY = 128, SIMULATED_CLIENTS = 3 };

inline std::string bytes_of(const weir_event *event)
{
    std::string out;
    const auto add = [&out](const void *p, size_t n) { out.append((const char *)p, n); };
    const size_t n_top = (size_t)event->n_top;
    add(&event->token, sizeof event->token);
    add(&event->logprob.logprob, sizeof event->logprob.logprob);
    for (size_t i = 0; i < n_top; i++) {
        add(&event->top[i].id, sizeof event->top[i].id);
        add(&event->top[i].logprob, sizeof event->top[i].logprob);
    }
    return out;
}

class Schedule;

/* A save, restore or deletion of a session, posted within a callback. */
struct SimulatedFile {
    Schedule *schedule;
    std::string name;
    weir_session_job job = {};
};

struct SimulatedJob {
    Schedule *schedule;
    const SimulatedTurn *turn;
    weir_job *job = nullptr;
    int32_t client, n_choices, max_tokens, priority;
    int64_t number; /* in the order of submission */
    bool has_timeout; /* which has passed when the service looks first */
    bool is_admitted = false, is_done = false, is_cancelled = false;
    int64_t cancel_step = 0, rows_backfilled = 0; /* of those that went ahead of it */
    struct Choice {
        int n_tokens = 0, n_before_cancel = 0;
        int64_t step = -1, n_preempted = 0; /* of its last token */
        bool is_ended = false;
    };
    std::vector<Choice> choices;
    std::string name() const
    {
        return "job " + std::to_string(number) + " of client " + std::to_string(client);
    }
};

/* One seed on one service. */
class Schedule {
  public:
    /* With sessions, files are saved, restored and deleted next to the requests. Threads that read
     * and write then decide when a sequence waits, so its order and its gaps are not checked. */
    Schedule(
        weir_service *service, const std::vector<SimulatedTurn> &turns, unsigned seed, int n,
        weir_sessions *sessions = nullptr
    )
        : service_(service), sessions_(sessions), turns_(turns), seed_(seed), random_(seed), n_(n),
          sequences_((size_t)weir_service_facts_of(service)->n_slots)
    {
    }
    /* The first request holds the engine in its callback until many others wait. */
    void run()
    {
        {
            const std::lock_guard<std::recursive_mutex> hold(lock_);
            submit();
            for (int i = pick(8); i >= 0; i--) submit();
        }
        std::unique_lock<std::recursive_mutex> hold(lock_);
        ended_.wait(hold, [this] {
            return n_done_ == (int)jobs_.size() && n_files_done_ == files_.size();
        });
        hold.unlock();
        for (const auto &job : jobs_) weir_job_release(job->job);
    }
    int64_t n_tokens() const { return n_tokens_; }
    /* Every event with its step: equal for equal seeds. */
    const std::string &trace() const { return trace_; }
    int64_t n_cancelled() const { return n_cancelled_; }
    int64_t n_victims() const { return n_victims_; } /* that were seen */
    int64_t n_backfilled() const { return n_backfilled_; } /* jobs that went ahead of others */
    int64_t n_together() const { return n_together_; } /* tokens of one step: drafts */
    int64_t n_gaps() const { return n_gaps_; } /* between tokens, that were checked */
    int64_t n_saved() const { return n_saved_; }
    int64_t n_restored() const { return n_restored_; }

  private:
    int pick(int n) { return (int)(random_() % (unsigned)n); }
    void submit()
    {
        auto job = std::make_unique<SimulatedJob>();
        weir_request request = {};
        weir_error error = {};
        job->schedule = this;
        /* Often the sequence of the request before, which may be running. */
        job->turn = pick(3) == 0 && !jobs_.empty() ? jobs_.back()->turn
                                                   : &turns_[(size_t)pick((int)turns_.size())];
        job->client = pick(SIMULATED_CLIENTS);
        job->n_choices = pick(5) == 0 ? 2 : 1;
        job->max_tokens = 1 + pick(SIMULATED_TOKENS);
        job->priority = pick(4) == 0 ? pick(3) - 1 : 0;
        job->has_timeout = pick(30) == 0;
        job->choices.resize((size_t)job->n_choices);
        job->number = (int64_t)jobs_.size();
        request.prompt = job->turn->prompt.data();
        request.n_prompt = (int32_t)job->turn->prompt.size();
        request.max_tokens = job->max_tokens;
        request.n_choices = job->n_choices;
        request.ignore_eos = request.want_logprobs = true;
        request.n_top_logprobs = WEIR_TOP_LOGPROBS;
        request.policy = job->turn->policy;
        request.kv_budget = job->turn->budget;
        request.want_logits = pick(3) == 0;
        request.cache_prompt = pick(3) > 0;
        request.cache_salt = pick(6) == 0 ? "other" : nullptr;
        request.sampling = weir_sampling_default();
        narrow(&request, *job->turn);
        request.client = job->client;
        request.priority = job->priority;
        request.deadline_ns = job->has_timeout ? 1 : 0;
        request.callback = on_event;
        request.user = job.get();
        n_--;
        if (weir_service_submit(service_, &job->job, &request, &error) == WEIR_OK)
            jobs_.push_back(std::move(job));
    }
    static bool on_event(void *user, const weir_event *event)
    {
        SimulatedJob *const job = (SimulatedJob *)user;
        const std::lock_guard<std::recursive_mutex> hold(job->schedule->lock_);
        job->schedule->take(job, event);
        return true;
    }
    void take(SimulatedJob *job, const weir_event *event)
    {
        SCOPED_TRACE("WEIR_SIMULATION_SEED=" + std::to_string(seed_));
        weir_service_stats_of(service_, &stats_);
        EXPECT_FALSE(job->is_done) << job->name() << ": an event after the last";
        trace_ += std::to_string(job->number) + ":" + std::to_string(event->type) + ":" +
                  std::to_string(event->choice) + "@" + std::to_string(stats_.steps) + "-" +
                  std::to_string(stats_.preemptions) + " ";
        if (sessions_ == nullptr) {
            check_victims();
            check_rows();
        }
        switch (event->type) {
        case WEIR_EVENT_ADMITTED:
            if (sessions_ == nullptr) check_order(job);
            break;
        case WEIR_EVENT_TOKEN: check_token(job, event); break;
        case WEIR_EVENT_CHOICE: check_choice(job, event); break;
        case WEIR_EVENT_DONE: check_done(job, event); break;
        case WEIR_EVENT_LOGITS:
            EXPECT_EQ(
                hash_of(event->logits, (size_t)weir_service_facts_of(service_)->n_vocab),
                job->turn->logits
            ) << job->name()
              << ": not the logits that it has alone";
            break;
        case WEIR_EVENT_PROMPT: ADD_FAILURE() << job->name() << " asked for no scores"; break;
        }
        act();
    }
    /* What happens to the service next. */
    void act()
    {
        if (n_ > 0 && pick(4) == 0) submit();
        for (int i = 0; n_ > 0 && n_done_ == (int)jobs_.size(); i++) {
            ASSERT_LT(i, 100) << "nothing is let in";
            submit();
        }
        if (sessions_ != nullptr && n_ > 0 && pick(16) == 0) post();
        if (pick(40) > 0) return;
        SimulatedJob *const job = jobs_[(size_t)pick((int)jobs_.size())].get();
        if (job->is_done || job->is_cancelled || job->job == nullptr) return;
        job->is_cancelled = true;
        job->cancel_step = stats_.steps;
        for (SimulatedJob::Choice &c : job->choices) c.n_before_cancel = c.n_tokens;
        n_cancelled_++;
        weir_job_cancel(job->job);
    }

    /* The prompt of a turn is saved under one of a few names, or what a name has is restored. */
    void post()
    {
        auto file = std::make_unique<SimulatedFile>();
        const SimulatedTurn &turn = turns_[(size_t)pick((int)turns_.size())];
        const int what = pick(8);
        file->schedule = this;
        file->name = "s" + std::to_string(pick(4));
        file->job.work = what < 4   ? WEIR_SESSION_SAVE
                         : what < 7 ? WEIR_SESSION_RESTORE
                                    : WEIR_SESSION_DELETE;
        file->job.name = file->name.c_str();
        file->job.tokens = turn.prompt.data();
        file->job.n_tokens = (int32_t)turn.prompt.size();
        file->job.done = on_file;
        file->job.user = file.get();
        files_.push_back(std::move(file));
        weir_sessions_post(sessions_, &files_.back()->job);
    }
    /* On a thread of the sessions, or within weir_sessions_post. */
    static void on_file(weir_session_job *job)
    {
        Schedule *const schedule = ((SimulatedFile *)job->user)->schedule;
        const std::lock_guard<std::recursive_mutex> hold(schedule->lock_);
        const bool is_fine = job->status == WEIR_OK || job->status == WEIR_ENOTFOUND ||
                             job->status == WEIR_EFULL || job->status == WEIR_ECANCELED;
        EXPECT_TRUE(is_fine) << job->name << ": " << job->error.text;
        if (job->status == WEIR_OK)
            (job->work == WEIR_SESSION_SAVE ? schedule->n_saved_ : schedule->n_restored_) +=
                job->work != WEIR_SESSION_DELETE;
        schedule->n_files_done_++;
        schedule->ended_.notify_all();
    }

    static int64_t rows_of(const SimulatedJob *job)
    {
        const int64_t rows = (int64_t)job->turn->prompt.size() + job->max_tokens - 1;
        return job->n_choices * ((rows + 63) / 64) * 64;
    }
    /* Of the clients that have a job of the best priority queued, the one with the fewest running
     * goes first, of these the one that was served least recently; in their order. Others of that
     * priority may go ahead of a job, but not of more rows than it has. */
    void check_order(SimulatedJob *job)
    {
        int running[SIMULATED_CLIENTS] = {};
        for (const auto &other : jobs_)
            running[other->client] += other->is_admitted && !other->is_done;
        const auto key = [&](const SimulatedJob *of) {
            return std::make_tuple(
                of->priority, running[of->client], served_[of->client], of->number
            );
        };
        SimulatedJob *next = job;
        for (const auto &other : jobs_)
            if (!other->is_admitted && !other->is_done && !other->is_cancelled &&
                !other->has_timeout && key(other.get()) < key(next))
                next = other.get();
        if (next != job && n_admitted_ > 0) { /* the first one came before the crowd was complete */
            const std::string what = job->name() + " goes before " + next->name();
            EXPECT_EQ(job->priority, next->priority) << what;
            next->rows_backfilled += rows_of(job);
            EXPECT_LE(next->rows_backfilled, rows_of(next)) << what;
            n_backfilled_++;
        }
        EXPECT_FALSE(job->is_admitted);
        EXPECT_FALSE(job->has_timeout) << job->name();
        job->is_admitted = true;
        served_[job->client] = ++n_admitted_;
    }
    void check_token(SimulatedJob *job, const weir_event *event)
    {
        SimulatedJob::Choice *const c = &job->choices[(size_t)event->choice];
        const std::string what = job->name() + " token " + std::to_string(c->n_tokens);
        EXPECT_FALSE(c->is_ended) << what;
        ASSERT_LT(c->n_tokens, job->max_tokens) << what;
        EXPECT_EQ(bytes_of(event), job->turn->answer[(size_t)c->n_tokens])
            << what << ": not the bits that it has alone";
        const bool is_next =
            c->n_tokens > 0 && c->n_preempted == stats_.preemptions && sessions_ == nullptr;
        if (is_next) {
            EXPECT_LE(stats_.steps, c->step + 1) << what << ": a step went by without it";
            n_gaps_++;
            n_together_ += stats_.steps == c->step;
        }
        decoded_step_ = is_next ? stats_.steps : decoded_step_;
        c->step = stats_.steps;
        c->n_preempted = stats_.preemptions;
        c->n_tokens++;
        n_tokens_++;
    }
    static void check_choice(SimulatedJob *job, const weir_event *event)
    {
        SimulatedJob::Choice *const c = &job->choices[(size_t)event->choice];
        EXPECT_FALSE(c->is_ended) << job->name();
        c->is_ended = true;
        const bool is_late = event->finish == WEIR_FINISH_TIMEOUT;
        EXPECT_TRUE(is_late == job->has_timeout || job->is_cancelled) << job->name();
        if (event->finish != WEIR_FINISH_CANCELED && !is_late)
            EXPECT_EQ(c->n_tokens, job->max_tokens) << job->name();
    }
    /* A cancelled job ends before the step after the one in which it was cancelled; with a disk,
     * before its own next one, as steps of others run within one that waits. */
    void check_done(SimulatedJob *job, const weir_event *event)
    {
        job->is_done = true;
        n_done_++;
        if (event->status == WEIR_OK) {
            for (const SimulatedJob::Choice &c : job->choices) EXPECT_TRUE(c.is_ended);
        } else {
            EXPECT_EQ(event->status, WEIR_ECANCELED) << job->name() << ": " << event->message;
            EXPECT_TRUE(job->is_cancelled) << job->name();
        }
        if (job->is_cancelled && sessions_ == nullptr)
            EXPECT_LE(stats_.steps, job->cancel_step + 1) << job->name() << " went on";
        for (const SimulatedJob::Choice &c : job->choices)
            if (job->is_cancelled)
                EXPECT_LE(c.n_tokens, c.n_before_cancel + 1) << job->name() << " went on";
        ended_.notify_all();
    }
    /* While one writes its answer, others read their prompts in short pieces: rows of a step are
     * few, so the time between two tokens has a bound whatever comes in. */
    void check_rows()
    {
        const int64_t most = SIMULATED_BUSY + (int64_t)sequences_.size() + WEIR_STEP_DRAFTS;
        if (stats_.steps == seen_step_ + 1 && decoded_step_ == seen_step_)
            EXPECT_LE(stats_.batch_rows - seen_rows_, most)
                << "step " << stats_.steps << ": a prompt stalls an answer";
        seen_step_ = stats_.steps;
        seen_rows_ = stats_.batch_rows;
    }
    /* What a step took from sequences, it took from the last in order; the first keeps its
     * rows. */
    void check_victims()
    {
        const int32_t n = weir_service_sequences_of(service_, sequences_.data());
        std::map<Key, int32_t> now; /* rows by age */
        for (int32_t i = 0; i < n; i++)
            now[{ jobs_[(size_t)sequences_[(size_t)i].job]->priority, sequences_[(size_t)i].job,
                  sequences_[(size_t)i].choice }] = sequences_[(size_t)i].tokens;
        EXPECT_LE(stats_.kv_pages_used, stats_.kv_pages_total);
        for (auto at = now.begin(); at != now.end(); ++at) {
            const auto before = rows_.find(at->first);
            if (before == rows_.end() || at->second >= before->second) continue;
            n_victims_++;
            EXPECT_FALSE(at == now.begin() && before == rows_.begin())
                << "the first sequence, of job " << std::get<1>(at->first) << ", lost its rows";
            for (auto younger = std::next(at);
                 younger != now.end() && stats_.steps == seen_step_ + 1; ++younger)
                EXPECT_EQ(younger->second, 0)
                    << "job " << std::get<1>(younger->first) << " has rows, and job "
                    << std::get<1>(at->first) << ", which goes first, lost its own";
        }
        rows_ = now;
    }

    using Key = std::tuple<int32_t, int64_t, int32_t>; /* of a sequence: priority, job, choice */

    weir_service *service_;
    weir_sessions *sessions_;
    const std::vector<SimulatedTurn> &turns_;
    unsigned seed_;
    std::mt19937 random_;
    int n_, n_done_ = 0; /* n_: yet to be submitted */
    std::vector<std::unique_ptr<SimulatedJob>> jobs_;
    std::vector<std::unique_ptr<SimulatedFile>> files_;
    size_t n_files_done_ = 0;
    int64_t n_saved_ = 0, n_restored_ = 0;
    std::vector<weir_service_sequence> sequences_;
    std::map<Key, int32_t> rows_; /* as they were seen last */
    weir_service_stats stats_ = {};
    int64_t seen_step_ = 0, seen_rows_ = 0, decoded_step_ = -1;
    int64_t n_tokens_ = 0, n_admitted_ = 0, n_cancelled_ = 0, n_gaps_ = 0, n_together_ = 0,
            n_victims_ = 0, n_backfilled_ = 0;
    int64_t served_[SIMULATED_CLIENTS] = {}; /* n_admitted_ when its last job was admitted */
    std::string trace_;
    std::recursive_mutex lock_;
    std::condition_variable_any ended_;
};

} // namespace support
