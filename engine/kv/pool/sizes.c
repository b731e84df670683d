/* engine/kv/pool/sizes.c - sizes of KV memory: bytes and pages by layer, block and size class. */
#include "engine/kv/pool/store_internal.h"
#include "kernels/abi/minmax.h"

int64_t weir_kv_layer_of(const weir_kv_spec *spec, int64_t head)
{
    int64_t low = 0, high = spec->n_layers - 1;
    WEIR_ASSERT(head >= 0 && head < weir_kv_n_heads(spec));
    while (low < high) { /* the last layer that begins at or before the head */
        const int64_t middle = low + (high - low + 1) / 2;
        if (spec->geometry[middle].first_head <= head)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int64_t weir_kv_most_heads(const weir_kv_spec *spec)
{
    int64_t n = 0;
    for (int64_t i = 0; i < spec->n_layers; i++) n = weir_max(n, spec->geometry[i].n_heads);
    return n;
}

weir_kv_geometry weir_kv_widest(const weir_kv_spec *spec)
{
    weir_kv_geometry widest = { .n_heads = weir_kv_most_heads(spec) };
    for (int64_t i = 0; i < spec->n_layers; i++) {
        widest.key_dim = weir_max(widest.key_dim, spec->geometry[i].key_dim);
        widest.value_dim = weir_max(widest.value_dim, spec->geometry[i].value_dim);
    }
    return widest;
}

static int64_t page_bytes(weir_kv_pair pair, const weir_kv_geometry *g)
{
    WEIR_ASSERT(weir_kv_bits(pair.k) > 0 && weir_kv_bits(pair.v) > 0); /* no COUNT */
    return weir_kv_bytes(pair.k, pair.v, g->key_dim, weir_kv_stored_value_dim(g));
}

size_t weir_kv_page_bytes(const weir_kv_spec *spec, int64_t layer)
{
    return (size_t)page_bytes(spec->formats[layer], &spec->geometry[layer]);
}

size_t weir_kv_block_bytes(const weir_kv_spec *spec)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < spec->n_layers; i++)
        bytes += (size_t)spec->geometry[i].n_heads * weir_kv_page_bytes(spec, i);
    return bytes;
}

/* Returns the size of all sink pages: that of the layer with the widest rows. */
static size_t sink_page_bytes(const weir_kv_spec *spec)
{
    const weir_kv_pair pair = spec->sinks.pair;
    int64_t bytes = 0;
    for (int64_t i = 0; i < spec->n_layers; i++)
        bytes = weir_max(bytes, page_bytes(pair, &spec->geometry[i]));
    return (size_t)bytes;
}

size_t weir_kv_page_bytes_at(const weir_kv_spec *spec, int64_t layer, int64_t block)
{
    return block < spec->sinks.n_pages ? sink_page_bytes(spec) : weir_kv_page_bytes(spec, layer);
}

size_t weir_kv_sink_block_bytes(const weir_kv_spec *spec)
{
    return spec->sinks.n_pages > 0 && spec->n_layers > 0
               ? (size_t)weir_kv_n_heads(spec) * sink_page_bytes(spec)
               : 0;
}

static size_t rounded(const weir_kv_spec *spec, size_t bytes)
{
    const size_t round = WEIR_LOWER_TIER_ALIGNMENT - 1;
    return weir_kv_cold_pages(spec) > 0 ? (bytes + round) & ~round : bytes;
}

size_t weir_kv_page_stride(const weir_kv_spec *spec, int64_t layer)
{
    return rounded(spec, weir_kv_page_bytes(spec, layer));
}

size_t weir_kv_layer_stride(const weir_kv_spec *spec, int64_t layer)
{
    return (size_t)spec->geometry[layer].n_heads * weir_kv_page_stride(spec, layer);
}

size_t weir_kv_sink_page_stride(const weir_kv_spec *spec)
{
    return spec->sinks.n_pages > 0 && spec->n_layers > 0 ? rounded(spec, sink_page_bytes(spec)) : 0;
}

