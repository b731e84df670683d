// Cases of differential attention's ops and of CoDA's bounded memory.
#include "tests/kernel/cases_internal.h"

namespace weir_test {
namespace {

Case queries(int64_t n_rows, int64_t n_heads, int64_t n_kv_heads, int64_t dim)
{
    return { label("coda_queries", { n_rows, n_heads, n_kv_heads, dim }),
             [=](Builder &b, bool) {
                 auto        *args = b.one<weir_coda_queries_args>();
                 const size_t n = (size_t)(n_rows * n_heads * dim);
                 args->dst = b.output(2 * n);
                 args->q = b.input(n);
                 args->theta = b.input((size_t)(n_heads * dim / 2));
                 args->n_rows = n_rows, args->n_heads = n_heads, args->n_kv_heads = n_kv_heads, args->head_dim = dim;
                 args->q_stride = n_heads * dim;
                 return args;
             },
             { (double)(n_rows * n_heads * dim) * 12, (double)(n_rows * n_heads * dim) * 3 } };
}

Case combine(int64_t n_rows, int64_t n_heads, int64_t n_kv_heads, int64_t dim, bool has_norm, Fill fill = Fill::Normal)
{
    return { label("coda_combine", { n_rows, n_heads, n_kv_heads, dim, has_norm, (int64_t)fill }),
             [=](Builder &b, bool) {
                 auto        *args = b.one<weir_coda_combine_args>();
                 const size_t n = (size_t)(n_rows * n_heads * dim);
                 args->dst = b.output(n);
                 args->src = b.input(2 * n, fill);
                 args->lambda = b.input((size_t)(n_rows * n_heads));
                 args->bias = b.input((size_t)n_heads);
                 args->weight = has_norm ? b.input((size_t)dim) : nullptr;
                 args->n_rows = n_rows, args->n_heads = n_heads, args->n_kv_heads = n_kv_heads, args->head_dim = dim;
                 args->lambda_stride = n_heads;
                 args->eps = 1e-6f;
                 return args;
             },
             { (double)(n_rows * n_heads * dim) * 12, (double)(n_rows * n_heads * dim) * 6 } };
}

struct Bank {
    int64_t        n_kv_heads, dim;
    int32_t        window, n_exact, n_summary;
    weir_kv_format format;
};

weir_coda_layer *layer_of(Builder &b, const Bank &bank)
{
    auto *layer = b.one<weir_coda_layer>();
    auto *rates = b.array<float>((size_t)bank.n_kv_heads);
    for (int64_t h = 0; h < bank.n_kv_heads; h++) rates[h] = 0.05f * (float)(h + 1);
    layer->n_kv_heads = bank.n_kv_heads, layer->head_dim = bank.dim, layer->window = bank.window;
    layer->n_exact = layer->least_exact = bank.n_exact, layer->n_summary = layer->least_summary = bank.n_summary;
    layer->exact_candidates = 8, layer->summary_candidates = 64;
    layer->exact_gate = 0.1f, layer->summary_gate = 0.05f, layer->hit = 0.9f, layer->novelty = 0.7f;
    layer->is_gated = layer->founds = true;
    layer->format = bank.format;
    layer->rates = rates;
    return layer;
}

// A state that is as far as a reset goes. Pages are compared as numbers, the rest as bytes.
void *state_of(Builder &b, const weir_coda_layer *layer)
{
    void *const           memory = b.bytes(weir_coda_view(layer, nullptr).bytes);
    const weir_coda_state state = weir_coda_view(layer, memory);
    weir_coda_reset(layer, memory);
    b.compare(state.head, (size_t)(state.pages - (char *)memory), WEIR_U8);
    const auto page_bytes = (size_t)(layer->n_kv_heads * state.n_pages * state.page_bytes);
    if (layer->format == WEIR_KV_F32)
        b.compare(state.pages, page_bytes / sizeof(float), WEIR_F32);
    else
        b.compare(state.pages, page_bytes, WEIR_U8);
    return memory;
}

// Rows of blocks, one state each; 0 is a step.
Case write(std::vector<int32_t> rows, Bank bank, bool is_compat = false)
{
    int64_t total = 0;
    for (const int32_t n : rows) total += n > 0 ? n : 1;
    return { label("coda_write",
                   { bank.n_kv_heads, bank.dim, bank.window, bank.n_exact, bank.n_summary, (int64_t)bank.format, total, is_compat }),
             [=](Builder &b, bool) {
                 auto         *args = b.one<weir_coda_write_args>();
                 auto         *layer = layer_of(b, bank);
                 auto         *segments = b.array<weir_coda_segment>(rows.size());
                 const int64_t width = bank.n_kv_heads * bank.dim;
                 int32_t       first = 0;
                 layer->is_compat = is_compat;
                 for (size_t s = 0; s < rows.size(); s++) {
                     segments[s] = { state_of(b, layer), first, rows[s] > 0 ? rows[s] : 1, rows[s] == 0 };
                     first += segments[s].n_rows;
                 }
                 args->k = b.input((size_t)(total * width));
                 args->v = b.input((size_t)(total * width));
                 args->gates = b.input((size_t)total, Fill::Normal, 2);
                 args->layer = layer;
                 args->segments = segments, args->n_segments = (int64_t)rows.size();
                 args->k_stride = args->v_stride = width;
                 args->gate_stride = 1;
                 return args;
             },
             { (double)(total * bank.n_kv_heads * bank.dim) * 16, 0 } };
}

} // namespace

std::vector<Case> coda_cases(weir_op op)
{
    switch (op) {
    case WEIR_OP_CODA_QUERIES: return { queries(1, 4, 2, 16), queries(9, 6, 6, 24), queries(3, 32, 8, 128), queries(5, 2, 1, 2) };
    case WEIR_OP_CODA_COMBINE:
        return { combine(1, 4, 2, 16, true), combine(9, 6, 6, 24, false), combine(3, 32, 8, 128, true),
                 combine(2, 2, 1, 512, true, Fill::Zero), combine(4, 4, 4, 64, true, Fill::Large) };
    case WEIR_OP_CODA_WRITE:
        return { write({ 40, 0, 7 }, { 2, 16, 8, 4, 3, WEIR_KV_F32 }), write({ 300 }, { 1, 32, 64, 16, 16, WEIR_KV_BF16 }),
                 write({ 100, 20 }, { 2, 8, 5, 3, 2, WEIR_KV_F16 }, true), write({ 12, 0 }, { 1, 8, 1, 0, 0, WEIR_KV_F32 }) };
    default: return {};
    }
}

} // namespace weir_test
