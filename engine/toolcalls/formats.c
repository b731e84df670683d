/* engine/toolcalls/formats.c - the table of formats. Source: what the chat templates of the
 * checkpoints print. Names are those of vLLM's parsers. */
#include <string.h>

#include "engine/toolcalls/format.h"

/* clang-format off */
#define TEXT(t) { WEIR_FORMAT_TEXT, (t), 0, 0 }
#define SPACE { WEIR_FORMAT_SPACE, NULL, 0, 0 }
#define IF(t, n) { WEIR_FORMAT_IF, (t), (n), 0 }
#define PEEK(t, n) { WEIR_FORMAT_PEEK, (t), (n), 0 }
#define JUMP(n) { WEIR_FORMAT_JUMP, NULL, (n), 0 }
#define NAME(t) { WEIR_FORMAT_NAME, (t), 0, 0 }
#define ID(t) { WEIR_FORMAT_ID, (t), 0, 0 }
#define ID_NAME(t) { WEIR_FORMAT_ID_NAME, (t), 0, 0 }
#define KEY(t) { WEIR_FORMAT_KEY, (t), 0, 0 }
#define VALUE(t, type) { WEIR_FORMAT_VALUE, (t), 0, (type) }
#define ARGUMENTS(dialect) { WEIR_FORMAT_ARGUMENTS, NULL, 0, (dialect) }
#define COMMIT { WEIR_FORMAT_COMMIT, NULL, 0, 0 }
#define END { WEIR_FORMAT_END, NULL, 0, 0 }

/* {"name": "f", "arguments": {...}}: 12 steps. */
#define JSON_CALL                                                                              \
    TEXT("{"), SPACE, { WEIR_FORMAT_MEMBER_KEY, NULL, 0, 0 }, SPACE, TEXT(":"), SPACE,           \
    { WEIR_FORMAT_MEMBER, NULL, 0, 0 }, SPACE, IF(",", 2), JUMP(-8), TEXT("}"), COMMIT
/* One, or a list of them: 32 steps. */
#define JSON_CALLS                                                                             \
    PEEK("[", 20), TEXT("["), SPACE, JSON_CALL, SPACE, IF(",", 2), JUMP(-15), TEXT("]"),       \
    JUMP(13), JSON_CALL
/* The parameters of Qwen3-Coder: 6 steps. */
#define PARAMETERS(type)                                                                       \
    SPACE, IF("<parameter=", 4), KEY(">"), VALUE("</parameter>", (type)), JUMP(-4), SPACE

/* <tool_call>{...}</tool_call>, and Qwen3-Coder's form between the same tags, which may miss. */
enum { TAGGED_FUNCTION = 18 };
static const weir_format_step tagged[] = {
    SPACE, PEEK("{", 16), JSON_CALL, SPACE, TEXT("</tool_call>"), END, /* 0 to 16 */
    TEXT("<function="),
    NAME(">"), PARAMETERS(WEIR_TYPE_DECLARED_LINES), TEXT("</function>"), COMMIT,
    SPACE, IF("</tool_call>", 1), END,
};

static const weir_format_step seed[] = {
    SPACE, TEXT("<function="), NAME(">"), PARAMETERS(WEIR_TYPE_DECLARED), TEXT("</function>"),
    COMMIT, SPACE, TEXT("</seed:tool_call>"), END,
};

static const weir_format_step glm[] = {
    SPACE, NAME(NULL),
    SPACE, IF("<arg_key>", 6), KEY("</arg_key>"), SPACE, TEXT("<arg_value>"),
    VALUE("</arg_value>", WEIR_TYPE_DECLARED), JUMP(-6),
    TEXT("</tool_call>"), COMMIT, END,
};

static const weir_format_step minimax[] = {
    SPACE, IF("<invoke name=\"", 10), NAME("\">"),
    SPACE, IF("<parameter name=\"", 4), KEY("\">"), VALUE("</parameter>", WEIR_TYPE_DECLARED),
    JUMP(-4), TEXT("</invoke>"), COMMIT, JUMP(-10),
    TEXT("</minimax:tool_call>"), END,
};

/* Objects one after the other. */
static const weir_format_step minimax_m1[] = {
    SPACE, PEEK("{", 14), JSON_CALL, JUMP(-14), TEXT("</tool_calls>"), END,
};

