#include "tools/load/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "tools/load/due.h"

enum { INPUT_BYTES = 16 << 10 };
static const int64_t second_ns = 1000000000, longest_wait_ns = 100000000; /* --stop is seen */

typedef enum phase { CLOSED, IDLE, CONNECTING, SENDING, READING } phase;

/* A socket and the request on it. */
typedef struct connection {
    phase phase;
    int fd;
    bool is_reused; /* an earlier request was answered on it */
    int32_t conversation;
    int64_t deadline_ns;
    weir_buffer out; /* the request */
    size_t n_sent;
    weir_load_exchange exchange;
    weir_samples gaps; /* of this request */
    /* What the last round of reading brought. */
    ssize_t n_in;
    int64_t in_ns;
    char in[INPUT_BYTES];
} connection;

typedef struct conversation {
    weir_buffer history;
    int32_t next; /* turn */
} conversation;

typedef struct client {
    const weir_load_options *options;
    weir_load_result *result;
    connection *connections; /* [n_connections] */
    struct pollfd *polled; /* [n_connections] */
    conversation *conversations; /* [n_conversations] */
    weir_due_heap due;
    int32_t n_connections, n_running, n_begun, n_done; /* n_begun: conversations, closed loop */
    int64_t last_ns; /* nothing that is due later is sent */
    weir_status status;
} client;

static bool is_running(const connection *c) { return c->phase > IDLE; }

static void hang_up(connection *c)
{
    if (c->phase != CLOSED) (void)close(c->fd);
    c->phase = CLOSED;
}

/* ---- conversations --------------------------------------------------------------------------- */

static void end_conversation(client *k, int32_t number)
{
    const weir_conversation *const plan = &k->options->workload->conversations[number];
    conversation *const one = &k->conversations[number];
    k->result->n_unsent += plan->n_turns - one->next;
    weir_buffer_free(&one->history);
}

/* The next conversation of a client of the closed loop. */
static void begin_next(client *k, int64_t now_ns)
{
    if (k->options->is_open || k->n_begun >= k->options->workload->n_conversations) return;
    weir_due_push(&k->due, (weir_due){ now_ns, k->n_begun++ });
}

/* After a request: the next turn becomes due, or the conversation ends. */
static void advance(client *k, int32_t number, bool goes_on, int64_t now_ns)
{
    const weir_workload *const w = k->options->workload;
    const weir_conversation *const plan = &w->conversations[number];
    const conversation *const one = &k->conversations[number];
    if (goes_on && one->next < plan->n_turns) {
        const int64_t think_ns = w->turns[plan->first + one->next].think_ns;
        weir_due_push(&k->due, (weir_due){ now_ns + think_ns, number });
        return;
    }
    end_conversation(k, number);
    begin_next(k, now_ns);
}

/* ---- a request: begin and end ---------------------------------------------------------------- */

static void keep_problem(weir_load_result *result, const weir_load_exchange *x)
{
    char *const out = result->problems[x->record->outcome];
    const char *const text = weir_load_exchange_problem(x);
    if (out[0] != '\0') return;
    for (size_t i = 0; i + 1 < WEIR_LOAD_PROBLEM && text[i] != '\0'; i++)
        out[i] = (char)(text[i] >= 0x20 && text[i] < 0x7f ? text[i] : ' ');
}

static void end_request(client *k, connection *c)
{
    const weir_load_record *const record = c->exchange.record;
    const bool is_good = record->outcome == WEIR_LOAD_OK;
    conversation *const one = &k->conversations[c->conversation];
    weir_status status = WEIR_OK;
    for (size_t i = 0; is_good && i < c->gaps.n && status == WEIR_OK; i++)
        status = weir_samples_add(&k->result->gaps, c->gaps.values[i]);
    if (is_good && status == WEIR_OK && c->exchange.wants_answer)
        status = weir_load_answer(&one->history, k->options->form, &c->exchange.answer);
    if (status != WEIR_OK) k->status = status;
    if (!is_good) keep_problem(k->result, &c->exchange);
    if (c->exchange.reply.keep_alive && c->n_sent == c->out.size && is_good) {
        c->phase = IDLE;
        c->is_reused = true;
    } else {
        hang_up(c);
    }
    k->n_running--;
    k->n_done++;
    advance(k, c->conversation, is_good, record->end_ns);
}

