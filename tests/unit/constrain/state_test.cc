/* tests/unit/constrain/state_test.cc - states of sequences: forced bytes, copies, limits, memory,
 * threads; and numbers against bounds. */
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "engine/base/memory.h"
#include "tests/unit/constrain/support.h"

namespace {

const char person[] = "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, "
                      "\"age\": {\"type\": \"integer\"}}, \"required\": [\"name\", \"age\"], "
                      "\"additionalProperties\": false}";

TEST(GrammarState, ForcesBytesWhereOnlyOneContinuationExists)
{
    const grammar_ptr g =
        compile(WEIR_GRAMMAR_CHOICE, "[\"yes, please\", \"yes, thanks\", \"no\"]");
    const state_ptr s = begin(g.get());
    EXPECT_EQ(forced(s.get()), "");
    EXPECT_EQ(accept(s.get(), "y"), 1U);
    EXPECT_EQ(forced(s.get()), "es, ");
    EXPECT_EQ(accept(s.get(), "es, t"), 5U);
    EXPECT_EQ(forced(s.get()), "hanks");
    bool must = true;
    weir_error error = {};
    EXPECT_EQ(weir_grammar_must_end(s.get(), &must, &error), WEIR_OK);
    EXPECT_FALSE(must);
    EXPECT_EQ(accept(s.get(), "hanks"), 5U);
    EXPECT_EQ(forced(s.get()), "");
    EXPECT_EQ(weir_grammar_must_end(s.get(), &must, &error), WEIR_OK);
    EXPECT_TRUE(must);
}

TEST(GrammarState, DoesNotForceBeyondAPossibleEnd)
{
    const grammar_ptr g = compile(WEIR_GRAMMAR_CHOICE, "[\"a\", \"abc\"]");
    const state_ptr s = begin(g.get());
    EXPECT_EQ(forced(s.get()), "a");
    EXPECT_EQ(accept(s.get(), "a"), 1U);
    EXPECT_EQ(forced(s.get()), "");
    EXPECT_EQ(accept(s.get(), "b"), 1U);
    EXPECT_EQ(forced(s.get()), "c");
}

TEST(GrammarState, StaysWhenBytesAreRefused)
{
    const grammar_ptr g = compile(WEIR_GRAMMAR_SCHEMA, person);
    const state_ptr s = begin(g.get());
    EXPECT_EQ(accept(s.get(), "{\"name\":3}"), 8U);
    EXPECT_EQ(accept(s.get(), "{\"name\":\"x\",\"age\":41}"), 21U);
    EXPECT_TRUE(weir_grammar_is_complete(s.get()));
    EXPECT_EQ(accept(s.get(), " "), 0U);
    EXPECT_TRUE(weir_grammar_is_complete(s.get()));
}

TEST(GrammarState, CopiesGoTheirOwnWay)
{
    const grammar_ptr g = compile(
        WEIR_GRAMMAR_SCHEMA, "{\"type\": \"array\", \"items\": {\"type\": "
                             "[\"array\", \"integer\"]}}"
    );
    const state_ptr a = begin(g.get());
    EXPECT_EQ(accept(a.get(), "[[1,"), 4U);
    const state_ptr b = clone(a.get());
    EXPECT_EQ(accept(a.get(), "2],3]"), 5U);
    EXPECT_EQ(accept(b.get(), "[[[9"), 4U);
    EXPECT_TRUE(weir_grammar_is_complete(a.get()));
    weir_error error = {};
    EXPECT_EQ(weir_grammar_state_copy(a.get(), b.get(), &error), WEIR_OK);
    EXPECT_EQ(accept(a.get(), "]]]]]"), 5U);
    EXPECT_TRUE(weir_grammar_is_complete(a.get()));
    EXPECT_FALSE(weir_grammar_is_complete(b.get()));
    EXPECT_GT(weir_grammar_state_bytes(a.get()), 0U);
}

TEST(GrammarState, ObjectsAreClosedWhereAsked)
{
    weir_grammar_limits limits = weir_grammar_default_limits;
    limits.closed_objects = true;
    const char *const schema = R"({"properties": {"a": {"properties": {"b": {}}}}})";
    const std::string others = R"({"a": {"b": 1, "c": 2}})";
    EXPECT_TRUE(matches(compile(WEIR_GRAMMAR_SCHEMA, schema).get(), others));
    const grammar_ptr closed = compile(WEIR_GRAMMAR_SCHEMA, schema, nullptr, nullptr, &limits);
    EXPECT_FALSE(matches(closed.get(), others));
    EXPECT_TRUE(matches(closed.get(), R"({"a": {"b": {"any": 1}}})"));
    for (const char *said : { R"("additionalProperties": true)", R"("minProperties": 2)" }) {
        const std::string text =
            R"({"type": "object", "properties": {"a": {}}, )" + std::string(said) + "}";
        const grammar_ptr open = compile(WEIR_GRAMMAR_SCHEMA, text, nullptr, nullptr, &limits);
        EXPECT_TRUE(matches(open.get(), R"({"a": 1, "z": 2})")) << said;
    }
}

/* Deeper values than the limit are not possible, and what is possible ends. */
TEST(GrammarState, LimitsTheDepth)
{
    weir_grammar_limits limits = weir_grammar_default_limits;
    limits.depth = 50;
    const trie_ptr trie = make_trie({ "[", "[[[[", "]", "]]", "" }, { 4 });
    const grammar_ptr g =
        compile(WEIR_GRAMMAR_GBNF, "root ::= \"[\" root? \"]\"", nullptr, trie.get(), &limits);
    const state_ptr s = begin(g.get());
    const size_t depth = accept(s.get(), std::string(1000, '['));
    EXPECT_GE(depth, 50U);
    EXPECT_LE(depth, 51U);
    EXPECT_EQ(accept(s.get(), std::string(depth - 2, '[')), depth - 2);
    std::vector<bool> allowed = mask(s.get(), trie.get());
    EXPECT_TRUE(allowed[0]);
    EXPECT_FALSE(allowed[1]); /* four more are too deep */
    EXPECT_TRUE(allowed[2]);
    EXPECT_EQ(accept(s.get(), std::string(depth - 2, ']')), depth - 2);
    EXPECT_TRUE(weir_grammar_is_complete(s.get()));
}

struct counter {
    weir_memory_tracker tracker;
    std::atomic<size_t> now, most;
};

bool charge(weir_memory_tracker *tracker, size_t bytes)
{
    counter *const c = reinterpret_cast<counter *>(tracker);
    if (c->now + bytes > c->most) return false;
    c->now += bytes;
    return true;
}

void refund(weir_memory_tracker *tracker, size_t bytes)
{
    reinterpret_cast<counter *>(tracker)->now -= bytes;
}

/* Waits in the next charge until it may go on. */
struct gate {
    weir_memory_tracker tracker;
    std::atomic<bool> is_shut;
    std::promise<void> is_there, goes_on;
};

bool charge_at_gate(weir_memory_tracker *tracker, size_t /* bytes */)
{
    gate *const g = reinterpret_cast<gate *>(tracker);
    if (!g->is_shut.exchange(false)) return true;
    g->is_there.set_value();
    g->goes_on.get_future().wait();
    return true;
}

/* A server asks all its grammars for their sizes, and a mask may take long. */
TEST(GrammarState, ItsSizeDoesNotWaitForACall)
{
    gate g{ { charge_at_gate, [](weir_memory_tracker *, size_t) {}, nullptr }, { false }, {}, {} };
    const trie_ptr trie = make_trie({ "{", "}", "\"", "a", "1", ":", ",", "" }, { 7 });
    const grammar_ptr grammar =
        compile(WEIR_GRAMMAR_SCHEMA, person, nullptr, trie.get(), nullptr, &g.tracker);
    const state_ptr s = begin(grammar.get());
    const size_t before = weir_grammar_bytes(grammar.get());
    g.is_shut = true;
    std::thread call([&] { (void)mask(s.get(), trie.get()); });
    g.is_there.get_future().wait();
    std::future<size_t> size =
        std::async(std::launch::async, [&] { return weir_grammar_bytes(grammar.get()); });
    const bool is_known = size.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    g.goes_on.set_value();
    call.join();
    EXPECT_TRUE(is_known);
    EXPECT_EQ(size.get(), before);
    EXPECT_GT(weir_grammar_bytes(grammar.get()), before);
}

/* Everything is charged, given back, and refused without harm when it does not fit. */
TEST(GrammarState, IsCharged)
{
    counter c{ { charge, refund, nullptr }, { 0 }, { SIZE_MAX } };
    const trie_ptr trie = make_trie({ "{", "}", "\"", "a", "1", ":", ",", "" }, { 7 });
    size_t needed = 0;
    {
        const grammar_ptr g =
            compile(WEIR_GRAMMAR_SCHEMA, person, nullptr, trie.get(), nullptr, &c.tracker);
        needed = c.now;
        EXPECT_GT(needed, weir_grammar_bytes(g.get()) / 2);
        const state_ptr s = begin(g.get());
        EXPECT_EQ(accept(s.get(), "{\"name\":"), 8U);
        (void)mask(s.get(), trie.get());
        EXPECT_GT(c.now, needed);
    }
    EXPECT_EQ(c.now, 0U);
    int n_refused = 0;
    for (size_t most = 0; most < 2 * needed; most += needed / 60) {
        c.most = most;
        weir_grammar *g = nullptr;
        weir_error error = {};
        const weir_status status = weir_grammar_compile(
            &g, WEIR_GRAMMAR_SCHEMA, person, sizeof person - 1, trie.get(), nullptr, &c.tracker,
            nullptr, &error
        );
        n_refused += status != WEIR_OK;
        EXPECT_TRUE(status == WEIR_OK || status == WEIR_ENOMEM) << error.text;
        weir_grammar_state *s = nullptr;
        if (status == WEIR_OK && weir_grammar_state_open(&s, g, &error) == WEIR_OK) {
            size_t n = 0;
            uint64_t words[1];
            for (const char byte : std::string("{\"name\":\"a\",\"age\":1}")) {
                if (weir_grammar_accept_bytes(s, &byte, 1, &n, &error) != WEIR_OK || n == 0) break;
                const weir_status masked = weir_grammar_mask(s, words, &error);
                EXPECT_TRUE(masked == WEIR_OK || masked == WEIR_ENOMEM) << error.text;
            }
        }
        weir_grammar_state_close(s);
        weir_grammar_release(g);
        EXPECT_EQ(c.now, 0U) << most;
    }
    EXPECT_GT(n_refused, 10);
}

TEST(GrammarState, ServesThreads)
{
    const trie_ptr trie =
        make_trie({ "{", "}", "\"", "a", "1", ":", ",", "name", "age", "" }, { 9 });
    const grammar_ptr g = compile(WEIR_GRAMMAR_SCHEMA, person, nullptr, trie.get());
    const std::string text = "{\"name\":\"aaa1\",\"age\":111}";
    std::vector<std::vector<bool>> want;
    const state_ptr s = begin(g.get());
    for (const char c : text) {
        want.push_back(mask(s.get(), trie.get()));
        ASSERT_EQ(accept(s.get(), std::string(1, c)), 1U);
    }
    const grammar_ptr shared = compile(WEIR_GRAMMAR_SCHEMA, person, nullptr, trie.get());
    std::vector<std::thread> threads;
    std::atomic<int> n_wrong{ 0 };
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&] {
            for (int turn = 0; turn < 20; turn++) {
                const state_ptr own = begin(shared.get());
                for (size_t i = 0; i < text.size(); i++) {
                    n_wrong += mask(own.get(), trie.get()) != want[i];
                    n_wrong += accept(own.get(), text.substr(i, 1)) != 1;
                }
            }
        });
    }
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(n_wrong, 0);
}

