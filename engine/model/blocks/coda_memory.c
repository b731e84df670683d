/* engine/model/blocks/coda_memory.c - the memory of CoDA-GQA-L for the engine: its size, initial
 * contents, check and counts. */
#include "engine/model/blocks/coda_memory.h"

#include "engine/model/blocks/coda_gates.h"
#include "engine/model/blocks/coda_merge.h"
#include "engine/model/blocks/coda_options.h"
#include "engine/model/blocks/coda_pack.h"
#include "engine/model/blocks/differential.h"
#include "engine/model/noise.h"
#include "kernels/abi/coda_check.h"

static const weir_coda_options *own(const void *options) { return options; }

/* The half of a head that RoPE rotates slowly or not at all: if at most half of it is rotated, the
 * upper half is not. */
static weir_coda_band band_of(const weir_shape *shape, const void *options)
{
    const bool is_still = 2 * shape->rotary_dim <= shape->head_dim;
    switch (own(options)->band) {
    case WEIR_BAND_UPPER_HALF: return WEIR_CODA_UPPER_HALF;
    case WEIR_BAND_SLOW_PAIRS: return WEIR_CODA_SLOW_PAIRS;
    default:
        return is_still || own(options)->base.heads.rope == WEIR_ROPE_PAIRS ? WEIR_CODA_UPPER_HALF
                                                                            : WEIR_CODA_SLOW_PAIRS;
    }
}

/* True if pairs across halves rotate more than half of a head, but not all of it: neither half is
 * slow. */
static bool has_no_band(const weir_shape *shape, const void *options)
{
    return own(options)->band == WEIR_BAND_BY_ROPE && own(options)->landmarks_summary > 0 &&
           own(options)->base.heads.rope == WEIR_ROPE_HALF_SPLIT &&
           2 * shape->rotary_dim > shape->head_dim && shape->rotary_dim < shape->head_dim;
}

weir_coda_layer weir_coda_layer_of(const weir_shape *shape, const void *options)
{
    const weir_coda_options *const o = options;
    return (weir_coda_layer
    ){ .n_kv_heads = shape->n_kv_heads,
       .head_dim = shape->head_dim,
       .window = (int32_t)o->window,
       .n_exact = (int32_t)o->landmarks_exact,
       .n_summary = (int32_t)o->landmarks_summary,
       .least_exact = (int32_t)(o->least_exact < 0 ? o->landmarks_exact : o->least_exact),
       .least_summary = (int32_t)(o->least_summary < 0 ? o->landmarks_summary : o->least_summary),
       .growth = o->growth,
       .exact_candidates = (int32_t)o->exact_candidates,
       .summary_candidates = (int32_t)o->summary_candidates,
       .exact_gate = (float)o->exact_gate,
       .summary_gate = (float)o->summary_gate,
       .hit = (float)o->match,
       .novelty = (float)o->novelty,
       .is_gated = o->gate != WEIR_CODA_GATE_CONSTANT,
       .refreshes = o->refresh,
       .founds = o->found,
       .is_compat = o->candidates == WEIR_CANDIDATES_COMPAT,
       .band = band_of(shape, options),
       .format = o->format };
}

const char *weir_coda_memory_reject(const weir_shape *shape, const void *options)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    if (layer.format != WEIR_KV_F32 && layer.format != WEIR_KV_F16 && layer.format != WEIR_KV_BF16)
        return "its memory holds rows in f32, f16 or bf16, keys and values alike: set kv.format to "
               "one of these";
    if (has_no_band(shape, options))
        return "RoPE rotates more than half of each head, but not all of it: band = \"by_rope\" "
               "finds no slow half; name the band of the "
               "prototypes";
    const char *why = weir_heads_reject(shape, options);
    if (why == NULL) why = weir_differential_reject(options);
    return why != NULL ? why : weir_coda_reject(&layer);
}

/* Follows the kernel's state. */
enum { LEVEL_ELEMENTS = 16 };

