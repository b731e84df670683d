/* engine/hub/client.c - asks a hub for the commit and the files of a repository. */
#include "engine/hub/client.h"

#include <stdio.h>
#include <string.h>

weir_status hub_check(const weir_hub_options *options, weir_error *error)
{
    const char *const token = options->token;
    if (!weir_http_endpoint_is_good(options->endpoint))
        return weir_error_set(
            error, WEIR_EINVAL, "%.200s: not the address of a hub; it is https://HOST, or http://",
            options->endpoint
        );
    if (options->revision != NULL && !weir_hub_revision_is_good(options->revision))
        return weir_error_set(
            error, WEIR_EINVAL, "%.200s: not the name of a branch, tag or commit", options->revision
        );
    for (size_t i = 0; token != NULL && token[i] != '\0'; i++)
        if (i >= 1000 || token[i] <= ' ' || token[i] > '~')
            return weir_error_set(
                error, WEIR_EINVAL,
                "HF_TOKEN is no token: it has blanks or other characters that "
                "a header cannot hold"
            );
    return WEIR_OK;
}

/* Percent-encodes all but letters, digits and the characters of `plain`. */
static weir_status add_encoded(weir_buffer *url, const char *text, const char *plain)
{
    weir_status status = WEIR_OK;
    for (; *text != '\0' && status == WEIR_OK; text++) {
        const char c = *text;
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || strchr(plain, c) != NULL;
        status = is_plain ? weir_buffer_add(url, &c, 1)
                          : weir_buffer_format(url, "%%%02X", (unsigned)(unsigned char)c);
    }
    return status;
}

weir_status hub_add_revision(weir_buffer *url, const hub_client *client)
{
    return add_encoded(url, client->revision, "-._~");
}

weir_status hub_add_file(weir_buffer *url, const char *name)
{
    return add_encoded(url, name, "-._~/");
}

/* ---- text ------------------------------------------------------------------------------------ */

static weir_status clear_text(hub_transfer *t)
{
    weir_buffer_clear(t->text);
    return WEIR_OK;
}

static bool take_text(void *user, const void *bytes, size_t n)
{
    hub_transfer *const t = user;
    if (n > WEIR_HUB_PAGE_BYTES - t->text->size)
        t->status = weir_error_set(
            t->error, WEIR_EFORMAT, "%s: a list of more than %d bytes, which is the limit",
            t->client->repository, (int)WEIR_HUB_PAGE_BYTES
        );
    else if (weir_buffer_add(t->text, bytes, n) != WEIR_OK)
        t->status = weir_error_set(t->error, WEIR_ENOMEM, "no memory for the list of files");
    return t->status == WEIR_OK;
}

static bool has_text(const hub_transfer *t) { return t->text->size > 0; }

/* GET ENDPOINT/api/models/OWNER/NAME/KIND/REVISION?QUERY. */
static weir_status get_text(
    hub_client *client, weir_buffer *out, const char *kind, const char *query, weir_http_head *head,
    weir_error *error
)
{
    weir_buffer url = { 0 };
    hub_transfer t = {
        .client = client, .text = out, .before = clear_text, .is_whole = has_text, .error = error
    };
    weir_status status = weir_buffer_format(
        &url, "%s/api/models/%s/%s/", client->endpoint, client->repository, kind
    );
    if (status == WEIR_OK) status = hub_add_revision(&url, client);
    if (status == WEIR_OK && query[0] != '\0') status = weir_buffer_format(&url, "?%s", query);
    return hub_run_url(&t, &url, status, (weir_http_request){ .body = take_text }, head);
}

weir_status hub_pin(hub_client *client, weir_error *error)
{
    weir_buffer text = { 0 };
    weir_http_head head;
    weir_error refusal = { 0 };
    weir_status status = get_text(client, &text, "revision", "", &head, &refusal);
    if (status == WEIR_OK && weir_hub_commit_parse(client->commit, text.data, text.size))
        memcpy(client->revision, client->commit, sizeof client->commit);
    /* The list is asked for next, whose refusal says what is missing. */
    else if (status == WEIR_ENOTFOUND && head.status == 404 && head.code[0] == '\0')
        status = WEIR_OK;
    weir_buffer_free(&text);
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "%s", refusal.text);
}

weir_status hub_list(hub_client *client, weir_hub_listing *out, weir_error *error)
{
    char query[WEIR_HUB_QUERY] = "recursive=true";
    weir_buffer text = { 0 };
    weir_http_head head;
    weir_status status = WEIR_OK;
    *out = (weir_hub_listing){ 0 };
    for (int page = 0; status == WEIR_OK; page++) {
        status = get_text(client, &text, "tree", query, &head, error);
        if (status == WEIR_OK) status = weir_hub_listing_add(out, text.data, text.size, error);
        if (status != WEIR_OK || !weir_hub_next_query(query, head.link)) break;
        if (page + 1 == WEIR_HUB_PAGES)
            status = weir_error_set(
                error, WEIR_EFORMAT, "%s: the list of files has more than %d pages",
                client->repository, (int)WEIR_HUB_PAGES
            );
    }
    weir_buffer_free(&text);
    if (status == WEIR_OK)
        weir_hub_listing_sort(out);
    else
        weir_hub_listing_free(out);
    return status;
}
