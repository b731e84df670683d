#include "tests/golden/chat_records.h"

#include <fstream>
#include <sstream>

namespace golden_chat {

bool read_file(const std::string &path, std::string *out)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    *out = all.str();
    return in.good();
}

json parse(const std::string &text, const std::string &what)
{
    json value(json_loadb(text.data(), text.size(), JSON_ALLOW_NUL, nullptr), json_decref);
    if (!value) throw failure{ what + " is not JSON" };
    return value;
}

std::vector<json> read_records(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    if (!in) throw failure{ "cannot read " + path };
    std::vector<json> records;
    for (std::string line; std::getline(in, line);) records.push_back(parse(line, path));
    if (records.empty()) throw failure{ path + " is empty" };
    return records;
}

std::string text_of(const json_t *value)
{
    return json_is_string(value) ? std::string(json_string_value(value), json_string_length(value))
                                 : std::string();
}

rendering render(const weir_chat_template *chat, const weir_chat_input &input)
{
    rendering out;
    weir_error error = {};
    weir_chat_output output = {};
    out.status = weir_chat_render(chat, &output, &input, &error);
    if (out.status != WEIR_OK) {
        out.error = error.text;
        return out;
    }
    out.text.assign(output.text.data ? output.text.data : "", output.text.size);
    out.user.assign(output.user, output.user + output.n_user);
    weir_chat_output_free(&output);
    return out;
}

chat_ptr open_template(const std::string &text)
{
    weir_error error = {};
    weir_chat_template *chat = nullptr;
    if (weir_chat_template_open(&chat, text.data(), text.size(), &error) != WEIR_OK)
        throw failure{ error.text };
    return chat_ptr(chat, weir_chat_template_close);
}

static void expect_spans_in_order(const rendering &got)
{
    size_t end = 0;
    for (const weir_span &span : got.user) {
        if (span.begin >= span.end || span.end > got.text.size() || (end > 0 && span.begin <= end))
            throw failure{ "the user's ranges are not ascending and disjoint" };
        end = span.end;
    }
}

void expect_text(const rendering &got, const json_t *record)
{
    const std::string want = text_of(json_object_get(record, "out"));
    if (got.status != WEIR_OK) throw failure{ "refused: " + got.error };
    size_t same = 0;
    while (same < want.size() && same < got.text.size() && want[same] == got.text[same]) same++;
    if (got.text != want)
        throw failure{ "text differs at byte " + std::to_string(same) + ": '" +
                       got.text.substr(same, 60) + "', expected '" + want.substr(same, 60) + "'" };
    expect_spans_in_order(got);
}

int report(const char *what, const std::string &why, weir_golden_counts *counts)
{
    std::printf("FAIL %s %s\n", what, why.c_str());
    counts->failed++;
    return 1;
}

} // namespace golden_chat
