/* tools/eval/essay_text.h - the bundled prose, written into the program by
 * toolchain/embed_text.sh. */
#pragma once

typedef struct weir_eval_file {
    const char *name, *text;
} weir_eval_file;
extern const weir_eval_file weir_eval_essay_texts[]; /* one, then a zero entry */
