#include "tests/golden/coda_layer.h"

#include <cmath>

namespace golden {

/* ---- what a layer is ------------------------------------------------------------------------- */
namespace {

void set_bank(weir_coda_layer *bank, const json_t *json)
{
    bank->n_kv_heads = static_cast<int64_t>(number_at(json, "Hk", 0));
    bank->head_dim = static_cast<int64_t>(number_at(json, "Dh", 0));
    bank->window = static_cast<int32_t>(number_at(json, "W", 0));
    bank->least_exact = bank->n_exact = static_cast<int32_t>(number_at(json, "Me", 0));
    bank->least_summary = bank->n_summary = static_cast<int32_t>(number_at(json, "Ms", 0));
    bank->exact_candidates = static_cast<int32_t>(number_at(json, "Te", 0));
    bank->summary_candidates = static_cast<int32_t>(number_at(json, "Ts", 0));
    bank->exact_gate = static_cast<float>(number_at(json, "thr_exact", 0));
    bank->summary_gate = static_cast<float>(number_at(json, "thr_summary", 0));
    bank->hit = static_cast<float>(number_at(json, "match", 0));
    bank->novelty = static_cast<float>(number_at(json, "novelty", 0));
    bank->is_gated = json_is_true(json_object_get(json, "gated"));
    bank->refreshes = json_is_true(json_object_get(json, "refresh"));
    bank->founds = json_is_true(json_object_get(json, "overwrite"));
    bank->band = WEIR_CODA_UPPER_HALF;
    bank->format = WEIR_KV_F32;
}

/* The band that a list of its dimensions is. */
weir_coda_band band_of(weir_coda_layer layer, const json_t *list)
{
    for (const weir_coda_band band : { WEIR_CODA_UPPER_HALF, WEIR_CODA_SLOW_PAIRS }) {
        layer.band = band;
        std::vector<int64_t> dims;
        for (int64_t d = 0; d < layer.head_dim; d++)
            if (weir_coda_is_low(&layer, d)) dims.push_back(d);
        bool is_same = dims.size() == json_array_size(list);
        for (size_t i = 0; is_same && i < dims.size(); i++)
            is_same = json_integer_value(json_array_get(list, i)) == dims[i];
        if (is_same) return band;
    }
    throw Broken("lf_index is no low band that is known");
}

} // namespace

CodaConfig CodaConfig::parse(const json_t *json)
{
    CodaConfig c;
    c.model = static_cast<int64_t>(number_at(json, "D", 0));
    c.n_heads = static_cast<int64_t>(number_at(json, "H", 0));
    c.base = number_at(json, "base", 10000);
    c.interleaved = json_is_true(json_object_get(json, "interleaved"));
    c.norm = string_at(json, "norm") == "full";
    c.mask = json_is_true(json_object_get(json, "mask"));
    set_bank(&c.bank, json);
    if (json_object_get(json, "lf_index") != nullptr)
        c.bank.band = band_of(c.bank, json_object_get(json, "lf_index"));
    if (c.model < 1 || c.n_heads < 1 || weir_coda_reject(&c.bank) != nullptr ||
        c.n_heads % c.bank.n_kv_heads != 0)
        throw Broken("its config is no layer of CoDA");
    return c;
}

void CodaConfig::change(const json_t *changed)
{
    const char *name;
    json_t *value;
    json_object_foreach(const_cast<json_t *>(changed), name, value)
    {
        const std::string key = name;
        const bool is_true = json_is_true(value);
        const auto number = static_cast<int32_t>(json_number_value(value));
        if (key == "rope_interleaved")
            interleaved = is_true;
        else if (key == "head_norm_mode")
            norm = std::string(json_string_value(value)) == "full";
        else if (key == "write_policy")
            bank.is_gated = std::string(json_string_value(value)) != "none";
        else if (key == "exact_refresh_on_hit")
            bank.refreshes = is_true;
        else if (key == "summary_overwrite_on_insert")
            bank.founds = is_true;
        else if (key == "mask_unused_memory")
            mask = is_true;
        else if (key == "num_landmarks_exact")
            bank.n_exact = bank.least_exact = number;
        else if (key == "num_landmarks_summary")
            bank.n_summary = bank.least_summary = number;
        else if (key == "min_landmarks_exact")
            bank.least_exact = number;
        else if (key == "max_landmarks_exact")
            bank.n_exact = number;
        else if (key == "min_landmarks_summary")
            bank.least_summary = number;
        else if (key == "max_landmarks_summary")
            bank.n_summary = number;
        else if (key == "expansion_t_max")
            bank.growth = number;
        else if (key == "window")
            bank.window = number;
        else
            throw Broken("an option that is not known: " + key);
    }
}

/* ---- a state --------------------------------------------------------------------------------- */
CodaState::CodaState(const CodaConfig &config) : layer_(config.bank)
{
    storage_.resize(weir_coda_view(&layer_, nullptr).bytes + 64);
    weir_coda_reset(&layer_, memory());
}

void CodaState::fill(const Floats &k, const Floats &v)
{
    const weir_coda_state state = view();
    const int64_t n = layer_.head_dim, slots = state.n_slots;
    if (static_cast<int64_t>(k.size()) != layer_.n_kv_heads * slots * n || k.size() != v.size())
        throw Broken("the first contents of another size");
    Floats row(static_cast<size_t>(layer_.n_kv_heads * n));
    for (int64_t slot = 0; slot < slots; slot++)
        for (const weir_kv_side side : { WEIR_KV_K, WEIR_KV_V }) {
            const Floats &from = side == WEIR_KV_K ? k : v;
            for (int64_t h = 0; h < layer_.n_kv_heads; h++)
                std::copy_n(from.begin() + (h * slots + slot) * n, n, row.begin() + h * n);
            weir_coda_put(&layer_, &state, side, state.rows[slot], row.data());
        }
}

Floats CodaState::slots(weir_kv_side side)
{
    const weir_coda_state state = view();
    const int64_t n = layer_.head_dim;
    Floats out(static_cast<size_t>(layer_.n_kv_heads * state.n_slots * n)),
        row(static_cast<size_t>(layer_.n_kv_heads * n));
    for (int64_t slot = 0; slot < state.n_slots; slot++) {
        weir_coda_read(&layer_, &state, side, state.rows[slot], row.data());
        for (int64_t h = 0; h < layer_.n_kv_heads; h++)
            std::copy_n(row.begin() + h * n, n, out.begin() + (h * state.n_slots + slot) * n);
    }
    return out;
}

std::vector<int32_t> CodaState::used()
{
    const weir_coda_state state = view();
    std::vector<int32_t> out;
    for (int64_t slot = 0; slot < state.n_slots; slot++)
        out.push_back(weir_coda_is_used(&state, slot));
    return out;
}

/* ---- a layer --------------------------------------------------------------------------------- */
CodaLayer::CodaLayer(const CodaConfig &config, const CodaWeights &weights, Row *write)
    : config_(config), weights_(weights), write_(write)
{
    const auto logits = weights.find("summary_eta_logit");
    rates_.assign(static_cast<size_t>(config.bank.n_kv_heads), 0.0f);
    for (size_t h = 0; logits != weights.end() && h < rates_.size(); h++)
        rates_[h] = 1.0f / (1.0f + std::exp(-logits->second.at(h)));
    config_.bank.rates = rates_.data();
}

const Floats &CodaLayer::weight(const std::string &name) const
{
    const auto found = weights_.find(name);
    if (found == weights_.end() || found->second.empty()) throw Broken("no weight " + name);
    return found->second;
}

Floats CodaLayer::multiply(const Floats &x, const std::string &name, int64_t n_in) const
{
    const Floats &w = weight(name);
    const Weight packed(w, static_cast<int64_t>(w.size()) / n_in, n_in);
    return golden::multiply(x, packed);
}

CodaLayer::Rows CodaLayer::project(const Floats &x, int64_t position) const
{
    const int64_t n = static_cast<int64_t>(x.size()) / config_.model, dim = config_.bank.head_dim;
    Rows rows = { multiply(x, "q_proj.weight", config_.model),
                  multiply(x, "k_proj.weight", config_.model),
                  multiply(x, "v_proj.weight", config_.model),
                  multiply(x, "lambda_proj.weight", config_.model),
                  Floats(static_cast<size_t>(n), 0.0f),
                  n };
    const auto norm = [&](Floats *rows_of, const std::string &name) {
        if (weights_.count(name) == 0) return;
        weir_rmsnorm_args args = {};
        args.dst = rows_of->data();
        args.src = rows_of->data();
        args.weight = weight(name).data();
        args.n_rows = static_cast<int64_t>(rows_of->size()) / dim;
        args.n_groups = 1;
        args.dim = args.dst_stride = args.src_stride = dim;
        args.eps = 1e-6f;
        if (weir_rmsnorm(stream(), &args) != WEIR_OK) throw Broken("the norm was refused");
    };
    norm(&rows.q, "q_norm.weight");
    norm(&rows.k, "k_norm.weight");
    Floats frequencies;
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < dim; i += 2)
        frequencies.push_back(
            1.0f /
            std::pow(
                static_cast<float>(config_.base), static_cast<float>(i) / static_cast<float>(dim)
            )
        );
    for (int64_t t = 0; t < n; t++) positions.push_back(static_cast<int32_t>(position + t));
    for (Floats *part : { &rows.q, &rows.k }) {
        weir_rope_args args = {};
        args.x = part->data();
        args.positions = positions.data();
        args.frequencies = frequencies.data();
        args.n_rows = n;
        args.n_heads = static_cast<int64_t>(part->size()) / n / dim;
        args.rotary_dim = args.head_stride = dim;
        args.row_stride = args.n_heads * dim;
        args.magnitude = 1.0f;
        args.pairing = config_.interleaved ? WEIR_ROPE_PAIRS : WEIR_ROPE_HALF_SPLIT;
        if (weir_rope(stream(), &args) != WEIR_OK) throw Broken("the rotation was refused");
    }
    if (config_.bank.is_gated) {
        rows.gates = multiply(x, "write_proj.weight", config_.model);
        for (float &gate : rows.gates) gate += weight("write_proj.bias")[0];
    }
    return rows;
}

