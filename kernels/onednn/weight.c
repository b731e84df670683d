/* kernels/onednn/weight.c - wraps oneDNN 2.6 in six functions. */
#include "kernels/onednn/weight.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "kernels/abi/convert.h"
#include "kernels/ref/dequantise.h"

enum { ENTRIES = 10, /* up to 512 rows */ IMPLEMENTATION = 40 };

typedef struct entry {
    dnnl_primitive_t primitive;
    dnnl_memory_t src, dst, scratch;
    int32_t n_threads;
    char implementation[IMPLEMENTATION];
} entry;

struct weir_onednn_weight {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_desc_t desc;
    dnnl_memory_t memory;
    int64_t n_out, n_in;
    dnnl_data_type_t type;
    entry entries[ENTRIES]; /* [i] for 2^i rows */
};

static dnnl_data_type_t data_type(weir_dtype dtype)
{
    return dtype == WEIR_BF16 ? dnnl_bf16 : dnnl_f32;
}

static int64_t padded_columns(weir_dtype dtype, int64_t n_in)
{
    const int64_t block = dtype == WEIR_BF16 ? 32 : 16;
    return (n_in + block - 1) / block * block;
}

static bool describe(dnnl_memory_desc_t *desc, weir_dtype dtype, int64_t n_out, int64_t n_in)
{
    const dnnl_dims_t dims = { n_in, n_out };
    return dnnl_memory_desc_init_by_tag(
               desc, 2, dims, data_type(dtype), dtype == WEIR_BF16 ? dnnl_BA16a64b2a : dnnl_BA16a64b
           ) == dnnl_success;
}

/* Creates the descriptors of a product with n_rows rows; false if oneDNN has none. The caller
 * provides the scratchpad. */
static bool make_primitive_desc(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, const dnnl_memory_desc_t *weights,
    dnnl_data_type_t type, int64_t n_rows
)
{
    const int64_t n_in = weights->dims[0], n_out = weights->dims[1];
    const dnnl_dims_t src_dims = { n_rows, n_in }, dst_dims = { n_rows, n_out };
    dnnl_memory_desc_t src, dst;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attributes = NULL;
    bool made =
        dnnl_memory_desc_init_by_tag(&src, 2, src_dims, type, dnnl_ab) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&dst, 2, dst_dims, dnnl_f32, dnnl_ab) == dnnl_success &&
        dnnl_matmul_desc_init(&matmul, &src, weights, NULL, &dst) == dnnl_success &&
        dnnl_primitive_attr_create(&attributes) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) ==
            dnnl_success &&
        dnnl_primitive_desc_create(out, &matmul, attributes, engine, NULL) == dnnl_success;
    if (attributes) (void)dnnl_primitive_attr_destroy(attributes);
    return made;
}

static const char *implementation_of(const_dnnl_primitive_desc_t desc)
{
    const char *text = NULL;
    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&text) ==
                       dnnl_success &&
                   text
               ? text
               : "";
}

/* Excludes AMX kernels: oneDNN 2.6 splits their sums by the number of rows, so a row would have
 * other bits alone than batched. Must be called first. A limit from the environment
 * (ONEDNN_MAX_CPU_ISA) is replaced: bits would depend on it, and no file's numerics name it. */
static void limit_isa(void)
{
    static atomic_flag once = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&once)) return;
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}

/* oneDNN sizes its work by the calling thread's setting. */
static void set_threads(int32_t n_threads)
{
    if (omp_get_max_threads() != n_threads) omp_set_num_threads(n_threads);
}

/* ---- plan ------------------------------------------------------------------------------------ */
static size_t scratch_of(const_dnnl_primitive_desc_t desc)
{
    const dnnl_memory_desc_t *const scratch =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    return scratch ? dnnl_memory_desc_get_size(scratch) : 0;
}