float *weir_coda_memory_level(const weir_coda_layer *layer, const void *options, void *memory)
{
    return own(options)->gate == WEIR_CODA_GATE_VALUE_NORM
               ? (float *)((char *)memory + weir_coda_view(layer, NULL).bytes)
               : NULL;
}

static int64_t elements(const weir_shape *shape, const void *options)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    return (int64_t)(weir_coda_view(&layer, NULL).bytes / sizeof(float)) +
           (own(options)->gate == WEIR_CODA_GATE_VALUE_NORM ? LEVEL_ELEMENTS : 0);
}

/* About 0.02 * N(0, 1) in unused slots, which are not attended but affect which prototype a row is
 * blended into. */
static void put_noise(const weir_coda_layer *layer, const weir_coda_state *state)
{
    for (int64_t slot = layer->window; slot < state->n_slots; slot++)
        for (int64_t h = 0; h < layer->n_kv_heads; h++)
            for (int64_t d = 0; d < layer->head_dim; d++) {
                const uint64_t place =
                    (uint64_t)(((slot * layer->n_kv_heads) + h) * layer->head_dim + d) * 2;
                const bool has_key =
                    slot < layer->window + layer->n_exact || weir_coda_is_low(layer, d);
                char *const page = weir_coda_page(state, h, state->rows[slot]);
                if (has_key)
                    weir_coda_store(
                        layer->format, page,
                        weir_coda_index(layer, WEIR_KV_K, state->rows[slot], d),
                        weir_noise_at(place + 1, 0.02f)
                    );
                weir_coda_store(
                    layer->format, page, weir_coda_index(layer, WEIR_KV_V, state->rows[slot], d),
                    weir_noise_at(place + 2, 0.02f)
                );
            }
}

void weir_coda_memory_begin(const weir_coda_layer *layer, const void *options, void *memory)
{
    const weir_coda_state state = weir_coda_view(layer, memory);
    if (state.head->position > 0) return;
    weir_coda_reset(layer, memory);
    if (own(options)->start == WEIR_START_NOISE) put_noise(layer, &state);
}

static bool is_sound(
    const weir_shape *shape, const void *options, const void *memory, int64_t n_tokens
)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    const weir_coda_state state =
        weir_coda_view(&layer, (void *)(uintptr_t)memory); /* The sequence is only read. */
    const float *const level = weir_coda_memory_level(&layer, options, (void *)(uintptr_t)memory);
    return n_tokens > 0 && state.head->position == n_tokens &&
           weir_coda_problem(&layer, memory) == NULL &&
           (level == NULL || weir_gates_is_mean(*level));
}

static int32_t used_slots(const weir_coda_state *state, int64_t first, int64_t n)
{
    int32_t n_used = 0;
    for (int64_t slot = first; slot < first + n; slot++) n_used += weir_coda_is_used(state, slot);
    return n_used;
}

