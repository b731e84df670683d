/* engine/model/coda_stats.h - what CoDA layers (docs/models/coda.md) hold of sequences, and what
 * became of the rows that left their rings.
 *
 * All numbers are sums over the CoDA layers of a model, and over the sequences that are counted
 * together. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_coda_counter {
    WEIR_CODA_STATS_EVICTIONS, /* rows that left the ring */
    WEIR_CODA_STATS_GATED_OUT, /* offered to the exact bank, below its gate */
    WEIR_CODA_STATS_EXACT_HITS, /* matched a row in the bank */
    WEIR_CODA_STATS_EXACT_INSERTS, /* rows stored unchanged, some in place of an older one */
    WEIR_CODA_STATS_EXACT_OVERWRITES, /* inserts, and hits that replaced what they hit */
    /* Blends into prototypes: of one row in decode, of one or more of a block in prefill. */
    WEIR_CODA_STATS_SUMMARY_UPDATES,
    WEIR_CODA_STATS_SUMMARY_FOUNDED, /* of these, the first of a prototype */
    WEIR_CODA_STATS_EXACT_FRUSTRATED, /* new rows of a block that got no slot */
    WEIR_CODA_STATS_SUMMARY_FRUSTRATED, /* times that all open prototypes were in use */
    WEIR_CODA_STATS_EXACT_OPENED,
    WEIR_CODA_STATS_SUMMARY_OPENED, /* slots opened as sequences grew */
    WEIR_CODA_STATS_COUNTS
} weir_coda_counter;

/* Slots of one kind. */
typedef struct weir_coda_slot_use {
    int64_t slots, open, used;
} weir_coda_slot_use;

typedef struct weir_coda_stats {
    int64_t n_layers; /* of the model; 0: none, and all else is 0 */
    int64_t n_rows; /* of the sequences, in memory or not */
    weir_coda_slot_use ring, exact, summary;
    int64_t counts[WEIR_CODA_STATS_COUNTS];
} weir_coda_stats;

const char *weir_coda_counter_name(weir_coda_counter count); /* "exact_hits" */
const char *weir_coda_counter_help(weir_coda_counter count); /* a sentence */

/* What a merged state has of its two sources, over all layers. */
typedef struct weir_state_merged {
    int64_t n_exact_earlier, n_exact_later, n_exact_kept; /* rows in the exact banks */
    /* Prototypes in the summary banks. */
    int64_t n_summary_earlier, n_summary_later, n_summary_kept;
    /* Rows of the earlier state's rings, which the merged one does not have. */
    int64_t n_recent_earlier;
} weir_state_merged;

/* Rows in memory as they were computed, as a mean over the layers; and the others: blended into
 * prototypes, or lost. */
int64_t weir_coda_stats_live(const weir_coda_stats *coda);
int64_t weir_coda_stats_evicted(const weir_coda_stats *coda);

void weir_coda_stats_add(weir_coda_stats *sum, const weir_coda_stats *coda);
/* Adds what was counted since `before` for the same sequence; nothing if the sequence was
 * restarted. */
void weir_coda_stats_add_counts_since(
    weir_coda_stats *sum, const weir_coda_stats *coda, const weir_coda_stats *before
);

#ifdef __cplusplus
}
#endif
