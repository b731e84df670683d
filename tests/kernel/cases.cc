// The list of cases per op, and the weights that fill them.
#include "kernels/abi/quant.h"
#include "tests/kernel/cases_internal.h"

namespace weir_test {

std::string label(const char *op, std::initializer_list<int64_t> numbers)
{
    std::string text = op;
    for (const int64_t number : numbers) text += "_" + std::to_string(number);
    return text;
}

std::string suffix(Fill fill)
{
    static const char *const names[] = { "", "_zero", "_large", "_tiny", "_mixed" };
    return names[(int)fill];
}

const std::vector<weir_dtype> &file_dtypes()
{
    static const std::vector<weir_dtype> dtypes = {
        WEIR_F32,   WEIR_F16,     WEIR_BF16,   WEIR_Q8_0,  WEIR_Q4_0,  WEIR_Q4_1,    WEIR_Q5_0,
        WEIR_Q5_1,  WEIR_IQ4_NL,  WEIR_IQ4_XS, WEIR_Q2_K,  WEIR_Q3_K,  WEIR_Q4_K,    WEIR_Q5_K,
        WEIR_Q6_K,  WEIR_MXFP4,   WEIR_NVFP4,  WEIR_IQ1_S, WEIR_IQ1_M, WEIR_IQ2_XXS, WEIR_IQ2_XS,
        WEIR_IQ2_S, WEIR_IQ3_XXS, WEIR_IQ3_S,  WEIR_TQ1_0, WEIR_TQ2_0, WEIR_Q1_0,    WEIR_Q2_0
    };
    return dtypes;
}

namespace {

uint16_t half(float value)
{
    const _Float16 h = (_Float16)value;
    uint16_t bits;
    __builtin_memcpy(&bits, &h, sizeof bits);
    return bits;
}

// Random quants under a scale of about `d` (and a minimum of about `m`).
template <class Block, class Set>
void fill_blocks(Builder &b, uint8_t *data, int64_t n_blocks, Set set)
{
    for (int64_t i = 0; i < n_blocks; i++) {
        Block block;
        auto *raw = reinterpret_cast<uint8_t *>(&block);
        for (size_t j = 0; j < sizeof block; j++) raw[j] = (uint8_t)b.below(256);
        set(block, 0.5f + (float)b.below(1000) / 1000);
        __builtin_memcpy(data + (size_t)i * sizeof block, &block, sizeof block);
    }
}

void fill_plain(Builder &b, uint8_t *data, weir_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float value = 0.05f * b.normal();
        if (dtype == WEIR_F32) {
            __builtin_memcpy(data + i * 4, &value, 4);
        } else {
            uint32_t bits;
            __builtin_memcpy(&bits, &value, 4);
            const uint16_t narrow = dtype == WEIR_F16 ? half(value) : (uint16_t)(bits >> 16);
            __builtin_memcpy(data + i * 2, &narrow, 2);
        }
    }
}

}  // namespace

