/* engine/config/toml_shim.cc - toml++ behind engine/config/toml.h. The only C++ of the engine: built without exceptions and RTTI.
 *
 * toml++ limits the nesting of arrays and inline tables, but not the parts of a dotted key: "a.a.a. ..." makes one table per dot, and
 * freeing them recurses. So the text is scanned once before it is parsed (check_limits), and the parser sees only what fits. */
/* Its assertions claim things about the text that hostile text breaks ("[=" where a key must start), although the code below each of them
 * reports the error; with NDEBUG they turn into __builtin_assume, and the compiler removes that code. So they are made to say nothing. */
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#define TOML_EXCEPTIONS 0
#define TOML_MAX_NESTED_VALUES 32
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <vector>

#include "engine/config/toml.h"

static_assert(TOML_MAX_NESTED_VALUES == WEIR_TOML_DEPTH, "one limit, two spellings");

/* toml::table sorts its members by key; this tree keeps them in file order, with the position of the key. */
struct weir_toml_node {
    const toml::node           *node;
    const char                 *key; /* NULL in arrays and at the root */
    toml::source_position       position;
    std::vector<weir_toml_node> children;
};

struct weir_toml {
    toml::table    table;
    weir_toml_node root;
};

namespace {

struct limits {
    uint32_t line = 1, column = 1; /* of the character looked at */
    size_t   values = 0, parts = 1, depth = 0;
    const char *broken = nullptr;  /* what was exceeded */
};

/* The end of the string that starts at `at`: past the closing quotes, or the end of the text when it is not closed (the parser says so). */
size_t string_end(std::string_view text, size_t at)
{
    const char quote = text[at];
    const bool multi_line = at + 2 < text.size() && text[at + 1] == quote && text[at + 2] == quote;
    size_t     i = at + (multi_line ? 3 : 1);
    for (; i < text.size(); i++) {
        if (text[i] == '\\' && quote == '"') i++;
        else if (text[i] == '\n' && !multi_line) return i;
        else if (text[i] == quote && !multi_line) return i + 1;
        else if (text[i] == quote && text.substr(i, 3) == std::string_view(text.data() + at, 3)) {
            i += 3;
            while (i < text.size() && text[i] == quote) i++; /* up to two quotes may stand before the closing three */
            return i;
        }
    }
    return text.size();
}

void advance(limits &l, std::string_view passed)
{
    for (const char c : passed) {
        if (c == '\n') {
            l.line++;
            l.column = 1;
        } else if ((static_cast<unsigned char>(c) & 0xC0u) != 0x80u) {
            l.column++;
        }
    }
}

/* One character outside strings and comments. */
void count(limits &l, char c)
{
    switch (c) {
    case '.': l.parts++; break;
    case '[':
    case '{':
        l.depth++;
        l.values++;
        l.parts = 1;
        break;
    case ']':
    case '}':
        if (l.depth > 0) l.depth--;
        l.parts = 1;
        break;
    case ',':
    case '=':
        l.values++;
        l.parts = 1;
        break;
    case '\n':
        l.parts = 1;
        break;
    default: break;
    }
    if (l.parts > WEIR_TOML_DEPTH) l.broken = "too many parts in one dotted key, at most 32";
    if (l.depth > WEIR_TOML_DEPTH) l.broken = "nested too deep, at most 32 levels";
    if (l.values > WEIR_TOML_VALUES) l.broken = "too many keys and values, at most 65536";
}

limits check_limits(std::string_view text)
{
    limits l;
    for (size_t i = 0; i < text.size() && l.broken == nullptr;) {
        size_t end = i + 1;
        if (text[i] == '"' || text[i] == '\'') end = string_end(text, i);
        else if (text[i] == '#') end = std::min(text.find('\n', i), text.size());
        else count(l, text[i]);
        if (l.broken == nullptr) advance(l, text.substr(i, end - i));
        i = end;
    }
    return l;
}

void adopt(weir_toml_node &parent, const toml::node &node, const toml::key *key)
{
    parent.children.push_back({ &node, key ? key->str().data() : nullptr, key ? key->source().begin : node.source().begin, {} });
}

/* False when a key holds NUL. Recursion is bounded by WEIR_TOML_DEPTH levels of values with WEIR_TOML_DEPTH parts per key each. */
bool build(weir_toml_node &parent)
{
    if (const toml::table *table = parent.node->as_table()) {
        parent.children.reserve(table->size());
        for (const auto &[key, node] : *table) {
            if (key.str().find('\0') != std::string_view::npos) return false;
            adopt(parent, node, &key);
        }
        std::sort(parent.children.begin(), parent.children.end(), [](const weir_toml_node &a, const weir_toml_node &b) {
            return a.position.line != b.position.line ? a.position.line < b.position.line : a.position.column < b.position.column;
        });
    } else if (const toml::array *array = parent.node->as_array()) {
        parent.children.reserve(array->size());
        for (const toml::node &node : *array) adopt(parent, node, nullptr);
    }
    return std::all_of(parent.children.begin(), parent.children.end(), build);
}

} // namespace

