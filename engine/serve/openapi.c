/* engine/serve/openapi.c - the document of /openapi.json. What fields may hold and what they mean
 * comes from their tables; only the inside of objects and arrays is described by hand
 * (openapi_schemas.json). */
#include "engine/serve/openapi.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/serve/anthropic_error.h"
#include "engine/serve/internal.h"
#include "engine/serve/ollama_request.h"

/* Schemas of values that have members, as the members of an object. */
static const unsigned char forms[] = {
#include "engine/serve/openapi_schemas.inc"
};

/* Bodies by name. `optional`: a needed field that may be absent in this one. `rule`: the name of a
 * schema for fields that depend on each other. */
static const struct {
    const char *name;
    weir_body body;
    const char *optional, *rule;
} requests[] = {
    { "ChatRequest", .body = WEIR_BODY_CHAT },
    { "CompletionRequest", .body = WEIR_BODY_COMPLETION, .rule = "CompletionLength" },
    { "ResponsesRequest", .body = WEIR_BODY_RESPONSES },
    { "MessagesRequest", .body = WEIR_BODY_MESSAGES },
    { "CountRequest", .body = WEIR_BODY_MESSAGES, .optional = "max_tokens" },
    { "EmbeddingsRequest", .body = WEIR_BODY_EMBEDDINGS },
    { "RerankRequest", .body = WEIR_BODY_RERANK },
    { "TokenizeRequest", .body = WEIR_BODY_TOKENIZE },
    { "DetokenizeRequest", .body = WEIR_BODY_DETOKENIZE },
    { "SaveRequest", .body = WEIR_BODY_SESSION_SAVE },
    { "RestoreRequest", .body = WEIR_BODY_SESSION_RESTORE },
    { "StateRequest", .body = WEIR_BODY_STATE },
    { "QueryRequest", .body = WEIR_BODY_STATE_QUERY },
    { "MergeRequest", .body = WEIR_BODY_STATE_MERGE },
    { "LlamaRequest", .body = WEIR_BODY_LLAMA },
    { "InfillRequest", .body = WEIR_BODY_INFILL },
    { "SlotRequest", .body = WEIR_BODY_SLOT },
    { "OllamaChatRequest", .body = WEIR_BODY_OLLAMA_CHAT },
    { "OllamaGenerateRequest", .body = WEIR_BODY_OLLAMA_GENERATE },
    { "OllamaShowRequest", .body = WEIR_BODY_OLLAMA_SHOW },
    { "OllamaEmbedRequest", .body = WEIR_BODY_OLLAMA_EMBED },
    { "OllamaEmbeddingsRequest", .body = WEIR_BODY_OLLAMA_EMBEDDINGS },
};
enum { N_REQUESTS = sizeof requests / sizeof requests[0] };

static void open_member(weir_json_out *json, const char *key, char bracket)
{
    weir_json_key(json, key);
    weir_json_open(json, bracket);
}

