#include "engine/model/coda_stats.h"

static const struct {
    const char *name, *help;
} texts[WEIR_CODA_STATS_COUNTS] = {
    [WEIR_CODA_STATS_EVICTIONS] = { "evictions", "Rows that left the rings of layers with memory "
                                                 "of fixed size." },
    [WEIR_CODA_STATS_GATED_OUT] = { "gated_out",
                                    "Rows offered to exact banks whose gate was too low." },
    [WEIR_CODA_STATS_EXACT_HITS] = { "exact_hits", "Rows that matched one in an exact bank." },
    [WEIR_CODA_STATS_EXACT_INSERTS] = { "exact_inserts", "Rows added to exact banks." },
    [WEIR_CODA_STATS_EXACT_OVERWRITES] = { "exact_overwrites",
                                           "Writes to exact banks, including replaced matches." },
    [WEIR_CODA_STATS_SUMMARY_UPDATES] = { "summary_updates", "Blends into prototypes." },
    [WEIR_CODA_STATS_SUMMARY_FOUNDED] = { "summary_founded", "Prototypes that began." },
    [WEIR_CODA_STATS_EXACT_FRUSTRATED] = { "exact_frustrated",
                                           "New rows for which an exact bank had no slot." },
    [WEIR_CODA_STATS_SUMMARY_FRUSTRATED] = { "summary_frustrated", "Times that all open prototypes "
                                                                   "of a layer were in use." },
    [WEIR_CODA_STATS_EXACT_OPENED] = { "exact_opened", "Slots of exact banks that were opened." },
    [WEIR_CODA_STATS_SUMMARY_OPENED] = { "summary_opened", "Prototypes that were opened." },
};

const char *weir_coda_counter_name(weir_coda_counter count) { return texts[count].name; }
const char *weir_coda_counter_help(weir_coda_counter count) { return texts[count].help; }

/* Rounded, as for rows of policies. */
int64_t weir_coda_stats_live(const weir_coda_stats *coda)
{
    const int64_t n = coda->n_layers;
    return n > 0 ? (coda->ring.used + coda->exact.used + n / 2) / n : 0;
}

int64_t weir_coda_stats_evicted(const weir_coda_stats *coda)
{
    const int64_t n =
        coda->n_layers > 0 ? coda->n_rows / coda->n_layers - weir_coda_stats_live(coda) : 0;
    return n > 0 ? n : 0; /* Merged states also hold rows of a sequence that they do not count. */
}

static void add_part(weir_coda_slot_use *sum, const weir_coda_slot_use *part)
{
    sum->slots += part->slots;
    sum->open += part->open;
    sum->used += part->used;
}

void weir_coda_stats_add(weir_coda_stats *sum, const weir_coda_stats *coda)
{
    sum->n_layers = coda->n_layers;
    sum->n_rows += coda->n_rows;
    add_part(&sum->ring, &coda->ring);
    add_part(&sum->exact, &coda->exact);
    add_part(&sum->summary, &coda->summary);
    for (int i = 0; i < WEIR_CODA_STATS_COUNTS; i++) sum->counts[i] += coda->counts[i];
}

void weir_coda_stats_add_counts_since(
    weir_coda_stats *sum, const weir_coda_stats *coda, const weir_coda_stats *before
)
{
    if (coda->n_rows < before->n_rows) return;
    for (int i = 0; i < WEIR_CODA_STATS_COUNTS; i++)
        sum->counts[i] += coda->counts[i] - before->counts[i];
}
