// A hub on 127.0.0.1: the commit, the list in pages, files with Range and redirects; and what can
// go wrong with each.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/sha256.h"
#include "tests/unit/load/fake_server.h"

namespace hub {

inline std::string bytes_of(size_t n, unsigned seed = 1)
{
    std::string text(n, ' ');
    for (char &c : text) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    return text;
}

inline std::string sum_of(const std::string &text)
{
    char out[WEIR_SHA256_HEX + 1];
    const weir_sha256 sum = weir_sha256_of(text.data(), text.size());
    weir_sha256_text(out, &sum);
    return out;
}

/* Headers are lines with "\r\n". The length that is announced may differ from that of the body;
 * `sent` bytes of it are sent, then the connection is closed. */
struct Reply {
    int status = 200;
    std::string headers, body;
    int64_t announced = -1, sent = -1;
};

class FakeHub {
  public:
    /* May replace a reply. `path` is that of the request line, with its query. */
    using Hook = std::function<void(const std::string &path, const std::string &head, Reply *)>;

    FakeHub()
        : server_([this](int fd, const std::string &head, const std::string &) {
              return answer(fd, head);
          })
    {
    }
    std::string url() const { return server_.url(); }

    /* Settings, before requests are made. */
    std::map<std::string, std::string> files, sums; /* sums: in place of the right ones */
    std::vector<std::string> small; /* files without a sum */
    std::string commit = std::string(40, 'a'), redirect_to, extra_entries;
    size_t page = 1000;
    bool has_parts = true;
    Hook hook;

    std::vector<std::string> requests() const /* the heads so far */
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        return requests_;
    }
    /* How many requests have this in their head. */
    size_t count(const std::string &part) const
    {
        size_t n = 0;
        for (const std::string &head : requests()) n += head.find(part) != std::string::npos;
        return n;
    }
    void forget()
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        requests_.clear();
    }

  private:
    static std::string after(const std::string &text, const std::string &mark)
    {
        const size_t at = text.find(mark);
        if (at == std::string::npos) return "";
        const size_t begin = at + mark.size();
        return text.substr(begin, text.find_first_of(" \r", begin) - begin);
    }
    static std::string decoded(std::string path)
    {
        for (size_t at; (at = path.find('%')) != std::string::npos;)
            path.replace(
                at, 3, 1, static_cast<char>(std::stoi(path.substr(at + 1, 2), nullptr, 16))
            );
        return path;
    }
    std::string entry(const std::string &name, const std::string &body) const
    {
        const auto sum = sums.find(name);
        std::string text = R"({"type":"file","oid":"e69de29","size":)" +
                           std::to_string(body.size()) + R"(,"path":")" + name + "\"";
        if (std::find(small.begin(), small.end(), name) == small.end())
            text += R"(,"lfs":{"oid":")" + (sum != sums.end() ? sum->second : sum_of(body)) +
                    R"(","size":)" + std::to_string(body.size()) + R"(,"pointerSize":130})";
        return text + "}";
    }
    Reply list(const std::string &path) const
    {
        Reply reply;
        const std::string cursor = after(path, "cursor=");
        size_t at = 0, end = cursor.empty() ? page : std::stoul(cursor) + page;
        const size_t begin = end - page;
        for (const auto &[name, body] : files) {
            if (at >= begin && at < end) reply.body += (at > begin ? "," : "") + entry(name, body);
            at++;
        }
        if (begin == 0) reply.body += extra_entries;
        reply.body = "[" + reply.body + "]";
        if (end < files.size())
            reply.headers = "Link: <http://elsewhere.invalid/api/x?recursive=true&cursor=" +
                            std::to_string(end) + ">; rel=\"next\"\r\n";
        return reply;
    }
    Reply bytes(const std::string &name, const std::string &head) const
    {
        Reply reply;
        const auto file = files.find(name);
        if (file == files.end()) return { 404, "X-Error-Code: EntryNotFound\r\n", "", -1, -1 };
        reply.headers = "X-Repo-Commit: " + commit + "\r\n";
        if (!redirect_to.empty()) {
            reply.status = 302;
            reply.headers += "Location: " + redirect_to + "/o/n/resolve/x/" + name + "\r\n";
            return reply;
        }
        reply.body = file->second;
        const std::string range = after(head, "Range: bytes=");
        if (range.empty() || !has_parts) return reply;
        const size_t from = std::stoul(range);
        if (from >= reply.body.size()) return { 416, "", "", -1, -1 };
        reply.status = 206;
        reply.headers += "Content-Range: bytes " + std::to_string(from) + "-" +
                         std::to_string(reply.body.size() - 1) + "/" +
                         std::to_string(reply.body.size()) + "\r\n";
        reply.body.erase(0, from);
        return reply;
    }
    bool answer(int fd, const std::string &head)
    {
        const std::string path = after(head, "GET ");
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            requests_.push_back(head);
        }
        const std::string resolve = after(path, "/resolve/");
        Reply reply{ 404, "", "no", -1, -1 };
        if (path.find("/revision/") != std::string::npos)
            reply = { 200, "", R"({"sha":")" + commit + "\"}", -1, -1 };
        else if (path.find("/tree/") != std::string::npos)
            reply = list(path);
        else if (!resolve.empty())
            reply = bytes(decoded(resolve.substr(resolve.find('/') + 1)), head);
        if (hook) hook(path, head, &reply);
        const int64_t announced =
            reply.announced >= 0 ? reply.announced : static_cast<int64_t>(reply.body.size());
        const bool is_cut = reply.sent >= 0;
        const std::string body =
            is_cut ? reply.body.substr(0, static_cast<size_t>(reply.sent)) : reply.body;
        return FakeServer::send_text(
                   fd, "HTTP/1.1 " + std::to_string(reply.status) + " X\r\nContent-Length: " +
                           std::to_string(announced) + "\r\n" + reply.headers + "\r\n" + body
               ) &&
               !is_cut;
    }

    mutable std::mutex mutex_;
    std::vector<std::string> requests_;
    FakeServer server_; /* last: it ends first */
};

} // namespace hub