static void fail(client *k, connection *c, weir_load_outcome outcome, int why)
{
    if (why != 0 && c->exchange.problem.size == 0 &&
        weir_buffer_text(&c->exchange.problem, strerror(why)) != WEIR_OK)
        k->status = WEIR_ENOMEM;
    weir_load_exchange_fail(&c->exchange, outcome, weir_clock_ns());
    end_request(k, c);
}

/* Opens a socket for the request in c->out. */
static void begin_connection(client *k, connection *c)
{
    c->is_reused = false;
    c->n_sent = 0;
    c->fd = weir_load_connect(k->options->target);
    const int why = errno;
    if (c->fd >= 0)
        c->phase = CONNECTING;
    else
        fail(k, c, WEIR_LOAD_CONNECT, why);
}

static weir_status write_request(
    weir_buffer *out, const client *k, conversation *one, const weir_conversation *plan
)
{
    const weir_load_options *const o = k->options;
    const weir_turn *const turn = &o->workload->turns[plan->first + one->next];
    weir_buffer body = { 0 };
    weir_status status = WEIR_OK;
    weir_buffer_clear(out);
    if (one->next == 0) status = weir_load_prefix(&one->history, o->form, plan->group, o->prefix);
    if (status == WEIR_OK)
        status = weir_load_prompt(
            &one->history, o->form, plan->first + one->next, turn->prompt, one->next == 0
        );
    if (status == WEIR_OK)
        status = weir_load_body(&body, o->form, &one->history, turn->answer, true);
    if (status == WEIR_OK)
        status = weir_load_head(out, o->target, weir_load_form_path(o->form), (int64_t)body.size);
    if (status == WEIR_OK) status = weir_buffer_add(out, body.data, body.size);
    weir_buffer_free(&body);
    return status;
}

/* Sends the next turn of a conversation on an idle connection, or a new one. */
static void begin_request(client *k, connection *c, weir_due due)
{
    const weir_load_options *const o = k->options;
    const weir_conversation *const plan = &o->workload->conversations[due.conversation];
    conversation *const one = &k->conversations[due.conversation];
    weir_load_record *const record = &k->result->records[k->result->n++];
    k->status = write_request(&c->out, k, one, plan);
    *record = (weir_load_record){ .conversation = due.conversation,
                                  .turn = one->next,
                                  .group = plan->group,
                                  .asked = o->workload->turns[plan->first + one->next].answer,
                                  .due_ns = due.ns,
                                  .sent_ns = weir_clock_ns() };
    c->conversation = due.conversation;
    c->deadline_ns = record->sent_ns + o->timeout_ms * (second_ns / 1000);
    c->gaps.n = 0;
    one->next++;
    weir_load_exchange_begin(&c->exchange, record, &c->gaps, one->next < plan->n_turns);
    k->n_running++;
    if (k->n_running > k->result->peak) k->result->peak = k->n_running;
    c->n_sent = 0;
    if (k->status != WEIR_OK)
        fail(k, c, WEIR_LOAD_CONNECT, ENOMEM);
    else if (c->phase == IDLE)
        c->phase = SENDING;
    else
        begin_connection(k, c);
}

/* An idle connection, else a closed one; NULL: all are busy. */
static connection *free_connection(client *k)
{
    connection *found = NULL;
    for (int32_t i = 0; i < k->n_connections; i++) {
        connection *const c = &k->connections[i];
        if (c->phase == IDLE) return c;
        if (c->phase == CLOSED && found == NULL) found = c;
    }
    return found;
}

