// The log is written anew while the disk hangs: queries are answered meanwhile, also those of a
// reader of its own, and what is added after it is there.
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "tests/unit/kv/read_gate.h"
#include "tests/unit/states/support.h"

namespace {

std::atomic<support::Gate *> new_logs{ nullptr };

} // namespace

/* In front of libc's. */
extern "C" int fsync(int fd)
{
    char path[4096] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    support::Gate *const gate = new_logs;
    if (gate != nullptr && readlink(link.c_str(), path, sizeof path - 1) > 0 &&
        std::string(path).find("states.log" WEIR_TEMPORARY_MARK) != std::string::npos)
        gate->pass();
    return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace {

class Compacting : public Database {
  protected:
    void TearDown() override
    {
        new_logs = nullptr;
        Database::TearDown();
    }
};

TEST_F(Compacting, QueriesDoNotWaitForTheNewLog)
{
    const auto first = added("first", { 1, 0, 0, 0 });
    ASSERT_EQ(add("second", { 0, 1, 0, 0 }, R"({"a":1})"), WEIR_OK);
    const weir_state_info second = info_;
    weir_states *reader = nullptr;
    const weir_states_options options = { folder_.c_str(), test_model, false, nullptr, 0 };
    ASSERT_EQ(weir_states_open(&reader, &options, &error_), WEIR_OK);
    support::Gate disk;
    new_logs = &disk;
    std::thread writer([this] {
        weir_error error = {};
        for (int i = 0; i < 60; i++) {
            weir_new_state state = {};
            state.label = "gone";
            state.write = link_source;
            state.user = &source_;
            EXPECT_EQ(weir_states_add(states_, &state, nullptr, &error), WEIR_OK) << error.text;
            EXPECT_EQ(weir_states_remove(states_, "gone", &error), WEIR_OK) << error.text;
        }
    });
    ASSERT_TRUE(disk.wait_until_reached());
    EXPECT_EQ(names(), (std::vector<std::string>{ "second", first }));
    EXPECT_EQ(route({ 0, 1, 0, 0 }, 1), std::vector<std::string>{ "second" });
    for (weir_states *const states : { states_, reader }) {
        weir_buffer text = {};
        EXPECT_EQ(weir_states_metadata(states, &second, &text, &error_), WEIR_OK) << error_.text;
        EXPECT_STREQ(text.data, R"({"a":1})");
        weir_buffer_free(&text);
    }
    disk.open();
    writer.join();
    EXPECT_FALSE(disk.was_late) << "a query waited for the new log";
    EXPECT_EQ(names(), (std::vector<std::string>{ "second", first }));
    EXPECT_EQ(weir_states_find(reader, "second", &info_, &error_), WEIR_OK) << error_.text;
    weir_states_close(reader);
    open();
    EXPECT_EQ(names(), (std::vector<std::string>{ "second", first }));
}

} // namespace