TEST(GrammarState, StopsWhenAStepIsTooLong)
{
    weir_grammar_limits limits = weir_grammar_default_limits;
    limits.steps = 100;
    const grammar_ptr g = compile(
        WEIR_GRAMMAR_GBNF, "root ::= s\ns ::= \"a\" s \"a\" s | \"a\" s | \"\"", nullptr, nullptr,
        &limits
    );
    const state_ptr s = begin(g.get());
    size_t n = 0;
    weir_error error = {};
    const std::string text(1000, 'a');
    EXPECT_EQ(weir_grammar_accept_bytes(s.get(), text.data(), text.size(), &n, &error), WEIR_EFULL);
    EXPECT_NE(std::string(error.text).find("100 automaton steps"), std::string::npos);
    EXPECT_EQ(accept(s.get(), "a"), 1U);
}

/* None of these ends within a day if the text of a repetition, or a choice, can be empty. */
TEST(GrammarState, CompilesInBoundedTime)
{
    std::string any = R"({"allOf":[)", problem;
    for (int i = 0; i < 60; i++) any += R"({"anyOf":[{"title":"a"},{"title":"b"}]},)";
    any += R"({"anyOf":[false,false]}]})";
    const std::string empty = R"(root ::= ""{100000}{100000}{100000}{100000} "a")";
    EXPECT_NE(compile(WEIR_GRAMMAR_GBNF, empty.c_str(), &problem), nullptr) << problem;
    EXPECT_NE(compile(WEIR_GRAMMAR_REGEX, "(((){100000}){100000}){100000}a", &problem), nullptr);
    EXPECT_EQ(compile(WEIR_GRAMMAR_SCHEMA, any.c_str(), &problem), nullptr);
}

