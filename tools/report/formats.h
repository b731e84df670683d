/* tools/report/formats.h - the size of a page in each KV format (kernels/abi/kv_format.h), also for
 * rows without a V part (latent ones). */
#pragma once
#include "kernels/abi/kv_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns NULL, or why K and V rows of these widths cannot have this format. value_dim 0: no V
 * part. */
const char *weir_report_format_reject(weir_kv_format format, int64_t key_dim, int64_t value_dim);
/* Bytes of a sealed page of one head. */
int64_t weir_report_page_bytes(weir_kv_format format, int64_t key_dim, int64_t value_dim);
/* Additional bytes of an unsealed page: 0, or its f16 rows. */
int64_t weir_report_unsealed_bytes(weir_kv_format format, int64_t key_dim, int64_t value_dim);

#ifdef __cplusplus
}
#endif
