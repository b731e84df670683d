/* tests/fuzz/session_probe.h - a session file as the process reads it that keeps these pages: every
 * section, and what must hold of it. */
#pragma once
#include "engine/session/file/session_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Two layers of one head, keys and values of 16 dimensions in f16; ids below this. */
enum { SESSION_PROBE_VOCAB = 1000, SESSION_PROBE_SECTIONS = 7 };
enum { SESSION_PROBE_CUT_SECTIONS = 10 }; /* of a text that a policy watched */
const weir_kv_spec *session_probe_spec(void);
/* One more layer, with a window of 70 rows, which only some files have. */
const weir_kv_windows_spec *session_probe_windows(void);

/* Reads the file of `size` bytes and aborts where the reader breaks its word. *n_sections: those
 * that were read and right; all of them with OK. */
weir_status session_probe_read(const char *path, size_t size, int *n_sections, weir_error *error);

#ifdef __cplusplus
}
#endif
