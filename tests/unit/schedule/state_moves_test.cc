/* Recurrent states are written and read while steps go on. */
#include "tests/unit/schedule/cold_states.h"

namespace {

using namespace cold_states;

class StateMoves : public ColdStates {
  protected:
    /* The disk hangs from now on. */
    void hang(std::atomic<support::Gate *> &gate) { gate = &disk_; }
    void go_on(std::atomic<support::Gate *> &gate)
    {
        EXPECT_FALSE(disk_.was_late) << "the engine's thread waited";
        gate = nullptr;
        disk_.open();
    }
    /* The second turn of a conversation whose state is on disk. */
    std::unique_ptr<Call> ask_second(int i)
    {
        auto call = std::make_unique<Call>(second(i), ANSWER);
        call->request.cache_prompt = true;
        return call;
    }
    void submit(Call &call)
    {
        ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_TRUE(disk_.wait_until_reached()) << "its state is in memory";
    }
    /* What has hung has no effect on what follows. */
    void expect_right()
    {
        end_moves();
        expect_sound();
        for (int i = 0; i < TEXTS; i++) {
            run_second(i);
            end_moves();
        }
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
        expect_sound();
    }
    void TearDown() override
    {
        disk_.open();
        ColdStates::TearDown();
    }
    support::Gate disk_;
};

TEST_F(StateMoves, StepsGoOnWhileAStateIsWritten)
{
    open_with(200);
    hang(state_writes);
    for (int i = 0; i < TEXTS; i++) EXPECT_EQ(run(prompt(20 + i, ROWS), ANSWER), want_[(size_t)i]);
    ASSERT_TRUE(disk_.wait_until_reached());
    EXPECT_EQ(stats().states_out, 0);
    EXPECT_EQ(stats().cold_states, 2) << "which are being written";
    int n = 0;
    for (int i = 0; i < TEXTS; i++) {
        run_second(i);
        n += usage_.n_cached == ROWS + ANSWER - 1;
    }
    EXPECT_GT(n, 0) << "what is being written is continued from memory";
    EXPECT_EQ(stats().states_back, 0);
    go_on(state_writes);
    expect_right();
    EXPECT_GT(stats().states_out, 0);
    EXPECT_EQ(stats().state_errors, 0);
}

TEST_F(StateMoves, StepsGoOnWhileAStateIsRead)
{
    open_with(200);
    run_first();
    hang(state_reads);
    const auto first = ask_second(0), same = ask_second(0);
    submit(*first);
    for (const int seed : { 200, 201 }) EXPECT_EQ(run(prompt(seed, 90), ANSWER).size(), ANSWER);
    run_second(TEXTS - 1); /* in memory */
    EXPECT_EQ(usage_.n_cached, ROWS + ANSWER - 1);
    ASSERT_EQ(same->submit(service_, &error_), WEIR_OK) << error_.text;
    EXPECT_FALSE(first->done || same->done);
    go_on(state_reads);
    for (Call *const call : { first.get(), same.get() }) {
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        EXPECT_EQ(call->tokens[0], want_again_[0]);
        EXPECT_EQ(call->usage.n_cached, ROWS + ANSWER - 1) << call->usage.reuse;
        call->release();
    }
    expect_right();
}

/* A job that ends while its state is read: its slot is another one's then, which must not get what
 * is read. */
TEST_F(StateMoves, AJobMayEndWhileItsStateIsRead)
{
    for (const bool times_out : { false, true }) {
        open_with(200);
        run_first();
        hang(state_reads);
        auto call = ask_second(0);
        if (times_out) call->request.deadline_ns = weir_clock_ns() + 20000000;
        submit(*call);
        if (!times_out) weir_job_cancel(call->job);
        call->wait();
        EXPECT_EQ(call->status, times_out ? WEIR_OK : WEIR_ECANCELED) << call->message;
        EXPECT_EQ(call->finish[0], times_out ? WEIR_FINISH_TIMEOUT : WEIR_FINISH_CANCELED);
        EXPECT_TRUE(call->tokens[0].empty());
        call->release();
        Call others[2] = { Call(second(TEXTS - 1), 200), Call(second(TEXTS - 2), 200) };
        for (Call &other : others) {
            other.request.cache_prompt = true;
            ASSERT_EQ(other.submit(service_, &error_), WEIR_OK) << error_.text;
        }
        go_on(state_reads);
        for (int i = 0; i < 2; i++) {
            others[i].wait();
            EXPECT_EQ(others[i].status, WEIR_OK) << others[i].message;
            const auto &want = want_again_[(size_t)(TEXTS - 1 - i)];
            EXPECT_TRUE(std::equal(want.begin(), want.end(), others[i].tokens[0].begin()));
            others[i].release();
        }
        expect_right();
        stop();
        disk_.is_open = disk_.is_reached = false;
    }
}

/* The prompt continues at the state before it. */
TEST_F(StateMoves, AReadThatFailsMeansComputing)
{
    open_with(200);
    run_first();
    hang(state_reads);
    const auto call = ask_second(0);
    submit(*call);
    fault = Fault::READS;
    go_on(state_reads);
    call->wait();
    fault = Fault::NONE;
    EXPECT_EQ(call->status, WEIR_OK) << call->message;
    EXPECT_EQ(call->tokens[0], want_again_[0]);
    EXPECT_LT(call->usage.n_cached, ROWS);
    EXPECT_GT(stats().state_errors, 0);
    call->release();
    expect_right();
}

TEST_F(StateMoves, TheServiceClosesWhileAStateMoves)
{
    for (std::atomic<support::Gate *> *const gate : { &state_writes, &state_reads }) {
        open_with(200);
        if (gate == &state_reads) run_first();
        hang(*gate);
        const auto call = ask_second(0);
        if (gate == &state_writes) {
            for (int i = 0; i < TEXTS; i++) (void)run(prompt(20 + i, ROWS), ANSWER);
            ASSERT_TRUE(disk_.wait_until_reached());
        } else {
            submit(*call);
        }
        call->release();
        std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            go_on(*gate);
        });
        stop();
        other.join();
        disk_.is_open = disk_.is_reached = false;
    }
}

