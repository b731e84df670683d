// A database of states: memory, threads, formats of its log, owners.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "engine/states/states_internal.h"
#include "offload/ledger.h"
#include "tests/unit/states/support.h"

namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;
using States = Database;

/* ---- memory ---------------------------------------------------------------------------------- */
TEST_F(States, EntriesAreOnTheLedgerAndARefusalChangesNothing)
{
    added("a", { 1, 0, 0, 0 });
    const size_t caps[WEIR_TIER_COUNT] = { 400 << 10 };
    weir_ledger *ledger = nullptr;
    weir_ledger_tracker tracker;
    ASSERT_EQ(weir_ledger_open(&ledger, caps), WEIR_OK);
    weir_ledger_tracker_init(&tracker, ledger, WEIR_ACCOUNT_OTHER, nullptr);
    open(true, &tracker.tracker);
    const size_t block = weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER);
    EXPECT_GT(block, STATE_BLOCK * (sizeof(weir_state_info) + 4 * sizeof(float)));
    EXPECT_LT(block, (size_t)200 << 10);
    size_t n = 1;
    while (n < 1000 && add("more", { 1, 0, 0, 0 }) == WEIR_OK) n++;
    EXPECT_EQ(n % STATE_BLOCK, 0u);
    EXPECT_LT(n, 1000u);
    EXPECT_NE(std::string(error_.text).find("memory.host"), std::string::npos) << error_.text;
    EXPECT_EQ(names().size(), n);
    EXPECT_EQ(n_files(), n);
    ASSERT_EQ(weir_states_remove(states_, "a", &error_), WEIR_OK);
    close();
    EXPECT_EQ(weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER), 0u);
    const size_t less[WEIR_TIER_COUNT] = { 1000 };
    weir_ledger_close(ledger);
    ASSERT_EQ(weir_ledger_open(&ledger, less), WEIR_OK);
    weir_ledger_tracker_init(&tracker, ledger, WEIR_ACCOUNT_OTHER, nullptr);
    const weir_states_options options = { folder_.c_str(), test_model, true, &tracker.tracker, 0 };
    EXPECT_EQ(weir_states_open(&states_, &options, &error_), WEIR_ENOMEM);
    EXPECT_NE(std::string(error_.text).find("memory.host"), std::string::npos) << error_.text;
    EXPECT_EQ(weir_ledger_total(ledger, WEIR_TIER_HOST), 0u);
    weir_ledger_close(ledger);
    EXPECT_EQ(n_files(), n - 1);
}

/* ---- threads --------------------------------------------------------------------------------- */
TEST_F(States, IsReadWhileItIsWritten)
{
    std::atomic<bool> is_done{ false };
    std::atomic<int> n_wrong{ 0 };
    const auto read = [&](weir_states *states) {
        const float vector[] = { 1, 1, 0, 0 };
        const weir_states_question question = { vector, 5, nullptr, nullptr };
        size_t last = 0;
        while (!is_done) {
            weir_state_info *list = nullptr;
            weir_state_hit hits[5];
            size_t n = 0, total = 0;
            weir_error error = {};
            const weir_states_page page = { 0, 10, nullptr, nullptr };
            if (weir_states_list(states, &page, &list, &n, &total, &error) != WEIR_OK) n_wrong++;
            for (size_t i = 1; i < n; i++) n_wrong += list[i - 1].serial <= list[i].serial;
            weir_memory_give(list);
            n_wrong += total < last; /* only additions here */
            last = total;
            if (weir_states_route(states, &question, hits, &n, &error) != WEIR_OK) n_wrong++;
            for (size_t i = 1; i < n; i++) n_wrong += hits[i - 1].similarity < hits[i].similarity;
        }
    };
    weir_states *const writer = states_;
    states_ = nullptr;
    open(false);
    weir_states *const reader = states_;
    std::thread same(read, writer), other(read, reader);
    states_ = writer;
    for (int i = 0; i < 100; i++) added("doc", { 1, (float)i, 0, 0 });
    is_done = true;
    same.join();
    other.join();
    EXPECT_EQ(n_wrong, 0);
    EXPECT_EQ(names().size(), 100u);
    weir_states_close(reader);
}

