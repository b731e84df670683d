/* A checkpoint whose layers are CoDA, with a tokenizer of 256 bytes: what is asked with text. */
#pragma once
#include "tests/unit/model/coda.h"

namespace support {

/* The character that stands for a byte in byte-level vocabularies. */
inline std::string byte_character(int byte)
{
    const auto is_plain = [](int b) {
        return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    };
    int code = byte;
    if (!is_plain(byte)) {
        code = 256;
        for (int b = 0; b < byte; b++) code += !is_plain(b);
    }
    if (code < 128) return { static_cast<char>(code) };
    return { static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63)) };
}

inline std::string byte_tokenizer()
{
    std::string vocabulary;
    for (int b = 0; b < 256; b++) {
        std::string character = byte_character(b);
        if (character == "\"" || character == "\\") character = "\\" + character;
        vocabulary += (b > 0 ? ",\"" : "\"") + character + "\":" + std::to_string(b);
    }
    return R"({"version":"1.0","added_tokens":[],"normalizer":null,)"
           R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
           R"("use_regex":true},)"
           R"("post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,)"
           R"("trim_offsets":true,"use_regex":true},)"
           R"("model":{"type":"BPE","dropout":null,"unk_token":null,)"
           R"("continuing_subword_prefix":null,"end_of_word_suffix":null,)"
           R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)" +
           vocabulary + R"(},"merges":[]}})";
}

/* Blocks of 32 rows: states are kept after each block. */
inline void write_coda_text(const Folder &folder, const std::string &pattern, Settings *settings)
{
    write_coda(
        folder, pattern,
        coda_block("window = 24\nlandmarks_exact = 6\nlandmarks_summary = 5\nblock_rows = "
                   "32\nexact_gate = 0.0\n"
                   "summary_gate = 0.0\nlambda_bias = 0\n"),
        settings
    );
    write_file(folder / "tokenizer.json", byte_tokenizer());
}

} // namespace support
