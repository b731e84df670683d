/* tools/report/formats.h - what a page takes in each KV format (kernels/abi/kv_format.h), also for
 * rows that have no V part: latent ones. */
#pragma once
#include "kernels/abi/kv_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NULL, or why K and V rows of these widths cannot be kept so. value_dim 0: no V part. */
const char *weir_report_format_reject(weir_kv_format format, int64_t key_dim, int64_t value_dim);
/* A finished page of one head. */
int64_t weir_report_page_bytes(weir_kv_format format, int64_t key_dim, int64_t value_dim);
/* What an unfinished page takes beside that: 0, or its f16 rows. */
int64_t weir_report_unsealed_bytes(weir_kv_format format, int64_t key_dim, int64_t value_dim);

#ifdef __cplusplus
}
#endif
