/* tests/unit/schedule/simulator/forward.h - a forward pass that computes no matrices, in place of
 * the model's: the program's weir_model_forward goes before that of the library.
 *
 * The hash of a sequence is a function of all its tokens. Each KV row holds its position, its token
 * and the hash of the sequence up to there. A step reads all rows that attention would read, near
 * and cold, and checks each: so a page that is shared, evicted, moved or used again wrongly is
 * noticed. The recurrent state holds the number of tokens and their hash. Logits are a function of
 * the hash, so an answer must not depend on the schedule. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SIM_VOCAB = 64,
    SIM_STOP = 1, /* the stop id */
    SIM_DIM = 8, /* elements of a row of K, and of V: a page is 4096 bytes in f32 */
    SIM_ROWS = 1024 /* of a step, at most */
};

/* Mixers with KV rows, and with a recurrent state; and a feed-forward block. */
extern const weir_block sim_kv, sim_state, sim_ffn;

/* Of a sequence and one more token; 0: of an empty one. */
uint64_t sim_hash(uint64_t hash, int32_t token);
/* Logits [SIM_VOCAB] after a sequence that ends with the token `last`: two tokens are likely, one
 * of them the stop id now and then; three times of four the likelier one depends on `last` only. */
void sim_logits(float *logits, uint64_t hash, int32_t last);

/* The first wrong row or state since sim_forward_reset; NULL: none. */
const char *sim_forward_defect(void);
void sim_forward_reset(void);
/* The next step writes its rows, and fails. */
void sim_forward_fail(void);
/* Called when a step runs, which has its pages; NULL: nothing is. */
void sim_when_step_runs(void (*function)(void *user), void *user);

#ifdef __cplusplus
}
#endif
