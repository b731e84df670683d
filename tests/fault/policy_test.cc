// Query statistics and saved states of KV policies: read from files and written to them.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/kv/policy/calibration.h"
#include "engine/kv/policy/policy.h"
#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"

namespace {

using fault::Files;

std::string new_folder(const char *name)
{
    const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/" + name;
    fault::make_folder(folder, {});
    return folder;
}

template <class T> void put(std::string *out, T value)
{
    out->append(reinterpret_cast<const char *>(&value), sizeof value);
}

// A file of TRIA version 2: 1 layer, 2 query heads over 1 KV head of 4 dims, 2 bands.
std::string statistics(float q)
{
    std::string out;
    for (const uint32_t number : { 0x54524941, 2, 1, 2, 1, 4, 2 }) put(&out, number);
    put(&out, 10000.0f);
    put(&out, 1.0f);
    out.resize(64);
    put(&out, 1.0f);
    for (int head = 0; head < 2; head++)
        for (const float x : { q, 0.25f, 2.0f, 0.5f })
            for (int band = 0; band < 2; band++) put(&out, x);
    return out;
}

class Statistics : public ::testing::Test {
  protected:
    void SetUp() override
    {
        weir_error error = {};
        folder_ = new_folder("statistics");
        path_ = folder_ + "/a.tria";
        for (int i = 0; i < 2; i++) {
            const std::string bytes = statistics(i == 0 ? 0.5f : 1.5f);
            ASSERT_EQ(
                weir_calibration_parse(&made_[i], bytes.data(), bytes.size(), "made", &error),
                WEIR_OK
            ) << error.text;
        }
        ASSERT_EQ(weir_calibration_write(path_.c_str(), made_[0], &error), WEIR_OK) << error.text;
        old_ = fault::files_of(folder_);
    }
    void TearDown() override
    {
        for (weir_calibration *const made : made_) weir_calibration_close(made);
    }
    // Of the file: those of the old ones or of the new.
    void expect_whole(bool must_be_new)
    {
        weir_error error = {};
        weir_calibration *read = nullptr;
        ASSERT_EQ(weir_calibration_read(&read, path_.c_str(), &error), WEIR_OK) << error.text;
        const uint64_t digest = weir_calibration_digest(read);
        weir_calibration_close(read);
        EXPECT_TRUE(
            digest == weir_calibration_digest(made_[1]) ||
            (!must_be_new && digest == weir_calibration_digest(made_[0]))
        );
    }
    std::string folder_, path_;
    weir_calibration *made_[2] = {};
    Files old_;
};

TEST_F(Statistics, Read)
{
    weir_calibration *read = nullptr;
    uint64_t digest = 0;
    fault::Operation operation;
    operation.prepare = [&] { digest = 0; };
    operation.run = [&](weir_error *error) {
        WEIR_TRY(weir_calibration_read(&read, path_.c_str(), error));
        digest = weir_calibration_digest(read);
        weir_calibration_close(read);
        return WEIR_OK;
    };
    operation.check = [&](weir_status status) {
        EXPECT_EQ(digest, status == WEIR_OK ? weir_calibration_digest(made_[0]) : 0);
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

TEST_F(Statistics, Write)
{
    fault::Operation operation;
    operation.prepare = [this] { fault::make_folder(folder_, old_); };
    operation.run = [this](weir_error *error) {
        return weir_calibration_write(path_.c_str(), made_[1], error);
    };
    operation.check = [this](weir_status status) {
        expect_whole(status == WEIR_OK);
        if (status == WEIR_OK) EXPECT_EQ(fault::files_of(folder_).size(), 1u);
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

TEST_F(Statistics, APowerLossLeavesTheOldOrTheNew)
{
    fault::make_folder(folder_, old_);
    const size_t n = fault::every_power_loss(
        folder_,
        [this] {
            weir_error error = {};
            ASSERT_EQ(weir_calibration_write(path_.c_str(), made_[1], &error), WEIR_OK)
                << error.text;
        },
        [this](const Files &files, bool is_over) {
            fault::make_folder(folder_, files);
            expect_whole(is_over);
        }
    );
    EXPECT_GT(n, 5u) << "calls were not recorded";
}

// ---- states -------------------------------------------------------------------------------------

const double frequencies[] = { 1, 0.01 };
const weir_policy_shape shape = [] {
    weir_policy_shape s = {};
    s.n_layers = s.n_kv_heads = 1;
    s.n_heads = 2;
    s.key_dim = s.value_dim = s.rotary_dim = 4;
    s.frequencies = frequencies;
    s.rope_magnitude = 1;
    s.scale = 0.5f;
    s.max_rows = 64;
    return s;
}();

weir_status open_policy(weir_policy **out, weir_error *error)
{
    weir_policy_options options;
    WEIR_TRY(weir_policy_options_default(&options, "h2o", error));
    return weir_policy_open(out, &options, &shape, nullptr, error);
}

// The state of a sequence of `n` rows, of which the first had all attention.
void observe(const weir_policy *policy, weir_policy_state *state, int64_t n)
{
    std::vector<float> mass(2 * 64);
    mass[0] = mass[64] = 1;
    weir_policy_observation seen = {};
    seen.n_queries = n;
    seen.n_rows = &n;
    seen.mass = seen.below = seen.last = mass.data();
    seen.stride = 64;
    weir_policy_reset(policy, state);
    weir_policy_observe(policy, state, &seen);
    weir_policy_advance(policy, state, n, n);
}

// Loads the state of a file and writes it to another.
weir_status copy_state(const char *from, const char *to, weir_error *error)
{
    weir_policy *policy = nullptr;
    weir_buffer read = {}, written = {};
    WEIR_TRY(open_policy(&policy, error));
    weir_policy_state *const state =
        static_cast<weir_policy_state *>(weir_memory_take(weir_policy_state_bytes(policy)));
    weir_status status = state != nullptr ? weir_file_read(&read, from, 1 << 20, error)
                                          : weir_error_set(error, WEIR_ENOMEM, "no memory");
    if (status == WEIR_OK) status = weir_policy_load(policy, state, read.data, read.size, error);
    if (status == WEIR_OK) {
        const size_t n = weir_policy_saved_bytes(policy, state);
        status = weir_buffer_reserve(&written, n);
        if (status == WEIR_OK) {
            weir_policy_write(policy, state, written.data);
            status = weir_file_write_atomic(to, written.data, n, error);
        } else {
            status = weir_error_set(error, status, "no memory");
        }
    }
    weir_buffer_free(&read);
    weir_buffer_free(&written);
    weir_memory_give(state);
    weir_policy_close(policy);
    return status;
}

TEST(PolicyState, LoadedAndWritten)
{
    const std::string folder = new_folder("state"), from = folder + "/a", to = folder + "/b";
    weir_policy *policy = nullptr;
    weir_error error = {};
    ASSERT_EQ(open_policy(&policy, &error), WEIR_OK) << error.text;
    std::vector<char> memory(weir_policy_state_bytes(policy));
    weir_policy_state *const state = reinterpret_cast<weir_policy_state *>(memory.data());
    observe(policy, state, 20);
    std::string bytes(weir_policy_saved_bytes(policy, state), '\0');
    weir_policy_write(policy, state, bytes.data());
    weir_policy_close(policy);
    fault::Operation operation;
    operation.prepare = [&] { fault::make_folder(folder, { { "a", bytes }, { "b", "old" } }); };
    operation.run = [&](weir_error *e) { return copy_state(from.c_str(), to.c_str(), e); };
    operation.check = [&](weir_status status) {
        const Files files = fault::files_of(folder);
        EXPECT_TRUE(files.at("a") == bytes);
        EXPECT_TRUE(files.at("b") == bytes || (status != WEIR_OK && files.at("b") == "old"));
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

} // namespace
