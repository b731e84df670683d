#include "engine/model/expert_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/array_layout.h"
#include "engine/base/checked.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/model/expert_cache_internal.h"

/* ---- sizes ----------------------------------------------------------------------------------- */
/* Arrays in memory of the ledger: metadata, then buffers and entries. */
static size_t place(weir_expert_cache *c, char *base)
{
    weir_arrays arrays = { .base = base };
    const weir_expert_plan *const plan = &c->plan;
    const int64_t n_entries = plan->n_entries, n_reads = plan->n_reads;
    WEIR_ARRAYS_PLACE(&arrays, c->first_unit, c->model->shape.n_layers);
    WEIR_ARRAYS_PLACE(&arrays, c->counts, c->model->shape.n_layers);
    WEIR_ARRAYS_PLACE(&arrays, c->entries, n_entries);
    WEIR_ARRAYS_PLACE(&arrays, c->reads, n_reads);
    WEIR_ARRAYS_PLACE(&arrays, c->entry_of, plan->n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->read_of, plan->n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->uses, plan->n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->is_pinned, plan->n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->wanted, c->model->shape.n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->gathered, (int64_t)plan->gathered_bytes);
    c->read_memory = weir_arrays_place3(&arrays, 1, n_reads, (int64_t)plan->read_bytes, 1);
    (void)weir_arrays_place(&arrays, weir_expert_page(plan), 1); /* it begins at a page */
    c->entry_memory = weir_arrays_place3(&arrays, 1, n_entries, (int64_t)plan->entry_bytes, 1);
    return arrays.bytes;
}

/* What an expert of a layer needs: packed, and in a buffer. */
typedef struct expert_sizes {
    size_t entry, read;
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
    size_t one, all;
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
        !weir_add_size(&sizes->entry, sizes->entry, one) || !add_room(&sizes->read, codes, page) ||
        !add_room(&sizes->read, scales, page))
        return weir_error_set(error, WEIR_EFORMAT, "the experts do not fit in memory");
    if (sizes->read > plan->read_bytes) plan->read_bytes = sizes->read;
    if (gathered > plan->gathered_bytes) plan->gathered_bytes = gathered;
    if (sizes->entry > plan->entry_bytes) plan->entry_bytes = sizes->entry;
    return WEIR_OK;
}

static size_t bytes_with(const weir_model *model, const weir_expert_plan *plan, int32_t n_entries)
{
    weir_expert_cache none = { .model = (weir_model *)(uintptr_t)model, .plan = *plan };
    none.plan.n_entries = n_entries;
    return place(&none, NULL) + sizeof none;
}

/* The most entries that fit, of at least `least`. */
static int32_t entries_within(
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

/* Chooses how many buffers there are: enough for a token's experts of this layer and the next, in
 * a quarter of the bytes; two at least. Returns what these take with n_used entries. */
static size_t plan_reads(
    weir_expert_plan *plan, const weir_model *model, int64_t n_used, size_t limit
)
{
    const int64_t share = (int64_t)(limit / 4 / plan->read_bytes);
    plan->n_reads = 2;
    const size_t least = bytes_with(model, plan, (int32_t)n_used);
    if (share > 2) plan->n_reads = (int32_t)(share < 2 * n_used ? share : 2 * n_used);
    while (plan->n_reads > 2 && bytes_with(model, plan, (int32_t)n_used) > limit) plan->n_reads--;
    return least;
}

static bool has_adapter(const weir_model *model, const weir_expert_array *array)
{
    int64_t e = 0;
    while (e < array->n &&
           weir_model_directory_of(model, model->matrices[array->first + (size_t)e].tensor) ==
               model->directory)
        e++;
    return e < array->n;
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
                              .timeout_ns = settings->timeout_ns,
                              .prefetches = settings->prefetches };
    const int64_t n_used = model->shape.n_experts_used;
    const size_t limit = settings->bytes;
    expert_sizes sizes = { 0 };
    int64_t layer = -1;
    for (size_t i = 0; i < model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &model->expert_arrays[i];
        if (limit > 0 && has_adapter(model, array))
            return weir_error_set(
                error, WEIR_ECONFIG,
                "memory.experts: an adapter with experts must be in memory; set it to 0"
            );
        if (array->layer != layer) plan.n_experts += array->n;
        if (array->layer != layer) sizes = (expert_sizes){ 0 };
        layer = array->layer;
        WEIR_TRY(add_array(&plan, model, array, &sizes, error));
    }
    *out = plan;
    if (limit == 0 || plan.all_bytes <= limit) return WEIR_OK;
    const size_t least = plan_reads(&plan, model, n_used, limit);
    if (least > limit)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "memory.experts = %zu bytes: a token uses %lld experts of %zu bytes in a layer, which "
            "with buffers take %zu bytes; set memory.experts to at least that",
            limit, (long long)n_used, plan.entry_bytes, least
        );
    plan.n_entries = entries_within(model, &plan, n_used, limit);
    plan.bytes = bytes_with(model, &plan, plan.n_entries);
    /* Two layers of a token always have entries that can be evicted. */
    const int64_t n_free = plan.n_entries - 2 * n_used;
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

