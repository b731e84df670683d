/* kernels/omp/kv_write.c - writes new K and V rows to their pages (kernels/abi/kv_format.h). Unit:
 * (segment, page, KV head): a team, or earlier calls, wrote all other rows when it writes that of
 * token 63, so it can seal the page. Reads 4 bytes per element, writes what attention reads. */
#include "kernels/omp/kv_encode.h"

#pragma omp declare target
/* Rows [begin, end) of one side of a page: `rows` is the first row, `token` its index in the
 * page. */
typedef struct page_rows {
    const float *rows;
    int64_t stride, n, token;
} page_rows;

/* K is transposed: a token has an element or a word in each of several lines of 64 bytes. */
WEIR_INLINE void write_rows(
    const kv_target *to, const weir_kv_format format, const page_rows *in, float *row, int tid
)
{
    for (int64_t i = 0; i < in->n; i++)
        kv_write_row(to, format, in->rows + i * in->stride, row, in->token + i, tid);
    if (!weir_kv_seals_pages(format) || in->token + in->n < WEIR_PAGE_TOKENS) return;
    TEAM_BARRIER
    kv_seal(to, format, tid);
}

WEIR_INLINE void write_part(
    const kv_target *to, weir_kv_format page_format, const page_rows *in, float *row, int tid
)
{
#define KV_FORMAT_STATEMENT write_rows(to, format, in, row, tid);
    KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
}
#pragma omp end declare target

static const char *reject(const weir_caps *caps, const void *op_args)
{
    (void)caps;
    return weir_kv_write_reject(op_args);
}

static weir_status WEIR_K(kv_write)(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_write_args *const args = op_args;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    if (!weir_kv_segments_are_sound(args->segments, args->n_segments, args->n_kv_heads))
        return WEIR_EINVAL;
    const float *const k = args->k, *const v = args->v;
    const weir_kv_segment *const segments = args->segments;
    const int64_t n_segments = args->n_segments, n_kv_heads = args->n_kv_heads,
                  key_dim = args->key_dim, value_dim = args->value_dim;
    const int64_t k_stride = args->k_stride, v_stride = args->v_stride;
    const weir_kv_format k_others = args->k_format, v_others = args->v_format,
                         k_sinks = args->sinks.pair.k, v_sinks = args->sinks.pair.v;
    const int32_t n_sinks = args->sinks.n_pages;
    int64_t n_units = 0;
    for (int64_t s = 0; s < n_segments; s++)
        n_units += weir_kv_segment_runs(segments + s, WEIR_PAGE_TOKENS) *
                   weir_kv_segment_heads(segments + s, n_kv_heads);
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, k, v, segments)
    {
        float row[WEIR_KV_TURBO_DIM_MAX];
        TEAM_LANES
        {
            const int tid = lane_thread();
            kv_target to_k = { .dim = key_dim, .side = WEIR_KV_K },
                      to_v = { .dim = value_dim, .side = WEIR_KV_V };
            int64_t u = lane_first_unit();
            for (int64_t s = 0; s < n_segments; s++) {
                const weir_kv_segment *const segment = segments + s;
                const int64_t heads = weir_kv_segment_heads(segment, n_kv_heads),
                              first_page = segment->n_past / WEIR_PAGE_TOKENS;
                const int64_t units = weir_kv_segment_runs(segment, WEIR_PAGE_TOKENS) * heads;
                for (; u < units; u += lane_unit_step()) {
                    const int64_t table = u % heads, head = segment->first_head + table,
                                  page = first_page + u / heads,
                                  page_begin = page * WEIR_PAGE_TOKENS;
                    const int64_t past_end = segment->n_past + segment->n_rows;
                    const int64_t begin =
                        page_begin > segment->n_past ? page_begin : segment->n_past;
                    const int64_t end = page_begin + WEIR_PAGE_TOKENS < past_end
                                            ? page_begin + WEIR_PAGE_TOKENS
                                            : past_end;
                    const int64_t t = segment->first_row + begin - segment->n_past,
                                  token = begin - page_begin;
                    char *const coded = (char *)segment->pages[table * segment->page_stride + page];
                    char *const unsealed =
                        segment->unsealed_pages
                            ? (char *)segment->unsealed_pages
                                  [table * segment->unsealed_stride + page - first_page]
                            : NULL;
                    const weir_kv_format k_format = page < n_sinks ? k_sinks : k_others,
                                         v_format = page < n_sinks ? v_sinks : v_others;
                    to_k.layout = weir_kv_layout_k(k_format, key_dim);
                    to_v.layout = weir_kv_layout_v(v_format, value_dim);
                    to_k.coded = coded;
                    to_k.unsealed = unsealed;
                    to_v.coded = coded + weir_kv_v_part(k_format, key_dim);
                    to_v.unsealed =
                        unsealed ? unsealed + weir_kv_unsealed_v_part(k_format, key_dim) : NULL;
                    if (k) {
                        const page_rows in = { k + t * k_stride + head * key_dim, k_stride,
                                               end - begin, token };
                        write_part(&to_k, k_format, &in, row, tid);
                    }
                    if (v) {
                        const page_rows in = { v + t * v_stride + head * value_dim, v_stride,
                                               end - begin, token };
                        write_part(&to_v, v_format, &in, row, tid);
                    }
                }
                u -= units;
            }
        }
    }
    return WEIR_OK;
}

/* Tolerance: the codecs are defined to the bit. */
extern const weir_kernel WEIR_K_ROW(kv_write);
const weir_kernel WEIR_K_ROW(kv_write) = {
    .op = WEIR_OP_KV_WRITE,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("kv_write"),
    .atol = 0.0,
    .rtol = 0.0,
    .reject = reject,
    .run = WEIR_K(kv_write),
};
