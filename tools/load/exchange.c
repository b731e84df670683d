#include "tools/load/exchange.h"

/* A reply that is no stream is kept up to BODY_BYTES, for its message. */
enum { BODY_BYTES = 16 << 10 };
/* An event of one token with its log-probabilities is far below EVENT_BYTES. */
static const size_t event_bytes = 16 << 10, base_bytes = 16 << 20;

const char *weir_load_outcome_text(weir_load_outcome outcome)
{
    static const char *const texts[WEIR_LOAD_OUTCOMES] = {
#define X(name, text) text,
        WEIR_LOAD_OUTCOME_MAP(X)
#undef X
    };
    return outcome >= 0 && outcome < WEIR_LOAD_OUTCOMES ? texts[outcome] : "unknown";
}

void weir_load_exchange_begin(
    weir_load_exchange *x, weir_load_record *record, weir_samples *gaps, bool wants_answer
)
{
    record->outcome = WEIR_LOAD_OPEN;
    record->prompt_tokens = record->answer_tokens = record->cached_tokens = -1;
    x->record = record;
    x->gaps = gaps;
    x->wants_answer = wants_answer;
    x->reply = (weir_http_reply){ 0 };
    weir_sse_reader_clear(&x->events);
    weir_buffer_clear(&x->answer);
    weir_buffer_clear(&x->body);
    weir_buffer_clear(&x->problem);
    x->is_over = x->is_done = x->has_finish = false;
    x->n_read = 0;
    x->limit = base_bytes + (size_t)(record->asked > 0 ? record->asked : 0) * event_bytes;
}

void weir_load_exchange_fail(weir_load_exchange *x, weir_load_outcome outcome, int64_t now_ns)
{
    if (x->is_over) return;
    x->is_over = true;
    x->record->outcome = outcome;
    x->record->status = x->reply.status;
    x->record->end_ns = now_ns;
}

/* The reply is complete. */
static void finish(weir_load_exchange *x)
{
    const bool answered = x->record->n_events > 0 || x->has_finish;
    if (x->reply.status != 200)
        weir_load_exchange_fail(x, WEIR_LOAD_STATUS, x->now_ns);
    else if (!x->reply.is_event_stream)
        weir_load_exchange_fail(x, WEIR_LOAD_NO_STREAM, x->now_ns);
    else if (!answered)
        weir_load_exchange_fail(x, WEIR_LOAD_EMPTY, x->now_ns);
    else if (!x->is_done && !x->has_finish)
        weir_load_exchange_fail(x, WEIR_LOAD_CLOSED, x->now_ns);
    else
        weir_load_exchange_fail(x, WEIR_LOAD_OK, x->now_ns);
}

/* Of an answer without any text, the end stands for its first token. */
static weir_status note_text(weir_load_exchange *x, const weir_load_event *event)
{
    weir_load_record *const r = x->record;
    if (!event->has_text && !(event->has_finish && r->n_events == 0)) return WEIR_OK;
    if (r->n_events > 0)
        WEIR_TRY(weir_samples_add(x->gaps, (double)(x->now_ns - r->last_ns) * 1e-6));
    else
        r->first_ns = x->now_ns;
    r->last_ns = x->now_ns;
    r->n_events++;
    return WEIR_OK;
}

static weir_status on_event(void *user, const char *data, size_t n)
{
    weir_load_exchange *const x = user;
    weir_load_record *const r = x->record;
    weir_load_event event;
    if (x->is_over || x->is_done) return WEIR_OK;
    const weir_status status =
        weir_load_event_read(&event, data, n, x->wants_answer ? &x->answer : NULL, &x->problem);
    if (status == WEIR_EFORMAT) {
        weir_load_exchange_fail(x, WEIR_LOAD_MALFORMED, x->now_ns);
        return WEIR_OK;
    }
    WEIR_TRY(status);
    if (event.is_error) {
        weir_load_exchange_fail(x, WEIR_LOAD_ERROR, x->now_ns);
        return WEIR_OK;
    }
    x->is_done = event.is_done;
    x->has_finish = x->has_finish || event.has_finish;
    if (event.prompt_tokens >= 0) r->prompt_tokens = event.prompt_tokens;
    if (event.answer_tokens >= 0) r->answer_tokens = event.answer_tokens;
    if (event.cached_tokens >= 0) r->cached_tokens = event.cached_tokens;
    return note_text(x, &event);
}

static weir_status read_body(weir_load_exchange *x, const char *bytes, size_t n)
{
    if (x->reply.status == 200 && x->reply.is_event_stream) {
        const weir_status status = weir_sse_read(&x->events, bytes, n, on_event, x);
        if (status != WEIR_EFORMAT) return status;
        weir_load_exchange_fail(x, WEIR_LOAD_TOO_LONG, x->now_ns);
        return WEIR_OK;
    }
    const size_t room = BODY_BYTES - x->body.size;
    return weir_buffer_add(&x->body, bytes, n < room ? n : room);
}

weir_status weir_load_exchange_read(
    weir_load_exchange *x, const char *bytes, size_t n, int64_t now_ns
)
{
    x->now_ns = now_ns;
    x->n_read += n;
    if (x->n_read > x->limit) weir_load_exchange_fail(x, WEIR_LOAD_TOO_LONG, now_ns);
    for (size_t at = 0; at < n && !x->is_over;) {
        size_t used, n_data;
        const char *why = "";
        const weir_http_progress progress =
            weir_http_reply_read(&x->reply, bytes + at, n - at, &used, &n_data, &why);
        if (progress == WEIR_HTTP_BAD) {
            WEIR_TRY(weir_buffer_text(&x->problem, why));
            weir_load_exchange_fail(x, WEIR_LOAD_MALFORMED, now_ns);
            break;
        }
        at += used;
        if (n_data > 0) WEIR_TRY(read_body(x, bytes + at - n_data, n_data));
        if (progress == WEIR_HTTP_DONE && !x->is_over) {
            if (at < n) x->reply.keep_alive = false; /* bytes after the reply */
            finish(x);
        }
    }
    return WEIR_OK;
}

void weir_load_exchange_closed(weir_load_exchange *x, int64_t now_ns)
{
    x->now_ns = now_ns;
    x->reply.keep_alive = false;
    if (x->is_over) return;
    if (weir_http_reply_end(&x->reply) || x->is_done)
        finish(x);
    else
        weir_load_exchange_fail(x, WEIR_LOAD_CLOSED, now_ns);
}

const char *weir_load_exchange_problem(const weir_load_exchange *x)
{
    if (x->problem.size > 0) return x->problem.data;
    return x->body.size > 0 ? x->body.data : "";
}

void weir_load_exchange_free(weir_load_exchange *x)
{
    weir_sse_reader_free(&x->events);
    weir_buffer_free(&x->answer);
    weir_buffer_free(&x->body);
    weir_buffer_free(&x->problem);
}
