/* tools/report/shapes.h - named shapes: configs/shapes/NAME.toml, embedded in the program. */
#pragma once
#include "tools/report/report.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_report_file {
    const char *name, *text; /* "llama-2-7b.toml" */
} weir_report_file;
/* Terminated by name == NULL; generated from configs/shapes. */
extern const weir_report_file weir_report_files[];

/* Returns ECONFIG with file, line and key: an unknown key, a bad value, a number that is missing or
 * out of range. */
WEIR_MUST_CHECK weir_status weir_report_shape_read(
    weir_report_shape *out, const char *file, const char *text, weir_error *error
);
/* Finds a shape by name. ECONFIG lists the known names. */
WEIR_MUST_CHECK weir_status
weir_report_shape_find(weir_report_shape *out, const char *name, weir_error *error);

#ifdef __cplusplus
}
#endif
