/* What include/weir.h says of errors, callbacks, memory, the log and the process it runs in. */
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <fstream>
#include <string>

#include "tests/api/codes.h"
#include "tests/api/support.h"

namespace {

using api::Engine;
using api::Ids;
using api::Sequence;

#define EXPECT_SAYS(error, part)                                                                   \
    EXPECT_NE(std::string((error).text).find(part), std::string::npos) << "said: " << (error).text

TEST(Contract, CodesAndErrorsAreThoseOfTheEngine)
{
    EXPECT_EQ(codes_of_header(), codes_of_engine());
    EXPECT_EQ(error_of_header(), error_of_engine());
}

TEST(Contract, VersionIsThatOfTheHeader) { EXPECT_STREQ(weir_version(), WEIR_VERSION); }

TEST(Contract, ConfigurationSaysWhatIsWrong)
{
    weir_config *const config = weir_config_new();
    weir_error error = {};
    EXPECT_EQ(weir_config_set(config, "memory.hots", "1GiB", &error), WEIR_ECONFIG);
    EXPECT_SAYS(error, "memory.host");
    EXPECT_EQ(weir_config_set(config, "memory.host", "much", &error), WEIR_ECONFIG);
    EXPECT_EQ(weir_config_read(config, "no such file", &error), WEIR_ENOTFOUND);
    const std::string path = testing::TempDir() + "/run.toml";
    std::ofstream(path) << "[memory]\nhost = \"64MiB\"\n[model]\npath = \"" << api::model
                        << "\"\n[sampling]\ntop_k = 7\n";
    ASSERT_EQ(weir_config_read(config, path.c_str(), &error), WEIR_OK) << error.text;
    weir_engine *engine = nullptr;
    ASSERT_EQ(weir_engine_open(&engine, config, &error), WEIR_OK) << error.text;
    weir_sampling_params params = {};
    weir_sampling_params_init(&params, sizeof params, engine);
    EXPECT_EQ(params.top_k, 7);
    EXPECT_EQ(params.size, sizeof params);
    weir_engine_close(engine);
    weir_config_free(config);
}

TEST(Contract, OpeningSaysWhatIsMissing)
{
    const Engine nowhere({}, "no/model");
    EXPECT_EQ(nowhere.status, WEIR_ENOTFOUND);
    EXPECT_SAYS(nowhere.error, "no/model");
}

TEST(Contract, ABudgetThatIsTooSmallNamesTheLeastThatFits)
{
    for (const char *const host : { "2MiB", "9MiB" }) {
        const Engine tiny({ { "memory.host", host } });
        ASSERT_EQ(tiny.status, WEIR_EFULL) << host;
        const std::string said = tiny.error.text;
        const size_t at = said.rfind("memory.host = "), end = said.find("MiB is the least");
        ASSERT_NE(end, std::string::npos) << said;
        const int least = std::stoi(said.substr(at + 14, end - at - 14));
        const Engine enough({ { "memory.host", std::to_string(least) + "MiB" } });
        EXPECT_EQ(enough.status, WEIR_OK) << enough.error.text;
        const Engine less({ { "memory.host", std::to_string(least - 1) + "MiB" } });
        EXPECT_EQ(less.status, WEIR_EFULL) << least;
    }
}

TEST(Contract, InfoFitsStructsOfEarlierVersions)
{
    const Engine engine;
    weir_engine_info info = {};
    info.size = offsetof(weir_engine_info, context_length);
    info.context_length = -7;
    weir_engine_get_info(engine.engine, &info);
    EXPECT_STREQ(info.architecture, "qwen35");
    EXPECT_EQ(info.context_length, -7);
    info.size = sizeof info + 64; /* of a later version */
    weir_engine_get_info(engine.engine, &info);
    EXPECT_EQ(info.size, sizeof info);
    EXPECT_EQ(info.vocab_size, 2048);
    EXPECT_GT(info.context_length, 256);
}

TEST(Contract, BadTokensLeaveTheSequenceAlone)
{
    const Engine engine;
    Sequence sequence(engine);
    const Ids ids = engine.ids("Once upon a time");
    ASSERT_EQ(sequence.sync(ids), WEIR_OK);
    for (const int32_t bad : { -1, 2048, INT32_MAX }) {
        EXPECT_EQ(sequence.sync({ 1, bad }), WEIR_EINVAL);
        EXPECT_SAYS(sequence.error, "position 1");
    }
    EXPECT_EQ(sequence.sync(Ids(1 << 20, 1)), WEIR_EINVAL);
    EXPECT_SAYS(sequence.error, "model.context");
    EXPECT_EQ(sequence.ids(), ids);
    EXPECT_EQ(sequence.sync({}), WEIR_OK);
    const float *row = nullptr;
    size_t n = 0;
    EXPECT_EQ(weir_sequence_logits(sequence.sequence, &row, &n, &sequence.error), WEIR_EINVAL);
    EXPECT_EQ(
        weir_generate(sequence.sequence, nullptr, nullptr, nullptr, &sequence.error), WEIR_EINVAL
    );
    EXPECT_EQ(weir_sequence_save(sequence.sequence, "never", &sequence.error), WEIR_EINVAL);
}

TEST(Contract, ParametersAreChecked)
{
    const Engine engine;
    Sequence sequence(engine);
    ASSERT_EQ(sequence.sync(engine.ids("Once")), WEIR_OK);
    weir_sampling_params params = Sequence::greedy(-1);
    EXPECT_EQ(
        weir_generate(sequence.sequence, &params, nullptr, nullptr, &sequence.error), WEIR_EINVAL
    );
    params = Sequence::greedy(4);
    params.top_p = 2;
    EXPECT_EQ(
        weir_generate(sequence.sequence, &params, nullptr, nullptr, &sequence.error), WEIR_EINVAL
    );
    EXPECT_SAYS(sequence.error, "top_p");
    EXPECT_EQ(sequence.ids(), engine.ids("Once"));
}

/* ---- callbacks ------------------------------------------------------------------------------- */
struct Heard {
    Ids tokens;
    std::string text;
    size_t stop_after = SIZE_MAX;
    weir_sequence *cancels = nullptr;
};

int hear(void *user, int32_t token, const char *text, size_t length)
{
    Heard *const heard = static_cast<Heard *>(user);
    EXPECT_EQ(text[length], '\0');
    heard->text.append(text, length);
    if (token < 0) return 0;
    heard->tokens.push_back(token);
    if (heard->cancels != nullptr && heard->tokens.size() == 3)
        weir_sequence_cancel(heard->cancels);
    return heard->tokens.size() >= heard->stop_after;
}

TEST(Contract, PiecesAreTheTokensAndTheirText)
{
    const Engine engine;
    Sequence sequence(engine);
    Heard heard;
    ASSERT_EQ(sequence.sync(engine.ids("Once upon a time")), WEIR_OK);
    const Ids answer = sequence.generate(30, hear, &heard);
    EXPECT_EQ(heard.tokens, answer);
    EXPECT_EQ(heard.text, engine.text(answer));
    EXPECT_EQ(answer.size(), 30u);
    EXPECT_STREQ(weir_finish_reason(sequence.sequence), "length");
    EXPECT_EQ(sequence.usage().answer_tokens, 30);
}

TEST(Contract, ACallbackThatStopsHasTheLastToken)
{
    const Engine engine;
    Sequence sequence(engine), whole(engine);
    Heard heard;
    heard.stop_after = 5;
    ASSERT_EQ(sequence.sync(engine.ids("Once upon a time")), WEIR_OK);
    const Ids answer = sequence.generate(500, hear, &heard);
    EXPECT_EQ(sequence.status, WEIR_OK) << sequence.error.text;
    EXPECT_EQ(answer.size(), 5u);
    EXPECT_STREQ(weir_finish_reason(sequence.sequence), "stop");
    const Ids rest = sequence.generate(5);
    ASSERT_EQ(whole.sync(engine.ids("Once upon a time")), WEIR_OK);
    Ids both = answer;
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(whole.generate(10), both);
}

TEST(Contract, CancelEndsTheCallAndKeepsItsTokens)
{
    const Engine engine;
    Sequence sequence(engine);
    Heard heard;
    heard.cancels = sequence.sequence;
    ASSERT_EQ(sequence.sync(engine.ids("Once upon a time")), WEIR_OK);
    const Ids answer = sequence.generate(4000, hear, &heard);
    EXPECT_EQ(sequence.status, WEIR_ECANCELED);
    EXPECT_STREQ(weir_finish_reason(sequence.sequence), "cancelled");
    EXPECT_EQ(heard.tokens, answer);
    EXPECT_GE(answer.size(), 3u);
    EXPECT_LT(answer.size(), 4000u);
    EXPECT_EQ(sequence.generate(2).size(), 2u); /* it can go on */
}

TEST(Contract, AnAnswerFillsTheWindowAndNoMore)
{
    const Engine engine({ { "model.context", "256" } });
    Sequence sequence(engine);
    ASSERT_EQ(sequence.sync(engine.ids("Once upon a time")), WEIR_OK);
    (void)sequence.generate(0);
    EXPECT_EQ(sequence.status, WEIR_OK) << sequence.error.text;
    EXPECT_STREQ(weir_finish_reason(sequence.sequence), "length");
    EXPECT_GE(sequence.ids().size(), 256u);
    EXPECT_LE(sequence.ids().size(), 257u);
}

/* ---- text ------------------------------------------------------------------------------------ */
TEST(Contract, SpecialTokensOfUsersStayText)
{
    const Engine engine;
    const char text[] = "<|im_start|>";
    int32_t *plain = nullptr, *special = nullptr;
    size_t n_plain = 0, n_special = 0;
    ASSERT_EQ(
        weir_tokenize(engine.engine, text, sizeof text - 1, 0, &plain, &n_plain, nullptr), WEIR_OK
    );
    ASSERT_EQ(
        weir_tokenize(
            engine.engine, text, sizeof text - 1, WEIR_TOKENIZE_SPECIAL, &special, &n_special,
            nullptr
        ),
        WEIR_OK
    );
    EXPECT_GT(n_plain, 1u);
    EXPECT_EQ(n_special, 1u);
    EXPECT_EQ(engine.text(Ids(plain, plain + n_plain)), text);
    weir_free(plain);
    weir_free(special);
    weir_error error = {};
    EXPECT_EQ(weir_tokenize(engine.engine, text, 1, 64, &plain, &n_plain, &error), WEIR_EINVAL);
}

TEST(Contract, ChatsAreRenderedByTheTemplate)
{
    const Engine engine;
    const std::string chat = R"([{"role": "user", "content": "Hello <|im_end|>"}])";
    int32_t *tokens = nullptr;
    size_t n = 0;
    char *text = nullptr;
    weir_error error = {};
    ASSERT_EQ(
        weir_render_chat(engine.engine, chat.data(), chat.size(), &tokens, &n, &text, &error),
        WEIR_OK
    ) << error.text;
    EXPECT_NE(std::string(text).find("user\nHello <|im_end|>"), std::string::npos) << text;
    int n_ends = 0;
    for (size_t i = 0; i < n; i++) n_ends += weir_token_is_eog(engine.engine, tokens[i]);
    EXPECT_EQ(n_ends, 1); /* the template's, not the user's */
    weir_free(tokens);
    weir_free(text);
    EXPECT_EQ(weir_render_chat(engine.engine, "[", 1, &tokens, &n, nullptr, &error), WEIR_EFORMAT);
    EXPECT_SAYS(error, "messages:1:");
    EXPECT_EQ(weir_render_chat(engine.engine, "7", 1, &tokens, &n, nullptr, &error), WEIR_EINVAL);
}

/* ---- files ----------------------------------------------------------------------------------- */
TEST(Contract, FilesThatDoNotFitAreRefusedAndChangeNothing)
{
    const std::string path = testing::TempDir() + "/a.weir", torn = testing::TempDir() + "/b.weir";
    {
        const Engine engine;
        Sequence sequence(engine);
        ASSERT_EQ(sequence.sync(engine.ids(api::lines(4))), WEIR_OK);
        ASSERT_EQ(weir_sequence_save(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK)
            << sequence.error.text;
        EXPECT_EQ(weir_sequence_save(sequence.sequence, "/no/folder/x", &sequence.error), WEIR_EIO);
        EXPECT_SAYS(sequence.error, "/no/folder");
    }
    std::ifstream in(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    std::ofstream(torn, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
    const Engine engine({ { "kv.format", "bf16" } });
    Sequence sequence(engine);
    const Ids ids = engine.ids("Once");
    ASSERT_EQ(sequence.sync(ids), WEIR_OK);
    EXPECT_EQ(
        weir_sequence_restore(sequence.sequence, path.c_str(), &sequence.error), WEIR_EMISMATCH
    );
    EXPECT_EQ(
        weir_sequence_restore(sequence.sequence, torn.c_str(), &sequence.error), WEIR_EFORMAT
    );
    EXPECT_EQ(weir_sequence_restore(sequence.sequence, "no/file", &sequence.error), WEIR_ENOTFOUND);
    EXPECT_SAYS(sequence.error, "no/file");
    EXPECT_EQ(sequence.ids(), ids);
}

TEST(Contract, FilesOfOtherNumericsAreRefusedOrSaid)
{
    const std::string path = testing::TempDir() + "/numerics.weir";
    const std::pair<std::string, std::string> pin = { "kernels.pin.add", "ref.add" };
    Ids text;
    {
        const Engine engine({ pin });
        ASSERT_EQ(engine.status, WEIR_OK) << engine.error.text;
        Sequence sequence(engine);
        ASSERT_EQ(sequence.sync(engine.ids(api::lines(12))), WEIR_OK);
        ASSERT_EQ(weir_sequence_save(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK)
            << sequence.error.text;
        text = sequence.ids();
        EXPECT_STREQ(sequence.usage().numerics, "");
    }
    {
        const Engine engine;
        Sequence sequence(engine);
        EXPECT_EQ(
            weir_sequence_restore(sequence.sequence, path.c_str(), &sequence.error), WEIR_EMISMATCH
        );
        EXPECT_SAYS(sequence.error, "computed with kernel pins add=ref.add (here none)");
        EXPECT_SAYS(sequence.error, "sessions.numerics=any");
        EXPECT_TRUE(sequence.ids().empty());
    }
    const Engine engine({ { "sessions.numerics", "any" } });
    Sequence sequence(engine);
    ASSERT_EQ(weir_sequence_restore(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK)
        << sequence.error.text;
    EXPECT_EQ(sequence.ids(), text);
    EXPECT_EQ(sequence.generate(5).size(), 5u);
    EXPECT_NE(
        std::string(sequence.usage().numerics).find("kernel pins add=ref.add"), std::string::npos
    ) << sequence.usage().numerics;
    EXPECT_LE(sequence.usage().computed_tokens, 64);
    /* A sequence that does not continue it. */
    ASSERT_EQ(sequence.sync(engine.ids("Something else")), WEIR_OK);
    EXPECT_STREQ(sequence.usage().numerics, "");
    EXPECT_EQ(weir_sequence_save(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK);
}

TEST(Contract, WithoutReuseNothingIsSaved)
{
    const Engine engine({ { "kv.reuse", "off" } });
    Sequence sequence(engine);
    ASSERT_EQ(sequence.sync(engine.ids("Once upon a time")), WEIR_OK);
    EXPECT_EQ(weir_sequence_save(sequence.sequence, "never", &sequence.error), WEIR_EUNSUPPORTED);
    EXPECT_SAYS(sequence.error, "kv.reuse");
    EXPECT_EQ(sequence.generate(3).size(), 3u);
}

/* ---- memory ---------------------------------------------------------------------------------- */
TEST(Contract, SequencesAreCharged)
{
    const Engine engine;
    const size_t before = engine.account("http");
    {
        Sequence sequence(engine);
        const size_t empty = engine.account("http");
        EXPECT_GE(empty, before + 2048 * sizeof(float));
        ASSERT_EQ(sequence.sync(engine.ids(api::lines(10))), WEIR_OK);
        EXPECT_GE(engine.account("http"), empty + sequence.ids().size() * sizeof(int32_t));
    }
    /* The engine's thread frees a job after its caller has the last event. */
    for (int i = 0; i < 2000 && engine.account("http") > before; i++) usleep(10000);
    EXPECT_EQ(engine.account("http"), before);
    EXPECT_GT(engine.account("weights"), 0u);
    EXPECT_GT(engine.account("kv"), 0u);
}

TEST(Contract, SequencesThatDoNotFitAreRefused)
{
    const Engine engine({ { "memory.host", "64MiB" } });
    ASSERT_EQ(engine.status, WEIR_OK) << engine.error.text;
    std::vector<weir_sequence *> all;
    weir_error error = {};
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && all.size() < 20000) {
        weir_sequence *sequence = nullptr;
        status = weir_sequence_new(&sequence, engine.engine, &error);
        if (status == WEIR_OK) all.push_back(sequence);
    }
    EXPECT_EQ(status, WEIR_ENOMEM);
    EXPECT_SAYS(error, "memory.host");
    for (weir_sequence *const sequence : all) weir_sequence_free(sequence);
    Sequence again(engine);
    EXPECT_EQ(again.sync(engine.ids("Once")), WEIR_OK);
}

TEST(Contract, TheReportIsJson)
{
    const Engine engine;
    char *json = nullptr;
    ASSERT_EQ(weir_memory_json(engine.engine, &json, nullptr), WEIR_OK);
    const std::string weights = "\"weights\": " + std::to_string(engine.account("weights"));
    EXPECT_NE(std::string(json).find(weights), std::string::npos) << json;
    EXPECT_NE(std::string(json).find("\"host\": {\"limit\": 268435456, "), std::string::npos)
        << json;
    weir_free(json);
    weir_memory_account one[1];
    EXPECT_GT(weir_memory_accounts(engine.engine, one, 1), 1u);
}

/* ---- the process ----------------------------------------------------------------------------- */
void log_line(void *user, const char *level, const char *text)
{
    *static_cast<std::string *>(user) += std::string(level) + "|" + text + "\n";
}

TEST(Contract, TheLogGoesWhereTheProgramWants)
{
    std::string lines;
    weir_log_to(log_line, &lines);
    testing::internal::CaptureStderr();
    {
        const Engine engine({ { "kv.tiers.host", "1MiB" } }); /* of no use without a GPU */
        EXPECT_EQ(engine.status, WEIR_OK) << engine.error.text;
    }
    weir_log_to(nullptr, nullptr);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(lines.rfind("warning|kv.tiers.host", 0), 0u) << lines;
}

TEST(Contract, StdoutStderrAndSignalsAreTheProgram)
{
    struct sigaction before[32], after[32];
    for (int i = 1; i < 32; i++) (void)sigaction(i, nullptr, &before[i]);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    {
        const Engine engine;
        Sequence sequence(engine);
        EXPECT_EQ(sequence.sync(engine.ids(api::lines(2))), WEIR_OK);
        EXPECT_EQ(sequence.generate(4).size(), 4u);
    }
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    for (int i = 1; i < 32; i++) {
        (void)sigaction(i, nullptr, &after[i]);
        EXPECT_EQ(before[i].sa_handler, after[i].sa_handler) << "signal " << i;
    }
}

TEST(Contract, EnginesLiveSideBySide)
{
    const Engine first, second({ { "kv.format", "q8_0" } });
    Sequence a(first), b(second);
    ASSERT_EQ(a.sync(first.ids(api::lines(2))), WEIR_OK);
    ASSERT_EQ(b.sync(second.ids(api::lines(2))), WEIR_OK);
    EXPECT_EQ(a.generate(5).size(), 5u);
    EXPECT_EQ(b.generate(5).size(), 5u);
}

} // namespace
