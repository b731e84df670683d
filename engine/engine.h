/* engine/engine.h - the engine: one model loaded under one memory budget, and the parts that
 * programs use.
 *
 * Everything that it returns is borrowed and valid until weir_engine_close. A program that
 * generates submits jobs to the service (engine/schedule/service.h). A program that measures opens
 * the engine without the service and takes its parts from engine/engine_parts.h. */
#pragma once
#include "engine/config/config.h"
#include "engine/schedule/service.h"
#include "engine/session/sessions.h"
#include "engine/states/states.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION "0.1.0"

typedef struct weir_engine weir_engine;

typedef struct weir_engine_options {
    const weir_config *config; /* copied; model.path is a file or folder that exists */
    bool with_service; /* open slots and start the engine thread */
    bool with_server; /* plan for HTTP, too, within the limits of [server] */
    void (*progress)(void *user, size_t done, size_t total); /* bytes of weights; may be NULL */
    void *user;
    /* Blocks in addition to those of engine/model/blocks/registry.c, terminated by NULL; may be
     * NULL. */
    const struct weir_block *const *blocks;
} weir_engine_options;

/* How memory.host and memory.device are divided. Each size is what the ledger has charged once the
 * engine is open. `http` is reserved for requests, which may also use memory that is not
 * planned. */
typedef struct weir_plan {
    weir_engine_facts facts; /* of this engine */
    size_t cap; /* memory.host, or nine tenths of the free memory */
    /* device_cap: memory.device, or nine tenths of the device's free memory; near_activations: the
     * activations on the device, in addition to `activations` on the host. */
    size_t device_cap, near_activations;
    bool has_device; /* weights, recurrent state and KV are on it */
    /* device: "cpu" or "gpu:0"; device_title: the maker's name; device_why: why it is the CPU, ""
     * if the CPU was requested. */
    char device[16], device_title[64], device_why[320];
    size_t weights, activations, recurrent, snapshots, kv, page_tables, tokens, sampler, tokenizer,
        http, process, packs, other;
    size_t kv_windows; /* rows of layers that keep only those that their window reads */
    int32_t n_threads; /* of a server: those whose number is configured; part of `process` */
    size_t tables; /* of page_tables: for the tables of sequences (weir_kv_spec.table_bytes) */
    int64_t kv_rows; /* tokens that fit, over all sequences */
    /* Bytes of the pages on disk; of the pages on the host with a transfer buffer; of the prefetch
     * buffers, which are part of the activations. */
    size_t kv_disk, kv_host, prefetch;
    size_t disk_cap; /* memory.disk */
    /* disk_is_shared: half of memory.disk is for sessions. disk_is_limited: memory does not hold
     * the metadata of all pages that would fit on disk. */
    bool disk_is_shared, disk_is_limited;
    bool skips_images; /* weir_model_skips_images */
    /* weir_model_unused, and the first of these tensors. */
    size_t n_unused;
    char first_unused[128];
    /* The most rows that a head holds at any time with the configured policy, prompt included; 0:
     * no row is evicted. */
    int64_t kv_peak;
    /* The most runs of 64 tokens in the prefix cache: one per block of pages, or a fixed number if
     * no layer has pages. */
    int64_t n_runs;
    int32_t n_snapshots, n_pruned; /* n_pruned: places of the pruned cache */
    int32_t n_cold_states; /* recurrent states on disk, at most */
    /* pruned_bytes: the part of `snapshots` for the pruned cache; policy_state: the state of the
     * configured policy for one sequence. */
    size_t pruned_bytes, policy_state;
    size_t kv_unsealed; /* the part of `kv` for unsealed rows */
    bool cap_is_configured;
    bool f32_activations;
    /* The smallest memory.host with which this plan fits, in whole MiB; 0: it was not asked for.
     * least_varies: with less there may be another plan, as windows or the draft head give way. */
    size_t least;
    bool least_varies;
} weir_plan;
size_t weir_plan_total(const weir_plan *plan); /* on the host; at most `cap` */
size_t weir_plan_device_total(const weir_plan *plan); /* on the device; at most `device_cap` */