#define DSML "\uFF5CDSML\uFF5C"
static const weir_format_step dsml[] = {
    SPACE, IF("<" DSML "invoke name=\"", 14), NAME("\">"),
    SPACE, IF("<" DSML "parameter name=\"", 8), KEY("\" string=\""),
    IF("true\">", 3), VALUE("</" DSML "parameter>", WEIR_TYPE_STRING), JUMP(-5),
    TEXT("false\">"), VALUE("</" DSML "parameter>", WEIR_TYPE_JSON), JUMP(-8),
    TEXT("</" DSML "invoke>"), COMMIT, JUMP(-14),
    IF("</" DSML "tool_calls>", 2), END, /* V4 */
    TEXT("</" DSML "function_calls>"), END,
};

#define MARK(t) "<\uFF5Ctool\u2581" t "\uFF5C>"
#define CALL_BEGIN MARK("call\u2581begin")
#define CALL_END MARK("call\u2581end")
#define CALLS_BEGIN MARK("calls\u2581begin")
#define CALLS_END MARK("calls\u2581end")
#define SEP MARK("sep")
/* DeepSeek V3 and R1 write the type and a block of Markdown, V3.1 does not. */
static const weir_format_step deepseek_v3[] = {
    SPACE, IF(CALL_BEGIN, 13), TEXT("function"), TEXT(SEP), NAME("\n"), TEXT("```json"), SPACE,
    ARGUMENTS(WEIR_VALUE_JSON), SPACE, TEXT("```"), SPACE, TEXT(CALL_END), COMMIT, JUMP(-13),
    TEXT(CALLS_END), END,
};
static const weir_format_step deepseek_v31[] = {
    SPACE, IF(CALL_BEGIN, 8), NAME(SEP), SPACE, ARGUMENTS(WEIR_VALUE_JSON), SPACE,
    TEXT(CALL_END), COMMIT, JUMP(-8),
    TEXT(CALLS_END), END,
};

static const weir_format_step kimi[] = {
    SPACE, IF("<|tool_call_begin|>", 8), ID_NAME("<|tool_call_argument_begin|>"), SPACE,
    ARGUMENTS(WEIR_VALUE_JSON), SPACE, TEXT("<|tool_call_end|>"), COMMIT, JUMP(-8),
    TEXT("<|tool_calls_section_end|>"), END,
};

/* Up to version 7 a list, from version 11 on NAME[CALL_ID]ID[ARGS]{...} with or without the id. */
static const weir_format_step mistral[] = {
    SPACE, PEEK("[", 34), JSON_CALLS, END,
    NAME(NULL), IF("[CALL_ID]", 3), ID("[ARGS]"), JUMP(2), TEXT("[ARGS]"), SPACE,
    ARGUMENTS(WEIR_VALUE_JSON), COMMIT, END,
};

static const weir_format_step nemotron[] = { SPACE, JSON_CALLS, SPACE, TEXT("</TOOLCALL>"), END };
static const weir_format_step granite[] = { SPACE, JSON_CALLS, END };
/* Several calls have semicolons between them. */
static const weir_format_step llama[] = { SPACE, JSON_CALLS, SPACE, IF(";", 2), JUMP(-35), END };

static const weir_format_step gemma[] = {
    SPACE, TEXT("call:"), NAME(NULL), ARGUMENTS(WEIR_VALUE_GEMMA), COMMIT, TEXT("<tool_call|>"),
    END,
};

/* [f(a=1), g()]: 9 steps. */
#define PYTHON_CALLS                                                                           \
    TEXT("["), SPACE, NAME(NULL), ARGUMENTS(WEIR_VALUE_PYTHON), COMMIT, SPACE, IF(",", 2),     \
    JUMP(-6), TEXT("]")
static const weir_format_step pythonic[] = { PYTHON_CALLS, END };
static const weir_format_step lfm[] = {
    SPACE, PYTHON_CALLS, SPACE, TEXT("<|tool_call_end|>"), END,
};

#define STEPS(list) .steps = (list), .n_steps = sizeof (list) / sizeof (list)[0]
/* {"name": "f", KEY: {...}} between two texts. */
#define JSON_FORM(before, key, after)                                                          \
    .begin = before "{\"name\": \"", .middle = "\", \"" key "\": ", .end = "}" after
