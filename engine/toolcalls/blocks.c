/* engine/toolcalls/blocks.c - content with blocks of calls in it: finds where a block may open. */
#include <string.h>

#include "engine/toolcalls/parser_internal.h"

enum { SPACE_BYTES = 256 }; /* of white space that are held back */

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static const char *held(const weir_chat_parser *parser, size_t *n)
{
    *n = parser->held.size - parser->begin;
    return parser->held.data + parser->begin;
}

/* Once for a push, so that a long one takes linear time. */
static void drop_read(weir_chat_parser *parser)
{
    weir_buffer *const buffer = &parser->held;
    if (parser->begin == 0) return;
    memmove(buffer->data, buffer->data + parser->begin, buffer->size - parser->begin);
    buffer->size -= parser->begin;
    parser->begin = 0;
}

/* ---- content --------------------------------------------------------------------------------- */

/* Passes text on. White space at its end waits: it is dropped if a call follows. */
static weir_status pass(weir_chat_parser *parser, weir_buffer *content, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        parser->line_has_text = text[i] != '\n' && (parser->line_has_text || !is_space(text[i]));
    if (parser->options.only_calls) return WEIR_OK;
    if (parser->after_call) {
        while (n > 0 && is_space(*text)) text++, n--;
        if (n > 0) parser->after_call = false;
    }
    size_t solid = n;
    while (solid > 0 && is_space(text[solid - 1])) solid--;
    if (solid > 0) {
        WEIR_TRY(weir_buffer_add(content, parser->space.data, parser->space.size));
        weir_buffer_clear(&parser->space);
    }
    WEIR_TRY(weir_buffer_add(content, text, solid));
    WEIR_TRY(weir_buffer_add(&parser->space, text + solid, n - solid));
    if (parser->space.size <= SPACE_BYTES) return WEIR_OK;
    WEIR_TRY(weir_buffer_add(content, parser->space.data, parser->space.size));
    weir_buffer_clear(&parser->space);
    return WEIR_OK;
}

/* Passes the first n bytes of the held text on. */
static weir_status pass_held(weir_chat_parser *parser, weir_buffer *content, size_t n)
{
    WEIR_TRY(pass(parser, content, parser->held.data + parser->begin, n));
    parser->begin += n;
    return WEIR_OK;
}

/* ---- openers --------------------------------------------------------------------------------- */

/* The opener that begins at text [n]; *is_partial: more text is needed to know. */
static const weir_format_opener *opener_at(
    const weir_chat_format *format, const char *text, size_t n, bool line_has_text, bool *is_partial
)
{
    for (size_t i = 0; i < WEIR_FORMAT_OPENERS && format->opener[i].text != NULL; i++) {
        const weir_format_opener *const opener = &format->opener[i];
        if (opener->is_bare && line_has_text) continue;
        const size_t length = strlen(opener->text), common = n < length ? n : length;
        if (memcmp(text, opener->text, common) != 0) continue;
        if (common == length) return opener;
        *is_partial = true;
    }
    return NULL;
}

