/* tests/fuzz/router_fuzz.c - any bytes to a router: the head that it writes must mean what it read,
 * and the model of a body must not depend on how its bytes arrive, and be that of a JSON parser. */
#include <jansson.h>

#include "engine/router/body_model.h"
#include "engine/router/server_head.h"
#include "engine/serve/http_chunks.h"
#include "tests/fuzz/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER_LIMIT = 1 << 10 };

typedef struct text {
    char *bytes; /* owned */
    size_t n;
} text;

static text copy(const void *bytes, size_t n)
{
    text t = { malloc(n > 0 ? n : 1), n };
    probe_require(t.bytes != NULL);
    if (n > 0) memcpy(t.bytes, bytes, n);
    return t;
}

/* ---- heads ----------------------------------------------------------------------------------- */

static weir_http_progress read_head(weir_http_head *head, size_t limit, text *t)
{
    weir_http_problem problem = { 0 };
    *head = (weir_http_head){ .limit = limit };
    return weir_http_head_read(head, t->bytes, t->n, &problem);
}

static text write_head(const weir_http_head *head, const text *t)
{
    const size_t most = head->scanned + WEIR_SERVER_HEAD_MORE;
    text out = { malloc(most), 0 };
    probe_require(out.bytes != NULL);
    out.n = weir_server_head(out.bytes, most, head, t->bytes);
    probe_require(out.n > 0 && out.n <= most);
    return out;
}

/* The same path and parameters but for those of the model. */
static void require_target(const char *before, const char *after)
{
    char name[WEIR_QUERY_MODEL];
    const size_t path = strcspn(before, "?");
    probe_require(strcspn(after, "?") == path && strncmp(before, after, path) == 0);
    weir_query_model(name, after);
    probe_require(name[0] == '\0');
    weir_query_model(name, before);
    probe_require(memchr(name, '\0', sizeof name) != NULL);
    before += path;
    after += path;
    char separator = '?';
    for (size_t n; *before != '\0'; before += n) {
        n = 1 + strcspn(before + 1, "&");
        if (strncmp(before + 1, "model=", 6) == 0) continue;
        probe_require(*after == separator && strncmp(before + 1, after + 1, n - 1) == 0);
        after += n;
        separator = '&';
    }
    probe_require(*after == '\0');
}

static void require_same(const weir_http_head *a, const text *x, const weir_http_head *b, text *y)
{
    static const weir_http_field kept[] = {
        WEIR_HTTP_CONTENT_LENGTH,   WEIR_HTTP_TRANSFER_ENCODING, WEIR_HTTP_CONTENT_TYPE,
        WEIR_HTTP_CONTENT_ENCODING, WEIR_HTTP_AUTHORIZATION,     WEIR_HTTP_API_KEY,
        WEIR_HTTP_REQUEST_ID,
    };
    size_t n_kept = 0, n_all = 0;
    probe_require(strcmp(x->bytes + a->method, y->bytes + b->method) == 0);
    probe_require(a->minor == b->minor && a->length == b->length && a->chunked == b->chunked);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const char *const before = weir_http_value(a, x->bytes, kept[i]), *const after =
                                                                              weir_http_value(
                                                                                  b, y->bytes,
                                                                                  kept[i]
                                                                              );
        probe_require((before == NULL) == (after == NULL));
        probe_require(before == NULL || strcmp(before, after) == 0);
        n_kept += after != NULL;
    }
    for (int i = 0; i < WEIR_HTTP_FIELD_COUNT; i++) n_all += b->value[i] != 0;
    probe_require(n_all == n_kept + 1 && b->value[WEIR_HTTP_HOST] != 0 && !b->keep_alive);
    require_target(x->bytes + a->target, y->bytes + b->target);
}

