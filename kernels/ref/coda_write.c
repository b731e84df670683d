/* kernels/ref/coda_write.c - writes rows to the ring of CoDA-GQA-L, and those that leave it to the
 * banks (coda_exact.c, coda_summary.c). */
#include "kernels/abi/minmax.h"
#include "kernels/ref/coda_bank.h"

/* ---- scratch --------------------------------------------------------------------------------- */
typedef struct cursor {
    char *base; /* NULL: only measures */
    size_t at;
} cursor;

static void *place(cursor *c, int64_t n, size_t size)
{
    void *const here = c->base ? c->base + c->at : NULL;
    c->at = (c->at + (size_t)n * size + 63) / 64 * 64;
    return here;
}

static coda_candidates place_candidates(cursor *c, int64_t n, int64_t n_values)
{
    coda_candidates out = { 0 };
    out.k = place(c, n * n_values, sizeof *out.k);
    out.v = place(c, n * n_values, sizeof *out.v);
    out.gates = place(c, n, sizeof *out.gates);
    out.positions = place(c, n, sizeof *out.positions);
    return out;
}

/* Lays out memory for writes of up to n_rows; base NULL: only the size. */
static size_t lay_out(coda_bank *bank, char *base, int64_t n_rows)
{
    const weir_coda_layer *const layer = bank->layer;
    const int64_t n_exact = weir_max(weir_min(layer->exact_candidates, n_rows), 1);
    const int64_t n_summary = weir_max(weir_min(layer->summary_candidates, n_rows), 1);
    cursor c = { base, 0 };
    bank->exact = place_candidates(&c, n_exact, bank->n_values);
    bank->summary = place_candidates(&c, n_summary, bank->n_values);
    bank->choices = place(&c, weir_max(n_rows, layer->n_exact), sizeof *bank->choices);
    bank->ring = place(&c, layer->window, sizeof *bank->ring);
    bank->pool = place(&c, layer->window, sizeof *bank->pool);
    bank->ring_gates = place(&c, layer->window, sizeof *bank->ring_gates);
    bank->old_k = place(&c, bank->n_values, sizeof *bank->old_k);
    bank->old_v = place(&c, bank->n_values, sizeof *bank->old_v);
    bank->sum_k = place(&c, bank->n_values, sizeof *bank->sum_k);
    bank->sum_v = place(&c, bank->n_values, sizeof *bank->sum_v);
    bank->mean_k = place(&c, bank->n_values, sizeof *bank->mean_k);
    bank->mean_v = place(&c, bank->n_values, sizeof *bank->mean_v);
    bank->slot_of = place(&c, weir_max(n_exact, n_summary), sizeof *bank->slot_of);
    bank->writes = place(&c, n_exact, sizeof *bank->writes);
    return c.at;
}

static size_t scratch(const void *op_args)
{
    const weir_coda_write_args *const args = op_args;
    int64_t n_rows = 1;
    if (!weir_coda_write_is_whole(args)) return 0;
    coda_bank bank = { .layer = args->layer,
                       .n_values = args->layer->n_kv_heads * args->layer->head_dim };
    for (int64_t s = 0; s < args->n_segments; s++)
        n_rows = weir_max(n_rows, args->segments[s].n_rows);
    return lay_out(&bank, NULL, n_rows);
}

/* ---- rows ------------------------------------------------------------------------------------ */
typedef struct new_rows {
    const weir_coda_write_args *args;
    int64_t first, n;
} new_rows;

static float gate_of(const new_rows *in, int64_t i)
{
    return in->args->layer->is_gated
               ? weir_coda_gate(in->args->gates[(in->first + i) * in->args->gate_stride])
               : 1.0f;
}

static void put_new(coda_bank *bank, const new_rows *in, int64_t i, int32_t row)
{
    weir_coda_put(
        bank->layer, &bank->state, WEIR_KV_K, row,
        in->args->k + (in->first + i) * in->args->k_stride
    );
    weir_coda_put(
        bank->layer, &bank->state, WEIR_KV_V, row,
        in->args->v + (in->first + i) * in->args->v_stride
    );
}

/* Copies the rows of the ring in order of time to bank->ring, their gates to ring_gates. */
static void list_ring(coda_bank *bank)
{
    const weir_coda_head *const head = bank->state.head;
    for (int64_t i = 0; i < head->n_recent; i++) {
        const int64_t slot = (head->first_recent + i) % bank->layer->window;
        bank->ring[i] = bank->state.rows[slot];
        bank->ring_gates[i] = bank->state.gates[slot];
    }
}

/* ---- candidates ------------------------------------------------------------------------------ */
/* Takes row i of those that leave: first of the ring, then of the new ones. */
static void take(coda_bank *bank, const new_rows *in, coda_candidates *to, int64_t i)
{
    const int64_t n_recent = bank->state.head->n_recent, c = to->n++;
    float *const k = to->k + c * bank->n_values, *const v = to->v + c * bank->n_values;
    to->positions[c] = bank->state.head->position - n_recent + i;
    if (i < n_recent) {
        weir_coda_read(bank->layer, &bank->state, WEIR_KV_K, bank->ring[i], k);
        weir_coda_read(bank->layer, &bank->state, WEIR_KV_V, bank->ring[i], v);
        to->gates[c] = bank->ring_gates[i];
        return;
    }
    const int64_t row = in->first + i - n_recent;
    memcpy(k, in->args->k + row * in->args->k_stride, (size_t)bank->n_values * sizeof *k);
    memcpy(v, in->args->v + row * in->args->v_stride, (size_t)bank->n_values * sizeof *v);
    to->gates[c] = gate_of(in, i - n_recent);
}

