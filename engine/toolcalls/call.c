#include "engine/toolcalls/call.h"

#include <string.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"

enum { PARAMETERS = 256 };

void weir_tool_call_free(weir_tool_call *call)
{
    weir_memory_give(call->name);
    weir_memory_give(call->arguments);
    weir_memory_give(call->id);
    *call = (weir_tool_call){ .name = NULL };
}

void weir_call_draft_clear(weir_call_draft *draft)
{
    weir_buffer_clear(&draft->name);
    weir_buffer_clear(&draft->id);
    weir_buffer_clear(&draft->key);
    weir_buffer_clear(&draft->arguments);
    weir_buffer_clear(&draft->value);
    weir_buffer_clear(&draft->keys);
    draft->n_keys = 0;
}

void weir_call_draft_free(weir_call_draft *draft)
{
    weir_buffer_free(&draft->name);
    weir_buffer_free(&draft->id);
    weir_buffer_free(&draft->key);
    weir_buffer_free(&draft->arguments);
    weir_buffer_free(&draft->value);
    weir_buffer_free(&draft->keys);
    draft->n_keys = 0;
}

static bool is(const weir_buffer *buffer, const char *text)
{
    return buffer->size == strlen(text) && memcmp(buffer->data, text, buffer->size) == 0;
}

/* ---- parameters between tags ----------------------------------------------------------------- */

/* EINVAL: the key comes twice, or there are too many. */
static weir_status keep_key(weir_call_draft *draft)
{
    const weir_buffer *const key = &draft->key;
    if (key->size == 0 || memchr(key->data, '\0', key->size) != NULL) return WEIR_EINVAL;
    if (draft->n_keys++ == PARAMETERS) return WEIR_EINVAL;
    for (size_t i = 0; i < draft->keys.size; i += strlen(draft->keys.data + i) + 1)
        if (strcmp(draft->keys.data + i, key->data) == 0) return WEIR_EINVAL;
    return weir_buffer_add(&draft->keys, key->data, key->size + 1);
}

typedef struct range {
    const char *begin;
    size_t n;
} range;

static range trim(range r)
{
    while (r.n > 0 && strchr(" \t\r\n", *r.begin) != NULL && *r.begin != '\0') r.begin++, r.n--;
    while (r.n > 0 && strchr(" \t\r\n", r.begin[r.n - 1]) != NULL && r.begin[r.n - 1] != '\0')
        r.n--;
    return r;
}

static range without_line_ends(range r)
{
    if (r.n > 0 && *r.begin == '\n') r.begin++, r.n--;
    if (r.n > 0 && r.begin[r.n - 1] == '\n') r.n--;
    return r;
}

static unsigned type_of_first(char c)
{
    return c == '"'               ? WEIR_TYPES_STRING
           : c == '{'             ? WEIR_TYPES_OBJECT
           : c == '['             ? WEIR_TYPES_ARRAY
           : c == 't' || c == 'f' ? WEIR_TYPES_BOOLEAN
           : c == 'n'             ? WEIR_TYPES_NULL
                                  : WEIR_TYPES_NUMBER;
}

/* True if the JSON value of `type` is meant where `declared` are allowed. */
static bool is_value(unsigned type, unsigned declared)
{
    if (declared == 0) return type != WEIR_TYPES_STRING; /* quotes may be text */
    if ((declared & WEIR_TYPES_STRING) != 0)
        return type != WEIR_TYPES_STRING && (declared & type) != 0;
    return true;
}

/* Models that learned Python write its words. */
static const char *python_word(range text, unsigned declared)
{
    static const struct {
        const char *python, *json;
        unsigned type;
    } words[] = { { "True", "true", WEIR_TYPES_BOOLEAN },
                  { "False", "false", WEIR_TYPES_BOOLEAN },
                  { "None", "null", WEIR_TYPES_NULL } };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].python) == text.n && (declared & words[i].type) != 0 &&
            memcmp(words[i].python, text.begin, text.n) == 0)
            return words[i].json;
    return NULL;
}

static weir_status add_value(weir_buffer *out, range text, weir_value_type type, unsigned declared)
{
    const range inner = trim(text);
    bool is_json = false;
    char first = '\0';
    if (type == WEIR_TYPE_JSON) declared = ~(unsigned)WEIR_TYPES_STRING;
    if (type != WEIR_TYPE_STRING && declared != WEIR_TYPES_STRING)
        WEIR_TRY(weir_value_is_json(&is_json, &first, inner.begin, inner.n));
    if (is_json && is_value(type_of_first(first), declared))
        return weir_buffer_add(out, inner.begin, inner.n);
    const char *const word = type != WEIR_TYPE_STRING ? python_word(inner, declared) : NULL;
    if (word != NULL) return weir_buffer_text(out, word);
    if (type == WEIR_TYPE_DECLARED_LINES) text = without_line_ends(text);
    return weir_value_quote(out, text.begin, text.n);
}

