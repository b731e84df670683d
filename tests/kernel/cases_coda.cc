// Cases of differential attention's ops and of CoDA's bounded memory.
#include <algorithm>

#include "tests/kernel/cases_internal.h"

namespace weir_test {
namespace {

Case queries(int64_t n_rows, int64_t n_heads, int64_t n_kv_heads, int64_t dim)
{
    return { label("coda_queries", { n_rows, n_heads, n_kv_heads, dim }),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_coda_queries_args>();
                 const size_t n = (size_t)(n_rows * n_heads * dim);
                 args->dst = b.output(2 * n);
                 args->q = b.input(n);
                 args->theta = b.input((size_t)(n_heads * dim / 2));
                 args->n_rows = n_rows, args->n_heads = n_heads, args->n_kv_heads = n_kv_heads,
                 args->head_dim = dim;
                 args->q_stride = n_heads * dim;
                 return args;
             },
             { (double)(n_rows * n_heads * dim) * 12, (double)(n_rows * n_heads * dim) * 3 } };
}

Case combine(
    int64_t n_rows, int64_t n_heads, int64_t n_kv_heads, int64_t dim, bool has_norm,
    Fill fill = Fill::Normal
)
{
    return { label("coda_combine", { n_rows, n_heads, n_kv_heads, dim, has_norm, (int64_t)fill }),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_coda_combine_args>();
                 const size_t n = (size_t)(n_rows * n_heads * dim);
                 args->dst = b.output(n);
                 args->src = b.input(2 * n, fill);
                 args->lambda = b.input((size_t)(n_rows * n_heads));
                 args->bias = b.input((size_t)n_heads);
                 args->weight = has_norm ? b.input((size_t)dim) : nullptr;
                 args->n_rows = n_rows, args->n_heads = n_heads, args->n_kv_heads = n_kv_heads,
                 args->head_dim = dim;
                 args->lambda_stride = n_heads;
                 args->eps = 1e-6f;
                 return args;
             },
             { (double)(n_rows * n_heads * dim) * 12, (double)(n_rows * n_heads * dim) * 6 } };
}

struct Bank {
    int64_t n_kv_heads, dim;
    int32_t window, n_exact, n_summary;
    weir_kv_format format;
};

// What is not as in most layers.
struct Options {
    weir_coda_band band = WEIR_CODA_UPPER_HALF;
    bool is_compat = false, refreshes = false, is_gated = true, founds = true;
    int32_t least = 0; // slots that are not open from the start, of each bank
    int32_t exact_candidates = 8, summary_candidates = 64;
};

enum class Past {
    None,
    Part,
    Full
}; // a state after its reset; with a full ring, and half of the banks' slots in use or all

weir_coda_layer *layer_of(Builder &b, const Bank &bank, const Options &options)
{
    auto *layer = b.one<weir_coda_layer>();
    auto *rates = b.array<float>((size_t)bank.n_kv_heads);
    for (int64_t h = 0; h < bank.n_kv_heads; h++) rates[h] = 0.05f * (float)(h + 1);
    layer->n_kv_heads = bank.n_kv_heads, layer->head_dim = bank.dim, layer->window = bank.window;
    layer->n_exact = bank.n_exact, layer->least_exact = bank.n_exact - options.least;
    layer->n_summary = bank.n_summary, layer->least_summary = bank.n_summary - options.least;
    layer->growth = 1 << 16;
    layer->exact_candidates = options.exact_candidates,
    layer->summary_candidates = options.summary_candidates;
    layer->exact_gate = 0.1f, layer->summary_gate = 0.05f, layer->hit = 0.9f, layer->novelty = 0.7f;
    layer->is_gated = options.is_gated, layer->founds = options.founds;
    layer->refreshes = options.refreshes, layer->is_compat = options.is_compat;
    layer->band = options.band;
    layer->format = bank.format;
    layer->rates = rates;
    return layer;
}

// Random rows; the ring's are at random places among those in use, in between are `n_used` slots of
// the banks.
void place_slots(
    Builder &b, const weir_coda_layer *layer, const weir_coda_state &state, int64_t n_used
)
{
    std::vector<int32_t> banks, used, unused;
    for (int32_t slot = layer->window; slot < state.n_slots; slot++) banks.push_back(slot);
    const auto shuffle = [&b](std::vector<int32_t> *slots) {
        for (size_t i = slots->size(); i > 1; i--)
            std::swap((*slots)[i - 1], (*slots)[b.below((uint32_t)i)]);
    };
    shuffle(&banks);
    for (int32_t slot = 0; slot < layer->window; slot++) used.push_back(slot);
    for (size_t i = 0; i < banks.size(); i++)
        ((int64_t)i < n_used ? used : unused).push_back(banks[i]);
    shuffle(&used);
    state.head->n_rows = (int32_t)used.size();
    used.insert(used.end(), unused.begin(), unused.end());
    for (size_t row = 0; row < used.size(); row++) state.rows[used[row]] = (int32_t)row;
}

