/* States of a model whose layers are CoDA, as databases keep them: one per sequence, in fewer bits,
 * two as one; and requests that cannot do without theirs. */
#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/engine_parts.h"
#include "engine/model/blocks/coda_memory.h"
#include "engine/model/blocks/coda_merge.h"
#include "engine/session/file/session_file.h"
#include "engine/session/session_store.h"
#include "tests/unit/model/coda_text.h"
#include "tests/unit/schedule/call.h"
#include "tools/eval/constructed.h"

namespace {

using support::Call;
using Memory = std::vector<float>;

class State : public ::testing::Test {
  protected:
    void SetUp() override
    {
        std::filesystem::create_directories(folder_ / "sessions");
        write_model();
        open();
    }
    void TearDown() override { weir_engine_close(engine_); }
    virtual void write_model() { support::write_coda_text(folder_, "\"coda\"", &settings_); }
    void open(const support::Settings &more = {})
    {
        static weir_config config;
        weir_engine_close(engine_);
        engine_ = nullptr;
        weir_config_default(&config);
        snprintf(config.model.path, sizeof config.model.path, "%s", folder_.path().c_str());
        support::Settings settings = settings_;
        settings.insert(
            settings.end(),
            { "kernels.activations=f32", "model.context=512", "batch.max_sequences=2",
              "sessions.dir=" + (folder_ / "sessions"), "sessions.autosave=false" }
        );
        settings.insert(settings.end(), more.begin(), more.end());
        for (const std::string &setting : settings)
            ASSERT_EQ(weir_config_assign(&config, setting.c_str(), &error_), WEIR_OK)
                << error_.text;
        const weir_engine_options options = { &config, true, false, nullptr, nullptr, nullptr };
        ASSERT_EQ(weir_engine_open_with(&engine_, &options, &error_), WEIR_OK) << error_.text;
        sessions_ = weir_engine_sessions(engine_);
    }
    static std::vector<int32_t> prompt(int seed, int n)
    {
        return support::some_tokens(static_cast<size_t>(n), seed, 250);
    }
    /* Computes the sequence and writes its state. */
    weir_status write(
        const std::string &name, const std::vector<int32_t> &tokens, int32_t bits = 0,
        int64_t max_bytes = 0
    )
    {
        Call call(tokens, 0);
        call.request.cache_prompt = true;
        EXPECT_EQ(call.submit(weir_engine_service(engine_), &error_), WEIR_OK) << error_.text;
        call.wait();
        call.release();
        const weir_session_request request = { "state", nullptr, tokens.data(),
                                               static_cast<int32_t>(tokens.size()) };
        const weir_state_request state = { bits, max_bytes };
        return weir_sessions_write_state(
            sessions_, &request, &state, path(name).c_str(), &result_, &error_
        );
    }
    weir_status merge(
        const std::string &earlier, const std::string &later, const std::string &out,
        int32_t bits = 0
    )
    {
        const std::string first = path(earlier), second = path(later);
        const weir_merge_request request = { first.c_str(), second.c_str(), { bits, 0 } };
        return weir_sessions_merge(
            sessions_, &request, path(out).c_str(), &merged_, &result_, &error_
        );
    }
    /* The one state of a file that is not packed. */
    Memory state_of(const std::string &name, weir_session_header *header = nullptr)
    {
        weir_session_reader *reader = nullptr;
        EXPECT_EQ(weir_session_open(&reader, path(name).c_str(), &error_), WEIR_OK) << error_.text;
        const weir_session_header *const found = weir_session_header_of(reader);
        Memory memory(weir_session_state_bytes(found) / sizeof(float));
        float *const states[] = { memory.data() };
        EXPECT_EQ(found->n_states, 1);
        EXPECT_EQ(weir_session_read_states(reader, states, &error_), WEIR_OK) << error_.text;
        if (header != nullptr) *header = *found;
        weir_session_close(reader);
        return memory;
    }
    /* Goes on from the state with a few tokens more. */
    std::vector<int32_t> go_on(std::vector<int32_t> tokens, const char *salt, int32_t n_kept = 0)
    {
        const auto more = prompt(99, 20);
        tokens.insert(tokens.end(), more.begin(), more.end());
        Call call(tokens, 12);
        call.request.sampling.temperature = 0;
        call.request.cache_prompt = true;
        call.request.cache_salt = salt;
        call.request.n_kept = n_kept;
        EXPECT_EQ(call.submit(weir_engine_service(engine_), &error_), WEIR_OK) << error_.text;
        call.wait();
        status_ = call.status;
        message_ = call.message;
        n_cached_ = call.usage.n_cached;
        return call.tokens[0];
    }
    weir_status load(const std::string &name, const char *salt)
    {
        return weir_sessions_read(sessions_, path(name).c_str(), salt, &result_, &error_);
    }
    std::string path(const std::string &name) const { return folder_ / name; }

