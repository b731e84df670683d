/* offload/weights.c - chooses the layout of a matrix and packs it with all threads. Layouts are
 * defined with their kernels. */
#include "offload/weights.h"

#include <stdlib.h>

#include "kernels/cuda/weight.h"
#include "kernels/onednn/weight.h"
#include "kernels/ref/dequantise.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/dense.h"
#include "kernels/x86/tiles.h"

static bool is_dense(weir_dtype dtype)
{
    switch (dtype) {
    case WEIR_F32:
    case WEIR_F16:
    case WEIR_BF16:
    case WEIR_F64:
    case WEIR_F8_E4M3:
    case WEIR_F8_E5M2: return true;
    default: return false;
    }
}

/* False for f32 and f64, which stay f32 to keep all bits. The others have up to 11 bits of
 * precision, of which bf16 keeps 8. */
static bool fits_bf16(weir_dtype dtype)
{
    return dtype == WEIR_F16 || dtype == WEIR_BF16 || dtype == WEIR_F8_E4M3 ||
           dtype == WEIR_F8_E5M2;
}

static weir_status check_source(const weir_matrix_source *source, weir_error *error)
{
    if ((unsigned)source->dtype >= WEIR_DTYPE_COUNT)
        return weir_error_set(
            error, WEIR_EINVAL, "weight has unknown dtype %d", (int)source->dtype
        );
    const weir_dtype_info info = weir_dtype_of(source->dtype);
    if (!info.quantised && !is_dense(source->dtype))
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "weight of %s: no kernel; convert the file to f16 or q8_0",
            info.name
        );
    if (source->n_out < 1 || source->n_in < 1 || source->n_out > INT32_MAX - 64 ||
        source->n_in > INT32_MAX - 64)
        return weir_error_set(
            error, WEIR_EINVAL, "weight is %lld x %lld; both must be 1 to 2^31",
            (long long)source->n_out, (long long)source->n_in
        );
    if (source->n_in % info.block_elements)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "weight of %s has rows of %lld elements, no multiple of its block of %d", info.name,
            (long long)source->n_in, info.block_elements
        );
    return WEIR_OK;
}

/* 16 bits: tile registers, if the stream has them. Else oneDNN if this stream's level has a packed
 * kernel of it; else, and for grouped products, our own panels, which keep the file's bits. */
static weir_status plan_dense(
    weir_weight *plan, const weir_stream *stream, const weir_matrix_source *source, bool fast
)
{
    const weir_caps *const caps = weir_stream_caps(stream);
    const bool half = fast && fits_bf16(source->dtype);
    plan->dtype = half ? WEIR_BF16 : WEIR_F32;
    if (half && caps->amx_bf16) {
        plan->layout = WEIR_LAYOUT_AMX;
        return weir_amx_bytes(&plan->bytes, source->n_out, source->n_in) ? WEIR_OK : WEIR_EINVAL;
    }
    plan->layout = WEIR_LAYOUT_ONEDNN;
    const weir_status status = !source->is_grouped && (half ? caps->avx512_bf16 : caps->x86_v4)
                                   ? weir_onednn_plan(
                                         &plan->bytes, plan->dtype, source->n_out, source->n_in,
                                         weir_stream_threads(stream)
                                     )
                                   : WEIR_EUNSUPPORTED;
    if (status != WEIR_EUNSUPPORTED) return status;
    plan->layout = WEIR_LAYOUT_DENSE;
    plan->dtype = weir_dense_dtype(source->dtype);
    return weir_dense_bytes(&plan->bytes, plan->dtype, source->n_out, source->n_in) ? WEIR_OK
                                                                                    : WEIR_EINVAL;
}

/* One layout for all types and both modes. Exact activations use f32, whose kernel does not
 * round. */
static weir_status plan_cuda(weir_weight *plan, const weir_matrix_source *source, bool fast)
{
    plan->layout = WEIR_LAYOUT_CUDA;
    plan->dtype = weir_cuda_dtype(source->dtype, !fast);
    return weir_cuda_weight_bytes(&plan->bytes, plan->dtype, source->n_out, source->n_in)
               ? WEIR_OK
               : WEIR_EINVAL;
}

