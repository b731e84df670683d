/* engine/hub/tries.c - makes a request until it is answered, and says what refusals mean. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/hub/client.h"

enum { TRIES = 5, MOST_WAIT_S = 60 };

/* ---- what a refusal means -------------------------------------------------------------------- */

static bool is_passing(int status)
{
    return status == 408 || status == 429 || (status >= 500 && status <= 504);
}

static weir_status unauthorised(
    const hub_client *client, const weir_http_head *head, weir_error *error
)
{
    const char *const url = client->endpoint, *const name = client->repository;
    const bool has_token = client->options->token != NULL;
    if (strcmp(head->code, "GatedRepo") == 0)
        return weir_error_set(
            error, WEIR_EIO, "%s: its owner gives access on request: ask for it at %s/%s, then %s",
            name, url, name,
            has_token ? "use a token of that account in HF_TOKEN" : "set HF_TOKEN to your token"
        );
    if (has_token)
        return weir_error_set(
            error, WEIR_EIO,
            "%s: %s says %d: the token in HF_TOKEN gives no access to it, or there "
            "is no such model",
            name, head->host, head->status
        );
    return weir_error_set(
        error, WEIR_ENOTFOUND,
        "%s: %s says %d: there is no such model, or it is private or gated; then set HF_TOKEN to "
        "a token with access",
        name, head->host, head->status
    );
}

/* `what` is a file, or "". */
static weir_status refused(
    const hub_client *client, const weir_http_head *head, const char *what, weir_error *error
)
{
    const char *const name = client->repository;
    if (head->status == 401 || head->status == 403) return unauthorised(client, head, error);
    if (head->status == 404 && strcmp(head->code, "RevisionNotFound") == 0)
        return weir_error_set(
            error, WEIR_ENOTFOUND, "%s: no revision \"%s\" (--revision)", name, client->revision
        );
    if (head->status == 404)
        return weir_error_set(
            error, WEIR_ENOTFOUND, "%s%s%s: %s has no such %s", name, what[0] != '\0' ? "/" : "",
            what, head->host, what[0] != '\0' ? "file" : "model or revision"
        );
    return weir_error_set(
        error, WEIR_EIO, "%s: %s says %d%s%s", name, head->host, head->status,
        head->message[0] != '\0' ? ": " : "", head->message
    );
}

static weir_status interrupted(const hub_client *client, weir_error *error)
{
    return weir_error_set(
        error, WEIR_ECANCELED, "interrupted after %lld of %lld MiB; the same command goes on",
        (long long)(client->done >> 20), (long long)(client->total >> 20)
    );
}

/* ---- tries ----------------------------------------------------------------------------------- */

void hub_warn(const hub_client *client, const char *format, ...)
{
    char text[1200];
    va_list arguments;
    if (client->options->warn == NULL) return;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    client->options->warn(client->options->user, text);
}

/* Waits before the next try. False: cancelled. */
static bool wait_for_try(
    const hub_client *client, int n_tries, int64_t least_s, const weir_error *problem
)
{
    const weir_hub_options *const o = client->options;
    int64_t wait_ms = o->wait_ms << (n_tries - 1);
    if (least_s > MOST_WAIT_S) least_s = MOST_WAIT_S;
    if (wait_ms < least_s * 1000) wait_ms = least_s * 1000;
    hub_warn(client, "%s; trying again in %.3g s", problem->text, (double)wait_ms * 1e-3);
    const int64_t until = weir_clock_ns() + wait_ms * 1000000;
    while (weir_clock_ns() < until) {
        if (o->is_cancelled != NULL && o->is_cancelled(o->user)) return false;
        (void)usleep(20000);
    }
    return true;
}

bool hub_is_cancelled(void *user)
{
    const weir_hub_options *const o = ((const hub_transfer *)user)->client->options;
    return o->is_cancelled != NULL && o->is_cancelled(o->user);
}

weir_status hub_start_anew(hub_transfer *t)
{
    t->client->done -= t->part->have;
    return weir_part_restart(t->part, t->error);
}

/* What a reply or its absence asks for: OK, and another try if *again; or the failure. */
static weir_status judge(
    hub_transfer *t, const weir_http_head *head, weir_http_end end, bool *again, weir_error *problem
)
{
    const bool is_done = end == WEIR_HTTP_DONE;
    const bool is_fine = is_done && (head->status == 200 || head->status == 206);
    *again = false;
    if (end == WEIR_HTTP_STOPPED) return interrupted(t->client, t->error);
    if (end == WEIR_HTTP_REFUSED)
        return weir_error_set(t->error, problem->code, "%s", problem->text);
    if (is_fine && t->is_whole(t)) return WEIR_OK;
    const bool is_past_end = is_done && head->status == 416 && t->part != NULL && t->part->have > 0;
    if (is_done && !is_fine && !is_past_end && !is_passing(head->status))
        return refused(t->client, head, t->file != NULL ? t->file->name : "", t->error);
    *again = true;
    if (is_past_end) WEIR_TRY(hub_start_anew(t));
    if (is_fine)
        (void)!weir_error_set(problem, WEIR_EIO, "%s: the reply ended early", head->host);
    else if (is_done)
        (void)!weir_error_set(
            problem, WEIR_EIO, "%s: status %d%s%s", head->host, head->status,
            head->message[0] != '\0' ? ": " : "", head->message
        );
    return WEIR_OK;
}

weir_status hub_run(hub_transfer *t, const weir_http_request *request, weir_http_head *head)
{
    enum { PROGRESS = 64 << 10 }; /* bytes after which tries are counted anew */
    hub_client *const client = t->client;
    weir_http_request next = *request;
    int64_t had = 0;
    for (int n_tries = 1;; n_tries++) {
        weir_error problem = { 0 };
        bool again;
        WEIR_TRY(t->before(t));
        if (t->part != NULL) next.from = t->part->have;
        if (next.from >= had + PROGRESS) n_tries = 1;
        had = next.from;
        t->status = WEIR_OK;
        const weir_http_end end = weir_http_get(client->http, &next, head, &problem);
        if (head->commit[0] != '\0' && client->commit[0] == '\0')
            memcpy(client->commit, head->commit, sizeof client->commit);
        if (t->status != WEIR_OK) return t->status;
        WEIR_TRY(judge(t, head, end, &again, &problem));
        if (!again) return WEIR_OK;
        if (n_tries >= TRIES)
            return weir_error_set(
                t->error, WEIR_EIO, "%s: %s (%d tries); the same command goes on",
                client->repository, problem.text, n_tries
            );
        if (!wait_for_try(client, n_tries, head->retry_after_s, &problem))
            return interrupted(client, t->error);
    }
}

weir_status hub_run_url(
    hub_transfer *t, weir_buffer *url, weir_status status, weir_http_request request,
    weir_http_head *head
)
{
    request.url = url->data;
    request.token = t->client->options->token;
    request.is_cancelled = hub_is_cancelled;
    request.user = t;
    status = status != WEIR_OK ? weir_error_set(t->error, WEIR_ENOMEM, "no memory for an address")
                               : hub_run(t, &request, head);
    weir_buffer_free(url);
    return status;
}
