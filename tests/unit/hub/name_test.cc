// Names of models and of files, the list of files and headers: what is taken, and what is not.
#include "engine/hub/name.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/hub/http.h"
#include "engine/hub/listing.h"
#include "engine/hub/select.h"

namespace {

std::string quant_of(const std::string &file)
{
    char out[WEIR_HUB_QUANT + 1];
    weir_hub_file_quant(out, file.c_str());
    return out;
}

bool is_safe(const std::string &file) { return weir_hub_file_is_safe(file.data(), file.size()); }

struct Listing {
    weir_hub_listing own = {};
    weir_error error = {};
    ~Listing() { weir_hub_listing_free(&own); }
    weir_status add(const std::string &json)
    {
        return weir_hub_listing_add(&own, json.data(), json.size(), &error);
    }
    /* A repository of GGUF and other files of one byte. */
    void fill(const std::vector<std::string> &names)
    {
        for (const std::string &name : names)
            ASSERT_EQ(add(R"([{"path":")" + name + R"(","size":1}])"), WEIR_OK) << error.text;
        weir_hub_listing_sort(&own);
    }
    /* The files that are chosen, with blanks between; or the message. */
    std::string choose(const std::string &quant, const char *file = nullptr)
    {
        weir_hub_listing out;
        std::string text;
        if (weir_hub_select(&out, &kind, &own, quant.c_str(), file, "o/n", &error) != WEIR_OK)
            return error.text;
        for (size_t i = 0; i < out.n; i++)
            text += (i > 0 ? " " : "") + std::string(out.files[i].name);
        weir_hub_listing_free(&out);
        return text;
    }
    weir_hub_kind kind = WEIR_HUB_SINGLE;
};

} // namespace

TEST(HubName, IsOwnerNameAndQuantisation)
{
    weir_hub_name name;
    ASSERT_TRUE(weir_hub_name_parse(&name, "Qwen/Qwen3-0.6B-GGUF:Q8_0"));
    EXPECT_STREQ(name.owner, "Qwen");
    EXPECT_STREQ(name.name, "Qwen3-0.6B-GGUF");
    EXPECT_STREQ(name.quant, "Q8_0");
    ASSERT_TRUE(weir_hub_name_parse(&name, "a/b"));
    EXPECT_STREQ(name.quant, "");
    for (const char *bad : { "", "a", "/b", "a/", "a/b/c", "a/b:", "../b", "a/..", "a/b..c", "-a/b",
                             "a/b:c:d", "a b/c", "a/b\n", "a/b?x", "https://h/a", "a/\xc3\xa9" })
        EXPECT_FALSE(weir_hub_name_parse(&name, bad)) << bad;
    const std::string word(WEIR_HUB_WORD, 'w');
    EXPECT_TRUE(weir_hub_name_parse(&name, (word + "/" + word).c_str()));
    EXPECT_FALSE(weir_hub_name_parse(&name, (word + "w/b").c_str()));
    EXPECT_TRUE(weir_hub_revision_is_good("refs/pr/1"));
    for (const char *bad : { "", "/", "a/", "a//b", "..", "a b", "a?b" })
        EXPECT_FALSE(weir_hub_revision_is_good(bad)) << bad;
}

TEST(HubName, FilesStayInTheirFolder)
{
    for (const char *good : { "a", "a/b.gguf", "a b/\xc3\xa9.json", "A-00001-of-00002.gguf" })
        EXPECT_TRUE(is_safe(good)) << good;
    for (const char *bad :
         { "", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", ".git", "a/.b", "a\\b", "a\nb",
           "a\x7f", "\xff", "a.part", "a.PART", "..\\a", "a/b/c/d/e/f/g/h/i" })
        EXPECT_FALSE(is_safe(bad)) << bad;
    EXPECT_FALSE(is_safe("a\xc2\x9b[0m")) << "controls a terminal";
    EXPECT_TRUE(is_safe("a\xc2\xa0"));
    EXPECT_FALSE(is_safe(std::string("a\0b", 3)));
    EXPECT_FALSE(is_safe(std::string(201, 'a')));
    EXPECT_FALSE(is_safe(std::string(600, 'a')));
}

TEST(HubName, QuantisationsAreWords)
{
    EXPECT_EQ(quant_of("Qwen3-0.6B-Q4_K_M.gguf"), "Q4_K_M");
    EXPECT_EQ(quant_of("tinyllama-1.1b-chat-v1.0.q8_0.gguf"), "Q8_0");
    EXPECT_EQ(quant_of("BF16/m-00001-of-00002.gguf"), "BF16");
    EXPECT_EQ(quant_of("gpt-oss-20b-mxfp4_moe.gguf"), "MXFP4_MOE");
    EXPECT_EQ(quant_of("m-UD-IQ2_XXS.gguf"), "IQ2_XXS");
    EXPECT_EQ(quant_of("m-TQ1_0.gguf"), "TQ1_0");
    EXPECT_EQ(quant_of("llama_q4_0.gguf"), "Q4_0");
    for (const char *none : { "Qwen3.gguf", "q.gguf", "model.safetensors", "xQ4_0.gguf", "f160" })
        EXPECT_EQ(quant_of(none), "") << none;
    EXPECT_TRUE(weir_hub_file_has_quant("m-Q4_K_M.gguf", "q4_k_m"));
    EXPECT_FALSE(weir_hub_file_has_quant("m-Q4_K_M.gguf", "Q4_K"));
    EXPECT_FALSE(weir_hub_file_has_quant("m-BF16.gguf", "F16"));
    EXPECT_FALSE(weir_hub_file_has_quant("m-Q4_K_M.gguf", ""));
    EXPECT_TRUE(weir_hub_file_has_quant("m-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"));
}

