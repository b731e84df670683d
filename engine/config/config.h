/* engine/config/config.h - run configuration. One table (keys.inc) holds each key's name, type,
 * unit, default, range and help text.
 *
 * Precedence: defaults < TOML file < environment variables < --set and flags, in the order given.
 * An unknown key is an error that names the nearest key. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_CONFIG_TEXT = 4096, WEIR_CONFIG_PINS = 16 };
typedef char weir_config_text[WEIR_CONFIG_TEXT];

/* kernels.pin.OP = "KERNEL". */
typedef struct weir_config_pin {
    char op[32], kernel[96];
} weir_config_pin;

/* A model of [[models]], of which `serve` serves several: engine/config/models.c. */
enum { WEIR_CONFIG_MODELS = 16, WEIR_CONFIG_MODEL_NAME = 128, WEIR_CONFIG_MODEL_TEXT = 1024 };
typedef struct weir_config_model {
    char name[WEIR_CONFIG_MODEL_NAME];
    /* One of them is set: a configuration file or the model's path. */
    char config[WEIR_CONFIG_MODEL_TEXT], path[WEIR_CONFIG_MODEL_TEXT];
    char api_key_file[WEIR_CONFIG_MODEL_TEXT]; /* "": the server's keys */
    char set[2 * WEIR_CONFIG_MODEL_TEXT]; /* "KEY=VALUE", each ended by a newline */
    int64_t memory; /* bytes */
} weir_config_model;

/* Fields mirror the keys: kv.policy.name is config.kv.policy.name. Durations are in milliseconds,
 * with the suffix _ms: server.ping is config.server.ping_ms. Sizes are in bytes. 0 means "no limit"
 * or "automatic", as the key's help says. The struct has 200 KiB: keep it off small stacks. */
typedef struct weir_config {
    struct {
        weir_config_text path, name, arch_dir, arch, adapter;
        int64_t context;
    } model; /* path "": the bundled demo */
    struct {
        int64_t host, device, disk, snapshots, experts;
        bool expert_prefetch;
        double expert_pins;
        int64_t experts_timeout_ms;
        weir_config_text disk_dir, expert_reads;
    } memory;
    struct {
        bool full_windows;
        weir_config_text format, wide_format, reuse; /* "f16", "q8_0/turbo4"; "on", "off" */
        int64_t wide_layers, wide_sinks;
        struct {
            int64_t hot, host;
        } tiers;
        struct {
            weir_config_text name, options, calibration;
            int64_t budget, kept;
        } policy;
    } kv;
    struct {
        int64_t max_sequences, chunk, mixed_chunk, tokens, long_prompt, queue;
    } batch;
    struct {
        weir_config_text method, mtp;
        int64_t tokens, match;
    } speculation;
    struct {
        double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
        int64_t top_k, max_tokens, seed; /* seed -1: a new one for each request */
    } sampling;
    struct {
        weir_config_text host, api_key, api_key_file, aliases, allowed_hosts, allowed_origins;
        int64_t port, body_limit, header_limit, max_connections, connections_per_address, workers,
            header_timeout_ms, read_timeout_ms, write_timeout_ms, drain_timeout_ms, ping_ms;
        int64_t kv_per_request, kv_per_key;
        bool insecure;
        weir_config_text sandbox, on_overflow, metrics_compat, reasoning_field;
    } server;
    struct {
        weir_config_text device, activations, isa;
        int64_t threads;
        weir_config_pin pin[WEIR_CONFIG_PINS];
    } kernels; /* the list of pins ends with an empty op */
    struct {
        weir_config_text dir, numerics; /* "same", "any" */
        bool autosave;
        int64_t limit, io_threads;
    } sessions;
    struct {
        weir_config_text dir;
        int64_t memory, disk;
    } states;
    struct {
        int64_t wait_ms, queue;
    } router;
    struct {
        weir_config_text level;
    } log;
    weir_config_model models[WEIR_CONFIG_MODELS]; /* of a router */
    size_t n_models;
} weir_config;

/* Folders searched for --config NAME. All borrowed. */
typedef struct weir_config_search {
    const char *
        folder; /* the caller's folder, for relative names; NULL: the process's working directory */
    const char *const *folders; /* [n_folders] shipped configurations, searched next, in order */
    size_t n_folders;
} weir_config_search;

void weir_config_default(weir_config *config);
/* Applies a TOML file to *config, which is unchanged on failure. `name` is tried as a path, then in
 * search->folders, each as it is and with ".toml". ECONFIG names file, line and column; ENOTFOUND
 * names the folders searched. */
WEIR_MUST_CHECK weir_status weir_config_load(
    weir_config *config, const char *name, const weir_config_search *search, weir_error *error
);
/* Like weir_config_load, from memory; `name` is used in messages. */
WEIR_MUST_CHECK weir_status weir_config_parse(
    weir_config *config, const char *text, size_t length, const char *name, weir_error *error
);
/* Applies "kv.policy.name=full". Values are written as in TOML; quotes are optional. */
WEIR_MUST_CHECK weir_status
weir_config_assign(weir_config *config, const char *assignment, weir_error *error);
WEIR_MUST_CHECK weir_status
weir_config_set(weir_config *config, const char *path, const char *value, weir_error *error);
/* Applies environment variables, ["NAME=VALUE"] terminated by NULL: kv.policy.name is
 * WEIR_KV_POLICY_NAME. Empty ones count as not set, and so do those whose names do not begin with
 * WEIR_ and a section. ECONFIG names the variable. */
WEIR_MUST_CHECK weir_status
weir_config_environment(weir_config *config, const char *const *variables, weir_error *error);
/* True for "NAME=VALUE" if a key has this variable. */
bool weir_config_has_variable(const char *text);
/* Expands "~" and "~/..." with $HOME and copies other paths. ECONFIG: HOME is not set, or the path
 * is too long. */
WEIR_MUST_CHECK weir_status
weir_config_path(char *out, size_t capacity, const char *path, weir_error *error);
/* Checks relations between keys. Ranges of single keys are checked when they are set. */
WEIR_MUST_CHECK weir_status weir_config_check(const weir_config *config, weir_error *error);
/* Calls `visit` with each key whose value is not the default, and that value as TOML has it. Keys
 * that are secret are left out. Returns ENOMEM, or the first failure of `visit`. */
WEIR_MUST_CHECK weir_status weir_config_changed(
    const weir_config *config,
    weir_status (*visit)(void *user, const char *path, const char *value), void *user
);
/* Writes all keys with type, default and help, as --help-config prints them: a valid TOML file. */
WEIR_MUST_CHECK weir_status weir_config_describe(weir_buffer *out);
/* Writes the effective configuration as TOML. Secrets are masked. */
WEIR_MUST_CHECK weir_status weir_config_print(const weir_config *config, weir_buffer *out);

#ifdef __cplusplus
}
#endif
