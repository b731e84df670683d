// KV policies over the wire: what a request asks for, what its reply says, and what is refused.
#include <unistd.h>

#include <regex>

#include "tests/unit/serve/engine_fixture.h"

namespace {

class Policy : public engine_fixture::EngineServer {
  protected:
    static std::string chat(const std::string &more)
    {
        std::string content;
        for (int i = 0; i < 60; i++)
            content +=
                "Item " + std::to_string(i) + " costs " + std::to_string(i * 104729 % 997) + ". ";
        return R"({"messages":[{"role":"system","content":"Answer with one word, and never with )"
               R"(a number that is not there."},)"
               R"({"role":"user","content":")" +
               content + R"("}],"max_tokens":12,"temperature":0,"ignore_eos":true)" + more + "}";
    }
    std::string ask(const std::string &more) const
    {
        return request("POST", "/v1/chat/completions", chat(more));
    }
    static int64_t number(const std::string &reply, const std::string &field)
    {
        const size_t at = reply.find("\"" + field + "\":");
        return at != std::string::npos ? std::stoll(reply.substr(at + field.size() + 3)) : -1;
    }
};

TEST_F(Policy, AReplySaysWhatWent)
{
    open({ "memory.host=128MiB" });
    const std::string whole = ask("");
    EXPECT_EQ(whole.find("x-weir-kv-policy"), std::string::npos);
    EXPECT_EQ(whole.find("\"evicted\""), std::string::npos);
    for (const char *const name : { "sinks", "h2o", "snapkv", "keydiff" }) {
        const std::string reply =
            ask(std::string(",\"kv_policy\":\"") + name + "\",\"kv_budget\":128");
        EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
        EXPECT_NE(reply.find(std::string("x-weir-kv-policy: ") + name), std::string::npos) << reply;
        EXPECT_NE(reply.find("x-weir-kv-budget: 128"), std::string::npos) << reply;
        EXPECT_EQ(
            number(reply, "live") + number(reply, "evicted"), number(reply, "total_tokens") - 1
        ) << reply;
        EXPECT_LE(number(reply, "live"), 128 + 128) << reply;
        EXPECT_GT(number(reply, "evicted"), 100) << reply;
        EXPECT_EQ(number(reply, "budget"), 128) << reply;
    }
    const std::string metrics = request("GET", "/metrics", "");
    EXPECT_NE(metrics.find("kv_evicted_tokens_total"), std::string::npos);
    const std::string stream = ask(",\"kv_policy\":\"sinks\",\"kv_budget\":64,\"stream\":true,"
                                   "\"stream_options\":{\"include_usage\":true}");
    EXPECT_NE(stream.find("x-weir-kv-policy: sinks"), std::string::npos) << stream;
    EXPECT_GT(number(stream, "evicted"), 100) << stream;
}

TEST_F(Policy, MemoryTellsWhatRunningTextsLet)
{
    open({ "memory.host=128MiB" });
    const std::string body = chat(",\"kv_policy\":\"sinks\",\"kv_budget\":64,\"stream\":true");
    const int fd = http::post(
        weir_server_port(server_), "/v1/chat/completions",
        std::regex_replace(body, std::regex("\"max_tokens\":12"), "\"max_tokens\":1500")
    );
    std::string memory;
    (void)http::read_text(fd, "data:");
    for (int i = 0; i < 4000 && number(memory, "evicted") <= 100;
         i++) { // until its prompt was read
        memory = request("GET", "/v1/memory", "");
        (void)usleep(5000);
    }
    ASSERT_NE(
        memory.find("\"policy\":{\"name\":\"sinks\",\"budget\":64,\"live\":"), std::string::npos
    ) << memory;
    EXPECT_LE(number(memory, "live"), 128) << memory;
    EXPECT_GE(number(memory, "live"), 64) << memory;
    EXPECT_GT(number(memory, "evicted"), 100) << memory;
    EXPECT_GT(number(memory.substr(memory.find("\"evicted\"")), "bytes"), 1000) << memory;
    close(fd);
}

// The object of one sequence, and the sums of its heads.
struct MapOf {
    int64_t heads = 0, rows = 0, pages = 0, shared = 0, tokens = 0, bytes = 0;
};

