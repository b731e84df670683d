/* Requests with a policy on models of which some layers have a sliding window and keep every row
 * (kv.full_windows): all who count rows must know. */
#include <condition_variable>
#include <mutex>

#include "engine/schedule/service.h"
#include "tests/unit/model/windowed.h"

namespace {

using support::Engine;
using support::Folder;
using support::Settings;

/* A request, and what its sequence held after a number of drawn tokens. */
struct Call {
    std::mutex lock;
    std::condition_variable changed;
    weir_service *service = nullptr;
    weir_service_sequence seen = {};
    int n_tokens = 0, look_at = 0;
    bool done = false;
    weir_status status = WEIR_OK;
    weir_usage usage = {};

    static bool on_event(void *user, const weir_event *event)
    {
        Call *const call = static_cast<Call *>(user);
        const std::lock_guard<std::mutex> hold(call->lock);
        if (event->type == WEIR_EVENT_TOKEN && ++call->n_tokens == call->look_at)
            EXPECT_EQ(weir_service_sequences_of(call->service, &call->seen), 1);
        if (event->type == WEIR_EVENT_DONE) {
            call->done = true;
            call->status = event->status;
            call->usage = event->usage;
            call->changed.notify_all();
        }
        return true;
    }
};

/* A client's budget counts them. */
TEST(Windows, CountWithAllTheirRows)
{
    const Folder folder;
    Settings settings = { "kernels.activations=f32", "model.context=512", "batch.max_sequences=1",
                          "kv.full_windows=true" };
    Engine engine;
    support::write_windowed(folder, { "whole", "window" }, 40, &settings);
    ASSERT_EQ(engine.open(folder.path(), settings, true), WEIR_OK) << engine.text();
    weir_service *const service = weir_engine_service(engine.get());
    const auto prompt = support::some_tokens(30, 12, engine.n_vocab());
    weir_policy_options policy;
    ASSERT_EQ(weir_policy_options_default(&policy, "sinks", engine.error()), WEIR_OK)
        << engine.text();
    ASSERT_EQ(weir_policy_options_set(&policy, "every=1", engine.error()), WEIR_OK)
        << engine.text();
    Call call;
    call.service = service;
    call.look_at = 190;
    weir_request request = {};
    request.prompt = prompt.data();
    request.n_prompt = static_cast<int32_t>(prompt.size());
    request.max_tokens = 200;
    request.n_choices = 1;
    request.sampling = weir_sampling_default();
    request.sampling.temperature = 0;
    request.policy = &policy;
    request.kv_budget = 48;
    request.callback = Call::on_event;
    request.user = &call;
    weir_job *job = nullptr;
    ASSERT_EQ(weir_service_submit(service, &job, &request, engine.error()), WEIR_OK)
        << engine.text();
    {
        std::unique_lock<std::mutex> hold(call.lock);
        call.changed.wait(hold, [&] { return call.done; });
    }
    weir_job_release(job);
    EXPECT_EQ(call.status, WEIR_OK);
    EXPECT_LE(call.usage.n_rows, 49) << "of the layers that are the policy's";
    EXPECT_EQ(call.usage.n_rows + call.usage.n_evicted, 30 + 199);
    EXPECT_GT(call.seen.kv_bytes, weir_service_kv_bytes(weir_service_facts_of(service), 64))
        << "more than the budget";
    EXPECT_GE(call.seen.kv_claim, call.seen.kv_bytes);
}

/* With in_prompt a sequence may be longer than what memory has room for, but not where some layers
 * keep every row. */
TEST(Windows, ThePlanHasRoomForThem)
{
    Engine engine;
    struct {
        const char *layer, *full;
        bool fits;
    } cases[] = { { "window", "kv.full_windows=true", false },
                  { "window", "kv.full_windows=false", true },
                  { "whole", "kv.full_windows=true", true } };
    for (const auto &c : cases) {
        const Folder folder;
        Settings settings = { "memory.host=24MiB",
                              "model.context=262144",
                              "batch.max_sequences=1",
                              "batch.chunk=64",
                              "kv.policy.name=sinks",
                              "kv.policy.budget=256",
                              "kv.reuse=off",
                              "kv.policy.options=in_prompt=true",
                              c.full };
        support::write_windowed(folder, { "whole", c.layer }, 40, &settings);
        EXPECT_EQ(engine.plan(folder.path(), settings) == WEIR_OK, c.fits) << engine.text();
        if (!c.fits)
            EXPECT_NE(std::string(engine.text()).find("memory.host"), std::string::npos)
                << engine.text();
    }
}

/* After a step a sequence has what later rows read, whatever piece of a prompt it computed. */
TEST(Windows, AStepLeavesThoseOfTheWindow)
{
    const Folder folder;
    Settings settings = { "model.context=1024", "batch.chunk=512", "batch.max_sequences=1" };
    Engine engine;
    support::write_windowed(folder, { "whole", "window" }, 40, &settings);
    ASSERT_EQ(engine.open(folder.path(), settings), WEIR_OK) << engine.text();
    support::Sequence sequence(engine);
    sequence.add(support::some_tokens(1000, 3, engine.n_vocab()));
    for (int i = 0; i < 2; i++) {
        const float *logits = nullptr;
        weir_batch_item item = support::item_of(&sequence, 480, WEIR_LOGITS_LAST);
        ASSERT_EQ(weir_runner_step(engine.runner(), &item, 1, &logits, engine.error()), WEIR_OK);
        const weir_kv_window_table &table = sequence.get()->table.windows;
        EXPECT_EQ(table.end, (480 * (i + 1) + 63) / 64);
        weir_runner_move(engine.runner(), &item, 1, 0);
        EXPECT_EQ(table.first, (480 * (i + 1) - 39) / 64);
    }
}

} // namespace
