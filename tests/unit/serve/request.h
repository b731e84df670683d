// Bodies of requests, and what the server reads in them.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "engine/serve/json_in.h"
#include "engine/serve/openai_request.h"

namespace request {

inline weir_request_limits limits()
{
    weir_request_limits l = {};
    l.model_name = "m";
    l.n_vocab = 100;
    l.n_slots = 4;
    l.window = 64;
    l.sampling.temperature = 1;
    l.sampling.top_p = 1;
    l.sampling.repetition_penalty = 1;
    return l;
}

struct Row {
    const char *fields; /* put after messages or prompt */
    int status; /* 200: accepted */
    const char *param;
};

inline weir_status read(
    weir_openai_request *out, bool chat, const std::string &body, weir_api_error *error
)
{
    const weir_request_limits l = limits();
    return weir_openai_request_read(out, chat, body.c_str(), body.size(), &l, error);
}

/* What a row accepts is a field of the API, or is meant to be unknown. */
inline bool has_unknown(const Row &row) { return strstr(row.fields, "some_future_key") != nullptr; }

inline void check(bool chat, const std::string &begin, const Row &row)
{
    const std::string body = begin + row.fields + "}";
    weir_openai_request request = {};
    weir_api_error error = {};
    const weir_status status = read(&request, chat, body, &error);
    EXPECT_EQ(row.status == 200 ? 0 : row.status, status == WEIR_OK ? 0 : error.status) << body;
    if (row.param != nullptr)
        EXPECT_EQ(
            row.param,
            std::string(error.param).substr(0, std::string(error.param).find_first_of("[."))
        ) << body;
    if (status != WEIR_OK) EXPECT_NE('\0', error.message[0]) << body;
    if (status == WEIR_OK) EXPECT_EQ(has_unknown(row), request.unknown.count > 0) << body;
    weir_openai_request_free(&request);
}

/* Parses a body, which the caller frees. */
inline json_t *parse(const std::string &text)
{
    json_t *root = nullptr;
    weir_api_error error = {};
    EXPECT_EQ(WEIR_OK, weir_json_read(&root, text.c_str(), text.size(), &error)) << text;
    return root;
}

inline void expect(const Row &row, weir_status status, const weir_api_error &error)
{
    EXPECT_EQ(row.status == 200 ? 0 : row.status, status == WEIR_OK ? 0 : error.status)
        << row.fields << error.message;
    if (row.param != nullptr) EXPECT_STREQ(row.param, error.param) << row.fields;
}

} // namespace request
