/* engine/hub/manifest.c - reads and writes the manifest of a repository's folder. */
#include "engine/hub/manifest.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/formats/json.h"

#define FILE_NAME ".weir.json"
enum { VERSION = 1, MANIFEST_BYTES = 16 << 20 };

static const char *const kinds[] = { "gguf", "checkpoint", "file" };

/* ---- models ---------------------------------------------------------------------------------- */

weir_hub_model *weir_hub_manifest_find(
    const weir_hub_manifest *manifest, weir_hub_kind kind, const char *first_file
)
{
    for (size_t i = 0; i < manifest->n; i++) {
        weir_hub_model *const model = &manifest->models[i];
        const bool is_checkpoint = model->kind == WEIR_HUB_CHECKPOINT;
        if (is_checkpoint != (kind == WEIR_HUB_CHECKPOINT)) continue;
        if (is_checkpoint || strcmp(model->files.files[0].name, first_file) == 0) return model;
    }
    return NULL;
}

weir_status weir_hub_manifest_put(
    weir_hub_manifest *manifest, weir_hub_model *model, weir_hub_model **out, weir_error *error
)
{
    weir_status status = WEIR_OK;
    weir_hub_model *place =
        weir_hub_manifest_find(manifest, model->kind, model->files.files[0].name);
    if (place != NULL) {
        weir_hub_listing_free(&place->files);
    } else if (manifest->n < WEIR_HUB_MODELS) {
        weir_hub_model *const larger =
            weir_memory_resize(manifest->models, (manifest->n + 1) * sizeof *larger);
        if (larger != NULL) {
            manifest->models = larger;
            place = &larger[manifest->n++];
        } else {
            status = weir_error_set(error, WEIR_ENOMEM, "no memory for the manifest");
        }
    } else {
        status = weir_error_set(
            error, WEIR_EFORMAT, "more than %d models of one repository", (int)WEIR_HUB_MODELS
        );
    }
    if (status == WEIR_OK) {
        *place = *model;
        *out = place;
    } else {
        weir_hub_listing_free(&model->files);
    }
    model->files = (weir_hub_listing){ 0 };
    return status;
}

void weir_hub_manifest_drop(weir_hub_manifest *manifest, size_t index)
{
    weir_hub_listing_free(&manifest->models[index].files);
    manifest->n--;
    memmove(
        &manifest->models[index], &manifest->models[index + 1],
        (manifest->n - index) * sizeof *manifest->models
    );
}

void weir_hub_manifest_free(weir_hub_manifest *manifest)
{
    for (size_t i = 0; i < manifest->n; i++) weir_hub_listing_free(&manifest->models[i].files);
    weir_memory_give(manifest->models);
    *manifest = (weir_hub_manifest){ 0 };
}

void weir_hub_now(char out[WEIR_HUB_DATE + 1])
{
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) == NULL ||
        strftime(out, WEIR_HUB_DATE + 1, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        out[0] = '\0';
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Copies a string member of at most `most` printable bytes; "" if there is none. */
static void copy_text(char *out, size_t most, const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    const char *const text = json_string_value(value);
    const size_t n = text != NULL ? strlen(text) : 0;
    out[0] = '\0';
    if (n == 0 || n > most || n != json_string_length(value)) return;
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return;
    memcpy(out, text, n + 1);
}

static bool parse_file(weir_hub_file *out, const json_t *entry)
{
    const json_t *const name = json_object_get(entry, "name"),
                        *const bytes = json_object_get(entry, "bytes"),
                        *const sum = json_object_get(entry, "sha256");
    if (!json_is_string(name) || !json_is_integer(bytes) ||
        !weir_hub_file_is_safe(json_string_value(name), json_string_length(name)))
        return false;
    *out = (weir_hub_file){ .name = (char *)(uintptr_t)json_string_value(name),
                            .bytes = json_integer_value(bytes) };
    if (out->bytes < 0 || out->bytes > WEIR_HUB_FILE_BYTES) return false;
    if (sum == NULL || json_is_null(sum)) return true;
    out->has_sum = json_string_length(sum) == WEIR_SHA256_HEX &&
                   weir_sha256_parse(&out->sum, json_string_value(sum));
    return out->has_sum;
}

static weir_status parse_model(
    weir_hub_manifest *out, const json_t *entry, const char *name, weir_error *error
)
{
    weir_hub_model model = { 0 }, *put;
    weir_status status = WEIR_OK;
    const json_t *const files = json_object_get(entry, "files");
    const char *const kind = json_string_value(json_object_get(entry, "kind"));
    size_t k = 0;
    while (k < 3 && (kind == NULL || strcmp(kind, kinds[k]) != 0)) k++;
    if (k == 3)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: model %zu is of no known kind", name, out->n
        );
    model.kind = (weir_hub_kind)k;
    copy_text(model.revision, WEIR_HUB_REVISION, entry, "revision");
    copy_text(model.commit, WEIR_HUB_COMMIT, entry, "commit");
    copy_text(model.date, WEIR_HUB_DATE, entry, "date");
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(files); i++) {
        weir_hub_file file;
        if (parse_file(&file, json_array_get(files, i)))
            status = weir_hub_listing_put(&model.files, &file, error);
        else
            status = weir_error_set(
                error, WEIR_EFORMAT, "%s: file %zu of model %zu is malformed", name, i, out->n
            );
    }
    if (status == WEIR_OK && model.files.n == 0)
        status = weir_error_set(error, WEIR_EFORMAT, "%s: model %zu has no files", name, out->n);
    if (status != WEIR_OK) {
        weir_hub_listing_free(&model.files);
        return status;
    }
    if (model.kind == WEIR_HUB_GGUF) weir_hub_file_quant(model.quant, model.files.files[0].name);
    return weir_hub_manifest_put(out, &model, &put, error);
}

