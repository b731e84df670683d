/* engine/formats/tensor_directory.c - opens and maps the files of a checkpoint. A folder is
 * searched for model.safetensors, then model.safetensors.index.json, whose file names must stay
 * inside the folder, then a single *.gguf (or a single split set). */
#include "engine/formats/tensor_directory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/formats/config_meta.h"
#include "engine/formats/foreign.h"
#include "engine/formats/gguf.h"
#include "engine/formats/json.h"
#include "engine/formats/printable.h"
#include "engine/formats/safetensors.h"

enum { INDEX_BYTES_MAX = 100000000, CONFIG_BYTES_MAX = 16 << 20 };

/* Length of "-00001-of-00005.gguf". */
enum { SPLIT_SUFFIX = 20 };

static const char accepted[] = "a model is a GGUF file, a safetensors file or a checkpoint folder";

static bool ends_with(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* Returns folder/name, to be freed by the caller, or NULL. */
static char *join(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) >= 0 ? path : NULL;
}

/* Returns the folder part of a path, to be freed by the caller. */
static char *folder_of(const char *path)
{
    const char *const slash = strrchr(path, '/');
    if (slash == NULL) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

/* Takes ownership of `path` (from malloc; may be NULL after a failed join) and maps the file as the
 * next source. */
static weir_status add_source(weir_tensor_directory *directory, char *path, weir_error *error)
{
    weir_source *const larger =
        path != NULL ? realloc(directory->sources, (directory->n_sources + 1) * sizeof *larger)
                     : NULL;
    if (larger == NULL) {
        free(path);
        return weir_directory_no_memory(error, directory->path);
    }
    directory->sources = larger;
    weir_source *const source = &larger[directory->n_sources++];
    *source = (weir_source){ .path = path };
    WEIR_TRY(weir_map_open(&source->map, path, error));
    const char *const kind = weir_foreign_kind(source->map.data, source->map.size);
    return kind == NULL
               ? WEIR_OK
               : weir_error_set(
                     error, WEIR_EFORMAT, "%s: not a model but %s; %s", path, kind, accepted
                 );
}

static const weir_source *newest(const weir_tensor_directory *directory)
{
    return &directory->sources[directory->n_sources - 1];
}

/* Reads config.json next to the safetensors files. A file without one has no metadata. */
static weir_status read_config(weir_tensor_directory *directory, weir_error *error)
{
    char *const path = join(directory->folder, "config.json");
    if (path == NULL) return weir_directory_no_memory(error, directory->path);
    json_t *root = NULL;
    weir_status status = WEIR_OK;
    if (weir_file_exists(path)) {
        status = weir_json_read_config(&root, path, CONFIG_BYTES_MAX, error);
        if (status == WEIR_OK) status = weir_config_meta_add(directory, root, path, error);
    }
    json_decref(root);
    free(path);
    return status;
}

static weir_status add_safetensors(
    weir_tensor_directory *directory, char *path, const json_t *wanted, const char *wanted_file,
    weir_error *error
)
{
    WEIR_TRY(add_source(directory, path, error));
    const weir_source *const source = newest(directory);
    return weir_safetensors_parse(
        directory,
        &(weir_safetensors_args){ .bytes = source->map.data,
                                  .n = source->map.size,
                                  .name = source->path,
                                  .source = (int32_t)(directory->n_sources - 1),
                                  .wanted = wanted,
                                  .wanted_file = wanted_file },
        error
    );
}

static bool has_source(const weir_tensor_directory *directory, const char *file)
{
    for (size_t i = 0; i < directory->n_sources; i++)
        if (strcmp(strrchr(directory->sources[i].path, '/') + 1, file) == 0) return true;
    return false;
}

/* Checks an entry of weight_map: a file name in the same folder. */
static weir_status check_shard_name(
    const char *index, const char *tensor, const json_t *file, weir_error *error
)
{
    char label[80], shown[120];
    const char *const name = json_string_value(file);
    (void)weir_printable(label, sizeof label, tensor, strlen(tensor));
    if (name == NULL)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: tensor %s: its file is not a string", index, label
        );
    if (strlen(name) == json_string_length(file) && weir_name_valid(name, strlen(name)) &&
        strchr(name, '/') == NULL && ends_with(name, ".safetensors"))
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFORMAT,
        "%s: tensor %s: \"%s\" is not the name of a .safetensors file in the same folder", index,
        label, weir_printable(shown, sizeof shown, name, json_string_length(file))
    );
}

static weir_status check_complete(
    const weir_tensor_directory *directory, const char *index, const json_t *wanted,
    weir_error *error
)
{
    const char *name;
    const json_t *file;
    json_object_foreach((json_t *)(uintptr_t)wanted, name, file)
    {
        if (weir_tensor_directory_find(directory, name) != NULL) continue;
        char label[80], shown[120];
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: tensor %s is not in %s", index,
            weir_printable(label, sizeof label, name, strlen(name)),
            weir_printable(shown, sizeof shown, json_string_value(file), json_string_length(file))
        );
    }
    return WEIR_OK;
}

