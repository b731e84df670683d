#include "engine/model/blocks/coda_merge.h"

#include "engine/base/error.h"
#include <math.h>
#include <string.h>

/* ---- two states as one ----------------------------------------------------------------------- */

typedef struct merge {
    const weir_coda_layer *layer;
    weir_coda_state earlier, out;
    int64_t width; /* KV heads * head_dim */
    /* [2 * n_exact, width] values with each head's part of length 1: first those of out, slot by
     * slot, then earlier's. */
    float *units;
    /* [2 * n_exact] greatest cosine with those taken; NAN: the slot is unused. */
    float *nearest;
    int32_t *taken; /* [2 * n_exact] in order of selection */
    float *row, *other; /* [2 * width] keys, then values */
} merge;

size_t weir_coda_merge_scratch(const weir_coda_layer *layer)
{
    const size_t width = (size_t)(layer->n_kv_heads * layer->head_dim),
                 n = 2 * (size_t)layer->n_exact;
    return (n * width + 4 * width + n) * sizeof(float) + n * sizeof(int32_t);
}

static merge open_merge(const weir_coda_layer *layer, const void *earlier, void *out, void *scratch)
{
    merge m = { .layer = layer, .width = layer->n_kv_heads * layer->head_dim };
    const int64_t n = 2 * (int64_t)layer->n_exact;
    m.earlier = weir_coda_view(layer, (void *)(uintptr_t)earlier);
    m.out = weir_coda_view(layer, out);
    m.row = scratch;
    m.other = m.row + 2 * m.width;
    m.units = m.other + 2 * m.width;
    m.nearest = m.units + n * m.width;
    m.taken = (int32_t *)(m.nearest + n);
    return m;
}

static void read_slot(const merge *m, const weir_coda_state *state, int64_t slot, float *row)
{
    weir_coda_read(m->layer, state, WEIR_KV_K, state->rows[slot], row);
    weir_coda_read(m->layer, state, WEIR_KV_V, state->rows[slot], row + m->width);
}

static void put_slot(const merge *m, int64_t slot, const float *row)
{
    weir_coda_use(m->layer, &m->out, slot);
    weir_coda_put(m->layer, &m->out, WEIR_KV_K, m->out.rows[slot], row);
    weir_coda_put(m->layer, &m->out, WEIR_KV_V, m->out.rows[slot], row + m->width);
}

static float dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* ---- the exact bank */

static int64_t exact_slot(const merge *m, int64_t i)
{
    return m->layer->window + i % m->layer->n_exact;
}
static const weir_coda_state *exact_state(const merge *m, int64_t i)
{
    return i < m->layer->n_exact ? &m->out : &m->earlier;
}

static void find_units(merge *m)
{
    for (int64_t i = 0; i < 2 * (int64_t)m->layer->n_exact; i++) {
        float *const unit = m->units + i * m->width;
        m->nearest[i] = weir_coda_is_used(exact_state(m, i), exact_slot(m, i)) ? -INFINITY : NAN;
        read_slot(m, exact_state(m, i), exact_slot(m, i), m->row);
        for (int64_t h = 0; h < m->width; h += m->layer->head_dim) {
            const float *const value = m->row + m->width + h;
            const float inverse = 1.0f / fmaxf(sqrtf(dot(value, value, m->layer->head_dim)), 1e-6f);
            for (int64_t d = 0; d < m->layer->head_dim; d++) unit[h + d] = value[d] * inverse;
        }
    }
}

/* First the most recently matched row, then the one least similar to those taken. Returns -1 if all
 * that is left is similar enough to one taken. */
static int64_t choose_exact(const merge *m, int64_t n_taken)
{
    int64_t best = -1;
    for (int64_t i = 0; i < 2 * (int64_t)m->layer->n_exact; i++) {
        if (!(m->nearest[i] < m->layer->hit)) continue;
        const bool is_first = n_taken == 0;
        const bool is_better = best < 0 || (is_first ? i < m->layer->n_exact &&
                                                           m->out.used_at[i] > m->out.used_at[best]
                                                     : m->nearest[i] < m->nearest[best]);
        if (is_better) best = i;
    }
    return best;
}

static void take_exact(merge *m, int64_t i)
{
    for (int64_t j = 0; j < 2 * (int64_t)m->layer->n_exact; j++) {
        if (isnan(m->nearest[j])) continue;
        const float cosine = dot(m->units + i * m->width, m->units + j * m->width, m->width) /
                             (float)m->layer->n_kv_heads;
        m->nearest[j] = fmaxf(m->nearest[j], cosine);
    }
    m->nearest[i] = INFINITY;
}

/* A place for a row of earlier's: a free open slot, or one whose row was not taken. */
static int64_t place_of(const merge *m, int64_t n_taken)
{
    for (int64_t i = 0; i < m->out.head->n_open_exact; i++)
        if (!weir_coda_is_used(&m->out, exact_slot(m, i))) return i;
    for (int64_t i = 0; i < m->out.head->n_open_exact; i++) {
        bool is_taken = false;
        for (int64_t t = 0; t < n_taken; t++) is_taken = is_taken || m->taken[t] == i;
        if (!is_taken) return i;
    }
    return -1;
}

