/* tools/convert/keys.h - the metadata of a GGUF file from a bound checkpoint, as the arch file
 * declares it: [shape], [layers], [rope] and [gguf]. */
#pragma once
#include "engine/formats/gguf_writer.h"
#include "engine/model/sources.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_written_model {
    const weir_model *model; /* bound */
    const weir_tensor_directory *directory; /* its checkpoint */
    const weir_arch *arch; /* in GGUF */
    const char *name; /* of the architecture there */
} weir_written_model;

/* errors : EUNSUPPORTED: a number or a list of layers that GGUF has no key for */
WEIR_MUST_CHECK weir_status
weir_put_keys(weir_gguf_writer *writer, const weir_written_model *written, weir_error *error);

/* Opens the GGUF file and checks that it is the same model: its shape, its layers, RoPE.
 * errors : EUNSUPPORTED: what GGUF cannot say; those of opening a model */
WEIR_MUST_CHECK weir_status weir_check_written(
    const char *path, const weir_written_model *written, weir_arch_set *archs, weir_stream *stream,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
