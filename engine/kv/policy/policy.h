/* engine/kv/policy/policy.h - which KV rows stay when there are more than the budget: scores, protected
 * rows and one selector, as pure functions.
 *
 *   policy   a method with its options and the model's shape: read only after opening, one for all
 *            sequences
 *   state    what a method remembers of one sequence: one block of bytes without pointers, copied
 *            to fork it
 *   row      K and V of one token in one (layer, KV head); slots 0 .. n - 1 hold rows in ascending
 *            original position
 *   budget   rows that a (layer, KV head) keeps; comes from outside (engine/kv/policy/budget.h)
 *   plan     for each (layer, KV head) the slots that stay, ascending
 * A step:    weir_policy_observe for each layer, weir_policy_advance; when weir_policy_is_due:
 * weir_policy_plan_rows, the caller moves the rows,
 *            weir_policy_follow.
 * Layers are those that keep KV rows of the whole text; layers with a sliding window and recurrent
 * ones are not counted. Everything is deterministic: of equal scores the lower slot wins, of heads
 * the lower one; a score that is no number is the lowest. A policy never changes, moves or frees a
 * row, allocates nothing after opening, and keeps no pointer to what it is shown. A position never
 * follows from a count of rows: after an eviction next_position and the number of rows differ. Keys
 * are rotated to their own positions, but for the first rows with positions=cache, which are turned
 * after the window. A step that is dropped after observations needs the state as it was before it:
 * the caller keeps a copy, or observes when it commits. */
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
typedef struct weir_policy_state
    weir_policy_state; /* 8-byte aligned memory of weir_policy_state_bytes, the caller's */
typedef struct weir_calibration weir_calibration; /* engine/kv/policy/calibration.h */

/* ---- what a method works on ------------------------------------------------------------------ */

typedef struct weir_policy_shape {
    int64_t n_layers, n_heads, n_kv_heads, key_dim,
        value_dim; /* query head h reads KV head h / (n_heads / n_kv_heads) */
    int64_t rotary_dim; /* the first dims of a key are rotated; even */
    bool is_interleaved; /* pairs (2f, 2f + 1); else (f, f + rotary_dim / 2) */
    /* [rotary_dim / 2] radians per position, after any scaling: exactly those that the keys are
     * rotated with, as they are multiplied by positions of 65536 and more; copied. */
    const double *frequencies;
    float rope_magnitude; /* of cos and sin, on queries and on keys; 1 normally */
    float scale; /* of the logits: q.k * scale */
    int64_t max_rows; /* no head ever holds more, the rows of a running step included */
    uint64_t model[2]; /* digest of the weights: a calibration of others is refused */
    int64_t n_pinned; /* the most that weir_policy_rows.n_pinned ever is */
    /* Nobody can show WEIR_POLICY_MASS, _BELOW and _LAST: a device without a kernel for it in
     * the format of K */
    bool hides_mass;
} weir_policy_shape;

/* What a policy has to be shown. */
enum {
    WEIR_POLICY_MASS = 1 << 0, /* sums of attention probability per slot over the step's queries */
    WEIR_POLICY_BELOW =
        1 << 1, /* how many of the step's queries gave a slot less than 1 / (rows that they see) */
    WEIR_POLICY_LAST = 1 << 2, /* probabilities of the step's last query */
    WEIR_POLICY_QUERIES = 1 << 3, /* the last weir_policy_window queries, rotated */
    WEIR_POLICY_PLAIN_QUERIES = 1 << 4, /* all queries before rotation, after any norm of queries */
    WEIR_POLICY_KEYS = 1 << 5, /* rows by weir_policy_rows.read when it plans */
    WEIR_POLICY_VALUES = 1 << 6,
    WEIR_POLICY_CALIBRATION = 1 << 7 /* statistics of this model's queries */
};

/* EINVAL for shapes that do not fit together, ECONFIG for options that contradict each other,
 * EMISMATCH for the calibration of another model, EUNSUPPORTED for one that is missing, and for a
 * method that has to see what the shape hides. `calibration` (may be NULL) is borrowed and outlives
 * the policy. */
