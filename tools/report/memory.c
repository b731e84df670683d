#include <inttypes.h>

#include "engine/base/checked.h"
#include "kernels/abi/kv_page.h"
#include "tools/report/report.h"

static int64_t blocks_of(int64_t n, int64_t block) { return n / block + (n % block != 0); }

weir_report_rows weir_report_rows_of(
    const weir_report_assumptions *a, const weir_report_shape *shape
)
{
    if (a->every_head_keeps_kv)
        return (weir_report_rows){ shape->n_heads, shape->key_dim, shape->value_dim };
    if (shape->latent_dim > 0)
        return (weir_report_rows){ 1, shape->latent_dim + shape->rope_dim, 0 };
    return (weir_report_rows){ shape->n_kv_heads, shape->key_dim, shape->value_dim };
}

const char *weir_report_reject(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format
)
{
    const weir_report_rows rows = weir_report_rows_of(a, shape);
    const char *const why = weir_report_format_reject(format, rows.key, rows.value);
    if (why != NULL || shape->n_local_layers == 0) return why;
    return weir_report_format_reject(format, shape->local_key_dim, shape->local_value_dim);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static weir_status in_range(
    const weir_report_shape *shape, const char *what, int64_t value, int64_t least, int64_t most,
    weir_error *error
)
{
    if (value >= least && value <= most) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "%s: %s is %" PRId64 ", must be between %" PRId64 " and %" PRId64,
        shape->name, what, value, least, most
    );
}

weir_status weir_report_check(
    const weir_report_shape *shape, int64_t tokens, int64_t batch, weir_error *error
)
{
    enum { HEADS = 4096, DIM = 4096, LAYERS = 1024 };
    const int64_t weights = (int64_t)1 << 50,
                  /* A 2-byte weight, 3 times for the seed's reserve, is far from the limit. */
        width = 1 << 22;
    WEIR_TRY(in_range(shape, "parameters", shape->parameters, 1, weights, error));
    WEIR_TRY(in_range(shape, "context", shape->context, 1, INT32_MAX, error));
    WEIR_TRY(in_range(shape, "n_layers", shape->n_layers, 1, LAYERS, error));
    WEIR_TRY(in_range(shape, "n_kv_layers", shape->n_kv_layers, 0, shape->n_layers, error));
    WEIR_TRY(in_range(shape, "n_heads", shape->n_heads, 0, HEADS, error));
    WEIR_TRY(in_range(shape, "n_kv_heads", shape->n_kv_heads, 0, HEADS, error));
    WEIR_TRY(in_range(shape, "key_dim", shape->key_dim, 0, DIM, error));
    WEIR_TRY(in_range(shape, "value_dim", shape->value_dim, 0, DIM, error));
    WEIR_TRY(in_range(shape, "n_local_layers", shape->n_local_layers, 0, shape->n_kv_layers, error)
    );
    WEIR_TRY(in_range(shape, "n_local_kv_heads", shape->n_local_kv_heads, 0, HEADS, error));
    WEIR_TRY(in_range(shape, "local_key_dim", shape->local_key_dim, 0, DIM, error));
    WEIR_TRY(in_range(shape, "local_value_dim", shape->local_value_dim, 0, DIM, error));
    WEIR_TRY(in_range(shape, "latent_dim", shape->latent_dim, 0, DIM, error));
    WEIR_TRY(in_range(shape, "rope_dim", shape->rope_dim, 0, DIM, error));
    WEIR_TRY(in_range(shape, "d_model", shape->d_model, 1, width, error));
    WEIR_TRY(in_range(shape, "d_ffn", shape->d_ffn, 0, width, error));
    WEIR_TRY(in_range(shape, "n_vocab", shape->n_vocab, 1, INT32_MAX, error));
    WEIR_TRY(in_range(shape, "n_dense_layers", shape->n_dense_layers, 0, shape->n_layers, error));
    WEIR_TRY(in_range(shape, "n_experts", shape->n_experts, 0, 1 << 16, error));
    WEIR_TRY(in_range(shape, "n_experts_used", shape->n_experts_used, 0, shape->n_experts, error));
    WEIR_TRY(in_range(shape, "d_expert", shape->d_expert, 0, width, error));
    WEIR_TRY(in_range(
        shape, "n_experts_used * d_expert", shape->n_experts_used * shape->d_expert, 0, width, error
    ));
    WEIR_TRY(in_range(shape, "recurrent_bytes", shape->recurrent_bytes, 0, (int64_t)1 << 40, error)
    );
    WEIR_TRY(in_range(shape, "activation_row_bytes", shape->activation_row_bytes, 0, 1 << 30, error)
    );
    WEIR_TRY(in_range(shape, "weight_bytes", shape->weight_bytes, 0, weights * 4, error));
    WEIR_TRY(in_range(shape, "activation_bytes", shape->activation_bytes, 0, weights, error));
    WEIR_TRY(in_range(shape, "tokens", tokens, 1, (int64_t)1 << 31, error));
    WEIR_TRY(in_range(shape, "batch", batch, 1, 1 << 16, error));
    /* The largest product: f32 rows of all heads (which are at least the KV heads' and the
     * latent's), twice for unsealed pages and page rounding, over 64 ranks. */
    const int64_t heads = shape->n_heads > shape->n_kv_heads ? shape->n_heads : shape->n_kv_heads;
    const int64_t row = heads * (shape->key_dim + shape->value_dim) + shape->latent_dim +
                        shape->rope_dim +
                        shape->n_local_kv_heads * (shape->local_key_dim + shape->local_value_dim);
    int64_t bytes;
    if (!weir_mul_i64(
            &bytes, shape->n_layers * row * (int64_t)sizeof(float) * 2 * 64,
            tokens + WEIR_PAGE_TOKENS
        ) ||
        !weir_mul_i64(&bytes, bytes, batch))
        return weir_error_set(
            error, WEIR_EINVAL,
            "%s: the KV of %" PRId64 " sequences of %" PRId64
            " tokens is too large to compute; give a smaller --batch or "
            "--context",
            shape->name, batch, tokens
        );
    return WEIR_OK;
}

