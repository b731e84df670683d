/* Recurrent states on disk: a sequence whose state went there is continued as if it had stayed in
 * memory, and computed again if the disk fails. */
#include "tests/unit/schedule/cold_states.h"
#include "tests/unit/schedule/moved.h"

namespace {

using namespace cold_states;

TEST_F(ColdStates, ComeBackWithTheirBits)
{
    open_with(200);
    EXPECT_EQ(run_both(), TEXTS);
    const weir_service_stats all = stats();
    EXPECT_GE(all.states_out, TEXTS - STATES);
    EXPECT_GE(all.states_back, TEXTS - STATES);
    EXPECT_GT(all.cold_states, 0);
    EXPECT_EQ(all.state_errors, 0);
}

/* Regenerated answers of idle conversations: one token of each prompt is computed. */
TEST_F(ColdStates, TheSamePromptAgainComputesOneToken)
{
    open_with(200);
    run_first();
    int n = 0;
    for (int i = 0; i < TEXTS; i++) {
        EXPECT_EQ(run(prompt(20 + i, ROWS), ANSWER), want_[(size_t)i]);
        n += usage_.n_cached == ROWS - 1;
        end_moves();
    }
    EXPECT_GE(n, TEXTS - 2) << "of few there is no state in memory";
    expect_sound();
    expect_within();
}

TEST_F(ColdStates, ADiskThatFailsMeansComputing)
{
    for (const Fault one : { Fault::WRITES, Fault::READS, Fault::BITS }) {
        open_with(200);
        fault = one;
        EXPECT_LT(run_both(), TEXTS);
        EXPECT_GT(stats().state_errors, 0);
        if (one == Fault::WRITES) EXPECT_EQ(stats().states_out, 0);
        if (one != Fault::WRITES) EXPECT_EQ(stats().states_back, 0);
        fault = Fault::NONE;
        stop();
    }
}

/* More conversations than memory holds, of which each speaks again. */
TEST_F(ColdStates, IdleConversationsAreContinued)
{
    enum { IDLE = 24 };
    for (const char *const model : { "tq", "qwen3" }) {
        start(model, 20, 170, strcmp(model, "tq") == 0 ? few_states_ : "kv.tiers.hot=1");
        std::vector<std::vector<int32_t>> turns;
        int64_t repeated = 0, reused = 0;
        for (int i = 0; i < IDLE; i++) {
            turns.push_back(prompt(100 + i, ROWS));
            const auto answer = run(turns.back(), ANSWER);
            end_moves();
            turns.back().insert(turns.back().end(), answer.begin(), answer.end());
        }
        for (auto &turn : turns) {
            repeated += (int64_t)turn.size();
            const auto more = prompt(7, MORE);
            turn.insert(turn.end(), more.begin(), more.end());
            (void)run(turn, ANSWER);
            end_moves();
            reused += usage_.n_cached;
        }
        EXPECT_GE(reused, repeated * 95 / 100) << model;
        EXPECT_GT(stats().kv_bytes_out, 0);
        EXPECT_EQ(stats().dropped_tokens, 0);
        expect_within();
    }
}

/* Two second turns whose states come from disk at the same time. */
struct TwoReads {
    enum { SLOTS = 2 };
    int64_t most; /* what may move in an iteration */
    std::vector<const void *> users; /* of requests whose state is being read */
    support::Gate disk;
    int n_reads; /* together */
    support::Moved moved;

