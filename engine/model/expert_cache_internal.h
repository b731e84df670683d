/* engine/model/expert_cache_internal.h - shared by the cache and the threads that read for it. */
#pragma once
#include <pthread.h>

#include "engine/model/expert_cache.h"
#include "engine/model/model_internal.h"

/* Plans slots within the settings' bytes. 0, or enough for all: no cache. ECONFIG: they do not hold
 * the experts of one token in one layer; the message says what is needed. */
WEIR_MUST_CHECK weir_status weir_expert_cache_plan(
    weir_expert_plan *out, const weir_model *model, const weir_expert_settings *settings,
    weir_error *error
);

/* Allocates from the account weights, opens the files and starts the threads. `model` must outlive
 * the cache, which sets `data` of its experts' weights. */
WEIR_MUST_CHECK weir_status weir_expert_cache_open(
    weir_expert_cache **out, weir_model *model, const weir_expert_plan *plan, weir_ledger *ledger,
    weir_error *error
);
void weir_expert_cache_close(weir_expert_cache *cache); /* NULL-safe */

enum {
    WEIR_EXPERT_READERS = 2,
    WEIR_EXPERT_MATRICES = 4, /* of one expert, at most */
    WEIR_EXPERTS_AHEAD = 128, /* read ahead, at most */
    WEIR_EXPERT_PAGE = 4096, /* direct reads begin and end at multiples of it */
    WEIR_EXPERT_LINE = 64, /* the same of others */
};

typedef enum slot_state {
    SLOT_FREE,
    SLOT_LOADING,
    SLOT_READY,
    SLOT_FAILED /* until the step that wants it ends */
} slot_state;

/* A list by age has the slots that may be evicted: not used, not being read, not pinned. */
typedef struct expert_slot {
    int32_t unit; /* -1: none */
    int32_t older, newer; /* in the list; -1: none */
    int64_t layer, step; /* of the unit; the number of the last step that used it */
    slot_state state;
    bool is_used; /* by the step */
    bool is_listed;
    bool is_ahead; /* read ahead, and not used since */
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
    int64_t layer; /* of the step; -1: none */
    int64_t step, last_layer; /* a number; the layer of the last step */
    int32_t n_passes; /* through all layers, since pins were chosen */
    int32_t n_given, n_taken; /* of `wanted`: given back; taken and not given back */
    expert_reader readers[WEIR_EXPERT_READERS];
    pthread_mutex_t lock; /* not held over I/O */
    pthread_cond_t changed;
    bool has_lock;
    /* ---- under the lock, with the states of slots and the data of weights */
    int32_t first_queued, n_queued;
    int32_t oldest, newest, n_listed; /* of the list */
    int32_t n_wanted, n_placed; /* of `wanted`; of these, those with a slot */
    int32_t ahead[WEIR_EXPERTS_AHEAD], n_ahead; /* units to read ahead, of one layer */
    int64_t ahead_layer;
    bool is_closing;
    weir_error error; /* the first that was not told */
    weir_expert_stats stats; /* without the sums */
    weir_expert_counts *counts; /* [n_layers] */
    uint8_t *uses; /* [n_experts] passes that used it, halved when pins are chosen */
    bool *is_pinned; /* [n_experts] */
};

static inline int64_t weir_expert_unit(
    const weir_expert_cache *cache, int64_t layer, int32_t expert
)
{
    return cache->first_unit[layer] + expert;
}

/* expert_steps.c, with the lock: */
/* Puts a slot that is not used where it can be evicted, unless it is pinned. */
void weir_expert_link(weir_expert_cache *cache, int32_t slot);
void weir_expert_unlink(weir_expert_cache *cache, int32_t slot);
/* The next slot to read, for the step or ahead; -1: none. */
int32_t weir_expert_next(weir_expert_cache *cache);
/* A thread has read a slot, or could not: then error->code is set. */
void weir_expert_finish(
    weir_expert_cache *cache, int32_t slot, int64_t n_read, const weir_error *error
);
/* expert_pins.c, with the lock, between steps: a pass begins. */
void weir_expert_count_pass(weir_expert_cache *cache);

/* expert_reader.c: the most bytes of a matrix in its file, with gaps between its rows; 0: more than
 * a tensor has. */
size_t weir_expert_span(const bound_matrix *matrix, int64_t n_out, int64_t n_in, bool of_scales);
static inline size_t weir_expert_page(const weir_expert_plan *plan)
{
    return plan->is_direct ? WEIR_EXPERT_PAGE : WEIR_EXPERT_LINE;
}
/* The thread. */
void *weir_expert_read(void *reader);
