// weir load as a user runs it, against a server of the test.
#include <cstdlib>

#include "tests/unit/cli/json.h"
#include "tests/unit/cli/program.h"
#include "tests/unit/load/fake_server.h"

namespace {

using program::Folder;
using program::Json;
using program::Outcome;

/* Answers all that the command asks; the n-th answer of a stream is a refusal if `refuses(n)`. */
FakeServer::Answer answers(std::function<bool(int)> refuses)
{
    auto n = std::make_shared<std::atomic<int>>(0);
    return [n, refuses](int fd, const std::string &head, const std::string &body) {
        if (head.rfind("GET /v1/models ", 0) == 0)
            return FakeServer::send_text(fd, reply::sized(200, R"({"data":[{"id":"fake"}]})"));
        if (body.find("\"stream\":false") != std::string::npos)
            return FakeServer::send_text(
                fd, reply::sized(
                        200, R"({"usage":{"prompt_tokens":)" +
                                 std::to_string(std::count(body.begin(), body.end(), ' ')) + "}}"
                    )
            );
        return FakeServer::send_text(
            fd, refuses((*n)++) ? reply::sized(429, R"({"error":{"message":"full"}})")
                                : FakeServer::answer_of(4)
        );
    };
}

Outcome load(const std::string &url, std::vector<std::string> more)
{
    std::vector<std::string> words = { "load", url };
    words.insert(words.end(), more.begin(), more.end());
    return program::run(words);
}

class LoadCommand : public Folder {};

TEST_F(LoadCommand, PrintsATableAndWritesJsonAndPlots)
{
    FakeServer server(answers([](int n) { return n == 3; }));
    const Outcome o = load(
        server.url(), { "-n", "10", "-c", "2", "--goodput", "ttft:60000", "--out", path("l.json"),
                        "--plot", path("l.svg"), "-p", "20-40" }
    );
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "10 requests sent, 9 answered, 1 failed");
    EXPECT_SAYS(o.out, "1 http_status 429: {\"error\":{\"message\":\"full\"}}");
    EXPECT_SAYS(o.out, "9 of 10 within the limits");
    std::ifstream json(path("l.json")), svg(path("l.svg"));
    const std::string text((std::istreambuf_iterator<char>(json)), {}),
        picture((std::istreambuf_iterator<char>(svg)), {});
    const Json got(text);
    EXPECT_EQ(got.number("requests_ok"), 9);
    EXPECT_STREQ(json_string_value(got.at("model")), "fake");
    EXPECT_EQ(json_array_size(got.at("requests")), 10u);
    EXPECT_SAYS(picture, "<svg ");
    EXPECT_SAYS(picture, "TTFT");
    const Outcome time = load(
        server.url(), { "-n", "5", "--rate", "1000", "--json", "--plot", path("t.svg"), "--plot-by",
                        "time", "--model", "other", "--endpoint", "completions" }
    );
    ASSERT_EQ(time.code, 0) << time.err;
    const Json object(time.out);
    EXPECT_EQ(object.number("requests_ok"), 5);
    EXPECT_STREQ(json_string_value(object.at("endpoint")), "/v1/completions");
    EXPECT_STREQ(json_string_value(object.at("model")), "other");
    EXPECT_STREQ(json_string_value(json_object_get(object.at("workload"), "loop")), "open");
}

TEST_F(LoadCommand, ALoadWithoutAnAnswerFails)
{
    FakeServer server(answers([](int) { return true; }));
    const Outcome o = load(server.url(), { "-n", "3" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.out, "0 answered, 3 failed");
    EXPECT_SAYS(o.err, "no request was answered");
}

TEST_F(LoadCommand, MistakesAreNamed)
{
    const std::string url = "http://127.0.0.1:1";
    const struct {
        std::vector<std::string> more;
        const char *says;
    } cases[] = {
        { { "--rate", "x" }, "--rate" },
        { { "--rate", "-1" }, "--rate" },
        { { "--duration", "nan" }, "--duration" },
        { { "--prompt", "0" }, "--prompt" },
        { { "--answer", "5-3" }, "--answer" },
        { { "--endpoint", "chats" }, "chat or completions" },
        { { "--goodput", "ttft" }, "--goodput" },
        { { "--plot-by", "pie" }, "cdf or time" },
        { { "--temperature", "3" }, "--temperature" },
        { { "--concurrency", "0" }, "--concurrency" },
        { { "--rate", "0.0001", "--duration", "1" }, "nothing arrives" },
        { { "--api-key", "a b" }, "--api-key" },
    };
    for (const auto &c : cases) {
        const Outcome o = load(url, c.more);
        EXPECT_EQ(o.code, 2) << c.says << o.err;
        EXPECT_SAYS(o.err, c.says);
    }
    EXPECT_EQ(load("https://127.0.0.1", {}).code, 2);
    const Outcome none = program::run({ "load" });
    EXPECT_EQ(none.code, 2);
    EXPECT_SAYS(none.err, "URL is missing; usage: load URL [options]");
    const Outcome gone = load(url, {});
    EXPECT_EQ(gone.code, 1);
    EXPECT_SAYS(gone.err, "no connection");
}

} // namespace
