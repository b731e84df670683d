/* The constructed model: its answer is right exactly when the row of the answer is there. */
#include "tools/eval/constructed.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "engine/kv/pool/formats.h"
#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Folder;
using support::Sequence;
using Ids = std::vector<int32_t>;

constexpr int32_t n_vocab = 4096, first_key = 64,
                  first_value = 2048; /* below the first key: tokens that fill */

/* Pairs at random places among filling tokens, and some keys of them to ask for. */
struct Text {
    Ids tokens;
    std::vector<std::pair<int32_t, int32_t>> asked;  /* key, value */
    std::vector<int> places; /* of the value of each */
};

Ids shuffled(int32_t first, int32_t end, std::mt19937 &random)
{
    Ids ids(static_cast<size_t>(end - first));
    std::iota(ids.begin(), ids.end(), first);
    for (size_t i = ids.size(); i > 1; i--) std::swap(ids[i - 1], ids[random() % i]);
    return ids;
}

Text text_of(int length, int n_pairs, int n_asked, unsigned seed)
{
    std::mt19937 random(seed);
    const Ids keys = shuffled(first_key, first_value, random),
              values = shuffled(first_value, n_vocab, random);
    const int n_blocks = (length - 1) / 2;
    EXPECT_LE(n_pairs, n_blocks);
    Ids blocks = shuffled(0, n_blocks, random);
    Text text;
    for (int i = 0; i < length; i++)
        text.tokens.push_back(1 + static_cast<int32_t>(random() % (first_key - 1)));
    for (int i = 0; i < n_pairs; i++) {
        const size_t at = 1 + 2 * static_cast<size_t>(blocks[(size_t)i]);
        text.tokens[at] = keys[(size_t)i];
        text.tokens[at + 1] = values[(size_t)i];
        if (i < n_asked) {
            text.asked.emplace_back(keys[(size_t)i], values[(size_t)i]);
            text.places.push_back(static_cast<int>(at) + 1);
        }
    }
    return text;
}

/* The likeliest token after each asked key, the keys and their values going on after the text. */
Ids answers(Engine &engine, const Text &text)
{
    struct Seen {
        Ids best;
        size_t n_vocab;
    } seen = { {}, engine.n_vocab() };
    Sequence sequence(engine);
    weir_evaluation evaluation = {};
    evaluation.tokens = text.tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(text.tokens.size());
    evaluation.decode_from = INT32_MAX;
    EXPECT_EQ(weir_evaluate(engine.runner(), sequence.get(), &evaluation, engine.error()), WEIR_OK)
        << engine.text();
    Ids tail;
    for (const auto &[key, value] : text.asked) tail.insert(tail.end(), { key, value });
    evaluation.tokens = tail.data();
    evaluation.n_tokens = static_cast<int32_t>(tail.size());
    evaluation.user = &seen;
    evaluation.visit = [](void *user, int32_t, int32_t n_rows, const float *logits) {
        Seen *const s = static_cast<Seen *>(user);
        for (int32_t r = 0; r < n_rows; r++)
            s->best.push_back(static_cast<int32_t>(
                support::best(logits + static_cast<size_t>(r) * s->n_vocab, s->n_vocab)
            ));
    };
    EXPECT_EQ(weir_evaluate(engine.runner(), sequence.get(), &evaluation, engine.error()), WEIR_OK)
        << engine.text();
    Ids out;
    for (size_t i = 0; i < seen.best.size(); i += 2) out.push_back(seen.best[i]);
    return out;
}

int n_right(Engine &engine, const Text &text)
{
    const Ids got = answers(engine, text);
    int n = 0;
    for (size_t i = 0; i < got.size(); i++) n += got[i] == text.asked[i].second;
    return n;
}

weir_constructed shape(int32_t n_heads, int32_t n_kv_heads, int32_t window = 0)
{
    return { n_vocab, n_heads, n_kv_heads, 65536, window };
}

