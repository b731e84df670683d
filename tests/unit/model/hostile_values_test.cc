/* Well-formed model files with values that no model has: config.json, RoPE scaling, numbers that
 * are not finite. */
#include <cmath>
#include <limits>

#include "tests/unit/model/hostile.h"

namespace hostile {
namespace {

/* ---- config.json that is valid JSON and wrong ------------------------------------------------ */

struct Wrong {
    const char *name, *model, *from, *to, *says;
};

class Config : public ::testing::TestWithParam<Wrong> {};

TEST_P(Config, IsRefusedByName)
{
    const Folder folder;
    copy_to(
        folder, (std::string(GetParam().model) + "/model.safetensors").c_str(), "model.safetensors"
    );
    std::string text = read_file(golden(std::string(GetParam().model) + "/config.json"));
    const std::string from = GetParam().from;
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    for (; at != std::string::npos; at = text.find(from, at + strlen(GetParam().to)))
        text.replace(at, from.size(), GetParam().to);
    write_file(folder / "config.json", text);
    Engine engine;
    EXPECT_NE(engine.plan(folder.path(), small), WEIR_OK);
    EXPECT_SAYS(engine.text(), GetParam().says);
    EXPECT_SAYS(engine.text(), folder.path());
    EXPECT_NE(engine.open(folder.path(), small), WEIR_OK);
    EXPECT_SAYS(engine.text(), GetParam().says);
}

const char nemotron[] = "../families/nemotron-h", kimi[] = "../families/kimi-linear";
const Wrong wrong[] = {
    { "NoHeads", "qwen3", "\"num_attention_heads\": 4", "\"num_attention_heads\": 0",
      "n_heads is 0" },
    { "NegativeHeads", "qwen3", "\"num_attention_heads\": 4", "\"num_attention_heads\": -4",
      "n_heads is -4" },
    { "HalfAHead", "qwen3", "\"num_attention_heads\": 4", "\"num_attention_heads\": 4.5",
      "n_heads is 4.5" },
    { "HeadsAsText", "qwen3", "\"num_attention_heads\": 4", "\"num_attention_heads\": \"4\"",
      "num_attention_heads" },
    { "NoKvHeads", "qwen3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 0",
      "n_kv_heads is 0" },
    { "HeadsDoNotDivide", "qwen3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
      "do not divide" },
    { "HugeHeads", "qwen3", "\"head_dim\": 32", "\"head_dim\": 1000000000000",
      "head_dim is 1e+12" },
    { "WrongHeads", "qwen3", "\"head_dim\": 32", "\"head_dim\": 64", "self_attn.q_proj.weight" },
    { "OddRope", "qwen3", "\"head_dim\": 32", "\"head_dim\": 31", "31" },
    { "NoWidth", "qwen3", "\"hidden_size\": 64", "\"hidden_size\": 0", "d_model is 0" },
    { "OtherWidth", "qwen3", "\"hidden_size\": 64", "\"hidden_size\": 128", "embed_tokens.weight" },
    { "NoFfn", "qwen3", "\"intermediate_size\": 96", "\"intermediate_size\": -1", "d_ffn is -1" },
    { "MissingFfn", "qwen3", "\"intermediate_size\"", "\"intermediate_sizes\"",
      "intermediate_size" },
    { "MissingHeads", "qwen3", "\"num_attention_heads\"", "\"heads\"", "num_attention_heads" },
    { "MissingType", "qwen3", "\"model_type\"", "\"kind\"", "model_type" },
    { "NoLayers", "qwen3", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0",
      "n_layers is 0" },
    { "TooManyLayers", "qwen3", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 100000",
      "n_layers is 100000" },
    { "MoreLayers", "qwen3", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "layers.2." },
    { "NoContext", "qwen3", "\"max_position_embeddings\": 4096", "\"max_position_embeddings\": 0",
      "context is 0" },
    { "NegativeContext", "qwen3", "\"max_position_embeddings\": 4096",
      "\"max_position_embeddings\": -1", "context is -1" },
    { "ThetaZero", "qwen3", "\"rope_theta\": 1000000.0", "\"rope_theta\": 0", "rope_theta is 0" },
    { "ThetaNegative", "qwen3", "\"rope_theta\": 1000000.0", "\"rope_theta\": -1e6",
      "rope_theta is -1e+06" },
    { "EpsNegative", "qwen3", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1e-6",
      "norm_eps is -1e-06" },
    { "EpsHuge", "qwen3", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e300",
      "norm_eps is 1e+300" },
    { "Vocabulary", "qwen3", "\"vocab_size\": 320", "\"vocab_size\": 319", "vocab_size" },
    { "LayerTypesShort", "tq", "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5",
      "layer_types" },
    { "LayerTypesLong", "tq", "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 3",
      "layer_types" },
    { "LayerTypesOther", "tq", "\"full_attention\"", "\"sliding_attention\"", "sliding_attention" },
    { "LayerTypesNumber", "tq", "\"layer_types\": [", "\"layer_types\": 4, \"x\": [",
      "layer_types" },
    { "NoDeltaHeads", "tq", "\"linear_num_key_heads\": 2", "\"linear_num_key_heads\": 0",
      "gdn_k_heads is 0" },
    { "DeltaHeadsDoNotDivide", "tq", "\"linear_num_key_heads\": 2", "\"linear_num_key_heads\": 4",
      "do not divide" },
    { "NoTaps", "tq", "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 0",
      "gdn_taps is 0" },
    { "ManyTaps", "tq", "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 100",
      "gdn_taps is 100" },
    { "PartialRope", "tq", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 4.0",
      "RoPE rotates 128 of 32" },
    { "NegativeRope", "tq", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": -0.25",
      "rotary_dim is -8" },
    { "LayerTypesMissing", "tq", "\"layer_types\": [", "\"layer_types\": [], \"x\": [",
      "layer_types has 0 entries" },
    { "RopeType", "llama3", "\"rope_type\": \"llama3\"", "\"rope_type\": \"spiral\"", "spiral" },
    { "RopeFactor", "llama3", "\"factor\": 8.0", "\"factor\": 0.0", "factor" },
    { "RopeFrequencies", "llama3", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0",
      "frequency factors" },
    { "RopeFactorNegative", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": -2.0}",
      "factor -2" },
    { "RopeFactorHuge", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 1e300}",
      "factor 1e+300" },
    { "RopeFactorTiny", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": "
      "1e-300}",
      "frequency 0 infinite" },
    { "RopeFactorText", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": \"8\"}",
      "rope_scaling.factor is not a number" },
    { "RopeNoType", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"factor\": 8.0}",
      "rope_scaling.factor is given without a rope_type" },
    { "RopeTypeNumber", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": 3, \"factor\": 8.0}",
      "rope_scaling.rope_type is not a text" },
    { "RopeText", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": \"linear\"", "rope_scaling is not a group" },
    { "RopeList", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": [8.0]", "rope_scaling is not a group" },
    { "RopeDynamic", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}",
      "'dynamic' is not supported" },
    { "RopeOriginal", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
      "\"original_max_position_embeddings\": 0}",
      "original context 0" },
    { "RopeOriginalText", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
      "\"original_max_position_embeddings\": "
      "\"4k\"}",
      "original_max_position_embeddings is not a number" },
    { "YarnBetas", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
      "\"beta_fast\": 1, \"beta_slow\": 32}",
      "beta_fast 1 and beta_slow 32" },
    { "YarnBetaText", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
      "\"beta_slow\": \"1\"}",
      "beta_slow is not a number" },
    { "YarnAttention", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
      "\"attention_factor\": -1.0}",
      "cos and sin is -1" },
    { "YarnAttentionZero", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
      "\"attention_factor\": 0}",
      "cos and sin is 0" },
    { "LlamaLow", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
      "\"low_freq_factor\": 0}",
      "frequency factors 0" },
    { "YarnTheta", "qwen3", "\"rope_theta\": 1000000.0",
      "\"rope_theta\": 1.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}",
      "rope_theta above 1" },
    { "Window", "mistral", "\"sliding_window\": 4", "\"sliding_window\": -4", "window is -4" },
    { "NoSsmHeads", nemotron, "\"mamba_num_heads\": 8", "\"mamba_num_heads\": 0",
      "ssm_heads is 0" },
    { "SsmHeadsDoNotDivide", nemotron, "\"n_groups\": 2", "\"n_groups\": 3",
      "the heads do not divide into the groups" },
    { "SsmWidth", nemotron, "\"ssm_state_size\": 16", "\"ssm_state_size\": 17",
      "layers.0.mixer.in_proj.weight" },
    { "StepLimitNegative", nemotron, "  0.0,", "  -1.0,", "ssm_dt_min is -1" },
    { "StepLimitInfinite", nemotron, "  Infinity", "  -Infinity", "ssm_dt_max is -1.79769e+308" },
    { "StepLimits", nemotron, "  0.0,\n  Infinity", "  2.0,\n  1.0",
      "the upper limit of time steps is below the lower one" },
    { "PatternShort", nemotron, "\"M-M*-\"", "\"M-M*\"", "has 4 entries for 5 layers" },
    { "PatternOther", nemotron, "\"M-M*-\"", "\"M-M*E\"", "gives layer 4 the type 'E'" },
    { "PatternNumber", nemotron, "\"M-M*-\"", "5", "is not a list or a text" },
    { "LayerZero", kimi, "\n   4\n", "\n   0\n", "entry 0 is no number of a layer, 1 to 5" },
    { "LayerSix", kimi, "\n   4\n", "\n   6\n", "entry 0 is no number of a layer, 1 to 5" },
    { "HalfALayer", kimi, "\n   4\n", "\n   4.5\n", "entry 0 is no number of a layer" },
    { "LayerTwice", kimi, "\n   4\n", "\n   5\n",
      "linear_attn_config.kda_layers: layer 5 has been listed before" },
    { "LayerMissing", kimi, ",\n   5\n", "\n", "layer 5 is in no list of layers" },
    { "LayersAsNumber", kimi, "[\n   4\n  ]", "4", "full_attn_layers is not a list" },
    { "OneListOfLayers", kimi, "\"kda_layers\"", "\"layers\"",
      "linear_attn_config.kda_layers is missing" },
    { "KdaHeads", kimi, "\"num_heads\": 4", "\"num_heads\": 0", "gdn_k_heads is 0" },
    { "KdaWidth", kimi, "\"head_dim\": 16", "\"head_dim\": 17",
      "layers.0.self_attn.q_proj.weight" },
    { "KdaTaps", kimi, "\"short_conv_kernel_size\": 4", "\"short_conv_kernel_size\": 9",
      "gdn_taps is 9" },
    { "RotatedLatents", kimi, "\"mla_use_nope\": true", "\"mla_use_nope\": false",
      "latent attention has no RoPE here" },
    { "OtherActivation", nemotron, "\"relu2\"", "\"silu\"", "mlp_hidden_act" },
};
INSTANTIATE_TEST_SUITE_P(Values, Config, ::testing::ValuesIn(wrong), [](const auto &info) {
    return std::string(info.param.name);
});

