/* tests/fuzz/safetensors_fuzz.c - any bytes as a safetensors file. */
#include "engine/formats/safetensors.h"
#include "tests/fuzz/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_tensor_directory *const directory =
        weir_directory_create(WEIR_CONTAINER_SAFETENSORS, "fuzz.safetensors");
    if (directory == NULL) return 0;
    weir_error error = { 0 };
    const weir_safetensors_args args = { .bytes = data, .n = size, .name = "fuzz.safetensors" };
    weir_status status = weir_safetensors_parse(directory, &args, &error);
    if (status == WEIR_OK) status = weir_directory_finish(directory, &error);
    probe_status(status, &error);
    if (status == WEIR_OK) (void)probe_directory(directory, data, size);
    weir_tensor_directory_close(directory);
    return 0;
}