/* What was written is read as it was, and written again it is the same. */
static void check_head(const weir_http_head *head, const text *from)
{
    weir_http_head again;
    text written = write_head(head, from);
    const text kept = copy(written.bytes, written.n);
    const size_t limit = HEADER_LIMIT + WEIR_SERVER_HEAD_MORE;
    probe_require(read_head(&again, limit, &written) == WEIR_HTTP_DONE);
    probe_require(again.scanned == written.n);
    require_same(head, from, &again, &written);
    const text twice = write_head(&again, &written);
    probe_require(twice.n == kept.n && memcmp(twice.bytes, kept.bytes, kept.n) == 0);
    free(written.bytes);
    free(kept.bytes);
    free(twice.bytes);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* As engine/router/route.c takes them, from pieces of `step` bytes. `body` gets what they hold. */
static weir_body_model model_of(
    const uint8_t *data, size_t size, bool chunked, size_t step, text *body
)
{
    weir_http_chunks chunks = { 0 };
    weir_http_problem problem = { 0 };
    weir_body_model model = { 0 };
    weir_http_progress progress = WEIR_HTTP_MORE;
    for (size_t end = 0, at = 0; end < size && progress == WEIR_HTTP_MORE;) {
        end = step < size - end ? end + step : size;
        while (at < end && progress == WEIR_HTTP_MORE) {
            const text piece = copy(data + at, end - at);
            size_t used = piece.n, n_data = piece.n;
            if (chunked)
                progress =
                    weir_http_chunks_read(&chunks, piece.bytes, piece.n, &used, &n_data, &problem);
            if (progress != WEIR_HTTP_BAD) {
                const bool done = weir_body_model_read(&model, piece.bytes + used - n_data, n_data);
                probe_require(
                    done == (model.state == WEIR_BODY_FOUND || model.state == WEIR_BODY_NONE)
                );
                memcpy(body->bytes + body->n, piece.bytes + used - n_data, n_data);
                body->n += n_data;
                at += used;
            }
            free(piece.bytes);
        }
    }
    return model;
}

/* Of JSON without a second member of a name. */
static void check_model(const weir_body_model *m, const text *body)
{
    json_error_t error;
    json_t *const root = json_loadb(body->bytes, body->n, JSON_REJECT_DUPLICATES, &error);
    const char *const name = json_string_value(json_object_get(root, "model"));
    bool is_short = name != NULL && strlen(name) < sizeof m->text;
    for (const char *c = name; is_short && *c != '\0'; c++) is_short = (unsigned char)*c < 0x80;
    if (root != NULL) probe_require((m->state == WEIR_BODY_FOUND) == (name != NULL));
    if (name != NULL) probe_require(strcmp(m->text, is_short ? name : "?") == 0);
    json_decref(root);
}

static void check_body(const uint8_t *data, size_t size, bool chunked, size_t step)
{
    text body = copy(data, size), again = copy(data, size);
    body.n = again.n = 0;
    const weir_body_model whole = model_of(data, size, chunked, size > 0 ? size : 1, &body),
                          parts = model_of(data, size, chunked, step, &again);
    probe_require(body.n == again.n && memcmp(body.bytes, again.bytes, body.n) == 0);
    probe_require(whole.state == parts.state && whole.n == parts.n);
    check_model(&whole, &body);
    free(body.bytes);
    free(again.bytes);
    if (whole.state != WEIR_BODY_FOUND) return;
    probe_require(strnlen(whole.text, sizeof whole.text) < sizeof whole.text);
    probe_require(strcmp(whole.text, parts.text) == 0);
    for (const char *c = whole.text; *c != '\0'; c++) probe_require((unsigned char)*c < 0x80);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const size_t step = 1 + data[0] % 16;
    text request = copy(data + 1, size - 1);
    weir_http_head head;
    const bool is_done = read_head(&head, HEADER_LIMIT, &request) == WEIR_HTTP_DONE;
    if (is_done) check_head(&head, &request);
    /* A body begins where the head ends; without one, all are bytes of a body. */
    const size_t at = 1 + (is_done ? head.scanned : 0);
    check_body(data + at, size - at, is_done && head.chunked, step);
    free(request.bytes);
    return 0;
}
