/* engine/kv/policy/full.c - keeps every row: observes nothing, has no state, is never due. */
#include "engine/kv/policy/policy_ops.h"

static const policy_default defaults[] = { { NULL, NULL } };

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    (void)out, (void)options, (void)shape;
}

const weir_policy_ops policy_full = { .name = "full",
                                      .summary = "keeps every row",
                                      .matrix_options = "",
                                      .defaults = defaults,
                                      .layout = layout };
