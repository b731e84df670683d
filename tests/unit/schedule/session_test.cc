// Conversations across the end of an engine: saved, restored, continued with the same bits; and
// everything that can be wrong with a file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/file.h"
#include "engine/session/sessions.h"
#include "tests/unit/schedule/support.h"

namespace {

using support::Call;

class Session : public support::SessionService {
  protected:
    Session() : SessionService("sessions", 512) {}
    std::vector<int32_t> run(
        const std::vector<int32_t> &ids, const char *session = nullptr, const char *salt = nullptr,
        bool cache = true
    )
    {
        Call call(ids, 12);
        call.request.cache_prompt = cache;
        call.request.session = session;
        call.request.cache_salt = salt;
        return answer(call);
    }
    /* A conversation is saved as "talk", `n_saved` tokens of it; a restart later it goes on with
     * the same bits. */
    void expect_to_go_on(const char *model, const std::vector<const char *> &settings, int n_saved)
    {
        start(model, settings);
        auto turn = prompt(1, 200);
        const auto before = run(turn);
        turn.insert(turn.end(), before.begin(), before.end());
        ASSERT_EQ(save("talk", turn), WEIR_OK) << error_.text;
        EXPECT_EQ(result_.n_tokens, n_saved);
        turn.resize(240, 5);
        const auto uninterrupted = run(turn);
        stop();
        start(model, settings);
        ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
        EXPECT_EQ(run(turn), uninterrupted) << model << " " << settings[0];
        EXPECT_EQ(usage_.n_cached, n_saved) << model << " " << settings[0] << ": " << usage_.reuse;
        stop();
    }
};

TEST_F(Session, AConversationGoesOnAfterARestart)
{
    for (const char *const model : { "tq", "qwen3", "mistral", "deepseek3" }) {
        start(model);
        const auto tokens = prompt(1, 200);
        const auto answer = run(tokens);
        auto turn = tokens;
        turn.insert(turn.end(), answer.begin(), answer.end());
        ASSERT_EQ(save("talk", turn), WEIR_OK) << error_.text;
        EXPECT_EQ(result_.n_tokens, 211);
        const auto more = prompt(2, 30);
        turn.insert(turn.end(), more.begin(), more.end());
        const auto uninterrupted = run(turn);
        EXPECT_EQ(usage_.n_cached, 211);
        stop();
        start(model);
        ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
        EXPECT_EQ(result_.n_tokens, 211);
        EXPECT_EQ(run(turn), uninterrupted) << model;
        EXPECT_EQ(usage_.n_cached, 211) << model << ": " << usage_.reuse;
        EXPECT_EQ(run(turn, nullptr, nullptr, false), uninterrupted) << model;
        EXPECT_EQ(usage_.n_cached, 0);
        ASSERT_EQ(list().size(), 1u);
        EXPECT_STREQ(list()[0].name, "talk");
        EXPECT_EQ(list()[0].n_tokens, 211);
        EXPECT_EQ(list()[0].n_bytes, result_.n_bytes);
        EXPECT_EQ(weir_sessions_delete(sessions_, "talk", &error_), WEIR_OK);
        EXPECT_EQ(weir_sessions_delete(sessions_, "talk", &error_), WEIR_ENOTFOUND);
        EXPECT_EQ(restore("talk"), WEIR_ENOTFOUND);
        EXPECT_TRUE(list().empty());
        stop();
    }
}

// In formats that code a page as a whole, a sequence is saved up to its last whole page; pages of
// layers and sides are of their own sizes.
TEST_F(Session, ACodedConversationGoesOnAfterARestart)
{
    for (const char *const format : { "kv.format=int8/kivi4", "kv.format=q8_0/turbo4" }) {
        const int saved = strstr(format, "kivi") != nullptr ? 192 : 211;
        for (const char *const model : { "tq", "qwen3" }) {
            expect_to_go_on(model, { format }, saved);
            start(model, { "kv.format=f16" });
            EXPECT_EQ(restore("talk"), WEIR_EMISMATCH);
            EXPECT_NE(strstr(error_.text, "kv.format"), nullptr) << error_.text;
            EXPECT_EQ(weir_sessions_delete(sessions_, "talk", &error_), WEIR_OK);
            stop();
        }
    }
}

// The first pages of another size than the others; a file of other settings is refused with what
// differs.
TEST_F(Session, AConversationOfOtherStatesGoesOnAfterARestart)
{
    for (const char *const model :
         { "../families/nemotron-h", "../families/kimi-linear", "../families/falcon-h1" })
        expect_to_go_on(model, { "kv.format=f16" }, 211);
}

TEST_F(Session, AConversationWithSinksGoesOnAfterARestart)
{
    for (const char *const format : { "kv.format=kivi4", "kv.format=q8_0", "kv.format=turbo4" }) {
        for (const char *const sinks :
             { "kv.wide_sinks=64", "kv.wide_sinks=200", "kv.wide_sinks=4096" }) {
            const int saved = strstr(format, "kivi") != nullptr ? 192 : 211;
            expect_to_go_on("qwen3", { format, sinks }, saved);
            for (const char *const other :
                 { "kv.wide_sinks=0", "kv.wide_sinks=65", "kv.wide_format=bf16" }) {
                start("qwen3", { format, sinks, other });
                EXPECT_EQ(restore("talk"), WEIR_EMISMATCH);
                EXPECT_NE(strstr(error_.text, "kv.wide_sinks"), nullptr) << error_.text;
                stop();
            }
            start("qwen3", { format });
            EXPECT_EQ(weir_sessions_delete(sessions_, "talk", &error_), WEIR_OK);
            stop();
        }
    }
}

TEST_F(Session, ARequestNamesItsSequence)
{
    start("tq");
    const auto tokens = prompt(1, 150);
    EXPECT_EQ(save("talk"), WEIR_ENOTFOUND);
    EXPECT_NE(strstr(error_.text, "no request has used"), nullptr) << error_.text;
    const auto answer = run(tokens, "talk", "mine");
    ASSERT_EQ(save("talk"), WEIR_OK) << error_.text;
    EXPECT_EQ(result_.n_tokens, 161);
    stop();
    start("tq");
    ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, 0) << "under another salt";
    EXPECT_EQ(run(tokens, nullptr, "mine"), answer);
    EXPECT_EQ(usage_.n_cached, 149);
    ASSERT_EQ(save("talk"), WEIR_OK) << "a restored text has its name: " << error_.text;
    EXPECT_EQ(save("other", prompt(5, 90)), WEIR_ENOTFOUND);
}

