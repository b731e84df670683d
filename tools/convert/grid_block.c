/* tools/convert/grid_block.c - scales of groups and blocks.
 *
 * The error of fixed codes is a parabola of the scale: xx - 2 scale xl + scale^2 ll. So each group
 * is coded at some scales, and what the block's scale costs follows from the least of the group's
 * parabolas, without coding again. The best one is then used to code all groups, and is fitted to
 * the codes by least squares while that lowers the error. */
#include "tools/convert/grid_block.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/ref/levels.h"
#include "tools/convert/search.h"

enum { STEPS = 9, PARABOLAS = STEPS + 1 };

/* A group's elements. */
typedef struct grid_group {
    const float *x, *w; /* [n] */
    int n;
} grid_group;

/* What a group gains over zeros: at `scale` the most of 2 scale xl - scale^2 ll. */
typedef struct gains {
    float xl[PARABOLAS], ll[PARABOLAS];
    int n;
    float gain, scale; /* the largest gain, and where it is */
    bool is_exact; /* nearly nothing is lost there */
} gains;

static grid_group group_at(const float *x, const float *w, const grid_scheme *s, int index)
{
    const int n = GRID_ELEMENTS / s->n_groups;
    return (grid_group){ x + n * index, w + n * index, n };
}

/* ---- a group --------------------------------------------------------------------------------- */
/* The levels of the type's digits; is_low: with the negative delta. */
static const int8_t *levels_of(const grid_scheme *s, int is_low)
{
    return weir_levels_of(s->dtype) + (is_low ? 4 : 0);
}

static float code_with_delta(
    eight *out, const grid_group *g, const grid_scheme *s, float scale, int is_low
)
{
    float error = 0.0f;
    for (int i = 0; i < g->n / 8; i++) {
        out[i].is_low = (uint8_t)is_low;
        error += code_eight(
            &out[i], grid_of(s->dtype), levels_of(s, is_low), s->signs, g->x + 8 * i, g->w + 8 * i,
            scale
        );
    }
    return error;
}

/* Codes a group at this scale. Returns the error. */
static float code_grid_group(eight out[4], const grid_group *g, const grid_scheme *s, float scale)
{
    const int n = s->delta == DELTA_OF_EIGHT ? 8 : g->n;
    float error = 0.0f;
    if (s->delta == DELTA_NONE) return code_with_delta(out, g, s, scale, 0);
    for (int i = 0; i < g->n; i += n) {
        const grid_group some = { g->x + i, g->w + i, n };
        eight low[4];
        const float high_error = code_with_delta(out + i / 8, &some, s, scale, 0),
                    low_error = code_with_delta(low, &some, s, scale, 1);
        if (low_error < high_error) memcpy(out + i / 8, low, (size_t)n / 8 * sizeof *low);
        error += low_error < high_error ? low_error : high_error;
    }
    return error;
}

static void level_sums(const eight *codes, const grid_group *g, float *xl, float *ll)
{
    float sum_xl = 0.0f, sum_ll = 0.0f;
    for (int i = 0; i < g->n; i++) {
        const int8_t *const levels = codes[i / 8].levels;
        const float level = (float)levels[i % 8], weighted = g->w[i] * level;
        sum_xl += weighted * g->x[i];
        sum_ll += weighted * level;
    }
    *xl = sum_xl;
    *ll = sum_ll;
}

/* Codes a group at this scale and adds the parabola. */
static void add_scale(gains *out, const grid_group *g, const grid_scheme *s, float scale)
{
    eight codes[4];
    (void)code_grid_group(codes, g, s, scale);
    float *const xl = &out->xl[out->n], *const ll = &out->ll[out->n];
    level_sums(codes, g, xl, ll);
    if (!(*xl > 0.0f && *ll > 0.0f)) return;
    out->n++;
    if (*xl * *xl / *ll <= out->gain) return;
    out->gain = *xl * *xl / *ll;
    out->scale = *xl / *ll;
}

