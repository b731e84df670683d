/* offload/marshal_ops.c - every op's pointers, what lies behind them, and who reads it. One pass
 * adds up, a second one places: the same text for both.
 *
 * What the host reads too lies in a ring: a launch may still read it while the next one is
 * prepared. All else is copied in the order of the launches. */
#include <string.h>

#include "engine/base/checked.h"
#include "offload/marshal_internal.h"

typedef enum direction { IN, OUT, BOTH } direction;

/* ---- placing --------------------------------------------------------------------------------- */
static void *place(arena *a, bool measures, size_t bytes)
{
    size_t rounded;
    WEIR_ASSERT(weir_align_size(&rounded, bytes, 64) && weir_add_size(&a->used, a->used, rounded));
    if (measures) return NULL;
    WEIR_ASSERT(a->used <= a->bytes);
    return a->memory + a->used - rounded;
}

/* An array that the kernel alone reads or writes, and that is the host's. */
static void *bring(weir_marshaller *h, const void *array, size_t bytes, direction way)
{
    void *const there = place(&h->near, h->measures, bytes);
    if (way != IN) {
        h->n_backs++;
        if (!h->measures)
            h->backs[h->n_backs - 1] = (way_back){ (void *)(uintptr_t)array, there, bytes };
    }
    /* OUT: ops may leave parts alone. */
    if (!h->measures) weir_device_copy(h->device, there, array, bytes);
    return there;
}

static bool is_there(const weir_marshaller *h, const void *array, size_t bytes)
{
    return array == NULL || bytes == 0 || (!h->plans && weir_device_owns(h->device, array));
}

/* One that is the device's in a step. */
static void *data(weir_marshaller *h, const void *array, size_t bytes, direction way)
{
    return h->plans || is_there(h, array, bytes) ? (void *)(uintptr_t)array
                                                 : bring(h, array, bytes, way);
}

static size_t floats(int64_t rows, int64_t stride, int64_t width)
{
    return rows > 0 ? (size_t)((rows - 1) * stride + width) * sizeof(float) : 0;
}

static float *rows_of(weir_marshaller *h, const float *array, int64_t rows, int64_t stride,
                      int64_t width, direction way)
{
    return data(h, array, floats(rows, stride, width), way);
}

/* Rows that policies have on the host. What is planned is planned at full depth: there rows lie as
 * densely as they ever do. */
static float *host_rows(weir_marshaller *h, const float *array, int64_t rows, int64_t stride,
                        int64_t width, direction way)
{
    const size_t bytes = floats(rows, h->plans ? width : stride, width);
    return is_there(h, array, bytes) ? (float *)(uintptr_t)array : bring(h, array, bytes, way);
}

/* A list that the host reads, too. */
static void *list(weir_marshaller *h, const void *array, size_t bytes)
{
    if ((array == NULL && !h->plans) || bytes == 0) return NULL;
    void *const there = place(&h->ring, h->measures, bytes);
    if (!h->measures) memcpy(there, array, bytes);
    return there;
}

/* Entries of a table: there is room for the first `end` of each head, and those from `first` on are
 * filled in, which the op looks at. */
typedef struct entries {
    int64_t first, end;
} entries;

/* `used` of `stride` entries of each head, side by side. Pages in the device's address space become
 * what lies behind them, NULL where nothing does: of the pages of a table the op reads or writes
 * some, and those are there. */
static void *const *table(weir_marshaller *h, void *const *pages, int64_t n_heads, int64_t stride,
                          entries used)
{
    if ((pages == NULL && !h->plans) || used.end <= 0) return NULL;
    void **const there = place(&h->ring, h->measures, (size_t)(n_heads * used.end) * sizeof *there);
    for (int64_t i = 0; !h->measures && i < n_heads; i++)
        for (int64_t page = used.first; page < used.end; page++)
            there[i * used.end + page] = weir_device_resolve(h->device, pages[i * stride + page]);
    return there;
}

static void must_own(weir_marshaller *h, const void *array)
{
    if (array != NULL && !h->measures && !weir_device_owns(h->device, array)) h->is_wrong = true;
}

