/* engine/model/blocks/coda.c - CoDA-GQA-L (Maio 2026): differential attention over a memory of
 * fixed size per sequence: a ring, a bank of exact rows and one of prototypes (kernels/abi/coda.h,
 * docs/models/coda.md, docs/decisions/0022). Zeroed memory is a state without tokens. */
#include <math.h>
#include <string.h>

#include "engine/base/array_layout.h"
#include "engine/model/blocks/coda_gates.h"
#include "engine/model/blocks/coda_memory.h"
#include "engine/model/blocks/differential.h"
#include "engine/model/blocks/layer_ops.h"
#include "kernels/abi/minmax.h"

typedef struct weights {
    weir_differential differential;
    const weir_weight *write; /* [1, D]; NULL: zero */
    const float *write_bias, *rate_logits; /* [1] [G] */
} weights;

static const weir_coda_options *own(const void *options) { return options; }

WEIR_EXTENT(kv_heads, shape->n_kv_heads)
static double gate_bias(const void *options) { return own(options)->gate_bias; }
static bool learns_gates(const void *options)
{
    return own(options)->gate == WEIR_CODA_GATE_LEARNED;
}
static double rate_logit(const void *options) { return own(options)->rate_logit; }

static int64_t block_rows(const void *options) { return own(options)->block_rows; }

static const weir_parameter parameters[] = {
    WEIR_DIFFERENTIAL_PARAMETERS(weights, differential),
    { WEIR_MATRIX("coda.write", weights, write, weir_heads_one, weir_heads_model), .optional = true,
      .wanted = learns_gates },
    { WEIR_VECTOR("coda.write_bias", weights, write_bias, weir_heads_one), .optional = true,
      .wanted = learns_gates, .initial = gate_bias },
    { WEIR_VECTOR("coda.rate", weights, rate_logits, kv_heads), .optional = true,
      .initial = rate_logit },
    { 0 }
};

/* ---- one step of the model ------------------------------------------------------------------- */
/* All blocks and steps of the layer, and the scratch after the rows. */
typedef struct memory_pass {
    const weir_shape *shape;
    const void *options;
    const weir_step *step;
    weir_coda_layer layer;
    weir_differential_rows rows;
    float *gates, *rates; /* [n] [G] */
    weir_coda_segment *writes; /* [n_segments] */
    weir_kv_segment *reads; /* [n_segments] */
    /* [n_segments, G, pages of a state], or [G, pages of a state and of a block]. */
    void **table;
    char *pages; /* [G, pages of a block] */
    bool plans;
} memory_pass;

/* Pages after the state's whole ones that a block of this many rows needs. */
static int64_t block_pages(int64_t n_rows)
{
    return (n_rows + 2 * (WEIR_PAGE_TOKENS - 1)) / WEIR_PAGE_TOKENS;
}

static size_t lay_out(memory_pass *p, char *base, int64_t n_rows, int64_t n_segments)
{
    const weir_coda_state state = weir_coda_view(&p->layer, NULL);
    const int64_t heads = p->layer.n_kv_heads,
                  n_block = block_pages(weir_min(n_rows, own(p->options)->block_rows));
    weir_arrays scratch = { .base = base };
    (void)weir_arrays_place(
        &scratch, sizeof(float), weir_differential_elements(p->shape, p->options, n_rows)
    );
    WEIR_ARRAYS_PLACE(&scratch, p->gates, n_rows);
    WEIR_ARRAYS_PLACE(&scratch, p->rates, heads);
    WEIR_ARRAYS_PLACE(&scratch, p->writes, n_segments);
    WEIR_ARRAYS_PLACE(&scratch, p->reads, n_segments);
    WEIR_ARRAYS_PLACE(
        &scratch, p->table, heads * weir_max(n_segments * state.n_pages, state.n_pages + n_block)
    );
    p->pages = weir_arrays_place3(&scratch, (size_t)state.page_bytes, heads, n_block, 1);
    return scratch.bytes;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    memory_pass p = { .shape = shape,
                      .options = options,
                      .layer = weir_coda_layer_of(shape, options) };
    return (int64_t)((lay_out(&p, NULL, n_rows, n_segments) + sizeof(float) - 1) / sizeof(float));
}

static weir_status project_gates(const memory_pass *p, const weights *w)
{
    if (!learns_gates(p->options)) return WEIR_OK;
    if (w->write == NULL) {
        for (int64_t i = 0; !p->plans && i < p->step->n_rows; i++) p->gates[i] = w->write_bias[0];
        return WEIR_OK;
    }
    return weir_linear_outputs(
        p->step, 1, &(weir_linear_output){ p->gates, w->write, w->write_bias }, p->step->in.x
    );
}

