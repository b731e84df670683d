#include "tests/unit/schedule/simulator/forward.h"

#include <stdio.h>
#include <string.h>

#include "engine/model/model.h"
#include "tests/unit/model/idle_block.h"
#include "tests/unit/schedule/simulator/machine.h"

/* ---- blocks ---------------------------------------------------------------------------------- */
static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    (void)options;
    return idle_kv(shape, SIM_DIM, 0.35355339f);
}

/* Only measured, when a workspace is opened. */
static weir_status forward(
    const weir_shape *shape, const void *options, const void *weights, const weir_step *step
)
{
    (void)shape, (void)options, (void)weights, (void)step;
    return WEIR_OK;
}

typedef struct sim_recurrent {
    uint32_t n_tokens, hash_low, hash_high, check, spare[4];
} sim_recurrent;

static int64_t state_elements(const weir_shape *shape, const void *options)
{
    (void)shape, (void)options;
    return sizeof(sim_recurrent) / sizeof(float);
}

static const weir_state_ops state = { .elements = state_elements };

const weir_block sim_kv = { .name = "sim_kv",
                            .kind = WEIR_BLOCK_MIXER,
                            .parameters = idle_parameters,
                            .shapes = idle_kv_shapes,
                            .host_only = "it computes nothing",
                            .kv = kv,
                            .scratch_elements = idle_scratch_elements,
                            .forward = forward };

const weir_block sim_state = { .name = "sim_state",
                               .kind = WEIR_BLOCK_MIXER,
                               .parameters = idle_parameters,
                               .shapes = idle_no_shapes,
                               .host_only = "it computes nothing",
                               .state = &state,
                               .scratch_elements = idle_scratch_elements,
                               .forward = forward };

const weir_block sim_ffn = { .name = "sim_ffn",
                             .kind = WEIR_BLOCK_FFN,
                             .parameters = idle_parameters,
                             .shapes = idle_no_shapes,
                             .scratch_elements = idle_scratch_elements,
                             .forward = forward };

