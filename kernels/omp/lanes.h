/* kernels/omp/lanes.h - the only code that differs between targets: how the lanes of a kernel are
 * mapped to threads and registers.
 *
 *   host      1 thread per team, its lanes are SIMD registers: LANES is `omp simd`, no barriers
 *   nvptx     128 threads per team, one lane each: LANES is empty, barriers are real
 *   emulated  WEIR_EMULATE_LANES threads on the CPU, one lane each: the device's control flow under
 *             a debugger or TSan
 *
 * Every file of kernels/omp is compiled once per target with
 * -DWEIR_ISA=v2|v3|v4|emulated|nvptx and exports one row, WEIR_K_ROW(file name). A region has the
 * shape
 *     TEAMS(n_units, the pointers that the region uses)
 *     {   team-shared arrays
 *         TEAM_LANES
 *         for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step())
 *             unit(u, lane_thread());   }
 * so a team forks once, units are assigned round robin, and the result of a unit never depends on
 * the number of teams. */
#pragma once
#include <assert.h>
#include <float.h>
#include <omp.h>
#include <stdint.h>

#include "kernels/abi/convert.h"
#include "kernels/abi/ops.h"
#if defined(__AVX2__) && !defined(__NVPTX__)
#include <immintrin.h>
#endif

/* ---- names ----------------------------------------------------------------------------------- */
#define WEIR_PASTE3_(a, b, c) a##b##_##c
#define WEIR_PASTE3(a, b, c) WEIR_PASTE3_(a, b, c)
#define WEIR_TEXT_(a) #a
#define WEIR_TEXT(a) WEIR_TEXT_(a)
#define WEIR_K(op)                                                                                 \
    WEIR_PASTE3(weir_k_omp_, op, WEIR_ISA) /* weir_k_omp_rmsnorm_v4: the run function        */
#define WEIR_K_ROW(op)                                                                             \
    WEIR_PASTE3(weir_kernel_omp_, op, WEIR_ISA) /* weir_kernel_omp_rmsnorm_v4: its row */
#define WEIR_K_NAME(text)                                                                          \
    "omp." text "." WEIR_TEXT(WEIR_ISA) /* "omp.rmsnorm.v4"                               */

#define WEIR_PRAGMA(text) _Pragma(#text)
#define WEIR_INLINE static inline __attribute__((always_inline))
#define WEIR_NOINLINE static __attribute__((noinline))
#define UNROLL WEIR_PRAGMA(unroll)

/* Both halves of a GPU build take the device's values: the host's half computes the number of units
 * and the size of teams from them. */
#define WEIR_HAS_GPU_nvptx 1
#if WEIR_PASTE3(WEIR_HAS_, GPU, WEIR_ISA)
#define WEIR_GPU_LANES
#endif

/* ---- threads and loops ----------------------------------------------------------------------- */
#if defined(WEIR_GPU_LANES)
enum { LANE_THREADS = 128 };
#elif defined(WEIR_EMULATE_LANES)
enum { LANE_THREADS = WEIR_EMULATE_LANES };
#else
enum { LANE_THREADS = 1 };
#endif

/* LANES stands before a loop whose iterations are independent; LANES_SUM adds into x. UNROLL_DEVICE
 * unrolls where an array must live in registers of many threads, and leaves the loop alone where it
 * lives in L1. INLINE_DEVICE is for large functions with a call per unit: on devices arrays that
 * they take must be registers; on the host they are compiled by themselves, since clang's loop
 * passes take time by the square of a function's loops. */
#if defined(WEIR_GPU_LANES) || defined(WEIR_EMULATE_LANES)
#define LANES
#define LANES_SUM(x)
#define TEAM_BARRIER WEIR_PRAGMA(omp barrier)
#define UNROLL_DEVICE WEIR_PRAGMA(unroll)
#define INLINE_DEVICE WEIR_INLINE
#define PREFETCH(p) ((void)(p))
#else
#define LANES WEIR_PRAGMA(omp simd simdlen(16))
#define LANES_SUM(x) WEIR_PRAGMA(omp simd reduction(+ : x) simdlen(16))
#define TEAM_BARRIER
#define UNROLL_DEVICE WEIR_PRAGMA(nounroll)
#define INLINE_DEVICE WEIR_NOINLINE
#define PREFETCH(p) __builtin_prefetch((p), 0, 3)
#endif