static void find_gates(const memory_pass *p, const weir_coda_segment *segment)
{
    float *const level = weir_coda_memory_level(&p->layer, p->options, segment->state);
    const int64_t width = p->layer.n_kv_heads * p->layer.head_dim, first = segment->first_row;
    if (level == NULL) return;
    weir_gates_of_values(
        p->gates + first, level, p->rows.v + first * width, segment->n_rows, width,
        weir_coda_view(&p->layer, segment->state).head->position, p->layer.window
    );
}

static weir_status write_rows(const memory_pass *p, const weir_coda_segment *segments, int64_t n)
{
    const int64_t width = p->layer.n_kv_heads * p->layer.head_dim;
    for (int64_t i = 0; !p->plans && i < n; i++) find_gates(p, &segments[i]);
    return weir_coda_write(
        p->step->stream, &(weir_coda_write_args){ .k = p->rows.k,
                                                  .v = p->rows.v,
                                                  .gates = p->gates,
                                                  .layer = &p->layer,
                                                  .segments = segments,
                                                  .n_segments = n,
                                                  .k_stride = width,
                                                  .v_stride = width,
                                                  .gate_stride = 1 }
    );
}

static weir_status attend(const memory_pass *p, const weir_kv_segment *segments, int64_t n)
{
    weir_attention_args args = weir_differential_attention(p->shape, p->options, &p->rows);
    args.segments = segments;
    args.n_segments = n;
    args.k_format = args.v_format = p->layer.format;
    return weir_attention(p->step->stream, &args);
}

/* The state's full pages, then those of the block in pages of the step, the first of which begins
 * with the rest of the state: only the state's last page, if not full, is copied. */