#define LIST_FORM(before, after)                                                               \
    .open = before "[", .separator = ", ", .close = "]" after, JSON_FORM("", "arguments", "")

static const weir_call_tags
    seed_tags = { "<parameter=", ">", ">", "</parameter>\n", "</parameter>" },
    coder_tags = { "<parameter=", ">\n", ">\n", "\n</parameter>\n", "</parameter>" },
    glm_tags = { "<arg_key>", "</arg_key>\n<arg_value>", "</arg_key>\n<arg_value>",
                 "</arg_value>\n", "</arg_value>" },
    glm47_tags = { "<arg_key>", "</arg_key><arg_value>", "</arg_key><arg_value>",
                   "</arg_value>", "</arg_value>" },
    minimax_tags = { "<parameter name=\"", "\">", "\">", "</parameter>\n", "</parameter>" },
    dsml_tags = { "<" DSML "parameter name=\"", "\" string=\"true\">", "\" string=\"false\">",
                  "</" DSML "parameter>\n", "</" DSML "parameter>" };
#define DSML_FORM(block)                                                                       \
    .open = "<" DSML block ">\n", .close = "</" DSML block ">",                                \
    .begin = "<" DSML "invoke name=\"", .middle = "\">\n", .end = "</" DSML "invoke>\n",      \
    .tags = &dsml_tags

