/* engine/hub/get.c - downloads one model: which files, what of them is here, the rest. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/base/memory.h"
#include "engine/hub/client.h"

/* ---- what is here ---------------------------------------------------------------------------- */

/* The sum that a manifest has of this file, if it is of the same commit or the same sum. */
static bool knows_sum(
    weir_sha256 *out, const weir_hub_manifest *manifest, const char *commit,
    const weir_hub_file *file
)
{
    for (size_t m = 0; m < manifest->n; m++) {
        const weir_hub_model *const model = &manifest->models[m];
        for (size_t i = 0; i < model->files.n; i++) {
            const weir_hub_file *const other = &model->files.files[i];
            const bool is_same = file->has_sum
                                     ? memcmp(&other->sum, &file->sum, sizeof file->sum) == 0
                                     : commit[0] != '\0' && strcmp(model->commit, commit) == 0;
            if (strcmp(other->name, file->name) == 0 && other->has_sum && is_same) {
                *out = other->sum;
                return true;
            }
        }
    }
    return false;
}

/* Finds out whether the file is here as the list has it. One of the right size that no manifest
 * knows is read; one that differs is removed, so that no name leads to old and new files mixed. */
static weir_status look_for(
    bool *is_here, const hub_client *client, const weir_hub_manifest *manifest, const char *folder,
    weir_hub_file *file, weir_error *error
)
{
    char path[PATH_MAX];
    weir_sha256 sum;
    const weir_hub_options *const o = client->options;
    const weir_hub_model alone = { .files = { .files = file, .n = 1 } };
    (void)weir_models_here(&alone, folder, is_here);
    if (snprintf(path, sizeof path, "%s/%s", folder, file->name) >= (int)sizeof path)
        return weir_error_set(error, WEIR_EIO, "%.300s: this path is too long", folder);
    if (*is_here && knows_sum(&sum, manifest, client->commit, file)) {
        file->sum = sum;
        file->has_sum = true;
        return WEIR_OK;
    }
    if (*is_here && file->has_sum) {
        WEIR_TRY(weir_sum_file(&sum, path, o->is_cancelled, o->user, error));
        *is_here = memcmp(&sum, &file->sum, sizeof sum) == 0;
    } else {
        *is_here = false;
    }
    if (*is_here || unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR) return WEIR_OK;
    return weir_error_set(error, WEIR_EIO, "%s: cannot remove: %s", path, strerror(errno));
}

/* Checks that the rest fits the disk. */
static weir_status check_disk(const char *folder, int64_t wanted, weir_error *error)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) != 0) return WEIR_OK; /* writing will tell */
    const double left = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)wanted <= left) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EIO,
        "%s: %lld MiB are still to come, and the disk has %lld MiB left; make room, or set "
        "XDG_DATA_HOME to a folder on another disk",
        folder, (long long)(wanted >> 20), (long long)(left / (1 << 20))
    );
}

/* ---- one file -------------------------------------------------------------------------------- */

/* Compares the sum of a complete part. *again: it began with bytes of another file; start anew. */
static weir_status compare(
    const hub_client *client, weir_part *part, weir_hub_file *file, bool was_resumed, bool *again,
    weir_error *error
)
{
    char want[WEIR_SHA256_HEX + 1], have[WEIR_SHA256_HEX + 1];
    const weir_sha256 sum = weir_sha256_end(&part->sum);
    *again = false;
    if (!file->has_sum || memcmp(&sum, &file->sum, sizeof sum) == 0) {
        file->sum = sum;
        file->has_sum = true;
        return WEIR_OK;
    }
    *again = was_resumed;
    weir_sha256_text(want, &file->sum);
    weir_sha256_text(have, &sum);
    if (was_resumed) {
        hub_warn(client, "%s: began with other bytes; it is downloaded again", part->path);
        return WEIR_OK;
    }
    const weir_status status = weir_error_set(
        error, WEIR_EFORMAT,
        "%s: is damaged and was removed: its SHA-256 is %s, the hub's list says %s", part->path,
        have, want
    );
    weir_part_drop(part);
    return status;
}

static weir_status fill_part(
    hub_client *client, weir_hub_file *file, weir_part *part, weir_error *error
)
{
    bool again = false;
    const weir_hub_options *const o = client->options;
    WEIR_TRY(weir_part_resume(part, file->bytes, o->is_cancelled, o->user, error));
    if (!file->has_sum && part->have > 0) WEIR_TRY(weir_part_restart(part, error));
    client->done += part->have;
    const bool was_resumed = part->have > 0;
    WEIR_TRY(hub_download(client, file, part, error));
    WEIR_TRY(compare(client, part, file, was_resumed, &again, error));
    if (!again) return WEIR_OK;
    client->done -= part->have;
    WEIR_TRY(weir_part_restart(part, error));
    WEIR_TRY(hub_download(client, file, part, error));
    return compare(client, part, file, false, &again, error);
}