TEST_F(Policy, TheMapHasTheRowsAndPagesOfEachHead)
{
    with_keys_ = true;
    open({ "memory.host=128MiB" });
    const auto begin = [&](const std::string &more) {
        const std::string body = std::regex_replace(
            chat(more + ",\"stream\":true"), std::regex("\"max_tokens\":12"), "\"max_tokens\":1500"
        );
        const int fd = http::begin(
            weir_server_port(server_), "POST", "/v1/chat/completions",
            "Authorization: Bearer sk-one\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n",
            body
        );
        (void)http::read_text(fd, "data:");
        return fd;
    };
    const int whole = begin(",\"n\":2"),
              pruned = begin(",\"kv_policy\":\"sinks\",\"kv_budget\":64");
    json_t *const memory = ask_json("GET", "/v1/memory", "");
    const int64_t page_bytes =
        json_integer_value(json_object_get(json_object_get(memory, "kv"), "page_bytes"));
    json_decref(memory);
    std::vector<MapOf> kept, all;
    for (int i = 0; i < 4000 && (kept.size() != 1 || all.size() != 2); i++) {
        (void)usleep(i > 0 ? 5000 : 0);
        kept.clear();
        all.clear();
        json_t *const map = ask_json("GET", "/v1/memory/map", "");
        size_t at, l;
        json_t *sequence, *layer;
        json_array_foreach(json_object_get(map, "sequences"), at, sequence)
        {
            MapOf sum;
            const auto add = [&](const char *key, int64_t *to) {
                size_t h;
                json_t *value;
                json_array_foreach(json_object_get(layer, key), h, value) *to +=
                    json_integer_value(value);
                return h;
            };
            json_array_foreach(json_object_get(sequence, "layers"), l, layer)
            {
                sum.heads += static_cast<int64_t>(add("rows", &sum.rows));
                (void)add("pages", &sum.pages);
                (void)add("shared", &sum.shared);
            }
            sum.tokens = json_integer_value(json_object_get(sequence, "tokens"));
            sum.bytes = json_integer_value(json_object_get(sequence, "kv_bytes"));
            const bool has_policy = json_object_get(sequence, "policy") != nullptr;
            if (has_policy && sum.rows < sum.heads * sum.tokens) kept.push_back(sum);
            if (!has_policy && sum.shared > 0) all.push_back(sum);
        }
        EXPECT_EQ(json_object_get(map, "cut"), json_false());
        json_decref(map);
    }
    close(whole);
    close(pruned);
    ASSERT_EQ(kept.size(), 1u);
    ASSERT_EQ(all.size(), 2u); // which have forked the pages of their prompt
    for (const MapOf &one : all) {
        EXPECT_EQ(one.rows, one.heads * one.tokens);
        EXPECT_EQ(one.pages, one.heads * ((one.tokens + 63) / 64));
        EXPECT_LT(one.shared, one.pages);
    }
    EXPECT_EQ(kept[0].heads, 4);
    EXPECT_LE(kept[0].rows, 128 * kept[0].heads);
    EXPECT_GE(kept[0].rows, 64 * kept[0].heads);
    EXPECT_LE(kept[0].pages, 2 * kept[0].heads);
    for (const MapOf &one : { kept[0], all[0], all[1] })
        EXPECT_EQ(one.bytes, one.pages * page_bytes); // as the account kv has them
    EXPECT_EQ(
        0u, http::request(weir_server_port(server_), "GET", "/v1/memory/map", "", "")
                .find("HTTP/1.1 401")
    );
}

TEST_F(Policy, TheServersPolicyIsForRequestsThatNameNone)
{
    open({ "memory.host=128MiB", "kv.policy.name=sinks", "kv.policy.budget=64",
           "kv.policy.options=every=8" });
    const std::string reply = ask(""), own = ask(",\"kv_policy\":\"knorm\",\"kv_budget\":96"),
                      full = ask(",\"kv_policy\":\"full\"");
    EXPECT_NE(reply.find("x-weir-kv-policy: sinks"), std::string::npos) << reply;
    EXPECT_LE(number(reply, "live"), 72);
    EXPECT_NE(own.find("x-weir-kv-policy: knorm"), std::string::npos) << own;
    EXPECT_EQ(full.find("x-weir-kv-policy"), std::string::npos) << full;
    const std::string fewer = ask(",\"kv_budget\":32");
    EXPECT_EQ(number(fewer, "budget"), 32) << fewer;
}

TEST_F(Policy, AProtectedPreambleStays)
{
    open({ "memory.host=128MiB" });
    const std::string policy =
        ",\"kv_policy\":\"random\",\"kv_budget\":16,\"kv_policy_options\":\"every=1\"";
    const std::string bare = ask(policy), kept = ask(policy + ",\"kv_protect\":true");
    EXPECT_LE(number(bare, "live"), 17) << bare;
    EXPECT_GT(number(kept, "live"), 17) << kept;
    EXPECT_LT(number(kept, "live"), 64) << kept;
}

TEST_F(Policy, WhatCannotBeIsRefusedWithTheRemedy)
{
    open({ "memory.host=128MiB", "server.kv_per_request=1MiB" });
    const struct {
        const char *more, *says;
    } cases[] = {
        { ",\"kv_policy\":\"snapvk\",\"kv_budget\":64", "snapkv" },
        { ",\"kv_policy\":7,\"kv_budget\":64", "kv_policy" },
        { ",\"kv_policy\":\"sinks\"", "needs kv_budget" },
        { ",\"kv_policy\":\"sinks\",\"kv_budget\":0", "kv_budget" },
        { ",\"kv_policy\":\"sinks\",\"kv_budget\":-5", "kv_budget" },
        { ",\"kv_policy\":\"sinks\",\"kv_budget\":1e300", "kv_budget" },
        { ",\"kv_policy\":\"sinks\",\"kv_budget\":3", "leaves nothing to evict" },
        { ",\"kv_budget\":64", "set kv_policy" },
        { ",\"kv_budget\":64", "\"param\":\"kv_budget\"" },
        { ",\"kv_policy\":\"sinks\",\"kv_budget\":64,\"kv_policy_options\":\"sinsk=2\"", "sinks" },
        { ",\"kv_policy\":\"sinks\",\"kv_budget\":64,\"kv_policy_options\":\"sinks=-2\"", "sinks" },
        { ",\"kv_policy_options\":\"sinks=2\"", "needs kv_policy" },
        { ",\"kv_policy\":\"triattention\",\"kv_budget\":256", "statistics" },
        { ",\"kv_policy\":\"triattention\",\"kv_budget\":256,\"kv_policy_options\":\"calibration=/"
          "etc/passwd\"",
          "the server's" },
        { ",\"kv_policy\":\"sinks\",\"kv_budget\":2040",
          "\"param\":\"kv_budget\",\"code\":\"kv_budget_exceeded\"" },
        { ",\"kv_protect\":1", "kv_protect" },
    };
    for (const auto &c : cases) {
        const std::string reply = ask(c.more);
        EXPECT_EQ(0u, reply.find("HTTP/1.1 400")) << c.more << "\n" << reply;
        EXPECT_NE(reply.find(c.says), std::string::npos) << c.more << "\n" << reply;
    }
    EXPECT_EQ(0u, ask("").find("HTTP/1.1 200"));
}

} // namespace
