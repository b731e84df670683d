/* tests/golden/model_golden.cc - whole models: every weight file that a golden.json names is loaded the way a user's is, computed with
 * f32 activations and f32 KV, and compared tensor by tensor: as one prompt, token by token, and over the greedy continuation. */
#include <jansson.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/schedule/evaluate.h"
#include "engine/weir.h"
#include "tests/golden/golden.h"

namespace golden {
namespace {

struct Case {
    std::string          name, model;
    const json_t        *tensors; /* tolerances */
    std::vector<int32_t> prompt;
    Tensors              want;
};

/* A model open for measuring, with one sequence. */
struct Open {
    weir_engine  *engine = nullptr;
    weir_sequence sequence = {};
    ~Open()
    {
        weir_sequence_close(&sequence);
        weir_engine_close(engine);
    }
    const weir_shape &shape() const { return *weir_model_shape(weir_engine_model(engine)); }
};

weir_status open_model(Open *open, const std::string &path, weir_error *error)
{
    static weir_config config;
    weir_config_default(&config);
    snprintf(config.model.path, sizeof config.model.path, "%s", path.c_str());
    snprintf(config.kernels.activations, sizeof config.kernels.activations, "f32");
    snprintf(config.kv.format, sizeof config.kv.format, "f32");
    config.batch.max_sequences = 1;
    const weir_engine_options options = { &config, false, nullptr, nullptr };
    WEIR_TRY(weir_engine_open(&open->engine, &options, error));
    return weir_sequence_open(&open->sequence, weir_engine_store(open->engine), weir_engine_ledger(open->engine),
                              weir_model_recurrent_bytes(weir_engine_model(open->engine)), error);
}

struct Seen {
    std::vector<std::vector<float>> hidden; /* per layer + 1, rows appended */
    std::vector<float>              logits;
    size_t                          width = 0, rows = 0, n_vocab = 0;
};

/* Runs tokens and collects logits and, when asked, the residual stream. */
weir_status run(Open *open, const std::vector<int32_t> &tokens, bool one_by_one, Seen *seen, weir_error *error)
{
    seen->width = static_cast<size_t>(open->shape().d_model);
    seen->n_vocab = static_cast<size_t>(open->shape().n_vocab);
    seen->hidden.resize(static_cast<size_t>(open->shape().n_layers) + 1);
    weir_runner_observe(
        weir_engine_runner(open->engine),
        [](void *user, int64_t layer, const float *hidden) {
            Seen *const s = static_cast<Seen *>(user);
            auto       &rows = s->hidden[static_cast<size_t>(layer + 1)];
            rows.insert(rows.end(), hidden, hidden + s->rows * s->width);
        },
        seen);
    weir_evaluation evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(tokens.size());
    evaluation.decode_from = one_by_one ? 0 : INT32_MAX;
    seen->rows = one_by_one ? 1 : tokens.size();
    evaluation.visit = [](void *user, int32_t, int32_t n_rows, const float *logits) {
        Seen *const s = static_cast<Seen *>(user);
        s->logits.insert(s->logits.end(), logits, logits + static_cast<size_t>(n_rows) * s->n_vocab);
    };
    evaluation.user = seen;
    const weir_status status = weir_evaluate(weir_engine_runner(open->engine), &open->sequence, &evaluation, error);
    weir_runner_observe(weir_engine_runner(open->engine), nullptr, nullptr);
    return status;
}

std::string check(const Case &c, const std::string &name, const std::vector<float> &got)
{
    const std::vector<float> want = c.want.floats(name);
    if (want.empty()) return "";
    if (want.size() != got.size()) return format("%s has %zu elements, want %zu", name.c_str(), got.size(), want.size());
    const char *const text = json_string_value(json_object_get(json_object_get(c.tensors, name.c_str()), "tolerance"));
    const std::string off = compare(got.data(), want.data(), got.size(), Tolerance::parse(text != nullptr ? text : ""));
    return off.empty() ? "" : name + " " + off;
}

/* Keys or values of one layer as [T, G, hd], from the pages; pair-rotated keys are put back into half-split order. */
std::vector<float> read_cache(const Open &open, int64_t kv_index, bool keys, bool pairs)
{
    const weir_shape    &shape = open.shape();
    const weir_kv_table &table = open.sequence.table;
    const int64_t        hd = shape.head_dim, heads = shape.n_kv_heads, half = shape.rotary_dim / 2;
    std::vector<float>   out;
    for (int64_t t = 0; t < table.n_rows; t++)
        for (int64_t g = 0; g < heads; g++)
            for (int64_t d = 0; d < hd; d++) {
                const int64_t from = keys && pairs && d < 2 * half ? (d < half ? 2 * d : 2 * (d - half) + 1) : d;
                const float *page = static_cast<const float *>(table.pages[(kv_index * heads + g) * table.capacity + t / WEIR_PAGE_TOKENS]);
                const int64_t at = t % WEIR_PAGE_TOKENS;
                out.push_back(page[keys ? weir_page_k(at, from, hd) : weir_page_v(at, hd, hd) + from]);
            }
    return out;
}

/* Position of the checkpoint's V head h in an engine that keeps GGUF's tiled order. */
int64_t head_place(const weir_shape &shape, bool tiled, int64_t h)
{
    const int64_t r = shape.gdn_v_heads / shape.gdn_k_heads;
    return tiled ? (h % r) * shape.gdn_k_heads + h / r : h;
}

std::vector<float> read_state(const Open &open, const weir_layer_memory &memory, bool tiled)
{
    const weir_shape  &shape = open.shape();
    const int64_t      tiles = (shape.gdn_v_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    const float *const state = open.sequence.recurrent + memory.state_offset;
    std::vector<float> out;
    for (int64_t h = 0; h < shape.gdn_v_heads; h++)
        for (int64_t i = 0; i < shape.gdn_k_dim; i++)
            for (int64_t j = 0; j < shape.gdn_v_dim; j++)
                out.push_back(
                    state[((head_place(shape, tiled, h) * tiles + j / WEIR_DELTA_LANES) * shape.gdn_k_dim + i) * WEIR_DELTA_LANES +
                          j % WEIR_DELTA_LANES]);
    return out;
}

std::vector<float> read_history(const Open &open, const weir_layer_memory &memory, bool tiled)
{
    const weir_shape  &shape = open.shape();
    const int64_t      qk = 2 * shape.gdn_k_heads * shape.gdn_k_dim, channels = qk + shape.gdn_v_heads * shape.gdn_v_dim;
    const float *const history = open.sequence.recurrent + memory.history_offset;
    std::vector<float> out;
    for (int64_t t = 0; t < shape.gdn_taps - 1; t++)
        for (int64_t c = 0; c < channels; c++) {
            int64_t from = c;
            if (c >= qk) from = qk + head_place(shape, tiled, (c - qk) / shape.gdn_v_dim) * shape.gdn_v_dim + (c - qk) % shape.gdn_v_dim;
            out.push_back(history[t * channels + from]);
        }
    return out;
}

/* States and caches of every layer, under the names prompt.* or decode.*. */
std::string check_memory(const Case &c, const Open &open, const std::string &when)
{
    const weir_model *const model = weir_engine_model(open.engine);
    for (int64_t i = 0; i < open.shape().n_layers; i++) {
        const weir_layer_memory   memory = weir_model_layer_memory(model, i);
        const weir_block_options *options = weir_model_layer_options(model, i);
        std::string               off;
        if (memory.kv_index >= 0)
            off = check(c, format("%s.k.%d", when.c_str(), static_cast<int>(i)),
                        read_cache(open, memory.kv_index, true, options->rope == WEIR_ROPE_PAIRS));
        if (off.empty() && memory.kv_index >= 0)
            off = check(c, format("%s.v.%d", when.c_str(), static_cast<int>(i)), read_cache(open, memory.kv_index, false, false));
        if (off.empty() && memory.has_state)
            off = check(c, format("%s.state.%d", when.c_str(), static_cast<int>(i)), read_state(open, memory, options->tiled_heads));
        if (off.empty() && memory.has_history)
            off = check(c, format("%s.conv.%d", when.c_str(), static_cast<int>(i)), read_history(open, memory, options->tiled_heads));
        if (!off.empty()) return off;
    }
    return "";
}

std::string check_prompt(const Case &c, Open *open, bool one_by_one)
{
    weir_error error = {};
    Seen       seen;
    weir_sequence_clear(&open->sequence);
    if (run(open, c.prompt, one_by_one, &seen, &error) != WEIR_OK) return error.text;
    std::string off = check(c, "prompt.logits", seen.logits);
    for (size_t i = 0; off.empty() && i < seen.hidden.size(); i++) off = check(c, format("prompt.hidden.%zu", i), seen.hidden[i]);
    if (off.empty()) off = check_memory(c, *open, "prompt");
    return off.empty() ? "" : std::string(one_by_one ? "token by token: " : "as one prompt: ") + off;
}

int32_t best(const float *row, size_t n) { return static_cast<int32_t>(std::max_element(row, row + n) - row); }

/* Greedy: each token is fed back, also the last. */
std::string check_decode(const Case &c, Open *open)
{
    const std::vector<int32_t> tokens = c.want.integers("decode.tokens"), ids = c.want.integers("decode.top_ids");
    const std::vector<float>   top = c.want.floats("decode.top_logits");
    if (tokens.empty()) return "";
    const size_t n_top = ids.size() / tokens.size();
    weir_error   error = {};
    Seen         seen;
    weir_sequence_clear(&open->sequence);
    if (run(open, c.prompt, false, &seen, &error) != WEIR_OK) return error.text;
    const char *const  text = json_string_value(json_object_get(json_object_get(c.tensors, "decode.top_logits"), "tolerance"));
    const Tolerance    tolerance = Tolerance::parse(text != nullptr ? text : "");
    std::vector<float> row(seen.logits.end() - static_cast<ptrdiff_t>(seen.n_vocab), seen.logits.end());
    for (size_t i = 0; i < tokens.size(); i++) {
        const int32_t token = best(row.data(), row.size());
        if (token != tokens[i]) return format("decoded token %zu is %d, want %d", i, token, tokens[i]);
        std::vector<float> got;
        for (size_t k = 0; k < n_top; k++) got.push_back(row[static_cast<size_t>(ids[i * n_top + k])]);
        const std::string off = top.empty() ? "" : compare(got.data(), top.data() + i * n_top, n_top, tolerance);
        if (!off.empty()) return format("decode.top_logits of step %zu: ", i) + off;
        Seen step;
        if (run(open, { token }, true, &step, &error) != WEIR_OK) return error.text;
        row = step.logits;
    }
    const std::string off = check(c, "decode.last_logits", row);
    return off.empty() ? check_memory(c, *open, "decode") : off;
}

std::string check_frequencies(const Case &c, const Open &open)
{
    const weir_rope_table *const rope = weir_model_rope(weir_engine_model(open.engine));
    return check(c, "inv_freq", std::vector<float>(rope->frequencies, rope->frequencies + open.shape().rotary_dim / 2));
}

void run_case(const Case &c, Counts *counts)
{
    Open              open;
    weir_error        error = {};
    const weir_status status = open_model(&open, c.model, &error);
    if (status == WEIR_EUNSUPPORTED) return counts->skip(c.name, error.text);
    if (status != WEIR_OK) return counts->fail(c.name, error.text);
    std::string off = check_frequencies(c, open);
    if (off.empty()) off = check_prompt(c, &open, false);
    if (off.empty()) off = check_prompt(c, &open, true);
    if (off.empty()) off = check_decode(c, &open);
    if (off.empty())
        counts->pass(c.name);
    else
        counts->fail(c.name, off);
}

void run_file(const std::string &folder, const json_t *document, const char *golden, const json_t *entry, Counts *counts)
{
    const json_t *const weights = json_object_get(entry, "weights");
    const std::string   model_name = std::filesystem::path(folder).filename().string();
    for (size_t i = 0; i < json_array_size(weights); i++) {
        const std::string file =
            json_string_value(json_array_get(weights, i)) != nullptr ? json_string_value(json_array_get(weights, i)) : "";
        Case c;
        c.name = "models/" + model_name + "/" + file;
        if (!counts->wants(c.name)) continue;
        const bool is_gguf = file.size() > 5 && file.compare(file.size() - 5, 5, ".gguf") == 0;
        c.model = is_gguf ? folder + "/" + file : folder;
        c.tensors = json_object_get(entry, "tensors");
        std::string why;
        if (!c.want.open(folder + "/" + golden, &why)) {
            counts->fail(c.name, why);
            continue;
        }
        c.prompt = c.want.integers("prompt.tokens");
        const json_t *const ids = json_object_get(document, "prompt_tokens");
        for (size_t k = 0; c.prompt.empty() && k < json_array_size(ids); k++)
            c.prompt.push_back(static_cast<int32_t>(json_integer_value(json_array_get(ids, k))));
        if (c.prompt.empty())
            counts->fail(c.name, "no prompt tokens");
        else
            run_case(c, counts);
    }
}

} // namespace

void run_models(const std::string &folder, Counts *counts)
{
    for (const std::string &path : find_files(folder, "golden.json")) {
        json_error_t  error;
        json_t *const document = json_load_file(path.c_str(), 0, &error);
        if (document == nullptr) {
            counts->fail(path, error.text);
            continue;
        }
        const char *golden;
        json_t     *entry;
        json_object_foreach(json_object_get(document, "files"), golden, entry)
            run_file(std::filesystem::path(path).parent_path().string(), document, golden, entry, counts);
        json_decref(document);
    }
}

} // namespace golden
