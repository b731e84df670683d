// A database of states: what is added and removed is there or not, whole, whatever fails.
#include <gtest/gtest.h>

#include <climits>
#include <filesystem>
#include <set>

#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"
#include "tests/unit/states/support.h"

namespace {

using fault::Files;

/* On the disk when it returns, as the contract of adding asks. */
weir_status write_anew(void *, const char *path, int64_t, weir_error *)
{
    write_session(path, 100);
    return WEIR_OK;
}

class States : public Database {
  protected:
    void SetUp() override
    {
        Database::SetUp();
        for (const char *const label : { "first", "second" }) (void)added(label, { 1, 2, 3, 4 });
        close();
        before_ = fault::files_of(folder_);
    }
    void restore() { fault::make_folder(folder_, before_); }

    /* Opens, does one thing, closes. */
    template <typename What> weir_status with_states(weir_error *error, bool writes, What what)
    {
        weir_states *states = nullptr;
        const weir_states_options options = { folder_.c_str(), test_model, writes, nullptr, 0 };
        WEIR_TRY(weir_states_open(&states, &options, error));
        const weir_status status = what(states);
        weir_states_close(states);
        return status;
    }

  public: /* Run points at them */
    weir_status add_third(weir_error *error)
    {
        static const float vector[] = { 4, 3, 2, 1 };
        weir_new_state state = {};
        weir_state_info info = {};
        state.label = "third";
        state.metadata = "{\"a\": [1, 2]}";
        state.vector = vector;
        state.write = is_written_ ? write_anew : link_source;
        state.user = &source_;
        return with_states(error, true, [&](weir_states *states) {
            return weir_states_add(states, &state, &info, error);
        });
    }
    weir_status remove_first(weir_error *error)
    {
        return with_states(error, true, [&](weir_states *states) {
            return weir_states_remove(states, "first", error);
        });
    }

  protected:
    /* Names of the states, all of which are whole; files of no state are cleared away. */
    std::set<std::string> sound_names()
    {
        std::set<std::string> out;
        open();
        for (const std::string &name : names()) {
            weir_state_info info = {};
            char path[PATH_MAX];
            EXPECT_EQ(weir_states_find(states_, name.c_str(), &info, &error_), WEIR_OK);
            EXPECT_EQ(weir_states_payload(states_, &info, path, &error_), WEIR_OK) << error_.text;
            EXPECT_TRUE(info.has_vector);
            out.insert(name);
        }
        EXPECT_EQ(n_files(), out.size()) << "files of no state are left";
        close();
        return out;
    }

    using Run = weir_status (States::*)(weir_error *);
    void every(Run run, const std::set<std::string> &from, const std::set<std::string> &to)
    {
        fault::Operation operation;
        operation.prepare = [this] { restore(); };
        operation.run = [=](weir_error *error) { return (this->*run)(error); };
        operation.check = [=](weir_status status) {
            const std::set<std::string> found = sound_names();
            EXPECT_TRUE(found == to || (status != WEIR_OK && found == from))
                << found.size() << " states after status " << status;
        };
        fault::every_allocation(operation);
        fault::every_file_call(operation);
    }
    void every_loss(Run run, const std::set<std::string> &from, const std::set<std::string> &to)
    {
        restore();
        const size_t n = fault::every_power_loss(
            folder_,
            [=] {
                weir_error error = {};
                ASSERT_EQ((this->*run)(&error), WEIR_OK) << error.text;
            },
            [=](const Files &files, bool is_over) {
                fault::make_folder(folder_, files);
                const std::set<std::string> found = sound_names();
                EXPECT_TRUE(found == to || (!is_over && found == from)) << found.size();
            }
        );
        EXPECT_GT(n, 3u) << "calls were not recorded";
    }

