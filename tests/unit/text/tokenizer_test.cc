/* Encoding and decoding beyond the goldens: cost, ill-formed text, plain spans, both file formats,
 * what files next to it add. */
#include <cstring>
#include <fstream>
#include <set>

#include "engine/base/memory.h"
#include "engine/text/bpe.h"
#include "engine/text/pretokenizer.h"
#include "tests/unit/text/files.h"

namespace {

const std::vector<std::pair<std::string, std::string>> letters = {
    { "a", "a" }, { "aa", "aa" }, { "b", "c" }, { "a", "bc" }, { "Ġ", "a" }
};

Ids bytes_as_ids(const std::string &text)
{
    Ids ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
}

TEST(Tokenizer, MergesByRankLeftmostFirst)
{
    const auto t = open_json(test_folder(), make_json(letters).get());
    EXPECT_EQ(encode(t.get(), "aaa"), (Ids{ 256, 'a' }));
    EXPECT_EQ(encode(t.get(), "aaaaa"), (Ids{ 257, 'a' }));
    EXPECT_EQ(encode(t.get(), "abc"), (Ids{ 259 }));
    /* Aa has the lower rank, so a+bc never meets */
    EXPECT_EQ(encode(t.get(), "aabc"), (Ids{ 256, 258 }));
    EXPECT_EQ(encode(t.get(), "x a"), (Ids{ 'x', 260 }));
    EXPECT_EQ(encode(t.get(), ""), Ids{});
}

/* A straightforward merge loop, to compare the heap with. */
Ids merge_slowly(const std::string &piece, const std::vector<std::string> &by_rank)
{
    std::vector<std::string> parts;
    for (const char c : piece) parts.emplace_back(1, c);
    for (;;) {
        size_t best = SIZE_MAX, at = 0;
        for (size_t i = 0; i + 1 < parts.size(); i++)
            for (size_t r = 0; r < by_rank.size() && r < best; r++)
                if (parts[i] + "+" + parts[i + 1] == by_rank[r]) best = r, at = i;
        if (best == SIZE_MAX) break;
        parts[at] += parts[at + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    Ids lengths;
    for (const std::string &part : parts) lengths.push_back(static_cast<int32_t>(part.size()));
    return lengths;
}

TEST(Tokenizer, TheHeapMergesAsAPlainLoopDoes)
{
    std::vector<std::pair<std::string, std::string>> merges = {
        { "a", "b" }, { "b", "a" },   { "ab", "a" },    { "ba", "b" }, { "b", "b" },
        { "a", "a" }, { "aa", "aa" }, { "aba", "aba" }, { "bb", "a" }, { "a", "bb" }
    };
    uint64_t state = 88172645463325252;
    for (int round = 0; round < 40; round++) {
        for (size_t i = merges.size() - 1; i > 0; i--) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            std::swap(merges[i], merges[state % (i + 1)]);
        }
        std::vector<std::string> by_rank;
        for (const auto &[left, right] : merges) by_rank.push_back(left + "+" + right);
        const auto root = make_json(merges);
        for (const char *needed :
             { "ab", "ba", "aba", "bab", "bb", "aa", "aaaa", "abaaba", "bba", "abb" })
            ASSERT_NE(
                json_object_get(
                    json_object_get(json_object_get(root.get(), "model"), "vocab"), needed
                ),
                nullptr
            );
        const auto t = open_json(test_folder(), root.get());
        for (int n = 1; n < 40; n++) {
            std::string piece;
            for (int i = 0; i < n; i++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                piece += state >> 40 & 1 ? 'a' : 'b';
            }
            Ids lengths;
            for (const int32_t id : encode(t.get(), piece)) {
                size_t length;
                bool special;
                (void)weir_tokenizer_token_bytes(t.get(), id, &length, &special);
                lengths.push_back(static_cast<int32_t>(length));
            }
            ASSERT_EQ(lengths, merge_slowly(piece, by_rank)) << piece;
        }
    }
}

TEST(Tokenizer, AMegabyteWithoutASpaceTakesLinearlyManySteps)
{
    weir_pair_map merges = {};
    for (int32_t level = 0; level < 18; level++) { /* a+a, aa+aa, ... */
        const uint32_t id = level == 0 ? 'a' : 255 + static_cast<uint32_t>(level);
        weir_pair_entry *const entry = weir_pair_put(&merges, weir_pair_key(id, id));
        entry->number = static_cast<uint32_t>(level);
        entry->id = 256 + level;
    }
    int32_t byte_ids[256];
    for (int i = 0; i < 256; i++) byte_ids[i] = i;
    const std::string piece(1 << 20, 'a');
    weir_bpe_scratch scratch = {};
    weir_ids ids = {};
    ASSERT_EQ(
        weir_bpe_encode(&scratch, &ids, &merges, byte_ids, piece.data(), piece.size()), WEIR_OK
    );
    EXPECT_EQ(ids.count, 4u);
    EXPECT_LE(scratch.steps, 3 * piece.size());
    weir_ids_free(&ids);
    weir_bpe_scratch_free(&scratch);
    weir_pair_free(&merges);
}

TEST(Tokenizer, IllFormedTextIsReadAsReplacementCharacters)
{
    const auto t = open_json(test_folder(), make_json(letters, { "<x>" }).get());
    const std::string r = "\xEF\xBF\xBD";
    const std::pair<std::string, std::string> cases[] = {
        { "\xFF", r },
        { "a\xC3", "a" + r },
        { "\xE2\x82z", r + "z" },
        { "\xED\xA0\x80", r + r + r },
        { "\xC0\xAF", r + r },
        { "\xF0\x9F\x98", r },
        { "\xF4\x90\x80\x80", r + r + r + r },
        { "\x80<x>\x80", r + "<x>" + r },
        { "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80" },
    };
    for (const auto &[text, repaired] : cases) {
        EXPECT_EQ(encode(t.get(), text), encode(t.get(), repaired)) << testing::PrintToString(text);
        EXPECT_EQ(decode(t.get(), encode(t.get(), text)), repaired) << testing::PrintToString(text);
    }
}

TEST(Tokenizer, NulsAreText)
{
    const auto t = open_json(test_folder(), make_json(letters).get());
    const std::string text("a\0b\0\0c", 6);
    EXPECT_EQ(encode(t.get(), text), bytes_as_ids(text));
    EXPECT_EQ(decode(t.get(), encode(t.get(), text)), text);
}

TEST(Tokenizer, AddedTokensMatchLeftmostLongestOutsidePlainSpans)
{
    /* Ids 256 to 259 */
    const auto t = open_json(test_folder(), make_json({}, { "<x", "<x>", "<x>>", "xx" }).get());
    EXPECT_EQ(encode(t.get(), "<x>>"), (Ids{ 258 }));
    EXPECT_EQ(encode(t.get(), "<x<x>"), (Ids{ 256, 257 }));
    EXPECT_EQ(encode(t.get(), "<xx"), (Ids{ 256, 'x' }));
    EXPECT_EQ(encode(t.get(), "xxx"), (Ids{ 259, 'x' }));
    EXPECT_EQ(encode(t.get(), "<x>", false), (Ids{ '<', 'x', '>' }));
    EXPECT_EQ(encode(t.get(), "<x><x>", true, { { 0, 3 } }), (Ids{ '<', 'x', '>', 257 }));
    /* a shorter token that lies outside */
    EXPECT_EQ(encode(t.get(), "<x>>", true, { { 3, 4 } }), (Ids{ 257, '>' }));
    EXPECT_EQ(encode(t.get(), "<x>", true, { { 2, 3 } }), (Ids{ 256, '>' }));
    EXPECT_EQ(encode(t.get(), "<x>", true, { { 0, 1 } }), (Ids{ '<', 'x', '>' }));
    /* Between two texts of a user */
    EXPECT_EQ(encode(t.get(), "<x>", true, { { 1, 1 } }), (Ids{ '<', 'x', '>' }));
    EXPECT_EQ(encode(t.get(), "<x>", true, { { 3, 3 } }), (Ids{ 257 }));
    /* Spans move along when ill-formed bytes before and in them are replaced. */
    EXPECT_EQ(
        decode(t.get(), encode(t.get(), "\xFF<x>\xFF<x>", true, { { 5, 8 } })),
        "\xEF\xBF\xBD<x>\xEF\xBF\xBD<x>"
    );
    const Ids ids = encode(t.get(), "\xFF<x>\xFF<x>", true, { { 5, 8 } });
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 257), 1);
    EXPECT_EQ(ids.back(), '>');
}

