/* engine/model/bank_stats.h - what layers with a ring and banks (docs/models/coda.md) hold
 * of sequences, and what became of the rows that left the rings.
 *
 * All numbers are sums over these layers of a model, and over the sequences that are counted
 * together. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_bank_counter {
    WEIR_BANK_STATS_EVICTIONS, /* rows that left the ring */
    WEIR_BANK_STATS_GATED_OUT, /* offered to the exact bank, below its gate */
    WEIR_BANK_STATS_EXACT_HITS, /* matched a row in the bank */
    WEIR_BANK_STATS_EXACT_INSERTS, /* rows stored unchanged, some in place of an older one */
    WEIR_BANK_STATS_EXACT_OVERWRITES, /* inserts, and hits that replaced what they hit */
    /* Blends into prototypes: of one row in decode, of one or more of a block in prefill. */
    WEIR_BANK_STATS_SUMMARY_UPDATES,
    WEIR_BANK_STATS_SUMMARY_FOUNDED, /* of these, the first of a prototype */
    WEIR_BANK_STATS_EXACT_FRUSTRATED, /* new rows of a block that got no slot */
    WEIR_BANK_STATS_SUMMARY_FRUSTRATED, /* times that all open prototypes were in use */
    WEIR_BANK_STATS_EXACT_OPENED,
    WEIR_BANK_STATS_SUMMARY_OPENED, /* slots opened as sequences grew */
    WEIR_BANK_STATS_COUNTS
} weir_bank_counter;

/* Slots of one kind. */
typedef struct weir_bank_use {
    int64_t slots, open, used;
} weir_bank_use;

typedef struct weir_bank_stats {
    int64_t n_layers; /* of the model; 0: none, and all else is 0 */
    int64_t n_rows; /* of the sequences, in memory or not */
    weir_bank_use ring, exact, summary;
    int64_t counts[WEIR_BANK_STATS_COUNTS];
} weir_bank_stats;

const char *weir_bank_counter_name(weir_bank_counter count); /* "exact_hits" */
const char *weir_bank_counter_help(weir_bank_counter count); /* a sentence */

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
int64_t weir_bank_stats_live(const weir_bank_stats *banks);
int64_t weir_bank_stats_evicted(const weir_bank_stats *banks);

void weir_bank_stats_add(weir_bank_stats *sum, const weir_bank_stats *banks);
/* Adds what was counted since `before` for the same sequence; nothing if the sequence was
 * restarted. */
void weir_bank_stats_add_counts_since(
    weir_bank_stats *sum, const weir_bank_stats *banks, const weir_bank_stats *before
);

#ifdef __cplusplus
}
#endif