TEST_F(Session, ANamedSequenceThatWasDroppedComesBack)
{
    start("tq");
    const auto tokens = prompt(1, 150);
    EXPECT_EQ(weir_sessions_resume(sessions_, "talk", &error_), WEIR_OK)
        << "a name without a file is fine";
    const auto answer = run(tokens, "talk");
    ASSERT_EQ(save("talk"), WEIR_OK) << error_.text;
    std::filesystem::rename(path("talk"), path("away"));
    EXPECT_EQ(weir_sessions_resume(sessions_, "talk", &error_), WEIR_OK)
        << "it is kept: the disk is not asked";
    std::filesystem::rename(path("away"), path("talk"));
    for (int i = 2; i < 20; i++) (void)run(prompt(i, 400)); // a pool of two windows of 512
    EXPECT_EQ(save("talk"), WEIR_ENOTFOUND) << "it was dropped";
    EXPECT_EQ(run(tokens), answer);
    ASSERT_EQ(usage_.n_cached, 0);
    for (int i = 2; i < 20; i++) (void)run(prompt(i, 400));
    ASSERT_EQ(weir_sessions_resume(sessions_, "talk", &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, 149);
    std::filesystem::resize_file(path("talk"), 5000);
    for (int i = 2; i < 20; i++) (void)run(prompt(i, 400));
    EXPECT_EQ(weir_sessions_resume(sessions_, "talk", &error_), WEIR_EFORMAT);
    EXPECT_EQ(run(tokens), answer);
}

TEST_F(Session, WhatIsInMemoryAtTheEndIsThereAtTheStart)
{
    start("tq", { "sessions.limit=3" });
    std::vector<std::vector<int32_t>> prompts, answers;
    for (int i = 0; i < 5; i++) {
        prompts.push_back(prompt(20 + i, 100 + 10 * i));
        answers.push_back(run(prompts.back(), i == 3 ? "named" : nullptr));
    }
    EXPECT_EQ(weir_engine_save_sessions(engine_), 3);
    EXPECT_EQ(list().size(), 3u);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 3) << "the same files";
    EXPECT_EQ(list().size(), 3u);
    stop();
    start("tq", { "sessions.limit=3" });
    EXPECT_EQ(weir_engine_restore_sessions(engine_), 3);
    for (int i = 4; i >= 0; i--) {
        EXPECT_EQ(run(prompts[(size_t)i]), answers[(size_t)i]);
        EXPECT_EQ(usage_.n_cached, i >= 2 ? (int)prompts[(size_t)i].size() - 1 : 0) << i;
    }
    stop();
}