static weir_status get_file(
    hub_client *client, const char *folder, weir_hub_file *file, weir_error *error
)
{
    weir_part part;
    weir_status status = weir_part_open(&part, folder, file->name, error);
    if (status == WEIR_OK) status = fill_part(client, file, &part, error);
    if (status == WEIR_OK) status = weir_part_keep(&part, error);
    weir_part_close(&part);
    return status;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Which files are here, and how many bytes are still to come. */
static weir_status survey(
    hub_client *client, const weir_hub_manifest *manifest, const char *folder,
    weir_hub_model *model, bool *is_here, weir_error *error
)
{
    int64_t parts = 0;
    bool unused;
    for (size_t i = 0; i < model->files.n; i++) {
        weir_hub_file *const file = &model->files.files[i];
        WEIR_TRY(look_for(&is_here[i], client, manifest, folder, file, error));
        if (is_here[i]) continue;
        const weir_hub_model alone = { .files = { .files = file, .n = 1 } };
        client->total += file->bytes; /* at most 20000 times 2^44 */
        parts += weir_models_here(&alone, folder, &unused);
    }
    return check_disk(folder, client->total - parts, error);
}

/* Downloads the files of a model that are not here. The manifest names them before they come, and
 * has their sums at the end. */
static weir_status get_files(
    hub_client *client, const char *folder, weir_hub_manifest *manifest, weir_hub_model *chosen,
    weir_hub_result *out, weir_error *error
)
{
    weir_hub_model *model;
    bool *const is_here = weir_memory_take_zero(chosen->files.n, sizeof *is_here);
    weir_status status =
        is_here != NULL ? survey(client, manifest, folder, chosen, is_here, error)
                        : weir_error_set(error, WEIR_ENOMEM, "no memory for the list of files");
    if (status != WEIR_OK) {
        weir_memory_give(is_here);
        weir_hub_listing_free(&chosen->files);
        return status;
    }
    const weir_hub_name *const name = &client->options->name;
    status = weir_hub_manifest_put(manifest, chosen, &model, error);
    if (status == WEIR_OK) status = weir_hub_manifest_write(manifest, folder, name, error);
    for (size_t i = 0; status == WEIR_OK && i < model->files.n; i++) {
        out->n_files++;
        out->bytes += model->files.files[i].bytes;
        if (is_here[i]) continue;
        status = get_file(client, folder, &model->files.files[i], error);
        out->n_downloaded++;
    }
    weir_memory_give(is_here);
    if (status != WEIR_OK) return status;
    memcpy(model->commit, client->commit, sizeof model->commit);
    weir_hub_now(model->date);
    WEIR_TRY(weir_hub_manifest_write(manifest, folder, name, error));
    return weir_models_path(out->path, model, folder, error);
}

static weir_status get_model(
    hub_client *client, weir_hub_model *model, weir_hub_result *out, weir_error *error
)
{
    char folder[PATH_MAX];
    int lock = -1;
    weir_hub_manifest manifest = { 0 };
    const weir_hub_options *const o = client->options;
    weir_status status = weir_models_repository(folder, o->models, &o->name, error);
    if (status == WEIR_OK) status = weir_make_folders(folder, error);
    if (status == WEIR_OK) status = weir_models_lock(&lock, folder, error);
    if (status == WEIR_OK) status = weir_hub_manifest_read(&manifest, folder, error);
    if (status == WEIR_OK)
        status = get_files(client, folder, &manifest, model, out, error);
    else
        weir_hub_listing_free(&model->files);
    weir_hub_manifest_free(&manifest);
    if (lock >= 0) (void)close(lock);
    return status;
}

static weir_status choose(hub_client *client, weir_hub_model *model, weir_error *error)
{
    const weir_hub_options *const o = client->options;
    weir_hub_listing listing;
    WEIR_TRY(hub_pin(client, error));
    WEIR_TRY(hub_list(client, &listing, error));
    const weir_status status = weir_hub_select(
        &model->files, &model->kind, &listing, o->name.quant, o->file, client->repository, error
    );
    weir_hub_listing_free(&listing);
    if (status != WEIR_OK) return status;
    if (model->kind == WEIR_HUB_GGUF) weir_hub_file_quant(model->quant, model->files.files[0].name);
    (void)snprintf(
        model->revision, sizeof model->revision, "%s", o->revision != NULL ? o->revision : "main"
    );
    memcpy(model->commit, client->commit, sizeof model->commit);
    weir_hub_now(model->date);
    return WEIR_OK;
}

weir_status weir_hub_get(const weir_hub_options *options, weir_hub_result *out, weir_error *error)
{
    hub_client client = { .options = options };
    weir_hub_model model = { 0 };
    *out = (weir_hub_result){ 0 };
    WEIR_TRY(hub_check(options, error));
    (void)snprintf(
        client.repository, sizeof client.repository, "%s/%s", options->name.owner,
        options->name.name
    );
    (void)snprintf(
        client.revision, sizeof client.revision, "%s",
        options->revision != NULL ? options->revision : "main"
    );
    (void)snprintf(client.endpoint, sizeof client.endpoint, "%s", options->endpoint);
    for (size_t n = strlen(client.endpoint); n > 0 && client.endpoint[n - 1] == '/'; n--)
        client.endpoint[n - 1] = '\0';
    WEIR_TRY(weir_http_open(&client.http, options->agent, error));
    weir_status status = choose(&client, &model, error);
    if (status == WEIR_OK) status = get_model(&client, &model, out, error);
    weir_http_close(client.http);
    return status;
}
