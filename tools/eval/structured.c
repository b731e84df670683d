/* tools/eval/structured.c - runs cases of constrained decoding. */
#include "tools/eval/structured.h"

#include <string.h>
#include <time.h>

#include "engine/base/memory.h"
#include "engine/constrain/constrain.h"
#include "engine/constrain/tree.h"

/* Counts what is allocated now and at most. */
typedef struct counter {
    weir_memory_tracker tracker;
    size_t now, peak;
} counter;

static bool charge(weir_memory_tracker *tracker, size_t bytes)
{
    counter *const c = (counter *)tracker;
    c->now += bytes;
    if (c->now > c->peak) c->peak = c->now;
    return true;
}

static void refund(weir_memory_tracker *tracker, size_t bytes)
{
    ((counter *)tracker)->now -= bytes;
}

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Appends a JSON string; other bytes than UTF-8 do not occur in messages. */
static weir_status quote(weir_buffer *out, const char *text)
{
    WEIR_TRY(weir_buffer_text(out, "\""));
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\') {
            WEIR_TRY(weir_buffer_format(out, "\\u%04x", c));
        } else {
            WEIR_TRY(weir_buffer_add(out, text, 1));
        }
    }
    return weir_buffer_text(out, "\"");
}

/* Appends {"ok": ..., "at": ...} for a text. */
static weir_status run_text(
    weir_buffer *out, weir_grammar *grammar, const weir_tree *text, weir_error *error
)
{
    weir_grammar_state *state = NULL;
    size_t passed = 0;
    weir_status status = weir_grammar_state_open(&state, grammar, error);
    if (status == WEIR_OK) {
        status = weir_grammar_accept_bytes(state, text->text, text->length, &passed, error);
    }
    if (status == WEIR_EFULL) {
        status = weir_buffer_format(out, "{\"ok\": false, \"at\": %zu, \"message\": ", passed);
        if (status == WEIR_OK) status = quote(out, error->text);
        if (status == WEIR_OK) status = weir_buffer_text(out, "}");
    } else if (status == WEIR_OK) {
        const bool ok = passed == text->length && weir_grammar_is_complete(state);
        status = ok ? weir_buffer_text(out, "{\"ok\": true}")
                    : weir_buffer_format(out, "{\"ok\": false, \"at\": %zu}", passed);
    }
    weir_grammar_state_close(state);
    return status;
}

static weir_status run_texts(
    weir_buffer *out, weir_grammar *grammar, const weir_tree *texts, weir_error *error
)
{
    WEIR_TRY(weir_buffer_text(out, ", \"texts\": ["));
    for (size_t i = 0; i < texts->n; i++) {
        const weir_tree *const t = weir_tree_get(&texts->items[i], "t");
        if (t == NULL || t->kind != WEIR_TREE_STRING) {
            return weir_error_set(error, WEIR_EFORMAT, "a text has no \"t\"");
        }
        if (i > 0) WEIR_TRY(weir_buffer_text(out, ", "));
        WEIR_TRY(run_text(out, grammar, t, error));
    }
    return weir_buffer_text(out, "]");
}

static weir_status run_case(
    weir_buffer *out, const weir_tree *c, counter *memory, size_t number, weir_error *error
)
{
    const weir_tree *const id = weir_tree_get(c, "id");
    const weir_tree *const kind = weir_tree_get(c, "kind");
    const weir_tree *const texts = weir_tree_get(c, "texts");
    int found = 0;
    while (found < WEIR_GRAMMAR_COUNT && kind != NULL &&
           !weir_tree_is(kind, weir_grammar_kind_name((weir_grammar_kind)found))) {
        found++;
    }
    const weir_tree *const value =
        kind == NULL || found == WEIR_GRAMMAR_COUNT
            ? NULL
            : weir_tree_get(c, weir_grammar_kind_name((weir_grammar_kind)found));
    if (id == NULL || texts == NULL || texts->kind != WEIR_TREE_ARRAY || value == NULL) {
        return weir_error_set(
            error, WEIR_EFORMAT, "line %zu: a case has id, kind, texts and the field of its kind",
            number
        );
    }
    const bool json = found == WEIR_GRAMMAR_SCHEMA || found == WEIR_GRAMMAR_CHOICE;
    const bool plain = !json && value->kind == WEIR_TREE_STRING;
    weir_grammar *grammar = NULL;
    weir_grammar_fault fault;
    const double begin = milliseconds();
    weir_status status = weir_grammar_compile(
        &grammar, (weir_grammar_kind)found, plain ? value->text : value->raw,
        plain ? value->length : value->raw_length, NULL, NULL, &memory->tracker, &fault, error
    );
    const double compile_ms = milliseconds() - begin;
    const bool refused = status == WEIR_EFORMAT || status == WEIR_EUNSUPPORTED;
    if (status != WEIR_OK && !refused) return status;
    status = weir_buffer_format(
        out, "{\"id\": %.*s, \"status\": \"%s\", \"compile_ms\": %.3f", (int)id->raw_length,
        id->raw, refused ? "refused" : "ok", compile_ms
    );
    if (status == WEIR_OK && refused) {
        status = weir_buffer_text(out, ", \"keyword\": ");
        if (status == WEIR_OK) status = quote(out, fault.keyword);
        if (status == WEIR_OK) status = weir_buffer_text(out, ", \"message\": ");
        if (status == WEIR_OK) status = quote(out, error->text);
    } else if (status == WEIR_OK) {
        status = run_texts(out, grammar, texts, error);
    }
    weir_grammar_release(grammar);
    if (status != WEIR_OK) return status;
    return weir_buffer_format(out, ", \"peak_bytes\": %zu}\n", memory->peak);
}

weir_status weir_structured_run(
    weir_buffer *out, const char *line, size_t n, size_t number, weir_error *error
)
{
    counter memory = { .tracker = { .charge = charge, .refund = refund } };
    weir_tree_reader reader = { .most_depth = WEIR_TREE_DEEPEST };
    const weir_tree *c;
    weir_status status = weir_tree_read(&reader, &c, line, n, "case", error);
    if (status == WEIR_OK) status = run_case(out, c, &memory, number, error);
    weir_tree_reader_free(&reader);
    return status;
}
