// Layers with a sliding window drop the rows that no later row reads. Answers have the same bits as
// with every row (kv.full_windows), whatever is reused, preempted, forked, drafted, saved, evicted.
#include "tests/every_nth.h"
#include "tests/unit/schedule/window_rows.h"

namespace {

using namespace windows;

class OfModel : public WindowRows, public ::testing::WithParamInterface<const char *> {};

TEST_P(OfModel, HasTheBitsOfAllRows)
{
    start(GetParam(), true);
    const std::vector<Answer> want = answers(false);
    for (const bool together : { false, true }) {
        start(GetParam(), false);
        expect_equal(answers(together), want);
        expect_equal(answers(together), want); /* most is cached now */
        expect_sound();
    }
}

INSTANTIATE_TEST_SUITE_P(
    Models, OfModel,
    ::testing::ValuesIn(weir_test::every_nth(
        { "../families/gemma3", "../families/gemma4", "../families/gemma4-moe",
          "../families/gpt-oss", "../families/olmo3", "../families/phi3", "mistral", "ow:40",
          "wo:64", "ww:65", "wo:129", "ww:1" },
        3
    )),
    [](const auto &info) {
        std::string name = info.param;
        std::replace_if(name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
        return name;
    }
);

/* A sequence holds no more than its window and what a step adds. */
TEST_F(WindowRows, AreAsManyAsTheWindowHas)
{
    start("wo:40", false);
    const int64_t all = weir_kv_windows_spec_of(windows_)->n_blocks;
    struct Watched {
        support::Call call;
        weir_kv_windows *windows;
        int64_t least;
    } watched = { support::Call(prompt(1, 600), 200), windows_, INT64_MAX };
    watched.call.request.cache_prompt = false;
    watched.call.request.ignore_eos = true;
    watched.call.request.user = &watched;
    watched.call.request.callback = [](void *user, const weir_event *event) {
        Watched *const w = static_cast<Watched *>(user);
        w->least = std::min(w->least, weir_kv_windows_free_blocks(w->windows));
        return support::Call::on_event(&w->call, event);
    };
    (void)answer(watched.call);
    /* The window, a new block, and a block of a step of 64 rows. */
    EXPECT_GE(watched.least, all - 4);
    EXPECT_LT(watched.least, all);
    EXPECT_EQ(pages_used_when_idle(), 0);
    EXPECT_EQ(weir_kv_windows_free_blocks(windows_), all);
}

/* Sequences with long pieces of prompts never lack a block, without any to spare. */
TEST_F(WindowRows, AreNeverShort)
{
    const Settings more = { "kv.reuse=off", "batch.chunk=512" };
    start("wo:100", true, more);
    const std::vector<Answer> want = long_prompts();
    start("wo:100", false, more);
    EXPECT_EQ(
        weir_kv_windows_spec_of(windows_)->n_blocks,
        weir_kv_windows_needed(weir_kv_windows_spec_of(windows_), 4, 0, 1)
    );
    expect_equal(long_prompts(), want);
    EXPECT_EQ(stats().preemptions, 0);
}

/* Where there is no memory for the windows of all sequences at once, there may be some for all rows
 * of fewer. */
TEST_F(WindowRows, AllAreKeptWhereWindowsTakeTooMuch)
{
    for (const char *const model : { "ww:1000", "wo:1000" }) {
        start(model, true);
        const std::vector<Answer> want = answers(false);
        start(model, false);
        const size_t with_windows = least_memory(), any = least_memory(false);
        ASSERT_LT(any, with_windows);
        const std::string memory = std::to_string(any) + "B";
        settings_.push_back("kv.full_windows=false");
        stop();
        open("mistral", 4, memory.c_str(), 1024);
        EXPECT_EQ(weir_kv_store_windows(weir_engine_store(engine_)), nullptr);
        expect_equal(answers(true), want);
    }
}

/* The same memory has room for more tokens. */
TEST_F(WindowRows, LeaveMemoryToTheOthers)
{
    start("wwwo:40", true, {}, "64MiB");
    const weir_plan full = *weir_engine_plan_of(engine_);
    start("wwwo:40", false, {}, "64MiB");
    const weir_plan plan = *weir_engine_plan_of(engine_);
    EXPECT_EQ(full.kv_windows, 0u);
    EXPECT_EQ(plan.kv_windows, weir_kv_windows_bytes(weir_kv_windows_spec_of(windows_)));
    EXPECT_LT(4 * plan.facts.kv_bytes_per_token, 2 * full.facts.kv_bytes_per_token);
    EXPECT_EQ(
        weir_ledger_used(weir_engine_ledger(engine_), WEIR_TIER_HOST, WEIR_ACCOUNT_KV),
        plan.kv + plan.kv_windows
    );
    EXPECT_EQ(
        weir_ledger_used(weir_engine_ledger(engine_), WEIR_TIER_HOST, WEIR_ACCOUNT_PAGE_TABLES),
        plan.page_tables
    );
}

/* The next turn continues where the last one ended, one with another answer where that began. */
TEST_F(WindowRows, TurnsContinueTheLastOnes)
{
    for (const char *const model : { "wo:40", "ww:100" }) {
        start(model, false);
        Ids ids = prompt(7, 500);
        (void)cached(ids, 150);
        const Ids first = cached(ids, 150);
        EXPECT_EQ(usage_.n_cached, 499) << model << usage_.reuse;
        Ids next = ids;
        next.insert(next.end(), first.begin(), first.end());
        (void)cached(next, 4);
        EXPECT_GE(usage_.n_cached, 640) << model << usage_.reuse;
        ids.push_back(9);
        (void)cached(ids, 4);
        EXPECT_EQ(usage_.n_cached, 500) << model << usage_.reuse;
        expect_sound();
    }
}

/* With the fewest blocks all are computed, and reuse ends where the rows before it are gone. */
TEST_F(WindowRows, AreDroppedFromTheCacheWhenTheyAreNeeded)
{
    start("wo:100", true);
    const std::vector<Answer> want = answers(false);
    start("wo:100", false);
    const std::string memory = std::to_string(least_memory() + (256 << 10)) + "B";
    start("wo:100", false, {}, memory.c_str());
    const weir_kv_windows_spec *const spec = weir_kv_windows_spec_of(windows_);
    EXPECT_LT(spec->n_blocks, weir_kv_windows_needed(spec, 4, 0, 1) + 30);
    for (int i = 0; i < 3; i++) expect_equal(answers(i == 1), want);
    EXPECT_LT(weir_kv_windows_free_blocks(windows_), spec->n_blocks / 2) << "the cache uses it";
    expect_sound();
}

/* Requests with a policy evict rows of the layers that see the whole sequence; their turns are
 * cached with the rows of the window. */
TEST_F(WindowRows, GoWithPolicies)
{
    weir_policy_options policy;
    ASSERT_EQ(weir_policy_options_default(&policy, "h2o", &error_), WEIR_OK);
    std::vector<Ids> got[2];
    for (const bool full : { true, false }) {
        start("wow:70", full);
        Ids ids = prompt(3, 300);
        for (int turn = 0; turn < 3; turn++) {
            support::Call call(ids, 60);
            call.request.policy = &policy;
            call.request.kv_budget = 96;
            call.request.ignore_eos = call.request.cache_prompt = true;
            const Ids tokens = answer(call);
            EXPECT_GT(usage_.n_evicted, 0);
            if (turn > 0) EXPECT_GT(usage_.n_cached, 200) << usage_.reuse;
            got[full].push_back(tokens);
            ids.insert(ids.end(), tokens.begin(), tokens.end());
            ids.push_back(turn + 1);
        }
        expect_sound();
    }
    EXPECT_EQ(got[0], got[1]);
}

TEST_F(WindowRows, HaveTheSameBitsWithDraftsAndFormats)
{
    const std::vector<Settings> set_ups = { { "speculation.method=ngram", "speculation.match=1" },
                                            { "kv.format=fp8_e4m3" },
                                            { "kv.wide_layers=1", "kv.format=fp8_e4m3" },
                                            { "batch.chunk=512" } };
    for (const Settings &more : set_ups) {
        start("owwo:70", true, more);
        const std::vector<Answer> want = answers(false);
        start("owwo:70", false, more);
        expect_equal(answers(true), want);
        expect_sound();
    }
}

/* Formats of which 64 rows are coded together keep all of them, and so do first tokens in another
 * format. */
TEST_F(WindowRows, AreKeptWhereRowsAreCodedTogether)
{
    for (const char *const setting : { "kv.format=int8", "kv.wide_sinks=64" }) {
        const bool is_wide = std::string(setting).find("wide") != std::string::npos;
        Settings more = { setting };
        if (is_wide) more.push_back("kv.format=fp8_e4m3");
        stop();
        start("wo:40", true, more);
        stop();
        settings_[0] = "kv.full_windows=false";
        open("mistral", 4, nullptr, 1024);
        EXPECT_EQ(weir_kv_store_windows(weir_engine_store(engine_)), nullptr) << setting;
    }
}

/* With a disk blocks of all layers move. */
TEST_F(WindowRows, MoveToADisk)
{
    const Settings disk = { "memory.disk=8MiB", "memory.disk_dir=" + ::testing::TempDir() };
    for (const char *const model : { "wo:100", "../families/gemma3" }) {
        start(model, true);
        const std::vector<Answer> want = answers(false);
        start(model, false, disk);
        const size_t few = 8 * 64 * (size_t)weir_engine_plan_of(engine_)->facts.kv_bytes_per_token;
        const std::string memory = std::to_string(least_memory() + few) + "B";
        start(model, false, disk, memory.c_str());
        for (int i = 0; i < 3; i++) expect_equal(answers(i != 1), want);
        EXPECT_GT(stats().kv_bytes_out, 0);
        EXPECT_GT(stats().window_blocks_out, 0);
        EXPECT_GT(stats().window_blocks_back, 0);
        EXPECT_EQ(stats().window_block_errors, 0);
        expect_sound();
    }
}

class WindowSessions : public support::SessionService {
  protected:
    WindowSessions() : SessionService("window-sessions", 1024) {}
    Ids cached(const Ids &ids)
    {
        support::Call call(ids, 40);
        call.request.cache_prompt = call.request.ignore_eos = true;
        return answer(call);
    }
};

/* A file has the rows of the window, and is continued with the same bits; a file of another mode is
 * refused. */
TEST_F(WindowSessions, AreContinuedWithTheSameBits)
{
    for (const char *const model : { "../families/gemma3", "mistral" }) {
        start(model);
        Ids ids = prompt(5, 300);
        const Ids first = cached(ids);
        ASSERT_EQ(save("one", ids), WEIR_OK) << error_.text;
        EXPECT_EQ(result_.n_tokens, 300);
        const Ids want = cached(ids);
        stop();
        start(model);
        ASSERT_EQ(restore("one"), WEIR_OK) << error_.text;
        EXPECT_EQ(cached(ids), want);
        EXPECT_EQ(usage_.n_cached, 299) << usage_.reuse;
        EXPECT_TRUE(weir_prefix_is_sound(weir_engine_prefix(engine_), &error_)) << error_.text;
        stop();
        start(model, { "kv.full_windows=true" });
        EXPECT_EQ(restore("one"), WEIR_EMISMATCH);
        EXPECT_NE(std::string(error_.text).find("kv.full_windows"), std::string::npos)
            << error_.text;
        stop();
        std::filesystem::remove_all(folder_);
    }
}

/* So is one with a policy. */
TEST_F(WindowSessions, OfPolicies)
{
    weir_policy_options policy;
    ASSERT_EQ(weir_policy_options_default(&policy, "sinks", &error_), WEIR_OK);
    const auto turn = [&](const Ids &ids, const char *name) {
        support::Call call(ids, 40);
        call.request.policy = &policy;
        call.request.kv_budget = 96;
        call.request.session = name;
        call.request.ignore_eos = call.request.cache_prompt = true;
        return answer(call);
    };
    Ids ids = prompt(5, 300), want;
    for (int i = 0; i < 2; i++) {
        start("../families/gemma3");
        if (i == 1) ASSERT_EQ(restore("two"), WEIR_OK) << error_.text;
        if (i == 0) {
            const Ids first = turn(ids, "two");
            ids.insert(ids.end(), first.begin(), first.end());
            ids.push_back(3);
            ASSERT_EQ(save("two"), WEIR_OK) << error_.text;
        }
        const Ids got = turn(ids, "three");
        EXPECT_GT(usage_.n_cached, 300) << usage_.reuse;
        if (i == 0) want = got;
        EXPECT_EQ(got, want);
        stop();
    }
}

} // namespace
