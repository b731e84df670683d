// A server on 127.0.0.1 that answers as a test says, a thread for each connection.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/load/reply.h"

class FakeServer {
  public:
    /* Answers a request on the socket; false closes the connection. */
    using Answer = std::function<bool(int fd, const std::string &head, const std::string &body)>;

    explicit FakeServer(Answer answer) : answer_(std::move(answer))
    {
        struct sockaddr_in at = {};
        socklen_t n = sizeof at;
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listener_ = socket(AF_INET, SOCK_STREAM, 0);
        EXPECT_EQ(bind(listener_, reinterpret_cast<struct sockaddr *>(&at), sizeof at), 0);
        EXPECT_EQ(listen(listener_, 128), 0);
        EXPECT_EQ(getsockname(listener_, reinterpret_cast<struct sockaddr *>(&at), &n), 0);
        port_ = ntohs(at.sin_port);
        acceptor_ = std::thread([this] { accept_all(); });
    }
    FakeServer(const FakeServer &) = delete;
    FakeServer &operator=(const FakeServer &) = delete;
    ~FakeServer()
    {
        stops_ = true;
        acceptor_.join();
        close(listener_);
        for (std::thread &one : threads_) one.join();
    }

    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    int connections() const { return n_connections_; }
    static bool send_text(int fd, const std::string &text)
    {
        for (size_t at = 0; at < text.size();) {
            const ssize_t n = send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
            if (n <= 0) return false;
            at += static_cast<size_t>(n);
        }
        return true;
    }
    /* An answer of n tokens, sent in one piece. */
    static std::string answer_of(int n)
    {
        std::string text = reply::head + reply::chunk(reply::role);
        for (int i = 0; i < n; i++) text += reply::chunk(reply::text_event("t"));
        return text + reply::chunk(reply::finish + reply::usage(40, n, 16) + reply::done) +
               reply::last;
    }
    bool stops() const { return stops_; }

  private:
    void accept_all()
    {
        while (!stops_) {
            struct pollfd ready = { listener_, POLLIN, 0 };
            if (poll(&ready, 1, 20) != 1) continue;
            const int fd = accept(listener_, nullptr, nullptr);
            if (fd < 0) continue;
            n_connections_++;
            threads_.emplace_back([this, fd] { serve(fd); });
        }
    }
    /* More bytes of the connection; false: it is closed, or the test is over. */
    bool more(int fd, std::string *text) const
    {
        char bytes[4096];
        struct pollfd ready = { fd, POLLIN, 0 };
        while (!stops_) {
            if (poll(&ready, 1, 20) != 1) continue;
            const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
            if (n <= 0) return false;
            text->append(bytes, static_cast<size_t>(n));
            return true;
        }
        return false;
    }
    void serve(int fd)
    {
        std::string text;
        for (bool goes_on = true; goes_on;) {
            size_t end;
            while ((end = text.find("\r\n\r\n")) == std::string::npos && goes_on)
                goes_on = more(fd, &text);
            if (!goes_on) break;
            const std::string head = text.substr(0, end + 2);
            const size_t field = head.find("Content-Length: ");
            const size_t n = field == std::string::npos ? 0 : std::stoul(head.substr(field + 16));
            while (text.size() < end + 4 + n && goes_on) goes_on = more(fd, &text);
            const std::string body = text.substr(end + 4, n);
            text.erase(0, end + 4 + n);
            if (goes_on) goes_on = answer_(fd, head, body);
        }
        close(fd);
    }

    Answer answer_;
    int listener_ = -1, port_ = 0;
    std::atomic<bool> stops_{ false };
    std::atomic<int> n_connections_{ 0 };
    std::thread acceptor_;
    std::vector<std::thread> threads_; /* of the acceptor, until it has ended */
};