/* True if every element is a level times this scale, with either sign. */
static bool are_levels(const grid_group *g, const int8_t *levels, int n_levels, float scale)
{
    for (int i = 0; i < g->n; i++) {
        bool is_one = false;
        for (int d = 0; d < n_levels; d++) {
            const float level = scale * fabsf((float)levels[d]);
            is_one = is_one || fabsf(fabsf(g->x[i]) - level) < 1e-4f * level;
        }
        if (!is_one) return false;
    }
    return true;
}

/* Scales at which all elements are levels: of values that a decoder gave, often several. */
static void add_exact_scales(gains *out, const grid_group *g, const grid_scheme *s, float most)
{
    const int8_t *const levels = levels_of(s, 0);
    const int n = grid_of(s->dtype)->n_levels;
    for (int d = 0; d < n && out->n < PARABOLAS; d++) {
        const float scale = most / fabsf((float)levels[d]);
        if (are_levels(g, levels, n, scale)) add_scale(out, g, s, scale);
    }
}

/* Repeats the first parabola to the end, for loops of a fixed length. */
static void pad(gains *g)
{
    for (int i = g->n; i < PARABOLAS; i++) {
        g->xl[i] = g->n > 0 ? g->xl[0] : 0.0f;
        g->ll[i] = g->n > 0 ? g->ll[0] : 0.0f;
    }
}

/* Codes a group at scales at which its elements lie within the levels, or somewhat beyond. */
static void fit_group(gains *out, const grid_group *g, const grid_scheme *s)
{
    const float outer = (float)levels_of(s, 0)[grid_of(s->dtype)->n_levels - 1];
    float most = 0.0f, xx = 0.0f, sum = 0.0f;
    *out = (gains){ .is_exact = true };
    for (int i = 0; i < g->n; i++) {
        most = fabsf(g->x[i]) > most ? fabsf(g->x[i]) : most;
        xx += g->w[i] * g->x[i] * g->x[i];
        sum += g->w[i];
    }
    if (!(most > 0x1p-40f)) return;
    add_exact_scales(out, g, s, most);
    out->is_exact = xx - out->gain < 1e-5f * xx;
    if (!out->is_exact) {
        const float high = 1.4f * most / outer, size = 1.3f * sqrtf(xx / sum) / outer,
                    low = size < 0.5f * high ? size : 0.5f * high;
        *out = (gains){ 0 };
        for (int i = 0; i < STEPS; i++)
            add_scale(out, g, s, low + (high - low) * (float)i / (STEPS - 1));
        if (out->scale > 0.0f) add_scale(out, g, s, out->scale);
    }
    pad(out);
}

/* ---- the block's scale ----------------------------------------------------------------------- */
static float gain_at(const gains *g, float scale)
{
    float best = -INFINITY;
#pragma omp simd reduction(max : best)
    for (int i = 0; i < PARABOLAS; i++) {
        const float gain = scale * (2.0f * g->xl[i] - scale * g->ll[i]);
        best = gain > best ? gain : best;
    }
    return best;
}

/* The integer with the most gain, at most `reach` from the one nearest to the group's scale. */
static float best_integer(int *out, const gains *g, const grid_scheme *s, float unit, int reach)
{
    const float at = 0.5f * (g->scale / unit - 1.0f), last = (float)s->most;
    const int middle = (int)lrintf(at < 0.0f ? 0.0f : at > last ? last : at);
    float best = -INFINITY;
    *out = middle;
    for (int k = middle - reach; k <= middle + reach; k++) {
        if (k < 0 || k > s->most) continue;
        const float gain = gain_at(g, unit * (float)(2 * k + 1));
        if (gain <= best) continue;
        best = gain;
        *out = k;
    }
    return best;
}

/* What the groups gain at this scale of the integer 1. */
static float gain_of_unit(const gains *groups, const grid_scheme *s, float unit, int reach)
{
    float sum = 0.0f;
    for (int j = 0; j < s->n_groups; j++) {
        int k;
        sum += best_integer(&k, &groups[j], s, unit, reach);
    }
    return sum;
}

