/* tests/golden/chat_golden.cc - comparison of rendered chats with JSON lines files: text, refusals,
 * ranges of a user's text, ids. */
#include "tests/golden/chat_golden.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "engine/text/tokenizer.h"
#include "tests/golden/chat_records.h"

using namespace golden_chat;

namespace {

using tokenizer_ptr = std::unique_ptr<weir_tokenizer, decltype(&weir_tokenizer_close)>;

struct family {
    const char *name, *file, *flavour, *bos, *eos;
};

#define DS_BEGIN                                                                                   \
    "<\xef\xbd\x9c"                                                                                \
    "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"
#define DS_END                                                                                     \
    "<\xef\xbd\x9c"                                                                                \
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"
const family families[] = {
    { "qwen35", "Qwen3.5-4B.jinja", "qwen35", "", "<|im_end|>" },
    { "qwen35-small", "Qwen3.5-4B.jinja", "qwen35", "", "<|im_end|>" },
    { "qwen3", "Qwen-Qwen3-0.6B.jinja", "qwen2", "", "<|im_end|>" },
    { "qwen2.5", "Qwen-Qwen2.5-7B-Instruct.jinja", "qwen2", "", "<|im_end|>" },
    { "qwen3-coder", "Qwen3-Coder.jinja", "qwen2", "", "<|im_end|>" },
    { "llama3.1", "meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3", "<|begin_of_text|>",
      "<|eot_id|>" },
    { "llama3.2", "meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3", "<|begin_of_text|>",
      "<|eot_id|>" },
    { "deepseek-v3.1", "deepseek-ai-DeepSeek-V3.1.jinja", "deepseek3", DS_BEGIN, DS_END },
    { "deepseek-r1-distill-qwen", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek3",
      DS_BEGIN, DS_END },
    { "kimi-k2", "Kimi-K2-Instruct.jinja", nullptr, "[BOS]", "<|im_end|>" },
    { "mistral-nemo", "mistralai-Mistral-Nemo-Instruct-2407.jinja", nullptr, "<s>", "</s>" },
};

/* The template of the 0.8B and 2B models: a closed think block unless enable_thinking is true. */
void make_small(std::string *text)
{
    const std::string was = "{%- if enable_thinking is defined and enable_thinking is false %}\n   "
                            "     {{- '<think>\\n\\n</think>\\n\\n' }}\n"
                            "    {%- else %}\n        {{- '<think>\\n' }}";
    const std::string now = "{%- if enable_thinking is defined and enable_thinking is true %}\n    "
                            "    {{- '<think>\\n' }}\n"
                            "    {%- else %}\n        {{- '<think>\\n\\n</think>\\n\\n' }}";
    const size_t at = text->find(was);
    if (at == std::string::npos) throw failure{ "the template has no think block to change" };
    text->replace(at, was.size(), now);
}

/* Byte offset of a code point. */
size_t byte_of(const std::string &text, json_int_t code_point)
{
    size_t at = 0;
    for (; code_point > 0 && at < text.size(); code_point--) do
            at++;
        while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
    return at;
}

/* Each expected range lies in one of those that were reported. */
void expect_ranges(const rendering &got, const json_t *ranges)
{
    for (size_t i = 0; i < json_array_size(ranges); i++) {
        const json_t *range = json_array_get(ranges, i);
        const size_t begin = byte_of(got.text, json_integer_value(json_array_get(range, 0))),
                     end = byte_of(got.text, json_integer_value(json_array_get(range, 1)));
        bool inside = false;
        for (const weir_span &span : got.user)
            inside = inside || (span.begin <= begin && end <= span.end);
        if (!inside)
            throw failure{ "bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                           " are not reported as a user's" };
    }
}

std::vector<int32_t> encode(
    const weir_tokenizer *tokenizer, const std::string &text, const std::vector<weir_span> &plain
)
{
    weir_ids ids = {};
    weir_error error = {};
    weir_encode_options options = {};
    options.parse_special = true;
    options.plain = plain.data();
    options.n_plain = plain.size();
    if (weir_tokenizer_encode(tokenizer, &ids, text.data(), text.size(), &options, &error) !=
        WEIR_OK)
        throw failure{ error.text };
    const std::vector<int32_t> out(ids.data, ids.data + ids.count);
    weir_ids_free(&ids);
    return out;
}

std::vector<int32_t> ids_of(const json_t *array)
{
    std::vector<int32_t> ids;
    for (size_t i = 0; i < json_array_size(array); i++)
        ids.push_back(static_cast<int32_t>(json_integer_value(json_array_get(array, i))));
    return ids;
}

/* A message that holds an added token's text: its ids are those of `ids_safe`, never those of
 * `ids`. */
bool user_text_holds_token(const weir_tokenizer *tokenizer, const rendering &got)
{
    for (const weir_span &span : got.user) {
        const std::string text = got.text.substr(span.begin, span.end - span.begin);
        if (encode(tokenizer, text, {}) != encode(tokenizer, text, { weir_span{ 0, text.size() } }))
            return true;
    }
    return false;
}

/* The goldens' ranges were found by searching: there are none where the template writes a text as
 * JSON, and these ids match tokens in it. Ours must not. */
void expect_safe_ids(const weir_tokenizer *tokenizer, const rendering &got, const json_t *record)
{
    const bool same =
        encode(tokenizer, got.text, got.user) == ids_of(json_object_get(record, "ids_safe"));
    const bool want_same = json_array_size(json_object_get(record, "user_ranges")) > 0;
    if (same != want_same)
        throw failure{ want_same ? "ids_safe differ"
                                 : "a token in a message written as JSON was matched" };
}

void check_text_record(
    const weir_chat_template *chat, const family &f, const weir_tokenizer *tokenizer,
    const json_t *record, const json_t *messages, const json_t *tools, bool ids
)
{
    const json variables(json_object(), json_decref);
    if (const json_t *think = json_object_get(record, "think"))
        json_object_set_new(
            variables.get(), "enable_thinking", json_boolean(json_integer_value(think))
        );
    if (std::strncmp(f.name, "llama3", 6) == 0)
        json_object_set_new(variables.get(), "date_string", json_string("26 Jul 2024"));
    weir_chat_input input = {};
    input.messages = messages;
    input.tools = json_integer_value(json_object_get(record, "tools")) ? tools : nullptr;
    input.variables = variables.get();
    input.bos_token = f.bos;
    input.eos_token = f.eos;
    input.add_generation_prompt = json_integer_value(json_object_get(record, "gen"));
    input.continue_final_message = json_integer_value(json_object_get(record, "cont"));
    input.now_unix_seconds = NOW;
    const rendering got = render(chat, input);
    if (const json_t *refused = json_object_get(record, "err")) {
        if (got.status != WEIR_EINVAL || got.error != text_of(refused))
            throw failure{ "expected refusal '" + text_of(refused) + "', got '" + got.error + "'" };
        return;
    }
    expect_text(got, record);
    if (!ids) return;
    const json_t *plain = json_object_get(record, "ids");
    expect_ranges(got, json_object_get(record, "user_ranges"));
    if (json_object_get(record, "ids_safe")) expect_safe_ids(tokenizer, got, record);
    if (plain && !user_text_holds_token(tokenizer, got) &&
        encode(tokenizer, got.text, got.user) != ids_of(plain))
        throw failure{ "ids differ" };
}

tokenizer_ptr open_tokenizer(const std::string &dir, const char *flavour)
{
    weir_tokenizer *tokenizer = nullptr;
    weir_error error = {};
    if (flavour && weir_tokenizer_open_json(
                       &tokenizer, (dir + "/tok/" + flavour + ".tokenizer.json").c_str(), &error
                   ) != WEIR_OK)
        throw failure{ error.text };
    return tokenizer_ptr(tokenizer, weir_tokenizer_close);
}

bool family_template(
    const std::string &dir, const char *fetched, const family &f, std::string *text
)
{
    const bool there = read_file(dir + "/templates/" + f.file, text) ||
                       (fetched && read_file(std::string(fetched) + "/templates/" + f.file, text));
    if (there && std::strcmp(f.name, "qwen35-small") == 0) make_small(text);
    return there;
}

bool run_family(
    const std::string &dir, const char *fetched, const char *filter, const family &f,
    const std::vector<json> &records, const std::map<std::string, const json_t *> &conversations,
    const json_t *tools, weir_golden_counts *counts
)
{
    group text_group(std::string("chat/") + f.name, filter, counts),
        ids_group(std::string("chat_ids/") + f.name, filter, counts);
    std::string text;
    if (!text_group.runs() && !ids_group.runs()) return true;
    if (!family_template(dir, fetched, f, &text)) {
        text_group.skip(std::string("no template ") + f.file);
        return text_group.finish();
    }
    chat_ptr chat(nullptr, weir_chat_template_close);
    tokenizer_ptr tokenizer(nullptr, weir_tokenizer_close);
    try {
        chat = open_template(text);
        tokenizer = open_tokenizer(dir, f.flavour);
    } catch (const failure &why) {
        text_group.record([&] { throw why; });
        return text_group.finish();
    }
    for (const json &record : records) {
        if (text_of(json_object_get(record.get(), "t")) != f.name) continue;
        const std::string name = text_of(json_object_get(record.get(), "conv"));
        const auto found = conversations.find(name);
        const bool has_ids = tokenizer && (json_object_get(record.get(), "ids") ||
                                           json_object_get(record.get(), "ids_safe"));
        for (const bool ids : { false, true }) {
            group &g = ids ? ids_group : text_group;
            if (!g.runs() || (ids && !has_ids)) continue;
            g.record([&] {
                if (found == conversations.end()) throw failure{ "no conversation " + name };
                check_text_record(
                    chat.get(), f, tokenizer.get(), record.get(), found->second, tools, ids
                );
            });
        }
    }
    const bool ok = text_group.finish();
    return ids_group.finish() && ok;
}

/* Records of templates that are none of the families, a line for each. */
void skip_strangers(
    const std::vector<json> &records, const char *filter, weir_golden_counts *counts
)
{
    std::set<std::string> strangers;
    for (const json &record : records)
        strangers.insert(text_of(json_object_get(record.get(), "t")));
    for (const family &f : families) strangers.erase(f.name);
    for (const std::string &name : strangers) {
        group g("chat/" + name, filter, counts);
        g.skip("no family of templates of this name is known");
        g.finish();
    }
}

} // namespace

int weir_golden_chat(
    const char *dir, const char *fetched, const char *filter, weir_golden_counts *counts
)
try {
    const std::string folder = dir;
    if (std::filesystem::exists(folder) &&
        !std::filesystem::exists(folder + "/chat_rendered.jsonl")) {
        group g("chat", filter, counts);
        g.skip("there is no chat_rendered.jsonl");
        return g.finish() ? 0 : 1;
    }
    const std::vector<json> records = read_records(folder + "/chat_rendered.jsonl"),
                            messages = read_records(folder + "/chat_messages.jsonl");
    std::string text;
    if (!read_file(folder + "/chat_tools.json", &text))
        throw failure{ "cannot read chat_tools.json" };
    const json tools = parse(text, "chat_tools.json");
    std::map<std::string, const json_t *> conversations;
    for (const json &m : messages)
        conversations[text_of(json_object_get(m.get(), "conv"))] =
            json_object_get(m.get(), "messages");
    bool ok = true;
    for (const family &f : families)
        ok = run_family(folder, fetched, filter, f, records, conversations, tools.get(), counts) &&
             ok;
    skip_strangers(records, filter, counts);
    return ok ? 0 : 1;
} catch (const failure &f) {
    return report("chat", f.text, counts);
} catch (const std::exception &e) {
    return report("chat", e.what(), counts);
}
