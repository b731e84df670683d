/* tests/fuzz/toml_fuzz.c - any bytes as a TOML document, as a configuration file, and line by line
 * as --set. */
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/config/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

/* Reads every node; returns the depth. */
static size_t visit(const weir_toml_node *node, size_t *n_nodes)
{
    uint32_t line, column;
    weir_toml_position(node, &line, &column);
    require(++*n_nodes <= 2 * WEIR_TOML_VALUES + WEIR_TOML_DEPTH * WEIR_TOML_VALUES);
    size_t length, deepest = 0;
    const char *const text = weir_toml_string(node, &length);
    if (text != NULL) require(text[length] == '\0');
    const weir_toml_node *child;
    const char *key;
    for (size_t i = 0; (child = weir_toml_at(node, i, &key)) != NULL; i++) {
        require((key != NULL) == (weir_toml_type_of(node) == WEIR_TOML_TABLE));
        if (key != NULL) require(weir_toml_get(node, key) == child);
        const size_t depth = visit(child, n_nodes);
        if (depth > deepest) deepest = depth;
    }
    return deepest + 1;
}

static void read_document(const char *text, size_t size)
{
    weir_error error = { 0 };
    weir_toml *toml = NULL;
    const weir_status status = weir_toml_parse(&toml, text, size, "fuzz.toml", &error);
    if (status != WEIR_OK) {
        require(strncmp(error.text, "fuzz.toml:", 10) == 0);
        return;
    }
    size_t n_nodes = 0;
    require(visit(weir_toml_root(toml), &n_nodes) <= (WEIR_TOML_DEPTH + 1) * (WEIR_TOML_DEPTH + 1));
    weir_toml_close(toml);
}

/* What was accepted prints as a file that is accepted and prints the same. */
static void check_printed(const weir_config *config, weir_config *again)
{
    weir_buffer first = { 0 }, second = { 0 };
    require(weir_config_print(config, &first) == WEIR_OK);
    weir_config_default(again);
    require(weir_config_parse(again, first.data, first.size, "printed", NULL) == WEIR_OK);
    require(weir_config_print(again, &second) == WEIR_OK);
    require(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    weir_buffer_free(&first);
    weir_buffer_free(&second);
}

static bool set_lines(weir_config *config, const char *text, size_t size)
{
    bool any = false;
    while (size > 0) {
        const char *const end = memchr(text, '\n', size);
        const size_t length = end != NULL ? (size_t)(end - text) : size;
        char *const line = malloc(length + 1);
        require(line != NULL);
        memcpy(line, text, length);
        line[length] = '\0';
        weir_error error = { 0 };
        if (weir_config_assign(config, line, &error) == WEIR_OK)
            any = true;
        else
            require(error.text[0] != '\0');
        free(line);
        text += length + (end != NULL);
        size -= length + (end != NULL);
    }
    return any;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weir_config config, again;
    const char *const text = (const char *)data;
    weir_error error = { 0 };
    read_document(text, size);
    weir_config_default(&config);
    if (weir_config_parse(&config, text, size, "fuzz.toml", &error) == WEIR_OK)
        check_printed(&config, &again);
    else
        require(strncmp(error.text, "fuzz.toml:", 10) == 0);
    weir_config_default(&config);
    if (set_lines(&config, text, size)) check_printed(&config, &again);
    return 0;
}