WEIR_MUST_CHECK weir_status weir_policy_open(
    weir_policy **out, const weir_policy_options *options, const weir_policy_shape *shape,
    const weir_calibration *calibration, weir_error *error
);
/* The same over no more rows than this, and what it and its states take is less. Before there is a
 * state. */
void weir_policy_tighten(weir_policy *policy, int64_t max_rows);
void weir_policy_close(weir_policy *policy); /* NULL-safe */
unsigned weir_policy_needs(const weir_policy *policy);
int64_t weir_policy_window(const weir_policy *policy); /* queries of WEIR_POLICY_QUERIES */
const weir_policy_options *weir_policy_options_of(const weir_policy *policy);
/* ECONFIG when a budget of so many rows leaves nothing to choose beside what the policy always
 * keeps. */
WEIR_MUST_CHECK weir_status
weir_policy_check_budget(const weir_policy *policy, int64_t budget, weir_error *error);
/* The most rows of one head while a step of n_new rows runs, if weir_policy_is_due is asked after
 * each: behind a prompt that fitted, or with in_prompt. A prompt without in_prompt is held whole.
 * n_first: rows at the beginning that must stay, beside sinks. */
int64_t weir_policy_peak_rows(
    const weir_policy *policy, int64_t budget, int64_t n_first, int64_t n_new
);
size_t weir_policy_bytes(const weir_policy *policy); /* of the policy itself */
/* Two policies of one digest decide alike, budgets apart: options, model, statistics. */
void weir_policy_digest(const weir_policy *policy, uint64_t out[2]);
size_t weir_policy_state_bytes(const weir_policy *policy);
size_t weir_policy_scratch_bytes(const weir_policy *policy); /* of weir_policy_plan_rows */

/* What observing costs beside attention, over all layers: counts from the needs alone. */
typedef struct weir_policy_price {
    bool sees_mass, sees_all_queries; /* attention to every row; queries before rotation */
    int64_t window; /* the last queries that are kept, 0: none */
    bool reads_keys, reads_values; /* when it prunes */
    bool reads_prompt_keys_again; /* a second pass over K for pieces of prompts */
    double step_bytes, step_flops; /* of a decoded token beside n_rows rows of each head */
    double prompt_flops; /* of a prompt's row that sees n_rows */
} weir_policy_price;
weir_policy_price weir_policy_price_of(const weir_policy *policy, int64_t n_rows);

/* ---- state ----------------------------------------------------------------------------------- */

/* The state of a sequence without rows; begins every independent text. */
void weir_policy_reset(const weir_policy *policy, weir_policy_state *state);

/* Rows of each query head, the last one at `n - 1`: data + head * head_stride + row * row_stride,
 * key_dim values, f32. */
typedef struct weir_policy_queries {
    const float *data;
    int64_t n, head_stride, row_stride;
} weir_policy_queries;

/* One layer of one forward pass. Only what weir_policy_needs asks for is read. Heads of one KV head
 * read the same slots. */
typedef struct weir_policy_observation {
    int64_t layer, n_queries, first_position; /* the new rows are at first_position .. */
    const int64_t *n_rows; /* [n_kv_heads], the new ones included */
    /* [n_heads, stride], the first n_rows of the head's KV head count; with one query `mass` is
     * enough for all three */
    const float *mass, *below, *last;
    int64_t stride;
    weir_policy_queries queries; /* rotated; n >= min(n_queries, weir_policy_window) */
    weir_policy_queries plain; /* before rotation; n == n_queries */
} weir_policy_observation;
void weir_policy_observe(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *observation
);
/* After the last layer: the step's n_queries rows are part of the text, whose next row will be at
 * next_position. */
void weir_policy_advance(
    const weir_policy *policy, weir_policy_state *state, int64_t n_queries, int64_t next_position
);

/* Only what is in use is written: so many bytes, to memory of the caller's, or to a buffer.
 * ENOMEM. */
