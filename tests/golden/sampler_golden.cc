/* tests/golden/sampler_golden.cc - the sampling chain (samplers.json): every step of every case,
 * and draws as often as the probabilities say. */
#include <cmath>
#include <filesystem>
#include <memory>

#include "engine/sample/processors.h"
#include "tests/golden/golden.h"

namespace golden {
namespace {

struct CloseScratch {
    void operator()(weir_sampler_scratch *scratch) const { weir_sampler_scratch_close(scratch); }
};
using Scratch = std::unique_ptr<weir_sampler_scratch, CloseScratch>;

/* The fields of a case that this chain knows. */
const char *const fields[] = { "row",   "kept",       "temperature", "top_k",    "top_p",
                               "min_p", "repetition", "presence",    "frequency" };

std::string unknown_field(const json_t *one)
{
    const char *key;
    const json_t *ignored;
    json_object_foreach(const_cast<json_t *>(one), key, ignored)
    {
        bool known = false;
        for (const char *field : fields) known = known || std::string(key) == field;
        if (!known) return key;
    }
    return "";
}

class Samplers {
  public:
    explicit Samplers(Reference *values) : values_(values)
    {
        const std::vector<int64_t> shape = values->tensors.need_shape("logits", 2);
        n_rows_ = static_cast<size_t>(shape[0]);
        n_ = static_cast<size_t>(shape[1]);
        logits_ = values->tensors.need_floats("logits");
        prompt_ = count("prompt");
        answer_ = count("generated");
        weir_sampler_scratch *opened = nullptr;
        if (weir_sampler_scratch_open(&opened, n_) != WEIR_OK) throw Broken("no memory");
        scratch_.reset(opened);
    }
    void run(Check *check, const json_t *one, size_t index)
    {
        const double row = number_at(one, "row", 0);
        if (!(row >= 0) || row >= static_cast<double>(n_rows_))
            throw Broken("there is no such row of logits");
        const float *const logits = logits_.data() + static_cast<size_t>(row) * n_;
        const std::string stem = format("%zu.", index);
        const weir_sampling sampling = sampling_of(one);
        steps(check, stem, logits, sampling, number_at(one, "kept", -1));
        draws(check, stem, logits, sampling, index);
    }

