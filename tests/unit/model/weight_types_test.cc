/* A model file with all its matrices in one type, of each type that is read: its logits are those
 * of a file with the decoded weights in f32, exactly or within what 8-bit activations lose. */
#include <cmath>

#include "engine/formats/tensor_directory.h"
#include "tests/unit/matmul/fixture.h"
#include "tests/unit/model/arch_files.h"

namespace {

using support::Engine;
using support::Folder;
using support::Settings;

/* Types by their numbers in GGUF files. */
struct Type {
    uint32_t number;
    weir_dtype dtype;
};

const Type kTypes[] = {
    { 2, WEIR_Q4_0 },     { 3, WEIR_Q4_1 },    { 6, WEIR_Q5_0 },     { 7, WEIR_Q5_1 },
    { 8, WEIR_Q8_0 },     { 10, WEIR_Q2_K },   { 11, WEIR_Q3_K },    { 12, WEIR_Q4_K },
    { 13, WEIR_Q5_K },    { 14, WEIR_Q6_K },   { 16, WEIR_IQ2_XXS }, { 17, WEIR_IQ2_XS },
    { 18, WEIR_IQ3_XXS }, { 19, WEIR_IQ1_S },  { 20, WEIR_IQ4_NL },  { 21, WEIR_IQ3_S },
    { 22, WEIR_IQ2_S },   { 23, WEIR_IQ4_XS }, { 29, WEIR_IQ1_M },   { 34, WEIR_TQ1_0 },
    { 35, WEIR_TQ2_0 },   { 39, WEIR_MXFP4 },  { 40, WEIR_NVFP4 },   { 41, WEIR_Q1_0 },
    { 42, WEIR_Q2_0 },
};

struct Tensor {
    std::string name, bytes;
    std::vector<int64_t> shape; /* slowest first */
    uint32_t number;
};

void append(std::string *to, uint64_t value, int n)
{
    for (int i = 0; i < n; i++) *to += static_cast<char>(value >> (8 * i));
}

/* `head`: magic, version and counts, then the keys. */
void write_gguf(const std::string &path, std::string head, const std::vector<Tensor> &tensors)
{
    std::string data;
    for (const Tensor &t : tensors) {
        data.resize((data.size() + 31) / 32 * 32);
        append(&head, t.name.size(), 8);
        head += t.name;
        append(&head, t.shape.size(), 4);
        for (size_t i = t.shape.size(); i-- > 0;) append(&head, (uint64_t)t.shape[i], 8);
        append(&head, t.number, 4);
        append(&head, data.size(), 8);
        data += t.bytes;
    }
    head.resize((head.size() + 31) / 32 * 32);
    support::write_file(path, head + data);
}

std::string bytes_of(const void *data, size_t n)
{
    return std::string(static_cast<const char *>(data), n);
}

/* The golden file of K types, its blocks replaced by random ones of `type` in one file and by their
 * values in the other; `more`: one tensor more. */
void write_models(const Folder &folder, const Type &type, const Tensor *more = nullptr)
{
    const std::string model = support::golden("tq-k/tq-k-q4_k.gguf");
    weir_tensor_directory *directory = nullptr;
    ASSERT_EQ(weir_tensor_directory_open(&directory, model.c_str(), nullptr), WEIR_OK);
    std::vector<Tensor> blocks, values;
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const t = weir_tensor_directory_at(directory, i);
        Tensor tensor = {
            t->name, bytes_of(t->data, t->bytes), { t->shape, t->shape + t->n_dims }, 0
        };
        Tensor plain = tensor;
        if (weir_dtype_of(t->dtype).quantised) {
            int64_t n = 1;
            for (const int64_t d : tensor.shape) n *= d;
            const auto file = weir_test::random_file(type.dtype, n, (uint32_t)i + 1);
            std::vector<float> decoded((size_t)n);
            ASSERT_EQ(weir_dequantise(decoded.data(), file.data(), type.dtype, n), WEIR_OK);
            tensor.bytes = bytes_of(file.data(), file.size());
            tensor.number = type.number;
            plain.bytes = bytes_of(decoded.data(), decoded.size() * sizeof(float));
        }
        blocks.push_back(tensor);
        values.push_back(plain);
    }
    weir_tensor_directory_close(directory);
    /* The keys end where the first tensor's name begins, after its length. */
    const std::string bytes = support::read_file(model);
    const size_t at = bytes.find(blocks[0].name);
    ASSERT_NE(at, std::string::npos);
    std::string head = bytes.substr(0, at - 8);
    write_gguf(folder / "values.gguf", head, values);
    if (more != nullptr) {
        blocks.push_back(*more);
        head[8]++; /* the number of tensors */
    }
    write_gguf(folder / "blocks.gguf", head, blocks);
}