    support::Folder folder_;
    support::Settings settings_;
    weir_engine *engine_ = nullptr;
    weir_sessions *sessions_ = nullptr;
    weir_error error_ = {};
    weir_session_result result_ = {};
    weir_state_merged merged_ = {};
    weir_status status_ = WEIR_OK;
    std::string message_;
    int32_t n_cached_ = 0;
};

TEST_F(State, OneStateAndTheTokensAfterIt)
{
    const auto tokens = prompt(1, 200), cold = go_on(tokens, "elsewhere");
    ASSERT_EQ(write("a", tokens), WEIR_OK) << error_.text;
    EXPECT_EQ(result_.n_tokens, 192);
    weir_session_header header;
    (void)state_of("a", &header);
    EXPECT_EQ(header.form.n_rest, 8);
    EXPECT_TRUE(weir_session_form_is_exact(&header.form));
    open();
    EXPECT_EQ(load("a", nullptr), WEIR_EUNSUPPORTED) << "it is no session";
    ASSERT_EQ(load("a", "mine"), WEIR_OK) << error_.text;
    EXPECT_EQ(go_on(tokens, "mine"), cold);
    EXPECT_EQ(n_cached_, 192);
    EXPECT_EQ(go_on(tokens, "yours"), cold);
    EXPECT_EQ(n_cached_, 0) << "it is kept for whom it was read";
    EXPECT_EQ(write("b", tokens, 0, 4096), WEIR_EFULL);
    EXPECT_FALSE(std::filesystem::exists(path("b")));
    EXPECT_EQ(write("b", prompt(2, 20)), WEIR_ENOTFOUND) << "shorter than a block";
}

TEST_F(State, FewerBitsAreNearAndSmaller)
{
    const auto tokens = prompt(1, 300);
    ASSERT_EQ(write("exact", tokens), WEIR_OK) << error_.text;
    const Memory exact = state_of("exact");
    const auto answer = go_on(tokens, nullptr);
    size_t before = exact.size() * sizeof(float);
    for (const int32_t bits : { 8, 4 }) {
        const std::string name = std::to_string(bits), salt = "\x02" + name;
        ASSERT_EQ(write(name, tokens, bits), WEIR_OK) << error_.text;
        weir_session_header header;
        (void)state_of(name, &header);
        EXPECT_EQ(header.form.state_bits, bits);
        EXPECT_EQ(header.form.packed_bytes, weir_sessions_packed_bytes(sessions_, bits));
        EXPECT_LT(header.form.packed_bytes, before);
        before = header.form.packed_bytes;
        open();
        ASSERT_EQ(load(name, salt.c_str()), WEIR_OK) << error_.text;
        (void)go_on(tokens, salt.c_str(), 288);
        EXPECT_EQ(status_, WEIR_OK) << message_;
        EXPECT_EQ(n_cached_, 288);
        EXPECT_EQ(go_on(tokens, nullptr), answer) << "its own sequence is as it was";
    }
}

TEST_F(State, AMergedStateIsWhatComposingTheLayersGives)
{
    ASSERT_EQ(write("a", prompt(1, 200)), WEIR_OK) << error_.text;
    ASSERT_EQ(write("b", prompt(2, 333)), WEIR_OK) << error_.text;
    ASSERT_EQ(merge("a", "b", "both"), WEIR_OK) << error_.text;
    const Memory a = state_of("a"), b = state_of("b");
    weir_session_header header;
    const Memory both = state_of("both", &header);
    EXPECT_TRUE(header.form.is_merged);
    EXPECT_EQ(header.n_tokens, 320);
    EXPECT_EQ(header.form.n_rest, 13);
    weir_coda_layer layer;
    const weir_model *const model = weir_engine_model(engine_);
    int64_t n_exact = 0;
    EXPECT_NE(both, b);
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        ASSERT_TRUE(weir_coda_layer_at(model, i, &layer));
        const size_t at = static_cast<size_t>(weir_model_layer_memory(model, i).state_offset);
        const size_t n = weir_coda_view(&layer, nullptr).bytes / sizeof(float);
        Memory out(n), scratch(weir_coda_merge_scratch(&layer) / sizeof(float) + 1);
        weir_coda_merge(&layer, a.data() + at, b.data() + at, out.data(), scratch.data());
        EXPECT_EQ(memcmp(out.data(), both.data() + at, n * sizeof(float)), 0) << "layer " << i;
        const weir_coda_state state = weir_coda_view(&layer, out.data());
        for (int64_t slot = layer.window; slot < layer.window + layer.n_exact; slot++)
            n_exact += weir_coda_is_used(&state, slot);
    }
    EXPECT_EQ(merged_.n_exact_kept, n_exact);
    EXPECT_EQ(merged_.n_recent_earlier, 2 * 24);
    ASSERT_EQ(merge("b", "a", "8", 8), WEIR_OK) << error_.text;
    ASSERT_EQ(merge("8", "both", "4", 4), WEIR_OK) << "of packed and merged ones: " << error_.text;
    ASSERT_EQ(load("4", "\x02x"), WEIR_OK) << error_.text;
    (void)go_on(prompt(2, 333), "\x02x", 320);
    EXPECT_EQ(status_, WEIR_OK) << message_;
    EXPECT_EQ(merge("a", "nowhere", "x"), WEIR_ENOTFOUND);
    EXPECT_FALSE(std::filesystem::exists(path("x")));
}

