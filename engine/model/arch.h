/* engine/model/arch.h - architectures as data: configs/arch/NAME.toml, embedded in the binary, more
 * from --arch-dir.
 *
 * An arch file says how to recognise a checkpoint, where its numbers are, which blocks its layers
 * are made of and what its tensors are called. docs/guides/adding-an-architecture.md has the
 * grammar. */
#pragma once
#include "engine/config/toml.h"
#include "engine/formats/tensor_directory.h"
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_embedded_file {
    const char *name, *text;
} weir_embedded_file;
extern const weir_embedded_file
    weir_arch_files[]; /* ends with name == NULL; generated from configs/arch */

typedef struct weir_arch {
    weir_toml *document;
    const weir_toml_node *root;
    const char *name; /* [arch] name  */
    const char *base; /* that it is not joined with yet, NULL: none */
    int32_t n_bases; /* that it is joined with, one on the other */
    bool has_match; /* of its own: a base's is the base's */
    char file[256]; /* for messages */
    weir_block_list blocks; /* besides those of the registry */
} weir_arch;

typedef struct weir_arch_set weir_arch_set;

/* The embedded files, then every *.toml of `folder` (may be NULL); a later file of the same name
 * wins. Files with a base are joined with it (weir_toml_join) once all are read. `blocks` are known
 * besides those of the registry, and outlive the set. */
WEIR_MUST_CHECK weir_status weir_arch_set_open(
    weir_arch_set **out, const char *folder, weir_block_list blocks, weir_error *error
);
void weir_arch_set_close(weir_arch_set *set);

/* The architecture of a checkpoint (GGUF general.architecture, config.json model_type).
 * EUNSUPPORTED names it and those that are known, or the setting that an arch file refuses. */
WEIR_MUST_CHECK weir_status weir_arch_match(
    const weir_arch **out, const weir_arch_set *set, const weir_tensor_directory *directory,
    weir_error *error
);
/* The one of this name, if it does not refuse the checkpoint. */
WEIR_MUST_CHECK weir_status weir_arch_find(
    const weir_arch **out, const weir_arch_set *set, const char *name,
    const weir_tensor_directory *directory, weir_error *error
);
/* The prefix of GGUF keys, NULL for safetensors. */
const char *weir_arch_gguf_prefix(const weir_tensor_directory *directory);

/* A block as a layer uses it; `options` are the block's own, and owned. */
typedef struct weir_block_use {
    const weir_block *block;
    void *options;
} weir_block_use;
/* [block.NAME] with the options that hold for this container, and the [ffn] that goes with it.
 * Both are closed afterwards, also after an error. */
WEIR_MUST_CHECK weir_status weir_arch_block(
    const weir_arch *arch, const char *name, weir_container container, weir_block_use *mixer,
    weir_block_use *ffn, weir_error *error
);
void weir_block_use_close(weir_block_use *use);
/* Name of the block of each layer, borrowed; names [n_layers]. */
WEIR_MUST_CHECK weir_status weir_arch_layers(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
);
/* A value that may be given once, or per container as { gguf = .., hf = .. }. */
const weir_toml_node *weir_arch_choice(const weir_toml_node *node, weir_container container);

#ifdef __cplusplus
}
#endif