/* Adds each file of the index once, with the tensors that the index assigns to it. */
static weir_status add_shards(
    weir_tensor_directory *directory, const char *index, const json_t *wanted, weir_error *error
)
{
    if (!json_is_object(wanted))
        return weir_error_set(error, WEIR_EFORMAT, "%s: no object \"weight_map\"", index);
    if (json_object_size(wanted) == 0 || json_object_size(wanted) > WEIR_SET_TENSORS_MAX)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: %zu tensors, from 1 to %d are read", index,
            json_object_size(wanted), WEIR_SET_TENSORS_MAX
        );
    const char *tensor;
    const json_t *file;
    json_object_foreach((json_t *)(uintptr_t)wanted, tensor, file)
    {
        WEIR_TRY(check_shard_name(index, tensor, file, error));
        if (has_source(directory, json_string_value(file))) continue;
        if (directory->n_sources == WEIR_SET_FILES_MAX)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: more than %d files", index, WEIR_SET_FILES_MAX
            );
        WEIR_TRY(add_safetensors(
            directory, join(directory->folder, json_string_value(file)), wanted,
            json_string_value(file), error
        ));
    }
    WEIR_TRY(weir_directory_finish(directory, error));
    return check_complete(directory, index, wanted, error);
}

static weir_status open_index(
    weir_tensor_directory *directory, const char *index, weir_error *error
)
{
    json_t *root;
    WEIR_TRY(weir_json_read_file(&root, index, INDEX_BYTES_MAX, error));
    const weir_status status =
        add_shards(directory, index, json_object_get(root, "weight_map"), error);
    json_decref(root);
    return status;
}

/* True if the name ends like the first file of a split set. *count is then the number of files. */
static bool split_name(const char *path, unsigned *number, unsigned *count)
{
    const size_t n = strlen(path);
    int end = 0;
    return n > SPLIT_SUFFIX &&
           sscanf(path + n - SPLIT_SUFFIX, "-%5u-of-%5u.gguf%n", number, count, &end) == 2 &&
           end == SPLIT_SUFFIX;
}

static weir_status add_gguf(
    weir_tensor_directory *directory, weir_gguf_header *header, char *path, weir_error *error
)
{
    WEIR_TRY(add_source(directory, path, error));
    const weir_source *const source = newest(directory);
    return weir_gguf_parse(
        directory, header, (int32_t)(directory->n_sources - 1), source->map.data, source->map.size,
        source->path, error
    );
}

/* Adds file `number` (from 0) of the split set that begins with `first`. Its metadata is only used
 * to identify it. */
static weir_status add_split(
    weir_tensor_directory *directory, const weir_gguf_header *first, int64_t number,
    weir_error *error
)
{
    const char *const base = directory->sources[0].path;
    char *path;
    if (asprintf(
            &path, "%.*s-%05d-of-%05d.gguf", (int)(strlen(base) - SPLIT_SUFFIX), base,
            (int)number + 1, (int)first->split_count
        ) < 0)
        return weir_directory_no_memory(error, base);
    const size_t n_entries = directory->n_entries;
    weir_gguf_header header;
    WEIR_TRY(add_gguf(directory, &header, path, error));
    directory->n_entries = n_entries;
    if (directory->n_tensors > WEIR_SET_TENSORS_MAX)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: more than %d tensors in the set", path, WEIR_SET_TENSORS_MAX
        );
    if (header.split_number != number || header.split_count != first->split_count)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: it is file %" PRId64 " of %" PRId64 " by its keys, not %" PRId64 " of %" PRId64,
            path, header.split_number + 1, header.split_count, number + 1, first->split_count
        );
    return WEIR_OK;
}

static weir_status open_gguf(weir_tensor_directory *directory, const char *path, weir_error *error)
{
    weir_gguf_header first;
    unsigned number, count;
    WEIR_TRY(add_gguf(directory, &first, strdup(path), error));
    if (first.split_count <= 1) return weir_directory_finish(directory, error);
    if (first.split_number != 0)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: it is file %" PRId64 " of %" PRId64 ": give the first file of the set", path,
            first.split_number + 1, first.split_count
        );
    if (!split_name(path, &number, &count) || number != 1 || count != (unsigned)first.split_count)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: the first of %" PRId64 " files must be named NAME-00001-of-%05d.gguf", path,
            first.split_count, (int)first.split_count
        );
    for (int64_t i = 1; i < first.split_count; i++)
        WEIR_TRY(add_split(directory, &first, i, error));
    if (first.split_tensors >= 0 && (size_t)first.split_tensors != directory->n_tensors)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: the set holds %zu tensors, split.tensors.count says %" PRId64,
            path, directory->n_tensors, first.split_tensors
        );
    return weir_directory_finish(directory, error);
}