/* ---- launch shape ---------------------------------------------------------------------------- */
#if defined(WEIR_EMULATE_LANES)
enum {
    DEVICE_LANE_THREADS = WEIR_EMULATE_LANES,
    DEVICE_TEAMS_MAX = 2
}; /* lanes are threads of this machine */
#else
enum { DEVICE_LANE_THREADS = 128, DEVICE_TEAMS_MAX = 65535 };
#endif

/* The builds that have a device to query. Elsewhere the query would cost a failing dlsym in libomp:
 * 0.4 us and three allocations. */
#define WEIR_HAS_DEVICE_nvptx 1
#define WEIR_HAS_DEVICE_offload 1

static inline bool lane_on_device(const weir_kernel_context *context)
{
#if WEIR_PASTE3(WEIR_HAS_, DEVICE, WEIR_ISA)
    return omp_get_num_devices() > 0 && context->omp_device != omp_get_initial_device();
#else
    (void)context;
    return false;
#endif
}

static inline int lane_teams(const weir_kernel_context *context, int64_t n_units)
{
    int64_t most = context->n_threads > 0 ? context->n_threads : omp_get_max_threads();
    if (lane_on_device(context)) most = DEVICE_TEAMS_MAX;
    return (int)(n_units < most ? n_units : most);
}

static inline int lane_threads(const weir_kernel_context *context)
{
    return lane_on_device(context) ? DEVICE_LANE_THREADS : LANE_THREADS;
}

/* TEAMS precedes the block of a region, in a function that has the kernel's `context`; TEAM_LANES
 * precedes what every lane of a team runs. On the host both are omitted: libomp builds a league
 * anew for every `teams` (1.6 us and six allocations, 0.8 us and none for `parallel`), and a region
 * of one lane inside costs as much again. Threads without a unit idle: a team of another size would
 * be built anew, and a team of one allocates. */
#pragma omp declare target
#if defined(WEIR_EMULATE_LANES) || WEIR_PASTE3(WEIR_HAS_, DEVICE, WEIR_ISA)
#define TEAMS(n_units, ...)                                                                        \
    WEIR_PRAGMA(omp target teams is_device_ptr(__VA_ARGS__) device(context->omp_device)            \
                    num_teams(lane_teams(context, n_units)) thread_limit(lane_threads(context)))
#define TEAM_LANES WEIR_PRAGMA(omp parallel num_threads(LANE_THREADS))
WEIR_INLINE int64_t lane_first_unit(void)
{
    assert(
        omp_get_num_threads() == LANE_THREADS &&
        "num_threads is a request: the runtime's limits gave the team fewer lanes"
    );
    return omp_get_team_num();
}
WEIR_INLINE int64_t lane_unit_step(void) { return omp_get_num_teams(); }
#else
#define TEAMS(n_units, ...) WEIR_PRAGMA(omp parallel num_threads(lane_teams(context, INT64_MAX)))
#define TEAM_LANES
WEIR_INLINE int64_t lane_first_unit(void) { return omp_get_thread_num(); }
WEIR_INLINE int64_t lane_unit_step(void) { return omp_get_num_threads(); }
#endif
#pragma omp end declare target

/* ---- vectors: LANE_WIDTH values that one thread holds in one register ------------------------ */
/* LANE_ROWS rows of LANE_VECTORS vectors are the accumulators of a register-blocked product: they
 * fill the register file. */
#if defined(WEIR_GPU_LANES) || defined(WEIR_EMULATE_LANES)
enum { LANE_WIDTH = 1, LANE_ROWS = 4, LANE_VECTORS = 1 };
#elif defined(__AVX512F__)
#define LANE_WIDTH_IS_16 1
enum { LANE_WIDTH = 16, LANE_ROWS = 8, LANE_VECTORS = 2 };
#elif defined(__AVX__)
#define LANE_WIDTH_IS_8 1
enum { LANE_WIDTH = 8, LANE_ROWS = 4, LANE_VECTORS = 2 };
#else
enum { LANE_WIDTH = 4, LANE_ROWS = 4, LANE_VECTORS = 2 };
#endif

#pragma omp declare target

