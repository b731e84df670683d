// Conversations computed with other numerics: refused with "same", continued with "any", and then
// every answer over them says so. What is computed here never shares their rows.
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/session/session_store.h"
#include "offload/caps.h"
#include "tests/unit/schedule/support.h"

namespace {

using support::Call;
using Settings = std::vector<const char *>;
using Tokens = std::vector<int32_t>;

class Numerics : public support::SessionService {
  protected:
    Numerics() : SessionService("numerics", 512)
    {
        const weir_caps caps = weir_caps_detect();
        here_ = caps.x86_v4 ? "kernels.isa=v4" : "kernels.isa=v2";
    }
    void SetUp() override
    {
        if (!weir_caps_detect().x86_v3) GTEST_SKIP() << "this machine has no other level than v2";
    }
    Tokens run(const Tokens &ids, const char *session = nullptr, const char *salt = nullptr)
    {
        Call call(ids, 12);
        call.request.cache_prompt = true;
        call.request.session = session;
        call.request.cache_salt = salt;
        call.request.policy = policy_;
        call.request.kv_budget = policy_ != nullptr ? 96 : 0;
        return answer(call);
    }
    /* The numerics of the cached rows that the last answer continues; "": this engine's. */
    std::string others() const { return usage_.numerics != nullptr ? usage_.numerics : ""; }
    /* Saves a conversation as "talk", computed with these settings. Returns its next turn. */
    Tokens save_with(const char *model, const Settings &settings)
    {
        start(model, settings);
        Tokens turn = prompt(1, 200);
        for (int32_t &id : turn) id %= 250; /* in the smallest vocabulary */
        const Tokens before = run(turn, "talk");
        turn.insert(turn.end(), before.begin(), before.end());
        EXPECT_EQ(save("talk"), WEIR_OK) << error_.text;
        n_saved_ = result_.n_tokens;
        stop();
        turn.resize(250, 5);
        return turn;
    }
    /* A file of these settings is refused by an engine of those, which says what differs. */
    void expect_refused(const Tokens &turn, const char *what)
    {
        EXPECT_EQ(restore("talk"), WEIR_EMISMATCH) << what;
        EXPECT_NE(strstr(error_.text, what), nullptr) << error_.text;
        EXPECT_NE(strstr(error_.text, "sessions.numerics=any"), nullptr) << error_.text;
        EXPECT_EQ(weir_sessions_resume(sessions_, "talk", &error_), WEIR_EMISMATCH);
        EXPECT_EQ(weir_sessions_check_numerics(sessions_, "talk", &error_), WEIR_EMISMATCH);
        EXPECT_NE(strstr(error_.text, what), nullptr) << error_.text;
        ASSERT_EQ(list().size(), 1u);
        EXPECT_EQ(list()[0].problem, WEIR_EMISMATCH);
        (void)run(turn);
        EXPECT_EQ(usage_.n_cached, 0) << usage_.reuse;
        EXPECT_EQ(others(), "");
    }
    void expect_continued(const Tokens &turn, const char *what)
    {
        EXPECT_EQ(weir_sessions_check_numerics(sessions_, "talk", &error_), WEIR_OK);
        ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
        ASSERT_NE(result_.numerics, nullptr);
        EXPECT_NE(strstr(result_.numerics, what), nullptr) << result_.numerics;
        (void)run(turn);
        EXPECT_EQ(usage_.n_cached, n_saved_) << usage_.reuse;
        EXPECT_NE(others().find(what), std::string::npos) << others();
    }
    void expect_difference(
        const char *model, const Settings &theirs, const Settings &ours, const char *what,
        const char *said
    )
    {
        std::filesystem::remove_all(folder_);
        const Tokens turn = save_with(model, theirs);
        Settings settings = ours;
        start(model, settings);
        expect_refused(turn, what);
        stop();
        settings.push_back("sessions.numerics=any");
        start(model, settings);
        expect_continued(turn, said);
        stop();
        start(model, theirs);
        ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
        EXPECT_EQ(result_.numerics, nullptr);
        (void)run(turn);
        EXPECT_EQ(usage_.n_cached, n_saved_);
        EXPECT_EQ(others(), "");
        stop();
    }
    std::string bytes_of(const char *name) const
    {
        std::ifstream in(path(name), std::ios::binary);
        return { std::istreambuf_iterator<char>(in), {} };
    }
    const char *here_; /* another level than v3 */
    int32_t n_saved_ = 0;
    const weir_policy_options *policy_ = nullptr;
};

TEST_F(Numerics, AnotherLevelIsRefusedOrSaid)
{
    for (const char *const model : { "tq", "qwen3" })
        expect_difference(
            model, { "kernels.isa=v3" }, { here_ }, "instruction set v3 (here v",
            "instruction set v3, device cpu"
        );
}

/* Tile registers add dense bf16 weights in another order than oneDNN. */
TEST_F(Numerics, AmxIsALevelOfItsOwn)
{
    if (!weir_caps_detect().amx_bf16) GTEST_SKIP() << "this machine has no AMX-BF16";
    const Settings amx = { "kernels.activations=fast" };
    Settings avx512 = amx;
    avx512.push_back("kernels.isa=v4");
    expect_difference(
        "qwen3/qwen3-bf16.gguf", avx512, amx, "instruction set v4+bf16 (here v4+amx_bf16)",
        "instruction set v4+bf16, device cpu"
    );
    expect_difference(
        "qwen3/qwen3-bf16.gguf", amx, avx512, "instruction set v4+amx_bf16 (here v4+bf16)",
        "instruction set v4+amx_bf16, device cpu"
    );
}

TEST_F(Numerics, OtherPinsAreRefusedOrSaid)
{
    expect_difference(
        "tq", { "kernels.pin.add=ref.add" }, {}, "kernel pins add=ref.add (here none)",
        "kernel pins add=ref.add"
    );
    expect_difference(
        "tq", { "kernels.pin.rope=ref.rope", "kernels.pin.add=ref.add" },
        { "kernels.pin.add=ref.add" }, "(here add=ref.add)", "rope=ref.rope"
    );
}

TEST_F(Numerics, TheOrderOfPinsIsNoDifference)
{
    const Tokens turn = save_with("tq", { "kernels.pin.rope=ref.rope", "kernels.pin.add=ref.add" });
    start("tq", { "kernels.pin.add=ref.add", "kernels.pin.rope=ref.rope" });
    EXPECT_EQ(restore("talk"), WEIR_OK) << error_.text;
}

TEST_F(Numerics, ThreadsAndChunksAreNoDifference)
{
    const Tokens turn = save_with("tq", { "kernels.threads=1" });
    start("tq", { "kernels.threads=3", "batch.chunk=128", "batch.max_sequences=3" });
    EXPECT_EQ(restore("talk"), WEIR_OK) << error_.text;
    (void)run(turn);
    EXPECT_EQ(usage_.n_cached, n_saved_) << usage_.reuse;
}

TEST_F(Numerics, OtherActivationsAreRefusedOrSaid)
{
    expect_difference(
        "tq/tq-q8_0.gguf", { "kernels.activations=fast" }, {}, "activations fast (here f32)",
        "activations fast"
    );
}

/* The same tensors, from an adapter. */
TEST_F(Numerics, AnotherAdapterIsRefusedOrSaid)
{
    const char *const adapter = "model.adapter=tests/golden/models/llama3/model.safetensors";
    expect_difference("llama3", {}, { adapter }, "adapter none (here ", "adapter none");
    expect_difference("llama3", { adapter }, {}, " (here none);", "activations f32, adapter ");
    start("llama3", { adapter });
    EXPECT_EQ(restore("talk"), WEIR_OK) << error_.text;
}

/* Requests that do not continue the file have the bits of an engine that never saw it. */
TEST_F(Numerics, WhatIsComputedHereHasItsOwnRows)
{
    const char *const any = "sessions.numerics=any";
    for (const char *const model : { "tq", "qwen3" }) {
        std::filesystem::remove_all(folder_);
        const Tokens turn = save_with(model, { "kernels.isa=v3" });
        start(model, { here_, any });
        const Tokens cold = run(turn);
        EXPECT_EQ(usage_.n_cached, 0);
        ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
        /* Its own rows hold all of the prompt. */
        EXPECT_EQ(run(turn), cold);
        EXPECT_EQ(others(), "");
        EXPECT_GE(usage_.n_cached, 249) << usage_.reuse;
        stop();
        start(model, { here_, any });
        ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
        EXPECT_EQ(run(turn, nullptr, "other salt"), cold);
        EXPECT_EQ(others(), "");
        EXPECT_EQ(usage_.n_cached, 0);
        /* Two that continue it: the second continues what the first computed. */
        for (int i = 0; i < 2; i++) {
            (void)run(turn);
            EXPECT_EQ(usage_.n_cached, i == 0 ? n_saved_ : 249) << usage_.reuse;
            EXPECT_NE(others().find("v3"), std::string::npos) << others();
        }
        EXPECT_EQ(alone(turn, 12), cold) << "without the cache";
        EXPECT_EQ(others(), "");
        stop();
    }
}

/* What was continued here is of two engines, and no other may take it for its own. */
TEST_F(Numerics, AContinuedFileIsMixed)
{
    const char *const any = "sessions.numerics=any";
    const Tokens turn = save_with("tq", { "kernels.isa=v3" });
    const std::string before = bytes_of("talk");
    start("tq", { here_, any });
    ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
    EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
    EXPECT_EQ(bytes_of("talk"), before) << "nothing was added, and nothing is rewritten";
    Tokens more = turn;
    const Tokens added = run(turn, "talk");
    more.insert(more.end(), added.begin(), added.end());
    ASSERT_EQ(save("talk"), WEIR_OK) << error_.text;
    ASSERT_EQ(save("by-tokens", more), WEIR_OK) << error_.text;
    n_saved_ = result_.n_tokens;
    EXPECT_EQ(n_saved_, 261) << "by its tokens the same sequence is found";
    stop();
    for (const char *const isa : { "kernels.isa=v3", here_ }) {
        start("tq", { isa });
        for (const char *const name : { "talk", "by-tokens" }) {
            EXPECT_EQ(restore(name), WEIR_EMISMATCH) << isa;
            EXPECT_NE(strstr(error_.text, "continued elsewhere"), nullptr) << error_.text;
        }
        stop();
    }
    start("tq", { here_, any });
    EXPECT_EQ(weir_engine_restore_sessions(engine_), 2);
    more.resize(300, 7);
    (void)run(more);
    EXPECT_EQ(usage_.n_cached, n_saved_) << usage_.reuse;
    EXPECT_NE(others().find("v3"), std::string::npos) << others();
    EXPECT_NE(others().find("continued with others"), std::string::npos) << others();
}

TEST_F(Numerics, SequencesWithAPolicyToo)
{
    weir_policy_options h2o;
    ASSERT_EQ(weir_policy_options_default(&h2o, "h2o", &error_), WEIR_OK) << error_.text;
    policy_ = &h2o;
    expect_difference("tq", { "kernels.isa=v3" }, { here_ }, "instruction set v3", "set v3");
}

/* States are read under a salt of the caller's. */
TEST_F(Numerics, StatesToo)
{
    const std::string file = folder_ + "/a.state";
    const Tokens tokens = prompt(1, 200);
    const weir_session_request request = { "state", nullptr, tokens.data(),
                                           (int32_t)tokens.size() };
    const weir_state_request state = { 0, 0 };
    start("qwen3", { "kernels.isa=v3" });
    (void)run(tokens);
    ASSERT_EQ(
        weir_sessions_write_state(sessions_, &request, &state, file.c_str(), &result_, &error_),
        WEIR_OK
    ) << error_.text;
    const int32_t n = result_.n_tokens;
    stop();
    start("qwen3", { here_ });
    EXPECT_NE(weir_sessions_numerics(sessions_), nullptr);
    EXPECT_EQ(
        weir_sessions_read(sessions_, file.c_str(), "salt", &result_, &error_), WEIR_EMISMATCH
    );
    EXPECT_NE(strstr(error_.text, "instruction set v3"), nullptr) << error_.text;
    stop();
    start("qwen3", { here_, "sessions.numerics=any" });
    EXPECT_EQ(weir_sessions_numerics(sessions_), nullptr);
    Tokens turn = tokens;
    turn.resize(240, 5);
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(weir_sessions_read(sessions_, file.c_str(), "salt", &result_, &error_), WEIR_OK)
            << error_.text;
        EXPECT_NE(result_.numerics, nullptr);
        (void)run(turn, nullptr, "salt");
        EXPECT_EQ(usage_.n_cached, i == 0 ? n : 239) << usage_.reuse;
        EXPECT_NE(others().find("set v3"), std::string::npos) << others();
    }
    (void)run(turn, nullptr, "other");
    EXPECT_EQ(others(), "");
    EXPECT_EQ(
        weir_sessions_read(
            sessions_, file.c_str(), std::string(WEIR_PREFIX_SALT, 's').c_str(), &result_, &error_
        ),
        WEIR_EINVAL
    );
}

} // namespace