TEST(TokenTrie, RefusesEndsThatAreNoTokens)
{
    const weir_token_bytes token = { "a", 1 };
    weir_token_trie *out = nullptr;
    weir_error error = {};
    const int32_t end = 1;
    EXPECT_EQ(weir_token_trie_open(&out, &token, 1, &end, 1, &error), WEIR_EINVAL);
    EXPECT_EQ(out, nullptr);
}

/* Writes thousandths as a decimal number, without zeros at the end of its fraction. */
std::string decimal(int thousandths)
{
    std::string out = thousandths < 0 ? "-" : "";
    const int value = std::abs(thousandths);
    out += std::to_string(value / 1000);
    std::string fraction = std::to_string(1000 + value % 1000).substr(1);
    while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
    return fraction.empty() ? out : out + "." + fraction;
}

/* Every number of up to three decimals in a range, against bounds at random. */
TEST(SchemaNumbers, KeepTheirBounds)
{
    std::mt19937 random(3);
    for (int turn = 0; turn < 60; turn++) {
        const int scale = turn % 3 == 0 ? 1000 : turn % 3 == 1 ? 100 : 1;
        const int a = (static_cast<int>(random() % 4001) - 2000) / scale * scale;
        const int b = (static_cast<int>(random() % 4001) - 2000) / scale * scale;
        const int low = std::min(a, b), high = std::max(a, b);
        const bool strict_low = random() % 2 == 0, strict_high = random() % 2 == 0;
        const std::string schema =
            std::string("{\"type\": \"number\", \"") +
            (strict_low ? "exclusiveMinimum" : "minimum") + "\": " + decimal(low) + ", \"" +
            (strict_high ? "exclusiveMaximum" : "maximum") + "\": " + decimal(high) + "}";
        const bool empty = low == high && (strict_low || strict_high);
        std::string problem;
        const grammar_ptr g = compile(WEIR_GRAMMAR_SCHEMA, schema, &problem);
        ASSERT_EQ(g == nullptr, empty) << schema << ' ' << problem;
        for (int x = -2100; x <= 2100 && !empty; x += 7 % (1 + turn) + 1) {
            const bool right =
                (strict_low ? x > low : x >= low) && (strict_high ? x < high : x <= high);
            ASSERT_EQ(matches(g.get(), decimal(x)), right) << schema << ' ' << decimal(x);
            const std::string longer = decimal(x) + (x % 1000 == 0 ? ".00" : "00");
            ASSERT_EQ(matches(g.get(), longer), right) << schema << ' ' << longer;
        }
    }
}

TEST(SchemaNumbers, AreMultiples)
{
    const grammar_ptr g = compile(
        WEIR_GRAMMAR_SCHEMA, "{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": -100}"
    );
    for (int x = -300; x <= 3000; x++) {
        ASSERT_EQ(matches(g.get(), std::to_string(x)), x % 7 == 0 && x >= -100) << x;
    }
}

} // namespace
