/* engine/serve/tool_call.c - a block is
 *   <tool_call>{"name": "f", "arguments": {...}}</tool_call>
 * or
 *   <tool_call><function=f><parameter=key>value</parameter>...</function></tool_call>
 * with white space around every part. */
#include "engine/serve/tool_call.h"

#include <stdlib.h>
#include <string.h>

#include "engine/serve/json_in.h"

static const char open_tag[] = "<tool_call>", close_tag[] = "</tool_call>";
enum { OPEN_LENGTH = sizeof open_tag - 1, CLOSE_LENGTH = sizeof close_tag - 1, BLOCK_BYTES = 1 << 20 };

void weir_tool_parser_free(weir_tool_parser *parser)
{
    for (size_t i = 0; i < parser->n_calls; i++) {
        free(parser->call[i].name);
        free(parser->call[i].arguments);
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

static const char *find(range r, const char *text) { return memmem(r.begin, (size_t)(r.end - r.begin), text, strlen(text)); }

static bool starts_with(range r, const char *text)
{
    const size_t n = strlen(text);
    return (size_t)(r.end - r.begin) >= n && memcmp(r.begin, text, n) == 0;
}

/* Takes ownership of `arguments`. */
static bool keep_call(weir_tool_parser *parser, const char *name, size_t n, json_t *arguments)
{
    char *const text = json_is_object(arguments) ? json_dumps(arguments, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    char *const copy = n > 0 ? strndup(name, n) : NULL;
    json_decref(arguments);
    if (text == NULL || copy == NULL) {
        free(text);
        free(copy);
        return false;
    }
    parser->call[parser->n_calls++] = (weir_tool_call){ .name = copy, .arguments = text };
    return true;
}

static json_t *read_json(range r)
{
    char *const    copy = strndup(r.begin, (size_t)(r.end - r.begin));
    json_t        *root = NULL;
    weir_api_error ignored;
    if (copy != NULL && weir_json_read(&root, copy, strlen(copy), &ignored) != WEIR_OK) root = NULL;
    free(copy);
    return root;
}

static bool parse_json_form(weir_tool_parser *parser, range block)
{
    json_t *const     root = read_json(block);
    const char *const name = json_string_value(json_object_get(root, "name"));
    const json_t     *arguments = json_object_get(root, "arguments");
    if (arguments == NULL) arguments = json_object_get(root, "parameters");
    const bool kept = name != NULL && keep_call(parser, name, strlen(name), arguments != NULL ? json_deep_copy(arguments) : json_object());
    json_decref(root);
    return kept;
}

/* Declared type of a parameter; NULL: not declared. */
static const char *type_of(const json_t *tools, range function, const char *parameter)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *const f = json_object_get(json_array_get(tools, i), "function");
        const char *const   name = json_string_value(json_object_get(f, "name"));
        const size_t        n = (size_t)(function.end - function.begin);
        if (name == NULL || strlen(name) != n || memcmp(name, function.begin, n) != 0) continue;
        const json_t *const properties = json_object_get(json_object_get(f, "parameters"), "properties");
        return json_string_value(json_object_get(json_object_get(properties, parameter), "type"));
    }
    return NULL;
}

/* XML values are bare text: a declared string stays text, anything else is read as JSON if it is JSON. */
static json_t *read_value(range text, const char *type)
{
    if (type == NULL || strcmp(type, "string") != 0) {
        json_t *const value = json_loadb(text.begin, (size_t)(text.end - text.begin), JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
        if (value != NULL && (type != NULL || !json_is_string(value))) return value;
        json_decref(value);
    }
    return json_stringn(text.begin, (size_t)(text.end - text.begin));
}

static range without_line_ends(range r)
{
    if (r.begin < r.end && *r.begin == '\n') r.begin++;
    if (r.begin < r.end && r.end[-1] == '\n') r.end--;
    return r;
}

static bool read_parameters(const weir_tool_parser *parser, json_t *arguments, range function, range rest)
{
    static const char tag[] = "<parameter=", end_tag[] = "</parameter>";
    for (;;) {
        rest = trim(rest);
        if (!starts_with(rest, tag)) return true;
        rest.begin += sizeof tag - 1;
        const char *const name_end = memchr(rest.begin, '>', (size_t)(rest.end - rest.begin));
        if (name_end == NULL || name_end == rest.begin) return false;
        char *const name = strndup(rest.begin, (size_t)(name_end - rest.begin));
        rest.begin = name_end + 1;
        const char *const stop = find(rest, end_tag);
        const range       value = without_line_ends((range){ rest.begin, stop != NULL ? stop : rest.end });
        const bool        set =
            name != NULL && json_object_set_new(arguments, name, read_value(value, type_of(parser->tools, function, name))) == 0;
        free(name);
        if (!set) return false;
        if (stop == NULL) return true;
        rest.begin = stop + sizeof end_tag - 1;
    }
}

static bool parse_xml_form(weir_tool_parser *parser, range block)
{
    static const char tag[] = "<function=";
    if (!starts_with(block, tag)) return false;
    const range       name = { block.begin + sizeof tag - 1, block.end };
    const char *const name_end = memchr(name.begin, '>', (size_t)(name.end - name.begin));
    if (name_end == NULL) return false;
    range             rest = { name_end + 1, block.end };
    const char *const stop = find(rest, "</function>");
    if (stop != NULL) rest.end = stop;
    json_t *const arguments = json_object();
    const range   function = { name.begin, name_end };
    if (arguments == NULL || !read_parameters(parser, arguments, function, rest)) {
        json_decref(arguments);
        return false;
    }
    return keep_call(parser, name.begin, (size_t)(name_end - name.begin), arguments);
}

static bool parse_block(weir_tool_parser *parser, const char *text, size_t n)
{
    if (parser->n_calls == WEIR_TOOL_CALLS) return false;
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

/* White space between or before blocks is the template's, not the user's. */
static bool is_blank(const char *text, size_t n) { return strspn(text, " \t\r\n") >= n; }

static weir_status step_outside(weir_tool_parser *parser, weir_buffer *content, bool *again)
{
    weir_buffer *const held = &parser->held;
    const char *const  at = memmem(held->data, held->size, open_tag, OPEN_LENGTH);
    const size_t       n = at != NULL ? (size_t)(at - held->data) : held->size - open_prefix_at_end(held);
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
    const char *const  at = memmem(held->data, held->size, close_tag, CLOSE_LENGTH);
    *again = at != NULL;
    if (at == NULL && held->size < BLOCK_BYTES) return WEIR_OK;
    const size_t whole = at != NULL ? (size_t)(at - held->data) + CLOSE_LENGTH : held->size;
    parser->inside = false;
    if (at != NULL && parse_block(parser, held->data + OPEN_LENGTH, whole - OPEN_LENGTH - CLOSE_LENGTH)) {
        drop(held, whole);
        return WEIR_OK;
    }
    return move(held, content, whole);
}

weir_status weir_tool_push(weir_tool_parser *parser, weir_buffer *content, const char *text, size_t n)
{
    WEIR_TRY(weir_buffer_add(&parser->held, text, n));
    bool again = true;
    while (again && parser->held.size > 0)
        WEIR_TRY(parser->inside ? step_inside(parser, content, &again) : step_outside(parser, content, &again));
    return WEIR_OK;
}

weir_status weir_tool_finish(weir_tool_parser *parser, weir_buffer *content)
{
    weir_buffer *const held = &parser->held;
    if (held->size == 0) return WEIR_OK;
    /* Some templates end the turn right after the last block's content. */
    if (parser->inside && parse_block(parser, held->data + OPEN_LENGTH, held->size - OPEN_LENGTH)) {
        weir_buffer_clear(held);
        return WEIR_OK;
    }
    return move(held, content, held->size);
}
