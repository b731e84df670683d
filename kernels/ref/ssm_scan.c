/* kernels/ref/ssm_scan.c - the recurrence of Mamba-2 (Dao & Gu 2024; formula in
 * kernels/abi/ops/recurrent.h), one token, head and dimension at a time. The state is f32 between
 * tokens, as everywhere; sums within a token are in double. */
#include <math.h>

#include "kernels/ref/row.h"

/* Values of one token and head that its dimensions share. */
typedef struct ref_token {
    const float *b, *c; /* [n_state] */
    double step, decay;
} ref_token;

static ref_token token_of(const weir_ssm_scan_args *args, int64_t row, int64_t head)
{
    const int64_t group = head / (args->n_heads / args->n_groups),
                  at = row * args->xbc_stride + group * args->n_state;
    const double x = (double)args->dt[row * args->dt_stride + head] + (double)args->dt_bias[head];
    const double softplus = x > 20.0 ? x : log1p(exp(x));
    const double least = fmax(softplus, (double)args->dt_min),
                 step = fmin(least, (double)args->dt_max);
    return (ref_token){ .b = args->b + at,
                        .c = args->c + at,
                        .step = step,
                        .decay = exp((double)args->a_neg[head] * step) };
}

/* Row `state` [n_state], 16 apart: decay, add x B, read by C. */
static double step_row(float *state, const ref_token *token, int64_t n_state, float x)
{
    double sum = 0.0;
    for (int64_t n = 0; n < n_state; n++) {
        const double updated = (double)state[n * WEIR_SSM_LANES] * token->decay +
                               token->step * (double)x * (double)token->b[n];
        state[n * WEIR_SSM_LANES] = (float)updated;
        sum += updated * (double)token->c[n];
    }
    return sum;
}

static weir_status weir_k_ref_ssm_scan(const weir_kernel_context *context, const void *op_args)
{
    const weir_ssm_scan_args *const args = op_args;
    (void)context;
    if (!weir_ssm_scan_is_valid(args)) return WEIR_EINVAL;
    const int64_t tiles = (args->head_dim + WEIR_SSM_LANES - 1) / WEIR_SSM_LANES;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_recurrent_segment *const segment = args->segments + s;
        for (int64_t row = segment->first_row; row < segment->first_row + segment->n_rows; row++) {
            for (int64_t h = 0; h < args->n_heads; h++) {
                const ref_token token = token_of(args, row, h);
                for (int64_t i = 0; i < args->head_dim; i++) {
                    float *const state =
                        segment->state +
                        (h * tiles + i / WEIR_SSM_LANES) * args->n_state * WEIR_SSM_LANES +
                        i % WEIR_SSM_LANES;
                    const float x = args->x[row * args->xbc_stride + h * args->head_dim + i];
                    args->out[(row * args->n_heads + h) * args->head_dim + i] =
                        (float)(step_row(state, &token, args->n_state, x) +
                                (double)args->skip[h] * (double)x);
                }
            }
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(ssm_scan, WEIR_OP_SSM_SCAN)
