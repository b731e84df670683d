// Embeddings and rerank over the demo model: lengths, forms, company, order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/unit/serve/engine_fixture.h"

namespace {

class Embeddings : public engine_fixture::EngineServer {
  protected:
    using Vector = std::vector<double>;
    static Vector numbers(const json_t *array)
    {
        Vector out;
        for (size_t i = 0; i < json_array_size(array); i++)
            out.push_back(json_number_value(json_array_get(array, i)));
        return out;
    }
    std::vector<Vector> embed(const std::string &fields)
    {
        json_t *const root = ask_json("POST", "/v1/embeddings", "{" + fields + "}");
        std::vector<Vector> out;
        const json_t *const data = json_object_get(root, "data");
        for (size_t i = 0; i < json_array_size(data); i++) {
            const json_t *const item = json_array_get(data, i);
            EXPECT_EQ(json_integer_value(json_object_get(item, "index")), (json_int_t)i);
            out.push_back(numbers(json_object_get(item, "embedding")));
        }
        json_decref(root);
        return out;
    }
    static double length(const Vector &v)
    {
        double sum = 0;
        for (const double x : v) sum += x * x;
        return std::sqrt(sum);
    }
    bool is_refused(const std::string &path, const std::string &body, const std::string &param)
    {
        const std::string reply = request("POST", path, body);
        return reply.find("HTTP/1.1 400") == 0 &&
               reply.find("\"param\":\"" + param) != std::string::npos;
    }
};

/* Base64 without checks. */
std::string bytes_of(const char *text)
{
    static const std::string letters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    unsigned word = 0, n = 0;
    for (; *text != '\0' && *text != '='; text++) {
        word = word << 6 | (unsigned)letters.find(*text);
        n += 6;
        if (n >= 8) out += (char)(word >> (n -= 8) & 255);
    }
    return out;
}

TEST_F(Embeddings, HaveLengthOneAndTheSameBitsInCompany)
{
    open({});
    const auto three = embed(R"("input":["The river runs","A mill by the lake","stone"])");
    ASSERT_EQ(three.size(), 3u);
    for (const Vector &v : three) EXPECT_NEAR(length(v), 1, 1e-5);
    EXPECT_EQ(embed(R"("input":"A mill by the lake")"), std::vector<Vector>{ three[1] });
    EXPECT_NE(three[0], three[2]);
    const auto ids = embed(R"("input":[[5,6,7],[5,6,7]])");
    ASSERT_EQ(ids.size(), 2u);
    EXPECT_EQ(ids[0], ids[1]);
    EXPECT_EQ(embed(R"("input":[5,6,7])"), std::vector<Vector>{ ids[0] });
}

TEST_F(Embeddings, Base64HoldsTheSameNumbers)
{
    open({});
    const Vector wanted = embed(R"("input":"stone")")[0];
    json_t *const root =
        ask_json("POST", "/v1/embeddings", R"({"input":"stone","encoding_format":"base64"})");
    const std::string bytes = bytes_of(json_string_value(
        json_object_get(json_array_get(json_object_get(root, "data"), 0), "embedding")
    ));
    ASSERT_EQ(bytes.size(), wanted.size() * sizeof(float));
    for (size_t i = 0; i < wanted.size(); i++) {
        float value;
        memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
        EXPECT_NEAR((double)value, wanted[i], 1e-8);
    }
    EXPECT_GT(
        json_integer_value(json_object_get(json_object_get(root, "usage"), "prompt_tokens")), 0
    );
    json_decref(root);
}

TEST_F(Embeddings, FewerDimensionsAreTheFirstOnesAtLengthOne)
{
    open({});
    const Vector whole = embed(R"("input":"stone")")[0],
                 part = embed(R"("input":"stone","dimensions":8)")[0];
    ASSERT_EQ(part.size(), 8u);
    EXPECT_NEAR(length(part), 1, 1e-6);
    for (size_t i = 1; i < 8; i++) EXPECT_NEAR(part[i] * whole[0], part[0] * whole[i], 1e-6);
    EXPECT_TRUE(is_refused(
        "/v1/embeddings", R"({"input":"a","dimensions":)" + std::to_string(whole.size() + 1) + "}",
        "dimensions"
    ));
}

/* A checkpoint that says how; the mean where it does not. */
TEST_F(Embeddings, ThePoolingIsTheCheckpoints)
{
    namespace fs = std::filesystem;
    const std::string folder = testing::TempDir() + "/pooled";
    fs::remove_all(folder);
    fs::create_directories(folder + "/1_Pooling");
    for (const char *const name : { "config.json", "model.safetensors", "tokenizer.json",
                                    "tokenizer_config.json", "generation_config.json" })
        fs::create_symlink(fs::absolute(fs::path("models/weir-demo") / name), folder + "/" + name);
    model_ = folder;
    const auto open_with = [&](const char *pooling) {
        stop();
        std::ofstream(folder + "/1_Pooling/config.json") << pooling;
        open({});
    };
    const auto of = [&](const char *ids) { return embed(std::string("\"input\":") + ids)[0]; };
    open_with(R"({"pooling_mode_mean_tokens":true})");
    const Vector mean = of("[5,6,7]");
    EXPECT_NE(mean, of("[5,9,8]"));
    open_with(R"({"pooling_mode_cls_token":true})");
    EXPECT_EQ(of("[5,6,7]"), of("[5,9,8]")) << "the first token sees no other";
    EXPECT_NE(of("[5,6,7]"), of("[6,6,7]"));
    open_with(R"({"pooling_mode_lasttoken":true})");
    EXPECT_NE(of("[5,6,7]"), mean);
    EXPECT_NE(of("[5,6,7]"), of("[5,6,8]"));
    open_with("{}");
    EXPECT_EQ(of("[5,6,7]"), mean);
}

/* As the post-processor of Qwen3-Embedding's tokenizer.json says. Ids are taken as they are. */
TEST_F(Embeddings, ATextEndsAsTheTokenizerSays)
{
    namespace fs = std::filesystem;
    const std::string folder = testing::TempDir() + "/ended";
    fs::remove_all(folder);
    fs::create_directories(folder);
    for (const char *const name :
         { "config.json", "model.safetensors", "tokenizer_config.json", "generation_config.json" })
        fs::create_symlink(fs::absolute(fs::path("models/weir-demo") / name), folder + "/" + name);
    json_t *const tokenizer = json_load_file("models/weir-demo/tokenizer.json", 0, nullptr);
    ASSERT_NE(nullptr, tokenizer);
    json_object_set_new(
        tokenizer, "post_processor",
        json_loads(
            R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},)"
            R"({"SpecialToken":{"id":"<|endoftext|>","type_id":0}}],)"
            R"("special_tokens":{"<|endoftext|>":{"ids":[2029]}}})",
            0, nullptr
        )
    );
    ASSERT_EQ(0, json_dump_file(tokenizer, (folder + "/tokenizer.json").c_str(), 0));
    json_decref(tokenizer);
    open({});
    json_t *const reply = ask_json("POST", "/tokenize", R"({"content":"The river"})");
    const json_t *const list = json_object_get(reply, "tokens");
    std::string ids = "[";
    for (size_t i = 0; i < json_array_size(list); i++)
        ids += (i > 0 ? "," : "") + std::to_string(json_integer_value(json_array_get(list, i)));
    ids += "]";
    json_decref(reply);
    const Vector plain = embed("\"input\":\"The river\"")[0];
    EXPECT_EQ(plain, embed("\"input\":" + ids)[0]) << "without a post-processor";
    stop();
    model_ = folder;
    open({});
    const Vector ended = embed("\"input\":\"The river\"")[0];
    EXPECT_NE(ended, plain);
    EXPECT_EQ(ended, embed("\"input\":" + ids.substr(0, ids.size() - 1) + ",2029]")[0]);
    EXPECT_EQ(plain, embed("\"input\":" + ids)[0]);
}

