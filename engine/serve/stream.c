/* engine/serve/stream.c - the reading end of a stream: MHD asks for bytes, gets what has come, or sleeps until more comes. A slow reader
 * gets fewer and larger pieces; what waits for it is never more than its answer's text. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/serve/generation.h"
#include "engine/serve/sse.h"

/* Makes the next piece of output; none when nothing has come. */
static weir_status refill(weir_generation *g)
{
    weir_buffer_clear(&g->out);
    g->out_at = 0;
    if (!g->end_sent) WEIR_TRY(weir_reply_events(&g->out, g));
    if (g->out.size == 0 && g->ping && !g->end_sent) WEIR_TRY(weir_sse_ping(&g->out));
    g->ping = false;
    return WEIR_OK;
}

static ssize_t take(weir_generation *g, char *out, size_t max)
{
    const size_t left = g->out.size - g->out_at, n = left < max ? left : max;
    memcpy(out, g->out.data + g->out_at, n);
    g->out_at += n;
    g->last_sent_ns = weir_clock_ns();
    return (ssize_t)n;
}

/* The last words when there is no memory for others. */
static ssize_t take_last_words(weir_generation *g, char *out, size_t max)
{
    static const char text[] = "data: {\"error\":{\"message\":\"no memory for the rest of this answer within memory.host; try again\","
                               "\"type\":\"server_error\",\"param\":null,\"code\":\"out_of_memory\"}}\n\n";
    if (max < sizeof text - 1 || g->end_sent) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (g->failure.status == 0) g->failure.status = 503;
    g->end_sent = true;
    memcpy(out, text, sizeof text - 1);
    return (ssize_t)(sizeof text - 1);
}

static ssize_t read_locked(weir_exchange *x, char *out, size_t max)
{
    weir_generation *const g = x->generation;
    if (x->gone) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (g->out_at == g->out.size && refill(g) != WEIR_OK) {
        weir_buffer_clear(&g->out);
        g->out_at = 0;
        return take_last_words(g, out, max);
    }
    if (g->out_at < g->out.size) return take(g, out, max);
    /* An incomplete answer ends without [DONE] and without the last chunk of the transfer coding. */
    if (g->end_sent) return g->failure.status != 0 ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    x->suspended = true;
    MHD_suspend_connection(x->mhd);
    return 0;
}

ssize_t weir_stream_read(void *exchange, uint64_t position, char *out, size_t max)
{
    weir_exchange *const x = exchange;
    (void)position;
    (void)pthread_mutex_lock(&x->lock);
    const ssize_t n = read_locked(x, out, max);
    (void)pthread_mutex_unlock(&x->lock);
    weir_watch_writing(x->server, x->connection, n > 0);
    return n;
}

void weir_stream_tick(weir_exchange *x, int64_t now_ns)
{
    const int64_t ping_ns = x->server->options.ping_ms * 1000000;
    (void)pthread_mutex_lock(&x->lock);
    weir_generation *const g = x->generation;
    if (g != NULL && g->queue_was_full) weir_workers_add(&x->server->workers, x, WEIR_WORK_ADVANCE);
    if (g != NULL && g->request.stream && !weir_generation_is_over(g)) {
        const int64_t quiet_since_ns = g->last_sent_ns != 0 ? g->last_sent_ns : x->start_ns;
        if (now_ns - quiet_since_ns >= ping_ns) {
            g->ping = true;
            x->ready = WEIR_READY_STREAM; /* a request that waits long gets its header, so that pings can follow */
            weir_exchange_wake(x);
        }
    }
    (void)pthread_mutex_unlock(&x->lock);
}
