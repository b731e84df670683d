#include "tests/golden/model_memory.h"

#include <map>

#include "kernels/abi/ops.h"

namespace golden {

std::vector<float> read_memory(const Open &open, const void *memory, size_t n)
{
    std::vector<float> out(n);
    weir_ledger_copy(weir_engine_ledger(open.engine), out.data(), memory, n * sizeof(float));
    return out;
}

std::vector<float> read_cache(const Open &open, const weir_kv_geometry &g, bool keys)
{
    const weir_kv_table &table = open.sequence.table;
    const int64_t width = keys ? g.key_dim : g.value_dim;
    const auto n =
        (size_t)weir_kv_bytes(WEIR_KV_F32, WEIR_KV_F32, g.key_dim, weir_kv_stored_value_dim(&g));
    std::vector<float> out;
    std::map<const void *, std::vector<float>> pages;
    for (int64_t t = 0; t < table.n_rows; t++)
        for (int64_t head = 0; head < g.n_heads; head++)
            for (int64_t d = 0; d < width; d++) {
                const void *const place =
                    table.pages[(g.first_head + head) * table.capacity + t / WEIR_PAGE_TOKENS];
                auto &page = pages[place];
                if (page.empty()) page = read_memory(open, place, n / sizeof(float));
                const int64_t at = t % WEIR_PAGE_TOKENS;
                out.push_back(page[(size_t)(keys ? weir_page_k(at, d, g.key_dim)
                                                 : weir_page_v(at, g.key_dim, g.value_dim) + d)]);
            }
    return out;
}

std::vector<float> dims_of(
    const std::vector<float> &rows, int64_t width, int64_t first, int64_t end, int64_t rotary
)
{
    std::vector<float> out;
    for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(width))
        for (int64_t d = 0; d < end - first; d++) {
            const int64_t half = rotary / 2, from = d >= rotary ? d
                                                    : d < half  ? 2 * d
                                                                : 2 * (d - half) + 1;
            out.push_back(rows[row + static_cast<size_t>(first + from)]);
        }
    return out;
}

/* Position of the checkpoint's V head h in an engine that keeps GGUF's tiled order. */
static int64_t head_place(const weir_shape &shape, bool tiled, int64_t h)
{
    const int64_t r = shape.gdn_v_heads / shape.gdn_k_heads;
    return tiled ? (h % r) * shape.gdn_k_heads + h / r : h;
}

Recurrent recurrent_of(const weir_shape &shape, const std::string &mixer)
{
    if (mixer == "short_conv") return { shape.d_model, shape.conv_taps };
    if (mixer == "mamba2" || mixer == "attention_mamba2")
        return { shape.ssm_heads * shape.ssm_head_dim + 2 * shape.ssm_groups * shape.ssm_state,
                 shape.ssm_taps,
                 shape.ssm_heads,
                 shape.ssm_head_dim,
                 shape.ssm_state,
                 true };
    return { 2 * shape.gdn_k_heads * shape.gdn_k_dim + shape.gdn_v_heads * shape.gdn_v_dim,
             shape.gdn_taps, shape.gdn_v_heads, shape.gdn_v_dim, shape.gdn_k_dim };
}

static_assert(WEIR_DELTA_LANES == WEIR_SSM_LANES, "one layout of states");

std::vector<float> read_state(
    const Open &open, const weir_layer_memory &memory, const Recurrent &r, bool tiled
)
{
    const int64_t tiles = (r.lanes + WEIR_SSM_LANES - 1) / WEIR_SSM_LANES;
    const auto all =
        read_memory(open, open.sequence.recurrent, open.sequence.recurrent_bytes / sizeof(float));
    const float *const state = all.data() + memory.state_offset;
    std::vector<float> out;
    for (int64_t h = 0; h < r.n_heads; h++) {
        const int64_t head = tiled ? head_place(open.shape(), true, h) : h;
        for (int64_t k = 0; k < r.lanes * r.depth; k++) {
            const int64_t lane = r.lanes_first ? k / r.depth : k % r.lanes,
                          i = r.lanes_first ? k % r.depth : k / r.lanes;
            out.push_back(
                state
                    [((head * tiles + lane / WEIR_SSM_LANES) * r.depth + i) * WEIR_SSM_LANES +
                     lane % WEIR_SSM_LANES]
            );
        }
    }
    return out;
}

std::vector<float> read_history(
    const Open &open, const weir_layer_memory &memory, const Recurrent &r, bool tiled
)
{
    const weir_shape &shape = open.shape();
    const int64_t qk = tiled ? 2 * shape.gdn_k_heads * shape.gdn_k_dim : r.channels;
    const auto all =
        read_memory(open, open.sequence.recurrent, open.sequence.recurrent_bytes / sizeof(float));
    const float *const history = all.data() + memory.history_offset;
    std::vector<float> out;
    for (int64_t t = 0; t < r.taps - 1; t++)
        for (int64_t c = 0; c < r.channels; c++) {
            int64_t from = c;
            if (c >= qk)
                from = qk + head_place(shape, tiled, (c - qk) / shape.gdn_v_dim) * shape.gdn_v_dim +
                       (c - qk) % shape.gdn_v_dim;
            out.push_back(history[t * r.channels + from]);
        }
    return out;
}

} // namespace golden
