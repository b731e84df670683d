/* tests/fuzz/json_fuzz.c - any bytes as JSON, and the object that comes out as a config.json. */
#include "engine/formats/config_meta.h"
#include "engine/formats/json.h"
#include "tests/fuzz/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t depth_of(const json_t *value)
{
    size_t deepest = 0, index;
    const char *key;
    const json_t *child;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, key, child)
        {
            const size_t depth = depth_of(child);
            if (depth > deepest) deepest = depth;
        }
    }
    json_array_foreach(value, index, child)
    {
        const size_t depth = depth_of(child);
        if (depth > deepest) deepest = depth;
    }
    return deepest + (json_is_object(value) || json_is_array(value));
}

static void add_as_config(const json_t *root, const uint8_t *data, size_t size)
{
    weir_tensor_directory *const directory =
        weir_directory_create(WEIR_CONTAINER_SAFETENSORS, "fuzz.json");
    if (directory == NULL) return;
    weir_error error = { 0 };
    weir_status status = weir_config_meta_add(directory, root, "fuzz.json", &error);
    if (status == WEIR_OK) status = weir_directory_finish(directory, &error);
    probe_status(status, &error);
    if (status == WEIR_OK) (void)probe_directory(directory, data, size);
    weir_tensor_directory_close(directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = { 0 };
    json_t *root = NULL;
    const weir_status status =
        weir_json_parse(&root, (const char *)data, size, "fuzz.json", WEIR_JSON_DEPTH, &error);
    probe_status(status, &error);
    if (status != WEIR_OK) {
        probe_require(root == NULL);
        return 0;
    }
    probe_require(depth_of(root) <= WEIR_JSON_DEPTH);
    add_as_config(root, data, size);
    json_decref(root);
    return 0;
}
