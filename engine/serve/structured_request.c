#include "engine/serve/structured_request.h"

#include <string.h>

#include "engine/formats/json.h"
#include "engine/serve/json_in.h"

static const char any_object[] = "{\"type\":\"object\"}";

/* How the value of a field is read. */
typedef enum source_form {
    FORM_RESPONSE_FORMAT, /* {"type": ..., "json_schema": {"schema": ...}} */
    FORM_STRUCTURED, /* {"json" | "regex" | "choice" | "grammar" | "json_object": ...} */
    FORM_SCHEMA, /* a JSON schema, or its text */
    FORM_STRING,
    FORM_LIST, /* of strings */
} source_form;

typedef struct source {
    const char *field;
    source_form form;
    weir_grammar_kind kind;
} source;

static const source sources[] = {
    { "response_format", FORM_RESPONSE_FORMAT, WEIR_GRAMMAR_SCHEMA },
    { "structured_outputs", FORM_STRUCTURED, WEIR_GRAMMAR_SCHEMA },
    { "guided_json", FORM_SCHEMA, WEIR_GRAMMAR_SCHEMA },
    { "guided_regex", FORM_STRING, WEIR_GRAMMAR_REGEX },
    { "guided_choice", FORM_LIST, WEIR_GRAMMAR_CHOICE },
    { "guided_grammar", FORM_STRING, WEIR_GRAMMAR_GBNF },
    { "json_schema", FORM_SCHEMA, WEIR_GRAMMAR_SCHEMA },
    { "grammar", FORM_STRING, WEIR_GRAMMAR_GBNF },
};
enum { N_SOURCES = sizeof sources / sizeof sources[0] };

/* The members of structured_outputs, whose values have these forms. */
static const source members[] = {
    { "json", FORM_SCHEMA, WEIR_GRAMMAR_SCHEMA },
    { "regex", FORM_STRING, WEIR_GRAMMAR_REGEX },
    { "choice", FORM_LIST, WEIR_GRAMMAR_CHOICE },
    { "grammar", FORM_STRING, WEIR_GRAMMAR_GBNF },
};
enum { N_MEMBERS = sizeof members / sizeof members[0] };

static weir_status set_text(
    weir_structured *out, weir_grammar_kind kind, const char *text, size_t n, weir_api_error *error
)
{
    out->kind = kind;
    return weir_buffer_add(&out->text, text, n) == WEIR_OK ? WEIR_OK : weir_api_no_memory(error);
}

static weir_status set_json(
    weir_structured *out, weir_grammar_kind kind, const json_t *value, weir_api_error *error
)
{
    out->kind = kind;
    const weir_status status = weir_json_write(&out->text, value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (status != WEIR_OK) weir_api_from_status(error, status, NULL);
    return status;
}

/* name: of the field or of its member, for messages. */
static weir_status read_value(
    weir_structured *out, const source *from, const char *name, const json_t *value,
    weir_api_error *error
)
{
    if (from->form == FORM_SCHEMA && !json_is_string(value)) {
        if (json_is_object(value) || json_is_boolean(value))
            return set_json(out, from->kind, value, error);
        return weir_api_bad(error, out->field, "%s must be a JSON schema", name);
    }
    if (from->form == FORM_LIST) {
        if (json_is_array(value)) return set_json(out, from->kind, value, error);
        return weir_api_bad(error, out->field, "%s must be a list of strings", name);
    }
    if (!json_is_string(value)) return weir_api_bad(error, out->field, "%s must be a string", name);
    return set_text(out, from->kind, json_string_value(value), json_string_length(value), error);
}

static weir_status read_response_format(
    weir_structured *out, const json_t *value, weir_api_error *error
)
{
    const char *const field = out->field;
    const char *const type = json_string_value(json_object_get(value, "type"));
    const source schema = { field, FORM_SCHEMA, WEIR_GRAMMAR_SCHEMA };
    if (type == NULL)
        return weir_api_bad(error, field, "response_format must be an object with a type");
    if (strcmp(type, "text") == 0) {
        out->field = NULL;
        return WEIR_OK;
    }
    if (strcmp(type, "json_object") == 0) {
        const json_t *const given = weir_field(value, "schema"); /* llama.cpp */
        if (given != NULL) return read_value(out, &schema, "response_format.schema", given, error);
        return set_text(out, WEIR_GRAMMAR_SCHEMA, any_object, sizeof any_object - 1, error);
    }
    if (strcmp(type, "json_schema") != 0)
        return weir_api_bad(error, field, "unknown response_format type %s", weir_quote(type).text);
    const json_t *const given = weir_field(weir_field(value, "json_schema"), "schema");
    if (given == NULL)
        return weir_api_bad(error, field, "response_format.json_schema.schema is missing");
    return read_value(out, &schema, "response_format.json_schema.schema", given, error);
}

static weir_status read_structured_outputs(
    weir_structured *out, const json_t *value, weir_api_error *error
)
{
    const char *const field = out->field;
    const char *key;
    json_t *member;
    int n_found = 0;
    if (!json_is_object(value))
        return weir_api_bad(error, field, "structured_outputs must be an object");
    json_object_foreach((json_t *)value, key, member)
    {
        const source *from = NULL;
        if (json_is_null(member) || json_is_false(member)) continue;
        for (size_t i = 0; i < N_MEMBERS; i++)
            if (strcmp(key, members[i].field) == 0) from = &members[i];
        if (n_found++ > 0)
            return weir_api_bad(error, field, "structured_outputs takes one constraint");
        if (from != NULL)
            WEIR_TRY(read_value(out, from, key, member, error));
        else if (strcmp(key, "json_object") == 0 && json_is_true(member))
            WEIR_TRY(set_text(out, WEIR_GRAMMAR_SCHEMA, any_object, sizeof any_object - 1, error));
        else
            return weir_api_bad(
                error, field, "structured_outputs.%s is not supported", weir_quote(key).text
            );
    }
    if (n_found == 0) return weir_api_bad(error, field, "structured_outputs has no constraint");
    return WEIR_OK;
}

static weir_status read_source(
    weir_structured *out, const source *from, const json_t *value, weir_api_error *error
)
{
    out->field = from->field;
    if (from->form == FORM_RESPONSE_FORMAT) return read_response_format(out, value, error);
    if (from->form == FORM_STRUCTURED) return read_structured_outputs(out, value, error);
    return read_value(out, from, from->field, value, error);
}

weir_status weir_structured_read(weir_structured *out, const json_t *root, weir_api_error *error)
{
    for (size_t i = 0; i < N_SOURCES; i++) {
        const json_t *const value = weir_field(root, sources[i].field);
        const char *const first = out->field;
        if (value == NULL) continue;
        weir_structured read = { 0 };
        const weir_status status = read_source(&read, &sources[i], value, error);
        if (status != WEIR_OK || (first != NULL && read.field != NULL)) {
            weir_buffer_free(&read.text);
            return status != WEIR_OK ? status
                                     : weir_api_bad(
                                           error, sources[i].field, "%s and %s exclude each other",
                                           first, sources[i].field
                                       );
        }
        if (read.field != NULL) *out = read;
    }
    return WEIR_OK;
}
