/* tests/golden/text_golden.cc - comparison of ids, pieces, decoded text and streams with JSON lines
 * files. */
#include "tests/golden/text_golden.h"

#include <jansson.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "tests/unit/text/pieces.h"

namespace {

using json = std::unique_ptr<json_t, decltype(&json_decref)>;
using ids_t = std::vector<int32_t>;

struct tokenizer_close {
    void operator()(weir_tokenizer *tokenizer) const { weir_tokenizer_close(tokenizer); }
};
using tokenizer_ptr = std::unique_ptr<weir_tokenizer, tokenizer_close>;

struct failure {
    std::string text;
};

/* Calls `each` for every record of a JSON lines file; throws what is wrong with the first bad
 * one. */
size_t for_each_record(const std::string &path, const std::function<void(json_t *)> &each)
{
    std::ifstream in(path, std::ios::binary);
    if (!in) throw failure{ "cannot read " + path };
    std::string line;
    size_t n = 0;
    for (; std::getline(in, line); n++) {
        const json record(
            json_loadb(line.data(), line.size(), JSON_ALLOW_NUL, nullptr), json_decref
        );
        if (!record) throw failure{ path + ": line " + std::to_string(n + 1) + " is not JSON" };
        try {
            each(record.get());
        } catch (const failure &f) {
            throw failure{ "line " + std::to_string(n + 1) + ": " + f.text };
        }
    }
    if (n == 0) throw failure{ path + " is empty" };
    return n;
}

std::string text_of(const json_t *value)
{
    if (!json_is_string(value)) throw failure{ "a string is missing" };
    return std::string(json_string_value(value), json_string_length(value));
}

ids_t ids_of(const json_t *array)
{
    if (!json_is_array(array)) throw failure{ "a list of numbers is missing" };
    ids_t ids;
    for (size_t i = 0; i < json_array_size(array); i++)
        ids.push_back(static_cast<int32_t>(json_integer_value(json_array_get(array, i))));
    return ids;
}

std::string show(const ids_t &ids)
{
    std::string text = "[";
    for (size_t i = 0; i < ids.size() && i < 24; i++)
        text += (i > 0 ? "," : "") + std::to_string(ids[i]);
    return text + (ids.size() > 24 ? ",...]" : "]");
}

void expect_same(const ids_t &got, const ids_t &want, const char *what)
{
    if (got != want)
        throw failure{ std::string(what) + " are " + show(got) + ", expected " + show(want) };
}

void expect_same(const std::string &got, const std::string &want, const char *what)
{
    if (got != want)
        throw failure{ std::string(what) + " is '" + got.substr(0, 120) + "', expected '" +
                       want.substr(0, 120) + "'" };
}

ids_t take(weir_ids *ids)
{
    ids_t out(ids->data, ids->data + ids->count);
    weir_ids_free(ids);
    return out;
}

ids_t encode(
    const weir_tokenizer *tokenizer, const std::string &text, bool parse,
    const std::vector<weir_span> &plain = {}, bool bos = false
)
{
    weir_ids ids = {};
    weir_error error = {};
    weir_encode_options options = {};
    options.add_special = bos;
    options.parse_special = parse;
    options.plain = plain.data();
    options.n_plain = plain.size();
    if (weir_tokenizer_encode(tokenizer, &ids, text.data(), text.size(), &options, &error) !=
        WEIR_OK)
        throw failure{ error.text };
    return take(&ids);
}

std::string take(weir_buffer *buffer)
{
    const std::string out(buffer->data == nullptr ? "" : buffer->data, buffer->size);
    weir_buffer_free(buffer);
    return out;
}

std::string decode(const weir_tokenizer *tokenizer, const ids_t &ids, bool skip)
{
    weir_buffer out = {};
    if (weir_tokenizer_decode(tokenizer, &out, ids.data(), ids.size(), skip) != WEIR_OK)
        throw failure{ "decode failed" };
    return take(&out);
}

/* ---- cases ----------------------------------------------------------------------------------- */

struct flavour {
    tokenizer_ptr tokenizer;
    std::string stem; /* dir/tok/F */
    std::vector<std::string> strings;
};

const std::string &string_of(const flavour &f, json_t *record)
{
    const auto i = static_cast<size_t>(json_integer_value(json_object_get(record, "i")));
    if (i >= f.strings.size()) throw failure{ "no string " + std::to_string(i) };
    return f.strings[i];
}

size_t check_ids(const flavour &f)
{
    const weir_tokenizer *const t = f.tokenizer.get();
    return for_each_record(f.stem + ".ids.jsonl", [&](json_t *record) {
        const std::string &text = string_of(f, record);
        const ids_t ids = ids_of(json_object_get(record, "ids"));
        expect_same(encode(t, text, true), ids, "ids");
        ids_t with_bos = encode(t, "", true, {}, true);
        with_bos.insert(with_bos.end(), ids.begin(), ids.end());
        expect_same(encode(t, text, true, {}, true), with_bos, "ids with BOS");
        const json_t *const d = json_object_get(record, "d"), *const ds =
                                                                  json_object_get(record, "ds");
        const std::string decoded = d == nullptr ? text : text_of(d);
        expect_same(decode(t, ids, false), decoded, "decoded text");
        expect_same(
            decode(t, ids, true), ds == nullptr ? decoded : text_of(ds),
            "decoded text without special tokens"
        );
    });
}

size_t check_pieces(const flavour &f)
{
    return for_each_record(f.stem + ".pre.jsonl", [&](json_t *record) {
        ids_t lengths;
        weir_error error = {};
        if (piece_lengths(f.tokenizer.get(), &lengths, string_of(f, record), &error) != WEIR_OK)
            throw failure{ error.text };
        expect_same(lengths, ids_of(json_object_get(record, "n")), "pieces");
    });
}

size_t check_streams(const flavour &f)
{
    return for_each_record(f.stem + ".stream.jsonl", [&](json_t *record) {
        const ids_t ids = ids_of(json_object_get(record, "ids"));
        const json_t *const steps = json_object_get(record, "steps");
        if (json_array_size(steps) != ids.size()) throw failure{ "steps and ids differ in number" };
        weir_detokenizer stream = {};
        weir_buffer out = {};
        for (size_t i = 0; i < ids.size(); i++) {
            if (weir_detokenizer_token(&stream, f.tokenizer.get(), &out, ids[i], false) != WEIR_OK)
                throw failure{ "no memory" };
            expect_same(take(&out), text_of(json_array_get(steps, i)), "a step");
        }
        if (weir_detokenizer_finish(&stream, &out) != WEIR_OK) throw failure{ "no memory" };
        expect_same(take(&out), text_of(json_object_get(record, "end")), "the end");
    });
}

size_t check_noparse(const flavour &f)
{
    return for_each_record(f.stem + ".noparse.jsonl", [&](json_t *record) {
        const std::string text = text_of(json_object_get(record, "s"));
        expect_same(
            encode(f.tokenizer.get(), text, true), ids_of(json_object_get(record, "parse")),
            "ids with added tokens"
        );
        expect_same(
            encode(f.tokenizer.get(), text, false), ids_of(json_object_get(record, "plain")),
            "ids of plain text"
        );
        expect_same(
            encode(f.tokenizer.get(), text, true, { weir_span{ 0, text.size() } }),
            ids_of(json_object_get(record, "plain")), "ids of text in a plain span"
        );
    });
}

/* The flavour whose vocabulary a template's family uses. */
std::string flavour_of(const std::string &name)
{
    static const std::vector<std::pair<std::string, std::string>> families = {
        { "qwen35", "qwen35" },
        { "qwen", "qwen2" },
        { "llama", "llama3" },
        { "deepseek", "deepseek3" }
    };
    for (const auto &[prefix, flavour] : families)
        if (name.rfind(prefix, 0) == 0) return flavour;
    return "";
}

/* Byte offset of code point `index`. */
size_t byte_at(const std::string &text, json_int_t index)
{
    size_t at = 0;
    for (; index > 0 && at < text.size(); index--) do
            at++;
        while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    return at;
}

/* Rendered prompts: ids as they are and with the text of users kept plain. */
size_t check_chat(const std::string &path, const std::map<std::string, flavour> &flavours)
{
    size_t n = 0;
    (void)for_each_record(path, [&](json_t *record) {
        const auto found = flavours.find(flavour_of(text_of(json_object_get(record, "t"))));
        if (found == flavours.end() || json_object_get(record, "ids") == nullptr) return;
        const std::string text = text_of(json_object_get(record, "out"));
        expect_same(
            encode(found->second.tokenizer.get(), text, true),
            ids_of(json_object_get(record, "ids")), "ids"
        );
        n++;
        if (json_object_get(record, "ids_safe") == nullptr) return;
        std::vector<weir_span> plain;
        const json_t *const ranges = json_object_get(record, "user_ranges");
        for (size_t i = 0; i < json_array_size(ranges); i++) {
            const json_t *const range = json_array_get(ranges, i);
            plain.push_back({ byte_at(text, json_integer_value(json_array_get(range, 0))),
                              byte_at(text, json_integer_value(json_array_get(range, 1))) });
        }
        std::sort(plain.begin(), plain.end(), [](const weir_span &a, const weir_span &b) {
            return a.begin < b.begin;
        });
        expect_same(
            encode(found->second.tokenizer.get(), text, true, plain),
            ids_of(json_object_get(record, "ids_safe")), "safe ids"
        );
    });
    return n;
}

/* ---- running --------------------------------------------------------------------------------- */

void fail(const std::string &name, const std::string &why, weir_golden_counts *counts)
{
    counts->failed++;
    std::printf("FAIL %s %s\n", name.c_str(), why.c_str());
}

void skip(
    const std::string &name, const std::string &why, const char *filter, weir_golden_counts *counts
)
{
    if (name.find(filter) == std::string::npos) return;
    counts->skipped++;
    std::printf("skipped %s %s\n", name.c_str(), why.c_str());
}

void run(
    const std::string &name, const char *filter, weir_golden_counts *counts,
    const std::function<size_t()> &check
)
{
    if (name.find(filter) == std::string::npos) return;
    try {
        const size_t n = check();
        counts->records += n;
        counts->passed++;
        std::printf("ok %s (%zu records)\n", name.c_str(), n);
    } catch (const failure &f) {
        fail(name, f.text, counts);
    } catch (const std::exception &e) {
        fail(name, e.what(), counts);
    }
}

std::vector<std::string> load_strings(const std::string &dir)
{
    std::vector<std::string> strings;
    (void)for_each_record(dir + "/strings.jsonl", [&](json_t *record) {
        strings.push_back(text_of(json_object_get(record, "s")));
    });
    return strings;
}

/* Files of `dir` whose name ends in `suffix`, without it, sorted. */
std::vector<std::string> stems(const std::string &dir, const std::string &suffix)
{
    std::vector<std::string> names;
    std::error_code code;
    for (const auto &entry : std::filesystem::directory_iterator(dir, code)) {
        const std::string name = entry.path().filename().string();
        if (name.size() > suffix.size() &&
            name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
            names.push_back(name.substr(0, name.size() - suffix.size()));
    }
    std::sort(names.begin(), names.end());
    return names;
}

tokenizer_ptr open_json(const std::string &path)
{
    weir_tokenizer *tokenizer = nullptr;
    weir_error error = {};
    if (weir_tokenizer_open_json(&tokenizer, path.c_str(), &error) != WEIR_OK)
        throw failure{ error.text };
    return tokenizer_ptr(tokenizer);
}

tokenizer_ptr open_gguf(const std::string &path)
{
    weir_tensor_directory *directory = nullptr;
    weir_tokenizer *tokenizer = nullptr;
    weir_error error = {};
    weir_status status = weir_tensor_directory_open(&directory, path.c_str(), &error);
    if (status == WEIR_OK) {
        status = weir_tokenizer_open(&tokenizer, directory, &error);
        weir_tensor_directory_close(directory);
    }
    if (status != WEIR_OK) throw failure{ error.text };
    return tokenizer_ptr(tokenizer);
}

/* Every tokenizer of the folder; one that cannot be opened is a failure of its own. */
std::map<std::string, flavour> open_flavours(
    const std::string &folder, const char *filter, weir_golden_counts *counts
)
{
    std::map<std::string, flavour> flavours;
    std::vector<std::string> strings;
    const std::vector<std::string> names = stems(folder + "/tok", ".tokenizer.json");
    try {
        strings = load_strings(folder);
        if (names.empty()) throw failure{ "no tok/*.tokenizer.json in " + folder };
    } catch (const failure &f) {
        fail("text/open", f.text, counts);
        return flavours;
    }
    for (const std::string &name : names) {
        try {
            flavours[name] = flavour{ open_json(folder + "/tok/" + name + ".tokenizer.json"),
                                      folder + "/tok/" + name, strings };
        } catch (const failure &f) {
            fail("text/" + name, f.text, counts);
        }
    }
    if (!flavours.empty()) run("text/open", filter, counts, [&] { return flavours.size(); });
    return flavours;
}

} // namespace

int weir_golden_text(const char *dir, const char *filter, weir_golden_counts *counts)
{
    using check_function = size_t (*)(const flavour &);
    static const std::pair<const char *, check_function> checks[] = { { "ids", check_ids },
                                                                      { "pre", check_pieces },
                                                                      { "stream", check_streams },
                                                                      { "noparse",
                                                                        check_noparse } };
    const size_t failed = counts->failed;
    const std::string folder = dir;
    std::map<std::string, flavour> flavours = open_flavours(folder, filter, counts);
    for (const auto &entry : flavours)
        for (const auto &check : checks)
            if (std::filesystem::exists(entry.second.stem + "." + check.first + ".jsonl"))
                run("text/" + entry.first + "." + check.first, filter, counts,
                    [&] { return check.second(entry.second); });
    const std::string chat = folder + "/chat_rendered.jsonl";
    if (std::filesystem::exists(chat))
        run("text/chat.ids", filter, counts, [&] { return check_chat(chat, flavours); });
    if (std::filesystem::exists(folder + "/qwen_real_ids.jsonl"))
        skip(
            "text/qwen_real_ids", "the ranks of the real Qwen vocabulary are not stored", filter,
            counts
        );
    return counts->failed == failed ? 0 : 1;
}

int weir_golden_realvocab(
    const char *dir, const char *fetched, const char *filter, weir_golden_counts *counts
)
{
    const size_t failed = counts->failed;
    const std::string folder = dir;
    for (const std::string &name : stems(folder, ".ids.jsonl")) {
        const std::string title = "realvocab/" + name + ".ids";
        if (fetched == nullptr) {
            skip(title, "the vocabulary was not fetched", filter, counts);
            continue;
        }
        run(title, filter, counts, [&] {
            const flavour f{ open_gguf(std::string(fetched) + "/ggml-vocab-" + name + ".gguf"),
                             folder + "/" + name, load_strings(folder) };
            return for_each_record(f.stem + ".ids.jsonl", [&](json_t *record) {
                const ids_t ids = ids_of(json_object_get(record, "ids"));
                expect_same(encode(f.tokenizer.get(), string_of(f, record), true), ids, "ids");
            });
        });
    }
    return counts->failed == failed ? 0 : 1;
}