/* ---- segments -------------------------------------------------------------------------------- */
static int64_t pages_for(int64_t rows) { return (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS; }

/* Pages that all rows of a segment see, and those that its own rows are in. */
static entries seen_pages(const weir_kv_segment *s)
{
    return (entries){ 0, pages_for((int64_t)s->n_past + s->n_rows) };
}
static entries own_pages(const weir_kv_segment *s)
{
    return (entries){ s->n_past / WEIR_PAGE_TOKENS, seen_pages(s).end };
}

/* Query heads for each KV head: 0 where there are no logits. */
static void kv_segment(weir_marshaller *h, weir_kv_segment *s, int64_t n_kv_heads, int64_t group,
                       direction logits, entries used)
{
    const int64_t heads = weir_kv_segment_heads(s, n_kv_heads);
    const entries own = own_pages(s), open = { 0, own.end - own.first };
    s->pages = table(h, s->pages, heads, s->page_stride, used);
    s->page_stride = used.end;
    s->open_pages = table(h, s->open_pages, heads, s->open_stride, open);
    s->open_stride = open.end;
    s->logits = host_rows(h, s->logits, heads * group, s->logits_stride,
                          (int64_t)s->n_past + s->n_rows, logits);
}

static int64_t last_row(int64_t so_far, int32_t first_row, int32_t n_rows)
{
    const int64_t end = (int64_t)first_row + n_rows;
    return end > so_far ? end : so_far;
}

static const weir_kv_segment *kv_segments(weir_marshaller *h, const weir_kv_segment *segments,
                                          int64_t n, int64_t n_kv_heads, int64_t *n_rows)
{
    weir_kv_segment *const there = list(h, segments, (size_t)n * sizeof *segments);
    *n_rows = 0;
    for (int64_t i = 0; i < n; i++) {
        weir_kv_segment s = segments[i];
        *n_rows = last_row(*n_rows, s.first_row, s.n_rows);
        kv_segment(h, &s, n_kv_heads, 0, BOTH, own_pages(&s));
        if (!h->measures) there[i] = s;
    }
    return there;
}

static const weir_recurrent_segment *
recurrent_segments(weir_marshaller *h, const weir_recurrent_segment *segments, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        must_own(h, segments[i].conv_history);
        must_own(h, segments[i].state);
    }
    return list(h, segments, (size_t)n * sizeof *segments);
}

/* ---- ops ------------------------------------------------------------------------------------- */
static void rope(weir_marshaller *h, weir_rope_args *a)
{
    a->x = rows_of(h, a->x, a->n_rows, a->row_stride,
                   (a->n_heads - 1) * a->head_stride + a->rotary_dim, BOTH);
    a->positions = data(h, a->positions, (size_t)a->n_rows * sizeof *a->positions, IN);
    a->frequencies =
        data(h, a->frequencies, (size_t)(a->rotary_dim / 2) * sizeof *a->frequencies, IN);
}

static void kv_write(weir_marshaller *h, weir_kv_write_args *a)
{
    int64_t n;
    a->segments = kv_segments(h, a->segments, a->n_segments, a->n_kv_heads, &n);
    a->k = rows_of(h, a->k, n, a->k_stride, a->n_kv_heads * a->key_dim, IN);
    a->v = rows_of(h, a->v, n, a->v_stride, a->n_kv_heads * a->value_dim, IN);
}

static void kv_read(weir_marshaller *h, weir_kv_read_args *a)
{
    int64_t n;
    a->segments = kv_segments(h, a->segments, a->n_segments, a->n_kv_heads, &n);
    a->k = host_rows(h, a->k, n, a->k_stride, a->n_kv_heads * a->key_dim, OUT);
    a->v = host_rows(h, a->v, n, a->v_stride, a->n_kv_heads * a->value_dim, OUT);
}

