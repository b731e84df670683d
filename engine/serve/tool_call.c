/* engine/serve/tool_call.c - a block, with white space around every part:
 * <tool_call>{"name": "f", "arguments": {...}}</tool_call> or
 * <tool_call><function=f><parameter=key>value</parameter>...</function></tool_call>. */
#include "engine/serve/tool_call.h"

#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/json_in.h"

static const char open_tag[] = "<tool_call>", close_tag[] = "</tool_call>";
enum {
    OPEN_LENGTH = sizeof open_tag - 1,
    CLOSE_LENGTH = sizeof close_tag - 1,
    BLOCK_BYTES = 1 << 20
};

void weir_tool_parser_free(weir_tool_parser *parser)
{
    for (size_t i = 0; i < parser->n_calls; i++) {
        weir_memory_give(parser->call[i].name);
        weir_memory_give(parser->call[i].arguments);
    }
    parser->n_calls = 0;
    weir_buffer_free(&parser->held);
}

typedef struct range {
    const char *begin, *end;
} range;

static range trim(range r)
{
    while (r.begin < r.end && strchr(" \t\r\n", *r.begin) != NULL) r.begin++;
    while (r.begin < r.end && strchr(" \t\r\n", r.end[-1]) != NULL) r.end--;
    return r;
}

static const char *find(range r, const char *text)
{
    return memmem(r.begin, (size_t)(r.end - r.begin), text, strlen(text));
}

static bool starts_with(range r, const char *text)
{
    const size_t n = strlen(text);
    return (size_t)(r.end - r.begin) >= n && memcmp(r.begin, text, n) == 0;
}

