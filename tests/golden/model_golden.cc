/* tests/golden/model_golden.cc - whole models: every weight file that a golden.json names is loaded
 * the way a user's is, computed with f32 activations and f32 KV, and compared tensor by tensor: as
 * one prompt, token by token, and over the greedy continuation. */
#include <jansson.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/engine_parts.h"
#include "engine/model/model_internal.h"
#include "engine/schedule/evaluate.h"
#include "tests/golden/golden.h"
#include "tests/golden/model_memory.h"

namespace golden {
namespace {

struct Case {
    std::string model;
    std::vector<int32_t> prompt;
    Reference want;
    Check *check = nullptr;
};

bool is_gguf(const std::string &file)
{
    return file.size() > 5 && file.compare(file.size() - 5, 5, ".gguf") == 0;
}

weir_status open_model(
    Open *open, const std::string &path, const std::string &device, weir_error *error
)
{
    static weir_config config;
    weir_config_default(&config);
    snprintf(config.model.path, sizeof config.model.path, "%s", path.c_str());
    snprintf(config.kernels.activations, sizeof config.kernels.activations, "f32");
    snprintf(config.kv.format, sizeof config.kv.format, "f32");
    config.kv.full_windows = true; /* the rows of all positions are compared */
    snprintf(config.kernels.device, sizeof config.kernels.device, "%s", device.c_str());
    config.batch.max_sequences = 1;
    const weir_engine_options options = { &config, false, false, nullptr, nullptr, nullptr };
    WEIR_TRY(weir_engine_open_with(&open->engine, &options, error));
    const char *const used = weir_engine_plan_of(open->engine)->device;
    const char *const host_only = weir_model_host_only(weir_engine_model(open->engine));
    if (device != used && host_only != nullptr)
        return weir_error_set(error, WEIR_EUNSUPPORTED, "on %s: %s", device.c_str(), host_only);
    if (device != used)
        return weir_error_set(
            error, WEIR_EDEVICE, "asked for %s, computed by %s", device.c_str(), used
        );
    return weir_kv_sequence_open(
        &open->sequence, weir_engine_store(open->engine), weir_engine_ledger(open->engine),
        weir_model_recurrent_bytes(weir_engine_model(open->engine)), error
    );
}

struct Seen {
    std::vector<std::vector<float>> hidden; /* per layer + 1, rows appended */
    std::vector<float> logits;
    size_t width = 0, n_vocab = 0;
    size_t rows = 0; /* of the step that runs */
};

/* Runs tokens and collects logits and, when asked, the residual stream. */
weir_status run(
    Open *open, const std::vector<int32_t> &tokens, bool one_by_one, Seen *seen, weir_error *error
)
{
    seen->width = static_cast<size_t>(open->shape().d_model);
    seen->n_vocab = static_cast<size_t>(open->shape().n_vocab);
    seen->hidden.resize(static_cast<size_t>(open->shape().n_layers) + 1);
    weir_runner_observe(
        weir_engine_runner(open->engine),
        [](void *user, int64_t layer, const float *hidden) {
            Seen *const s = static_cast<Seen *>(user);
            if (static_cast<size_t>(layer + 1) >= s->hidden.size()) return; /* after the norm */
            auto &rows = s->hidden[static_cast<size_t>(layer + 1)];
            rows.insert(rows.end(), hidden, hidden + s->rows * s->width);
        },
        seen
    );
    weir_evaluation evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(tokens.size());
    evaluation.decode_from = one_by_one ? 0 : INT32_MAX;
    evaluation.before = [](void *user, int32_t, int32_t n_rows) {
        static_cast<Seen *>(user)->rows = static_cast<size_t>(n_rows);
    };
    evaluation.visit = [](void *user, int32_t, int32_t n_rows, const float *logits) {
        Seen *const s = static_cast<Seen *>(user);
        s->logits.insert(
            s->logits.end(), logits, logits + static_cast<size_t>(n_rows) * s->n_vocab
        );
    };
    evaluation.user = seen;
    const weir_status status =
        weir_evaluate(weir_engine_runner(open->engine), &open->sequence, &evaluation, error);
    weir_runner_observe(weir_engine_runner(open->engine), nullptr, nullptr);
    return status;
}

/* An option of a layer's mixer. */
bool flag(const weir_model *model, int64_t layer, const char *name)
{
    const weir_block_option *option =
        weir_block_option_find(weir_model_layer_mixer(model, layer)->options, name);
    return option != nullptr &&
           weir_block_option_value(weir_model_layer_options(model, layer), option) != 0;
}

/* Some sets have the last dims of the latents where rotated keys should be: transformers 5.23 keeps
 * latents in the cache that they were read from. */
bool are_ends_of_latents(const Case &c, const std::string &when, int layer, int64_t rotary)
{
    const auto name = [&](const char *what) {
        return format("%s.%s.%d", when.c_str(), what, layer);
    };
    const std::vector<float> latents = c.want.tensors.floats(name("c"));
    const std::vector<int64_t> shape = c.want.tensors.shape(name("c"));
    if (shape.size() != 2 || shape[1] < rotary) return false;
    const std::vector<float> ends = dims_of(latents, shape[1], shape[1] - rotary, shape[1]);
    return c.want.tensors.floats(name("kr")) == ends ||
           c.want.tensors.floats(name("kr_pairs")) == ends;
}

/* Some sets have only the last rows of a layer with a window: what the library keeps. */
std::vector<float> last_rows(
    const Case &c, const std::string &when, const char *what, int layer,
    const std::vector<float> &rows
)
{
    const auto kept = static_cast<ptrdiff_t>(
        c.want.tensors.floats(format("%s.%s.%d", when.c_str(), what, layer)).size()
    );
    const bool is_part = kept > 0 && kept < static_cast<ptrdiff_t>(rows.size());
    return std::vector<float>(is_part ? rows.end() - kept : rows.begin(), rows.end());
}

/* KV rows of a layer: keys in half-split order and values, or latents and rotated keys. */
void check_rows(
    Case *c, const Open &open, int layer, const std::string &when, const std::string &how
)
{
    const weir_model *const model = weir_engine_model(open.engine);
    const weir_block_kv *const kv = weir_model_layer_kv(model, layer);
    const weir_kv_geometry &g = kv->geometry;
    const int64_t rotary = open.shape().rotary_dim,
                  pairs = kv->rope == WEIR_ROPE_PAIRS ? rotary : 0;
    const std::vector<float> keys = read_cache(open, g, true);
    const auto compare = [&](const char *what, const std::vector<float> &got) {
        c->want.compare(c->check, format("%s.%s.%d", when.c_str(), what, layer), got, how);
    };
    if (weir_model_layer_mixer(model, layer)->name == std::string("mla")) {
        compare("c", dims_of(keys, g.key_dim, 0, g.key_dim - rotary));
        if (are_ends_of_latents(*c, when, layer, rotary)) return;
        compare("kr_pairs", dims_of(keys, g.key_dim, g.key_dim - rotary, g.key_dim));
        compare(
            "kr", dims_of(keys, g.key_dim, g.key_dim - rotary, g.key_dim, kv->no_rope ? 0 : pairs)
        );
        return;
    }
    compare("k", dims_of(last_rows(*c, when, "k", layer, keys), g.key_dim, 0, g.key_dim, pairs));
    compare("v", last_rows(*c, when, "v", layer, read_cache(open, g, false)));
}

/* States and caches of every layer, under the names prompt.* or decode.*. */
void check_memory(Case *c, const Open &open, const std::string &when, const std::string &how)
{
    const weir_model *const model = weir_engine_model(open.engine);
    for (int i = 0; i < static_cast<int>(open.shape().n_layers); i++) {
        const weir_layer_memory memory = weir_model_layer_memory(model, i);
        const bool tiled = flag(model, i, "tiled_heads");
        const Recurrent recurrent =
            recurrent_of(open.shape(), weir_model_layer_mixer(model, i)->name);
        const auto name = [&](const char *what) {
            return format("%s.%s.%d", when.c_str(), what, i);
        };
        if (memory.kv_index >= 0) check_rows(c, open, i, when, how);
        if (memory.has_state)
            c->want.compare(
                c->check, name("state"), read_state(open, memory, recurrent, tiled), how
            );
        if (memory.has_history)
            c->want.compare(
                c->check, name("conv"), read_history(open, memory, recurrent, tiled), how
            );
    }
}

void check_prompt(Case *c, Open *open, bool one_by_one)
{
    const std::string how = one_by_one ? "token by token:" : "as one prompt:";
    weir_error error = {};
    Seen seen;
    weir_kv_sequence_clear(&open->sequence);
    if (run(open, c->prompt, one_by_one, &seen, &error) != WEIR_OK) throw Broken(error.text);
    c->want.compare(c->check, "prompt.logits", seen.logits, how);
    for (size_t i = 0; i < seen.hidden.size(); i++)
        c->want.compare(c->check, format("prompt.hidden.%zu", i), seen.hidden[i], how);
    check_memory(c, *open, "prompt", how);
}

int32_t best(const float *row, size_t n)
{
    return static_cast<int32_t>(std::max_element(row, row + n) - row);
}

/* Greedy: each token is fed back, also the last. */
void check_decode(Case *c, Open *open)
{
    const std::vector<int32_t> tokens = c->want.tensors.integers("decode.tokens"),
                               ids = c->want.tensors.integers("decode.top_ids");
    const std::vector<float> top = c->want.tensors.floats("decode.top_logits");
    if (tokens.empty()) return;
    const size_t n_top = ids.size() / tokens.size();
    weir_error error = {};
    Seen seen;
    if (!top.empty() && top.size() != ids.size())
        throw Broken("decode.top_ids and decode.top_logits have different sizes");
    weir_kv_sequence_clear(&open->sequence);
    if (run(open, c->prompt, false, &seen, &error) != WEIR_OK) throw Broken(error.text);
    std::vector<float> row(
        seen.logits.end() - static_cast<ptrdiff_t>(seen.n_vocab), seen.logits.end()
    );
    for (const char *name : { "decode.tokens", "decode.top_ids", "decode.top_logits" })
        c->want.mark(name);
    for (size_t i = 0; i < tokens.size() && !c->check->failed(); i++) {
        const int32_t token = best(row.data(), row.size());
        c->check->equal(format("decode.tokens of step %zu", i), { token }, { tokens[i] });
        std::vector<float> got, want;
        for (size_t k = i * n_top; k < (i + 1) * n_top && k < top.size(); k++) {
            if (ids[k] < 0 || static_cast<size_t>(ids[k]) >= row.size())
                throw Broken("decode.top_ids holds an id without logits");
            got.push_back(row[static_cast<size_t>(ids[k])]);
            want.push_back(top[k]);
        }
        c->check->close(
            format("decode.top_logits of step %zu", i), got, want,
            c->want.tolerance("decode.top_logits")
        );
        Seen step;
        if (run(open, { token }, true, &step, &error) != WEIR_OK) throw Broken(error.text);
        row = step.logits;
    }
    if (c->check->failed()) return;
    c->want.compare(c->check, "decode.last_logits", row);
    check_memory(c, *open, "decode", "");
}

void check_frequencies(Case *c, const Open &open)
{
    const weir_model *const model = weir_engine_model(open.engine);
    const float *const all = weir_model_rope(model)->frequencies;
    const int64_t n = open.shape().rotary_dim / 2,
                  n_local = weir_shape_local_rotary(&open.shape()) / 2;
    c->want.compare(c->check, "inv_freq", std::vector<float>(all, all + n));
    if (model->shape.rope_theta_local <= 0.0) return;
    const float *const local = model->frequencies + weir_model_frequencies(model);
    c->want.compare(c->check, "full_attention_inv_freq", std::vector<float>(all, all + n));
    c->want.compare(
        c->check, "sliding_attention_inv_freq", std::vector<float>(local, local + n_local)
    );
}

void check_model(Case *c, Open *open)
{
    if (c->prompt.empty()) throw Broken("there are no prompt tokens");
    for (const int32_t token : c->prompt)
        if (token < 0 || token >= open->shape().n_vocab)
            throw Broken(format("prompt token %d is not in the vocabulary", token));
    c->want.mark("prompt.tokens");
    check_frequencies(c, *open);
    check_prompt(c, open, false);
    check_prompt(c, open, true);
    check_decode(c, open);
}

/* Why a value of these was not compared. */
std::string reason_of(const std::string &kind)
{
    if (kind == "trace") return "the inside of a layer cannot be seen from outside";
    if (kind == "prompt.final_norm")
        return "what follows the last layer cannot be seen before the logits";
    if (kind == "prompt.kr" || kind == "prompt.kr_pairs")
        return "the ends of latents are in the place of rotated keys";
    if (kind == "prompt.k" || kind == "prompt.v")
        return "keys and values of heads are not computed from latents";
    return "no case compares these values";
}

/* One line for each kind of tensor with a tolerance that nothing was compared with: "trace",
 * "prompt.final_norm". */
void skip_left(const Case &c, const std::string &name, Counts *counts)
{
    std::map<std::string, size_t> kinds;
    for (const std::string &tensor : c.want.left()) {
        const size_t first = tensor.find('.');
        kinds
            [tensor.compare(0, 6, "trace.") == 0 ? "trace"
                                                 : tensor.substr(0, tensor.find('.', first + 1))]++;
    }
    for (const auto &[kind, n] : kinds)
        counts->skip(name + ":" + kind, format("%zu tensors: ", n) + reason_of(kind));
}

void run_weights(
    Case *c, const std::string &name, const json_t *document, const std::string &golden,
    Counts *counts
)
{
    Open open;
    weir_error error = {};
    std::string why;
    if (!c->want.tensors.open(golden, &why)) return counts->fail(name, why);
    const weir_status status = open_model(&open, c->model, counts->device, &error);
    if (status == WEIR_EUNSUPPORTED) return counts->skip(name, error.text);
    c->prompt = c->want.tensors.integers("prompt.tokens");
    const json_t *const ids = json_object_get(document, "prompt_tokens");
    for (size_t k = 0; c->prompt.empty() && k < json_array_size(ids); k++)
        c->prompt.push_back(static_cast<int32_t>(json_integer_value(json_array_get(ids, k))));
    bool passed = false;
    counts->run(name, [&](Check *check) {
        if (status != WEIR_OK) throw Broken(error.text);
        c->check = check;
        check_model(c, &open);
        passed = !check->failed();
    });
    if (passed) skip_left(*c, name, counts);
}

/* The weights, and files that belong to a checkpoint even if they are not listed. */
void know(const std::string &folder, const std::string &file, Counts *counts)
{
    counts->known.insert(folder + "/" + file);
    for (const char *also : { "config.json", "generation_config.json", "tokenizer.json",
                              "tokenizer_config.json", "chat_template.jinja" })
        counts->known.insert(folder + "/" + also);
    if (file != "model.safetensors.index.json") return;
    for (const std::string &path : all_files(folder)) {
        const std::string name = std::filesystem::path(path).filename().string();
        if (name.compare(0, 6, "model-") == 0 && name.find("-of-") != std::string::npos)
            counts->known.insert(path);
    }
}

/* Every weight file that one golden file belongs to. */
void run_file(
    const std::string &folder, const json_t *document, const std::string &golden,
    const json_t *entry, Counts *counts
)
{
    const json_t *const weights = json_object_get(entry, "weights");
    const std::string model_name = folder_name(folder + "/golden.json");
    counts->known.insert(folder + "/" + golden);
    if (json_array_size(weights) == 0)
        counts->fail("models/" + model_name + "/" + golden, "golden.json names no weights for it");
    for (size_t i = 0; i < json_array_size(weights); i++) {
        const char *const text = json_string_value(json_array_get(weights, i));
        const std::string file = text != nullptr ? text : "",
                          name = "models/" + model_name + "/" + file;
        if (file.empty()) {
            counts->fail(name, "golden.json: a name of weights is not a text");
            continue;
        }
        know(folder, file, counts);
        if (!counts->wants(name)) continue;
        Case c;
        c.model = is_gguf(file) ? folder + "/" + file : folder;
        c.want.info = json_object_get(entry, "tensors");
        run_weights(&c, name, document, folder + "/" + golden, counts);
    }
}

} // namespace

void run_models(const std::string &folder, Counts *counts)
{
    for (const std::string &path : find_files(folder, "golden.json")) {
        const std::string name = "models/" + folder_name(path);
        counts->known.insert(path);
        try {
            const Document document(path);
            const json_t *const files = document["files"];
            if (json_object_size(files) == 0) throw Broken("golden.json lists no files");
            const char *golden;
            const json_t *entry;
            json_object_foreach(const_cast<json_t *>(files), golden, entry)
                run_file(folder_of(path), document.root(), golden, entry, counts);
        } catch (const std::exception &error) {
            counts->fail(name, error.what());
        }
    }
}

} // namespace golden