class Constructed : public ::testing::Test {
  protected:
    void open(const weir_constructed &model, const support::Settings &more = {})
    {
        support::Settings settings = { "memory.host=256MiB", "model.context=4352" };
        settings.insert(settings.end(), more.begin(), more.end());
        weir_error error = {};
        ASSERT_EQ(weir_constructed_write(folder_.path().c_str(), &model, &error), WEIR_OK)
            << error.text;
        ASSERT_EQ(engine_.open(folder_.path(), settings), WEIR_OK) << engine_.text();
    }
    void reopen(const support::Settings &more)
    {
        support::Settings settings = { "memory.host=256MiB", "model.context=4352" };
        settings.insert(settings.end(), more.begin(), more.end());
        ASSERT_EQ(engine_.open(folder_.path(), settings), WEIR_OK) << engine_.text();
    }
    Folder folder_;
    Engine engine_;
};

TEST_F(Constructed, RecallsEveryPairAtEveryLength)
{
    open(shape(1, 1));
    unsigned seed = 1;
    for (int length = 64; length <= 4096; length *= 2) {
        const int dense =
            (length - 1) / 2 < first_value - first_key ? (length - 1) / 2 : first_value - first_key;
        for (int n_pairs : { 1, 16, dense }) {
            const int n_asked = std::min(n_pairs, 64);
            EXPECT_EQ(n_right(engine_, text_of(length, n_pairs, n_asked, seed++)), n_asked)
                << length << " tokens, " << n_pairs << " pairs";
        }
    }
}

TEST_F(Constructed, AnswersNothingAboutKeysItNeverSaw)
{
    open(shape(2, 1));
    Text text = text_of(1000, 40, 20, 3);
    for (auto &pair : text.asked)
        std::replace(text.tokens.begin(), text.tokens.end(), pair.first, 1); /* the value stays */
    EXPECT_EQ(n_right(engine_, text), 0);
}

/* A window that reaches the value answers, one that ends a row before it does not: the row itself
 * carries the answer. */
TEST_F(Constructed, IsWrongAsSoonAsTheRowIsOutOfSight)
{
    constexpr int distance = 300; /* from a key that is asked for back to its value */
    for (int32_t window : { distance + 1, distance }) {
        open(shape(2, 2, window));
        int right = 0;
        for (unsigned seed = 10; seed < 20; seed++) {
            Text text = text_of(700, 200, 200, seed);
            for (size_t i = 0; i < text.asked.size();
                 i++) { /* the first value that stands at the distance */
                if (text.places[i] < 350) continue;
                text.tokens.resize(static_cast<size_t>(text.places[i] + distance));
                text.asked = { text.asked[i] };
                break;
            }
            ASSERT_EQ(text.asked.size(), 1u);
            right += n_right(engine_, text);
        }
        EXPECT_EQ(right, window > distance ? 10 : 0) << "window " << window;
    }
}

/* Every answer is right inside the window and wrong outside it. */
TEST_F(Constructed, OnlyWhatTheWindowHoldsIsAnswered)
{
    constexpr int window = 256, length = 1024;
    open(shape(4, 2, window));
    const Text text = text_of(length, 300, 60, 5);
    const Ids got = answers(engine_, text);
    int n_inside = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const int at = length + 2 * static_cast<int>(i); /* of the key that asks */
        const bool inside = at - text.places[i] < window;
        n_inside += inside;
        EXPECT_EQ(got[i] == text.asked[i].second, inside)
            << "value at " << text.places[i] << ", asked at " << at << ", answer " << got[i];
    }
    EXPECT_GT(n_inside, 3);
    EXPECT_LT(n_inside, 57);
}

TEST_F(Constructed, HeadsMayBeManyAndShared)
{
    for (const auto &[n_heads, n_kv_heads] :
         { std::pair(4, 2), std::pair(8, 4), std::pair(6, 3) }) {
        open(shape(n_heads, n_kv_heads));
        EXPECT_EQ(n_right(engine_, text_of(1500, 400, 64, 7)), 64)
            << n_heads << " heads over " << n_kv_heads;
    }
}

/* Keys of one KV head negated in the file: that head finds other rows, as if it had lost the
 * right ones; the others still have them. */
