/* kernels/cuda/emulate/types.h - CUDA's keywords and types for a host compiler: qualifiers,
 * vectors, halves. */
#pragma once
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* One copy per function, in a section that is reset for every block. */
#define __shared__ __attribute__((section("weir_shared"))) static

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define WEIR_EMULATE_VECTORS(type, name, bytes)                                                    \
    struct __align__(2 * bytes) name##2 { type x, y; };                                            \
    struct __align__(4 * bytes > 16 ? 16 : 4 * bytes) name##4 { type x, y, z, w; };                \
    inline name##2 make_##name##2(type x, type y) { return { x, y }; }                             \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return { x, y, z, w }; }
WEIR_EMULATE_VECTORS(float, float, 4)
WEIR_EMULATE_VECTORS(double, double, 8)
WEIR_EMULATE_VECTORS(int, int, 4)
WEIR_EMULATE_VECTORS(unsigned, uint, 4)
WEIR_EMULATE_VECTORS(short, short, 2)
WEIR_EMULATE_VECTORS(unsigned short, ushort, 2)
WEIR_EMULATE_VECTORS(signed char, char, 1)
WEIR_EMULATE_VECTORS(unsigned char, uchar, 1)
WEIR_EMULATE_VECTORS(long long, longlong, 8)
#undef WEIR_EMULATE_VECTORS

namespace weir_emulate {
template <class To, class From> inline To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "bits_as");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
/* Conversion without the instruction is a call, so all 2^16 results are computed once. */
inline float half_value(uint32_t bits)
{
    static const auto *const values = [] {
        static float all[1 << 16];
        for (uint32_t i = 0; i < 1 << 16; i++) all[i] = (float)bits_as<_Float16>((uint16_t)i);
        return &all;
    }();
    return (*values)[bits];
}
} // namespace weir_emulate

/* ---- halves ---------------------------------------------------------------------------------- */
struct __half {
    uint16_t bits;
};
struct __align__(4) __half2 {
    __half x, y;
};
struct __nv_bfloat16 {
    uint16_t bits;
};
struct __align__(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __half half;
typedef __half2 half2;

inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(unsigned short bits) { return { bits }; }
inline float __half2float(__half h) { return weir_emulate::half_value(h.bits); }
inline __half __float2half_rn(float x) { return { weir_emulate::bits_as<uint16_t>((_Float16)x) }; }
inline __half __float2half(float x) { return __float2half_rn(x); }
inline __half2 __floats2half2_rn(float x, float y)
{
    return { __float2half_rn(x), __float2half_rn(y) };
}
inline __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
inline float2 __half22float2(__half2 v) { return { __half2float(v.x), __half2float(v.y) }; }
inline __half2 __halves2half2(__half x, __half y) { return { x, y }; }
inline float __low2float(__half2 v) { return __half2float(v.x); }
inline float __high2float(__half2 v) { return __half2float(v.y); }

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return { bits }; }
inline float __bfloat162float(__nv_bfloat16 h)
{
    return weir_emulate::bits_as<float>((uint32_t)h.bits << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    const uint32_t bits = weir_emulate::bits_as<uint32_t>(x);
    if (x != x) return { 0x7FFF };
    return { (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16) };
}
inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return { __float2bfloat16_rn(x), __float2bfloat16_rn(y) };
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return { __bfloat162float(v.x), __bfloat162float(v.y) };
}
inline float __low2float(__nv_bfloat162 v) { return __bfloat162float(v.x); }
inline float __high2float(__nv_bfloat162 v) { return __bfloat162float(v.y); }
