/* tests/unit/constrain/mask_test.cc - masks: a token is allowed exactly if its bytes pass one by
 * one, for the right texts of tests/structured cut at random. */
#include <unordered_map>

#include "tests/every_nth.h"
#include "tests/unit/constrain/support.h"

namespace {

/* All bytes, and random parts of texts; the last id ends answers, the one before is special. */
std::vector<std::string> make_tokens(const std::vector<std::string> &texts, std::mt19937 *random)
{
    std::vector<std::string> out;
    std::unordered_map<std::string, int> known;
    for (int b = 0; b < 256; b++) known.emplace(out.emplace_back(1, static_cast<char>(b)), 0);
    for (int i = 0; i < 2500; i++) {
        const std::string &text = texts[(*random)() % texts.size()];
        if (text.empty()) continue;
        const size_t at = (*random)() % text.size(), n = 1 + (*random)() % 14;
        const std::string part = text.substr(at, n);
        if (known.emplace(part, 0).second) out.push_back(part);
    }
    for (const char *text :
         { "  ", "\n\n  ", "\":", "\",\"", "\"}", "\xC3", "\xA9\xC3", "}]}", "],", "\\u00", "true}",
           "null,", ",,", "0\"", "abcdefghijklmnopqrstuvwxyz" }) {
        if (known.emplace(text, 0).second) out.emplace_back(text);
    }
    out.emplace_back(out[300]); /* two tokens with the same bytes */
    out.emplace_back("");
    out.emplace_back("");
    return out;
}

std::vector<std::string> all_cases()
{
    std::vector<std::string> out;
    for (const char *name : { "schemas/suite.jsonl", "schemas/plain.jsonl", "schemas/real.jsonl",
                              "schemas/peers.jsonl", "grammars/grammars.jsonl" }) {
        for (std::string &line : lines_of(name)) out.push_back(std::move(line));
    }
    return out;
}

class MaskTest : public testing::Test {
  protected:
    void SetUp() override
    {
        cases = all_cases();
        std::vector<std::string> texts;
        for (const std::string &line : cases) {
            for (const std::string &text : structured_case(line).right_texts()) {
                texts.push_back(text);
            }
        }
        tokens = make_tokens(texts, &random);
        trie = make_trie(tokens, { static_cast<int32_t>(tokens.size() - 1) });
        for (size_t i = 0; i < tokens.size(); i++) {
            longest = std::max(longest, tokens[i].size());
            if (!tokens[i].empty()) ids[tokens[i]] = static_cast<int32_t>(i);
        }
    }

    /* A token that begins the rest of a text. */
    int32_t pick(const std::string &text, size_t at)
    {
        for (;;) {
            const size_t n = 1 + random() % longest;
            const auto found = ids.find(text.substr(at, n));
            if (found != ids.end()) return found->second;
        }
    }

    /* Compares the mask with what the bytes of each token do. */
    void compare(const std::string &id, weir_grammar_state *state)
    {
        const std::vector<bool> allowed = mask(state, trie.get());
        for (size_t i = 0; i + 1 < tokens.size(); i++) {
            const state_ptr copy = clone(state);
            bool accepted = false;
            weir_error error = {};
            ASSERT_EQ(
                weir_grammar_accept_token(copy.get(), static_cast<int32_t>(i), &accepted, &error),
                WEIR_OK
            );
            ASSERT_EQ(allowed[i], accepted) << id << ": token \"" << tokens[i] << '"';
        }
        ASSERT_EQ(allowed[tokens.size() - 1], weir_grammar_is_complete(state)) << id;
    }

    void walk(const std::string &id, weir_grammar *grammar, const std::string &text)
    {
        const state_ptr state = begin(grammar);
        const size_t place = random() % (text.size() + 1); /* where all tokens are compared */
        bool compared = false;
        for (size_t at = 0; at < text.size();) {
            if (at >= place && !compared && random() % 2 == 0) {
                compare(id, state.get());
                compared = true;
            }
            const int32_t token = pick(text, at);
            bool accepted = false;
            weir_error error = {};
            ASSERT_TRUE(mask(state.get(), trie.get())[static_cast<size_t>(token)])
                << id << ": \"" << tokens[static_cast<size_t>(token)] << "\" at " << at << " of "
                << text;
            ASSERT_EQ(weir_grammar_accept_token(state.get(), token, &accepted, &error), WEIR_OK);
            ASSERT_TRUE(accepted);
            at += tokens[static_cast<size_t>(token)].size();
        }
        EXPECT_TRUE(mask(state.get(), trie.get())[tokens.size() - 1]) << id;
        EXPECT_FALSE(mask(state.get(), trie.get())[tokens.size() - 2]) << id;
    }

    std::mt19937 random{ 7 };
    std::vector<std::string> cases, tokens;
    std::unordered_map<std::string, int32_t> ids;
    trie_ptr trie;
    size_t longest = 0;
};

TEST_F(MaskTest, AllowsWhatPassesByteByByte)
{
    size_t n_walks = 0;
    for (const std::string &line : weir_test::every_nth(cases, 4)) {
        const structured_case c(line);
        if (!c.is_supported()) continue;
        std::string problem;
        const grammar_ptr grammar = compile(c.kind, c.grammar, &problem, trie.get());
        ASSERT_NE(grammar, nullptr) << c.text_of("id") << ": " << problem;
        size_t n = 0;
        for (const std::string &text : c.right_texts()) {
            if (text.size() > 4000 || n++ == 3) continue;
            walk(c.text_of("id"), grammar.get(), text);
            if (HasFatalFailure()) return;
            n_walks++;
        }
    }
    EXPECT_GT(n_walks, 500U / static_cast<size_t>(weir_test::every_nth(4)));
}

/* Automaton states and masks are dropped and built again: the masks are the same. */
TEST_F(MaskTest, IsTheSameWithoutRoomForItsCache)
{
    weir_grammar_limits limits = weir_grammar_default_limits;
    limits.cache_bytes = 20000;
    for (const std::string &line : lines_of("schemas/plain.jsonl")) {
        const structured_case c(line);
        const std::vector<std::string> texts = c.right_texts();
        if (texts.empty()) continue;
        const grammar_ptr large = compile(c.kind, c.grammar, nullptr, trie.get());
        const grammar_ptr small = compile(c.kind, c.grammar, nullptr, trie.get(), &limits);
        const state_ptr a = begin(large.get()), b = begin(small.get());
        const std::string text = texts[0].substr(0, 60);
        for (size_t at = 0; at < text.size(); at++) {
            ASSERT_EQ(mask(a.get(), trie.get()), mask(b.get(), trie.get())) << c.text_of("id");
            ASSERT_EQ(accept(a.get(), text.substr(at, 1)), 1U);
            ASSERT_EQ(accept(b.get(), text.substr(at, 1)), 1U);
        }
    }
}

/* The mask inside a limited string belongs to a state that no sequence holds. */
TEST_F(MaskTest, KeepsTheMaskThatItWalks)
{
    const std::string schema = R"({"type":"array","items":{"type":"string","maxLength":1000}})";
    for (size_t bytes = 1000; bytes < 120000; bytes += 500) {
        weir_grammar_limits limits = weir_grammar_default_limits;
        limits.cache_bytes = bytes;
        const grammar_ptr g = compile(WEIR_GRAMMAR_SCHEMA, schema, nullptr, trie.get(), &limits);
        const state_ptr s = begin(g.get());
        for (const char c : std::string("[\"abc\",\"d\"]")) {
            (void)mask(s.get(), trie.get());
            ASSERT_EQ(accept(s.get(), std::string(1, c)), 1U);
        }
    }
}

} // namespace