TEST_F(Constructed, EveryHeadIsNeeded)
{
    constexpr int n_heads = 4;
    open(shape(n_heads, n_heads));
    const std::string path = folder_ / "model.safetensors", bytes = support::read_file(path);
    const std::string name = "\"model.layers.1.self_attn.k_proj.weight\":",
                      offsets = "\"data_offsets\":[";
    const size_t start =
        std::stoul(bytes.substr(bytes.find(offsets, bytes.find(name)) + offsets.size()));
    uint64_t header;
    memcpy(&header, bytes.data(), sizeof header);
    const Text text = text_of(1000, 200, 64, 21);
    const size_t n =
        static_cast<size_t>(WEIR_CONSTRUCTED_HEAD) * (3 * n_heads + 1) * WEIR_CONSTRUCTED_CODE;
    for (size_t head = 0; head < n_heads; head++) {
        std::string patched = bytes;
        std::vector<float> rows(n);
        char *const at = patched.data() + sizeof header + header + start + head * n * sizeof(float);
        memcpy(rows.data(), at, n * sizeof(float));
        for (float &x : rows) x = -x;
        memcpy(at, rows.data(), n * sizeof(float));
        engine_.close();
        support::write_file(path, patched);
        reopen({});
        EXPECT_EQ(n_right(engine_, text), 0) << "head " << head;
    }
    support::write_file(path, bytes);
    reopen({});
    EXPECT_EQ(n_right(engine_, text), 64);
}

/* All of them, down to 2 bits: codes are signs, and the right row wins by far. What a format loses
 * elsewhere is measured by eval kv-quality. */
TEST_F(Constructed, EveryKvFormatKeepsIt)
{
    open(shape(2, 2));
    const Text needle = text_of(2048, 16, 16, 11), dense = text_of(1024, 500, 64, 12);
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++) {
        const weir_kv_format format = static_cast<weir_kv_format>(f);
        reopen({ std::string("kv.format=") + weir_kv_format_name(format) });
        EXPECT_EQ(n_right(engine_, needle), 16) << weir_kv_format_name(format);
        EXPECT_EQ(n_right(engine_, dense), 64) << weir_kv_format_name(format);
    }
}

TEST_F(Constructed, DecodesTheSame)
{
    open(shape(2, 2), { "batch.chunk=64" });
    const Text text = text_of(500, 100, 1, 13);
    Sequence sequence(engine_);
    weir_evaluation evaluation = {};
    Ids tokens = text.tokens;
    tokens.push_back(text.asked[0].first);
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(tokens.size());
    evaluation.decode_from = 3;
    ASSERT_EQ(
        weir_evaluate(engine_.runner(), sequence.get(), &evaluation, engine_.error()), WEIR_OK
    ) << engine_.text();
    EXPECT_EQ(
        static_cast<int32_t>(support::best(evaluation.last, engine_.n_vocab())),
        text.asked[0].second
    );
}

TEST_F(Constructed, NumbersOutOfRangeAreRefused)
{
    const weir_constructed good = shape(2, 2);
    weir_error error = {};
    struct {
        int32_t weir_constructed::*field;
        int32_t value;
        const char *says;
    } const cases[] = {
        { &weir_constructed::n_vocab, 15, "16 to 8192" },
        { &weir_constructed::n_vocab, 8193, "16 to 8192" },
        { &weir_constructed::n_heads, 3, "divide" },
        { &weir_constructed::n_kv_heads, 0, "divide" },
        { &weir_constructed::n_heads, 32, "1 to 16" },
        { &weir_constructed::context, 63, "64 to" },
        { &weir_constructed::window, 1, "attends to the previous row" },
        { &weir_constructed::window, -5, "attends to the previous row" },
    };
    for (const auto &c : cases) {
        weir_constructed bad = good;
        bad.*c.field = c.value;
        EXPECT_EQ(weir_constructed_write(folder_.path().c_str(), &bad, &error), WEIR_EINVAL);
        EXPECT_NE(strstr(error.text, c.says), nullptr) << error.text;
    }
    EXPECT_EQ(weir_constructed_write((folder_ / "a/b").c_str(), &good, &error), WEIR_EIO);
}

} // namespace
