/* A block is its own file and one line in a list: a mixer and an FFN that the engine has never seen
 * go through prefix reuse, sessions, tiers and preemption with the same answers. */
#include <cmath>

#include "engine/kv/pool/store.h"
#include "engine/model/model.h"
#include "tests/every_nth.h"
#include "tests/unit/model/files.h"
#include "tests/unit/model/toy_blocks.h"
#include "tests/unit/schedule/reuse.h"

namespace {

const weir_block *const blocks[] = { &toy_mixer, &toy_ffn, nullptr };

enum { D = 64, HEADS = 4, KV_HEADS = 2, INNER = 96 }; /* of the golden Qwen3 */
enum { TOY_KV_HEADS = 1 };

/* The tensors of one layer. */
support::Arrays toy_tensors(bool has_norms = true, int layer = 0)
{
    const int seed = 10 * layer;
    const std::string at = "toy." + std::to_string(layer) + ".";
    support::Arrays out = {
        { at + "q", support::noise({ HEADS * TOY_KEY_DIM, D }, 0.2f, seed + 1) },
        { at + "k", support::noise({ TOY_KV_HEADS * TOY_KEY_DIM, D }, 0.2f, seed + 2) },
        { at + "v", support::noise({ TOY_KV_HEADS * TOY_VALUE_DIM, D }, 0.2f, seed + 3) },
        { at + "out", support::noise({ D, HEADS * TOY_VALUE_DIM }, 0.2f, seed + 4) },
        { at + "norms", support::noise({ 2, 2, 3, 2, 2 }, 1.0f, seed + 5) },
        { at + "up", support::noise({ 2, 2, 2, INNER / 8, D }, 0.2f, seed + 6) },
        { at + "down", support::noise({ D, INNER }, 0.2f, seed + 7) },
    };
    if (!has_norms) out[at + "norms"] = support::noise({ 2, 3, 2, 2, 2 }, 1.0f, seed + 5);
    return out;
}

/* Qwen3 whose first layer is made of the toys: one KV head with rows of 24 and 16 elements and
 * two with rows of 32. */
std::string toy_arch(const std::string &mixer_options = "decay = 0.25\nkv_heads = 1\n")
{
    std::string arch = support::read_file("configs/arch/qwen3.toml");
    const auto change = [&arch](const std::string &from, const std::string &to) {
        arch = support::with(arch, from, to);
    };
    change("name     = \"qwen3\"", "name     = \"toy\"");
    change("match    = { gguf = [\"qwen3\"], hf = [\"qwen3\"] }", "match = []");
    change("pattern = [\"attn\"]", "pattern = [\"toy\", \"attn\"]");
    change(
        "[block.attn]", "[block.toy]\nmixer = \"toy_mixer\"\nffn = \"toy\"\n" + mixer_options +
                            "[block.attn]\nffn = \"dense\""
    );
    change("[ffn]\n", "[ffn.toy]\nkind = \"toy_ffn\"\n[ffn.dense]\n");
    for (const char *const name : { "q", "k", "v", "out", "norms", "up", "down" })
        arch += std::string("\"toy.") + name + "\" = { hf = \"toy.{i}." + name + "\" }\n";
    return arch;
}

/* Both layers are made of the toys, and the second has no rows of its own ("shared"), or has those
 * of the first one once more ("copied"). */
std::string sharing_arch(const std::string &rows, const std::string &kv_heads = "1")
{
    const std::string arch = support::with(
        toy_arch(), "pattern = [\"toy\", \"attn\"]", "pattern = [\"toy\", \"reader\"]"
    );
    return support::with(
        arch, "[block.attn]",
        "[block.reader]\nmixer = \"toy_mixer\"\nffn = \"toy\"\nkv_heads = " + kv_heads +
            "\nrows = \"" + rows + "\"\n[block.attn]"
    );
}

class Toy : public support::Reuse {
  protected:
    Toy()
    {
        std::filesystem::remove_all(folder_);
        write(toy_arch());
        support::write_safetensors(folder_ + "/toy.safetensors", toy_tensors());
        blocks_ = blocks;
        settings_ = { "model.arch=toy", "model.arch_dir=" + folder_ + "/archs",
                      "model.adapter=" + folder_ + "/toy.safetensors" };
    }
    /* A prompt and its answer. */
    std::vector<int32_t> first_turn()
    {
        auto turn = prompt(1, 200);
        const auto answer = run(turn);
        turn.insert(turn.end(), answer.begin(), answer.end());
        return turn;
    }
    /* Saves them as the session "talk"; returns the tokens in its file. */
    int32_t save(const std::vector<int32_t> &tokens)
    {
        const weir_session_request request = { "talk", nullptr, tokens.data(),
                                               (int32_t)tokens.size() };
        weir_session_result result = {};
        EXPECT_EQ(
            weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_OK
        ) << error_.text;
        return result.n_tokens;
    }
    void restore()
    {
        weir_session_result result = {};
        EXPECT_EQ(
            weir_sessions_restore(weir_engine_sessions(engine_), "talk", &result, &error_), WEIR_OK
        ) << error_.text;
    }
    void write(const std::string &arch)
    {
        std::filesystem::create_directories(folder_ + "/archs");
        support::write_file(folder_ + "/archs/toy.toml", arch);
    }
    /* What opening such an engine says. */
    std::string why()
    {
        weir_config_default(&config_);
        snprintf(config_.model.path, sizeof config_.model.path, "tests/golden/models/qwen3");
        for (const std::string &setting : settings_)
            EXPECT_EQ(weir_config_assign(&config_, setting.c_str(), &error_), WEIR_OK)
                << error_.text;
        const weir_engine_options options = { &config_, false, false, nullptr, nullptr, blocks_ };
        EXPECT_NE(weir_engine_open_with(&engine_, &options, &error_), WEIR_OK);
        return error_.text;
    }
    std::string folder_ = ::testing::TempDir() + "/toy";
};

#define EXPECT_SAYS(text, part)                                                                    \
    EXPECT_NE(std::string(text).find(part), std::string::npos) << "said: " << (text)

TEST_F(Toy, LayersKeepHeadsAndWidthsOfTheirOwn)
{
    open("qwen3", 2, nullptr, 512, 0, { "kv.format=f32" });
    const weir_kv_spec *const spec = weir_kv_store_spec(weir_engine_store(engine_));
    ASSERT_EQ(spec->n_layers, 2);
    EXPECT_EQ(spec->geometry[0].n_heads, TOY_KV_HEADS);
    EXPECT_EQ(spec->geometry[1].n_heads, KV_HEADS);
    EXPECT_EQ(weir_kv_n_heads(spec), TOY_KV_HEADS + KV_HEADS);
    EXPECT_EQ(weir_kv_page_bytes(spec, 0), 64u * (TOY_KEY_DIM + TOY_VALUE_DIM) * sizeof(float));
    EXPECT_EQ(weir_kv_page_bytes(spec, 1), 64u * (32 + 32) * sizeof(float));
    EXPECT_EQ(
        weir_kv_block_bytes(spec), weir_kv_page_bytes(spec, 0) + 2 * weir_kv_page_bytes(spec, 1)
    );
    EXPECT_EQ(weir_model_recurrent_bytes(weir_engine_model(engine_)), D * sizeof(float));
}

TEST_F(Toy, APrefixIsReusedWithTheSameBits)
{
    for (const char *const format : { "kv.format=f32", "kv.format=f16", "kv.format=bf16" }) {
        open("qwen3", 2, nullptr, 512, 0, { format });
        auto text = prompt(1, 200);
        const auto first = run(text);
        text.insert(text.end(), first.begin(), first.end());
        text.resize(260, 5);
        const auto warm = run(text);
        EXPECT_GT(usage_.n_cached, 128) << format << ": " << usage_.reuse;
        EXPECT_EQ(run(text, nullptr, false), warm) << format;
        EXPECT_EQ(usage_.n_cached, 0);
        stop();
    }
}

TEST_F(Toy, ASessionGoesOnAfterARestart)
{
    const std::string dir = "sessions.dir=" + folder_ + "/sessions";
    std::filesystem::create_directories(folder_ + "/sessions");
    open("qwen3", 2, nullptr, 512, 0, { dir.c_str() });
    auto turn = first_turn();
    EXPECT_EQ(save(turn), 211);
    turn.resize(240, 5);
    const auto uninterrupted = run(turn, nullptr, false);
    stop();
    open("qwen3", 2, nullptr, 512, 0, { dir.c_str() });
    restore();
    EXPECT_EQ(run(turn), uninterrupted);
    EXPECT_EQ(usage_.n_cached, 211) << usage_.reuse;
    stop();
}

/* Random conversations in a pool that holds few of them: some are preempted. */
TEST_F(Toy, PreemptedConversationsAnswerAsAlone)
{
    for (unsigned seed = 1; seed < 4; seed++) {
        random_schedule("qwen3", seed, "kv.format=f16");
        stop();
    }
    EXPECT_GT(preemptions_, 0);
}

/* The first tokens of every sequence have a format of their own, in pages of one size. */
TEST_F(Toy, WideSinksOfUnlikeLayersAnswerAsAlone)
{
    settings_.push_back("kv.wide_format=f32");
    random_schedule("qwen3", 1, "kv.format=f16", false, 64);
    open("qwen3", 2, nullptr, 512, 0, { "kv.format=f16", "kv.wide_sinks=64" });
    const weir_kv_spec *const spec = weir_kv_store_spec(weir_engine_store(engine_));
    EXPECT_EQ(weir_kv_page_bytes_at(spec, 0, 0), 64u * (32 + 32) * sizeof(float));
    EXPECT_EQ(weir_kv_sink_block_bytes(spec), 3 * weir_kv_page_bytes_at(spec, 0, 0));
    EXPECT_EQ(weir_kv_page_bytes_at(spec, 0, 1), 64u * (TOY_KEY_DIM + TOY_VALUE_DIM) * 2);
}

TEST_F(Toy, ConversationsOnDiskAnswerAsAlone)
{
    settings_.push_back("memory.snapshots=200KiB"); /* also while the schedule measures memory */
    random_schedule("qwen3", 1, "kv.format=f16", true);
    EXPECT_GT(blocks_out_, 0);
    EXPECT_GT(blocks_read_, 0);
}

/* Policies choose among the rows of the layer that shows what attention gave to them; the toy's
 * layer keeps all of its own. */
TEST_F(Toy, APrunedSequenceGoesOnAfterARestart)
{
    const std::string dir = "sessions.dir=" + folder_ + "/sessions";
    std::filesystem::create_directories(folder_ + "/sessions");
    for (const char *const policy : { "h2o", "keydiff" }) {
        const std::string name = std::string("kv.policy.name=") + policy;
        const auto start = [&] {
            open(
                "qwen3", 2, nullptr, 512, 0,
                { dir.c_str(), "kv.format=f16", name.c_str(), "kv.policy.budget=100" }
            );
        };
        start();
        auto turn = prompt(1, 200);
        const auto answer = run(turn);
        EXPECT_GT(usage_.n_evicted, 0) << policy;
        turn.insert(turn.end(), answer.begin(), answer.end());
        save(turn);
        turn.resize(240, 5);
        const auto uninterrupted = run(turn);
        EXPECT_GT(usage_.n_cached, 200) << policy << ": " << usage_.reuse;
        stop();
        start();
        restore();
        EXPECT_EQ(run(turn), uninterrupted) << policy;
        EXPECT_GT(usage_.n_cached, 200) << policy << ": " << usage_.reuse;
        stop();
    }
}

class SharedRows : public Toy {
  protected:
    SharedRows()
    {
        support::Arrays both = toy_tensors();
        both.merge(toy_tensors(true, 1));
        support::write_safetensors(folder_ + "/toy.safetensors", both);
    }
};

/* A layer that reads the rows of an earlier one answers as one that has the same rows in pages of
 * its own. */
TEST_F(SharedRows, AnswerAsRowsOfOnesOwn)
{
    static const char *const rows[] = { "own", "copied", "shared" };
    std::vector<std::vector<int32_t>> answers[3];
    size_t block_bytes[3], token_bytes[3];
    for (const int i : { 0, 1, 2 }) {
        write(sharing_arch(rows[i]));
        for (const char *const format : { "kv.format=f32", "kv.format=f16" }) {
            open("qwen3", 2, nullptr, 512, 0, { format });
            const weir_kv_spec *const spec = weir_kv_store_spec(weir_engine_store(engine_));
            EXPECT_EQ(spec->n_layers, i == 2 ? 1 : 2);
            block_bytes[i] = weir_kv_block_bytes(spec);
            token_bytes[i] = (size_t)weir_engine_plan_of(engine_)->facts.kv_bytes_per_token;
            auto text = prompt(1, 200);
            for (int turn = 0; turn < 3; turn++) {
                const auto answer = run(text);
                EXPECT_EQ(usage_.n_cached > 0, turn > 0) << usage_.reuse;
                answers[i].push_back(answer);
                text.insert(text.end(), answer.begin(), answer.end());
                text.resize(text.size() + 20, 5);
            }
            stop();
        }
    }
    EXPECT_EQ(answers[2], answers[1]);
    EXPECT_NE(answers[1], answers[0]) << "the rows make no difference";
    EXPECT_EQ(2 * block_bytes[2], block_bytes[1]);
    EXPECT_EQ(2 * token_bytes[2], token_bytes[1]);
}

TEST_F(SharedRows, ConversationsAnswerAsAlone)
{
    write(sharing_arch("shared"));
    settings_.push_back("memory.snapshots=200KiB"); /* also while the schedule measures memory */
    for (unsigned seed = 1; seed < 9; seed += (unsigned)weir_test::every_nth(3))
        random_schedule("qwen3", seed, "kv.format=f32");
    EXPECT_GT(preemptions_, 0);
    random_schedule("qwen3", 1, "kv.format=f32", true);
    EXPECT_GT(blocks_out_, 0);
    EXPECT_GT(blocks_read_, 0);
}

TEST_F(SharedRows, ASessionHoldsThemOnce)
{
    const std::string dir = "sessions.dir=" + folder_ + "/sessions";
    std::filesystem::create_directories(folder_ + "/sessions");
    write(sharing_arch("shared"));
    open("qwen3", 2, nullptr, 512, 0, { dir.c_str() });
    auto turn = first_turn();
    save(turn);
    turn.resize(240, 5);
    const auto uninterrupted = run(turn, nullptr, false);
    stop();
    write(sharing_arch("copied")); /* the same model, but for its rows */
    open("qwen3", 2, nullptr, 512, 0, { dir.c_str() });
    weir_session_result result = {};
    EXPECT_EQ(
        weir_sessions_restore(weir_engine_sessions(engine_), "talk", &result, &error_),
        WEIR_EMISMATCH
    );
    EXPECT_SAYS(error_.text, "1 layers with KV, the model here has 2");
    stop();
    write(sharing_arch("shared"));
    open("qwen3", 2, nullptr, 512, 0, { dir.c_str() });
    restore();
    EXPECT_EQ(run(turn), uninterrupted);
    EXPECT_EQ(usage_.n_cached, 211) << usage_.reuse;
}

TEST_F(SharedRows, WhatCannotBeSharedIsRefused)
{
    write(sharing_arch("shared", "2"));
    EXPECT_SAYS(
        why(), "layer 1 reads the KV rows of an earlier layer, and none before it keeps rows of 2 "
               "heads, keys of 24 and values of 16"
    );
    write(sharing_arch("shared"));
    settings_.push_back("kv.format=int8");
    EXPECT_SAYS(
        why(),
        "read the KV rows of others, which these formats do not allow: int8 kivi2 kivi4 kivi8;"
    );
}

TEST_F(Toy, WhatABlockDeclaresIsChecked)
{
    write(toy_arch("decai = 0.25\n"));
    EXPECT_SAYS(why(), "[block.toy] unknown key 'decai'; the nearest is 'decay'");
    write(toy_arch("decay = 2\n"));
    EXPECT_SAYS(why(), "[block.toy] decay: must be a number from 0 to 1");
    write(support::with(toy_arch(), "ffn = \"toy\"", "ffn = \"toi\""));
    EXPECT_SAYS(why(), "[block.toy] unknown ffn 'toi'; the nearest is 'toy'");
    write(support::with(toy_arch(), "ffn = \"toy\"", ""));
    EXPECT_SAYS(why(), "[block.toy] has no ffn");
    write(toy_arch());
    support::write_safetensors(folder_ + "/toy.safetensors", toy_tensors(false));
    EXPECT_SAYS(why(), "tensor toy.0.norms is [2, 3, 2, 2, 2], want [2, 2, 3, 2, 2]");
    blocks_ = nullptr;
    EXPECT_SAYS(why(), "[ffn.toy] kind 'toy_ffn' is not known; the nearest is 'none'");
    blocks_ = blocks;
    support::write_safetensors(folder_ + "/toy.safetensors", toy_tensors());
}

} // namespace
