// GGUF files with other types: what is copied, what is quantised, and hostile importance matrices.
#include <cstring>
#include <vector>

#include "engine/formats/gguf_writer.h"
#include "kernels/ref/dequantise.h"
#include "tests/every_nth.h"
#include "tests/unit/convert/convert_to.h"

namespace {

using converted::convert;
using converted::Directory;
using converted::open;
using converted::Outcome;

class Gguf : public converted::Folder {
  protected:
    /* An importance matrix with one tensor. */
    std::string imatrix(
        const char *tensor, std::vector<float> sums, std::vector<float> counts, int64_t n_in,
        const char *type = "imatrix"
    )
    {
        weir_error error = {};
        weir_gguf_writer *const w = weir_gguf_writer_new();
        const std::string name = path("imatrix.gguf"), in = std::string(tensor) + ".in_sum2",
                          n = std::string(tensor) + ".counts";
        weir_gguf_put_text(w, "general.type", type, strlen(type));
        weir_tensor header = {};
        header.name = in.c_str();
        header.n_dims = 2;
        header.shape[0] = static_cast<int64_t>(sums.size()) / n_in;
        header.shape[1] = n_in;
        weir_gguf_add_tensor(w, &header);
        header.name = n.c_str();
        header.shape[0] = static_cast<int64_t>(counts.size());
        header.shape[1] = 1;
        weir_gguf_add_tensor(w, &header);
        EXPECT_EQ(weir_gguf_writer_begin(w, name.c_str(), &error), WEIR_OK) << error.text;
        EXPECT_EQ(
            weir_gguf_writer_add(w, sums.data(), sums.size() * sizeof(float), &error), WEIR_OK
        );
        EXPECT_EQ(
            weir_gguf_writer_add(w, counts.data(), counts.size() * sizeof(float), &error), WEIR_OK
        );
        EXPECT_EQ(weir_gguf_writer_finish(w, &error), WEIR_OK) << error.text;
        weir_gguf_writer_close(w);
        return name;
    }
};

const char kModel[] = "tests/golden/models/tq/tq-f32.gguf";
const char kTensor[] = "blk.3.attn_q.weight"; /* [256, 64] */

TEST_F(Gguf, KeysAndTensorsStay)
{
    const Outcome o = convert({ kModel, path("out.gguf"), "q8_0" });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    EXPECT_TRUE(o.result.has_tokenizer);
    const Directory own = open(path("out.gguf")), source = open(kModel);
    ASSERT_TRUE(own && source);
    const char *key;
    weir_meta a, b;
    for (size_t i = 0; weir_tensor_directory_meta_at(source.get(), i, &key, &a); i++)
        EXPECT_TRUE(weir_tensor_directory_meta(own.get(), key, &b)) << key;
    ASSERT_TRUE(weir_tensor_directory_meta(own.get(), "general.file_type", &b));
    EXPECT_EQ(b.integer, 7);
    for (size_t i = 0; i < weir_tensor_directory_count(source.get()); i++) {
        const weir_tensor *const from = weir_tensor_directory_at(source.get(), i),
                                 *const to = weir_tensor_directory_find(own.get(), from->name);
        ASSERT_NE(to, nullptr) << from->name;
        const bool is_matrix = from->n_dims > 1 && strstr(from->name, "conv1d") == nullptr;
        EXPECT_EQ(to->dtype, is_matrix ? WEIR_Q8_0 : WEIR_F32) << from->name;
        if (!is_matrix) EXPECT_EQ(memcmp(from->data, to->data, from->bytes), 0) << from->name;
    }
}

TEST_F(Gguf, TheSameTypeIsCopied)
{
    const char model[] = "tests/golden/models/tq/tq-q8_0.gguf";
    const Outcome o = convert({ model, path("out.gguf"), "q8_0", true });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    const Directory own = open(path("out.gguf")), source = open(model);
    for (size_t i = 0; i < weir_tensor_directory_count(source.get()); i++) {
        const weir_tensor *const from = weir_tensor_directory_at(source.get(), i),
                                 *const to = weir_tensor_directory_find(own.get(), from->name);
        ASSERT_NE(to, nullptr);
        if (from->dtype != to->dtype) continue;
        EXPECT_EQ(memcmp(from->data, to->data, from->bytes), 0) << from->name;
    }
}

TEST_F(Gguf, EveryTypeThatIsWrittenIsRead)
{
    const char model[] = "tests/golden/models/tq-k/tq-k-q6_k.gguf";
    const std::string file =
        imatrix("blk.0.ffn_up.weight", std::vector<float>(256, 1.0f), { 10.0f }, 256);
    const auto types = weir_test::every_nth(
        { "f32",    "f16",    "bf16",   "q8_0",   "q4_0",   "q4_1",    "q5_0",   "q5_1",
          "q2_k",   "q2_k_s", "q3_k_s", "q3_k_m", "q3_k_l", "q4_k_s",  "q4_k_m", "q5_k_s",
          "q5_k_m", "q6_k",   "iq4_nl", "iq4_xs", "iq3_m",  "iq3_xxs", "iq2_xs", "iq2_xxs",
          "iq1_m",  "iq1_s",  "tq1_0",  "tq2_0",  "mxfp4",  "nvfp4",   "q1_0",   "q2_0" },
        4
    );
    for (const char *const type : types) {
        const bool is_iq = type[0] == 'i';
        const Outcome o = convert({ model, path("out.gguf"), type, false, false, 1,
                                    is_iq ? file : std::string() });
        ASSERT_EQ(o.status, WEIR_OK) << type << ": " << o.error.text;
        const Directory own = open(path("out.gguf"));
        ASSERT_TRUE(own) << type;
        EXPECT_EQ(std::filesystem::file_size(path("out.gguf")), o.result.bytes) << type;
    }
}

TEST_F(Gguf, FewBitsNeedAnImportanceMatrix)
{
    const char model[] = "tests/golden/models/tq-k/tq-k-q6_k.gguf";
    for (const char *const type : { "iq3_xxs", "iq3_xs", "iq2_m", "iq2_xxs", "iq1_s" }) {
        const Outcome o = convert({ model, path("out.gguf"), type });
        EXPECT_EQ(o.status, WEIR_ECONFIG) << type;
        EXPECT_NE(std::string(o.error.text).find("`weir imatrix`"), std::string::npos)
            << o.error.text;
        EXPECT_FALSE(std::filesystem::exists(path("out.gguf")));
    }
    const Outcome enough = convert({ model, path("out.gguf"), "iq3_s" });
    EXPECT_EQ(enough.status, WEIR_OK) << enough.error.text;
    EXPECT_EQ(enough.result.importance.n_missing, 0u);
    /* An importance matrix of one tensor: the others are counted. */
    const std::string file =
        imatrix("blk.0.ffn_up.weight", std::vector<float>(256, 1.0f), { 10.0f }, 256);
    const Outcome few = convert({ model, path("out.gguf"), "iq2_xs", false, false, 1, file });
    EXPECT_EQ(few.status, WEIR_OK) << few.error.text;
    EXPECT_EQ(few.result.importance.n_found, 1u);
    EXPECT_GT(few.result.importance.n_missing, 0u);
    EXPECT_LT(few.result.importance.n_missing, few.result.importance.n_quantised - 1);
}

TEST_F(Gguf, AnImportanceMatrixChangesItsTensorOnly)
{
    std::vector<float> sums(64, 1.0f);
    for (size_t i = 0; i < sums.size(); i += 4) sums[i] = 5000.0f;
    const std::string file = imatrix(kTensor, sums, { 10.0f }, 64);
    ASSERT_EQ(convert({ kModel, path("plain.gguf"), "q4_0" }).status, WEIR_OK);
    const Outcome o = convert({ kModel, path("out.gguf"), "q4_0", false, false, 1, file });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    const Directory with = open(path("out.gguf")), plain = open(path("plain.gguf"));
    for (size_t i = 0; i < weir_tensor_directory_count(plain.get()); i++) {
        const weir_tensor *const a = weir_tensor_directory_at(plain.get(), i),
                                 *const b = weir_tensor_directory_find(with.get(), a->name);
        EXPECT_EQ(memcmp(a->data, b->data, a->bytes) == 0, strcmp(a->name, kTensor) != 0)
            << a->name;
    }
}

TEST_F(Gguf, AnImportanceMatrixThatIsNotUsedIsAnError)
{
    const std::string file = imatrix("another.weight", std::vector<float>(64, 1.0f), { 1 }, 64);
    const Outcome other = convert({ kModel, path("out.gguf"), "q4_0", false, false, 1, file });
    EXPECT_EQ(other.status, WEIR_EMISMATCH);
    EXPECT_NE(std::string(other.error.text).find("of another one"), std::string::npos);
    const Outcome plain = convert({ kModel, path("out.gguf"), "f16", false, false, 1, file });
    EXPECT_EQ(plain.status, WEIR_EMISMATCH);
    EXPECT_NE(std::string(plain.error.text).find("nothing is quantised"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(path("out.gguf")));
}

TEST_F(Gguf, AnExpertThatWasNeverUsedHasNoImportance)
{
    const char model[] = "tests/golden/families/gpt-oss/gpt-oss-f16.gguf",
               tensor[] = "blk.0.ffn_gate_exps.weight"; /* [6, 32, 64] */
    std::vector<float> sums(6 * 64, 1.0f);
    for (size_t i = 0; i < sums.size(); i += 4) sums[i] = 5000.0f;
    const std::string file = imatrix(tensor, sums, { 1, 0, 1, 1, 1, 1 }, 64);
    ASSERT_EQ(convert({ model, path("plain.gguf"), "q4_0" }).status, WEIR_OK);
    const Outcome o = convert({ model, path("out.gguf"), "q4_0", false, false, 1, file });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    EXPECT_EQ(o.result.importance.n_found, 5u);
    const Directory with = open(path("out.gguf")), plain = open(path("plain.gguf"));
    const weir_tensor *const a = weir_tensor_directory_find(plain.get(), tensor),
                             *const b = weir_tensor_directory_find(with.get(), tensor);
    ASSERT_EQ(a->dtype, WEIR_Q4_0);
    const size_t bytes = a->bytes / 6;
    for (size_t e = 0; e < 6; e++)
        EXPECT_EQ(memcmp(a->data + e * bytes, b->data + e * bytes, bytes) == 0, e == 1) << e;
}

TEST_F(Gguf, HostileImportanceMatrices)
{
    const struct {
        std::vector<float> sums, counts;
        int64_t n_in;
        const char *type, *says;
    } bad[] = {
        { std::vector<float>(64, -1.0f), { 1 }, 64, "imatrix", "no mean of squares" },
        { std::vector<float>(64, INFINITY), { 1 }, 64, "imatrix", "no mean of squares" },
        { std::vector<float>(32, 1.0f), { 1 }, 32, "imatrix", "has not the sizes" },
        { std::vector<float>(128, 1.0f), { 1, 1 }, 64, "imatrix", "has not the sizes" },
        { std::vector<float>(64, 1.0f), { 1, 2 }, 64, "imatrix", "has not the sizes" },
        { std::vector<float>(64, 1.0f), { 1 }, 64, "model", "is no importance matrix" },
    };
    for (const auto &b : bad) {
        const std::string file = imatrix(kTensor, b.sums, b.counts, b.n_in, b.type);
        const Outcome o = convert({ kModel, path("out.gguf"), "q4_0", false, false, 1, file });
        EXPECT_NE(o.status, WEIR_OK) << b.says;
        EXPECT_NE(std::string(o.error.text).find(b.says), std::string::npos) << o.error.text;
        EXPECT_FALSE(std::filesystem::exists(path("out.gguf")));
    }
}

} // namespace
