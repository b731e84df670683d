#include "engine/model/bank_stats.h"

static const struct {
    const char *name, *help;
} texts[WEIR_BANK_STATS_COUNTS] = {
    [WEIR_BANK_STATS_EVICTIONS] = { "evictions", "Rows that left the rings of layers with memory "
                                                 "of fixed size." },
    [WEIR_BANK_STATS_GATED_OUT] = { "gated_out",
                                    "Rows offered to exact banks whose gate was too low." },
    [WEIR_BANK_STATS_EXACT_HITS] = { "exact_hits", "Rows that matched one in an exact bank." },
    [WEIR_BANK_STATS_EXACT_INSERTS] = { "exact_inserts", "Rows added to exact banks." },
    [WEIR_BANK_STATS_EXACT_OVERWRITES] = { "exact_overwrites",
                                           "Writes to exact banks, including replaced matches." },
    [WEIR_BANK_STATS_SUMMARY_UPDATES] = { "summary_updates", "Blends into prototypes." },
    [WEIR_BANK_STATS_SUMMARY_FOUNDED] = { "summary_founded", "Prototypes that began." },
    [WEIR_BANK_STATS_EXACT_FRUSTRATED] = { "exact_frustrated",
                                           "New rows for which an exact bank had no slot." },
    [WEIR_BANK_STATS_SUMMARY_FRUSTRATED] = { "summary_frustrated", "Times that all open prototypes "
                                                                   "of a layer were in use." },
    [WEIR_BANK_STATS_EXACT_OPENED] = { "exact_opened", "Slots of exact banks that were opened." },
    [WEIR_BANK_STATS_SUMMARY_OPENED] = { "summary_opened", "Prototypes that were opened." },
};

const char *weir_bank_counter_name(weir_bank_counter count) { return texts[count].name; }
const char *weir_bank_counter_help(weir_bank_counter count) { return texts[count].help; }

/* Rounded, as for rows of policies. */
int64_t weir_bank_stats_live(const weir_bank_stats *banks)
{
    const int64_t n = banks->n_layers;
    return n > 0 ? (banks->ring.used + banks->exact.used + n / 2) / n : 0;
}

int64_t weir_bank_stats_evicted(const weir_bank_stats *banks)
{
    const int64_t n =
        banks->n_layers > 0 ? banks->n_rows / banks->n_layers - weir_bank_stats_live(banks) : 0;
    return n > 0 ? n : 0; /* Merged states also hold rows of a sequence that they do not count. */
}

static void add_part(weir_bank_use *sum, const weir_bank_use *part)
{
    sum->slots += part->slots;
    sum->open += part->open;
    sum->used += part->used;
}

void weir_bank_stats_add(weir_bank_stats *sum, const weir_bank_stats *banks)
{
    sum->n_layers = banks->n_layers;
    sum->n_rows += banks->n_rows;
    add_part(&sum->ring, &banks->ring);
    add_part(&sum->exact, &banks->exact);
    add_part(&sum->summary, &banks->summary);
    for (int i = 0; i < WEIR_BANK_STATS_COUNTS; i++) sum->counts[i] += banks->counts[i];
}

void weir_bank_stats_add_counts_since(
    weir_bank_stats *sum, const weir_bank_stats *banks, const weir_bank_stats *before
)
{
    if (banks->n_rows < before->n_rows) return;
    for (int i = 0; i < WEIR_BANK_STATS_COUNTS; i++)
        sum->counts[i] += banks->counts[i] - before->counts[i];
}
