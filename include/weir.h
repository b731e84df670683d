/* weir.h - the C API of Weir, an inference engine for language models whose key/value memory is
 * bounded, accounted and portable.
 *
 *     weir_config   *config = weir_config_new();
 *     weir_engine   *engine;
 *     weir_sequence *sequence;
 *     weir_error     error;
 *     if (weir_config_set(config, "model.path", "model.gguf", &error) ||
 *         weir_config_set(config, "memory.host", "4GiB", &error) ||
 *         weir_engine_open(&engine, config, &error) ||
 *         weir_sequence_new(&sequence, engine, &error))
 *         fprintf(stderr, "%s\n", error.text);
 *
 * An engine is one model loaded under one memory budget. A sequence is a list of tokens that the
 * model has read or written. What the model computed for a sequence (its KV rows and recurrent
 * state) is kept in the engine's cache, which all sequences of the engine share: a common prefix is
 * computed once. The cache stays within the budget; when it is full, the least recently used
 * entries are dropped, and recomputed if they are needed again. weir_sequence_usage reports what
 * was reused and what was computed. Answers do not depend on it: the same tokens give the same
 * bits.
 *
 * Threads. Every function may be called from any thread, and several sequences may run at the same
 * time: the engine computes them in one batch. A sequence must be used by one thread at a time,
 * except for weir_sequence_cancel. A config must be used by one thread at a time. After fork() the
 * child must not use an engine of its parent. The engine starts its own threads and installs no
 * signal handlers. The library never writes to stdout; it writes only log lines to stderr
 * (weir_log_to).
 *
 * Memory. Opaque types are created by _new or _open and destroyed by _free or _close, which accept
 * NULL. Arrays and strings returned in an `out` argument belong to the caller, who frees them with
 * weir_free. On failure `out` arguments are unchanged. Memory of the engine and of sequences counts
 * against memory.host; memory of the caller does not.
 *
 * Strings are UTF-8. Sizes are bytes unless the name says tokens or rows. */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION "0.1.0"

/* ---- errors ---------------------------------------------------------------------------------- */
/* Functions that can fail return a status: WEIR_OK (0) on success, else a code that also fills
 * `error`, which may be NULL. Codes keep their numbers; later versions may add codes. */
#ifndef WEIR_STATUS_MAP /* the engine's own headers define these */
typedef enum weir_status {
    WEIR_OK = 0,
    WEIR_EINVAL = 1, /* a bad argument */
    WEIR_ENOMEM = 2, /* the system or memory.host has no memory now; try again later */
    WEIR_EIO = 3, /* a file could not be read or written */
    WEIR_EFORMAT = 4, /* a file or an input is malformed */
    WEIR_EMISMATCH = 5, /* a file belongs to another model or configuration */
    WEIR_EUNSUPPORTED = 6, /* not supported, or not with this model */
    WEIR_EDEVICE = 7, /* a GPU error */
    WEIR_EFULL = 8, /* does not fit the budget, the context window or the queue */
    WEIR_ECANCELED = 9, /* weir_sequence_cancel was called */
    WEIR_ENOTFOUND = 10, /* no such file or model */
    WEIR_ECONFIG = 11 /* a configuration key or its value is wrong */
} weir_status;

typedef struct weir_error {
    weir_status code;
    char text[1000]; /* what failed, where, and what to do; no newline */
} weir_error;
#endif

const char *weir_status_text(weir_status status); /* such as "out of memory"; static */
const char *weir_version(void); /* WEIR_VERSION of the loaded library */
void weir_free(void *memory); /* frees memory returned by the library; accepts NULL */

/* Sends the log lines of the process to `write`, or back to stderr if it is NULL. level: "error",
 * "warning", "info" or "debug"; the key log.level sets the lowest level written. `write` may be
 * called from any thread and must not call the library. `text` has no newline. */
void weir_log_to(void (*write)(void *user, const char *level, const char *text), void *user);

/* ---- configuration --------------------------------------------------------------------------- */
typedef struct weir_config weir_config;

/* Returns a configuration with the defaults, but log.level "warning"; NULL if there is no memory.
 * `weir serve --help-config` lists all keys. */
weir_config *weir_config_new(void);
void weir_config_free(weir_config *config);
/* Sets a key, like --set KEY=VALUE of the programs: ("memory.host", "4GiB"), ("kv.format", "q8_0"),
 * ("batch.max_sequences", "4"). ECONFIG: the message names the nearest key, or says what is wrong
 * with the value. */
weir_status weir_config_set(
    weir_config *config, const char *key, const char *value, weir_error *error
);
/* Sets the keys of a TOML file, given as a path or as the name of an installed configuration
 * ("qwen35.toml"). Other keys are unchanged. ECONFIG with file, line and column; ENOTFOUND. */