TEST(HubListing, IsChecked)
{
    Listing good;
    ASSERT_EQ(
        good.add(
            R"([{"type":"directory","path":"a","size":0},{"type":"file","path":"b","size":5},)"
            R"({"path":"../x","size":1},{"path":".gitattributes","size":1},)"
            R"({"path":"a","size":1,"lfs":{"oid":"sha256:)" +
            std::string(64, 'b') + R"(","size":70}}])"
        ),
        WEIR_OK
    ) << good.error.text;
    weir_hub_listing_sort(&good.own);
    ASSERT_EQ(good.own.n, 2u);
    EXPECT_STREQ(good.own.files[0].name, "a");
    EXPECT_EQ(good.own.files[0].bytes, 70);
    EXPECT_TRUE(good.own.files[0].has_sum);
    EXPECT_FALSE(good.own.files[1].has_sum);
    for (const char *bad :
         { "", "{}", "[", "[1]", R"([{"path":"a"}])", R"([{"path":"a","size":-1}])",
           R"([{"path":"a","size":1e3}])", R"([{"path":1,"size":1}])",
           R"([{"path":"a","size":99999999999999999}])",
           R"([{"path":"a","size":1,"lfs":{"oid":"12","size":1}}])",
           R"([{"path":"a","size":1,"lfs":{"size":1}}])",
           R"([{"path":"a","size":1,"lfs":true}])" }) {
        Listing one;
        EXPECT_EQ(one.add(bad), WEIR_EFORMAT) << bad;
        EXPECT_NE(one.error.text[0], '\0') << bad;
    }
}

TEST(HubListing, NamesThatRepeatCountOnce)
{
    Listing one;
    one.fill({ "b", "a", "b", "a", "c" });
    EXPECT_EQ(one.own.n, 3u);
}

TEST(HubListing, ChoosesAsLlamaCppDoes)
{
    Listing some;
    some.fill({ "m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-Q4_K_M.gguf", "README.md",
                "m-UD-Q8_0.gguf", "imatrix-Q4_K_M.gguf" });
    EXPECT_EQ(some.choose(""), "m-Q4_K_M.gguf");
    EXPECT_EQ(some.choose("q8_0"), "m-Q8_0.gguf");
    EXPECT_EQ(some.choose("UD-Q8_0"), "m-UD-Q8_0.gguf");
    EXPECT_EQ(some.choose("M-q2_k.gguf"), "m-Q2_K.gguf");
    EXPECT_EQ(
        some.choose("Q4_K"),
        "o/n: no GGUF file with \"Q4_K\" in this repository; it has Q2_K, Q4_K_M, Q8_0"
    );
    EXPECT_EQ(some.choose("", "README.md"), "README.md");
    EXPECT_EQ(some.kind, WEIR_HUB_SINGLE);
    EXPECT_EQ(some.choose("", "mmproj-Q4_K_M.gguf"), "mmproj-Q4_K_M.gguf");
    EXPECT_EQ(some.kind, WEIR_HUB_SINGLE);
    EXPECT_EQ(some.choose("", "no"), "o/n: no file \"no\" in this repository");
    Listing others;
    others.fill({ "b-Q5_0.gguf", "a-Q8_0.gguf", "c-Q6_K.gguf" });
    EXPECT_EQ(others.choose(""), "a-Q8_0.gguf");
    Listing first;
    first.fill({ "b-Q5_0.gguf", "a-Q6_K.gguf", "model.safetensors" });
    EXPECT_EQ(first.choose(""), "a-Q6_K.gguf");
    EXPECT_EQ(first.kind, WEIR_HUB_GGUF);
}

TEST(HubListing, ChoosesWholeSets)
{
    Listing sets;
    sets.fill({ "Q8_0/m-00002-of-00003.gguf", "Q8_0/m-00001-of-00003.gguf",
                "Q8_0/m-00003-of-00003.gguf", "BF16/m-00001-of-00002.gguf", "Q8_0/m.gguf2" });
    EXPECT_EQ(
        sets.choose("Q8_0"),
        "Q8_0/m-00001-of-00003.gguf Q8_0/m-00002-of-00003.gguf Q8_0/m-00003-of-00003.gguf"
    );
    EXPECT_EQ(sets.choose("", "Q8_0/m-00002-of-00003.gguf"), sets.choose("Q8_0"));
    EXPECT_EQ(
        sets.choose("BF16"),
        "BF16/m-00001-of-00002.gguf: the repository has 1 of the 2 files of this set"
    );
}