TEST(Tokenizer, SpansOutOfOrderAreRefusedAndNothingIsAppended)
{
    const auto t = open_json(test_folder(), make_json({}).get());
    const weir_span bad[][2] = { { { 2, 1 }, { 3, 3 } },
                                 { { 0, 2 }, { 1, 3 } },
                                 { { 0, 1 }, { 2, 9 } } };
    weir_encode_options options = {};
    options.n_plain = 2;
    for (const auto &spans : bad) {
        weir_ids ids = {};
        weir_error error = {};
        options.plain = spans;
        EXPECT_EQ(weir_tokenizer_encode(t.get(), &ids, "abcd", 4, &options, &error), WEIR_EINVAL);
        EXPECT_NE(strstr(error.text, "span"), nullptr) << error.text;
        EXPECT_EQ(ids.count, 0u);
        weir_ids_free(&ids);
    }
}

TEST(Tokenizer, TokensOfTheNormalizedTextMatchAfterNfc)
{
    const auto root = make_json({}, {});
    json_object_set_new(root.get(), "normalizer", json_pack("{s: s}", "type", "NFC"));
    json_array_append_new(
        json_object_get(root.get(), "added_tokens"),
        json_pack(
            "{s: i, s: s, s: b, s: b}", "id", 256, "content", "\xC3\xA9!", "special", 0,
            "normalized", 1
        )
    );
    json_array_append_new(
        json_object_get(root.get(), "added_tokens"),
        json_pack(
            "{s: i, s: s, s: b, s: b}", "id", 257, "content", "<x>", "special", 0, "normalized", 0
        )
    );
    const auto t = open_json(test_folder(), root.get());
    EXPECT_EQ(encode(t.get(), "e\xCC\x81!"), (Ids{ 256 }));
    EXPECT_EQ(encode(t.get(), "\xC3\xA9!"), (Ids{ 256 }));
    EXPECT_EQ(encode(t.get(), "<x>e\xCC\x81!<x>"), (Ids{ 257, 256, 257 }));
    EXPECT_EQ(encode(t.get(), "\xC3\xA9!", true, { { 2, 3 } }), (Ids{ 0xC3, 0xA9, '!' }));
    /* The raw text holds the token, whatever composes with its end */
    EXPECT_EQ(encode(t.get(), "<x>\xCC\xB8"), (Ids{ 257, 0xCC, 0xB8 }));
}

