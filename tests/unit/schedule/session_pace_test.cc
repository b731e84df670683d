// Saves leave the processors to sequences that run. Where time stands still, a pause lasts until
// something ends it.
#include <pthread.h>

#include "tests/unit/kv/file_gate.h"
#include "tests/unit/schedule/pressure.h"

namespace {

std::atomic<bool> time_stands{ false };

} // namespace

/* In front of libc's. */
extern "C" int pthread_cond_clockwait(
    pthread_cond_t *changed, pthread_mutex_t *lock, clockid_t clock, const struct timespec *until
)
{
    struct timespec now, end;
    (void)clock_gettime(clock, &now);
    (void)clock_gettime(CLOCK_REALTIME, &end);
    const time_t seconds = until->tv_sec - now.tv_sec;
    end.tv_sec += seconds;
    end.tv_nsec += until->tv_nsec - now.tv_nsec;
    if (end.tv_nsec < 0) end.tv_nsec += 1000000000, end.tv_sec--;
    if (end.tv_nsec >= 1000000000) end.tv_nsec -= 1000000000, end.tv_sec++;
    return time_stands && seconds <= 1 ? pthread_cond_wait(changed, lock)
                                       : pthread_cond_timedwait(changed, lock, &end);
}

namespace pressure {
namespace {

/* Runs until the gate is opened: the engine waits in its second token. */
struct Running : Call {
    support::Gate gate;
    int n_tokens = 0;
    explicit Running(std::vector<int32_t> ids) : Call(std::move(ids), 4)
    {
        request.callback = [](void *user, const weir_event *event) {
            Running *const self = static_cast<Running *>(static_cast<Call *>(user));
            if (event->type == WEIR_EVENT_TOKEN && ++self->n_tokens == 2) self->gate.pass();
            return Call::on_event(user, event);
        };
        request.user = static_cast<Call *>(this);
    }
};

class Pace : public Pressure {
  protected:
    void TearDown() override
    {
        file_gate::writes = nullptr;
        time_stands = false;
        Pressure::TearDown();
    }
    /* Fills the memory until an automatic save waits in the gate. */
    void begin_saving(support::Gate *disk)
    {
        start("qwen3");
        file_gate::writes = disk;
        for (int i = 0; i < 2; i++) (void)run(prompt(1 + i, LONG));
        ASSERT_TRUE(disk->wait_until_reached());
        stop_time();
    }
    void stop_time()
    {
        for (int i = 0; i < 4000 && stats().running > 0; i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        time_stands = true;
        before_ = weir_sessions_pauses(sessions_);
    }
    void finish(Running &running) const
    {
        running.gate.open();
        running.wait();
        running.release();
        for (int i = 0; i < 4000 && stats().running > 0; i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    /* Opens the disk while a sequence runs, until the save has paused. */
    void pause_with_a_sequence(support::Gate *disk)
    {
        Running running(prompt(9, 30));
        ASSERT_EQ(running.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_TRUE(running.gate.wait_until_reached());
        disk->open();
        EXPECT_TRUE(wait_for_pause());
        finish(running);
    }
    int64_t pauses() const { return weir_sessions_pauses(sessions_) - before_; }
    bool wait_for_pause() const
    {
        for (int i = 0; i < 4000 && pauses() == 0; i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return pauses() > 0;
    }
    int64_t before_ = 0;
};

TEST_F(Pace, AnAutomaticSaveDoesNotPauseWhileNothingRuns)
{
    support::Gate disk;
    begin_saving(&disk);
    disk.open();
    for (int i = 0; i < 4000 && stats().saved_sequences == 0; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(stats().saved_sequences, 1);
    EXPECT_EQ(pauses(), 0);
}

TEST_F(Pace, AnAutomaticSavePausesWhileASequenceRuns)
{
    support::Gate disk;
    begin_saving(&disk);
    pause_with_a_sequence(&disk);
    EXPECT_EQ(stats().saved_sequences, 0) << "it did not pause";
    settle(); /* looks again: nothing runs */
    EXPECT_EQ(stats().saved_sequences, 1);
    EXPECT_EQ(pauses(), 1);
}

TEST_F(Pace, TheEndDoesNotWaitForAPause)
{
    support::Gate disk;
    begin_saving(&disk);
    pause_with_a_sequence(&disk);
    stop();
}

TEST_F(Pace, MemoryThatIsNeededEndsAPause)
{
    support::Gate disk;
    begin_saving(&disk);
    pause_with_a_sequence(&disk);
    Call one(prompt(20, 900), 12), two(prompt(21, 900), 12);
    for (Call *const call : { &one, &two })
        ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
    for (Call *const call : { &one, &two }) {
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        call->release();
    }
    EXPECT_GE(stats().saves_given_up, 1);
    time_stands = false;
    expect_nothing_leaks();
}

TEST_F(Pace, ASaveThatIsAskedForPausesWhileASequenceRuns)
{
    start("qwen3", { "sessions.autosave=false" });
    const auto tokens = prompt(1, LONG);
    (void)run(tokens);
    support::Gate disk;
    file_gate::writes = &disk;
    weir_status status = WEIR_EIO;
    std::thread saving([&] { status = save("long", tokens); });
    ASSERT_TRUE(disk.wait_until_reached());
    stop_time();
    pause_with_a_sequence(&disk);
    (void)list(); /* a job that begins and ends: the pause looks again */
    saving.join();
    EXPECT_EQ(status, WEIR_OK) << error_.text;
    EXPECT_EQ(pauses(), 1);
}

} // namespace
} // namespace pressure
