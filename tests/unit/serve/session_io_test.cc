// The whole server over the demo model with one worker, while the disk hangs under a session that
// is saved or restored: everything else is answered meanwhile, and what waits for the file comes in
// order.
#include <sys/statvfs.h>

#include <set>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/session/session_store.h"
#include "tests/unit/kv/file_gate.h"
#include "tests/unit/serve/talk_fixture.h"

static bool has_space = true;

extern "C" int fstatvfs(int, struct statvfs *out)
{
    *out = {};
    out->f_frsize = 4096;
    out->f_bavail = has_space ? 1 << 30 : 1;
    return 0;
}

namespace {

using talk_fixture::Reply;

class SessionIo : public talk_fixture::Talks {
  protected:
    void SetUp() override
    {
        dir_ = empty_folder("sessions.dir");
        n_workers_ = 1;
        start();
    }
    void TearDown() override
    {
        file_gate::reads = file_gate::writes = nullptr;
        stop();
    }
    void start()
    {
        open({ dir_, "memory.host=128MiB", "model.context=1280", "batch.max_sequences=4",
               "sessions.autosave=false" });
    }
    void restart()
    {
        stop();
        start();
        file_gate::bytes_read = 0;
    }
    int begin_chat(int topic, const std::string &session) const
    {
        const std::string more = session.empty() ? "" : ",\"session\":\"" + session + "\"";
        return begin("/v1/chat/completions", talk_fixture::body_of(topic, 60, 4, more));
    }
    Reply chat(int topic, const std::string &session = "") const
    {
        return talk_fixture::reply_of(end(begin_chat(topic, session)));
    }
    std::string save(const std::string &name) const
    {
        return request("POST", "/v1/sessions", "{\"name\":\"" + name + "\"}");
    }
    std::string list() const { return request("GET", "/v1/sessions", ""); }
    const char *dir_ = nullptr;
};

TEST_F(SessionIo, ASaveThatHangsStopsNoRequest)
{
    const Reply first = chat(1, "talk");
    support::Gate disk;
    file_gate::writes = &disk;
    const int saving = begin("/v1/sessions", R"({"name":"talk"})");
    ASSERT_TRUE(disk.wait_until_reached());
    EXPECT_GT(chat(8).n_prompt, 400);
    EXPECT_GT(chat(9, "other").n_prompt, 400);
    const Reply again = chat(1, "talk");
    EXPECT_EQ(again.content, first.content);
    EXPECT_EQ(again.n_cached, first.n_prompt - 1) << "it is cached while it is saved";
    const std::string shown = list();
    EXPECT_NE(shown.find("\"id\":\"talk\""), std::string::npos) << shown;
    EXPECT_NE(shown.find("\"state\":\"saving\",\"bytes_done\":"), std::string::npos) << shown;
    EXPECT_EQ(metric("sessions_saving"), 1);
    disk.open();
    EXPECT_EQ(0u, end(saving).find("HTTP/1.1 200"));
    EXPECT_FALSE(disk.was_late) << "a request waited for the write";
    EXPECT_NE(list().find("\"state\":\"idle\""), std::string::npos);
    EXPECT_EQ(metric("sessions_saving"), 0);
}

TEST_F(SessionIo, ARestoreThatHangsStopsNoRequestAndNoStep)
{
    const Reply first = chat(1, "talk");
    ASSERT_EQ(0u, save("talk").find("HTTP/1.1 200"));
    restart();
    support::Gate disk;
    file_gate::reads = &disk;
    const int restoring = begin("/v1/sessions/restore", R"({"name":"talk"})");
    ASSERT_TRUE(disk.wait_until_reached());
    EXPECT_GT(chat(8).n_prompt, 400);
    EXPECT_GT(chat(9, "other").n_prompt, 400);
    EXPECT_EQ(0u, save("other").find("HTTP/1.1 200"));
    const std::string shown = list();
    EXPECT_NE(shown.find("\"state\":\"restoring\",\"bytes_done\":"), std::string::npos) << shown;
    EXPECT_EQ(metric("sessions_restoring"), 1);
    disk.open();
    EXPECT_EQ(0u, end(restoring).find("HTTP/1.1 200"));
    EXPECT_FALSE(disk.was_late) << "a request waited for the read";
    const Reply again = chat(1, "talk");
    EXPECT_EQ(again.content, first.content);
    EXPECT_EQ(again.n_cached, first.n_prompt - 1);
}

/* Two requests that continue the same session read its file once; a job for a file waits for the
 * one before it. */
TEST_F(SessionIo, JobsForOneFileAreDoneInOrder)
{
    const Reply first = chat(1, "talk");
    ASSERT_EQ(0u, save("talk").find("HTTP/1.1 200"));
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(folder_ + "/talk.session"));
    restart();
    support::Gate slow_read, slow_write;
    file_gate::reads = &slow_read;
    const int one = begin_chat(1, "talk");
    ASSERT_TRUE(slow_read.wait_until_reached());
    const int two = begin_chat(1, "talk");
    ASSERT_TRUE(wait_for("sessions_waiting", 1));
    slow_read.open();
    for (const int fd : { one, two }) {
        const Reply reply = talk_fixture::reply_of(end(fd));
        EXPECT_EQ(reply.content, first.content);
        EXPECT_EQ(reply.n_cached, first.n_prompt - 1);
    }
    EXPECT_GT(file_gate::bytes_read, bytes / 2);
    EXPECT_LE(file_gate::bytes_read, bytes) << "the file was read twice";
    file_gate::writes = &slow_write;
    const int saving = begin("/v1/sessions", R"({"name":"talk"})");
    ASSERT_TRUE(slow_write.wait_until_reached());
    const int deleting =
        http::begin(weir_server_port(server_), "DELETE", "/v1/sessions/talk", "", "");
    ASSERT_TRUE(wait_for("sessions_waiting", 1));
    slow_write.open();
    EXPECT_EQ(0u, end(saving).find("HTTP/1.1 200"));
    EXPECT_EQ(0u, end(deleting).find("HTTP/1.1 200"));
    EXPECT_NE(list().find("\"data\":[]"), std::string::npos);
}

