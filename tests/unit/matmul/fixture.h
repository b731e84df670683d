// tests/unit/matmul/fixture.h - random weights of every file type, packed as the engine packs them,
// and calls with guarded memory.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/abi/convert.h"
#include "kernels/onednn/kernels.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/kernels.h"
#include "offload/weights.h"
#include "tests/normal.h"

extern "C" const weir_kernel weir_kernel_ref_matmul;

namespace weir_test {

struct FreeAligned {
    void operator()(void *p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, FreeAligned>;
inline Memory aligned_memory(size_t bytes)
{
    return Memory((char *)std::aligned_alloc(64, (bytes + 127) / 64 * 64));
}

// A stream with n threads, for packing.
struct Stream {
    weir_stream *stream = nullptr;
    explicit Stream(int n_threads = 2, const char *isa = nullptr)
    {
        weir_stream_options options = {};
        options.n_threads = n_threads, options.isa = isa;
        if (weir_stream_open(&stream, &options, nullptr) != WEIR_OK) std::abort();
    }
    Stream(const Stream &) = delete;
    ~Stream() { weir_stream_close(stream); }
};

inline std::vector<weir_dtype> quantised_dtypes()
{
    std::vector<weir_dtype> dtypes;
    for (int i = 0; i < WEIR_DTYPE_COUNT; i++)
        if (weir_dtype_of((weir_dtype)i).quantised) dtypes.push_back((weir_dtype)i);
    return dtypes;
}

// The scale of an IQ1_M block: its four nibbles are the high ones of the last bytes.
inline void put_iq1_m_scale(uint8_t *block, float scale)
{
    const uint16_t bits = weir_f16_from_f32(scale);
    for (int i = 0; i < 4; i++) {
        uint8_t &byte = block[49 + 2 * i];
        byte = (uint8_t)((byte & 15) | (bits >> (4 * i) & 15) << 4);
    }
}

// File bytes of n elements with block scales around 0.01, finite where the type keeps them: random
// codes, or with `bytes` these, repeated.
inline std::vector<uint8_t> random_file(
    weir_dtype dtype, int64_t n, uint32_t seed, const std::vector<uint8_t> &bytes = {}
)
{
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    const weir_dtype_info info = weir_dtype_of(dtype);
    std::vector<uint8_t> file(weir_row_bytes(dtype, n));
    const auto half = [&](size_t at, float x) {
        const uint16_t bits = weir_f16_from_f32(x);
        std::memcpy(file.data() + at, &bits, 2);
    };
    if (!info.quantised) {
        for (int64_t i = 0; i < n; i++) {
            const float x = 0.1f * value(random);
            const uint16_t bits = dtype == WEIR_BF16 ? weir_bf16_from_f32(x) : weir_f16_from_f32(x);
            std::memcpy(
                file.data() + (size_t)i * (size_t)info.block_bytes,
                dtype == WEIR_F32 ? (const void *)&x : &bits, (size_t)info.block_bytes
            );
        }
        return file;
    }
    for (size_t i = 0; i < file.size(); i++)
        file[i] = bytes.empty() ? (uint8_t)random() : bytes[i % bytes.size()];
    for (size_t at = 0; at < file.size(); at += (size_t)info.block_bytes) {
        const float d = 0.01f * value(random), m = 0.05f * value(random);
        switch (dtype) {
        case WEIR_Q4_1:
        case WEIR_Q5_1: half(at, d), half(at + 2, m); break;
        case WEIR_Q4_K:
        case WEIR_Q5_K: half(at, d / 16), half(at + 2, m / 16); break;
        case WEIR_Q2_K: half(at + 80, d), half(at + 82, m / 16); break;
        case WEIR_Q3_K: half(at + 108, d / 8); break;
        case WEIR_Q6_K: half(at + 208, d / 64); break;
        case WEIR_IQ1_S: half(at, d / 8); break;
        case WEIR_IQ1_M: put_iq1_m_scale(&file[at], d / 8); break;
        case WEIR_IQ2_XXS:
        case WEIR_IQ2_XS:
        case WEIR_IQ2_S:
        case WEIR_IQ3_XXS:
        case WEIR_IQ3_S:
        case WEIR_IQ4_XS: half(at, d / 64); break;
        case WEIR_TQ1_0: half(at + 52, d); break;
        case WEIR_TQ2_0: half(at + 64, d); break;
        case WEIR_NVFP4:
            for (size_t i = 0; i < 4; i++) file[at + i] = (uint8_t)(16 + random() % 24);
            break;
        case WEIR_MXFP4: file[at] = (uint8_t)(118 + random() % 3); break;
        default: half(at, d); break;
        }
    }
    return file;
}

struct ForAmx {};

// A packed weight with its file and memory. The file lies at an odd address, as it may in a mapped
// checkpoint.
struct Weight {
    std::vector<uint8_t> file;
    Memory memory;
    weir_weight weight = {};
    weir_dtype dtype;

    Weight(
        weir_stream *stream, weir_dtype dtype_, int64_t n_out, int64_t n_in, uint32_t seed = 1,
        weir_activations activations = WEIR_ACTIVATIONS_FAST, const std::vector<uint8_t> &bytes = {}
    )
        : file(random_file(dtype_, n_out * n_in, seed, bytes)), dtype(dtype_)
    {
        file.insert(file.begin(), 0);
        const weir_matrix_source source = { file.data() + 1, n_out, n_in, dtype, false };
        if (weir_weight_plan(&weight, stream, &source, activations, nullptr) != WEIR_OK)
            std::abort();
        memory = aligned_memory(weight.bytes);
        if (weir_weight_pack(&weight, stream, &source, memory.get(), nullptr) != WEIR_OK)
            std::abort();
    }
    // For AMX, whatever this machine has.
    Weight(ForAmx, weir_dtype dtype_, int64_t n_out, int64_t n_in, uint32_t seed = 1)
        : file(random_file(dtype_, n_out * n_in, seed)), dtype(dtype_)
    {
        file.insert(file.begin(), 0);
        weight.n_out = n_out, weight.n_in = n_in, weight.dtype = WEIR_BF16;
        weight.layout = WEIR_LAYOUT_AMX;
        if (!weir_amx_bytes(&weight.bytes, n_out, n_in)) std::abort();
        memory = aligned_memory(weight.bytes);
        std::vector<float> rows(WEIR_AMX_PANEL * WEIR_AMX_CHUNK, 7.0f);
        for (int64_t p = 0; p < weir_amx_panels(n_out); p++)
            if (weir_amx_pack_panel(
                    memory.get() + (size_t)p * weir_amx_panel_bytes(n_in), file.data() + 1, dtype,
                    n_out, n_in, p, rows.data()
                ) != WEIR_OK)
                std::abort();
        weight.data = memory.get();
    }
    Weight(const Weight &) = delete;
    ~Weight() { weir_weight_release(&weight); }

    weir_weight rows() const // the same matrix as it lies in the file
    {
        weir_weight plain = {};
        plain.data = file.data() + 1;
        plain.bytes = file.size() - 1;
        plain.n_out = weight.n_out, plain.n_in = weight.n_in, plain.dtype = dtype,
        plain.layout = WEIR_LAYOUT_ROWS;
        return plain;
    }
};

inline std::vector<float> random_rows(int64_t n, uint32_t seed)
{
    std::mt19937 random(seed);
    Normal normal;
    std::vector<float> x((size_t)n);
    for (auto &value : x) value = normal(random) * (random() % 64 == 0 ? 8.0f : 1.0f);
    return x;
}

inline weir_matmul_args arguments(
    const weir_weight *weight, float *dst, const float *x, int64_t n_rows
)
{
    weir_matmul_args args = {};
    args.x = x, args.n_rows = n_rows, args.n_in = weight->n_in, args.x_stride = weight->n_in,
    args.n_outputs = 1;
    args.outputs[0] = { weight, dst, nullptr, weight->n_out, false };
    return args;
}

// Runs with exactly the scratch that the row asks for; false if it wrote beyond it.
inline bool run(const weir_kernel &kernel, const weir_matmul_args &args, int n_threads = 2)
{
    const size_t bytes =
        (kernel.scratch ? kernel.scratch(&args) : 0) + kernel.thread_scratch * (size_t)n_threads;
    Memory scratch = aligned_memory(bytes + 64);
    std::memset(scratch.get(), 0xA5, bytes + 64);
    const weir_kernel_context context = { 0, n_threads, nullptr, scratch.get(), bytes };
    if (kernel.run(&context, &args) != WEIR_OK) return false;
    for (size_t i = bytes; i < bytes + 64; i++)
        if ((uint8_t)scratch.get()[i] != 0xA5) return false;
    return true;
}

// One call with four weights of the same inputs and at most 96 outputs has the bits of a call for
// each: every second with a bias, the last two added to what is there.
inline void expect_outputs(
    const std::vector<const weir_kernel *> &kernels, const std::array<const Weight *, 4> &weights
)
{
    const int64_t n_in = weights[0]->weight.n_in, n_rows = 13, x_stride = n_in + 8;
    const auto x = random_rows(n_rows * x_stride, 9), bias = random_rows(96, 10),
               before = random_rows(n_rows * 120, 11);
    for (const weir_kernel *kernel : kernels) {
        std::vector<float> got[4], single(n_rows * 96);
        weir_matmul_args args = arguments(&weights[0]->weight, nullptr, x.data(), n_rows);
        args.x_stride = x_stride, args.n_outputs = 4;
        for (int o = 0; o < 4; o++) {
            got[o] = before;
            args.outputs[o] = { &weights[(size_t)o]->weight, got[o].data(),
                                o % 2 ? bias.data() : nullptr, 120 - o, o >= 2 };
        }
        ASSERT_TRUE(run(*kernel, args, 3));
        for (int o = 0; o < 4; o++) {
            weir_matmul_args one =
                arguments(&weights[(size_t)o]->weight, single.data(), x.data(), n_rows);
            one.x_stride = x_stride;
            ASSERT_TRUE(run(*kernel, one));
            const int64_t n_out = weights[(size_t)o]->weight.n_out, stride = 120 - o;
            for (int64_t at = 0; at < n_rows * 120; at++) {
                const int64_t r = at / stride, i = at % stride;
                float want = before[(size_t)at];
                if (r < n_rows && i < n_out) {
                    const float value =
                        single[(size_t)(r * n_out + i)] + (o % 2 ? bias[(size_t)i] : 0.0f);
                    want = o >= 2 ? before[(size_t)at] + value : value;
                }
                ASSERT_EQ(got[o][(size_t)at], want)
                    << kernel->name << " output " << o << " row " << r << " column " << i;
            }
        }
    }
}

} // namespace weir_test
