// Tokenizers and chat templates: from files to text.
#include <gtest/gtest.h>
#include <jansson.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/formats/tensor_directory.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"
#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"

namespace {

/* What came out, in memory that was there before. */
struct Seen {
    std::string text, expected;
    Seen() { text.reserve(1 << 16); }
    void add(const void *bytes, size_t n) { text.append(static_cast<const char *>(bytes), n); }
};

fault::Operation seeing(std::shared_ptr<Seen> seen, std::function<weir_status(weir_error *)> run)
{
    fault::Operation out;
    out.run = run;
    out.prepare = [seen] { seen->text.clear(); };
    out.check = [seen](weir_status status) {
        if (status != WEIR_OK) return;
        if (seen->expected.empty()) seen->expected = seen->text;
        EXPECT_FALSE(seen->text.empty());
        EXPECT_TRUE(seen->text == seen->expected) << "a fault changed what was read:\n"
                                                  << seen->text.substr(0, 200);
    };
    return out;
}

/* Text to ids and back. */
weir_status use(Seen *seen, const weir_tokenizer *tokenizer, weir_error *error)
{
    static const char text[] = "The weir's 3 gates: caf\xc3\xa9 <|x|> \xe4\xbd\xa0 \xff  end\n";
    weir_encode_options options = {};
    options.add_special = options.parse_special = true;
    weir_ids ids = {};
    weir_buffer back = {};
    size_t n_stops;
    weir_status status =
        weir_tokenizer_encode(tokenizer, &ids, text, sizeof text - 1, &options, error);
    if (status == WEIR_OK) {
        seen->add(ids.data, ids.count * sizeof *ids.data);
        status = weir_tokenizer_decode(tokenizer, &back, ids.data, ids.count, false);
        if (status != WEIR_OK) status = weir_error_set(error, status, "cannot decode");
    }
    if (status == WEIR_OK) {
        seen->add(back.data, back.size);
        const char *const chat = weir_tokenizer_chat_template(tokenizer);
        if (chat != nullptr) seen->add(chat, strlen(chat));
        const int32_t *const stops = weir_tokenizer_stop_ids(tokenizer, &n_stops);
        seen->add(stops, n_stops * sizeof *stops);
    }
    weir_ids_free(&ids);
    weir_buffer_free(&back);
    return status;
}

weir_status use_file(Seen *seen, const std::string &path, weir_error *error)
{
    weir_tensor_directory *directory = nullptr;
    weir_tokenizer *tokenizer = nullptr;
    WEIR_TRY(weir_tensor_directory_open(&directory, path.c_str(), error));
    weir_status status = weir_tokenizer_open(&tokenizer, directory, error);
    if (status == WEIR_OK) status = use(seen, tokenizer, error);
    weir_tokenizer_close(tokenizer);
    weir_tensor_directory_close(directory);
    return status;
}

/* The character that stands for a byte in a byte-level vocabulary. */
std::string byte_name(unsigned byte)
{
    const bool prints = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const unsigned code = prints        ? byte
                          : byte <= 32  ? 0x100 + byte
                          : byte <= 160 ? 0x121 + byte - 127
                                        : 0x143;
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return { static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F)) };
}

/* The 256 bytes, then what merges make. */
std::string json_vocabulary()
{
    std::string vocabulary;
    for (unsigned byte = 0; byte < 256; byte++) {
        const std::string name = byte_name(byte), escape = name == "\"" || name == "\\" ? "\\" : "";
        vocabulary += "\"" + escape + name + "\":" + std::to_string(byte) + ",";
    }
    return R"({"added_tokens":[{"id":300,"content":"<|x|>","special":true},)"
           R"({"id":301,"content":"GATES","normalized":true,"single_word":true}],)"
           R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Nmt"},{"type":"NFKC"},)"
           R"({"type":"Lowercase"}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
           R"({"type":"Split","pattern":{"Regex":"\\p{L}+| ?[^\\s\\p{L}]+|\\s+"},)"
           R"("behavior":"Isolated","invert":false},)"
           R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
           R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
           vocabulary + R"("he":256,"The":257},"merges":["h e",["T","he"]]}})";
}

class Tokenizer : public ::testing::Test {
  protected:
    std::string folder_ = std::string(getenv("TEST_TMPDIR")) + "/tokenizer";
};