size_t weir_policy_saved_bytes(const weir_policy *policy, const weir_policy_state *state);
void weir_policy_write(const weir_policy *policy, const weir_policy_state *state, void *bytes);
/* EFORMAT for bytes that are no state, EMISMATCH for one of other options or another shape; `state`
 * is then reset. */
WEIR_MUST_CHECK weir_status weir_policy_load(
    const weir_policy *policy, weir_policy_state *state, const void *bytes, size_t n,
    weir_error *error
);

/* The state is one of a text whose next row is at next_position and whose heads hold n_rows
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

/* out[v * stride + i] = vectors[v] . key of row first + i, and to it is added lengths[v] . the
 * lengths of the key's rotated pairs. */
typedef struct weir_policy_products {
    int64_t layer, head, first, n, n_vectors, stride;
    const float *vectors; /* [n_vectors, key_dim] */
    const float *lengths; /* [n_vectors, rotary_dim / 2], or NULL */
    float *out; /* [n_vectors, stride] */
} weir_policy_products;

/* What is there. */
typedef struct weir_policy_rows {
    const int64_t *n_rows; /* [n_layers, n_kv_heads] */
    int64_t next_position; /* of the text, never a count of rows */
    int64_t n_new; /* tokens of the step before; 0: one */
    int64_t n_pinned; /* the first rows of every head that must stay */
    /* The first rows of every head that are of the prompt; they stay with the option pin_prompt */
    int64_t n_prompt;
    weir_status (*read)(void *context, const weir_policy_tile *tile);
    /* The products of keys as they lie, which is faster than reading them; EUNSUPPORTED, or NULL:
     * they are made of what `read` gives. */
    weir_status (*multiply)(void *context, const weir_policy_products *products);
    void *context;
} weir_policy_rows;

typedef struct weir_policy_budget {
    const int64_t *rows; /* [n_layers, n_kv_heads] */
    bool is_shared; /* the heads of a layer share the sum of their rows by score (AdaKV) ... */
    double floor; /* ... each keeping the best of at least this part of its own */
} weir_policy_budget;

/* Where the text stands after the step. */
typedef enum weir_policy_phase {
    WEIR_POLICY_IN_PROMPT,
    WEIR_POLICY_PROMPT_END,
    WEIR_POLICY_DECODE
} weir_policy_phase;

/* From counts alone. */
bool weir_policy_is_due(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_rows *rows,
    const weir_policy_budget *budget, weir_policy_phase phase
);

/* Memory is the caller's. A head keeps more than its budget only where `n_over` says so. */
typedef struct weir_policy_plan {
    int32_t *keep; /* [n_layers, n_kv_heads, max_rows]: ascending slots */
    int64_t *n_keep; /* [n_layers, n_kv_heads] */
    int64_t n_nan; /* scores that were no numbers */
    int64_t
        n_over; /* heads whose pinned rows left no room in the budget: they keep those and a few */
} weir_policy_plan;

/* `scratch`: weir_policy_scratch_bytes, 64-byte aligned. Fails only as `read` does, or with EINVAL
 * where a policy that keeps the same rows in several heads finds different counts in them; the plan
 * is then void and nothing has changed. */
WEIR_MUST_CHECK weir_status weir_policy_plan_rows(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_rows *rows,
    const weir_policy_budget *budget, void *scratch, weir_policy_plan *plan, weir_error *error
);
/* With positions=cache, before a plan is carried out: remembers the keys of the rows that always
 * stay at the beginning, unless it has them. Fails only as `read` does. */
WEIR_MUST_CHECK weir_status weir_policy_hold_keys(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_rows *rows,
    weir_error *error
);
/* Of each head; 0: they stay as they are */
int64_t weir_policy_n_held(const weir_policy_state *state);
/* tile->keys become the remembered ones, `distance` positions further on: as many as rows of the
 * head are gone. */
void weir_policy_turn_keys(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_tile *tile,
    int64_t distance
);
/* The plan was carried out: what the state holds of rows goes with them. */
void weir_policy_follow(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_plan *plan
);

#ifdef __cplusplus
}
#endif
