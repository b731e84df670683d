/* engine/open/engine_internal.h - the engine's struct, shared by the files that open it. */
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/prune/evict.h"
#include "engine/kv/prune/pruner.h"
#include "engine/open/plan.h"
#include "engine/schedule/runner.h"

struct weir_engine {
    bool with_server;
    bool with_files; /* sequences are written to and read from any path */
    weir_config config;
    weir_plan plan;
    weir_block_list blocks; /* in addition to those of the registry */
    weir_arch_set *archs;
    const weir_arch *arch; /* of the model, one of them */
    weir_tensor_directory *directory, *adapter; /* adapter: NULL without model.adapter */
    weir_device *device; /* NULL: the CPU */
    char device_why[320]; /* why there is no device; "": none was requested */
    weir_stream *stream;
    weir_model *model;
    weir_ledger *ledger;
    weir_ledger_tracker tables_tracker, tokenizer_tracker;
    bool f32_activations, with_mtp; /* with_mtp: loads the draft head, if the file has one */
    weir_kv_choice kv_choice;
    weir_kv_pair *kv_formats; /* [layers with KV] */
    weir_kv_store *store;
    weir_prefix *prefix; /* NULL: kv.reuse is off, or there is no service */
    weir_policies policies;
    weir_kv_evictor *evictor; /* NULL: nothing can be evicted */
    weir_pruner *pruner; /* NULL: policies are applied by the engine thread */
    weir_stream *pruner_stream; /* of one thread */
    weir_runner *runner, *nested; /* nested: NULL: no step runs within another */
    weir_tokenizer *tokenizer;
    weir_chat_template *chat;
    weir_pooling pooling; /* of embeddings */
    weir_ranking ranking;
    weir_error chat_problem; /* why the model's template cannot be used */
    weir_service *service;
    /* NULL: neither sessions.dir nor a server's states.dir is set, or there is no service. */
    weir_sessions *sessions;
    weir_states *states; /* NULL: no state database */
    weir_memory_budget states_budget; /* states.memory, charged to the account packs */
};

/* engine.c: weir_engine_read reads all that a plan needs: headers, architecture, tokenizer and
 * policies. weir_engine_lay_out is its part after the tokenizer. weir_engine_plan_parts returns the
 * parts of a plan within the ledger's caps. */
WEIR_MUST_CHECK weir_status weir_engine_read(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_engine_lay_out(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
);
weir_plan_parts weir_engine_plan_parts(
    const weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec
);

/* model.c: open the ledger, headers, architecture, bindings and formats; then tokenizer and chat
 * template. All are charged to the ledger. */
WEIR_MUST_CHECK weir_status
weir_engine_open_model(weir_engine *engine, const weir_engine_options *options, weir_error *error);
WEIR_MUST_CHECK weir_status weir_engine_open_text(weir_engine *engine, weir_error *error);
/* Binds the model again, with all rows of layers with a window (kv.full_windows). */
WEIR_MUST_CHECK weir_status weir_engine_keep_windows(weir_engine *engine, weir_error *error);
/* Binds the model again, without its draft head. */
WEIR_MUST_CHECK weir_status weir_engine_drop_mtp(weir_engine *engine, weir_error *error);
/* A stream with the configuration's kernels. */
WEIR_MUST_CHECK weir_status weir_engine_open_stream(
    weir_stream **out, const weir_config *config, int32_t n_threads, weir_device *device,
    weir_error *error
);

/* engine.c: the folder of the lower tier's files; borrowed. */
const char *weir_engine_disk_folder(const weir_config *config);

/* warnings.c: log lines. The first: a limit that would cause swapping or the kernel's out-of-memory
 * killer. The second: after the plan. */
void weir_engine_warn_of_limit(const weir_config *config);
void weir_engine_warn(const weir_engine *engine);

/* service.c */
weir_identity_parts weir_engine_identity(const weir_engine *engine, const weir_kv_spec *spec);
WEIR_MUST_CHECK weir_status weir_engine_open_service(weir_engine *engine, weir_error *error);
/* Opens sessions; without sessions.dir they only read and write states, at given paths. */
WEIR_MUST_CHECK weir_status weir_engine_open_sessions(
    weir_engine *engine, const weir_kv_spec *spec, bool needs_one, weir_error *error
);
/* Opens a database that `weir db create` made, or creates one with unpacked states and vectors. */
WEIR_MUST_CHECK weir_status weir_engine_open_states(weir_engine *engine, weir_error *error);

/* plan_least.c: after EFULL, adds the smallest memory.host that fits to the message, if there is
 * one. The first: everything has been read. The second: memory.host was too small for reading,
 * which is then tried with 32 MiB. Both return `status`. */
weir_status weir_plan_say_least(
    weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec,
    weir_status status, weir_error *error
);
weir_status weir_plan_read_least(
    const weir_engine_options *options, bool with_files, weir_status status, weir_error *error
);
/* That limit for the plan of an engine, in bytes; 0: no limit fits. */
size_t weir_plan_least(
    weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec
);