    Files before_;
    bool is_written_ = false; /* anew, with memory of its own; else linked */
};

TEST_F(States, Add)
{
    every(&States::add_third, { "first", "second" }, { "first", "second", "third" });
}

TEST_F(States, Remove) { every(&States::remove_first, { "first", "second" }, { "second" }); }

TEST_F(States, AddAndAPowerLoss)
{
    is_written_ = true;
    every_loss(&States::add_third, { "first", "second" }, { "first", "second", "third" });
}

TEST_F(States, RemoveAndAPowerLoss)
{
    every_loss(&States::remove_first, { "first", "second" }, { "second" });
}

/* A log of which most is of states that were removed: the next change writes it anew. */
class FullLog : public States {
  protected:
    void SetUp() override
    {
        States::SetUp();
        open();
        for (int i = 0; i < 80; i++) {
            const std::string name = added("passing", { 1, 2, 3, 4 });
            ASSERT_EQ(weir_states_remove(states_, name.c_str(), &error_), WEIR_OK) << error_.text;
            if (std::filesystem::file_size(log_) > largest_)
                largest_ = std::filesystem::file_size(log_), full_ = fault::files_of(folder_);
        }
        EXPECT_LT(std::filesystem::file_size(log_), largest_) << "it was never written anew";
        close();
        before_ = full_;
    }
    uintmax_t largest_ = 0;
    Files full_;
};

TEST_F(FullLog, Remove) { every(&States::remove_first, { "first", "second" }, { "second" }); }

TEST_F(FullLog, AddAndAPowerLoss)
{
    is_written_ = true;
    every_loss(&States::add_third, { "first", "second" }, { "first", "second", "third" });
}

/* What reads only sees both states or says why not. */
TEST_F(States, Read)
{
    fault::Operation operation;
    size_t n_seen = 0;
    char text[64] = "";
    operation.prepare = [&] { n_seen = 0, text[0] = '\0'; };
    operation.run = [&](weir_error *error) {
        return with_states(error, false, [&](weir_states *states) {
            static const float vector[] = { 1, 2, 3, 4 };
            weir_state_info *list = nullptr;
            weir_state_hit hits[4];
            size_t n = 0, total = 0, n_hits = 0;
            char path[PATH_MAX];
            weir_buffer metadata = {};
            const weir_states_page page = { 0, 10, nullptr, nullptr };
            const weir_states_question question = { vector, 4, nullptr, nullptr };
            weir_status status = weir_states_list(states, &page, &list, &n, &total, error);
            if (status == WEIR_OK)
                status = weir_states_route(states, &question, hits, &n_hits, error);
            if (status == WEIR_OK) status = weir_states_payload(states, &list[0], path, error);
            if (status == WEIR_OK)
                status = weir_states_metadata(states, &list[0], &metadata, error);
            if (status == WEIR_OK) {
                n_seen = n + n_hits;
                (void)snprintf(text, sizeof text, "%s", metadata.data);
            }
            weir_memory_give(list);
            weir_buffer_free(&metadata);
            return status;
        });
    };
    operation.check = [&](weir_status status) {
        if (status != WEIR_OK) return;
        EXPECT_EQ(n_seen, 4u);
        EXPECT_STREQ(text, "{}");
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

TEST_F(States, Create)
{
    fault::Operation operation;
    operation.prepare = [this] { std::filesystem::remove_all(folder_); };
    operation.run = [this](weir_error *error) {
        const weir_states_kind kind = { { test_model[0], test_model[1] }, 4, "test", 0 };
        return weir_states_create(folder_.c_str(), &kind, error);
    };
    operation.check = [this](weir_status status) {
        weir_error error = {};
        weir_states *states = nullptr;
        const weir_states_options options = { folder_.c_str(), test_model, true, nullptr, 0 };
        const weir_status opened = weir_states_open(&states, &options, &error);
        EXPECT_TRUE(opened == WEIR_OK || (status != WEIR_OK && opened == WEIR_ENOTFOUND))
            << error.text;
        weir_states_close(states);
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

} // namespace
