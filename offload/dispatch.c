/* offload/dispatch.c - streams: the rows of the table that this machine can run, the choice among
 * them, and their scratch memory.
 *
 * A stream has one block of scratch, in the memory where its kernels run; it grows to the largest
 * call and never shrinks. It is not charged to a ledger here: the engine plans its largest steps,
 * charges weir_stream_planned and reserves it. */
#include "offload/dispatch.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/processors.h"
#include "offload/caps.h"
#include "offload/dispatch_internal.h"
#include "offload/marshal.h"
#include "offload/table.h"

enum { MAX_THREADS = 1024, SCRATCH_ALIGNMENT = 64 };
#define SCRATCH_STEP                                                                               \
    ((size_t)64 << 10) /* grows in whole steps: fewer reallocations during warm-up */

struct weir_stream {
    weir_caps caps; /* limited to the forced isa */
    weir_isa forced; /* ANY: not forced */
    weir_device *device; /* NULL: the CPU */
    weir_marshaller *marshaller; /* with a device */
    /* [n_rows] of this stream, including those that the machine cannot run. */
    weir_table_row *rows;
    size_t n_rows;
    const weir_kernel *
        *allowed; /* rows this stream may run, grouped by op: [first[op], first[op + 1]) */
    size_t first[WEIR_OP_COUNT + 1];
    weir_kernel_context context;
    bool planning; /* typed entries only record their scratch */
    size_t planned; /* of scratch */
    void (*observe)(void *user, weir_op op, const void *args);
    void *observer;
};

static const char *const op_names[WEIR_OP_COUNT] = {
#define WEIR_OP(NAME, name, where, launches) [WEIR_OP_##NAME] = #name,
#include "kernels/abi/ops.inc"
};

const char *weir_op_name(weir_op op)
{
    return op >= 0 && op < WEIR_OP_COUNT ? op_names[op] : "unknown";
}

bool weir_op_from_name(const char *name, weir_op *out)
{
    for (int op = 0; op < WEIR_OP_COUNT; op++)
        if (strcmp(name, op_names[op]) == 0) {
            *out = (weir_op)op;
            return true;
        }
    return false;
}

static bool isa_from_name(const char *name, weir_isa *out)
{
    static const struct {
        const char *name;
        weir_isa isa;
    } names[] = { { WEIR_ISA_AUTO, WEIR_ISA_ANY },
#define X(NAME, name) { name, WEIR_ISA_##NAME },
                  WEIR_ISA_LEVELS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].isa;
            return true;
        }
    return false;
}

/* Why this row cannot run here with any arguments: excluded by the forced level, or not supported
 * by the machine. */
static const char *row_barred(const weir_stream *stream, const weir_table_row *row)
{
    static const char *const forced_text[] = {
#define X(NAME, name) [WEIR_ISA_##NAME] = "isa " name " forced",
        WEIR_ISA_LEVELS(X)
#undef X
    };
    static const char *const needs_text[] = {
#define X(NAME, name) [WEIR_ISA_##NAME] = "needs x86-64-" name,
        WEIR_ISA_LEVELS(X)
#undef X
    };
    if (row->isa == WEIR_ISA_ANY) return NULL;
    if (stream->forced != WEIR_ISA_ANY && row->isa > stream->forced)
        return forced_text[stream->forced];
    return row->isa > weir_caps_isa(&stream->caps) ? needs_text[row->isa] : NULL;
}

/* Ops that run on the host although the stream has a device. */
static bool is_host_op(weir_op op)
{
    enum { DEVICE = false, HOST = true };
    static const bool is_host[WEIR_OP_COUNT] = {
#define WEIR_OP(NAME, name, where, launches) [WEIR_OP_##NAME] = where,
#include "kernels/abi/ops.inc"
    };
    return is_host[op];
}

/* The device's rows, if it has its own, and the host's of the ops that run there; else all of the
 * host's. */
static bool list_rows(weir_stream *stream)
{
    size_t count, n_own = 0;
    const weir_table_row *const rows = weir_table_rows(&count);
    const weir_kernel *const *const own =
        stream->device != NULL ? weir_device_kernels(stream->device, &n_own) : NULL;
    stream->rows = calloc(count + n_own, sizeof *stream->rows);
    if (stream->rows == NULL) return false;
    for (size_t i = 0; i < n_own; i++)
        if (!is_host_op(own[i]->op))
            stream->rows[stream->n_rows++] = (weir_table_row){ own[i], WEIR_ISA_ANY };
    for (size_t i = 0; i < count; i++)
        if (own == NULL || is_host_op(rows[i].kernel->op)) stream->rows[stream->n_rows++] = rows[i];
    return true;
}

