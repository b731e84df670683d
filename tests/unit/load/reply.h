// Replies of an OpenAI server, as bytes.
#pragma once
#include <cstdio>
#include <string>

namespace reply {

inline std::string chunk(const std::string &data)
{
    char size[32];
    (void)snprintf(size, sizeof size, "%zx\r\n", data.size());
    return size + data + "\r\n";
}
inline std::string event(const std::string &json) { return "data: " + json + "\n\n"; }
inline std::string text_event(const std::string &text)
{
    return event(R"({"choices":[{"index":0,"delta":{"content":")" + text + R"("}}]})");
}
inline const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8"
                                "\r\nTransfer-Encoding: chunked\r\n\r\n",
                         role = event(R"({"choices":[{"delta":{"role":"assistant"}}]})"),
                         finish = event(R"({"choices":[{"delta":{},"finish_reason":"length"}]})"),
                         done = event("[DONE]"), last = "0\r\n\r\n";
inline std::string usage(int prompt, int answer, int cached)
{
    return event(
        R"({"choices":[],"usage":{"prompt_tokens":)" + std::to_string(prompt) +
        R"(,"completion_tokens":)" + std::to_string(answer) +
        R"(,"prompt_tokens_details":{"cached_tokens":)" + std::to_string(cached) + "}}}"
    );
}
inline std::string sized(int status, const std::string &body)
{
    return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: application/json\r\n" +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

} // namespace reply