TEST(Tokenizer, WholePiecesGoBeforeMergesButNeverMakeAddedTokens)
{
    const auto root = make_json({ { "o", "k" } }, { "ctl" });
    json_t *const model = json_object_get(root.get(), "model");
    json_object_set_new(json_object_get(model, "vocab"), "whole", json_integer(300));
    json_object_set_new(json_object_get(model, "vocab"), "ctl", json_integer(257));
    const auto without = open_json(test_folder(), root.get());
    EXPECT_EQ(encode(without.get(), "whole"), bytes_as_ids("whole"));
    json_object_set_new(model, "ignore_merges", json_true());
    const auto with = open_json(test_folder(), root.get());
    EXPECT_EQ(encode(with.get(), "whole"), (Ids{ 300 }));
    EXPECT_EQ(encode(with.get(), "ok"), (Ids{ 256 }));
    EXPECT_EQ(encode(with.get(), "ctl"), (Ids{ 257 }));
    EXPECT_EQ(encode(with.get(), "ctl", false), bytes_as_ids("ctl"));
}

TEST(Tokenizer, MergesNeverMakeAControlToken)
{
    const auto root = make_json({ { "c", "t" }, { "ct", "l" } }, {});
    json_t *const tokens = json_object_get(root.get(), "added_tokens");
    json_array_append_new(
        tokens, json_pack("{s: i, s: s, s: b}", "id", 257, "content", "ctl", "special", 1)
    );
    const auto t = open_json(test_folder(), root.get());
    EXPECT_EQ(encode(t.get(), "ctl"), (Ids{ 257 }));
    EXPECT_EQ(encode(t.get(), "ctl", false), (Ids{ 256, 'l' }));
}

TEST(Tokenizer, HolesAndIdsOutOfRangeAreEmpty)
{
    const auto root = make_json({});
    json_object_set_new(
        json_object_get(json_object_get(root.get(), "model"), "vocab"), "zz", json_integer(400)
    );
    const auto t = open_json(test_folder(), root.get());
    EXPECT_EQ(weir_tokenizer_size(t.get()), 401u);
    EXPECT_EQ(decode(t.get(), { 'a', 300, 400, -1, 401, INT32_MAX, INT32_MIN, 'b' }), "azzb");
    EXPECT_EQ(weir_tokenizer_find(t.get(), "zz", 2), 400);
    EXPECT_EQ(weir_tokenizer_find(t.get(), "zzz", 3), -1);
    EXPECT_EQ(weir_tokenizer_find(t.get(), "", 0), -1);
}

