#include <string.h>

#include "engine/base/memory.h"
#include "engine/toolcalls/parser_internal.h"

weir_status weir_chat_parser_open(weir_chat_parser **out, const weir_chat_parser_options *options)
{
    weir_chat_parser *const parser = weir_memory_take_zero(1, sizeof *parser);
    if (parser == NULL) return WEIR_ENOMEM;
    parser->options = *options;
    parser->reasoning.at = options->start;
    *out = parser;
    return WEIR_OK;
}

void weir_chat_parser_close(weir_chat_parser *parser)
{
    if (parser == NULL) return;
    weir_buffer_free(&parser->reasoning.held);
    weir_buffer_free(&parser->text);
    weir_buffer_free(&parser->held);
    weir_buffer_free(&parser->space);
    weir_call_block_free(&parser->block);
    weir_buffer_free(&parser->harmony.held);
    weir_buffer_free(&parser->harmony.name);
    weir_buffer_free(&parser->harmony.arguments);
    for (size_t i = 0; i < parser->n_calls; i++) weir_tool_call_free(&parser->call[i]);
    weir_memory_give(parser);
}

void weir_chat_parser_start(weir_chat_parser *parser, weir_reasoning_start start)
{
    parser->reasoning.at = start;
}

static bool is_harmony(const weir_chat_parser *parser)
{
    return parser->options.format != NULL && parser->options.format->is_harmony;
}

static bool has_blocks(const weir_chat_parser *parser)
{
    return parser->options.format != NULL && parser->options.tools != NULL;
}

/* Text of whole code points. */
static weir_status push_text(
    weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning, const char *text,
    size_t n
)
{
    if (n == 0) return WEIR_OK;
    if (is_harmony(parser)) return weir_harmony_push(parser, content, reasoning, text, n);
    if (!has_blocks(parser))
        return weir_reasoning_push(&parser->reasoning, content, reasoning, text, n);
    weir_buffer_clear(&parser->text);
    WEIR_TRY(weir_reasoning_push(&parser->reasoning, &parser->text, reasoning, text, n));
    return weir_blocks_push(parser, content, parser->text.data, parser->text.size);
}

/* Bytes of a code point that begins with `byte`; 1 if none does. */
static size_t length_of(unsigned char byte)
{
    return byte >= 0xF0 && byte < 0xF8 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
}

/* Bytes at the end of the text that begin a code point and do not end it. */
static size_t incomplete(const char *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char byte = (unsigned char)text[n - back];
        if (byte >= 0xC0) return length_of(byte) > back ? back : 0;
        if (byte < 0x80) return 0;
    }
    return 0;
}

/* Completes the code point that was cut. *used: bytes taken for it. */
static weir_status complete(
    weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning, const char *text,
    size_t n, size_t *used
)
{
    size_t i = 0;
    const size_t length = length_of(parser->code_point[0]);
    while (i < n && parser->n_code_point < length && ((unsigned char)text[i] & 0xC0) == 0x80)
        parser->code_point[parser->n_code_point++] = (unsigned char)text[i++];
    *used = i;
    if (i == n && parser->n_code_point < length) return WEIR_OK;
    const size_t n_bytes = parser->n_code_point;
    parser->n_code_point = 0;
    return push_text(parser, content, reasoning, (const char *)parser->code_point, n_bytes);
}

weir_status weir_chat_parser_push(
    weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning, const char *text,
    size_t n
)
{
    size_t used = 0;
    if (parser->n_code_point > 0) WEIR_TRY(complete(parser, content, reasoning, text, n, &used));
    if (used == n) return WEIR_OK;
    const size_t left = incomplete(text + used, n - used);
    memcpy(parser->code_point, text + n - left, left);
    parser->n_code_point = left;
    return push_text(parser, content, reasoning, text + used, n - used - left);
}

weir_status weir_chat_parser_finish(
    weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning
)
{
    const size_t n = parser->n_code_point;
    parser->n_code_point = 0;
    WEIR_TRY(push_text(parser, content, reasoning, (const char *)parser->code_point, n));
    if (is_harmony(parser)) return weir_harmony_finish(parser, content, reasoning);
    if (!has_blocks(parser)) return weir_reasoning_finish(&parser->reasoning, content, reasoning);
    weir_buffer_clear(&parser->text);
    WEIR_TRY(weir_reasoning_finish(&parser->reasoning, &parser->text, reasoning));
    WEIR_TRY(weir_blocks_push(parser, content, parser->text.data, parser->text.size));
    return weir_blocks_finish(parser, content);
}

const weir_tool_call *weir_chat_parser_calls(const weir_chat_parser *parser, size_t *n)
{
    *n = parser->n_calls;
    return parser->call;
}

bool weir_chat_parser_in_block(const weir_chat_parser *parser)
{
    return is_harmony(parser) ? weir_harmony_in_call(&parser->harmony) : parser->is_open;
}

bool weir_chat_parser_partial(const weir_chat_parser *parser, weir_partial_call *out)
{
    const weir_buffer *name = &parser->block.draft.name, *arguments = NULL;
    const weir_buffer *const id = &parser->block.draft.id;
    if (!parser->options.is_sure || !weir_chat_parser_in_block(parser)) return false;
    if (parser->n_calls == WEIR_TOOL_CALLS || (parser->n_calls > 0 && parser->options.one_call))
        return false;
    if (is_harmony(parser)) {
        name = &parser->harmony.name;
        arguments = &parser->harmony.arguments;
    } else {
        arguments = weir_call_block_arguments(&parser->block);
    }
    if (arguments == NULL || arguments->size == 0 || arguments->data[0] != '{') return false;
    *out = (weir_partial_call){ .name = name->data,
                                .id = id->size > 0 ? id->data : NULL,
                                .arguments = arguments->data,
                                .n = arguments->size };
    return true;
}

bool weir_chat_parser_reasons(const weir_chat_parser *parser)
{
    return is_harmony(parser) ? parser->harmony.is_reasoning
                              : parser->reasoning.at.state == WEIR_THINK_INSIDE;
}

bool weir_chat_parser_reads(const weir_chat_parser *parser, const char *text, size_t n)
{
    if (is_harmony(parser)) return weir_chat_format_has(parser->options.format, text, n);
    if (parser->reasoning.at.state <= WEIR_THINK_INSIDE && weir_reasoning_has(text, n)) return true;
    return has_blocks(parser) && weir_chat_format_has(parser->options.format, text, n);
}