static void choose(coda_bank *bank, const new_rows *in, int64_t n_leaving, int64_t n)
{
    for (int64_t i = 0; i < n_leaving; i++) {
        const float gate = i < bank->state.head->n_recent
                               ? bank->ring_gates[i]
                               : gate_of(in, i - bank->state.head->n_recent);
        bank->choices[i] = (weir_coda_choice){ weir_coda_gate_key(gate), (int32_t)i };
    }
    if (bank->layer->is_compat)
        weir_coda_find(bank->choices, n_leaving, n, false);
    else
        weir_coda_choose(bank->choices, n_leaving, n);
}

/* Candidates are those with the largest gates. In compat mode the banks share one choice, whose
 * order is not that of the gates. */
static void find_candidates(coda_bank *bank, const new_rows *in, int64_t n_leaving)
{
    const weir_coda_layer *const layer = bank->layer;
    const int64_t n_exact = layer->n_exact > 0 ? weir_min(layer->exact_candidates, n_leaving) : 0;
    const int64_t n_summary =
        layer->n_summary > 0 ? weir_min(layer->summary_candidates, n_leaving) : 0;
    bank->exact.n = bank->summary.n = 0;
    if (n_exact == 0 && n_summary == 0) return;
    choose(bank, in, n_leaving, weir_max(n_exact, n_summary));
    for (int64_t i = 0; i < n_exact; i++) take(bank, in, &bank->exact, bank->choices[i].index);
    for (int64_t i = 0; i < n_summary; i++) take(bank, in, &bank->summary, bank->choices[i].index);
}

/* ---- writes ---------------------------------------------------------------------------------- */
static void step(coda_bank *bank, const new_rows *in)
{
    const weir_coda_layer *const layer = bank->layer;
    weir_coda_head *const head = bank->state.head;
    int64_t slot = head->n_recent;
    if (head->n_recent < layer->window) {
        weir_coda_use(layer, &bank->state, head->n_recent++);
    } else {
        list_ring(bank);
        slot = head->first_recent;
        coda_count(bank, WEIR_CODA_EVICTIONS, 1);
        bank->exact.n = bank->summary.n = 0;
        take(bank, in, &bank->exact, 0);
        take(bank, in, &bank->summary, 0);
        if (layer->n_exact > 0) coda_exact_step(bank);
        if (layer->n_summary > 0) coda_summary_step(bank);
        head->first_recent = (int32_t)((slot + 1) % layer->window);
    }
    put_new(bank, in, 0, bank->state.rows[slot]);
    bank->state.gates[slot] = gate_of(in, 0);
    head->position++;
}

/* The ring becomes the last rows of old and new, the oldest in slot 0. Rows that stay keep their
 * place in the pages; new rows take the places of those that left. */
static void refill(coda_bank *bank, const new_rows *in, int64_t n_leaving, int64_t n_kept)
{
    weir_coda_head *const head = bank->state.head;
    const int64_t n_old = head->n_recent, n_left = weir_min(n_leaving, n_old);
    for (int64_t slot = n_old; slot < n_kept; slot++)
        weir_coda_use(bank->layer, &bank->state, slot);
    for (int64_t i = 0; i < n_left; i++) bank->pool[i] = bank->ring[i];
    for (int64_t i = n_old; i < n_kept; i++) bank->pool[n_left + i - n_old] = bank->state.rows[i];
    int64_t n_selected = 0;
    for (int64_t slot = 0; slot < n_kept; slot++) {
        const int64_t i = n_leaving + slot; /* of old and new */
        bank->state.rows[slot] = i < n_old ? bank->ring[i] : bank->pool[n_selected++];
        bank->state.gates[slot] = i < n_old ? bank->ring_gates[i] : gate_of(in, i - n_old);
        if (i >= n_old) put_new(bank, in, i - n_old, bank->state.rows[slot]);
    }
    head->n_recent = (int32_t)n_kept;
    head->first_recent = 0;
    head->position += in->n;
}

static void block(coda_bank *bank, const new_rows *in)
{
    const int64_t total = bank->state.head->n_recent + in->n,
                  n_kept = weir_min(total, bank->layer->window), n_leaving = total - n_kept;
    list_ring(bank);
    coda_count(bank, WEIR_CODA_EVICTIONS, n_leaving);
    if (n_leaving > 0) {
        find_candidates(bank, in, n_leaving);
        if (bank->exact.n > 0) coda_exact_block(bank);
        if (bank->summary.n > 0) coda_summary_block(bank);
    }
    refill(bank, in, n_leaving, n_kept);
}

static weir_status weir_k_ref_coda_write(const weir_kernel_context *context, const void *op_args)
{
    const weir_coda_write_args *const args = op_args;
    if (!weir_coda_write_is_whole(args)) return WEIR_EINVAL;
    if (context->scratch_bytes < scratch(args)) return WEIR_EINVAL;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_coda_segment *const segment = args->segments + s;
        const new_rows in = { args, segment->first_row, segment->n_rows };
        coda_bank bank = { .layer = args->layer,
                           .n_values = args->layer->n_kv_heads * args->layer->head_dim };
        bank.state = weir_coda_view(args->layer, segment->state);
        (void)lay_out(&bank, context->scratch, weir_max(segment->n_rows, 1));
        if (segment->is_step)
            step(&bank, &in);
        else if (in.n > 0)
            block(&bank, &in);
    }
    return WEIR_OK;
}

extern const weir_kernel weir_kernel_ref_coda_write;
const weir_kernel weir_kernel_ref_coda_write = { .op = WEIR_OP_CODA_WRITE,
                                                 .backend = WEIR_BACKEND_REF,
                                                 .name = "ref.coda_write",
                                                 .scratch = scratch,
                                                 .run = weir_k_ref_coda_write };