  private:
    static weir_sampling sampling_of(const json_t *one)
    {
        weir_sampling s = weir_sampling_default();
        s.temperature = static_cast<float>(number_at(one, "temperature", 1));
        s.top_k = static_cast<int32_t>(number_at(one, "top_k", 0));
        s.top_p = static_cast<float>(number_at(one, "top_p", 1));
        s.min_p = static_cast<float>(number_at(one, "min_p", 0));
        s.repetition_penalty = static_cast<float>(number_at(one, "repetition", 1));
        s.presence_penalty = static_cast<float>(number_at(one, "presence", 0));
        s.frequency_penalty = static_cast<float>(number_at(one, "frequency", 0));
        return s;
    }
    std::vector<uint16_t> count(const std::string &name) const
    {
        std::vector<uint16_t> out(n_, 0);
        for (const int32_t id : values_->tensors.integers(name)) {
            if (id < 0 || static_cast<size_t>(id) >= n_)
                throw Broken(name + " holds an id without logits");
            out[static_cast<size_t>(id)]++;
        }
        return out;
    }
    weir_sampler_history history() { return { prompt_.data(), answer_.data(), n_ }; }
    static float weight(const weir_sampler_scratch *scratch, size_t i)
    {
        float out;
        weir_candidates_weights(scratch, i, 1, &out);
        return out;
    }
    void compare_kept(Check *check, const std::string &name)
    {
        std::vector<float> kept(n_, 0.0f);
        for (size_t i = 0; i < weir_candidates_count(scratch_.get()); i++)
            if (std::isfinite(weir_candidates_value(scratch_.get(), i)))
                kept[static_cast<size_t>(weir_candidates_id(scratch_.get(), i))] = 1;
        values_->compare(check, name, kept);
    }
    void steps(
        Check *check, const std::string &stem, const float *logits, const weir_sampling &s,
        double n_kept
    )
    {
        weir_sampler_scratch *const scratch = scratch_.get();
        const weir_sampler_history seen = history();
        weir_process_load(scratch, logits, n_);
        weir_process_penalties(scratch, &s, &seen);
        values_->compare(
            check, stem + "penalised", std::vector<float>(scratch->logits, scratch->logits + n_)
        );
        if (s.temperature <= 0) return;
        weir_process_temperature(scratch, s.temperature);
        if (s.top_k > 0 && static_cast<size_t>(s.top_k) < n_)
            weir_process_top_k(scratch, static_cast<size_t>(s.top_k));
        compare_kept(check, stem + "kept_after_top_k");
        if (s.top_p < 1) weir_process_top_p(scratch, static_cast<double>(s.top_p));
        compare_kept(check, stem + "kept_after_top_p");
        if (s.min_p > 0) weir_process_min_p(scratch, s.min_p);
        compare_kept(check, stem + "kept_after_min_p");
        weir_process_softmax(scratch);
        const size_t n_left = weir_candidates_count(scratch);
        if (n_kept >= 0 && static_cast<double>(n_left) != n_kept)
            check->fail(format("%zu ids are left, want %.0f", n_left, n_kept));
        std::vector<float> probabilities(n_, 0.0f);
        for (size_t i = 0; i < n_left; i++)
            probabilities[static_cast<size_t>(weir_candidates_id(scratch, i))] =
                static_cast<float>(static_cast<double>(weight(scratch, i)) / scratch->total);
        values_->compare(check, stem + "probs", probabilities);
    }
    /* Within 7 standard deviations and 7: a right sampler stays inside for any folder, also for ids
     * that hardly ever come. */
    void draws(
        Check *check, const std::string &stem, const float *logits, const weir_sampling &sampling,
        size_t seed
    )
    {
        const int n_draws = 4000;
        const std::vector<float> probabilities =
            values_->tensors.need_floats(stem + "probs", { static_cast<int64_t>(n_) });
        const weir_sampler_history history_ = history();
        const weir_sample_limits limits = {};
        weir_sampling s = sampling;
        std::vector<int> seen(n_, 0);
        s.seed = seed;
        values_->mark(stem + "probs");
        for (int draw = 0; draw < n_draws; draw++)
            seen[static_cast<size_t>(weir_sample(
                logits, n_, n_, &s, &history_, &limits, 0, static_cast<uint64_t>(draw),
                scratch_.get()
            ))]++;
        for (size_t id = 0; id < n_; id++) {
            const double p = static_cast<double>(probabilities[id]),
                         allowed = p == 0 || p == 1 ? 0 : 7 * std::sqrt(p * (1 - p) * n_draws) + 7;
            if (std::fabs(seen[id] - p * n_draws) > allowed)
                check->fail(format(
                    "id %zu was drawn %d times of %d, want %.1f", id, seen[id], n_draws, p * n_draws
                ));
        }
    }

    Reference *values_;
    size_t n_rows_ = 0, n_ = 0;
    std::vector<float> logits_;
    std::vector<uint16_t> prompt_, answer_;
    Scratch scratch_;
};

void run_file(const std::string &path, Counts *counts)
{
    const Document document(path);
    Reference values;
    std::string why;
    if (!values.tensors.open(
            std::filesystem::path(path).replace_extension(".safetensors").string(), &why
        ))
        throw Broken(why);
    values.info = document["tensors"];
    const json_t *const cases = document["cases"];
    if (json_array_size(cases) == 0) throw Broken(path + ": there is no list \"cases\"");
    Samplers samplers(&values);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *const one = json_array_get(cases, i);
        const std::string name = format("samplers/%zu", i), strange = unknown_field(one);
        if (strange.empty())
            counts->run(name, [&](Check *check) { samplers.run(check, one, i); });
        else if (counts->wants(name))
            counts->skip(name, "a step '" + strange + "' is not known");
        if (!strange.empty())
            for (const std::string &tensor : values.tensors.names(format("%zu.", i)))
                values.mark(tensor);
    }
    if (!counts->filter.empty()) return;
    for (const std::string &left : values.left())
        counts->skip("samplers/" + left, "no case compares these values");
}

} // namespace

void run_samplers(const std::string &folder, Counts *counts)
{
    for (const std::string &path : find_files(folder, "samplers.json")) {
        counts->known.insert(path);
        counts->known.insert(std::filesystem::path(path).replace_extension(".safetensors").string()
        );
        try {
            run_file(path, counts);
        } catch (const std::exception &error) {
            counts->fail("samplers", error.what());
        }
    }
}

} // namespace golden
