/* engine/model/coda_stats.h - what layers with memory of fixed size (docs/models/coda.md) hold of
 * texts, and what became of the rows that left their rings.
 *
 * All numbers are sums over such layers of a model, and over the texts that are counted
 * together. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_coda_counter {
    WEIR_CODA_STATS_EVICTIONS, /* rows that left the ring */
    WEIR_CODA_STATS_GATED_OUT, /* of those that the exact bank judged, below its gate */
    WEIR_CODA_STATS_EXACT_HITS, /* like a row that is there */
    WEIR_CODA_STATS_EXACT_INSERTS, /* new: kept as they came, some in the place of an older one */
    WEIR_CODA_STATS_EXACT_OVERWRITES, /* inserts, and hits that replaced what they hit */
    /* Blends into prototypes: of one row of an answer, of one or more of a block of a prompt */
    WEIR_CODA_STATS_SUMMARY_UPDATES,
    WEIR_CODA_STATS_SUMMARY_FOUNDED, /* of these, the first of a prototype */
    WEIR_CODA_STATS_EXACT_FRUSTRATED, /* new rows of a block that found no slot */
    WEIR_CODA_STATS_SUMMARY_FRUSTRATED, /* times that all open prototypes were in use */
    WEIR_CODA_STATS_EXACT_OPENED,
    WEIR_CODA_STATS_SUMMARY_OPENED, /* slots that became open as texts grew */
    WEIR_CODA_STATS_COUNTS
} weir_coda_counter;

/* Slots of one kind. */
typedef struct weir_coda_slot_use {
    int64_t slots, open, used;
} weir_coda_slot_use;

typedef struct weir_coda_stats {
    int64_t n_layers; /* of the model; 0: it has none, and all else is 0 */
    int64_t n_rows; /* that the texts have had, in memory or not */
    weir_coda_slot_use ring, exact, summary;
    int64_t counts[WEIR_CODA_STATS_COUNTS];
} weir_coda_stats;

const char *weir_coda_counter_name(weir_coda_counter count); /* "exact_hits" */
const char *weir_coda_counter_help(weir_coda_counter count); /* a sentence */

/* What of two states is in the one that was made of them, over all layers. */
typedef struct weir_state_merged {
    int64_t n_exact_earlier, n_exact_later, n_exact_kept; /* rows in the exact banks */
    int64_t n_summary_earlier, n_summary_later,
        n_summary_kept; /* prototypes in the summary banks */
    int64_t n_recent_earlier; /* rows of the earlier state's rings: not in the merged one */
} weir_state_merged;

/* Rows that are in memory as they came, in the mean of the layers, and those that are not: blended
 * into prototypes, or lost. */
int64_t weir_coda_stats_live(const weir_coda_stats *coda);
int64_t weir_coda_stats_evicted(const weir_coda_stats *coda);

void weir_coda_stats_add(weir_coda_stats *sum, const weir_coda_stats *coda);
/* What was counted since `before`, which is of the same text; nothing if the text has begun
 * anew. */
void weir_coda_stats_add_counts_since(
    weir_coda_stats *sum, const weir_coda_stats *coda, const weir_coda_stats *before
);

#ifdef __cplusplus
}
#endif