/* ---- KV -------------------------------------------------------------------------------------- */

/* Contiguous rows, int8 with one scale per channel. */
static int64_t contiguous_rows(const weir_report_rows *rows, weir_kv_format format, int64_t tokens)
{
    const int64_t values = rows->heads * (rows->key + rows->value);
    const int64_t scales = format == WEIR_KV_INT8 ? values * 2 : 0;
    return tokens * values * weir_kv_bits(format) / 8 + scales;
}

/* Of n_layers with such rows. */
static int64_t kv_of(
    const weir_report_assumptions *a, const weir_report_rows *rows, int64_t n_layers,
    weir_kv_format format, int64_t tokens
)
{
    if (a->one_scale) return n_layers * contiguous_rows(rows, format, tokens);
    const int64_t open = tokens % WEIR_PAGE_TOKENS != 0
                             ? weir_report_unsealed_bytes(format, rows->key, rows->value)
                             : 0;
    return n_layers * rows->heads *
           (blocks_of(tokens, WEIR_PAGE_TOKENS) *
                weir_report_page_bytes(format, rows->key, rows->value) +
            open);
}

int64_t weir_report_kv(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t tokens
)
{
    const weir_report_rows rows = weir_report_rows_of(a, shape),
                           local = { shape->n_local_kv_heads, shape->local_key_dim,
                                     shape->local_value_dim };
    const int64_t n_local = shape->n_local_layers;
    const int64_t bytes = kv_of(a, &rows, shape->n_kv_layers - n_local, format, tokens);
    return n_local > 0 ? bytes + kv_of(a, &local, n_local, format, tokens) : bytes;
}

double weir_report_kv_per_token(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format
)
{
    const int64_t one = weir_report_kv(a, shape, format, WEIR_PAGE_TOKENS),
                  two = weir_report_kv(a, shape, format, 2 * WEIR_PAGE_TOKENS);
    return (double)(two - one) / (double)WEIR_PAGE_TOKENS;
}

weir_report_paging weir_report_paging_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t tokens, int64_t window
)
{
    const int64_t rounded = blocks_of(tokens, a->page_tokens) * a->page_tokens;
    return (weir_report_paging
    ){ .used = (int64_t)(weir_report_kv_per_token(a, shape, format) * (double)tokens),
       .paged = a->one_scale ? weir_report_kv(a, shape, format, rounded)
                             : weir_report_kv(a, shape, format, tokens),
       .contiguous = weir_report_kv(a, shape, format, window) };
}