static const weir_chat_format formats[] = {
    { .name = "harmony", .sign = "<|channel|>commentary", .is_harmony = true,
      .form = { .begin = "<|channel|>commentary to=functions.",
                .middle = " <|constrain|>json<|message|>", .is_single = true } },
    { .name = "seed_oss", .opener = { { "<seed:tool_call>", 0, false } }, STEPS(seed),
      .sign = "<seed:tool_call>",
      .form = { .separator = "\n", .begin = "<seed:tool_call>\n<function=", .middle = ">\n",
                .end = "</function>\n</seed:tool_call>", .tags = &seed_tags } },
    { .name = "qwen3_coder", .opener = { { "<tool_call>", 0, false },
                                         { "<function=", TAGGED_FUNCTION, false } },
      STEPS(tagged), .sign = "<function=",
      .form = { .separator = "\n", .begin = "<tool_call>\n<function=", .middle = ">\n",
                .end = "</function>\n</tool_call>", .tags = &coder_tags } },
    { .name = "glm47", .opener = { { "<tool_call>", 0, false } }, STEPS(glm),
      .sign = "</arg_key><arg_value>",
      .form = { .separator = "", .begin = "<tool_call>", .middle = "", .end = "</tool_call>",
                .tags = &glm47_tags } },
    { .name = "glm", .opener = { { "<tool_call>", 0, false } }, STEPS(glm),
      .sign = "<arg_key>",
      .form = { .separator = "\n", .begin = "<tool_call>", .middle = "\n",
                .end = "</tool_call>", .tags = &glm_tags } },
    { .name = "hermes", .opener = { { "<tool_call>", 0, false },
                                    { "<function=", TAGGED_FUNCTION, false } },
      STEPS(tagged), .sign = "<tool_call>",
      .form = { .separator = "\n",
                JSON_FORM("<tool_call>\n", "arguments", "\n</tool_call>") } },
    { .name = "minimax_m2", .opener = { { "<minimax:tool_call>", 0, false } }, STEPS(minimax),
      .sign = "<minimax:tool_call>",
      .form = { .open = "<minimax:tool_call>\n", .close = "</minimax:tool_call>",
                .begin = "<invoke name=\"", .middle = "\">\n", .end = "</invoke>\n",
                .tags = &minimax_tags } },
    { .name = "minimax_m1", .opener = { { "<tool_calls>", 0, false } }, STEPS(minimax_m1),
      .sign = "<tool_calls>",
      .form = { .open = "<tool_calls>\n", .close = "</tool_calls>",
                JSON_FORM("", "arguments", "\n") } },
    { .name = "deepseek_v4", .opener = { { "<" DSML "tool_calls>", 0, false },
                                         { "<" DSML "function_calls>", 0, false } },
      STEPS(dsml), .sign = "<" DSML "tool_calls>", .form = { DSML_FORM("tool_calls") } },
    { .name = "deepseek_v32", .opener = { { "<" DSML "function_calls>", 0, false },
                                           { "<" DSML "tool_calls>", 0, false } },
      STEPS(dsml), .sign = DSML, .form = { DSML_FORM("function_calls") } },
    { .name = "deepseek_v3", .opener = { { CALLS_BEGIN, 0, false } }, STEPS(deepseek_v3),
      .sign = "```json",
      .form = { .open = CALLS_BEGIN, .separator = "\n", .close = CALLS_END,
                .begin = CALL_BEGIN "function" SEP, .middle = "\n```json\n",
                .end = "\n```" CALL_END } },
    { .name = "deepseek_v31", .opener = { { CALLS_BEGIN, 0, false } }, STEPS(deepseek_v31),
      .sign = CALLS_BEGIN,
      .form = { .open = CALLS_BEGIN, .close = CALLS_END, .begin = CALL_BEGIN, .middle = SEP,
                .end = CALL_END } },
    { .name = "kimi_k2", .opener = { { "<|tool_calls_section_begin|>", 0, false } },
      STEPS(kimi), .sign = "<|tool_calls_section_begin|>", .has_ids = true,
      .form = { .open = "<|tool_calls_section_begin|>", .close = "<|tool_calls_section_end|>",
                .begin = "<|tool_call_begin|>functions.",
                .middle = ":" WEIR_FORM_NUMBER "<|tool_call_argument_begin|>",
                .end = "<|tool_call_end|>" } },
    { .name = "mistral_v11", .opener = { { "[TOOL_CALLS]", 0, false } }, STEPS(mistral),
      .sign = "[ARGS]", .has_ids = true,
      .form = { .begin = "[TOOL_CALLS]", .middle = "[ARGS]" } },
    { .name = "mistral", .opener = { { "[TOOL_CALLS]", 0, false } }, STEPS(mistral),
      .sign = "[TOOL_CALLS]", .has_ids = true, .form = { LIST_FORM("[TOOL_CALLS]", "") } },
    { .name = "nemotron", .opener = { { "<TOOLCALL>", 0, false } }, STEPS(nemotron),
      .sign = "<TOOLCALL>", .form = { LIST_FORM("<TOOLCALL>", "</TOOLCALL>") } },
    { .name = "granite", .opener = { { "<|tool_call|>", 0, false } }, STEPS(granite),
      .sign = "<|tool_call|>", .form = { LIST_FORM("<|tool_call|>", "") } },
    { .name = "gemma4", .opener = { { "<|tool_call>", 0, false } }, STEPS(gemma),
      .sign = "<|tool_call>" },
    { .name = "lfm2", .opener = { { "<|tool_call_start|>", 0, false } }, STEPS(lfm),
      .sign = "<|tool_call_start|>",
      .form = { .open = "<|tool_call_start|>[", .separator = ", ",
                .close = "]<|tool_call_end|>", .begin = "", .middle = "(", .end = ")",
                .is_python = true } },
    { .name = "llama3_json", .opener = { { "{", 0, true }, { "<|python_tag|>", 0, false } },
      STEPS(llama), .sign = "\"parameters\"",
      .form = { .separator = "; ", JSON_FORM("", "parameters", "") } },
    { .name = "pythonic", .opener = { { "[", 0, true } }, STEPS(pythonic), .sign = "(",
      .form = { .open = "[", .separator = ", ", .close = "]", .begin = "", .middle = "(",
                .end = ")", .is_python = true } },
};
/* clang-format on */

const weir_chat_format *weir_chat_formats(size_t *n)
{
    *n = sizeof formats / sizeof formats[0];
    return formats;
}

const weir_chat_format *weir_chat_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

static bool holds(const char *markup, const char *text, size_t n)
{
    return markup != NULL && memmem(markup, strlen(markup), text, n) != NULL;
}

bool weir_chat_format_has(const weir_chat_format *format, const char *text, size_t n)
{
    static const char channels[] =
        "<|start|><|channel|><|constrain|><|message|><|end|><|call|><|return|>";
    if (n == 0) return false;
    if (format->is_harmony) return holds(channels, text, n);
    for (size_t i = 0; i < WEIR_FORMAT_OPENERS; i++)
        if (holds(format->opener[i].text, text, n)) return true;
    for (size_t i = 0; i < format->n_steps; i++)
        if (holds(format->steps[i].text, text, n)) return true;
    return false;
}
