/* An engine of the library on the bundled model, as a C++ program sees it. */
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "include/weir.h"

namespace api {

inline const char model[] = "models/weir-demo";
using Keys = std::vector<std::pair<std::string, std::string>>;
using Ids = std::vector<int32_t>;

class Engine {
  public:
    explicit Engine(const Keys &keys = {}, const char *path = model)
    {
        weir_config *const config = weir_config_new();
        status = weir_config_set(config, "model.path", path, &error);
        if (status == WEIR_OK) status = weir_config_set(config, "memory.host", "256MiB", &error);
        if (status == WEIR_OK)
            status = weir_config_set(config, "sampling.temperature", "0", &error);
        for (const auto &[key, value] : keys)
            if (status == WEIR_OK)
                status = weir_config_set(config, key.c_str(), value.c_str(), &error);
        if (status == WEIR_OK) status = weir_engine_open(&engine, config, &error);
        weir_config_free(config);
    }
    Engine(const Engine &) = delete;
    ~Engine() { weir_engine_close(engine); }

    Ids ids(const std::string &text) const
    {
        int32_t *tokens = nullptr;
        size_t n = 0;
        EXPECT_EQ(
            weir_tokenize(
                engine, text.data(), text.size(), WEIR_TOKENIZE_BOS, &tokens, &n, nullptr
            ),
            WEIR_OK
        );
        const Ids ids(tokens, tokens + n);
        weir_free(tokens);
        return ids;
    }
    std::string text(const Ids &ids) const
    {
        char *out = nullptr;
        size_t n = 0;
        EXPECT_EQ(weir_detokenize(engine, ids.data(), ids.size(), &out, &n, nullptr), WEIR_OK);
        const std::string text(out, n);
        weir_free(out);
        return text;
    }
    size_t account(const std::string &name) const
    {
        weir_memory_account accounts[64];
        const size_t n = weir_memory_accounts(engine, accounts, 64);
        for (size_t i = 0; i < n && i < 64; i++)
            if (name == accounts[i].name) return accounts[i].host;
        ADD_FAILURE() << "no account " << name;
        return 0;
    }

    weir_engine *engine = nullptr;
    weir_status status = WEIR_OK;
    weir_error error = {};
};

class Sequence {
  public:
    explicit Sequence(const Engine &engine)
    {
        EXPECT_EQ(weir_sequence_new(&sequence, engine.engine, &error), WEIR_OK) << error.text;
    }
    Sequence(const Sequence &) = delete;
    ~Sequence() { weir_sequence_free(sequence); }

    weir_status sync(const Ids &ids)
    {
        return weir_sequence_sync(sequence, ids.data(), ids.size(), &error);
    }
    Ids ids() const
    {
        size_t n = 0;
        const int32_t *const tokens = weir_sequence_tokens(sequence, &n);
        return Ids(tokens, tokens + n);
    }
    std::vector<float> logits()
    {
        const float *row = nullptr;
        size_t n = 0;
        EXPECT_EQ(weir_sequence_logits(sequence, &row, &n, &error), WEIR_OK) << error.text;
        return row != nullptr ? std::vector<float>(row, row + n) : std::vector<float>();
    }
    weir_usage_report usage() const
    {
        weir_usage_report report = {};
        report.size = sizeof report;
        weir_sequence_usage(sequence, &report);
        return report;
    }
    /* The tokens of an answer of `max_tokens`, drawn greedily. */
    Ids generate(int32_t max_tokens, weir_token_callback *callback = nullptr, void *user = nullptr)
    {
        const size_t before = ids().size();
        weir_sampling_params params = greedy(max_tokens);
        status = weir_generate(sequence, &params, callback, user, &error);
        const Ids all = ids();
        return Ids(all.begin() + static_cast<long>(before), all.end());
    }
    static weir_sampling_params greedy(int32_t max_tokens)
    {
        weir_sampling_params params = {};
        params.size = sizeof params;
        params.max_tokens = max_tokens;
        params.ignore_eos = 1;
        params.top_p = 1;
        params.repetition_penalty = 1;
        return params;
    }

    weir_sequence *sequence = nullptr;
    weir_status status = WEIR_OK;
    weir_error error = {};
};

/* About 40 tokens each. */
inline std::string lines(int n)
{
    std::string text;
    for (int i = 0; i < n; i++)
        text += "The pass code of the black boat number " + std::to_string(i * 37 + 11) +
                " is written on a card in the small house by the river.\n";
    return text;
}

} // namespace api
