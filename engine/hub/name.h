/* engine/hub/name.h - names of models on a hub: OWNER/NAME, or OWNER/NAME:QUANT for the files of
 * one quantisation; and names of files in a repository, which are hostile. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_HUB_WORD = 96, WEIR_HUB_QUANT = 128, WEIR_HUB_FILE = 512 };

typedef struct weir_hub_name {
    char owner[WEIR_HUB_WORD + 1], name[WEIR_HUB_WORD + 1];
    char quant[WEIR_HUB_QUANT + 1]; /* "Q4_K_M", or the base name of a file; "": none */
} weir_hub_name;

/* False if `text` is no such name: words are letters, digits, '.', '_' and '-', not '.' or '-'
 * first. A path such as "models/m" may be one. */
bool weir_hub_name_parse(weir_hub_name *out, const char *text);
/* A branch, tag or commit: like a word, with '/' between its parts. */
bool weir_hub_revision_is_good(const char *revision);

/* True for a file name that stays in the folder it is put in: relative, in UTF-8 without control
 * characters or '\\', no part empty or beginning with a dot, no ending that this folder uses. */
bool weir_hub_file_is_safe(const char *file, size_t n);

/* True if `quant` is a whole word of the file's path, in any case: "q4_k_m" in "m-Q4_K_M.gguf", not
 * "Q4_K". */
bool weir_hub_file_has_quant(const char *file, const char *quant);
/* The last word of the path that is a quantisation, such as "Q4_K_M", "BF16" or "MXFP4_MOE", in
 * upper case; "" if there is none. */
void weir_hub_file_quant(char out[WEIR_HUB_QUANT + 1], const char *file);

const char *weir_hub_base_name(const char *file); /* what follows the last '/' */
bool weir_hub_ends_with(const char *file, const char *ending); /* in any case */
/* A GGUF file of a model: no projector of an image encoder (mmproj), no importance matrix. */
bool weir_hub_is_gguf(const char *file);
/* Length of the part of a file's name that all files of a split set share; its whole length if it
 * is not named "...-00001-of-00003.gguf". */
size_t weir_hub_set_length(const char *file);

#ifdef __cplusplus
}
#endif
