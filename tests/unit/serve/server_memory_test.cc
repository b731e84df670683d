// The whole server in this process: what it takes, what it refuses for memory, and what it says of
// both.
#include "engine/base/heap.h"
#include "tests/unit/serve/server_fixture.h"

namespace {

TEST_F(Server, ABodyThatDoesNotFitIsRefusedBeforeItIsRead)
{
    open_within(1 << 20);
    const int fd = connect_to();
    const std::string head =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: 4000000\r\n\r\n";
    ASSERT_EQ(static_cast<ssize_t>(head.size()), send(fd, head.data(), head.size(), MSG_NOSIGNAL));
    const std::string reply = read_text(fd); /* no byte of the body was sent */
    EXPECT_EQ(0u, reply.find("HTTP/1.1 503")) << reply;
    EXPECT_NE(std::string::npos, reply.find("Retry-After: 5"));
    EXPECT_NE(std::string::npos, reply.find("4000000 bytes"));
    close(fd);
    EXPECT_EQ(0u, ask("/v1/chat/completions", short_plain).find("HTTP/1.1 200"))
        << "others are served";
}

TEST_F(Server, ABodyInMemoryIsOnTheLedger)
{
    open_within(64 << 20);
    const int fd = connect_to();
    const std::string head =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: 4000000\r\n\r\n";
    ASSERT_EQ(static_cast<ssize_t>(head.size()), send(fd, head.data(), head.size(), MSG_NOSIGNAL));
    for (int i = 0; i < 1000 && http_bytes() < 4000000; i++) (void)poll(nullptr, 0, 10);
    EXPECT_GE(http_bytes(), 4000000u);
    close(fd);
    for (int i = 0; i < 1000 && http_bytes() > 0; i++) (void)poll(nullptr, 0, 10);
    EXPECT_EQ(0u, http_bytes());
}

/* 1 MB of "[],[],..." is over 50 MB of values. */
TEST_F(Server, JsonThatGrowsPastTheBudgetIsRefused)
{
    open_within(16 << 20);
    std::string lists = "[]";
    while (lists.size() < 600000) lists += ",[]";
    const std::string reply = ask("/v1/chat/completions", "{\"messages\":[" + lists + "]}");
    EXPECT_EQ(0u, reply.find("HTTP/1.1 503")) << reply.substr(0, 300);
    EXPECT_NE(std::string::npos, reply.find("memory.host"));
    EXPECT_LE(weir_ledger_peak(ledger_, WEIR_TIER_HOST), 16u << 20);
    EXPECT_EQ(0u, ask("/v1/chat/completions", short_plain).find("HTTP/1.1 200"))
        << "others are served";
}

/* The service has a copy of the tokens; that of the tests has none. */
TEST_F(Server, ARunningRequestHoldsNeitherItsJsonNorItsTokens)
{
    enum { TOKENS = 70000, OTHERS = 240 << 10 }; /* OTHERS: less than the tokens */
    const size_t caps[WEIR_TIER_COUNT] = { 64 << 20 };
    weir_server_options options = default_options();
    ASSERT_EQ(WEIR_OK, weir_ledger_open(&ledger_, caps));
    options.ledger = ledger_;
    open({ 2, 1 << 17, 20000, 0 }, options);
    std::string ids = "7";
    for (int i = 1; i < TOKENS; i++) ids += ",7";
    const int fd =
        post("/v1/completions", "{\"prompt\":[" + ids + "],\"stream\":true,\"max_tokens\":1000}");
    const std::string begun = read_text(fd, "data: ");
    ASSERT_EQ(0u, begun.find("HTTP/1.1 200")) << begun;
    EXPECT_LE(http_bytes(), OTHERS);
    close(fd);
}

/* Commas and brackets that only appear when the escapes of a string are read. */
TEST_F(Server, ArgumentsThatGrowPastTheBudgetAreRefusedHoweverTheyAreEscaped)
{
    open_within(16 << 20);
    const auto arguments = [](const char *item, const char *comma, int n) {
        std::string list = R"({\"a\":[)";
        for (int i = 0; i < n; i++) list += (i > 0 ? comma : "") + std::string(item);
        return R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[)"
               R"({"function":{"name":"f","arguments":")" +
               list + R"(]}"}}]},{"role":"user","content":"b"}]})";
    };
    for (const char *const item : { "{}", "\\u007b\\u007d", "\\u005b\\u005d" })
        for (const char *const path : { "/tokenize", "/v1/chat/completions" }) {
            const std::string reply = ask(path, arguments(item, "\\u002c", 200000));
            EXPECT_EQ(0u, reply.find("HTTP/1.1 503")) << path << item << reply.substr(0, 300);
            EXPECT_NE(std::string::npos, reply.find("memory.host")) << reply.substr(0, 300);
            EXPECT_LE(weir_ledger_peak(ledger_, WEIR_TIER_HOST), 16u << 20);
            EXPECT_EQ(0u, ask(path, arguments(item, "\\u002c", 100)).find("HTTP/1.1 200"));
        }
    for (int i = 0; i < 1000 && http_bytes() > 0; i++) (void)poll(nullptr, 0, 10);
    EXPECT_EQ(0u, http_bytes());
    EXPECT_EQ(0u, weir_heap_mapped(nullptr)) << "and nothing stays in the process";
}

