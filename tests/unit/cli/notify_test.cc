// What a server tells the service manager: datagrams to the socket that NOTIFY_SOCKET names.
#include "engine/cli/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

/* A service manager that listens at a path, or with "@NAME" at an abstract name. */
class Manager {
  public:
    explicit Manager(const std::string &name)
        : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))
    {
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        memcpy(address.sun_path, name.data(), name.size());
        if (name[0] == '@') address.sun_path[0] = '\0';
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
        EXPECT_EQ(0, bind(fd_, reinterpret_cast<const sockaddr *>(&address), size)) << name;
    }
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;
    ~Manager() { close(fd_); }

    std::string next() const
    {
        char text[256];
        const ssize_t n = recv(fd_, text, sizeof text, 0);
        return n < 0 ? "nothing" : std::string(text, static_cast<size_t>(n));
    }

  private:
    int fd_;
};

/* Tests run in a folder of their own; the path of a socket is short. */
std::string path_here(const std::string &name)
{
    const std::string folder = "/tmp/weir-notify-" + std::to_string(getpid()) + "-";
    return folder + name;
}

class Names : public testing::TestWithParam<bool> {};

TEST_P(Names, GetEveryState)
{
    const std::string name = (GetParam() ? "@" : "") + path_here("socket");
    const Manager manager(name);
    weir_error error = {};
    int fd = -1;
    ASSERT_EQ(WEIR_OK, weir_notify_open(&fd, name.c_str(), &error)) << error.text;
    ASSERT_GE(fd, 0);
    EXPECT_EQ(WEIR_OK, weir_notify_send(fd, "READY=1\nSTATUS=listening", &error)) << error.text;
    EXPECT_EQ(WEIR_OK, weir_notify_send(fd, "STOPPING=1", &error)) << error.text;
    EXPECT_EQ("READY=1\nSTATUS=listening", manager.next());
    EXPECT_EQ("STOPPING=1", manager.next());
    EXPECT_EQ("nothing", manager.next());
    weir_notify_close(fd);
    if (!GetParam()) EXPECT_EQ(0, unlink(name.c_str()));
}
INSTANTIATE_TEST_SUITE_P(Notify, Names, testing::Bool(), [](const auto &of) {
    return std::string(of.param ? "Abstract" : "Path");
});

TEST(Notify, WithoutAManagerThereIsNothingToDo)
{
    weir_error error = {};
    for (const char *name : { static_cast<const char *>(nullptr), "" }) {
        int fd = 0;
        EXPECT_EQ(WEIR_OK, weir_notify_open(&fd, name, &error));
        EXPECT_EQ(-1, fd);
        EXPECT_EQ(WEIR_OK, weir_notify_send(fd, "READY=1", &error));
        weir_notify_close(fd);
    }
}

TEST(Notify, OtherSocketsAreRefused)
{
    const std::string most(sizeof(sockaddr_un::sun_path) - 1, 'x');
    for (const std::string &name : { std::string("vsock:2:1234"), std::string("relative"),
                                     std::string("@"), std::string("/"), "/" + most, "@" + most }) {
        weir_error error = {};
        int fd = 0;
        EXPECT_EQ(WEIR_EUNSUPPORTED, weir_notify_open(&fd, name.c_str(), &error)) << name;
        EXPECT_EQ(-1, fd);
        EXPECT_NE(nullptr, strstr(error.text, "NOTIFY_SOCKET ")) << error.text;
    }
}

TEST(Notify, ASocketThatIsNotThereIsNamed)
{
    weir_error error = {};
    int fd = 0;
    EXPECT_EQ(WEIR_EIO, weir_notify_open(&fd, "/no/manager", &error));
    EXPECT_EQ(-1, fd);
    EXPECT_STREQ(
        "NOTIFY_SOCKET /no/manager cannot be reached: No such file or directory", error.text
    );
    const std::string name = "@" + path_here("gone");
    {
        const Manager manager(name);
        ASSERT_EQ(WEIR_OK, weir_notify_open(&fd, name.c_str(), &error)) << error.text;
    }
    EXPECT_EQ(WEIR_EIO, weir_notify_send(fd, "READY=1", &error));
    EXPECT_NE(nullptr, strstr(error.text, "\"READY=1\" was not sent")) << error.text;
    weir_notify_close(fd);
}

} // namespace