static bool is_packed(
    dnnl_engine_t engine, const dnnl_memory_desc_t *weights, weir_dtype dtype, int64_t n_rows,
    int32_t n_threads
)
{
    dnnl_primitive_desc_t desc = NULL;
    if (!make_primitive_desc(&desc, engine, weights, data_type(dtype), n_rows)) return false;
    const bool packed = strncmp(implementation_of(desc), "brg:", 4) == 0 &&
                        scratch_of(desc) <= weir_onednn_scratch_bytes(n_threads);
    (void)dnnl_primitive_desc_destroy(desc);
    return packed;
}

static bool has_packed_kernel(weir_dtype dtype, int64_t n_out, int64_t n_in, int32_t n_threads)
{
    set_threads(n_threads);
    dnnl_engine_t engine = NULL;
    dnnl_memory_desc_t weights;
    bool packed = dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
                  describe(&weights, dtype, n_out, n_in);
    packed = packed && is_packed(engine, &weights, dtype, 1, n_threads) &&
             is_packed(engine, &weights, dtype, 2, n_threads) &&
             is_packed(engine, &weights, dtype, (int64_t)1 << (ENTRIES - 1), n_threads);
    if (engine) (void)dnnl_engine_destroy(engine);
    return packed;
}

weir_status weir_onednn_plan(
    size_t *bytes, weir_dtype dtype, int64_t n_out, int64_t n_in, int32_t n_threads
)
{
    if (n_out < 1 || n_in < 1 || n_out > INT32_MAX - 64 || n_in > INT32_MAX - 64)
        return WEIR_EINVAL;
    limit_isa();
    const int64_t rows = (n_out + WEIR_ONEDNN_PANEL - 1) / WEIR_ONEDNN_PANEL * WEIR_ONEDNN_PANEL;
    if (!weir_mul_size(bytes, weir_row_bytes(dtype, padded_columns(dtype, n_in)), (size_t)rows))
        return WEIR_EINVAL;
    return has_packed_kernel(dtype, n_out, n_in, n_threads) ? WEIR_OK : WEIR_EUNSUPPORTED;
}

/* Writes columns [first, first + n) of up to 64 rows to blocks; rows [64][CHUNK] hold them, zero
 * where there is no weight. */
static void put_blocks_f32(float *panel, const float *rows, int64_t first, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        float *at = panel + (first + k) * WEIR_ONEDNN_PANEL;
        for (int64_t r = 0; r < WEIR_ONEDNN_PANEL; r++) at[r] = rows[r * WEIR_ONEDNN_CHUNK + k];
    }
}

static void put_blocks_bf16(uint16_t *panel, const float *rows, int64_t first, int64_t n)
{
    for (int64_t k = 0; k < n; k += 2) {
        uint16_t *at = panel + (first + k) * WEIR_ONEDNN_PANEL;
        for (int64_t r = 0; r < WEIR_ONEDNN_PANEL; r++) {
            at[2 * r] = weir_bf16_from_f32(rows[r * WEIR_ONEDNN_CHUNK + k]);
            at[2 * r + 1] = weir_bf16_from_f32(rows[r * WEIR_ONEDNN_CHUNK + k + 1]);
        }
    }
}