#if defined(WEIR_GPU_LANES) || defined(WEIR_EMULATE_LANES)
typedef float lane_float;
typedef int32_t lane_int;
typedef uint32_t lane_uint;
WEIR_INLINE lane_float lane_load(const float *p) { return *p; }
WEIR_INLINE lane_float lane_load_part(const float *p, int64_t n) { return n > 0 ? *p : 0.0f; }
WEIR_INLINE void lane_store_part(float *p, lane_float x, int64_t n)
{
    if (n > 0) *p = x;
}
WEIR_INLINE void lane_store(float *p, lane_float x) { *p = x; }
WEIR_INLINE lane_float lane_load_half(const _Float16 *p) { return (float)*p; }
WEIR_INLINE lane_int lane_iota(void) { return 0; }
WEIR_INLINE float lane_first(lane_float x) { return x; }
WEIR_INLINE float lane_max_of(lane_float x) { return x; }
WEIR_INLINE float lane_sum_of(lane_float x) { return x; }
#else
typedef float lane_float __attribute__((ext_vector_type(LANE_WIDTH)));
typedef int32_t lane_int __attribute__((ext_vector_type(LANE_WIDTH)));
typedef uint32_t lane_uint __attribute__((ext_vector_type(LANE_WIDTH)));
WEIR_INLINE lane_float lane_load(const float *p)
{
    lane_float x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
WEIR_INLINE void lane_store(float *p, lane_float x) { __builtin_memcpy(p, &x, sizeof x); }
/* Loads the first n lanes; the others are zero or unchanged. Any n. */
WEIR_INLINE lane_float lane_load_part(const float *p, int64_t n)
{
    if (n >= LANE_WIDTH) return lane_load(p);
    float part[LANE_WIDTH] = { 0 };
    for (int64_t i = 0; i < n; i++) part[i] = p[i];
    return lane_load(part);
}
WEIR_INLINE void lane_store_part(float *p, lane_float x, int64_t n)
{
    if (n >= LANE_WIDTH) {
        lane_store(p, x);
        return;
    }
    float part[LANE_WIDTH];
    lane_store(part, x);
    for (int64_t i = 0; i < n; i++) p[i] = part[i];
}
WEIR_INLINE lane_int lane_iota(void)
{
    lane_int x;
    UNROLL
    for (int i = 0; i < LANE_WIDTH; i++) x[i] = i;
    return x;
}
#if defined(__F16C__)
WEIR_INLINE lane_float lane_load_half(const _Float16 *p)
{
    typedef _Float16 lane_half __attribute__((ext_vector_type(LANE_WIDTH)));
    lane_half x;
    __builtin_memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, lane_float);
}
#else
/* Without F16C: move exponent and mantissa into place, rebias by a product (exact, subnormals too),
 * restore infinities and NaN. */
WEIR_INLINE lane_float lane_load_half(const _Float16 *p)
{
    typedef uint16_t lane_bits __attribute__((ext_vector_type(LANE_WIDTH)));
    lane_bits bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    const lane_int x = __builtin_convertvector(bits, lane_int), magnitude = x & 0x7fff;
    union {
        lane_int i;
        lane_float f;
    } y = { .i = magnitude << 13 };
    y.f *= 0x1p112f;
    y.i |= (x & 0x8000) << 16;
    y.i |= (magnitude >= 0x7c00) & 0x7f800000;
    return y.f;
}
#endif
WEIR_INLINE float lane_first(lane_float x) { return x[0]; }
/* By halves, so that the code and not the compiler fixes the order of the sum. */
WEIR_INLINE float lane_max_of(lane_float x)
{
    float t[LANE_WIDTH];
    __builtin_memcpy(t, &x, sizeof t);
    UNROLL
    for (int n = LANE_WIDTH / 2; n > 0; n /= 2) {
        UNROLL
        for (int i = 0; i < n; i++) t[i] = t[i] > t[i + n] ? t[i] : t[i + n];
    }
    return t[0];
}
WEIR_INLINE float lane_sum_of(lane_float x)
{
    float t[LANE_WIDTH];
    __builtin_memcpy(t, &x, sizeof t);
    UNROLL
    for (int n = LANE_WIDTH / 2; n > 0; n /= 2) {
        UNROLL
        for (int i = 0; i < n; i++) t[i] += t[i + n];
    }
    return t[0];
}
#endif

