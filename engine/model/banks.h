/* engine/model/banks.h - the rows in layers with fixed-size memory (docs/models/coda.md), and what
 * became of the rows that left their rings.
 *
 * All numbers are sums over such layers of a model, and over all sequences counted. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_banks_count {
    WEIR_BANKS_EVICTIONS, /* rows that left the ring */
    WEIR_BANKS_GATED_OUT, /* offered to the exact bank, below its gate */
    WEIR_BANKS_EXACT_HITS, /* matched a row in the bank */
    /* New rows: stored as they were, some in place of an older one. */
    WEIR_BANKS_EXACT_INSERTS,
    WEIR_BANKS_EXACT_OVERWRITES, /* inserts, and hits that replaced what they hit */
    /* Blends into prototypes: of one row in decode, of one or more of a block in prefill. */
    WEIR_BANKS_SUMMARY_UPDATES,
    WEIR_BANKS_SUMMARY_FOUNDED, /* of these, the first of a prototype */
    WEIR_BANKS_EXACT_FRUSTRATED, /* new rows of a block that got no slot */
    WEIR_BANKS_SUMMARY_FRUSTRATED, /* times that all open prototypes were in use */
    WEIR_BANKS_EXACT_OPENED,
    WEIR_BANKS_SUMMARY_OPENED, /* slots opened as sequences grew */
    WEIR_BANKS_COUNTS
} weir_banks_count;

/* Slots of one kind. */
typedef struct weir_banks_part {
    int64_t slots, open, used;
} weir_banks_part;

typedef struct weir_banks {
    int64_t n_layers; /* of the model; 0: none, and all else is 0 */
    int64_t n_rows; /* of the sequences, in memory or not */
    weir_banks_part ring, exact, summary;
    int64_t counts[WEIR_BANKS_COUNTS];
} weir_banks;

const char *weir_banks_count_name(weir_banks_count count); /* "exact_hits" */
const char *weir_banks_count_help(weir_banks_count count); /* a sentence */

/* What a merged state has of its two sources, over all layers. */
typedef struct weir_state_merged {
    int64_t n_exact_earlier, n_exact_later, n_exact_kept; /* rows in the exact banks */
    int64_t n_summary_earlier, n_summary_later,
        n_summary_kept; /* prototypes in the summary banks */
    /* rows of the earlier state's rings, which the merged one does not have */
    int64_t n_recent_earlier;
} weir_state_merged;

/* Rows in memory as they were computed, as a mean over the layers; and the others: blended into
 * prototypes, or lost. */
int64_t weir_banks_live(const weir_banks *banks);
int64_t weir_banks_evicted(const weir_banks *banks);

void weir_banks_add(weir_banks *sum, const weir_banks *banks);
/* Adds what was counted since `before` for the same sequence; nothing if the sequence was
 * restarted. */
void weir_banks_add_counts_since(
    weir_banks *sum, const weir_banks *banks, const weir_banks *before
);

#ifdef __cplusplus
}
#endif