size_t weir_kv_sink_block_stride(const weir_kv_spec *spec)
{
    return (size_t)weir_kv_n_heads(spec) * weir_kv_sink_page_stride(spec);
}

int64_t kv_sinks_among(const weir_kv_spec *spec, int64_t n_blocks)
{
    return n_blocks < spec->sinks.n_pages ? n_blocks : spec->sinks.n_pages;
}

size_t weir_kv_blocks_bytes(const weir_kv_spec *spec, int64_t n_blocks)
{
    const int64_t sinks = kv_sinks_among(spec, n_blocks);
    return (size_t)sinks * weir_kv_sink_block_stride(spec) +
           (size_t)(n_blocks - sinks) * weir_kv_block_stride(spec);
}

size_t weir_kv_block_stride(const weir_kv_spec *spec)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < spec->n_layers; i++) bytes += weir_kv_layer_stride(spec, i);
    return bytes;
}

size_t kv_unsealed_bytes(const weir_kv_spec *spec, int64_t layer)
{
    const weir_kv_pair others = spec->formats[layer],
                       first = weir_kv_pair_at(others, spec->sinks, 0);
    const weir_kv_geometry *const g = &spec->geometry[layer];
    const int64_t values = weir_kv_stored_value_dim(g),
                  bytes = weir_kv_unsealed_bytes(others.k, others.v, g->key_dim, values),
                  at_first = weir_kv_unsealed_bytes(first.k, first.v, g->key_dim, values);
    return (size_t)(bytes > at_first ? bytes : at_first);
}

size_t weir_kv_unsealed_rows_bytes(const weir_kv_spec *spec)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < spec->n_layers; i++)
        bytes += (size_t)spec->geometry[i].n_heads * kv_unsealed_bytes(spec, i);
    return bytes;
}

bool weir_kv_is_paged(const weir_kv_spec *spec) { return weir_kv_unsealed_rows_bytes(spec) > 0; }

int64_t weir_kv_pages_for(const weir_kv_spec *spec, int64_t rows)
{
    return kv_pages_per_head(rows) * weir_kv_n_heads(spec);
}

bool kv_find_layer_classes(kv_layer_classes *out, const weir_kv_spec *spec)
{
    *out = (kv_layer_classes){ 0 };
    for (int64_t layer = 0; layer < spec->n_layers; layer++) {
        const size_t bytes = weir_kv_page_stride(spec, layer);
        int32_t i = 0;
        while (i < out->n && out->bytes[i] != bytes) i++;
        if (i == WEIR_KV_SIZE_CLASSES) return false;
        if (i == out->n) out->bytes[out->n++] = bytes;
        out->per_block[i] += (int32_t)spec->geometry[layer].n_heads;
    }
    return true;
}

weir_kv_pages weir_kv_pages_of(const weir_kv_spec *spec, int64_t first, int64_t end)
{
    kv_layer_classes classes;
    weir_kv_pages n = { 0 };
    if (end <= first) return n;
    const int64_t sinks = kv_sinks_among(spec, end) - kv_sinks_among(spec, first);
    (void)kv_find_layer_classes(&classes, spec); /* no store opens with more */
    n.sinks = sinks * weir_kv_n_heads(spec);
    for (int32_t i = 0; i < classes.n; i++)
        n.others[i] = (end - first - sinks) * classes.per_block[i];
    return n;
}

int64_t weir_kv_pages_blocks(const weir_kv_spec *spec, weir_kv_pages pages)
{
    kv_layer_classes classes;
    int64_t n = 0;
    (void)kv_find_layer_classes(&classes, spec);
    for (int32_t i = 0; i < classes.n; i++) {
        const int64_t blocks = (pages.others[i] + classes.per_block[i] - 1) / classes.per_block[i];
        if (blocks > n) n = blocks;
    }
    return n;
}

size_t weir_kv_page_metadata_bytes(void)
{
    return 3 * sizeof(int32_t) + sizeof(uint16_t) + sizeof(bool);
}