weir_status weir_weight_plan(
    weir_weight *plan, const weir_stream *stream, const weir_matrix_source *source,
    weir_activations activations, weir_error *error
)
{
    WEIR_TRY(check_source(source, error));
    weir_weight planned = { .n_out = source->n_out,
                            .n_in = source->n_in,
                            .dtype = source->dtype,
                            .layout = WEIR_LAYOUT_TILES };
    const bool fast = activations == WEIR_ACTIVATIONS_FAST;
    if (weir_stream_caps(stream)->cuda_capability > 0) {
        if (plan_cuda(&planned, source, fast) != WEIR_OK)
            return weir_error_set(
                error, WEIR_EINVAL, "weight of %lld x %lld is too big", (long long)source->n_out,
                (long long)source->n_in
            );
    } else if (!fast || !weir_dtype_of(source->dtype).quantised) {
        if (plan_dense(&planned, stream, source, fast) != WEIR_OK)
            return weir_error_set(
                error, WEIR_EINVAL, "weight of %lld x %lld is too big", (long long)source->n_out,
                (long long)source->n_in
            );
    } else if (!weir_tiles_bytes(&planned.bytes, source->dtype, source->n_out, source->n_in)) {
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "weight of %s, %lld x %lld: no tile layout",
            weir_dtype_of(source->dtype).name, (long long)source->n_out, (long long)source->n_in
        );
    }
    *plan = planned;
    return WEIR_OK;
}

/* What threads pack, a panel each. */
typedef struct packing {
    const weir_weight *plan;
    const weir_matrix_source *source;
    int64_t first, n_rows; /* WEIR_LAYOUT_CUDA: the rows to pack to the start of `memory` */
    char *memory;
} packing;
typedef weir_status pack_panel(const packing *job, int64_t panel);

static weir_status pack_panels(
    const packing *job, int64_t n_panels, int32_t n_threads, pack_panel *pack
)
{
    int failed = WEIR_OK;
#pragma omp parallel for schedule(static) num_threads(n_threads) reduction(max : failed)
    for (int64_t p = 0; p < n_panels; p++) {
        const int status = (int)pack(job, p);
        failed = status > failed ? status : failed;
    }
    return (weir_status)failed;
}

static weir_status pack_tiles(const packing *job, int64_t panel)
{
    const weir_matrix_source *const s = job->source;
    const size_t bytes = job->plan->bytes / (size_t)weir_panel_count(job->plan->n_out);
    return weir_tiles_pack_panel(
        job->memory + (size_t)panel * bytes, s->data, s->dtype, s->n_out, s->n_in, panel
    );
}

static weir_status pack_dense(const packing *job, int64_t panel)
{
    const weir_matrix_source *const s = job->source;
    const size_t bytes = weir_dense_panel_bytes(job->plan->dtype, s->n_in);
    float rows[WEIR_DENSE_PANEL * WEIR_DENSE_CHUNK];
    return weir_dense_pack_panel(
        job->memory + (size_t)panel * bytes, s->data, s->dtype, s->n_out, s->n_in, panel, rows
    );
}

static weir_status pack_amx(const packing *job, int64_t panel)
{
    const weir_matrix_source *const s = job->source;
    const size_t bytes = weir_amx_panel_bytes(s->n_in);
    float rows[WEIR_AMX_PANEL * WEIR_AMX_CHUNK];
    return weir_amx_pack_panel(
        job->memory + (size_t)panel * bytes, s->data, s->dtype, s->n_out, s->n_in, panel, rows
    );
}

static weir_status pack_onednn(const packing *job, int64_t panel)
{
    const weir_matrix_source *const s = job->source;
    float rows[WEIR_ONEDNN_PANEL * WEIR_ONEDNN_CHUNK]; /* 64 KiB on the stack */
    return weir_onednn_pack_panel(
        job->memory, job->plan->dtype, s->data, s->dtype, s->n_out, s->n_in, panel, rows
    );
}

static weir_status open_onednn(weir_weight *plan, void *memory)
{
    weir_onednn_weight *state = NULL;
    WEIR_TRY(weir_onednn_open(&state, memory, plan->bytes, plan->dtype, plan->n_out, plan->n_in));
    plan->packed_state = state;
    return WEIR_OK;
}