static const weir_table_row *row_named(const weir_stream *stream, weir_op op, const char *name)
{
    for (const weir_table_row *row = stream->rows; row < stream->rows + stream->n_rows; row++)
        if (row->kernel->op == op && strcmp(row->kernel->name, name) == 0) return row;
    return NULL;
}

/* Fills allowed[] for one op: the pin, then the table's order. */
static weir_status list_op(
    weir_stream *stream, weir_op op, const char *pin, size_t *n, weir_error *error
)
{
    const weir_table_row *pinned = NULL;
    if (pin) {
        pinned = row_named(stream, op, pin);
        if (!pinned)
            return weir_error_set(
                error, WEIR_ECONFIG,
                "kernels.%s = \"%s\": no such kernel; `weir bench --explain` lists them",
                op_names[op], pin
            );
        const char *barred = row_barred(stream, pinned);
        if (barred)
            return weir_error_set(
                error, WEIR_ECONFIG, "kernels.%s = \"%s\": %s", op_names[op], pin, barred
            );
        stream->allowed[(*n)++] = pinned->kernel;
    }
    for (const weir_table_row *row = stream->rows; row < stream->rows + stream->n_rows; row++)
        if (row->kernel->op == op && row != pinned && !row_barred(stream, row))
            stream->allowed[(*n)++] = row->kernel;
    return WEIR_OK;
}

static weir_status force_isa(weir_stream *stream, const char *name, weir_error *error)
{
    const weir_isa best = weir_caps_isa(&stream->caps);
    if (!isa_from_name(name, &stream->forced))
        return weir_error_set(
            error, WEIR_ECONFIG, "kernels.isa = \"%s\": must be one of " WEIR_ISA_WORDS, name
        );
    if (stream->forced > best)
        return weir_error_set(
            error, WEIR_ECONFIG, "kernels.isa = \"%s\": this machine stops at x86-64-v%d; use auto",
            name, best == WEIR_ISA_ANY ? 1 : (int)best - WEIR_ISA_V2 + 2
        );
    stream->caps = weir_caps_limited(stream->caps, stream->forced);
    return WEIR_OK;
}

/* OpenMP counts the processors of a core, and knows no quotas. */
static int default_threads(void)
{
    const int cores = weir_processors(""); /* first: OpenMP may bind this thread to one */
    const int most = omp_get_max_threads();
    return most < cores || getenv("OMP_NUM_THREADS") != NULL ? most : cores;
}

static void free_scratch(weir_stream *stream)
{
    if (stream->device)
        weir_device_free(stream->device, stream->context.scratch, stream->context.scratch_bytes);
    else
        free(stream->context.scratch);
    stream->context.scratch = NULL;
    stream->context.scratch_bytes = 0;
}

weir_status weir_stream_open(
    weir_stream **out, const weir_stream_options *options, weir_error *error
)
{
    weir_status status = WEIR_OK;
    size_t n = 0;
    *out = NULL;
    if (options->n_threads < 0 || options->n_threads > MAX_THREADS)
        return weir_error_set(
            error, WEIR_ECONFIG, "kernels.threads = %d: must be 0 (all cores) to %d",
            options->n_threads, MAX_THREADS
        );
    weir_stream *stream = calloc(1, sizeof *stream);
    if (stream) stream->device = options->device;
    if (stream && list_rows(stream))
        stream->allowed = calloc(stream->n_rows + 1, sizeof *stream->allowed);
    if (!stream || !stream->allowed ||
        (stream->device && weir_marshal_open(&stream->marshaller, stream->device) != WEIR_OK)) {
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for a kernel stream");
        goto done;
    }
    stream->context.n_threads = options->n_threads ? options->n_threads : default_threads();
    stream->context.omp_device = omp_get_initial_device();
    stream->caps = weir_caps_detect();
    if (stream->device) {
        stream->caps.cuda_capability = weir_device_capability(stream->device);
        weir_device_context(stream->device, &stream->context);
    }
    status = force_isa(stream, options->isa ? options->isa : WEIR_ISA_AUTO, error);
    for (int op = 0; op < WEIR_OP_COUNT && status == WEIR_OK; op++) {
        status = list_op(stream, (weir_op)op, options->pins[op], &n, error);
        stream->first[op + 1] = n;
    }
done:
    if (status == WEIR_OK)
        *out = stream;
    else
        weir_stream_close(stream);
    return status;
}

