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
/* Arrays in memory of the ledger: metadata, then buffers and slots. */
static size_t place(weir_expert_cache *c, char *base)
{
    weir_arrays arrays = { .base = base };
    const weir_expert_plan *const plan = &c->plan;
    const int64_t n_slots = plan->n_slots, slot = (int64_t)plan->slot_bytes,
                  buffer = (int64_t)plan->buffer_bytes, gathered = (int64_t)plan->gathered_bytes;
    WEIR_ARRAYS_PLACE(&arrays, c->first_unit, c->model->shape.n_layers);
    WEIR_ARRAYS_PLACE(&arrays, c->slots, n_slots);
    WEIR_ARRAYS_PLACE(&arrays, c->slot_of, plan->n_experts);
    WEIR_ARRAYS_PLACE(&arrays, c->queue, n_slots);
    WEIR_ARRAYS_PLACE(&arrays, c->wanted, c->model->shape.n_experts);
    arrays.bytes = (arrays.bytes + 63) & ~(size_t)63;
    for (int i = 0; i < WEIR_EXPERT_READERS; i++) {
        WEIR_ARRAYS_PLACE(&arrays, c->readers[i].buffer, buffer);
        WEIR_ARRAYS_PLACE(&arrays, c->readers[i].gathered, gathered);
    }
    arrays.bytes = (arrays.bytes + 63) & ~(size_t)63;
    WEIR_ARRAYS_PLACE(&arrays, c->slot_memory, n_slots * slot);
    return arrays.bytes;
}

/* Adds the matrices of one slot of experts in a layer. All have the same size. */
static weir_status add_array(
    weir_expert_plan *plan, const weir_model *model, const weir_expert_array *array,
    size_t *expert_bytes, weir_error *error
)
{
    const weir_weight *const weight = &model->weights[array->first];
    const bound_matrix *const matrix = &model->matrices[array->first];
    size_t one, all, buffer;
    const size_t codes = weir_expert_span(matrix, weight->n_out, weight->n_in, false),
                 scales = weir_expert_span(matrix, weight->n_out, weight->n_in, true);
    size_t gathered = 0;
    if (weir_matrix_is_scattered(matrix, weight->n_out))
        gathered = weir_row_bytes(matrix->dtype, weight->n_in) * (size_t)weight->n_out;
    if (!weir_align_size(&one, weight->bytes, WEIR_WEIGHT_ALIGNMENT) ||
        !weir_mul_size(&all, one, (size_t)array->n) ||
        !weir_add_size(&plan->all_bytes, plan->all_bytes, all) ||
        !weir_add_size(expert_bytes, *expert_bytes, one) ||
        !weir_add_size(&buffer, codes, scales) || !weir_align_size(&buffer, buffer, 64))
        return weir_error_set(error, WEIR_EFORMAT, "the experts do not fit in memory");
    if (buffer > plan->buffer_bytes) plan->buffer_bytes = buffer;
    if (gathered > plan->gathered_bytes) plan->gathered_bytes = gathered;
    if (*expert_bytes > plan->slot_bytes) plan->slot_bytes = *expert_bytes;
    return WEIR_OK;
}

static size_t bytes_with(const weir_model *model, const weir_expert_plan *plan, int32_t n_slots)
{
    weir_expert_cache none = { .model = (weir_model *)(uintptr_t)model, .plan = *plan };
    none.plan.n_slots = n_slots;
    return place(&none, NULL) + sizeof none;
}

weir_status weir_expert_cache_plan(
    weir_expert_plan *out, const weir_model *model, size_t limit, weir_error *error
)
{
    weir_expert_plan plan = { 0 };
    const int64_t n_used = model->shape.n_experts_used;
    size_t expert = 0;
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
        expert = array->layer != layer ? 0 : expert;
        layer = array->layer;
        WEIR_TRY(add_array(&plan, model, array, &expert, error));
    }
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
    int64_t low = n_used, high = plan.n_experts;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (bytes_with(model, &plan, (int32_t)middle) <= limit)
            low = middle;
        else
            high = middle - 1;
    }
    plan.n_slots = (int32_t)low;
    plan.bytes = bytes_with(model, &plan, plan.n_slots);
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