TEST_F(Session, ALongerSequenceReplacesItsBeginning)
{
    start("tq");
    auto tokens = prompt(1, 130);
    auto answer = run(tokens);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
    stop();
    start("tq");
    EXPECT_EQ(weir_engine_restore_sessions(engine_), 1);
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    tokens.push_back(7);
    (void)run(tokens);
    EXPECT_EQ(usage_.n_cached, 141);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
    ASSERT_EQ(list().size(), 1u);
    EXPECT_EQ(list()[0].n_tokens, 154);
    EXPECT_TRUE(list()[0].is_automatic);
}

TEST_F(Session, LimitAndDiskAreKept)
{
    start("tq", { "sessions.limit=2" });
    const auto a = prompt(1, 100), b = prompt(2, 100), c = prompt(3, 100);
    (void)run(a), (void)run(b), (void)run(c);
    ASSERT_EQ(save("a", a), WEIR_OK) << error_.text;
    const int64_t each = result_.n_bytes;
    ASSERT_EQ(save("b", b), WEIR_OK);
    EXPECT_EQ(save("c", c), WEIR_EFULL);
    EXPECT_NE(strstr(error_.text, "sessions.limit"), nullptr) << error_.text;
    EXPECT_EQ(save("a", c), WEIR_OK) << "in its place";
    EXPECT_EQ(list().size(), 2u);
    stop();
    const std::string disk = "memory.disk=" + std::to_string(2 * each + each / 2) + "B";
    start("tq", { disk.c_str() });
    (void)run(a);
    EXPECT_EQ(save("d", a), WEIR_EFULL);
    EXPECT_NE(strstr(error_.text, "memory.disk"), nullptr) << error_.text;
    EXPECT_EQ(list().size(), 2u);
}

TEST_F(Session, AutomaticFilesGiveWay)
{
    start("tq", { "sessions.limit=1" });
    const auto a = prompt(1, 100);
    (void)run(a);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
    ASSERT_EQ(save("mine", a), WEIR_OK) << error_.text;
    ASSERT_EQ(list().size(), 1u);
    EXPECT_STREQ(list()[0].name, "mine");
    (void)run(prompt(2, 100));
    EXPECT_EQ(weir_engine_save_sessions(engine_), 0) << "what was asked for stays";
    EXPECT_STREQ(list()[0].name, "mine");
}

TEST_F(Session, BadNamesAreNoPaths)
{
    start("tq");
    const auto a = prompt(1, 100);
    (void)run(a);
    for (const char *const name :
         { "", ".", "..", "../x", "a/b", ".hidden", "a b", "\xc3\xa4", "a\n" }) {
        EXPECT_EQ(save(name, a), WEIR_EINVAL) << name;
        EXPECT_EQ(restore(name), WEIR_EINVAL) << name;
        EXPECT_EQ(weir_sessions_delete(sessions_, name, &error_), WEIR_EINVAL) << name;
    }
    EXPECT_EQ(save(std::string(WEIR_SESSION_NAME + 1, 'a').c_str(), a), WEIR_EINVAL);
    EXPECT_EQ(save(std::string(WEIR_SESSION_NAME, 'a').c_str(), a), WEIR_OK) << error_.text;
}

