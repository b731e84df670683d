/* engine/config/config.h - run configuration: one table of keys (keys.inc) gives name, type, unit, default, range and help text.
 *
 * Precedence: defaults < TOML file < --set and flags, in the order given. An unknown key is an error that names the nearest key. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_CONFIG_TEXT = 4096 };
typedef char weir_config_text[WEIR_CONFIG_TEXT];

/* Fields mirror the keys: kv.policy.name -> config.kv.policy.name. Sizes are bytes; 0 means "no limit" or "choose", as each key says. */
typedef struct weir_config {
    struct { weir_config_text path, name; int64_t context; } model;            /* path "": the bundled demo */
    struct { int64_t host, device, disk; } memory;
    struct {
        weir_config_text format;                                               /* "f16", "f32" */
        struct { weir_config_text name; int64_t budget; } policy;              /* "full" now */
    } kv;
    struct { int64_t max_sequences, chunk, queue; } batch;
    struct { double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty; int64_t top_k, max_tokens; } sampling;
    struct {
        weir_config_text host, api_key, api_key_file;
        int64_t port, body_limit, header_limit, max_connections, read_timeout_ms, write_timeout_ms, drain_timeout_ms;
        bool insecure;
        weir_config_text metrics_compat, reasoning_field;
    } server;
    struct { weir_config_text activations, isa; int64_t threads; weir_config_text pins; } kernels;
    struct { weir_config_text dir; } sessions;
} weir_config;

void weir_config_default(weir_config *config);
/* Reads a TOML file. `name` is looked for as a path (relative to the caller's folder, $BUILD_WORKING_DIRECTORY under bazel run), then in
 * configs/, with and without ".toml". ECONFIG with file, line and column. */
WEIR_MUST_CHECK weir_status weir_config_load(weir_config *config, const char *name, weir_error *error);
/* "kv.policy.name=h2o"; values as in TOML, quotes optional. */
WEIR_MUST_CHECK weir_status weir_config_set(weir_config *config, const char *assignment, weir_error *error);
/* Relations between keys (ranges of single keys are checked when they are set). */
WEIR_MUST_CHECK weir_status weir_config_check(const weir_config *config, weir_error *error);
/* All keys with type, default and help, as --help-config prints them; and the effective configuration as TOML. */
WEIR_MUST_CHECK weir_status weir_config_describe(weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_config_print(const weir_config *config, weir_buffer *out);

#ifdef __cplusplus
}
#endif