/* Nothing is in memory, and nothing is read. */
static void empty(weir_expert_cache *c)
{
    const size_t page = weir_expert_page(&c->plan);
    unsigned char *const first = c->read_memory + (page - (uintptr_t)c->read_memory % page) % page;
    for (int64_t i = 0; i < c->plan.n_experts; i++) c->entry_of[i] = c->read_of[i] = -1;
    for (int32_t i = 0; i < c->plan.n_reads; i++)
        c->reads[i] = (expert_read){ .memory = first + (size_t)i * c->plan.read_bytes, .unit = -1 };
    for (int32_t i = 0; i < c->plan.n_entries; i++) {
        c->entries[i] = (expert_entry){ .unit = -1 };
        weir_expert_link(c, i);
    }
    memset(c->uses, 0, (size_t)c->plan.n_experts * sizeof *c->uses);
    memset(c->is_pinned, 0, (size_t)c->plan.n_experts * sizeof *c->is_pinned);
    memset(c->counts, 0, (size_t)c->model->shape.n_layers * sizeof *c->counts);
}

/* The last opened file reads past the page cache from now on. False with errno: it cannot. Some
 * file systems refuse the flag, others the reads. */
static bool set_direct(const weir_expert_cache *c)
{
    const int file = c->files[c->n_files], flags = fcntl(file, F_GETFL);
    return flags >= 0 && fcntl(file, F_SETFL, flags | O_DIRECT) == 0 &&
           (pread(file, c->reads[0].memory, WEIR_EXPERT_PAGE, 0) >= 0 || errno != EINVAL);
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
    const bool has_changed = pthread_cond_init(&c->changed, NULL) == 0;
    c->has_lock = has_changed && pthread_cond_init(&c->work, NULL) == 0;
    if (!c->has_lock) {
        if (has_changed) (void)pthread_cond_destroy(&c->changed);
        (void)pthread_mutex_destroy(&c->lock);
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a lock");
    }
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
        empty(c);
        c->stats.n_entries = plan->n_entries;
        c->stats.n_experts = plan->n_experts;
        c->stats.entry_bytes = (int64_t)plan->entry_bytes;
    }
    if (status == WEIR_OK) status = open_files(c, error);
    if (status == WEIR_OK) status = start_readers(c, error);
    c->stats.is_direct = c->plan.is_direct;
    if (status == WEIR_OK) return WEIR_OK;
    weir_expert_cache_close(c);
    *out = NULL;
    return status;
}

/* Caches of which a thread waits for a disk that does not answer: they stay until the process
 * ends. */
static _Atomic(weir_expert_cache *) left_behind;

/* False: the disk has not answered a thread for timeout_ns, and it may still use the cache. */
static bool end_readers(weir_expert_cache *c)
{
    bool have_ended = true;
    (void)pthread_mutex_lock(&c->lock);
    c->is_closing = true;
    (void)pthread_cond_broadcast(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
    for (expert_reader *r = c->readers; r < c->readers + WEIR_EXPERT_READERS; r++) {
        (void)pthread_mutex_lock(&c->lock);
        const int64_t waited = r->since_ns > 0 ? weir_clock_ns() - r->since_ns : 0,
                      left = c->plan.timeout_ns - waited;
        (void)pthread_mutex_unlock(&c->lock);
        const struct timespec until = weir_clock_after(CLOCK_REALTIME, left > 0 ? left : 0);
        if (!r->has_thread || pthread_timedjoin_np(r->thread, NULL, &until) == 0) continue;
        (void)pthread_detach(r->thread);
        have_ended = false;
    }
    return have_ended;
}

void weir_expert_cache_close(weir_expert_cache *c)
{
    if (c == NULL) return;
    if (c->has_lock && !end_readers(c)) {
        weir_log(WEIR_LOG_WARNING, "the disk does not answer a read of an expert: it is left");
        c->next_left = atomic_exchange(&left_behind, c);
        return;
    }
    if (c->has_lock) {
        (void)pthread_cond_destroy(&c->work);
        (void)pthread_cond_destroy(&c->changed);
        (void)pthread_mutex_destroy(&c->lock);
    }
    for (int32_t i = 0; i < c->n_files; i++) (void)close(c->files[i]);
    free(c->files);
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
