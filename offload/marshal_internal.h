/* offload/marshal_internal.h - a hand-over: where copies go, and what comes back. */
#pragma once
#include "offload/marshal.h"

typedef struct arena {
    char  *memory;
    size_t bytes, used;
} arena;

typedef struct way_back {
    void       *dst;
    const void *src;
    size_t      bytes;
} way_back;

struct weir_marshaller {
    weir_device *device;
    arena        near, ring;
    way_back    *backs; /* [most_backs] */
    size_t       n_backs, most_backs;
    bool         measures, plans; /* plans: what is not there yet counts as calls will have it */
    size_t       planned_near, planned_ring, planned_backs;
    bool         is_wrong; /* an array that the op needs on the device is not there */
    union {
        weir_rope_args             rope;
        weir_kv_write_args         kv_write;
        weir_kv_read_args          kv_read;
        weir_kv_compact_args       kv_compact;
        weir_key_products_args     key_products;
        weir_attention_args        attention;
        weir_attention_mass_args   attention_mass;
        weir_conv1d_args           conv1d;
        weir_gated_delta_rule_args gated_delta_rule;
    } args; /* of the call */
};

/* marshal_ops.c: the call's arguments with all its arrays in their places, which are filled; or,
 * with `measures`, adds up what they take. */
const void *marshal_args(weir_marshaller *marshaller, weir_op op, const void *args);