// Every third value is new, every third as one that the exact bank has, the rest between.
void values_of(Builder &b, const weir_coda_layer *layer, const weir_coda_state &state, float *v)
{
    const uint32_t kind = b.below(3);
    const int64_t slot =
        layer->window + (layer->n_exact > 0 ? b.below((uint32_t)layer->n_exact) : 0);
    const int64_t n = layer->n_kv_heads * layer->head_dim;
    std::vector<float> held((size_t)n, 0.0f);
    if (kind > 0 && layer->n_exact > 0 && weir_coda_is_used(&state, slot))
        weir_coda_read(layer, &state, WEIR_KV_V, state.rows[slot], held.data());
    for (int64_t x = 0; x < n; x++)
        v[x] = held[(size_t)x] + b.normal() * (kind == 0 ? 1.0f : kind == 1 ? 0.05f : 0.75f);
}

void fill_state(Builder &b, const weir_coda_layer *layer, const weir_coda_state &state, Past past)
{
    const int64_t n = layer->n_kv_heads * layer->head_dim;
    std::vector<float> k((size_t)n), v((size_t)n);
    place_slots(
        b, layer, state, (layer->n_exact + layer->n_summary) / (past == Past::Part ? 2 : 1)
    );
    state.head->position = 5000;
    state.head->n_recent = layer->window;
    state.head->first_recent = (int32_t)b.below((uint32_t)layer->window);
    for (int64_t i = 0; i < layer->n_exact; i++) state.used_at[i] = b.below(4000);
    for (int64_t i = 0; i < layer->window; i++) state.gates[i] = (float)(b.below(1000) + 1) / 1001;
    for (int64_t slot = state.n_slots - 1; slot >= 0;
         slot--) { // the exact bank before the ring, which has values like its
        values_of(b, layer, state, v.data());
        for (int64_t x = 0; x < n; x++)
            k[(size_t)x] = slot < layer->window + layer->n_exact ||
                                   weir_coda_is_low(layer, x % layer->head_dim)
                               ? b.normal()
                               : 0.0f;
        weir_coda_put(layer, &state, WEIR_KV_K, state.rows[slot], k.data());
        weir_coda_put(layer, &state, WEIR_KV_V, state.rows[slot], v.data());
    }
}

// Gates and pages are compared as numbers, the rest as bytes.
weir_coda_state state_of(Builder &b, const weir_coda_layer *layer, Past past)
{
    void *const memory = b.bytes(weir_coda_view(layer, nullptr).bytes);
    const weir_coda_state state = weir_coda_view(layer, memory);
    weir_coda_reset(layer, memory);
    if (past != Past::None) fill_state(b, layer, state, past);
    b.compare(state.head, (size_t)((char *)state.gates - (char *)memory), WEIR_U8);
    b.compare(state.gates, (size_t)layer->window, WEIR_F32);
    const auto page_bytes = (size_t)(layer->n_kv_heads * state.n_pages * state.page_bytes);
    if (layer->format == WEIR_KV_F32)
        b.compare(state.pages, page_bytes / sizeof(float), WEIR_F32);
    else
        b.compare(state.pages, page_bytes, WEIR_U8);
    return state;
}

// Rows of blocks, one state each; 0 is a step.
Case write(std::vector<int32_t> rows, Bank bank, Past past = Past::None, Options options = {})
{
    int64_t total = 0;
    std::string text;
    for (const int32_t n : rows) total += n > 0 ? n : 1, text += "_" + std::to_string(n);
    const double es = bank.format == WEIR_KV_F32 ? 4 : 2,
                 heads = (double)(bank.n_kv_heads * bank.dim);
    const double held = (double)rows.size() * (bank.n_exact + bank.n_summary / 2),
                 put = (double)std::min<int64_t>(total, bank.window);
    return { label(
                 "coda_write", { bank.n_kv_heads, bank.dim, bank.window, bank.n_exact,
                                 bank.n_summary, (int64_t)bank.format, (int64_t)past, options.band,
                                 options.is_compat, options.refreshes, options.is_gated,
                                 options.founds, options.least, options.exact_candidates }
             ) + text,
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_coda_write_args>();
                 auto *layer = layer_of(b, bank, options);
                 auto *segments = b.array<weir_coda_segment>(rows.size());
                 const int64_t width = bank.n_kv_heads * bank.dim;
                 auto *v = b.input((size_t)(total * width));
                 int32_t first = 0;
                 for (size_t s = 0; s < rows.size(); s++) {
                     const weir_coda_state state = state_of(b, layer, past);
                     segments[s] = { state.head, first, rows[s] > 0 ? rows[s] : 1, rows[s] == 0 };
                     for (int32_t i = 0; past != Past::None && i < segments[s].n_rows; i++)
                         values_of(b, layer, state, v + (first + i) * width);
                     first += segments[s].n_rows;
                 }
                 args->k = b.input((size_t)(total * width));
                 args->v = v;
                 args->gates = b.input((size_t)total, Fill::Normal, 2);
                 args->layer = layer;
                 args->segments = segments, args->n_segments = (int64_t)rows.size();
                 args->k_stride = args->v_stride = width;
                 args->gate_stride = 1;
                 return args;
             },
             { (held + 2 * put) * heads * es, 2 * held * heads } };
}

