/* offload/ops.c - the typed entries, which tie args to op. Debug builds assert the part of a
 * contract that needs no data (kernels/abi/ops.h). */
#include "engine/base/checked.h"
#include "offload/dispatch_internal.h"

static bool same_layout(const weir_weight *a, const weir_weight *b)
{
    return a->layout == b->layout && (a->layout != WEIR_LAYOUT_ONEDNN || a->dtype == b->dtype);
}

/* Model files mix types, kernels do not: launches once per run of outputs with the same layout. */
static weir_status launch_by_layout(weir_stream *stream, weir_op op, const weir_matmul_args *args)
{
    for (int32_t first = 0; first < args->n_outputs;) {
        weir_matmul_args part = *args;
        part.n_outputs = 0;
        for (; first < args->n_outputs &&
               (part.n_outputs == 0 ||
                same_layout(part.outputs[0].weight, args->outputs[first].weight));
             first++)
            part.outputs[part.n_outputs++] = args->outputs[first];
        WEIR_TRY(weir_stream_call(stream, op, &part));
    }
    return WEIR_OK;
}

#define LAUNCH_ONE weir_stream_call
#define LAUNCH_BY_LAYOUT launch_by_layout

#define WEIR_OP(NAME, name, where, launches)                                                       \
    weir_status weir_##name(weir_stream *stream, const weir_##name##_args *args)                   \
    {                                                                                              \
        WEIR_DASSERT(weir_##name##_is_valid(args));                                                \
        return LAUNCH_##launches(stream, WEIR_OP_##NAME, args);                                    \
    }
#include "kernels/abi/ops.inc"
