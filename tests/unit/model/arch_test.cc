/* Architectures are data: what arch files may say, what they refuse, and what a checkpoint that does not fit is told. */
#include "tests/unit/model/support.h"

#include <regex>

namespace {

using support::Engine;
using support::Folder;
using support::golden;
using support::read_file;
using support::write_file;

#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << "said: " << (text)

std::string replaced(std::string text, const std::string &from, const std::string &to)
{
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/* A checkpoint folder that is a copy of a golden one. */
void copy_checkpoint(const Folder &folder, const char *model)
{
    std::filesystem::copy(golden(model), folder.path(),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder.path()))
        std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
}

void change_config(const Folder &folder, const std::string &from, const std::string &to)
{
    write_file(folder / "config.json", replaced(read_file(folder / "config.json"), from, to));
}

/* Changes the JSON header of model.safetensors; as long as before, or padded to it. */
void change_header(const Folder &folder, const std::string &from, const std::string &to)
{
    const std::string bytes = read_file(folder / "model.safetensors");
    uint64_t          length;
    memcpy(&length, bytes.data(), sizeof length);
    const std::string header = replaced(bytes.substr(8, length), from, to);
    const uint64_t    now = header.size();
    write_file(folder / "model.safetensors",
               std::string(reinterpret_cast<const char *>(&now), sizeof now) + header + bytes.substr(8 + length));
}

/* qwen3.toml under another name, with one change. */
void write_arch(const Folder &folder, const std::string &from = "", const std::string &to = "")
{
    std::string text = read_file("configs/arch/qwen3.toml");
    text = replaced(text, "name     = \"qwen3\"", "name     = \"acme\"");
    text = replaced(text, "hf = [\"qwen3\"]", "hf = [\"acme\"]");
    text = replaced(text, "gguf = [\"qwen3\"]", "gguf = [\"acme\"]");
    if (!from.empty()) text = replaced(text, from, to);
    std::filesystem::create_directories(folder / "archs");
    write_file(folder / "archs/acme.toml", text);
}

std::vector<float> last_logits(Engine *engine)
{
    support::Sequence          sequence(*engine);
    const std::vector<int32_t> tokens = support::some_tokens(20, 1, engine->n_vocab());
    weir_evaluation            evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(tokens.size());
    evaluation.decode_from = INT32_MAX;
    EXPECT_EQ(weir_evaluate(engine->runner(), sequence.get(), &evaluation, engine->error()), WEIR_OK) << engine->text();
    return evaluation.last != nullptr ? std::vector<float>(evaluation.last, evaluation.last + engine->n_vocab()) : std::vector<float>();
}

TEST(Arch, EveryShippedFileLoads)
{
    weir_arch_set *set = nullptr;
    weir_error     error = {};
    ASSERT_EQ(weir_arch_set_open(&set, nullptr, &error), WEIR_OK) << error.text;
    weir_arch_set_close(set);
    const struct {
        const char *model, *arch;
    } shipped[] = { { "tq", "qwen35" },
                    { "qwen3", "qwen3" },
                    { "qwen2", "qwen2" },
                    { "llama3", "llama" },
                    { "mistral", "mistral" },
                    { "tq/tq-f32.gguf", "qwen35" },
                    { "llama3/llama3-f32.gguf", "llama" },
                    { "qwen3-untied", "qwen3" } };
    Engine engine;
    for (const auto &s : shipped) {
        ASSERT_EQ(engine.open(golden(s.model)), WEIR_OK) << engine.text();
        EXPECT_STREQ(weir_model_arch(weir_engine_model(engine.get())), s.arch);
    }
}

/* Each shipped file also parses from a folder, where it stands before the embedded one of its name. */
TEST(Arch, FilesOfTheFolderAreTheEmbeddedOnes)
{
    weir_arch_set *set = nullptr;
    weir_error     error = {};
    ASSERT_EQ(weir_arch_set_open(&set, "configs/arch", &error), WEIR_OK) << error.text;
    weir_arch_set_close(set);
    for (const weir_embedded_file *file = weir_arch_files; file->name != nullptr; file++) {
        const std::string path = std::string("configs/arch/") + std::filesystem::path(file->name).filename().string();
        EXPECT_EQ(read_file(path), file->text) << path;
    }
}

TEST(Arch, AnotherOneNeedsNoC)
{
    const Folder folder;
    copy_checkpoint(folder, "qwen3");
    change_config(folder, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
    Engine engine, known;
    EXPECT_EQ(engine.open(folder.path()), WEIR_EUNSUPPORTED);
    EXPECT_SAYS(engine.text(), "architecture 'acme' is not known; known are ");
    EXPECT_SAYS(engine.text(), "qwen3");
    write_arch(folder);
    ASSERT_EQ(engine.open(folder.path(), { "model.arch_dir=" + (folder / "archs") }), WEIR_OK) << engine.text();
    EXPECT_STREQ(weir_model_arch(weir_engine_model(engine.get())), "acme");
    ASSERT_EQ(known.open(golden("qwen3")), WEIR_OK) << known.text();
    EXPECT_EQ(last_logits(&engine), last_logits(&known));
}

TEST(Arch, AFolderThatIsNotThereIsNamed)
{
    Engine engine;
    EXPECT_EQ(engine.plan(golden("qwen3"), { "model.arch_dir=/nowhere/archs" }), WEIR_ENOTFOUND);
    EXPECT_SAYS(engine.text(), "/nowhere/archs");
}

TEST(Arch, AllProblemsOfACheckpointAreInOneMessage)
{
    const Folder folder;
    copy_checkpoint(folder, "qwen3");
    change_header(folder, "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_mislaid");
    change_header(folder, "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_mislaid");
    const std::string header = read_file(folder / "model.safetensors").substr(8, 8192);
    std::smatch       found;
    ASSERT_TRUE(std::regex_search(header, found,
                                  std::regex("\"model\\.layers\\.1\\.self_attn\\.k_proj\\.weight\": ?\\{[^}]*\"shape\": ?\\[64, ?64\\]")));
    const std::string entry = found.str();
    change_header(folder, entry, std::regex_replace(entry, std::regex("\\[64, ?64\\]"), "[128,32]"));
    Engine engine;
    EXPECT_EQ(engine.plan(folder.path()), WEIR_EMISMATCH);
    EXPECT_SAYS(engine.text(), folder.path());
    EXPECT_SAYS(engine.text(), "layers.0.self_attn.q_proj.weight is missing");
    EXPECT_SAYS(engine.text(), "layers.1.mlp.up_proj.weight is missing");
    EXPECT_SAYS(engine.text(), "layers.1.self_attn.k_proj.weight is [128, 32], want [64, 64]");
}

TEST(Arch, UnusedTensorsAreListed)
{
    const Folder folder;
    copy_checkpoint(folder, "qwen3");
    Engine      engine;
    const char *names[2] = {};
    ASSERT_EQ(engine.open(golden("qwen3")), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_model_unused(weir_engine_model(engine.get()), names, 2), 0u);
    /* Without norms of q and k in its blocks, the architecture leaves four tensors over. */
    change_config(folder, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
    write_arch(folder, "qk_norm = true", "");
    ASSERT_EQ(engine.open(folder.path(), { "model.arch_dir=" + (folder / "archs") }), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_model_unused(weir_engine_model(engine.get()), names, 2), 4u);
    ASSERT_NE(names[0], nullptr);
    EXPECT_SAYS(names[0], "_norm.weight");
}

TEST(Arch, RefusedSettingsAreNamed)
{
    const Folder folder;
    copy_checkpoint(folder, "qwen3");
    const std::string config = read_file(folder / "config.json");
    Engine            engine;
    for (const char *setting : { "\"attention_bias\": true", "\"use_sliding_window\": true" }) {
        write_file(folder / "config.json", replaced(config, "\"hidden_act\"", std::string(setting) + ", \"hidden_act\""));
        EXPECT_EQ(engine.plan(folder.path()), WEIR_EUNSUPPORTED) << setting;
        EXPECT_SAYS(engine.text(), std::string(setting).substr(1, std::string(setting).find(':') - 2));
        EXPECT_SAYS(engine.text(), "qwen3");
    }
    write_file(folder / "config.json", replaced(config, "\"hidden_act\"", "\"attention_bias\": false, \"hidden_act\""));
    EXPECT_EQ(engine.plan(folder.path()), WEIR_OK) << engine.text();
}

struct Fault {
    const char *name, *from, *to, *says;
};

class ArchFault : public ::testing::TestWithParam<Fault> {};

TEST_P(ArchFault, IsNamed)
{
    const Folder folder;
    copy_checkpoint(folder, "qwen3");
    change_config(folder, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
    write_arch(folder, GetParam().from, GetParam().to);
    Engine            engine;
    const weir_status status = engine.plan(folder.path(), { "model.arch_dir=" + (folder / "archs") });
    EXPECT_TRUE(status == WEIR_ECONFIG || status == WEIR_EFORMAT || status == WEIR_EMISMATCH) << status;
    EXPECT_SAYS(engine.text(), GetParam().says);
    if (status == WEIR_ECONFIG) EXPECT_SAYS(engine.text(), "acme.toml");
}

const Fault faults[] = {
    { "Table", "[layers]", "[colours]\nred = 1\n\n[layers]", "unknown table [colours]" },
    { "MissingTable", "[ffn]\nkind = \"swiglu\"\n", "", "[ffn]" },
    { "Block", "pattern = [\"attn\"]", "pattern = [\"attention\"]", "'attention'" },
    { "EmptyPattern", "pattern = [\"attn\"]", "pattern = []", "pattern" },
    { "PatternOfNumbers", "pattern = [\"attn\"]", "pattern = [7]", "pattern" },
    { "Mixer", "mixer = \"attention\"", "mixer = \"mamba\"", "[block.attn] mixer" },
    { "NoMixer", "mixer = \"attention\"", "", "[block.attn] has no mixer" },
    { "Option", "qk_norm = true", "qk_nrom = true", "[block.attn] qk_nrom" },
    { "OptionValue", "qk_norm = true", "qk_norm = \"yes\"", "[block.attn] qk_norm" },
    { "Rope", "rope  = \"half_split\"", "rope  = \"thirds\"", "[block.attn] rope" },
    { "Ffn", "kind = \"swiglu\"", "kind = \"geglu\"", "[ffn] kind 'geglu'" },
    { "MixerAsFfn", "kind = \"swiglu\"", "kind = \"attention\"", "[ffn] kind 'attention'" },
    { "Transform", "hf = \"norm.weight\"", "hf = \"norm.weight\", hf_transform = \"square\"", "unknown transform 'square'" },
    { "Slot", "\"attn.out\" ", "\"attn.exit\" ", "\"attn.out\"" },
    { "Shape", "[shape]", "[shape]\nn_wheels = { hf = \"hidden_size\" }", "'n_wheels'" },
    { "NoShape", "n_heads    = { gguf = \"attention.head_count\", hf = \"num_attention_heads\" }", "",
      "[shape] has no n_heads, which attention needs" },
    { "NoFfnShape", "d_ffn ", "d_model ", "acme.toml" },
    { "NoContext", "context    = { gguf = \"context_length\", hf = \"max_position_embeddings\" }", "", "[shape] has no context" },
    { "Syntax", "[layers]", "[layers", "acme.toml" },
};
INSTANTIATE_TEST_SUITE_P(Files, ArchFault, ::testing::ValuesIn(faults), [](const auto &info) { return std::string(info.param.name); });

} // namespace
