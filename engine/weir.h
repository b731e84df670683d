/* engine/weir.h - the engine: one model loaded under one memory budget, and the parts that a program stands on.
 *
 * Everything handed out is borrowed and lives until weir_engine_close. A program that generates submits jobs to the service
 * (engine/schedule/service.h); one that measures computes a sequence itself (engine/schedule/evaluate.h), without the service. */
#pragma once
#include "engine/config/config.h"
#include "engine/schedule/service.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION "0.1.0"

typedef struct weir_engine weir_engine;

typedef struct weir_engine_options {
    const weir_config *config;     /* copied; model.path is a file or folder that exists */
    bool               with_service; /* open slots and start the engine thread */
    void (*progress)(void *user, size_t done, size_t total); /* bytes of weights; NULL: none */
    void *user;
} weir_engine_options;

/* Where the bytes of [memory] host go. Exact: each line is what the ledger will hold. */
typedef struct weir_plan {
    size_t  cap, weights, activations, recurrent, kv; /* cap: memory.host, or what was found free */
    int64_t kv_pages, kv_page_bytes, kv_rows;         /* rows: tokens that fit over all sequences   */
    int32_t window, n_slots, trained_context;
    bool    cap_is_configured;
    bool    f32_activations;
    char    model[256], arch[64], format[16];
} weir_plan;

/* Reads the headers of the model, plans, and allocates nothing large. EFULL: the plan does not fit (exit code 3). */
WEIR_MUST_CHECK weir_status weir_engine_plan(weir_plan *out, const weir_engine_options *options, weir_error *error);
WEIR_MUST_CHECK weir_status weir_plan_print(const weir_plan *plan, weir_buffer *out);

WEIR_MUST_CHECK weir_status weir_engine_open(weir_engine **out, const weir_engine_options *options, weir_error *error);
void                        weir_engine_close(weir_engine *engine);

const weir_plan          *weir_engine_plan_of(const weir_engine *engine);
weir_service             *weir_engine_service(const weir_engine *engine);   /* NULL without service  */
const weir_tokenizer     *weir_engine_tokenizer(const weir_engine *engine); /* NULL when the checkpoint has none */
const weir_chat_template *weir_engine_chat(const weir_engine *engine);      /* NULL when it has none */

/* For programs that compute themselves; only without the service. */
struct weir_model    *weir_engine_model(const weir_engine *engine);
struct weir_runner   *weir_engine_runner(const weir_engine *engine);
struct weir_kv_store *weir_engine_store(const weir_engine *engine);
struct weir_ledger   *weir_engine_ledger(const weir_engine *engine);
struct weir_stream   *weir_engine_stream(const weir_engine *engine);

#ifdef __cplusplus
}
#endif
