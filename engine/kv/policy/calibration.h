/* engine/kv/policy/calibration.h - statistics of a model's queries before rotation, with which
 * TriAttention scores keys: computed once from a text, stored in a file (docs/policies.md has its
 * layout).
 *
 * A band f of a query is the complex number of its two rotated dims. For each layer with KV and
 * each query head: the mean q_f of the bands, the mean a_f of their lengths, and the mean of the
 * dims that are not rotated. Queries are those after any norm of queries. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/kv/policy/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading and writing --------------------------------------------------------------------- */

/* Returns EFORMAT for wrong sizes, values that are not finite and statistics that no queries can
 * have; `name` is for messages. */
WEIR_MUST_CHECK weir_status weir_calibration_parse(
    weir_calibration **out, const void *bytes, size_t n, const char *name, weir_error *error
);
WEIR_MUST_CHECK weir_status
weir_calibration_read(weir_calibration **out, const char *path, weir_error *error);
void weir_calibration_close(weir_calibration *calibration); /* NULL-safe */
/* `is_plain`: without Weir's additions. Returns ENOMEM. */
WEIR_MUST_CHECK weir_status
weir_calibration_print(weir_buffer *out, const weir_calibration *calibration, bool is_plain);
WEIR_MUST_CHECK weir_status
weir_calibration_write(const char *path, const weir_calibration *calibration, weir_error *error);

/* Returns EMISMATCH unless the statistics are of this model: its digest, sizes and rotation. A file
 * without identity is only accepted with `foreign`; then sizes and rotation are checked. */
WEIR_MUST_CHECK weir_status weir_calibration_check(
    const weir_calibration *calibration, const weir_policy_shape *shape, bool foreign,
    weir_error *error
);
uint64_t weir_calibration_digest(const weir_calibration *calibration
); /* digest of the statistics */
/* For tests: its bytes in memory. */
size_t weir_calibration_bytes(const weir_calibration *calibration);

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct weir_calibration_head {
    const float *re, *im, *length; /* [bands] mean of the bands, and of their lengths */
    /* [key_dim - rotary_dim]; NULL for a file without it. */
    const float *plain;
} weir_calibration_head;
weir_calibration_head weir_calibration_at(
    const weir_calibration *calibration, int64_t layer, int64_t query_head
);
/* |q| / a of a band: 1 if all queries agree, 0 for a band without queries. */
float weir_calibration_concentration(
    const weir_calibration *calibration, int64_t layer, int64_t query_head, int64_t band
);

/* ---- making them ----------------------------------------------------------------------------- */

typedef struct weir_calibrator weir_calibrator;
/* theta: for the header, from which other readers compute frequencies. */
WEIR_MUST_CHECK weir_status weir_calibrator_open(
    weir_calibrator **out, const weir_policy_shape *shape, float theta, weir_error *error
);
void weir_calibrator_close(weir_calibrator *calibrator); /* NULL-safe */
/* Queries of all heads of one layer, before rotation, after any norm. */
void weir_calibrator_add(
    weir_calibrator *calibrator, int64_t layer, const weir_policy_queries *queries
);
/* Returns EINVAL if a layer has no query, EFORMAT if queries were not finite. */
WEIR_MUST_CHECK weir_status weir_calibrator_finish(
    const weir_calibrator *calibrator, weir_calibration **out, weir_error *error
);

#ifdef __cplusplus
}
#endif
