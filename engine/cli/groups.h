/* engine/cli/groups.h - macros for rows of option tables, and the groups of options that commands
 * combine. */
#pragma once
#include "engine/cli/command.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define GROUP(name, title)                                                                         \
    const weir_option_group weir_group_##name = { title, name##_options, COUNT(name##_options) }

/* Rows of option tables. Fields that only some of them set come last: .letter, .required. */
#define KEY(flag, placeholder, path, ...)                                                          \
    { .name = flag, .value = placeholder, .type = WEIR_OPTION_KEY, .key = path, __VA_ARGS__ }
#define FLAG(flag, text) { .name = flag, .type = WEIR_OPTION_FLAG, .help = text }
#define TEXT(flag, placeholder, text, ...)                                                         \
    { .name = flag, .value = placeholder, .type = WEIR_OPTION_TEXT, .help = text, __VA_ARGS__ }
#define RANGED(flag, placeholder, kind, least, most, text, ...)                                    \
    { .name = flag,                                                                                \
      .value = placeholder,                                                                        \
      .type = kind,                                                                                \
      .min = least,                                                                                \
      .max = most,                                                                                 \
      .help = text,                                                                                \
      __VA_ARGS__ }
#define INT(flag, placeholder, least, most, ...)                                                   \
    RANGED(flag, placeholder, WEIR_OPTION_INT, least, most, __VA_ARGS__)
#define LIST(flag, least, most, ...)                                                               \
    RANGED(flag, "LIST", WEIR_OPTION_LIST, least, most, __VA_ARGS__)

/* ---- rows shared by several groups ----------------------------------------------------------- */

/* The option group of all commands; `plan` has its own, since its --context is a list. */
#define MODEL_FILE_OPTIONS                                                                         \
    KEY("model", "PATH", "model.path", .letter = 'm'), KEY("arch-dir", "DIR", "model.arch_dir")
#define MODEL_RUN_OPTIONS                                                                          \
    KEY("memory", "SIZE", "memory.host"), KEY("disk", "SIZE", "memory.disk"),                      \
        KEY("kv-format", "F", "kv.format"), KEY("threads", "N", "kernels.threads"),                \
        KEY("isa", "LEVEL", "kernels.isa"), KEY("activations", "HOW", "kernels.activations"),      \
        KEY("log-level", "LEVEL", "log.level")
#define BATCH_OPTIONS                                                                              \
    KEY("max-sequences", "N", "batch.max_sequences"), KEY("queue", "N", "batch.queue"),            \
        KEY("chunk", "N", "batch.chunk")
#define WINDOW_OPTION(tokens)                                                                      \
    INT("window", "N", 2, 1 << 24,                                                                 \
        "Tokens per window; each starts from an empty state. Default: " tokens ".")
#define EXPLAIN_OPTION(policies)                                                                   \
    FLAG(                                                                                          \
        "explain",                                                                                 \
        "Print which kernel runs each op, why the ones before it do not, and what observing "      \
        "costs for " policies "; and exit."                                                        \
    )
#define SCORED_TEXT_OPTION                                                                         \
    TEXT("text", "FILE", "Text to score, UTF-8; - is stdin.", .required = true)

/* ---- the groups ------------------------------------------------------------------------------ */

/* groups.c */
extern const weir_option_group weir_group_model, weir_group_planned, weir_group_sampling,
    weir_group_policy, weir_group_json, weir_group_serve, weir_group_batch, weir_group_text,
    weir_group_generate, weir_group_chat, weir_group_run, weir_group_run_model, weir_group_render,
    weir_group_sessions, weir_group_session, weir_group_get, weir_group_models_rm;
/* groups_db.c */
extern const weir_option_group weir_group_db_create, weir_group_db_ingest, weir_group_db_list,
    weir_group_db_query, weir_group_db_merge, weir_group_db_delete;
/* groups_convert.c */
extern const weir_option_group weir_group_convert, weir_group_convert_model, weir_group_imatrix,
    weir_group_verify;
/* groups_measure.c */
extern const weir_option_group weir_group_report, weir_group_logits, weir_group_bench,
    weir_group_load, weir_group_experts, weir_group_experts_trace, weir_group_planned_experts,
    weir_group_calibrate, weir_group_retrieval, weir_group_items, weir_group_constructed,
    weir_group_toolcalls, weir_group_tokens_model, weir_group_matrix, weir_group_perplexity,
    weir_group_kv_quality, weir_group_state_quality, weir_group_structured;