/* Sends what is due. Returns when the next one will be; -1: nothing waits. */
static int64_t begin_due(client *k)
{
    while (k->due.n > 0 && k->status == WEIR_OK) {
        const weir_due first = k->due.entries[0];
        const int64_t now_ns = weir_clock_ns();
        if (first.ns > k->last_ns) {
            const weir_due late = weir_due_pop(&k->due);
            end_conversation(k, late.conversation);
            continue;
        }
        if (first.ns > now_ns) return first.ns;
        if (k->n_running == k->n_connections) return INT64_MAX; /* until one ends */
        begin_request(k, free_connection(k), weir_due_pop(&k->due));
    }
    return -1;
}

/* ---- sockets --------------------------------------------------------------------------------- */

/* Sends what the socket takes. A server that refuses a request may answer before it has read it. */
static void send_more(client *k, connection *c)
{
    int why = 0;
    socklen_t n_why = sizeof why;
    if (c->phase == CONNECTING) {
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &n_why) != 0) why = errno;
        if (why != 0) {
            fail(k, c, WEIR_LOAD_CONNECT, why);
            return;
        }
        c->phase = SENDING;
    }
    const size_t left = c->out.size - c->n_sent;
    const ssize_t n = send(c->fd, c->out.data + c->n_sent, left, MSG_NOSIGNAL);
    if (n > 0) c->n_sent += (size_t)n;
    if (c->n_sent == c->out.size || (n < 0 && errno != EAGAIN && errno != EINTR))
        c->phase = READING;
}

/* The server may close an idle connection while a request is on its way: it is sent once more. */
static bool is_stale(const connection *c) { return c->is_reused && c->exchange.n_read == 0; }

static void take_input(client *k, connection *c)
{
    if (c->n_in > 0) {
        const weir_status status =
            weir_load_exchange_read(&c->exchange, c->in, (size_t)c->n_in, c->in_ns);
        if (status != WEIR_OK) k->status = status;
    } else if (is_stale(c)) {
        hang_up(c);
        begin_connection(k, c);
        return;
    } else {
        weir_load_exchange_closed(&c->exchange, c->in_ns);
    }
    if (c->exchange.is_over) end_request(k, c);
}

