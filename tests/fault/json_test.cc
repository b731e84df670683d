// JSON: every allocation of the reader and of jansson, and every charge of a tracker.
#include "engine/formats/json.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"

namespace {

const std::string text =
    R"({"model": {"vocab": {"a": 0, "b": 1, "\u00e9\n": 2}, "merges": ["a b", ["a", "b"]]},)"
    R"( "numbers": [-0, 1.5, 123456789012345678, true, false, null], "deep": [[[[{}]]]],)"
    R"( "long": ")" +
    std::string(300, 'x') + R"("})";
/* As jansson writes it. */
const std::string written =
    R"({"model":{"vocab":{"a":0,"b":1,"é\n":2},"merges":["a b",["a","b"]]},)"
    R"("numbers":[0,1.5,123456789012345678,true,false,null],"deep":[[[[{}]]]],"long":")" +
    std::string(300, 'x') + R"("})";

/* Reads a file, writes what it holds; the text that came out goes to *out. */
weir_status there_and_back(std::string *out, const char *path, weir_error *error)
{
    json_t *root = nullptr;
    weir_buffer again = {};
    WEIR_TRY(weir_json_read_file(&root, path, 1 << 20, error));
    weir_status status = weir_json_write(&again, root, JSON_COMPACT);
    /* Of its own memory jansson does not say that it ran out. */
    if (status != WEIR_OK) status = weir_error_set(error, WEIR_ENOMEM, "cannot write it");
    if (status == WEIR_OK) out->assign(again.data, again.size);
    char *const at_once = weir_json_text(root, JSON_COMPACT);
    if (at_once == nullptr && status == WEIR_OK)
        status = weir_error_set(error, WEIR_ENOMEM, "cannot write it");
    weir_memory_give(at_once);
    weir_buffer_free(&again);
    json_decref(root);
    return status;
}

class Json : public ::testing::Test {
  protected:
    void SetUp() override
    {
        const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/json";
        fault::make_folder(folder, { { "a.json", text } });
        path_ = folder + "/a.json";
        out_.reserve(2 * text.size());
        operation_.run = [this](weir_error *error) {
            weir_memory_tracker *const before =
                is_paid_ ? weir_memory_tracker_set(fault_tracker()) : nullptr;
            const weir_status status = there_and_back(&out_, path_.c_str(), error);
            if (is_paid_) (void)weir_memory_tracker_set(before);
            return status;
        };
        operation_.prepare = [this] { out_.clear(); };
        operation_.check = [this](weir_status status) {
            if (status == WEIR_OK) EXPECT_TRUE(out_ == written) << out_.substr(0, 300);
        };
    }
    std::string path_, out_;
    bool is_paid_ = false;
    fault::Operation operation_;
};

TEST_F(Json, InALibrary)
{
    fault::every_allocation(operation_);
    fault::every_file_call(operation_);
}

/* Trees have heaps. */
TEST_F(Json, InAProgram)
{
    weir_json_use_memory();
    fault::every_allocation(operation_);
    is_paid_ = true;
    fault::every_charge(operation_);
    json_set_alloc_funcs(malloc, free);
}

} // namespace