weir_status weir_hub_manifest_parse(
    weir_hub_manifest *out, const char *json, size_t n, const char *name, weir_error *error
)
{
    json_t *root = NULL;
    *out = (weir_hub_manifest){ 0 };
    WEIR_TRY(weir_json_parse_within(&root, json, n, name, &weir_json_file, error));
    const json_t *const version = json_object_get(root, "version"), *const models = json_object_get(
                                                                        root, "models"
                                                                    );
    weir_status status = WEIR_OK;
    if (!json_is_integer(version) || json_integer_value(version) != VERSION ||
        !json_is_array(models))
        status = weir_error_set(
            error, WEIR_EFORMAT, "%s: not a manifest of version %d; remove it to start anew", name,
            (int)VERSION
        );
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(models); i++)
        status = parse_model(out, json_array_get(models, i), name, error);
    if (status != WEIR_OK) weir_hub_manifest_free(out);
    json_decref(root);
    return status;
}

static weir_status path_of(char path[PATH_MAX], const char *folder, weir_error *error)
{
    if (snprintf(path, PATH_MAX, "%s/" FILE_NAME, folder) < PATH_MAX) return WEIR_OK;
    return weir_error_set(error, WEIR_EINVAL, "%.300s: this path is too long", folder);
}

weir_status weir_hub_manifest_read(weir_hub_manifest *out, const char *folder, weir_error *error)
{
    char path[PATH_MAX];
    weir_buffer text = { 0 };
    *out = (weir_hub_manifest){ 0 };
    WEIR_TRY(path_of(path, folder, error));
    if (!weir_file_exists(path)) return WEIR_OK;
    weir_status status = weir_file_read(&text, path, MANIFEST_BYTES, error);
    if (status == WEIR_OK)
        status = weir_hub_manifest_parse(
            out, text.data != NULL ? text.data : "", text.size, path, error
        );
    weir_buffer_free(&text);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *file_json(const weir_hub_file *file)
{
    char sum[WEIR_SHA256_HEX + 1];
    weir_sha256_text(sum, &file->sum);
    return json_pack(
        "{s:s, s:I, s:s?}", "name", file->name, "bytes", (json_int_t)file->bytes, "sha256",
        file->has_sum ? sum : NULL
    );
}

static json_t *model_json(const weir_hub_model *model)
{
    json_t *const files = json_array();
    for (size_t i = 0; i < model->files.n; i++)
        if (json_array_append_new(files, file_json(&model->files.files[i])) != 0) {
            json_decref(files);
            return NULL;
        }
    return json_pack(
        "{s:s, s:s?, s:s, s:s?, s:s, s:o}", "kind", kinds[model->kind], "quantisation",
        model->quant[0] != '\0' ? model->quant : NULL, "revision", model->revision, "commit",
        model->commit[0] != '\0' ? model->commit : NULL, "date", model->date, "files", files
    );
}

/* NULL: no memory. */
static json_t *manifest_json(const weir_hub_manifest *manifest, const weir_hub_name *name)
{
    json_t *const models = json_array();
    for (size_t i = 0; i < manifest->n; i++)
        if (json_array_append_new(models, model_json(&manifest->models[i])) != 0) {
            json_decref(models);
            return NULL;
        }
    char repository[2 * WEIR_HUB_WORD + 2];
    (void)snprintf(repository, sizeof repository, "%s/%s", name->owner, name->name);
    return json_pack(
        "{s:i, s:s, s:o}", "version", (int)VERSION, "repository", repository, "models", models
    );
}

weir_status weir_hub_manifest_write(
    const weir_hub_manifest *manifest, const char *folder, const weir_hub_name *name,
    weir_error *error
)
{
    char path[PATH_MAX];
    WEIR_TRY(path_of(path, folder, error));
    if (manifest->n == 0) {
        if (unlink(path) == 0 || errno == ENOENT) return WEIR_OK;
        return weir_error_set(error, WEIR_EIO, "%s: cannot remove: %s", path, strerror(errno));
    }
    weir_buffer text = { 0 };
    json_t *const root = manifest_json(manifest, name);
    weir_status status = root != NULL ? weir_json_write(&text, root, JSON_INDENT(2)) : WEIR_ENOMEM;
    if (status != WEIR_OK)
        status = weir_error_set(error, WEIR_ENOMEM, "%s: no memory to write it", path);
    else
        status = weir_file_write_atomic(path, text.data, text.size, error);
    json_decref(root);
    weir_buffer_free(&text);
    return status;
}