TEST_F(Tokenizer, FromJson)
{
    fault::make_folder(
        folder_,
        { { "tokenizer.json", json_vocabulary() },
          { "tokenizer_config.json",
            R"({"eos_token":"<|x|>","bos_token":{"content":"w"},"chat_template":"{{ a }}"})" },
          { "chat_template.jinja", "{{ messages }}" },
          { "generation_config.json", R"({"eos_token_id":[40,3]})" },
          { "config.json", R"({"eos_token_id":4})" } }
    );
    const std::string path = folder_ + "/tokenizer.json";
    const auto seen = std::make_shared<Seen>();
    const auto operation = seeing(seen, [=](weir_error *error) {
        weir_tokenizer *tokenizer = nullptr;
        WEIR_TRY(weir_tokenizer_open_json(&tokenizer, path.c_str(), error));
        const weir_status status = use(seen.get(), tokenizer, error);
        weir_tokenizer_close(tokenizer);
        return status;
    });
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

template <typename Number> std::string little(Number n)
{
    return std::string(reinterpret_cast<const char *>(&n), sizeof n);
}
std::string text_of(const std::string &bytes) { return little<uint64_t>(bytes.size()) + bytes; }
std::string list_of(const std::vector<std::string> &texts)
{
    std::string out = little<uint32_t>(8) + little<uint64_t>(texts.size());
    for (const std::string &text : texts) out += text_of(text);
    return out;
}

/* The keys of a vocabulary, without tensors. */
/* Names of keys, and their types and values. */
using Keys = std::vector<std::pair<std::string, std::string>>;

std::string gguf_of(const Keys &keys)
{
    std::string bytes =
        "GGUF" + little<uint32_t>(3) + little<uint64_t>(0) + little<uint64_t>(keys.size());
    for (const auto &[key, value] : keys) bytes += text_of(key) + value;
    bytes.resize((bytes.size() + 31) / 32 * 32);
    return bytes;
}

std::string gguf_vocabulary()
{
    std::vector<std::string> tokens = { "<|x|>", "he", "The" };
    for (unsigned byte = 0; byte < 256; byte++) tokens.push_back(byte_name(byte));
    std::string types = little<uint32_t>(5) + little<uint64_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); i++) types += little<int32_t>(i == 0 ? 3 : 1);
    const Keys keys = {
        { "general.architecture", little<uint32_t>(8) + text_of("qwen3") },
        { "tokenizer.ggml.model", little<uint32_t>(8) + text_of("gpt2") },
        { "tokenizer.ggml.pre", little<uint32_t>(8) + text_of("qwen2") },
        { "tokenizer.ggml.tokens", little<uint32_t>(9) + list_of(tokens) },
        { "tokenizer.ggml.token_type", little<uint32_t>(9) + types },
        { "tokenizer.ggml.merges", little<uint32_t>(9) + list_of({ "h e", "T he" }) },
        { "tokenizer.ggml.eos_token_id", little<uint32_t>(4) + little<uint32_t>(0) },
        { "tokenizer.chat_template", little<uint32_t>(8) + text_of("{{ messages }}") },
    };
    return gguf_of(keys);
}

TEST_F(Tokenizer, FromGguf)
{
    fault::make_folder(folder_, { { "a.gguf", gguf_vocabulary() } });
    const std::string path = folder_ + "/a.gguf";
    const auto seen = std::make_shared<Seen>();
    const auto operation =
        seeing(seen, [=](weir_error *error) { return use_file(seen.get(), path, error); });
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

/* A charsmap with one key, "3", which becomes "ab". */
std::string charsmap()
{
    std::vector<uint32_t> units(768, 0);
    units[0] = 256U << 10;
    units[256 ^ '3'] = ((256U ^ '3') ^ 512U) << 10 | 1U << 8 | '3';
    units[512] = 1U << 31;
    std::string out = little<uint32_t>(static_cast<uint32_t>(4 * units.size()));
    for (const uint32_t unit : units) out += little(unit);
    return out + std::string("ab\0", 3);
}

std::string gguf_pieces(const char *model)
{
    std::vector<std::string> tokens = { "<unk>", "<|x|>", "  ", "T", "h",  "e",
                                        "Th",    "The",   "a",  "b", "ab", "\xE2\x96\x81" };
    std::vector<int32_t> kinds = { 2, 3, 4, 1, 1, 1, 5, 1, 1, 1, 1, 1 };
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        tokens.emplace_back(name);
        kinds.push_back(6);
    }
    std::string types = little<uint32_t>(5) + little<uint64_t>(tokens.size()), scores, map;
    for (const int32_t kind : kinds) types += little(kind);
    scores = little<uint32_t>(6) + little<uint64_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); i++) scores += little(-static_cast<float>(i % 7));
    map = little<uint32_t>(0) + little<uint64_t>(charsmap().size()) + charsmap();
    const Keys keys = {
        { "general.architecture", little<uint32_t>(8) + text_of("llama") },
        { "tokenizer.ggml.model", little<uint32_t>(8) + text_of(model) },
        { "tokenizer.ggml.tokens", little<uint32_t>(9) + list_of(tokens) },
        { "tokenizer.ggml.scores", little<uint32_t>(9) + scores },
        { "tokenizer.ggml.token_type", little<uint32_t>(9) + types },
        { "tokenizer.ggml.precompiled_charsmap", little<uint32_t>(9) + map },
        { "tokenizer.ggml.merges", little<uint32_t>(9) + list_of({ "T h", "Th e" }) },
        { "tokenizer.ggml.eos_token_id", little<uint32_t>(4) + little<uint32_t>(1) },
        { "tokenizer.chat_template", little<uint32_t>(8) + text_of("{{ messages }}") },
    };
    return gguf_of(keys);
}