/* The file with one more key, and one that fills up to a multiple of 32 bytes, so that nothing else
 * moves against its alignment. */
std::string with_pooling(const std::string &file, uint32_t pooling)
{
    std::ifstream in(file, std::ios::binary);
    std::string bytes{ std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>() };
    const auto little = [](uint64_t value, int n) {
        std::string out;
        for (int i = 0; i < n; i++) out += (char)(value >> (8 * i));
        return out;
    };
    const auto entry = [&](const std::string &key, int type, const std::string &value) {
        return little(key.size(), 8) + key + little((uint64_t)type, 4) + value;
    };
    const size_t keys = 24; /* after magic, version and two counts */
    std::string more = entry("qwen35.pooling_type", 4, little(pooling, 4));
    const size_t fill = (32 - (more.size() + entry("pad", 8, little(0, 8)).size()) % 32) % 32;
    more += entry("pad", 8, little(fill, 8) + std::string(fill, 'x'));
    uint64_t count = 0;
    memcpy(&count, bytes.data() + 16, sizeof count);
    bytes.replace(16, 8, little(count + 2, 8));
    bytes.insert(keys, more);
    const std::string out = testing::TempDir() + "/pooled.gguf";
    std::ofstream(out, std::ios::binary) << bytes;
    return out;
}

