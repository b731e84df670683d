/* tests/unit/model/support.h - opening engines and sequences the way programs do, and small
 * checkpoints that a test may change. */
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/schedule/evaluate.h"
#include "tests/unit/model/files.h"

#define EXPECT_SAYS(text, part)                                                                    \
    EXPECT_NE(std::string(text).find(part), std::string::npos) << "said: " << (text)

namespace support {

using Settings = std::vector<std::string>; /* "kv.format=f32" */

inline std::string golden(const std::string &name) { return "tests/golden/models/" + name; }

/* An engine without service unless asked; close before the next open. */
class Engine {
  public:
    Engine() = default;
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;
    ~Engine() { close(); }

    weir_status open(
        const std::string &model, const Settings &settings = {}, bool with_service = false
    )
    {
        close();
        const weir_engine_options options = {
            configure(model, settings), with_service, false, nullptr, nullptr, nullptr
        };
        return weir_engine_open_with(&engine_, &options, &error_);
    }
    weir_status plan(const std::string &model, const Settings &settings = {})
    {
        const weir_engine_options options = {
            configure(model, settings), false, false, nullptr, nullptr, nullptr
        };
        return weir_engine_plan(&plan_, &options, &error_);
    }
    void close()
    {
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
    const weir_plan &planned() const { return plan_; } /* by `plan` */
    weir_engine *get() const { return engine_; }
    weir_runner *runner() const { return weir_engine_runner(engine_); }
    const weir_shape &shape() const { return *weir_model_shape(weir_engine_model(engine_)); }
    size_t n_vocab() const { return static_cast<size_t>(shape().n_vocab); }
    const char *text() const { return error_.text; }
    weir_error *error() { return &error_; }

  private:
    const weir_config *configure(const std::string &model, const Settings &settings)
    {
        static weir_config config;
        error_ = {};
        weir_config_default(&config);
        snprintf(config.model.path, sizeof config.model.path, "%s", model.c_str());
        for (const std::string &setting : settings)
            EXPECT_EQ(weir_config_assign(&config, setting.c_str(), &error_), WEIR_OK)
                << error_.text;
        return &config;
    }
    weir_engine *engine_ = nullptr;
    weir_plan plan_ = {};
    weir_error error_ = {};
};

/* One sequence of an engine; closed before it. */
class Sequence {
  public:
    explicit Sequence(const Engine &engine)
    {
        weir_error error = {};
        EXPECT_EQ(
            weir_kv_sequence_open(
                &sequence_, weir_engine_store(engine.get()), weir_engine_ledger(engine.get()),
                weir_model_recurrent_bytes(weir_engine_model(engine.get())), &error
            ),
            WEIR_OK
        ) << error.text;
    }
    Sequence(const Sequence &) = delete;
    Sequence &operator=(const Sequence &) = delete;
    ~Sequence() { weir_kv_sequence_close(&sequence_); }

    void add(const std::vector<int32_t> &tokens)
    {
        memcpy(
            sequence_.tokens + sequence_.n_tokens, tokens.data(), tokens.size() * sizeof tokens[0]
        );
        sequence_.n_tokens += static_cast<int32_t>(tokens.size());
    }
    weir_kv_sequence *get() { return &sequence_; }

  private:
    weir_kv_sequence sequence_ = {};
};

/* Rows of a sequence for one step. */
inline weir_batch_item item_of(Sequence *sequence, int n_rows, weir_logits_wanted wanted)
{
    weir_batch_item item = {};
    item.sequence = sequence->get();
    item.n_rows = n_rows;
    item.wanted = wanted;
    return item;
}

/* Some ids that differ from place to place. */
inline std::vector<int32_t> some_tokens(size_t n, int seed, size_t n_vocab)
{
    std::vector<int32_t> ids;
    for (size_t i = 0; i < n; i++)
        ids.push_back(
            static_cast<int32_t>((static_cast<size_t>(seed) * 97 + i * 31 + i * i * 7) % n_vocab)
        );
    return ids;
}

inline size_t best(const float *row, size_t n)
{
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[at]) at = i;
    return at;
}

/* A folder of its own for each test, removed with it. */
class Folder {
  public:
    Folder()
    {
        const auto *const info = ::testing::UnitTest::GetInstance()->current_test_info();
        open(std::string(info->test_suite_name()) + "." + info->name());
    }
    explicit Folder(const std::string &name) { open(name); }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }
    const std::string &path() const { return path_; }

  private:
    void open(const std::string &name)
    {
        path_ = ::testing::TempDir() + "/" + name;
        std::filesystem::remove_all(path_);
        std::filesystem::create_directories(path_);
    }
    std::string path_;
};

} // namespace support