class Pieces : public ::testing::TestWithParam<const char *> {};

TEST_P(Pieces, FromGguf)
{
    const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/pieces";
    fault::make_folder(folder, { { "a.gguf", gguf_pieces(GetParam()) } });
    const std::string path = folder + "/a.gguf";
    const auto seen = std::make_shared<Seen>();
    fault::every_allocation(seeing(seen, [=](weir_error *error) {
        return use_file(seen.get(), path, error);
    }));
}

INSTANTIATE_TEST_SUITE_P(Models, Pieces, ::testing::Values("llama", "t5", "gemma4"));

const char unigram[] =
    R"({"added_tokens":[{"id":5,"content":"<|x|>","special":true,"normalized":true}],)"
    R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Precompiled",)"
    R"("precompiled_charsmap":"BAAAAAAAAABhAA=="},{"type":"NFC"},{"type":"Strip",)"
    R"("strip_left":true,"strip_right":true},{"type":"Replace","pattern":{"Regex":" {2,}"},)"
    R"("content":" "}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
    R"({"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"\u2581"}]},)"
    R"("decoder":{"type":"Metaspace","replacement":"\u2581"},"model":{"type":"Unigram",)"
    R"("unk_id":0,"vocab":[["<unk>",0],["\u2581",-2],["e",-3],["\u2581The",-1],["gat",-2]]}})";

TEST_F(Tokenizer, UnigramFromJson)
{
    fault::make_folder(folder_, { { "tokenizer.json", unigram } });
    const std::string path = folder_ + "/tokenizer.json";
    const auto seen = std::make_shared<Seen>();
    fault::every_allocation(seeing(seen, [=](weir_error *error) {
        weir_tokenizer *tokenizer = nullptr;
        WEIR_TRY(weir_tokenizer_open_json(&tokenizer, path.c_str(), error));
        const weir_status status = use(seen.get(), tokenizer, error);
        weir_tokenizer_close(tokenizer);
        return status;
    }));
}

/* ---- chat templates -------------------------------------------------------------------------- */
const char conversation[] =
    R"([{"role":"system","content":" Be brief.\n"},{"role":"user","content":"Grüße <|im_end|>"},)"
    R"({"role":"assistant","content":"b","tool_calls":[{"id":"c1","type":"function","function":)"
    R"({"name":"f","arguments":{"x":1.5,"y":[true,null,"z'\""]}}}]},)"
    R"({"role":"tool","tool_call_id":"c1","content":"{\"a\": [1, 2]}"},)"
    R"({"role":"user","content":"more"}])";
const char tools[] = R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
                     R"({"type":"object","properties":{"x":{"type":"number"}}}}}])";

class Chat : public ::testing::TestWithParam<const char *> {
  protected:
    Chat()
    {
        text_ = fault::files_of("tests/golden/text/templates").at(GetParam());
        messages_ = json_loads(conversation, 0, nullptr);
        tools_ = json_loads(tools, 0, nullptr);
        seen_->text.reserve(1 << 16);
        operation_ = seeing(seen_, [this](weir_error *error) { return render(error); });
    }
    ~Chat() override
    {
        json_decref(messages_);
        json_decref(tools_);
    }
    weir_status render(weir_error *error)
    {
        weir_memory_tracker *const before =
            is_paid_ ? weir_memory_tracker_set(fault_tracker()) : nullptr;
        weir_chat_template *chat = nullptr;
        weir_chat_output output = {};
        weir_chat_input input = {};
        input.messages = messages_;
        input.tools = tools_;
        input.bos_token = "<s>", input.eos_token = "</s>";
        input.add_generation_prompt = true;
        weir_status status = weir_chat_template_open(&chat, text_.data(), text_.size(), error);
        if (status == WEIR_OK) status = weir_chat_render(chat, &output, &input, error);
        if (status == WEIR_OK) {
            seen_->add(output.text.data, output.text.size);
            seen_->add(output.user, output.n_user * sizeof *output.user);
        }
        weir_chat_output_free(&output);
        weir_chat_template_close(chat);
        if (is_paid_) (void)weir_memory_tracker_set(before);
        return status;
    }
    std::string text_;
    json_t *messages_, *tools_;
    bool is_paid_ = false;
    std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
    fault::Operation operation_;
};

TEST_P(Chat, Renders)
{
    fault::every_allocation(operation_);
    is_paid_ = true;
    fault::every_charge(operation_);
}

INSTANTIATE_TEST_SUITE_P(
    Templates, Chat,
    ::testing::Values("Qwen3.5-4B.jinja", "Qwen3-Coder.jinja", "deepseek-ai-DeepSeek-V3.1.jinja")
);

} // namespace