static weir_status pack_cuda(const packing *job, int64_t panel)
{
    const weir_weight *const plan = job->plan;
    const int64_t row = panel * WEIR_CUDA_PANEL, left = job->n_rows - row,
                  n = left < WEIR_CUDA_PANEL ? left : WEIR_CUDA_PANEL;
    size_t at = 0;
    if (!weir_cuda_weight_bytes(&at, plan->dtype, row, plan->n_in)) return WEIR_EINVAL;
    return weir_cuda_pack_rows(
        job->memory + at, plan->dtype, job->source->data, job->source->dtype, plan->n_in,
        job->first + row, n
    );
}

/* Packs rows [first, first + n_rows) to the start of `memory`. */
static weir_status pack_cuda_rows(
    const weir_weight *plan, int32_t n_threads, const weir_matrix_source *source, int64_t first,
    int64_t n_rows, void *memory
)
{
    const packing job = { plan, source, first, n_rows, memory };
    return pack_panels(
        &job, (n_rows + WEIR_CUDA_PANEL - 1) / WEIR_CUDA_PANEL, n_threads, pack_cuda
    );
}

static weir_status pack(
    weir_weight *plan, int32_t n_threads, const weir_matrix_source *source, char *memory
)
{
    const packing job = { plan, source, 0, plan->n_out, memory };
    const int64_t n_out = plan->n_out;
    switch (plan->layout) {
    case WEIR_LAYOUT_TILES:
        return pack_panels(&job, weir_panel_count(n_out), n_threads, pack_tiles);
    case WEIR_LAYOUT_DENSE:
        return pack_panels(&job, weir_dense_panels(n_out), n_threads, pack_dense);
    case WEIR_LAYOUT_AMX: return pack_panels(&job, weir_amx_panels(n_out), n_threads, pack_amx);
    case WEIR_LAYOUT_ONEDNN:
        WEIR_TRY(pack_panels(
            &job, (n_out + WEIR_ONEDNN_PANEL - 1) / WEIR_ONEDNN_PANEL, n_threads, pack_onednn
        ));
        return open_onednn(plan, memory);
    case WEIR_LAYOUT_CUDA: return pack_cuda_rows(plan, n_threads, source, 0, n_out, memory);
    case WEIR_LAYOUT_ROWS: break;
    }
    return WEIR_EINVAL;
}

static weir_status packed(
    weir_status status, const weir_weight *plan, const weir_matrix_source *source, weir_error *error
)
{
    if (status == WEIR_EFORMAT)
        return weir_error_set(
            error, status,
            "it holds a number that is not finite: the file is damaged, or was converted wrongly"
        );
    if (status != WEIR_OK)
        return weir_error_set(
            error, status, "packing a weight of %lld x %lld %s: %s", (long long)plan->n_out,
            (long long)plan->n_in, weir_dtype_of(source->dtype).name, weir_status_text(status)
        );
    return WEIR_OK;
}

weir_status weir_weight_pack(
    weir_weight *plan, weir_stream *stream, const weir_matrix_source *source, void *memory,
    weir_error *error
)
{
    WEIR_ASSERT(
        plan->n_out == source->n_out && plan->n_in == source->n_in && ((uintptr_t)memory & 63) == 0
    );
    WEIR_TRY(check_source(source, error));
    WEIR_ASSERT(plan->layout != WEIR_LAYOUT_TILES || plan->dtype == source->dtype);
    WEIR_ASSERT(
        plan->layout != WEIR_LAYOUT_DENSE || plan->dtype == weir_dense_dtype(source->dtype)
    );
    WEIR_TRY(packed(pack(plan, weir_stream_threads(stream), source, memory), plan, source, error));
    plan->data = memory;
    return WEIR_OK;
}

int64_t weir_weight_piece_rows(const weir_weight *plan, size_t staging_bytes)
{
    size_t panel = 0;
    if (!weir_cuda_weight_bytes(&panel, plan->dtype, WEIR_CUDA_PANEL, plan->n_in))
        return WEIR_CUDA_PANEL;
    const size_t panels = staging_bytes / panel,
                 all = (size_t)(plan->n_out + WEIR_CUDA_PANEL - 1) / WEIR_CUDA_PANEL;
    return WEIR_CUDA_PANEL * (int64_t)(panels < 1 ? 1 : panels < all ? panels : all);
}

