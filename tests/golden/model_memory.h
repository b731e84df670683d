/* tests/golden/model_memory.h - what a sequence has in memory, in the order of the reference: rows
 * of KV pages, recurrent states, inputs of convolutions. */
#pragma once
#include <string>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/kv/pool/sequence.h"
#include "engine/model/model.h"

namespace golden {

/* A model open for measuring, with one sequence. */
struct Open {
    weir_engine *engine = nullptr;
    weir_kv_sequence sequence = {};
    ~Open()
    {
        weir_kv_sequence_close(&sequence);
        weir_engine_close(engine);
    }
    const weir_shape &shape() const { return *weir_model_shape(weir_engine_model(engine)); }
};

/* Memory of the sequence, which may be the device's. */
std::vector<float> read_memory(const Open &open, const void *memory, size_t n);
/* Keys or values of one layer as [T, heads, width], from the pages. */
std::vector<float> read_cache(const Open &open, const weir_kv_geometry &g, bool keys);
/* Dims [first, end) of rows of `width`; the first `rotary` of them from pairs into half-split
 * order. */
std::vector<float> dims_of(
    const std::vector<float> &rows, int64_t width, int64_t first, int64_t end, int64_t rotary = 0
);

/* The memory of a recurrent mixer. */
struct Recurrent {
    int64_t channels, taps; /* of the convolution */
    int64_t n_heads = 0, lanes = 0, depth = 0; /* a head's state: rows of `depth`, 16 lanes apart */
    bool lanes_first = false; /* the golden has [heads, lanes, depth], else [heads, depth, lanes] */
};

Recurrent recurrent_of(const weir_shape &shape, const std::string &mixer);
std::vector<float> read_state(
    const Open &open, const weir_layer_memory &memory, const Recurrent &r, bool tiled
);
/* Inputs of a layer's convolution. Tiled: channels after those of q and k are V heads in another
 * order than the checkpoint's. */
std::vector<float> read_history(
    const Open &open, const weir_layer_memory &memory, const Recurrent &r, bool tiled
);

} // namespace golden