static void write_ref(weir_json_out *json, const char *name)
{
    char path[96];
    (void)snprintf(path, sizeof path, "#/components/schemas/%s", name);
    weir_json_open(json, '{');
    weir_json_put_string(json, "$ref", path);
    weir_json_close(json, '}');
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* The member "type"; null stands for an absent field. */
static void write_type(weir_json_out *json, const char *type, bool is_needed)
{
    if (is_needed) {
        weir_json_put_string(json, "type", type);
        return;
    }
    open_member(json, "type", '[');
    weir_json_string(json, type);
    weir_json_string(json, "null");
    weir_json_close(json, ']');
}

/* Whole numbers with all their digits. */
static void put_limit(weir_json_out *json, const char *key, double limit)
{
    if (limit == floor(limit))
        weir_json_put_integer(json, key, (int64_t)limit);
    else
        weir_json_put_number(json, key, limit);
}

static void write_range(weir_json_out *json, const weir_field_row *row, bool has_keys)
{
    const double least = has_keys && row->raised_by_keys ? 0 : row->least;
    if (!weir_field_has_range(row)) return;
    if (isfinite(least)) put_limit(json, row->above ? "exclusiveMinimum" : "minimum", least);
    if (row->most < WEIR_FIELD_LARGE) put_limit(json, "maximum", row->most);
}

static void write_form(weir_json_out *json, const weir_field_row *row, bool is_needed)
{
    open_member(json, "anyOf", '[');
    write_ref(json, row->form);
    if (!is_needed) {
        weir_json_open(json, '{');
        weir_json_put_string(json, "type", "null");
        weir_json_close(json, '}');
    }
    weir_json_close(json, ']');
}

/* maxLength counts characters, which are no more than bytes. */
static void write_length(weir_json_out *json, const weir_field_row *row)
{
    if (row->most == 0) return;
    put_limit(json, "maxLength", row->most);
    put_limit(json, "x-weir-max-bytes", row->most);
}

static void write_values(
    weir_json_out *json, const weir_field_row *row, bool is_needed, bool has_keys
)
{
    switch (row->type) {
    case WEIR_FIELD_ANY: break;
    case WEIR_FIELD_STRING:
        write_type(json, "string", is_needed);
        write_length(json, row);
        break;
    case WEIR_FIELD_OBJECT: write_type(json, "object", is_needed); break;
    case WEIR_FIELD_BOOL: write_type(json, "boolean", is_needed); break;
    case WEIR_FIELD_INTEGER:
        write_type(json, "integer", is_needed);
        write_range(json, row, has_keys);
        break;
    case WEIR_FIELD_NUMBER:
        write_type(json, "number", is_needed);
        write_range(json, row, has_keys);
        break;
    case WEIR_FIELD_FORM: write_form(json, row, is_needed); break;
    }
}

static void write_default(weir_json_out *json, const weir_field_row *row)
{
    if (row->initial == NULL) return;
    if (row->initial[0] == '$') {
        weir_json_put_string(json, "x-weir-default", row->initial + 1);
        return;
    }
    weir_json_key(json, "default");
    weir_json_raw(json, row->initial, strlen(row->initial));
}

/* Of an unsupported field: null, and false where that means the same. */
static void write_off(weir_json_out *json, const weir_field_row *row)
{
    open_member(json, "enum", '[');
    weir_json_null(json);
    if (row->type == WEIR_FIELD_BOOL) weir_json_bool(json, false);
    weir_json_close(json, ']');
}

static const char *description_of(const weir_field_row *row, unsigned body)
{
    switch (row->use) {
    case WEIR_FIELD_READ: return weir_field_meaning(row->key, body);
    case WEIR_FIELD_IGNORED: return "Has no effect";
    case WEIR_FIELD_OFF: return "Only values without an effect";
    case WEIR_FIELD_UNSUPPORTED: return "Not supported";
    }
    return NULL;
}

static void write_field(
    weir_json_out *json, const weir_field_row *row, unsigned body, bool is_needed, bool has_keys
)
{
    open_member(json, row->key, '{');
    const char *const description = description_of(row, body);
    if (description != NULL) weir_json_put_string(json, "description", description);
    if (row->use == WEIR_FIELD_UNSUPPORTED)
        write_off(json, row);
    else
        write_values(json, row, is_needed, has_keys);
    write_default(json, row);
    weir_json_close(json, '}');
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static bool is_needed(const weir_field_row *row, size_t index)
{
    const char *const optional = requests[index].optional;
    return (row->needed & requests[index].body) && !(optional && strcmp(row->key, optional) == 0);
}

/* Other fields are ignored and reported, but for those that begin with kv_. */
static void write_others(weir_json_out *json, size_t index)
{
    char pattern[256] = "^kv_";
    size_t used = strlen(pattern), n_rows;
    const weir_field_row *const rows = weir_field_rows(&n_rows);
    for (size_t i = 0; i < n_rows; i++)
        if ((rows[i].bodies & requests[index].body) && strncmp(rows[i].key, "kv_", 3) == 0)
            used +=
                (size_t)snprintf(pattern + used, sizeof pattern - used, "(?!%s$)", rows[i].key + 3);
    open_member(json, "patternProperties", '{');
    weir_json_key(json, pattern);
    weir_json_bool(json, false);
    weir_json_close(json, '}');
}

static void write_rule(weir_json_out *json, const char *name)
{
    if (name == NULL) return;
    open_member(json, "allOf", '[');
    write_ref(json, name);
    weir_json_close(json, ']');
}

static void write_request(weir_json_out *json, size_t index, bool has_keys)
{
    size_t n_rows;
    const weir_field_row *const rows = weir_field_rows(&n_rows);
    open_member(json, requests[index].name, '{');
    weir_json_put_string(json, "type", "object");
    open_member(json, "required", '[');
    for (size_t i = 0; i < n_rows; i++)
        if (is_needed(&rows[i], index)) weir_json_string(json, rows[i].key);
    weir_json_close(json, ']');
    open_member(json, "properties", '{');
    for (size_t i = 0; i < n_rows; i++)
        if (rows[i].bodies & requests[index].body)
            write_field(json, &rows[i], requests[index].body, is_needed(&rows[i], index), has_keys);
    weir_json_close(json, '}');
    write_others(json, index);
    write_rule(json, requests[index].rule);
    weir_json_close(json, '}');
}

static void write_components(weir_json_out *json, bool has_keys)
{
    open_member(json, "components", '{');
    open_member(json, "schemas", '{');
    for (size_t i = 0; i < N_REQUESTS; i++) write_request(json, i, has_keys);
    size_t begin = 0, end = sizeof forms;
    while (forms[begin] != '{') begin++;
    while (forms[end - 1] != '}') end--;
    weir_json_raw(json, (const char *)forms + begin + 1, end - begin - 2);
    weir_json_close(json, '}');
    open_member(json, "securitySchemes", '{');
    open_member(json, "bearer", '{');
    weir_json_put_string(json, "type", "http");
    weir_json_put_string(json, "scheme", "bearer");
    weir_json_close(json, '}');
    open_member(json, "key", '{');
    weir_json_put_string(json, "type", "apiKey");
    weir_json_put_string(json, "in", "header");
    weir_json_put_string(json, "name", "x-api-key");
    weir_json_close(json, '}');
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

/* ---- paths ----------------------------------------------------------------------------------- */

static void write_parameter(weir_json_out *json, const char *name, size_t n, const char *place)
{
    weir_json_open(json, '{');
    weir_json_key(json, "name");
    weir_json_bytes(json, name, n);
    weir_json_put_string(json, "in", place);
    weir_json_put_bool(json, "required", strcmp(place, "path") == 0);
    open_member(json, "schema", '{');
    weir_json_put_string(json, "type", "string");
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

static bool has_id(const weir_route *route)
{
    const size_t n = strlen(route->path);
    return n > 1 && route->path[n - 1] == '/';
}

static void write_parameters(weir_json_out *json, const weir_route *route)
{
    if (!has_id(route) && route->query == NULL) return;
    open_member(json, "parameters", '[');
    if (has_id(route)) write_parameter(json, "id", 2, "path");
    for (const char *at = route->query; at != NULL && *at != 0; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        write_parameter(json, at, n, "query");
        at += n;
    }
    weir_json_close(json, ']');
}

static void open_content(weir_json_out *json, const char *type)
{
    open_member(json, type, '{');
    weir_json_key(json, "schema");
}

/* A body that not all actions of the query need is optional. */
static void write_request_body(weir_json_out *json, const weir_route *route)
{
    if (route->request == NULL) return;
    open_member(json, "requestBody", '{');
    weir_json_put_bool(json, "required", route->query == NULL);
    open_member(json, "content", '{');
    open_content(json, "application/json");
    write_ref(json, route->request);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

static void write_any(weir_json_out *json, const char *type)
{
    open_content(json, type);
    weir_json_open(json, '{');
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

static const char *error_of(const weir_route *route)
{
    if (weir_ollama_has_path(route->path)) return "OllamaError";
    return weir_anthropic_has_path(route->path) ? "AnthropicError" : "Error";
}

static void write_replies(weir_json_out *json, const weir_route *route)
{
    open_member(json, "responses", '{');
    open_member(json, "200", '{');
    weir_json_put_string(json, "description", "The answer");
    open_member(json, "content", '{');
    write_any(json, route->produces != NULL ? route->produces : "application/json");
    if (route->streams != NULL) write_any(json, route->streams);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
    open_member(json, "default", '{');
    weir_json_put_string(json, "description", "An error");
    open_member(json, "content", '{');
    open_content(json, "application/json");
    write_ref(json, error_of(route));
    weir_json_close(json, '}');
    weir_json_close(json, '}');
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

static void write_operation(weir_json_out *json, const weir_route *route)
{
    char method[8] = "";
    for (size_t i = 0; route->method[i] != 0 && i + 1 < sizeof method; i++)
        method[i] = (char)tolower((unsigned char)route->method[i]);
    open_member(json, method, '{');
    weir_json_put_string(json, "summary", route->summary);
    if (route->is_public) {
        open_member(json, "security", '[');
        weir_json_close(json, ']');
    }
    write_parameters(json, route);
    write_request_body(json, route);
    write_replies(json, route);
    weir_json_close(json, '}');
}

/* Methods of one path belong together; each path is written where it comes first. */
static void write_path(weir_json_out *json, const weir_route *routes, size_t n_routes, size_t at)
{
    char path[64];
    for (size_t i = 0; i < at; i++)
        if (strcmp(routes[i].path, routes[at].path) == 0) return;
    (void)snprintf(path, sizeof path, "%s%s", routes[at].path, has_id(&routes[at]) ? "{id}" : "");
    open_member(json, path, '{');
    for (size_t i = at; i < n_routes; i++)
        if (strcmp(routes[i].path, routes[at].path) == 0) write_operation(json, &routes[i]);
    weir_json_close(json, '}');
}

static void write_security(weir_json_out *json)
{
    static const char *const schemes[] = { "bearer", "key" };
    open_member(json, "security", '[');
    for (size_t i = 0; i < 2; i++) {
        weir_json_open(json, '{');
        open_member(json, schemes[i], '[');
        weir_json_close(json, ']');
        weir_json_close(json, '}');
    }
    weir_json_close(json, ']');
}

weir_status weir_openapi_write(weir_buffer *out, const char *version, bool has_keys)
{
    weir_json_out json = { .buffer = out };
    size_t n_routes;
    const weir_route *const routes = weir_routes(&n_routes);
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "openapi", "3.1.0");
    open_member(&json, "info", '{');
    weir_json_put_string(&json, "title", "Weir");
    weir_json_put_string(&json, "version", version);
    weir_json_put_string(
        &json, "description",
        "Fields that are not listed are ignored, and named in the header x-weir-warning. Keys are "
        "needed if the server has any. x-weir-default is a key of the server's configuration; "
        "x-weir-max-bytes is the most bytes of a string in UTF-8."
    );
    weir_json_close(&json, '}');
    write_security(&json);
    open_member(&json, "paths", '{');
    for (size_t i = 0; i < n_routes; i++) write_path(&json, routes, n_routes, i);
    weir_json_close(&json, '}');
    write_components(&json, has_keys);
    weir_json_close(&json, '}');
    return json.status;
}
