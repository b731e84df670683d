/* engine/cli/editor.h - lines from the terminal, edited and remembered by libedit, which is loaded
 * when it is needed. Not thread-safe. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_editor weir_editor;

typedef enum weir_editor_end {
    WEIR_EDITOR_LINE,
    WEIR_EDITOR_INTERRUPTED, /* weir_interrupted was set: the line is discarded */
    WEIR_EDITOR_END /* Ctrl-D, or the terminal is gone */
} weir_editor_end;

/* Standard input and output must be terminals. Sets LC_CTYPE of the process to UTF-8.
 * history : of earlier processes, where lines are added as they are read; NULL: there is none. A
 *           file that cannot be used is reported as a warning.
 * errors  : EUNSUPPORTED: there is no libedit, or it cannot use the terminal */
WEIR_MUST_CHECK weir_status
weir_editor_open(weir_editor **out, const char *prompt, const char *history, weir_error *error);
/* *line [*length]: borrowed until the next call, without its newline. */
weir_editor_end weir_editor_read(weir_editor *edit, const char **line, size_t *length);
/* Adds a line to the history, here and in the file, unless it begins with a space or is long. */
void weir_editor_keep(weir_editor *edit, const char *line, size_t length);
void weir_editor_close(weir_editor *edit); /* NULL-safe */

/* Makes the folder of the history and writes the path of the file: $XDG_STATE_HOME/weir/NAME, or
 * ~/.local/state/weir/NAME. False: there is no such folder. */
bool weir_editor_history(char *out, size_t capacity, const char *name);

#ifdef __cplusplus
}
#endif
