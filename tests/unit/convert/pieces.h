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

/* What may be other in a unigram tokenizer.json, as JSON. */
struct Unigram {
    string normalizer =
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\",\"strip_left\":"
        "true,\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
        "\" {2,}\"},\"content\":\" \"}]}";
    string pre = "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":"
                 "\"always\",\"split\":true}";
    string decoder = pre, processor = "null", pieces, added; /* more of them, after a comma */
    bool has_bytes = false;
};

/* A unigram tokenizer.json: <unk>, <s>, </s>, then letters, a few words and maybe bytes. */
inline string unigram(const Unigram &u)
{
    string vocab = "[\"<unk>\",0],[\"<s>\",0],[\"</s>\",0],[\"\xE2\x96\x81\",-2.5]";
    for (char c = 'a'; c <= 'z'; c++)
        vocab += string(",[\"") + c + "\",-" + std::to_string(4 + c % 5) + "]";
    for (const char *const word :
         { "the", "ing", "\xE2\x96\x81th", "\xE2\x96\x81the", "er", "\xC3\xA9" })
        vocab += string(",[\"") + word + "\",-5.25]";
    for (int i = 0; u.has_bytes && i < 256; i++) {
        char name[32];
        snprintf(name, sizeof name, ",[\"<0x%02X>\",0]", i);
        vocab += name;
    }
    vocab += u.pieces;
    string added;
    for (int i = 0; i < 3; i++)
        added += string(i > 0 ? "," : "") + "{\"id\":" + std::to_string(i) + ",\"content\":\"" +
                 (i == 0   ? "<unk>"
                  : i == 1 ? "<s>"
                           : "</s>") +
                 "\",\"normalized\":false,\"special\":true}";
    return string("{\"version\":\"1.0\",\"added_tokens\":[") + added + u.added +
           "],\"normalizer\":" + u.normalizer + ",\"pre_tokenizer\":" + u.pre +
           ",\"post_processor\":" + u.processor + ",\"decoder\":" + u.decoder +
           ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":" +
           (u.has_bytes ? "true" : "false") + ",\"vocab\":[" + vocab + "]}}";
}

} // namespace converted
