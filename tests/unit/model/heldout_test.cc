/* A model made of known blocks needs an arch file only: one that is in no release computes what its
 * reference does (tests/golden/heldout), as one prompt, in chunks and token by token. */
#include <algorithm>
#include <cmath>

#include "tests/unit/model/arch_files.h"

namespace {

using support::Engine;
using support::Settings;

const std::string folder = "tests/golden/heldout";
const Settings exact = { "model.arch_dir=tests/golden/heldout/archs", "kernels.activations=f32",
                         "kv.format=f32" };

template <typename T> std::vector<T> reference(const char *name)
{
    weir_tensor_directory *directory = nullptr;
    weir_error error = {};
    std::vector<T> out;
    EXPECT_EQ(
        weir_tensor_directory_open(&directory, (folder + "/reference.safetensors").c_str(), &error),
        WEIR_OK
    ) << error.text;
    const weir_tensor *const tensor = weir_tensor_directory_find(directory, name);
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor != nullptr) {
        out.resize(tensor->bytes / sizeof(T));
        memcpy(out.data(), tensor->data, tensor->bytes);
    }
    weir_tensor_directory_close(directory);
    return out;
}

/* The logits of all tokens. */
std::vector<float> logits_of(Engine *engine, int32_t chunk, int32_t decode_from)
{
    struct Seen {
        std::vector<float> logits;
        size_t n_vocab;
    } seen = { {}, engine->n_vocab() };
    const std::vector<int32_t> tokens = reference<int32_t>("tokens");
    support::Sequence sequence(*engine);
    weir_evaluation evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(tokens.size());
    evaluation.chunk = chunk;
    evaluation.decode_from = decode_from;
    evaluation.visit = [](void *user, int32_t, int32_t n_rows, const float *logits) {
        Seen *const to = static_cast<Seen *>(user);
        to->logits.insert(
            to->logits.end(), logits, logits + static_cast<size_t>(n_rows) * to->n_vocab
        );
    };
    evaluation.user = &seen;
    EXPECT_EQ(
        weir_evaluate(engine->runner(), sequence.get(), &evaluation, engine->error()), WEIR_OK
    ) << engine->text();
    return seen.logits;
}

float largest_difference(const std::vector<float> &a, const std::vector<float> &b)
{
    float out = a.size() == b.size() ? 0.0f : INFINITY;
    for (size_t i = 0; i < std::min(a.size(), b.size()); i++)
        out = std::fmax(out, std::fabs(a[i] - b[i]));
    return out;
}

TEST(Heldout, AnArchFileIsEnough)
{
    Engine engine;
    ASSERT_EQ(engine.open(folder, exact), WEIR_OK) << engine.text();
    const weir_model *const model = weir_engine_model(engine.get());
    EXPECT_STREQ(weir_model_arch(model), "heldout");
    const char *unused = "";
    EXPECT_EQ(weir_model_unused(model, &unused, 1), 0U) << unused;
    EXPECT_EQ(weir_model_window_layers(model), 2); /* two of latents and one of all rows stay */
    EXPECT_EQ(weir_model_kv_layers(model), 3);

    const std::vector<float> want = reference<float>("logits"),
                             whole = logits_of(&engine, 0, INT32_MAX);
    ASSERT_EQ(want.size(), 44 * engine.n_vocab());
    EXPECT_LT(largest_difference(whole, want), 2e-4f);
    EXPECT_LT(largest_difference(logits_of(&engine, 7, INT32_MAX), want), 2e-4f);
    EXPECT_LT(largest_difference(logits_of(&engine, 0, 0), want), 2e-4f);
    EXPECT_LT(largest_difference(logits_of(&engine, 0, 20), want), 2e-4f);
}

/* Without one of its options the model is another one. */
TEST(Heldout, EveryOptionCounts)
{
    const std::pair<const char *, const char *> changes[] = {
        { "norms   = \"both\"", "norms   = \"before\"" },
        { "rope_local  = true\n", "" },
        { "window      = true\n", "" },
        { "sink_logits = true\n", "" },
        { "qk_norm_over = \"all\"", "qk_norm_over = \"head\"" },
        { "no_rope      = true\n", "" },
        { "kind = \"geglu\"", "kind = \"swiglu\"" },
        { "scores = \"sigmoid\"", "scores = \"softmax\"" },
        { "norm_eps = 1e-5", "norm_eps = 1e-2" },
        { ", hf_factors = [\"gate_multiplier\"]", "" },
        { ", hf_transform = \"one_plus\"", "" },
        { "residual_scale    = { hf = \"residual_multiplier\" }\n", "" },
        { "attention_softcap = { hf = \"attn_logit_softcapping\" }\n", "" },
        { "logit_softcap     = { hf = \"final_logit_softcapping\" }\n", "" },
    };
    const std::string text = support::read_file(folder + "/archs/heldout.toml");
    const std::vector<float> want = reference<float>("logits");
    const support::Folder archs;
    std::filesystem::create_directories(archs.path());
    for (const auto &[from, to] : changes) {
        support::write_file(archs / "heldout.toml", support::with(text, from, to));
        Engine engine;
        Settings settings = exact;
        settings[0] = "model.arch_dir=" + archs.path();
        if (engine.open(folder, settings) != WEIR_OK) continue; /* a tensor no longer fits */
        EXPECT_GT(largest_difference(logits_of(&engine, 0, INT32_MAX), want), 1e-2f) << from;
    }
}

} // namespace
