/* engine/serve/stream.c - the pieces of a stream: the connection fetches the next piece when the
 * previous one is sent. A slow reader gets fewer and larger pieces; pending output is bounded
 * by the answer's text. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/serve/generation.h"

/* Makes the next piece of output, if there is any. */
static weir_status refill(weir_generation *g)
{
    weir_buffer_clear(&g->out);
    if (!g->end_sent) WEIR_TRY(g->api->events(&g->out, g));
    if (g->out.size == 0 && g->ping && !g->end_sent && g->api->ping != NULL)
        WEIR_TRY(g->api->ping(&g->out));
    g->ping = false;
    return WEIR_OK;
}

/* The final message when there is no memory for another one. */
static weir_piece last_words(weir_generation *g, const char **text, size_t *n)
{
    if (g->end_sent) return WEIR_PIECE_BROKEN;
    if (g->failure.status == 0) g->failure.status = 503;
    g->end_sent = true;
    weir_buffer_clear(&g->out);
    *text = g->api->last_words(g);
    *n = strlen(*text);
    return WEIR_PIECE_TEXT;
}

static weir_piece next_piece(weir_exchange *x, const char **text, size_t *n)
{
    weir_generation *const g = x->generation;
    if (x->gone) return WEIR_PIECE_BROKEN;
    if (refill(g) != WEIR_OK) return last_words(g, text, n);
    if (g->out.size > 0) {
        *text = g->out.data;
        *n = g->out.size;
        g->last_sent_ns = weir_clock_ns();
        return WEIR_PIECE_TEXT;
    }
    if (!g->end_sent) return WEIR_PIECE_NONE;
    /* An incomplete answer ends without [DONE] and without the last chunk. */
    const bool is_broken = g->failure.status != 0 && !g->api->tells_failure;
    return is_broken ? WEIR_PIECE_BROKEN : WEIR_PIECE_END;
}

weir_piece weir_stream_next(weir_exchange *x, const char **text, size_t *n)
{
    weir_memory_tracker *const before = weir_memory_tracker_set(weir_exchange_tracker(x));
    (void)pthread_mutex_lock(&x->lock);
    const weir_piece piece = next_piece(x, text, n);
    (void)pthread_mutex_unlock(&x->lock);
    (void)weir_memory_tracker_set(before);
    return piece;
}

void weir_stream_tick(weir_exchange *x, int64_t now_ns)
{
    (void)pthread_mutex_lock(&x->lock);
    weir_generation *const g = x->generation;
    if (g != NULL && (g->queue_was_full || weir_generation_is_due(g, now_ns)))
        weir_workers_add(&x->server->workers, x, WEIR_WORK_ADVANCE);
    if (g != NULL && g->request.stream && !weir_generation_is_over(g)) {
        const int64_t ping_ns =
            g->request.ping_ns != 0 ? g->request.ping_ns : x->server->options.ping_ms * 1000000;
        const int64_t quiet_since_ns = g->last_sent_ns != 0 ? g->last_sent_ns : x->start_ns;
        if (now_ns - quiet_since_ns >= ping_ns) {
            g->ping = true;
            /* Sends the header of a request that waits long, so that pings can follow. */
            x->ready = WEIR_READY_STREAM;
            weir_exchange_wake(x);
        }
    }
    (void)pthread_mutex_unlock(&x->lock);
}