TEST_F(State, AFullDiskLeavesNothing)
{
    ASSERT_EQ(write("a", prompt(1, 200)), WEIR_OK) << error_.text;
    ASSERT_EQ(write("b", prompt(2, 200)), WEIR_OK) << error_.text;
    const std::string first = path("a"), second = path("b");
    const weir_merge_request request = { first.c_str(), second.c_str(), { 0, 4096 } };
    EXPECT_EQ(
        weir_sessions_merge(sessions_, &request, path("x").c_str(), &merged_, &result_, &error_),
        WEIR_EFULL
    );
    EXPECT_NE(std::string(error_.text).find("4096 are left"), std::string::npos) << error_.text;
    const weir_merge_request no_space = { first.c_str(), second.c_str(), { 0, 0 } };
    EXPECT_EQ(
        weir_sessions_merge(sessions_, &no_space, "/dev/full/x", &merged_, &result_, &error_),
        WEIR_EIO
    );
    EXPECT_FALSE(std::filesystem::exists(path("x")));
}

/* What computing would not give is not computed. */
TEST_F(State, ARequestThatCannotDoWithoutItsStateFails)
{
    const auto tokens = prompt(1, 200);
    (void)go_on(tokens, "\x02gone", 192);
    EXPECT_EQ(status_, WEIR_EFULL);
    EXPECT_NE(message_.find("send it again"), std::string::npos) << message_;
    ASSERT_EQ(write("a", tokens), WEIR_OK) << error_.text;
    ASSERT_EQ(load("a", "\x02there"), WEIR_OK) << error_.text;
    (void)go_on(tokens, "\x02there", 192);
    EXPECT_EQ(status_, WEIR_OK) << message_;
    (void)go_on(tokens, "\x02there", 193);
    EXPECT_EQ(status_, WEIR_EFULL);
    Call call(tokens, 1);
    call.request.cache_prompt = true;
    for (const int32_t n : { -1, 200, 201 }) {
        call.request.n_kept = n;
        EXPECT_EQ(call.submit(weir_engine_service(engine_), &error_), WEIR_EINVAL) << n;
    }
    call.request.n_kept = 5;
    call.request.want_prompt_logprobs = true;
    EXPECT_EQ(call.submit(weir_engine_service(engine_), &error_), WEIR_EINVAL);
}