void weir_stream_close(weir_stream *stream)
{
    if (!stream) return;
    free_scratch(stream);
    weir_marshal_close(stream->marshaller);
    free(stream->allowed);
    free(stream->rows);
    free(stream);
}

weir_device *weir_stream_device(const weir_stream *stream) { return stream->device; }

const weir_caps *weir_stream_caps(const weir_stream *stream) { return &stream->caps; }

_Static_assert((int)WEIR_CAPS_TEXT <= (int)WEIR_STREAM_ISA, "the text fits");
void weir_stream_print_isa(char out[WEIR_STREAM_ISA], const weir_stream *stream)
{
    weir_caps_print(out, &stream->caps);
}

int32_t weir_stream_threads(const weir_stream *stream) { return stream->context.n_threads; }

size_t weir_stream_scratch_bytes(const weir_stream *stream)
{
    return stream->context.scratch_bytes;
}

static const char *row_reject(
    const weir_stream *stream, const weir_kernel *kernel, const void *args
)
{
    return kernel->reject ? kernel->reject(&stream->caps, args) : NULL;
}

static const weir_kernel *first_accepting(const weir_stream *stream, weir_op op, const void *args)
{
    for (size_t i = stream->first[op]; i < stream->first[op + 1]; i++)
        if (!row_reject(stream, stream->allowed[i], args)) return stream->allowed[i];
    return NULL;
}

const char *weir_kernel_reject(
    const weir_stream *stream, const weir_kernel *kernel, const void *args
)
{
    const weir_table_row *row = row_named(stream, kernel->op, kernel->name);
    if (!row) return "not in the table";
    const char *barred = row_barred(stream, row);
    return barred ? barred : row_reject(stream, kernel, args);
}

const weir_kernel *weir_kernel_pick(
    const weir_stream *stream, weir_op op, const void *args, weir_kernel_visitor visit, void *user
)
{
    for (const weir_table_row *row = stream->rows; visit && row < stream->rows + stream->n_rows;
         row++)
        if (row->kernel->op == op)
            visit(user, row->kernel, weir_kernel_reject(stream, row->kernel, args));
    return first_accepting(stream, op, args);
}

/* Does not keep the old contents: scratch never outlives a call. */
static weir_status grow_scratch(weir_stream *stream, size_t bytes)
{
    if (bytes <= stream->context.scratch_bytes) return WEIR_OK;
    if (!weir_align_size(&bytes, bytes, SCRATCH_STEP)) return WEIR_ENOMEM;
    if (stream->device) weir_device_finish(stream->device);
    free_scratch(stream);
    stream->context.scratch = stream->device ? weir_device_alloc(stream->device, bytes)
                                             : aligned_alloc(SCRATCH_ALIGNMENT, bytes);
    if (!stream->context.scratch) return WEIR_ENOMEM;
    stream->context.scratch_bytes = bytes;
    return WEIR_OK;
}

static size_t scratch_of(const weir_stream *stream, const weir_kernel *kernel, const void *args)
{
    return (kernel->scratch ? kernel->scratch(args) : 0) +
           kernel->thread_scratch * (size_t)stream->context.n_threads;
}

/* Launches are ordered: target regions are synchronous, overrides run on the device's default
 * stream, for which regions wait. Queued failures are checked before a region is entered, since the
 * OpenMP runtime would end the process. */
static weir_status run_on_device(weir_stream *stream, const weir_kernel *kernel, const void *args)
{
    const void *there = NULL;
    if (kernel->backend == WEIR_BACKEND_OMP) weir_device_finish(stream->device);
    weir_status status = weir_marshal_begin(stream->marshaller, kernel->op, args, &there);
    if (weir_device_failure(stream->device)) return WEIR_EDEVICE;
    if (status != WEIR_OK) return status;
    weir_device_begin(stream->device);
    status = kernel->run(&stream->context, there);
    weir_device_end(stream->device);
    weir_marshal_end(stream->marshaller);
    return weir_device_failure(stream->device) ? WEIR_EDEVICE : status;
}