/* The parsers of parts return EINVAL if the block is not a call. */
static char *copy_of(const char *text, size_t n)
{
    char *const copy = weir_memory_take(n + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

/* Takes ownership of `arguments`. */
static weir_status keep_call(
    weir_tool_parser *parser, const char *name, size_t n, json_t *arguments
)
{
    weir_status status = n > 0 && json_is_object(arguments) ? WEIR_OK : WEIR_EINVAL;
    weir_buffer text = { 0 };
    if (status == WEIR_OK)
        status = weir_json_write(&text, arguments, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(arguments);
    char *const copy = status == WEIR_OK ? copy_of(name, n) : NULL;
    if (status == WEIR_OK && copy == NULL) status = WEIR_ENOMEM;
    if (status == WEIR_OK)
        parser->call[parser->n_calls++] = (weir_tool_call){ .name = copy, .arguments = text.data };
    else
        weir_buffer_free(&text);
    return status;
}

static weir_status parse_json_form(weir_tool_parser *parser, range block)
{
    weir_api_error ignored;
    json_t *root = NULL;
    WEIR_TRY(weir_json_read(&root, block.begin, (size_t)(block.end - block.begin), &ignored));
    const char *const name = json_string_value(json_object_get(root, "name"));
    const json_t *arguments = json_object_get(root, "arguments");
    if (arguments == NULL) arguments = json_object_get(root, "parameters");
    weir_status status = WEIR_EINVAL;
    if (name != NULL) {
        json_t *const copy = arguments != NULL ? json_deep_copy(arguments) : json_object();
        status = copy != NULL ? keep_call(parser, name, strlen(name), copy) : WEIR_ENOMEM;
    }
    json_decref(root);
    return status;
}

/* Declared type of a parameter; NULL: not declared. */
static const char *type_of(const json_t *tools, range function, range parameter)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *const f = json_object_get(json_array_get(tools, i), "function");
        const char *const name = json_string_value(json_object_get(f, "name"));
        const size_t n = (size_t)(function.end - function.begin);
        if (name == NULL || strlen(name) != n || memcmp(name, function.begin, n) != 0) continue;
        const json_t *const properties =
            json_object_get(json_object_get(f, "parameters"), "properties");
        const size_t length = (size_t)(parameter.end - parameter.begin);
        return json_string_value(
            json_object_get(json_object_getn(properties, parameter.begin, length), "type")
        );
    }
    return NULL;
}

/* XML values are bare text. A parameter declared as string stays text; others are parsed as JSON if
 * they are JSON within the limits of requests. */
static weir_status read_value(json_t **out, range text, const char *type)
{
    const size_t n = (size_t)(text.end - text.begin);
    if (type == NULL || strcmp(type, "string") != 0) {
        const weir_json_fault fault = weir_json_build(out, NULL, text.begin, n, &weir_json_request);
        if (fault == WEIR_JSON_NO_MEMORY) return WEIR_ENOMEM;
        if (fault == WEIR_JSON_FINE && (type != NULL || !json_is_string(*out))) return WEIR_OK;
        if (fault == WEIR_JSON_FINE) json_decref(*out);
    }
    (void)weir_json_ran_out();
    *out = json_stringn(text.begin, n);
    if (*out != NULL) return WEIR_OK;
    return weir_json_ran_out() ? WEIR_ENOMEM : WEIR_EINVAL;
}

static range without_line_ends(range r)
{
    if (r.begin < r.end && *r.begin == '\n') r.begin++;
    if (r.begin < r.end && r.end[-1] == '\n') r.end--;
    return r;
}

static weir_status set_value(json_t *arguments, range key, range text, const char *type)
{
    json_t *value = NULL;
    char *const name = copy_of(key.begin, (size_t)(key.end - key.begin));
    weir_status status = name != NULL ? read_value(&value, text, type) : WEIR_ENOMEM;
    if (status == WEIR_OK && json_object_set_new(arguments, name, value) != 0)
        status = weir_json_ran_out() ? WEIR_ENOMEM : WEIR_EINVAL;
    weir_memory_give(name);
    return status;
}

static weir_status read_parameters(
    const weir_tool_parser *parser, json_t *arguments, range function, range rest
)
{
    static const char tag[] = "<parameter=", end_tag[] = "</parameter>";
    for (;;) {
        rest = trim(rest);
        if (!starts_with(rest, tag)) return WEIR_OK;
        rest.begin += sizeof tag - 1;
        const char *const name_end = memchr(rest.begin, '>', (size_t)(rest.end - rest.begin));
        if (name_end == NULL || name_end == rest.begin) return WEIR_EINVAL;
        const range name = { rest.begin, name_end };
        rest.begin = name_end + 1;
        const char *const stop = find(rest, end_tag);
        const range value = { rest.begin, stop != NULL ? stop : rest.end };
        WEIR_TRY(set_value(
            arguments, name, without_line_ends(value), type_of(parser->tools, function, name)
        ));
        if (stop == NULL) return WEIR_OK;
        rest.begin = stop + sizeof end_tag - 1;
    }
}

static weir_status parse_xml_form(weir_tool_parser *parser, range block)
{
    static const char tag[] = "<function=";
    if (!starts_with(block, tag)) return WEIR_EINVAL;
    const range name = { block.begin + sizeof tag - 1, block.end };
    const char *const name_end = memchr(name.begin, '>', (size_t)(name.end - name.begin));
    if (name_end == NULL) return WEIR_EINVAL;
    range rest = { name_end + 1, block.end };
    const char *const stop = find(rest, "</function>");
    if (stop != NULL) rest.end = stop;
    json_t *const arguments = json_object();
    if (arguments == NULL) return WEIR_ENOMEM;
    const range function = { name.begin, name_end };
    const weir_status status = read_parameters(parser, arguments, function, rest);
    if (status == WEIR_OK)
        return keep_call(parser, name.begin, (size_t)(name_end - name.begin), arguments);
    json_decref(arguments);
    return status;
}

static weir_status parse_block(weir_tool_parser *parser, const char *text, size_t n)
{
    if (parser->n_calls == WEIR_TOOL_CALLS) return WEIR_EINVAL;
    const range block = trim((range){ text, text + n });
    return starts_with(block, "{") ? parse_json_form(parser, block) : parse_xml_form(parser, block);
}

static void drop(weir_buffer *held, size_t n)
{
    memmove(held->data, held->data + n, held->size - n);
    held->size -= n;
}

static weir_status move(weir_buffer *held, weir_buffer *content, size_t n)
{
    WEIR_TRY(weir_buffer_add(content, held->data, n));
    drop(held, n);
    return WEIR_OK;
}

static size_t open_prefix_at_end(const weir_buffer *held)
{
    for (size_t n = held->size < OPEN_LENGTH - 1 ? held->size : OPEN_LENGTH - 1; n > 0; n--)
        if (memcmp(held->data + held->size - n, open_tag, n) == 0) return n;
    return 0;
}

/* White space between or before blocks comes from the template. */
static bool is_blank(const char *text, size_t n) { return strspn(text, " \t\r\n") >= n; }

static weir_status step_outside(weir_tool_parser *parser, weir_buffer *content, bool *again)
{
    weir_buffer *const held = &parser->held;
    const char *const at = memmem(held->data, held->size, open_tag, OPEN_LENGTH);
    const size_t n = at != NULL ? (size_t)(at - held->data) : held->size - open_prefix_at_end(held);
    *again = parser->inside = at != NULL;
    if ((at != NULL || parser->n_calls > 0) && is_blank(held->data, n)) {
        drop(held, n);
        return WEIR_OK;
    }
    return move(held, content, n);
}

static weir_status step_inside(weir_tool_parser *parser, weir_buffer *content, bool *again)
{
    weir_buffer *const held = &parser->held;
    const char *const at = memmem(held->data, held->size, close_tag, CLOSE_LENGTH);
    *again = at != NULL;
    if (at == NULL && held->size < BLOCK_BYTES) return WEIR_OK;
    const size_t whole = at != NULL ? (size_t)(at - held->data) + CLOSE_LENGTH : held->size;
    parser->inside = false;
    weir_status status = WEIR_EINVAL;
    if (at != NULL)
        status = parse_block(parser, held->data + OPEN_LENGTH, whole - OPEN_LENGTH - CLOSE_LENGTH);
    if (status == WEIR_EINVAL) return move(held, content, whole);
    if (status == WEIR_OK) drop(held, whole);
    return status;
}

weir_status weir_tool_push(
    weir_tool_parser *parser, weir_buffer *content, const char *text, size_t n
)
{
    WEIR_TRY(weir_buffer_add(&parser->held, text, n));
    bool again = true;
    while (again && parser->held.size > 0)
        WEIR_TRY(
            parser->inside ? step_inside(parser, content, &again)
                           : step_outside(parser, content, &again)
        );
    return WEIR_OK;
}

weir_status weir_tool_finish(weir_tool_parser *parser, weir_buffer *content)
{
    weir_buffer *const held = &parser->held;
    if (held->size == 0) return WEIR_OK;
    /* Some templates end the turn right after the last block's content. */
    weir_status status = WEIR_EINVAL;
    if (parser->inside)
        status = parse_block(parser, held->data + OPEN_LENGTH, held->size - OPEN_LENGTH);
    if (status == WEIR_EINVAL) return move(held, content, held->size);
    if (status == WEIR_OK) weir_buffer_clear(held);
    return status;
}
