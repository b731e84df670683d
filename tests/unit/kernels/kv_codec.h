// Rows that are written to pages of each KV format and read back.
#pragma once
#include <algorithm>

#include "kernels/ref/kv_codec.h"
#include "tests/unit/kernels/support.h"

namespace weir_test {

inline const weir_kv_side sides[] = { WEIR_KV_K, WEIR_KV_V };
inline const int64_t dims[] = { 16, 20, 32, 64, 77, 80, 96, 128, 192, 256 };

inline std::vector<weir_kv_format> formats()
{
    std::vector<weir_kv_format> all;
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++) all.push_back((weir_kv_format)f);
    return all;
}

inline bool takes(weir_kv_format format, int64_t dim)
{
    return !weir_kv_format_reject(format, WEIR_KV_K, dim) &&
           !weir_kv_format_reject(format, WEIR_KV_V, dim);
}

inline std::string text_of(weir_kv_format format, int64_t dim)
{
    return std::string(weir_kv_format_name(format)) + " " + std::to_string(dim);
}

inline std::vector<const weir_kernel *> write_rows()
{
    std::vector<const weir_kernel *> rows = omp_rows(WEIR_OP_KV_WRITE);
    rows.push_back(&weir_kernel_ref_kv_write);
    return rows;
}

// Two KV heads of n rows each.
struct Rows {
    int64_t n, dim;
    Floats k, v;
    Rows(int64_t rows, int64_t d, uint32_t seed)
        : n(rows), dim(d), k(random_floats((size_t)(rows * 2 * d), seed, 2)),
          v(random_floats((size_t)(rows * 2 * d), seed + 1))
    {
    }
};

inline weir_status write(
    const weir_kernel &kernel, const Pages &pages, const Rows &rows, weir_kv_format format,
    int64_t first, int64_t n
)
{
    const weir_kv_segment segment = pages.segment(0, (int32_t)n, (int32_t)first);
    const int64_t stride = 2 * rows.dim;
    const weir_kv_write_args args = { rows.k.data() + first * stride,
                                      rows.v.data() + first * stride,
                                      &segment,
                                      1,
                                      2,
                                      rows.dim,
                                      rows.dim,
                                      stride,
                                      stride,
                                      format,
                                      format,
                                      {} };
    return run(kernel, &args);
}

inline Rows read(
    const weir_kernel &kernel, const Pages &pages, int64_t n, int64_t dim, weir_kv_format format
)
{
    Rows rows(n, dim, 1);
    const weir_kv_segment segment = pages.segment(0, (int32_t)n, 0);
    const weir_kv_read_args args = { rows.k.data(), rows.v.data(), &segment, 1,      2,      dim,
                                     dim,           2 * dim,       2 * dim,  format, format, {} };
    EXPECT_EQ(run(kernel, &args), WEIR_OK);
    return rows;
}

} // namespace weir_test