weir_status weir_onednn_pack_panel(
    void *dst, weir_dtype packed, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in,
    int64_t panel, float *rows
)
{
    const size_t row_bytes = weir_row_bytes(dtype, n_in);
    const int64_t first = panel * WEIR_ONEDNN_PANEL, left = n_out - first,
                  n_rows = left < WEIR_ONEDNN_PANEL ? left : WEIR_ONEDNN_PANEL;
    const int64_t columns = padded_columns(packed, n_in);
    const uint8_t *source = (const uint8_t *)src + (size_t)first * row_bytes;
    char *const out = (char *)dst + (size_t)first * weir_row_bytes(packed, columns);
    for (int64_t column = 0; column < columns; column += WEIR_ONEDNN_CHUNK) {
        const int64_t padded =
            columns - column < WEIR_ONEDNN_CHUNK ? columns - column : WEIR_ONEDNN_CHUNK;
        const int64_t n = n_in - column < padded ? n_in - column : padded;
        if (n < padded || n_rows < WEIR_ONEDNN_PANEL)
            memset(rows, 0, sizeof(float) * WEIR_ONEDNN_PANEL * WEIR_ONEDNN_CHUNK);
        for (int64_t r = 0; r < n_rows; r++) {
            const uint8_t *const at =
                source + (size_t)r * row_bytes + weir_row_bytes(dtype, column);
            WEIR_TRY(weir_k_ref_dequantise_finite(rows + r * WEIR_ONEDNN_CHUNK, at, dtype, n));
        }
        if (packed == WEIR_BF16)
            put_blocks_bf16((uint16_t *)out, rows, column, padded);
        else
            put_blocks_f32((float *)out, rows, column, padded);
    }
    return WEIR_OK;
}

/* ---- primitives ------------------------------------------------------------------------------ */
static void drop_entry(entry *e)
{
    if (e->primitive) (void)dnnl_primitive_destroy(e->primitive);
    if (e->src) (void)dnnl_memory_destroy(e->src);
    if (e->dst) (void)dnnl_memory_destroy(e->dst);
    if (e->scratch) (void)dnnl_memory_destroy(e->scratch);
    *e = (entry){ 0 };
}

static bool fill_entry(weir_onednn_weight *weight, entry *e, int64_t n_rows, int32_t n_threads)
{
    dnnl_primitive_desc_t desc = NULL;
    if (!make_primitive_desc(&desc, weight->engine, &weight->desc, weight->type, n_rows))
        return false;
    if (scratch_of(desc) > weir_onednn_scratch_bytes(n_threads)) {
        (void)dnnl_primitive_desc_destroy(desc);
        return false;
    }
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    const dnnl_memory_desc_t *src = dnnl_primitive_desc_query_md(desc, dnnl_query_src_md, 0);
    const dnnl_memory_desc_t *dst = dnnl_primitive_desc_query_md(desc, dnnl_query_dst_md, 0);
    const bool filled =
        dnnl_primitive_create(&e->primitive, desc) == dnnl_success &&
        dnnl_memory_create(&e->src, src, weight->engine, DNNL_MEMORY_NONE) == dnnl_success &&
        dnnl_memory_create(&e->dst, dst, weight->engine, DNNL_MEMORY_NONE) == dnnl_success &&
        (scratch_of(desc) == 0 ||
         dnnl_memory_create(&e->scratch, scratch, weight->engine, DNNL_MEMORY_NONE) == dnnl_success
        );
    e->n_threads = n_threads;
    strncpy(e->implementation, implementation_of(desc), IMPLEMENTATION - 1);
    (void)dnnl_primitive_desc_destroy(desc);
    if (!filled) drop_entry(e);
    return filled;
}

/* The primitive for 2^exponent rows and n_threads, created if missing; NULL if oneDNN cannot. */
static entry *find_entry(weir_onednn_weight *weight, int exponent, int32_t n_threads)
{
    entry *const found = &weight->entries[exponent];
    set_threads(n_threads);
    if (found->primitive != NULL && found->n_threads == n_threads) return found;
    drop_entry(found);
    return fill_entry(weight, found, (int64_t)1 << exponent, n_threads) ? found : NULL;
}

/* The largest power of two that is at most n_rows and has a primitive. */
static int exponent_of(int64_t n_rows)
{
    int exponent = 0;
    while (exponent + 1 < ENTRIES && (int64_t)2 << exponent <= n_rows) exponent++;
    return exponent;
}

