// The row that multiplies by cuBLASLt, against a library that does what its manual says, on the
// host: layouts, bias, accumulation, choices kept.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/weight.h"
#include "tests/unit/matmul/fixture.h"

extern "C" const weir_kernel weir_kernel_cuda_cublas_matmul;

namespace weir_test {
namespace {

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
};
struct Desc {
    int compute = -1, transposed_a = 0, epilogue = 1;
    const float *bias = nullptr;
};
struct Preference {
    std::map<int, uint64_t> values;
};
int open_things = 0, chosen = 0;
Preference last_preference;

float value_of(const void *data, int type, int64_t i)
{
    return type == WEIR_LT_BF16 ? weir_bf16_to_f32(static_cast<const uint16_t *>(data)[i])
                                : static_cast<const float *>(data)[i];
}

// D = A^T B + beta C + bias by columns.
int product(
    weir_lt /*handle*/, weir_lt desc_, const void * /*alpha*/, const void *a, weir_lt a_,
    const void *b, weir_lt b_, const void *beta, const void *c, weir_lt c_, void *d, weir_lt d_,
    const weir_lt_algorithm *algorithm, void * /*workspace*/, size_t /*bytes*/, void * /*stream*/
)
{
    const auto &desc = *static_cast<Desc *>(desc_);
    const auto &A = *static_cast<Layout *>(a_), &B = *static_cast<Layout *>(b_),
               &C = *static_cast<Layout *>(c_), &D = *static_cast<Layout *>(d_);
    if (algorithm->data[0] != 77 || desc.compute != WEIR_LT_COMPUTE_F32 ||
        desc.transposed_a != WEIR_LT_TRANSPOSED)
        return 7;
    if (A.rows != B.rows || A.columns != D.rows || B.columns != D.columns || A.type != B.type ||
        D.type != WEIR_LT_F32)
        return 7;
    if (A.leading < (int64_t)A.rows || B.leading < (int64_t)B.rows || D.leading < (int64_t)D.rows)
        return 7;
    for (uint64_t j = 0; j < D.columns; j++)
        for (uint64_t i = 0; i < D.rows; i++) {
            double sum = 0;
            for (uint64_t k = 0; k < A.rows; k++)
                sum += (double)value_of(a, A.type, (int64_t)(i * (uint64_t)A.leading + k)) *
                       (double)value_of(b, B.type, (int64_t)(j * (uint64_t)B.leading + k));
            const float factor = *static_cast<const float *>(beta);
            if (factor != 0)
                sum += factor * static_cast<const float *>(c)[j * (uint64_t)C.leading + i];
            if (desc.epilogue == WEIR_LT_EPILOGUE_BIAS) sum += desc.bias[i];
            static_cast<float *>(d)[j * (uint64_t)D.leading + i] = (float)sum;
        }
    return 0;
}

template <class T> int make(weir_lt *out) { return *out = new T(), open_things++, 0; }
template <class T> int drop(weir_lt thing)
{
    return delete static_cast<T *>(thing), open_things--, 0;
}

weir_cublas fake_library()
{
    weir_cublas library = {};
    library.lt.desc_create = [](weir_lt *out, int compute, int) {
        return make<Desc>(out), static_cast<Desc *>(*out)->compute = compute, 0;
    };
    library.lt.desc_set = [](weir_lt desc_, int attribute, const void *value, size_t bytes) {
        auto &desc = *static_cast<Desc *>(desc_);
        void *to = attribute == WEIR_LT_DESC_TRANSPOSE_A ? (void *)&desc.transposed_a
                   : attribute == WEIR_LT_DESC_EPILOGUE  ? (void *)&desc.epilogue
                                                         : (void *)&desc.bias;
        std::memcpy(to, value, bytes);
        return 0;
    };
    library.lt.desc_destroy = drop<Desc>;
    library.lt.layout_create = [](weir_lt *out, int type, uint64_t rows, uint64_t columns,
                                  int64_t leading) {
        make<Layout>(out);
        *static_cast<Layout *>(*out) = { type, rows, columns, leading };
        return 0;
    };
    library.lt.layout_destroy = drop<Layout>;
    library.lt.preference_create = make<Preference>;
    library.lt.preference_set = [](weir_lt preference, int attribute, const void *value,
                                   size_t bytes) {
        uint64_t number = 0;
        std::memcpy(&number, value, bytes);
        static_cast<Preference *>(preference)->values[attribute] = number;
        return 0;
    };
    library.lt.preference_destroy = drop<Preference>;
    library.lt.choose = [](weir_lt, weir_lt, weir_lt, weir_lt, weir_lt, weir_lt, weir_lt preference,
                           int, weir_lt_choice *choices, int *found) {
        last_preference = *static_cast<Preference *>(preference);
        choices->algorithm.data[0] = 77;
        *found = 1;
        chosen++;
        return 0;
    };
    library.lt.matmul = product;
    return library;
}

struct CudaWeight {
    std::vector<uint8_t> file;
    Memory memory;
    weir_weight weight = {};
    CudaWeight(weir_dtype dtype, int64_t n_out, int64_t n_in)
        : file(random_file(dtype, n_out * n_in, 3))
    {
        weight.n_out = n_out, weight.n_in = n_in, weight.dtype = dtype,
        weight.layout = WEIR_LAYOUT_CUDA;
        if (!weir_cuda_weight_bytes(&weight.bytes, dtype, n_out, n_in)) std::abort();
        memory = aligned_memory(weight.bytes);
        weight.data = memory.get();
        if (weir_cuda_pack_rows(memory.get(), dtype, file.data(), dtype, n_in, 0, n_out) != WEIR_OK)
            std::abort();
    }
};

weir_status run_with(weir_cublas *library, const weir_matmul_args &args)
{
    const size_t bytes = weir_kernel_cuda_cublas_matmul.scratch(&args);
    Memory scratch = aligned_memory(bytes);
    const weir_kernel_context context = { 0, 1, nullptr, scratch.get(), bytes, library };
    return weir_kernel_cuda_cublas_matmul.run(&context, &args);
}

TEST(Cublas, MultipliesAsTheReference)
{
    weir_cublas library = fake_library();
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F32 })
        for (const bool accumulate : { false, true }) {
            const int64_t n_in = 61, n_out = 19, n_rows = 33, stride = 23, x_stride = 64;
            const CudaWeight w(dtype, n_out, n_in);
            const auto x = random_rows(n_rows * x_stride, 5), bias = random_rows(n_out, 6),
                       before = random_rows(n_rows * stride, 7);
            std::vector<float> got = before, want = before;
            weir_matmul_args args = arguments(&w.weight, got.data(), x.data(), n_rows);
            args.x_stride = x_stride;
            args.outputs[0] = { &w.weight, got.data(), accumulate ? bias.data() : nullptr, stride,
                                accumulate };
            ASSERT_EQ(run_with(&library, args), WEIR_OK);
            args.outputs[0].dst = want.data();
            ASSERT_TRUE(run(weir_kernel_ref_matmul, args));
            for (size_t i = 0; i < got.size(); i++)
                EXPECT_NEAR(got[i], want[i], 1e-6 + 1e-6 * std::fabs(want[i]));
        }
    EXPECT_EQ(open_things, 0);
}

