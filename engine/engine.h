/* engine/engine.h - the engine: one model loaded under one memory budget, and the parts that a
 * program stands on.
 *
 * Everything handed out is borrowed and lives until weir_engine_close. A program that generates
 * submits jobs to the service (engine/schedule/service.h); one that measures opens it without the
 * service and takes its parts from engine/engine_parts.h. */
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
    bool with_server; /* plan for HTTP, too: connections and bodies within the limits of [server] */
    void (*progress)(void *user, size_t done, size_t total); /* bytes of weights; NULL: none */
    void *user;
    /* Besides those of engine/model/blocks/registry.c: ends with NULL; NULL: none */
    const struct weir_block *const *blocks;
} weir_engine_options;

/* Where the bytes of [memory] host go. Each line is what the ledger holds once all is open; `http`
 * is set aside for requests, which take from it, and from what nobody planned, as they come. */
typedef struct weir_plan {
    weir_engine_facts facts; /* the one of the engine */
    size_t cap; /* memory.host, or what was found free */
    /* With a device: memory.device, or what was found free; beside `activations`, on it */
    size_t device_cap, near_activations;
    bool has_device; /* weights, recurrent state and kv are on it */
    char device[16], device_title[64],
        /* "cpu", "gpu:0"; as its maker calls it; why it is the CPU, "" if it was asked for */
        device_why[320];
    size_t weights, activations, recurrent, snapshots, kv, page_tables, tokens, sampler, tokenizer,
        http, process, packs, other;
    int64_t kv_rows; /* tokens that fit over all sequences */
    /* Bytes of the pages on disk; of those on the host, with a buffer; of the activations, for
     * reading them */
    size_t kv_disk, kv_host, prefetch;
    size_t disk_cap; /* memory.disk */
    /* Half of it is for sessions; memory has no room for the metadata of as many pages as it could
     * hold */
    bool disk_is_shared, disk_is_limited;
    /* Rows that a head holds at once with the configured policy, its prompt among them; 0: every
     * row stays */
    int64_t kv_peak;
    /* Of 64 tokens, that kept texts are made of, at most: as many as there are pages for, or are
     * set aside where layers have none */
    int64_t n_runs;
    int32_t n_snapshots, n_pruned; /* n_pruned: texts that a policy watched and that are kept */
    /* Of `snapshots`, for them; what the configured policy remembers of one. */
    size_t pruned_bytes, policy_state;
    size_t kv_unsealed; /* of `kv`, for rows that wait for their page to be full */
    bool cap_is_configured;
    bool f32_activations;
} weir_plan;
size_t weir_plan_total(const weir_plan *plan); /* of the host; at most `cap` */
size_t weir_plan_device_total(const weir_plan *plan); /* at most `device_cap` */

/* Reads the headers of the model and its tokenizer, plans, and keeps nothing. EFULL: the plan does
 * not fit (exit code 3). */
WEIR_MUST_CHECK weir_status
weir_engine_plan(weir_plan *out, const weir_engine_options *options, weir_error *error);
/* The same of a model that need not fit this machine, nor have a tokenizer: without a plan that
 * fits, as if there were memory enough. activation_row_bytes: what one more row of a step adds to
 * the activations. */
WEIR_MUST_CHECK weir_status weir_engine_describe(
    weir_plan *out, int64_t *activation_row_bytes, const weir_engine_options *options,
    weir_error *error
);
WEIR_MUST_CHECK weir_status weir_plan_print(const weir_plan *plan, weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_plan_print_json(const weir_plan *plan, weir_buffer *out);

WEIR_MUST_CHECK weir_status
weir_engine_open_with(weir_engine **out, const weir_engine_options *options, weir_error *error);
/* With a service, whose texts weir_engine_write_text and weir_engine_read_text move. */
WEIR_MUST_CHECK weir_status weir_engine_open_with_files(
    weir_engine **out, const weir_engine_options *options, weir_error *error
);
void weir_engine_close(weir_engine *engine);

const weir_plan *weir_engine_plan_of(const weir_engine *engine);
weir_service *weir_engine_service(const weir_engine *engine); /* NULL without service  */
/* NULL without service, or when sessions.dir names no folder */
weir_sessions *weir_engine_sessions(const weir_engine *engine);
/* NULL unless a server has states.dir */
weir_states *weir_engine_states(const weir_engine *engine);
/* Of its states: sessions without a folder that is theirs */
weir_sessions *weir_engine_state_sessions(const weir_engine *engine);
/* NULL when the checkpoint has none */
const weir_tokenizer *weir_engine_tokenizer(const weir_engine *engine);
/* NULL when it has none, or none that can be used */
const weir_chat_template *weir_engine_chat(const weir_engine *engine);
/* Why it cannot be used; NULL when it can, or is none */
const char *weir_engine_chat_problem(const weir_engine *engine);

const weir_config *weir_engine_config(const weir_engine *engine); /* as it was opened with */
struct weir_ledger *weir_engine_ledger(const weir_engine *engine); /* thread-safe */

/* saved_text.c: a text of this process in one file at any path, for another. Only after
 * weir_engine_open_with_files. write: EINVAL for no tokens; ENOTFOUND when nothing of the text is
 * kept (it was dropped, or never computed); EUNSUPPORTED with kv.reuse = "off". The salt is that of
 * the requests that computed it, not NULL. read: the text is kept again under the salt, and its
 * tokens are appended to `tokens`.
 */
WEIR_MUST_CHECK weir_status weir_engine_write_text(
    weir_engine *engine, const int32_t *tokens, int32_t n_tokens, const char *salt,
    const char *path, weir_session_result *result, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_engine_read_text(
    weir_engine *engine, weir_ids *tokens, const char *salt, const char *path,
    weir_session_result *result, weir_error *error
);

/* What sessions.autosave asks for at both ends of a service's life. Return how many conversations
 * came back, or are on the disk. */
int32_t weir_engine_restore_sessions(weir_engine *engine);
int32_t weir_engine_save_sessions(weir_engine *engine);

#ifdef __cplusplus
}
#endif