// A refused file changes nothing: the engine answers as before, and no page and no state is lost.
TEST_F(Session, WrongFilesAreRefused)
{
    start("qwen3");
    const auto tokens = prompt(1, 200);
    (void)run(tokens);
    ASSERT_EQ(save("foreign", tokens), WEIR_OK);
    stop();
    start("tq");
    const auto answer = run(tokens);
    ASSERT_EQ(save("good", tokens), WEIR_OK);
    std::ifstream in(path("good"), std::ios::binary);
    const std::string good((std::istreambuf_iterator<char>(in)), {});
    const auto put = [&](const std::string &bytes) {
        std::ofstream(path("bad"), std::ios::binary) << bytes;
    };
    EXPECT_EQ(restore("foreign"), WEIR_EMISMATCH);
    EXPECT_NE(strstr(error_.text, "of another model"), nullptr) << error_.text;
    for (const size_t n :
         { size_t{ 0 }, size_t{ 100 }, size_t{ 4096 }, good.size() / 2, good.size() - 1 }) {
        put(good.substr(0, n));
        EXPECT_EQ(restore("bad"), WEIR_EFORMAT) << n;
    }
    for (const size_t at : { size_t{ 12 }, size_t{ 40 }, size_t{ 4096 }, size_t{ 8200 },
                             good.size() / 2, good.size() - 1 }) {
        auto bytes = good;
        bytes[at] = (char)(bytes[at] ^ 1);
        put(bytes);
        EXPECT_EQ(restore("bad"), WEIR_EFORMAT) << at << ": " << error_.text;
        EXPECT_NE(strstr(error_.text, "damaged"), nullptr) << error_.text;
    }
    auto later = good;
    later[8] = 9;
    put(later);
    EXPECT_EQ(restore("bad"), WEIR_EUNSUPPORTED);
    EXPECT_NE(strstr(error_.text, "version 9"), nullptr) << error_.text;
    std::filesystem::remove(path("bad"));
    std::filesystem::create_symlink(path("good"), path("bad"));
    EXPECT_EQ(restore("bad"), WEIR_EIO);
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, 199);
    EXPECT_EQ(pages_used_when_idle(), 0);
    int n_usable = 0;
    for (const auto &info : list()) n_usable += info.problem == WEIR_OK;
    EXPECT_EQ(n_usable, 1);
    EXPECT_EQ(weir_engine_restore_sessions(engine_), 1);
    stop();
    start("tq", { "kv.format=f32" });
    EXPECT_EQ(restore("good"), WEIR_EMISMATCH);
    EXPECT_NE(strstr(error_.text, "kv.format"), nullptr) << error_.text;
}

// Files that somebody else keeps account of: states of documents.
TEST_F(Session, ASequenceGoesToAFileAnywhereAndComesBack)
{
    const std::string file = std::string(getenv("TEST_TMPDIR")) + "/a.state";
    const weir_state_request exact = { 0, 0 };
    const auto slurp = [&] {
        std::ifstream in(file, std::ios::binary);
        return std::string((std::istreambuf_iterator<char>(in)), {});
    };
    for (const char *const model : { "tq", "qwen3" }) {
        start(model, { "sessions.limit=1" });
        const auto tokens = prompt(1, 200);
        (void)run(prompt(7, 100));
        ASSERT_EQ(save("full", prompt(7, 100)), WEIR_OK) << error_.text;
        Call document(tokens, 0);
        document.request.cache_prompt = true;
        ASSERT_EQ(document.submit(service_, &error_), WEIR_OK) << error_.text;
        document.wait();
        document.release();
        const weir_session_request request = { "state", nullptr, tokens.data(), 200 };
        ASSERT_EQ(
            weir_sessions_write_state(sessions_, &request, &exact, file.c_str(), &result_, &error_),
            WEIR_OK
        ) << error_.text;
        EXPECT_EQ(result_.n_tokens, 200);
        EXPECT_EQ(list().size(), 1u);
        auto turn = tokens;
        turn.resize(230, 5);
        const auto uninterrupted = run(turn, nullptr, nullptr, false);
        stop();
        start(model);
        const std::string before = slurp();
        for (int i = 0; i < 2; i++) {
            ASSERT_EQ(
                weir_sessions_read(sessions_, file.c_str(), nullptr, &result_, &error_), WEIR_OK
            ) << error_.text;
            EXPECT_EQ(result_.n_tokens, 200);
            EXPECT_EQ(run(turn), uninterrupted);
            EXPECT_GE(usage_.n_cached, 200) << model << ": " << usage_.reuse;
        }
        EXPECT_EQ(slurp(), before);
        const auto bytes = std::filesystem::file_size(file);
        std::filesystem::resize_file(file, bytes - 1);
        EXPECT_EQ(
            weir_sessions_read(sessions_, file.c_str(), nullptr, &result_, &error_), WEIR_EFORMAT
        );
        std::filesystem::remove(file);
        EXPECT_EQ(
            weir_sessions_read(sessions_, file.c_str(), nullptr, &result_, &error_), WEIR_ENOTFOUND
        );
        EXPECT_NE(strstr(error_.text, file.c_str()), nullptr) << error_.text;
        const weir_session_request other = { "state", nullptr, turn.data() + 100, 60 };
        EXPECT_EQ(
            weir_sessions_write_state(sessions_, &other, &exact, file.c_str(), &result_, &error_),
            WEIR_ENOTFOUND
        );
        EXPECT_FALSE(std::filesystem::exists(file));
        EXPECT_EQ(weir_sessions_delete(sessions_, "full", &error_), WEIR_OK);
        stop();
    }
}