Floats CodaLayer::doubled(const Floats &q) const
{
    Floats out(2 * q.size());
    weir_coda_queries_args args = {};
    args.dst = out.data();
    args.q = q.data();
    args.theta = weight("theta").data();
    args.n_heads = config_.n_heads;
    args.n_kv_heads = config_.bank.n_kv_heads;
    args.head_dim = config_.bank.head_dim;
    args.q_stride = config_.n_heads * config_.bank.head_dim;
    args.n_rows = static_cast<int64_t>(q.size()) / args.q_stride;
    if (weir_coda_queries(stream(), &args) != WEIR_OK) throw Broken("the queries were refused");
    return out;
}

/* Rows [first, first + n) over the state's rows, and with_new over themselves, causally. The pages
 * of the state stay as they are: its last page that is not full is copied, and the new rows go
 * after the copy. */
Floats CodaLayer::attend(
    CodaState *state, const Rows &rows, int64_t first, int64_t n, bool with_new
) const
{
    const int64_t dim = config_.bank.head_dim, heads = config_.bank.n_kv_heads,
                  q_heads = 2 * config_.n_heads;
    const weir_coda_state view = state->view();
    const int64_t n_past = config_.mask ? view.head->n_rows : view.n_slots,
                  total = n_past + (with_new ? n : 0);
    const int64_t n_pages = (total + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS,
                  whole = n_past / WEIR_PAGE_TOKENS;
    Floats out(static_cast<size_t>(n * q_heads * dim), 0.0f);
    if (total == 0) return out;
    std::vector<std::vector<char>> own(
        static_cast<size_t>(heads * n_pages),
        std::vector<char>(static_cast<size_t>(view.page_bytes))
    );
    std::vector<void *> table;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t p = 0; p < n_pages; p++) {
            char *const stored = view.pages + (h * view.n_pages + p) * view.page_bytes;
            auto &copy = own[static_cast<size_t>(h * n_pages + p)];
            if (p == whole && n_past % WEIR_PAGE_TOKENS != 0)
                std::copy_n(stored, copy.size(), copy.begin());
            table.push_back(p < whole ? stored : copy.data());
        }
    weir_kv_segment segment = {};
    segment.pages = table.data();
    segment.page_stride = n_pages;
    segment.n_past = static_cast<int32_t>(n_past);
    segment.n_rows = static_cast<int32_t>(n);
    if (with_new) {
        weir_kv_write_args write = {};
        write.k = rows.k.data() + first * heads * dim;
        write.v = rows.v.data() + first * heads * dim;
        write.segments = &segment;
        write.n_segments = 1;
        write.n_kv_heads = heads;
        write.key_dim = write.value_dim = dim;
        write.k_stride = write.v_stride = heads * dim;
        write.k_format = write.v_format = config_.bank.format;
        if (weir_kv_write(stream(), &write) != WEIR_OK)
            throw Broken("keys and values were refused");
    }
    const Floats q = doubled({ rows.q.begin() + first * q_heads / 2 * dim,
                               rows.q.begin() + (first + n) * q_heads / 2 * dim });
    std::vector<weir_kv_segment> segments(with_new ? 1 : static_cast<size_t>(n), segment);
    for (size_t i = 0; !with_new && i < segments.size();
         i++) { /* each sees all rows and nothing else */
        segments[i].first_row = static_cast<int32_t>(i);
        segments[i].n_rows = 1;
        segments[i].n_past = static_cast<int32_t>(n_past - 1);
    }
    weir_attention_args args = {};
    args.out = out.data();
    args.q = q.data();
    args.segments = segments.data();
    args.n_segments = static_cast<int64_t>(segments.size());
    args.n_heads = q_heads;
    args.n_kv_heads = heads;
    args.key_dim = args.value_dim = args.q_head_stride = dim;
    args.q_stride = args.out_stride = q_heads * dim;
    args.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    args.k_format = args.v_format = config_.bank.format;
    if (weir_attention(stream(), &args) != WEIR_OK) throw Broken("attention was refused");
    return out;
}