extern "C" weir_status weir_toml_parse(weir_toml **out, const char *text, size_t length, const char *name, weir_error *error)
{
    if (length > WEIR_TOML_BYTES)
        return weir_error_set(error, WEIR_ECONFIG, "%s:1:1: %zu bytes, at most 1 MiB (%d) is read", name, length, WEIR_TOML_BYTES);
    const std::string_view view(text, length);
    const limits           l = check_limits(view);
    if (l.broken != nullptr) return weir_error_set(error, WEIR_ECONFIG, "%s:%u:%u: %s", name, l.line, l.column, l.broken);

    toml::parse_result result = toml::parse(view);
    if (!result) {
        const toml::parse_error   &failure = result.error();
        const toml::source_position at = failure.source().begin;
        const std::string_view     what = failure.description();
        return weir_error_set(error, WEIR_ECONFIG, "%s:%u:%u: %.*s", name, at.line, at.column,
                              static_cast<int>(std::min<size_t>(what.size(), 500)), what.data());
    }
    weir_toml *const document = new (std::nothrow) weir_toml{ std::move(result).table(), {} };
    if (document == nullptr) return weir_error_set(error, WEIR_ENOMEM, "%s: no memory", name);
    document->root = { &document->table, nullptr, { 1, 1 }, {} };
    if (!build(document->root)) {
        delete document;
        return weir_error_set(error, WEIR_ECONFIG, "%s:1:1: a key holds the character NUL", name);
    }
    *out = document;
    return WEIR_OK;
}

extern "C" void weir_toml_close(weir_toml *document) { delete document; }
extern "C" const weir_toml_node *weir_toml_root(const weir_toml *document) { return &document->root; }

extern "C" weir_toml_type weir_toml_type_of(const weir_toml_node *node)
{
    switch (node->node->type()) {
    case toml::node_type::none:
    case toml::node_type::table: return WEIR_TOML_TABLE;
    case toml::node_type::array: return WEIR_TOML_ARRAY;
    case toml::node_type::string: return WEIR_TOML_STRING;
    case toml::node_type::integer: return WEIR_TOML_INT;
    case toml::node_type::floating_point: return WEIR_TOML_FLOAT;
    case toml::node_type::boolean: return WEIR_TOML_BOOL;
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time: break;
    }
    return WEIR_TOML_DATE;
}

extern "C" const char *weir_toml_type_name(weir_toml_type type)
{
    switch (type) {
    case WEIR_TOML_TABLE: return "a table";
    case WEIR_TOML_ARRAY: return "an array";
    case WEIR_TOML_STRING: return "a string";
    case WEIR_TOML_INT: return "an integer";
    case WEIR_TOML_FLOAT: return "a number with a fraction";
    case WEIR_TOML_BOOL: return "a boolean";
    case WEIR_TOML_DATE: break;
    }
    return "a date or time";
}

extern "C" size_t weir_toml_size(const weir_toml_node *node) { return node->children.size(); }

extern "C" const weir_toml_node *weir_toml_at(const weir_toml_node *node, size_t index, const char **key)
{
    if (index >= node->children.size()) return nullptr;
    if (key != nullptr) *key = node->children[index].key;
    return &node->children[index];
}

extern "C" const weir_toml_node *weir_toml_get(const weir_toml_node *table, const char *key)
{
    for (const weir_toml_node &child : table->children)
        if (child.key != nullptr && std::string_view(child.key) == key) return &child;
    return nullptr;
}

extern "C" const char *weir_toml_string(const weir_toml_node *node, size_t *length)
{
    const toml::value<std::string> *const value = node->node->as_string();
    if (value == nullptr) return nullptr;
    if (length != nullptr) *length = value->get().size();
    return value->get().c_str();
}

extern "C" bool weir_toml_int(const weir_toml_node *node, int64_t *out)
{
    const toml::value<int64_t> *const value = node->node->as_integer();
    if (value != nullptr) *out = value->get();
    return value != nullptr;
}

extern "C" bool weir_toml_float(const weir_toml_node *node, double *out)
{
    if (const toml::value<double> *const value = node->node->as_floating_point()) {
        *out = value->get();
        return true;
    }
    int64_t whole = 0;
    if (!weir_toml_int(node, &whole)) return false;
    *out = static_cast<double>(whole);
    return true;
}

extern "C" bool weir_toml_bool(const weir_toml_node *node, bool *out)
{
    const toml::value<bool> *const value = node->node->as_boolean();
    if (value != nullptr) *out = value->get();
    return value != nullptr;
}

extern "C" void weir_toml_position(const weir_toml_node *node, uint32_t *line, uint32_t *column)
{
    *line = node->position.line;
    *column = node->position.column;
}