TEST(Tokenizer, StopIdsAreTheUnionOfAllFilesWithinTheVocabulary)
{
    const std::string folder = test_folder();
    /* 256 to 260 */
    const auto root =
        make_json({}, { "<|endoftext|>", "<|im_end|>", "<other>", "<third>", "<|fim_pad|>" });
    write_file(
        folder + "/tokenizer_config.json",
        R"({"eos_token": {"content": "<other>"}, "bos_token": "<third>", "add_bos_token": true,
        "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", )"
        R"("template": "D"}],
        "added_tokens_decoder": {"256": {"content": "<|endoftext|>", "special": true}, "270": )"
        R"({"content": "<audio>", "special": true}}})"
    );
    write_file(folder + "/generation_config.json", R"({"eos_token_id": [259, 256, 100000, -5]})");
    write_file(
        folder + "/config.json", R"({"eos_token_id": 65, "text_config": {"eos_token_id": 66}})"
    );
    const auto t = open_json(folder, root.get());
    size_t n;
    const int32_t *const stop = weir_tokenizer_stop_ids(t.get(), &n);
    EXPECT_EQ(std::set<int32_t>(stop, stop + n), (std::set<int32_t>{ 256, 257, 258, 259, 65, 66 }));
    EXPECT_EQ(n, 6u);
    EXPECT_STREQ(weir_tokenizer_eos_text(t.get()), "<other>");
    EXPECT_EQ(encode(t.get(), "", true, {}, true), (Ids{ 259 }));
    EXPECT_STREQ(weir_tokenizer_bos_text(t.get()), "<third>");
    EXPECT_STREQ(weir_tokenizer_chat_template(t.get()), "D");
    EXPECT_EQ(encode(t.get(), "<audio>"), (Ids{ 270 }));
    write_file(folder + "/chat_template.jinja", "J");
    EXPECT_STREQ(weir_tokenizer_chat_template(open_json(folder, root.get()).get()), "J");
}

TEST(Tokenizer, NothingElseMeansNoBosNoEos)
{
    const auto t = open_json(test_folder(), make_json({}).get());
    size_t n = 9;
    (void)weir_tokenizer_stop_ids(t.get(), &n);
    EXPECT_EQ(n, 0u);
    EXPECT_EQ(encode(t.get(), "", true, {}, true), (Ids{}));
    EXPECT_STREQ(weir_tokenizer_eos_text(t.get()), "");
    EXPECT_STREQ(weir_tokenizer_bos_text(t.get()), "");
    EXPECT_EQ(weir_tokenizer_chat_template(t.get()), nullptr);
}

/* The golden tokenizers again, by way of a GGUF as a converter writes it. */
class Converted : public testing::TestWithParam<std::pair<const char *, const char *>> {};

TEST_P(Converted, GgufGivesTheIdsOfTokenizerJson)
{
    const std::string path =
        std::string("tests/golden/text/tok/") + GetParam().first + ".tokenizer.json";
    const JsonPtr root(json_load_file(path.c_str(), 0, nullptr), json_decref);
    ASSERT_NE(root, nullptr);
    std::vector<std::string> names(1100), merges;
    std::vector<int32_t> types(1100, 5);
    for (size_t i = 0; i < names.size(); i++) names[i] = "[PAD" + std::to_string(i) + "]";
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(json_object_get(root.get(), "model"), "vocab"), name, value)
    {
        names[static_cast<size_t>(json_integer_value(value))] = name;
        types[static_cast<size_t>(json_integer_value(value))] = 1;
    }
    size_t i, last = 0;
    json_array_foreach(json_object_get(root.get(), "added_tokens"), i, value)
    {
        last = static_cast<size_t>(json_integer_value(json_object_get(value, "id")));
        names[last] = json_string_value(json_object_get(value, "content"));
        types[last] = json_is_true(json_object_get(value, "special")) ? 3 : 4;
    }
    json_array_foreach(json_object_get(json_object_get(root.get(), "model"), "merges"), i, value)
        merges.push_back(
            json_is_string(value) ? json_string_value(value)
                                  : std::string(json_string_value(json_array_get(value, 0))) + " " +
                                        json_string_value(json_array_get(value, 1))
        );
    GgufWriter file;
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", GetParam().second);
    file.texts("tokenizer.ggml.tokens", names);
    file.integers("tokenizer.ggml.token_type", types);
    file.texts("tokenizer.ggml.merges", merges);
    TokenizerPtr t(nullptr, weir_tokenizer_close);
    weir_error error = {};
    ASSERT_EQ(open_gguf(&t, test_folder(), file, &error), WEIR_OK) << error.text;
    EXPECT_EQ(weir_tokenizer_size(t.get()), last + 1);
    EXPECT_EQ(encode(t.get(), "[PAD1099]").size() > 3, true);
    weir_tokenizer *json_tokenizer = nullptr;
    ASSERT_EQ(weir_tokenizer_open_json(&json_tokenizer, path.c_str(), &error), WEIR_OK)
        << error.text;
    const TokenizerPtr reference(json_tokenizer, weir_tokenizer_close);
    std::ifstream in("tests/golden/text/strings.jsonl");
    std::string line;
    for (int n = 0; n < 800 && std::getline(in, line); n++) {
        const JsonPtr record(json_loads(line.c_str(), JSON_ALLOW_NUL, nullptr), json_decref);
        const json_t *const s = json_object_get(record.get(), "s");
        const std::string text(json_string_value(s), json_string_length(s));
        ASSERT_EQ(encode(t.get(), text), encode(reference.get(), text)) << line;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Flavours, Converted,
    testing::Values(
        std::make_pair("qwen2", "qwen2"), std::make_pair("qwen35", "qwen35"),
        std::make_pair("llama3", "llama-bpe"), std::make_pair("gpt2", "gpt-2"),
        std::make_pair("deepseek3", "deepseek-v3"), std::make_pair("smollm", "smollm")
    )
);

