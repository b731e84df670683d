/* engine/open/ranking.h - how a checkpoint ranks documents: by the tokens with which it answers. */
#pragma once
#include "engine/formats/tensor_directory.h"
#include "engine/schedule/engine_facts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys of GGUF files that weir convert writes: no other program has any for it. */
#define WEIR_RANKING_YES "weir.ranking.yes"
#define WEIR_RANKING_NO "weir.ranking.no"
#define WEIR_RANKING_PROMPT "weir.ranking.prompt"

/* Reads 1_LogitScore/config.json and config_sentence_transformers.json of the checkpoint's folder;
 * not is_used if it does not rank so. Ids are below n_vocab.
 * errors : EFORMAT: a file that is there and does not say what it should */
WEIR_MUST_CHECK weir_status weir_ranking_of(
    weir_ranking *out, const weir_tensor_directory *directory, int64_t n_vocab, weir_error *error
);

#ifdef __cplusplus
}
#endif
