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
 * An engine is one model loaded under one memory budget. A sequence is a list of tokens, prompt and
 * answers. What the model computed for a sequence (its KV rows and recurrent state) is in the
 * engine's prefix cache, which all sequences of the engine share: a common prefix is computed once.
 * The cache stays within the budget; when it is full, the least recently used parts are dropped and
 * computed again when they are needed. weir_sequence_usage says what was reused. Answers do not
 * depend on it: the same tokens give the same bits.
 *
 * Threads. Every function may be called from any thread, and several sequences may be computed
 * at the same time: the engine batches them. A sequence may be used by one thread at a time, except
 * for weir_sequence_cancel; so may a config. After fork() the child must not use an engine of its
 * parent. The engine starts threads and installs no signal handlers; the library never writes to
 * stdout, and to stderr only log lines (weir_log_to).
 *
 * Memory. The opaque types are created by _new or _open and freed by _free or _close, which accept
 * NULL. Arrays and strings that a function returns in an `out` argument are owned by the caller,
 * who frees them with weir_free. On failure `out` arguments are unchanged. Memory of the engine and
 * of sequences is charged to memory.host; memory owned by the caller is not.
 *
 * Strings are UTF-8. Sizes are in bytes unless a name says tokens or rows. */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION "0.1.0"

/* ---- errors ---------------------------------------------------------------------------------- */
/* Functions that can fail return a status, WEIR_OK (0) on success, and fill in `error`, which may
 * be NULL. Codes keep their numbers; new ones may be added. */
#ifndef WEIR_STATUS_MAP /* the engine's own headers define these */
typedef enum weir_status {
    WEIR_OK = 0,
    WEIR_EINVAL = 1, /* a bad argument */
    WEIR_ENOMEM = 2, /* out of memory, in the system or within memory.host; try again later */
    WEIR_EIO = 3, /* a file could not be read or written */
    WEIR_EFORMAT = 4, /* a file or a text is malformed */
    WEIR_EMISMATCH = 5, /* a file belongs to another model or configuration */
    WEIR_EUNSUPPORTED = 6, /* not supported, or not with this model */
    WEIR_EDEVICE = 7, /* the GPU failed */
    WEIR_EFULL = 8, /* does not fit in the budget, the context window or the queue */
    WEIR_ECANCELED = 9, /* weir_sequence_cancel was called */
    WEIR_ENOTFOUND = 10, /* a file or a model does not exist */
    WEIR_ECONFIG = 11 /* a configuration key or its value is invalid */
} weir_status;

typedef struct weir_error {
    weir_status code;
    char text[1000]; /* what failed, where, and what to do; no newline */
} weir_error;
#endif

const char *weir_status_text(weir_status status); /* static, such as "out of memory" */
const char *weir_version(void); /* WEIR_VERSION of the library that is running */
void weir_free(void *memory); /* frees what a function returned to the caller; NULL-safe */

/* Sends the process's log lines to `write` instead of stderr; NULL: to stderr again. level:
 * "error", "warning", "info" or "debug"; the key log.level sets the lowest level that is logged.
 * `write` may be called from any thread, with no newline in `text`, and must not call the
 * library. */
void weir_log_to(void (*write)(void *user, const char *level, const char *text), void *user);

/* ---- configuration --------------------------------------------------------------------------- */
typedef struct weir_config weir_config;

/* Creates a configuration with the defaults; `weir serve --help-config` lists all keys. log.level
 * is "warning". Returns NULL if out of memory. */
weir_config *weir_config_new(void);
void weir_config_free(weir_config *config);
/* Sets one key, as --set KEY=VALUE of the programs does: ("memory.host", "4GiB"), ("kv.format",
 * "q8_0"), ("batch.max_sequences", "4"). Returns ECONFIG with a message that names the nearest key,
 * or what is wrong with the value. */
weir_status weir_config_set(
    weir_config *config, const char *key, const char *value, weir_error *error
);
/* Reads the keys of a TOML file: a path, or the name of an installed configuration ("qwen35.toml").
 * Other keys are unchanged. Returns ECONFIG with file, line and column; ENOTFOUND. */
weir_status weir_config_read(weir_config *config, const char *path, weir_error *error);

/* ---- engine ---------------------------------------------------------------------------------- */
typedef struct weir_engine weir_engine;