/* Reads every socket that is ready, with the time; nothing is parsed before all are read. */
static void read_all(client *k)
{
    for (int32_t i = 0; i < k->n_connections; i++) {
        connection *const c = &k->connections[i];
        c->n_in = -1;
        c->in_ns = 0;
        if (!is_running(c) || c->phase == CONNECTING ||
            (k->polled[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0)
            continue;
        c->n_in = recv(c->fd, c->in, sizeof c->in, 0);
        const bool is_early = c->n_in < 0 && (errno == EAGAIN || errno == EINTR);
        c->in_ns = is_early ? 0 : weir_clock_ns(); /* 0: nothing came */
    }
}

static void poll_all(client *k, int64_t wait_ns)
{
    const struct timespec wait = { .tv_sec = wait_ns / second_ns, .tv_nsec = wait_ns % second_ns };
    for (int32_t i = 0; i < k->n_connections; i++) {
        const connection *const c = &k->connections[i];
        const short events = c->phase == CONNECTING ? POLLOUT
                             : c->phase == SENDING  ? POLLIN | POLLOUT
                                                    : POLLIN;
        k->polled[i] = (struct pollfd){ .fd = is_running(c) ? c->fd : -1, .events = events };
    }
    if (ppoll(k->polled, (nfds_t)k->n_connections, &wait, NULL) <= 0) return;
    read_all(k);
    for (int32_t i = 0; i < k->n_connections; i++) {
        connection *const c = &k->connections[i];
        if (c->in_ns != 0)
            take_input(k, c);
        else if (k->polled[i].revents != 0 && (c->phase == CONNECTING || c->phase == SENDING))
            send_more(k, c);
    }
}

/* Ends requests that took too long. Returns the earliest deadline of the others. */
static int64_t check_deadlines(client *k)
{
    const int64_t now_ns = weir_clock_ns();
    int64_t first = INT64_MAX;
    for (int32_t i = 0; i < k->n_connections; i++) {
        connection *const c = &k->connections[i];
        if (!is_running(c)) continue;
        if (c->deadline_ns <= now_ns)
            fail(k, c, WEIR_LOAD_TIMEOUT, 0);
        else if (c->deadline_ns < first)
            first = c->deadline_ns;
    }
    return first;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void work(client *k)
{
    const weir_load_options *const o = k->options;
    while (k->status == WEIR_OK) {
        const int64_t next_ns = begin_due(k), deadline_ns = check_deadlines(k);
        if (k->n_running == 0 && k->due.n == 0) return;
        if (o->stopped != NULL && *o->stopped) {
            k->result->is_stopped = true;
            return;
        }
        int64_t until_ns = next_ns >= 0 && next_ns < deadline_ns ? next_ns : deadline_ns;
        const int64_t now_ns = weir_clock_ns();
        if (until_ns > now_ns + longest_wait_ns) until_ns = now_ns + longest_wait_ns;
        poll_all(k, until_ns > now_ns ? until_ns - now_ns : 0);
        if (o->progress != NULL) o->progress(o->user, k->n_done);
    }
}

static void begin_all(client *k)
{
    const weir_load_options *const o = k->options;
    const int64_t start_ns = k->result->start_ns;
    k->last_ns =
        o->seconds > 0.0 ? start_ns + (int64_t)(o->seconds * (double)second_ns) : INT64_MAX;
    if (!o->is_open) {
        for (int32_t i = 0; i < o->n_streams; i++) begin_next(k, start_ns);
        return;
    }
    for (int32_t i = 0; i < o->workload->n_conversations; i++)
        weir_due_push(
            &k->due, (weir_due){ start_ns + o->workload->conversations[i].arrival_ns, i }
        );
}

static weir_status open_client(client *k, weir_error *error)
{
    const weir_workload *const w = k->options->workload;
    k->n_connections = k->options->n_streams;
    k->connections = calloc((size_t)k->n_connections, sizeof *k->connections);
    k->polled = calloc((size_t)k->n_connections, sizeof *k->polled);
    k->conversations = calloc((size_t)w->n_conversations, sizeof *k->conversations);
    k->due.entries = calloc((size_t)w->n_conversations, sizeof *k->due.entries);
    k->result->records = calloc((size_t)w->n_turns, sizeof *k->result->records);
    if (k->connections != NULL && k->polled != NULL && k->conversations != NULL &&
        k->due.entries != NULL && k->result->records != NULL)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_ENOMEM, "no memory for %d requests, %d at a time", (int)w->n_turns,
        (int)k->n_connections
    );
}

static void close_client(client *k)
{
    for (int32_t i = 0; k->connections != NULL && i < k->n_connections; i++) {
        connection *const c = &k->connections[i];
        hang_up(c);
        weir_buffer_free(&c->out);
        weir_samples_free(&c->gaps);
        weir_load_exchange_free(&c->exchange);
    }
    for (int32_t i = 0; k->conversations != NULL && i < k->options->workload->n_conversations; i++)
        weir_buffer_free(&k->conversations[i].history);
    free(k->connections);
    free(k->polled);
    free(k->conversations);
    free(k->due.entries);
}

weir_status weir_load_run(
    weir_load_result *out, const weir_load_options *options, weir_error *error
)
{
    client k = { .options = options, .result = out };
    *out = (weir_load_result){ 0 };
    if (options->n_streams < 1 || options->n_streams > WEIR_LOAD_STREAMS)
        return weir_error_set(
            error, WEIR_EINVAL, "a load has 1 to %d requests at a time", (int)WEIR_LOAD_STREAMS
        );
    weir_status status = open_client(&k, error);
    out->start_ns = weir_clock_ns();
    if (status == WEIR_OK) {
        begin_all(&k);
        work(&k);
        if (k.status != WEIR_OK)
            status = weir_error_set(error, k.status, "no memory for the answers of the load");
    }
    out->end_ns = weir_clock_ns();
    close_client(&k);
    if (status != WEIR_OK) weir_load_result_free(out);
    return status;
}

void weir_load_result_free(weir_load_result *result)
{
    free(result->records);
    weir_samples_free(&result->gaps);
    *result = (weir_load_result){ 0 };
}