/* ---- RoPE scaling in GGUF -------------------------------------------------------------------- */

std::string gguf_text(const std::string &text)
{
    const uint64_t n = text.size();
    return std::string(reinterpret_cast<const char *>(&n), sizeof n) + text;
}

/* A key with a value of a type of GGUF (8: text, 6: f32). */
std::string gguf_key(const std::string &key, uint32_t type, const std::string &value)
{
    return gguf_text(key) + std::string(reinterpret_cast<const char *>(&type), sizeof type) + value;
}

std::string gguf_float(float value)
{
    return std::string(reinterpret_cast<const char *>(&value), sizeof value);
}

/* Puts keys before the others of a GGUF file, with one more that keeps its data section aligned. */
std::string with_keys(std::string bytes, const std::vector<std::string> &keys)
{
    std::string added;
    uint64_t count;
    for (const std::string &key : keys) added += key;
    const size_t padding = 32 - (added.size() + gguf_key("pad", 8, gguf_text("")).size()) % 32;
    added += gguf_key("pad", 8, gguf_text(std::string(padding, 'x')));
    memcpy(&count, &bytes[16], sizeof count);
    count += keys.size() + 1;
    memcpy(&bytes[16], &count, sizeof count);
    return bytes.insert(24, added);
}

TEST(Hostile, RopeScalingOfGguf)
{
    const Folder folder;
    const std::string bytes = read_file(golden("qwen3/qwen3-bf16.gguf")),
                      type = "qwen3.rope.scaling.type", factor = "qwen3.rope.scaling.factor";
    Engine engine;
    const struct {
        std::vector<std::string> keys;
        const char *says; /* NULL: it is good */
    } cases[] = {
        { {}, nullptr },
        { { gguf_key(type, 8, gguf_text("none")) }, nullptr },
        { { gguf_key(type, 8, gguf_text("linear")), gguf_key(factor, 6, gguf_float(2.0f)) },
          nullptr },
        { { gguf_key(type, 8, gguf_text("linear")), gguf_key(factor, 6, gguf_float(0.0f)) },
          "factor 0" },
        { { gguf_key(type, 8, gguf_text("yarn")), gguf_key(factor, 6, gguf_float(NAN)) },
          "factor nan" },
        { { gguf_key(type, 8, gguf_text("yarn")), gguf_key(factor, 6, gguf_float(INFINITY)) },
          "factor inf" },
        { { gguf_key(type, 8, gguf_text("yarn")), gguf_key(factor, 8, gguf_text("4")) },
          "qwen3.rope.scaling.factor is not a number" },
        { { gguf_key(type, 8, gguf_text("longrope")) }, "longrope needs two lists" },
        { { gguf_key(type, 6, gguf_float(1.0f)) }, "qwen3.rope.scaling.type is not a text" },
        { { gguf_key(factor, 6, gguf_float(-1.0f)) }, "factor -1" },
    };
    for (const auto &[keys, says] : cases) {
        write_file(folder / "m.gguf", with_keys(bytes, keys));
        const weir_status planned = engine.plan(folder / "m.gguf", small);
        EXPECT_EQ(planned == WEIR_OK, says == nullptr) << engine.text();
        if (says != nullptr) EXPECT_SAYS(engine.text(), says);
        EXPECT_EQ(engine.open(folder / "m.gguf", small), planned);
        if (says != nullptr) EXPECT_SAYS(engine.text(), says);
    }
    /* Without a type, GGUF means linear. */
    write_file(folder / "m.gguf", with_keys(bytes, { gguf_key(factor, 6, gguf_float(2.0f)) }));
    Engine plain;
    ASSERT_EQ(engine.open(folder / "m.gguf", small), WEIR_OK) << engine.text();
    ASSERT_EQ(plain.open(golden("qwen3/qwen3-bf16.gguf"), small), WEIR_OK) << plain.text();
    const float *const halved = weir_model_rope(weir_engine_model(engine.get()))->frequencies;
    EXPECT_EQ(halved[1] * 2.0f, weir_model_rope(weir_engine_model(plain.get()))->frequencies[1]);
}

