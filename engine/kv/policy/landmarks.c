/* engine/kv/policy/landmarks.c - a window, and a bank of rows whose values differ from each other:
 * the exact bank of CoDA-GQA-L (Maio 2026) for models that were trained without it
 * (docs/policies.md). Each KV head has its own bank. State: none. */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

typedef struct bank {
    float *units; /* [n_places, dim] */
    /* [n_places]: its row, and the last row that matched it. */
    int32_t *rows, *found;
    int64_t n, n_places, dim;
    float novelty;
} bank;

static size_t units_bytes(const weir_policy_options *options, const weir_policy_shape *shape)
{
    return policy_scratch_size(
        (size_t)options->landmarks * (size_t)shape->value_dim, sizeof(float)
    );
}

static size_t tile_bytes(const weir_policy_shape *shape)
{
    return policy_scratch_size((size_t)(WEIR_POLICY_TILE * shape->value_dim), sizeof(float));
}

static size_t places_bytes(const weir_policy_options *options)
{
    return policy_scratch_size((size_t)options->landmarks, sizeof(int32_t));
}

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    out->needs = WEIR_POLICY_VALUES;
    out->scratch = units_bytes(options, shape) + tile_bytes(shape) + 2 * places_bytes(options);
}

static bank take_bank(policy_call *call, const policy_head *at)
{
    const weir_policy_options *const options = &call->policy->options;
    const int64_t free_rows = at->budget - at->n_first;
    bank b = { .dim = call->policy->shape.value_dim, .novelty = (float)options->novelty };
    b.n_places = options->landmarks < free_rows / 2 ? options->landmarks : free_rows / 2;
    b.units = policy_scratch(call, units_bytes(options, &call->policy->shape));
    b.rows = policy_scratch(call, places_bytes(options));
    b.found = policy_scratch(call, places_bytes(options));
    return b;
}

static int64_t find_nearest(const bank *b, const float *unit, float *cosine)
{
    int64_t nearest = -1;
    *cosine = -INFINITY;
    for (int64_t i = 0; i < b->n; i++) {
        const float c = policy_dot(b->units + i * b->dim, unit, b->dim);
        if (!(c > *cosine)) continue;
        *cosine = c;
        nearest = i;
    }
    return nearest;
}

static int64_t find_place(const bank *b)
{
    if (b->n < b->n_places) return b->n;
    int64_t place = 0;
    for (int64_t i = 1; i < b->n; i++) place = b->found[i] < b->found[place] ? i : place;
    return place;
}

/* Considers a row for the bank: if its cosine with all rows there is below `novelty` it takes a
 * free place, or that of the least recently matched row; else it matches the nearest row. `value`
 * is replaced by its direction. */
static void judge(bank *b, int64_t row, float *value)
{
    const float inverse = 1.0f / fmaxf(sqrtf(policy_dot(value, value, b->dim)), 1e-6f);
    float cosine;
    for (int64_t d = 0; d < b->dim; d++) value[d] *= inverse;
    const int64_t nearest = find_nearest(b, value, &cosine);
    if (nearest >= 0 && !(cosine < b->novelty)) {
        b->found[nearest] = (int32_t)row;
        return;
    }
    const int64_t place = find_place(b);
    memcpy(b->units + place * b->dim, value, (size_t)b->dim * sizeof *value);
    b->rows[place] = b->found[place] = (int32_t)row;
    b->n += place == b->n;
}

/* Mean length of values. With gate=norm rows below half of it are skipped: they add little. */
static weir_status mean_length(
    policy_call *call, const policy_head *at, int64_t end, float *tile, double *mean
)
{
    const int64_t dim = call->policy->shape.value_dim;
    double sum = 0;
    for (int64_t first = at->n_first; first < end; first += WEIR_POLICY_TILE) {
        const int64_t n = end - first < WEIR_POLICY_TILE ? end - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, first, n, NULL, tile));
        for (int64_t i = 0; i < n; i++) {
            const float squares = policy_dot(tile + i * dim, tile + i * dim, dim);
            sum += isfinite(squares) ? sqrt((double)squares) : 0.0;
        }
    }
    *mean = sum / (double)(end - at->n_first);
    return WEIR_OK;
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const int64_t dim = call->policy->shape.value_dim;
    float *const tile = policy_scratch(call, tile_bytes(&call->policy->shape));
    bank b = take_bank(call, at);
    const int64_t end =
        at->n - (at->budget - at->n_first - b.n_places); /* rows outside the window */
    double mean = 0;
    for (int64_t j = 0; j < at->n; j++)
        scores[j] = (float)j / (float)at->n; /* places that the bank leaves go to the latest rows */
    if (b.n_places < 1 || end <= at->n_first) return WEIR_OK;
    if (call->policy->options.gate == WEIR_GATE_NORM)
        WEIR_TRY(mean_length(call, at, end, tile, &mean));
    const float least = (float)(mean / 2);
    for (int64_t first = at->n_first; first < end; first += WEIR_POLICY_TILE) {
        const int64_t n = end - first < WEIR_POLICY_TILE ? end - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, first, n, NULL, tile));
        for (int64_t i = 0; i < n; i++) {
            float *const value = tile + i * dim;
            const float squares = policy_dot(value, value, dim);
            if (!isfinite(squares)) { /* no direction: it would be unlike all others */
                scores[first + i] = NAN;
                continue;
            }
            if (least > 0 && squares < least * least) continue;
            judge(&b, first + i, value);
        }
    }
    for (int64_t i = 0; i < b.n; i++) scores[b.rows[i]] = 2;
    return WEIR_OK;
}

static const policy_default defaults[] = { { "sinks", "4" },
                                           { "landmarks", "256" },
                                           { "novelty", "0.7" },
                                           { "gate", "constant" },
                                           { NULL, NULL } };
const weir_policy_ops policy_landmarks = {
    .name = "landmarks",
    .summary = "a window, and rows whose values differ from each other",
    .matrix_options = "",
    .defaults = defaults,
    .layout = layout,
    .score = score
};
