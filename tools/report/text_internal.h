/* tools/report/text_internal.h - cells of text tables. */
#pragma once
#include "tools/report/print.h"

enum { WEIR_REPORT_CELL = 24 };

/* "1.50 GiB": the unit that gives a number below 1024; "-" for negative ones. */
const char *weir_report_size(char out[WEIR_REPORT_CELL], double bytes);
/* "32K" if it is a power of two, else "1000". */
const char *weir_report_count(char out[WEIR_REPORT_CELL], int64_t n);

WEIR_MUST_CHECK weir_status weir_report_shape_tables(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
);
WEIR_MUST_CHECK weir_status weir_report_model_table(const weir_report *report, weir_buffer *out);