    static void look(weir_service *service, void *user)
    {
        auto *const self = static_cast<TwoReads *>(user);
        self->users.clear();
        for (int32_t i = 0; i < SLOTS; i++)
            if (service->slots[i].owner != nullptr && service->slots[i].owner->is_reading)
                self->users.push_back(service->slots[i].owner->job->request.user);
    }
    /* What is read is seen in the next iteration. */
    static void read(weir_service *service, void *user)
    {
        auto *const self = static_cast<TwoReads *>(user);
        const int n_before = n_state_reads;
        state_reads = nullptr;
        self->disk.open();
        weir_prefix_wait_for_moves(service->prefix);
        self->n_reads = n_state_reads - n_before;
        service->pace.least = service->pace.resumes = self->most;
        service->pace.pass_ns = INT64_MAX;
        self->moved.start(service);
    }
    bool has(const Call *call) const
    {
        return std::find(users.begin(), users.end(), call) != users.end();
    }
};

/* They are taken over one after the other, and each is read once. */
TEST_F(ColdStates, AreTakenOverSomeSteps)
{
    enum { CALLS = TEXTS / 2, TRIES = 10 };
    for (const int64_t most : { int64_t{ 1 }, int64_t{ 1 } << 40 }) {
        bool is_tried = false;
        for (int k = 0; k < TRIES && !is_tried; k++) {
            open_with(200);
            run_first();
            const int64_t n_before = stats().states_back;
            TwoReads two = { most, {}, {}, 0, {} };
            state_reads = &two.disk;
            std::vector<std::unique_ptr<Call>> calls;
            for (int i = 0; i < CALLS; i++) {
                calls.push_back(std::make_unique<Call>(second(i), ANSWER));
                calls.back()->request.cache_prompt = true;
                ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
            }
            for (int i = 0; i < 2000 && two.users.size() < TwoReads::SLOTS; i++, usleep(1000))
                weir_service_call(service_, TwoReads::look, &two);
            ASSERT_EQ(two.users.size(), size_t{ TwoReads::SLOTS }) << "two wait for the disk";
            for (const auto &call : calls)
                if (!two.has(call.get())) weir_job_cancel(call->job); /* unless it has ended */
            weir_service_call(service_, TwoReads::read, &two);
            for (int i = 0; i < CALLS; i++) {
                const Call &call = *calls[(size_t)i];
                calls[(size_t)i]->wait();
                if (!two.has(&call)) continue;
                EXPECT_EQ(call.tokens[0], want_again_[(size_t)i]) << i;
                EXPECT_EQ(call.usage.n_cached, ROWS + ANSWER - 1);
            }
            two.moved.stop();
            calls.clear();
            for (const auto &one : two.moved.all) EXPECT_LT(one.bytes - one.most, most);
            EXPECT_EQ(stats().states_back, n_before + TwoReads::SLOTS);
            is_tried = two.n_reads == TwoReads::SLOTS; /* else a write took the place of one */
            if (is_tried) EXPECT_EQ(two.moved.all.size(), most == 1 ? 2u : 1u);
            expect_sound();
        }
        EXPECT_TRUE(is_tried);
    }
}

/* Space for few states, which blocks of KV take in the end. */
TEST_F(ColdStates, AFullDiskDropsThem)
{
    open_with(4);
    (void)run_both();
    EXPECT_GT(stats().states_out, 0);
    stop();
    start("tq", 0);
    const auto large = prompt(1, 1900);
    const auto want = run(large, 12);
    fault = Fault::NONE;
    start("tq", 20, 24, few_states_);
    for (int i = 0; i < TEXTS; i++) (void)run(prompt(20 + i, ROWS), ANSWER);
    EXPECT_EQ(run(large, 12), want) << "states leave the disk to the blocks of a sequence";
    EXPECT_EQ(stats().kv_write_errors, 0);
    expect_within();
}

/* Blocks fill the disk and go, states take their space, then blocks again: what was freed leaves
 * the disk before others take its place. */
TEST_F(ColdStates, BothFilesStayWithinTheDisk)
{
    enum { BLOCKS = 40, LEFT = 6, SHORT = 30 };
    start("tq", 20, BLOCKS, few_states_);
    const weir_lower_tier_io io = { write_or_fail, read_or_fail, nullptr, nullptr };
    weir_lower_tier_set_io(weir_prefix_lower_tier(weir_engine_prefix(engine_)), &io);
    const int64_t limit = (int64_t)weir_engine_plan_of(engine_)->kv_disk;
    int64_t most = 0, n_texts = 0;
    const auto say = [&](const std::vector<int32_t> &ids) {
        (void)run(ids, ANSWER);
        end_moves();
        most = std::max(most, bytes_on_disk());
    };
    for (int round = 0; round < 3; round++) {
        say(prompt(1 + 2 * round, 1900));
        say(prompt(2 + 2 * round, 1900));
        EXPECT_GE(bytes_on_disk(), limit / 2) << "blocks take most of the disk";
        drop_cached(LEFT);
        const int64_t before = stats().states_out;
        for (int i = 0; i < 60; i++) say(prompt(100 + (int)n_texts++, SHORT));
        EXPECT_GE(stats().states_out, before + 30) << "their states take most of it";
    }
    EXPECT_LE(most, limit + (16 << 10)) << "the file system's own blocks of two files are counted";
    expect_sound();
    expect_within();
}

} // namespace