static weir_status open_files(weir_expert_cache *c, weir_error *error)
{
    const int32_t n = weir_tensor_directory_files(c->model->directory);
    c->files = malloc((size_t)n * sizeof *c->files);
    if (c->files == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the files of the model");
    for (; c->n_files < n; c->n_files++) {
        const char *const path = weir_tensor_directory_file(c->model->directory, c->n_files);
        c->files[c->n_files] = open(path, O_RDONLY | O_CLOEXEC);
        if (c->files[c->n_files] < 0)
            return weir_error_set(
                error, WEIR_EIO, "%s: cannot open it to read experts: %s", path, strerror(errno)
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

static void link_newest(weir_expert_cache *c, int32_t slot)
{
    expert_slot *const s = &c->slots[slot];
    s->older = c->newest;
    s->newer = -1;
    *(c->newest >= 0 ? &c->slots[c->newest].newer : &c->oldest) = slot;
    c->newest = slot;
}

static void unlink_slot(weir_expert_cache *c, int32_t slot)
{
    const expert_slot *const s = &c->slots[slot];
    *(s->older >= 0 ? &c->slots[s->older].newer : &c->oldest) = s->newer;
    *(s->newer >= 0 ? &c->slots[s->newer].older : &c->newest) = s->older;
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
    *c = (weir_expert_cache
    ){ .model = model, .ledger = ledger, .plan = *plan, .oldest = -1, .newest = -1, .layer = -1 };
    *out = c;
    const size_t bytes = plan->bytes - sizeof *c;
    weir_status status = weir_ledger_alloc(ledger, &c->memory, WEIR_ACCOUNT_WEIGHTS, bytes, error);
    if (status == WEIR_OK) {
        (void)place(c, c->memory);
        number_units(c);
        for (int64_t i = 0; i < plan->n_experts; i++) c->slot_of[i] = -1;
        for (int32_t i = 0; i < plan->n_slots; i++) {
            c->slots[i] = (expert_slot){ .unit = -1 };
            link_newest(c, i);
        }
        c->stats.n_slots = plan->n_slots;
        c->stats.n_experts = plan->n_experts;
        c->stats.slot_bytes = (int64_t)plan->slot_bytes;
        status = weir_stream_open(&c->stream, &one_thread, error);
    }
    if (status == WEIR_OK) status = open_files(c, error);
    if (status == WEIR_OK) status = start_readers(c, error);
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

/* ---- a step ---------------------------------------------------------------------------------- */
static int32_t slot_of(const weir_expert_cache *c, int32_t index)
{
    return c->slot_of[weir_expert_unit(c, c->layer, c->wanted[index])];
}

/* Points the weights of an expert at its slot, or nowhere. With the lock. */
static void point(weir_expert_cache *c, int32_t slot, bool is_ready)
{
    const int32_t unit = c->slots[slot].unit;
    char *at = c->slot_memory + (size_t)slot * c->plan.slot_bytes;
    for (size_t i = 0; i < c->model->n_expert_arrays; i++) {
        const weir_expert_array *const array = &c->model->expert_arrays[i];
        const int64_t expert = unit - c->first_unit[array->layer];
        if (expert < 0 || expert >= array->n) continue;
        weir_weight *const weight = &c->model->weights[array->first + (size_t)expert];
        weight->data = is_ready ? at : NULL;
        at += (weight->bytes + WEIR_WEIGHT_ALIGNMENT - 1) / WEIR_WEIGHT_ALIGNMENT *
              WEIR_WEIGHT_ALIGNMENT;
    }
}

static void forget(weir_expert_cache *c, int32_t slot)
{
    expert_slot *const s = &c->slots[slot];
    if (s->unit < 0) return;
    point(c, slot, false);
    c->slot_of[s->unit] = -1;
    s->unit = -1;
    s->state = SLOT_FREE;
}

void weir_expert_finish(weir_expert_cache *c, int32_t slot, const weir_error *error)
{
    expert_slot *const s = &c->slots[slot];
    s->state = error->code == WEIR_OK ? SLOT_READY : SLOT_FAILED;
    if (s->state == SLOT_READY) {
        point(c, slot, true);
    } else {
        c->stats.errors++;
        if (c->error.code == WEIR_OK) c->error = *error;
        if (!s->is_used) forget(c, slot);
    }
    if (!s->is_used) link_newest(c, slot);
    (void)pthread_cond_broadcast(&c->changed);
}

/* Gives slots to the next experts that have none, and lets the threads read them. With the lock. */
static void place_next(weir_expert_cache *c)
{
    const int32_t before = c->n_queued;
    for (; c->n_placed < c->n_wanted && c->oldest >= 0; c->n_placed++) {
        const int32_t slot = c->oldest;
        const int64_t unit = weir_expert_unit(c, c->layer, c->wanted[c->n_placed]);
        unlink_slot(c, slot);
        forget(c, slot);
        c->slots[slot].unit = (int32_t)unit;
        c->slots[slot].state = SLOT_LOADING;
        c->slots[slot].is_used = true;
        c->slot_of[unit] = slot;
        c->queue[(c->first_queued + c->n_queued++) % c->plan.n_slots] = slot;
    }
    if (c->n_queued > before) (void)pthread_cond_broadcast(&c->changed);
}

void weir_expert_cache_begin(weir_expert_cache *c, int64_t layer, int32_t *experts, int32_t n)
{
    WEIR_ASSERT(c->layer < 0 && n >= 1 && n <= c->model->shape.n_experts);
    int32_t n_here = 0;
    c->layer = layer;
    (void)pthread_mutex_lock(&c->lock);
    c->error = (weir_error){ 0 };
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < n; i++)
            if ((c->slot_of[weir_expert_unit(c, layer, experts[i])] >= 0) == (pass == 0))
                c->wanted[n_here++] = experts[i];
    for (c->n_placed = 0; c->n_placed < n && slot_of(c, c->n_placed) >= 0; c->n_placed++) {
        const int32_t slot = slot_of(c, c->n_placed);
        unlink_slot(c, slot);
        c->slots[slot].is_used = true;
    }
    c->stats.hits += c->n_placed;
    c->stats.misses += n - c->n_placed;
    c->n_wanted = n;
    c->n_given = c->n_taken = 0;
    place_next(c);
    (void)pthread_mutex_unlock(&c->lock);
    memcpy(experts, c->wanted, (size_t)n * sizeof *experts);
}

weir_status weir_expert_cache_take(weir_expert_cache *c, int32_t *n)
{
    weir_status status = WEIR_OK;
    WEIR_ASSERT(c->n_taken == 0 && c->n_given < c->n_placed);
    (void)pthread_mutex_lock(&c->lock);
    const expert_slot *const first = &c->slots[slot_of(c, c->n_given)];
    const int64_t begin = first->state == SLOT_LOADING ? weir_clock_ns() : 0;
    while (first->state == SLOT_LOADING) (void)pthread_cond_wait(&c->changed, &c->lock);
    if (begin > 0) c->stats.wait_ns += weir_clock_ns() - begin;
    while (c->n_given + c->n_taken < c->n_placed &&
           c->slots[slot_of(c, c->n_given + c->n_taken)].state == SLOT_READY)
        c->n_taken++;
    if (c->n_taken == 0) status = c->error.code != WEIR_OK ? c->error.code : WEIR_EIO;
    (void)pthread_mutex_unlock(&c->lock);
    *n = c->n_taken;
    return status;
}

/* Ends the use of `wanted` [first, end). A slot that is still being read is put into the list by
 * its reader. With the lock. */
static void release(weir_expert_cache *c, int32_t first, int32_t end)
{
    for (int32_t i = first; i < end; i++) {
        const int32_t slot = slot_of(c, i);
        c->slots[slot].is_used = false;
        if (c->slots[slot].state == SLOT_LOADING) continue;
        if (c->slots[slot].state == SLOT_FAILED) forget(c, slot);
        link_newest(c, slot);
    }
}

void weir_expert_cache_give(weir_expert_cache *c)
{
    (void)pthread_mutex_lock(&c->lock);
    release(c, c->n_given, c->n_given + c->n_taken);
    c->n_given += c->n_taken;
    c->n_taken = 0;
    place_next(c);
    (void)pthread_mutex_unlock(&c->lock);
}

void weir_expert_cache_end(weir_expert_cache *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->n_wanted = c->n_placed; /* no more are placed */
    release(c, c->n_given, c->n_placed);
    /* What is still read is waited for, so that a step finds every slot in the list or ready. */
    for (int32_t i = 0; i < c->plan.n_slots; i++)
        while (c->slots[i].state == SLOT_LOADING) (void)pthread_cond_wait(&c->changed, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
    c->n_given = c->n_taken = c->n_placed = c->n_wanted = 0;
    c->layer = -1;
}

bool weir_expert_cache_problem(weir_expert_cache *c, weir_error *out)
{
    (void)pthread_mutex_lock(&c->lock);
    *out = c->error;
    c->error = (weir_error){ 0 };
    (void)pthread_mutex_unlock(&c->lock);
    return out->code != WEIR_OK;
}

void weir_expert_cache_stats(weir_expert_cache *c, weir_expert_stats *out)
{
    (void)pthread_mutex_lock(&c->lock);
    *out = c->stats;
    (void)pthread_mutex_unlock(&c->lock);
}
