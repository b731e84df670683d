/* tests/golden/pieces_golden.cc - SentencePiece vocabularies: a JSON file of pieces, texts, ids and
 * decoded texts becomes a GGUF file, and for merges by rank a tokenizer.json too, as converters
 * write them. */
#include <jansson.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "tests/golden/text_golden.h"
#include "tests/unit/text/gguf_writer.h"

namespace {

using Json = std::unique_ptr<json_t, decltype(&json_decref)>;
using Ids = std::vector<int32_t>;
using Tokenizer = std::unique_ptr<weir_tokenizer, decltype(&weir_tokenizer_close)>;

/* A file in a folder that goes away again. */
class Scratch {
  public:
    Scratch(const char *name, const std::string &bytes)
    {
        std::string folder = std::filesystem::temp_directory_path() / "weir-pieces-XXXXXX";
        if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make a folder");
        folder_ = folder;
        path_ = folder + "/" + name;
        std::ofstream(path_, std::ios::binary) << bytes;
    }
    ~Scratch()
    {
        std::error_code code;
        std::filesystem::remove_all(folder_, code);
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    const char *path() const { return path_.c_str(); }

  private:
    std::string folder_, path_;
};

std::string text_at(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    if (!json_is_string(value)) throw std::runtime_error(std::string(key) + " is missing");
    return std::string(json_string_value(value), json_string_length(value));
}

std::string gguf_of(const json_t *root)
{
    GgufWriter file;
    std::vector<std::string> names, merges;
    std::vector<float> scores;
    std::vector<int32_t> types;
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(root, "pieces"), i, entry)
    {
        names.push_back(text_at(entry, "piece"));
        scores.push_back(static_cast<float>(json_number_value(json_object_get(entry, "score"))));
        types.push_back(static_cast<int32_t>(json_integer_value(json_object_get(entry, "type"))));
    }
    json_array_foreach(json_object_get(root, "merges"), i, entry)
        merges.emplace_back(json_string_value(entry));
    file.text("general.architecture", "none");
    file.text("tokenizer.ggml.model", text_at(root, "model"));
    file.boolean(
        "tokenizer.ggml.add_space_prefix", json_is_true(json_object_get(root, "add_space_prefix"))
    );
    file.texts("tokenizer.ggml.tokens", names);
    file.numbers("tokenizer.ggml.scores", scores);
    file.integers("tokenizer.ggml.token_type", types);
    if (!merges.empty()) file.texts("tokenizer.ggml.merges", merges);
    return file.finish();
}

/* The tokenizer.json of a vocabulary with merges, as Gemma's. */
std::string json_of(const json_t *root)
{
    const Json vocab(json_object(), json_decref), added(json_array(), json_decref);
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(root, "pieces"), i, entry)
    {
        const std::string name = text_at(entry, "piece");
        const auto id = static_cast<json_int_t>(i);
        json_object_set_new(vocab.get(), name.c_str(), json_integer(id));
        if (json_integer_value(json_object_get(entry, "type")) == 3)
            json_array_append_new(
                added.get(), json_pack(
                                 "{s:I, s:s, s:b, s:b}", "id", id, "content", name.c_str(),
                                 "special", 1, "normalized", 0
                             )
            );
    }
    const Json out(
        json_pack(
            "{s:O, s:{s:s, s:{s:s}, s:s}, s:{s:s, s:{s:s}, s:s, s:b},"
            "s:{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]}, s:{s:s, s:b, s:b, s:s, s:O, s:O}}",
            "added_tokens", added.get(), "normalizer", "type", "Replace", "pattern", "String", " ",
            "content", "▁", "pre_tokenizer", "type", "Split", "pattern", "String", " ", "behavior",
            "MergedWithPrevious", "invert", 0, "decoder", "type", "Sequence", "decoders", "type",
            "Replace", "pattern", "String", "▁", "content", " ", "type", "ByteFallback", "type",
            "Fuse", "model", "type", "BPE", "byte_fallback", 1, "fuse_unk", 1, "unk_token", "<unk>",
            "vocab", vocab.get(), "merges", json_object_get(root, "merges")
        ),
        json_decref
    );
    char *const text = json_dumps(out.get(), JSON_COMPACT);
    if (text == nullptr) throw std::runtime_error("cannot write tokenizer.json");
    const std::string copy = text;
    free(text);
    return copy;
}

