/* engine/toolcalls/harmony.c - the channels of gpt-oss: messages <|start|>assistant HEADER
 * <|message|>BODY<|end|>. The header names the channel (analysis is reasoning) and, for a call, the
 * recipient. https://cookbook.openai.com/articles/openai-harmony */
#include <string.h>

#include "engine/toolcalls/parser_internal.h"

enum { HEADER_BYTES = 512 };
enum state { HEADER, BODY, CALL, AFTER_CALL };

static const char message_tag[] = "<|message|>", start_tag[] = "<|start|>";
static const char *const end_tags[] = { "<|end|>", "<|return|>", "<|call|>", start_tag };
enum { END_TAGS = sizeof end_tags / sizeof end_tags[0] };

typedef struct outputs {
    weir_chat_parser *parser;
    weir_harmony *h;
    weir_buffer *content, *reasoning;
    bool is_last;
} outputs;

typedef struct range {
    const char *begin;
    size_t n;
} range;

static range rest(const weir_harmony *h)
{
    return (range){ h->held.data + h->begin, h->held.size - h->begin };
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static size_t blank(range r)
{
    size_t n = 0;
    while (n < r.n && is_space(r.begin[n])) n++;
    return n;
}

typedef enum found { ABSENT, PARTIAL, PRESENT } found;

static found begins(range r, const char *tag)
{
    const size_t length = strlen(tag), n = r.n < length ? r.n : length;
    if (n > 0 && memcmp(r.begin, tag, n) != 0) return ABSENT;
    return n == length ? PRESENT : PARTIAL;
}

static range after(range r, size_t n) { return (range){ r.begin + n, r.n - n }; }

/* ---- bodies ---------------------------------------------------------------------------------- */

static void begin_body(weir_harmony *h, bool is_reasoning, size_t header)
{
    h->begin += header;
    h->is_reasoning = is_reasoning;
    h->is_new = true;
    h->state = BODY;
}

/* Passes n bytes of the body on; a line end parts it from an earlier one of its kind. */
static weir_status pass(const outputs *o, size_t n)
{
    weir_harmony *const h = o->h;
    weir_buffer *const out = h->is_reasoning ? o->reasoning : o->content;
    if (!h->is_reasoning && o->parser->options.only_calls) {
        h->begin += n;
        return WEIR_OK;
    }
    bool *const has_text = h->is_reasoning ? &h->has_reasoning : &h->has_content;
    if (n > 0 && h->is_new && *has_text) WEIR_TRY(weir_buffer_add(out, "\n", 1));
    if (n > 0) *has_text = true, h->is_new = false;
    WEIR_TRY(weir_buffer_add(out, h->held.data + h->begin, n));
    h->begin += n;
    return WEIR_OK;
}

/* Whether an end tag begins the text; *tag: its length. */
static found end_tag_at(range r, size_t *tag)
{
    found best = ABSENT;
    for (size_t k = 0; k < END_TAGS; k++) {
        const found found = begins(r, end_tags[k]);
        if (found > best) best = found;
        if (found == PRESENT) *tag = strlen(end_tags[k]);
    }
    return best;
}

/* Where the body ends; *tag: the length of the end tag that follows, 0 if none is complete. */
static size_t body_end(range r, bool is_last, size_t *tag)
{
    *tag = 0;
    for (size_t i = 0; i < r.n; i++) {
        if (r.begin[i] != '<') continue;
        const found found = end_tag_at(after(r, i), tag);
        if (found == PRESENT || (found == PARTIAL && !is_last)) return i;
    }
    return r.n;
}

/* The next message; its <|start|> is part of its header. */
static void end_message(weir_harmony *h, size_t tag)
{
    if (begins(rest(h), start_tag) != PRESENT) h->begin += tag;
    h->is_reasoning = false;
    h->state = HEADER;
}

static weir_status step_body(const outputs *o, bool *again)
{
    size_t tag;
    WEIR_TRY(pass(o, body_end(rest(o->h), o->is_last, &tag)));
    *again = tag > 0;
    if (tag > 0) end_message(o->h, tag);
    return WEIR_OK;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* True if text may be a header or a tag that stands alone. */
static bool may_be_header(range r)
{
    static const char *const beginnings[] = { "<|channel|>", message_tag, "to=",    "<|end|>",
                                              "<|return|>",  "<|call|>",  start_tag };
    r = after(r, blank(r));
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        if (begins(r, beginnings[i]) != ABSENT) return true;
    return false;
}

/* The word after `tag` in the header. */
static range word_after(range header, const char *tag)
{
    const char *const at = memmem(header.begin, header.n, tag, strlen(tag));
    if (at == NULL) return (range){ header.begin, 0 };
    const char *const begin = at + strlen(tag), *const end = header.begin + header.n;
    size_t n = 0;
    while (begin + n < end && (unsigned char)begin[n] > ' ' && begin[n] != '<') n++;
    return (range){ begin, n };
}

static weir_status read_header(const outputs *o, size_t n)
{
    static const char functions[] = "functions.", analysis[] = "analysis";
    weir_harmony *const h = o->h;
    const range header = { rest(h).begin, n };
    const range channel = word_after(header, "<|channel|>");
    range recipient = word_after(header, "to=");
    const size_t body = n + sizeof message_tag - 1;
    if (recipient.n == 0) {
        begin_body(
            h, channel.n == sizeof analysis - 1 && memcmp(channel.begin, analysis, channel.n) == 0,
            body
        );
        return WEIR_OK;
    }
    const bool is_function = begins(recipient, functions) == PRESENT;
    if (is_function) recipient = after(recipient, sizeof functions - 1);
    /* The grammar of sure calls holds those of functions only. */
    if (o->parser->options.tools == NULL || recipient.n == 0 ||
        (o->parser->options.is_sure && !is_function)) { /* the call is text */
        begin_body(h, false, 0);
        return pass(o, body);
    }
    weir_buffer_clear(&h->name);
    weir_buffer_clear(&h->arguments);
    WEIR_TRY(weir_buffer_add(&h->name, recipient.begin, recipient.n));
    h->value = (weir_value_scanner){ .dialect = WEIR_VALUE_JSON };
    h->scanned = h->begin + body;
    h->state = CALL;
    return WEIR_OK;
}

static weir_status step_header(const outputs *o, bool *again)
{
    weir_harmony *const h = o->h;
    range r = rest(h);
    if (r.n > HEADER_BYTES) r.n = HEADER_BYTES;
    size_t tag;
    const size_t space = blank(r);
    *again = true;
    if (end_tag_at(after(r, space), &tag) == PRESENT &&
        begins(after(r, space), start_tag) != PRESENT) {
        h->begin += space + tag; /* an end tag that stands alone */
        return WEIR_OK;
    }
    const char *const at = memmem(r.begin, r.n, message_tag, sizeof message_tag - 1);
    if (may_be_header(r) && at != NULL) return read_header(o, (size_t)(at - r.begin));
    if (!may_be_header(r) || r.n == HEADER_BYTES) {
        begin_body(h, false, 0);
        return pass(o, space < r.n ? space + 1 : r.n);
    }
    *again = false;
    /* The header of a call that was cut is its text, unless it is sure; other markup is dropped. */
    if (!o->is_last || o->parser->options.is_sure || memmem(r.begin, r.n, "to=", 3) == NULL)
        return WEIR_OK;
    begin_body(h, false, 0);
    return pass(o, r.n);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* All that was read is text, and the rest of the message too. */
static weir_status fail(const outputs *o)
{
    const size_t n = o->h->scanned - o->h->begin;
    begin_body(o->h, false, 0);
    return pass(o, n);
}

static weir_status keep_call(weir_chat_parser *parser)
{
    weir_harmony *const h = &parser->harmony;
    if (parser->n_calls > 0 && parser->options.one_call) return WEIR_OK;
    weir_tool_call *const call = &parser->call[parser->n_calls++];
    *call = (weir_tool_call){ .name = h->name.data, .arguments = h->arguments.data };
    h->name = h->arguments = (weir_buffer){ NULL, 0, 0 };
    return WEIR_OK;
}

static weir_status step_call(const outputs *o, bool *again)
{
    weir_harmony *const h = o->h;
    weir_value_end end;
    size_t used;
    const bool is_full = rest(h).n >= WEIR_CALL_BLOCK_BYTES;
    const size_t last = is_full ? h->begin + WEIR_CALL_BLOCK_BYTES : h->held.size;
    WEIR_TRY(weir_value_scan(
        &h->value, &h->arguments, h->held.data + h->scanned, last - h->scanned, &used, &end
    ));
    h->scanned += used;
    const bool is_cut = end == WEIR_VALUE_MORE && (o->is_last || is_full);
    const bool is_kept = o->parser->options.is_sure && o->parser->n_calls < WEIR_TOOL_CALLS &&
                         h->arguments.size > 0 && h->arguments.data[0] == '{';
    if (is_cut && is_kept) {
        *again = false;
        h->begin = h->scanned;
        h->state = HEADER;
        return keep_call(o->parser);
    }
    if (is_cut && o->parser->options.is_sure && h->arguments.size == 0) {
        *again = false;
        h->begin = h->scanned;
        h->state = HEADER;
        return WEIR_OK;
    }
    const size_t space = blank((range){ h->arguments.data, h->arguments.size });
    *again = end != WEIR_VALUE_MORE;
    if (end == WEIR_VALUE_DONE && h->arguments.data[space] == '{') {
        h->state = AFTER_CALL;
        return WEIR_OK;
    }
    return is_cut || end != WEIR_VALUE_MORE ? fail(o) : WEIR_OK;
}

static weir_status step_after_call(const outputs *o, bool *again)
{
    weir_harmony *const h = o->h;
    size_t tag;
    range r = { h->held.data + h->scanned, h->held.size - h->scanned };
    const size_t space = blank(r);
    r = after(r, space);
    h->scanned += space;
    const found found = r.n > 0 ? end_tag_at(r, &tag) : PARTIAL;
    *again = found != PARTIAL;
    /* A call that is sure may have been sent; text may follow it. */
    const bool is_call = found != ABSENT || o->parser->options.is_sure;
    if (!is_call || o->parser->n_calls == WEIR_TOOL_CALLS) return fail(o);
    if (found == PARTIAL && !o->is_last) return WEIR_OK;
    if (found != PRESENT) tag = found == PARTIAL ? r.n : 0;
    h->begin = h->scanned;
    end_message(h, tag);
    return keep_call(o->parser);
}

/* ---- all ------------------------------------------------------------------------------------- */

static weir_status run(const outputs *o)
{
    weir_harmony *const h = o->h;
    bool again = h->held.size > 0 || h->state == AFTER_CALL;
    while (again) {
        switch ((enum state)h->state) {
        case HEADER: WEIR_TRY(step_header(o, &again)); break;
        case BODY: WEIR_TRY(step_body(o, &again)); break;
        case CALL: WEIR_TRY(step_call(o, &again)); break;
        case AFTER_CALL: WEIR_TRY(step_after_call(o, &again)); break;
        }
        again = again && h->begin < h->held.size;
    }
    if (h->begin > 0) {
        memmove(h->held.data, h->held.data + h->begin, h->held.size - h->begin);
        h->held.size -= h->begin;
        h->scanned = h->scanned > h->begin ? h->scanned - h->begin : 0;
        h->begin = 0;
    }
    return WEIR_OK;
}

bool weir_harmony_in_call(const weir_harmony *harmony)
{
    return harmony->state == CALL || harmony->state == AFTER_CALL;
}

weir_status weir_harmony_push(
    weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning, const char *text,
    size_t n
)
{
    WEIR_TRY(weir_buffer_add(&parser->harmony.held, text, n));
    return run(&(outputs){ parser, &parser->harmony, content, reasoning, false });
}

weir_status weir_harmony_finish(
    weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning
)
{
    return run(&(outputs){ parser, &parser->harmony, content, reasoning, true });
}
