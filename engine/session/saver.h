/* engine/session/saver.h - kept texts that will be dropped, because memory is short, are written
 * to files before.
 *
 * The engine thread looks for one after a step, when the pages that are free or cost nothing to
 * free get few, and holds its pages and states; a thread writes them, in copies that it makes under
 * a lock. When pages are needed first, the engine thread takes them away under that
 * lock: it waits for a copy of one page, never for the disk, and the text is dropped as if nobody
 * had begun to save it. */
#pragma once
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fewer tokens than these are computed again sooner than a file of their pages is worth its place
 * among `sessions.limit`. */
enum { WEIR_SAVED_TOKENS = 512 };

typedef struct weir_saver weir_saver;
struct weir_sessions;

WEIR_MUST_CHECK weir_status
weir_saver_open(weir_saver **out, struct weir_sessions *sessions, weir_error *error);
void weir_saver_close(weir_saver *saver); /* NULL-safe; while the service runs */
/* Waits for the text that is being written; no other one is begun until weir_saver_resume. */
void weir_saver_pause(weir_saver *saver);
void weir_saver_resume(weir_saver *saver);

#ifdef __cplusplus
}
#endif
