/* engine/formats/directory.c - the tables of a tensor directory, and lookups in them: a binary
 * search over sorted names, 16 comparisons for 65536 tensors. Unlike in a hash table, chosen names
 * cannot slow it down. */
#include "engine/formats/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/formats/printable.h"

weir_status weir_directory_no_memory(weir_error *error, const char *name)
{
    return weir_error_set(error, WEIR_ENOMEM, "%s: no memory for the table of contents", name);
}

weir_tensor_directory *weir_directory_create(weir_container container, const char *path)
{
    weir_tensor_directory *const directory = weir_memory_take_zero(1, sizeof *directory);
    if (directory == NULL) return NULL;
    directory->container = container;
    directory->path = weir_memory_text(path);
    if (directory->path == NULL) {
        weir_memory_give(directory);
        return NULL;
    }
    return directory;
}

/* Makes room for one more element of `size` bytes in a table of n. Returns false when memory runs
 * out. */
static bool grow(void **table, size_t *capacity, size_t n, size_t size)
{
    if (n < *capacity) return true;
    const size_t wanted = *capacity > 0 ? *capacity * 2 : 64;
    size_t bytes;
    if (!weir_mul_size(&bytes, wanted, size)) return false;
    void *const larger = weir_memory_resize(*table, bytes);
    if (larger == NULL) return false;
    *table = larger;
    *capacity = wanted;
    return true;
}

weir_status weir_directory_add_tensor(
    weir_tensor_directory *directory, const weir_tensor *tensor, weir_error *error
)
{
    void *table = directory->tensors;
    if (!grow(&table, &directory->tensor_capacity, directory->n_tensors, sizeof *tensor))
        return weir_directory_no_memory(error, directory->path);
    directory->tensors = table;
    directory->tensors[directory->n_tensors++] = *tensor;
    return WEIR_OK;
}

weir_status weir_directory_add_meta(
    weir_tensor_directory *directory, const char *key, const weir_meta *value, weir_error *error
)
{
    void *table = directory->entries;
    if (!grow(&table, &directory->entry_capacity, directory->n_entries, sizeof(weir_meta_entry)))
        return weir_directory_no_memory(error, directory->path);
    directory->entries = table;
    directory->entries[directory->n_entries] =
        (weir_meta_entry){ .key = key, .value = *value, .order = directory->n_entries };
    directory->n_entries++;
    return WEIR_OK;
}

static int compare_spans(const void *a, const void *b)
{
    const weir_file_span *const x = a, *const y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
                                : (x->end > y->end) - (x->end < y->end);
}

void weir_file_span_sort(weir_file_span *spans, size_t n)
{
    if (n > 0) qsort(spans, n, sizeof *spans, compare_spans);
}

static int compare_entries(const void *a, const void *b)
{
    const weir_meta_entry *const x = a, *const y = b;
    const int order = strcmp(x->key, y->key);
    return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static weir_status sort_entries(weir_tensor_directory *directory, weir_error *error)
{
    if (directory->n_entries == 0) return WEIR_OK;
    weir_meta_entry *const entries = directory->entries;
    qsort(entries, directory->n_entries, sizeof *entries, compare_entries);
    size_t kept = 1;
    for (size_t i = 1; i < directory->n_entries; i++) {
        if (strcmp(entries[i].key, entries[kept - 1].key) != 0) {
            entries[kept++] = entries[i];
        } else if (directory->container == WEIR_CONTAINER_GGUF) {
            char shown[80];
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: metadata key %s appears twice", directory->path,
                weir_printable(shown, sizeof shown, entries[i].key, strlen(entries[i].key))
            );
        }
    }
    directory->n_entries = kept;
    return WEIR_OK;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
    const weir_tensor *const table = tensors;
    return strcmp(table[*(const uint32_t *)a].name, table[*(const uint32_t *)b].name);
}

static weir_status sort_names(weir_tensor_directory *directory, weir_error *error)
{
    const size_t n = directory->n_tensors;
    if (n == 0) return WEIR_OK;
    weir_memory_give(directory->by_name);
    directory->by_name = weir_memory_take_zero(n, sizeof *directory->by_name);
    if (directory->by_name == NULL) return weir_directory_no_memory(error, directory->path);
    for (size_t i = 0; i < n; i++) directory->by_name[i] = (uint32_t)i;
    qsort_r(directory->by_name, n, sizeof *directory->by_name, compare_names, directory->tensors);
    for (size_t i = 1; i < n; i++) {
        const char *const name = directory->tensors[directory->by_name[i]].name;
        if (strcmp(name, directory->tensors[directory->by_name[i - 1]].name) != 0) continue;
        char shown[80];
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: tensor %s appears twice", directory->path,
            weir_printable(shown, sizeof shown, name, strlen(name))
        );
    }
    return WEIR_OK;
}

