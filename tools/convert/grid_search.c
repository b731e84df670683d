#include "tools/convert/grid_search.h"

#include <math.h>

#include "engine/base/error.h"
#include "kernels/ref/grids.h"

/* ---- tables ---------------------------------------------------------------------------------- */
enum { N_GRIDS = 6, HALVES = 81, HALVES_PADDED = 88, PARTS = 9 };
enum { ALL_ROWS = 2048 + 256 + 512 + 1024 + 256 + 512 };

static uint8_t lows[ALL_ROWS];
static uint16_t indices[ALL_ROWS];
static grid grids[N_GRIDS] = {
    { .rows = weir_grid_iq1, .n_rows = 2048, .n_levels = 3 },
    { .rows = weir_grid_iq2_xxs, .n_rows = 256, .n_levels = 3 },
    { .rows = weir_grid_iq2_xs, .n_rows = 512, .n_levels = 3 },
    { .rows = weir_grid_iq2_s, .n_rows = 1024, .n_levels = 3 },
    { .rows = weir_grid_iq3_xxs, .n_rows = 256, .n_levels = 8 },
    { .rows = weir_grid_iq3_s, .n_rows = 512, .n_levels = 8 },
};

/* Digits of a half as one number: four of 3 levels, or two of 8. */
static int half_of(const grid *g, int bits)
{
    if (g->n_levels == 8) return (bits & 7) | (bits >> 4 & 7) << 3;
    return (bits & 3) + 3 * (bits >> 2 & 3) + 9 * (bits >> 4 & 3) + 27 * (bits >> 6 & 3);
}

/* Sorts the rows by their high halves, by counting. */
static void fill(grid *g)
{
    int at[HALVES] = { 0 }, n = 0;
    for (int i = 0; i < g->n_rows; i++) at[half_of(g, g->rows[i] >> 8)]++;
    for (int h = 0; h < HALVES; h++) {
        const int count = at[h];
        g->first[h] = (uint16_t)n;
        at[h] = n;
        n += count;
    }
    g->first[HALVES] = (uint16_t)n;
    for (int i = 0; i < g->n_rows; i++) {
        const int to = at[half_of(g, g->rows[i] >> 8)]++;
        g->low[to] = (uint8_t)half_of(g, g->rows[i] & 255);
        g->index[to] = (uint16_t)i;
    }
}

__attribute__((constructor)) static void fill_all(void)
{
    int n = 0;
    for (int i = 0; i < N_GRIDS; n += grids[i++].n_rows) {
        grids[i].low = lows + n;
        grids[i].index = indices + n;
        fill(&grids[i]);
    }
}

const grid *grid_of(weir_dtype dtype)
{
    static const grid *const by_type[WEIR_DTYPE_COUNT] = {
        [WEIR_IQ1_S] = &grids[0],  [WEIR_IQ1_M] = &grids[0], [WEIR_IQ2_XXS] = &grids[1],
        [WEIR_IQ2_XS] = &grids[2], [WEIR_IQ2_S] = &grids[3], [WEIR_IQ3_XXS] = &grids[4],
        [WEIR_IQ3_S] = &grids[5],
    };
    WEIR_ASSERT(by_type[dtype] != NULL);
    return by_type[dtype];
}

/* ---- costs ----------------------------------------------------------------------------------- */
/* Errors of all values of a part (one or two digits) or a half: with the elements' own signs, and
 * with the one sign flipped that costs least. */
typedef struct part {
    float own[PARTS], flipped[PARTS];
    int best; /* the value that costs least, own signs */
} part;

/* Padded to whole chunks of the search. */
typedef struct half {
    float own[HALVES_PADDED], flipped[HALVES_PADDED];
    float least, least_flipped; /* of all values */
    int best;
} half;

static inline float smaller(float a, float b) { return a < b ? a : b; }

static inline int best_of(const float *costs, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) best = costs[i] < costs[best] ? i : best;
    return best;
}

static inline float least_of(const float *costs, int n)
{
    float least = costs[0];
    for (int i = 1; i < n; i++) least = smaller(least, costs[i]);
    return least;
}

/* One element at all levels. */
static inline void element_costs(
    part *out, const int8_t *levels, int n, float x, float w, float scale, int flip
)
{
    for (int d = 0; d < n; d++) {
        const float level = scale * (float)levels[d], less = x - level, more = x + level;
        out->own[d] = w * less * less;
        if (flip) out->flipped[d] = w * more * more;
    }
    out->best = best_of(out->own, n);
}

/* Values of `low` + n * values of `high`, each with n values. */
static inline void join(
    float *restrict own, float *restrict flipped, const part *low, const part *high, int n, int flip
)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) own[n * j + i] = low->own[i] + high->own[j];
    for (int j = 0; flip && j < n; j++)
        for (int i = 0; i < n; i++)
            flipped[n * j + i] =
                smaller(low->flipped[i] + high->own[j], low->own[i] + high->flipped[j]);
}

static inline void half_from_parts(half *out, const part *low, const part *high, int n, int flip)
{
    join(out->own, out->flipped, low, high, n, flip);
    const float a = low->own[low->best], b = high->own[high->best];
    out->best = low->best + n * high->best;
    out->least = a + b;
    out->least_flipped = INFINITY;
    if (flip)
        out->least_flipped = smaller(least_of(low->flipped, n) + b, a + least_of(high->flipped, n));
    for (int i = n * n; i < HALVES_PADDED; i++) out->own[i] = out->flipped[i] = INFINITY;
}