static void count(
    const weir_shape *shape, const void *options, const void *memory, weir_bank_stats *sum
)
{
    static const weir_bank_counter of[WEIR_CODA_COUNTS] = {
        [WEIR_CODA_EVICTIONS] = WEIR_BANK_STATS_EVICTIONS,
        [WEIR_CODA_GATED_OUT] = WEIR_BANK_STATS_GATED_OUT,
        [WEIR_CODA_HITS] = WEIR_BANK_STATS_EXACT_HITS,
        [WEIR_CODA_INSERTS] = WEIR_BANK_STATS_EXACT_INSERTS,
        [WEIR_CODA_OVERWRITES] = WEIR_BANK_STATS_EXACT_OVERWRITES,
        [WEIR_CODA_UPDATES] = WEIR_BANK_STATS_SUMMARY_UPDATES,
        [WEIR_CODA_FOUNDED] = WEIR_BANK_STATS_SUMMARY_FOUNDED,
        [WEIR_CODA_EXACT_FRUSTRATED] = WEIR_BANK_STATS_EXACT_FRUSTRATED,
        [WEIR_CODA_SUMMARY_FRUSTRATED] = WEIR_BANK_STATS_SUMMARY_FRUSTRATED,
        [WEIR_CODA_EXACT_OPENED] = WEIR_BANK_STATS_EXACT_OPENED,
        [WEIR_CODA_SUMMARY_OPENED] = WEIR_BANK_STATS_SUMMARY_OPENED,
    };
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    const weir_coda_state state =
        weir_coda_view(&layer, (void *)(uintptr_t)memory); /* The sequence is only read. */
    const weir_coda_head *const head = state.head;
    sum->ring.slots += layer.window;
    sum->ring.open += layer.window;
    sum->exact.slots += layer.n_exact;
    sum->summary.slots += layer.n_summary;
    sum->exact.open += head != NULL ? head->n_open_exact : layer.least_exact;
    sum->summary.open += head != NULL ? head->n_open_summary : layer.least_summary;
    if (head == NULL) return;
    const int32_t n_exact = used_slots(&state, layer.window, layer.n_exact);
    sum->n_rows += head->position;
    sum->ring.used += head->n_recent;
    sum->exact.used += n_exact;
    sum->summary.used += head->n_rows - head->n_recent - n_exact;
    for (int i = 0; i < WEIR_CODA_COUNTS; i++) sum->counts[of[i]] += head->counts[i];
}

static size_t packable_bytes(const weir_shape *shape, const void *options)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    return weir_coda_view(&layer, NULL).bytes;
}

static size_t packed_bytes(const weir_shape *shape, const void *options, int bits)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    return weir_coda_packed_bytes(&layer, bits);
}

static weir_status pack(
    const weir_shape *shape, const void *options, const void *memory, int bits, void *packed,
    weir_error *error
)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    return weir_coda_pack(&layer, memory, bits, packed, error);
}

static weir_status unpack(
    const weir_shape *shape, const void *options, const void *packed, int bits, void *memory,
    weir_error *error
)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    return weir_coda_unpack(&layer, packed, bits, memory, error);
}

static size_t merge_scratch(const weir_shape *shape, const void *options)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    return weir_coda_merge_scratch(&layer);
}

static int32_t used_in(const weir_coda_layer *layer, const void *memory, int64_t first, int64_t n)
{
    const weir_coda_state state =
        weir_coda_view(layer, (void *)(uintptr_t)memory); /* The sequence is only read. */
    return used_slots(&state, first, n);
}

static void merge(
    const weir_shape *shape, const void *options, const void *earlier, const void *later, void *out,
    void *scratch, weir_state_merged *merged
)
{
    const weir_coda_layer layer = weir_coda_layer_of(shape, options);
    const int64_t exact = layer.window, summary = exact + layer.n_exact;
    weir_coda_merge(&layer, earlier, later, out, scratch);
    merged->n_recent_earlier += used_in(&layer, earlier, 0, layer.window);
    merged->n_exact_earlier += used_in(&layer, earlier, exact, layer.n_exact);
    merged->n_exact_later += used_in(&layer, later, exact, layer.n_exact);
    merged->n_exact_kept += used_in(&layer, out, exact, layer.n_exact);
    merged->n_summary_earlier += used_in(&layer, earlier, summary, layer.n_summary);
    merged->n_summary_later += used_in(&layer, later, summary, layer.n_summary);
    merged->n_summary_kept += used_in(&layer, out, summary, layer.n_summary);
}

const weir_state_ops weir_coda_state_ops = {
    .elements = elements,
    .check = is_sound,
    .identify = weir_coda_options_identify,
    .count = count,
    .packable_bytes = packable_bytes,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack,
    .merge_scratch = merge_scratch,
    .merge = merge,
};

bool weir_coda_layer_at(const weir_model *model, int64_t index, weir_coda_layer *out)
{
    if (weir_model_layer_mixer(model, index)->state != &weir_coda_state_ops) return false;
    *out = weir_coda_layer_of(weir_model_shape(model), weir_model_layer_options(model, index));
    return true;
}
