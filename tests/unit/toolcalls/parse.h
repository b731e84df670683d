// Runs the chat parser over a text in pieces.
#pragma once
#include <gtest/gtest.h>
#include <jansson.h>

#include <string>
#include <vector>

#include "engine/toolcalls/chat_parser.h"

namespace weir_test {

struct Call {
    std::string name, arguments, id;
    bool operator==(const Call &other) const
    {
        return name == other.name && arguments == other.arguments && id == other.id;
    }
};

struct Parsed {
    std::string content, reasoning;
    std::vector<Call> calls;
    std::vector<std::string> deltas; /* of content and reasoning */
    bool operator==(const Parsed &other) const
    {
        return content == other.content && reasoning == other.reasoning && calls == other.calls;
    }
};

inline void take(weir_buffer *buffer, std::string *text, std::vector<std::string> *deltas)
{
    if (buffer->size == 0) return;
    deltas->emplace_back(buffer->data, buffer->size);
    *text += deltas->back();
    weir_buffer_clear(buffer);
}

/* The text in pieces that end at `cuts`, ascending. */
inline Parsed parse_cut(
    const weir_chat_parser_options &options, const std::string &text,
    const std::vector<size_t> &cuts
)
{
    weir_chat_parser *parser = nullptr;
    weir_buffer content = {}, reasoning = {};
    Parsed result;
    EXPECT_EQ(WEIR_OK, weir_chat_parser_open(&parser, &options));
    size_t at = 0;
    std::vector<size_t> ends = cuts;
    ends.push_back(text.size());
    for (const size_t end : ends) {
        const std::string piece = text.substr(at, end - at); /* its own bytes, for ASan */
        EXPECT_EQ(
            WEIR_OK, weir_chat_parser_push(parser, &content, &reasoning, piece.data(), piece.size())
        );
        take(&reasoning, &result.reasoning, &result.deltas);
        take(&content, &result.content, &result.deltas);
        at = end;
    }
    EXPECT_EQ(WEIR_OK, weir_chat_parser_finish(parser, &content, &reasoning));
    take(&reasoning, &result.reasoning, &result.deltas);
    take(&content, &result.content, &result.deltas);
    size_t n;
    const weir_tool_call *const calls = weir_chat_parser_calls(parser, &n);
    for (size_t i = 0; i < n; i++)
        result.calls.push_back({ calls[i].name, calls[i].arguments,
                                 calls[i].id != nullptr ? calls[i].id : "" });
    weir_chat_parser_close(parser);
    weir_buffer_free(&content);
    weir_buffer_free(&reasoning);
    return result;
}

/* In pieces of n bytes. */
inline Parsed parse(const weir_chat_parser_options &options, const std::string &text, size_t n)
{
    std::vector<size_t> cuts;
    for (size_t i = n; i < text.size(); i += n) cuts.push_back(i);
    return parse_cut(options, text, cuts);
}

} // namespace weir_test
