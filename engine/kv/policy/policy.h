/* engine/kv/policy/policy.h - selects the KV rows that stay when there are more than the budget:
 * scores, protected rows and one selector, as pure functions.
 *
 *   policy   a method with its options and the model's shape: read only after opening, one for all
 *            sequences
 *   state    the state of a method for one sequence: one block of bytes without pointers, copied
 *            to fork it
 *   row      K and V of one token in one (layer, KV head); slots 0 .. n - 1 hold rows in ascending
 *            original position
 *   budget   rows that a (layer, KV head) keeps; set by the caller (engine/kv/policy/budget.h)
 *   plan     for each (layer, KV head) the slots that stay, ascending
 * A step:    weir_policy_observe for each layer, weir_policy_advance; when weir_policy_is_due:
 * weir_policy_plan_rows, the caller moves the rows,
 *            weir_policy_follow.
 * Layers are those that keep KV rows of the whole sequence; layers with a sliding window and
 * recurrent ones are not counted. Everything is deterministic: of equal scores the lower slot wins,
 * of heads the lower one; NaN is the lowest score. A policy never changes, moves or frees a row,
 * allocates nothing after opening, and keeps no pointer to its inputs. After an eviction
 * next_position differs from the number of rows. Keys are rotated to their own positions, except
 * the first rows with positions=cache, which are rotated to follow the window. If a step is dropped
 * after observations, the caller must restore the state from a copy, or observe only when it
 * commits. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/kv/policy/policy_options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_policy weir_policy;
/* 8-byte aligned, weir_policy_state_bytes; owned by the caller. */
typedef struct weir_policy_state weir_policy_state;
typedef struct weir_calibration weir_calibration; /* engine/kv/policy/calibration.h */

/* ---- what a method works on ------------------------------------------------------------------ */

typedef struct weir_policy_shape {
    /* Query head h reads KV head h / (n_heads / n_kv_heads). */
    int64_t n_layers, n_heads, n_kv_heads, key_dim, value_dim;
    int64_t rotary_dim; /* the first dims of a key are rotated; even */
    bool is_interleaved; /* pairs (2f, 2f + 1); else (f, f + rotary_dim / 2) */
    /* [rotary_dim / 2] radians per position, after any scaling: exactly those that keys are rotated
     * with, since they are multiplied by positions of 65536 and more; copied. */
    const double *frequencies;
    float rope_magnitude; /* of cos and sin, on queries and on keys; 1 normally */
    float scale; /* of the logits: q.k * scale */
    int64_t max_rows; /* most rows of a head, including those of a running step */
    uint64_t model[2]; /* digest of the weights: a calibration for others is refused */
    int64_t n_pinned; /* maximum of weir_policy_rows.n_pinned */
    /* WEIR_POLICY_MASS, _BELOW and _LAST are not available: the device has no kernel for it in K's
     * format. */
    bool hides_mass;
    /* Keys are latents, whose last dims are rotated, or none: methods that compute rotations refuse
     * them. */
    bool rotates_last;
} weir_policy_shape;

/* What a policy needs to observe. */
enum {
    /* Sums of attention probability per slot over the step's queries. */
    WEIR_POLICY_MASS = 1 << 0,
    /* How many of the step's queries gave a slot less than 1 / (rows that they see). */
    WEIR_POLICY_BELOW = 1 << 1,
    WEIR_POLICY_LAST = 1 << 2, /* probabilities of the step's last query */
    WEIR_POLICY_QUERIES = 1 << 3, /* the last weir_policy_window queries, rotated */
    WEIR_POLICY_PLAIN_QUERIES = 1 << 4, /* all queries before rotation, after any norm of queries */
    WEIR_POLICY_KEYS = 1 << 5, /* rows by weir_policy_rows.read when it plans */
    WEIR_POLICY_VALUES = 1 << 6,
    WEIR_POLICY_CALIBRATION = 1 << 7 /* statistics of this model's queries */
};

/* Returns EINVAL for inconsistent shapes, ECONFIG for options that contradict each other, EMISMATCH
 * for the calibration of another model, EUNSUPPORTED if it is missing, and for a method that needs
 * what the shape hides. `calibration` (may be NULL) is borrowed and must outlive the policy. */
