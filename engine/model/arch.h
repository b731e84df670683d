/* engine/model/arch.h - architectures as data: configs/arch/NAME.toml, embedded in the binary, and
 * more from --arch-dir.
 *
 * An arch file says how to recognise a checkpoint, where its numbers are, which blocks its layers
 * are made of and the names of its tensors. docs/guides/adding-an-architecture.md has the
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
/* Terminated by name == NULL; generated from configs/arch. */
extern const weir_embedded_file weir_arch_files[];

typedef struct weir_arch {
    weir_toml *document;
    const weir_toml_node *root;
    const char *name; /* [arch] name  */
    const char *base; /* not joined with yet; NULL: none */
    int32_t n_bases; /* joined with, in a chain */
    bool has_match, has_when, has_written_as; /* its own, not its base's */
    const char *text; /* embedded, of which only [arch] was read; NULL: all was */
    bool is_folders, is_checked; /* from a folder; joined with its bases and checked */
    char file[256]; /* for messages */
    weir_block_list blocks; /* in addition to those of the registry */
} weir_arch;

typedef struct weir_arch_set weir_arch_set;

/* Reads [arch] of the embedded files, then every *.toml of `folder` (may be NULL); a later file of
 * the same name wins. Joins files of the folder, and those that are based on one, with their bases
 * (weir_toml_join) and checks them; all others are read, joined and checked when they are chosen.
 * `blocks` are additional to those of the registry, and must outlive the set. */
WEIR_MUST_CHECK weir_status weir_arch_set_open(
    weir_arch_set **out, const char *folder, weir_block_list blocks, weir_error *error
);
void weir_arch_set_close(weir_arch_set *set);
/* Frees all architectures but this one of the set, some 30 KB each; the set can then only be
 * closed. */
void weir_arch_set_keep(weir_arch_set *set, const weir_arch *arch);

/* The architecture of a checkpoint (GGUF general.architecture, config.json model_type). If several
 * have the name, one whose `when` is true comes before those without. Returns EUNSUPPORTED with a
 * message that names it and the known ones, or the setting that an arch file refuses. */
WEIR_MUST_CHECK weir_status weir_arch_match(
    const weir_arch **out, weir_arch_set *set, const weir_tensor_directory *directory,
    weir_error *error
);
/* The architecture with this name, unless it refuses the checkpoint. */
WEIR_MUST_CHECK weir_status weir_arch_find(
    const weir_arch **out, weir_arch_set *set, const char *name,
    const weir_tensor_directory *directory, weir_error *error
);
/* The architecture as which a checkpoint of `arch` is written to GGUF ([arch] written_as, else
 * itself), and its name there. EUNSUPPORTED: GGUF has none. */
WEIR_MUST_CHECK weir_status weir_arch_written_as(
    const weir_arch **out, const char **name, weir_arch_set *set, const weir_arch *arch,
    weir_error *error
);
/* True if a pattern matches the beginning of a tensor's name: {i} and {e} match any number,
 * {beyond} one from n_layers on. */
bool weir_arch_pattern_matches(const char *pattern, const char *name, int64_t n_layers);
/* The prefix of GGUF keys; NULL for safetensors. */
const char *weir_arch_gguf_prefix(const weir_tensor_directory *directory);

/* A block with its options, which are owned. */
typedef struct weir_block_use {
    const weir_block *block;
    void *options;
} weir_block_use;
/* Reads [block.NAME] with the options for this container, and [ffn.FFN_NAME]; ffn_name NULL: the
 * block's own. Close both afterwards, also after an error. */
WEIR_MUST_CHECK weir_status weir_arch_block(
    const weir_arch *arch, const char *name, const char *ffn_name, weir_container container,
    weir_block_use *mixer, weir_block_use *ffn, weir_error *error
);
void weir_block_use_close(weir_block_use *use);
/* The name of each layer's block, borrowed; names [n_layers]. */
WEIR_MUST_CHECK weir_status weir_arch_layers(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
);
/* The same before [layers] last replaces some of them. */
WEIR_MUST_CHECK weir_status weir_arch_layer_kinds(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
);
/* The name of each layer's [ffn.NAME] by the rule [layers] ffn, borrowed; NULL: there is none.
 * names [n_layers]. */
WEIR_MUST_CHECK weir_status weir_arch_ffns(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
);
/* Which norms the blocks of a layer have: of their input, of their output. [layers] norms. */
typedef struct weir_layer_norms {
    bool before, after;
} weir_layer_norms;
weir_layer_norms weir_arch_norms(const weir_arch *arch);
/* A value that is given once, or per container as { gguf = .., hf = .. }. */
const weir_toml_node *weir_arch_choice(const weir_toml_node *node, weir_container container);

#ifdef __cplusplus
}
#endif