/* Finds the only *.gguf of a folder, not counting later files of a split set. *out is NULL if there
 * is none. */
static weir_status find_gguf(char **out, const char *folder, weir_error *error)
{
    *out = NULL;
    DIR *const stream = opendir(folder);
    if (stream == NULL)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot list the folder: %s", folder, strerror(errno)
        );
    weir_status status = WEIR_OK;
    const struct dirent *entry;
    while (status == WEIR_OK && (errno = 0, entry = readdir(stream)) != NULL) {
        unsigned number, count;
        if (!ends_with(entry->d_name, ".gguf") ||
            (split_name(entry->d_name, &number, &count) && number != 1))
            continue;
        if (*out != NULL) {
            status = weir_error_set(
                error, WEIR_EFORMAT, "%s: more than one .gguf file: give the path of one of them",
                folder
            );
        } else {
            *out = join(folder, entry->d_name);
            if (*out == NULL) status = weir_directory_no_memory(error, folder);
        }
    }
    if (status == WEIR_OK && errno != 0)
        status = weir_error_set(
            error, WEIR_EIO, "%s: cannot list the folder: %s", folder, strerror(errno)
        );
    (void)closedir(stream);
    return status;
}

static weir_status open_gguf_in_folder(weir_tensor_directory *directory, weir_error *error)
{
    char *path;
    weir_status status = find_gguf(&path, directory->folder, error);
    if (status == WEIR_OK && path == NULL)
        status = weir_error_set(
            error, WEIR_ENOTFOUND,
            "%s: no model.safetensors, no model.safetensors.index.json, no "
            ".gguf file: not a checkpoint folder; %s",
            directory->folder, accepted
        );
    directory->container = WEIR_CONTAINER_GGUF;
    if (status == WEIR_OK) status = open_gguf(directory, path, error);
    free(path);
    return status;
}

static weir_status open_folder(weir_tensor_directory *directory, weir_error *error)
{
    char *const single = join(directory->folder, "model.safetensors");
    char *const index = join(directory->folder, "model.safetensors.index.json");
    weir_status status;
    if (single == NULL || index == NULL) {
        status = weir_directory_no_memory(error, directory->path);
    } else if (weir_file_exists(single)) {
        status = read_config(directory, error);
        if (status == WEIR_OK)
            status = add_safetensors(directory, strdup(single), NULL, NULL, error);
        if (status == WEIR_OK) status = weir_directory_finish(directory, error);
    } else if (weir_file_exists(index)) {
        status = read_config(directory, error);
        if (status == WEIR_OK) status = open_index(directory, index, error);
    } else {
        status = open_gguf_in_folder(directory, error);
    }
    free(single);
    free(index);
    return status;
}

/* Detects the container from the first bytes. If they say nothing, uses the name; the reader then
 * reports what is wrong. */
static weir_status container_of_file(weir_container *out, const char *path, weir_error *error)
{
    weir_map map;
    WEIR_TRY(weir_map_open(&map, path, error));
    const bool known =
        weir_container_of(out, map.data, map.size) || weir_foreign_kind(map.data, map.size) != NULL;
    weir_map_close(&map);
    if (known) return WEIR_OK;
    if (!ends_with(path, ".safetensors") && !ends_with(path, ".gguf"))
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: not a model: it begins neither as GGUF nor as safetensors; %s", path, accepted
        );
    *out = ends_with(path, ".safetensors") ? WEIR_CONTAINER_SAFETENSORS : WEIR_CONTAINER_GGUF;
    return WEIR_OK;
}

static weir_status open_file(weir_tensor_directory *directory, const char *path, weir_error *error)
{
    directory->container = WEIR_CONTAINER_GGUF;
    WEIR_TRY(container_of_file(&directory->container, path, error));
    if (directory->container == WEIR_CONTAINER_GGUF) return open_gguf(directory, path, error);
    WEIR_TRY(read_config(directory, error));
    WEIR_TRY(add_safetensors(directory, strdup(path), NULL, NULL, error));
    return weir_directory_finish(directory, error);
}

weir_status weir_tensor_directory_open(
    weir_tensor_directory **out, const char *path, weir_error *error
)
{
    if (!weir_file_exists(path))
        return weir_error_set(error, WEIR_ENOTFOUND, "%s: no such file or folder", path);
    const bool is_folder = weir_file_is_directory(path);
    weir_tensor_directory *const directory =
        weir_directory_create(WEIR_CONTAINER_SAFETENSORS, path);
    if (directory == NULL) return weir_directory_no_memory(error, path);
    weir_status status = WEIR_OK;
    directory->folder = is_folder ? strdup(path) : folder_of(path);
    if (directory->folder == NULL)
        status = weir_directory_no_memory(error, path);
    else
        status = is_folder ? open_folder(directory, error) : open_file(directory, path, error);
    if (status == WEIR_OK)
        *out = directory;
    else
        weir_tensor_directory_close(directory);
    return status;
}
