// tests/unit/kernels/support.cc
#include "tests/unit/kernels/support.h"

#include <cstdlib>
#include <limits>

#include "engine/formats/tensor_directory.h"
#include "tests/normal.h"
#include "tests/sanitizer.h"

#ifndef WEIR_TEST_ISAS
#define WEIR_TEST_ISAS(X, op) X(op, v4) X(op, v3) X(op, v2)
#endif
#define WEIR_DECLARE(op, isa) extern "C" const weir_kernel weir_kernel_omp_##op##_##isa;
#define WEIR_DECLARE_ALL(op) WEIR_TEST_ISAS(WEIR_DECLARE, op)
WEIR_EACH_OP(WEIR_DECLARE_ALL)
WEIR_DECLARE_ALL(gated_delta_rule_chunk)

namespace weir_test {

static bool runs_here(const std::string &name)
{
    __builtin_cpu_init();
    const std::string isa = name.substr(name.rfind('.') + 1);
    if (isa == "v4") return __builtin_cpu_supports("x86-64-v4");
    if (isa == "v3") return __builtin_cpu_supports("x86-64-v3");
    return !has_sanitizer() || !__builtin_cpu_supports("x86-64-v3");
}

std::vector<const weir_kernel *> omp_rows(weir_op op)
{
#define WEIR_ADDRESS(name, isa) &weir_kernel_omp_##name##_##isa,
#define WEIR_ADDRESS_ALL(name) WEIR_TEST_ISAS(WEIR_ADDRESS, name)
    static const weir_kernel *const all[] = { WEIR_EACH_OP(WEIR_ADDRESS_ALL)
                                                  WEIR_ADDRESS_ALL(gated_delta_rule_chunk) };
    std::vector<const weir_kernel *> rows;
    for (const weir_kernel *row : all)
        if (row->op == op && runs_here(row->name)) rows.push_back(row);
    return rows;
}

const weir_kernel *ref_row(weir_op op)
{
#define WEIR_REF(name) &weir_kernel_ref_##name,
    static const weir_kernel *const all[] = { WEIR_EACH_OP(WEIR_REF) };
    for (const weir_kernel *row : all)
        if (row->op == op) return row;
    return nullptr;
}

weir_status run(const weir_kernel &kernel, const void *args, int n_threads)
{
    const size_t bytes = kernel.scratch ? kernel.scratch(args) : 0;
    const size_t floats = bytes / sizeof(float) + 16;
    float *const scratch =
        static_cast<float *>(std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64));
    for (size_t i = 0; i < floats; i++) scratch[i] = std::numeric_limits<float>::quiet_NaN();
    weir_kernel_context context = {};
    context.n_threads = n_threads;
    context.scratch = scratch;
    context.scratch_bytes = bytes;
    const weir_status status = kernel.run(&context, args);
    std::free(scratch);
    return status;
}

Floats random_floats(size_t n, uint32_t seed, float scale)
{
    std::mt19937 rng(seed);
    Normal normal(scale);
    Floats x(n);
    for (float &value : x) value = normal(rng);
    return x;
}

void expect_close(
    const Floats &x, const Floats &want, double atol, double rtol, const std::string &what
)
{
    ASSERT_EQ(x.size(), want.size()) << what;
    double worst = -1;
    size_t at = 0;
    for (size_t i = 0; i < x.size(); i++) {
        const double excess = std::fabs((double)x[i] - (double)want[i]) /
                              (atol + rtol * std::fabs((double)want[i]) + 1e-300);
        if (!(excess <= worst)) worst = excess, at = i;
        if (std::isnan(excess)) break;
    }
    EXPECT_LE(worst, 1.0) << what << ": element " << at << " is " << x[at] << ", want " << want[at];
}

bool same_bits(const Floats &a, const Floats &b)
{
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Pages::Pages(
    weir_kv_format k_format, weir_kv_format v_format, int64_t n_kv_heads, int64_t key_dim,
    int64_t value_dim, int64_t n_positions
)
    : stride_((n_positions + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS)
{
    const int64_t unsealed_bytes = weir_kv_unsealed_bytes(k_format, v_format, key_dim, value_dim);
    for (int64_t i = 0; i < n_kv_heads * stride_; i++) {
        storage_.emplace_back(weir_kv_bytes(k_format, v_format, key_dim, value_dim), 0);
        unsealed_storage_.emplace_back(unsealed_bytes, 0);
    }
    for (auto &page : storage_) table_.push_back(page.data());
    for (auto &page : unsealed_storage_)
        unsealed_table_.push_back(unsealed_bytes > 0 ? page.data() : nullptr);
}

weir_kv_segment Pages::segment(int32_t first_row, int32_t n_rows, int32_t n_past) const
{
    weir_kv_segment segment = {};
    segment.pages = table_.data(), segment.page_stride = stride_;
    segment.first_row = first_row, segment.n_rows = n_rows, segment.n_past = n_past;
    segment.unsealed_pages = unsealed_table_.data() + n_past / WEIR_PAGE_TOKENS,
    segment.unsealed_stride = stride_;
    return segment;
}

void Pages::hide_unsealed(int64_t page)
{
    for (size_t i = (size_t)page; i < unsealed_table_.size(); i += (size_t)stride_)
        unsealed_table_[i] = nullptr;
}

static const weir_tensor *find(const std::string &name)
{
    static weir_tensor_directory *directory = [] {
        weir_tensor_directory *opened = nullptr;
        weir_error error = {};
        const weir_status status =
            weir_tensor_directory_open(&opened, "tests/golden/models/modules.safetensors", &error);
        EXPECT_EQ(status, WEIR_OK);
        return opened;
    }();
    const weir_tensor *const tensor =
        directory ? weir_tensor_directory_find(directory, name.c_str()) : nullptr;
    EXPECT_NE(tensor, nullptr) << name;
    return tensor;
}

template <class T> static std::vector<T> copy(const weir_tensor *tensor, weir_dtype dtype)
{
    if (!tensor) return {};
    EXPECT_EQ(tensor->dtype, dtype);
    std::vector<T> values(tensor->bytes / sizeof(T));
    std::memcpy(values.data(), tensor->data, tensor->bytes);
    return values;
}

Floats golden(const std::string &name) { return copy<float>(find(name), WEIR_F32); }
std::vector<int32_t> golden_integers(const std::string &name)
{
    return copy<int32_t>(find(name), WEIR_I32);
}

} // namespace weir_test
