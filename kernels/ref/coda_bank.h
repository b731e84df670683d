/* kernels/ref/coda_bank.h - shared by the parts of the bank update: the candidates of one write,
 * and scratch memory. */
#pragma once
#include "kernels/abi/coda_choice.h"
#include "kernels/ref/row.h"

/* Candidates among the rows that leave the ring: [n] of n_values = KV heads * head_dim. */
typedef struct coda_candidates {
    float *k, *v;
    float *gates;
    int64_t *positions;
    int64_t n;
} coda_candidates;

typedef struct coda_bank {
    const weir_coda_layer *layer;
    weir_coda_state state;
    int64_t n_values;
    /* Scratch. */
    coda_candidates exact, summary;
    weir_coda_choice *choices; /* [most of: rows that leave, slots of the exact bank] */
    int32_t *ring, *pool; /* [window] */
    float *ring_gates; /* [window] */
    float *old_k, *old_v, *sum_k, *sum_v; /* [n_values] */
    double *mean_k, *mean_v; /* [n_values] */
    int32_t *slot_of; /* [candidates] */
    bool *writes; /* [candidates] */
} coda_bank;

static inline bool coda_passes(const coda_bank *bank, float gate, float least)
{
    return !bank->layer->is_gated || gate >= least;
}

/* 1 / max(|x|, 1e-6) over the low band, or all dimensions, of one head. */
static inline double coda_inverse_norm(const weir_coda_layer *layer, const float *x, bool is_low)
{
    double sum = 0.0;
    for (int64_t d = 0; d < layer->head_dim; d++)
        if (!is_low || weir_coda_is_low(layer, d)) sum += (double)x[d] * (double)x[d];
    return 1.0 / fmax(sqrt(sum), 1e-6);
}

/* Mean over the heads of the cosine of a and b [n_values]. */
static inline float coda_cosine(
    const weir_coda_layer *layer, const float *a, const float *b, bool is_low
)
{
    double mean = 0.0;
    for (int64_t h = 0; h < layer->n_kv_heads; h++, a += layer->head_dim, b += layer->head_dim) {
        double dot = 0.0;
        for (int64_t d = 0; d < layer->head_dim; d++)
            if (!is_low || weir_coda_is_low(layer, d)) dot += (double)a[d] * (double)b[d];
        mean += dot * coda_inverse_norm(layer, a, is_low) * coda_inverse_norm(layer, b, is_low);
    }
    return (float)(mean / (double)layer->n_kv_heads);
}

static inline int64_t coda_exact_slot(const coda_bank *bank, int64_t i)
{
    return bank->layer->window + i;
}
static inline int64_t coda_summary_slot(const coda_bank *bank, int64_t i)
{
    return (int64_t)bank->layer->window + bank->layer->n_exact + i;
}
static inline void coda_count(coda_bank *bank, weir_coda_count what, int64_t n)
{
    bank->state.head->counts[what] += n;
}

/* coda_exact.c: one row of a step; the candidates of a block. coda_summary.c: the same. */
void coda_exact_step(coda_bank *bank);
void coda_exact_block(coda_bank *bank);
void coda_summary_step(coda_bank *bank);
void coda_summary_block(coda_bank *bank);