std::vector<Case> write_cases()
{
    const Bank small = { 2, 16, 8, 4, 3, WEIR_KV_F32 }, wide = { 3, 24, 70, 9, 21, WEIR_KV_F32 },
               odd = { 2, 42, 40, 8, 8, WEIR_KV_F16 };
    Options compat, slow, other, closed, none;
    std::vector<Case> cases = { write({ 40, 0, 7 }, small),
                                write({ 300 }, { 1, 32, 64, 16, 16, WEIR_KV_BF16 }),
                                write({ 12, 0 }, { 1, 8, 1, 0, 0, WEIR_KV_F32 }),
                                write({ 5, 0 }, { 2, 8, 64, 0, 9, WEIR_KV_F16 }, Past::Full),
                                write({ 5, 0 }, { 2, 8, 64, 9, 0, WEIR_KV_F32 }, Past::Part) };
    compat.is_compat = true;
    slow.band = WEIR_CODA_SLOW_PAIRS, slow.refreshes = true;
    other.is_gated = other.founds = false;
    closed.least = 3, closed.exact_candidates = 16;
    none.exact_candidates = none.summary_candidates = 0;
    cases.push_back(write({ 100, 20 }, { 2, 8, 5, 3, 2, WEIR_KV_F16 }, Past::None, compat));
    for (const Past past : { Past::Part, Past::Full })
        for (const Bank &bank : { small, wide, odd, Bank{ 2, 128, 256, 64, 64, WEIR_KV_BF16 } }) {
            for (const Options &options : { Options(), slow, other, none })
                cases.push_back(write({ 0, 30, 0, 100, 1, 0 }, bank, past, options));
            if (bank.n_exact > 3 && bank.n_summary > 3)
                cases.push_back(write({ 0, 30, 0, 100 }, bank, past, closed));
            cases.push_back(write({ 0, 30, 100 }, bank, past, compat));
        }
    return cases;
}

} // namespace

std::vector<Case> coda_cases(weir_op op)
{
    switch (op) {
    case WEIR_OP_CODA_QUERIES:
        return { queries(1, 4, 2, 16), queries(9, 6, 6, 24), queries(3, 32, 8, 128),
                 queries(5, 2, 1, 2) };
    case WEIR_OP_CODA_COMBINE:
        return { combine(1, 4, 2, 16, true), combine(9, 6, 6, 24, false),
                 combine(3, 32, 8, 128, true), combine(2, 2, 1, 512, true, Fill::Zero),
                 combine(4, 4, 4, 64, true, Fill::Large) };
    case WEIR_OP_CODA_WRITE: return write_cases();
    default: return {};
    }
}

// The widths of a layer of 4096 and of one of 1024; a step of one sequence and of 16, a block.
std::vector<Case> coda_benches(weir_op op)
{
    std::vector<Case> cases;
    for (const int64_t n_rows : { 1, 16, 256 })
        for (const bool is_wide : { true, false }) {
            const int64_t n_heads = is_wide ? 32 : 16, n_kv_heads = is_wide ? 8 : 4,
                          dim = is_wide ? 128 : 64;
            if (op == WEIR_OP_CODA_QUERIES)
                cases.push_back(queries(n_rows, n_heads, n_kv_heads, dim));
            if (op == WEIR_OP_CODA_COMBINE)
                cases.push_back(combine(n_rows, n_heads, n_kv_heads, dim, true));
        }
    if (op != WEIR_OP_CODA_WRITE) return cases;
    for (const std::vector<int32_t> &rows :
         { std::vector<int32_t>{ 0 }, std::vector<int32_t>(16, 0), { 256 }, { 1024 } })
        for (const Bank &bank :
             { Bank{ 8, 128, 256, 64, 64, WEIR_KV_F16 }, Bank{ 4, 64, 256, 64, 64, WEIR_KV_F16 } })
            cases.push_back(write(rows, bank, Past::Full));
    return cases;
}

} // namespace weir_test
