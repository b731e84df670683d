/* Golden G31: the sampling chain of Hugging Face's generate() on fixed logits, step by step. */
#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/sample/processors.h"

namespace {

const char *const folder = "tests/golden/models/";

std::string read_file(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.good()) << path;
    return std::string(std::istreambuf_iterator<char>(file), {});
}

/* Just enough of safetensors for a file of ours. */
struct Tensors {
    std::string bytes = read_file(std::string(folder) + "samplers.safetensors");
    json_t     *header = nullptr;
    size_t      start = 0;
    Tensors()
    {
        uint64_t length = 0;
        std::memcpy(&length, bytes.data(), 8);
        header = json_loadb(bytes.data() + 8, length, 0, nullptr);
        start = 8 + length;
    }
    ~Tensors() { json_decref(header); }
    bool                                 has(const std::string &name) const { return json_object_get(header, name.c_str()) != nullptr; }
    template <typename T> std::vector<T> get(const std::string &name) const
    {
        const json_t *const offsets = json_object_get(json_object_get(header, name.c_str()), "data_offsets");
        EXPECT_EQ(json_array_size(offsets), 2u) << name;
        const size_t first = size_t(json_integer_value(json_array_get(offsets, 0))),
                     end = size_t(json_integer_value(json_array_get(offsets, 1)));
        std::vector<T> out((end - first) / sizeof(T));
        std::memcpy(out.data(), bytes.data() + start + first, end - first);
        return out;
    }
};

double number(const json_t *object, const char *key, double otherwise)
{
    const json_t *const value = json_object_get(object, key);
    return value == nullptr ? otherwise : json_number_value(value);
}

weir_sampling sampling_of(const json_t *test)
{
    weir_sampling s = weir_sampling_default();
    s.temperature = float(number(test, "temperature", 1));
    s.top_k = int32_t(number(test, "top_k", 0));
    s.top_p = float(number(test, "top_p", 1));
    s.min_p = float(number(test, "min_p", 0));
    s.repetition_penalty = float(number(test, "repetition", 1));
    s.presence_penalty = float(number(test, "presence", 0));
    s.frequency_penalty = float(number(test, "frequency", 0));
    return s;
}

struct Golden : testing::Test {
    Tensors               tensors;
    json_t               *cases_file = json_load_file((std::string(folder) + "samplers.json").c_str(), 0, nullptr);
    json_t               *cases = json_object_get(cases_file, "cases");
    std::vector<float>    logits = tensors.get<float>("logits");
    size_t                n = logits.size() / 2;
    std::vector<uint16_t> prompt = counts("prompt"), answer = counts("generated");
    weir_sampler_history  history = { prompt.data(), answer.data(), n };
    weir_sampler_scratch *scratch = nullptr;

    Golden() { EXPECT_EQ(weir_sampler_scratch_open(&scratch, n), WEIR_OK); }
    ~Golden() override
    {
        weir_sampler_scratch_close(scratch);
        json_decref(cases_file);
    }
    std::vector<uint16_t> counts(const char *name)
    {
        std::vector<uint16_t> out(n);
        for (const int32_t id : tensors.get<int32_t>(name)) out[size_t(id)]++;
        return out;
    }
    void expect_kept(const std::string &name)
    {
        if (!tensors.has(name)) return;
        std::vector<uint8_t> kept(n);
        for (size_t i = 0; i < weir_candidates_count(scratch); i++) kept[size_t(weir_candidates_id(scratch, i))] = 1;
        EXPECT_EQ(kept, tensors.get<uint8_t>(name)) << name;
    }
};

} // namespace

TEST_F(Golden, EveryStepOfEveryCase)
{
    size_t  i;
    json_t *test;
    ASSERT_EQ(json_array_size(cases), 31u);
    json_array_foreach(cases, i, test)
    {
        const std::string   name = std::to_string(i) + ".";
        const weir_sampling s = sampling_of(test);
        weir_process_load(scratch, &logits[size_t(number(test, "row", 0)) * n], n);
        weir_process_penalties(scratch, &s, &history);
        const std::vector<float> penalised = tensors.get<float>(name + "penalised");
        for (size_t id = 0; id < n; id++)
            EXPECT_NEAR(scratch->logits[id], penalised[id], 1e-6 + 1e-6 * std::fabs(penalised[id])) << name << id;
        if (s.temperature == 0) continue;

        weir_process_temperature(scratch, s.temperature);
        if (s.top_k > 0 && size_t(s.top_k) < n) weir_process_top_k(scratch, size_t(s.top_k));
        expect_kept(name + "kept_after_top_k");
        if (s.top_p < 1) weir_process_top_p(scratch, double(s.top_p));
        expect_kept(name + "kept_after_top_p");
        if (s.min_p > 0) weir_process_min_p(scratch, s.min_p);
        expect_kept(name + "kept_after_min_p");
        weir_process_softmax(scratch);
        EXPECT_EQ(weir_candidates_count(scratch), size_t(number(test, "kept", 0))) << name;
        std::vector<float> probabilities(n);
        for (size_t c = 0; c < weir_candidates_count(scratch); c++)
            probabilities[size_t(weir_candidates_id(scratch, c))] = float(double(scratch->weights[c]) / scratch->total);
        const std::vector<float> expected = tensors.get<float>(name + "probs");
        for (size_t id = 0; id < n; id++) EXPECT_NEAR(probabilities[id], expected[id], 1e-7 + 1e-6 * double(expected[id])) << name << id;
    }
}

/* The whole chain draws only from the kept set, and as often as the probabilities say (5 standard deviations). */
TEST_F(Golden, DrawsFollowTheProbabilities)
{
    const int draws = 4000;
    size_t    i;
    json_t   *test;
    json_array_foreach(cases, i, test)
    {
        weir_sampling s = sampling_of(test);
        s.seed = i;
        const std::vector<float> expected = tensors.get<float>(std::to_string(i) + ".probs");
        std::vector<int>         seen(n);
        for (int draw = 0; draw < draws; draw++)
            seen[size_t(
                weir_sample(&logits[size_t(number(test, "row", 0)) * n], n, n, &s, &history, nullptr, 0, 0, uint64_t(draw), scratch))]++;
        for (size_t id = 0; id < n; id++) {
            const double p = double(expected[id]);
            EXPECT_NEAR(seen[id], p * draws, 5 * std::sqrt(p * (1 - p) * draws) + (p > 0 ? 1 : 0)) << i << " " << id;
        }
    }
}
