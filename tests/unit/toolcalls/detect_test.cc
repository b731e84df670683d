// The format of a chat template, by what it prints.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "engine/toolcalls/detect.h"

namespace {

std::string detect(const std::string &source)
{
    weir_error error = {};
    weir_chat_template *chat = nullptr;
    const weir_chat_format *format = nullptr;
    EXPECT_EQ(WEIR_OK, weir_chat_template_open(&chat, source.data(), source.size(), &error))
        << error.text;
    EXPECT_EQ(WEIR_OK, weir_chat_format_detect(&format, chat, "<s>", "</s>"));
    weir_chat_template_close(chat);
    return format != nullptr ? format->name : "none";
}

std::string file(const std::string &name)
{
    std::ifstream stream("tests/golden/text/templates/" + name);
    std::stringstream text;
    text << stream.rdbuf();
    EXPECT_GT(text.str().size(), 100u) << name;
    return text.str();
}

TEST(Detect, PublishedTemplates)
{
    const struct {
        const char *name, *format;
    } cases[] = {
        { "Qwen-Qwen2.5-7B-Instruct.jinja", "hermes" },
        { "Qwen-Qwen3-0.6B.jinja", "hermes" },
        { "Qwen3-Coder.jinja", "qwen3_coder" },
        { "Qwen3.5-4B.jinja", "qwen3_coder" },
        { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek_v3" },
        { "deepseek-ai-DeepSeek-V3.1.jinja", "deepseek_v31" },
        { "mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral" },
    };
    for (const auto &c : cases) EXPECT_EQ(c.format, detect(file(c.name))) << c.name;
}

/* A template that prints `call` for the call of a message. */
std::string printing(const std::string &call)
{
    return "{% for m in messages %}[{{ m.role }}]\n{% if m.tool_calls %}{% for c in m.tool_calls "
           "%}{% set f = c.function %}" +
           call + "{% endfor %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}";
}

TEST(Detect, WhatIsPrinted)
{
    const struct {
        const char *call, *format;
    } cases[] = {
        { "<|tool_call>call:{{ f.name }}{probe_key:<|\"|>probe value<|\"|>}<tool_call|>",
          "gemma4" },
        { "<seed:tool_call>\n<function={{ f.name }}>\n<parameter=probe_key>probe value</parameter>"
          "\n</function>\n</seed:tool_call>",
          "seed_oss" },
        { "{\"name\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}",
          "llama3_json" },
        { "[{{ f.name }}(probe_key=\"probe value\")]", "pythonic" },
        { "<|tool_call_start|>[{{ f.name }}(probe_key=\"probe value\")]<|tool_call_end|>", "lfm2" },
        { "<TOOLCALL>[{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}]"
          "</TOOLCALL>",
          "nemotron" },
        { "<tool_call>{{ f.name }}\n<arg_key>probe_key</arg_key>\n<arg_value>probe value"
          "</arg_value>\n</tool_call>",
          "glm" },
        { "<tool_call>{{ f.name }}<arg_key>probe_key</arg_key><arg_value>probe value</arg_value>"
          "</tool_call>",
          "glm47" },
        { "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}", "mistral_v11" },
        { "calls {{ f.name }}", "none" },
    };
    for (const auto &c : cases) EXPECT_EQ(c.format, detect(printing(c.call))) << c.call;
}

TEST(Detect, ArgumentsAsTextAndAnAnswerThatMustFollow)
{
    const std::string call = "<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": {{ "
                             "f.arguments }}}\n</tool_call>";
    EXPECT_EQ("hermes", detect(printing(call)));
    EXPECT_EQ(
        "hermes", detect(
                      "{% if messages[-1].role == 'assistant' %}{{ raise_exception('no') }}{% "
                      "endif %}" +
                      printing(call)
                  )
    );
}

TEST(Detect, WhatTheModelIsTold)
{
    const std::string told = "{% if tools %}Answer with <|tool_call|> and a list.{% endif %}"
                             "{{ messages[0].content }}";
    EXPECT_EQ("granite", detect(told));
    EXPECT_EQ("none", detect("Say <|tool_call|>. {{ messages[0].content }}"));
    EXPECT_EQ("none", detect("{{ raise_exception('never') }}"));
}

} // namespace