/* Reads the headers of the model and its tokenizer, and plans; keeps nothing open. Returns EFULL if
 * the plan does not fit (exit code 3). */
WEIR_MUST_CHECK weir_status
weir_engine_plan(weir_plan *out, const weir_engine_options *options, weir_error *error);
/* Finds plan.least, too, by planning about 30 times. */
WEIR_MUST_CHECK weir_status
weir_engine_plan_least(weir_plan *out, const weir_engine_options *options, weir_error *error);
/* The same for a model that may be too large for this machine or lack a tokenizer: if no plan fits,
 * plans without limits. *activation_row_bytes is what one more row of a step adds to the
 * activations. */
WEIR_MUST_CHECK weir_status weir_engine_describe(
    weir_plan *out, int64_t *activation_row_bytes, const weir_engine_options *options,
    weir_error *error
);
WEIR_MUST_CHECK weir_status weir_plan_print(const weir_plan *plan, weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_plan_print_json(const weir_plan *plan, weir_buffer *out);
/* Prints how the limits are divided, as bars of text, on lines of at most `columns`, 40 to 120. */
WEIR_MUST_CHECK weir_status
weir_plan_print_bar(const weir_plan *plan, int columns, weir_buffer *out);

WEIR_MUST_CHECK weir_status
weir_engine_open_with(weir_engine **out, const weir_engine_options *options, weir_error *error);
/* The same with a service and with files: weir_engine_write_sequence and weir_engine_read_sequence
 * can be used. */
WEIR_MUST_CHECK weir_status weir_engine_open_with_files(
    weir_engine **out, const weir_engine_options *options, weir_error *error
);
void weir_engine_close(weir_engine *engine);

const weir_plan *weir_engine_plan_of(const weir_engine *engine);
weir_service *weir_engine_service(const weir_engine *engine); /* NULL without a service */
/* NULL without a service, or if sessions.dir is not set. */
weir_sessions *weir_engine_sessions(const weir_engine *engine);
/* NULL unless the engine was opened for a server with states.dir. */
weir_states *weir_engine_states(const weir_engine *engine);
/* The sessions that read and write states; they have no folder of their own. */
weir_sessions *weir_engine_state_sessions(const weir_engine *engine);
/* NULL if the checkpoint has none. */
const weir_tokenizer *weir_engine_tokenizer(const weir_engine *engine);
/* NULL if the checkpoint has no chat template, or one that cannot be used. */
const weir_chat_template *weir_engine_chat(const weir_engine *engine);
/* Why the template cannot be used; NULL if there is none, or it can be used. */
const char *weir_engine_chat_problem(const weir_engine *engine);

const weir_config *weir_engine_config(const weir_engine *engine); /* the engine's copy */
struct weir_ledger *weir_engine_ledger(const weir_engine *engine); /* thread-safe */

/* sequence_file.c: move a cached sequence to another process in a file at any path. Only after
 * weir_engine_open_with_files.
 *
 * write: `salt` is that of the requests that computed the tokens, not NULL. Returns EINVAL if there
 * are no tokens, ENOTFOUND if no prefix of them is cached, EUNSUPPORTED with kv.reuse = "off".
 * read: caches the sequence under the salt and appends its tokens to `tokens`. */
WEIR_MUST_CHECK weir_status weir_engine_write_sequence(
    weir_engine *engine, const int32_t *tokens, int32_t n_tokens, const char *salt,
    const char *path, weir_session_result *result, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_engine_read_sequence(
    weir_engine *engine, weir_ids *tokens, const char *salt, const char *path,
    weir_session_result *result, weir_error *error
);

/* Restore and save conversations when a service starts and ends, as sessions.autosave says. Return
 * the number of conversations restored, or on disk. */
int32_t weir_engine_restore_sessions(weir_engine *engine);
int32_t weir_engine_save_sessions(weir_engine *engine);

#ifdef __cplusplus
}
#endif