weir_status weir_kernel_run(weir_stream *stream, const weir_kernel *kernel, const void *args)
{
    WEIR_TRY(grow_scratch(stream, scratch_of(stream, kernel, args)));
    /* oneDNN and the kernels size their teams by the calling thread's setting, so it is set to the
     * stream's. */
    if (omp_get_max_threads() != stream->context.n_threads)
        omp_set_num_threads(stream->context.n_threads);
    if (stream->device && !is_host_op(kernel->op)) return run_on_device(stream, kernel, args);
#if __has_feature(address_sanitizer)
    if (stream->device == NULL) weir_marshal_check(kernel->op, args);
#endif
    return kernel->run(&stream->context, args);
}

void weir_stream_copy(weir_stream *stream, void *dst, const void *src, size_t bytes)
{
    if (stream->planning || bytes == 0) return;
    if (stream->device)
        weir_device_copy(stream->device, dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

void weir_stream_queue_copy(weir_stream *stream, void *dst, const void *src, size_t bytes)
{
    if (stream->planning || bytes == 0) return;
    if (stream->device)
        weir_device_queue_copy(stream->device, dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

weir_status weir_stream_finish(weir_stream *stream)
{
    if (!stream->device || stream->planning) return WEIR_OK;
    weir_device_finish(stream->device);
    return weir_device_failure(stream->device) ? WEIR_EDEVICE : WEIR_OK;
}

void weir_stream_clear(weir_stream *stream, void *memory, size_t bytes)
{
    if (stream->planning || bytes == 0) return;
    if (stream->device)
        weir_device_clear(stream->device, memory, bytes);
    else
        memset(memory, 0, bytes);
}

bool weir_stream_is_planning(const weir_stream *stream) { return stream->planning; }

void weir_stream_set_planning(weir_stream *stream, bool planning)
{
    if (planning) stream->planned = 0;
    if (planning && stream->device) weir_marshal_plan_reset(stream->marshaller);
    stream->planning = planning;
}

static size_t planned_scratch(const weir_stream *stream)
{
    size_t bytes;
    return weir_align_size(&bytes, stream->planned, SCRATCH_STEP) ? bytes : SIZE_MAX / 2;
}

weir_stream_memory weir_stream_planned(const weir_stream *stream)
{
    const weir_marshal_memory lists =
        stream->device ? weir_marshal_planned(stream->marshaller) : (weir_marshal_memory){ 0 };
    return (weir_stream_memory
    ){ .scratch = planned_scratch(stream), .device = lists.device, .host = lists.unified };
}

weir_stream_memory weir_stream_held(const weir_stream *stream)
{
    const weir_marshal_memory lists =
        stream->device ? weir_marshal_held(stream->marshaller) : (weir_marshal_memory){ 0 };
    return (weir_stream_memory
    ){ .scratch = stream->context.scratch_bytes, .device = lists.device, .host = lists.unified };
}

weir_status weir_stream_reserve_planned(weir_stream *stream)
{
    WEIR_TRY(grow_scratch(stream, planned_scratch(stream)));
    return stream->device ? weir_marshal_reserve(stream->marshaller) : WEIR_OK;
}

static weir_status plan_op(weir_stream *stream, weir_op op, const void *args)
{
    const weir_kernel *kernel = first_accepting(stream, op, args);
    if (!kernel) return WEIR_EUNSUPPORTED;
    const size_t bytes = scratch_of(stream, kernel, args);
    if (bytes > stream->planned) stream->planned = bytes;
    if (stream->device && !is_host_op(op)) weir_marshal_plan(stream->marshaller, op, args);
    return WEIR_OK;
}

void weir_stream_observe(
    weir_stream *stream, void (*observe)(void *user, weir_op op, const void *args), void *user
)
{
    stream->observe = observe;
    stream->observer = user;
}

weir_status weir_stream_call(weir_stream *stream, weir_op op, const void *args)
{
    if (stream->observe) stream->observe(stream->observer, op, args);
    if (stream->planning) return plan_op(stream, op, args);
    const weir_kernel *kernel = first_accepting(stream, op, args);
    return kernel ? weir_kernel_run(stream, kernel, args) : WEIR_EUNSUPPORTED;
}
