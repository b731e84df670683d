// The whole server over the demo model with one worker and a database of states, while the engine
// or the disk hangs under what is added, asked, read or removed: everything else is answered
// meanwhile.
#include <fcntl.h>

#include <filesystem>
#include <thread>

#include "engine/base/clock.h"
#include "tests/unit/kv/file_gate.h"
#include "tests/unit/serve/talk_fixture.h"

namespace {

std::atomic<support::Gate *> syncs{ nullptr }, log_reads{ nullptr }; /* of the log */

void pass_for_log(int fd, const std::atomic<support::Gate *> &at)
{
    char path[4096] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    support::Gate *const gate = at;
    if (gate != nullptr && readlink(link.c_str(), path, sizeof path - 1) > 0 &&
        std::string(path).find("states.log") != std::string::npos)
        gate->pass();
}

} // namespace

/* In front of libc's. */
extern "C" int fsync(int fd)
{
    pass_for_log(fd, syncs);
    return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    pass_for_log(fd, log_reads);
    return syscall(SYS_pread64, fd, bytes, n, at);
}

extern "C" ssize_t __pread_chk(int fd, void *bytes, size_t n, off_t at, size_t)
{
    return pread(fd, bytes, n, at);
}

namespace {

using talk_fixture::Reply;

/* A job whose first event waits in a gate, and the engine with it. */
struct Held {
    support::Gate gate;
    weir_job *job = nullptr;
    std::atomic<bool> is_held{ false };
    static bool on_event(void *user, const weir_event *event)
    {
        Held *const held = static_cast<Held *>(user);
        if (event->type == WEIR_EVENT_TOKEN && !held->is_held.exchange(true)) held->gate.pass();
        return true;
    }
    weir_status submit(weir_service *service)
    {
        static const int32_t prompt[] = { 5, 6, 7 };
        weir_request request = {};
        request.prompt = prompt;
        request.n_prompt = 3;
        request.n_choices = 1;
        request.max_tokens = 4;
        request.ignore_eos = true;
        request.sampling = weir_sampling_default();
        request.callback = on_event;
        request.user = this;
        return weir_service_submit(service, &job, &request, nullptr);
    }
};

class StatesIo : public talk_fixture::Talks {
  protected:
    void SetUp() override
    {
        dir_ = empty_folder("states.dir");
        n_workers_ = 1;
    }
    void TearDown() override
    {
        file_gate::writes = file_gate::small_reads = nullptr;
        file_gate::small_from = 0;
        syncs = log_reads = nullptr;
        stop();
    }
    void start(const char *more = "batch.queue=16")
    {
        open({ dir_, "memory.host=128MiB", "model.context=1280", "batch.max_sequences=4", more });
    }
    int begin_adding(const std::string &label) const
    {
        std::string text;
        for (int i = 0; i < 60; i++) text += label + " holds " + std::to_string(i * 37) + ". ";
        return begin("/v1/states", "{\"label\":\"" + label + R"(","prompt":")" + text + "\"}");
    }
    void add(const std::string &label) const { expect_ok(begin_adding(label)); }
    int begin_asking() const { return begin("/v1/states/query", R"({"question":"What is it?"})"); }
    int begin_removing(const std::string &id) const
    {
        return http::begin(weir_server_port(server_), "DELETE", "/v1/states/" + id, "", "");
    }
    static void expect_ok(int fd)
    {
        const std::string text = end(fd);
        EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text.substr(0, 400);
    }
    std::string list() const { return request("GET", "/v1/states", ""); }
    int begin_getting(const std::string &path) const
    {
        return http::begin(weir_server_port(server_), "GET", path, "", "");
    }
    int begin_continuing(const std::string &id) const
    {
        return begin("/v1/completions", R"({"prompt":"x","state":")" + id + R"(","max_tokens":2})");
    }
    static weir_status copy_first(void *user, const char *path, int64_t, weir_error *)
    {
        std::error_code why;
        std::filesystem::copy_file(*static_cast<const std::string *>(user), path, why);
        return why ? WEIR_EIO : WEIR_OK;
    }
    /* As another process does. */
    void add_elsewhere(const char *label)
    {
        weir_states *other = nullptr;
        weir_error error = {};
        const weir_states_options options = { folder_.c_str(), nullptr, true, nullptr, 0 };
        ASSERT_EQ(weir_states_open(&other, &options, &error), WEIR_OK) << error.text;
        std::string first = folder_ + "/first.1.session";
        weir_new_state state = {};
        state.label = label;
        state.write = copy_first;
        state.user = &first;
        EXPECT_EQ(weir_states_add(other, &state, nullptr, &error), WEIR_OK) << error.text;
        weir_states_close(other);
    }
    bool lists(const std::string &id) const
    {
        return list().find("\"id\":\"" + id + "\"") != std::string::npos;
    }
    Reply chat(int topic) const
    {
        return talk_fixture::reply_of(
            end(begin("/v1/chat/completions", talk_fixture::body_of(topic, 60, 4, "")))
        );
    }
    /* Requests that need the one worker, but no step. */
    void expect_worker_is_free() const
    {
        expect_worker();
        EXPECT_EQ(0u, list().find("HTTP/1.1 200"));
    }
    bool wait_for_jobs(int n_waiting) const
    {
        weir_session_activity activity = {};
        for (int i = 0; i < 2000; i++) {
            weir_sessions_activity_of(weir_engine_state_sessions(engine_), &activity);
            if (activity.waiting == n_waiting) return true;
            (void)poll(nullptr, 0, 5);
        }
        return false;
    }
    const char *dir_ = nullptr;
};

TEST_F(StatesIo, AWriteThatHangsStopsNoRequest)
{
    start();
    add("first");
    support::Gate disk;
    file_gate::writes = &disk;
    const int adding = begin_adding("second");
    ASSERT_TRUE(disk.wait_until_reached());
    const int removing = begin_removing("first");
    ASSERT_TRUE(wait_for_jobs(1)) << "it waits for the database, on no thread";
    expect_worker_is_free();
    EXPECT_GT(chat(8).n_prompt, 400);
    expect_ok(begin_asking());
    expect_ok(begin("/v1/completions", R"({"prompt":"x","state":"first","max_tokens":2})"));
    EXPECT_TRUE(lists("first"));
    EXPECT_FALSE(lists("second"));
    disk.open();
    expect_ok(adding);
    expect_ok(removing);
    EXPECT_FALSE(disk.was_late) << "a request waited for the write";
    EXPECT_FALSE(lists("first"));
    EXPECT_TRUE(lists("second"));
}

TEST_F(StatesIo, ALogThatHangsStopsNoRequest)
{
    start();
    add("first");
    support::Gate disk;
    syncs = &disk;
    const int removing = begin_removing("first");
    ASSERT_TRUE(disk.wait_until_reached());
    expect_worker_is_free();
    EXPECT_GT(chat(8).n_prompt, 400);
    expect_ok(begin_asking());
    disk.open();
    expect_ok(removing);
    EXPECT_FALSE(disk.was_late) << "a request waited for the log";
    EXPECT_FALSE(lists("first"));
}

TEST_F(StatesIo, AStateWhoseFileHangsStopsNoRequest)
{
    start();
    add("first");
    support::Gate disk;
    file_gate::small_reads = &disk;
    const int one = begin_continuing("first"), other = begin_continuing("first");
    ASSERT_TRUE(disk.wait_until_reached());
    ASSERT_TRUE(wait_for_jobs(1)) << "it waits for the same file, on no thread";
    expect_worker_is_free();
    EXPECT_GT(chat(8).n_prompt, 400);
    expect_ok(begin_asking());
    expect_ok(begin_getting("/v1/states/first"));
    disk.open();
    expect_ok(one);
    expect_ok(other);
    EXPECT_FALSE(disk.was_late) << "a request waited for the state";
    EXPECT_NE(end(begin_continuing("none")).find("state_not_found"), std::string::npos);
}

TEST_F(StatesIo, AStateThatCannotBeReadInTimeIs408)
{
    for (const off_t from : { 0, 1 }) { /* the header hangs, or the tokens do */
        start();
        if (from == 0) add("first");
        support::Gate disk;
        file_gate::small_from = from;
        file_gate::small_reads = &disk;
        const int one = begin(
            "/v1/completions", R"({"prompt":"x","state":"first","max_tokens":2,"timeout":0.2})"
        );
        ASSERT_TRUE(disk.wait_until_reached());
        expect_worker_is_free();
        std::thread later([&] { (void)poll(nullptr, 0, 1500), disk.open(); });
        const std::string text = end(one);
        later.join();
        stop(); /* the read goes on after the reply, and needs the gate */
        file_gate::small_reads = nullptr;
        EXPECT_EQ(0u, text.find("HTTP/1.1 408")) << text;
        EXPECT_NE(text.find("\"choices\""), std::string::npos) << text;
        EXPECT_EQ(text.find("\"state\""), std::string::npos) << text;
    }
}

TEST_F(StatesIo, MetadataThatHangStopNoRequest)
{
    start();
    add("first");
    support::Gate disk;
    log_reads = &disk;
    const int one = begin_getting("/v1/states/first");
    ASSERT_TRUE(disk.wait_until_reached());
    expect_worker_is_free();
    expect_ok(begin_asking());
    expect_ok(begin_continuing("first"));
    disk.open();
    const std::string text = end(one);
    EXPECT_NE(text.find("\"metadata\":{}"), std::string::npos) << text;
    EXPECT_FALSE(disk.was_late) << "a request waited for the log";
}

TEST_F(StatesIo, ARecordOfAnotherProcessThatHangsStopsNoWorker)
{
    start();
    add("first");
    add_elsewhere("second");
    support::Gate disk;
    log_reads = &disk;
    const int listing = begin_getting("/v1/states"), again = begin_getting("/v1/states"),
              removing = begin_removing("second");
    ASSERT_TRUE(disk.wait_until_reached());
    for (int i = 0; i < 3; i++) expect_worker();
    EXPECT_GT(chat(8).n_prompt, 400);
    disk.open();
    for (const int fd : { listing, again }) {
        const std::string text = end(fd);
        EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text;
        EXPECT_NE(text.find("\"id\":\"first\""), std::string::npos) << text;
    }
    expect_ok(removing);
    EXPECT_FALSE(disk.was_late) << "a request waited for the log";
    EXPECT_FALSE(lists("second"));
}

TEST_F(StatesIo, AComputationThatWaitsStopsNoRequest)
{
    start();
    Held held;
    ASSERT_EQ(held.submit(weir_engine_service(engine_)), WEIR_OK);
    ASSERT_TRUE(held.gate.wait_until_reached());
    const int one = begin_adding("one"), two = begin_adding("two"), asking = begin_asking(),
              again = begin_asking();
    for (int i = 0; i < 3; i++) expect_worker_is_free();
    held.gate.open();
    for (const int fd : { one, two, asking, again }) expect_ok(fd);
    EXPECT_FALSE(held.gate.was_late) << "a request waited for the computation";
    EXPECT_TRUE(lists("one"));
    EXPECT_TRUE(lists("two"));
    weir_job_release(held.job);
}

TEST_F(StatesIo, AFullQueueIs429)
{
    start("batch.queue=2");
    Held held, others[16];
    ASSERT_EQ(held.submit(weir_engine_service(engine_)), WEIR_OK);
    ASSERT_TRUE(held.gate.wait_until_reached());
    for (Held &other : others) {
        other.is_held = true;
        if (other.submit(weir_engine_service(engine_)) != WEIR_OK) break;
    }
    for (const int fd : { begin_adding("one"), begin_asking() }) {
        const std::string text = end(fd);
        EXPECT_EQ(0u, text.find("HTTP/1.1 429")) << text;
        EXPECT_NE(text.find("queue_full"), std::string::npos) << text;
    }
    held.gate.open();
    weir_job_release(held.job);
    for (const Held &other : others) weir_job_release(other.job);
    ASSERT_TRUE(wait_for("num_requests_waiting", 0)) << "released jobs leave with the next step";
    add("one");
}

/* What is computed is dropped; what is written is finished. */
TEST_F(StatesIo, AClientThatLeavesAddsNothingThatIsNotWrittenYet)
{
    start();
    Held held;
    ASSERT_EQ(held.submit(weir_engine_service(engine_)), WEIR_OK);
    ASSERT_TRUE(held.gate.wait_until_reached());
    const int computed = begin_adding("computed");
    expect_worker_is_free();
    leave(computed);
    held.gate.open();
    weir_job_release(held.job);
    support::Gate disk;
    file_gate::writes = &disk;
    const int written = begin_adding("written");
    ASSERT_TRUE(disk.wait_until_reached());
    leave(written);
    disk.open();
    add("last"); /* tasks are done in order */
    EXPECT_TRUE(lists("written"));
    EXPECT_FALSE(lists("computed"));
}

TEST_F(StatesIo, AServerThatEndsFinishesTheWriteThatBegan)
{
    start();
    support::Gate disk;
    file_gate::writes = &disk;
    const int adding = begin_adding("first");
    ASSERT_TRUE(disk.wait_until_reached());
    const int waiting = begin_adding("second");
    ASSERT_TRUE(wait_for_jobs(1));
    std::thread ending([this] {
        weir_server_drain(server_, weir_clock_ns());
        weir_server_close(server_);
    });
    EXPECT_EQ(0u, end(waiting).find("HTTP/1.1 503"));
    disk.open();
    ending.join();
    server_ = nullptr;
    close(adding);
    EXPECT_FALSE(disk.was_late);
    weir_state_info info;
    weir_error error = {};
    EXPECT_EQ(weir_states_find(weir_engine_states(engine_), "first", &info, &error), WEIR_OK);
    EXPECT_EQ(
        weir_states_find(weir_engine_states(engine_), "second", &info, &error), WEIR_ENOTFOUND
    ) << info.name;
}

} // namespace
