/* tests/fuzz/config_fuzz.c - any bytes as config.json: which architecture it is, its numbers, its
 * layers and its RoPE. */
#include "engine/formats/config_meta.h"
#include "engine/formats/json.h"
#include "tests/fuzz/arch_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char file[] = "config.json";

static weir_arch_set *architectures(void)
{
    static weir_arch_set *set;
    weir_error error;
    if (set == NULL) probe_require(weir_arch_set_open(&set, NULL, NULL, &error) == WEIR_OK);
    return set;
}

static void use(weir_tensor_directory *directory, const json_t *root)
{
    weir_error error = { 0 };
    const weir_arch *arch = NULL;
    weir_status status = weir_config_meta_add(directory, root, file, &error);
    if (status == WEIR_OK) status = weir_directory_finish(directory, &error);
    if (status == WEIR_OK) status = weir_arch_match(&arch, architectures(), directory, &error);
    probe_status(status, &error);
    if (status == WEIR_OK) probe_arch(arch, directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = { 0 };
    json_t *root = NULL;
    const char *const text = (const char *)data;
    if (weir_json_parse(&root, text, size, file, WEIR_JSON_DEPTH, &error) != WEIR_OK) return 0;
    weir_tensor_directory *const d = weir_directory_create(WEIR_CONTAINER_SAFETENSORS, "fuzz");
    probe_require(d != NULL);
    use(d, root);
    weir_tensor_directory_close(d);
    json_decref(root);
    return 0;
}
