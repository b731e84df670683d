/* engine/open/engine_internal.h - shared by planning and opening. */
#pragma once
#include "engine/engine.h"
#include "engine/kv/policy/calibration.h"
#include "engine/kv/pool/formats.h"
#include "engine/kv/pool/sequence.h"
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/prune/evict.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/model/model.h"
#include "engine/schedule/runner.h"
#include "engine/session/session_store.h"
#include "offload/ledger.h"

/* The smallest number of KV rows that a plan may have. */
enum { WEIR_SMALLEST_WINDOW = 256 };
/* Logits rows in addition to one per slot: scored prompts are computed in pieces of this many
 * rows. */
enum { WEIR_SCORED_ROWS = 64 };
/* Returns WEIR_SCORED_ROWS, or the size of a block if prompts are cut by blocks. */
int32_t weir_plan_scored_rows(const weir_model *model);

/* Returns memory.device, or nine tenths of the device's free memory; 0 without a device. */
size_t weir_plan_device_cap(const weir_config *config, const weir_device *device);
/* Returns memory.host, or nine tenths of the free memory; never 0, which the ledger takes for no
 * cap. */
size_t weir_plan_cap(const weir_config *config);
/* Returns model.context, or the context length that the model was trained for. */
int64_t weir_plan_context(const weir_config *config, const weir_model *model);
bool weir_plan_wants_f32(const weir_config *config, const weir_tensor_directory *directory);
typedef struct weir_policies weir_policies;
typedef struct weir_plan_parts {
    const weir_config *config;
    const weir_model *model;
    weir_stream *stream; /* the model's stream */
    const weir_kv_spec *spec; /* all but n_pages and max_rows */
    const weir_kv_choice *formats; /* spec->formats was made from these */
    const weir_policies *policies;
    size_t cap, tokenizer, packs, other; /* tokenizer, packs, other: as charged to the ledger */
    size_t device_cap; /* with a device */
    const weir_device *device; /* NULL: the CPU */
    const char *device_why;
    bool with_service, with_files, with_server;
} weir_plan_parts;
/* plan_print.c: "11.5 MiB", "3.2 KiB", "80 B". */
enum { WEIR_SIZE_TEXT = 32 };
const char *weir_size_text(char out[WEIR_SIZE_TEXT], size_t bytes);
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
/* plan_print.c: the sums of a refusal: all parts but the KV, which does not fit. Of the host, or of
 * a device that is too small. Returns EFULL. */
weir_status weir_plan_too_small(const weir_plan *plan, weir_error *error);
WEIR_MUST_CHECK weir_status
weir_plan_make(weir_plan *plan, const weir_plan_parts *parts, weir_error *error);
/* Activations and prefetch buffers of a plan whose window and slots are known, for steps of n
 * prompt tokens; the kernels' scratch only if requested. */
WEIR_MUST_CHECK weir_status weir_plan_activations(
    weir_plan *plan, const weir_plan_parts *parts, int64_t chunk, bool with_scratch,
    weir_error *error
);

/* identity.c: what two engines must have in common to share KV rows and states. Reads a sample of
 * every tensor and the whole vocabulary. */
typedef struct weir_identity_parts {
    const weir_config *config;
    /* adapter: may be NULL, else what replaces tensors. */
    const weir_tensor_directory *directory, *adapter;
    const weir_model *model;
    const weir_tokenizer *tokenizer; /* may be NULL */
    const weir_kv_spec *spec;
    const weir_kv_choice *formats; /* spec->formats was made from these */
    bool f32_activations;
} weir_identity_parts;
WEIR_MUST_CHECK weir_status
weir_identity_of(weir_session_identity *out, const weir_identity_parts *parts, weir_error *error);
/* True if sessions are on and there is something that they could save. */
bool weir_plan_has_sessions(const weir_config *config, bool with_service);
/* True if sequences can be written to files and read back. */
bool weir_plan_has_files(const weir_config *config, bool with_files);
/* True for a server with a state database. */
bool weir_plan_has_states(const weir_config *config, bool with_server);
/* The digest of the model alone, as in the identity. */
WEIR_MUST_CHECK weir_status
weir_identity_model(uint64_t out[2], const weir_identity_parts *parts, weir_error *error);