TEST(Cublas, KeepsItsChoices)
{
    weir_cublas library = fake_library();
    const CudaWeight w(WEIR_F32, 8, 16);
    const auto x = random_rows(200 * 16 + 1, 5);
    std::vector<float> dst(200 * 8 + 1);
    chosen = 0;
    const auto ask = [&](int64_t n_rows, int64_t x_at = 0) {
        return run_with(&library, arguments(&w.weight, dst.data(), x.data() + x_at, n_rows));
    };
    for (int i = 0; i < 3; i++) EXPECT_EQ(ask(40), WEIR_OK);
    EXPECT_EQ(chosen, 1);
    EXPECT_EQ(ask(41), WEIR_OK);
    EXPECT_EQ(ask(40, 1), WEIR_OK) << "another alignment is another choice";
    EXPECT_EQ(chosen, 3);
    EXPECT_EQ(last_preference.values[WEIR_LT_PREFER_ALIGNMENT_A], 16u);
    EXPECT_EQ(last_preference.values[WEIR_LT_PREFER_ALIGNMENT_A + 1], 4u);
    for (int64_t n_rows = 64; n_rows < 64 + 2 * WEIR_CUBLAS_KEPT; n_rows++)
        EXPECT_EQ(ask(n_rows), WEIR_OK);
    EXPECT_EQ(ask(41), WEIR_OK);
    EXPECT_EQ(chosen, 3 + 2 * WEIR_CUBLAS_KEPT + 1) << "the oldest are gone";
    library.lt.choose = [](weir_lt, weir_lt, weir_lt, weir_lt, weir_lt, weir_lt, weir_lt, int,
                           weir_lt_choice *, int *found) {
        *found = 0;
        return 0;
    };
    EXPECT_EQ(ask(199), WEIR_EDEVICE) << "no algorithm fits";
    EXPECT_EQ(open_things, 0);
}

TEST(Cublas, RejectsWithAReason)
{
    const CudaWeight w(WEIR_BF16, 8, 64), f16(WEIR_F16, 8, 64), q8(WEIR_Q8_0, 8, 64),
        f32(WEIR_F32, 8, 64);
    weir_matmul_args args = arguments(&w.weight, nullptr, nullptr, 100);
    weir_caps caps = {};
    const auto why = [&] {
        return std::string(weir_kernel_cuda_cublas_matmul.reject(&caps, &args));
    };
    EXPECT_EQ(why(), "needs sm_80");
    caps.cuda_capability = 90;
    EXPECT_EQ(weir_kernel_cuda_cublas_matmul.reject(&caps, &args), nullptr);
    args.n_rows = 4;
    EXPECT_EQ(why(), "few rows: memory binds, and cuda.matmul reads no more of it");
    args.n_rows = 100;
    for (const CudaWeight *other : { &f16, &q8 }) {
        args.outputs[0].weight = &other->weight;
        EXPECT_EQ(why(), "takes bf16 and f32 weights");
    }
    args.outputs[0].weight = &w.weight;
    args.outputs[1].weight = &f32.weight;
    args.n_outputs = 2;
    EXPECT_EQ(why(), "outputs of two types");
    args.n_outputs = 1;
    EXPECT_EQ(run_with(nullptr, args), WEIR_EUNSUPPORTED) << "the library is not there";
}

// Without a GPU the library is not there, or does not start: both are told.
TEST(Cublas, OpensOrSaysWhyNot)
{
    void *library = nullptr;
    char text[200] = "";
    const weir_status status = weir_cublas_open(&library, text, sizeof text);
    if (status == WEIR_OK)
        EXPECT_NE(library, nullptr);
    else
        EXPECT_EQ(std::string(text).find("cuBLASLt: "), 0u) << text;
    EXPECT_EQ(status == WEIR_OK, library != nullptr);
    weir_cublas_close(library);
    weir_cublas_close(nullptr);
    if (status != WEIR_OK) {
        EXPECT_EQ(weir_cublas_open(&library, nullptr, 0), status);
    }
}

} // namespace
} // namespace weir_test