/* ---- codes: 32-bit words, bytes and halves to lanes ------------------------------------------ */
#if defined(WEIR_GPU_LANES) || defined(WEIR_EMULATE_LANES)
typedef uint32_t lane_uint;
WEIR_INLINE lane_uint lane_load_words(const uint32_t *p) { return *p; }
WEIR_INLINE lane_uint lane_load_bytes(const uint8_t *p) { return *p; }
WEIR_INLINE lane_float lane_load_bf16(const uint16_t *p) { return weir_bf16_to_f32(*p); }
WEIR_INLINE lane_float lane_from_int(lane_int x) { return (float)x; }
WEIR_INLINE lane_float lane_from_bits(lane_uint x) { return weir_f32_from_bits(x); }
WEIR_INLINE lane_float lane_lookup(const float *table, lane_uint index)
{
    return table[index & 15];
}
#else
typedef uint32_t lane_uint __attribute__((ext_vector_type(LANE_WIDTH)));
typedef uint8_t lane_bytes __attribute__((ext_vector_type(LANE_WIDTH)));
typedef uint16_t lane_shorts __attribute__((ext_vector_type(LANE_WIDTH)));
WEIR_INLINE lane_uint lane_load_words(const uint32_t *p)
{
    lane_uint x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
WEIR_INLINE lane_uint lane_load_bytes(const uint8_t *p)
{
    lane_bytes x;
    __builtin_memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, lane_uint);
}
WEIR_INLINE lane_float lane_from_bits(lane_uint x)
{
    lane_float y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
WEIR_INLINE lane_float lane_load_bf16(const uint16_t *p)
{
    lane_shorts x;
    __builtin_memcpy(&x, p, sizeof x);
    return lane_from_bits(__builtin_convertvector(x, lane_uint) << 16);
}
WEIR_INLINE lane_float lane_from_int(lane_int x) { return __builtin_convertvector(x, lane_float); }
/* table[index & 15] of 16 entries. A register permutation where there is one: gathers cost a load
 * per lane. */
#if defined(__AVX512F__)
WEIR_INLINE lane_float lane_lookup(const float *table, lane_uint index)
{
    return (lane_float)_mm512_permutexvar_ps((__m512i)index, _mm512_loadu_ps(table));
}
#elif defined(__AVX2__)
WEIR_INLINE lane_float lane_lookup(const float *table, lane_uint index)
{
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)index);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)index);
    return (lane_float)_mm256_blendv_ps(low, high, (__m256)(index << 28)); /* by bit 3 */
}
#else
WEIR_INLINE lane_float lane_lookup(const float *table, lane_uint index)
{
    lane_float y;
    UNROLL
    for (int i = 0; i < LANE_WIDTH; i++) y[i] = table[index[i] & 15];
    return y;
}
#endif
#endif
/* One half, the same on all targets. */
WEIR_INLINE float lane_half(const void *p)
{
#if defined(__F16C__) || defined(__NVPTX__)
    return (float)*(const _Float16 *)p;
#else
    return weir_f16_to_f32(*(const uint16_t *)p);
#endif
}

/* mask ? a : b in every lane. (The warning: clang takes a vector condition for a scalar one.) */
_Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wconversion\""
) WEIR_INLINE lane_float lane_select(lane_int mask, lane_float a, lane_float b)
{
    return mask ? a : b;
}
_Pragma("clang diagnostic pop")

/* a * b + c, rounded once if the target has FMA. Explicit where bits must not depend on which
 * product the compiler fuses. */
#if defined(__FMA__) || defined(__NVPTX__)
    WEIR_INLINE lane_float lane_fma(lane_float a, lane_float b, lane_float c)
{
    return __builtin_elementwise_fma(a, b, c);
}
#else
    WEIR_INLINE lane_float lane_fma(lane_float a, lane_float b, lane_float c)
{
    return a * b + c;
}
#endif
WEIR_INLINE lane_float lane_sqrt(lane_float x) { return __builtin_elementwise_sqrt(x); }
WEIR_INLINE lane_float lane_max(lane_float a, lane_float b) { return lane_select(a > b, a, b); }

/* 2^x with relative error 1e-7, 0 below 2^-125; x <= 127. No conversion traps, whatever the bits of
 * x. */
