// A server on a UNIX socket: requests, who may connect, what is in its place.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "engine/serve/local_socket.h"
#include "tests/unit/serve/server_fixture.h"

namespace {

class LocalSocket : public Server {
  protected:
    void SetUp() override
    {
        /* Short, because an address has 108 bytes. */
        char folder[] = "/tmp/weir.XXXXXX";
        ASSERT_NE(nullptr, mkdtemp(folder));
        folder_ = folder;
        path_ = folder_ + "/weir.sock";
    }
    void TearDown() override
    {
        Server::TearDown();
        std::filesystem::remove_all(folder_);
    }
    weir_server_options options()
    {
        weir_server_options o = default_options();
        o.host = path_.c_str();
        return o;
    }
    /* The reply to GET /health; "": none. */
    std::string health() const
    {
        struct sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        strcpy(address.sun_path, path_.c_str());
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        std::string reply;
        if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
            const std::string text =
                "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            EXPECT_EQ((ssize_t)text.size(), write(fd, text.data(), text.size()));
            char piece[512];
            for (ssize_t n = read(fd, piece, sizeof piece); n > 0;
                 n = read(fd, piece, sizeof piece))
                reply.append(piece, (size_t)n);
        }
        close(fd);
        return reply;
    }
    mode_t mode() const
    {
        struct stat info = {};
        EXPECT_EQ(0, stat(path_.c_str(), &info));
        return info.st_mode & 0777;
    }
    /* Why no server opens there. */
    std::string refusal()
    {
        weir_server *server = nullptr;
        weir_error error = {};
        weir_server_options o = options_;
        o.host = path_.c_str();
        EXPECT_NE(WEIR_OK, weir_server_open(&server, &o, &error));
        weir_server_close(server);
        return error.text;
    }
    /* A socket at the path without a listener. */
    int bound() const
    {
        struct sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        strcpy(address.sun_path, path_.c_str());
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(0, bind(fd, (const struct sockaddr *)&address, sizeof address));
        return fd;
    }
    std::string folder_, path_;
};

TEST_F(LocalSocket, AnswersAndIsForOneUserWithoutAKey)
{
    open({ 2, 4096, 100, 0 }, options());
    EXPECT_EQ(0u, health().find("HTTP/1.1 200"));
    EXPECT_EQ(0600u, mode());
    weir_server_close(server_);
    server_ = nullptr;
    EXPECT_FALSE(std::filesystem::exists(path_));
}

/* Another server was started in its place after somebody had moved its own away. */
TEST_F(LocalSocket, RemovesOnlyItsOwn)
{
    open({ 2, 4096, 100, 0 }, options());
    std::filesystem::rename(path_, folder_ + "/old.sock");
    std::ofstream(path_) << "mine";
    weir_server_close(server_);
    server_ = nullptr;
    EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(LocalSocket, WithAKeyTheUmaskSaysWhoMayConnect)
{
    const char *const key = "one";
    weir_server_options o = options();
    o.keys = &key;
    o.n_keys = 1;
    const mode_t before = umask(0007);
    open({ 2, 4096, 100, 0 }, o);
    (void)umask(before);
    EXPECT_EQ(0770u, mode());
    EXPECT_EQ(0u, health().find("HTTP/1.1 200"));
}

TEST_F(LocalSocket, ReplacesOnlyASocketWithoutAServer)
{
    close(bound()); /* as a server that was killed leaves it */
    open({ 2, 4096, 100, 0 }, options());
    EXPECT_EQ(0u, health().find("HTTP/1.1 200"));
    EXPECT_NE(std::string::npos, refusal().find("in use by another program"));
    EXPECT_EQ(0u, health().find("HTTP/1.1 200")) << "the first one still answers";
    path_ = folder_ + "/file.sock";
    std::ofstream(path_) << "mine";
    EXPECT_NE(std::string::npos, refusal().find("is no socket"));
    EXPECT_TRUE(std::filesystem::exists(path_));
    path_ = folder_ + "/" + std::string(120, 'x') + ".sock";
    EXPECT_NE(std::string::npos, refusal().find("at most"));
}

/* One process of several; what it says if it does not listen. */
struct Opening {
    int fd = -1;
    weir_local_socket made = {};
    weir_error error = {};
    weir_status status = WEIR_OK;
    void open(const std::string &path)
    {
        status = weir_local_socket_open(&fd, &made, path.c_str(), true, &error);
    }
    ~Opening()
    {
        weir_local_socket_remove(&made);
        if (fd >= 0) close(fd);
    }
};

TEST_F(LocalSocket, OfThoseThatReplaceAnOldOneAtOnceOneListens)
{
    for (int round = 0; round < 50; round++) {
        close(bound());
        std::vector<Opening> all(4);
        std::vector<std::thread> threads;
        int n_listen = 0;
        for (Opening &each : all) threads.emplace_back([&] { each.open(path_); });
        for (std::thread &each : threads) each.join();
        for (const Opening &each : all) {
            n_listen += each.status == WEIR_OK;
            if (each.status != WEIR_OK)
                EXPECT_EQ(path_ + " is in use by another program", each.error.text);
        }
        EXPECT_EQ(1, n_listen);
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

/* The first one has made its socket and does not listen yet. */
TEST_F(LocalSocket, OneThatIsAboutToListenIsNotReplaced)
{
    const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_EQ(0, flock(folder, LOCK_EX));
    const int first = bound();
    Opening second;
    std::thread opens([&] { second.open(path_); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30)); /* the second one has looked */
    EXPECT_EQ(0, listen(first, 1));
    close(folder);
    opens.join();
    EXPECT_EQ(WEIR_EIO, second.status);
    EXPECT_EQ(path_ + " is in use by another program", second.error.text);
    close(first);
}

} // namespace
