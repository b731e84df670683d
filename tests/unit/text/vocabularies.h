/* tests/unit/text/vocabularies.h - SentencePiece vocabularies made for a test, as GGUF files. */
#pragma once
#include <string>
#include <vector>

#include "tests/unit/text/files.h"

enum PieceType { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

struct Piece {
    std::string text;
    float score;
    int32_t type;
};
using Pieces = std::vector<Piece>;

/* <unk>, <s>, </s>, and the 256 byte pieces if wanted. */
inline Pieces base_pieces(bool with_bytes)
{
    Pieces out = { { "<unk>", 0, UNKNOWN }, { "<s>", 0, CONTROL }, { "</s>", 0, CONTROL } };
    for (unsigned byte = 0; with_bytes && byte < 256; byte++) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", byte);
        out.push_back({ name, 0, BYTE });
    }
    return out;
}

struct Options {
    std::string model = "llama";
    bool prefix = false, remove_spaces = false;
    std::string charsmap;
    std::vector<std::string> merges;
};

inline GgufWriter pieces_file(const Pieces &pieces, const Options &options = {})
{
    GgufWriter file;
    std::vector<std::string> names;
    std::vector<float> scores;
    std::vector<int32_t> types;
    for (const Piece &piece : pieces) {
        names.push_back(piece.text);
        scores.push_back(piece.score);
        types.push_back(piece.type);
    }
    file.text("tokenizer.ggml.model", options.model);
    file.boolean("tokenizer.ggml.add_space_prefix", options.prefix);
    file.boolean("tokenizer.ggml.remove_extra_whitespaces", options.remove_spaces);
    file.texts("tokenizer.ggml.tokens", names);
    file.numbers("tokenizer.ggml.scores", scores);
    file.integers("tokenizer.ggml.token_type", types);
    if (!options.charsmap.empty())
        file.bytes("tokenizer.ggml.precompiled_charsmap", options.charsmap);
    if (options.model == "gemma4") file.texts("tokenizer.ggml.merges", options.merges);
    return file;
}

inline TokenizerPtr open_pieces(const Pieces &pieces, const Options &options = {})
{
    TokenizerPtr tokenizer(nullptr, weir_tokenizer_close);
    weir_error error = {};
    EXPECT_EQ(open_gguf(&tokenizer, test_folder(), pieces_file(pieces, options), &error), WEIR_OK)
        << error.text;
    return tokenizer;
}

/* The pieces of ids, joined by |. */
inline std::string names_of(const Pieces &pieces, const Ids &ids)
{
    std::string out;
    for (const int32_t id : ids)
        out += (out.empty() ? "" : "|") + pieces.at(static_cast<size_t>(id)).text;
    return out;
}

/* A sequence of numbers that is the same on every run. */
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 1) {}
    size_t below(size_t n)
    {
        state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
        return (state_ >> 20) % n;
    }
    template <typename T> const T &of(const std::vector<T> &values)
    {
        return values[below(values.size())];
    }

  private:
    uint64_t state_;
};
