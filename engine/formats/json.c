/* engine/formats/json.c - JSON values from text and to text: error messages, memory, writing. */
#include "engine/formats/json.h"

#include <stdio.h>

#include "engine/base/file.h"
#include "engine/base/heap.h"
#include "engine/base/memory.h"

const weir_json_limits weir_json_file = { .depth = WEIR_JSON_DEPTH,
                                          .values = 4 << 20,
                                          .keys = 4 << 20 };
const weir_json_limits weir_json_config = {
    .depth = WEIR_JSON_DEPTH, .values = 4 << 20, .keys = 4 << 20, .reads_infinity = true
};
const weir_json_limits weir_json_request = { .depth = WEIR_JSON_DEPTH,
                                             .values = WEIR_JSON_VALUES,
                                             .keys = WEIR_JSON_KEYS };

/* ---- memory ---------------------------------------------------------------------------------- */
static bool uses_memory; /* set before threads start */
static _Thread_local bool ran_out;

static void *take(size_t n)
{
    void *const memory = weir_memory_take(n);
    if (memory == NULL) ran_out = true;
    return memory;
}

void weir_json_use_memory(void)
{
    json_set_alloc_funcs(take, weir_memory_give);
    uses_memory = true;
}

bool weir_json_ran_out(void)
{
    const bool before = ran_out;
    ran_out = false;
    return before;
}

/* ---- reading --------------------------------------------------------------------------------- */
static weir_status refuse(
    weir_json_fault fault, const weir_json_place *place, const char *name,
    const weir_json_limits *limits, weir_error *error
)
{
    char reason[64] = "";
    switch (fault) {
    case WEIR_JSON_FINE: break;
    case WEIR_JSON_NO_MEMORY:
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory for its JSON values", name);
    case WEIR_JSON_SYNTAX: (void)snprintf(reason, sizeof reason, "%s", place->reason); break;
    case WEIR_JSON_TOO_DEEP:
        (void)snprintf(reason, sizeof reason, "nested deeper than %zu levels", limits->depth);
        break;
    case WEIR_JSON_TOO_MANY_VALUES:
        (void)snprintf(reason, sizeof reason, "more than %zu values", limits->values);
        break;
    case WEIR_JSON_TOO_MANY_KEYS:
        (void)snprintf(reason, sizeof reason, "more than %zu keys", limits->keys);
        break;
    case WEIR_JSON_LARGE_INTEGER:
        (void)snprintf(reason, sizeof reason, "an integer does not fit 64 bits");
        break;
    case WEIR_JSON_LARGE_NUMBER:
        (void)snprintf(reason, sizeof reason, "a number is too large");
        break;
    }
    return weir_error_set(
        error, WEIR_EFORMAT, "%s:%zu:%zu: %s", name, place->line, place->column, reason
    );
}

/* If the tracker has no heap, the tree gets one of its own, so its memory returns to the system. */
static weir_json_fault build_apart(
    json_t **out, weir_json_place *place, const char *text, size_t n, const weir_json_limits *limits
)
{
    weir_memory_tracker *const before = weir_memory_tracker_get();
    const bool has_heap = before != NULL && before->heap != NULL;
    weir_heap *const heap = uses_memory && !has_heap ? weir_heap_open(before) : NULL;
    if (heap != NULL) (void)weir_memory_tracker_set(weir_heap_tracker(heap));
    const weir_json_fault fault = weir_json_build(out, place, text, n, limits);
    (void)weir_memory_tracker_set(before);
    weir_heap_close(heap);
    return fault;
}

weir_status weir_json_parse_within(
    json_t **out, const char *text, size_t n, const char *name, const weir_json_limits *limits,
    weir_error *error
)
{
    weir_json_place place = { 0 };
    const weir_json_fault fault = build_apart(out, &place, text, n, limits);
    return fault == WEIR_JSON_FINE ? WEIR_OK : refuse(fault, &place, name, limits, error);
}

weir_status weir_json_parse(
    json_t **out, const char *text, size_t n, const char *name, size_t max_depth, weir_error *error
)
{
    weir_json_limits limits = weir_json_file;
    limits.depth = max_depth;
    return weir_json_parse_within(out, text, n, name, &limits, error);
}

typedef weir_status (*read_bytes)(
    weir_buffer *out, const char *path, size_t limit, weir_error *error
);

static weir_status read_and_parse(
    json_t **out, read_bytes read, const char *path, size_t limit, const weir_json_limits *limits,
    weir_error *error
)
{
    weir_buffer text = { 0 };
    weir_status status = read(&text, path, limit, error);
    if (status == WEIR_OK)
        status = weir_json_parse_within(out, text.data, text.size, path, limits, error);
    weir_buffer_free(&text);
    return status;
}

weir_status weir_json_read_file(json_t **out, const char *path, size_t limit, weir_error *error)
{
    return read_and_parse(out, weir_file_read, path, limit, &weir_json_file, error);
}

weir_status weir_json_read_config(json_t **out, const char *path, size_t limit, weir_error *error)
{
    return read_and_parse(out, weir_file_read, path, limit, &weir_json_config, error);
}

weir_status weir_json_read_input(json_t **out, const char *path, size_t limit, weir_error *error)
{
    return read_and_parse(out, weir_file_read_input, path, limit, &weir_json_file, error);
}

/* ---- writing --------------------------------------------------------------------------------- */
typedef struct sink {
    weir_buffer *buffer;
    weir_status status;
} sink;

static int add(const char *bytes, size_t n, void *to)
{
    sink *const out = to;
    if (out->status == WEIR_OK) out->status = weir_buffer_add(out->buffer, bytes, n);
    return out->status == WEIR_OK ? 0 : -1;
}

weir_status weir_json_write(weir_buffer *out, const json_t *value, size_t flags)
{
    const size_t before = out->size;
    sink to = { .buffer = out };
    (void)weir_json_ran_out();
    /* jansson continues after some failures and then reports success. */
    if (json_dump_callback(value, add, &to, flags) == 0 && to.status == WEIR_OK) return WEIR_OK;
    out->size = before;
    if (out->data != NULL) out->data[before] = '\0';
    return weir_json_ran_out() || to.status != WEIR_OK ? WEIR_ENOMEM : WEIR_EINVAL;
}

char *weir_json_text(const json_t *value, size_t flags)
{
    weir_buffer text = { 0 };
    if (value != NULL && weir_json_write(&text, value, flags) == WEIR_OK) return text.data;
    weir_buffer_free(&text);
    return NULL;
}