/* ---- sequences ------------------------------------------------------------------------------- */
uint64_t sim_hash(uint64_t hash, int32_t token)
{
    uint64_t x = (hash + (uint64_t)(uint32_t)token + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return x ^ x >> 32;
}

void sim_logits(float *logits, uint64_t hash, int32_t last)
{
    const int32_t usual = (last * 5 + 3) % SIM_VOCAB;
    const bool is_usual = (hash >> 8) % 4 != 0 && usual != SIM_STOP;
    for (int i = 0; i < SIM_VOCAB; i++) logits[i] = -20.0f;
    logits[hash >> 20 & (SIM_VOCAB - 1)] = 1.0f;
    logits[is_usual ? (uint64_t)usual : hash >> 40 & (SIM_VOCAB - 1)] = 2.0f;
}

/* ---- defects --------------------------------------------------------------------------------- */
static struct {
    char defect[240];
    bool fails_next;
    int depth; /* of passes that run: one may run while another waits for a block */
    struct {
        float logits[SIM_ROWS][SIM_VOCAB];
        uint64_t hashes[SIM_ROWS]; /* after each row of the step */
    } passes[2];
} sim;

#define PASS (sim.passes[sim.depth - 1])

const char *sim_forward_defect(void) { return sim.defect[0] != '\0' ? sim.defect : NULL; }
void sim_forward_reset(void)
{
    sim.defect[0] = '\0';
    sim.fails_next = false;
    sim.depth = 0;
}
void sim_forward_fail(void) { sim.fails_next = true; }

static void (*when_step_runs)(void *user);
static void *when_user;

void sim_when_step_runs(void (*function)(void *user), void *user)
{
    when_step_runs = function;
    when_user = user;
}

#define DEFECT(...)                                                                                \
    do {                                                                                           \
        if (sim.defect[0] == '\0') (void)snprintf(sim.defect, sizeof sim.defect, __VA_ARGS__);     \
    } while (0)

/* ---- rows ------------------------------------------------------------------------------------ */
typedef struct sim_row { /* as V; K has `place` and `check` */
    uint32_t place; /* position + 1 */
    uint32_t head, token, hash_low, hash_high, check, spare[2];
} sim_row;

_Static_assert(sizeof(sim_row) == SIM_DIM * sizeof(float), "a row is a row of V");

static uint32_t check_of(const sim_row *row)
{
    return row->place * 31 + row->head * 7 + row->token + row->hash_low * 3 + row->hash_high;
}

static sim_row row_of(int64_t head, int64_t position, int32_t token, uint64_t hash)
{
    sim_row row = { .place = (uint32_t)position + 1,
                    .head = (uint32_t)head,
                    .token = (uint32_t)token,
                    .hash_low = (uint32_t)hash,
                    .hash_high = (uint32_t)(hash >> 32) };
    row.check = check_of(&row);
    return row;
}
static uint64_t hash_of(const sim_row *row)
{
    return (uint64_t)row->hash_high << 32 | row->hash_low;
}

static void put(void *page, int64_t slot, const sim_row *row)
{
    float *const at = page;
    memcpy(at + weir_page_v(slot, SIM_DIM, SIM_DIM), row, sizeof *row);
    memcpy(at + weir_page_k(slot, 0, SIM_DIM), &row->place, sizeof row->place);
    memcpy(at + weir_page_k(slot, SIM_DIM - 1, SIM_DIM), &row->check, sizeof row->check);
}

/* False: K and V are not of one row. */
static bool get(const void *page, int64_t slot, sim_row *row)
{
    const float *const at = page;
    uint32_t place, check;
    memcpy(row, at + weir_page_v(slot, SIM_DIM, SIM_DIM), sizeof *row);
    memcpy(&place, at + weir_page_k(slot, 0, SIM_DIM), sizeof place);
    memcpy(&check, at + weir_page_k(slot, SIM_DIM - 1, SIM_DIM), sizeof check);
    return place == row->place && check == row->check;
}

/* What is known of a head's rows while they are read in order. */
typedef struct reading {
    int64_t head, next; /* position after the last row */
    uint64_t hash; /* of the sequence up to there */
    bool is_lost; /* the last row was not read: its page could not be */
} reading;

/* Checks one row. Pages that cannot be read are zero for attention. */
static void read_row(reading *r, const void *page, int64_t slot, bool is_whole, bool may_be_lost)
{
    sim_row row;
    const bool is_one = get(page, slot % WEIR_PAGE_TOKENS, &row) && row.check == check_of(&row) &&
                        (row.spare[0] | row.spare[1]) == 0;
    const uint32_t bits = row.place | row.head | row.token | row.hash_low | row.hash_high;
    if (may_be_lost && is_one && bits == 0) {
        r->next++;
        r->is_lost = true;
        return;
    }
    const int64_t position = (int64_t)row.place - 1;
    const uint64_t hash = hash_of(&row);
    const bool is_next = position == r->next;
    if (!is_one)
        DEFECT("head %d, slot %d: no row, or parts of two", (int)r->head, (int)slot);
    else if (row.head != (uint32_t)r->head)
        DEFECT("head %d, slot %d: a row of head %d", (int)r->head, (int)slot, (int)row.head);
    else if (is_whole ? !is_next : position < r->next)
        DEFECT("head %d, slot %d: the row of position %d", (int)r->head, (int)slot, (int)position);
    else if (is_next && !r->is_lost && hash != sim_hash(r->hash, (int32_t)row.token))
        DEFECT("head %d, position %d: the row of another sequence", (int)r->head, (int)position);
    *r = (reading){ .head = r->head, .next = position + 1, .hash = hash };
}

/* The rows of a head before the step. pages: those of the head. */
static void read_head(
    reading *r, void *const *pages, int64_t first, int64_t end, bool is_whole, bool may_be_lost
)
{
    for (int64_t slot = first; slot < end && sim.defect[0] == '\0'; slot++)
        read_row(r, pages[slot / WEIR_PAGE_TOKENS], slot, is_whole, may_be_lost);
}

/* Reads the past rows of a segment in a layer. heads [KV heads of the layer]. */
static void read_segment(
    const weir_batch *batch, int32_t index, int64_t layer, const weir_kv_geometry *g, reading *heads
)
{
    const weir_batch_segment *const s = &batch->segments[index];
    const weir_kv_source *const source = batch->source;
    const bool is_cold = source != NULL && source->is_cold(source->user, layer, index);
    for (int64_t h = 0; h < g->n_heads; h++) heads[h] = (reading){ .head = g->first_head + h };
    if (!is_cold) {
        for (int64_t h = 0; h < g->n_heads; h++) {
            const int64_t at = g->first_head + h;
            read_head(
                &heads[h], s->pages + at * s->page_stride, 0,
                s->head_rows != NULL ? s->head_rows[at] : s->n_past, s->head_rows == NULL, false
            );
        }
        return;
    }
    for (bool is_last = false; !is_last;) {
        weir_kv_range range;
        source->take(source->user, layer, index, &range);
        const int64_t first = (int64_t)range.first_split * WEIR_ATTENTION_SPLIT,
                      past = (int64_t)range.end_split * WEIR_ATTENTION_SPLIT,
                      end = past < s->n_past ? past : s->n_past;
        for (int64_t h = 0; h < g->n_heads; h++)
            read_head(&heads[h], range.pages + h * range.page_stride, first, end, true, true);
        is_last = range.is_last;
        source->give(source->user);
    }
}

/* Writes the step's rows of a head. first_is_lost: so are the rows of the first head, which says
 * what the others must be. */
static void write_head(
    const weir_batch *batch, const weir_batch_segment *s, const reading *past, bool is_first,
    bool first_is_lost
)
{
    void *const *const pages = s->pages + past->head * s->page_stride;
    const int64_t rows = s->head_rows != NULL ? s->head_rows[past->head] : s->n_past;
    uint64_t hash = past->hash;
    for (int32_t i = 0; i < s->n_rows; i++) {
        const int64_t slot = rows + i;
        const int32_t token = batch->tokens[s->first_row + i];
        hash = past->is_lost ? 0 : sim_hash(hash, token);
        const sim_row row = row_of(past->head, s->n_past + i, token, hash);
        put(pages[slot / WEIR_PAGE_TOKENS], slot % WEIR_PAGE_TOKENS, &row);
        if (is_first)
            PASS.hashes[s->first_row + i] = hash;
        else if (hash != PASS.hashes[s->first_row + i] && !past->is_lost && !first_is_lost)
            DEFECT("head %d: its rows are those of another sequence", (int)past->head);
    }
}

/* ---- recurrent states ------------------------------------------------------------------------ */
static sim_recurrent state_after(int64_t n_tokens, uint64_t hash)
{
    sim_recurrent out = { .n_tokens = (uint32_t)n_tokens,
                          .hash_low = (uint32_t)hash,
                          .hash_high = (uint32_t)(hash >> 32) };
    out.check = out.n_tokens * 31 + out.hash_low * 3 + out.hash_high;
    return out;
}

/* Of a segment: `past`: the hash of what was computed before. */
static void run_state(
    const weir_model *model, const weir_batch_segment *s, int64_t layer, uint64_t past
)
{
    float *const at = s->recurrent + weir_model_layer_memory(model, layer).state_offset;
    const sim_recurrent expected =
        s->n_past > 0 ? state_after(s->n_past, past) : (sim_recurrent){ 0 };
    sim_recurrent now;
    int32_t n = 0;
    memcpy(&now, at, sizeof now);
    if (memcmp(&now, &expected, sizeof now) != 0)
        DEFECT(
            "a sequence of %d tokens continues a state of %d tokens, or of another sequence",
            (int)s->n_past, (int)now.n_tokens
        );
    for (int32_t i = 0; i < s->n_rows; i++) {
        const sim_recurrent next = state_after(s->n_past + i + 1, PASS.hashes[s->first_row + i]);
        memcpy(at, &next, sizeof next);
        for (; n < s->n_snapshots && s->snapshots[n].after == i + 1; n++)
            memcpy(s->snapshots[n].dst, s->recurrent, weir_model_recurrent_bytes(model));
    }
    if (n < s->n_snapshots) DEFECT("a snapshot after a row that the step does not have");
}

/* ---- the pass -------------------------------------------------------------------------------- */
enum { HEADS = 8 };

static weir_status run_pass(
    const weir_model *model, const weir_batch *batch, const float **logits, weir_error *error
)
{
    const weir_kv_geometry *const geometry = weir_model_kv_geometry(model);
    reading past[SIM_ROWS] = { 0 }; /* of the first head, by segment */
    reading heads[HEADS];
    WEIR_ASSERT(batch->n_rows <= SIM_ROWS && batch->n_logits <= SIM_ROWS);
    for (int64_t layer = 0; layer < weir_model_kv_layers(model); layer++) {
        const weir_kv_geometry *const g = &geometry[layer];
        WEIR_ASSERT(g->n_heads <= HEADS);
        for (int32_t i = 0; i < batch->n_segments; i++) {
            read_segment(batch, i, layer, g, heads);
            if (layer == 0) past[i] = heads[0];
            const weir_attention_watch *const watch = batch->segments[i].watch;
            if (watch != NULL) watch->seen(watch->user, layer, NULL, 0, 0);
            for (int64_t h = 0; h < g->n_heads; h++)
                write_head(
                    batch, &batch->segments[i], &heads[h], layer == 0 && h == 0, past[i].is_lost
                );
        }
    }
    for (int64_t layer = 0; layer < weir_model_shape(model)->n_layers; layer++)
        for (int32_t i = 0; i < batch->n_segments; i++)
            if (weir_model_layer_memory(model, layer).has_state && !past[i].is_lost)
                run_state(model, &batch->segments[i], layer, past[i].hash);
    for (int32_t i = 0; i < batch->n_logits; i++)
        sim_logits(
            PASS.logits[i], PASS.hashes[batch->logit_rows[i]], batch->tokens[batch->logit_rows[i]]
        );
    *logits = PASS.logits[0];
    if (!sim.fails_next) return WEIR_OK;
    sim.fails_next = false;
    return weir_error_set(error, WEIR_EDEVICE, "the simulated forward pass fails");
}

weir_status weir_model_forward(
    const weir_model *model, weir_workspace *workspace, const weir_batch *batch,
    const float **logits, weir_error *error
)
{
    (void)workspace;
    WEIR_ASSERT(sim.depth < 2);
    if (when_step_runs != NULL) when_step_runs(when_user);
    if (++sim.depth == 2) {
        sim_reader_run(); /* the other one does not wait for ever */
        sim_clock_add(200000); /* the disk may wait meanwhile */
    }
    const weir_status status = run_pass(model, batch, logits, error);
    sim.depth--;
    return status;
}