/* A packed state whose numbers are other than its model's, with checksums that are right. */
TEST_F(State, PackedStatesThatAreNoneAreRefused)
{
    ASSERT_EQ(write("8", prompt(1, 200), 8), WEIR_OK) << error_.text;
    ASSERT_EQ(write("4", prompt(1, 200), 4), WEIR_OK) << error_.text;
    for (const int32_t bits : { 8, 4 }) {
        weir_session_header header;
        Memory packed = state_of(std::to_string(bits), &header);
        int32_t tokens[200], at = 192;
        for (int i = 0; i < 200; i++) tokens[i] = prompt(1, 200)[static_cast<size_t>(i)];
        for (const bool is_short : { false, true }) {
            /* The position of its first layer, or fewer bytes than the layers take. */
            memset(packed.data(), 0xFF, 8);
            weir_prefix_snapshot mark = { at, packed.data() };
            weir_kv_spec spec = {};
            weir_session_content content = {};
            content.tokens = tokens, content.n_tokens = at, content.n_states = 1,
            content.salt = WEIR_PREFIX_NO_SALT, content.states = &mark, content.spec = &spec;
            content.form = header.form;
            content.form.packed_bytes -= is_short ? 64 : 0;
            size_t bytes = 0;
            ASSERT_EQ(
                weir_session_write(
                    path("hostile").c_str(), &header.identity, &content, &bytes, &error_
                ),
                WEIR_OK
            ) << error_.text;
            EXPECT_EQ(load("hostile", "\x02h"), WEIR_EFORMAT) << error_.text;
            EXPECT_EQ(merge("hostile", "8", "x"), WEIR_EFORMAT) << error_.text;
        }
    }
    (void)go_on(prompt(3, 100), nullptr);
    EXPECT_EQ(status_, WEIR_OK) << "the engine goes on";
}

/* A model whose recall is exact by construction (tools/eval/constructed.h): what of two sequences
 * is in the state that was made of theirs. */