Tokenizer open_gguf(const std::string &bytes)
{
    const Scratch file("pieces.gguf", bytes);
    weir_tensor_directory *directory = nullptr;
    weir_tokenizer *tokenizer = nullptr;
    weir_error error = {};
    weir_status status = weir_tensor_directory_open(&directory, file.path(), &error);
    if (status == WEIR_OK) status = weir_tokenizer_open(&tokenizer, directory, &error);
    weir_tensor_directory_close(directory);
    if (status != WEIR_OK) throw std::runtime_error(error.text);
    return Tokenizer(tokenizer, weir_tokenizer_close);
}

Tokenizer open_json(const std::string &text)
{
    const Scratch file("tokenizer.json", text);
    weir_tokenizer *tokenizer = nullptr;
    weir_error error = {};
    if (weir_tokenizer_open_json(&tokenizer, file.path(), &error) != WEIR_OK)
        throw std::runtime_error(error.text);
    return Tokenizer(tokenizer, weir_tokenizer_close);
}

Ids encode(const weir_tokenizer *tokenizer, const std::string &text)
{
    weir_ids ids = {};
    weir_error error = {};
    const weir_encode_options options = {};
    if (weir_tokenizer_encode(tokenizer, &ids, text.data(), text.size(), &options, &error) !=
        WEIR_OK)
        throw std::runtime_error(error.text);
    Ids out(ids.data, ids.data + ids.count);
    weir_ids_free(&ids);
    return out;
}

std::string taken(weir_status status, weir_buffer *buffer)
{
    const std::string out(buffer->data == nullptr ? "" : buffer->data, buffer->size);
    weir_buffer_free(buffer);
    if (status != WEIR_OK) throw std::runtime_error("cannot decode");
    return out;
}

std::string decode(const weir_tokenizer *tokenizer, const Ids &ids)
{
    weir_buffer out = {};
    const weir_status status =
        weir_tokenizer_decode(tokenizer, &out, ids.data(), ids.size(), false);
    return taken(status, &out);
}

/* Token by token: each part is whole characters, which JSON strings are too. */
std::string stream(const weir_tokenizer *tokenizer, const Ids &ids)
{
    weir_detokenizer state = {};
    state.at_start = true;
    std::string all;
    for (const int32_t id : ids) {
        weir_buffer part = {};
        const weir_status status = weir_detokenizer_token(&state, tokenizer, &part, id, false);
        const std::string text = taken(status, &part);
        const Json whole(json_stringn(text.data(), text.size()), json_decref);
        if (whole == nullptr) throw std::runtime_error("a part of a stream is not UTF-8");
        all += text;
    }
    weir_buffer rest = {};
    const weir_status status = weir_detokenizer_finish(&state, &rest);
    return all + taken(status, &rest);
}

size_t compare(const weir_tokenizer *tokenizer, const json_t *root)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(root, "cases"), i, entry)
    {
        const std::string text = text_at(entry, "text"), want = text_at(entry, "decoded");
        const std::string place = "text " + std::to_string(i) + " '" + text.substr(0, 40) + "': ";
        Ids ids;
        size_t k;
        const json_t *id;
        json_array_foreach(json_object_get(entry, "ids"), k, id)
            ids.push_back(static_cast<int32_t>(json_integer_value(id)));
        if (encode(tokenizer, text) != ids) throw std::runtime_error(place + "other ids");
        if (decode(tokenizer, ids) != want) throw std::runtime_error(place + "decoded otherwise");
        if (stream(tokenizer, ids) != want) throw std::runtime_error(place + "streamed otherwise");
    }
    if (i == 0) throw std::runtime_error("there are no cases");
    return i;
}

void run(
    const std::string &name, const char *filter, weir_golden_counts *counts,
    const std::function<size_t()> &body
)
{
    if (name.find(filter) == std::string::npos) return;
    try {
        const size_t n = body();
        counts->records += n;
        counts->passed++;
        std::printf("ok %s (%zu records)\n", name.c_str(), n);
    } catch (const std::exception &e) {
        counts->failed++;
        std::printf("FAIL %s %s\n", name.c_str(), e.what());
    }
}

} // namespace

bool weir_golden_pieces(const char *path, const char *filter, weir_golden_counts *counts)
{
    const Json root(json_load_file(path, JSON_ALLOW_NUL, nullptr), json_decref);
    if (!json_is_array(json_object_get(root.get(), "pieces")) ||
        !json_is_array(json_object_get(root.get(), "cases")))
        return false;
    const std::string name = "tokenizers/" + std::filesystem::path(path).stem().string();
    run(name + ".gguf", filter, counts,
        [&] { return compare(open_gguf(gguf_of(root.get())).get(), root.get()); });
    if (json_is_array(json_object_get(root.get(), "merges")))
        run(name + ".json", filter, counts,
            [&] { return compare(open_json(json_of(root.get())).get(), root.get()); });
    return true;
}
