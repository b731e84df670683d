/* engine/hub/client.h - requests to a hub, with more than one try; shared by the files of this
 * folder. */
#pragma once
#include "engine/hub/http.h"
#include "engine/hub/hub.h"
#include "engine/hub/part.h"

typedef struct hub_client {
    const weir_hub_options *options;
    weir_http *http;
    char endpoint[1024]; /* without slashes at its end */
    char repository[2 * WEIR_HUB_WORD + 2]; /* "OWNER/NAME" */
    char revision[WEIR_HUB_REVISION + 1]; /* that is asked for: a commit, once it is known */
    char commit[WEIR_HUB_COMMIT + 1]; /* "": not known */
    int64_t done, total; /* bytes of the files that were not here; parts count from the start */
} hub_client;

/* One request, made until it is answered: what its callbacks fill. */
typedef struct hub_transfer hub_transfer;
struct hub_transfer {
    hub_client *client;
    weir_status (*before)(hub_transfer *t); /* prepares each try */
    bool (*is_whole)(const hub_transfer *t); /* of a reply with status 200 or 206 */
    weir_buffer *text; /* of a request for text; else: */
    const weir_hub_file *file;
    weir_part *part;
    weir_status status; /* of the callbacks, with `error` */
    weir_error *error;
};
/* Makes the request of a transfer, more than once if the network or the hub fails.
 * errors : those of weir_hub_get */
WEIR_MUST_CHECK weir_status
hub_run(hub_transfer *t, const weir_http_request *request, weir_http_head *head);
/* The same for the address in `url`, with the client's token; the status is that of writing the
 * address. Frees `url`. */
WEIR_MUST_CHECK weir_status hub_run_url(
    hub_transfer *t, weir_buffer *url, weir_status status, weir_http_request request,
    weir_http_head *head
);
/* Calls options->warn. */
void hub_warn(const hub_client *client, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Empties the part. */
WEIR_MUST_CHECK weir_status hub_start_anew(hub_transfer *t);
bool hub_is_cancelled(void *transfer);
/* Appends the revision, or the name of a file, with percent signs for what a URL cannot hold there.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status hub_add_revision(weir_buffer *url, const hub_client *client);
WEIR_MUST_CHECK weir_status hub_add_file(weir_buffer *url, const char *name);

/* Endpoint, token, revision: good or an error. */
WEIR_MUST_CHECK weir_status hub_check(const weir_hub_options *options, weir_error *error);

/* Asks for the commit of the revision. A hub that cannot say it is asked for the revision. */
WEIR_MUST_CHECK weir_status hub_pin(hub_client *client, weir_error *error);
/* All files of the repository, sorted. */
WEIR_MUST_CHECK weir_status hub_list(hub_client *client, weir_hub_listing *out, weir_error *error);
/* Downloads the rest of a file, to file->bytes; does not compare sums. */
WEIR_MUST_CHECK weir_status
hub_download(hub_client *client, const weir_hub_file *file, weir_part *part, weir_error *error);