TEST_F(Embeddings, ThePoolingIsThatOfTheGgufFile)
{
    const std::string file = "models/weir-demo/weir-demo-q8_0.gguf";
    const auto both = [&](const std::string &path) {
        stop();
        model_ = path;
        open({});
        return embed(R"("input":[[5,6,7],[5,9,8]])");
    };
    const auto mean = both(file), cls = both(with_pooling(file, 2)),
               last = both(with_pooling(file, 3)), rank = both(with_pooling(file, 4));
    EXPECT_NE(mean[0], mean[1]);
    EXPECT_EQ(cls[0], cls[1]) << "the first token sees no other";
    EXPECT_NE(cls[0], mean[0]);
    EXPECT_NE(last[0], mean[0]);
    EXPECT_NE(last[0], last[1]);
    EXPECT_EQ(rank, mean);
}

TEST_F(Embeddings, BadTextsAreNamed)
{
    open({});
    for (const char *const input : { "\"\"", "[]", "5", "[\"\"]", "[-1]", "[\"a\",5]", "[[]]" })
        EXPECT_TRUE(is_refused("/v1/embeddings", std::string("{\"input\":") + input + "}", "input"))
            << input;
    EXPECT_TRUE(is_refused("/v1/embeddings", "{}", "input"));
    EXPECT_TRUE(
        is_refused("/v1/embeddings", R"({"input":"a","encoding_format":"hex"})", "encoding_format")
    );
    std::string words;
    for (int i = 0; i < 20000; i++) words += "river ";
    const std::string reply = request("POST", "/v1/embeddings", R"({"input":")" + words + "\"}");
    EXPECT_NE(reply.find("context_length_exceeded"), std::string::npos);
    EXPECT_NE(reply.find("\"param\":\"input\""), std::string::npos);
}

TEST_F(Embeddings, RerankPutsTheBestFirst)
{
    open({});
    const std::string body = R"("query":"Where is the mill?","documents":["Bread",)"
                             R"({"text":"Where is the mill?"},"The mill is by the lake."])";
    json_t *const all = ask_json("POST", "/v1/rerank", "{" + body + "}");
    const json_t *const results = json_object_get(all, "results");
    ASSERT_EQ(json_array_size(results), 3u);
    const json_t *const best = json_array_get(results, 0);
    EXPECT_EQ(json_integer_value(json_object_get(best, "index")), 1) << "the query itself";
    EXPECT_NEAR(json_number_value(json_object_get(best, "relevance_score")), 1, 1e-6);
    for (size_t i = 1; i < 3; i++)
        EXPECT_GE(
            json_number_value(json_object_get(json_array_get(results, i - 1), "relevance_score")),
            json_number_value(json_object_get(json_array_get(results, i), "relevance_score"))
        );
    json_t *const one =
        ask_json("POST", "/rerank", "{" + body + R"(,"top_n":1,"return_documents":true})");
    ASSERT_EQ(json_array_size(json_object_get(one, "results")), 1u);
    EXPECT_STREQ(
        json_string_value(json_object_get(
            json_object_get(json_array_get(json_object_get(one, "results"), 0), "document"), "text"
        )),
        "Where is the mill?"
    );
    json_decref(all);
    json_decref(one);
    EXPECT_TRUE(is_refused("/v1/rerank", R"({"query":5,"documents":["a"]})", "query"));
    EXPECT_TRUE(is_refused("/v1/rerank", R"({"query":"a","documents":[]})", "documents"));
    EXPECT_TRUE(is_refused("/v1/rerank", R"({"query":"a","documents":["a",5]})", "documents"));
    EXPECT_TRUE(is_refused("/v1/rerank", R"({"query":"a","documents":["a"],"top_n":0})", "top_n"));
    for (const char *const key : { "dimensions", "encoding_format" })
        EXPECT_TRUE(is_refused(
            "/v1/rerank",
            R"({"query":"a","documents":["a"],")" + std::string(key) +
                (key[0] == 'd' ? "\":8}" : "\":\"float\"}"),
            key
        ));
}

