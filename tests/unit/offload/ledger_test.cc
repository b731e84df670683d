// Hard caps, peaks, and reserve and return that balance under threads.
#include "offload/ledger.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Ledger {
    weir_ledger *ledger = nullptr;
    weir_error error = {};
    explicit Ledger(size_t host, size_t device = 0)
    {
        const size_t caps[WEIR_TIER_COUNT] = { host, device, 0 };
        EXPECT_EQ(weir_ledger_open(&ledger, caps), WEIR_OK);
    }
    ~Ledger() { weir_ledger_close(ledger); }
    weir_status reserve(weir_account account, size_t bytes)
    {
        return weir_ledger_reserve(ledger, WEIR_TIER_HOST, account, bytes, &error);
    }
    size_t total() const { return weir_ledger_total(ledger, WEIR_TIER_HOST); }
};

TEST(Ledger, ARefusedReservationTakesNothingAndSaysWhatToDo)
{
    Ledger l(1000);
    ASSERT_EQ(l.reserve(WEIR_ACCOUNT_WEIGHTS, 900), WEIR_OK);
    EXPECT_EQ(l.reserve(WEIR_ACCOUNT_KV, 101), WEIR_EFULL);
    EXPECT_STREQ(l.error.text, "kv: 101 bytes asked, 100 of 1000 left; raise memory.host");
    EXPECT_EQ(l.reserve(WEIR_ACCOUNT_KV, SIZE_MAX), WEIR_EFULL);
    EXPECT_EQ(weir_ledger_used(l.ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), 0u);
    EXPECT_EQ(l.total(), 900u);
    EXPECT_EQ(l.reserve(WEIR_ACCOUNT_KV, 100), WEIR_OK); /* exactly full is allowed */
}

TEST(Ledger, PeakStaysAfterReturns)
{
    Ledger l(0);
    ASSERT_EQ(l.reserve(WEIR_ACCOUNT_HTTP, 700), WEIR_OK);
    weir_ledger_return(l.ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP, 700);
    ASSERT_EQ(l.reserve(WEIR_ACCOUNT_HTTP, 10), WEIR_OK);
    EXPECT_EQ(weir_ledger_peak(l.ledger, WEIR_TIER_HOST), 700u);
    EXPECT_EQ(l.total(), 10u);
}

TEST(Ledger, NoCapNeverWrapsAround)
{
    Ledger l(0);
    ASSERT_EQ(l.reserve(WEIR_ACCOUNT_OTHER, SIZE_MAX - 5), WEIR_OK);
    EXPECT_EQ(l.reserve(WEIR_ACCOUNT_OTHER, 6), WEIR_EFULL);
}

TEST(Ledger, TiersAreApart)
{
    Ledger l(10, 20);
    EXPECT_EQ(
        weir_ledger_reserve(l.ledger, WEIR_TIER_DEVICE, WEIR_ACCOUNT_KV, 20, nullptr), WEIR_OK
    );
    EXPECT_EQ(l.total(), 0u);
    EXPECT_EQ(weir_ledger_cap(l.ledger, WEIR_TIER_DEVICE), 20u);
}

TEST(Ledger, BlocksAreAlignedAndCharged)
{
    Ledger l(16 << 20);
    for (const size_t bytes : { size_t{ 1 }, size_t{ 65 }, size_t{ 3 } << 20 }) {
        void *memory = nullptr;
        ASSERT_EQ(
            weir_ledger_alloc(l.ledger, &memory, WEIR_ACCOUNT_ACTIVATIONS, bytes, &l.error), WEIR_OK
        );
        EXPECT_EQ((uintptr_t)memory % (bytes >= (2u << 20) ? (2u << 20) : 64u), 0u);
        EXPECT_EQ(l.total(), bytes);
        std::memset(memory, 1, bytes);
        weir_ledger_free(l.ledger, memory, WEIR_ACCOUNT_ACTIVATIONS, bytes);
        EXPECT_EQ(l.total(), 0u);
    }
    void *memory = &l;
    EXPECT_EQ(
        weir_ledger_alloc(l.ledger, &memory, WEIR_ACCOUNT_KV, 17 << 20, &l.error), WEIR_EFULL
    );
    EXPECT_EQ(memory, nullptr);
    weir_ledger_free(l.ledger, nullptr, WEIR_ACCOUNT_KV, 17 << 20);
    EXPECT_EQ(l.total(), 0u);
}

TEST(Ledger, TrackersChargeTheirAccountAndKeepTheRefusal)
{
    Ledger l(1000);
    weir_error refused = {};
    weir_ledger_tracker tracker, no_tracker;
    weir_ledger_tracker_init(&tracker, l.ledger, WEIR_ACCOUNT_TOKENIZER, &refused);
    weir_ledger_tracker_init(&no_tracker, nullptr, WEIR_ACCOUNT_TOKENIZER, nullptr);
    ASSERT_EQ(weir_memory_tracker_set(&tracker.tracker), nullptr);
    void *const memory = weir_memory_take(500);
    EXPECT_GE(weir_ledger_used(l.ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_TOKENIZER), 500u);
    EXPECT_EQ(weir_memory_take(600), nullptr);
    EXPECT_NE(strstr(refused.text, "tokenizer: 624 bytes asked"), nullptr) << refused.text;
    EXPECT_EQ(weir_memory_tracker_set(&no_tracker.tracker), &tracker.tracker);
    void *const other = weir_memory_take(5000);
    EXPECT_NE(other, nullptr);
    (void)weir_memory_tracker_set(nullptr);
    weir_memory_give(memory);
    weir_memory_give(other);
    EXPECT_EQ(l.total(), 0u);
}

TEST(Ledger, ReadGivesAllCountersAtOnce)
{
    Ledger l(1000, 50);
    ASSERT_EQ(l.reserve(WEIR_ACCOUNT_KV, 700), WEIR_OK);
    weir_ledger_return(l.ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_KV, 200);
    weir_ledger_state state;
    weir_ledger_read(l.ledger, &state);
    EXPECT_EQ(state.cap[WEIR_TIER_HOST], 1000u);
    EXPECT_EQ(state.cap[WEIR_TIER_DEVICE], 50u);
    EXPECT_EQ(state.total[WEIR_TIER_HOST], 500u);
    EXPECT_EQ(state.peak[WEIR_TIER_HOST], 700u);
    EXPECT_EQ(state.used[WEIR_TIER_HOST][WEIR_ACCOUNT_KV], 500u);
    EXPECT_STREQ(weir_tier_name(WEIR_TIER_DISK), "disk");
}

TEST(Ledger, ThreadsNeverPassTheCap)
{
    Ledger l(1000);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&l] {
            for (int i = 0; i < 20000; i++)
                if (weir_ledger_reserve(
                        l.ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP, 300, nullptr
                    ) == WEIR_OK)
                    weir_ledger_return(l.ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP, 300);
        });
    for (auto &thread : threads) thread.join();
    EXPECT_EQ(l.total(), 0u);
    EXPECT_LE(weir_ledger_peak(l.ledger, WEIR_TIER_HOST), 900u);
}

TEST(LedgerDeathTest, ReturningMoreThanTakenAborts)
{
    Ledger l(1000);
    ASSERT_EQ(l.reserve(WEIR_ACCOUNT_KV, 10), WEIR_OK);
    EXPECT_DEATH(weir_ledger_return(l.ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_KV, 11), "bytes <=");
}

}  // namespace
