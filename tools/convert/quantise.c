#include "tools/convert/quantise.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/abi/convert.h"
#include "tools/convert/blocks.h"

enum { BLOCK_MAX = 256 };

/* One block; a copy, because rows of a file are not aligned for the block's type. */
#define BLOCK(name)                                                                                \
    static void put_##name(unsigned char *out, const float *x, const float *w)                     \
    {                                                                                              \
        weir_block_##name block;                                                                   \
        weir_quantise_##name(&block, x, w);                                                        \
        memcpy(out, &block, sizeof block);                                                         \
    }
BLOCK(q8_0)
BLOCK(q4_0)
BLOCK(q4_1)
BLOCK(q5_0)
BLOCK(q5_1)
BLOCK(iq4_nl)
BLOCK(mxfp4)
BLOCK(q2_k)
BLOCK(q3_k)
BLOCK(q4_k)
BLOCK(q5_k)
BLOCK(q6_k)
BLOCK(iq4_xs)
BLOCK(iq3_s)
BLOCK(iq3_xxs)
BLOCK(iq2_s)
BLOCK(iq2_xs)
BLOCK(iq2_xxs)
BLOCK(iq1_s)
BLOCK(iq1_m)
BLOCK(tq1_0)
BLOCK(tq2_0)
BLOCK(nvfp4)
BLOCK(q2_0)
BLOCK(q1_0)
#undef BLOCK

typedef void (*put_block)(unsigned char *out, const float *x, const float *w);

typedef struct type {
    weir_dtype dtype;
    put_block put; /* NULL: a plain type */
} type;

static const type types[] = {
    { WEIR_F32, NULL },          { WEIR_F16, NULL },          { WEIR_BF16, NULL },
    { WEIR_Q8_0, put_q8_0 },     { WEIR_Q4_0, put_q4_0 },     { WEIR_Q4_1, put_q4_1 },
    { WEIR_Q5_0, put_q5_0 },     { WEIR_Q5_1, put_q5_1 },     { WEIR_IQ4_NL, put_iq4_nl },
    { WEIR_MXFP4, put_mxfp4 },   { WEIR_Q2_K, put_q2_k },     { WEIR_Q3_K, put_q3_k },
    { WEIR_Q4_K, put_q4_k },     { WEIR_Q5_K, put_q5_k },     { WEIR_Q6_K, put_q6_k },
    { WEIR_IQ4_XS, put_iq4_xs }, { WEIR_IQ3_S, put_iq3_s },   { WEIR_IQ3_XXS, put_iq3_xxs },
    { WEIR_IQ2_S, put_iq2_s },   { WEIR_IQ2_XS, put_iq2_xs }, { WEIR_IQ2_XXS, put_iq2_xxs },
    { WEIR_IQ1_S, put_iq1_s },   { WEIR_IQ1_M, put_iq1_m },   { WEIR_TQ1_0, put_tq1_0 },
    { WEIR_TQ2_0, put_tq2_0 },   { WEIR_NVFP4, put_nvfp4 },   { WEIR_Q2_0, put_q2_0 },
    { WEIR_Q1_0, put_q1_0 },
};

static const type *find(weir_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype) return &types[i];
    return NULL;
}

/* The largest magnitude that the type is given. */
static float limit_of(weir_dtype dtype)
{
    if (dtype == WEIR_NVFP4) return 448.0f * 6.0f;
    return dtype == WEIR_F32 || dtype == WEIR_BF16 || dtype == WEIR_MXFP4 ? 3.3e38f : 65504.0f;
}

static weir_status check_row(const float *x, int64_t n, weir_dtype dtype, weir_error *error)
{
    const float limit = limit_of(dtype);
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= limit)) at = i; /* also NaN */
    if (at < 0) return WEIR_OK;
    if (!isfinite(x[at]))
        return weir_error_set(
            error, WEIR_EFORMAT, "element %lld of a row is not finite", (long long)at
        );
    return weir_error_set(
        error, WEIR_EFORMAT, "element %lld of a row is %g; %s takes up to %g: use bf16 or f32",
        (long long)at, (double)x[at], weir_dtype_of(dtype).name, (double)limit
    );
}

/* The importance of a block's columns. Columns that a text never used count a little, so that they
 * are not lost. */
static void block_importance(float *w, const float *importance, int64_t n)
{
    double sum = 0.0; /* of an f32's range and more */
    for (int64_t i = 0; importance != NULL && i < n; i++) sum += (double)importance[i];
    for (int64_t i = 0; i < n; i++)
        w[i] = importance != NULL && sum > 0.0
                   ? (float)((double)importance[i] / sum + 1e-5 / (double)n)
                   : 1.0f;
}

static void quantise_plain(unsigned char *out, weir_dtype dtype, const float *x, int64_t n)
{
    if (dtype == WEIR_F32) {
        memcpy(out, x, (size_t)n * sizeof *x);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const uint16_t half =
            dtype == WEIR_F16 ? weir_f16_from_f32(x[i]) : weir_bf16_from_f32(x[i]);
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

static void quantise_row(
    unsigned char *out, const type *t, const float *x, int64_t n, const float *importance
)
{
    const weir_dtype_info info = weir_dtype_of(t->dtype);
    float w[BLOCK_MAX];
    if (t->put == NULL) {
        quantise_plain(out, t->dtype, x, n);
        return;
    }
    for (int64_t i = 0; i < n; i += info.block_elements, out += info.block_bytes) {
        block_importance(w, importance != NULL ? importance + i : NULL, info.block_elements);
        t->put(out, x + i, w);
    }
}

weir_status weir_quantise(
    void *out, weir_dtype dtype, const float *x, int64_t n_rows, int64_t n, const float *importance,
    weir_error *error
)
{
    const type *const t = find(dtype);
    const size_t row_bytes = weir_row_bytes(dtype, n);
    WEIR_ASSERT(t != NULL && n % weir_dtype_of(dtype).block_elements == 0);
    for (int64_t r = 0; r < n_rows; r++) WEIR_TRY(check_row(x + r * n, n, dtype, error));
    /* A team of one takes memory, too, without which the runtime ends the process. */
    if (omp_get_max_threads() == 1) {
        for (int64_t r = 0; r < n_rows; r++)
            quantise_row((unsigned char *)out + (size_t)r * row_bytes, t, x + r * n, n, importance);
        return WEIR_OK;
    }
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < n_rows; r++)
        quantise_row((unsigned char *)out + (size_t)r * row_bytes, t, x + r * n, n, importance);
    return WEIR_OK;
}