/* ---- weights and activations ----------------------------------------------------------------- */

int64_t weir_report_parameters(const weir_report_assumptions *a, const weir_report_shape *shape)
{
    enum { SEED_VOCABULARY = 32000 };
    const int64_t d = shape->d_model;
    if (!a->narrow_ffn) return shape->parameters;
    return shape->n_layers * (4 * d * d + 2 * d * (4 * d / 3) + 2 * d) + SEED_VOCABULARY * d;
}

int64_t weir_report_weights(const weir_report_assumptions *a, const weir_report_shape *shape)
{
    if (shape->weight_bytes > 0 && !a->narrow_ffn) return shape->weight_bytes;
    const int64_t n = weir_report_parameters(a, shape) - shape->layer_embedding;
    return blocks_of(n, a->weight_elements) * a->weight_block;
}

int64_t weir_report_step_activations(const weir_report_shape *shape, int64_t rows, int64_t logits)
{
    const int64_t row_bytes = shape->activation_row_bytes,
                  logit_bytes = logits * shape->n_vocab * (int64_t)sizeof(float);
    if (row_bytes > 0) return rows * row_bytes + logit_bytes;
    const int64_t expert = shape->n_experts_used * shape->d_expert,
                  ffn = 2 * (shape->d_ffn > expert ? shape->d_ffn : expert);
    /* Queries, and the output of attention. */
    const int64_t queries = shape->n_heads * (shape->key_dim + shape->value_dim);
    const int64_t keys = shape->latent_dim > 0
                             ? shape->latent_dim + shape->rope_dim
                             : shape->n_kv_heads * (shape->key_dim + shape->value_dim);
    const int64_t widest = queries + keys > ffn ? queries + keys : ffn;
    return rows * (3 * shape->d_model + widest) * (int64_t)sizeof(float) + logit_bytes;
}

int64_t weir_report_activations(
    const weir_report_assumptions *a, const weir_report_shape *shape, int64_t batch
)
{
    if (a->weights_as_activations > 0)
        return (int64_t)(a->weights_as_activations * (double)weir_report_weights(a, shape));
    if (shape->activation_bytes > 0) return shape->activation_bytes;
    return weir_report_step_activations(shape, a->chunk + batch, batch);
}

int64_t weir_report_max_context(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t memory, int64_t batch
)
{
    const int64_t left = memory - weir_report_weights(a, shape) -
                         weir_report_activations(a, shape, batch) - a->reserve -
                         batch * shape->recurrent_bytes;
    if (left <= 0) return 0;
    if (shape->n_kv_layers == 0) return WEIR_REPORT_ANY_CONTEXT;
    /* Bytes of a sequence besides its blocks: the rows of its unsealed page, or the seed's
     * scales. */
    const int64_t block = weir_report_kv(a, shape, format, 2 * a->context_step) -
                          weir_report_kv(a, shape, format, a->context_step);
    const int64_t rest = weir_report_kv(a, shape, format, 1) - block;
    WEIR_ASSERT(block > 0 && batch > 0);
    return left / batch > rest ? (left / batch - rest) / block * a->context_step : 0;
}

/* ---- prefill --------------------------------------------------------------------------------- */

/* Steps of a model file are planned, with logits for every sequence. */
static double step_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, int64_t rows
)
{
    if (shape->activation_bytes == 0) return (double)weir_report_step_activations(shape, rows, 1);
    return (double)shape->activation_bytes +
           (double)(rows - a->chunk) * (double)shape->activation_row_bytes;
}

weir_report_prefill weir_report_prefill_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, int64_t tokens
)
{
    const int64_t chunk = a->chunk < tokens ? a->chunk : tokens;
    const double row = (double)tokens * sizeof(float);
    return (weir_report_prefill){ .scores_whole = (double)tokens * row,
                                  .scores_chunked = (double)chunk * row,
                                  .activations_whole = step_of(a, shape, tokens),
                                  .activations_chunked = step_of(a, shape, chunk) };
}
