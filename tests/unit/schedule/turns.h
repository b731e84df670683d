/* Conversations under KV policies on a service, and what one uninterrupted sequence
 * answers. */
#pragma once
#include <algorithm>
#include <memory>

#include "engine/engine_parts.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/schedule/runner.h"
#include "engine/session/sessions.h"
#include "tests/unit/schedule/support.h"

namespace turns {

using support::Call;

/* Tokens and their log-probabilities. */
struct Answer {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    bool operator==(const Answer &other) const
    {
        return tokens == other.tokens && logprobs == other.logprobs;
    }
};

struct Method {
    std::string name, options;
    int budget;
    std::string setting(const char *key) const
    {
        return std::string("kv.policy.") + key + "=" +
               (key[0] == 'n'   ? name
                : key[0] == 'o' ? options
                                : std::to_string(budget));
    }
};

inline const Method methods[] = {
    { "sinks", "sinks=4,every=1", 48 },
    { "h2o", "sinks=2,recent=16,every=4", 48 },
    { "h2o", "sinks=2,recent=16,every=4,scope=kv_head,normalise=true,in_prompt=true", 48 },
    { "scissorhands", "recent=16,every=4,history=64", 48 },
    { "snapkv", "window=8,every=16", 48 },
    { "snapkv", "window=8,every=0", 48 },
    { "rkv", "window=8,every=16,recent=8", 48 },
    { "tova", "every=1", 48 },
    { "keydiff", "every=8", 48 },
    { "keydiff", "every=8,in_prompt=true", 48 },
    { "keydiff", "every=3,trigger=forwards", 48 },
    { "knorm", "every=8,split=adaptive", 48 },
    { "expected", "every=8", 48 },
    { "lagkv", "lag=16,every=16", 64 },
    { "landmarks", "every=8,gate=norm", 48 },
    { "random", "every=8,pin_prompt=true", 300 },
    { "random", "every=8,recent=20,pin_prompt=true", 48 },
};

/* Formats with unsealed rows and without, wide sinks, a disk below. */
inline const std::vector<std::string> stores[] = {
    { "kv.format=int8/kivi4" },
    { "kv.format=q8_0/turbo4" },
    { "kv.format=kivi4", "kv.wide_sinks=64" },
    { "memory.disk=8MiB" },
    { "kv.format=int8", "memory.disk=8MiB" },
};

inline std::vector<std::string> settings_of(
    const Method &method, const std::vector<std::string> &more
)
{
    std::vector<std::string> all = { method.setting("name"), method.setting("budget"),
                                     method.setting("options") };
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

/* One sequence on an engine without a service: turn after turn, nothing is kept or taken. */
class Uninterrupted {
  public:
    Uninterrupted(const char *model, const std::vector<std::string> &settings)
    {
        static weir_config config;
        weir_config_default(&config);
        snprintf(config.model.path, sizeof config.model.path, "tests/golden/models/%s", model);
        for (const char *const one : { "kernels.activations=f32", "kernels.threads=1",
                                       "batch.chunk=64", "kv.reuse=off", "model.context=512" })
            EXPECT_EQ(weir_config_assign(&config, one, &error_), WEIR_OK) << error_.text;
        for (const std::string &one : settings)
            EXPECT_EQ(weir_config_assign(&config, one.c_str(), &error_), WEIR_OK) << error_.text;
        const weir_engine_options options = { &config, false, false, nullptr, nullptr, nullptr };
        EXPECT_EQ(weir_engine_open_with(&engine_, &options, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(
            weir_kv_sequence_open(
                &sequence_, weir_engine_store(engine_), weir_engine_ledger(engine_),
                weir_model_recurrent_bytes(weir_engine_model(engine_)), &error_
            ),
            WEIR_OK
        );
        const size_t n_vocab = (size_t)weir_model_shape(weir_engine_model(engine_))->n_vocab;
        n_valid_ = weir_engine_tokenizer(engine_) != nullptr
                       ? weir_tokenizer_size(weir_engine_tokenizer(engine_))
                       : n_vocab;
        EXPECT_EQ(weir_sampler_scratch_open(&scratch_, n_vocab), WEIR_OK);
    }
    ~Uninterrupted()
    {
        weir_kv_sequence_close(&sequence_);
        weir_policy_run_close(policy_run_);
        weir_sampler_scratch_close(scratch_);
        weir_engine_close(engine_);
    }
    Answer turn(const std::vector<int32_t> &prompt, int max_tokens, int n_pinned = 0)
    {
        const auto n_prompt = (int32_t)prompt.size();
        Answer answer;
        if (policy_run_ == nullptr) {
            EXPECT_EQ(
                weir_engine_policy_run_open(
                    engine_, &policy_run_, nullptr, 1, 512, 511, 64, &error_
                ),
                WEIR_OK
            ) << error_.text;
            sequence_.policy_run = weir_policy_run_begin(policy_run_, 0, n_prompt, n_pinned);
        } else {
            EXPECT_TRUE(weir_policy_run_turn(sequence_.policy_run, sequence_.n_computed, n_prompt));
        }
        memcpy(sequence_.tokens, prompt.data(), prompt.size() * sizeof prompt[0]);
        sequence_.n_tokens = n_prompt;
        const float *row = nullptr;
        while (sequence_.n_computed < n_prompt)
            row = step(
                std::min((sequence_.n_computed / 64 + 1) * 64, n_prompt) - sequence_.n_computed
            );
        for (int i = 0; i < max_tokens; i++) {
            const auto token = (int32_t)(std::max_element(row, row + n_valid_) - row);
            weir_logprob chosen;
            weir_logprobs(row, n_valid_, token, &chosen, nullptr, 0, scratch_);
            answer.tokens.push_back(token);
            answer.logprobs.push_back(chosen.logprob);
            if (i + 1 == max_tokens) break;
            sequence_.tokens[sequence_.n_tokens++] = token;
            row = step(1);
        }
        return answer;
    }

  private:
    const float *step(int32_t n)
    {
        const float *logits = nullptr;
        weir_batch_item item = {};
        item.sequence = &sequence_;
        item.n_rows = n;
        item.wanted = WEIR_LOGITS_LAST;
        EXPECT_EQ(
            weir_runner_step(weir_engine_runner(engine_), &item, 1, &logits, &error_), WEIR_OK
        ) << error_.text;
        const size_t n_vocab = (size_t)weir_model_shape(weir_engine_model(engine_))->n_vocab;
        row_.assign(logits, logits + n_vocab);
        EXPECT_EQ(weir_runner_evict(weir_engine_runner(engine_), &sequence_, &error_), WEIR_OK)
            << error_.text;
        return row_.data();
    }
    weir_engine *engine_ = nullptr;
    weir_policy_run *policy_run_ = nullptr;
    weir_kv_sequence sequence_ = {};
    weir_sampler_scratch *scratch_ = nullptr;
    std::vector<float> row_;
    size_t n_valid_ = 0;
    weir_error error_ = {};
};

class Turns : public support::SessionService {
  protected:
    Turns() : SessionService("turns", 512) {}
    void start(
        const char *model, const Method &method, const std::vector<std::string> &more = {},
        int slots = 2, const char *memory = nullptr
    )
    {
        const auto all = settings_of(method, more);
        std::vector<const char *> settings = {
            "kernels.threads=1"
        }; /* two engines at a time, of models so small that threads would mostly wait */
        for (const std::string &one : all) settings.push_back(one.c_str());
        open(model, slots, memory, 512, 32, settings);
    }
    void start_with_sessions(
        const char *model, const Method &method, std::vector<std::string> more = {}
    )
    {
        more.push_back(setting_);
        start(model, method, more);
        sessions_ = weir_engine_sessions(engine_);
        ASSERT_NE(sessions_, nullptr);
    }
    std::unique_ptr<Call> make(const std::vector<int32_t> &ids, int max_tokens = 24)
    {
        auto call = std::make_unique<Call>(ids, max_tokens);
        call->request.cache_prompt = true;
        call->request.ignore_eos = true;
        call->request.want_logprobs = true;
        call->request.n_pinned = n_pinned_;
        call->request.session = session_;
        call->request.sampling.temperature = 0;
        return call;
    }
    std::unique_ptr<Call> begin(const std::vector<int32_t> &ids, int max_tokens = 24)
    {
        auto call = make(ids, max_tokens);
        EXPECT_EQ(call->submit_when_it_fits(service_, &error_), WEIR_OK) << error_.text;
        return call;
    }
    Answer end(std::unique_ptr<Call> call)
    {
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        usage_ = call->usage;
        return { call->tokens[0], call->logprobs[0] };
    }
    Answer run(const std::vector<int32_t> &ids, int max_tokens = 24)
    {
        return end(begin(ids, max_tokens));
    }
    /* What the next turn's prompt begins with, and `n` tokens more. */
    std::vector<int32_t> next(
        const std::vector<int32_t> &prompt_before, const Answer &answer, int seed, int n
    ) const
    {
        auto ids = prompt_before;
        ids.insert(ids.end(), answer.tokens.begin(), answer.tokens.end());
        const auto more = prompt(seed, n);
        ids.insert(ids.end(), more.begin(), more.end());
        return ids;
    }
    int n_pinned_ = 0;
    const char *session_ = nullptr;
};

} // namespace turns