WEIR_MUST_CHECK weir_status weir_policy_open(
    weir_policy **out, const weir_policy_options *options, const weir_policy_shape *shape,
    const weir_calibration *calibration, weir_error *error
);
/* Reduces max_rows, and so the memory of the policy and its states. Call before there is a
 * state. */
void weir_policy_tighten(weir_policy *policy, int64_t max_rows);
void weir_policy_close(weir_policy *policy); /* NULL-safe */
unsigned weir_policy_needs(const weir_policy *policy);
int64_t weir_policy_window(const weir_policy *policy); /* queries of WEIR_POLICY_QUERIES */
const weir_policy_options *weir_policy_options_of(const weir_policy *policy);
/* Returns ECONFIG if a budget of this many rows is not more than what the policy always keeps. */
WEIR_MUST_CHECK weir_status
weir_policy_check_budget(const weir_policy *policy, int64_t budget, weir_error *error);
/* The most rows of one head while a step of n_new rows runs, if weir_policy_is_due is called after
 * each: after a prompt that fitted, or with in_prompt. Without in_prompt the whole prompt is held.
 * n_first: rows at the beginning that must stay, in addition to sinks. */
int64_t weir_policy_peak_rows(
    const weir_policy *policy, int64_t budget, int64_t n_first, int64_t n_new
);
size_t weir_policy_bytes(const weir_policy *policy); /* of the policy itself */
/* Two policies with the same digest decide alike, except for budgets: options, model,
 * statistics. */
void weir_policy_digest(const weir_policy *policy, uint64_t out[2]);
size_t weir_policy_state_bytes(const weir_policy *policy);
size_t weir_policy_scratch_bytes(const weir_policy *policy); /* of weir_policy_plan_rows */

/* The cost of observing in addition to attention, over all layers: counts, from the needs alone. */
typedef struct weir_policy_price {
    /* Attention to every row; queries before rotation. */
    bool sees_mass, sees_all_queries;
    int64_t window; /* last queries that are kept, 0: none */
    bool reads_keys, reads_values; /* when it evicts */
    bool reads_prompt_keys_again; /* a second pass over K for chunks of prompts */
    /* Per decoded token with n_rows rows in each head. */
    double step_bytes, step_flops;
    double prompt_flops; /* per prompt row that sees n_rows */
} weir_policy_price;
weir_policy_price weir_policy_price_of(const weir_policy *policy, int64_t n_rows);

/* ---- state ----------------------------------------------------------------------------------- */

/* Sets the state of a sequence without rows; call it for every new sequence. */
void weir_policy_reset(const weir_policy *policy, weir_policy_state *state);

/* Rows of each query head, the last one at `n - 1`: data + head * head_stride + row * row_stride,
 * key_dim values, f32. */
typedef struct weir_policy_queries {
    const float *data;
    int64_t n, head_stride, row_stride;
} weir_policy_queries;

/* One layer of one forward pass. Only what weir_policy_needs lists is read. Heads of one KV head
 * see the same slots. */
typedef struct weir_policy_observation {
    int64_t layer, n_queries, first_position; /* the new rows are at first_position .. */
    const int64_t *n_rows; /* [n_kv_heads], the new ones included */
    /* [n_heads, stride], for the first n_rows of the head's KV head; with one query `mass` serves
     * for all three. */
    const float *mass, *below, *last;
    int64_t stride;
    weir_policy_queries queries; /* rotated; n >= min(n_queries, weir_policy_window) */
    weir_policy_queries plain; /* before rotation; n == n_queries */
} weir_policy_observation;
void weir_policy_observe(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *observation
);
/* Call after the last layer: adds the step's n_queries rows to the sequence, whose next row will be
 * at next_position. */
void weir_policy_advance(
    const weir_policy *policy, weir_policy_state *state, int64_t n_queries, int64_t next_position
);

/* Bytes in use; writes them to the caller's memory, or to a buffer.
 * Returns ENOMEM. */
size_t weir_policy_saved_bytes(const weir_policy *policy, const weir_policy_state *state);
void weir_policy_write(const weir_policy *policy, const weir_policy_state *state, void *bytes);
/* Returns EFORMAT for bytes that are no state, EMISMATCH for one of other options or another shape;
 * `state` is then reset. */
WEIR_MUST_CHECK weir_status weir_policy_load(
    const weir_policy *policy, weir_policy_state *state, const void *bytes, size_t n,
    weir_error *error
);