TEST_F(SessionIo, AClientThatLeavesDuringItsRestoreLeavesNothing)
{
    const Reply first = chat(1, "talk");
    ASSERT_EQ(0u, save("talk").find("HTTP/1.1 200"));
    for (const bool is_asked : { true, false }) {
        restart();
        support::Gate disk;
        file_gate::reads = &disk;
        const int restoring =
            is_asked ? begin("/v1/sessions/restore", R"({"name":"talk"})") : begin_chat(1, "talk");
        ASSERT_TRUE(disk.wait_until_reached());
        expect_worker(); /* the restore waits for the disk only */
        leave(restoring);
        disk.open();
        EXPECT_TRUE(wait_for("sessions_restoring", 0));
        weir_service_stats stats = {};
        for (int i = 0; i < 2000; i++) {
            weir_service_stats_of(weir_engine_service(engine_), &stats);
            if (stats.kv_pages_used == 0) break;
            (void)poll(nullptr, 0, 5);
        }
        EXPECT_EQ(stats.kv_pages_used, 0);
        EXPECT_EQ(stats.kept_tokens, 0);
        EXPECT_EQ(stats.running + stats.waiting, 0);
        file_gate::reads = nullptr;
        EXPECT_EQ(chat(1, "talk").content, first.content) << "the file is as it was";
    }
}

/* An automatic file stays until the one that takes its place is written, unless the disk has space
 * for one only. */
TEST_F(SessionIo, AnOldFileStaysUntilTheNewOneIsThere)
{
    const auto names = [this] {
        std::set<std::string> out;
        for (const auto &entry : std::filesystem::directory_iterator(folder_))
            if (entry.path().extension() == ".session") out.insert(entry.path().filename());
        return out;
    };
    for (const bool is_large : { true, false }) {
        const auto restart_small = [this] {
            stop();
            open({ dir_, "memory.host=128MiB", "model.context=1280", "batch.max_sequences=4",
                   "sessions.autosave=false", "sessions.limit=1" });
        };
        std::filesystem::remove_all(folder_);
        restart_small();
        (void)chat(1);
        ASSERT_EQ(weir_sessions_save_recent(weir_engine_sessions(engine_)), 1);
        const std::set<std::string> old = names();
        ASSERT_EQ(old.size(), 1u);
        restart_small();
        (void)chat(2);
        support::Gate disk;
        file_gate::writes = &disk;
        has_space = is_large;
        std::thread saving([this] {
            EXPECT_EQ(weir_sessions_save_recent(weir_engine_sessions(engine_)), 1);
        });
        ASSERT_TRUE(disk.wait_until_reached());
        EXPECT_EQ(names(), is_large ? old : std::set<std::string>());
        disk.open();
        saving.join();
        file_gate::writes = nullptr;
        has_space = true;
        EXPECT_EQ(names().size(), 1u);
        EXPECT_NE(names(), old);
    }
}

