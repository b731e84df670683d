// A client of a server on this machine: what goes over the wire, as text.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace http {

inline int connect_to(int port)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    struct sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    EXPECT_EQ(0, connect(fd, reinterpret_cast<struct sockaddr *>(&to), sizeof to));
    return fd;
}

/* Reads until `until` was seen, or the end. */
inline std::string read_text(int fd, const std::string &until = "")
{
    std::string text;
    char bytes[4096];
    while (until.empty() || text.find(until) == std::string::npos) {
        struct pollfd ready = { fd, POLLIN, 0 };
        if (poll(&ready, 1, 20000) != 1) break;
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) break;
        text.append(bytes, static_cast<size_t>(n));
    }
    return text;
}

/* The next line that is written to a pipe. */
inline std::string read_pipe(int fd)
{
    std::string text;
    char byte = 0;
    struct pollfd ready = { fd, POLLIN, 0 };
    while (byte != '\n' && poll(&ready, 1, 20000) == 1 && read(fd, &byte, 1) == 1) text += byte;
    return text;
}

/* Sends a request on a connection of its own, which the reply comes on. */
inline int begin(
    int port, const std::string &method, const std::string &path, const std::string &more,
    const std::string &body
)
{
    const int fd = connect_to(port);
    const std::string type = body.empty() ? "" : "Content-Type: application/json\r\n";
    const std::string text = method + " " + path +
                             " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + type + more +
                             "\r\n" + body;
    EXPECT_EQ(static_cast<ssize_t>(text.size()), send(fd, text.data(), text.size(), MSG_NOSIGNAL));
    return fd;
}

inline int post(int port, const std::string &path, const std::string &body)
{
    return begin(
        port, "POST", path, "Content-Length: " + std::to_string(body.size()) + "\r\n", body
    );
}

inline std::string request(
    int port, const std::string &method, const std::string &path, const std::string &more,
    const std::string &body
)
{
    const int fd = begin(port, method, path, more, body);
    const std::string text = read_text(fd);
    close(fd);
    return text;
}

inline std::string ask(int port, const std::string &path, const std::string &body)
{
    const int fd = post(port, path, body);
    const std::string text = read_text(fd);
    close(fd);
    return text;
}

} // namespace http