Floats CodaLayer::output(const Floats &attended, const Rows &rows, int64_t first, int64_t n) const
{
    Floats r(attended.size() / 2);
    weir_coda_combine_args args = {};
    args.dst = r.data();
    args.src = attended.data();
    args.lambda = rows.lambda.data() + first * config_.n_heads;
    args.bias = weight("lambda_proj.bias").data();
    args.weight = config_.norm ? weight("head_norm.weight").data() : nullptr;
    args.n_rows = n;
    args.n_heads = args.lambda_stride = config_.n_heads;
    args.n_kv_heads = config_.bank.n_kv_heads;
    args.head_dim = config_.bank.head_dim;
    args.eps = 1e-6f;
    if (weir_coda_combine(stream(), &args) != WEIR_OK) throw Broken("the difference was refused");
    return multiply(r, "o_proj.weight", config_.n_heads * config_.bank.head_dim);
}

bool CodaLayer::write(CodaState *state, const Rows &rows, int64_t first, int64_t n, bool is_step)
{
    const weir_coda_segment segment = { state->memory(), static_cast<int32_t>(first),
                                        static_cast<int32_t>(n), is_step };
    weir_coda_write_args args = {};
    args.k = rows.k.data();
    args.v = rows.v.data();
    args.gates = rows.gates.data();
    args.layer = &config_.bank;
    args.segments = &segment;
    args.n_segments = 1;
    args.k_stride = args.v_stride = config_.bank.n_kv_heads * config_.bank.head_dim;
    args.gate_stride = 1;
    return write_->run(&args);
}

bool CodaLayer::prefill(CodaState *state, const Floats &x, int64_t block, Floats *y, bool writes)
{
    const Rows rows = project(x, state->view().head->position);
    y->clear();
    for (int64_t first = 0; first < rows.n; first += block) {
        const int64_t n = std::min(block, rows.n - first);
        const Floats part = output(attend(state, rows, first, n, true), rows, first, n);
        y->insert(y->end(), part.begin(), part.end());
        if (writes && !write(state, rows, first, n, false)) return false;
    }
    return true;
}

bool CodaLayer::step(CodaState *state, const Floats &x, Floats *y, bool writes, bool sees_itself)
{
    const Rows rows = project(x, state->view().head->position);
    if (!sees_itself) *y = output(attend(state, rows, 0, 1, false), rows, 0, 1);
    if (writes && !write(state, rows, 0, 1, true)) return false;
    if (sees_itself) *y = output(attend(state, rows, 0, 1, false), rows, 0, 1);
    return true;
}

Floats CodaLayer::causal(const Floats &x)
{
    CodaState none(config_);
    const Rows rows = project(x, 0);
    return output(attend(&none, rows, 0, rows.n, true), rows, 0, rows.n);
}

} // namespace golden
