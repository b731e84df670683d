/* tools/report/split.c - one model over several devices: along which axis the KV is split. */
#include "kernels/abi/kv_page.h"
#include "tools/report/report.h"

static int64_t part_of(int64_t n, int64_t ranks) { return n / ranks + (n % ranks != 0); }

static const struct {
    const char *name, *effect;
} strategies[WEIR_REPORT_STRATEGY_COUNT] = {
    [WEIR_REPORT_TENSOR] = { "tensor", "split by KV head; copied when there are more devices than "
                                       "heads, and latent rows always" },
    [WEIR_REPORT_PIPELINE] = { "pipeline", "each device holds the KV of its own layers" },
    [WEIR_REPORT_DATA] = { "data", "each device holds whole sequences; the weights are copied" },
    [WEIR_REPORT_SEQUENCE] = { "sequence", "split along the tokens; partial results are merged" },
    [WEIR_REPORT_EXPERT] = { "expert", "experts are split, attention and KV are data-parallel" },
};

const char *weir_report_strategy_name(weir_report_strategy strategy)
{
    return strategies[strategy].name;
}
const char *weir_report_strategy_effect(weir_report_strategy strategy)
{
    return strategies[strategy].effect;
}

static int64_t expert_weights(const weir_report_assumptions *a, const weir_report_shape *shape)
{
    const double routed = (double)(shape->n_layers - shape->n_dense_layers) *
                          (double)shape->n_experts * 3 * (double)shape->d_model *
                          (double)shape->d_expert;
    const double share = routed / (double)weir_report_parameters(a, shape);
    return (int64_t)((share < 1 ? share : 1) * (double)weir_report_weights(a, shape));
}

weir_report_split weir_report_split_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_report_strategy strategy,
    int64_t ranks, weir_kv_format format, int64_t batch, int64_t tokens
)
{
    const weir_report_rows rows = weir_report_rows_of(a, shape);
    const int64_t weights = weir_report_weights(a, shape),
                  sequence = weir_report_kv(a, shape, format, tokens), kv = batch * sequence;
    weir_report_split split = { .possible = true, .weights = weights, .kv = kv, .kv_total = kv };
    switch (strategy) {
    /* A head cannot be split by its width without an exchange per score. */
    case WEIR_REPORT_TENSOR: {
        const int64_t heads = part_of(rows.heads, ranks);
        split.possible = ranks <= shape->n_heads && rows.heads > 0;
        split.weights = part_of(weights, ranks);
        if (split.possible) split.kv = kv / rows.heads * heads;
        split.kv_total = ranks > rows.heads ? split.kv * ranks : kv;
        break;
    }
    case WEIR_REPORT_PIPELINE:
        split.possible = ranks <= shape->n_layers;
        split.weights = (int64_t)((double)weights * (double)part_of(shape->n_layers, ranks) /
                                  (double)shape->n_layers);
        if (shape->n_kv_layers > 0)
            split.kv = kv / shape->n_kv_layers * part_of(shape->n_kv_layers, ranks);
        break;
    case WEIR_REPORT_DATA:
        split.possible = ranks <= batch;
        split.kv = sequence * part_of(batch, ranks);
        break;
    case WEIR_REPORT_SEQUENCE: {
        const int64_t pages = part_of(tokens, WEIR_PAGE_TOKENS);
        split.possible = ranks <= pages;
        split.kv =
            batch * weir_report_kv(a, shape, format, part_of(pages, ranks) * WEIR_PAGE_TOKENS);
        break;
    }
    case WEIR_REPORT_EXPERT: {
        const int64_t experts = expert_weights(a, shape);
        split.possible = ranks <= shape->n_experts && ranks <= batch;
        split.weights = weights - experts + part_of(experts, ranks);
        split.kv = sequence * part_of(batch, ranks);
        break;
    }
    case WEIR_REPORT_STRATEGY_COUNT: split.possible = false; break;
    }
    split.copies = kv > 0 ? (double)split.kv_total / (double)kv : 1;
    return split;
}