/* Entries of the tables that rows come from or go to. */
static int64_t pages_moved(const weir_kv_compact_segment *s, int64_t n_kv_heads)
{
    int64_t most = 0;
    for (int64_t g = 0; g < n_kv_heads; g++) {
        const int64_t n = s->n_keep[g], last = n > 0 ? s->keep[g * s->keep_stride + n - 1] : -1,
                      end = last > n - 1 ? last : n - 1;
        if (end / WEIR_PAGE_TOKENS + 1 > most && n > 0) most = end / WEIR_PAGE_TOKENS + 1;
    }
    return most;
}

static void kv_compact(weir_marshaller *h, weir_kv_compact_args *a)
{
    const weir_kv_compact_segment *const from = a->segments;
    weir_kv_compact_segment *const there = list(h, from, (size_t)a->n_segments * sizeof *from);
    for (int64_t i = 0; i < a->n_segments; i++) {
        weir_kv_compact_segment s = from[i];
        const int64_t           n_pages =
            h->plans ? pages_for(s.keep_stride) : pages_moved(&s, a->n_kv_heads);
        s.pages = table(h, s.pages, a->n_kv_heads, s.page_stride, (entries){ 0, n_pages });
        s.page_stride = n_pages;
        int64_t most = h->plans ? s.keep_stride : 0;
        for (int64_t g = 0; !h->plans && g < a->n_kv_heads; g++)
            most = s.n_keep[g] > most ? s.n_keep[g] : most;
        s.keep =
            list(h, s.keep, (size_t)((a->n_kv_heads - 1) * s.keep_stride + most) * sizeof *s.keep);
        s.n_keep = list(h, s.n_keep, (size_t)a->n_kv_heads * sizeof *s.n_keep);
        s.first = list(h, s.first, (size_t)a->n_kv_heads * sizeof *s.first);
        if (!h->measures) there[i] = s;
    }
    a->segments = there;
}

static void key_products(weir_marshaller *h, weir_key_products_args *a)
{
    const int64_t n_rows = a->rows->n_rows;
    int64_t       end;
    a->rows = kv_segments(h, a->rows, 1, 1, &end);
    a->vectors = host_rows(h, a->vectors, a->n_vectors, a->key_dim, a->key_dim, IN);
    a->lengths = host_rows(h, a->lengths, a->n_vectors, a->n_pairs, a->n_pairs, IN);
    a->out = host_rows(h, a->out, a->n_vectors, a->out_stride, n_rows, OUT);
}

static void attention(weir_marshaller *h, weir_attention_args *a)
{
    enum { SPLIT_PAGES = WEIR_ATTENTION_SPLIT / WEIR_PAGE_TOKENS };
    const weir_kv_segment *const from = a->segments;
    weir_kv_segment *const       there = list(h, from, (size_t)a->n_segments * sizeof *from);
    for (int64_t i = 0; i < a->n_segments; i++) {
        weir_kv_segment s = from[i];
        entries         used = seen_pages(&s);
        if (a->partials != NULL) used.first = (int64_t)a->first_split * SPLIT_PAGES;
        if (a->partials != NULL && (int64_t)a->end_split * SPLIT_PAGES < used.end)
            used.end = (int64_t)a->end_split * SPLIT_PAGES;
        kv_segment(h, &s, a->n_kv_heads, a->n_heads / a->n_kv_heads, BOTH, used);
        if (!h->measures) there[i] = s;
    }
    a->segments = there;
    must_own(h, a->q);
    must_own(h, a->out);
    must_own(h, a->lse);
    must_own(h, a->partials);
}

static void attention_mass(weir_marshaller *h, weir_attention_mass_args *a)
{
    const weir_attention_mass_segment *const from = a->segments;
    weir_attention_mass_segment *const there = list(h, from, (size_t)a->n_segments * sizeof *from);
    const int64_t                      group = a->n_heads / a->n_kv_heads;
    for (int64_t i = 0; i < a->n_segments; i++) {
        weir_attention_mass_segment s = from[i];
        const int64_t               queries = weir_kv_segment_heads(&s.rows, a->n_kv_heads) * group;
        const entries               used = { s.first_slot / WEIR_PAGE_TOKENS,
                                             pages_for(weir_attention_mass_end(&from[i])) };
        kv_segment(h, &s.rows, a->n_kv_heads, group, IN, used);
        s.mass = host_rows(h, s.mass, queries, s.stride, weir_attention_mass_end(&from[i]), BOTH);
        s.below = host_rows(h, s.below, queries, s.stride, weir_attention_mass_end(&from[i]), BOTH);
        s.last = host_rows(h, s.last, queries, s.stride, weir_attention_mass_end(&from[i]), BOTH);
        if (!h->measures) there[i] = s;
    }
    a->segments = there;
    must_own(h, a->q);
    must_own(h, a->lse);
}