/* ---- numbers that are none ------------------------------------------------------------------- */

void expect_not_finite(const char *tensor, size_t element, uint16_t bits)
{
    const Folder folder;
    copy_to(folder, "qwen3/config.json", "config.json");
    std::string bytes = read_file(golden("qwen3/model.safetensors"));
    uint64_t n;
    memcpy(&n, bytes.data(), sizeof n);
    const size_t entry = bytes.find(std::string("\"") + tensor + "\"");
    ASSERT_NE(entry, std::string::npos) << tensor;
    const size_t begin = bytes.find("\"data_offsets\":[", entry) + strlen("\"data_offsets\":[");
    memcpy(
        &bytes[8 + n + std::stoul(bytes.substr(begin, 20)) + element * sizeof bits], &bits,
        sizeof bits
    );
    write_file(folder / "model.safetensors", bytes);
    Engine engine;
    EXPECT_EQ(engine.open(folder.path(), small), WEIR_EFORMAT);
    EXPECT_SAYS(engine.text(), tensor);
    EXPECT_SAYS(engine.text(), "not finite");
}

TEST(Hostile, NormsThatAreNotNumbers)
{
    expect_not_finite("model.norm.weight", 0, 0x7fc0); /* NaN */
    expect_not_finite("model.layers.1.input_layernorm.weight", 63, 0xff80); /* -infinity */
    expect_not_finite("model.layers.0.self_attn.q_norm.weight", 5, 0x7f80);
}

