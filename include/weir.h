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
 * An engine is one model loaded under one memory budget. A sequence is a text, as tokens, that the
 * model has read or written. What the model computed of a sequence (its KV rows and recurrent
 * state) lives in the engine's cache, which all sequences of the engine share: sequences that begin
 * alike are computed once. The cache stays within the budget; when it is full, the least recently
 * used parts are dropped and computed again when they are needed. weir_sequence_usage says what was
 * reused and what was not. Answers do not depend on it: the same tokens give the same bits.
 *
 * Threads. Every function may be called from any thread, and several sequences may work at the same
 * time: the engine computes them in one batch. One sequence is used by one thread at a time, except
 * for weir_sequence_cancel. A config is used by one thread at a time. After fork() the child must
 * not use an engine of its parent. The engine starts threads of its own and installs no signal
 * handlers; the library never writes to stdout, and to stderr only log lines (weir_log_to).
 *
 * Memory. The opaque types are made by _new or _open and ended by _free or _close, which accept
 * NULL. Arrays and texts that a function returns in an `out` argument belong to the caller and are
 * freed with weir_free. On failure `out` arguments are unchanged. Memory of the engine and of
 * sequences counts against memory.host; what belongs to the caller does not.
 *
 * Texts are UTF-8. Sizes are bytes unless a name says tokens or rows. */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION "0.1.0"

/* ---- errors ---------------------------------------------------------------------------------- */
/* Functions that can fail return a status, WEIR_OK (0) on success, and fill `error`, which may be
 * NULL. Codes keep their numbers; new ones may be added. */
#ifndef WEIR_STATUS_MAP /* the sources of the engine have these from their own headers */
typedef enum weir_status {
    WEIR_OK = 0,
    WEIR_EINVAL = 1, /* a bad argument */
    WEIR_ENOMEM = 2, /* no memory now, from the system or within memory.host; try again later */
    WEIR_EIO = 3, /* a file could not be read or written */
    WEIR_EFORMAT = 4, /* a file or a text is malformed */
    WEIR_EMISMATCH = 5, /* a file belongs to another model or configuration */
    WEIR_EUNSUPPORTED = 6, /* not supported, or not with this model */
    WEIR_EDEVICE = 7, /* the GPU failed */
    WEIR_EFULL = 8, /* does not fit the budget, the context window or the queue */
    WEIR_ECANCELED = 9, /* weir_sequence_cancel was called */
    WEIR_ENOTFOUND = 10, /* a file or a model is not there */
    WEIR_ECONFIG = 11 /* a configuration key or its value is wrong */
} weir_status;

typedef struct weir_error {
    weir_status code;
    char text[1000]; /* what failed, where, and what to do; no newline */
} weir_error;
#endif

const char *weir_status_text(weir_status status); /* "out of memory"; static */
const char *weir_version(void); /* WEIR_VERSION of the library that runs */
void weir_free(void *memory); /* what a function returned to the caller; NULL is fine */

/* Log lines of the process go to `write` instead of stderr, NULL: to stderr again. level: "error",
 * "warning", "info" or "debug"; the key log.level sets the least important one that is written. It
 * is called from any thread, without a newline in `text`, and must not call the library. */
void weir_log_to(void (*write)(void *user, const char *level, const char *text), void *user);

/* ---- configuration --------------------------------------------------------------------------- */
typedef struct weir_config weir_config;

/* Defaults; `weir serve --help-config` lists all keys. log.level is "warning". NULL: no memory. */
weir_config *weir_config_new(void);
void weir_config_free(weir_config *config);
/* One key, as --set KEY=VALUE of the programs does: ("memory.host", "4GiB"), ("kv.format", "q8_0"),
 * ("batch.max_sequences", "4"). ECONFIG names the nearest key, or what is wrong with the value. */
weir_status weir_config_set(
    weir_config *config, const char *key, const char *value, weir_error *error
);
/* The keys of a TOML file: a path, or the name of an installed configuration ("qwen35.toml"). Keys
 * that it does not hold stay as they are. ECONFIG with file, line and column; ENOTFOUND. */
weir_status weir_config_read(weir_config *config, const char *path, weir_error *error);

/* ---- engine ---------------------------------------------------------------------------------- */
typedef struct weir_engine weir_engine;