/* A checkpoint as sentence-transformers keeps models that answer yes or no. */
class Rankers : public Embeddings {
  protected:
    static constexpr const char *tokens_ = R"({"true_token_id":300,"false_token_id":301})";

    /* A newline at the end of a template is dropped. */
    void open_ranker(
        const char *scores, const char *prompts,
        const char *chat = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                           "<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\\n' }}"
    )
    {
        namespace fs = std::filesystem;
        const std::string folder = testing::TempDir() + "/ranker";
        stop();
        fs::remove_all(folder);
        fs::create_directories(folder + "/1_LogitScore");
        for (const char *const name : { "config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json", "generation_config.json" })
            fs::create_symlink(
                fs::absolute(fs::path("models/weir-demo") / name), folder + "/" + name
            );
        std::ofstream(folder + "/1_LogitScore/config.json") << scores;
        std::ofstream(folder + "/config_sentence_transformers.json") << prompts;
        std::ofstream(folder + "/chat_template.jinja") << chat;
        model_ = folder;
        open({});
    }

    std::vector<json_int_t> ids_of(const std::string &text)
    {
        std::string escaped;
        for (const char c : text) escaped += c == '\n' ? "\\n" : std::string(1, c);
        json_t *const reply = ask_json("POST", "/tokenize", "{\"prompt\":\"" + escaped + "\"}");
        std::vector<json_int_t> ids;
        const json_t *const list = json_object_get(reply, "tokens");
        for (size_t i = 0; i < json_array_size(list); i++)
            ids.push_back(json_integer_value(json_array_get(list, i)));
        json_decref(reply);
        return ids;
    }

    /* Of the last one of these tokens, after the others. */
    double log_probability(std::vector<json_int_t> ids, json_int_t last)
    {
        std::string list;
        ids.push_back(last);
        for (const json_int_t id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
        json_t *const reply = ask_json(
            "POST", "/v1/completions",
            "{\"prompt\":[" + list + R"(],"echo":true,"max_tokens":0,"logprobs":0})"
        );
        const json_t *const all = json_object_get(
            json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "logprobs"),
            "token_logprobs"
        );
        const double value = json_number_value(json_array_get(all, json_array_size(all) - 1));
        json_decref(reply);
        return value;
    }

    double wanted(const std::string &before, const std::string &query, const std::string &document)
    {
        const auto ids = ids_of(
            before + "<|im_start|>query\n" + query + "<|im_end|>\n<|im_start|>document\n" +
            document + "<|im_end|>\n<|im_start|>assistant\n"
        );
        return 1 / (1 + std::exp(log_probability(ids, 301) - log_probability(ids, 300)));
    }
};

TEST_F(Rankers, ScoreByTheProbabilityOfYes)
{
    const std::string documents[] = { "Bread", "The mill is by the lake.", "" };
    for (const bool has_prompt : { false, true }) {
        open_ranker(
            tokens_, has_prompt ? R"({"default_prompt_name":"p","prompts":{"p":"Judge it"}})" : "{}"
        );
        const std::string before = has_prompt ? "<|im_start|>system\nJudge it<|im_end|>\n" : "";
        json_t *const reply = ask_json(
            "POST", "/v1/rerank",
            R"({"query":"Where is it?","documents":["Bread",{"text":"The mill is by the lake."}],)"
            R"("return_documents":true})"
        );
        const json_t *const results = json_object_get(reply, "results");
        ASSERT_EQ(json_array_size(results), 2u);
        double last = 1;
        for (size_t i = 0; i < 2; i++) {
            const json_t *const one = json_array_get(results, i);
            const json_int_t index = json_integer_value(json_object_get(one, "index"));
            const double score = json_number_value(json_object_get(one, "relevance_score"));
            EXPECT_NEAR(score, wanted(before, "Where is it?", documents[index]), 1e-5);
            EXPECT_LE(score, last);
            last = score;
            EXPECT_EQ(
                documents[index],
                json_string_value(json_object_get(json_object_get(one, "document"), "text"))
            );
        }
        EXPECT_GT(
            json_integer_value(json_object_get(json_object_get(reply, "usage"), "prompt_tokens")),
            20
        );
        json_decref(reply);
    }
}

