// weir convert: with any call failing there is the whole file or none, and no temporary one.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "engine/base/file.h"
#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"
#include "tools/convert/convert.h"

namespace {

std::string content(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
}

class Convert : public ::testing::TestWithParam<const char *> {
  protected:
    void SetUp() override
    {
        folder_ = std::string(getenv("TEST_TMPDIR")) + "/convert";
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
        out_ = folder_ + "/out.gguf";
    }

    fault::Operation converting(const std::string &model, const char *type)
    {
        weir_mix mix = {};
        weir_error error = {};
        EXPECT_EQ(weir_mix_find(&mix, type, false, &error), WEIR_OK) << error.text;
        fault::Operation operation;
        operation.prepare = [this] { std::ofstream(out_, std::ios::binary) << "old"; };
        operation.run = [this, model, mix](weir_error *e) {
            weir_convert_result result;
            weir_convert_options options = {};
            options.model = model.c_str();
            options.out = out_.c_str();
            options.mix = mix;
            options.n_threads = 1;
            return weir_convert(&result, &options, e);
        };
        const auto expected = std::make_shared<std::string>();
        operation.check = [this, expected](weir_status status) {
            const std::string now = content(out_);
            /* One that could not be deleted, because that failed, too, is no more in use. */
            for (const auto &entry : std::filesystem::directory_iterator(folder_))
                if (entry.path() != out_)
                    EXPECT_TRUE(weir_file_drop_torn(entry.path().c_str())) << entry.path();
            if (status == WEIR_OK && expected->empty()) *expected = now;
            if (status == WEIR_OK)
                EXPECT_TRUE(now == *expected) << "another file without an error";
            else
                EXPECT_TRUE(now == "old" || now == *expected) << "a part of a file";
        };
        return operation;
    }

    std::string folder_, out_;
};

TEST_P(Convert, WritesAllOrNothing)
{
    fault::Operation operation = converting(GetParam(), "q8_0");
    weir_error error = {};
    operation.keeps_memory = true; /* of libraries; what is lost, the address sanitizer finds */
    operation.prepare();
    ASSERT_EQ(operation.run(&error), WEIR_OK) << "what the OpenMP runtime keeps: " << error.text;
    /* Binding a checkpoint asks oneDNN for layouts, which ends the process without memory. */
    if (strstr(GetParam(), ".gguf") != nullptr) fault::every_allocation(operation);
    fault::every_file_call(operation);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Convert,
    ::testing::Values("tests/golden/models/tq/tq-f32.gguf", "tests/golden/models/llama3"),
    [](const ::testing::TestParamInfo<const char *> &info) {
        return std::string(info.index == 0 ? "gguf" : "checkpoint");
    }
);

} // namespace