/* Loads the model of `model.path`, a GGUF or safetensors file or a checkpoint folder, and allocates
 * its memory; an empty path is the demo model that is installed with Weir. config: copied; NULL:
 * defaults. Returns EFULL if it does not fit in memory.host, with a message that says how much
 * would; ECONFIG; ENOTFOUND; EFORMAT; EUNSUPPORTED. */
weir_status weir_engine_open(weir_engine **out, const weir_config *config, weir_error *error);
/* All sequences of the engine must have been freed. */
void weir_engine_close(weir_engine *engine);

/* Set `size` to sizeof(weir_engine_info) before the call; later versions append members. */
typedef struct weir_engine_info {
    size_t size;
    const char *model, *architecture; /* owned by the engine */
    int64_t parameters;
    int32_t context_length; /* most tokens of a sequence */
    int32_t vocab_size; /* tokens are 0 .. vocab_size - 1 */
    int32_t max_sequences; /* in one batch; others wait */
    int64_t kv_bytes_per_token; /* of KV rows */
    int64_t state_bytes; /* of a sequence, independent of its length */
} weir_engine_info;
void weir_engine_get_info(const weir_engine *engine, weir_engine_info *info);

/* Memory by account ("weights", "kv", "activations", ...): bytes charged now, in host memory, in
 * device memory and on disk. Fills in at most `capacity` entries. Returns the number of
 * accounts. */
typedef struct weir_memory_account {
    const char *name; /* static */
    size_t host, device, disk;
} weir_memory_account;
size_t weir_memory_accounts(const weir_engine *engine, weir_memory_account *out, size_t capacity);
/* The same as JSON, for each of host, device and disk: {"limit", "used", "peak", "accounts"}; limit
 * 0: none. Free with weir_free. Returns ENOMEM. */
weir_status weir_memory_json(const weir_engine *engine, char **out, weir_error *error);

/* ---- tokens and text ------------------------------------------------------------------------- */
/* These return EUNSUPPORTED if the model has no tokenizer, or no chat template. */

enum {
    WEIR_TOKENIZE_BOS = 1, /* prepend the beginning-of-sequence token if the model uses one */
    /* Parse "<|im_start|>" and other special tokens; otherwise they are plain text, as user input
     * must be. */
    WEIR_TOKENIZE_SPECIAL = 2
};
/* text [length] may have any bytes; ill-formed UTF-8 is read as U+FFFD. Returns EINVAL; ENOMEM. */
weir_status weir_tokenize(
    const weir_engine *engine, const char *text, size_t length, int flags, int32_t **out,
    size_t *n_out, weir_error *error
);
/* Special tokens give no text. *out is NUL-terminated; *length does not count the NUL. */
weir_status weir_detokenize(
    const weir_engine *engine, const int32_t *tokens, size_t n, char **out, size_t *length,
    weir_error *error
);
/* Renders the prompt of a chat with the model's template, ready for an answer. messages: JSON, an
 * array [{"role": "user", "content": "..."}, ...], or an object with "messages", "tools" and
 * variables of the template. out, text: either may be NULL. Special tokens in the content stay
 * plain text. Returns EFORMAT if it is not JSON, EINVAL if the template refuses it. */
weir_status weir_render_chat(
    const weir_engine *engine, const char *messages, size_t length, int32_t **out, size_t *n_out,
    char **text, weir_error *error
);
int weir_token_is_eog(const weir_engine *engine, int32_t token); /* nonzero if it ends an answer */

/* ---- sequences ------------------------------------------------------------------------------- */
typedef struct weir_sequence weir_sequence;

/* Creates an empty sequence. Returns EFULL or ENOMEM if its tokens and logits do not fit in
 * memory.host. */
weir_status weir_sequence_new(weir_sequence **out, weir_engine *engine, weir_error *error);
void weir_sequence_free(weir_sequence *sequence); /* the cache keeps what was computed */

/* Sets the tokens of the sequence (copied; n = 0 empties it) and computes them, except for the
 * longest prefix that is in the cache. Blocks. Returns EINVAL if a token is not in the vocabulary
 * or there are more than context_length: the sequence is unchanged. EFULL: the queue is full;
 * ENOMEM; ECANCELED: the tokens are set, and the next call computes what is missing. */