/* Loads the model of `model.path`, a GGUF or safetensors file or a checkpoint folder, and takes its
 * memory; an empty path is the demo model that comes with Weir. config: copied; NULL: defaults.
 * EFULL: it does not fit memory.host, and the text says how much would; ECONFIG; ENOTFOUND;
 * EFORMAT; EUNSUPPORTED. */
weir_status weir_engine_open(weir_engine **out, const weir_config *config, weir_error *error);
/* All sequences of the engine have been freed before. */
void weir_engine_close(weir_engine *engine);

/* Set `size` to sizeof(weir_engine_info) before the call; later versions append members. */
typedef struct weir_engine_info {
    size_t size;
    const char *model, *architecture; /* live as long as the engine */
    int64_t parameters;
    int32_t context_length; /* tokens that a sequence may have */
    int32_t vocab_size; /* tokens are 0 .. vocab_size - 1 */
    int32_t max_sequences; /* computed in one batch; others wait their turn */
    int64_t kv_bytes_per_token; /* of KV rows */
    int64_t state_bytes; /* of a sequence, whatever its length */
} weir_engine_info;
void weir_engine_get_info(const weir_engine *engine, weir_engine_info *info);

/* Memory by account ("weights", "kv", "activations", ...): bytes charged now, in host memory, in
 * device memory and on disk. Fills at most `capacity` entries and returns how many there are. */
typedef struct weir_memory_account {
    const char *name; /* static */
    size_t host, device, disk;
} weir_memory_account;
size_t weir_memory_accounts(const weir_engine *engine, weir_memory_account *out, size_t capacity);
/* The same as JSON, for each of host, device and disk: {"limit", "used", "peak", "accounts"}; limit
 * 0: none. free: weir_free. ENOMEM. */
weir_status weir_memory_json(const weir_engine *engine, char **out, weir_error *error);

/* ---- tokens and text ------------------------------------------------------------------------- */
/* EUNSUPPORTED where the model has no tokenizer, or no chat template. */

enum {
    WEIR_TOKENIZE_BOS = 1, /* put the beginning-of-sequence token first, if the model wants one */
    WEIR_TOKENIZE_SPECIAL = 2 /* "<|im_start|>" and the like become special tokens; without it they
                                 are plain text, as text of users must be */
};
/* text [length] may hold any bytes; ill-formed UTF-8 is read as U+FFFD. EINVAL; ENOMEM. */
weir_status weir_tokenize(
    const weir_engine *engine, const char *text, size_t length, int flags, int32_t **out,
    size_t *n_out, weir_error *error
);
/* Special tokens leave no text. *out ends with a NUL that *length does not count. */
weir_status weir_detokenize(
    const weir_engine *engine, const int32_t *tokens, size_t n, char **out, size_t *length,
    weir_error *error
);
/* The prompt of a chat, by the model's own template, ready for an answer. messages: JSON, an array
 * [{"role": "user", "content": "..."}, ...], or an object with "messages", "tools" and variables of
 * the template. out, text: either may be NULL. Special tokens in the content stay plain text.
 * EFORMAT: not JSON; EINVAL: the template refuses it. */
weir_status weir_render_chat(
    const weir_engine *engine, const char *messages, size_t length, int32_t **out, size_t *n_out,
    char **text, weir_error *error
);
int weir_token_is_eog(const weir_engine *engine, int32_t token); /* it ends an answer */

/* ---- sequences ------------------------------------------------------------------------------- */
typedef struct weir_sequence weir_sequence;

/* An empty one. EFULL, ENOMEM: memory.host has no room for its tokens and logits. */
weir_status weir_sequence_new(weir_sequence **out, weir_engine *engine, weir_error *error);
void weir_sequence_free(weir_sequence *sequence); /* what was computed stays in the cache */

/* Makes the sequence hold exactly these tokens (copied; n = 0 empties it) and computes what is not
 * in the cache: the longest beginning that any sequence had is reused, the rest is computed. Waits
 * for it. EINVAL: a token is not in the vocabulary, or there are more than context_length, and the
 * sequence is as it was. EFULL: the queue is full; ENOMEM; ECANCELED: it holds the tokens, and the
 * next call computes what is missing. */