weir_status weir_call_add_parameter(
    weir_call_draft *draft, const json_t *tools, weir_value_type type, const char *text, size_t n
)
{
    weir_buffer *const out = &draft->arguments;
    WEIR_TRY(keep_key(draft));
    const unsigned declared =
        weir_types_of(tools, draft->name.data, draft->name.size, draft->key.data, draft->key.size);
    WEIR_TRY(weir_buffer_text(out, out->size == 0 ? "{" : ", "));
    WEIR_TRY(weir_value_quote(out, draft->key.data, draft->key.size));
    WEIR_TRY(weir_buffer_text(out, ": "));
    return add_value(out, (range){ text, n }, type, declared);
}

/* ---- members of a JSON object ---------------------------------------------------------------- */

/* Replaces JSON text by the string that it is. EINVAL: it is none, or holds a NUL. */
static weir_status decode(weir_buffer *out, const weir_buffer *json)
{
    json_t *value = NULL;
    const weir_json_fault fault =
        weir_json_build(&value, NULL, json->data, json->size, &weir_json_request);
    if (fault == WEIR_JSON_NO_MEMORY) return WEIR_ENOMEM;
    if (fault != WEIR_JSON_FINE) return WEIR_EINVAL;
    const char *const text = json_string_value(value);
    weir_status status = WEIR_EINVAL;
    weir_buffer_clear(out);
    if (text != NULL && strlen(text) == json_string_length(value))
        status = weir_buffer_text(out, text);
    json_decref(value);
    return status;
}

static void swap(weir_buffer *a, weir_buffer *b)
{
    const weir_buffer held = *a;
    *a = *b;
    *b = held;
}

bool weir_call_is_arguments(const weir_call_draft *draft)
{
    return is(&draft->key, "\"arguments\"") || is(&draft->key, "\"parameters\"");
}

weir_status weir_call_add_member(weir_call_draft *draft, bool has_id)
{
    const weir_buffer *const key = &draft->key;
    if (is(key, "\"name\"")) return decode(&draft->name, &draft->value);
    if (is(key, "\"id\"") && has_id && draft->value.data[0] == '"')
        return decode(&draft->id, &draft->value);
    if (weir_call_is_arguments(draft)) swap(&draft->arguments, &draft->value);
    return WEIR_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Arguments that are JSON in a string become the JSON. EINVAL: no object. */
static weir_status check_arguments(weir_call_draft *draft, bool from_tags)
{
    weir_buffer *const text = &draft->arguments;
    bool is_json;
    char first;
    if (text->size == 0) return weir_buffer_text(text, "{}");
    if (from_tags) return weir_buffer_text(text, "}");
    if (text->data[0] == '"') {
        WEIR_TRY(decode(&draft->value, text));
        swap(&draft->value, text);
        if (text->size == 0) return weir_buffer_text(text, "{}");
        WEIR_TRY(weir_value_is_json(&is_json, &first, text->data, text->size));
        return is_json && first == '{' ? WEIR_OK : WEIR_EINVAL;
    }
    if (strncmp(text->data, "null", 4) == 0) {
        weir_buffer_clear(text);
        return weir_buffer_text(text, "{}");
    }
    return text->data[0] == '{' ? WEIR_OK : WEIR_EINVAL;
}

static char *take_text(weir_buffer *buffer)
{
    char *const text = buffer->data;
    *buffer = (weir_buffer){ NULL, 0, 0 };
    return text;
}

weir_status weir_call_take(weir_call_draft *draft, weir_tool_call *out)
{
    if (draft->name.size == 0) return WEIR_EINVAL;
    WEIR_TRY(check_arguments(draft, draft->n_keys > 0));
    *out = (weir_tool_call){ .name = take_text(&draft->name),
                             .arguments = take_text(&draft->arguments),
                             .id = draft->id.size > 0 ? take_text(&draft->id) : NULL };
    weir_call_draft_clear(draft);
    return WEIR_OK;
}

void weir_call_take_cut(weir_call_draft *draft, const weir_buffer *arguments, weir_tool_call *out)
{
    if (arguments == &draft->value) swap(&draft->arguments, &draft->value);
    *out = (weir_tool_call){ .name = take_text(&draft->name),
                             .arguments = take_text(&draft->arguments),
                             .id = draft->id.size > 0 ? take_text(&draft->id) : NULL };
    weir_call_draft_clear(draft);
}