TEST(HubListing, ChoosesCheckpoints)
{
    Listing shards;
    shards.fill({ "config.json", "model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                  "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "README.md",
                  "consolidated.safetensors", "adapter.safetensors", "x/model.safetensors",
                  "pytorch_model.bin", "vocab.json", "merges.txt" });
    EXPECT_EQ(
        shards.choose(""), "chat_template.jinja config.json merges.txt "
                           "model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
                           "model.safetensors.index.json tokenizer.json tokenizer_config.json "
                           "vocab.json"
    );
    EXPECT_EQ(shards.kind, WEIR_HUB_CHECKPOINT);
    EXPECT_NE(shards.choose("Q8_0").find("no GGUF file"), std::string::npos);
    Listing nothing;
    nothing.fill({ "README.md", "config.json" });
    EXPECT_NE(nothing.choose("").find("neither GGUF nor safetensors"), std::string::npos);
}

TEST(HubHeaders, LinksLeadToTheNextPage)
{
    char query[WEIR_HUB_QUERY];
    ASSERT_TRUE(weir_hub_next_query(query, "<https://h/api?a=1&cursor=x%3D>; rel=\"next\""));
    EXPECT_STREQ(query, "a=1&cursor=x%3D");
    ASSERT_TRUE(weir_hub_next_query(query, "<https://h/1?p=1>; rel=\"prev\", <?p=3>; rel=next"));
    EXPECT_STREQ(query, "p=3");
    const std::string long_query = "<h?" + std::string(WEIR_HUB_QUERY, 'a') + ">; rel=\"next\"";
    for (const std::string &bad :
         { std::string(), std::string("<h?a=1>"), std::string("<h>; rel=\"next\""),
           std::string("<h?a=1>; rel=\"prev\""), std::string("<h?a=1; rel=\"next\""),
           std::string("<h?a b>; rel=\"next\""), std::string("<h?a#b>; rel=\"next\""),
           std::string("<h?a=1>; rel=\"nextx\""), long_query })
        EXPECT_FALSE(weir_hub_next_query(query, bad.c_str())) << bad;
}

TEST(HubHeaders, RangesAndHeads)
{
    int64_t first, total;
    ASSERT_TRUE(weir_hub_content_range(&first, &total, "bytes 5-9/10"));
    EXPECT_EQ(first, 5);
    EXPECT_EQ(total, 10);
    ASSERT_TRUE(weir_hub_content_range(&first, &total, "bytes 5-9/*"));
    EXPECT_EQ(total, -1);
    for (const char *bad :
         { "", "bytes", "bytes 5-9", "bytes 9-5/10", "bytes 5-10/10", "bytes -1/2", "bytes 1-2/3x",
           "bytes 99999999999999999999-1/2", "items 1-2/3" })
        EXPECT_FALSE(weir_hub_content_range(&first, &total, bad)) << bad;
    weir_http_head head = {};
    const auto read = [&](const std::string &line) {
        weir_http_read_header(&head, line.data(), line.size());
    };
    read("HTTP/1.1 302 Found\r\n");
    read("X-Repo-Commit: " + std::string(40, 'c') + "\r\n");
    read("Content-Length: 12\r\n");
    EXPECT_EQ(head.status, 302);
    EXPECT_EQ(head.length, 12);
    read("HTTP/2 200 \r\n");
    read("x-error-message: a\x1b[0m\r\n");
    read("Retry-After: 7\r\n");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.length, -1);
    EXPECT_EQ(head.retry_after_s, 7);
    EXPECT_STREQ(head.message, "a?[0m");
    EXPECT_EQ(std::string(head.commit), std::string(40, 'c'));
    for (const char *line : { "HTTP/1.1", "HTTP/1.1 2", "HTTP/1.1 xyz", "HTTP/1.1 20" }) {
        read(line);
        EXPECT_EQ(head.status, 0) << line;
    }
    read("Content-Length: 99999999999999999999999");
    EXPECT_EQ(head.length, -1);
}

TEST(HubHeaders, TokensBelongToAnOrigin)
{
    EXPECT_TRUE(weir_http_same_origin("https://h.co/a", "https://H.co/b?c"));
    EXPECT_TRUE(weir_http_same_origin("https://h.co:443/a", "https://h.co"));
    for (const char *other :
         { "http://h.co/", "https://h.co.evil/", "https://h.co:444/", "https://h.co@evil/",
           "https://h.co\\@evil/", "https://evil/?https://h.co", "h.co", "https://", "" })
        EXPECT_FALSE(weir_http_same_origin("https://h.co/a", other)) << other;
    EXPECT_TRUE(weir_http_endpoint_is_good("https://h.co/mirror"));
    for (const char *bad : { "", "h.co", "ftp://h", "https://", "https://u@h", "https://h?x",
                             "https://h\n", "https://h b", "https://h\"" })
        EXPECT_FALSE(weir_http_endpoint_is_good(bad)) << bad;
}
