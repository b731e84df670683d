#include "engine/model/blocks/coda_pack.h"

#include <math.h>
#include <string.h>

#include "kernels/abi/coda_check.h"

/* ---- fewer bits ------------------------------------------------------------------------------ */

typedef struct segment {
    int64_t first, n; /* slots */
} segment;
enum { N_SEGMENTS = 3 };

static void segments_of(const weir_coda_layer *layer, segment out[N_SEGMENTS])
{
    out[0] = (segment){ 0, layer->window };
    out[1] = (segment){ layer->window, layer->n_exact };
    out[2] = (segment){ (int64_t)layer->window + layer->n_exact, layer->n_summary };
}

typedef struct part {
    void *at;
    size_t bytes;
} part;
enum { N_PARTS = 4 };

/* The parts that are copied unchanged. */
static void parts_of(const weir_coda_layer *layer, const weir_coda_state *state, part out[N_PARTS])
{
    out[0] = (part){ state->head, sizeof *state->head };
    out[1] = (part){ state->used_at, (size_t)layer->n_exact * sizeof *state->used_at };
    out[2] = (part){ state->rows, (size_t)state->n_slots * sizeof *state->rows };
    out[3] = (part){ state->gates, (size_t)layer->window * sizeof *state->gates };
}

static size_t padded(size_t n) { return (n + 7) / 8 * 8; }

static size_t segment_bytes(const weir_coda_layer *layer, int64_t n, int bits)
{
    return n == 0 ? 0
                  : (size_t)layer->head_dim * 4 + (size_t)n * (size_t)layer->head_dim *
                                                      (size_t)bits / 8; /* head_dim is even */
}

size_t weir_coda_packed_bytes(const weir_coda_layer *layer, int bits)
{
    const weir_coda_state state = weir_coda_view(layer, NULL);
    part parts[N_PARTS];
    segment segments[N_SEGMENTS];
    size_t bytes = 0, pair = 0;
    parts_of(layer, &state, parts);
    segments_of(layer, segments);
    for (int i = 0; i < N_PARTS; i++) bytes += padded(parts[i].bytes);
    for (int i = 0; i < N_SEGMENTS; i++) pair += 2 * segment_bytes(layer, segments[i].n, bits);
    return bytes + (size_t)layer->n_kv_heads * pair;
}

/* One channel of a segment. */
typedef struct channel {
    const weir_coda_layer *layer;
    const weir_coda_state *state;
    segment slots;
    int64_t head, dim;
    weir_kv_side side;
} channel;

static float channel_value(const channel *c, int64_t i)
{
    const int64_t row = c->state->rows[c->slots.first + i];
    return weir_coda_load(
        c->layer->format, weir_coda_page(c->state, c->head, row),
        weir_coda_index(c->layer, c->side, row, c->dim)
    );
}

static void put_channel_value(const channel *c, int64_t i, float value)
{
    const int64_t row = c->state->rows[c->slots.first + i];
    weir_coda_store(
        c->layer->format, weir_coda_page(c->state, c->head, row),
        weir_coda_index(c->layer, c->side, row, c->dim), value
    );
}

/* The next f16 below or above, for values within its range. */
static uint16_t round_f16(float value, bool up)
{
    const uint16_t bits = weir_f16_from_f32(value);
    const float rounded = weir_f16_to_f32(bits);
    if (up ? rounded >= value : rounded <= value) return bits;
    if ((bits & 0x7FFF) == 0) return up ? 0x0001 : 0x8001;
    return (uint16_t)(bits + (((bits & 0x8000) != 0) == up ? -1 : 1));
}

/* Every value of the channel is within [least, least + (2^bits - 1) * step]. Returns false if they
 * exceed f16. Equal values have step 0. */
static bool fit_channel(const channel *c, int bits, uint16_t *least, uint16_t *step)
{
    float low = INFINITY, high = -INFINITY;
    bool is_finite = true;
    for (int64_t i = 0; i < c->slots.n; i++) {
        const float value = channel_value(c, i);
        is_finite = is_finite && isfinite(value);
        low = fminf(low, value);
        high = fmaxf(high, value);
    }
    *least = low == high ? weir_f16_from_f32(low) : round_f16(low, false);
    *step = low == high
                ? 0
                : round_f16((high - weir_f16_to_f32(*least)) / (float)((1 << bits) - 1), true);
    return is_finite && isfinite(weir_f16_to_f32(*least)) && isfinite(weir_f16_to_f32(*step));
}

static void put_code(uint8_t *codes, int64_t index, int bits, int code)
{
    if (bits == 8)
        codes[index] = (uint8_t)code;
    else
        codes[index / 2] =
            (uint8_t)((index % 2 == 0 ? codes[index / 2] & 0xF0 : codes[index / 2] & 0x0F) |
                      code << (index % 2 * 4));
}

