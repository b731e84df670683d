/* tests/fuzz/load_reply_fuzz.c - any bytes as a server's reply to weir load: in one piece and byte
 * by byte, with the same record. */
#include "tests/fuzz/probe.h"
#include "tools/load/exchange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct outcome {
    weir_load_record record;
    weir_samples gaps;
    weir_load_exchange exchange;
} outcome;

static void read_reply(outcome *o, const uint8_t *data, size_t size, size_t step)
{
    *o = (outcome){ .record = { .asked = 4, .due_ns = 1, .sent_ns = 1 } };
    weir_load_exchange_begin(&o->exchange, &o->record, &o->gaps, true);
    for (size_t at = 0; at < size && !o->exchange.is_over;) {
        const size_t n = step < size - at ? step : size - at;
        probe_require(
            weir_load_exchange_read(&o->exchange, (const char *)data + at, n, 2) == WEIR_OK
        );
        at += n;
    }
    weir_load_exchange_closed(&o->exchange, 3);
    const weir_load_record *const r = &o->record;
    probe_require(o->exchange.is_over && r->outcome != WEIR_LOAD_OPEN);
    probe_require(weir_load_outcome_text(r->outcome)[0] != '\0');
    probe_require(r->outcome != WEIR_LOAD_OK || (r->n_events > 0 && r->first_ns == 2));
    probe_require(r->n_events == 0 ? o->gaps.n == 0 : o->gaps.n == (size_t)r->n_events - 1);
    probe_require(
        r->prompt_tokens >= -1 && r->answer_tokens >= -1 && r->cached_tokens >= -1 &&
        r->prompt_tokens <= 1 << 30 && r->answer_tokens <= 1 << 30
    );
    probe_require(strlen(weir_load_exchange_problem(&o->exchange)) <= size + 100);
}

static void close_reply(outcome *o)
{
    weir_load_exchange_free(&o->exchange);
    weir_samples_free(&o->gaps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    outcome whole, bytes;
    read_reply(&whole, data, size, size);
    read_reply(&bytes, data, size, 1);
    const weir_load_record *const a = &whole.record, *const b = &bytes.record;
    probe_require(
        a->outcome == b->outcome && a->status == b->status && a->n_events == b->n_events &&
        a->prompt_tokens == b->prompt_tokens && a->answer_tokens == b->answer_tokens &&
        a->cached_tokens == b->cached_tokens
    );
    const weir_buffer *const x = &whole.exchange.answer, *const y = &bytes.exchange.answer;
    probe_require(x->size == y->size && (x->size == 0 || memcmp(x->data, y->data, x->size) == 0));
    close_reply(&whole);
    close_reply(&bytes);
    return 0;
}
