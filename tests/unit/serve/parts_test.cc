// Metrics text, API keys and hosts.
#include <gtest/gtest.h>

#include <cstring>
#include <regex>
#include <sstream>
#include <string>

#include "engine/serve/access.h"
#include "engine/serve/errors.h"
#include "engine/serve/metrics.h"

namespace {

/* window: of layers that keep only the rows in it. */
std::string exposition(
    const weir_metrics &metrics, const char *model, bool vllm, int64_t window = 0
)
{
    weir_engine_facts facts = {};
    weir_service_stats stats = {};
    weir_buffer out = {};
    facts.kv_pages.n = 10;
    stats.kv_pages_total = 10;
    stats.kv_pages_used = 5;
    stats.running = 2;
    stats.step_ns[WEIR_STEP_SAMPLE] = 1500000;
    facts.kv_window = window;
    facts.n_window_blocks = 40;
    stats.window_blocks_cold = 7;
    stats.window_blocks_out = 9;
    weir_ledger_state memory = {};
    memory.cap[WEIR_TIER_HOST] = 1000;
    memory.total[WEIR_TIER_HOST] = memory.used[WEIR_TIER_HOST][WEIR_ACCOUNT_HTTP] = 300;
    EXPECT_EQ(WEIR_OK, weir_metrics_write(&out, &metrics, &stats, &facts, &memory, model, vllm));
    const std::string text(out.data, out.size);
    weir_buffer_free(&out);
    return text;
}

bool has_line(const std::string &text, const std::string &line)
{
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Metrics, EveryLineIsWellFormed)
{
    const std::regex comment("# (HELP [a-z0-9_:]+ .+|TYPE [a-z0-9_:]+ (counter|gauge|histogram))");
    const std::regex sample("[a-z0-9_:]+\\{([a-z_]+=\"([^\"\\\\]|\\\\.)*\",?)*\\} [-+0-9.e]+");
    weir_metrics metrics = {};
    std::istringstream lines(exposition(metrics, "a\"b\\c", true));
    for (std::string line; std::getline(lines, line);)
        EXPECT_TRUE(std::regex_match(line, line[0] == '#' ? comment : sample)) << line;
}

TEST(Metrics, CountersAndGauges)
{
    weir_metrics metrics = {};
    weir_metrics_add(&metrics.prompt_tokens, 12);
    weir_metrics_add(&metrics.cached_tokens, 8);
    weir_metrics_add(&metrics.success[WEIR_SUCCESS_LENGTH], 1);
    const std::string text = exposition(metrics, "m", false);
    EXPECT_TRUE(has_line(text, "# TYPE weir:prompt_tokens_total counter"));
    EXPECT_TRUE(has_line(text, "weir:prompt_tokens_total{model_name=\"m\"} 12"));
    EXPECT_TRUE(has_line(text, "weir:prefix_cache_hits_total{model_name=\"m\"} 8"));
    EXPECT_TRUE(has_line(text, "weir:kv_cache_usage_perc{model_name=\"m\"} 0.5"));
    EXPECT_TRUE(has_line(text, "weir:memory_cap_bytes{model_name=\"m\",tier=\"host\"} 1000"));
    EXPECT_TRUE(has_line(text, "weir:memory_used_bytes{model_name=\"m\",tier=\"host\"} 300"));
    EXPECT_TRUE(has_line(
        text, "weir:memory_account_bytes{model_name=\"m\",tier=\"host\",account=\"http\"} 300"
    ));
    EXPECT_TRUE(has_line(text, "weir:num_requests_running{model_name=\"m\"} 2"));
    EXPECT_TRUE(
        has_line(text, "weir:step_seconds_total{model_name=\"m\",part=\"sample\"} 0.001500000")
    );
    EXPECT_TRUE(
        has_line(text, "weir:request_success_total{model_name=\"m\",finished_reason=\"length\"} 1")
    );
    EXPECT_EQ(std::string::npos, text.find("vllm:"));
    EXPECT_TRUE(
        has_line(exposition(metrics, "m", true), "vllm:prompt_tokens_total{model_name=\"m\"} 12")
    );
}

TEST(Metrics, OfLayersWithAWindow)
{
    weir_metrics metrics = {};
    const std::string text = exposition(metrics, "m", false, 512);
    EXPECT_TRUE(has_line(text, "weir:window_blocks{model_name=\"m\"} 40"));
    EXPECT_TRUE(has_line(text, "weir:window_disk_blocks{model_name=\"m\"} 7"));
    EXPECT_TRUE(has_line(text, "weir:window_disk_out_blocks_total{model_name=\"m\"} 9"));
    EXPECT_EQ(exposition(metrics, "m", false).find("weir:window"), std::string::npos);
}

/* All layers have these, times the layer; layer 1 has no experts. */
const weir_expert_counts expert_counts = { 1, 2, 3, 4, 5, 6, 7 };
bool counts_of_layer(const weir_service *, int64_t layer, weir_expert_counts *out)
{
    *out = {};
    for (int64_t i = 0; i < layer; i++) weir_expert_counts_add(out, &expert_counts);
    return layer != 1;
}

TEST(Metrics, OfExpertsOfAllLayersAndOfEach)
{
    const weir_metrics metrics = {};
    const weir_engine_facts facts = {};
    const weir_ledger_state memory = {};
    weir_service_stats stats = {};
    weir_buffer out = {};
    stats.experts.n_entries = 9;
    stats.experts.all = expert_counts;
    EXPECT_EQ(WEIR_OK, weir_metrics_write(&out, &metrics, &stats, &facts, &memory, "m", false));
    EXPECT_EQ(WEIR_OK, weir_metrics_write_layers(&out, nullptr, counts_of_layer, 4, "m"));
    const std::string text(out.data, out.size);
    weir_buffer_free(&out);
    EXPECT_TRUE(has_line(text, "weir:experts_in_memory{model_name=\"m\"} 9"));
    const struct {
        const char *all, *layer, *type;
        int64_t count;
    } counts[] = {
        { "expert_hits_total", "hits_total", "counter", 1 },
        { "expert_misses_total", "misses_total", "counter", 2 },
        { "expert_prefetches_total", "prefetches_total", "counter", 3 },
        { "expert_prefetches_used_total", "prefetches_used_total", "counter", 4 },
        { "expert_prefetches_unused_total", "prefetches_unused_total", "counter", 5 },
        { "expert_read_bytes_total", "read_bytes_total", "counter", 6 },
        { "experts_pinned", "pinned", "gauge", 7 },
    };
    for (const auto &c : counts) {
        const std::string all = std::string("weir:") + c.all,
                          layer = std::string("weir:expert_layer_") + c.layer;
        EXPECT_TRUE(has_line(text, all + "{model_name=\"m\"} " + std::to_string(c.count)));
        EXPECT_TRUE(has_line(text, "# TYPE " + layer + " " + c.type));
        EXPECT_TRUE(has_line(text, "# HELP " + layer + " " + c.all + " of a layer."));
        EXPECT_TRUE(
            has_line(text, layer + "{model_name=\"m\",layer=\"3\"} " + std::to_string(3 * c.count))
        );
        EXPECT_EQ(text.find(layer + "{model_name=\"m\",layer=\"1\""), std::string::npos);
    }
}

TEST(Metrics, HistogramsAreCumulative)
{
    weir_metrics metrics = {};
    /* 1 ms: the bound itself belongs below */
    weir_metrics_observe(&metrics, WEIR_HISTOGRAM_FIRST_TOKEN, 1000000);
    weir_metrics_observe(&metrics, WEIR_HISTOGRAM_FIRST_TOKEN, 40000000);    /* 40 ms */
    /* Above all bounds */
    weir_metrics_observe(&metrics, WEIR_HISTOGRAM_FIRST_TOKEN, 1000000000000);
    weir_metrics_observe(&metrics, WEIR_HISTOGRAM_PROMPT_TOKENS, 100);
    const std::string text = exposition(metrics, "m", false);
    EXPECT_TRUE(
        has_line(text, "weir:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.001\"} 1")
    );
    EXPECT_TRUE(
        has_line(text, "weir:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.03\"} 1")
    );
    EXPECT_TRUE(
        has_line(text, "weir:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.05\"} 2")
    );
    EXPECT_TRUE(
        has_line(text, "weir:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"300\"} 2")
    );
    EXPECT_TRUE(
        has_line(text, "weir:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 3")
    );
    EXPECT_TRUE(has_line(text, "weir:time_to_first_token_seconds_count{model_name=\"m\"} 3"));
    EXPECT_TRUE(has_line(text, "weir:request_prompt_tokens_sum{model_name=\"m\"} 100"));
}

std::string hex(const weir_sha256 &digest)
{
    std::string text;
    char byte[3];
    for (const uint8_t b : digest.bytes) {
        (void)snprintf(byte, sizeof byte, "%02x", b);
        text += byte;
    }
    return text;
}

TEST(Errors, NameNoFolderOfTheServer)
{
    const struct {
        const char *text, *told;
    } cases[] = {
        { "/srv/data/talk.session: damaged: 0 bytes", "talk.session: damaged: 0 bytes" },
        { "cannot open '/srv/a b/x': gone", "cannot open 'x': gone" },
        { "/srv/a b/x: damaged: y/z", "x: damaged: y/z" },
        { "states in /srv/states/, and /x", "states in , and x" },
        { "3 of 4 bytes/token, a/b", "3 of 4 bytes/token, a/b" },
        { "memory.host=/a/b (/c)", "memory.host=b (c)" },
        { "/", "" },
    };
    for (const auto &c : cases) {
        const weir_api_case conflict = { WEIR_EFORMAT, 409, nullptr, nullptr };
        weir_api_error error = {};
        EXPECT_EQ(WEIR_EINVAL, weir_api_by_case(&error, &conflict, 1, WEIR_EFORMAT, c.text));
        EXPECT_STREQ(c.told, error.message);
        weir_api_from_status(&error, WEIR_EIO, c.text);
        if (c.told[0] != 0) EXPECT_STREQ(c.told, error.message);
    }
}

TEST(Access, Sha256OfTheStandard)
{
    EXPECT_EQ(
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        hex(weir_sha256_of("", 0))
    );
    EXPECT_EQ(
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        hex(weir_sha256_of("abc", 3))
    );
    const char *const two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    EXPECT_EQ(
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        hex(weir_sha256_of(two_blocks, 56))
    );
    const std::string million(1000000, 'a');
    EXPECT_EQ(
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        hex(weir_sha256_of(million.data(), million.size()))
    );
}

} // namespace