static int code_at(const uint8_t *codes, int64_t index, int bits)
{
    return bits == 8 ? codes[index] : codes[index / 2] >> (index % 2 * 4) & 0x0F;
}

static bool pack_segment(channel c, int bits, char *out)
{
    const int64_t dims = c.layer->head_dim;
    uint8_t *const codes = (uint8_t *)out + dims * 4;
    const float most = (float)((1 << bits) - 1);
    for (c.dim = 0; c.dim < dims; c.dim++) {
        uint16_t least, step;
        if (!fit_channel(&c, bits, &least, &step)) return false;
        memcpy(out + c.dim * 2, &least, sizeof least);
        memcpy(out + (dims + c.dim) * 2, &step, sizeof step);
        const float low = weir_f16_to_f32(least), scale = weir_f16_to_f32(step),
                    inverse = scale > 0 ? 1.0f / scale : 0.0f;
        for (int64_t i = 0; i < c.slots.n; i++) {
            const float code = rintf((channel_value(&c, i) - low) * inverse);
            put_code(codes, i * dims + c.dim, bits, (int)fminf(fmaxf(code, 0.0f), most));
        }
    }
    return true;
}

static bool unpack_segment(channel c, int bits, const char *in)
{
    const int64_t dims = c.layer->head_dim;
    const uint8_t *const codes = (const uint8_t *)in + dims * 4;
    for (c.dim = 0; c.dim < dims; c.dim++) {
        uint16_t least, step;
        memcpy(&least, in + c.dim * 2, sizeof least);
        memcpy(&step, in + (dims + c.dim) * 2, sizeof step);
        const float low = weir_f16_to_f32(least), scale = weir_f16_to_f32(step);
        if (!isfinite(low) || !isfinite(scale)) return false;
        for (int64_t i = 0; i < c.slots.n; i++)
            put_channel_value(&c, i, low + (float)code_at(codes, i * dims + c.dim, bits) * scale);
    }
    return true;
}

weir_status weir_coda_pack(
    const weir_coda_layer *layer, const void *memory, int bits, void *packed, weir_error *error
)
{
    const weir_coda_state state = weir_coda_view(layer, (void *)(uintptr_t)memory);
    part parts[N_PARTS];
    segment segments[N_SEGMENTS];
    char *out = packed;
    parts_of(layer, &state, parts);
    segments_of(layer, segments);
    for (int i = 0; i < N_PARTS; out += padded(parts[i].bytes), i++) {
        memset(out, 0, padded(parts[i].bytes));
        /* NOLINTNEXTLINE(clang-analyzer-core.*): a part that has bytes is somewhere */
        if (parts[i].bytes > 0) memcpy(out, parts[i].at, parts[i].bytes);
    }
    for (int64_t head = 0; head < layer->n_kv_heads; head++)
        for (int side = WEIR_KV_K; side <= WEIR_KV_V; side++)
            for (int i = 0; i < N_SEGMENTS; out += segment_bytes(layer, segments[i].n, bits), i++) {
                const channel c = { .layer = layer,
                                    .state = &state,
                                    .slots = segments[i],
                                    .head = head,
                                    .side = (weir_kv_side)side };
                if (segments[i].n > 0 && !pack_segment(c, bits, out))
                    return weir_error_set(
                        error, WEIR_EUNSUPPORTED,
                        "a CoDA state has values that are not finite or beyond 65504; store it "
                        "without quantisation"
                    );
            }
    return WEIR_OK;
}

weir_status weir_coda_unpack(
    const weir_coda_layer *layer, const void *packed, int bits, void *memory, weir_error *error
)
{
    const weir_coda_state state = weir_coda_view(layer, memory);
    const char *in = packed, *problem;
    part parts[N_PARTS];
    segment segments[N_SEGMENTS];
    parts_of(layer, &state, parts);
    segments_of(layer, segments);
    memset(memory, 0, state.bytes);
    for (int i = 0; i < N_PARTS; in += padded(parts[i].bytes), i++)
        if (parts[i].bytes > 0) memcpy(parts[i].at, in, parts[i].bytes);
    problem = weir_coda_problem(layer, memory);
    for (int64_t head = 0;
         problem == NULL && !weir_coda_is_zero(memory, state.bytes) && head < layer->n_kv_heads;
         head++)
        for (int side = WEIR_KV_K; side <= WEIR_KV_V; side++)
            for (int i = 0; i < N_SEGMENTS; in += segment_bytes(layer, segments[i].n, bits), i++) {
                const channel c = { .layer = layer,
                                    .state = &state,
                                    .slots = segments[i],
                                    .head = head,
                                    .side = (weir_kv_side)side };
                if (segments[i].n > 0 && !unpack_segment(c, bits, in))
                    problem = "a step or a least value is not a number";
            }
    return problem == NULL
               ? WEIR_OK
               : weir_error_set(error, WEIR_EFORMAT, "not a CoDA state of this layer: %s", problem);
}
