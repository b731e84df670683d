/* Opens the headers that make.py writes: what the planner says of each checkpoint is what its entry
 * in the table says, no tensor is left over, and no weight is read. */
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/engine.h"
#include "engine/formats/tensor_directory.h"
#include "engine/model/model.h"
#include "offload/dispatch.h"
#include "tests/sanitizer.h"

namespace {

/* The sanitizers take four times as long: they see every third file, and none with many tensors. */
const char *const most = weir_test::has_sanitizer() ? " --tensors 10000" : "";
const size_t step = weir_test::has_sanitizer() ? 3 : 1;

namespace fs = std::filesystem;

/* A line of list.tsv. */
struct Row {
    std::string path, arch, refusal;
    double count = 0; /* parameters */
    int64_t kv = 0, kv_window = 0; /* elements of a token, by hand */
};

/* Plans for a file without limits, as `weir plan --report` does. */
weir_status plan_of(weir_plan *out, const std::string &path, weir_error *error)
{
    static weir_config config;
    int64_t row_bytes = 0;
    weir_config_default(&config);
    snprintf(config.model.path, sizeof config.model.path, "%s", path.c_str());
    snprintf(config.kernels.device, sizeof config.kernels.device, "cpu");
    const weir_engine_options options = { &config, false, false, nullptr, nullptr, nullptr };
    return weir_engine_describe(out, &row_bytes, &options, error);
}

/* Elements that a token adds in layers with a window, which a plan does not say. */
int64_t window_elements(const std::string &path)
{
    weir_error error = {};
    weir_tensor_directory *directory = nullptr;
    weir_arch_set *archs = nullptr;
    const weir_arch *arch = nullptr;
    weir_stream *stream = nullptr;
    weir_model *model = nullptr;
    weir_stream_options options = {};
    weir_model_settings settings = {};
    int64_t out = 0;
    options.n_threads = 1;
    settings.drops_windows = true;
    EXPECT_EQ(weir_tensor_directory_open(&directory, path.c_str(), &error), WEIR_OK);
    EXPECT_EQ(weir_arch_set_open(&archs, nullptr, nullptr, &error), WEIR_OK);
    EXPECT_EQ(weir_arch_match(&arch, archs, directory, &error), WEIR_OK);
    EXPECT_EQ(weir_stream_open(&stream, &options, &error), WEIR_OK);
    EXPECT_EQ(weir_model_bind(&model, directory, arch, stream, &settings, &error), WEIR_OK);
    const weir_kv_geometry *const geometry = weir_model_kv_geometry(model);
    const int64_t n = weir_model_kv_layers(model), n_window = weir_model_window_layers(model);
    for (int64_t i = n; i < n + n_window; i++)
        out += geometry[i].n_heads * (geometry[i].key_dim + weir_kv_stored_value_dim(&geometry[i]));
    weir_model_close(model);
    weir_stream_close(stream);
    weir_arch_set_close(archs);
    weir_tensor_directory_close(directory);
    return out;
}

/* Pages that this process has waited for a file to be read for. */
int64_t pages_read()
{
    struct rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_majflt;
}

class Walk : public ::testing::Test {
  protected:
    static void SetUpTestSuite()
    {
        folder_ = ::testing::TempDir() + "/walk";
        fs::remove_all(folder_);
        const std::string command = "/usr/bin/python3 tests/unit/walk/make.py " + folder_ + most;
        ASSERT_EQ(system(command.c_str()), 0) << command;
        std::ifstream file(folder_ + "/list.tsv");
        for (std::string line; std::getline(file, line);) {
            std::istringstream fields(line);
            std::string field[6];
            for (std::string &text : field) std::getline(fields, text, '\t');
            rows_.push_back({ field[0], field[1], field[5], std::stod(field[2]),
                              std::stoll(field[3]), std::stoll(field[4]) });
        }
        ASSERT_FALSE(rows_.empty());
    }
    static void TearDownTestSuite() { fs::remove_all(folder_); }

    static std::string folder_;
    static std::vector<Row> rows_;
};

std::string Walk::folder_;
std::vector<Row> Walk::rows_;

TEST_F(Walk, RealHeadersOpenAsTheTableSays)
{
    for (size_t i = 0; i < rows_.size(); i += step) {
        const Row &row = rows_[i];
        SCOPED_TRACE(fs::path(row.path).filename().string());
        if (!row.refusal.empty()) continue;
        const bool is_gguf = fs::path(row.path).extension() == ".gguf";
        weir_plan plan = {};
        weir_error error = {};
        EXPECT_EQ(plan_of(&plan, row.path, &error), WEIR_OK) << error.text;
        if (error.code != WEIR_OK) continue;
        const auto found = static_cast<double>(plan.facts.n_parameters);
        EXPECT_STREQ(plan.facts.arch, row.arch.c_str());
        EXPECT_NEAR(found / row.count, 1, 0.01) << found;
        EXPECT_EQ(plan.facts.kv_bytes_per_token, 2 * row.kv) << "f16";
        EXPECT_EQ(plan.n_unused, 0U) << plan.first_unused;
        EXPECT_EQ(plan.facts.n_valid_vocab < plan.facts.n_vocab, is_gguf) << "has a tokenizer";
        EXPECT_EQ(plan.facts.n_window_layers > 0, row.kv_window > 0);
        if (row.kv_window > 0) EXPECT_EQ(window_elements(row.path), row.kv_window);
    }
}

TEST_F(Walk, OtherArchitecturesAreRefusedByName)
{
    int n_refused = 0;
    for (const Row &row : rows_) {
        SCOPED_TRACE(fs::path(row.path).filename().string());
        if (row.refusal.empty()) continue;
        weir_plan plan = {};
        weir_error error = {};
        EXPECT_EQ(plan_of(&plan, row.path, &error), WEIR_EUNSUPPORTED);
        EXPECT_NE(std::string(error.text).find(row.refusal), std::string::npos) << error.text;
        n_refused++;
    }
    EXPECT_GT(n_refused, 0);
}

TEST_F(Walk, PlansReadNoWeights)
{
    int n_large = 0;
    for (const Row &row : rows_) {
        SCOPED_TRACE(fs::path(row.path).filename().string());
        if (row.count < 2e11 || fs::path(row.path).extension() != ".gguf") continue;
        const int64_t before = pages_read();
        weir_plan plan = {};
        weir_error error = {};
        EXPECT_EQ(plan_of(&plan, row.path, &error), WEIR_OK) << error.text;
        EXPECT_LT(pages_read() - before, 256) << "a header has 40 pages, in memory since written";
        n_large++;
    }
    EXPECT_GT(n_large, 0);
}

} // namespace
