/* tests/golden/quant_golden.cc - block formats (NAME.raw to NAME.f32) and samplers: every case of quant_blocks and samplers files. */
#include <jansson.h>
#include <strings.h>

#include <cstring>
#include <filesystem>

#include "engine/sample/processors.h"
#include "offload/weights.h"
#include "tests/golden/golden.h"

namespace golden {
namespace {

bool dtype_named(const std::string &name, weir_dtype *out)
{
    for (int i = 0; i < WEIR_DTYPE_COUNT; i++) {
        if (strcasecmp(weir_dtype_of(static_cast<weir_dtype>(i)).name, name.c_str()) != 0) continue;
        *out = static_cast<weir_dtype>(i);
        return true;
    }
    return false;
}

int32_t ulps(float a, float b)
{
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x < y ? y - x : x - y;
}

void run_block(const weir_tensor_directory *file, const std::string &name, const std::string &label, Counts *counts)
{
    const weir_tensor *const raw = weir_tensor_directory_find(file, (name + ".raw").c_str()), *const want = weir_tensor_directory_find(
                                                                                                  file, (name + ".f32").c_str());
    weir_dtype dtype;
    if (want == nullptr || want->dtype != WEIR_F32) return counts->fail(label, "no values beside the blocks");
    if (!dtype_named(name, &dtype)) return counts->skip(label, "no such block format");
    const size_t       n = want->bytes / sizeof(float);
    std::vector<float> got(n), expected(n);
    memcpy(expected.data(), want->data, want->bytes);
    if (raw->bytes != weir_row_bytes(dtype, static_cast<int64_t>(n))) return counts->fail(label, "sizes do not fit");
    if (weir_dequantise(got.data(), raw->data, dtype, static_cast<int64_t>(n)) != WEIR_OK) return counts->fail(label, "refused");
    /* One unit in the last place where a block multiplies scale and sub-scale or adds a minimum, none elsewhere. */
    const int allowed = weir_dtype_of(dtype).block_elements > 32 || dtype == WEIR_Q4_1 || dtype == WEIR_Q5_1 ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        if (ulps(got[i], expected[i]) > allowed && !(got[i] == expected[i]))
            return counts->fail(label,
                                format("element %zu is %.9g, want %.9g", i, static_cast<double>(got[i]), static_cast<double>(expected[i])));
    }
    counts->pass(label);
}

/* ---- samplers -------------------------------------------------------------------------------------------- */
double number(const json_t *one, const char *key, double otherwise)
{
    const json_t *const value = json_object_get(one, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

/* 1 where a token is still a candidate. */
std::vector<float> kept(const weir_sampler_scratch *scratch, size_t n)
{
    std::vector<float> out(n, 0.0f);
    for (size_t i = 0; i < weir_candidates_count(scratch); i++) {
        const int32_t id = weir_candidates_id(scratch, i);
        if (std::isfinite(weir_candidates_logit(scratch, i))) out[static_cast<size_t>(id)] = 1.0f;
    }
    return out;
}

std::string check_stage(const Tensors &file, const std::string &name, const std::vector<float> &got, const Tolerance &tolerance)
{
    const std::vector<float> want = file.floats(name);
    if (want.empty()) return "";
    const std::string off = want.size() == got.size() ? compare(got.data(), want.data(), got.size(), tolerance) : "sizes differ";
    return off.empty() ? "" : name + ": " + off;
}

std::string run_sampler(const Tensors &file, const json_t *one, size_t index, const weir_sampler_history &history)
{
    const std::vector<int64_t> shape = file.shape("logits");
    const size_t               n = static_cast<size_t>(shape[1]), row = static_cast<size_t>(number(one, "row", 0));
    const std::vector<float>   all = file.floats("logits");
    const std::string          prefix = format("%zu.", index);
    weir_sampling              sampling = weir_sampling_default();
    weir_sampler_scratch      *scratch = nullptr;
    sampling.repetition_penalty = static_cast<float>(number(one, "repetition", 1));
    sampling.presence_penalty = static_cast<float>(number(one, "presence", 0));
    sampling.frequency_penalty = static_cast<float>(number(one, "frequency", 0));
    if (weir_sampler_scratch_open(&scratch, n) != WEIR_OK) return "no memory";
    weir_process_load(scratch, all.data() + row * n, n);
    weir_process_penalties(scratch, &sampling, &history);
    std::string  off = check_stage(file, prefix + "penalised", std::vector<float>(scratch->logits, scratch->logits + n), { 1e-6, 1e-6 });
    const double temperature = number(one, "temperature", 1);
    if (temperature > 0) {
        weir_process_temperature(scratch, static_cast<float>(temperature));
        if (json_object_get(one, "top_k") != nullptr) weir_process_top_k(scratch, static_cast<size_t>(number(one, "top_k", 0)));
        if (off.empty()) off = check_stage(file, prefix + "kept_after_top_k", kept(scratch, n), {});
        if (json_object_get(one, "top_p") != nullptr) weir_process_top_p(scratch, number(one, "top_p", 1));
        if (off.empty()) off = check_stage(file, prefix + "kept_after_top_p", kept(scratch, n), {});
        if (json_object_get(one, "min_p") != nullptr) weir_process_min_p(scratch, static_cast<float>(number(one, "min_p", 0)));
        if (off.empty()) off = check_stage(file, prefix + "kept_after_min_p", kept(scratch, n), {});
        weir_process_softmax(scratch);
        std::vector<float> probabilities(n, 0.0f);
        for (size_t i = 0; i < weir_candidates_count(scratch); i++)
            probabilities[static_cast<size_t>(weir_candidates_id(scratch, i))] = static_cast<float>(
                static_cast<double>(scratch->weights[scratch->listed ? i : static_cast<size_t>(weir_candidates_id(scratch, i))]) /
                scratch->total);
        if (off.empty()) off = check_stage(file, prefix + "probs", probabilities, { 1e-5, 1e-7 });
    } else {
        sampling.temperature = 0;
        const int32_t      id = weir_sample(all.data() + row * n, n, n, &sampling, &history, nullptr, 0, 0, 0, scratch);
        std::vector<float> probabilities(n, 0.0f);
        probabilities[static_cast<size_t>(id)] = 1.0f;
        if (off.empty()) off = check_stage(file, prefix + "probs", probabilities, { 1e-5, 1e-7 });
    }
    weir_sampler_scratch_close(scratch);
    return off;
}

std::vector<uint16_t> count_ids(const std::vector<int32_t> &ids, size_t n)
{
    std::vector<uint16_t> counts(n, 0);
    for (const int32_t id : ids) counts[static_cast<size_t>(id)]++;
    return counts;
}

} // namespace

void run_quant_blocks(const std::string &folder, Counts *counts)
{
    for (const std::string &path : find_files(folder, "quant_blocks.safetensors")) {
        weir_tensor_directory *file = nullptr;
        weir_error             error = {};
        if (weir_tensor_directory_open(&file, path.c_str(), &error) != WEIR_OK) {
            counts->fail(path, error.text);
            continue;
        }
        for (size_t i = 0; i < weir_tensor_directory_count(file); i++) {
            const std::string name = weir_tensor_directory_at(file, i)->name;
            if (name.size() < 5 || name.compare(name.size() - 4, 4, ".raw") != 0) continue;
            const std::string type = name.substr(0, name.size() - 4), label = "quant_blocks/" + type;
            if (counts->wants(label)) run_block(file, type, label, counts);
        }
        weir_tensor_directory_close(file);
    }
}

void run_samplers(const std::string &folder, Counts *counts)
{
    for (const std::string &path : find_files(folder, "samplers.json")) {
        json_error_t  error;
        json_t *const document = json_load_file(path.c_str(), 0, &error);
        Tensors       file;
        std::string   why = error.text;
        if (document == nullptr || !file.open(std::filesystem::path(path).replace_extension(".safetensors").string(), &why)) {
            counts->fail(path, why);
            json_decref(document);
            continue;
        }
        const size_t               n = static_cast<size_t>(file.shape("logits").at(1));
        std::vector<uint16_t>      prompt = count_ids(file.integers("prompt"), n), answer = count_ids(file.integers("generated"), n);
        const weir_sampler_history history = { prompt.data(), answer.data(), n };
        const json_t *const        cases = json_object_get(document, "cases");
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const std::string label = format("samplers/%zu", i);
            if (!counts->wants(label)) continue;
            const std::string off = run_sampler(file, json_array_get(cases, i), i, history);
            if (off.empty())
                counts->pass(label);
            else
                counts->fail(label, off);
        }
        json_decref(document);
    }
}

} // namespace golden
