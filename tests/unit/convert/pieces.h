/* A small SentencePiece vocabulary as tokenizer.json. */
#pragma once
#include <cstdio>
#include <string>

namespace converted {

using std::string;

/* A tokenizer.json of SentencePiece kind. The merges of "ab" + "c" and "a" + "bc" are both there if
 * is_complete. */
inline string pieces(bool has_prefix, bool is_complete)
{
    const char *const names[] = { "\xE2\x96\x81",     "a", "b", "c", "ab", "bc", "abc",
                                  "\xE2\x96\x81\x61", "\n" };
    string vocab = "\"<unk>\":0,\"<s>\":1,\"</s>\":2";
    int id = 3;
    for (int i = 0; i < 256; i++, id++) {
        char name[32];
        snprintf(name, sizeof name, ",\"<0x%02X>\":%d", i, id);
        vocab += name;
    }
    for (const char *const name : names) {
        const string text = name[0] == '\n' ? "\\n" : name;
        vocab += ",\"" + text + "\":" + std::to_string(id++);
    }
    string added;
    for (int i = 0; i < 3; i++)
        added += string(i > 0 ? "," : "") + "{\"id\":" + std::to_string(i) + ",\"content\":\"" +
                 (i == 0   ? "<unk>"
                  : i == 1 ? "<s>"
                           : "</s>") +
                 "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                 "\"normalized\":false,\"special\":true}";
    return string("{\"version\":\"1.0\",\"added_tokens\":[") + added +
           "],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" +
           (has_prefix ? "{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}," : "") +
           "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]},"
           "\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":{\"type\":\"Sequence\","
           "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},"
           "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" +
           (has_prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "") +
           "]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
           "\"byte_fallback\":true,\"vocab\":{" +
           vocab + "},\"merges\":[\"b c\",\"a b\",\"a bc\"," + (is_complete ? "\"ab c\"," : "") +
           "\"\xE2\x96\x81 a\"]}}";
}

} // namespace converted