weir_status weir_onednn_open(
    weir_onednn_weight **out, void *data, size_t bytes, weir_dtype dtype, int64_t n_out,
    int64_t n_in
)
{
    weir_onednn_weight *weight = calloc(1, sizeof *weight);
    if (!weight) return WEIR_ENOMEM;
    weight->n_out = n_out;
    weight->n_in = n_in;
    weight->type = data_type(dtype);
    if (!describe(&weight->desc, dtype, n_out, n_in) ||
        dnnl_memory_desc_get_size(&weight->desc) != bytes ||
        dnnl_engine_create(&weight->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&weight->stream, weight->engine, dnnl_stream_default_flags) !=
            dnnl_success ||
        dnnl_memory_create(&weight->memory, &weight->desc, weight->engine, data) != dnnl_success) {
        weir_onednn_close(weight);
        return WEIR_EDEVICE;
    }
    *out = weight;
    return WEIR_OK;
}

void weir_onednn_close(weir_onednn_weight *weight)
{
    if (!weight) return;
    for (int i = 0; i < ENTRIES; i++) drop_entry(&weight->entries[i]);
    if (weight->memory) (void)dnnl_memory_destroy(weight->memory);
    if (weight->stream) (void)dnnl_stream_destroy(weight->stream);
    if (weight->engine) (void)dnnl_engine_destroy(weight->engine);
    free(weight);
}

static weir_status multiply_rows(
    weir_onednn_weight *weight, entry *e, float *dst, const void *src, void *scratch
)
{
    void *input = (void *)(uintptr_t)src; /* oneDNN only reads it */
    if (dnnl_memory_set_data_handle(e->src, input) != dnnl_success ||
        dnnl_memory_set_data_handle(e->dst, dst) != dnnl_success ||
        (e->scratch && dnnl_memory_set_data_handle(e->scratch, scratch) != dnnl_success))
        return WEIR_EDEVICE;
    const dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, e->src },
                                     { DNNL_ARG_WEIGHTS, weight->memory },
                                     { DNNL_ARG_DST, e->dst },
                                     { DNNL_ARG_SCRATCHPAD, e->scratch } };
    if (dnnl_primitive_execute(e->primitive, weight->stream, e->scratch ? 4 : 3, args) !=
        dnnl_success)
        return WEIR_EDEVICE;
    return dnnl_stream_wait(weight->stream) == dnnl_success ? WEIR_OK : WEIR_EDEVICE;
}

weir_status weir_onednn_multiply(
    weir_onednn_weight *weight, float *dst, const void *src, int64_t n_rows, void *scratch,
    float *lower, int32_t n_threads
)
{
    const size_t row_bytes = (size_t)weight->n_in * (weight->type == dnnl_bf16 ? 2 : 4);
    const int64_t tail = n_rows - n_rows % WEIR_ONEDNN_PADDED,
                  padded = weir_onednn_padded_rows(n_rows);
    for (int64_t row = 0; row < padded;) {
        const int exponent = exponent_of((row < tail ? tail : padded) - row);
        const int64_t end = row + ((int64_t)1 << exponent);
        entry *const e = find_entry(weight, exponent, n_threads);
        float *const to = end <= n_rows ? dst + row * weight->n_out : lower;
        if (!e) return WEIR_EDEVICE;
        WEIR_TRY(multiply_rows(weight, e, to, (const char *)src + (size_t)row * row_bytes, scratch)
        );
        if (to == lower)
            memcpy(
                dst + row * weight->n_out, lower,
                sizeof(float) * (size_t)((n_rows - row) * weight->n_out)
            );
        row = end;
    }
    return WEIR_OK;
}

const char *weir_onednn_implementation(
    weir_onednn_weight *weight, int64_t n_rows, int32_t n_threads
)
{
    const entry *e = find_entry(weight, exponent_of(weir_onednn_padded_rows(n_rows)), n_threads);
    return e ? e->implementation : NULL;
}

int32_t weir_onednn_primitive_count(const weir_onednn_weight *weight)
{
    int32_t count = 0;
    for (int i = 0; i < ENTRIES; i++) count += weight->entries[i].primitive != NULL;
    return count;
}
