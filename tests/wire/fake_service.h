/* tests/wire/fake_service.h - engine/schedule/service.h without an engine: a deterministic
 * pseudo-model for tests of the server. */
#pragma once
#include "engine/schedule/service.h"
#include "engine/session/sessions.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_fake_options {
    int32_t n_slots, window;
    int64_t step_us; /* one step: a token for each running sequence */
    int64_t fail_after; /* tokens after which a job fails; 0: never */
} weir_fake_options;

WEIR_MUST_CHECK weir_status weir_fake_service_open(
    weir_service **out, const weir_tokenizer *tokenizer, const weir_fake_options *options
);
/* What the service says of itself; may be changed before the first request. */
weir_engine_facts *weir_fake_service_facts(weir_service *service);
/* What all answers are from now on, tokens [n], copied; before a request. NULL: what the model
 * draws. */
WEIR_MUST_CHECK weir_status
weir_fake_service_say(weir_service *service, const int32_t *tokens, size_t n);
void weir_fake_service_close(weir_service *service); /* all jobs were released */

/* Names without files. Some have a meaning: "damaged" cannot be restored, "busy" waits for another,
 * "full" finds no room, "disk" fails. */
weir_sessions *weir_fake_sessions_open(void);
void weir_fake_sessions_close(weir_sessions *sessions);

#ifdef __cplusplus
}
#endif
