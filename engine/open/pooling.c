/* engine/open/pooling.c - how a checkpoint makes one embedding of a text: as sentence-transformers
 * (1_Pooling/config.json) or llama.cpp (ARCH.pooling_type of GGUF) say. */
#include <stdio.h>

#include "engine/base/buffer.h"
#include "engine/base/file.h"
#include "engine/formats/json.h"
#include "engine/open/pooling.h"

enum { CONFIG_BYTES = 64 << 10 };

/* llama.cpp's numbers; others (none, rank) say nothing about a text's embedding. */
static weir_pooling of_number(int64_t number)
{
    return number == 2 ? WEIR_POOLING_CLS : number == 3 ? WEIR_POOLING_LAST : WEIR_POOLING_MEAN;
}

static weir_pooling of_gguf(const weir_tensor_directory *directory)
{
    char key[128];
    weir_meta arch, number;
    if (!weir_tensor_directory_meta(directory, "general.architecture", &arch) ||
        arch.type != WEIR_META_STRING)
        return WEIR_POOLING_MEAN;
    (void)snprintf(key, sizeof key, "%.*s.pooling_type", (int)arch.length, arch.string);
    if (!weir_tensor_directory_meta(directory, key, &number) || number.type != WEIR_META_INT)
        return WEIR_POOLING_MEAN;
    return of_number(number.integer);
}

static weir_status of_folder(
    weir_pooling *out, bool *is_stated, const weir_tensor_directory *directory, weir_error *error
)
{
    const char *const folder = weir_tensor_directory_folder(directory);
    weir_buffer path = { 0 };
    json_t *config = NULL;
    weir_status status = weir_buffer_format(&path, "%s/1_Pooling/config.json", folder);
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "%s: no memory for a path", folder);
    else if (weir_file_exists(path.data))
        status = weir_json_read_file(&config, path.data, CONFIG_BYTES, error);
    *is_stated = config != NULL;
    *out = json_is_true(json_object_get(config, "pooling_mode_lasttoken"))   ? WEIR_POOLING_LAST
           : json_is_true(json_object_get(config, "pooling_mode_cls_token")) ? WEIR_POOLING_CLS
                                                                             : WEIR_POOLING_MEAN;
    json_decref(config);
    weir_buffer_free(&path);
    return status;
}

weir_status weir_pooling_of(
    weir_pooling *out, bool *is_stated, const weir_tensor_directory *directory, weir_error *error
)
{
    bool ignored;
    bool *const stated = is_stated != NULL ? is_stated : &ignored;
    *out = WEIR_POOLING_MEAN;
    *stated = false;
    if (weir_tensor_directory_container(directory) != WEIR_CONTAINER_GGUF)
        return of_folder(out, stated, directory, error);
    *out = of_gguf(directory);
    return WEIR_OK;
}

uint32_t weir_pooling_number(weir_pooling pooling)
{
    return pooling == WEIR_POOLING_CLS ? 2 : pooling == WEIR_POOLING_LAST ? 3 : 1;
}