static void merge_exact(merge *m)
{
    int64_t n_taken = 0, chosen;
    if (m->layer->n_exact == 0) return;
    if (m->earlier.head->n_open_exact > m->out.head->n_open_exact)
        m->out.head->n_open_exact = m->earlier.head->n_open_exact;
    find_units(m);
    while (n_taken < m->out.head->n_open_exact && (chosen = choose_exact(m, n_taken)) >= 0) {
        m->taken[n_taken++] = (int32_t)chosen;
        take_exact(m, chosen);
    }
    for (int64_t t = 0; t < n_taken; t++) {
        if (m->taken[t] < m->layer->n_exact) continue;
        const int64_t from = m->taken[t] - m->layer->n_exact, to = place_of(m, n_taken);
        WEIR_ASSERT(to >= 0); /* no more rows are taken than slots are open */
        read_slot(m, &m->earlier, exact_slot(m, from), m->row);
        put_slot(m, exact_slot(m, to), m->row);
        const int64_t time = m->earlier.used_at[from];
        m->out.used_at[to] = time < m->out.head->position ? time : m->out.head->position;
        m->taken[t] = (int32_t)to;
    }
}

/* ---- prototypes */

static int64_t summary_slot(const merge *m, int64_t i)
{
    return (int64_t)m->layer->window + m->layer->n_exact + i;
}

/* The mean over the heads of the cosine of two keys' low bands. */
static float low_cosine(const weir_coda_layer *layer, const float *a, const float *b)
{
    float mean = 0;
    for (int64_t h = 0; h < layer->n_kv_heads; h++, a += layer->head_dim, b += layer->head_dim) {
        double ab = 0, aa = 0, bb = 0;
        for (int64_t d = 0; d < layer->head_dim; d++) {
            if (!weir_coda_is_low(layer, d)) continue;
            ab += (double)a[d] * (double)b[d];
            aa += (double)a[d] * (double)a[d];
            bb += (double)b[d] * (double)b[d];
        }
        mean +=
            (float)(ab / (fmax(sqrt(aa), 1e-6) * fmax(sqrt(bb), 1e-6))) / (float)layer->n_kv_heads;
    }
    return mean;
}

/* A free open slot, or -1. */
static int64_t free_summary(const merge *m)
{
    for (int64_t i = 0; i < m->out.head->n_open_summary; i++)
        if (!weir_coda_is_used(&m->out, summary_slot(m, i))) return i;
    return -1;
}

static int64_t nearest_summary(const merge *m)
{
    int64_t nearest = 0;
    float greatest = -INFINITY;
    for (int64_t i = 0; i < m->out.head->n_open_summary; i++) {
        read_slot(m, &m->out, summary_slot(m, i), m->other);
        const float cosine = low_cosine(m->layer, m->row, m->other);
        if (!(cosine > greatest)) continue;
        greatest = cosine;
        nearest = i;
    }
    return nearest;
}

static void blend_summary(merge *m, int64_t slot, float rate)
{
    read_slot(m, &m->out, slot, m->other);
    for (int64_t x = 0; x < m->width; x++) {
        if (weir_coda_is_low(m->layer, x % m->layer->head_dim))
            m->other[x] += rate * (m->row[x] - m->other[x]);
        m->other[m->width + x] += rate * (m->row[m->width + x] - m->other[m->width + x]);
    }
    put_slot(m, slot, m->other);
}

static void merge_summary(merge *m)
{
    const double earlier = (double)m->earlier.head->position, later = (double)m->out.head->position;
    const float rate = (float)(earlier / fmax(earlier + later, 1));
    if (m->layer->n_summary == 0) return;
    if (m->earlier.head->n_open_summary > m->out.head->n_open_summary)
        m->out.head->n_open_summary = m->earlier.head->n_open_summary;
    for (int64_t i = 0; m->out.head->n_open_summary > 0 && i < m->layer->n_summary; i++) {
        if (!weir_coda_is_used(&m->earlier, summary_slot(m, i))) continue;
        read_slot(m, &m->earlier, summary_slot(m, i), m->row);
        const int64_t place = free_summary(m);
        if (place >= 0)
            put_slot(m, summary_slot(m, place), m->row);
        else
            blend_summary(m, summary_slot(m, nearest_summary(m)), rate);
    }
}

/* Saturates: files can claim any count, and merged states are merged again. */
static int64_t both_counts(int64_t a, int64_t b)
{
    const int64_t most = INT64_C(1) << 40;
    if (a > most || b > most) return most;
    return a + b < most ? a + b : most;
}

void weir_coda_merge(
    const weir_coda_layer *layer, const void *earlier, const void *later, void *out, void *scratch
)
{
    memcpy(out, later, weir_coda_view(layer, NULL).bytes);
    merge m = open_merge(layer, earlier, out, scratch);
    if (m.earlier.head->position == 0) return; /* nothing was written */
    if (m.out.head->position == 0) {
        memcpy(out, earlier, m.out.bytes);
        return;
    }
    merge_exact(&m);
    merge_summary(&m);
    for (int i = 0; i < WEIR_CODA_COUNTS; i++)
        m.out.head->counts[i] = both_counts(m.out.head->counts[i], m.earlier.head->counts[i]);
}
