/* engine/model/expert_cache_internal.h - shared by the cache and the threads that read for it.
 *
 * An expert goes from the file to an entry in two parts. Threads read its bytes into a buffer, and
 * do nothing else. The engine thread packs them into an entry with all its threads when a step
 * takes the expert: what was read ahead and is not needed costs no processor time, and evicts
 * nothing. */
#pragma once
#include <pthread.h>

#include "engine/model/expert_cache.h"
#include "engine/model/model_internal.h"

/* Plans entries within the settings' bytes. 0, or enough for all: no cache. ECONFIG: they do not
 * hold the experts of one token in one layer; the message says what is needed. */
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
    WEIR_EXPERT_READERS = 4,
    WEIR_EXPERT_MATRICES = 4, /* of one expert, at most */
    WEIR_EXPERT_PIECES = 2 * WEIR_EXPERT_MATRICES, /* codes and scales of its matrices */
    WEIR_EXPERTS_AHEAD = 128, /* to read ahead, at most */
    WEIR_EXPERT_PAGE = 4096, /* direct reads begin and end at multiples of it */
    WEIR_EXPERT_LINE = 64, /* the same of others */
    WEIR_EXPERT_REQUEST = 1 << 20, /* bytes of a request, at most; a multiple of both */
};

/* Memory for one packed expert. A list by age has those that may be evicted: not used by the step,
 * not pinned. */
typedef struct expert_entry {
    int32_t unit; /* -1: none */
    int32_t older, newer; /* in the list; -1: none */
    int64_t step; /* the number of the last that used it */
    bool is_used; /* by the step */
    bool is_listed;
} expert_entry;

/* Adjacent bytes of a file, read to `to`. */
typedef struct expert_run {
    const weir_tensor *tensor; /* one of those that they belong to */
    size_t at, end;
    unsigned char *to;
} expert_run;

typedef enum expert_read_state {
    READ_NONE,
    READ_BEGUN, /* not all its requests have ended */
    READ_DONE,
    READ_FAILED /* and a step wants it */
} expert_read_state;

/* A buffer, and the expert that is read into it, as the file has it. */
typedef struct expert_read {
    unsigned char *memory; /* [plan.read_bytes], begins at a page */
    int32_t unit; /* -1: none */
    expert_read_state state;
    bool is_wanted; /* by the step */
    bool is_ahead; /* read ahead, and not needed since */
    int64_t layer, number; /* number: ascending in the order of their beginnings */
    int32_t n_runs, run, n_requests; /* run: of the next request; requests of threads now */
    size_t done; /* bytes of that run that were asked for */
    int failure; /* an errno of the first request that failed; 0: none did */
    const weir_tensor *failed; /* its tensor */
    expert_run runs[WEIR_EXPERT_PIECES];
    /* [2 i] the codes of matrix i, [2 i + 1] its scales or NULL. */
    const unsigned char *pieces[WEIR_EXPERT_PIECES];
} expert_read;

/* The part of a run that a thread reads. */
typedef struct expert_request {
    int32_t read;
    expert_run run;
} expert_request;

typedef struct expert_reader {
    weir_expert_cache *cache;
    pthread_t thread;
    bool has_thread;
    /* ---- under the lock */
    int32_t read; /* what its request is of */
    int64_t since_ns; /* when it began; 0: it has none */
} expert_reader;