/* The words of the failure itself need memory: what the request holds already, or those that need
 * none. */
TEST_F(Server, AStreamThatFailsWithoutMemoryStillSaysSo)
{
    const size_t caps[WEIR_TIER_COUNT] = { 8 << 20 };
    weir_server_options o = default_options();
    ASSERT_EQ(WEIR_OK, weir_ledger_open(&ledger_, caps));
    o.ledger = ledger_;
    o.ping_ms = 100;
    open({ 1, 4096, 900000, 1 }, o);
    std::string ids =
        "7"; /* two steps of the service: the second makes a token 0.9 s later, and the job fails */
    for (int i = 0; i < 800; i++) ids += ",7";
    const int fd = post("/v1/completions", "{\"prompt\":[" + ids + "],\"stream\":true}");
    const std::string begun = read_text(fd, ": ping\n\n");
    ASSERT_EQ(0u, begun.find("HTTP/1.1 200")) << begun;
    ASSERT_EQ(std::string::npos, begun.find("data:")) << begun;
    const size_t rest = caps[WEIR_TIER_HOST] - weir_ledger_total(ledger_, WEIR_TIER_HOST);
    ASSERT_EQ(
        WEIR_OK, weir_ledger_reserve(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER, rest, nullptr)
    );
    const std::string last = read_text(fd);
    EXPECT_NE(std::string::npos, last.find("data: {\"error\":{\"message\":\"")) << last;
    EXPECT_EQ(std::string::npos, last.find("[DONE]")) << last;
    weir_ledger_return(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER, rest);
    close(fd);
}

/* Busy connections keep their places; one more is told to come back, and health is answered. */
TEST_F(Server, AConnectionThatDoesNotFitIsToldSo)
{
    open_within(200 << 10, 2000);
    std::vector<int> busy;
    std::string reply;
    for (int i = 0; i < 8 && reply.find("HTTP/1.1 503") != 0; i++) {
        busy.push_back(post("/v1/chat/completions", long_stream));
        reply = read_text(busy.back(), "\r\n\r\n");
    }
    EXPECT_GE(busy.size(), 2u) << "the first has a place";
    EXPECT_EQ(0u, reply.find("HTTP/1.1 503")) << reply;
    EXPECT_NE(std::string::npos, reply.find("Retry-After"));
    const std::string health = get("/health");
    EXPECT_EQ(0u, health.find("HTTP/1.1 200")) << health;
    for (const int fd : busy) close(fd);
}

/* On a connection that has its place already, when everything else is taken. */
TEST_F(Server, WithoutMemoryForARequestHealthIsStillAnswered)
{
    open_within(1 << 20);
    const std::string ask_health = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                      ask_models = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (const auto &[request, status] :
         { std::pair{ ask_health, "HTTP/1.1 200" }, std::pair{ ask_models, "HTTP/1.1 503" } }) {
        const int fd = connect_to();
        ASSERT_EQ(
            static_cast<ssize_t>(ask_health.size()),
            send(fd, ask_health.data(), ask_health.size(), MSG_NOSIGNAL)
        );
        ASSERT_EQ(0u, read_text(fd, "}").find("HTTP/1.1 200"));
        size_t taken = 0;
        for (int i = 0; i < 20; i++, (void)poll(nullptr, 0, 10)) { /* the first request's, too */
            const size_t rest = (1 << 20) - weir_ledger_total(ledger_, WEIR_TIER_HOST);
            ASSERT_EQ(
                WEIR_OK,
                weir_ledger_reserve(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER, rest, nullptr)
            );
            taken += rest;
        }
        ASSERT_EQ(
            static_cast<ssize_t>(request.size()),
            send(fd, request.data(), request.size(), MSG_NOSIGNAL)
        );
        const std::string reply = read_text(fd);
        EXPECT_EQ(0u, reply.find(status)) << reply;
        EXPECT_NE(std::string::npos, reply.find("Connection: close")) << reply;
        weir_ledger_return(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER, taken);
        close(fd);
    }
}

