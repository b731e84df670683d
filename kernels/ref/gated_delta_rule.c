/* kernels/ref/gated_delta_rule.c - the recurrence of Gated DeltaNet (Yang et al. 2024) and of Kimi
 * Delta Attention (formula in kernels/abi/ops/recurrent.h), one token, head and column at a time.
 * The state is f32 between tokens, as everywhere; sums within a token are in double. */
#include <math.h>

#include "kernels/ref/row.h"

/* Values of one token and V head that the columns of the state share. */
typedef struct ref_token {
    const float *q, *k;
    const float *a, *dt_bias; /* with channel_decay [key_dim], otherwise NULL */
    int64_t key_dim;
    double q_scale, k_scale, a_neg, decay, beta;
} ref_token;

static double inverse_norm(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return 1.0 / sqrt(sum + 1e-6);
}

/* exp(g) */
static double decay_of(double a_neg, float a, float dt_bias)
{
    const double x = (double)a + (double)dt_bias, softplus = x > 20.0 ? x : log1p(exp(x));
    return exp(a_neg * softplus);
}

static ref_token token_of(const weir_gated_delta_rule_args *args, int64_t row, int64_t head)
{
    const int64_t k_head =
        args->tiled_heads ? head % args->n_k_heads : head / (args->n_v_heads / args->n_k_heads);
    const int64_t at = row * args->qkv_stride + k_head * args->key_dim,
                  gate = row * args->ab_stride + head;
    ref_token token = { .q = args->q + at,
                        .k = args->k + at,
                        .key_dim = args->key_dim,
                        .a_neg = (double)args->a_neg[head] };
    token.q_scale = inverse_norm(token.q, args->key_dim) / sqrt((double)args->key_dim);
    token.k_scale = inverse_norm(token.k, args->key_dim);
    token.beta = 1.0 / (1.0 + exp(-(double)args->b[gate]));
    if (args->channel_decay) {
        token.a = args->a + gate * args->key_dim;
        token.dt_bias = args->dt_bias + head * args->key_dim;
    } else {
        token.decay = decay_of(token.a_neg, args->a[gate], args->dt_bias[head]);
    }
    return token;
}

/* The decay of row i of the state. */
static double decay_at(const ref_token *token, int64_t i)
{
    return token->a != NULL ? decay_of(token->a_neg, token->a[i], token->dt_bias[i]) : token->decay;
}

/* Column `state` [key_dim], 16 apart: decay, correct towards v, read. */
static float step_column(float *state, const ref_token *token, float v)
{
    double predicted = 0.0, out = 0.0;
    for (int64_t i = 0; i < token->key_dim; i++)
        predicted += (double)state[i * WEIR_DELTA_LANES] * decay_at(token, i) *
                     (double)token->k[i] * token->k_scale;
    const double delta = token->beta * ((double)v - predicted);
    for (int64_t i = 0; i < token->key_dim; i++) {
        const double updated = (double)state[i * WEIR_DELTA_LANES] * decay_at(token, i) +
                               (double)token->k[i] * token->k_scale * delta;
        state[i * WEIR_DELTA_LANES] = (float)updated;
        out += updated * (double)token->q[i] * token->q_scale;
    }
    return (float)out;
}

static weir_status weir_k_ref_gated_delta_rule(
    const weir_kernel_context *context, const void *op_args
)
{
    const weir_gated_delta_rule_args *const args = op_args;
    (void)context;
    if (args->n_k_heads <= 0 || args->n_v_heads % args->n_k_heads != 0 || args->key_dim <= 0)
        return WEIR_EINVAL;
    const int64_t tiles = (args->value_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_recurrent_segment *const segment = args->segments + s;
        for (int64_t row = segment->first_row; row < segment->first_row + segment->n_rows; row++) {
            for (int64_t h = 0; h < args->n_v_heads; h++) {
                const ref_token token = token_of(args, row, h);
                for (int64_t j = 0; j < args->value_dim; j++) {
                    float *const state =
                        segment->state +
                        (h * tiles + j / WEIR_DELTA_LANES) * args->key_dim * WEIR_DELTA_LANES +
                        j % WEIR_DELTA_LANES;
                    const float v = args->v[row * args->qkv_stride + h * args->value_dim + j];
                    args->out[(row * args->n_v_heads + h) * args->value_dim + j] =
                        step_column(state, &token, v);
                }
            }
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(gated_delta_rule, WEIR_OP_GATED_DELTA_RULE)