weir_status weir_config_read(weir_config *config, const char *path, weir_error *error);

/* ---- engine ---------------------------------------------------------------------------------- */
typedef struct weir_engine weir_engine;

/* Loads the model at `model.path` (a GGUF or safetensors file, a checkpoint folder, or the name of
 * a model of `weir get`, OWNER/NAME[:QUANT]; empty: the demo model that comes with Weir) and
 * allocates its memory. config: copied; NULL: defaults. EFULL: it does not fit memory.host, and the
 * message says how much would suffice; ECONFIG; ENOTFOUND; EFORMAT; EUNSUPPORTED. */
weir_status weir_engine_open(weir_engine **out, const weir_config *config, weir_error *error);
/* Frees the engine. Free all its sequences first. */
void weir_engine_close(weir_engine *engine);

/* Set `size` to sizeof(weir_engine_info) before the call; later versions append members. */
typedef struct weir_engine_info {
    size_t size;
    const char *model, *architecture; /* valid as long as the engine */
    int64_t parameters;
    int32_t context_length; /* maximum tokens of a sequence */
    int32_t vocab_size; /* tokens are 0 .. vocab_size - 1 */
    int32_t max_sequences; /* computed in one batch; further ones wait */
    int64_t kv_bytes_per_token; /* of KV rows */
    int64_t state_bytes; /* of a sequence, independent of its length */
} weir_engine_info;
void weir_engine_get_info(const weir_engine *engine, weir_engine_info *info);

/* Reports memory by account ("weights", "kv", "activations", ...): bytes currently charged in host
 * memory, in device memory and on disk. Fills at most `capacity` entries and returns the number of
 * accounts. */
typedef struct weir_memory_account {
    const char *name; /* static */
    size_t host, device, disk;
} weir_memory_account;
size_t weir_memory_accounts(const weir_engine *engine, weir_memory_account *out, size_t capacity);
/* Reports memory as JSON: for each of host, device and disk {"limit", "used", "peak", "accounts"};
 * limit 0 means none. Free *out with weir_free. ENOMEM. */
weir_status weir_memory_json(const weir_engine *engine, char **out, weir_error *error);

/* ---- tokens and text ------------------------------------------------------------------------- */
/* These functions return EUNSUPPORTED if the model has no tokenizer, or no chat template. */

enum {
    WEIR_TOKENIZE_BOS = 1, /* prepend the beginning-of-sequence token, if the model uses one */
    /* Parse special tokens such as "<|im_start|>". Without it they are plain text, as is right for
     * user input. */
    WEIR_TOKENIZE_SPECIAL = 2
};
/* Tokenises text [length], which may contain any bytes; ill-formed UTF-8 is read as U+FFFD. EINVAL;
 * ENOMEM. */
weir_status weir_tokenize(
    const weir_engine *engine, const char *text, size_t length, int flags, int32_t **out,
    size_t *n_out, weir_error *error
);
/* Converts tokens to text, without special tokens. *out ends with a NUL, which *length does not
 * count. */
weir_status weir_detokenize(
    const weir_engine *engine, const int32_t *tokens, size_t n, char **out, size_t *length,
    weir_error *error
);
/* Renders the prompt of a chat with the model's own template, ready for an answer. messages: JSON,
 * an array [{"role": "user", "content": "..."}, ...], or an object with "messages", "tools" and
 * variables of the template. out, text: either may be NULL. Special tokens in the content stay
 * plain text. EFORMAT: not JSON; EINVAL: the template refuses it. */
weir_status weir_render_chat(
    const weir_engine *engine, const char *messages, size_t length, int32_t **out, size_t *n_out,
    char **text, weir_error *error
);
/* Returns 1 if the token ends an answer, else 0. */
int weir_token_is_eog(const weir_engine *engine, int32_t token);

/* ---- sequences ------------------------------------------------------------------------------- */
typedef struct weir_sequence weir_sequence;

/* Creates an empty sequence. EFULL, ENOMEM: memory.host has no room for its tokens and logits. */
weir_status weir_sequence_new(weir_sequence **out, weir_engine *engine, weir_error *error);
void weir_sequence_free(weir_sequence *sequence); /* its KV rows stay in the cache */

/* Makes the sequence hold exactly these tokens (copied; n = 0 empties it) and waits until they are
 * computed: the longest prefix in the cache is reused, the rest is computed. EINVAL: a token is not
 * in the vocabulary, or there are more than context_length; the sequence is unchanged. EFULL: the
 * queue is full. ENOMEM. ECANCELED: the sequence holds the tokens, and the next call computes what
 * is missing. */
