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

/* Fewer rows of KV than this are no plan. */
enum { WEIR_SMALLEST_WINDOW = 256 };
/* Logits rows beside one per slot: prompts that are scored come in pieces of so many. */
enum { WEIR_SCORED_ROWS = 64 };
/* These, or a block's where prompts are cut by blocks */
int32_t weir_plan_scored_rows(const weir_model *model);

/* memory.device, or nine tenths of what the device had free; 0 without one. */
size_t weir_plan_device_cap(const weir_config *config, const weir_device *device);
/* memory.host, or nine tenths of what is free; never 0, which the ledger takes for no cap */
size_t weir_plan_cap(const weir_config *config);
/* model.context, or what the model was trained for */
int64_t weir_plan_context(const weir_config *config, const weir_model *model);
bool weir_plan_wants_f32(const weir_config *config, const weir_tensor_directory *directory);
typedef struct weir_policies weir_policies;
typedef struct weir_plan_parts {
    const weir_config *config;
    const char *path; /* of the model */
    const weir_model *model;
    int32_t n_valid_vocab; /* ids of the tokenizer; 0: there is none */
    weir_stream *stream; /* that the model runs on */
    const weir_kv_spec *spec; /* everything but n_pages and max_rows */
    const weir_kv_choice *formats; /* of which spec->formats was made */
    const weir_policies *policies;
    size_t cap, tokenizer, packs, other; /* what the ledger holds of the last three */
    size_t device_cap; /* with a device */
    const weir_device *device; /* NULL: the host */
    const char *device_why;
    bool with_service, with_files, with_server;
} weir_plan_parts;
/* facts.c: all but the window and the pages, which are planned. `facts` is zero before. */
void weir_plan_describe(weir_engine_facts *facts, const weir_plan_parts *parts);
/* plan_print.c: "11.5 MiB", "3.2 KiB", "80 B". */
enum { WEIR_SIZE_TEXT = 32 };
const char *weir_size_text(char out[WEIR_SIZE_TEXT], size_t bytes);
/* plan_least.c: after EFULL, adds the least memory.host that fits to the text, where one does. All
 * is read; or memory.host was too small for reading, which is tried within 32 MiB then. Return
 * `status`. */
weir_status weir_plan_say_least(
    weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec,
    weir_status status, weir_error *error
);
weir_status weir_plan_read_least(
    const weir_engine_options *options, bool with_files, weir_status status, weir_error *error
);
/* plan_print.c: the arithmetic of a refusal, every part but the KV, whose rows are what is
 * missing. EFULL. Of the host, or of a device that is too small. */
weir_status weir_plan_too_small(const weir_plan *plan, weir_error *error);
WEIR_MUST_CHECK weir_status
weir_plan_make(weir_plan *plan, const weir_plan_parts *parts, weir_error *error);
/* Activations and staging of a plan whose window and slots are known, for steps of so many prompt
 * tokens; without the kernels' scratch unless it is asked for. */
WEIR_MUST_CHECK weir_status weir_plan_activations(
    weir_plan *plan, const weir_plan_parts *parts, int64_t chunk, bool with_scratch,
    weir_error *error
);

/* identity.c: what makes the memory of one engine of use to another. Reads a sample of every tensor
 * and the whole vocabulary. */
typedef struct weir_identity_parts {
    const weir_config *config;
    const weir_tensor_directory *directory, *adapter; /* adapter: NULL, or what replaces tensors */
    const weir_model *model;
    const weir_tokenizer *tokenizer; /* NULL: none */
    const weir_kv_spec *spec;
    const weir_kv_choice *formats; /* of which spec->formats was made */
    bool f32_activations;
} weir_identity_parts;
WEIR_MUST_CHECK weir_status
weir_identity_of(weir_session_identity *out, const weir_identity_parts *parts, weir_error *error);
/* Sessions are on, and there is something that they could save. */
bool weir_plan_has_sessions(const weir_config *config, bool with_service);
/* Texts can be written to files, and read back. */
bool weir_plan_has_files(const weir_config *config, bool with_files);
/* A server with a database of states. */
bool weir_plan_has_states(const weir_config *config, bool with_server);
/* Of the model alone, as in the identity. */
WEIR_MUST_CHECK weir_status
weir_identity_model(uint64_t out[2], const weir_identity_parts *parts, weir_error *error);

