/* What a client or a request may hold, and what others are told of it. */
#include <map>

#include "tests/unit/schedule/support.h"

namespace {

using support::Call;
using support::Service;

/* What others see while a request runs, and after it. */
TEST_F(Service, SequencesAndCachedSequencesAreCountedInBytes)
{
    struct Look {
        weir_service *service;
        Call *call;
        weir_service_sequence seen[2];
        int32_t n;
    };
    open("qwen3", 2, nullptr, 512);
    const weir_engine_facts *const facts = weir_service_facts_of(service_);
    Call call(prompt(1, 100), 50);
    Look look = { service_, &call, {}, 0 };
    call.request.client = 5;
    call.request.cache_prompt = true;
    call.request.user = &look;
    call.request.callback = [](void *user, const weir_event *event) {
        Look *const look = static_cast<Look *>(user);
        if (event->type == WEIR_EVENT_TOKEN && look->call->tokens[0].size() == 40)
            look->n = weir_service_sequences_of(look->service, look->seen);
        return Call::on_event(look->call, event);
    };
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
    call.wait();
    ASSERT_EQ(look.n, 1);
    EXPECT_EQ(look.seen[0].client, 5);
    EXPECT_EQ(look.seen[0].tokens, 139) << "after the step that drew the 40th token";
    EXPECT_EQ(look.seen[0].kv_bytes, weir_service_kv_bytes(facts, 139));
    EXPECT_EQ(look.seen[0].kv_claim, weir_service_kv_bytes(facts, 149));
    EXPECT_GT(look.seen[0].bytes, look.seen[0].kv_bytes);
    EXPECT_EQ(pages_used_when_idle(), 0);
    weir_service_stats stats;
    weir_service_stats_of(service_, &stats);
    EXPECT_EQ(stats.kept_tokens, 149);
    EXPECT_EQ(stats.kept_bytes, weir_service_kv_bytes(facts, 149));
    EXPECT_EQ(stats.kv_bytes_used, 0);
    call.release();
}

/* Jobs of a client that run at the same time, as their events tell. */
struct Crowd {
    std::mutex lock;
    std::map<int32_t, int> running, most;
    std::vector<std::pair<int32_t, int>>
        order; /* client, and the number of its job, as they were admitted */
    std::map<int32_t, int> admitted;
    void join(Call *call)
    {
        call->request.user = new Member{ this, call, false };
        call->request.callback = [](void *user, const weir_event *event) {
            Member *const member = static_cast<Member *>(user);
            Call *const call = member->call;
            if (event->type == WEIR_EVENT_ADMITTED)
                member->crowd->count(call->request.client, member->is_admitted = true);
            if (event->type == WEIR_EVENT_DONE && member->is_admitted)
                member->crowd->count(call->request.client, false);
            const bool go_on = Call::on_event(call, event);
            if (event->type == WEIR_EVENT_DONE) delete member;
            return go_on;
        };
    }

