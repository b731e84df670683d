/* Architectures are data: what arch files may say, what they refuse, and what a checkpoint that
 * does not fit is told. */
#include <regex>

#include "engine/model/arch_internal.h"
#include "tests/every_nth.h"
#include "tests/unit/model/arch_files.h"

namespace arch_files {
namespace {

TEST(Arch, EveryShippedFileLoads)
{
    weir_arch_set *set = nullptr;
    weir_error error = {};
    ASSERT_EQ(weir_arch_set_open(&set, nullptr, nullptr, &error), WEIR_OK) << error.text;
    EXPECT_GT(set->count, 40u);
    for (size_t i = 0; i < set->count; i++)
        EXPECT_EQ(weir_arch_complete(set, &set->archs[i], &error), WEIR_OK) << error.text;
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
            with(config, "\"hidden_act\"", std::string(setting) + ", \"hidden_act\"")
        );
        EXPECT_EQ(engine.plan(folder.path()), WEIR_EUNSUPPORTED) << setting;
        EXPECT_SAYS(
            engine.text(), std::string(setting).substr(1, std::string(setting).find(':') - 2)
        );
        EXPECT_SAYS(engine.text(), "qwen3");
    }
    write_file(
        folder / "config.json",
        with(config, "\"hidden_act\"", "\"attention_bias\": false, \"hidden_act\"")
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

/* Every parameter of qwen3 is one that the blocks need: `optional` and a name for the other
 * container alone must not leave it empty. */
TEST(Arch, WhatABlockNeedsIsNeverOptional)
{
    static const char *const containers[][2] = { { "hf", "qwen3-untied" },
                                                 { "gguf", "qwen3/qwen3-bf16.gguf" } };
    Engine engine;
    int n_parameters = 0;
    for (const auto &[container, model] : containers) {
        const Folder folder;
        const std::string shipped = read_file("configs/arch/qwen3.toml"),
                          tensors = shipped.substr(shipped.find("[tensor]"));
        const std::regex line("\"([a-z._]+)\" *= \\{ gguf = (\"[^\"]*\"|\\[[^\\]]*\\]), "
                              "hf = (\"[^\"]*\")(, fused = \\{[^}]*\\})?[^\n]*");
        std::filesystem::create_directories(folder / "archs");
        for (std::sregex_iterator entry(tensors.begin(), tensors.end(), line), end; entry != end;
             ++entry) {
            const std::string parameter = "\"" + entry->str(1) + "\"",
                              gguf = "gguf = " + entry->str(2), hf = "hf = " + entry->str(3),
                              fused = entry->str(4);
            const std::string nowhere = std::string(container) + " = \"nowhere.{i}\"";
            const std::string entries[] = {
                parameter + " = { " + nowhere + fused + ", optional = true }",
                parameter + " = { " + (std::string(container) == "hf" ? gguf : hf) + fused +
                    ", optional = true }",
                parameter + " = { " + (std::string(container) == "hf" ? gguf : hf) + fused + " }"
            };
            n_parameters++;
            for (const std::string &changed : entries) {
                write_file(folder / "archs/qwen3.toml", with(shipped, entry->str(), changed));
                EXPECT_EQ(
                    engine.plan(golden(model), { "model.arch_dir=" + (folder / "archs") }),
                    WEIR_EMISMATCH
                ) << changed;
                EXPECT_SAYS(engine.text(), parameter);
                EXPECT_SAYS(engine.text(), "qwen3.toml");
            }
        }
    }
    EXPECT_EQ(n_parameters, 2 * 14);
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
    const int step = weir_test::every_nth(4);
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
            for (size_t w = static_cast<size_t>(n_files % step); w < std::size(words); w += step)
                probe(
                    before + line.substr(0, static_cast<size_t>(found->position(1))) + words[w] +
                    line.substr(static_cast<size_t>(found->position(1) + found->length(1))) + after
                );
        }
    }
    printf("%d files, %d computed\n", n_files, n_computed);
    EXPECT_GT(n_computed, 0);
    EXPECT_LT(n_computed, n_files / 2);
}

TEST(Arch, AWrongLayerOfADraftHeadIsRefused)
{
    const std::string head = "[mtp]\nblock = \"attn\"\n", own = head + "hf_prefix = \"mtp.\"\n";
    for (const auto &[table, says] :
         { std::pair(head + "hf_layer = 0\n", "only names with hf_prefix have their own layer"),
           std::pair(own + "hf_layer = -1\n", "must be 0 or above"),
           std::pair(own + "hf_layer = 0.5\n", "must be 0 or above") }) {
        SCOPED_TRACE(table);
        const Folder folder;
        copy_checkpoint(folder, "qwen3");
        change_config(folder, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
        write_arch(folder, "[layers]", table + "\n[layers]");
        Engine engine;
        EXPECT_EQ(
            engine.plan(folder.path(), { "model.arch_dir=" + (folder / "archs") }), WEIR_ECONFIG
        );
        EXPECT_SAYS(engine.text(), std::string("[mtp] hf_layer: ") + says);
    }
}

TEST(Arch, AMaskOfTextsIsRefused)
{
    const Folder folder;
    Engine engine;
    const std::string text = read_file("configs/arch/qwen35.toml");
    std::filesystem::create_directories(folder / "archs");
    write_file(
        folder / "archs/qwen35.toml",
        with(text, "mask     = { ", "mask     = { hf = \"layer_types\", ")
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
    text = with(
        text, "gguf_minus = \"nextn_predict_layers\", hf = \"num_hidden_layers\"", "default = 3"
    );
    text = with(
        text,
        "types    = { hf = \"layer_types\", names = { linear_attention = \"gdn\", "
        "full_attention = \"attn\" } }\n",
        ""
    );
    text = with(
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

/* Every fourth layer has no RoPE, and a policy has one shape for all layers. */
TEST(ArchShapes, PoliciesNeedLayersThatAreAlike)
{
    Engine engine;
    EXPECT_EQ(
        engine.open(golden("../families/smollm3"), { "kv.policy.name=h2o", "kv.policy.budget=64" }),
        WEIR_ECONFIG
    );
    EXPECT_SAYS(engine.text(), "different widths, heads or rotation");
}

} // namespace
} // namespace arch_files
