/* engine/schedule/mtp.h - drafts by the model's draft head (multi-token prediction,
 * engine/model/mtp.c). Of each slot the head keeps KV rows of its own: those of the first page and
 * the last 1024 or so. Nothing of it is cached, saved or preempted: rows that were not computed are
 * missing, which changes drafts and no answer (docs/decisions/0077-mtp.md). */
#pragma once
#include "engine/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_mtp weir_mtp;
enum { WEIR_MTP_DRAFTS = 3 }; /* of a sequence in a step, at most */

/* Drafts of a choice (mtp.c). */
typedef struct choice_mtp {
    int32_t drafts[WEIR_MTP_DRAFTS], n;
    int32_t at; /* tokens of the sequence that they follow */
    int32_t length; /* how many it drafts; 0: not known yet */
    int32_t n_pauses, from; /* pauses in a row; the length of the answer from which it drafts */
    float debt; /* in steps of this sequence */
} choice_mtp;

/* Bytes on the account activations, for steps of at most `rows` rows; 0: the model has no head. */
size_t weir_mtp_bytes(const weir_model *model, int32_t n_slots, int32_t rows);

#ifdef __cplusplus
}
#endif