  private:
    struct Member {
        Crowd *crowd;
        Call *call;
        bool is_admitted;
    };
    void count(int32_t client, bool begins)
    {
        const std::lock_guard<std::mutex> hold(lock);
        running[client] += begins ? 1 : -1;
        if (begins) order.emplace_back(client, ++admitted[client]);
        if (running[client] > most[client]) most[client] = running[client];
    }
};

TEST_F(Service, ABudgetHoldsBackOnlyItsOwnClient)
{
    with_server_ = true;
    open("qwen3", 6, nullptr, 256, 32);
    const int64_t page = 64 * weir_service_facts_of(service_)->kv_bytes_per_token;
    std::vector<std::vector<int32_t>> solo;
    for (int i = 0; i < 10; i++) solo.push_back(alone(prompt(i, 30), 60));
    weir_engine_close(engine_);
    engine_ = nullptr;
    /* 89 rows are two pages: two of a client fit into five pages, a third does not. */
    open(
        "qwen3", 6, nullptr, 256, 32,
        { ("server.kv_per_key=" + std::to_string(5 * page) + "B").c_str() }
    );
    EXPECT_EQ(weir_service_kv_bytes(weir_service_facts_of(service_), 89), 2 * page);
    for (int round = 0; round < 3; round++) {
        Crowd crowd;
        /* Holds the engine thread in its callback until all are queued. */
        Call first(prompt(9, 3), 1);
        std::unique_lock<std::mutex> hold(first.lock);
        first.request.client = 7;
        ASSERT_EQ(first.submit(service_, &error_), WEIR_OK);
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < 10; i++) {
            calls.push_back(std::make_unique<Call>(prompt(i, 30), 60));
            calls.back()->request.client = i < 7 ? 1 : 2;
            crowd.join(calls.back().get());
            ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
        }
        if (round == 2)
            weir_job_cancel(calls[4]->job); /* in the queue, after others of its client */
        hold.unlock();
        for (size_t i = 0; i < 10; i++) {
            calls[i]->wait();
            if (round == 2 && i == 4) continue;
            EXPECT_EQ(calls[i]->status, WEIR_OK);
            EXPECT_EQ(calls[i]->tokens[0], solo[i]) << "stream " << i;
        }
        first.wait();
        EXPECT_EQ(crowd.most[1], 2);
        EXPECT_EQ(crowd.most[2], 2);
        size_t second_of_two = 0, third_of_one = 0;
        for (size_t i = 0; i < crowd.order.size(); i++) {
            if (crowd.order[i] == std::make_pair(2, 2)) second_of_two = i;
            if (crowd.order[i] == std::make_pair(1, 3)) third_of_one = i;
        }
        EXPECT_LT(second_of_two, third_of_one) << "client 2 does not wait for client 1's budget";
    }
}

TEST_F(Service, ARequestEndsAtItsBudget)
{
    with_server_ = true;
    open("qwen3", 4, nullptr, 512);
    const int64_t page = 64 * weir_service_facts_of(service_)->kv_bytes_per_token;
    const std::vector<int32_t> whole = alone(prompt(1, 100), 200);
    for (const char *const key : { "server.kv_per_request", "server.kv_per_key" }) {
        weir_engine_close(engine_);
        engine_ = nullptr;
        open(
            "qwen3", 4, nullptr, 512, 0,
            { (std::string(key) + "=" + std::to_string(2 * page + 1) + "B").c_str() }
        );
        Call call(prompt(1, 100), 200), longer(prompt(2, 129), 1), wide(prompt(3, 65), 1),
            full(prompt(4, 128), 9);
        ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        call.wait();
        EXPECT_EQ(call.finish[0], WEIR_FINISH_LENGTH);
        EXPECT_EQ(call.tokens[0], std::vector<int32_t>(whole.begin(), whole.begin() + 29))
            << "the last token needs no row";
        EXPECT_EQ(call.usage.n_rows, 128);
        EXPECT_LE(call.usage.kv_bytes, 2 * page + 1);
        ASSERT_EQ(full.submit(service_, &error_), WEIR_OK);
        full.wait();
        EXPECT_EQ(full.tokens[0].size(), 1u);
        EXPECT_EQ(longer.submit(service_, &error_), WEIR_EINVAL);
        const std::string text = error_.text;
        for (const std::string &part :
             { std::string("kv_budget_exceeded: "),
               std::string("prompt of 129 tokens exceeds the available context size of 128 tokens"),
               std::to_string(3 * page) + " bytes",
               std::string(key) + " allows " + std::to_string(2 * page + 1),
               std::string("raise ") + key })
            EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
        wide.request.n_choices = 2;
        EXPECT_EQ(wide.submit(service_, &error_), WEIR_EINVAL);
        EXPECT_NE(
            std::string(error_.text).find("the KV of 2 choices takes " + std::to_string(4 * page)),
            std::string::npos
        ) << error_.text;
        wide.request.n_prompt = 64;
        ASSERT_EQ(wide.submit(service_, &error_), WEIR_OK) << error_.text;
        wide.wait();
        for (Call *const c : { &call, &full, &wide }) c->release();
    }
}