static weir_kv_segment state_and_block(
    const memory_pass *p, const weir_coda_state *state, int64_t first, int64_t n
)
{
    const int64_t n_past = state->head->n_rows, whole = n_past / WEIR_PAGE_TOKENS;
    const int64_t n_pages = (n_past + n + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    char *page = p->pages;
    for (int64_t h = 0; h < p->layer.n_kv_heads; h++)
        for (int64_t i = 0; i < n_pages; i++) {
            char *const stored = state->pages + (h * state->n_pages + i) * state->page_bytes;
            p->table[h * n_pages + i] = i < whole ? stored : page;
            if (i < whole) continue;
            if (i == whole && n_past % WEIR_PAGE_TOKENS != 0)
                memcpy(page, stored, (size_t)state->page_bytes);
            /* Attention multiplies what follows the last row by zero. */
            else if (i + 1 == n_pages)
                memset(page, 0, (size_t)state->page_bytes);
            page += state->page_bytes;
        }
    return (weir_kv_segment){ .pages = p->table,
                              .page_stride = n_pages,
                              .first_row = (int32_t)first,
                              .n_rows = (int32_t)n,
                              .n_past = (int32_t)n_past,
                              .n_heads = (int32_t)p->layer.n_kv_heads };
}

/* A block of prompt rows: they attend to the whole memory and, causally, to each other; then they
 * are written together. Blocks end at multiples of block_rows of the sequence, so a prompt that is
 * cut there has the same bits. */
static weir_status run_block(const memory_pass *p, void *memory, int64_t first, int64_t n)
{
    const int64_t hd = p->layer.head_dim, width = p->layer.n_kv_heads * hd;
    const weir_coda_state state = weir_coda_view(&p->layer, memory);
    const weir_kv_segment rows = p->plans
                                     ? (weir_kv_segment){ .n_rows = (int32_t)n,
                                                          .n_past = (int32_t)state.n_slots,
                                                          .n_heads = (int32_t)p->layer.n_kv_heads }
                                     : state_and_block(p, &state, first, n);
    WEIR_TRY(weir_kv_write(
        p->step->stream, &(weir_kv_write_args){ .k = p->rows.k,
                                                .v = p->rows.v,
                                                .segments = &rows,
                                                .n_segments = 1,
                                                .n_kv_heads = p->layer.n_kv_heads,
                                                .key_dim = hd,
                                                .value_dim = hd,
                                                .k_stride = width,
                                                .v_stride = width,
                                                .k_format = p->layer.format,
                                                .v_format = p->layer.format }
    ));
    WEIR_TRY(attend(p, &rows, 1));
    return write_rows(
        p,
        &(weir_coda_segment){ .state = memory, .first_row = (int32_t)first, .n_rows = (int32_t)n },
        1
    );
}

/* Computes rows of one sequence up to a snapshot. */
static weir_status run_blocks(const memory_pass *p, const weir_recurrent_segment *segment)
{
    const int64_t each = own(p->options)->block_rows, end = segment->first_row + segment->n_rows;
    if (p->plans) return run_block(p, NULL, 0, weir_min(each, segment->n_rows));
    for (int64_t first = segment->first_row, n; first < end; first += n) {
        n = weir_min(each - p->step->in.positions[first] % each, end - first);
        WEIR_TRY(run_block(p, segment->state, first, n));
    }
    return WEIR_OK;
}

/* Computes steps [0, n) of p->writes, all sequences together: a row is written first, which may
 * move the oldest one from the ring to the banks, then it attends to the whole memory. */
static weir_status run_steps(const memory_pass *p, int64_t n)
{
    const int64_t heads = p->layer.n_kv_heads;
    if (n == 0) return WEIR_OK;
    WEIR_TRY(write_rows(p, p->writes, n));
    for (int64_t i = 0; i < n; i++) {
        const weir_coda_state state = weir_coda_view(&p->layer, p->writes[i].state);
        void **const table = p->table + i * heads * state.n_pages;
        for (int64_t page = 0; !p->plans && page < heads * state.n_pages; page++)
            table[page] = state.pages + page * state.page_bytes;
        p->reads[i] = (weir_kv_segment){ .pages = table,
                                         .page_stride = state.n_pages,
                                         .first_row = p->writes[i].first_row,
                                         .n_rows = 1,
                                         .n_past = p->plans ? (int32_t)state.n_slots - 1
                                                            : state.head->n_rows - 1,
                                         .n_heads = (int32_t)heads };
    }
    return attend(p, p->reads, n);
}

static weir_status run_round(const memory_pass *p, const weir_recurrent_round *round)
{
    int64_t n_steps = 0;
    for (int64_t i = 0; i < p->step->n_segments; i++) {
        const weir_recurrent_segment *const segment = &round->segments[i];
        const bool is_step = segment->n_rows == 1 && (p->plans || !p->step->in.is_prompt[i]);
        if (segment->n_rows == 0) continue;
        if (!p->plans) weir_coda_memory_begin(&p->layer, p->options, segment->state);
        if (is_step)
            p->writes[n_steps++] = (weir_coda_segment){ .state = segment->state,
                                                        .first_row = segment->first_row,
                                                        .n_rows = 1,
                                                        .is_step = true };
        if (!is_step || p->plans) WEIR_TRY(run_blocks(p, segment));
    }
    WEIR_TRY(run_steps(p, n_steps));
    for (int32_t c = 0; c < round->n_copies; c++)
        memcpy(round->copies[c].dst, round->copies[c].src, round->copies[c].bytes);
    return WEIR_OK;
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    memory_pass p = { .shape = shape,
                      .options = options,
                      .step = step,
                      .layer = weir_coda_layer_of(shape, options),
                      .rows = weir_differential_place(shape, options, step),
                      .plans = weir_stream_is_planning(step->stream) };
    (void)lay_out(&p, (char *)step->out.scratch, step->n_rows, step->n_segments);
    for (int64_t h = 0; !p.plans && h < shape->n_kv_heads; h++)
        p.rates[h] = 1.0f / (1.0f + expf(-w->rate_logits[h]));
    p.layer.rates = p.rates;
    WEIR_TRY(weir_differential_project(shape, options, &w->differential, step, &p.rows));
    WEIR_TRY(project_gates(&p, w));
    for (int64_t i = 0; i < step->in.n_rounds; i++) WEIR_TRY(run_round(&p, &step->in.rounds[i]));
    return weir_differential_out(shape, options, &w->differential, step, &p.rows);
}

const weir_block weir_block_coda = {
    .name = "coda",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = weir_heads_shapes,
    .weights_bytes = sizeof(weights),
    .options = weir_coda_option_table,
    .options_bytes = sizeof(weir_coda_options),
    /* The host reads and writes metadata together with the rows in every step. */
    .host_only = "this model has CoDA layers, which the CPU computes",
    .state = &weir_coda_state_ops,
    .scratch_elements = scratch_elements,
    .forward = forward,
    .check = weir_coda_options_check,
    .complete = weir_coda_options_complete,
    .reject = weir_coda_memory_reject,
    .block_rows = block_rows,
};
