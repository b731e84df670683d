/* tests/fuzz/toolcalls_fuzz.c - any bytes as the answer of a model of any format: the same outcome
 * at once and in pieces, calls that are calls, and no text from nowhere. The first byte chooses the
 * format, the second how the answer begins, the third the size of the pieces. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/error.h"
#include "engine/toolcalls/chat_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct outcome {
    weir_chat_parser *parser;
    weir_buffer content, reasoning;
} outcome;

static json_t *make_tools(void)
{
    return json_pack(
        "[{s:{s:s, s:{s:{s:{s:s}, s:{s:s}}}}}]", "function", "name", "f", "parameters",
        "properties", "text", "type", "string", "n", "type", "integer"
    );
}

static outcome parse(
    const weir_chat_parser_options *options, const char *text, size_t size, size_t step
)
{
    outcome o = { .parser = NULL };
    WEIR_ASSERT(weir_chat_parser_open(&o.parser, options) == WEIR_OK);
    for (size_t i = 0; i < size; i += step) {
        const size_t n = step < size - i ? step : size - i;
        WEIR_ASSERT(
            weir_chat_parser_push(o.parser, &o.content, &o.reasoning, text + i, n) == WEIR_OK
        );
    }
    WEIR_ASSERT(weir_chat_parser_finish(o.parser, &o.content, &o.reasoning) == WEIR_OK);
    return o;
}

static void close_outcome(outcome *o)
{
    weir_chat_parser_close(o->parser);
    weir_buffer_free(&o->content);
    weir_buffer_free(&o->reasoning);
}

static bool same_text(const weir_buffer *a, const weir_buffer *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

/* The calls of a sure answer may be cut: then only the last one's arguments are a beginning. */
static void check_calls(const outcome *a, const outcome *b, bool is_sure)
{
    size_t n, other;
    const weir_tool_call *const calls = weir_chat_parser_calls(a->parser, &n);
    const weir_tool_call *const same = weir_chat_parser_calls(b->parser, &other);
    WEIR_ASSERT(n == other && n <= WEIR_TOOL_CALLS);
    for (size_t i = 0; i < n; i++) {
        bool is_json;
        char first;
        WEIR_ASSERT(calls[i].name[0] != '\0');
        WEIR_ASSERT(
            weir_value_is_json(&is_json, &first, calls[i].arguments, strlen(calls[i].arguments)) ==
            WEIR_OK
        );
        WEIR_ASSERT((is_json || is_sure) && first == '{');
        WEIR_ASSERT(strcmp(calls[i].name, same[i].name) == 0);
        WEIR_ASSERT(strcmp(calls[i].arguments, same[i].arguments) == 0);
        WEIR_ASSERT((calls[i].id == NULL) == (same[i].id == NULL));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    size_t n_formats;
    const weir_chat_format *const formats = weir_chat_formats(&n_formats);
    json_t *const tools = make_tools();
    if (tools == NULL) return 0;
    const weir_chat_parser_options options = {
        .format = &formats[data[0] % n_formats],
        .tools = (data[1] & 16) != 0 ? NULL : tools,
        .one_call = (data[1] & 32) != 0,
        .is_sure = (data[1] & 64) != 0,
        .only_calls = (data[1] & 128) != 0,
        .start = { (weir_reasoning_state)(data[1] & 3), data[1] >> 2 & 3 },
    };
    const char *const text = (const char *)data + 3;
    outcome whole = parse(&options, text, size - 3, size),
            pieces = parse(&options, text, size - 3, (size_t)data[2] % 31 + 1);
    WEIR_ASSERT(same_text(&whole.content, &pieces.content));
    WEIR_ASSERT(same_text(&whole.reasoning, &pieces.reasoning));
    WEIR_ASSERT(whole.content.size + whole.reasoning.size <= 2 * size);
    check_calls(&whole, &pieces, options.is_sure);
    close_outcome(&whole);
    close_outcome(&pieces);
    json_decref(tools);
    return 0;
}