/* At the end of a server what a client has deleted is not written, whether it was saved or not. */
TEST_F(SessionIo, ADeletedSessionIsNotWrittenAtTheEnd)
{
    const auto remove = [this](const char *path) { return request("DELETE", path, ""); };
    (void)chat(1, "talk");
    ASSERT_EQ(0u, save("talk").find("HTTP/1.1 200"));
    (void)chat(2, "other");
    EXPECT_EQ(0u, remove("/v1/sessions/talk").find("HTTP/1.1 200"));
    EXPECT_EQ(0u, remove("/v1/sessions/other").find("HTTP/1.1 200"));
    EXPECT_EQ(0u, remove("/v1/sessions/talk").find("HTTP/1.1 404"));
    EXPECT_EQ(weir_sessions_save_recent(weir_engine_sessions(engine_)), 0);
    EXPECT_NE(list().find("\"data\":[]"), std::string::npos) << list();
    EXPECT_GT(chat(1).n_cached, 400) << "it is cached";
}

/* A timeout ends what waits for the disk, too. */
TEST_F(SessionIo, ATimeoutDoesNotWaitForTheDisk)
{
    const Reply first = chat(1, "talk");
    ASSERT_EQ(0u, save("talk").find("HTTP/1.1 200"));
    for (const bool is_streamed : { false, true }) {
        restart();
        support::Gate disk;
        file_gate::reads = &disk;
        const int late = begin(
            "/v1/chat/completions", talk_fixture::body_of(
                                        1, 60, 4,
                                        std::string(R"(,"session":"talk","timeout":0.3)") +
                                            (is_streamed ? R"(,"stream":true)" : "")
                                    )
        );
        ASSERT_TRUE(disk.wait_until_reached());
        const std::string reply = end(late);
        EXPECT_EQ(0u, reply.find(is_streamed ? "HTTP/1.1 200" : "HTTP/1.1 408")) << reply;
        EXPECT_NE(reply.find(R"("finish_reason":"timeout")"), std::string::npos) << reply;
        EXPECT_EQ(reply.find(R"("code":"timeout")") != std::string::npos, !is_streamed) << reply;
        EXPECT_GT(chat(8).n_prompt, 400) << "others go on";
        disk.open();
        EXPECT_FALSE(disk.was_late) << "the reply waited for the disk";
        EXPECT_TRUE(wait_for("sessions_restoring", 0));
        file_gate::reads = nullptr;
        EXPECT_EQ(chat(1, "talk").content, first.content) << "the file is as it was";
        const std::string counts = request("GET", "/metrics", "");
        EXPECT_NE(counts.find("finished_reason=\"tool_calls\"} 0\n"), std::string::npos) << counts;
        EXPECT_NE(counts.find("finished_reason=\"length\"} 2\n"), std::string::npos) << counts;
    }
}

/* A save that began is finished; one that waits is refused. */
TEST_F(SessionIo, AServerThatEndsFinishesTheSaveThatBegan)
{
    (void)chat(1, "talk");
    (void)chat(2, "late");
    support::Gate disk;
    file_gate::writes = &disk;
    const int saving = begin("/v1/sessions", R"({"name":"talk"})");
    ASSERT_TRUE(disk.wait_until_reached());
    const int waiting = begin("/v1/sessions", R"({"name":"late"})");
    ASSERT_TRUE(wait_for("sessions_waiting", 1));
    std::thread ending([this] {
        weir_server_drain(server_, weir_clock_ns());
        weir_server_close(server_);
    });
    EXPECT_EQ(0u, end(waiting).find("HTTP/1.1 503"));
    disk.open();
    ending.join();
    server_ = nullptr;
    close(saving);
    EXPECT_FALSE(disk.was_late);
    weir_session_info *infos = nullptr;
    size_t n = 0;
    weir_error error = {};
    ASSERT_EQ(weir_sessions_list(weir_engine_sessions(engine_), &infos, &n, &error), WEIR_OK);
    ASSERT_EQ(n, 1u);
    EXPECT_STREQ(infos[0].name, "talk");
    EXPECT_EQ(infos[0].problem, WEIR_OK);
    weir_memory_give(infos);
}

} // namespace