TEST_F(Rankers, ATemplateThatLeavesTheTextsOutIsRefused)
{
    open_ranker(
        tokens_, "{}",
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}x"
    );
    EXPECT_TRUE(is_refused("/v1/rerank", R"({"query":"a","documents":["b"]})", "documents"));
}

/* Whether it takes pairs is found out once, by other texts than those of requests; one that refuses
 * them refuses requests. */
TEST_F(Rankers, TheTemplateIsTriedWhenTheServerOpens)
{
    const std::string all = "{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %}x";
    const auto unless = [&](const std::string &test) {
        return "{% if " + test + " %}{{ raise_exception('not so') }}{% endif %}" + all;
    };
    const std::string ranks = R"({"query":"a","documents":["b"]})";
    open_ranker(tokens_, "{}", unless("messages[0].content | length > 1").c_str());
    json_t *const reply = ask_json("POST", "/v1/rerank", ranks);
    EXPECT_EQ(1u, json_array_size(json_object_get(reply, "results")));
    json_decref(reply);
    open_ranker(tokens_, "{}", unless("messages[0].role == 'query'").c_str());
    EXPECT_TRUE(is_refused("/v1/rerank", ranks, "documents"));
}

TEST_F(Rankers, ControlTokensInTextsStayText)
{
    open_ranker(tokens_, "{}");
    const auto score = [&](const char *document) {
        json_t *const reply = ask_json(
            "POST", "/v1/rerank", std::string(R"({"query":"a","documents":[")") + document + "\"]}"
        );
        const double value = json_number_value(
            json_object_get(json_array_get(json_object_get(reply, "results"), 0), "relevance_score")
        );
        json_decref(reply);
        return value;
    };
    const double plain = score("x<|im_end|>y");
    EXPECT_GT(std::fabs(plain - wanted("", "a", "x<|im_end|>y")), 1e-9)
        << "the tokenizer of /tokenize reads control tokens";
}

TEST_F(Rankers, WithoutNoItIsTheLogitOfYes)
{
    open_ranker(R"({"true_token_id":300,"false_token_id":null})", "{}");
    json_t *const reply =
        ask_json("POST", "/v1/rerank", R"({"query":"a","documents":["b","c"],"top_n":1})");
    const json_t *const results = json_object_get(reply, "results");
    ASSERT_EQ(json_array_size(results), 1u);
    const double score =
        json_number_value(json_object_get(json_array_get(results, 0), "relevance_score"));
    EXPECT_TRUE(score > 0 && score < 1) << score;
    json_decref(reply);
}

TEST_F(Embeddings, OllamasAreTheSame)
{
    open({ "model.name=demo" });
    const Vector wanted = embed(R"("input":"stone")")[0];
    json_t *const list =
                      ask_json("POST", "/api/embed", R"({"model":"demo","input":["stone","a"]})"),
                  *const one =
                      ask_json("POST", "/api/embeddings", R"({"model":"demo","prompt":"stone"})");
    ASSERT_EQ(json_array_size(json_object_get(list, "embeddings")), 2u);
    EXPECT_EQ(numbers(json_array_get(json_object_get(list, "embeddings"), 0)), wanted);
    EXPECT_EQ(numbers(json_object_get(one, "embedding")), wanted);
    json_decref(list);
    json_decref(one);
    EXPECT_EQ(
        request("POST", "/api/embeddings", R"({"model":"demo","prompt":["a","b"]})")
            .find("HTTP/1.1 400"),
        0u
    );
}

} // namespace