/* policy.c: [kv.policy] on a bound model. */
struct weir_policies {
    weir_service_policy service;
    weir_calibration *calibration; /* owned; NULL: there is none */
    int32_t *layers; /* owned; NULL: no layer keeps rows of the whole text */
    double *frequencies; /* owned */
};
/* ECONFIG for a policy that is none, lacks a budget, or needs what is not there. */
WEIR_MUST_CHECK weir_status
weir_policies_open(weir_policies *policies, const weir_identity_parts *parts, weir_error *error);
void weir_policies_close(weir_policies *policies);
/* The model's RoPE is known now */
void weir_policies_turn(weir_policies *policies, const weir_model *model);
bool weir_policies_are_there(const weir_policies *policies);
/* For one sequence of so many rows. */
weir_policy_run_options weir_policies_wish(
    const weir_service_policy *policy, int64_t rows, int32_t n_prompt, int32_t n_new
);

/* ---- the engine itself ----------------------------------------------------------------------- */
struct weir_engine {
    bool with_files; /* texts are written to any path, and read */
    weir_config config;
    weir_plan plan;
    weir_block_list blocks; /* besides those of the registry */
    weir_arch_set *archs;
    weir_tensor_directory *directory, *adapter; /* adapter: NULL without model.adapter */
    weir_device *device; /* NULL: the host */
    char device_why[320]; /* why it is the host; "": it was asked for */
    weir_stream *stream;
    weir_model *model;
    weir_ledger *ledger;
    weir_ledger_payer tables_payer, tokenizer_payer;
    bool f32_activations;
    weir_kv_choice kv_choice;
    weir_kv_pair *kv_formats; /* [layers with KV] */
    weir_kv_store *store;
    weir_prefix *prefix; /* NULL: kv.reuse is off, or there is no service */
    weir_policies policies;
    weir_kv_evictor *evictor; /* NULL: there is nothing to evict */
    weir_runner *runner;
    weir_tokenizer *tokenizer;
    weir_chat_template *chat;
    weir_error chat_problem; /* of a template that is there and cannot be used */
    weir_service *service;
    /* NULL: neither sessions.dir nor a server's states.dir is given, or there is no service */
    weir_sessions *sessions;
    weir_states *states; /* NULL: none is served */
    weir_purse states_purse; /* states.memory, which the account packs holds */
};

/* engine.c: headers, architecture, tokenizer, policies: all that a plan needs; the part of it that
 * follows the tokenizer; and the parts of a plan, under the ledger's caps. */
WEIR_MUST_CHECK weir_status weir_engine_read(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_engine_lay_out(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
);
weir_plan_parts weir_engine_plan_parts(
    const weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec
);

/* engine.c: of the first layer with KV; of the shape where there is none. */
weir_kv_geometry weir_engine_first_geometry(const weir_model *model);

/* model.c: ledger, headers, architecture, bindings and formats; then tokenizer and chat.
 * Charged to the ledger. */
WEIR_MUST_CHECK weir_status
weir_engine_open_model(weir_engine *engine, const weir_engine_options *options, weir_error *error);
WEIR_MUST_CHECK weir_status weir_engine_open_text(weir_engine *engine, weir_error *error);

/* service.c */
weir_identity_parts weir_engine_identity(const weir_engine *engine, const weir_kv_spec *spec);
WEIR_MUST_CHECK weir_status weir_engine_open_service(weir_engine *engine, weir_error *error);
/* Without sessions.dir they carry states, whose paths are given. */
WEIR_MUST_CHECK weir_status weir_engine_open_sessions(
    weir_engine *engine, const weir_kv_spec *spec, bool needs_one, weir_error *error
);
/* A database that `weir db create` made, or one with vectors and states as they are. */
WEIR_MUST_CHECK weir_status weir_engine_open_states(weir_engine *engine, weir_error *error);