/* Of ops without lists: all their arrays are the step's own. */
static void rows_only(weir_marshaller *h, weir_op op, const void *args)
{
#define OWN(...)                                                                                   \
    do {                                                                                           \
        const void *const arrays[] = { __VA_ARGS__ };                                              \
        for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) must_own(h, arrays[i]);      \
    } while (0)
    switch (op) {
    case WEIR_OP_RMSNORM: {
        const weir_rmsnorm_args *const a = args;
        OWN(a->dst, a->src, a->weight, a->add);
        break;
    }
    case WEIR_OP_GATED_RMSNORM: {
        const weir_gated_rmsnorm_args *const a = args;
        OWN(a->dst, a->src, a->gate, a->weight);
        break;
    }
    case WEIR_OP_MATMUL: {
        const weir_matmul_args *const a = args;
        OWN(a->x);
        for (int32_t o = 0; o < a->n_outputs; o++)
            OWN(a->outputs[o].dst, a->outputs[o].bias, a->outputs[o].weight->data);
        break;
    }
    case WEIR_OP_SWIGLU: {
        const weir_swiglu_args *const a = args;
        OWN(a->dst, a->gate, a->up);
        break;
    }
    case WEIR_OP_SIGMOID_GATE: {
        const weir_sigmoid_gate_args *const a = args;
        OWN(a->x, a->gate);
        break;
    }
    case WEIR_OP_ADD: {
        const weir_add_args *const a = args;
        OWN(a->dst, a->src);
        break;
    }
    case WEIR_OP_CODA_QUERIES: {
        const weir_coda_queries_args *const a = args;
        OWN(a->dst, a->q, a->theta);
        break;
    }
    case WEIR_OP_CODA_COMBINE: {
        const weir_coda_combine_args *const a = args;
        OWN(a->dst, a->src, a->lambda, a->bias, a->weight);
        break;
    }
    default: h->is_wrong = true; /* embed reads the file, coda_write a state: both are the host's */
    }
#undef OWN
}

#define WITH_LISTS(X)                                                                              \
    X(ROPE, rope)                                                                                  \
    X(KV_WRITE, kv_write)                                                                          \
    X(KV_READ, kv_read)                                                                            \
    X(KV_COMPACT, kv_compact)                                                                      \
    X(KEY_PRODUCTS, key_products) X(ATTENTION, attention) X(ATTENTION_MASS, attention_mass)

const void *marshal_args(weir_marshaller *h, weir_op op, const void *args)
{
    h->near.used = h->n_backs = 0;
    switch (op) {
#define X(name, field)                                                                             \
    case WEIR_OP_##name:                                                                           \
        memcpy(&h->args.field, args, sizeof h->args.field);                                        \
        field(h, &h->args.field);                                                                  \
        return &h->args.field;
        WITH_LISTS(X)
#undef X
    case WEIR_OP_CONV1D:
        memcpy(&h->args.conv1d, args, sizeof h->args.conv1d);
        h->args.conv1d.segments =
            recurrent_segments(h, h->args.conv1d.segments, h->args.conv1d.n_segments);
        return &h->args.conv1d;
    case WEIR_OP_GATED_DELTA_RULE:
        memcpy(&h->args.gated_delta_rule, args, sizeof h->args.gated_delta_rule);
        h->args.gated_delta_rule.segments = recurrent_segments(h, h->args.gated_delta_rule.segments,
                                                               h->args.gated_delta_rule.n_segments);
        return &h->args.gated_delta_rule;
    default: rows_only(h, op, args); return args;
    }
}