/* Preempts the only sequence, and lets all states go to disk. */
void preempt(weir_service *service, void *user)
{
    (void)user;
    std::vector<float *> states;
    for (int32_t i = 0; i < service->facts->n_slots; i++)
        if (service->slots[i].owner != nullptr) weir_choice_preempt(service->slots[i].owner);
    while (weir_prefix_stats_of(service->prefix).n_cold_snapshots <
           weir_prefix_stats_of(service->prefix).n_snapshots) {
        float *const state = weir_prefix_acquire_snapshot(service->prefix, WEIR_STATE_LAST, 0);
        if (state == nullptr) break;
        states.push_back(state);
        weir_prefix_wait_for_moves(service->prefix);
        (void)weir_prefix_end_moves(service->prefix);
    }
    for (float *const state : states) weir_prefix_release_snapshot(service->prefix, state);
}

/* Others start meanwhile; it goes on with the bits that it has alone. */
TEST_F(StateMoves, APreemptedSequenceWaitsForItsState)
{
    enum { LONG = 200 };
    static service_call post = { preempt, nullptr, nullptr, true, false };
    start("tq", 0);
    const auto want = run(prompt(70, ROWS), LONG);
    open_with(200);
    hang(state_reads);
    struct Preempted : Call {
        using Call::Call;
        weir_service *service = nullptr;
        int n = 0;
        static bool on_event(void *user, const weir_event *event)
        {
            Preempted *const call = static_cast<Preempted *>(static_cast<Call *>(user));
            if (event->type == WEIR_EVENT_TOKEN && ++call->n == LONG / 2)
                weir_service_post_call(call->service, &post);
            return Call::on_event(user, event);
        }
    } call(prompt(70, ROWS), LONG);
    call.service = service_;
    call.request.callback = Preempted::on_event;
    call.request.cache_prompt = true;
    submit(call);
    EXPECT_EQ(run(prompt(20, ROWS), ANSWER), want_[0]);
    EXPECT_FALSE(call.done);
    go_on(state_reads);
    call.wait();
    EXPECT_EQ(call.status, WEIR_OK) << call.message;
    EXPECT_EQ(call.tokens[0], want);
    EXPECT_EQ(stats().preemptions, 1);
    EXPECT_EQ(stats().states_back, 1);
    call.release();
    run_first(1);
    expect_right();
}

/* A session whose last state is on disk is saved with it. */
TEST_F(StateMoves, ASaveReadsTheLastState)
{
    const std::string folder = ::testing::TempDir() + "/state-sessions." + std::to_string(getpid()),
                      dir = "sessions.dir=" + folder;
    std::filesystem::remove_all(folder);
    start("tq", 60, 200, dir, { few_states_ });
    run_first();
    ASSERT_GT(stats().cold_states, 0);
    const auto all = second(0);
    const weir_session_request request = { "first", nullptr, all.data(), ROWS + ANSWER - 1 };
    weir_session_result result;
    ASSERT_EQ(
        weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_OK
    ) << error_.text;
    EXPECT_EQ(result.n_tokens, ROWS + ANSWER - 1);
    EXPECT_GT(stats().states_back, 0);
    expect_sound();
    start("tq", 60, 200, dir, { few_states_ });
    ASSERT_EQ(
        weir_sessions_restore(weir_engine_sessions(engine_), "first", &result, &error_), WEIR_OK
    ) << error_.text;
    run_second(0);
    EXPECT_EQ(usage_.n_cached, ROWS + ANSWER - 1) << usage_.reuse;
    stop();
    std::filesystem::remove_all(folder);
}

} // namespace
