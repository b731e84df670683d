/* Models of Mamba-2 and attention: limits of time steps, the dense Granite hybrid, layers with one
 * block, and what is said of files that do not fit. */
#include "engine/model/model.h"
#include "tests/unit/model/arch_files.h"

namespace {

using namespace arch_files;

const Settings exact = { "kernels.activations=f32" };

std::vector<float> logits_with_limits(const std::string &limits)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, "../families/nemotron-h");
    change_config(folder, "0.0,\n  Infinity", limits);
    EXPECT_EQ(engine.open(folder.path(), exact), WEIR_OK) << engine.text();
    return last_logits(&engine);
}

TEST(Hybrid, StepsStayWithinTheirLimits)
{
    const std::vector<float> open = logits_with_limits("0.0,\n  Infinity");
    ASSERT_FALSE(open.empty());
    EXPECT_EQ(logits_with_limits("0, 1e300"), open);
    EXPECT_EQ(logits_with_limits("0, 1000"), open);
    EXPECT_NE(logits_with_limits("0, 0.01"), open);
    EXPECT_NE(logits_with_limits("100, Infinity"), open);
}

/* Fills the data of a tensor with zeros; `name` ends its name. */
void clear_tensors(const Folder &folder, const std::string &name)
{
    std::string bytes = read_file(folder / "model.safetensors");
    uint64_t length;
    memcpy(&length, bytes.data(), sizeof length);
    const std::string header = bytes.substr(8, length);
    int n = 0;
    for (size_t at = header.find(name); at != std::string::npos; at = header.find(name, at + 1)) {
        const size_t offsets = header.find("data_offsets", at), open = header.find('[', offsets);
        unsigned long first, end;
        ASSERT_EQ(sscanf(header.c_str() + open, "[%lu,%lu]", &first, &end), 2);
        std::fill(
            bytes.begin() + static_cast<ptrdiff_t>(8 + length + first),
            bytes.begin() + static_cast<ptrdiff_t>(8 + length + end), '\0'
        );
        n++;
    }
    ASSERT_GT(n, 0) << name;
    write_file(folder / "model.safetensors", bytes);
}

/* Without experts the shared one is the feed-forward block: the same as experts that give zeros. */
TEST(Hybrid, AGraniteWithoutExpertsIsDense)
{
    const Folder folder;
    Engine experts, dense;
    copy_checkpoint(folder, "../families/granite-hybrid");
    clear_tensors(folder, "block_sparse_moe.output_linear.weight");
    ASSERT_EQ(experts.open(folder.path(), exact), WEIR_OK) << experts.text();
    EXPECT_STREQ(weir_model_arch(weir_engine_model(experts.get())), "granitehybridmoe");
    const std::vector<float> want = last_logits(&experts);
    change_config(folder, "\"num_local_experts\": 8", "\"num_local_experts\": 0");
    ASSERT_EQ(dense.open(folder.path(), exact), WEIR_OK) << dense.text();
    EXPECT_STREQ(weir_model_arch(weir_engine_model(dense.get())), "granitehybrid");
    const std::vector<float> got = last_logits(&dense);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(got[i], want[i], 1e-6f) << i;
}

TEST(Hybrid, LayersHaveOneBlock)
{
    Engine engine;
    ASSERT_EQ(engine.open(golden("../families/nemotron-h"), exact), WEIR_OK) << engine.text();
    const weir_model *const model = weir_engine_model(engine.get());
    const char *const mixers[] = { "mamba2", "none", "mamba2", "attention", "none" };
    for (int i = 0; i < 5; i++) {
        EXPECT_STREQ(weir_model_layer_mixer(model, i)->name, mixers[i]);
        EXPECT_EQ(weir_model_layer_memory(model, i).has_state, i == 0 || i == 2);
        EXPECT_EQ(weir_model_layer_memory(model, i).kv_index, i == 3 ? 0 : -1);
    }
    EXPECT_EQ(weir_model_kv_layers(model), 1);
}

/* An arch file with one change, for a GGUF file. */
void expect_refused(
    const char *arch, const char *from, const char *to, const char *model, weir_status status,
    const char *says
)
{
    const Folder folder;
    Engine engine;
    const std::string file = std::string(arch) + ".toml";
    std::filesystem::create_directories(folder / "archs");
    write_file(folder / ("archs/" + file), with(read_file("configs/arch/" + file), from, to));
    EXPECT_EQ(engine.plan(golden(model), { "model.arch_dir=" + (folder / "archs") }), status)
        << engine.text();
    EXPECT_SAYS(engine.text(), says);
}

TEST(Hybrid, WhatDoesNotFitIsSaid)
{
    const char *const gguf = "../families/nemotron-h/nemotron-h-f16.gguf";
    expect_refused(
        "nemotron_h", "gguf = \"feed_forward_length\", set", "gguf = \"widths\", set", gguf,
        WEIR_EFORMAT, "nemotron_h.widths is missing, which architecture nemotron_h needs"
    );
    expect_refused(
        "nemotron_h", "gguf = \"feed_forward_length\", set", "gguf = \"block_count\", set", gguf,
        WEIR_EFORMAT, "nemotron_h.block_count is not a list"
    );
    expect_refused(
        "nemotron_h_moe", "activation = \"relu2\"", "activation = \"relu2\"\nlimit = 7.0",
        "../families/nemotron-h-moe/nemotron-h-moe-f16.gguf", WEIR_ECONFIG, "limit is one of SwiGLU"
    );
}

} // namespace
