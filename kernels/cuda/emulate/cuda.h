/* kernels/cuda/emulate/cuda.h - the parts of CUDA that the overrides use, on the host: built-in
 * variables, warp functions, arithmetic, the runtime.
 *
 * Arithmetic is the host's: the device's fast functions (__expf, rsqrtf) are a few units in the
 * last place worse, which tolerances must allow for. */
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/emulate/block.h"
#include "kernels/cuda/emulate/types.h"

#define threadIdx (weir_emulate::place.thread)
#define blockIdx (weir_emulate::place.block)
#define blockDim (weir_emulate::place.block_shape)
#define gridDim (weir_emulate::place.grid_shape)

namespace weir_cuda {
struct facts {
    int multiprocessors, major, block_shared;
};
inline facts device_facts()
{
    const int capability = weir_emulate::capability();
    return { 2, capability / 10, (capability >= 90 ? 227 : 99) << 10 };
}
inline void let_next_start() {}
inline void wait_for_previous() { weir_emulate::wait_for_previous(); }
inline void prefetch(const void *) {}
inline void begin_kernel() { weir_emulate::wait_for_previous(); }
} // namespace weir_cuda

#define WEIR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    weir_emulate::launch(kernel, grid, block, shared_bytes, stream, __VA_ARGS__)
#define WEIR_DYNAMIC_SHARED(type, name)                                                            \
    type *const name = static_cast<type *>(weir_emulate::dynamic_shared())
#define WEIR_SWIZZLED_SHARED(type, name) WEIR_DYNAMIC_SHARED(type, name)

/* ---- the block ------------------------------------------------------------------------------- */
/* The caller's line. */
struct weir_emulate_here {
    weir_emulate::Site site;
    weir_emulate_here(const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : site{ file, line }
    {
    }
};
inline void __syncthreads(weir_emulate_here here = {}) { weir_emulate::barrier(0, here.site); }
inline int __syncthreads_or(int x, weir_emulate_here here = {})
{
    return weir_emulate::barrier(x != 0, here.site) != 0;
}
inline int __syncthreads_count(int x, weir_emulate_here here = {})
{
    return weir_emulate::barrier(x != 0, here.site);
}
inline int __syncthreads_and(int x, weir_emulate_here here = {})
{
    return weir_emulate::barrier(x == 0, here.site) == 0;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

/* ---- the warp -------------------------------------------------------------------------------- */
namespace weir_emulate {
struct Shuffle {
    uint64_t value;
    int from;
};
inline void shuffle(void *const *lanes, unsigned mask)
{
    uint64_t values[32] = {};
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) values[i] = static_cast<const Shuffle *>(lanes[i])->value;
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        auto *own = static_cast<Shuffle *>(lanes[i]);
        if (!(mask >> own->from & 1))
            die("lane %d reads lane %d, which takes no part in the shuffle", i, own->from);
        own->value = values[own->from];
    }
}
template <class T> inline T shuffled(unsigned mask, T x, int from, Site site)
{
    static_assert(sizeof(T) <= 8, "shuffles move up to 8 bytes");
    Shuffle arguments = { 0, from };
    std::memcpy(&arguments.value, &x, sizeof x);
    warp(mask, shuffle, &arguments, site);
    std::memcpy(&x, &arguments.value, sizeof x);
    return x;
}
struct Vote {
    unsigned value, ballot, sum;
};
inline void vote(void *const *lanes, unsigned mask)
{
    unsigned ballot = 0, sum = 0;
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        const unsigned value = static_cast<const Vote *>(lanes[i])->value;
        ballot |= (unsigned)(value != 0) << i, sum += value;
    }
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            static_cast<Vote *>(lanes[i])->ballot = ballot,
                             static_cast<Vote *>(lanes[i])->sum = sum;
}
inline Vote voted(unsigned mask, unsigned value, Site site)
{
    Vote arguments = { value, 0, 0 };
    warp(mask, vote, &arguments, site);
    return arguments;
}
} // namespace weir_emulate

