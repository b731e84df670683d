/* engine/model/expert_cache_internal.h - shared by the cache and the threads that read for it. */
#pragma once
#include <pthread.h>

#include "engine/model/expert_cache.h"
#include "engine/model/model_internal.h"

/* Plans slots within `limit` bytes (memory.experts). 0, or enough for all: no cache. ECONFIG: it
 * does not hold the experts of one token in one layer; the message says what is needed. */
WEIR_MUST_CHECK weir_status weir_expert_cache_plan(
    weir_expert_plan *out, const weir_model *model, size_t limit, weir_error *error
);

/* Allocates from the account weights, opens the files and starts the threads. `model` must outlive
 * the cache, which sets `data` of its experts' weights. */
WEIR_MUST_CHECK weir_status weir_expert_cache_open(
    weir_expert_cache **out, weir_model *model, const weir_expert_plan *plan, weir_ledger *ledger,
    weir_error *error
);
void weir_expert_cache_close(weir_expert_cache *cache); /* NULL-safe */

enum { WEIR_EXPERT_READERS = 2 };

typedef enum slot_state {
    SLOT_FREE,
    SLOT_LOADING,
    SLOT_READY,
    SLOT_FAILED /* until the step that wants it ends */
} slot_state;

/* Unused slots are in a list by age. */
typedef struct expert_slot {
    int32_t unit; /* -1: none */
    int32_t older, newer; /* in the list; -1: none */
    slot_state state;
    bool is_used; /* by the step, so not in the list */
} expert_slot;

typedef struct expert_reader {
    weir_expert_cache *cache;
    pthread_t thread;
    bool has_thread;
    unsigned char *buffer, *gathered; /* [plan.buffer_bytes], [plan.gathered_bytes] or NULL */
} expert_reader;

struct weir_expert_cache {
    weir_model *model;
    weir_ledger *ledger;
    weir_expert_plan plan;
    weir_stream *stream; /* of one thread, for packing */
    void *memory; /* owns what follows */
    char *slot_memory; /* [n_slots, slot_bytes] */
    expert_slot *slots; /* [n_slots] */
    int32_t *slot_of; /* [n_experts] of all layers: slot, or -1 */
    int64_t *first_unit; /* [n_layers]: of its experts; -1: it has none */
    int32_t *queue; /* [n_slots] slots to read, a ring */
    int32_t *wanted; /* [most experts of a layer] of the step, in the order of use */
    int *files; /* descriptors [n_files] */
    int32_t n_files;
    int32_t oldest, newest; /* of the list */
    int64_t layer; /* of the step; -1: none */
    /* Of `wanted`: those with a slot, those given back, those taken and not given back. */
    int32_t n_wanted, n_placed, n_given, n_taken;
    expert_reader readers[WEIR_EXPERT_READERS];
    pthread_mutex_t lock; /* not held over I/O */
    pthread_cond_t changed;
    bool has_lock;
    /* ---- under the lock, with the states of slots and the data of weights */
    int32_t first_queued, n_queued;
    bool is_closing;
    weir_error error; /* the first of the step */
    weir_expert_stats stats;
};

static inline int64_t weir_expert_unit(
    const weir_expert_cache *cache, int64_t layer, int32_t expert
)
{
    return cache->first_unit[layer] + expert;
}

/* A thread has read a slot, or could not: then error->code is set. With the lock. */
void weir_expert_finish(weir_expert_cache *cache, int32_t slot, const weir_error *error);
/* expert_reader.c: the most bytes of a matrix in its file, with gaps between its rows; 0: more than
 * a tensor has. */
size_t weir_expert_span(const bound_matrix *matrix, int64_t n_out, int64_t n_in, bool of_scales);
/* The thread. */
void *weir_expert_read(void *reader);
