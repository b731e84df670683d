// Per-layer embeddings in blocks: rows of a quantised table are read as those of the embedding.
#include <cmath>
#include <map>

#include "offload/weights.h"
#include "tests/unit/convert/convert_to.h"
#include "tests/unit/model/support.h"

namespace {

const char *const family = "tests/golden/families/gemma4";

/* The tensors of the checkpoint as f32, with per-layer embeddings of 16 elements: rows of 96. */
support::Arrays wider_tensors()
{
    const std::map<std::string, std::vector<int64_t>> others = {
        { "model.embed_tokens_per_layer.weight", { 320, 96 } },
        { "model.per_layer_model_projection.weight", { 96, 32 } },
        { "model.per_layer_projection_norm.weight", { 16 } },
    };
    support::Arrays out;
    weir_tensor_directory *directory = nullptr;
    weir_error error = {};
    EXPECT_EQ(weir_tensor_directory_open(&directory, family, &error), WEIR_OK);
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const tensor = weir_tensor_directory_at(directory, i);
        const std::string name = tensor->name;
        support::Array array = { { tensor->shape, tensor->shape + tensor->n_dims }, {} };
        array.values.resize(tensor->bytes / 2);
        EXPECT_EQ(
            weir_dequantise(
                array.values.data(), tensor->data, tensor->dtype,
                static_cast<int64_t>(array.values.size())
            ),
            WEIR_OK
        );
        if (others.count(name) != 0)
            array = support::noise(others.at(name), 0.5f, static_cast<int>(i));
        if (name.find("per_layer_input_gate") != std::string::npos)
            array = support::noise({ 16, 32 }, 0.5f, static_cast<int>(i));
        if (name.find("per_layer_projection.") != std::string::npos)
            array = support::noise({ 32, 16 }, 0.5f, static_cast<int>(i));
        out[name] = array;
    }
    weir_tensor_directory_close(directory);
    return out;
}

std::vector<float> logits(const std::string &path)
{
    support::Engine engine;
    EXPECT_EQ(engine.open(path, { "kernels.activations=f32" }), WEIR_OK) << engine.text();
    support::Sequence sequence(engine);
    const std::vector<int32_t> tokens = support::some_tokens(20, 1, engine.n_vocab());
    weir_evaluation evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(tokens.size());
    evaluation.decode_from = INT32_MAX;
    EXPECT_EQ(weir_evaluate(engine.runner(), sequence.get(), &evaluation, engine.error()), WEIR_OK)
        << engine.text();
    return { evaluation.last, evaluation.last + engine.n_vocab() };
}

using LayerInputs = converted::Folder;

TEST_F(LayerInputs, AQuantisedTableHasItsValues)
{
    std::filesystem::create_directories(path("model"));
    support::write_safetensors(path("model/model.safetensors"), wider_tensors());
    support::write_file(
        path("model/config.json"),
        support::with(
            support::read_file(std::string(family) + "/config.json"),
            "\"hidden_size_per_layer_input\": 8", "\"hidden_size_per_layer_input\": 16"
        )
    );
    for (const char *const type : { "q8_0", "q4_0" }) {
        SCOPED_TRACE(type);
        const std::string blocks = path(std::string(type) + ".gguf"),
                          values = path(std::string(type) + "-f32.gguf");
        auto o = converted::convert({ path("model"), blocks, type });
        ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
        o = converted::convert({ blocks, values, "f32" });
        ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
        const auto file = converted::open(blocks);
        const weir_tensor *const table =
            weir_tensor_directory_find(file.get(), "per_layer_token_embd.weight");
        ASSERT_NE(table, nullptr);
        EXPECT_STREQ(weir_dtype_of(table->dtype).name, type);
        const std::vector<float> got = logits(blocks), want = logits(values),
                                 exact = logits(path("model"));
        float most = 0;
        for (size_t i = 0; i < want.size(); i++) {
            ASSERT_NEAR(got[i], want[i], 1e-5f) << i;
            most = std::fmax(most, std::fabs(want[i] - exact[i]));
        }
        EXPECT_GT(most, 1e-3f) << "nothing was rounded";
    }
}

} // namespace
