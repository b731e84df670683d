/* tests/fuzz/arch_probe.h - an architecture and a checkpoint's numbers: all that binding asks of
 * them before it looks at tensors. */
#pragma once
#include <math.h>

#include "engine/model/rope.h"
#include "tests/fuzz/probe.h"

enum { PROBE_LAYERS = 1024, PROBE_ROTARY = 4096 }; /* of a shape at most */

typedef weir_tensor_directory probe_numbers; /* of a checkpoint */

static inline void probe_block(const weir_arch *arch, const char *name, weir_container container)
{
    weir_block_use mixer, ffn;
    weir_error error = { 0 };
    const weir_status status = weir_arch_block(arch, name, NULL, container, &mixer, &ffn, &error);
    probe_status(status, &error);
    probe_require(
        status != WEIR_OK ||
        (mixer.block->kind == WEIR_BLOCK_MIXER && ffn.block->kind == WEIR_BLOCK_FFN)
    );
    weir_block_use_close(&mixer);
    weir_block_use_close(&ffn);
}

static inline void probe_layers(const weir_arch *arch, const probe_numbers *of, int64_t n)
{
    static const char *names[PROBE_LAYERS];
    const weir_container container = weir_tensor_directory_container(of);
    weir_error error = { 0 };
    const weir_status status = weir_arch_layers(arch, of, n, names, &error);
    probe_status(status, &error);
    for (int64_t i = 0; status == WEIR_OK && i < n; i++) probe_block(arch, names[i], container);
}

static inline void probe_rope(const weir_arch *arch, const probe_numbers *of, const weir_shape *s)
{
    float f[PROBE_ROTARY / 2 + 1], magnitude = 0.0f;
    weir_error error = { 0 };
    const weir_status status = weir_rope_resolve(f, &magnitude, s, arch, of, NULL, &error);
    probe_status(status, &error);
    if (status != WEIR_OK) return;
    probe_require(isfinite(magnitude));
    for (int64_t i = 0; i < s->rotary_dim / 2; i++) probe_require(isfinite(f[i]));
}

static inline void probe_arch(const weir_arch *arch, const probe_numbers *of)
{
    weir_shape shape = { 0 };
    weir_error error = { 0 };
    const weir_status status = weir_shape_resolve(&shape, arch, of, &error);
    probe_status(status, &error);
    if (status != WEIR_OK) return;
    probe_require(shape.n_layers >= 0 && shape.n_layers <= PROBE_LAYERS);
    if (shape.n_layers > 0) probe_layers(arch, of, shape.n_layers);
    if (shape.rotary_dim > 0) probe_rope(arch, of, &shape);
}