TEST_F(Session, AFolderThatTakesNothing)
{
    start("tq");
    const auto tokens = prompt(1, 100);
    const auto answer = run(tokens);
    ASSERT_EQ(save("talk", tokens), WEIR_OK);
    const auto size = std::filesystem::file_size(path("talk"));
    if (geteuid() ==
        0) { // may write anywhere: what stands in the way is a file of the folder's name
        std::filesystem::rename(folder_, folder_ + ".away");
        std::ofstream(folder_) << "x";
    } else {
        ASSERT_EQ(chmod(folder_.c_str(), 0500), 0);
    }
    EXPECT_EQ(save("talk", tokens), WEIR_EIO);
    EXPECT_NE(strstr(error_.text, folder_.c_str()), nullptr) << error_.text;
    EXPECT_EQ(weir_engine_save_sessions(engine_), 0);
    if (geteuid() == 0) {
        std::filesystem::remove(folder_);
        std::filesystem::rename(folder_ + ".away", folder_);
    } else {
        ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
    }
    EXPECT_EQ(std::filesystem::file_size(path("talk")), size);
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(restore("talk"), WEIR_OK) << error_.text;
}

TEST_F(Session, WhatAKilledProcessLeftIsSweptUp)
{
    start("tq");
    stop();
    std::ofstream(folder_ + "/a.session.tmp.999999999") << "x";
    const std::string name = folder_ + "/a.session",
                      own = name + ".tmp." + std::to_string(getpid());
    std::ofstream(own) << "x"; /* of a process that had this one's id */
    weir_new_file file; /* of a process that writes */
    ASSERT_EQ(weir_new_file_open(&file, name.c_str(), 0, &error_), WEIR_OK) << error_.text;
    start("tq");
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/a.session.tmp.999999999"));
    EXPECT_FALSE(std::filesystem::exists(own));
    EXPECT_TRUE(std::filesystem::exists(file.temporary));
    EXPECT_TRUE(list().empty());
    weir_new_file_drop(&file);
}

// A call of which each token, until `go_on`, waits for 100 ms in the engine's thread.
struct SlowCall : Call {
    bool is_fast = false;

    explicit SlowCall(std::vector<int32_t> ids, int max_tokens) : Call(std::move(ids), max_tokens)
    {
        request.callback = [](void *user, const weir_event *event) {
            SlowCall *const call = static_cast<SlowCall *>(static_cast<Call *>(user));
            const bool goes_on = Call::on_event(user, event);
            if (event->type != WEIR_EVENT_TOKEN) return goes_on; /* after DONE it may be gone */
            std::unique_lock<std::mutex> hold(call->lock);
            call->changed.notify_all();
            call->changed.wait_for(hold, std::chrono::milliseconds(100), [call] {
                return call->is_fast;
            });
            return goes_on;
        };
    }
    void wait_for_first_token()
    {
        std::unique_lock<std::mutex> hold(lock);
        changed.wait(hold, [this] { return !tokens[0].empty() || done; });
    }
    void go_on()
    {
        const std::lock_guard<std::mutex> hold(lock);
        is_fast = true;
        changed.notify_all();
    }
};

// Restoring while a sequence runs takes only pages that no request may still need.
TEST_F(Session, NoRoomIsSaidAndNothingIsLost)
{
    start("qwen3");
    const auto tokens = prompt(1, 400);
    (void)run(tokens);
    ASSERT_EQ(save("long", tokens), WEIR_OK);
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string memory = std::to_string(weir_plan_total(plan) - plan->kv / 2) + "B";
    stop();
    start("qwen3", {}, memory.c_str()); // one window of 512
    SlowCall call(prompt(2, 440), 60);
    call.request.cache_prompt = true;
    call.request.ignore_eos = true;
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
    call.wait_for_first_token();
    const weir_status status = restore("long");
    call.go_on();
    const std::string said = error_.text;
    call.wait();
    EXPECT_EQ(call.status, WEIR_OK);
    EXPECT_EQ(status, WEIR_EFULL);
    EXPECT_NE(said.find("memory.host"), std::string::npos) << said;
    EXPECT_EQ(restore("long"), WEIR_OK) << error_.text;
    (void)run(tokens);
    EXPECT_EQ(usage_.n_cached, 399);
}

} // namespace
