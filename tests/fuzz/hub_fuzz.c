/* tests/fuzz/hub_fuzz.c - any bytes from a hub, or in the folder of models. The first byte says as
 * what they are read: a page of the list of files, a manifest, a name, headers of a reply. */
#include "engine/hub/http.h"
#include "engine/hub/manifest.h"
#include "tests/fuzz/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Names stay in their folder, sizes are sizes. */
static void probe_files(const weir_hub_listing *listing)
{
    for (size_t i = 0; i < listing->n; i++) {
        const weir_hub_file *const file = &listing->files[i];
        const char *const name = file->name;
        probe_require(name[0] != '/' && name[0] != '.' && name[0] != '\0');
        probe_require(strstr(name, "/.") == NULL && strstr(name, "//") == NULL);
        probe_require(strlen(name) <= WEIR_HUB_FILE && name[strlen(name) - 1] != '/');
        probe_require(file->bytes >= 0 && file->bytes <= WEIR_HUB_FILE_BYTES);
    }
}

static void probe_choice(const weir_hub_listing *listing, const char *quant, const char *file)
{
    weir_hub_listing chosen;
    weir_hub_kind kind;
    weir_error error = { 0 };
    const weir_status status = weir_hub_select(&chosen, &kind, listing, quant, file, "o/n", &error);
    probe_status(status, &error);
    probe_require(status != WEIR_OK || chosen.n > 0);
    probe_files(&chosen);
    weir_hub_listing_free(&chosen);
}

static void read_list(const char *text, size_t n)
{
    weir_hub_listing listing = { 0 };
    weir_error error = { 0 };
    char commit[WEIR_HUB_COMMIT + 1];
    probe_status(weir_hub_listing_add(&listing, text, n, &error), &error);
    probe_status(weir_hub_listing_add(&listing, text, n, &error), &error);
    weir_hub_listing_sort(&listing);
    probe_files(&listing);
    for (size_t i = 1; i < listing.n; i++)
        probe_require(strcmp(listing.files[i - 1].name, listing.files[i].name) < 0);
    probe_choice(&listing, "", NULL);
    probe_choice(&listing, "Q8_0", NULL);
    for (size_t i = 0; i < listing.n && i < 8; i++)
        probe_choice(&listing, "", listing.files[i].name);
    weir_hub_listing_free(&listing);
    if (weir_hub_commit_parse(commit, text, n)) probe_require(weir_hub_is_commit(commit));
}

static void read_manifest(const char *text, size_t n)
{
    weir_hub_manifest manifest;
    weir_error error = { 0 };
    probe_status(weir_hub_manifest_parse(&manifest, text, n, "manifest", &error), &error);
    for (size_t i = 0; i < manifest.n; i++) {
        probe_require(manifest.models[i].files.n > 0);
        probe_files(&manifest.models[i].files);
    }
    weir_hub_manifest_free(&manifest);
}

static void read_name(const char *text)
{
    weir_hub_name name;
    char quant[WEIR_HUB_QUANT + 1];
    if (weir_hub_name_parse(&name, text)) {
        probe_require(name.owner[0] != '.' && name.name[0] != '.');
        probe_require(strchr(name.owner, '/') == NULL && strchr(name.name, '/') == NULL);
    }
    if (weir_hub_revision_is_good(text)) probe_require(strstr(text, "..") == NULL);
    weir_hub_file_quant(quant, text);
    if (quant[0] != '\0') probe_require(weir_hub_file_has_quant(text, quant));
    probe_require(weir_hub_set_length(text) <= strlen(text));
    if (weir_http_endpoint_is_good(text)) probe_require(weir_http_same_origin(text, text));
}

static void read_headers(const char *text, size_t n)
{
    weir_http_head head = { 0 };
    char query[WEIR_HUB_QUERY];
    int64_t first, total;
    for (size_t at = 0; at < n;) {
        const char *const end = memchr(text + at, '\n', n - at);
        const size_t line = end != NULL ? (size_t)(end - text) + 1 - at : n - at;
        weir_http_read_header(&head, text + at, line);
        at += line;
    }
    probe_require(head.status == 0 || (head.status >= 100 && head.status <= 999));
    probe_require(head.length >= -1 && head.retry_after_s >= 0);
    probe_require(head.commit[0] == '\0' || weir_hub_is_commit(head.commit));
    if (weir_hub_next_query(query, head.link))
        for (size_t i = 0; query[i] != '\0'; i++) probe_require(query[i] > ' ' && query[i] <= '~');
    if (weir_hub_content_range(&first, &total, head.range))
        probe_require(first >= 0 && total >= -1 && (total < 0 || first < total));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const size_t n = size - 1;
    char *const text = malloc(n + 1); /* of exactly its size, and a NUL */
    if (text == NULL) return 0;
    memcpy(text, data + 1, n);
    text[n] = '\0';
    switch (data[0] % 4) {
    case 0: read_list(text, n); break;
    case 1: read_manifest(text, n); break;
    case 2: read_name(text); break;
    default: read_headers(text, n); break;
    }
    free(text);
    return 0;
}
