// Such conversations across the end of a process: saved, restored, continued with the same bits;
// and files that are of no use.
#include <fstream>

#include "tests/unit/schedule/turns.h"

namespace turns {
namespace {

TEST_F(Turns, GoOnAfterARestart)
{
    for (const char *const model : { "tq", "qwen3" }) {
        for (const Method &method : methods) {
            const std::string what = std::string(model) + " " + method.name + " " + method.options;
            Uninterrupted alone(model, settings_of(method, {}));
            start_with_sessions(model, method);
            auto tokens = prompt(1, 350);
            auto answer = run(tokens);
            ASSERT_EQ(answer, alone.turn(tokens, 24)) << what;
            tokens = next(tokens, answer, 2, 20);
            session_ = "talk";
            answer = run(tokens);
            session_ = nullptr;
            ASSERT_EQ(answer, alone.turn(tokens, 24)) << what;
            ASSERT_EQ(save("talk"), WEIR_OK) << what << ": " << error_.text;
            const int n_saved = (int)tokens.size() + 23;
            EXPECT_EQ(result_.n_tokens, n_saved) << what;
            stop();
            start_with_sessions(model, method);
            ASSERT_EQ(restore("talk"), WEIR_OK) << what << ": " << error_.text;
            EXPECT_EQ(pages_used_when_idle(), 0) << what;
            tokens = next(tokens, answer, 3, 20);
            answer = run(tokens);
            EXPECT_EQ(answer, alone.turn(tokens, 24)) << what;
            EXPECT_EQ(usage_.n_cached, n_saved) << what << ": " << usage_.reuse;
            ASSERT_EQ(save("other", tokens), WEIR_OK) << what << ": " << error_.text;
            EXPECT_EQ(result_.n_tokens, n_saved)
                << what << ": what was kept of these tokens is the turn before";
            EXPECT_EQ(pages_used_when_idle(), 0) << what;
            stop();
        }
    }
}

TEST_F(Turns, GoOnAfterARestartInAnyFormatAndWithADisk)
{
    for (const auto &more : stores) {
        for (const int method : { 0, 1, 11 }) {
            const std::string what = more[0] + " " + methods[method].name;
            Uninterrupted alone("qwen3", settings_of(methods[method], { more[0], more.back() }));
            start_with_sessions("qwen3", methods[method], more);
            auto tokens = prompt(1, 150);
            auto answer = run(tokens);
            ASSERT_EQ(answer, alone.turn(tokens, 24)) << what;
            ASSERT_EQ(save("talk", next(tokens, answer, 1, 0)), WEIR_OK)
                << what << ": " << error_.text;
            stop();
            start_with_sessions("qwen3", methods[method], more);
            ASSERT_EQ(restore("talk"), WEIR_OK) << what << ": " << error_.text;
            tokens = next(tokens, answer, 10, 50);
            EXPECT_EQ(run(tokens), alone.turn(tokens, 24)) << what;
            EXPECT_EQ(usage_.n_cached, 173) << what << ": " << usage_.reuse;
            EXPECT_EQ(pages_used_when_idle(), 0) << what;
            stop();
        }
    }
}

// The policy holds the first keys of as many rows as are protected.
TEST_F(Turns, GoOnAfterARestartWithProtectedRowsInTheCache)
{
    const Method method = { "sinks", "sinks=4,every=4,positions=cache", 48 };
    n_pinned_ = 20;
    start_with_sessions("qwen3", method);
    auto tokens = prompt(1, 150);
    const auto answer = run(tokens);
    ASSERT_EQ(save("talk", next(tokens, answer, 1, 0)), WEIR_OK) << error_.text;
    tokens = next(tokens, answer, 10, 50);
    const auto expected = run(tokens); /* by the process that has it in memory */
    EXPECT_EQ(usage_.n_cached, 173) << usage_.reuse;
    stop();
    start_with_sessions("qwen3", method);
    ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
    EXPECT_EQ(run(tokens), expected);
    EXPECT_EQ(usage_.n_cached, 173) << usage_.reuse;
    stop();
}

// What is kept at the end of a server is there at its start, for every client that asked for the
// policy.
TEST_F(Turns, AreThereAfterTheServersEnd)
{
    start_with_sessions("tq", methods[4]);
    std::vector<std::vector<int32_t>> prompts;
    std::vector<Answer> answers;
    for (int i = 0; i < 3; i++) {
        prompts.push_back(prompt(20 + i, 100 + 10 * i));
        session_ = i == 1 ? "named" : nullptr;
        answers.push_back(run(prompts.back(), 8));
    }
    session_ = nullptr;
    EXPECT_GE(weir_engine_save_sessions(engine_), 3);
    const auto files = list();
    EXPECT_EQ(weir_engine_save_sessions(engine_), (int)files.size());
    EXPECT_EQ(list().size(), files.size()) << "the same files";
    int n_of_policy = 0;
    for (const auto &file : files) n_of_policy += strcmp(file.policy, "snapkv:48") == 0;
    EXPECT_EQ(n_of_policy, 3);
    stop();
    start_with_sessions("tq", methods[4]);
    EXPECT_EQ(weir_engine_restore_sessions(engine_), (int)files.size());
    for (size_t i = 0; i < 3; i++) {
        (void)run(next(prompts[i], answers[i], 30, 5), 4);
        EXPECT_EQ(usage_.n_cached, (int)prompts[i].size() + 7) << i << ": " << usage_.reuse;
    }
    EXPECT_EQ(pages_used_when_idle(), 0);
}

// Of a conversation that is deleted no turn is written.
TEST_F(Turns, ADeletedConversationIsNotSaved)
{
    start_with_sessions("tq", methods[4]);
    auto tokens = prompt(1, 150);
    session_ = "talk";
    for (int turn = 0; turn < 2; turn++) tokens = next(tokens, run(tokens), 2 + turn, 20);
    session_ = nullptr;
    ASSERT_EQ(save("talk"), WEIR_OK) << error_.text;
    EXPECT_EQ(weir_sessions_delete(sessions_, "talk", &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(weir_sessions_delete(sessions_, "talk", &error_), WEIR_ENOTFOUND);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 0);
    EXPECT_TRUE(list().empty());
    (void)run(tokens);
    EXPECT_GT(usage_.n_cached, 150) << usage_.reuse;
    EXPECT_GT(weir_engine_save_sessions(engine_), 0) << "it was used again";
    stop();
}

// A file is of use to who asks for its policy, and a process that cannot have that policy says so.
TEST_F(Turns, FilesOfOtherPoliciesAreToldApart)
{
    const Method &h2o = methods[1], other = { "h2o", "sinks=2,recent=16,every=5", 48 };
    start_with_sessions("qwen3", h2o);
    const auto tokens = prompt(1, 150);
    session_ = "talk";
    const auto answer = run(tokens);
    session_ = nullptr;
    ASSERT_EQ(save("talk"), WEIR_OK) << error_.text;
    const auto turn = next(tokens, answer, 2, 40);
    stop();
    start_with_sessions("qwen3", other);
    ASSERT_EQ(restore("talk"), WEIR_OK) << "requests may ask for it: " << error_.text;
    weir_policy_options full;
    ASSERT_EQ(weir_policy_options_default(&full, "full", &error_), WEIR_OK);
    Call plain(turn, 4);
    plain.request.cache_prompt = true;
    plain.request.policy = &full;
    ASSERT_EQ(plain.submit(service_, &error_), WEIR_OK) << error_.text;
    plain.wait();
    EXPECT_EQ(plain.usage.n_cached, 0);
    EXPECT_NE(strstr(plain.usage.reuse, "does not ask for"), nullptr) << plain.usage.reuse;
    plain.release();
    (void)run(turn, 4);
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_NE(strstr(usage_.reuse, "under another KV policy"), nullptr) << usage_.reuse;
    stop();
    start_with_sessions("tq", h2o);
    EXPECT_EQ(restore("talk"), WEIR_EMISMATCH);
    stop();
    start_with_sessions("qwen3", h2o, { "kv.policy.kept=0" });
    EXPECT_EQ(restore("talk"), WEIR_EFULL);
    EXPECT_NE(strstr(error_.text, "kv.policy.kept"), nullptr) << error_.text;
    EXPECT_EQ(pages_used_when_idle(), 0);
    stop();
}

// A refused file changes nothing: the engine answers as before, and no page is lost.
TEST_F(Turns, WrongFilesAreRefused)
{
    for (const int method : { 1, 4, 12 }) {
        start_with_sessions("tq", methods[method]);
        const auto tokens = prompt(1, 150);
        session_ = "talk";
        const auto answer = run(tokens);
        session_ = nullptr;
        ASSERT_EQ(save("talk"), WEIR_OK) << error_.text;
        std::ifstream in(path("talk"), std::ios::binary);
        const std::string good((std::istreambuf_iterator<char>(in)), {});
        const auto put = [&](const std::string &bytes) {
            std::ofstream(path("bad"), std::ios::binary) << bytes;
        };
        EXPECT_EQ(good[272], 10) << "sections: of a pruned sequence";
        for (size_t n = 0; n < good.size(); n += 1 + good.size() / 40) {
            put(good.substr(0, n));
            EXPECT_EQ(restore("bad"), WEIR_EFORMAT) << n;
        }
        for (size_t at = 12; at < good.size(); at += 1 + good.size() / 120) {
            auto bytes = good;
            bytes[at] = (char)(bytes[at] ^ 1);
            put(bytes);
            EXPECT_EQ(restore("bad"), WEIR_EFORMAT) << at << ": " << error_.text;
        }
        std::filesystem::remove(path("bad"));
        const auto turn = next(tokens, answer, 2, 30);
        (void)run(turn, 4);
        EXPECT_EQ(usage_.n_cached, 173) << usage_.reuse;
        EXPECT_EQ(pages_used_when_idle(), 0);
        stop();
    }
}

} // namespace
} // namespace turns