weir_status weir_sequence_sync(
    weir_sequence *sequence, const int32_t *tokens, size_t n, weir_error *error
);
/* Borrowed until the sequence changes. */
const int32_t *weir_sequence_tokens(const weir_sequence *sequence, size_t *n);
/* logits [vocab_size] for the token that follows the last one. Computes the last token first if
 * that has not been done, as after weir_generate. Borrowed until the next call with the sequence.
 * EINVAL: it is empty; errors of weir_sequence_sync. */
weir_status weir_sequence_logits(
    weir_sequence *sequence, const float **logits, size_t *vocab_size, weir_error *error
);

/* The fields are those of the [sampling] keys. Set by weir_sampling_params_init. */
typedef struct weir_sampling_params {
    size_t size; /* of this struct, for later versions */
    int32_t max_tokens; /* 0: until the model ends the answer or the window is full */
    int32_t min_tokens; /* the answer does not end before */
    int32_t ignore_eos; /* not 0: the answer ends by max_tokens alone */
    int32_t top_k; /* 0: off */
    float temperature; /* 0: the most likely token (greedy) */
    float top_p, min_p; /* 1 and 0: off */
    float repetition_penalty; /* 1: off; over prompt and answer */
    float presence_penalty, frequency_penalty; /* 0: off; over the answer */
    int64_t seed; /* equal seeds draw equal tokens; -1: a new one for each call */
} weir_sampling_params;
/* Fills in the engine's configuration; size: sizeof(weir_sampling_params). */
void weir_sampling_params_init(
    weir_sampling_params *params, size_t size, const weir_engine *engine
);

/* Called in the thread of weir_generate for each token, in order: `text` [length] is what became
 * complete with it, valid UTF-8, NUL-terminated, perhaps empty. token -1: text that was held back
 * for the rest of a character, at the very end. Returns 0 to go on, anything else to stop: the
 * token is the last of the sequence then. It may use the engine and other sequences. */
typedef int weir_token_callback(void *user, int32_t token, const char *text, size_t length);

/* Continues the sequence until the model ends its answer, max_tokens, or the callback stops; the
 * tokens are appended, the one that ends an answer too. params NULL: as configured; callback NULL:
 * none. EINVAL: the sequence is empty, or a parameter is out of range; errors of
 * weir_sequence_sync. ECANCELED: tokens that came before stay. */
weir_status weir_generate(
    weir_sequence *sequence, const weir_sampling_params *params, weir_token_callback *callback,
    void *user, weir_error *error
);
/* Why the last answer ended: "stop" (the model or the callback), "length", "cancelled", or "". */
const char *weir_finish_reason(const weir_sequence *sequence);
/* Ends the sync or generate call that runs with this sequence, soon, with ECANCELED; without one,
 * nothing happens. From any thread, and from signal handlers. */
void weir_sequence_cancel(weir_sequence *sequence);

/* Writes the text and all that was computed of it to one file; another process with the same model
 * and configuration of KV restores it and goes on with the same bits. The file appears whole or not
 * at all. EINVAL: fewer than 2 tokens; ENOTFOUND: not in the cache any more, sync again;
 * EUNSUPPORTED: kv.reuse is "off"; EIO. */
weir_status weir_sequence_save(weir_sequence *sequence, const char *path, weir_error *error);
/* The sequence holds the tokens of the file, and the cache what was computed of them. ENOTFOUND;
 * EFORMAT: damaged; EMISMATCH: of another model or KV configuration; EFULL; EIO. On failure the
 * sequence is as it was. */
weir_status weir_sequence_restore(weir_sequence *sequence, const char *path, weir_error *error);

/* Of the last sync, logits or generate call. Set `size` to sizeof(weir_usage_report) before the
 * call; later versions append members. */
typedef struct weir_usage_report {
    size_t size;
    int64_t prompt_tokens; /* in the sequence at the start of the call */
    int64_t cached_tokens, computed_tokens; /* of them: reused; computed by this call */
    int64_t answer_tokens; /* that the call drew */
    int64_t kept_rows, evicted_rows; /* KV rows at the end: there; dropped by kv.policy */
    int64_t kv_bytes; /* that the kept rows take */
    double prefill_seconds, decode_seconds;
    const char *reuse; /* why cached_tokens is not more; static, "" when there is nothing to say */
} weir_usage_report;
void weir_sequence_usage(const weir_sequence *sequence, weir_usage_report *report);

#ifdef __cplusplus
}
#endif
#endif
