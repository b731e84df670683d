// Memory of fixed size over the wire: replies, headers, /v1/memory and /metrics tell which rows are
// gone.
#include <unistd.h>

#include <random>

#include "tests/unit/model/coda.h"
#include "tests/unit/serve/engine_fixture.h"

namespace {

constexpr int WINDOW = 24, EXACT = 6, SUMMARY = 5;

class Banks : public engine_fixture::EngineServer {
  protected:
    // A small Llama of random weights that speaks the demo model's tokens, two of its four layers
    // with banks.
    void open_coda(std::vector<const char *> settings = {})
    {
        constexpr int64_t V = 2048, D = 64, F = 96;
        std::mt19937 random(5);
        const auto matrix = [&](int64_t rows, int64_t cols) {
            support::Array out = { { rows, cols },
                                   std::vector<float>(static_cast<size_t>(rows * cols)) };
            for (float &x : out.values) x = (static_cast<float>(random()) * 0x1p-31f - 1) * 0.2f;
            return out;
        };
        const support::Array ones = { { D }, std::vector<float>(D, 1.0f) };
        support::Arrays all = { { "model.embed_tokens.weight", matrix(V, D) },
                                { "model.norm.weight", ones } };
        for (int i = 0; i < 4; i++) {
            const std::string at = "model.layers." + std::to_string(i) + ".";
            all[at + "input_layernorm.weight"] = all[at + "post_attention_layernorm.weight"] = ones;
            all[at + "self_attn.q_proj.weight"] = matrix(D, D);
            all[at + "self_attn.k_proj.weight"] = all[at + "self_attn.v_proj.weight"] =
                matrix(D / 2, D);
            all[at + "self_attn.o_proj.weight"] = matrix(D, D);
            all[at + "mlp.gate_proj.weight"] = all[at + "mlp.up_proj.weight"] = matrix(F, D);
            all[at + "mlp.down_proj.weight"] = matrix(D, F);
        }
        support::write_safetensors(folder_ / "model.safetensors", all);
        for (const char *const name :
             { "tokenizer.json", "tokenizer_config.json", "generation_config.json" })
            support::write_file(
                folder_ / name, support::read_file(std::string("models/weir-demo/") + name)
            );
        support::write_file(
            folder_ / "config.json",
            R"({"model_type":"acme","hidden_size":64,"num_hidden_layers":4,)"
            R"("num_attention_heads":4,"num_key_value_heads":2,)"
            R"("intermediate_size":96,"rms_norm_eps":1e-5,"max_position_embeddings":4096,)"
            R"("rope_theta":10000,)"
            R"("vocab_size":2048,"tie_word_embeddings":true,"hidden_act":"silu"})"
        );
        std::filesystem::create_directories(folder_ / "archs");
        support::write_file(
            folder_ / "archs/acme.toml",
            support::coda_arch(
                "acme", "\"coda\", \"attn\"",
                support::coda_block("window = 24\nlandmarks_exact = 6\nlandmarks_summary = 5\n"
                                    "block_rows = 32\nstart = \"noise\"\n")
            )
        );
        path_ = "model.path=" + folder_.path();
        archs_ = "model.arch_dir=" + (folder_ / "archs");
        settings.insert(
            settings.end(),
            { path_.c_str(), archs_.c_str(), "memory.host=256MiB", "model.context=2048" }
        );
        open(settings);
    }
    static std::string body(int max_tokens, const std::string &more = "")
    {
        std::string content;
        for (int i = 0; i < 60; i++)
            content +=
                "Item " + std::to_string(i) + " costs " + std::to_string(i * 104729 % 997) + ". ";
        return R"({"messages":[{"role":"user","content":")" + content + R"("}],"max_tokens":)" +
               std::to_string(max_tokens) + R"(,"temperature":0,"ignore_eos":true)" + more + "}";
    }
    static int64_t at(const json_t *object, const std::vector<const char *> &path)
    {
        for (const char *const key : path) object = json_object_get(object, key);
        EXPECT_TRUE(json_is_integer(object)) << path.back();
        return json_integer_value(object);
    }
    static void expect_whole(const json_t *banks, int64_t n_rows)
    {
        EXPECT_EQ(at(banks, { "layers" }), 2);
        EXPECT_EQ(at(banks, { "ring", "slots" }), 2 * WINDOW);
        EXPECT_EQ(at(banks, { "ring", "used" }), 2 * WINDOW);
        EXPECT_EQ(at(banks, { "exact", "slots" }), 2 * EXACT);
        EXPECT_EQ(at(banks, { "exact", "open" }), 2 * EXACT);
        EXPECT_EQ(at(banks, { "summary", "slots" }), 2 * SUMMARY);
        EXPECT_GT(at(banks, { "exact", "used" }), 0);
        EXPECT_GT(at(banks, { "summary", "used" }), 0);
        EXPECT_EQ(at(banks, { "live" }) + at(banks, { "evicted" }), n_rows);
        EXPECT_LE(at(banks, { "live" }), WINDOW + EXACT);
        EXPECT_EQ(at(banks, { "counts", "evictions" }), 2 * (n_rows - WINDOW));
        EXPECT_GE(at(banks, { "counts", "exact_inserts" }), at(banks, { "exact", "used" }));
        EXPECT_GE(at(banks, { "counts", "summary_founded" }), at(banks, { "summary", "used" }));
    }
    support::Folder folder_;
    std::string path_, archs_;
};

TEST_F(Banks, AReplySaysWhatWent)
{
    open_coda();
    const std::string reply = request("POST", "/v1/chat/completions", body(12));
    EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
    EXPECT_NE(reply.find("x-weir-kv-banks: 30"), std::string::npos) << reply;
    EXPECT_EQ(reply.find("x-weir-kv-policy"), std::string::npos) << reply;
    json_t *const root = ask_json("POST", "/v1/chat/completions", body(12));
    const json_t *const usage = json_object_get(root, "usage"), *const kv =
                                                                    json_object_get(usage, "kv");
    const int64_t n = at(usage, { "total_tokens" }) - 1;
    EXPECT_GT(n, 200);
    EXPECT_EQ(at(kv, { "live" }) + at(kv, { "evicted" }), n);
    EXPECT_EQ(at(kv, { "evicted" }), at(kv, { "banks", "evicted" }));
    EXPECT_EQ(json_object_get(kv, "policy"), nullptr);
    expect_whole(json_object_get(kv, "banks"), n);
    json_decref(root);
    const std::string stream = request(
        "POST", "/v1/chat/completions",
        body(12, R"(,"stream":true,"stream_options":{"include_usage":true})")
    );
    EXPECT_NE(stream.find("x-weir-kv-banks: 30"), std::string::npos) << stream;
    EXPECT_NE(stream.find("\"banks\":{\"layers\":2,"), std::string::npos) << stream;
}

TEST_F(Banks, APolicyOnTheOtherLayersHasNumbersOfItsOwn)
{
    open_coda();
    json_t *const root = ask_json(
        "POST", "/v1/chat/completions", body(12, R"(,"kv_policy":"sinks","kv_budget":128)")
    );
    const json_t *const usage = json_object_get(root, "usage"), *const kv =
                                                                    json_object_get(usage, "kv");
    const int64_t n = at(usage, { "total_tokens" }) - 1;
    EXPECT_EQ(at(kv, { "live" }) + at(kv, { "evicted" }), n);
    EXPECT_GE(at(kv, { "live" }), 128);
    EXPECT_EQ(at(kv, { "budget" }), 128);
    expect_whole(json_object_get(kv, "banks"), n);
    json_decref(root);
}

TEST_F(Banks, MetricsCountTextsThatEnded)
{
    open_coda();
    const auto counter = [&](const std::string &name) {
        const std::string text = request("GET", "/metrics", "");
        const size_t at = text.find("\nweir:banks_" + name + "_total{");
        EXPECT_NE(at, std::string::npos) << name;
        return at != std::string::npos ? std::stoll(text.substr(text.find("} ", at) + 2)) : -1;
    };
    for (const char *const name :
         { "evictions", "gated_out", "exact_hits", "exact_inserts", "exact_overwrites",
           "summary_updates", "summary_founded", "exact_frustrated", "summary_frustrated",
           "exact_opened", "summary_opened" })
        EXPECT_EQ(counter(name), 0) << name;
    json_t *const root = ask_json("POST", "/v1/chat/completions", body(12));
    const json_t *const counts = json_object_get(
        json_object_get(json_object_get(json_object_get(root, "usage"), "kv"), "banks"), "counts"
    );
    for (const char *const name : { "evictions", "gated_out", "exact_hits", "exact_inserts",
                                    "summary_updates", "summary_founded" })
        EXPECT_EQ(counter(name), at(counts, { name })) << name;
    EXPECT_GT(counter("evictions"), 300);
    json_decref(root);
    json_t *const memory = ask_json("GET", "/v1/memory", "");
    EXPECT_EQ(at(memory, { "evicted_tokens" }), 0);
    json_decref(memory);
}

TEST_F(Banks, MemoryTellsOfRunningTexts)
{
    open_coda();
    const int fd = http::post(
        weir_server_port(server_), "/v1/chat/completions", body(1500, ",\"stream\":true")
    );
    json_t *memory = nullptr, *sequence = nullptr;
    (void)http::read_text(fd, "data:");
    for (int i = 0; i < 2000; i++) { // until its prompt was read
        memory = ask_json("GET", "/v1/memory", "");
        sequence = json_array_get(json_object_get(memory, "sequences"), 0);
        if (sequence != nullptr && at(sequence, { "tokens" }) > 200) break;
        json_decref(memory);
        memory = sequence = nullptr;
        (void)usleep(5000);
    }
    ASSERT_NE(sequence, nullptr);
    expect_whole(json_object_get(sequence, "banks"), at(sequence, { "tokens" }));
    json_decref(memory);
    close(fd);
}

} // namespace