weir_status weir_sequence_sync(
    weir_sequence *sequence, const int32_t *tokens, size_t n, weir_error *error
);
/* Borrowed until the sequence changes. */
const int32_t *weir_sequence_tokens(const weir_sequence *sequence, size_t *n);
/* logits [vocab_size] for the token after the last one. Computes the last token first if needed, as
 * after weir_generate. Borrowed until the next call with the sequence. Returns EINVAL if it is
 * empty; errors of weir_sequence_sync. */
weir_status weir_sequence_logits(
    weir_sequence *sequence, const float **logits, size_t *vocab_size, weir_error *error
);

/* The fields are those of the [sampling] keys. Initialise with weir_sampling_params_init. */
typedef struct weir_sampling_params {
    size_t size; /* of this struct, for later versions */
    int32_t max_tokens; /* 0: until the model ends the answer or the window is full */
    int32_t min_tokens; /* the answer has at least this many tokens */
    int32_t ignore_eos; /* nonzero: the answer ends only by max_tokens */
    int32_t top_k; /* 0: off */
    float temperature; /* 0: the most likely token (greedy) */
    float top_p, min_p; /* 1 and 0: off */
    float repetition_penalty; /* 1: off; over prompt and answer */
    float presence_penalty, frequency_penalty; /* 0: off; over the answer */
    int64_t seed; /* the same seed gives the same tokens; -1: a random one per call */
} weir_sampling_params;
/* Fills in the engine's configuration; size: sizeof(weir_sampling_params). */
void weir_sampling_params_init(
    weir_sampling_params *params, size_t size, const weir_engine *engine
);

/* Called in the thread of weir_generate for each token, in order: `text` [length] is the text that
 * it completes, valid UTF-8, NUL-terminated, possibly empty. token -1: the text of an incomplete
 * character, at the very end. Returns 0 to continue, nonzero to stop: the token is then the last of
 * the sequence. It may use the engine and other sequences. */
typedef int weir_token_callback(void *user, int32_t token, const char *text, size_t length);

/* Continues the sequence until the model ends its answer, max_tokens, or the callback stops. The
 * tokens are appended, including the one that ends the answer. params NULL: as configured; callback
 * may be NULL. Returns EINVAL if the sequence is empty, or a parameter is out of range; errors of
 * weir_sequence_sync. ECANCELED: earlier tokens stay. */
weir_status weir_generate(
    weir_sequence *sequence, const weir_sampling_params *params, weir_token_callback *callback,
    void *user, weir_error *error
);
/* Why the last answer ended: "stop" (the model or the callback), "length", "cancelled", or "". */
const char *weir_finish_reason(const weir_sequence *sequence);
/* Makes the running sync or generate call of this sequence return ECANCELED soon; does nothing if
 * there is none. From any thread, and from signal handlers. */
void weir_sequence_cancel(weir_sequence *sequence);

/* Writes the tokens and all that was computed for them to a file; another process with the same
 * model and KV configuration restores it and continues with the same bits. The file appears
 * complete or not at all. Returns EINVAL for fewer than 2 tokens; ENOTFOUND if it is no longer in
 * the cache: sync again; EUNSUPPORTED if kv.reuse is "off"; EIO. */
weir_status weir_sequence_save(weir_sequence *sequence, const char *path, weir_error *error);
/* Sets the tokens from the file, and restores to the cache what was computed for them. Returns
 * ENOTFOUND; EFORMAT if it is damaged; EMISMATCH if it is of another model or KV configuration;
 * EFULL; EIO. On failure the sequence is unchanged. */
weir_status weir_sequence_restore(weir_sequence *sequence, const char *path, weir_error *error);

/* For the last sync, logits or generate call. Set `size` to sizeof(weir_usage_report) before the
 * call; later versions append members. */
typedef struct weir_usage_report {
    size_t size;
    int64_t prompt_tokens; /* in the sequence at the start of the call */
    int64_t cached_tokens, computed_tokens; /* of them: reused; computed by this call */
    int64_t answer_tokens; /* sampled by the call */
    int64_t kept_rows, evicted_rows; /* KV rows at the end; dropped by kv.policy */
    int64_t kv_bytes; /* of the kept rows */
    double prefill_seconds, decode_seconds;
    const char *reuse; /* why cached_tokens is not larger; static, may be "" */
} weir_usage_report;
void weir_sequence_usage(const weir_sequence *sequence, weir_usage_report *report);

#ifdef __cplusplus
}
#endif
#endif
