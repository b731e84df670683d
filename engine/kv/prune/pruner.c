/* engine/kv/prune/pruner.c - the thread that applies policies, and what it holds meanwhile. */
#include "engine/kv/prune/pruner.h"

#include "engine/base/array_layout.h"
#include "engine/kv/prune/evict_internal.h"
#include "engine/kv/prune/policy_run_internal.h"

typedef enum pruner_state {
    PRUNER_IDLE,
    PRUNER_PLANS, /* the thread does */
    PRUNER_PLANNED,
    PRUNER_MOVES /* the thread does */
} pruner_state;

struct weir_pruner {
    weir_kv_store *store;
    weir_kv_evictor *evictor;
    weir_ledger *ledger;
    void *memory, *unsealed_memory; /* memory: owns the arrays of `view` */
    weir_kv_table view; /* the sequence's table when the thread began, which it holds */
    weir_kv_sequence *sequence;
    weir_policy_run *policy_run; /* held; NULL: idle */
    weir_application application;
    pruner_state state;
    bool pins; /* the pages of `view` that stay where they are */
    atomic_bool is_stopped;
    bool has_work; /* (lock) */
    weir_status status; /* of the thread's work */
    weir_error error;
    weir_worker worker;
};

/* ---- the thread ------------------------------------------------------------------------------ */
static weir_status work(weir_pruner *p)
{
    return p->state == PRUNER_PLANS
               ? weir_application_plan(&p->application, p->evictor, &p->view, &p->error)
               : evict_to_fresh(p->evictor, &p->view, &p->error);
}