struct weir_expert_cache {
    weir_model *model;
    weir_ledger *ledger;
    weir_expert_plan plan;
    void *memory; /* owns what follows */
    char *entry_memory; /* [n_entries, entry_bytes] */
    unsigned char *read_memory; /* [n_reads, read_bytes] from its first page on */
    unsigned char *gathered; /* [gathered_bytes] */
    expert_entry *entries; /* [n_entries] */
    expert_read *reads; /* [n_reads] */
    int32_t *entry_of, *read_of; /* [n_experts] of all layers: where it is, or -1 */
    int64_t *first_unit; /* [n_layers]: of its experts; -1: it has none */
    int32_t *wanted; /* [most experts of a layer] of the step, in the order of use */
    int *files; /* descriptors [n_files] */
    int32_t n_files;
    int64_t layer; /* of the step; -1: none */
    int64_t step, last_layer; /* a number; the layer of the last step */
    int32_t n_passes; /* through all layers, since pins were chosen */
    int32_t oldest, newest, n_listed; /* of the list of entries */
    int32_t n_given, n_taken; /* of `wanted`: given back; taken and not given back */
    uint8_t *uses; /* [n_experts] passes that used it, halved when pins are chosen */
    bool *is_pinned; /* [n_experts] */
    expert_reader readers[WEIR_EXPERT_READERS];
    pthread_mutex_t lock; /* not held over I/O or packing */
    pthread_cond_t changed, work; /* for the engine thread; for those that read */
    bool has_lock;
    /* ---- under the lock, with what is said above, with reads and read_of */
    int32_t n_wanted,
        n_placed; /* of `wanted`; of these, those that are or were in memory or read */
    int32_t ahead[WEIR_EXPERTS_AHEAD], n_ahead; /* units to read ahead, of one layer */
    int64_t ahead_layer, n_begun; /* reads */
    bool is_closing;
    weir_expert_cache *next_left; /* another whose disk does not answer */
    weir_error error; /* the first that was not told */
    weir_expert_stats stats; /* without the sums */
    weir_expert_counts *counts; /* [n_layers] */
};

static inline int64_t weir_expert_unit(
    const weir_expert_cache *cache, int64_t layer, int32_t expert
)
{
    return cache->first_unit[layer] + expert;
}

/* expert_steps.c: puts an entry that is not used where it can be evicted, unless it is pinned. */
void weir_expert_link(weir_expert_cache *cache, int32_t entry);
void weir_expert_unlink(weir_expert_cache *cache, int32_t entry);

/* expert_reads.c, with the lock: */
/* Begins to read the next experts of the step that are not in memory, while there are buffers, and
 * wakes the threads. */
void weir_expert_place(weir_expert_cache *cache);
/* The next request, for the step or ahead. False: there is none. */
bool weir_expert_next(weir_expert_cache *cache, expert_request *out);
/* A request has ended; failure: an errno, or 0. */
void weir_expert_finish(weir_expert_cache *cache, const expert_request *request, int failure);
/* The step does not want it any more. */
void weir_expert_unwant(weir_expert_cache *cache, int32_t read);
/* Frees the buffer. */
void weir_expert_forget(weir_expert_cache *cache, int32_t read);
/* Waits until something has changed. False: the disk has not answered a request of this read, or of
 * all threads, for plan.timeout_ns. read -1: it has no buffer yet. */
bool weir_expert_wait(weir_expert_cache *cache, int32_t read);
/* Says why an expert could not be read: EIO. */
void weir_expert_say(const weir_expert_cache *cache, int32_t unit, weir_error *error);

/* expert_pins.c, between steps: a pass begins. */
void weir_expert_count_pass(weir_expert_cache *cache);

/* expert_pack.c: the weights of an expert, in the order in which they are in an entry. Returns
 * their number. */
int32_t weir_expert_weights(
    const weir_expert_cache *cache, int32_t unit, size_t weights[WEIR_EXPERT_MATRICES]
);
/* Packs an expert that was read into an entry, with the threads of the model's stream. Without the
 * lock. */
WEIR_MUST_CHECK weir_status weir_expert_pack(
    weir_expert_cache *cache, const expert_read *read, int32_t entry, weir_error *error
);

/* expert_reader.c: the most bytes of a matrix in its file, with gaps between its rows; 0: more than
 * a tensor has. */
size_t weir_expert_span(const bound_matrix *matrix, int64_t n_out, int64_t n_in, bool of_scales);
/* Finds where the bytes of read->unit are, and where each of its matrices will be. */
void weir_expert_find(const weir_expert_cache *cache, expert_read *read);
static inline size_t weir_expert_page(const weir_expert_plan *plan)
{
    return plan->is_direct ? WEIR_EXPERT_PAGE : WEIR_EXPERT_LINE;
}
/* The thread. */
void *weir_expert_read(void *reader);
