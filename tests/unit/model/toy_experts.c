/* tests/unit/model/toy_experts.c - an FFN whose parameters are bound by tests, and never
 * computed. */
#include "tests/unit/model/toy_blocks.h"

typedef struct options {
    bool has_b;
} options;

WEIR_EXTENT(experts, shape->n_experts)
WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(inner, shape->d_expert)
WEIR_EXTENT(shared, shape->d_shared)
WEIR_EXTENT(rest, shape->d_shared % 32)
WEIR_EXTENT(one, 1)
WEIR_EXTENT(two, 2)

static bool has_b(const void *block_options) { return ((const options *)block_options)->has_b; }

static const weir_parameter parameters[] = {
    { WEIR_EXPERTS("toy.gate", toy_experts_weights, gate, experts, inner, model) },
    { WEIR_EXPERTS("toy.up", toy_experts_weights, up, experts, inner, model), .optional = true },
    { WEIR_EXPERTS("toy.down", toy_experts_weights, down, experts, model, inner) },
    { WEIR_MATRIX("toy.a", toy_experts_weights, a, inner, model), .optional = true },
    { WEIR_MATRIX("toy.b", toy_experts_weights, b, shared, model), .optional = true,
      .wanted = has_b },
    { WEIR_MATRIX("toy.c", toy_experts_weights, c, shared, model), .optional = true },
    { WEIR_MATRIX("toy.wide", toy_experts_weights, wide, one, one, two, two, two, model),
      .optional = true },
    { WEIR_VECTOR("toy.a_bias", toy_experts_weights, a_bias, inner), .optional = true },
    { WEIR_VECTOR("toy.b_bias", toy_experts_weights, b_bias, rest), .optional = true },
    { WEIR_VECTOR("toy.c_bias", toy_experts_weights, c_bias, shared), .optional = true },
    { 0 }
};

static const char *const shapes[] = { "n_experts", "n_experts_used", "d_expert", "d_shared", NULL };
static const weir_block_option table[] = { WEIR_FLAG_OPTION(options, has_b, "has_b", false),
                                           { 0 } };

static int64_t scratch_elements(
    const weir_shape *shape, const void *block_options, int64_t n_rows, int64_t n_segments
)
{
    (void)shape, (void)block_options, (void)n_rows, (void)n_segments;
    return 0;
}

static weir_status forward(
    const weir_shape *shape, const void *block_options, const void *weights, const weir_step *step
)
{
    (void)shape, (void)block_options, (void)weights, (void)step;
    return WEIR_EUNSUPPORTED;
}

const weir_block toy_experts = {
    .name = "toy_experts",
    .kind = WEIR_BLOCK_FFN,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(toy_experts_weights),
    .options = table,
    .options_bytes = sizeof(options),
    .scratch_elements = scratch_elements,
    .forward = forward,
};
