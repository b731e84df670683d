#include "engine/model/expert_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/array_layout.h"
#include "engine/base/checked.h"
#include "engine/base/clock.h"
#include "engine/model/expert_cache_internal.h"

/* ---- sizes ----------------------------------------------------------------------------------- */
/* A buffer of this size has room for all matrices of an expert, which are then read in as few
 * pieces as the file allows. Larger matrices are read one by one: a piece is large anyway. */
static const size_t whole_most = (size_t)16 << 20;

/* Arrays in memory of the ledger: metadata, then buffers and slots. */
static size_t place(weir_expert_cache *c, char *base)
{
    weir_arrays arrays = { .base = base };
    const weir_expert_plan *const plan = &c->plan;
    const int64_t n_slots = plan->n_slots, slot = (int64_t)plan->slot_bytes,
                  buffer = (int64_t)plan->buffer_bytes, gathered = (int64_t)plan->gathered_bytes;
    WEIR_ARRAYS_PLACE(&arrays, c->first_unit, c->model->shape.n_layers);
    WEIR_ARRAYS_PLACE(&arrays, c->counts, c->model->shape.n_layers);
    WEIR_ARRAYS_PLACE(&arrays, c->slots, n_slots);
    WEIR_ARRAYS_PLACE(&arrays, c->slot_of, plan->n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->uses, plan->n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->is_pinned, plan->n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->queue, n_slots);
    WEIR_ARRAYS_PLACE(&arrays, c->wanted, c->model->shape.n_experts);
    for (int i = 0; i < WEIR_EXPERT_READERS; i++) {
        WEIR_ARRAYS_PLACE(&arrays, c->readers[i].buffer, buffer);
        WEIR_ARRAYS_PLACE(&arrays, c->readers[i].gathered, gathered);
    }
    WEIR_ARRAYS_PLACE(&arrays, c->slot_memory, n_slots * slot);
    return arrays.bytes;
}

/* What the matrices of a layer's experts need, each. */
typedef struct expert_sizes {
    size_t slot, buffer; /* packed; in buffers */
    int n_matrices;
} expert_sizes;

/* Room for bytes of a file: they begin anywhere in a page, and others may join them. */
static bool add_room(size_t *room, size_t bytes, size_t page)
{
    size_t one;
    return bytes == 0 || (weir_add_size(&one, bytes, 2 * page) &&
                          weir_align_size(&one, one, page) && weir_add_size(room, *room, one));
}

/* Adds the matrices of one parameter of experts in a layer. All have the same size. */
static weir_status add_array(
    weir_expert_plan *plan, const weir_model *model, const weir_expert_array *array,
    expert_sizes *sizes, weir_error *error
)
{
    const weir_weight *const weight = &model->weights[array->first];
    const bound_matrix *const matrix = &model->matrices[array->first];
    size_t one, all, buffer = 0;
    const size_t codes = weir_expert_span(matrix, weight->n_out, weight->n_in, false),
                 scales = weir_expert_span(matrix, weight->n_out, weight->n_in, true);
    const size_t page = weir_expert_page(plan);
    size_t gathered = 0;
    WEIR_ASSERT(sizes->n_matrices++ < WEIR_EXPERT_MATRICES);
    if (weir_matrix_is_scattered(matrix, weight->n_out))
        gathered = weir_row_bytes(matrix->dtype, weight->n_in) * (size_t)weight->n_out;
    if (!weir_align_size(&one, weight->bytes, WEIR_WEIGHT_ALIGNMENT) ||
        !weir_mul_size(&all, one, (size_t)array->n) ||
        !weir_add_size(&plan->all_bytes, plan->all_bytes, all) ||
        !weir_add_size(&sizes->slot, sizes->slot, one) || !add_room(&buffer, codes, page) ||
        !add_room(&buffer, scales, page) || !weir_add_size(&sizes->buffer, sizes->buffer, buffer))
        return weir_error_set(error, WEIR_EFORMAT, "the experts do not fit in memory");
    if (buffer > plan->buffer_bytes) plan->buffer_bytes = buffer;
    if (gathered > plan->gathered_bytes) plan->gathered_bytes = gathered;
    if (sizes->slot > plan->slot_bytes) plan->slot_bytes = sizes->slot;
    return WEIR_OK;
}

static size_t bytes_with(const weir_model *model, const weir_expert_plan *plan, int32_t n_slots)
{
    weir_expert_cache none = { .model = (weir_model *)(uintptr_t)model, .plan = *plan };
    none.plan.n_slots = n_slots;
    return place(&none, NULL) + sizeof none;
}

/* The most slots that fit, of at least `least`. */
static int32_t slots_within(
    const weir_model *model, const weir_expert_plan *plan, int64_t least, size_t limit
)
{
    int64_t low = least, high = plan->n_experts;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (bytes_with(model, plan, (int32_t)middle) <= limit)
            low = middle;
        else
            high = middle - 1;
    }
    return (int32_t)low;
}