/* policy.c: [kv.policy] on a bound model. */
struct weir_policies {
    weir_service_policy service;
    weir_calibration *calibration; /* owned; may be NULL */
    /* Owned; NULL: no layer keeps rows of the whole sequence. */
    int32_t *layers;
    double *frequencies; /* owned */
};
/* Returns ECONFIG for an unknown policy, a missing budget, or missing requirements. */
WEIR_MUST_CHECK weir_status
weir_policies_open(weir_policies *policies, const weir_identity_parts *parts, weir_error *error);
void weir_policies_close(weir_policies *policies);
/* Sets the model's RoPE, once it is known. */
void weir_policies_turn(weir_policies *policies, const weir_model *model);
bool weir_policies_are_there(const weir_policies *policies);
/* For one sequence of this many rows. */
weir_policy_run_options weir_policies_wish(
    const weir_service_policy *policy, int64_t rows, int32_t n_prompt, int32_t n_new
);

/* ---- the engine itself ----------------------------------------------------------------------- */
struct weir_engine {
    bool with_files; /* sequences are written to and read from any path */
    weir_config config;
    weir_plan plan;
    weir_block_list blocks; /* in addition to those of the registry */
    weir_arch_set *archs;
    weir_tensor_directory *directory, *adapter; /* adapter: NULL without model.adapter */
    weir_device *device; /* NULL: the CPU */
    char device_why[320]; /* why there is no device; "": none was requested */
    weir_stream *stream;
    weir_model *model;
    weir_ledger *ledger;
    weir_ledger_payer tables_payer, tokenizer_payer;
    bool f32_activations;
    weir_kv_choice kv_choice;
    weir_kv_pair *kv_formats; /* [layers with KV] */
    weir_kv_store *store;
    /* NULL: kv.reuse is off, or there is no service. */
    weir_prefix *prefix;
    weir_policies policies;
    weir_kv_evictor *evictor; /* NULL: nothing can be evicted */
    weir_runner *runner;
    weir_tokenizer *tokenizer;
    weir_chat_template *chat;
    weir_error chat_problem; /* why the model's template cannot be used */
    weir_service *service;
    /* NULL: neither sessions.dir nor a server's states.dir is set, or there is no service. */
    weir_sessions *sessions;
    weir_states *states; /* NULL: no state database */
    weir_purse states_purse; /* states.memory, charged to the account packs */
};

/* engine.c: reads headers, architecture, tokenizer and policies, all that a plan needs; the second
 * part of that, after the tokenizer; and the parts of a plan, under the ledger's caps. */
WEIR_MUST_CHECK weir_status weir_engine_read(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_engine_lay_out(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
);
weir_plan_parts weir_engine_plan_parts(
    const weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec
);
void weir_engine_name_model(weir_engine *engine); /* sets it in the plan */

/* model.c: ledger, headers, architecture, bindings and formats; then tokenizer and chat.
 * Charged to the ledger. */
WEIR_MUST_CHECK weir_status
weir_engine_open_model(weir_engine *engine, const weir_engine_options *options, weir_error *error);
WEIR_MUST_CHECK weir_status weir_engine_open_text(weir_engine *engine, weir_error *error);

/* service.c */
weir_identity_parts weir_engine_identity(const weir_engine *engine, const weir_kv_spec *spec);
WEIR_MUST_CHECK weir_status weir_engine_open_service(weir_engine *engine, weir_error *error);
/* Without sessions.dir the sessions only carry states, whose paths are given. */
WEIR_MUST_CHECK weir_status weir_engine_open_sessions(
    weir_engine *engine, const weir_kv_spec *spec, bool needs_one, weir_error *error
);
/* Opens a database that `weir db create` made, or creates one with unpacked states and vectors. */
WEIR_MUST_CHECK weir_status weir_engine_open_states(weir_engine *engine, weir_error *error);
