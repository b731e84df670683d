// kill -9 while states are added and removed: what was acknowledged is there, whole; at most the
// one in flight is not.
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <set>

#include "tests/unit/states/support.h"

namespace {

weir_status write_anew(void *, const char *path, int64_t, weir_error *)
{
    write_session(path, 100);
    return WEIR_OK;
}

class Crash : public Database {
  protected:
    /* The child: adds without end, and says what is there for good. Every third state is removed
     * again. */
    [[noreturn]] void child(int out)
    {
        open();
        const std::vector<float> vector = { 1, 2, 3, 4 };
        weir_new_state state = {};
        state.label = "document";
        state.vector = vector.data();
        state.write = write_anew;
        for (int64_t i = 0;; i++) {
            if (weir_states_add(states_, &state, &info_, &error_) != WEIR_OK) _exit(2);
            if (write(out, &info_.serial, sizeof info_.serial) != sizeof info_.serial) _exit(3);
            if (i % 3 != 2) continue;
            const int64_t removed = -info_.serial;
            if (weir_states_remove(states_, info_.name, &error_) != WEIR_OK) _exit(4);
            if (write(out, &removed, sizeof removed) != sizeof removed) _exit(5);
        }
    }

    /* Runs it until it has said `n_said` lines and a little longer; what it said goes to the
     * sets. */
    void run(size_t n_said, useconds_t longer)
    {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        close();
        const pid_t pid = fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) child(ends[1]);
        (void)::close(ends[1]);
        int64_t said;
        for (size_t i = 0; i < n_said && read(ends[0], &said, sizeof said) == sizeof said; i++)
            note(said);
        (void)usleep(longer);
        (void)kill(pid, SIGKILL);
        int status = 0;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_TRUE(WIFSIGNALED(status)) << "the child failed: " << WEXITSTATUS(status);
        while (read(ends[0], &said, sizeof said) == sizeof said) note(said);
        (void)::close(ends[0]);
    }

    void note(int64_t said)
    {
        if (said > 0)
            there_.insert(said);
        else
            there_.erase(-said);
        last_ = said;
    }

    std::set<int64_t> there_;
    int64_t last_ = 0; /* said: the next thing may have been done and not said */
};

TEST_F(Crash, AtMostTheOneInFlightIsLost)
{
    std::mt19937 random(42);
    size_t n_torn = 0;
    for (int round = 0; round < 40; round++) {
        run(random() % 5, (useconds_t)(random() % 3000));
        size_t n_left = 0; /* before anything is cleared away */
        for (const auto &entry : std::filesystem::directory_iterator(folder_))
            n_left += entry.path().filename() != "states.lock";
        open();
        weir_state_info *list = nullptr;
        size_t n = 0, total = 0;
        const weir_states_page all = { 0, SIZE_MAX, nullptr, nullptr };
        ASSERT_EQ(weir_states_list(states_, &all, &list, &n, &total, &error_), WEIR_OK);
        std::set<int64_t> found;
        for (size_t i = 0; i < n; i++) {
            char path[PATH_MAX];
            EXPECT_EQ(weir_states_payload(states_, &list[i], path, &error_), WEIR_OK)
                << error_.text;
            EXPECT_TRUE(list[i].has_vector);
            found.insert(list[i].serial);
        }
        /* One may be there that was not reported, or gone. */
        for (int64_t serial : there_)
            if (found.count(serial) == 0) EXPECT_EQ(serial, last_) << "round " << round;
        size_t n_unheard = 0;
        for (int64_t serial : found) n_unheard += there_.count(serial) == 0;
        EXPECT_LE(n_unheard, 1u);
        EXPECT_EQ(n_files(), n);
        EXPECT_EQ(route({ 1, 2, 3, 4 }, 1000).size(), n);
        n_torn += n_left != n + 1;
        weir_memory_give(list);
        there_ = found;
    }
    EXPECT_GT(there_.size(), 20u);
    EXPECT_GT(n_torn, 0u) << "no kill came in the middle of anything: this tested nothing";
}

} // namespace
