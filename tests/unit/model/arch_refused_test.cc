/* Arch files on top of others, and what is refused in a file: each fault is named. */
#include "tests/unit/model/arch_files.h"

namespace arch_files {
namespace {

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

TEST_F(ArchBase, AFileThatBreaksEmbeddedOnesIsRefused)
{
    const std::string text = read_file("configs/arch/llama.toml");
    write("llama", with(with(text, "[\"attn\"]", "[\"soft\"]"), "[block.attn]", "[block.soft]"));
    EXPECT_SAYS(why(), "granite4.toml");
    EXPECT_SAYS(why(), "block 'attn'");
}

/* Refusals of bases add up, so a base of a family with experts must not refuse them. */
TEST_F(ArchBase, ExpertsAreNotRefusedByABase)
{
    const std::string family = "tests/golden/families/mixtral/mixtral-f16.gguf";
    for (const std::string base : { "granitemoe", "granitemoeshared" }) {
        write("acme", "[arch]\nname = \"acme\"\nbase = \"" + base + "\"\n");
        const weir_status status =
            engine_.plan(family, { "model.arch_dir=" + (folder_ / "archs"), "model.arch=acme" });
        if (status != WEIR_OK) EXPECT_NE(status, WEIR_EUNSUPPORTED) << engine_.text();
        EXPECT_EQ(std::string(engine_.text()).find("mixture"), std::string::npos) << engine_.text();
    }
}

/* The golden has 4 heads and 2 layers. */
TEST_F(ArchBase, AConditionChoosesAmongThoseOfOneName)
{
    const auto chosen = [&](const std::string &when, const char *model = "qwen3",
                            const std::string &match = "{ gguf = [\"qwen3\"], hf = [\"qwen3\"] }") {
        write(
            "acme",
            "[arch]\nname = \"acme\"\nbase = \"qwen3\"\nmatch = " + match + "\n" + when + "\n"
        );
        return engine_.open(golden(model), { "model.arch_dir=" + (folder_ / "archs") }) == WEIR_OK
                   ? std::string(weir_model_arch(weir_engine_model(engine_.get())))
                   : std::string(engine_.text());
    };
    EXPECT_EQ(chosen("when = { hf = \"num_attention_heads\", above = 3 }"), "acme");
    EXPECT_EQ(chosen("when = { hf = \"num_attention_heads\", above = 4 }"), "qwen3");
    EXPECT_EQ(chosen("when = { hf = \"rms_norm_eps\", above = 1e-9 }"), "acme");
    EXPECT_EQ(chosen("when = { hf = \"hidden_act\", above = 0 }"), "qwen3") << "not a number";
    EXPECT_EQ(chosen("when = { hf = \"nothing\", above = -1 }"), "qwen3");
    EXPECT_EQ(chosen("when = { hf = \"hidden_act\", is = \"silu\" }"), "acme");
    EXPECT_EQ(chosen("when = { hf = \"hidden_act\", is = \"sil\" }"), "qwen3");
    EXPECT_EQ(chosen("when = { hf = \"num_attention_heads\", is = \"4\" }"), "qwen3");
    EXPECT_EQ(chosen("when = { hf = \"nothing\", is = \"silu\" }"), "qwen3");
    const char *const gguf = "when = { gguf = \"block_count\", above = 1 }";
    EXPECT_EQ(chosen(gguf), "qwen3") << "without a condition there, the first one is taken";
    EXPECT_EQ(chosen(gguf, "qwen3/qwen3-bf16.gguf"), "acme");
    EXPECT_EQ(
        chosen("when = { gguf = \"block_count\", above = 2 }", "qwen3/qwen3-bf16.gguf"), "qwen3"
    );

    write("b", "[arch]\nname = \"b\"\nbase = \"acme\"\nmatch = { hf = [\"b\"] }\n");
    copy_checkpoint(folder_, "qwen3");
    change_config(folder_, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
    write(
        "acme", "[arch]\nname = \"acme\"\nbase = \"qwen3\"\nmatch = { hf = [\"acme\"] }\n"
                "when = { hf = \"num_attention_heads\", above = 4 }\n"
    );
    const Settings settings = { "model.arch_dir=" + (folder_ / "archs") };
    EXPECT_EQ(engine_.open(folder_.path(), settings), WEIR_EUNSUPPORTED);
    EXPECT_SAYS(engine_.text(), "'acme' is known only with num_attention_heads above 4 (");
    change_config(folder_, "\"model_type\": \"acme\"", "\"model_type\": \"b\"");
    EXPECT_EQ(engine_.open(folder_.path(), settings), WEIR_OK)
        << "a condition is not inherited: " << engine_.text();
}

TEST_F(ArchBase, AConditionIsChecked)
{
    const auto says = [&](const std::string &lines) {
        write("acme", "[arch]\nname = \"acme\"\nbase = \"qwen3\"\n" + lines + "\n");
        return why();
    };
    const std::string match = "match = { hf = [\"acme\"] }\n";
    EXPECT_EQ(says(match + "when = { hf = \"x\", above = 0 }"), "");
    EXPECT_SAYS(says(match + "when = { hf = \"x\" }"), "[arch] [when] above is missing");
    EXPECT_EQ(says(match + "when = { hf = \"x\", is = \"y\" }"), "");
    EXPECT_SAYS(
        says(match + "when = { hf = \"x\", is = \"y\", above = 1 }"),
        "has two conditions for a setting: above and is"
    );
    EXPECT_SAYS(says(match + "when = { above = 0 }"), "names no setting: add gguf = KEY");
    EXPECT_SAYS(says(match + "when = 3"), "when: must be a table");
    EXPECT_SAYS(says(match + "when = { hf = \"x\", above = \"0\" }"), "above: must be a number");
    EXPECT_SAYS(
        says(match + "when = { hf = \"x\", abov = 0 }"),
        "unknown key 'abov'; the nearest is 'above'"
    );
    EXPECT_SAYS(says("when = { hf = \"x\", above = 0 }"), "is a condition of match");
    EXPECT_EQ(says(match + "when = { gguf_tensor = \"blk.{i}.x\" }"), "");
    EXPECT_SAYS(
        says(match + "when = { gguf = \"x\", above = 0, gguf_tensor = \"y\" }"),
        "has two conditions for GGUF"
    );
    EXPECT_SAYS(
        says(match + "when = { gguf_tensor = \"y\", above = 0 }"), "names no setting: add gguf"
    );
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
        with(
            with(read_file("configs/arch/qwen3.toml"), "name     = \"qwen3\"", "name = \"broken\""),
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

TEST(ArchShapes, ExpertsThatDoNotFitAreRefused)
{
    const Folder folder;
    copy_checkpoint(folder, "../families/qwen3-moe");
    change_config(folder, "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9");
    Engine engine;
    EXPECT_EQ(engine.plan(folder.path(), {}), WEIR_ECONFIG);
    EXPECT_SAYS(engine.text(), "[ffn] experts of qwen3moe.toml: more experts are used");
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

const char kGguf[] = "\"attention.value_length\" = \"head_dim\"";

const Fault faults[] = {
    { "HeadBlock", "[layers]", "[mtp]\nblock = \"atn\"\n\n[layers]",
      "[mtp] unknown block 'atn'; the nearest is 'attn'" },
    { "HeadKey", "[layers]", "[mtp]\nblock = \"attn\"\nhf_prefx = \"mtp.\"\n\n[layers]",
      "[mtp] unknown key 'hf_prefx'; the nearest is 'hf_prefix'" },
    { "HeadFfn", "[layers]", "[mtp]\nblock = \"attn\"\nffn = \"dense\"\n\n[layers]",
      "[mtp] unknown ffn 'dense'" },
    { "HeadHidden", "[layers]", "[mtp]\nblock = \"attn\"\nnext_hidden = \"norm\"\n\n[layers]",
      "[mtp] next_hidden: must be after_norm or before_norm" },
    { "Table", "[layers]", "[colours]\nred = 1\n\n[layers]", "unknown table [colours]" },
    { "GgufShape", kGguf, "key = \"wheels\"", "unknown shape 'wheels'" },
    { "GgufShapeMissing", kGguf, "key = \"gdn_taps\"", "needs gdn_taps in [shape]" },
    { "GgufSum", kGguf, "key = \"d_model + wheels\"", "unknown shape 'wheels'" },
    { "GgufValue", kGguf, "key = [1]", "must be a number, a boolean" },
    { "GgufList", kGguf, "key = { hf = \"a\", length = 0 }", "length must be 1 to 64" },
    { "GgufListDefault", kGguf, "key = { hf = \"a\", length = 2, default = [1, 2, 3] }",
      "length must be 1 to 64" },
    { "GgufListKey", kGguf, "key = { hf = \"a\", size = 4 }", "unknown key 'size'" },
    { "WrittenAs", "prefixes = [", "written_as = 1\nprefixes = [", "[arch] written_as" },
    { "MissingTable", "[ffn]\nkind = \"swiglu\"\n", "", "[ffn]" },
    { "Block", "pattern = [\"attn\"]", "pattern = [\"attention\"]",
      "unknown block 'attention'; the nearest is 'attn'" },
    { "EmptyPattern", "pattern = [\"attn\"]", "pattern = []", "pattern" },
    { "PatternOfNumbers", "pattern = [\"attn\"]", "pattern = [7]", "pattern" },
    { "Norms", "pattern = [\"attn\"]", "pattern = [\"attn\"]\nnorms = \"behind\"",
      "[layers] norms: must be before, after or both" },
    { "NormsMissing", "pattern = [\"attn\"]", "pattern = [\"attn\"]\nnorms = \"both\"",
      "no entry \"layer.mixer_norm_after\"" },
    { "FfnRule", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nffn = { hf = \"x\", first = \"dense\", others = \"kind\" }",
      "[layers] [ffn] unknown ffn 'dense'" },
    { "FfnRuleKey", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nffn = { hf = \"x\", frist = \"dense\", others = \"kind\" }",
      "unknown key 'frist'; the nearest is 'first'" },
    { "NormOverAll", "qk_norm = true", "qk_norm = true\nq_gate = true\nqk_norm_over = \"all\"",
      "qk_norm_over = \"all\" needs qk_norm = true and q_gate = false" },
    { "Last", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nlast = { hf = \"x\", names = { attn = \"tail\" } }",
      "[layers] unknown block 'tail'; the nearest is 'attn'" },
    { "LastReplaced", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nlast = { hf = \"x\", names = { head = \"attn\" } }",
      "[layers] [last] unknown block 'head'; the nearest is 'attn'" },
    { "LastKey", "pattern = [\"attn\"]", "pattern = [\"attn\"]\nlast = { hf = \"x\", name = {} }",
      "[layers] [last] unknown key 'name'; the nearest is 'names'" },
    { "ShapeLayers", "hf = \"intermediate_size\"",
      "layers = [\"dense\"], hf = \"intermediate_size\"", "unknown block 'dense'" },
    { "ShapeLayersFirst", "hf = \"hidden_size\"", "layers = [\"attn\"], hf = \"hidden_size\"",
      "d_model refers to n_layers, which must be above it" },
    { "LocalHeads", "qk_norm = true", "qk_norm = true\nlocal_heads = true",
      "[shape] has no n_kv_heads_local, which an option of the block needs" },
    { "OptionalValues", "qk_norm = true", "qk_norm = true\nv_optional = true",
      "v_optional = true needs v_norm = true" },
    { "SharedRowsOfNone", "qk_norm = true", "qk_norm = true\nshared = true",
      "layer 0 reads the KV rows of an earlier layer" },
    { "WideFfn", "kind = \"swiglu\"", "kind = \"swiglu\"\nwide = true",
      "[shape] has no d_ffn_wide, which an option of the block needs" },
    { "LayerInputAsFfn", "kind = \"swiglu\"", "kind = \"layer_input\"",
      "[ffn] kind 'layer_input' is not known" },
    { "ShapeTimesGguf", "hf = \"hidden_size\"", "gguf_times = \"d_ffn\", hf = \"hidden_size\"",
      "d_model refers to d_ffn, which must be above it" },
    { "ShapePower", "default = 1e-6 }", "default = 1e-6, power = \"two\" }",
      "power: must be a number" },
    { "ShapePowerOutOfRange", "default = 1e-6 }", "default = 1e-6, power = -1 }",
      "norm_eps is 1e+06" },
    { "LocalRopeWithoutTheta", "qk_norm = true", "qk_norm = true\nrope_local = true",
      "[shape] has no rope_theta_local, which an option of the block needs" },
    { "RopeTruncate", "[rope]", "[rope]\ntruncate = \"never\"", "truncate: must be true or false" },
    { "GroupsOfNothing", "\"ffn.gate\"         = {",
      "\"ffn.gate\" = { groups = \"wheels\", fused = [\"ffn.gate\"],",
      "unknown shape in groups 'wheels'" },
    { "GroupsMissing", "\"ffn.gate\"         = {",
      "\"ffn.gate\" = { groups = \"n_experts\", fused = [\"ffn.gate\"],",
      "groups = \"n_experts\" needs this shape in [shape]" },
    { "GroupsAlone", "\"ffn.gate\"         = {", "\"ffn.gate\" = { groups = \"n_heads\",",
      "groups = \"n_heads\" needs a list `fused`" },
    { "GroupsOfReals", "\"ffn.gate\"         = {",
      "\"ffn.gate\" = { groups = \"norm_eps\", fused = [\"ffn.gate\"],",
      "groups is no positive integer here" },
    { "GroupsThatDoNotDivide", "\"ffn.gate\"         = {",
      "\"ffn.gate\" = { groups = \"context\", fused = [\"ffn.gate\"],",
      "whose rows do not divide into groups" },
    { "TransposedAlone", "\"ffn.gate\"         = {", "\"ffn.gate\" = { transposed = true,",
      "\"ffn.gate\": transposed needs a list `fused`" },
    { "TransposedVector", "\"attn.q_norm\"      = {",
      "\"attn.q_norm\" = { transposed = true, fused = [\"attn.q_norm\"],",
      "\"attn.q_norm\": transposed is about matrices" },
    { "ScalesMissing", "\"ffn.gate\"         = {",
      "\"ffn.gate\" = { hf_scales = \"layers.{i}.mlp.scales\",",
      "tensor layers.0.mlp.scales is missing" },
    { "ScalesOfNoBlocks", "\"ffn.gate\"         = {",
      "\"ffn.gate\" = { hf_scales = \"norm.weight\",",
      "are not the codes and exponents of MXFP4 blocks" },
    { "Mixer", "mixer = \"attention\"", "mixer = \"mamba\"", "[block.attn] mixer" },
    { "NoMixer", "mixer = \"attention\"", "", "[block.attn] has no mixer" },
    { "Option", "qk_norm = true", "qk_nrom = true", "[block.attn] unknown key 'qk_nrom'" },
    { "OptionValue", "qk_norm = true", "qk_norm = \"yes\"", "[block.attn] qk_norm" },
    { "Rope", "rope  = \"half_split\"", "rope  = \"thirds\"", "[block.attn] rope" },
    { "Ffn", "kind = \"swiglu\"", "kind = \"reglu\"", "[ffn] kind 'reglu'" },
    { "MixerAsFfn", "kind = \"swiglu\"", "kind = \"attention\"", "[ffn] kind 'attention'" },
    { "Transform", "hf = \"norm.weight\"", "hf = \"norm.weight\", hf_transform = \"square\"",
      "unknown transform 'square'" },
    { "Slot", "\"attn.out\" ", "\"attn.exit\" ",
      "unknown parameter 'attn.exit'; the nearest is 'attn.out'" },
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
    { "MaskListBlock", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nmask = [{ hf = \"m\", set = \"attn\", unset = \"gdn\" }]",
      "unknown block 'gdn'; the nearest is 'attn'" },
    { "MaskListFirst", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nmask = [{ hf = \"m\", set = \"attn\", unset = \"attn\" }, "
      "{ hf = \"n\", set = \"attn\", unset = \"attn\" }]",
      "unset: only the last mask has it" },
    { "MaskListLast", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nmask = [{ hf = \"m\", set = \"attn\" }]", "unset is missing" },
    { "MaskListEmpty", "pattern = [\"attn\"]", "pattern = [\"attn\"]\nmask = []",
      "must be a table or a list" },
    { "ListsBlock", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nlists = [{ hf = \"l\", set = \"gdn\" }]",
      "unknown block 'gdn'; the nearest is 'attn'" },
    { "ListsWords", "pattern = [\"attn\"]", "pattern = [\"attn\"]\nlists = [{ hf = \"l\" }]",
      "set is missing" },
    { "ListsOfOtherContainers", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nlists = [{ hf = \"l\", set = \"attn\" }, { gguf = \"m\", set = "
      "\"attn\" }]",
      "gguf: all lists have it, or none" },
    { "ListsEmpty", "pattern = [\"attn\"]", "pattern = [\"attn\"]\nlists = []",
      "must be a list of 1 to 64 tables" },
    { "ListsAsTable", "pattern = [\"attn\"]",
      "pattern = [\"attn\"]\nlists = { hf = \"l\", set = \"attn\" }",
      "must be a list of 1 to 64 tables" },
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
    { "OrItself", "or = \"embed\"", "or = \"output\"", "is the parameter itself" },
    { "OrNothing", "or = \"embed\"", "or = \"embedding\"",
      "unknown parameter after or 'embedding'; the nearest is 'embed'" },
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
} // namespace arch_files