/* Looks for an opener in the held text. *at: where it begins, or may begin. */
static const weir_format_opener *find_opener(
    const weir_chat_parser *parser, bool is_last, size_t *at, bool *is_partial
)
{
    size_t n;
    const char *text = held(parser, &n);
    bool line_has_text = parser->line_has_text;
    for (*at = 0; *at < n; ++*at, text++) {
        const weir_format_opener *const opener =
            opener_at(parser->options.format, text, n - *at, line_has_text, is_partial);
        if (opener != NULL) return opener;
        if (*is_partial && !is_last) return NULL;
        *is_partial = false;
        line_has_text = *text != '\n' && (line_has_text || !is_space(*text));
    }
    return NULL;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static weir_status step_outside(
    weir_chat_parser *parser, weir_buffer *content, bool is_last, bool *again
)
{
    size_t at;
    bool is_partial = false;
    const weir_format_opener *const opener = find_opener(parser, is_last, &at, &is_partial);
    *again = opener != NULL;
    WEIR_TRY(pass_held(parser, content, at));
    if (opener == NULL) return WEIR_OK;
    parser->is_open = true;
    weir_call_block_begin(&parser->block, parser->options.format, opener, parser->options.tools);
    return WEIR_OK;
}

static void take_call(weir_chat_parser *parser, weir_tool_call *call)
{
    const bool is_kept = parser->n_calls == 0 || !parser->options.one_call;
    if (is_kept && parser->n_calls < WEIR_TOOL_CALLS)
        parser->call[parser->n_calls++] = *call;
    else
        weir_tool_call_free(call);
}

/* Takes the complete calls out of the block. */
static void take_calls(weir_chat_parser *parser)
{
    weir_call_block *const block = &parser->block;
    for (size_t i = 0; i < block->n_calls; i++) take_call(parser, &block->call[i]);
    block->n_calls = 0;
}

static void end_block(weir_chat_parser *parser)
{
    weir_buffer_clear(&parser->space);
    parser->is_open = false;
    parser->after_call = true;
    parser->line_has_text = false;
    parser->begin += parser->block.at;
}

/* Of a block whose calls are sure: takes them as they become complete. A call that was cut stays
 * one, since its beginning may be sent; without arguments it is dropped. n: bytes of the block. */
static void read_sure(weir_chat_parser *parser, size_t n, bool is_last, weir_call_block_end *end)
{
    weir_call_block *const block = &parser->block;
    const weir_buffer *const arguments = weir_call_block_arguments(block);
    take_calls(parser);
    if (*end != WEIR_CALL_BLOCK_BAD) return;
    if (arguments != NULL) {
        weir_tool_call call;
        weir_call_take_cut(&block->draft, arguments, &call);
        take_call(parser, &call);
    }
    const bool is_cut = is_last && !block->opener->is_bare; /* nothing else follows the tag */
    if (is_cut) block->at = n;
    if (arguments != NULL || block->has_calls || is_cut) *end = WEIR_CALL_BLOCK_DONE;
}

static weir_status step_inside(
    weir_chat_parser *parser, weir_buffer *content, bool is_last, bool *again
)
{
    weir_call_block_end end;
    weir_call_block *const block = &parser->block;
    size_t n;
    const char *const text = held(parser, &n);
    WEIR_TRY(weir_call_block_read(block, text, n, is_last, &end));
    if (parser->options.is_sure) read_sure(parser, n, is_last, &end);
    *again = end != WEIR_CALL_BLOCK_OPEN;
    if (end == WEIR_CALL_BLOCK_OPEN) return WEIR_OK;
    if (end == WEIR_CALL_BLOCK_DONE && parser->n_calls + block->n_calls <= WEIR_TOOL_CALLS) {
        take_calls(parser);
        end_block(parser);
        return WEIR_OK;
    }
    parser->is_open = false;
    return pass_held(parser, content, block->at > 0 ? block->at : 1);
}

static weir_status run(weir_chat_parser *parser, weir_buffer *content, bool is_last)
{
    bool again = true;
    while (again && parser->begin < parser->held.size)
        WEIR_TRY(
            parser->is_open ? step_inside(parser, content, is_last, &again)
                            : step_outside(parser, content, is_last, &again)
        );
    drop_read(parser);
    return WEIR_OK;
}

weir_status weir_blocks_push(
    weir_chat_parser *parser, weir_buffer *content, const char *text, size_t n
)
{
    WEIR_TRY(weir_buffer_add(&parser->held, text, n));
    return run(parser, content, false);
}

weir_status weir_blocks_finish(weir_chat_parser *parser, weir_buffer *content)
{
    WEIR_TRY(run(parser, content, true));
    WEIR_TRY(weir_buffer_add(content, parser->space.data, parser->space.size));
    weir_buffer_clear(&parser->space);
    return WEIR_OK;
}
