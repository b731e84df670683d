/* kernels/omp/coda_write.c - writes new rows to the rings of CoDA-GQA-L (Maio 2026), and those that
 * leave them to the banks: four regions (coda_plan.h). A step reads the exact bank's values and
 * half the keys of prototypes, and writes three rows. Cost of a block: docs/kernels.md. */
#include "kernels/omp/coda_apply.h"
#include "kernels/omp/coda_decide.h"

#pragma omp declare target
/* The statement with the call's format as a constant. */
#define CODA_FORMAT_SWITCH(value, statement)                                                       \
    switch (value) {                                                                               \
    case WEIR_KV_F32: {                                                                            \
        const weir_kv_format format = WEIR_KV_F32;                                                 \
        statement;                                                                                 \
        break;                                                                                     \
    }                                                                                              \
    case WEIR_KV_F16: {                                                                            \
        const weir_kv_format format = WEIR_KV_F16;                                                 \
        statement;                                                                                 \
        break;                                                                                     \
    }                                                                                              \
    default: {                                                                                     \
        const weir_kv_format format = WEIR_KV_BF16;                                                \
        statement;                                                                                 \
    }                                                                                              \
    }

WEIR_INLINE void score_unit(
    route_memory *team, const coda_call *call, const coda_work *work, int64_t u, int tid
)
{
    const int64_t head = u % call->layer->n_kv_heads;
    const weir_kv_side side = u < call->layer->n_kv_heads ? WEIR_KV_V : WEIR_KV_K;
    CODA_FORMAT_SWITCH(call->layer->format, score_bank(team, call, work, side, head, format, tid))
}

WEIR_INLINE void apply_unit(const coda_call *call, const coda_work *work, int64_t u, int tid)
{
    const int64_t head = u % call->layer->n_kv_heads;
    const weir_kv_side side = u < call->layer->n_kv_heads ? WEIR_KV_K : WEIR_KV_V;
    CODA_FORMAT_SWITCH(call->layer->format, apply(call, work, side, head, format, tid))
}
#pragma omp end declare target

static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_coda_write_args *const args = op_args;
    (void)caps;
    return !FINDS_AS_LIBRARY && args->layer->is_compat ? "GPUs take candidates by their gates"
                                                       : NULL;
}

static size_t scratch(const void *op_args)
{
    const weir_coda_write_args *const args = op_args;
    size_t bytes = 0;
    if (!weir_coda_write_is_whole(args)) return 0;
    for (int64_t s = 0; s < args->n_segments; s++)
        bytes += coda_work_of(args->layer, args->segments + s, NULL).bytes;
    return bytes;
}

/* The statement for each unit of a team, with its `unit` of the segment, `call`, `work` and `tid`;
 * each segment has of_segment units. */
#define EACH_UNIT(of_segment, statement)                                                           \
    const coda_call call = shared;                                                                 \
    const int tid = lane_thread();                                                                 \
    int64_t unit = lane_first_unit();                                                              \
    char *at = call.scratch;                                                                       \
    for (int64_t s = 0; s < call.n_segments; s++) {                                                \
        const coda_work work = coda_work_of(call.layer, call.segments + s, at);                    \
        for (; unit < (of_segment); unit += lane_unit_step()) statement;                           \
        unit -= (of_segment);                                                                      \
        at += work.bytes;                                                                          \
    }

static weir_status WEIR_K(coda_write)(const weir_kernel_context *context, const void *op_args)
{
    const weir_coda_write_args *const args = op_args;
    if (!weir_coda_write_is_whole(args)) return WEIR_EINVAL;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    if (context->scratch_bytes < scratch(args)) return WEIR_EINVAL;
    const float *const k = args->k, *const v = args->v, *const gates = args->gates;
    const weir_coda_layer *const layer = args->layer;
    const weir_coda_segment *const segments = args->segments;
    char *const memory = context->scratch;
    const int64_t n_segments = args->n_segments, k_stride = args->k_stride,
                  v_stride = args->v_stride, gate_stride = args->gate_stride;
    const int64_t n_sides = 2 * layer->n_kv_heads; /* of heads; banks of heads */
    if (n_segments <= 0) return WEIR_OK;
#define CALL { k, v, gates, layer, segments, memory, n_segments, k_stride, v_stride, gate_stride }
    TEAMS(n_segments, k, v, gates, layer, segments, memory)
    {
        const coda_call shared = CALL;
        TEAM_LANES { EACH_UNIT(1, choose_candidates(&call, &work, tid)) }
    }
    if (layer->n_exact + layer->n_summary > 0) {
        TEAMS(n_segments * n_sides, k, v, gates, layer, segments, memory)
        {
            route_memory team;
            const coda_call shared = CALL;
            TEAM_LANES { EACH_UNIT(n_sides, score_unit(&team, &call, &work, unit, tid)) }
        }
    }
    TEAMS(n_segments, k, v, gates, layer, segments, memory)
    {
        const coda_call shared = CALL;
        TEAM_LANES { EACH_UNIT(1, decide(&call, &work, tid)) }
    }
    TEAMS(n_segments * n_sides, k, v, gates, layer, segments, memory)
    {
        const coda_call shared = CALL;
        TEAM_LANES { EACH_UNIT(n_sides, apply_unit(&call, &work, unit, tid)) }
    }
#undef CALL
    return WEIR_OK;
}

/* Tolerance: decisions and contents are defined to the bit, except for scores within rounding of
 * each other or of a threshold, and a device's exponential. */
extern const weir_kernel WEIR_K_ROW(coda_write);
const weir_kernel WEIR_K_ROW(coda_write) = {
    .op = WEIR_OP_CODA_WRITE,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("coda_write"),
    .atol = 0.0,
    .rtol = 2e-7,
    .reject = reject,
    .scratch = scratch,
    .run = WEIR_K(coda_write),
};