static bool is_direct(const weir_model *model, const weir_expert_settings *settings)
{
    size_t all = 0;
    for (size_t i = 0; i < model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &model->expert_arrays[i];
        size_t one;
        if (!weir_mul_size(&one, model->weights[array->first].bytes, (size_t)array->n) ||
            !weir_add_size(&all, all, one))
            all = SIZE_MAX;
    }
    return settings->reads == WEIR_EXPERT_READS_DIRECT ||
           (settings->reads == WEIR_EXPERT_READS_AUTO && all > settings->page_cache);
}

weir_status weir_expert_cache_plan(
    weir_expert_plan *out, const weir_model *model, const weir_expert_settings *settings,
    weir_error *error
)
{
    weir_expert_plan plan = { .is_direct = is_direct(model, settings),
                              .may_be_cached = settings->reads != WEIR_EXPERT_READS_DIRECT,
                              .prefetches = settings->prefetches };
    const int64_t n_used = model->shape.n_experts_used;
    const size_t limit = settings->bytes;
    expert_sizes sizes = { 0 };
    size_t whole = 0;
    int64_t layer = -1;
    for (size_t i = 0; i < model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &model->expert_arrays[i];
        if (limit > 0 && weir_model_directory_of(model, model->matrices[array->first].tensor) !=
                             model->directory)
            return weir_error_set(
                error, WEIR_ECONFIG,
                "memory.experts: an adapter with experts must be in memory; set it to 0"
            );
        if (array->layer != layer) plan.n_experts += array->n;
        if (array->layer != layer) sizes = (expert_sizes){ 0 };
        layer = array->layer;
        WEIR_TRY(add_array(&plan, model, array, &sizes, error));
        if (sizes.buffer > whole) whole = sizes.buffer;
    }
    plan.is_whole = whole <= whole_most;
    plan.buffer_bytes = (plan.is_whole ? whole : plan.buffer_bytes) + weir_expert_page(&plan);
    *out = plan;
    if (limit == 0 || plan.all_bytes <= limit) return WEIR_OK;
    const size_t least = bytes_with(model, &plan, (int32_t)n_used);
    if (least > limit)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "memory.experts = %zu bytes: a token uses %lld experts of %zu bytes in a layer, which "
            "with buffers take %zu bytes; set memory.experts to at least that",
            limit, (long long)n_used, plan.slot_bytes, least
        );
    plan.n_slots = slots_within(model, &plan, n_used, limit);
    plan.bytes = bytes_with(model, &plan, plan.n_slots);
    /* Two layers of a token always have slots that can be evicted. */
    const int64_t n_free = plan.n_slots - 2 * n_used;
    plan.n_pins = n_free > 0 ? (int32_t)(settings->pins * (double)n_free) : 0;
    *out = plan;
    return WEIR_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */
/* Numbers the experts of all layers. */
static void number_units(weir_expert_cache *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->model->shape.n_layers; i++) c->first_unit[i] = -1;
    for (size_t i = 0; i < c->model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &c->model->expert_arrays[i];
        if (c->first_unit[array->layer] >= 0) continue;
        c->first_unit[array->layer] = n;
        n += array->n;
    }
}

/* The last opened file reads past the page cache from now on. False with errno: it cannot. Some
 * file systems refuse the flag, others the reads. */
static bool set_direct(const weir_expert_cache *c)
{
    unsigned char *const buffer = c->readers[0].buffer;
    void *const page =
        buffer + (WEIR_EXPERT_PAGE - (uintptr_t)buffer % WEIR_EXPERT_PAGE) % WEIR_EXPERT_PAGE;
    const int file = c->files[c->n_files], flags = fcntl(file, F_GETFL);
    return flags >= 0 && fcntl(file, F_SETFL, flags | O_DIRECT) == 0 &&
           (pread(file, page, WEIR_EXPERT_PAGE, 0) >= 0 || errno != EINVAL);
}

/* All files up to the last opened one are read through the page cache. */
static bool end_direct(weir_expert_cache *c)
{
    c->plan.is_direct = false;
    for (int32_t i = 0; i <= c->n_files; i++) {
        const int flags = fcntl(c->files[i], F_GETFL);
        if (flags < 0 || fcntl(c->files[i], F_SETFL, flags & ~O_DIRECT) != 0) return false;
    }
    return true;
}

/* Returns false with errno. */
static bool open_file(weir_expert_cache *c, const char *path)
{
    int *const file = &c->files[c->n_files];
    *file = open(path, O_RDONLY | O_CLOEXEC);
    if (*file < 0) return false;
    if (!c->plan.is_direct || set_direct(c)) return true;
    if (c->plan.may_be_cached && end_direct(c)) return true;
    const int why = errno;
    (void)close(*file);
    errno = why;
    return false;
}

