/* A conversion in a test, and the file that it wrote. */
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "engine/formats/tensor_directory.h"
#include "tools/convert/convert.h"

namespace converted {

struct Closer {
    void operator()(weir_tensor_directory *directory) const
    {
        weir_tensor_directory_close(directory);
    }
};
using Directory = std::unique_ptr<weir_tensor_directory, Closer>;

inline Directory open(const std::string &path)
{
    weir_tensor_directory *out = nullptr;
    weir_error error = {};
    EXPECT_EQ(weir_tensor_directory_open(&out, path.c_str(), &error), WEIR_OK) << error.text;
    return Directory(out);
}

struct Outcome {
    weir_status status;
    weir_error error;
    weir_convert_result result;
};

struct Wish {
    std::string model, out;
    const char *type = "f16";
    bool is_pure = false, no_tokenizer = false;
    int threads = 1;
    std::string imatrix = {};
};

inline Outcome convert(const Wish &wish)
{
    Outcome o = {};
    weir_convert_options options = {};
    options.model = wish.model.c_str();
    options.out = wish.out.c_str();
    options.no_tokenizer = wish.no_tokenizer;
    options.n_threads = wish.threads;
    options.imatrix = wish.imatrix.empty() ? nullptr : wish.imatrix.c_str();
    o.status = weir_mix_find(&options.mix, wish.type, wish.is_pure, &o.error);
    if (o.status == WEIR_OK) o.status = weir_convert(&o.result, &options, &o.error);
    return o;
}

/* A folder of the test's own, empty at first. */
class Folder : public ::testing::Test {
  protected:
    void SetUp() override
    {
        const auto *const info = ::testing::UnitTest::GetInstance()->current_test_info();
        std::string name = std::string(info->test_suite_name()) + info->name();
        for (char &c : name)
            if (c == '/') c = '_';
        folder_ = ::testing::TempDir() + "/" + name;
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    std::string path(const std::string &name) const { return folder_ + "/" + name; }
    size_t files() const
    {
        size_t n = 0;
        for (const auto &entry : std::filesystem::directory_iterator(folder_))
            n += entry.is_regular_file();
        return n;
    }
    std::string folder_;
};

} // namespace converted