TEST_F(States, FormsAreKnownAfterReopening)
{
    added("exact");
    for (const int32_t bits : { 8, 4 }) {
        source_.file = work_ + "/" + std::to_string(bits) + ".session";
        write_session(source_.file, 100, 0, bits);
        added("b" + std::to_string(bits));
    }
    for (int i = 0; i < 2; i++, open()) {
        weir_state_info info = {};
        ASSERT_EQ(weir_states_find(states_, "exact", &info, &error_), WEIR_OK);
        EXPECT_TRUE(weir_state_is_exact(&info));
        for (const int32_t bits : { 8, 4 }) {
            ASSERT_EQ(
                weir_states_find(states_, ("b" + std::to_string(bits)).c_str(), &info, &error_),
                WEIR_OK
            );
            EXPECT_EQ(info.state_bits, bits);
            EXPECT_TRUE(info.is_merged);
        }
    }
}

/* The same document computed with two sets of numerics: two states, each found by its own. */
TEST_F(States, ASourceIsFoundByItsNumerics)
{
    weir_state_info first = {}, second = {}, found = {};
    const uint64_t source[2] = { 5, 0 };
    ASSERT_EQ(add("v3", {}, nullptr, 5), WEIR_OK) << error_.text;
    first = info_;
    source_.file = work_ + "/v4.session";
    write_session(source_.file, 100, 0, 0, "v4");
    ASSERT_EQ(add("v4", {}, nullptr, 5), WEIR_OK) << error_.text;
    second = info_;
    EXPECT_NE(memcmp(first.numerics, second.numerics, sizeof first.numerics), 0);
    for (int turn = 0; turn < 2; turn++) {
        for (const weir_state_info *const want : { &first, &second }) {
            ASSERT_EQ(
                weir_states_find_source(states_, source, nullptr, want->numerics, &found, &error_),
                WEIR_OK
            ) << error_.text;
            EXPECT_EQ(found.serial, want->serial);
            EXPECT_EQ(memcmp(found.numerics, want->numerics, sizeof found.numerics), 0);
        }
        const uint64_t others[2] = { first.numerics[0] + 1, first.numerics[1] };
        EXPECT_EQ(
            weir_states_find_source(states_, source, nullptr, others, &found, &error_),
            WEIR_ENOTFOUND
        );
        open(); /* from the log */
    }
}

TEST_F(States, OwnersAndCaps)
{
    const char *const owner = "k0123456789abcdef";
    weir_new_state state = {};
    state.label = "A paper with a name that is longer than what an owner leaves of it";
    state.owner = owner;
    state.source[0] = 5;
    state.write = link_source;
    state.user = &source_;
    ASSERT_EQ(weir_states_add(states_, &state, &info_, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(std::string(info_.name), std::string(owner) + "-a-paper-with-a-name-that-is-long");
    ASSERT_EQ(weir_states_add(states_, &state, &info_, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(std::string(info_.name), std::string(owner) + "-a-paper-with-a-name-that-is-long-2");
    ASSERT_EQ(add("plain", {}, nullptr, 5), WEIR_OK);
    weir_state_info info = {};
    const uint64_t source[2] = { 5, 0 };
    ASSERT_EQ(weir_states_find_source(states_, source, nullptr, nullptr, &info, &error_), WEIR_OK);
    EXPECT_STREQ(info.name, "plain");
    ASSERT_EQ(weir_states_find_source(states_, source, owner, nullptr, &info, &error_), WEIR_OK);
    EXPECT_EQ(info.serial, 2);
    EXPECT_EQ(
        weir_states_find_source(states_, source, "k0123456789abcdee", nullptr, &info, &error_),
        WEIR_ENOTFOUND
    );
    char own[WEIR_STATE_OWNER + 2];
    for (const char *const name :
         { "k0123456789abcde-x", "k0123456789abcdefx", "k0123456789abcdeg-x", "plain" }) {
        weir_state_owner(own, name);
        EXPECT_STREQ(own, "") << name;
    }
    weir_state_owner(own, "k0123456789abcdef-x");
    EXPECT_STREQ(own, owner);
    /* The cap is one of all files, of all who opened them. */
    disk_ = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder_))
        if (entry.path().extension() == ".session")
            disk_ += static_cast<int64_t>(std::filesystem::file_size(entry.path()));
    open();
    const int calls = source_.calls;
    EXPECT_EQ(add("more"), WEIR_EFULL);
    EXPECT_NE(std::string(error_.text).find("states.disk"), std::string::npos) << error_.text;
    EXPECT_EQ(source_.calls, calls) << "nothing was written";
    ASSERT_EQ(weir_states_remove(states_, "plain", &error_), WEIR_OK);
    EXPECT_EQ(added("more"), "more");
}

} // namespace