std::vector<float> logits_of(const std::string &path, const char *activations)
{
    Engine engine;
    const Settings settings = { std::string("kernels.activations=") + activations, "kv.format=f32",
                                "model.context=256" };
    EXPECT_EQ(engine.open(path, settings), WEIR_OK) << engine.text();
    return engine.get() ? arch_files::last_logits(&engine) : std::vector<float>();
}

/* The error's length relative to that of the logits. */
double distance(const std::vector<float> &got, const std::vector<float> &want)
{
    double off = 0, norm = 0;
    EXPECT_EQ(got.size(), want.size());
    for (size_t i = 0; i < std::min(got.size(), want.size()); i++) {
        off += std::pow((double)got[i] - (double)want[i], 2);
        norm += std::pow((double)want[i], 2);
    }
    EXPECT_GT(norm, 1e-3) << "the logits say nothing";
    return std::sqrt(off / norm);
}

TEST(WeightTypes, EveryTypeHasTheLogitsOfItsValues)
{
    size_t n_types = 0;
    for (const Type &type : kTypes) {
        const char *const name = weir_dtype_of(type.dtype).name;
        const Folder folder;
        write_models(folder, type);
        if (HasFatalFailure()) return;
        const std::vector<float> want = logits_of(folder / "values.gguf", "f32");
        EXPECT_EQ(logits_of(folder / "blocks.gguf", "f32"), want) << name;
        const double lost = distance(logits_of(folder / "blocks.gguf", "fast"), want);
        EXPECT_LT(lost, 0.06) << name;
        EXPECT_GT(lost, 1e-5) << name << ": activations were not rounded";
        n_types++;
    }
    EXPECT_EQ(n_types, weir_test::quantised_dtypes().size());
}

/* A factor of a whole tensor would be lost without a word. */
TEST(WeightTypes, FactorsOfNvfp4AreRefusedUnlessTheyAreOne)
{
    for (const char *const name : { "blk.1.ffn_up.scale", "blk.1.ffn_up.weight.scale" })
        for (const float factor : { 1.0f, 0.5f }) {
            const Folder folder;
            const Tensor more = { name, bytes_of(&factor, sizeof factor), { 1 }, 0 };
            write_models(folder, { 40, WEIR_NVFP4 }, &more);
            if (HasFatalFailure()) return;
            Engine engine;
            EXPECT_EQ(
                engine.plan(folder / "blocks.gguf", { "model.context=256" }),
                factor < 1 ? WEIR_EMISMATCH : WEIR_OK
            ) << engine.text();
            if (factor < 1) EXPECT_SAYS(engine.text(), std::string(name) + " multiplies it");
        }
}

/* The weights of such a file are charged as they are packed. */
TEST(WeightTypes, ThePlanHasTheBytesOfTheTiles)
{
    const Folder folder;
    write_models(folder, { 17, WEIR_IQ2_XS });
    if (HasFatalFailure()) return;
    Engine engine;
    const auto weights = [&](const char *activations) {
        EXPECT_EQ(
            engine.plan(
                folder / "blocks.gguf",
                { std::string("kernels.activations=") + activations, "model.context=256" }
            ),
            WEIR_OK
        ) << engine.text();
        return engine.planned().weights;
    };
    const size_t exact = weights("f32"), fast = weights("fast");
    EXPECT_LT(fast, exact / 6) << "4 bits of 32, and vectors in f32";
    EXPECT_GT(fast, exact / 9);
}

} // namespace