/* True if the state fits a sequence whose next row is at next_position and whose heads hold n_rows
 * [n_layers, n_kv_heads]. */
bool weir_policy_fits(
    const weir_policy *policy, const weir_policy_state *state, const int64_t *n_rows,
    int64_t next_position
);

/* ---- deciding -------------------------------------------------------------------------------- */

/* Rows [first, first + n) of one head, dequantised. */
typedef struct weir_policy_tile {
    int64_t layer, head, first, n; /* n <= WEIR_POLICY_TILE */
    float *keys; /* [n, key_dim], or NULL   */
    float *values; /* [n, value_dim], or NULL */
} weir_policy_tile;
enum { WEIR_POLICY_TILE = 256 };

/* out[v * stride + i] = vectors[v] . key of row first + i, plus lengths[v] . lengths of the key's
 * rotated pairs. */
typedef struct weir_policy_products {
    int64_t layer, head, first, n, n_vectors, stride;
    const float *vectors; /* [n_vectors, key_dim] */
    const float *lengths; /* [n_vectors, rotary_dim / 2], or NULL */
    float *out; /* [n_vectors, stride] */
} weir_policy_products;

/* The rows of a sequence, and how to read them. */
typedef struct weir_policy_rows {
    const int64_t *n_rows; /* [n_layers, n_kv_heads] */
    int64_t next_position; /* of the sequence; not the number of rows */
    int64_t n_new; /* tokens of the last step; 0 means 1 */
    int64_t n_pinned; /* first rows of every head that must stay */
    /* First rows of every head that belong to the prompt; they stay with the option pin_prompt. */
    int64_t n_prompt;
    weir_status (*read)(void *context, const weir_policy_tile *tile);
    /* Multiplies keys in place, which is faster than reading them; EUNSUPPORTED or NULL: uses
     * `read`. */
    weir_status (*multiply)(void *context, const weir_policy_products *products);
    void *context;
} weir_policy_rows;

typedef struct weir_policy_budget {
    const int64_t *rows; /* [n_layers, n_kv_heads] */
    bool is_shared; /* the heads of a layer share the sum of their rows by score (AdaKV) */
    double floor; /* each keeps at least this part of its own */
} weir_policy_budget;

/* The state of the sequence after the step. */
typedef enum weir_policy_phase {
    WEIR_POLICY_IN_PROMPT,
    WEIR_POLICY_PROMPT_END,
    WEIR_POLICY_DECODE
} weir_policy_phase;

/* True if the policy should plan now; depends on counts only. */
bool weir_policy_is_due(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_rows *rows,
    const weir_policy_budget *budget, weir_policy_phase phase
);

/* The caller owns the memory. A head exceeds its budget only if `n_over` counts it. */
typedef struct weir_policy_plan {
    int32_t *keep; /* [n_layers, n_kv_heads, max_rows]: ascending slots */
    int64_t *n_keep; /* [n_layers, n_kv_heads] */
    int64_t n_nan; /* scores that were NaN */
    int64_t n_over; /* Heads whose pinned rows exceed the budget: they keep those and a few more. */
} weir_policy_plan;

/* `scratch`: weir_policy_scratch_bytes, 64-byte aligned. Fails only if `read` does, or with EINVAL
 * if a policy that keeps the same rows in several heads finds different counts in them; then the
 * plan is invalid and nothing has changed. */
WEIR_MUST_CHECK weir_status weir_policy_plan_rows(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_rows *rows,
    const weir_policy_budget *budget, void *scratch, weir_policy_plan *plan, weir_error *error
);
/* With positions=cache, before a plan is applied: saves the keys of the rows that always stay at
 * the beginning, unless it has them. Fails only if `read` does. */
WEIR_MUST_CHECK weir_status weir_policy_hold_keys(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_rows *rows,
    weir_error *error
);
/* Number of saved keys of each head; 0: rows stay as they are. */
int64_t weir_policy_n_held(const weir_policy_state *state);
/* Sets tile->keys to the saved ones, rotated by `distance` positions: the number of evicted rows of
 * the head. */
void weir_policy_rotate_keys(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_tile *tile,
    int64_t distance
);
/* Call after the plan was applied: the state's values of evicted rows are dropped. */
void weir_policy_follow(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_plan *plan
);

#ifdef __cplusplus
}
#endif
