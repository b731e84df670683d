/* tests/golden/chat_realvocab.cc - chats in the templates of published models. */
#include <map>

#include "tests/golden/chat_records.h"

namespace golden_chat {

static void check_real_record(
    const weir_chat_template *chat, const json_t *record, const json_t *conversation,
    const json_t *tools
)
{
    weir_chat_input input = {};
    input.messages = json_object_get(conversation, "messages");
    input.tools = json_is_true(json_object_get(conversation, "tools")) ||
                          json_integer_value(json_object_get(conversation, "tools"))
                      ? tools
                      : nullptr;
    input.documents = json_object_get(conversation, "documents");
    input.variables = json_object_get(record, "vars");
    input.add_generation_prompt = json_is_true(json_object_get(record, "gen"));
    input.now_unix_seconds = NOW;
    const rendering got = render(chat, input);
    const json_t *refused = json_object_get(record, "err");
    if (!refused) return expect_text(got, record);
    const std::string kind = text_of(json_object_get(refused, "kind")),
                      text = text_of(json_object_get(refused, "text"));
    if (kind != "refused") {
        if (got.status != WEIR_OK && got.status != WEIR_EINVAL)
            throw failure{ "ended with " + got.error };
    } else if (got.status != WEIR_EINVAL || got.error != text) {
        throw failure{ "expected refusal '" + text + "', got '" + got.error + "'" };
    }
}

static bool run_real_template(
    const std::string &fetched, const char *filter, const std::string &name,
    const std::vector<json> &records, const std::map<std::string, const json_t *> &conversations,
    const json_t *tools, weir_golden_counts *counts
)
{
    group g("realvocab_chat/" + name, filter, counts);
    std::string text;
    if (!g.runs()) return true;
    if (fetched.empty() || !read_file(fetched + "/templates/" + name + ".jinja", &text)) {
        g.skip("the template was not fetched");
        return g.finish();
    }
    chat_ptr chat(nullptr, weir_chat_template_close);
    g.record([&] { chat = open_template(text); });
    for (const json &record : records) {
        if (!chat || text_of(json_object_get(record.get(), "t")) != name) continue;
        const auto found = conversations.find(text_of(json_object_get(record.get(), "c")));
        g.record([&] {
            if (found == conversations.end()) throw failure{ "no such conversation" };
            check_real_record(chat.get(), record.get(), found->second, tools);
        });
    }
    return g.finish();
}

} // namespace golden_chat

using namespace golden_chat;

int weir_golden_realvocab_chat(
    const char *dir, const char *fetched, const char *filter, weir_golden_counts *counts
)
try {
    const std::string folder = dir;
    const std::vector<json> records = read_records(folder + "/rendered.jsonl");
    std::string text;
    if (!read_file(folder + "/conversations.json", &text))
        throw failure{ "cannot read conversations.json" };
    const json all = parse(text, "conversations.json");
    std::map<std::string, const json_t *> conversations;
    const json_t *list = json_object_get(all.get(), "conversations");
    for (size_t i = 0; i < json_array_size(list); i++)
        conversations[text_of(json_object_get(json_array_get(list, i), "name"))] =
            json_array_get(list, i);
    bool ok = true;
    std::string last;
    for (const json &record : records) { /* records of a template stand together */
        const std::string name = text_of(json_object_get(record.get(), "t"));
        if (name != last)
            ok = run_real_template(
                     fetched ? fetched : "", filter, name, records, conversations,
                     json_object_get(all.get(), "tools"), counts
                 ) &&
                 ok;
        last = name;
    }
    return ok ? 0 : 1;
} catch (const failure &f) {
    return report("realvocab_chat", f.text, counts);
} catch (const std::exception &e) {
    return report("realvocab_chat", e.what(), counts);
}