class Recall : public State {
  protected:
    enum { N_VOCAB = 512, N_EXACT = 64, FILLER = 2, N_FILLER = 64 };
    void write_model() override
    {
        const weir_constructed model = { N_VOCAB, 2, 2, 4096, 0 };
        ASSERT_EQ(weir_constructed_write(folder_.path().c_str(), &model, &error_), WEIR_OK)
            << error_.text;
        std::filesystem::create_directories(folder_ / "archs");
        support::write_file(
            folder_ / "archs/coda.toml",
            support::coda_arch(
                "acme", "\"coda\"",
                support::coda_block(
                    "window = 32\nlandmarks_exact = " + std::to_string(+N_EXACT) +
                    "\nlandmarks_summary = 16\nblock_rows = 32\nexact_candidates = 32\n"
                    "exact_gate = 0.0\nsummary_gate = 0.0\nhead_norm = \"identity\"\ntheta = "
                    "0.0\n"
                )
            )
        );
        settings_ = { "model.arch_dir=" + (folder_ / "archs"), "model.arch=acme" };
    }
    /* Keys 10 + 2i and values 11 + 2i from pair `first` on, then what pushes them out of the
     * ring. */
    static std::vector<int32_t> pairs(int first, int n)
    {
        std::vector<int32_t> tokens = { 1 };
        for (int i = first; i < first + n; i++)
            tokens.insert(tokens.end(), { 10 + 2 * i, 11 + 2 * i });
        tokens.insert(tokens.end(), N_FILLER, FILLER);
        tokens.resize(tokens.size() / 32 * 32); /* the state has all of it */
        return tokens;
    }
    /* How many of the pairs a prompt that goes on from `text` under this salt recalls. */
    int recalled(const std::vector<int32_t> &tokens, const std::string &salt, int first, int n)
    {
        int right = 0;
        for (int i = first; i < first + n; i++) {
            auto ids = tokens;
            ids.push_back(10 + 2 * i);
            Call call(ids, 1);
            call.request.sampling.temperature = 0;
            call.request.cache_prompt = true;
            call.request.cache_salt = salt.c_str();
            call.request.n_kept = static_cast<int32_t>(tokens.size());
            EXPECT_EQ(call.submit(weir_engine_service(engine_), &error_), WEIR_OK) << error_.text;
            call.wait();
            EXPECT_EQ(call.status, WEIR_OK) << call.message;
            right += call.tokens[0] == std::vector<int32_t>{ 11 + 2 * i };
        }
        return right;
    }
};

TEST_F(Recall, AMergedStateKnowsWhatTheBanksOfBothKnewAsFarAsThereIsRoom)
{
    for (const int n : { 4, 8, 14, 16, 24, 28 }) {
        const auto a = pairs(0, n), b = pairs(100, n);
        open();
        ASSERT_EQ(write("a", a), WEIR_OK) << error_.text;
        ASSERT_EQ(write("b", b), WEIR_OK) << error_.text;
        ASSERT_EQ(merge("a", "b", "both"), WEIR_OK) << error_.text;
        ASSERT_EQ(merge("a", "b", "both4", 4), WEIR_OK) << error_.text;
        for (const char *const name : { "a", "b", "both", "both4" })
            ASSERT_EQ(load(name, (std::string("\x02") + name).c_str()), WEIR_OK) << error_.text;
        const int alone = recalled(
                      a,
                      "\x02"
                      "a",
                      0, n
                  ),
                  later = recalled(
                      b,
                      "\x02"
                      "b",
                      100, n
                  ),
                  strange = recalled(
                      b,
                      "\x02"
                      "b",
                      0, n
                  );
        const int of_a = recalled(
                      b,
                      "\x02"
                      "both",
                      0, n
                  ),
                  of_b = recalled(
                      b,
                      "\x02"
                      "both",
                      100, n
                  );
        const int of_a4 = recalled(
                      b,
                      "\x02"
                      "both4",
                      0, n
                  ),
                  of_b4 = recalled(
                      b,
                      "\x02"
                      "both4",
                      100, n
                  );
        printf(
            "%d pairs each: a %d, b %d; merged: of a %d, of b %d; in 4 bits: of a %d, of b %d\n", n,
            alone, later, of_a, of_b, of_a4, of_b4
        );
        EXPECT_NEAR(of_a4 + of_b4, of_a + of_b, n / 8);
        EXPECT_EQ(strange, 0) << "without a merge it knows nothing of the other one";
        EXPECT_EQ(alone, n);
        EXPECT_EQ(later, n);
        EXPECT_GT(of_a + of_b, n - 1);
        if (4 * n + 4 <= N_EXACT) { /* a pair takes two slots */
            EXPECT_EQ(of_a, n);
            EXPECT_EQ(of_b, n);
        }
    }
}

} // namespace
