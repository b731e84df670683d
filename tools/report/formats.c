#include "tools/report/formats.h"

const char *weir_report_format_reject(weir_kv_format format, int64_t key_dim, int64_t value_dim)
{
    const char *const key = weir_kv_format_reject(format, WEIR_KV_K, key_dim);
    return key != NULL || value_dim == 0 ? key
                                         : weir_kv_format_reject(format, WEIR_KV_V, value_dim);
}

int64_t weir_report_page_bytes(weir_kv_format format, int64_t key_dim, int64_t value_dim)
{
    return weir_kv_part_bytes(format, WEIR_KV_K, key_dim) +
           (value_dim > 0 ? weir_kv_part_bytes(format, WEIR_KV_V, value_dim) : 0);
}

int64_t weir_report_unsealed_bytes(weir_kv_format format, int64_t key_dim, int64_t value_dim)
{
    return weir_kv_seals_pages(format) ? weir_report_page_bytes(WEIR_KV_F16, key_dim, value_dim)
                                       : 0;
}