weir_status weir_directory_finish(weir_tensor_directory *directory, weir_error *error)
{
    WEIR_TRY(sort_entries(directory, error));
    return sort_names(directory, error);
}

void weir_tensor_directory_close(weir_tensor_directory *directory)
{
    if (directory == NULL) return;
    for (size_t i = 0; i < directory->n_sources; i++) {
        weir_map_close(&directory->sources[i].map);
        free(directory->sources[i].path);
    }
    free(directory->sources);
    weir_memory_give(directory->tensors);
    weir_memory_give(directory->by_name);
    weir_memory_give(directory->entries);
    weir_memory_give(directory->path);
    free(directory->folder);
    weir_arena_free(&directory->arena);
    weir_memory_give(directory);
}

weir_container weir_tensor_directory_container(const weir_tensor_directory *directory)
{
    return directory->container;
}
const char *weir_tensor_directory_path(const weir_tensor_directory *directory)
{
    return directory->path;
}
const char *weir_tensor_directory_folder(const weir_tensor_directory *directory)
{
    return directory->folder;
}
size_t weir_tensor_directory_count(const weir_tensor_directory *directory)
{
    return directory->n_tensors;
}
const weir_tensor *weir_tensor_directory_at(const weir_tensor_directory *directory, size_t index)
{
    return index < directory->n_tensors ? &directory->tensors[index] : NULL;
}

const weir_tensor *weir_tensor_directory_find(
    const weir_tensor_directory *directory, const char *name
)
{
    size_t low = 0, high = directory->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const weir_tensor *const tensor = &directory->tensors[directory->by_name[middle]];
        const int order = strcmp(name, tensor->name);
        if (order == 0) return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

bool weir_tensor_directory_meta(
    const weir_tensor_directory *directory, const char *key, weir_meta *out
)
{
    size_t low = 0, high = directory->n_entries;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(key, directory->entries[middle].key);
        if (order == 0) {
            *out = directory->entries[middle].value;
            return true;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

bool weir_tensor_directory_meta_at(
    const weir_tensor_directory *directory, size_t index, const char **key, weir_meta *out
)
{
    if (index >= directory->n_entries) return false;
    *key = directory->entries[index].key;
    *out = directory->entries[index].value;
    return true;
}

bool weir_meta_at(const weir_meta *array, size_t index, weir_meta *out)
{
    if (array->type != WEIR_META_ARRAY || index >= array->length) return false;
    const weir_elements *const elements = array->elements;
    if (elements->packed != NULL)
        return weir_packed_read(
            out, elements->packed_type,
            elements->packed + index * weir_packed_bytes(elements->packed_type)
        );
    if (elements->texts != NULL) {
        const weir_text *const text = &elements->texts[index];
        *out =
            (weir_meta){ .type = WEIR_META_STRING, .string = text->bytes, .length = text->length };
        return true;
    }
    const weir_meta *const value = &elements->values[index];
    if (value->type == WEIR_META_ARRAY && value->elements == NULL) return false;
    *out = *value;
    return true;
}

bool weir_tensor_directory_element(
    const weir_tensor_directory *directory, const char *key, weir_meta *out
)
{
    const char *const dot = strrchr(key, '.');
    const size_t n = dot != NULL ? strspn(dot + 1, "0123456789") : 0;
    char list_key[512];
    weir_meta list;
    if (weir_tensor_directory_meta(directory, key, out)) return true;
    if (n == 0 || n > 4 || dot[1 + n] != '\0') return false;
    if (snprintf(list_key, sizeof list_key, "%.*s", (int)(dot - key), key) >= (int)sizeof list_key)
        return false;
    return weir_tensor_directory_meta(directory, list_key, &list) && list.type == WEIR_META_ARRAY &&
           weir_meta_at(&list, (size_t)strtoul(dot + 1, NULL, 10), out);
}

int32_t weir_tensor_directory_files(const weir_tensor_directory *directory)
{
    return (int32_t)directory->n_sources;
}

const char *weir_tensor_directory_file(const weir_tensor_directory *directory, int32_t file)
{
    WEIR_ASSERT(file >= 0 && (size_t)file < directory->n_sources);
    return directory->sources[file].path;
}

size_t weir_tensor_offset(
    const weir_tensor_directory *directory, const weir_tensor *tensor, const void *bytes
)
{
    WEIR_ASSERT((size_t)tensor->file < directory->n_sources);
    return (size_t)((const unsigned char *)bytes - directory->sources[tensor->file].map.data);
}

void weir_tensor_release(const weir_tensor_directory *directory, const weir_tensor *tensor)
{
    if ((size_t)tensor->file >= directory->n_sources) return;
    const weir_map *const map = &directory->sources[tensor->file].map;
    weir_map_release(map, (size_t)(tensor->data - map->data), tensor->bytes);
}