weir_status weir_sequence_sync(
    weir_sequence *sequence, const int32_t *tokens, size_t n, weir_error *error
);
/* Returns the tokens and their number in *n. Borrowed until the sequence changes. */
const int32_t *weir_sequence_tokens(const weir_sequence *sequence, size_t *n);
/* Returns logits [vocab_size] for the token after the last one. Computes the last token first if
 * needed, as after weir_generate. Borrowed until the next call with the sequence. EINVAL: the
 * sequence is empty; also the errors of weir_sequence_sync. */
weir_status weir_sequence_logits(
    weir_sequence *sequence, const float **logits, size_t *vocab_size, weir_error *error
);

/* Fields as the keys in [sampling]. Initialise with weir_sampling_params_init. */
typedef struct weir_sampling_params {
    size_t size; /* sizeof(weir_sampling_params) */
    int32_t max_tokens; /* 0: until the model stops or the context is full */
    int32_t min_tokens; /* the answer has at least this many */
    int32_t ignore_eos; /* not 0: only max_tokens ends the answer */
    int32_t top_k; /* 0: off */
    float temperature; /* 0: the most likely token (greedy) */
    float top_p, min_p; /* 1 and 0: off */
    float repetition_penalty; /* 1: off; over prompt and answer */
    float presence_penalty, frequency_penalty; /* 0: off; over the answer */
    int64_t seed; /* equal seeds give equal tokens; -1: a new seed for each call */
} weir_sampling_params;
/* Sets the values of the engine's configuration. size: sizeof(weir_sampling_params). */
void weir_sampling_params_init(
    weir_sampling_params *params, size_t size, const weir_engine *engine
);

/* Called on the thread of weir_generate for each token, in order. `text` [length] is the text that
 * the token completes: valid UTF-8, NUL-terminated, possibly empty. At the end it may be called
 * with token -1 and the text of an incomplete character. Return 0 to continue; any other value
 * stops, and the token is then the last of the sequence. It may use the engine and other
 * sequences. */
typedef int weir_token_callback(void *user, int32_t token, const char *text, size_t length);

/* Continues the sequence until the model ends its answer, max_tokens is reached, or the callback
 * stops. Appends the tokens, including the one that ends the answer. params NULL: as configured;
 * callback NULL: none. EINVAL: the sequence is empty, or a parameter is out of range; also the
 * errors of weir_sequence_sync. ECANCELED: the tokens so far stay. */
weir_status weir_generate(
    weir_sequence *sequence, const weir_sampling_params *params, weir_token_callback *callback,
    void *user, weir_error *error
);
/* Returns why the last answer ended: "stop" (the model or the callback), "length", "cancelled", or
 * "" if there is none. */
const char *weir_finish_reason(const weir_sequence *sequence);
/* Makes a running sync or generate call with this sequence return ECANCELED soon. No effect if none
 * is running. May be called from any thread and from signal handlers. */
void weir_sequence_cancel(weir_sequence *sequence);

/* Writes the tokens and everything computed for them to a file. Another process with the same
 * model, KV configuration and numerics (see weir_sequence_restore) continues it with the same bits.
 * The file is written atomically. EINVAL: fewer than 2 tokens; ENOTFOUND: no longer in the cache,
 * sync again; EUNSUPPORTED: kv.reuse is "off"; EIO. */
weir_status weir_sequence_save(weir_sequence *sequence, const char *path, weir_error *error);
/* Reads the tokens into the sequence, and what was computed for them into the cache. ENOTFOUND;
 * EFORMAT: damaged; EMISMATCH: another model or KV configuration, or other numerics: instruction
 * set, device, kernel pins, activations or adapter, which the key sessions.numerics = "any" allows
 * (weir_usage_report.numerics); EFULL; EIO. On failure the sequence is unchanged. */
weir_status weir_sequence_restore(weir_sequence *sequence, const char *path, weir_error *error);

/* Usage of the last sync, logits or generate call. Set `size` to sizeof(weir_usage_report) before
 * the call; later versions append members. */
typedef struct weir_usage_report {
    size_t size;
    int64_t prompt_tokens; /* in the sequence at the start of the call */
    int64_t cached_tokens, computed_tokens; /* of these: reused, computed */
    int64_t answer_tokens; /* generated by the call */
    int64_t kept_rows, evicted_rows; /* KV rows at the end: kept, dropped by kv.policy */
    int64_t kv_bytes; /* of the kept rows */
    double prefill_seconds, decode_seconds;
    const char *reuse; /* why cached_tokens is not larger, or ""; static */
    /* With the key sessions.numerics = "any": what the cached tokens were computed with, if a file
     * of other numerics was restored; the answer may then differ from a cold one. Otherwise "".
     * Valid as long as the engine. */
    const char *numerics;
} weir_usage_report;
void weir_sequence_usage(const weir_sequence *sequence, weir_usage_report *report);

#ifdef __cplusplus
}
#endif
#endif
