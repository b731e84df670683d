/* tests/fuzz/gguf_fuzz.c - any bytes as a GGUF file. */
#include "engine/formats/gguf.h"
#include "tests/fuzz/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_tensor_directory *const directory =
        weir_directory_create(WEIR_CONTAINER_GGUF, "fuzz.gguf");
    if (directory == NULL) return 0;
    weir_error error = { 0 };
    weir_gguf_header header;
    weir_status status = weir_gguf_parse(directory, &header, 0, data, size, "fuzz.gguf", &error);
    if (status == WEIR_OK) status = weir_directory_finish(directory, &error);
    probe_status(status, &error);
    if (status == WEIR_OK) (void)probe_directory(directory, data, size);
    weir_tensor_directory_close(directory);
    return 0;
}
