// API keys: a server starts with all keys of its file, or not at all.
#include "engine/cli/api_keys.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/base/file.h"
#include "tests/fault/drive.h"

namespace {

TEST(ApiKeys, Read)
{
    (void)unsetenv("WEIR_API_KEY");
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/keys",
                      text = "# ours\nfirst\nsecond\n";
    const auto config = std::make_unique<weir_config>();
    weir_error error = {};
    weir_config_default(config.get());
    ASSERT_EQ(weir_config_set(config.get(), "server.api_key_file", path.c_str(), &error), WEIR_OK);
    ASSERT_EQ(weir_file_write_private(path.c_str(), text.data(), text.size(), &error), WEIR_OK);
    size_t n = 0;
    fault::Operation operation;
    operation.prepare = [&] { n = 0; };
    operation.run = [&](weir_error *e) {
        weir_keys keys = {};
        const weir_status status = weir_keys_read(&keys, config.get(), e);
        n = keys.n;
        weir_keys_free(&keys);
        return status;
    };
    operation.check = [&](weir_status status) {
        if (status == WEIR_OK) EXPECT_EQ(n, 2u);
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

} // namespace
