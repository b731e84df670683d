/* Architectures are data: what arch files may say, what they refuse, and what a checkpoint that
 * does not fit is told. */
#include "tests/unit/model/support.h"

#include <regex>

namespace {

using support::Engine;
using support::Folder;
using support::golden;
using support::read_file;
using support::Settings;
using support::write_file;

#define EXPECT_SAYS(text, part)                                                                    \
    EXPECT_NE(std::string(text).find(part), std::string::npos) << "said: " << (text)

std::string replaced(std::string text, const std::string &from, const std::string &to)
{
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/* A checkpoint folder that is a copy of a golden one. */
void copy_checkpoint(const Folder &folder, const char *model)
{
    std::filesystem::copy(
        golden(model), folder.path(),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing
    );
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
    uint64_t length;
    memcpy(&length, bytes.data(), sizeof length);
    const std::string header = replaced(bytes.substr(8, length), from, to);
    const uint64_t now = header.size();
    write_file(
        folder / "model.safetensors",
        std::string(reinterpret_cast<const char *>(&now), sizeof now) + header +
            bytes.substr(8 + length)
    );
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
    support::Sequence sequence(*engine);
    const std::vector<int32_t> tokens = support::some_tokens(20, 1, engine->n_vocab());
    weir_evaluation evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(tokens.size());
    evaluation.decode_from = INT32_MAX;
    EXPECT_EQ(
        weir_evaluate(engine->runner(), sequence.get(), &evaluation, engine->error()), WEIR_OK
    ) << engine->text();
    return evaluation.last != nullptr
               ? std::vector<float>(evaluation.last, evaluation.last + engine->n_vocab())
               : std::vector<float>();
}

TEST(Arch, EveryShippedFileLoads)
{
    weir_arch_set *set = nullptr;
    weir_error error = {};
    ASSERT_EQ(weir_arch_set_open(&set, nullptr, nullptr, &error), WEIR_OK) << error.text;
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

/* Each shipped file also parses from a folder, where it stands before the embedded one of its
 * name. */
TEST(Arch, FilesOfTheFolderAreTheEmbeddedOnes)
{
    weir_arch_set *set = nullptr;
    weir_error error = {};
    ASSERT_EQ(weir_arch_set_open(&set, "configs/arch", nullptr, &error), WEIR_OK) << error.text;
    weir_arch_set_close(set);
    for (const weir_embedded_file *file = weir_arch_files; file->name != nullptr; file++) {
        const std::string path =
            std::string("configs/arch/") + std::filesystem::path(file->name).filename().string();
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
    ASSERT_EQ(engine.open(folder.path(), { "model.arch_dir=" + (folder / "archs") }), WEIR_OK)
        << engine.text();
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
    change_header(
        folder, "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_mislaid"
    );
    change_header(folder, "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_mislaid");
    const std::string header = read_file(folder / "model.safetensors").substr(8, 8192);
    std::smatch found;
    ASSERT_TRUE(std::regex_search(
        header, found,
        std::regex("\"model\\.layers\\.1\\.self_attn\\.k_proj\\.weight\":"
                   " ?\\{[^}]*\"shape\": ?\\[64, ?64\\]")
    ));
    const std::string entry = found.str();
    change_header(
        folder, entry, std::regex_replace(entry, std::regex("\\[64, ?64\\]"), "[128,32]")
    );
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
    Engine engine;
    const char *names[2] = {};
    ASSERT_EQ(engine.open(golden("qwen3")), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_model_unused(weir_engine_model(engine.get()), names, 2), 0u);
    /* Without norms of q and k in its blocks, the architecture leaves four tensors over. */
    change_config(folder, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
    write_arch(folder, "qk_norm = true", "");
    ASSERT_EQ(engine.open(folder.path(), { "model.arch_dir=" + (folder / "archs") }), WEIR_OK)
        << engine.text();
    EXPECT_EQ(weir_model_unused(weir_engine_model(engine.get()), names, 2), 4u);
    ASSERT_NE(names[0], nullptr);
    EXPECT_SAYS(names[0], "_norm.weight");
}

TEST(Arch, RefusedSettingsAreNamed)
{
    const Folder folder;
    copy_checkpoint(folder, "qwen3");
    const std::string config = read_file(folder / "config.json");
    Engine engine;
    for (const char *setting : { "\"attention_bias\": true", "\"use_sliding_window\": true" }) {
        write_file(
            folder / "config.json",
            replaced(config, "\"hidden_act\"", std::string(setting) + ", \"hidden_act\"")
        );
        EXPECT_EQ(engine.plan(folder.path()), WEIR_EUNSUPPORTED) << setting;
        EXPECT_SAYS(
            engine.text(), std::string(setting).substr(1, std::string(setting).find(':') - 2)
        );
        EXPECT_SAYS(engine.text(), "qwen3");
    }
    write_file(
        folder / "config.json",
        replaced(config, "\"hidden_act\"", "\"attention_bias\": false, \"hidden_act\"")
    );
    EXPECT_EQ(engine.plan(folder.path()), WEIR_OK) << engine.text();
}

/* An activation that is not computed would answer fluently and wrongly; "swish" is "silu". */
TEST(Arch, AnotherActivationIsRefused)
{
    Engine engine;
    for (const char *model : { "tq", "qwen3", "qwen2", "llama3", "mistral" }) {
        const Folder folder;
        copy_checkpoint(folder, model);
        change_config(folder, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"");
        EXPECT_EQ(engine.plan(folder.path()), WEIR_EUNSUPPORTED) << model;
        EXPECT_SAYS(engine.text(), "'hidden_act' is \"gelu\"");
        EXPECT_SAYS(engine.text(), "computes only \"silu\" or \"swish\"");
        EXPECT_SAYS(engine.text(), "SwiGLU");
        change_config(folder, "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"swish\"");
        EXPECT_EQ(engine.plan(folder.path()), WEIR_OK) << engine.text();
        change_config(folder, "\"hidden_act\": \"swish\"", "\"hidden_act\": [\"silu\"]");
        EXPECT_EQ(engine.plan(folder.path()), WEIR_EUNSUPPORTED) << model;
    }
}

/* Every slot of qwen3 is one that the blocks need: `optional` and a name for the other container
 * alone must not leave it empty. */
TEST(Arch, WhatABlockNeedsIsNeverOptional)
{
    static const char *const containers[][2] = { { "hf", "qwen3-untied" },
                                                 { "gguf", "qwen3/qwen3-bf16.gguf" } };
    Engine engine;
    int n_slots = 0;
    for (const auto &[container, model] : containers) {
        const Folder folder;
        const std::string shipped = read_file("configs/arch/qwen3.toml"),
                          tensors = shipped.substr(shipped.find("[tensor]"));
        const std::regex line("\"([a-z._]+)\" *= \\{ gguf = (\"[^\"]*\"), hf = (\"[^\"]*\")[^\n]*");
        std::filesystem::create_directories(folder / "archs");
        for (std::sregex_iterator entry(tensors.begin(), tensors.end(), line), end; entry != end;
             ++entry) {
            const std::string slot = "\"" + entry->str(1) + "\"", gguf = "gguf = " + entry->str(2),
                              hf = "hf = " + entry->str(3);
            const std::string nowhere = std::string(container) + " = \"nowhere.{i}\"";
            const std::string entries[] = {
                slot + " = { " + nowhere + ", optional = true }",
                slot + " = { " + (std::string(container) == "hf" ? gguf : hf) +
                    ", optional = true }",
                slot + " = { " + (std::string(container) == "hf" ? gguf : hf) + " }"
            };
            n_slots++;
            for (const std::string &changed : entries) {
                write_file(folder / "archs/qwen3.toml", replaced(shipped, entry->str(), changed));
                EXPECT_EQ(
                    engine.plan(golden(model), { "model.arch_dir=" + (folder / "archs") }),
                    WEIR_EMISMATCH
                ) << changed;
                EXPECT_SAYS(engine.text(), slot);
                EXPECT_SAYS(engine.text(), "qwen3.toml");
            }
        }
    }
    EXPECT_EQ(n_slots, 2 * 14);
}

TEST(Arch, OrTakesTheOtherSlotsTensor)
{
    const Folder folder;
    copy_checkpoint(folder, "qwen3");
    change_config(folder, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
    write_arch(
        folder, "hf = \"lm_head.weight\", or = \"embed\"", "optional = true, or = \"embed\""
    );
    Engine engine, known;
    ASSERT_EQ(engine.open(folder.path(), { "model.arch_dir=" + (folder / "archs") }), WEIR_OK)
        << engine.text();
    ASSERT_EQ(known.open(golden("qwen3")), WEIR_OK) << known.text();
    EXPECT_EQ(last_logits(&engine), last_logits(&known));
}

/* Every line of a file left out, doubled, or with one of its words changed: an error with a text,
 * or an engine that computes. */
TEST(Arch, NoFileKillsTheEngine)
{
    static const char *const words[] = { "\"\"",
                                         "0",
                                         "-1",
                                         "9223372036854775807",
                                         "nan",
                                         "true",
                                         "[]",
                                         "{}",
                                         "[[]]",
                                         "{ hf = 1 }",
                                         "\"attn.q\"",
                                         "\"layers.{i}.mlp.up_proj.weight\"",
                                         "\"gated_delta_net\"",
                                         "\"swiglu\"",
                                         "\"pairs\"" };
    const Folder folder;
    const std::string shipped = read_file("configs/arch/qwen35.toml");
    Engine engine;
    int n_files = 0, n_computed = 0;
    std::filesystem::create_directories(folder / "archs");
    const auto probe = [&](const std::string &text) {
        write_file(folder / "archs/qwen35.toml", text);
        n_files++;
        const Settings settings = { "model.arch_dir=" + (folder / "archs"),
                                    "memory.host=64MiB",
                                    "kernels.threads=1",
                                    "batch.max_sequences=1",
                                    "batch.chunk=64",
                                    "model.context=256" };
        if (engine.open(golden("tq"), settings) != WEIR_OK) {
            EXPECT_NE(engine.text()[0], '\0') << text;
            return;
        }
        n_computed++;
        (void)last_logits(&engine);
    };
    const std::regex word("= *(\"[^\"]*\"|[0-9][0-9.e-]*|true|false|\\[[^\\]]*\\]|\\{[^}]*\\})");
    for (size_t at = 0, end; at < shipped.size(); at = end + 1) {
        end = std::min(shipped.find('\n', at), shipped.size() - 1);
        const std::string line = shipped.substr(at, end - at), before = shipped.substr(0, at),
                          after = shipped.substr(end);
        if (line.empty() || line[0] == '#') continue;
        probe(before + after);
        probe(before + line + "\n" + line + after);
        for (std::sregex_iterator found(line.begin(), line.end(), word), none; found != none;
             ++found) {
            for (const char *other : words)
                probe(
                    before + line.substr(0, static_cast<size_t>(found->position(1))) + other +
                    line.substr(static_cast<size_t>(found->position(1) + found->length(1))) + after
                );
        }
    }
    printf("%d files, %d computed\n", n_files, n_computed);
    EXPECT_GT(n_computed, 0);
    EXPECT_LT(n_computed, n_files / 2);
}

TEST(Arch, AMaskOfTextsIsRefused)
{
    const Folder folder;
    Engine engine;
    const std::string text = read_file("configs/arch/qwen35.toml");
    std::filesystem::create_directories(folder / "archs");
    write_file(
        folder / "archs/qwen35.toml",
        replaced(text, "mask     = { ", "mask     = { hf = \"layer_types\", ")
    );
    EXPECT_EQ(
        engine.plan(golden("tq"), { "model.arch_dir=" + (folder / "archs") }), WEIR_EUNSUPPORTED
    );
    EXPECT_SAYS(engine.text(), "layer_types gives layer 0 the type 'linear_attention'");
}

/* A model without a layer of attention keeps no KV. */
TEST(Arch, LayersWithoutKv)
{
    const Folder folder;
    Engine engine;
    std::string text = read_file("configs/arch/qwen35.toml");
    text = replaced(
        text, "gguf_minus = \"nextn_predict_layers\", hf = \"num_hidden_layers\"", "default = 3"
    );
    text = replaced(
        text,
        "types    = { hf = \"layer_types\", names = { linear_attention = \"gdn\", "
        "full_attention = \"attn\" } }\n",
        ""
    );
    text = replaced(
        text, "interval = { gguf = \"full_attention_interval\", hf = \"full_attention_interval\",",
        "interval = { hf = \"none\","
    );
    std::filesystem::create_directories(folder / "archs");
    write_file(folder / "archs/qwen35.toml", text);
    ASSERT_EQ(
        engine.open(golden("tq"), { "model.arch_dir=" + (folder / "archs"), "memory.host=64MiB" }),
        WEIR_OK
    ) << engine.text();
    EXPECT_EQ(weir_model_kv_layers(weir_engine_model(engine.get())), 0);
    EXPECT_FALSE(last_logits(&engine).empty());
}

/* ---- bases ----------------------------------------------------------------------------------- */
class ArchBase : public ::testing::Test {
  protected:
    ArchBase() { std::filesystem::create_directories(folder_ / "archs"); }
    void write(const std::string &name, const std::string &text)
    {
        write_file(folder_ / ("archs/" + name + ".toml"), text);
    }
    /* "": the checkpoint can be planned. */
    std::string why(const Settings &more = {})
    {
        Settings settings = more;
        settings.push_back("model.arch_dir=" + (folder_ / "archs"));
        return engine_.plan(golden("qwen3"), settings) == WEIR_OK ? "" : engine_.text();
    }
    Folder folder_;
    Engine engine_;
};

TEST_F(ArchBase, AFileSaysWhatDiffers)
{
    write("acme", "[arch]\nname = \"acme\"\nbase = \"qwen3\"\n");
    write(
        "b", "[arch]\nname = \"b\"\nbase = \"a\"\n[block.attn]\nmixer = \"attention\"\nrope = "
             "\"half_split\"\nqk_norm = true\n"
    );
    write(
        "a", "[arch]\nname = \"a\"\nbase = \"acme\"\n[block.attn]\nmixer = \"attention\"\nrope = "
             "\"half_split\"\n"
    );
    Engine known;
    ASSERT_EQ(known.open(golden("qwen3")), WEIR_OK) << known.text();
    EXPECT_STREQ(weir_model_arch(weir_engine_model(known.get())), "qwen3");
    for (const char *const arch : { "acme", "b", "a" }) {
        const Settings settings = { "model.arch_dir=" + (folder_ / "archs"),
                                    std::string("model.arch=") + arch };
        ASSERT_EQ(engine_.open(golden("qwen3"), settings), WEIR_OK) << engine_.text();
        EXPECT_STREQ(weir_model_arch(weir_engine_model(engine_.get())), arch);
        EXPECT_EQ(last_logits(&engine_) == last_logits(&known), arch != std::string("a")) << arch;
    }
    ASSERT_EQ(engine_.open(golden("qwen3"), { "model.arch_dir=" + (folder_ / "archs") }), WEIR_OK)
        << engine_.text();
    EXPECT_STREQ(weir_model_arch(weir_engine_model(engine_.get())), "qwen3")
        << "a base's match is the base's";
    write("acme", "[arch]\nname = \"acme\"\nbase = \"qwen3\"\nmatch = { hf = [\"acme\"] }\n");
    copy_checkpoint(folder_, "qwen3");
    change_config(folder_, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
    ASSERT_EQ(engine_.open(folder_.path(), { "model.arch_dir=" + (folder_ / "archs") }), WEIR_OK)
        << engine_.text();
    EXPECT_STREQ(weir_model_arch(weir_engine_model(engine_.get())), "acme");
}

TEST_F(ArchBase, WhatABaseRefusesIsRefused)
{
    write(
        "acme", "[arch]\nname = \"acme\"\nbase = \"qwen3\"\n[[refuse]]\nhf = "
                "\"model_type\"\nunless = \"other\"\nbecause = \"it is a test\"\n"
    );
    EXPECT_SAYS(why({ "model.arch=acme" }), "it is a test");
    copy_checkpoint(folder_, "qwen3");
    change_config(folder_, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"");
    change_config(folder_, "\"model_type\": \"qwen3\"", "\"model_type\": \"other\"");
    EXPECT_EQ(
        engine_.plan(
            folder_.path(), { "model.arch_dir=" + (folder_ / "archs"), "model.arch=acme" }
        ),
        WEIR_EUNSUPPORTED
    );
    EXPECT_SAYS(engine_.text(), "SwiGLU");
}

TEST_F(ArchBase, FaultsAreNamedWhereTheyStand)
{
    const std::string head = "[arch]\nname = \"acme\"\n";
    write("acme", head + "base = \"qwen5\"\n");
    EXPECT_SAYS(why(), "acme.toml:3: [arch] base = \"qwen5\": not known; known are ");
    EXPECT_SAYS(why(), "qwen35");
    write("acme", head + "base = 7\n");
    EXPECT_SAYS(why(), "acme.toml:3: [arch] base: must be a text");
    write("acme", head);
    EXPECT_SAYS(why(), "acme.toml:1: [arch] match is missing");
    write("acme", "[block.attn]\nmixer = \"attention\"\n");
    EXPECT_SAYS(why(), "acme.toml: table [arch] is missing");
    write("acme", head + "base = \"qwen3\"\n[block.attn]\nmixer = \"attention\"\nqk_nrom = true\n");
    EXPECT_SAYS(why(), "acme.toml:6: [block.attn] unknown key 'qk_nrom'; the nearest is 'qk_norm'");
    write("acme", head + "base = \"qwen3\"\n[layers]\npattern = [\"gdn\"]\n");
    EXPECT_SAYS(why(), "acme.toml:5: [layers] unknown block 'gdn'; the nearest is 'attn'");
    write("acme", head + "base = \"qwen3\"\n[colours]\nred = 1\n");
    EXPECT_SAYS(why(), "acme.toml: unknown table [colours]");
    write("acme", head + "base = \"qwen3\"\n[ffn]\nkind = 7\n");
    EXPECT_SAYS(why(), "acme.toml:5: [ffn] kind: must be a text");
    /* A base that is broken itself is what is wrong. */
    write("acme", head + "base = \"broken\"\n");
    write(
        "broken",
        replaced(
            replaced(
                read_file("configs/arch/qwen3.toml"), "name     = \"qwen3\"", "name = \"broken\""
            ),
            "qk_norm = true", "qk_nrom = true"
        )
    );
    EXPECT_SAYS(why(), "broken.toml:");
    EXPECT_SAYS(why(), "unknown key 'qk_nrom'");
}

TEST_F(ArchBase, CirclesAndTowersAreRefused)
{
    write("acme", "[arch]\nname = \"acme\"\nbase = \"acme\"\n");
    EXPECT_SAYS(why(), "in a cycle");
    write("acme", "[arch]\nname = \"acme\"\nbase = \"other\"\n");
    write("other", "[arch]\nname = \"other\"\nbase = \"acme\"\n");
    EXPECT_SAYS(why(), "in a cycle");
    std::filesystem::remove(folder_ / "archs/acme.toml");
    std::filesystem::remove(folder_ / "archs/other.toml");
    /* Read from the top, and from the foot: the same. */
    for (const bool is_up : { false, true }) {
        std::string below = "qwen3";
        for (int i = 0; i < 5; i++) {
            const std::string name =
                std::string("tower") + static_cast<char>(is_up ? 'a' + i : 'z' - i);
            write(name, "[arch]\nname = \"" + name + "\"\nbase = \"" + below + "\"\n");
            if (i == 3) EXPECT_EQ(why({ "model.arch=" + name }), "");
            below = name;
        }
        EXPECT_SAYS(why(), "more than 4 bases in a chain");
        for (const auto &file : std::filesystem::directory_iterator(folder_ / "archs"))
            std::filesystem::remove(file.path());
    }
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
    Engine engine;
    const weir_status status =
        engine.plan(folder.path(), { "model.arch_dir=" + (folder / "archs") });
    EXPECT_TRUE(status == WEIR_ECONFIG || status == WEIR_EFORMAT || status == WEIR_EMISMATCH)
        << status;
    EXPECT_SAYS(engine.text(), GetParam().says);
    if (status == WEIR_ECONFIG) EXPECT_SAYS(engine.text(), "acme.toml");
}

const Fault faults[] = {
    { "Table", "[layers]", "[colours]\nred = 1\n\n[layers]", "unknown table [colours]" },
    { "MissingTable", "[ffn]\nkind = \"swiglu\"\n", "", "[ffn]" },
    { "Block", "pattern = [\"attn\"]", "pattern = [\"attention\"]",
      "unknown block 'attention'; the nearest is 'attn'" },
    { "EmptyPattern", "pattern = [\"attn\"]", "pattern = []", "pattern" },
    { "PatternOfNumbers", "pattern = [\"attn\"]", "pattern = [7]", "pattern" },
    { "Mixer", "mixer = \"attention\"", "mixer = \"mamba\"", "[block.attn] mixer" },
    { "NoMixer", "mixer = \"attention\"", "", "[block.attn] has no mixer" },
    { "Option", "qk_norm = true", "qk_nrom = true", "[block.attn] unknown key 'qk_nrom'" },
    { "OptionValue", "qk_norm = true", "qk_norm = \"yes\"", "[block.attn] qk_norm" },
    { "Rope", "rope  = \"half_split\"", "rope  = \"thirds\"", "[block.attn] rope" },
    { "Ffn", "kind = \"swiglu\"", "kind = \"geglu\"", "[ffn] kind 'geglu'" },
    { "MixerAsFfn", "kind = \"swiglu\"", "kind = \"attention\"", "[ffn] kind 'attention'" },
    { "Transform", "hf = \"norm.weight\"", "hf = \"norm.weight\", hf_transform = \"square\"",
      "unknown transform 'square'" },
    { "Slot", "\"attn.out\" ", "\"attn.exit\" ",
      "unknown slot 'attn.exit'; the nearest is 'attn.out'" },
    { "NoSlot", "\"attn.out\" ", "\"attn.q_bias\" ", "no entry \"attn.out\"" },
    { "MisspeltTable", "[layers]", "[layer]", "unknown table [layer]; the nearest is [layers]" },
    { "ArchKey",
      "prefixes = ", "prefix = ", "[arch] unknown key 'prefix'; the nearest is 'prefixes'" },
    { "ArchName", "name     = \"acme\"", "name = 7", "[arch] name: must be a text" },
    { "NoArchName", "name     = \"acme\"", "", "[arch] name is missing" },
    { "Match", "match    = { gguf = [\"acme\"], hf = [\"acme\"] }",
      "match = { gguf = \"acme\", hf = [\"acme\"] }", "[arch] match: gguf must be a list" },
    { "MatchContainer", "match    = { gguf = [\"acme\"],", "match = { ggml = [\"acme\"],",
      "{ gguf = .., hf = .. }" },
    { "Prefixes", "prefixes = [\"model.\"]", "prefixes = [1]", "[arch] prefixes" },
    { "ShapeKey", "hf = \"hidden_size\"", "hff = \"hidden_size\"",
      "unknown key 'hff'; the nearest is 'hf'" },
    { "ShapeType", "d_model    = { gguf = \"embedding_length\", hf = \"hidden_size\" }",
      "d_model = 64", "[shape] [d_model] must be a table" },
    { "ShapeKeyType", "hf = \"hidden_size\"", "hf = 64", "hf: must be a text or a list" },
    { "ShapeNearest",
      "head_dim   = ", "head_dims = ", "unknown shape 'head_dims'; the nearest is 'head_dim'" },
    { "ShapeLater", "hf = \"num_key_value_heads\", default = \"n_heads\"",
      "hf = \"kv\", default = \"head_dim\"",
      "n_kv_heads refers to head_dim, which must be above it" },
    { "ShapeOfNothing", "default = \"d_model / n_heads\"", "default = \"d_model / wheels\"",
      "[shape] has no wheels, which head_dim needs" },
    { "ShapeTimes", "hf_times = \"head_dim\"", "hf_times = \"d_ffn\"",
      "rotary_dim refers to d_ffn, which must be above it" },
    { "ZeroHeads", "n_heads    = { gguf = \"attention.head_count\", hf = \"num_attention_heads\" }",
      "n_heads = { default = 0 }", "n_heads is 0" },
    { "HugeHeads", "n_heads    = { gguf = \"attention.head_count\", hf = \"num_attention_heads\" }",
      "n_heads = { default = 9223372036854775807 }", "n_heads is 9.2" },
    { "NanEps", "default = 1e-6", "default = nan", "default: must be a number" },
    { "InfiniteTheta", "hf = [\"rope_parameters.rope_theta\", \"rope_theta\"], default = 1000000.0",
      "default = inf", "default: must be a number" },
    { "HeadsDoNotDivide",
      "n_kv_heads = { gguf = \"attention.head_count_kv\", hf = \"num_key_value_heads\", default = "
      "\"n_heads\" }",
      "n_kv_heads = { default = 3 }", "do not divide" },
    { "ManyLayers", "n_layers   = { gguf = \"block_count\", hf = \"num_hidden_layers\" }",
      "n_layers = { default = 1024 }", "is missing" },
    { "RopeKey", "scaling = { gguf", "scale = { gguf",
      "[rope] unknown key 'scale'; the nearest is 'scaling'" },
    { "RopeType", "scaling = { gguf = \"rope.scaling\",", "scaling = { gguf = 4,",
      "[rope] scaling" },
    { "LayersKey", "pattern = [", "patern = [",
      "[layers] unknown key 'patern'; the nearest is 'pattern'" },
    { "PatternAsText", "pattern = [\"attn\"]", "pattern = \"attn\"", "[layers] pattern" },
    { "MaskBlock", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nmask = { hf = \"m\", set = \"attn\", unset = \"gdn\" }",
      "unknown block 'gdn'; the nearest is 'attn'" },
    { "MaskWords", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nmask = { hf = \"m\", set = \"attn\" }", "unset is missing" },
    { "TypesNames", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\ntypes = { hf = \"t\", names = { a = 1 } }",
      "names: must be a table of texts" },
    { "IntervalWords", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\ninterval = { hf = \"t\", last = \"attn\" }", "others is missing" },
    { "BlockNearest", "qk_norm = true", "qk_nrom = true",
      "unknown key 'qk_nrom'; the nearest is 'qk_norm'" },
    { "BlockAsValue", "[block.attn]\nmixer", "[block]\nattn = 4\n[block.other]\nmixer",
      "[block.attn] must be a table" },
    { "OptionContainer", "qk_norm = true", "qk_norm = { gguf = true, safetensors = true }",
      "{ gguf = .., hf = .. }" },
    { "FfnAsMixer", "mixer = \"attention\"", "mixer = \"swiglu\"", "[block.attn] mixer" },
    { "WindowWithoutShape", "qk_norm = true", "qk_norm = true\nwindow = true",
      "[shape] has no window" },
    { "FfnKey", "kind = \"swiglu\"", "kind = \"swiglu\"\nkinds = 1",
      "[ffn] unknown key 'kinds'; the nearest is 'kind'" },
    { "TensorKey", "or = \"embed\"", "oder = \"embed\"", "unknown key 'oder'" },
    { "TensorType", "\"norm\"             = {", "\"rope.factors\" = 4\n\"norm\" = {",
      "[\"rope.factors\"] must be a table" },
    { "TensorNames", "hf = \"norm.weight\"", "hf = [\"norm.weight\", 1]",
      "hf: must be a text or a list" },
    { "OptionalType", "or = \"embed\"", "or = \"embed\", optional = 1",
      "optional: must be true or false" },
    { "OrItself", "or = \"embed\"", "or = \"output\"", "is the slot itself" },
    { "OrNothing", "or = \"embed\"", "or = \"embedding\"",
      "unknown slot after or 'embedding'; the nearest is 'embed'" },
    { "OrAbsent", "or = \"embed\"", "or = \"rope.factors\"", "has no entry in [tensor]" },
    { "OrOfALayer", "or = \"embed\"", "or = \"attn.q\"", "belongs to layers" },
    { "OrOfOr", "\"norm\"             = {", "\"norm\" = { or = \"output\", ",
      "has an `or` itself" },
    { "RefuseKey", "unless  = false", "unles = false",
      "[refuse] unknown key 'unles'; the nearest is 'unless'" },
    { "RefuseNothing", "hf      = \"hidden_act\"\n", "", "[refuse] names no setting" },
    { "RefuseWithout", "unless  = [\"silu\", \"swish\"] #", "#", "[refuse] unless is missing" },
    { "RefuseEmpty", "unless  = [\"silu\", \"swish\"]", "unless = []", "unless: must be" },
    { "RefuseAsTable", "[[refuse]]\nhf      = \"hidden_act\"", "[refuse]\nhf = \"hidden_act\"",
      "acme.toml" },
    { "Shape", "[shape]", "[shape]\nn_wheels = { hf = \"hidden_size\" }", "'n_wheels'" },
    { "NoShape", "rope_theta = {", "window = {",
      "[shape] has no rope_theta, which attention needs" },
    { "NoShapeForAnother",
      "n_heads    = { gguf = \"attention.head_count\", hf = \"num_attention_heads\" }", "",
      "[shape] has no n_heads, which n_kv_heads needs" },
    { "NoFfnShape", "d_ffn ", "d_model ", "acme.toml" },
    { "NoContext", "context    = { gguf = \"context_length\", hf = \"max_position_embeddings\" }",
      "", "[shape] has no context" },
    { "Syntax", "[layers]", "[layers", "acme.toml" },
};
INSTANTIATE_TEST_SUITE_P(Files, ArchFault, ::testing::ValuesIn(faults), [](const auto &info) {
    return std::string(info.param.name);
});

} // namespace