static weir_status open_files(weir_expert_cache *c, weir_error *error)
{
    const int32_t n = weir_tensor_directory_files(c->model->directory);
    c->files = malloc((size_t)n * sizeof *c->files);
    if (c->files == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the files of the model");
    for (; c->n_files < n; c->n_files++) {
        const char *const path = weir_tensor_directory_file(c->model->directory, c->n_files);
        if (!open_file(c, path))
            return weir_error_set(
                error, WEIR_EIO, "%s: cannot open it to read experts%s: %s", path,
                c->plan.is_direct ? " past the page cache (memory.expert_reads)" : "",
                strerror(errno)
            );
    }
    return WEIR_OK;
}

static weir_status start_readers(weir_expert_cache *c, weir_error *error)
{
    if (pthread_mutex_init(&c->lock, NULL) != 0)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a lock");
    if (pthread_cond_init(&c->changed, NULL) != 0) {
        (void)pthread_mutex_destroy(&c->lock);
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a lock");
    }
    c->has_lock = true;
    for (expert_reader *r = c->readers; r < c->readers + WEIR_EXPERT_READERS; r++) {
        r->cache = c;
        if (pthread_create(&r->thread, NULL, weir_expert_read, r) != 0)
            return weir_error_set(
                error, WEIR_ENOMEM, "no memory for the thread that reads experts"
            );
        r->has_thread = true;
    }
    return WEIR_OK;
}

weir_status weir_expert_cache_open(
    weir_expert_cache **out, weir_model *model, const weir_expert_plan *plan, weir_ledger *ledger,
    weir_error *error
)
{
    void *self = NULL;
    const weir_stream_options one_thread = { .n_threads = 1 };
    WEIR_TRY(
        weir_ledger_alloc(ledger, &self, WEIR_ACCOUNT_WEIGHTS, sizeof(weir_expert_cache), error)
    );
    weir_expert_cache *const c = self;
    *c = (weir_expert_cache){ .model = model,
                              .ledger = ledger,
                              .plan = *plan,
                              .oldest = -1,
                              .newest = -1,
                              .layer = -1,
                              .last_layer = -1 };
    *out = c;
    const size_t bytes = plan->bytes - sizeof *c;
    weir_status status = weir_ledger_alloc(ledger, &c->memory, WEIR_ACCOUNT_WEIGHTS, bytes, error);
    if (status == WEIR_OK) {
        (void)place(c, c->memory);
        number_units(c);
        for (int64_t i = 0; i < plan->n_experts; i++) c->slot_of[i] = -1;
        for (int32_t i = 0; i < plan->n_slots; i++) {
            c->slots[i] = (expert_slot){ .unit = -1 };
            weir_expert_link(c, i);
        }
        memset(c->uses, 0, (size_t)plan->n_experts * sizeof *c->uses);
        memset(c->is_pinned, 0, (size_t)plan->n_experts * sizeof *c->is_pinned);
        memset(c->counts, 0, (size_t)model->shape.n_layers * sizeof *c->counts);
        c->stats.n_slots = plan->n_slots;
        c->stats.n_experts = plan->n_experts;
        c->stats.slot_bytes = (int64_t)plan->slot_bytes;
        status = weir_stream_open(&c->stream, &one_thread, error);
    }
    if (status == WEIR_OK) status = open_files(c, error);
    if (status == WEIR_OK) status = start_readers(c, error);
    c->stats.is_direct = c->plan.is_direct;
    if (status == WEIR_OK) return WEIR_OK;
    weir_expert_cache_close(c);
    *out = NULL;
    return status;
}

void weir_expert_cache_close(weir_expert_cache *c)
{
    if (c == NULL) return;
    if (c->has_lock) {
        (void)pthread_mutex_lock(&c->lock);
        c->is_closing = true;
        (void)pthread_cond_broadcast(&c->changed);
        (void)pthread_mutex_unlock(&c->lock);
        for (int i = 0; i < WEIR_EXPERT_READERS; i++)
            if (c->readers[i].has_thread) (void)pthread_join(c->readers[i].thread, NULL);
        (void)pthread_cond_destroy(&c->changed);
        (void)pthread_mutex_destroy(&c->lock);
    }
    for (int32_t i = 0; i < c->n_files; i++) (void)close(c->files[i]);
    free(c->files);
    weir_stream_close(c->stream);
    weir_ledger_free(c->ledger, c->memory, WEIR_ACCOUNT_WEIGHTS, c->plan.bytes - sizeof *c);
    weir_ledger_free(c->ledger, c, WEIR_ACCOUNT_WEIGHTS, sizeof *c);
}

/* ---- counts ---------------------------------------------------------------------------------- */
void weir_expert_cache_stats(weir_expert_cache *c, weir_expert_stats *out)
{
    (void)pthread_mutex_lock(&c->lock);
    *out = c->stats;
    for (int64_t i = 0; i < c->model->shape.n_layers; i++)
        weir_expert_counts_add(&out->all, &c->counts[i]);
    (void)pthread_mutex_unlock(&c->lock);
}

bool weir_expert_cache_counts(weir_expert_cache *c, int64_t layer, weir_expert_counts *out)
{
    if (layer < 0 || layer >= c->model->shape.n_layers || c->first_unit[layer] < 0) return false;
    (void)pthread_mutex_lock(&c->lock);
    *out = c->counts[layer];
    (void)pthread_mutex_unlock(&c->lock);
    return true;
}