/* What was answered holds no memory, however fast the next requests come. */
TEST_F(Server, RequestsInARowHoldTheMemoryOfOne)
{
    open_within(400 << 10);
    const std::string one = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    std::string many;
    for (int i = 0; i < 50; i++) many += one;
    const int fd = connect_to();
    for (int i = 0; i < 40; i++) {
        ASSERT_EQ(
            static_cast<ssize_t>(many.size()), send(fd, many.data(), many.size(), MSG_NOSIGNAL)
        );
        std::string replies;
        while (count(replies, "HTTP/1.1 200") < 50) {
            const std::string more = read_text(fd, "}");
            ASSERT_FALSE(more.empty()) << "round " << i;
            replies += more;
        }
    }
    close(fd);
}

/* Clients that are strict about an exact format see nothing new. */
TEST_F(Server, ALossyFormatIsSaidInUsageAndHeader)
{
    open({ 2, 4096, 0, 0 });
    const char *const stream = R"({"prompt":"a","max_tokens":2,"ignore_eos":true,"stream":true})";
    const char *const stream_usage =
        R"({"prompt":"a","max_tokens":2,"ignore_eos":true,"stream":true,)"
        R"("stream_options":{"include_usage":true}})";
    for (const char *const body :
         { R"({"prompt":"a","max_tokens":2,"ignore_eos":true})", stream, stream_usage }) {
        const std::string reply = ask("/v1/completions", body);
        EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
        EXPECT_EQ(std::string::npos, reply.find("\"kv\"")) << reply;
        EXPECT_EQ(std::string::npos, reply.find("kv-format")) << reply;
    }
    weir_engine_facts *const facts = weir_fake_service_facts(service_);
    facts->kv_is_lossy = true;
    snprintf(facts->kv_format, sizeof facts->kv_format, "q8_0/turbo4");
    facts->kv_bytes_per_token = 10;
    const std::string header = "x-weir-kv-format: q8_0/turbo4\r\n",
                      kv = R"("kv":{"format":"q8_0/turbo4","bytes":30,"rows":3})";
    const std::string plain =
        ask("/v1/completions", R"({"prompt":"a","max_tokens":2,"ignore_eos":true})");
    EXPECT_NE(std::string::npos, plain.find(header)) << plain;
    EXPECT_NE(std::string::npos, plain.find(kv)) << plain;
    const std::string silent = ask("/v1/completions", stream);
    EXPECT_NE(std::string::npos, silent.find(header)) << silent;
    EXPECT_EQ(std::string::npos, silent.find("\"kv\"")) << "no usage was asked for";
    const std::string asked = ask("/v1/completions", stream_usage);
    EXPECT_NE(std::string::npos, asked.find(header)) << asked;
    EXPECT_EQ(1, count(asked, kv)) << asked;
    const std::string refused = ask("/v1/completions", R"({"prompt":7})");
    EXPECT_EQ(0u, refused.find("HTTP/1.1 400"));
    EXPECT_EQ(std::string::npos, refused.find("kv-format")) << "nothing was answered";
    EXPECT_EQ(std::string::npos, get("/v1/models").find("kv-format"));
    EXPECT_NE(std::string::npos, get("/props").find("\"lossy\":true"));
}

