/* engine/config/config.h - run configuration: one table of keys (keys.inc) gives name, type, unit,
 * default, range and help text.
 *
 * Precedence: defaults < TOML file < --set and flags, in the order given. An unknown key is an
 * error that names the nearest key. */
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

/* Fields mirror the keys: kv.policy.name -> config.kv.policy.name; a duration's field ends in _ms:
 * server.ping -> config.server.ping_ms. Sizes are bytes; 0 means "no limit" or "choose", as each
 * key says. About 60 KiB: one per process, not on deep stacks. */
typedef struct weir_config {
    struct {
        weir_config_text path, name, arch_dir, arch, adapter;
        int64_t context;
    } model; /* path "": the bundled demo */
    struct {
        int64_t host, device, disk, snapshots;
        weir_config_text disk_dir;
    } memory;
    struct {
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
        int64_t max_sequences, chunk, queue;
    } batch;
    struct {
        double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
        int64_t top_k, max_tokens, seed; /* seed -1: a new one for every request */
    } sampling;
    struct {
        weir_config_text host, api_key, api_key_file, allowed_hosts, allowed_origins;
        int64_t port, body_limit, header_limit, max_connections, connections_per_address,
            header_timeout_ms, read_timeout_ms, write_timeout_ms, drain_timeout_ms, ping_ms;
        int64_t kv_per_request, kv_per_key;
        bool insecure;
        weir_config_text sandbox, on_overflow, metrics_compat, reasoning_field;
    } server;
    struct {
        weir_config_text device, activations, isa;
        int64_t threads;
        weir_config_pin pin[WEIR_CONFIG_PINS];
    } kernels; /* pins end at op "" */
    struct {
        weir_config_text dir;
        bool autosave;
        int64_t limit;
    } sessions;
    struct {
        weir_config_text dir;
        int64_t memory, disk;
    } states;
    struct {
        weir_config_text level;
    } log;
} weir_config;

/* Where --config NAME is looked for. All borrowed. */
typedef struct weir_config_search {
    const char *
        folder; /* the caller's: relative names start here; NULL: the process's working directory */
    const char *const *folders; /* [n_folders] of shipped configurations, tried in order after it */
    size_t n_folders;
} weir_config_search;

void weir_config_default(weir_config *config);
/* Reads a TOML file over *config, which stays as it was on failure. `name` is tried as a path, then
 * in search->folders, each as it is and with ".toml". ECONFIG with file, line and column; ENOTFOUND
 * names the places. */
WEIR_MUST_CHECK weir_status weir_config_load(
    weir_config *config, const char *name, const weir_config_search *search, weir_error *error
);
/* The same from memory; `name` is for messages. */
WEIR_MUST_CHECK weir_status weir_config_parse(
    weir_config *config, const char *text, size_t length, const char *name, weir_error *error
);
/* "kv.policy.name=full"; values as in TOML, quotes optional. */
WEIR_MUST_CHECK weir_status
weir_config_assign(weir_config *config, const char *assignment, weir_error *error);
WEIR_MUST_CHECK weir_status
weir_config_set(weir_config *config, const char *path, const char *value, weir_error *error);
/* "~" and "~/..." with $HOME before them, other paths as they are. ECONFIG: HOME is not set, or the
 * path is too long. */
WEIR_MUST_CHECK weir_status
weir_config_path(char *out, size_t room, const char *path, weir_error *error);
/* Relations between keys (ranges of single keys are checked when they are set). */
WEIR_MUST_CHECK weir_status weir_config_check(const weir_config *config, weir_error *error);
/* All keys with type, default and help, as --help-config prints them: a TOML file that holds the
 * defaults. */
WEIR_MUST_CHECK weir_status weir_config_describe(weir_buffer *out);
/* The effective configuration as TOML; secrets are masked. */
WEIR_MUST_CHECK weir_status weir_config_print(const weir_config *config, weir_buffer *out);

#ifdef __cplusplus
}
#endif