typedef struct fitted_unit {
    float unit, gain;
} fitted_unit;

/* Tries the scales of the integer 1 at which this scale is k / 4 times it: around the last integer
 * 2 * most + 1 in steps of a half, below that for each of them. */
static void try_units(
    fitted_unit *best, const gains *groups, const grid_scheme *s, float scale, int reach
)
{
    const int last = 4 * (2 * s->most + 1);
    for (int k = last + 16; k >= 4; k -= k > last - 32 ? 2 : 8) {
        const float unit = 4.0f * scale / (float)k, gain = gain_of_unit(groups, s, unit, reach);
        if (gain > best->gain) *best = (fitted_unit){ unit, gain };
    }
}

/* The best scale of the integer 1. For values that a decoder of the type gave there is an exact
 * one, which need not be the largest group's over an integer: one group may be exact at several. */
static float fit_unit(const gains *groups, const grid_scheme *s)
{
    fitted_unit best = { 0.0f, 0.0f };
    float largest = 0.0f;
    bool are_exact = true;
    for (int j = 0; j < s->n_groups; j++) {
        largest = groups[j].scale > largest ? groups[j].scale : largest;
        are_exact = are_exact && groups[j].is_exact;
    }
    if (largest > 0.0f) try_units(&best, groups, s, largest, 1);
    for (int j = 0; are_exact && j < s->n_groups; j++)
        if (groups[j].scale > 0.0f) try_units(&best, groups, s, groups[j].scale, s->most);
    return best.unit;
}

/* ---- the block ------------------------------------------------------------------------------- */
static void zero_block(grid_block *out, const float *x, const float *w)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < GRID_ELEMENTS; i++) out->error += w[i] * x[i] * x[i];
}

/* Codes all groups for this scale of the integer 1, as the block stores it. */
static void code_grid_block(
    grid_block *out, const float *x, const float *w, const grid_scheme *s, float unit,
    const gains *groups
)
{
    const float stored = round_f16(unit / s->unit, &out->d) * s->unit;
    if (!(stored > 0.0f)) {
        zero_block(out, x, w);
        return;
    }
    out->error = 0.0f;
    for (int j = 0; j < s->n_groups; j++) {
        const grid_group g = group_at(x, w, s, j);
        eight *const codes = out->eights + g.n / 8 * j;
        int k;
        (void)best_integer(&k, &groups[j], s, stored, s->most);
        out->scales[j] = k;
        out->error += code_grid_group(codes, &g, s, stored * (float)(2 * k + 1));
    }
}

/* The scale of the integer 1 that fits the block's codes best. */
static float refit(const grid_block *from, const float *x, const float *w, const grid_scheme *s)
{
    double num = 0.0, den = 0.0;
    for (int j = 0; j < s->n_groups; j++) {
        const grid_group g = group_at(x, w, s, j);
        const double k = 2 * from->scales[j] + 1;
        float xl, ll;
        level_sums(from->eights + g.n / 8 * j, &g, &xl, &ll);
        num += k * (double)xl;
        den += k * k * (double)ll;
    }
    return den > 0.0 && num > 0.0 ? (float)(num / den) : 0.0f;
}

void fit_grid_block(grid_block *out, const float *x, const float *w, const grid_scheme *s)
{
    enum { ROUNDS = 3 };
    gains groups[GRID_GROUPS];
    for (int j = 0; j < s->n_groups; j++) {
        const grid_group g = group_at(x, w, s, j);
        fit_group(&groups[j], &g, s);
    }
    float unit = fit_unit(groups, s);
    zero_block(out, x, w);
    for (int i = 0; i < ROUNDS && unit > 0.0f; i++) {
        grid_block now;
        code_grid_block(&now, x, w, s, unit, groups);
        if (now.error >= out->error) break;
        *out = now;
        unit = refit(out, x, w, s);
        uint16_t d;
        (void)round_f16(unit / s->unit, &d);
        if (d == out->d) break;
    }
}