template <class T>
inline T __shfl_sync(unsigned mask, T x, int from, int width = 32, weir_emulate_here here = {})
{
    const int own = weir_emulate::lane();
    return weir_emulate::shuffled(mask, x, (own & ~(width - 1)) | (from & (width - 1)), here.site);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32, weir_emulate_here here = {})
{
    const int own = weir_emulate::lane(), from = own ^ bits;
    return weir_emulate::shuffled(
        mask, x, from < (own & ~(width - 1)) + width ? from : own, here.site
    );
}
template <class T>
inline T __shfl_up_sync(
    unsigned mask, T x, unsigned by, int width = 32, weir_emulate_here here = {}
)
{
    const int own = weir_emulate::lane(), from = own - (int)by;
    return weir_emulate::shuffled(mask, x, from >= (own & ~(width - 1)) ? from : own, here.site);
}
template <class T>
inline T __shfl_down_sync(
    unsigned mask, T x, unsigned by, int width = 32, weir_emulate_here here = {}
)
{
    const int own = weir_emulate::lane(), from = own + (int)by;
    return weir_emulate::shuffled(
        mask, x, from < (own & ~(width - 1)) + width ? from : own, here.site
    );
}
inline void __syncwarp(unsigned mask = 0xffffffffu, weir_emulate_here here = {})
{
    weir_emulate::voted(mask, 0, here.site);
}
inline unsigned __ballot_sync(unsigned mask, int x, weir_emulate_here here = {})
{
    return weir_emulate::voted(mask, x != 0, here.site).ballot;
}
inline int __any_sync(unsigned mask, int x, weir_emulate_here here = {})
{
    return weir_emulate::voted(mask, x != 0, here.site).ballot != 0;
}
inline int __all_sync(unsigned mask, int x, weir_emulate_here here = {})
{
    return weir_emulate::voted(mask, x != 0, here.site).ballot == mask;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned x, weir_emulate_here here = {})
{
    return weir_emulate::voted(mask, x, here.site).sum;
}
inline int __reduce_add_sync(unsigned mask, int x, weir_emulate_here here = {})
{
    return (int)weir_emulate::voted(mask, (unsigned)x, here.site).sum;
}

/* ---- memory ---------------------------------------------------------------------------------- */
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline void __stcg(T *p, T x) { *p = x; }
template <class T> inline void __stcs(T *p, T x) { *p = x; }
template <class T> inline T atomicAdd(T *p, T x)
{
    const T old = *p;
    *p = old + x;
    return old;
}
template <class T> inline T atomicMax(T *p, T x)
{
    const T old = *p;
    *p = old > x ? old : x;
    return old;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline void sincospif(float x, float *sine, float *cosine)
{
    *sine = (float)std::sin(M_PI * (double)x);
    *cosine = (float)std::cos(M_PI * (double)x);
}
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline int __float2int_rn(float x) { return (int)std::nearbyint(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline int __float_as_int(float x) { return weir_emulate::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return weir_emulate::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return weir_emulate::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return weir_emulate::bits_as<float>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned which = selector >> 4 * i & 15u,
                       byte = (unsigned)(both >> 8 * (which & 7u)) & 255u;
        out |= (which & 8u ? (byte & 128u ? 255u : 0u) : byte) << 8 * i;
    }
    return out;
}
inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
#define WEIR_EMULATE_ORDER(type)                                                                   \
    inline type min(type x, type y) { return y < x ? y : x; }                                      \
    inline type max(type x, type y) { return x < y ? y : x; }
WEIR_EMULATE_ORDER(int)
WEIR_EMULATE_ORDER(unsigned)
WEIR_EMULATE_ORDER(long)
WEIR_EMULATE_ORDER(unsigned long)
WEIR_EMULATE_ORDER(long long)
WEIR_EMULATE_ORDER(float)
#undef WEIR_EMULATE_ORDER

/* ---- the runtime ----------------------------------------------------------------------------- */
typedef enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidConfiguration = 9
} cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8
} cudaFuncAttribute;

inline cudaError_t cudaGetLastError() { return (cudaError_t)weir_emulate::take_error(); }
inline const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "no device takes this";
}
template <class Kernel>
inline cudaError_t cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute, int bytes)
{
    return (cudaError_t)weir_emulate::allow_shared(reinterpret_cast<const void *>(kernel), bytes);
}
inline cudaError_t cudaMemsetAsync(void *to, int byte, size_t n, cudaStream_t = nullptr)
{
    std::memset(to, byte, n);
    return cudaSuccess;
}