weir_weight_piece weir_weight_piece_of(const weir_weight *plan, int64_t first, int64_t count)
{
    weir_weight_piece piece = { .first = first, .count = count };
    WEIR_ASSERT(
        plan->layout == WEIR_LAYOUT_CUDA && first >= 0 && first % WEIR_CUDA_PANEL == 0 &&
        count > 0 && count <= plan->n_out - first
    );
    WEIR_ASSERT(count % WEIR_CUDA_PANEL == 0 || first + count == plan->n_out);
    WEIR_ASSERT(
        weir_cuda_weight_bytes(&piece.offset, plan->dtype, first, plan->n_in) &&
        weir_cuda_weight_bytes(&piece.bytes, plan->dtype, count, plan->n_in)
    );
    return piece;
}

weir_status weir_weight_pack_piece(
    const weir_weight *plan, weir_stream *stream, const weir_matrix_source *source,
    weir_weight_piece piece, void *prefetch, weir_error *error
)
{
    WEIR_ASSERT(
        plan->layout == WEIR_LAYOUT_CUDA && plan->n_out == source->n_out &&
        plan->n_in == source->n_in
    );
    WEIR_TRY(check_source(source, error));
    const weir_status status = pack_cuda_rows(
        plan, weir_stream_threads(stream), source, piece.first, piece.count, prefetch
    );
    return packed(status, plan, source, error);
}

enum { PIECE_BYTES = 16 << 20 };

static weir_status load_pieces(
    weir_weight *plan, weir_stream *stream, const weir_matrix_source *source, char *memory,
    weir_error *error
)
{
    const int64_t most = weir_weight_piece_rows(plan, PIECE_BYTES),
                  rows = most < plan->n_out ? most : plan->n_out;
    void *const prefetch =
        aligned_alloc(64, (weir_weight_piece_of(plan, 0, rows).bytes + 63) & ~(size_t)63);
    weir_status status =
        prefetch ? WEIR_OK
                 : weir_error_set(error, WEIR_ENOMEM, "the system has no memory to pack it in");
    for (int64_t first = 0; first < plan->n_out && status == WEIR_OK; first += rows) {
        const int64_t left = plan->n_out - first;
        const weir_weight_piece piece =
            weir_weight_piece_of(plan, first, rows < left ? rows : left);
        status = weir_weight_pack_piece(plan, stream, source, piece, prefetch, error);
        if (status == WEIR_OK)
            weir_stream_copy(stream, memory + piece.offset, prefetch, piece.bytes);
    }
    free(prefetch);
    return status;
}

/* For a device that runs the host's kernels: packs in place, as a launch. oneDNN keeps the address
 * that it packed to. */
static weir_status load_whole(
    weir_weight *plan, weir_stream *stream, const weir_matrix_source *source, void *memory,
    weir_error *error
)
{
    weir_device_begin(weir_stream_device(stream));
    const weir_status status = weir_weight_pack(plan, stream, source, memory, error);
    weir_device_end(weir_stream_device(stream));
    return status;
}

weir_status weir_weight_load(
    weir_weight *plan, weir_stream *stream, const weir_matrix_source *source, void *memory,
    weir_error *error
)
{
    if (!weir_stream_device(stream)) return weir_weight_pack(plan, stream, source, memory, error);
    WEIR_TRY(
        plan->layout == WEIR_LAYOUT_CUDA ? load_pieces(plan, stream, source, memory, error)
                                         : load_whole(plan, stream, source, memory, error)
    );
    plan->data = memory;
    return WEIR_OK;
}

void weir_weight_release(weir_weight *weight)
{
    if (!weight) return;
    if (weight->layout == WEIR_LAYOUT_ONEDNN) weir_onednn_close(weight->packed_state);
    *weight = (weir_weight){ 0 };
}

weir_status weir_dequantise(float *dst, const void *src, weir_dtype dtype, int64_t n)
{
    return weir_k_ref_dequantise(dst, src, dtype, n);
}