WEIR_INLINE lane_float lane_exp2(lane_float x)
{
    const float to_integer =
        0x1.8p23f; /* adding it rounds to nearest and leaves the integer in the low bits */
    union {
        lane_float f;
        lane_uint u;
    } n = { .f = x + to_integer }, y;
    const lane_float f = x - (n.f - to_integer);
    y.f =
        (((((1.54531634e-4f * f + 1.33908633e-3f) * f + 9.61808302e-3f) * f + 5.55035695e-2f) * f +
          2.40226507e-1f) *
             f +
         6.93147182e-1f) *
            f +
        1.0f;
    y.u += n.u << 23;
    return lane_select(x < -125.0f, (lane_float)0.0f, y.f);
}

/* ---- scalar functions that `omp simd` loops can vectorise ------------------------------------ */
WEIR_INLINE float lane_exp(float x)
{
    const float to_integer = 0x1.8p23f, log2e = 1.44269504f, ln2_high = 0.693359375f,
                ln2_low = -2.12194440e-4f;
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    union {
        float f;
        int32_t i;
        uint32_t u;
    } n = { .f = x * log2e + to_integer }, scale;
    const float k = n.f - to_integer, f = (x - k * ln2_high) - k * ln2_low;
    const float p =
        ((((1.9875691e-4f * f + 1.3981999e-3f) * f + 8.3334519e-3f) * f + 4.1665796e-2f) * f +
         1.6666665e-1f) *
            f +
        0.5f;
    scale.u = (n.u + 127u) << 23;
    return (p * f * f + f + 1.0f) * scale.f;
}
/* ln x, x normal: ln m = 2 atanh((m - 1) / (m + 1)) for m of sqrt(1/2) .. sqrt(2), to 1e-7. */
WEIR_INLINE float lane_log(float x)
{
    union {
        float f;
        uint32_t u;
    } y = { .f = x };
    const int32_t exponent = (int32_t)(y.u - 0x3F3504F3u) >> 23;
    y.u -= (uint32_t)exponent << 23;
    const float s = (y.f - 1.0f) / (y.f + 1.0f), z = s * s;
    const float series =
        (((z * (1.0f / 9.0f) + 1.0f / 7.0f) * z + 0.2f) * z + 1.0f / 3.0f) * z + 1.0f;
    return (float)exponent * 0.69314718f + 2.0f * s * series;
}
/* ln(1 + e^x). ln(w) u / (w - 1), w = 1 + u rounded, loses no digits of a small u. */
WEIR_INLINE float lane_softplus(float x)
{
    const float u = lane_exp(x), w = 1.0f + u, y = lane_log(w) * u / (w - 1.0f);
    return x > 20.0f ? x : w == 1.0f ? u : y;
}
WEIR_INLINE float lane_sigmoid(float x) { return 1.0f / (1.0f + lane_exp(-x)); }
WEIR_INLINE float lane_silu(float x) { return x / (1.0f + lane_exp(-x)); }
/* For any angle up to 1e9, to 1e-7: f32 range reduction loses all digits beyond some thousands, so
 * the multiple of pi/2 is subtracted in double; then polynomials on [-pi/4, pi/4]. */
WEIR_INLINE void lane_sine_cosine(float angle, float *sine, float *cosine)
{
    const double two_over_pi = 0x1.45f306dc9c883p-1, half_pi_high = 0x1.921fb54442d18p0,
                 half_pi_low = 0x1.1a62633145c07p-54;
    const double to_integer = 0x1.8p52;
    union {
        double f;
        int64_t i;
    } quarter = { .f = (double)angle * two_over_pi + to_integer };
    const double k = quarter.f - to_integer;
    const float r = (float)(((double)angle - k * half_pi_high) - k * half_pi_low), r2 = r * r;
    const float s =
        r + r * r2 * (-1.6666654611e-1f + r2 * (8.3321608736e-3f + r2 * -1.9515295891e-4f));
    const float c =
        1.0f + r2 * (-0.5f + r2 * (4.166664568298827e-2f +
                                   r2 * (-1.388731625493765e-3f + r2 * 2.443315711809948e-5f)));
    const bool swapped = (quarter.i & 1) != 0;
    const float sine_of = swapped ? c : s, cosine_of = swapped ? s : c;
    *sine = (quarter.i & 2) != 0 ? -sine_of : sine_of;
    *cosine = ((quarter.i + 1) & 2) != 0 ? -cosine_of : cosine_of;
}

WEIR_INLINE int lane_thread(void) { return LANE_THREADS == 1 ? 0 : omp_get_thread_num(); }

#pragma omp end declare target
