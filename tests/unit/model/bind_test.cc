/* Parameters of experts and fused tensors: what is loaded, and what is said about a file that does
 * not fit. */
#include <memory>

#include "engine/model/model_internal.h"
#include "offload/weights.h"
#include "tests/unit/model/gguf_tensors.h"
#include "tests/unit/model/support.h"
#include "tests/unit/model/toy_blocks.h"

namespace {

using support::some_bytes;
using support::Stored;

const weir_block *const blocks[] = { &toy_experts, nullptr };

enum { E = 4, USED = 1, D = 64, I = 32, S = 48 }; /* D: of the golden Qwen3 */

struct Close {
    void operator()(weir_arch_set *archs) const { weir_arch_set_close(archs); }
    void operator()(weir_tensor_directory *directory) const
    {
        weir_tensor_directory_close(directory);
    }
    void operator()(weir_stream *stream) const { weir_stream_close(stream); }
    void operator()(weir_ledger *ledger) const { weir_ledger_close(ledger); }
    void operator()(weir_model *model) const { weir_model_close(model); }
};
template <typename T> using Owned = std::unique_ptr<T, Close>;

/* The golden Qwen3 with an FFN whose tensors, the same for all layers, are in a file of their
 * own. */
class Bind : public ::testing::Test {
  protected:
    Bind()
    {
        weir_stream_options options = {};
        options.n_threads = 1;
        weir_stream *stream = nullptr;
        weir_ledger *ledger = nullptr;
        const size_t caps[WEIR_TIER_COUNT] = {};
        EXPECT_EQ(weir_stream_open(&stream, &options, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(weir_ledger_open(&ledger, caps), WEIR_OK);
        stream_.reset(stream);
        ledger_.reset(ledger);
        std::filesystem::create_directories(folder_ / "archs");
    }
    /* Binds with these entries of [tensor]; "": all fits. */
    std::string bind(
        const std::string &entries, const std::vector<Stored> &tensors, bool is_gguf = false,
        const std::string &options = ""
    )
    {
        model_.reset();
        std::string arch = support::read_file("configs/arch/qwen3.toml");
        arch = support::with(arch, "name     = \"qwen3\"", "name     = \"toy\"");
        arch = support::with(arch, "{ gguf = [\"qwen3\"], hf = [\"qwen3\"] }", "[]");
        arch = support::with(arch, "kind = \"swiglu\"", "kind = \"toy_experts\"\n" + options);
        arch = support::with(
            arch, "[shape]",
            "[shape]\nn_experts = { default = 4 }\nn_experts_used = { default = 1 }\nd_expert = { "
            "default = 32 }\nd_shared = { default = 48 }"
        );
        arch = support::with(arch, "skip     = {", "skip     = { gguf = [\"spare.{e}.\"],");
        support::write_file(folder_ / "archs/toy.toml", arch + entries);
        support::write_gguf(folder_ / "own.gguf", tensors);
        const std::string path = support::golden(is_gguf ? "qwen3/qwen3-bf16.gguf" : "qwen3");
        weir_arch_set *archs = nullptr;
        const weir_arch *toy = nullptr;
        error_ = {};
        if (weir_arch_set_open(&archs, (folder_ / "archs").c_str(), blocks, &error_) != WEIR_OK)
            return error_.text;
        archs_.reset(archs);
        open(&directory_, path);
        open(&own_, folder_ / "own.gguf");
        if (weir_arch_find(&toy, archs, "toy", directory_.get(), &error_) != WEIR_OK)
            return error_.text;
        weir_model_settings settings = {};
        settings.adapter = own_.get();
        settings.kv_format = { WEIR_KV_F16, WEIR_KV_F16 };
        weir_model *model = nullptr;
        if (weir_model_bind(&model, directory_.get(), toy, stream_.get(), &settings, &error_) !=
            WEIR_OK)
            return error_.text;
        model_.reset(model);
        return "";
    }
    void open(Owned<weir_tensor_directory> *out, const std::string &path)
    {
        weir_tensor_directory *directory = nullptr;
        EXPECT_EQ(weir_tensor_directory_open(&directory, path.c_str(), &error_), WEIR_OK)
            << error_.text;
        out->reset(directory);
    }
    const toy_experts_weights &load()
    {
        EXPECT_EQ(weir_model_load(model_.get(), ledger_.get(), nullptr, nullptr, &error_), WEIR_OK)
            << error_.text;
        return *static_cast<const toy_experts_weights *>(model_->layers[1].ffn_weights);
    }
    /* The weight has the bits of these rows, packed alone. */
    void expect_packed(
        const weir_weight &weight, const char *rows, int64_t n_out, int64_t n_in, weir_dtype dtype,
        bool is_grouped
    )
    {
        const weir_matrix_source source = { rows, n_out, n_in, dtype, is_grouped };
        weir_weight alone = {};
        ASSERT_EQ(
            weir_weight_plan(&alone, stream_.get(), &source, WEIR_ACTIVATIONS_FAST, &error_),
            WEIR_OK
        ) << error_.text;
        ASSERT_EQ(weight.bytes, alone.bytes);
        EXPECT_EQ(weight.layout, alone.layout);
        EXPECT_EQ(weight.layout == WEIR_LAYOUT_ONEDNN && is_grouped, false);
        const std::unique_ptr<void, decltype(&free)> memory(
            aligned_alloc(64, (alone.bytes + 63) / 64 * 64), free
        );
        ASSERT_EQ(weir_weight_pack(&alone, stream_.get(), &source, memory.get(), &error_), WEIR_OK)
            << error_.text;
        EXPECT_EQ(memcmp(weight.data, memory.get(), alone.bytes), 0);
        weir_weight_release(&alone);
    }
    support::Folder folder_;
    weir_error error_ = {};
    Owned<weir_stream> stream_;
    Owned<weir_ledger> ledger_;
    Owned<weir_arch_set> archs_;
    Owned<weir_tensor_directory> directory_, own_;
    Owned<weir_model> model_;
};

Stored stored(
    const std::string &name, std::vector<int64_t> shape, weir_dtype dtype = WEIR_F32, int seed = 1
)
{
    size_t n = 1;
    for (const int64_t d : shape) n *= static_cast<size_t>(d);
    return { name, std::move(shape), dtype, some_bytes(dtype, n, seed) };
}

size_t row_bytes(weir_dtype dtype, int64_t n) { return weir_row_bytes(dtype, n); }

/* Both forms of a parameter's names, and a fused tensor of gate and up. */
const char *const by_expert = "\"toy.gate\" = { gguf = \"gate.{e}\", hf = \"gate.{e}\" }\n"
                              "\"toy.down\" = { gguf = \"down.{e}\", hf = \"down.{e}\" }\n";
const char *const stacked = "\"toy.gate\" = { gguf = \"gate\", hf = \"gate\" }\n"
                            "\"toy.down\" = { gguf = \"down\", hf = \"down\" }\n";
const char *const fused =
    "\"toy.gate\" = { gguf = \"gate_up\", hf = [\"gate_up\", \"gate_up.{e}\", \"gate.{e}\"], "
    "fused = [\"toy.gate\", \"toy.up\"] }\n"
    "\"toy.up\" = { gguf = \"gate_up\", hf = [\"gate_up\", \"gate_up.{e}\", \"up.{e}\"], "
    "fused = [\"toy.gate\", \"toy.up\"] }\n"
    "\"toy.down\" = { gguf = \"down\", hf = \"down\" }\n";

std::vector<Stored> experts(weir_dtype dtype = WEIR_F32)
{
    std::vector<Stored> out;
    for (int e = 0; e < E; e++) {
        out.push_back(stored("gate." + std::to_string(e), { I, D }, dtype, e));
        out.push_back(stored("down." + std::to_string(e), { D, I }, dtype, 10 + e));
    }
    return out;
}

TEST_F(Bind, ATensorForEachExpert)
{
    for (const weir_dtype dtype : { WEIR_F32, WEIR_Q8_0 }) {
        const std::vector<Stored> tensors = experts(dtype);
        ASSERT_EQ(bind(by_expert, tensors), "");
        const toy_experts_weights &w = load();
        for (size_t e = 0; e < E; e++) {
            expect_packed(w.gate[e], tensors[2 * e].bytes.data(), I, D, dtype, true);
            expect_packed(w.down[e], tensors[2 * e + 1].bytes.data(), D, I, dtype, true);
        }
        EXPECT_EQ(w.up, nullptr);
    }
}

TEST_F(Bind, ATensorOfAllExperts)
{
    for (const bool is_gguf : { false, true }) {
        for (const weir_dtype dtype : { WEIR_F32, WEIR_Q8_0 }) {
            const Stored gate = stored("gate", { E, I, D }, dtype, 1),
                         down = stored("down", { E, D, I }, dtype, 2);
            ASSERT_EQ(bind(stacked, { gate, down }, is_gguf), "");
            const toy_experts_weights &w = load();
            for (size_t e = 0; e < E; e++) {
                const size_t gate_at = e * I * row_bytes(dtype, D),
                             down_at = e * D * row_bytes(dtype, I);
                expect_packed(w.gate[e], gate.bytes.data() + gate_at, I, D, dtype, true);
                expect_packed(w.down[e], down.bytes.data() + down_at, D, I, dtype, true);
            }
        }
    }
}

/* In one tensor of all experts, in one for each, and apart: the shape and the name decide. */
TEST_F(Bind, FusedExperts)
{
    const Stored down = stored("down", { E, D, I });
    for (const weir_dtype dtype : { WEIR_F32, WEIR_Q8_0 }) {
        const Stored all = stored("gate_up", { E, 2 * I, D }, dtype, 1);
        const size_t part = I * row_bytes(dtype, D);
        std::vector<Stored> each = { down }, apart = { down };
        for (size_t e = 0; e < E; e++) {
            const std::string at = "." + std::to_string(e);
            each.push_back(
                { "gate_up" + at, { 2 * I, D }, dtype, all.bytes.substr(2 * e * part, 2 * part) }
            );
            apart.push_back({ "gate" + at, { I, D }, dtype, all.bytes.substr(2 * e * part, part) });
            apart.push_back(
                { "up" + at, { I, D }, dtype, all.bytes.substr((2 * e + 1) * part, part) }
            );
        }
        for (const auto &tensors : { std::vector<Stored>{ all, down }, each, apart }) {
            ASSERT_EQ(bind(fused, tensors), "");
            const toy_experts_weights &w = load();
            for (size_t e = 0; e < E; e++) {
                const char *const rows = all.bytes.data() + 2 * e * part;
                expect_packed(w.gate[e], rows, I, D, dtype, true);
                expect_packed(w.up[e], rows + part, I, D, dtype, true);
            }
        }
    }
}

/* Its pages are released once: both parameters of both layers are packed from it. */
TEST_F(Bind, ATensorIsReleasedAfterItsLastMatrix)
{
    ASSERT_EQ(bind(fused, { stored("gate_up", { E, 2 * I, D }), stored("down", { E, D, I }) }), "");
    std::vector<size_t> uses, last;
    for (size_t i = 0; i < model_->n_matrices; i++) {
        if (std::string(model_->matrices[i].tensor->name) != "gate_up") continue;
        uses.push_back(i);
        if (model_->matrices[i].is_last) last.push_back(i);
    }
    EXPECT_EQ(uses.size(), 2u * 2 * E);
    EXPECT_EQ(last, std::vector<size_t>{ uses.back() });
}

/* Parts of unlike sizes; a parameter that the options do not want has no rows in the tensor. */
TEST_F(Bind, FusedMatricesAndVectors)
{
    const std::string list = "fused = { hf = [\"toy.a\", \"toy.b\", \"toy.c\"] } }\n",
                      biases = "fused = [\"toy.a_bias\", \"toy.c_bias\"]";
    const std::string entries =
        stacked + ("\"toy.a\" = { hf = \"abc\", " + list) + "\"toy.b\" = { hf = \"abc\", " + list +
        "\"toy.c\" = { hf = \"abc\", " + list + "\"toy.a_bias\" = { hf = \"bias\", " + biases +
        " }\n" + "\"toy.c_bias\" = { hf = \"bias\", hf_transform = \"one_plus\", " + biases +
        " }\n";
    for (const bool has_b : { false, true }) {
        const int64_t n = I + S + (has_b ? S : 0);
        const Stored abc = stored("abc", { n, D }, WEIR_Q8_0, 3), bias = stored("bias", { I + S });
        ASSERT_EQ(
            bind(
                entries, { stored("gate", { E, I, D }), stored("down", { E, D, I }), abc, bias },
                false, has_b ? "has_b = true" : ""
            ),
            ""
        );
        const toy_experts_weights &w = load();
        const size_t row = row_bytes(WEIR_Q8_0, D);
        const char *const rows = abc.bytes.data();
        expect_packed(*w.a, rows, I, D, WEIR_Q8_0, false);
        if (has_b) expect_packed(*w.b, rows + I * row, S, D, WEIR_Q8_0, false);
        EXPECT_EQ(w.b != nullptr, has_b);
        expect_packed(*w.c, rows + (size_t)(n - S) * row, S, D, WEIR_Q8_0, false);
        float values[I + S];
        memcpy(values, bias.bytes.data(), sizeof values);
        EXPECT_EQ(memcmp(w.a_bias, values, I * sizeof(float)), 0);
        for (int i = 0; i < S; i++) EXPECT_EQ(w.c_bias[i], values[I + i] + 1.0f);
    }
}

TEST_F(Bind, WhatOneRowReads)
{
    std::vector<Stored> tensors = experts();
    tensors.push_back(stored("spare.7.x", { 4 }));
    ASSERT_EQ(bind(by_expert, tensors, true), "");
    size_t bytes = 0;
    int64_t elements = 0;
    for (size_t i = 0; i < model_->n_matrices; i++) {
        const weir_weight &weight = model_->weights[i];
        if (weight.n_out * weight.n_in != I * D) continue;
        bytes += weight.bytes;
        elements += weight.n_out * weight.n_in;
    }
    EXPECT_EQ(elements, 2 * 2 * E * I * D) << "two parameters in two layers";
    EXPECT_EQ(
        weir_model_decode_bytes(model_.get()) + bytes / E * (E - USED),
        weir_model_weight_bytes(model_.get()) + weir_model_recurrent_bytes(model_.get())
    );
    EXPECT_GT(weir_model_parameters(model_.get()), elements);
    const char *names[8];
    EXPECT_EQ(weir_model_unused(model_.get(), names, 0), 6u) << "the checkpoint's own FFN";
}

/* ---- files that do not fit ------------------------------------------------------------------- */
TEST_F(Bind, AMissingExpertIsNamed)
{
    for (const int missing : { 0, 2, E - 1 }) {
        std::vector<Stored> tensors = experts();
        tensors.erase(tensors.begin() + 2 * missing);
        const std::string why = bind(by_expert, tensors);
        EXPECT_SAYS(
            why, "tensor gate." + std::to_string(missing) + " is missing (parameter \"toy.gate\""
        );
        EXPECT_EQ(why.find("down"), std::string::npos) << why;
    }
    std::vector<Stored> tensors = experts();
    tensors.erase(tensors.begin(), tensors.begin() + 5); /* of gate: 0, 1 and 2 */
    std::string why = bind(by_expert, tensors);
    EXPECT_SAYS(why, "tensor gate.0 is missing");
    EXPECT_SAYS(why, "tensor gate.2 is missing");
    EXPECT_EQ(why.find("gate.3"), std::string::npos) << why;
    EXPECT_SAYS(bind(by_expert, { stored("x", { 1 }) }), "tensor gate.0 is missing");
    EXPECT_SAYS(bind(stacked, { stored("down", { E, D, I }) }), "tensor gate is missing");
}

TEST_F(Bind, AWrongShapeIsNamed)
{
    std::vector<Stored> tensors = experts();
    tensors[4] = stored("gate.2", { D, I });
    EXPECT_SAYS(bind(by_expert, tensors), "tensor gate.2 is [64, 32], want [32, 64]");
    const Stored down = stored("down", { E, D, I });
    for (const std::vector<int64_t> &shape :
         { std::vector<int64_t>{ E - 1, I, D }, { I, D }, { E, D, I }, { E * I, D } }) {
        const std::string why = bind(stacked, { stored("gate", shape), down });
        EXPECT_SAYS(why, "], want [4, 32, 64]\n");
        EXPECT_EQ(why.find("and "), std::string::npos) << "once for each layer: " << why;
    }
    EXPECT_SAYS(
        bind(fused, { stored("gate_up", { E, 3 * I, D }), down }),
        "tensor gate_up is [4, 96, 64], want [4, 32, 64], or [4, 64, 64] with the rows of all"
    );
}

TEST_F(Bind, AnotherTypeIsNamed)
{
    std::vector<Stored> tensors = experts();
    tensors[6] = stored("gate.3", { I, D }, WEIR_Q8_0);
    EXPECT_SAYS(bind(by_expert, tensors), "tensor gate.3 is q8_0, but gate.0 is f32: all experts");
    EXPECT_SAYS(
        bind(
            "\"toy.gate\" = { hf = \"gate\", hf_transform = \"one_plus\" }\n"
            "\"toy.down\" = { hf = \"down\" }\n",
            { stored("gate", { E, I, D }), stored("down", { E, D, I }) }
        ),
        "tensor gate: a matrix cannot be transformed"
    );
}

/* Codes of MXFP4 blocks have one more dimension than their parameter. */
TEST_F(Bind, ScalesOfTooManyDimensionsAreRefused)
{
    std::vector<Stored> tensors = experts();
    tensors.push_back(stored("wide", { 2, 2, 2, D }));
    EXPECT_EQ(bind(by_expert + std::string("\"toy.wide\" = { hf = \"wide\" }\n"), tensors), "");
    EXPECT_SAYS(
        bind(
            by_expert +
                std::string("\"toy.wide\" = { hf = \"wide\", hf_scales = \"norm.weight\" }\n"),
            tensors
        ),
        "\"toy.wide\": hf_scales is for parameters of up to 5 dimensions, this one has 6"
    );
}

TEST_F(Bind, FusedRowsAreWholeBlocks)
{
    const std::string list = ", fused = [\"toy.c_bias\", \"toy.b_bias\"] }\n"; /* 48, 16 */
    const std::string why = bind(
        stacked + ("\"toy.c_bias\" = { hf = \"bias\"" + list) + "\"toy.b_bias\" = { hf = \"bias\"" +
            list,
        { stored("gate", { E, I, D }), stored("down", { E, D, I }),
          stored("bias", { 64 }, WEIR_Q8_0) }
    );
    EXPECT_SAYS(why, "tensor bias of q8_0: the rows of \"toy.b_bias\" are not whole blocks of 32");
}

/* ---- arch files ------------------------------------------------------------------------------ */
TEST_F(Bind, EntriesAreChecked)
{
    const std::vector<Stored> tensors = experts();
    const auto with_lists = [&](const std::string &a, const std::string &c) {
        return bind(
            by_expert + ("\"toy.a\" = { hf = \"ac\", fused = " + a + " }\n") +
                "\"toy.c\" = { hf = \"ac\", fused = " + c + " }\n",
            tensors
        );
    };
    const std::string ac = "[\"toy.a\", \"toy.c\"]", ca = "[\"toy.c\", \"toy.a\"]";
    EXPECT_SAYS(
        with_lists("[\"toy.a\", \"toy.cc\"]", ac),
        "unknown parameter in fused 'toy.cc'; the nearest is "
        "'toy.c'"
    );
    EXPECT_SAYS(
        with_lists("[\"toy.a\", \"toy.gate\"]", ac), "fused: \"toy.gate\" must have the same list"
    );
    EXPECT_SAYS(with_lists(ac, ca), "fused: \"toy.c\" must have the same list");
    EXPECT_SAYS(with_lists("[\"toy.a\", \"toy.a\"]", ac), "fused: \"toy.a\" is in the list twice");
    EXPECT_SAYS(with_lists("[]", ac), "fused: \"toy.a\" is not in the list itself");
    EXPECT_SAYS(with_lists("[\"toy.c\"]", "[\"toy.c\"]"), "\"toy.a\" is not in the list itself");
    EXPECT_SAYS(with_lists("{ hf = \"toy.a\" }", ac), "must be a list");
    const std::string kinds = "fused = [\"toy.a\", \"toy.a_bias\"] }\n";
    EXPECT_SAYS(
        bind(
            by_expert + ("\"toy.a\" = { hf = \"a\", " + kinds) + "\"toy.a_bias\" = { hf = \"a\", " +
                kinds,
            tensors
        ),
        "is not of the same block and kind"
    );
    EXPECT_SAYS(
        bind(by_expert + std::string("\"toy.a\" = { hf = [\"a\", \"a.{e}\"] }\n"), tensors),
        "\"toy.a\": {e} is the number of an expert"
    );
    EXPECT_SAYS(bind(by_expert + std::string("\"toy.a\" = \"a.{e}\"\n"), tensors), "{e} is");
}

} // namespace