TEST(Detokenizer, AForkGoesItsOwnWay)
{
    weir_detokenizer stream = {};
    weir_buffer out = {};
    ASSERT_EQ(weir_detokenizer_push(&stream, &out, "ab\xF0\x9F", 4), WEIR_OK);
    EXPECT_STREQ(out.data, "ab");
    weir_detokenizer fork = stream;
    ASSERT_EQ(weir_detokenizer_push(&stream, &out, "\x98\x80", 2), WEIR_OK);
    EXPECT_STREQ(out.data, "ab\xF0\x9F\x98\x80");
    weir_buffer_clear(&out);
    ASSERT_EQ(weir_detokenizer_push(&fork, &out, "\x98z", 2), WEIR_OK);
    ASSERT_EQ(weir_detokenizer_finish(&fork, &out), WEIR_OK);
    EXPECT_STREQ(out.data, "\xEF\xBF\xBDz");
    weir_buffer_free(&out);
}

struct Tracker {
    weir_memory_tracker tracker = { charge, refund, nullptr };
    size_t used = 0, most = 0, limit = SIZE_MAX;
    static bool charge(weir_memory_tracker *tracker, size_t bytes)
    {
        Tracker *const self = reinterpret_cast<Tracker *>(tracker);
        if (bytes > self->limit - self->used) return false;
        self->used += bytes;
        self->most = self->used > self->most ? self->used : self->most;
        return true;
    }
    static void refund(weir_memory_tracker *tracker, size_t bytes)
    {
        reinterpret_cast<Tracker *>(tracker)->used -= bytes;
    }
};

/* A pattern that keeps a place to come back to for every byte. */
TEST(Pretokenizer, BacktrackingIsPaidForAndBounded)
{
    weir_pretokenizer splitter = {};
    weir_error error = {};
    const char pattern[] = "(?:a|b)+c";
    ASSERT_EQ(weir_pretokenizer_add(&splitter, pattern, sizeof pattern - 1, {}, &error), WEIR_OK);
    const auto run = [&](size_t n, size_t limit, Tracker *tracker) {
        std::string text(n, 'a');
        text += 'c';
        tracker->limit = limit;
        (void)weir_memory_tracker_set(&tracker->tracker);
        weir_matcher matcher = {};
        weir_status status = weir_matcher_init(&matcher);
        if (status == WEIR_OK)
            status = weir_pretokenizer_run(
                &splitter, &matcher, text.data(), text.size(),
                [](void *, const char *, size_t) { return WEIR_OK; }, nullptr, &error
            );
        weir_matcher_free(&matcher);
        (void)weir_memory_tracker_set(nullptr);
        EXPECT_EQ(tracker->used, 0u);
        return status;
    };
    Tracker rich, poor, richest;
    EXPECT_EQ(run(50000, SIZE_MAX, &rich), WEIR_OK);
    EXPECT_GT(rich.most, size_t{ 1 } << 20);
    EXPECT_LT(rich.most, size_t{ 64 } << 20);
    EXPECT_EQ(run(50000, 1 << 20, &poor), WEIR_ENOMEM);
    EXPECT_LE(poor.most, size_t{ 1 } << 20);
    EXPECT_NE(run(4000000, SIZE_MAX, &richest), WEIR_OK) << "more than a sane pattern needs";
    EXPECT_LE(richest.most, size_t{ 128 } << 20) << "old and new, while it grows";
    weir_pretokenizer_free(&splitter);
}

} // namespace
