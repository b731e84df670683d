#include "engine/model/banks.h"

static const struct {
    const char *name, *help;
} texts[WEIR_BANKS_COUNTS] = {
    [WEIR_BANKS_EVICTIONS] = { "evictions",
                               "Rows that left the rings of layers with memory of fixed size." },
    [WEIR_BANKS_GATED_OUT] = { "gated_out", "Rows offered to exact banks whose gate was too low." },
    [WEIR_BANKS_EXACT_HITS] = { "exact_hits", "Rows that matched one in an exact bank." },
    [WEIR_BANKS_EXACT_INSERTS] = { "exact_inserts", "Rows added to exact banks." },
    [WEIR_BANKS_EXACT_OVERWRITES] = { "exact_overwrites",
                                      "Writes to exact banks, including replaced matches." },
    [WEIR_BANKS_SUMMARY_UPDATES] = { "summary_updates", "Blends into prototypes." },
    [WEIR_BANKS_SUMMARY_FOUNDED] = { "summary_founded", "Prototypes that began." },
    [WEIR_BANKS_EXACT_FRUSTRATED] = { "exact_frustrated",
                                      "New rows for which an exact bank had no slot." },
    [WEIR_BANKS_SUMMARY_FRUSTRATED] = { "summary_frustrated",
                                        "Times that all open prototypes of a layer were in use." },
    [WEIR_BANKS_EXACT_OPENED] = { "exact_opened", "Slots of exact banks that were opened." },
    [WEIR_BANKS_SUMMARY_OPENED] = { "summary_opened", "Prototypes that were opened." },
};

const char *weir_banks_count_name(weir_banks_count count) { return texts[count].name; }
const char *weir_banks_count_help(weir_banks_count count) { return texts[count].help; }

/* Rounded, as for rows of policies. */
int64_t weir_banks_live(const weir_banks *banks)
{
    const int64_t n = banks->n_layers;
    return n > 0 ? (banks->ring.used + banks->exact.used + n / 2) / n : 0;
}

int64_t weir_banks_evicted(const weir_banks *banks)
{
    const int64_t n =
        banks->n_layers > 0 ? banks->n_rows / banks->n_layers - weir_banks_live(banks) : 0;
    /* Merged states also hold rows of a sequence that they do not count. */
    return n > 0 ? n : 0;
}

static void add_part(weir_banks_part *sum, const weir_banks_part *part)
{
    sum->slots += part->slots;
    sum->open += part->open;
    sum->used += part->used;
}

void weir_banks_add(weir_banks *sum, const weir_banks *banks)
{
    sum->n_layers = banks->n_layers;
    sum->n_rows += banks->n_rows;
    add_part(&sum->ring, &banks->ring);
    add_part(&sum->exact, &banks->exact);
    add_part(&sum->summary, &banks->summary);
    for (int i = 0; i < WEIR_BANKS_COUNTS; i++) sum->counts[i] += banks->counts[i];
}

void weir_banks_add_counts_since(weir_banks *sum, const weir_banks *banks, const weir_banks *before)
{
    if (banks->n_rows < before->n_rows) return;
    for (int i = 0; i < WEIR_BANKS_COUNTS; i++)
        sum->counts[i] += banks->counts[i] - before->counts[i];
}
