/* tests/unit/constrain/support.h - grammars, states and vocabularies for tests. */
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/constrain/constrain.h"
#include "engine/constrain/tree.h"

struct close_grammar {
    void operator()(weir_grammar *g) const { weir_grammar_release(g); }
};
struct close_state {
    void operator()(weir_grammar_state *s) const { weir_grammar_state_close(s); }
};
struct close_trie {
    void operator()(weir_token_trie *t) const { weir_token_trie_close(t); }
};
using grammar_ptr = std::unique_ptr<weir_grammar, close_grammar>;
using state_ptr = std::unique_ptr<weir_grammar_state, close_state>;
using trie_ptr = std::unique_ptr<weir_token_trie, close_trie>;

/* Compiles; the message is in *problem if it is refused. */
inline grammar_ptr compile(
    weir_grammar_kind kind, const std::string &text, std::string *problem = nullptr,
    weir_token_trie *trie = nullptr, const weir_grammar_limits *limits = nullptr,
    weir_memory_tracker *tracker = nullptr
)
{
    weir_grammar *out = nullptr;
    weir_error error = {};
    const weir_status status = weir_grammar_compile(
        &out, kind, text.data(), text.size(), trie, limits, tracker, nullptr, &error
    );
    if (status != WEIR_OK) {
        EXPECT_EQ(out, nullptr);
        EXPECT_NE(error.text[0], '\0');
    }
    if (problem != nullptr) *problem = status == WEIR_OK ? "" : error.text;
    return grammar_ptr(out);
}

inline state_ptr begin(weir_grammar *grammar)
{
    weir_grammar_state *out = nullptr;
    weir_error error = {};
    EXPECT_EQ(weir_grammar_state_open(&out, grammar, &error), WEIR_OK) << error.text;
    return state_ptr(out);
}

inline state_ptr clone(const weir_grammar_state *state)
{
    weir_grammar_state *out = nullptr;
    weir_error error = {};
    EXPECT_EQ(weir_grammar_state_clone(&out, state, &error), WEIR_OK) << error.text;
    return state_ptr(out);
}

/* How many bytes of a text are accepted. */
inline size_t accept(weir_grammar_state *state, const std::string &text)
{
    size_t n = 0;
    weir_error error = {};
    EXPECT_EQ(weir_grammar_accept_bytes(state, text.data(), text.size(), &n, &error), WEIR_OK)
        << error.text;
    return n;
}

/* Whether the whole text is right. */
inline bool matches(weir_grammar *grammar, const std::string &text)
{
    const state_ptr state = begin(grammar);
    return accept(state.get(), text) == text.size() && weir_grammar_is_complete(state.get());
}

inline std::string forced(weir_grammar_state *state)
{
    char out[256];
    size_t n = 0;
    weir_error error = {};
    EXPECT_EQ(weir_grammar_forced(state, out, sizeof out, &n, &error), WEIR_OK) << error.text;
    return std::string(out, n);
}

inline trie_ptr make_trie(const std::vector<std::string> &tokens, std::vector<int32_t> ends)
{
    std::vector<weir_token_bytes> bytes;
    for (const std::string &t : tokens) bytes.push_back({ t.data(), t.size() });
    weir_token_trie *out = nullptr;
    weir_error error = {};
    EXPECT_EQ(
        weir_token_trie_open(&out, bytes.data(), bytes.size(), ends.data(), ends.size(), &error),
        WEIR_OK
    ) << error.text;
    return trie_ptr(out);
}

inline std::vector<bool> mask(weir_grammar_state *state, const weir_token_trie *trie)
{
    std::vector<uint64_t> words(weir_token_trie_words(trie));
    std::vector<bool> out(weir_token_trie_size(trie));
    weir_error error = {};
    EXPECT_EQ(weir_grammar_mask(state, words.data(), &error), WEIR_OK) << error.text;
    for (size_t i = 0; i < out.size(); i++) out[i] = (words[i / 64] >> (i % 64) & 1) != 0;
    return out;
}

/* The lines of a file of tests/structured. */
inline std::vector<std::string> lines_of(const std::string &name)
{
    std::ifstream file("tests/structured/" + name);
    EXPECT_TRUE(file.good()) << name;
    std::vector<std::string> out;
    for (std::string line; std::getline(file, line);) out.push_back(line);
    return out;
}

/* A case of tests/structured: its grammar and texts. */
class structured_case {
  public:
    explicit structured_case(const std::string &line)
    {
        reader_.most_depth = WEIR_TREE_DEEPEST;
        weir_error error = {};
        EXPECT_EQ(
            weir_tree_read(&reader_, &root, line.data(), line.size(), "case", &error), WEIR_OK
        ) << error.text;
        while (!weir_tree_is(weir_tree_get(root, "kind"), weir_grammar_kind_name(kind))) {
            kind = static_cast<weir_grammar_kind>(kind + 1);
        }
        const weir_tree *const value = weir_tree_get(root, weir_grammar_kind_name(kind));
        const bool json = kind == WEIR_GRAMMAR_SCHEMA || kind == WEIR_GRAMMAR_CHOICE;
        grammar = json ? std::string(value->raw, value->raw_length)
                       : std::string(value->text, value->length);
    }
    ~structured_case() { weir_tree_reader_free(&reader_); }
    structured_case(const structured_case &) = delete;
    structured_case &operator=(const structured_case &) = delete;

    std::string text_of(const char *key) const
    {
        const weir_tree *const value = weir_tree_get(root, key);
        return value == nullptr ? "" : std::string(value->text, value->length);
    }
    bool is_supported() const { return text_of("expect") == "supported"; }
    /* The texts that are right. */
    std::vector<std::string> right_texts() const
    {
        std::vector<std::string> out;
        const weir_tree *const texts = weir_tree_get(root, "texts");
        for (size_t i = 0; i < texts->n; i++) {
            const weir_tree *const t = weir_tree_get(&texts->items[i], "t");
            if (weir_tree_get(&texts->items[i], "ok")->kind != WEIR_TREE_TRUE) continue;
            out.emplace_back(t->text, t->length);
        }
        return out;
    }

    const weir_tree *root = nullptr;
    weir_grammar_kind kind = WEIR_GRAMMAR_SCHEMA;
    std::string grammar;

  private:
    weir_tree_reader reader_ = {};
};
