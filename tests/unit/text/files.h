/* tests/unit/text/files.h - tokenizer files made for a test: a byte-level vocabulary as
 * tokenizer.json or GGUF, in a folder of its own. */
#pragma once
#include <gtest/gtest.h>
#include <jansson.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/formats/tensor_directory.h"
#include "engine/text/tokenizer.h"
#include "tests/unit/text/gguf_writer.h"

using Ids = std::vector<int32_t>;
using TokenizerPtr = std::unique_ptr<weir_tokenizer, void (*)(weir_tokenizer *)>;
using JsonPtr = std::unique_ptr<json_t, void (*)(json_t *)>;

/* A folder that is new for each test. */
inline std::string test_folder()
{
    const auto *const info = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "." + info->name();
    for (char &c : name)
        if (c == '/') c = '_';
    const std::string folder = testing::TempDir() + "/weir_text_" + name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    return folder;
}

/* A new file: ext4 waits for the disk when one with bytes is truncated and written again. */
inline void write_file(const std::string &path, const std::string &bytes)
{
    (void)std::remove(path.c_str());
    std::ofstream out(path, std::ios::binary);
    out << bytes;
    ASSERT_TRUE(out.good()) << path;
}

/* The character that stands for a byte in the byte alphabet, as UTF-8. Written apart from the
 * engine's own table. */
inline std::string byte_name(unsigned byte)
{
    const bool prints = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    unsigned code = byte;
    if (!prints) code = byte <= 32 ? 0x100 + byte : byte <= 160 ? 0x121 + byte - 127 : 0x143;
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return { static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F)) };
}

/* tokenizer.json with the 256 bytes as ids 0 to 255, then `words` made by `merges`, cut by GPT-2's
 * pattern. */
inline JsonPtr make_json(
    const std::vector<std::pair<std::string, std::string>> &merges,
    const std::vector<std::string> &added = {}
)
{
    json_t *const vocab = json_object(), *const list = json_array(), *const tokens = json_array();
    for (unsigned b = 0; b < 256; b++)
        json_object_set_new(vocab, byte_name(b).c_str(), json_integer(b));
    int64_t next = 256;
    for (const auto &[left, right] : merges) {
        if (json_object_get(vocab, (left + right).c_str()) == nullptr)
            json_object_set_new(vocab, (left + right).c_str(), json_integer(next++));
        json_array_append_new(list, json_pack("[s, s]", left.c_str(), right.c_str()));
    }
    for (const std::string &text : added)
        json_array_append_new(
            tokens, json_pack(
                        "{s: I, s: s, s: b, s: b}", "id", static_cast<json_int_t>(next++),
                        "content", text.c_str(), "special", 1, "normalized", 0
                    )
        );
    return JsonPtr(
        json_pack(
            "{s: o, s: n, s: {s: s, s: b, s: b}, s: {s: s}, s: {s: s, s: o, s: o}}", "added_tokens",
            tokens, "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
            "use_regex", 1, "decoder", "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab,
            "merges", list
        ),
        json_decref
    );
}

inline std::string dump(const json_t *value)
{
    char *const text = json_dumps(value, JSON_COMPACT);
    const std::string out = text;
    free(text);
    return out;
}

inline weir_status open_text(
    TokenizerPtr *out, const std::string &folder, const std::string &text, weir_error *error
)
{
    const std::string path = folder + "/tokenizer.json";
    write_file(path, text);
    weir_tokenizer *tokenizer = nullptr;
    const weir_status status = weir_tokenizer_open_json(&tokenizer, path.c_str(), error);
    out->reset(tokenizer);
    return status;
}

inline TokenizerPtr open_json(const std::string &folder, const json_t *root)
{
    TokenizerPtr tokenizer(nullptr, weir_tokenizer_close);
    weir_error error = {};
    EXPECT_EQ(open_text(&tokenizer, folder, dump(root), &error), WEIR_OK) << error.text;
    return tokenizer;
}

inline Ids encode(
    const weir_tokenizer *tokenizer, const std::string &text, bool parse = true,
    const std::vector<weir_span> &plain = {}, bool add_special = false
)
{
    weir_ids ids = {};
    weir_error error = {};
    weir_encode_options options = {};
    options.add_special = add_special;
    options.parse_special = parse;
    options.plain = plain.data();
    options.n_plain = plain.size();
    EXPECT_EQ(
        weir_tokenizer_encode(tokenizer, &ids, text.data(), text.size(), &options, &error), WEIR_OK
    ) << error.text;
    Ids out(ids.data, ids.data + ids.count);
    weir_ids_free(&ids);
    return out;
}

inline std::string decode(const weir_tokenizer *tokenizer, const Ids &ids, bool skip = false)
{
    weir_buffer out = {};
    EXPECT_EQ(weir_tokenizer_decode(tokenizer, &out, ids.data(), ids.size(), skip), WEIR_OK);
    const std::string text(out.data == nullptr ? "" : out.data, out.size);
    weir_buffer_free(&out);
    return text;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

inline weir_status open_gguf(
    TokenizerPtr *out, const std::string &folder, const GgufWriter &writer, weir_error *error
)
{
    const std::string path = folder + "/model.gguf";
    write_file(path, writer.finish());
    weir_tensor_directory *directory = nullptr;
    weir_tokenizer *tokenizer = nullptr;
    weir_status status = weir_tensor_directory_open(&directory, path.c_str(), error);
    EXPECT_EQ(status, WEIR_OK) << error->text;
    if (status == WEIR_OK) status = weir_tokenizer_open(&tokenizer, directory, error);
    weir_tensor_directory_close(directory);
    out->reset(tokenizer);
    return status;
}