TEST(Hostile, MatricesThatAreNotNumbers)
{
    expect_not_finite("model.layers.0.self_attn.q_proj.weight", 0, 0x7fc0);
    expect_not_finite("model.layers.1.mlp.down_proj.weight", 64 * 96 - 1, 0x7f80);
    /* Tied: also the output */
    expect_not_finite("model.embed_tokens.weight", 320 * 64 - 1, 0xff80);
}

/* A scale of a quantised block; K types clamp infinity away while they pack. `at` is where the
 * block has it. */
void expect_scale_checked(
    const char *model, const char *tensor, size_t at, const Settings &settings
)
{
    const Folder folder;
    weir_tensor_directory *directory = nullptr;
    weir_error error = {};
    copy_to(folder, model, "m.gguf");
    ASSERT_EQ(weir_tensor_directory_open(&directory, (folder / "m.gguf").c_str(), &error), WEIR_OK)
        << error.text;
    const weir_tensor *const found = weir_tensor_directory_find(directory, tensor);
    ASSERT_NE(found, nullptr) << tensor;
    const std::string bytes = read_file(folder / "m.gguf");
    const size_t begin =
        bytes.find(std::string(reinterpret_cast<const char *>(found->data), found->bytes));
    const size_t last = found->bytes - static_cast<size_t>(weir_dtype_of(found->dtype).block_bytes);
    weir_tensor_directory_close(directory);
    ASSERT_NE(begin, std::string::npos);
    for (const char *bits : { "\x00\x7c", "\x01\xfe" }) {
        std::string changed = bytes;
        changed.replace(begin + last + at, 2, std::string(bits, 2));
        write_file(folder / "m.gguf", changed);
        Engine engine;
        Settings all = small;
        all.insert(all.end(), settings.begin(), settings.end());
        EXPECT_EQ(engine.open(folder / "m.gguf", all), WEIR_EFORMAT) << model;
        EXPECT_SAYS(engine.text(), tensor);
        EXPECT_SAYS(engine.text(), "not finite");
        EXPECT_SAYS(engine.text(), folder.path());
    }
}

TEST(Hostile, ScalesThatAreNotNumbers)
{
    for (const char *activations : { "kernels.activations=fast", "kernels.activations=f32" }) {
        expect_scale_checked("tq/tq-q8_0.gguf", "blk.0.ffn_up.weight", 0, { activations });
        expect_scale_checked("tq/tq-q4_0.gguf", "blk.3.attn_k.weight", 0, { activations });
        expect_scale_checked("tq-k/tq-k-q4_k.gguf", "blk.0.ffn_up.weight", 0, { activations });
        expect_scale_checked("tq-k/tq-k-q4_k.gguf", "blk.0.ffn_up.weight", 2, { activations });
        expect_scale_checked("tq-k/tq-k-q6_k.gguf", "blk.0.ffn_up.weight", 208, { activations });
    }
}

} // namespace
} // namespace hostile
