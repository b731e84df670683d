/* engine/hub/download.c - downloads one file, from where its part ends. */
#include "engine/hub/client.h"

static void show(const hub_transfer *t)
{
    const weir_hub_options *const o = t->client->options;
    if (o->progress != NULL) o->progress(o->user, t->client->done, t->client->total);
}

/* Without a sum nothing tells whether what is there belongs to what comes. */
static weir_status before_bytes(hub_transfer *t)
{
    return t->file->has_sum || t->part->have == 0 ? WEIR_OK : hub_start_anew(t);
}

static bool begin_bytes(void *user, const weir_http_head *head)
{
    hub_transfer *const t = user;
    int64_t first = 0, total = -1;
    if (head->status == 206 &&
        (!weir_hub_content_range(&first, &total, head->range) || first != t->part->have)) {
        t->status = weir_error_set(
            t->error, WEIR_EFORMAT, "%s: %s sends another part of it than was asked for",
            t->file->name, head->host
        );
        return false;
    }
    if (head->status == 200) total = head->length;
    if (total >= 0 && total != t->file->bytes)
        t->status = weir_error_set(
            t->error, WEIR_EFORMAT,
            "%s: %s has %lld bytes of it, the list of files says %lld; was it changed just now?",
            t->file->name, head->host, (long long)total, (long long)t->file->bytes
        );
    else if (head->status == 200 && t->part->have > 0)
        t->status = hub_start_anew(t); /* it cannot send parts */
    return t->status == WEIR_OK;
}

static bool take_bytes(void *user, const void *bytes, size_t n)
{
    hub_transfer *const t = user;
    if ((int64_t)n > t->file->bytes - t->part->have) {
        t->status = weir_error_set(
            t->error, WEIR_EFORMAT, "%s: more comes than its %lld bytes", t->file->name,
            (long long)t->file->bytes
        );
        return false;
    }
    t->status = weir_part_write(t->part, bytes, n, t->error);
    t->client->done += (int64_t)n;
    show(t);
    return t->status == WEIR_OK && !hub_is_cancelled(t);
}

static bool has_bytes(const hub_transfer *t) { return t->part->have == t->file->bytes; }

weir_status hub_download(
    hub_client *client, const weir_hub_file *file, weir_part *part, weir_error *error
)
{
    weir_buffer url = { 0 };
    weir_http_head head;
    hub_transfer t = { .client = client,
                       .file = file,
                       .part = part,
                       .before = before_bytes,
                       .is_whole = has_bytes,
                       .error = error };
    if (part->have == file->bytes) return WEIR_OK;
    weir_status status =
        weir_buffer_format(&url, "%s/%s/resolve/", client->endpoint, client->repository);
    if (status == WEIR_OK) status = hub_add_revision(&url, client);
    if (status == WEIR_OK) status = weir_buffer_text(&url, "/");
    if (status == WEIR_OK) status = hub_add_file(&url, file->name);
    const weir_http_request request = { .begin = begin_bytes, .body = take_bytes };
    return hub_run_url(&t, &url, status, request, &head);
}