static void *prune(void *user)
{
    weir_pruner *const p = user;
    weir_worker_lock(&p->worker);
    for (;;) {
        while (!p->has_work && !p->worker.is_closing) weir_worker_wait(&p->worker);
        if (p->worker.is_closing) break;
        weir_worker_unlock(&p->worker);
        p->status = work(p);
        weir_worker_lock(&p->worker);
        p->has_work = false;
        weir_worker_report(&p->worker);
    }
    weir_worker_unlock(&p->worker);
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */
static size_t lay_out(weir_kv_table *view, const weir_kv_spec *spec, char *base)
{
    const size_t heads = (size_t)weir_kv_n_heads(spec);
    weir_arrays arrays = { .base = base };
    WEIR_ARRAYS_PLACE(&arrays, view->pages, heads * (size_t)kv_pages_per_head(spec->max_rows));
    WEIR_ARRAYS_PLACE(&arrays, view->unsealed, heads);
    WEIR_ARRAYS_PLACE(&arrays, view->head_rows, heads);
    return arrays.bytes;
}

static size_t view_bytes(const weir_kv_spec *spec)
{
    weir_kv_table view = { 0 };
    return lay_out(&view, spec, NULL);
}

size_t weir_pruner_bytes(const weir_kv_spec *spec)
{
    if (!spec->evicts || weir_kv_cold_pages(spec) == 0) return 0;
    return sizeof(weir_pruner) + view_bytes(spec) + weir_kv_unsealed_rows_bytes(spec) +
           weir_kv_evictor_bytes(spec) + weir_kv_evictor_near_bytes(spec);
}

static weir_status open_memory(weir_pruner *p, weir_error *error)
{
    const weir_kv_spec *const spec = &p->store->spec;
    const size_t unsealed = weir_kv_unsealed_rows_bytes(spec);
    WEIR_TRY(
        weir_ledger_alloc(p->ledger, &p->memory, WEIR_ACCOUNT_ACTIVATIONS, view_bytes(spec), error)
    );
    (void)lay_out(&p->view, spec, p->memory);
    if (unsealed == 0) return WEIR_OK;
    return weir_ledger_alloc(
        p->ledger, &p->unsealed_memory, WEIR_ACCOUNT_ACTIVATIONS, unsealed, error
    );
}

weir_status weir_pruner_open(
    weir_pruner **out, weir_kv_store *store, weir_stream *stream, weir_ledger *ledger,
    weir_error *error
)
{
    void *self = NULL;
    WEIR_ASSERT(weir_kv_cold_pages(&store->spec) > 0 && weir_stream_device(stream) == NULL);
    WEIR_TRY(weir_ledger_alloc(ledger, &self, WEIR_ACCOUNT_ACTIVATIONS, sizeof(weir_pruner), error)
    );
    weir_pruner *const p = self;
    *p = (weir_pruner){ .store = store, .ledger = ledger };
    weir_status status = open_memory(p, error);
    if (status == WEIR_OK) status = weir_kv_evictor_open(&p->evictor, store, stream, ledger, error);
    if (status == WEIR_OK) {
        p->evictor->is_stopped = &p->is_stopped;
        status = weir_worker_open(&p->worker, prune, p, "applies KV policies", error);
    }
    if (status == WEIR_OK)
        *out = p;
    else
        weir_pruner_close(p);
    return status;
}

void weir_pruner_listen(weir_pruner *pruner, void (*listener)(void *user), void *user)
{
    if (pruner != NULL) weir_worker_listen(&pruner->worker, listener, user);
}

/* ---- what the thread holds ------------------------------------------------------------------- */
static void copy_unsealed_rows(weir_pruner *p, const weir_kv_table *table)
{
    for (int64_t h = 0; table->unsealed != NULL && h < table->n_heads; h++)
        p->view.unsealed[h] = table->unsealed[h] == NULL
                                  ? NULL
                                  : (char *)p->unsealed_memory + ((char *)table->unsealed[h] -
                                                                  (char *)table->unsealed_memory);
    if (table->unsealed != NULL)
        weir_ledger_copy(
            p->ledger, p->unsealed_memory, table->unsealed_memory,
            weir_kv_unsealed_rows_bytes(&p->store->spec)
        );
}

/* Pages past the rows are scratch of steps. */
static void look(weir_pruner *p, const weir_kv_table *table)
{
    weir_kv_table *const view = &p->view;
    const int64_t n = kv_pages_per_head(table->n_rows);
    WEIR_ASSERT(!table->is_pruned && n <= table->n_pages);
    (void)lay_out(view, &p->store->spec, p->memory);
    view->geometry = table->geometry;
    view->n_heads = table->n_heads;
    view->capacity = view->n_pages = n;
    view->n_rows = table->n_rows;
    for (int64_t h = 0; h < view->n_heads; h++) {
        view->head_rows[h] = (int32_t)weir_kv_rows_at(table, h);
        for (int64_t i = 0; i < n; i++)
            view->pages[h * n + i] = table->pages[h * table->capacity + i];
    }
    copy_unsealed_rows(p, table);
    if (table->unsealed == NULL) view->unsealed = NULL;
}

/* Those that stay where they are are a pruned table's soon: they must not leave memory. */
static void hold(weir_pruner *p, const weir_kv_table *table, bool pins)
{
    look(p, table);
    p->pins = pins;
    for (int64_t i = 0; i < p->view.n_pages; i++)
        kv_block_keep(p->store, p->view.pages + i, p->view.n_pages);
    for (int64_t h = 0; pins && h < p->view.n_heads; h++)
        for (int64_t i = 0; i < p->view.n_pages; i++)
            if (evict_page_stays(p->evictor, h, i))
                kv_pin(p->store, p->view.pages[h * p->view.n_pages + i], 1);
}

static void release(weir_pruner *p)
{
    weir_kv_release_begin(p->store);
    for (int64_t h = 0; p->pins && h < p->view.n_heads; h++)
        for (int64_t i = 0; i < p->view.n_pages; i++)
            if (evict_page_stays(p->evictor, h, i))
                kv_pin(p->store, p->view.pages[h * p->view.n_pages + i], -1);
    for (int64_t i = 0; i < p->view.n_pages; i++)
        kv_block_unkeep(p->store, p->view.pages + i, p->view.n_pages);
    weir_kv_release_end(p->store);
    p->view.n_pages = 0;
}

static void start(weir_pruner *p, pruner_state state)
{
    p->state = state;
    p->status = WEIR_OK;
    p->evictor->unreadable = NULL;
    weir_worker_lock(&p->worker);
    p->has_work = true;
    weir_worker_wake(&p->worker);
    weir_worker_unlock(&p->worker);
}

static void become_idle(weir_pruner *p)
{
    weir_policy_run_close(p->policy_run);
    p->policy_run = NULL;
    p->sequence = NULL;
    p->state = PRUNER_IDLE;
}

/* ---- for the engine -------------------------------------------------------------------------- */
bool weir_pruner_is_busy(const weir_pruner *pruner)
{
    return pruner != NULL && (pruner->state == PRUNER_PLANS || pruner->state == PRUNER_MOVES);
}

const weir_kv_sequence *weir_pruner_sequence(const weir_pruner *pruner)
{
    return pruner != NULL ? pruner->sequence : NULL;
}

bool weir_pruner_uses(const weir_pruner *pruner, const weir_policy_sequence *sequence)
{
    return pruner != NULL && sequence != NULL && pruner->policy_run == sequence->policy_run;
}

bool weir_pruner_is_idle(const weir_pruner *pruner) { return pruner->state == PRUNER_IDLE; }

bool weir_pruner_begin(weir_pruner *pruner, weir_kv_sequence *sequence)
{
    WEIR_ASSERT(pruner->state == PRUNER_IDLE);
    if (!weir_application_begin(&pruner->application, sequence)) return false;
    pruner->sequence = sequence;
    pruner->policy_run = sequence->policy_run->policy_run;
    weir_policy_run_hold(pruner->policy_run);
    atomic_store(&pruner->is_stopped, false);
    hold(pruner, &sequence->table, false);
    start(pruner, PRUNER_PLANS);
    return true;
}

/* The rows are in the new pages. */
static void finish(weir_pruner *p, bool to_fresh)
{
    evict_end(p->evictor, &p->sequence->table, to_fresh);
    weir_application_end(&p->application);
    become_idle(p);
}

static void take_result(weir_pruner *p)
{
    const bool has_moved = p->state == PRUNER_MOVES;
    if (p->evictor->unreadable != NULL && weir_kv_is_cold(p->store, p->evictor->unreadable))
        weir_kv_mark_unreadable(p->store, p->evictor->unreadable);
    release(p);
    if (p->sequence == NULL || p->status != WEIR_OK) {
        if (has_moved) evict_drop_fresh(p->evictor);
        become_idle(p);
    } else if (has_moved) {
        finish(p, true);
    } else {
        p->state = PRUNER_PLANNED;
    }
}

bool weir_pruner_end(weir_pruner *pruner, weir_status *status, weir_error *error)
{
    if (!weir_pruner_is_busy(pruner)) return false;
    weir_worker_lock(&pruner->worker);
    const bool works = pruner->has_work;
    weir_worker_unlock(&pruner->worker);
    if (works) return false;
    *status = pruner->sequence != NULL ? pruner->status : WEIR_ECANCELED;
    if (*status != WEIR_OK) *error = pruner->error;
    take_result(pruner);
    return true;
}

weir_status weir_pruner_move(weir_pruner *pruner, weir_error *error)
{
    weir_kv_table *const table = &pruner->sequence->table;
    kv_eviction of;
    WEIR_ASSERT(pruner->state == PRUNER_PLANNED);
    WEIR_TRY(evict_begin(pruner->evictor, table, &pruner->application.keep, &of, error));
    if (!of.drops) {
        weir_application_end(&pruner->application);
        become_idle(pruner);
        return WEIR_OK;
    }
    evict_take(pruner->evictor, table, of.to_fresh);
    if (!of.to_fresh) {
        finish(pruner, false);
        return WEIR_OK;
    }
    hold(pruner, table, true);
    start(pruner, PRUNER_MOVES);
    return WEIR_OK;
}

weir_kv_pages weir_pruner_pages(const weir_pruner *pruner)
{
    return weir_kv_evict_pages(
        pruner->evictor, &pruner->sequence->table, &pruner->application.keep
    );
}

int64_t weir_pruner_new_pages(const weir_pruner *pruner)
{
    int64_t n = 0;
    if (pruner == NULL) return 0;
    for (int64_t i = 0; i < weir_kv_n_heads(&pruner->store->spec) * pruner->evictor->stride; i++)
        n += pruner->evictor->fresh[i] != NULL;
    return n;
}

void weir_pruner_stop(weir_pruner *pruner)
{
    pruner->sequence = NULL;
    atomic_store(&pruner->is_stopped, true);
    if (!weir_pruner_is_busy(pruner)) become_idle(pruner);
}

/* ---- closing --------------------------------------------------------------------------------- */
void weir_pruner_close(weir_pruner *pruner)
{
    if (pruner == NULL) return;
    const weir_kv_spec *const spec = &pruner->store->spec;
    atomic_store(&pruner->is_stopped, true);
    weir_worker_close(&pruner->worker);
    pruner->sequence = NULL;
    if (weir_pruner_is_busy(pruner))
        take_result(pruner);
    else
        become_idle(pruner);
    weir_kv_evictor_close(pruner->evictor);
    weir_ledger_free(
        pruner->ledger, pruner->unsealed_memory, WEIR_ACCOUNT_ACTIVATIONS,
        weir_kv_unsealed_rows_bytes(spec)
    );
    weir_ledger_free(pruner->ledger, pruner->memory, WEIR_ACCOUNT_ACTIVATIONS, view_bytes(spec));
    weir_ledger_free(pruner->ledger, pruner, WEIR_ACCOUNT_ACTIVATIONS, sizeof *pruner);
}
