#include "engine/toolcalls/force.h"

#include <string.h>

#include "engine/formats/json.h"
#include "engine/toolcalls/value.h"

static const char control_mark[] = "\xF4\x8F\xBF\xBF"; /* before a control token: calls.h */

enum { TOKEN_BYTES = 64 };

const char *weir_call_force_problem(const weir_chat_format *format)
{
    if (format->form.begin != NULL) return NULL;
    return "the model's calls are not JSON, and no grammar for them is known";
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Bytes of the control token that begins text [n]; 0: none. Tokens of markup end like this. */
static size_t control_token(const weir_call_force *f, const char *text, size_t n)
{
    for (size_t i = n < TOKEN_BYTES ? n : TOKEN_BYTES; i > 1; i--)
        if (strchr(">]\x9C", text[i - 1]) != NULL &&
            f->token(f->vocabulary, text, i) == WEIR_TOKEN_CONTROL)
            return i;
    return 0;
}

/* Appends text with a mark before its control tokens. */
static weir_status add_marked(weir_buffer *out, const weir_call_force *f, const char *text)
{
    for (size_t i = 0, n = text != NULL ? strlen(text) : 0; i < n;) {
        const size_t token = control_token(f, text + i, n - i);
        if (token > 0) WEIR_TRY(weir_buffer_text(out, control_mark));
        const size_t size = token > 0 ? token : 1;
        WEIR_TRY(weir_buffer_add(out, text + i, size));
        i += size;
    }
    return WEIR_OK;
}

/* Appends the members of an open object. `key` has its comma. */
static weir_status put_text(
    weir_buffer *out, const weir_call_force *f, const char *key, const char *text
)
{
    weir_buffer marked = { 0 };
    WEIR_TRY(weir_buffer_text(out, key));
    weir_status status = add_marked(&marked, f, text);
    if (status == WEIR_OK) status = weir_value_quote(out, marked.data, marked.size);
    weir_buffer_free(&marked);
    return status;
}

/* ---- tools ----------------------------------------------------------------------------------- */

static const char *name_of(const json_t *function)
{
    return json_string_value(json_object_get(function, "name"));
}

/* The texts of the form, marked once for all tools. */
typedef struct texts {
    weir_buffer begin, middle, end;
} texts;

/* `before`: plain text; NULL: none. */
static weir_status put_begin(
    weir_buffer *out, const texts *t, const char *key, const char *before, const char *name
)
{
    weir_buffer text = { 0 };
    WEIR_TRY(weir_buffer_text(out, key));
    weir_status status = before != NULL ? weir_buffer_text(&text, before) : WEIR_OK;
    if (status == WEIR_OK) status = weir_buffer_add(&text, t->begin.data, t->begin.size);
    if (status == WEIR_OK) status = weir_buffer_text(&text, name);
    if (status == WEIR_OK) status = weir_buffer_add(&text, t->middle.data, t->middle.size);
    if (status == WEIR_OK) status = weir_value_quote(out, text.data, text.size);
    weir_buffer_free(&text);
    return status;
}

static weir_status write_tool(weir_buffer *out, const texts *t, const json_t *function)
{
    const json_t *const parameters = json_object_get(function, "parameters");
    WEIR_TRY(weir_buffer_format(out, "{\"name\":\"%s\"", name_of(function)));
    WEIR_TRY(put_begin(out, t, ",\"begin\":", NULL, name_of(function)));
    WEIR_TRY(weir_buffer_text(out, ",\"end\":"));
    WEIR_TRY(weir_value_quote(out, t->end.data, t->end.size));
    if (json_is_object(parameters)) {
        WEIR_TRY(weir_buffer_text(out, ",\"parameters\":"));
        WEIR_TRY(weir_json_write(out, parameters, JSON_COMPACT));
    }
    const bool strict = json_is_true(json_object_get(function, "strict"));
    return weir_buffer_text(out, strict ? ",\"strict\":true}" : "}");
}

static weir_status write_tools(weir_buffer *out, const weir_call_force *f, const texts *t)
{
    WEIR_TRY(weir_buffer_text(out, ",\"tools\":["));
    for (size_t i = 0; i < json_array_size(f->tools); i++) {
        if (i > 0) WEIR_TRY(weir_buffer_text(out, ","));
        WEIR_TRY(write_tool(out, t, json_object_get(json_array_get(f->tools, i), "function")));
    }
    return weir_buffer_text(out, "]");
}

/* ---- the text around ------------------------------------------------------------------------- */

/* A bare form has no tag: its calls begin with their name. */
static bool is_bare(const weir_chat_format *format)
{
    return format->opener[0].text != NULL && format->opener[0].is_bare;
}

/* What the text does not hold, because it opens a block. */
static weir_status write_stops(weir_buffer *out, const weir_call_force *f, const texts *t)
{
    const weir_chat_format *const format = f->format;
    bool has_any = false;
    WEIR_TRY(weir_buffer_text(out, ",\"free\":true,\"stops\":["));
    for (size_t i = 0; i < WEIR_FORMAT_OPENERS && format->opener[i].text != NULL; i++) {
        if (format->opener[i].is_bare) continue;
        WEIR_TRY(put_text(out, f, has_any ? "," : "", format->opener[i].text));
        has_any = true;
    }
    if (format->is_harmony) WEIR_TRY(put_text(out, f, "", "to=functions."));
    for (size_t i = 0; is_bare(format) && i < json_array_size(f->tools); i++) {
        const json_t *const function = json_object_get(json_array_get(f->tools, i), "function");
        WEIR_TRY(put_begin(out, t, has_any ? "," : "", format->form.open, name_of(function)));
        has_any = true;
    }
    return weir_buffer_text(out, "]");
}

static weir_status write_pair(
    weir_buffer *out, const weir_call_force *f, const char *open, const char *close,
    const char *never
)
{
    WEIR_TRY(weir_buffer_text(out, "{"));
    if (open != NULL) WEIR_TRY(put_text(out, f, "\"open\":", open));
    WEIR_TRY(put_text(out, f, open != NULL ? ",\"close\":" : "\"close\":", close));
    WEIR_TRY(put_text(out, f, ",\"never\":[", never));
    return weir_buffer_text(out, "]}");
}

/* True if the vocabulary has the opening tag, so that the model may reason on its own. */
static bool has_tag(const weir_call_force *f, const char *tag)
{
    return f->token(f->vocabulary, tag, strcspn(tag, ">]") + 1) != WEIR_TOKEN_NONE;
}

static weir_status write_reasoning(weir_buffer *out, const weir_call_force *f)
{
    bool has_any = false;
    WEIR_TRY(weir_buffer_text(out, ",\"reasoning\":["));
    if (f->format->is_harmony && (f->is_required || f->tools == NULL))
        WEIR_TRY(write_pair(
            out, f, "<|channel|>analysis<|message|>", "<|end|><|start|>assistant", "<|end|>"
        ));
    if (f->format->is_harmony) return weir_buffer_text(out, "]");
    const char *const end = weir_reasoning_end_tag(f->start.tags);
    if (f->start.state == WEIR_THINK_INSIDE) WEIR_TRY(write_pair(out, f, NULL, end, end));
    for (int i = 0; f->start.state == WEIR_THINK_MAYBE && weir_reasoning_tag(i) != NULL; i++) {
        const char *const open = weir_reasoning_tag(i), *const close = weir_reasoning_end_tag(i);
        if (!has_tag(f, open)) continue;
        if (has_any) WEIR_TRY(weir_buffer_text(out, ","));
        WEIR_TRY(write_pair(out, f, open, close, close));
        has_any = true;
    }
    return weir_buffer_text(out, "]");
}

static weir_status write_tags(weir_buffer *out, const weir_call_force *f)
{
    const weir_call_tags *const tags = f->format->form.tags;
    if (f->format->form.is_python) return weir_buffer_text(out, ",\"python\":true");
    if (tags == NULL) return WEIR_OK;
    WEIR_TRY(put_text(out, f, ",\"tags\":{\"key\":", tags->key));
    WEIR_TRY(put_text(out, f, ",\"string\":", tags->string));
    WEIR_TRY(put_text(out, f, ",\"json\":", tags->json));
    WEIR_TRY(put_text(out, f, ",\"end\":", tags->end));
    WEIR_TRY(put_text(out, f, ",\"never\":", tags->never));
    return weir_buffer_text(out, "}");
}

static weir_status write_all(weir_buffer *out, const weir_call_force *f, const texts *t)
{
    const weir_call_form *const form = &f->format->form;
    WEIR_TRY(put_text(out, f, "{\"open\":", form->open));
    WEIR_TRY(put_text(out, f, ",\"separator\":", form->separator));
    WEIR_TRY(put_text(out, f, ",\"close\":", form->close));
    if (form->is_single || f->one_call) WEIR_TRY(weir_buffer_text(out, ",\"most\":1"));
    WEIR_TRY(write_tags(out, f));
    WEIR_TRY(write_reasoning(out, f));
    if (!f->is_required) WEIR_TRY(write_stops(out, f, t));
    WEIR_TRY(write_tools(out, f, t));
    return weir_buffer_text(out, "}");
}

weir_status weir_call_force_write(weir_buffer *out, const weir_call_force *f)
{
    const weir_call_form *const form = &f->format->form;
    texts t = { 0 };
    /* Text before a call of gpt-oss ends with the name of its channel. */
    const bool is_inside = f->format->is_harmony && !f->is_required;
    weir_status status = add_marked(&t.begin, f, is_inside ? "to=functions." : form->begin);
    if (status == WEIR_OK) status = add_marked(&t.middle, f, form->middle);
    if (status == WEIR_OK) status = add_marked(&t.end, f, form->end);
    if (status == WEIR_OK) status = write_all(out, f, &t);
    weir_buffer_free(&t.begin);
    weir_buffer_free(&t.middle);
    weir_buffer_free(&t.end);
    return status;
}

weir_status weir_reasoned_write(
    weir_buffer *out, const weir_call_force *f, const char *kind, const char *text, size_t n
)
{
    WEIR_TRY(weir_buffer_format(out, "{\"kind\":\"%s\",\"text\":", kind));
    WEIR_TRY(weir_value_quote(out, text, n));
    if (f->format->is_harmony)
        WEIR_TRY(put_text(out, f, ",\"open\":", "<|channel|>final<|message|>"));
    WEIR_TRY(write_reasoning(out, f));
    return weir_buffer_text(out, "}");
}