void fill_weights(Builder &b, void *memory, weir_dtype dtype, int64_t n)
{
    auto *data = static_cast<uint8_t *>(memory);
    const int64_t blocks = n / weir_dtype_of(dtype).block_elements;
#define SCALED(TYPE, block_type, scale)                                                            \
    case TYPE:                                                                                     \
        return fill_blocks<block_type>(b, data, blocks, [](block_type &q, float u) {               \
            q.d = half(u * (scale));                                                               \
        })
#define SCALED_WITH(TYPE, block_type, scale, minimum, minimum_scale)                               \
    case TYPE:                                                                                     \
        return fill_blocks<block_type>(b, data, blocks, [](block_type &q, float u) {               \
            q.d = half(u * (scale)), q.minimum = half(u * (minimum_scale));                        \
        })
    switch (dtype) {
        SCALED(WEIR_Q8_0, weir_block_q8_0, 0.0006f);
        SCALED(WEIR_Q4_0, weir_block_q4_0, 0.01f);
        SCALED_WITH(WEIR_Q4_1, weir_block_q4_1, 0.01f, m, -0.08f);
        SCALED(WEIR_Q5_0, weir_block_q5_0, 0.005f);
        SCALED_WITH(WEIR_Q5_1, weir_block_q5_1, 0.005f, m, -0.08f);
        SCALED(WEIR_IQ4_NL, weir_block_iq4_nl, 0.0006f);
        SCALED(WEIR_IQ4_XS, weir_block_iq4_xs, 0.00006f);
        SCALED_WITH(WEIR_Q2_K, weir_block_q2_k, 0.005f, dmin, 0.005f);
        SCALED(WEIR_Q3_K, weir_block_q3_k, 0.0015f);
        SCALED_WITH(WEIR_Q4_K, weir_block_q4_k, 0.0003f, dmin, 0.002f);
        SCALED_WITH(WEIR_Q5_K, weir_block_q5_k, 0.00015f, dmin, 0.002f);
        SCALED(WEIR_Q6_K, weir_block_q6_k, 0.00006f);
        SCALED(WEIR_IQ1_S, weir_block_iq1_s, 0.003f);
        SCALED(WEIR_IQ2_XXS, weir_block_iq2_xxs, 0.0004f);
        SCALED(WEIR_IQ2_XS, weir_block_iq2_xs, 0.0004f);
        SCALED(WEIR_IQ2_S, weir_block_iq2_s, 0.0004f);
        SCALED(WEIR_IQ3_XXS, weir_block_iq3_xxs, 0.00015f);
        SCALED(WEIR_IQ3_S, weir_block_iq3_s, 0.00015f);
        SCALED(WEIR_TQ1_0, weir_block_tq1_0, 0.02f);
        SCALED(WEIR_TQ2_0, weir_block_tq2_0, 0.02f);
        SCALED(WEIR_Q1_0, weir_block_q1_0, 0.02f);
        SCALED(WEIR_Q2_0, weir_block_q2_0, 0.02f);
    case WEIR_IQ1_M: // the high nibbles of the scales are one
        return fill_blocks<weir_block_iq1_m>(b, data, blocks, [](weir_block_iq1_m &q, float u) {
            const int d = half(u * 0.003f);
            for (int i = 0; i < 4; i++)
                q.scales[i] = (uint16_t)((q.scales[i] & 0xFFF) | (d >> (4 * i) & 15) << 12);
        });
    case WEIR_NVFP4:
        return fill_blocks<weir_block_nvfp4>(b, data, blocks, [](weir_block_nvfp4 &q, float u) {
            for (uint8_t &scale : q.scales) scale = (uint8_t)(u < 1 ? 4 : 4 + scale % 8);
        });
    case WEIR_MXFP4:
        return fill_blocks<weir_block_mxfp4>(b, data, blocks, [](weir_block_mxfp4 &q, float u) {
            q.exponent = u < 1 ? 120 : 121;
        });
    default: return fill_plain(b, data, dtype, n);
    }
#undef SCALED
#undef SCALED_WITH
}

namespace {

// An op's cases are in one file.
struct CaseFile {
    std::vector<Case> (*parity)(weir_op);
    std::vector<Case> (*benches)(weir_op);
};

// The file with an op's cases. An op that is missing here does not compile.
CaseFile file_of(weir_op op)
{
    switch (op) {
    case WEIR_OP_EMBED:
    case WEIR_OP_RMSNORM:
    case WEIR_OP_GATED_RMSNORM:
    case WEIR_OP_ROPE:
    case WEIR_OP_GLU:
    case WEIR_OP_SIGMOID_GATE:
    case WEIR_OP_ADD:
    case WEIR_OP_SOFTCAP: return { rowwise_cases, rowwise_benches };
    case WEIR_OP_EXPERT_ROUTE:
    case WEIR_OP_EXPERT_SUM: return { experts_cases, experts_benches };
    case WEIR_OP_MATMUL: return { cuda_matmul_cases, cuda_matmul_benches };
    case WEIR_OP_KV_WRITE:
    case WEIR_OP_KV_READ:
    case WEIR_OP_KV_COMPACT:
    case WEIR_OP_KEY_PRODUCTS: return { kv_cases, kv_benches };
    case WEIR_OP_ATTENTION:
    case WEIR_OP_ATTENTION_MASS: return { attention_cases, attention_benches };
    case WEIR_OP_CONV1D:
    case WEIR_OP_GATED_DELTA_RULE:
    case WEIR_OP_SSM_SCAN: return { recurrent_cases, recurrent_benches };
    case WEIR_OP_CODA_QUERIES:
    case WEIR_OP_CODA_COMBINE:
    case WEIR_OP_CODA_WRITE: return { coda_cases, coda_benches };
    case WEIR_OP_COUNT: break;
    }
    __builtin_unreachable();
}

}  // namespace

std::vector<Case> parity_cases(weir_op op) { return file_of(op).parity(op); }

std::vector<Case> bench_cases(weir_op op) { return file_of(op).benches(op); }

}  // namespace weir_test
