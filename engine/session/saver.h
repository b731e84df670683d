/* engine/session/saver.h - saves cached sequences to files before they are dropped for lack of
 * memory (docs/decisions/0013, 0041). The engine thread picks and holds a sequence; a writer thread
 * copies and writes its pages. If pages are needed first, the engine thread takes them away: it
 * waits for the copy of one page at most, never for the disk, and the sequence is dropped
 * unsaved. */
#pragma once
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fewer tokens are computed again faster than their file is read, so they get no place among
 * `sessions.limit`. */
enum { WEIR_SAVED_TOKENS = 512 };

typedef struct weir_saver weir_saver;
struct weir_sessions;

WEIR_MUST_CHECK weir_status
weir_saver_open(weir_saver **out, struct weir_sessions *sessions, weir_error *error);
void weir_saver_close(weir_saver *saver); /* NULL-safe; call while the service runs */
/* Waits for the sequence that is being written; no other is started until weir_saver_resume. */
void weir_saver_pause(weir_saver *saver);
void weir_saver_resume(weir_saver *saver);

#ifdef __cplusplus
}
#endif