/* Open rows count too, and nothing overflows. */
TEST_F(Service, BudgetArithmetic)
{
    weir_engine_facts facts = {};
    facts.window = 1000;
    EXPECT_EQ(weir_service_row_limit(&facts, 3), 1000) << "no budget";
    facts.kv_per_request = 1;
    EXPECT_EQ(weir_service_row_limit(&facts, 3), 1000) << "a model without KV";
    facts.kv_bytes_per_token = 10;
    facts.kv_unsealed_bytes = 100;
    EXPECT_EQ(weir_service_row_limit(&facts, 1), 0);
    for (const int64_t bytes : { 739, 740, 1379, 1380, 100000000 }) {
        facts.kv_per_request = 0, facts.kv_per_key = bytes;
        const int32_t rows = weir_service_row_limit(&facts, 1);
        EXPECT_EQ(rows, bytes < 740 ? 0 : bytes < 1380 ? 64 : bytes < 100000000 ? 128 : 1000);
        if (rows > 0) EXPECT_LE(weir_service_kv_bytes(&facts, rows), bytes);
        facts.kv_per_request = 2 * bytes, facts.kv_per_key = 0;
        EXPECT_EQ(weir_service_row_limit(&facts, 2), rows);
        facts.kv_per_key = 3 * bytes;
        EXPECT_EQ(weir_service_row_limit(&facts, 2), rows) << "the tighter one";
    }
    facts.sink_tokens = 128,
    facts.kv_bytes_per_sink = 20; /* 1280 bytes for each of two pages, 640 after them */
    for (const int64_t bytes : { 1379, 1380, 2659, 2660, 3299, 3300 }) {
        facts.kv_per_request = bytes, facts.kv_per_key = 0;
        const int32_t rows = weir_service_row_limit(&facts, 1);
        EXPECT_EQ(rows, bytes < 1380 ? 0 : bytes < 2660 ? 64 : bytes < 3300 ? 128 : 192);
        if (rows > 0) EXPECT_LE(weir_service_kv_bytes(&facts, rows), bytes);
        EXPECT_GT(weir_service_kv_bytes(&facts, rows + 1), bytes);
    }
    facts.sink_tokens = 0;
    facts.window = 16777216, facts.kv_bytes_per_token = 1 << 20, facts.kv_per_request = INT64_MAX,
    facts.kv_per_key = 0;
    EXPECT_EQ(weir_service_row_limit(&facts, 1), 16777216);
}

TEST_F(Service, ABudgetBelowOnePageIsRefusedAtOnce)
{
    with_server_ = true;
    open("qwen3", 1, nullptr, 256);
    const int64_t page = 64 * weir_service_facts_of(service_)->kv_bytes_per_token;
    for (const char *const key : { "server.kv_per_request", "server.kv_per_key" }) {
        weir_plan plan;
        const weir_engine_options options = { &config_, true, true, nullptr, nullptr, nullptr };
        ASSERT_EQ(
            weir_config_set(&config_, key, (std::to_string(page - 1) + "B").c_str(), &error_),
            WEIR_OK
        );
        EXPECT_EQ(weir_engine_plan(&plan, &options, &error_), WEIR_ECONFIG);
        EXPECT_NE(
            std::string(error_.text)
                .find(std::string(key) + " = " + std::to_string(page - 1) + "B"),
            std::string::npos
        ) << error_.text;
        ASSERT_EQ(
            weir_config_set(&config_, key, (std::to_string(page) + "B").c_str(), &error_), WEIR_OK
        );
        EXPECT_EQ(weir_engine_plan(&plan, &options, &error_), WEIR_OK) << error_.text;
        weir_buffer text = {};
        ASSERT_EQ(weir_plan_print(&plan, &text), WEIR_OK);
        EXPECT_NE(
            std::string(text.data).find(
                strcmp(key, "server.kv_per_key") == 0 ? "kv of one key" : "kv of one request"
            ),
            std::string::npos
        );
        weir_buffer_free(&text);
    }
}

TEST_F(Service, AWindowThatIsFullEndsWithLength)
{
    open("qwen3", 1, nullptr, 64);
    Call call(prompt(1, 60), 100);
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK);
    call.wait();
    EXPECT_EQ(call.finish[0], WEIR_FINISH_LENGTH);
    EXPECT_EQ(call.tokens[0].size(), 5u); /* the last one needs no place: it is never computed */
}

} // namespace