/* Half a row: two elements of 8 levels, or four of 3. */
static inline void half_costs(
    half *out, int n_levels, const int8_t *levels, const float *x, const float *w, float scale,
    int flip
)
{
    part elements[4], pairs[2];
    if (n_levels == 8) {
        for (int i = 0; i < 2; i++) element_costs(&elements[i], levels, 8, x[i], w[i], scale, flip);
        half_from_parts(out, &elements[0], &elements[1], 8, flip);
        return;
    }
    for (int i = 0; i < 4; i++) element_costs(&elements[i], levels, 3, x[i], w[i], scale, flip);
    for (int i = 0; i < 2; i++) {
        const part *const low = &elements[2 * i], *const high = low + 1;
        join(pairs[i].own, pairs[i].flipped, low, high, 3, flip);
        pairs[i].best = low->best + 3 * high->best;
    }
    half_from_parts(out, &pairs[0], &pairs[1], 9, flip);
}

/* ---- rows ------------------------------------------------------------------------------------ */
typedef struct found {
    int at; /* in the order of the search */
    float error;
} found;

/* The rows whose high half is h. */
static inline void look_at(
    found *best, const grid *g, const half *low, const half *high, int h, int flip
)
{
    const float own = high->own[h], flipped = flip ? high->flipped[h] : 0.0f;
    for (int r = g->first[h]; r < g->first[h + 1]; r++) {
        const int l = g->low[r];
        const float error =
            flip ? smaller(flipped + low->own[l], own + low->flipped[l]) : own + low->own[l];
        if (error < best->error) *best = (found){ r, error };
    }
}

/* The best row: of its high half's costs and its low half's. The high half that is best alone comes
 * first; few others, in chunks of which most have none, cost less than the best row then. */
static inline found find(const grid *g, const half *low, const half *high, int flip)
{
    enum { CHUNK = 8 };
    found best = { 0, INFINITY };
    look_at(&best, g, low, high, high->best, flip);
    for (int chunk = 0; chunk < HALVES_PADDED; chunk += CHUNK) {
        float bounds[CHUNK];
        int n_below = 0;
        for (int i = 0; i < CHUNK; i++) {
            const float own = high->own[chunk + i];
            bounds[i] =
                flip ? smaller(high->flipped[chunk + i] + low->least, own + low->least_flipped)
                     : own + low->least;
            n_below += bounds[i] < best.error;
        }
        for (int i = 0; n_below > 0 && i < CHUNK; i++)
            if (bounds[i] < best.error) look_at(&best, g, low, high, chunk + i, flip);
    }
    return best;
}

static found find_row(const grid *g, const half *low, const half *high, int flip)
{
    return flip ? find(g, low, high, 1) : find(g, low, high, 0);
}

/* The values of n elements of a row. */
static void put_row(eight *out, int which, const grid *g, const int8_t *levels, int at, int n)
{
    const int index = g->index[at], bits = n == 4 ? 4 : 2, mask = g->n_levels == 8 ? 7 : 3;
    out->rows[which] = (uint16_t)index;
    for (int i = 0; i < n; i++)
        out->levels[n * which + i] = levels[g->rows[index] >> (bits * i) & mask];
}

/* Flips the sign of the element among [first, first + n) for which that costs least. */
static void flip_one(eight *out, const float *a, const float *w, int first, int n)
{
    int at = first;
    for (int i = first + 1; i < first + n; i++)
        if (w[i] * a[i] * (float)out->levels[i] < w[at] * a[at] * (float)out->levels[at]) at = i;
    out->signs = (uint8_t)(out->signs ^ 1u << at);
}

static float code_rows(
    eight *out, const grid *g, const int8_t *levels, const float *a, const float *w, float scale,
    int flip
)
{
    half low, high;
    if (g->n_levels == 3) {
        half_costs(&low, 3, levels, a, w, scale, flip);
        half_costs(&high, 3, levels, a + 4, w + 4, scale, flip);
        const found row = find_row(g, &low, &high, flip);
        put_row(out, 0, g, levels, row.at, 8);
        if (flip) flip_one(out, a, w, 0, 8);
        return row.error;
    }
    found own[2], flipped[2];
    for (int i = 0; i < 2; i++) {
        half_costs(&low, 8, levels, a + 4 * i, w + 4 * i, scale, flip);
        half_costs(&high, 8, levels, a + 4 * i + 2, w + 4 * i + 2, scale, flip);
        own[i] = find_row(g, &low, &high, 0);
        if (flip) flipped[i] = find_row(g, &low, &high, 1);
    }
    int flipped_at = -1;
    if (flip) {
        flipped_at = flipped[0].error + own[1].error <= own[0].error + flipped[1].error ? 0 : 1;
        own[flipped_at] = flipped[flipped_at];
    }
    for (int i = 0; i < 2; i++) put_row(out, i, g, levels, own[i].at, 4);
    if (flip) flip_one(out, a, w, 4 * flipped_at, 4);
    return own[0].error + own[1].error;
}

float code_eight(
    eight *out, const grid *g, const int8_t *levels, sign_rule rule, const float *x, const float *w,
    float scale
)
{
    float a[8];
    unsigned signs = 0;
    for (int i = 0; i < 8; i++) {
        a[i] = rule == SIGNS_IN_LEVELS ? x[i] : fabsf(x[i]);
        if (rule != SIGNS_IN_LEVELS) signs |= (unsigned)(x[i] < 0.0f) << i;
    }
    out->signs = (uint8_t)signs;
    const int flip = rule == SIGNS_EVEN && (__builtin_popcount(signs) & 1) != 0;
    const float error = code_rows(out, g, levels, a, w, scale, flip);
    for (int i = 0; i < 8; i++)
        if (out->signs >> i & 1) out->levels[i] = (int8_t)-out->levels[i];
    return error;
}