TEST_F(Server, APromptThatNoBudgetHoldsIsRefused)
{
    open({ 2, 4096, 0, 0 });
    weir_engine_facts *const facts = weir_fake_service_facts(service_);
    facts->kv_bytes_per_token = 10;
    facts->kv_per_request = 1280;
    std::string ids = "1";
    for (int i = 0; i < 128; i++) ids += ",2";
    const std::string body = "{\"prompt\":[" + ids + "],\"ignore_eos\":true";
    const std::string refused = ask("/v1/completions", body + "}");
    EXPECT_EQ(0u, refused.find("HTTP/1.1 400")) << refused;
    for (const char *const part :
         { "\"type\":\"invalid_request_error\"", "\"param\":\"prompt\"",
           "\"code\":\"kv_budget_exceeded\"", "\"n_prompt_tokens\":129", "\"n_ctx\":128",
           "takes 1920 bytes", "server.kv_per_request allows 1280",
           "exceeds the available context size of 128 tokens" })
        EXPECT_NE(std::string::npos, refused.find(part)) << part << " in " << refused;
    const std::string cut =
        ask("/v1/completions", body + ",\"max_tokens\":28,\"on_overflow\":\"truncate_middle\"}");
    EXPECT_EQ(0u, cut.find("HTTP/1.1 200")) << cut;
    EXPECT_NE(std::string::npos, cut.find("\"prompt_tokens\":100,\"completion_tokens\":28,"))
        << cut;
    const std::string fits =
        ask("/v1/completions", R"({"prompt":[1,2,3],"ignore_eos":true,"max_tokens":3000})");
    EXPECT_NE(std::string::npos, fits.find("\"completion_tokens\":125,"))
        << "as many as the budget holds";
    EXPECT_NE(std::string::npos, fits.find("\"finish_reason\":\"length\""));
    const std::string two =
        ask("/v1/completions", R"({"prompt":[1,2,3],"ignore_eos":true,"max_tokens":3000,"n":2})");
    EXPECT_NE(std::string::npos, two.find("\"completion_tokens\":122,")) << "each has the half";
    EXPECT_NE(std::string::npos, get("/props").find("\"kv_per_request\":1280,\"kv_per_key\":0"));
}

TEST_F(Server, PlanHasTheFormatsThatHeadsCanHave)
{
    open_within(32 << 20, 0);
    const std::string reply = get("/v1/memory/plan");
    EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
    for (const char *const part : { "\"object\":\"memory.plan\"", "\"block_tokens\":64",
                                    "\"format\":\"f16\",\"lossy\":false,\"bytes_per_block\":",
                                    "\"policies\":[\"full\",\"sinks\"," })
        EXPECT_NE(std::string::npos, reply.find(part)) << part << " in " << reply;
}

TEST_F(Server, PlanRoundsPagesThatCanGoToDisk)
{
    open_within(32 << 20, 0);
    weir_engine_facts *const facts = weir_fake_service_facts(service_);
    facts->n_kv_layers = facts->n_kv_heads = 1;
    facts->key_dim = facts->value_dim = 64;
    const auto is_rounded = [&] {
        const std::string reply = get("/v1/memory/plan"), key = "\"bytes_per_block\":";
        bool all = reply.find(key) != std::string::npos;
        for (size_t at = reply.find(key); at != std::string::npos; at = reply.find(key, at + 1))
            all = all && std::stoll(reply.substr(at + key.size())) % 4096 == 0;
        return all;
    };
    EXPECT_FALSE(is_rounded());
    facts->kv_page_alignment = 4096;
    EXPECT_TRUE(is_rounded());
}

TEST_F(Server, MemoryAsJson)
{
    open_within(32 << 20, 1000); /* slow: the answer is still being made when it is asked about */
    const std::string reply = get("/v1/memory");
    EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
    for (const char *const part :
         { "\"object\":\"memory\"",
           "\"tiers\":{\"host\":{\"cap\":33554432,\"used\":",
           "\"peak\":",
           "\"available\":",
           "\"accounts\":{\"weights\":0",
           "\"page_tables\":0",
           "\"device\":{\"cap\":0",
           "\"disk\":{",
           "\"kv\":{\"page_bytes\":64,\"pages\":1000,\"free_pages\":",
           "\"bytes_per_token\":",
           "\"used_bytes\":",
           "\"free_tokens\":",
           "\"kept\":{\"tokens\":0,\"bytes\":0,",
           "\"budgets\":{\"kv_per_request\":0,\"kv_per_key\":0,\"kv_claimed\":0}",
           "\"format\":",
           "\"sink_pages\":0,\"free_sink_pages\":0,\"bytes_per_sink_token\":0",
           "\"wide_sinks\":0",
           "\"recurrent_bytes_per_sequence\":",
           "\"sequences\":[]",
           "\"evicted_tokens\":0" })
        EXPECT_NE(std::string::npos, reply.find(part)) << part << " in " << reply;
    const int fd = post("/v1/chat/completions", long_stream);
    /* May be sent before the first step, which is what the list follows */
    const std::string begin = read_text(fd, "data:");
    bool is_listed = false;
    for (int i = 0; i < 1000 && !is_listed; i++)
        is_listed = get("/v1/memory").find("\"sequences\":[{\"id\":") != std::string::npos;
    EXPECT_TRUE(is_listed);
    close(fd);
}

} // namespace
