/* engine/kv/tiers/moves.c - moves blocks between tiers on a thread, while steps go on. A move holds
 * the block's pages, as a table snapshot does, until the engine thread ends it between two steps:
 * until then the block is where it was (docs/decisions/0044-tables-and-moves.md). */
#include "engine/kv/pool/store_internal.h"
#include "engine/kv/tiers/prefetch.h"
#include "engine/kv/tiers/residency_internal.h"

static kv_move *move_at(kv_moves *m, int64_t number) { return &m->ring[number % KV_MOVES]; }

/* ---- the thread ------------------------------------------------------------------------------ */
static void *move_blocks(void *user)
{
    weir_kv_store *const store = user;
    kv_moves *const m = &store->moves;
    weir_worker_lock(&m->worker);
    for (;;) {
        while (m->n_done == m->n_begun && !weir_lower_tier_may_shrink(store->lower) &&
               !m->worker.is_closing)
            weir_worker_wait(&m->worker);
        if (m->worker.is_closing) break;
        if (m->n_done == m->n_begun) {
            weir_worker_unlock(&m->worker);
            weir_lower_tier_shrink(store->lower);
            weir_worker_lock(&m->worker);
            continue;
        }
        kv_move *const move = move_at(m, m->n_done);
        weir_worker_unlock(&m->worker);
        move->status = move->is_up ? kv_read_block(store, move->place, move->pages, &move->why)
                                   : kv_write_block(store, move->place, move->pages, &move->why);
        weir_worker_lock(&m->worker);
        m->n_done++;
        weir_worker_report(&m->worker);
    }
    weir_worker_unlock(&m->worker);
    return NULL;
}

weir_status kv_moves_open(weir_kv_store *store, void **pages, weir_error *error)
{
    kv_moves *const m = &store->moves;
    const int64_t heads = weir_kv_n_heads(&store->spec);
    for (int64_t i = 0; i < KV_MOVES; i++) m->ring[i].pages = pages + i * heads;
    return weir_worker_open(&m->worker, move_blocks, store, "moves KV pages", error);
}

void kv_moves_close(weir_kv_store *store) { weir_worker_close(&store->moves.worker); }

void kv_free_place(weir_kv_store *store, int32_t place)
{
    kv_moves *const m = &store->moves;
    if (!weir_lower_tier_free(store->lower, place)) return;
    weir_worker_lock(&m->worker);
    weir_worker_wake(&m->worker);
    weir_worker_unlock(&m->worker);
}

void weir_kv_listen_to_moves(weir_kv_store *store, void (*listener)(void *user), void *user)
{
    weir_worker_listen(&store->moves.worker, listener, user);
}

bool weir_kv_wait_for_move(weir_kv_store *store)
{
    kv_moves *const m = &store->moves;
    if (!m->worker.has_thread) return false;
    weir_worker_lock(&m->worker);
    const int64_t before = m->n_done;
    const bool any = before < m->n_begun;
    while (any && m->n_done == before) weir_worker_wait(&m->worker);
    weir_worker_unlock(&m->worker);
    return any;
}

/* ---- beginning ------------------------------------------------------------------------------- */
static kv_move *move_of(weir_kv_store *store, const void *page)
{
    kv_moves *const m = &store->moves;
    for (int64_t i = m->n_ended; i < m->n_begun; i++)
        if (move_at(m, i)->pages[0] == page) return move_at(m, i);
    return NULL;
}

bool weir_kv_is_moving(const weir_kv_store *store, const void *page)
{
    return move_of((weir_kv_store *)(uintptr_t)store, page) != NULL; /* It is only read. */
}

int64_t weir_kv_moves_begun(const weir_kv_store *store)
{
    return store->moves.n_begun - store->moves.n_ended;
}

int64_t weir_kv_moves_left(const weir_kv_store *store)
{
    return store->lower != NULL ? KV_MOVES - weir_kv_moves_begun(store) : 0;
}

int64_t weir_kv_blocks_leaving(const weir_kv_store *store) { return store->moves.n_leaving; }

int64_t weir_kv_demotions_failed(const weir_kv_store *store, weir_error *why)
{
    if (why != NULL) *why = store->moves.why;
    return store->moves.n_failed;
}

static void begin(
    weir_kv_store *store, int32_t place, void *const *pages, int64_t stride, int64_t block,
    bool is_up
)
{
    kv_moves *const m = &store->moves;
    kv_move *const move = move_at(m, m->n_begun);
    move->place = place;
    move->block = block;
    move->is_up = is_up;
    for (int64_t h = 0; h < weir_kv_n_heads(&store->spec); h++) move->pages[h] = pages[h * stride];
    kv_block_keep(store, move->pages, 1);
    *(is_up ? &m->n_coming : &m->n_leaving) += 1;
    weir_worker_lock(&m->worker);
    m->n_begun++;
    weir_worker_wake(&m->worker);
    weir_worker_unlock(&m->worker);
    kv_page_changed(store, kv_page_number(store, pages[0]));
}

static weir_status refuse_more(const weir_kv_store *store, weir_error *error)
{
    return weir_kv_moves_begun(store) < KV_MOVES
               ? WEIR_OK
               : weir_error_set(error, WEIR_EFULL, "%d KV blocks move already", (int)KV_MOVES);
}

weir_status weir_kv_demote_begin(
    weir_kv_store *store, void *const *pages, int64_t stride, int64_t block, weir_error *error
)
{
    int32_t place;
    if (store->lower == NULL)
        return weir_error_set(
            error, WEIR_EFULL, "there is no lower tier for KV pages (memory.disk)"
        );
    WEIR_ASSERT(weir_kv_may_leave(store, pages, stride));
    WEIR_TRY(refuse_more(store, error));
    kv_free_read_places(store);
    WEIR_TRY(weir_lower_tier_alloc(store->lower, &place, error));
    begin(store, place, pages, stride, block, false);
    return WEIR_OK;
}

weir_status weir_kv_promote_begin(
    weir_kv_store *store, void *const *pages, int64_t stride, int64_t block, weir_error *error
)
{
    const int32_t place = weir_kv_place_of(store, pages[0]);
    WEIR_ASSERT(place != NO_BLOCK && !weir_kv_is_moving(store, pages[0]));
    WEIR_TRY(refuse_more(store, error));
    if (weir_kv_free_blocks(store) < 1)
        return weir_error_set(
            error, WEIR_EFULL, "no memory to promote KV pages that are needed; raise %s",
            weir_kv_store_budget(store)
        );
    for (int64_t h = 0; h < weir_kv_n_heads(&store->spec); h++)
        (void)kv_enter(store, kv_size_class_at(store, pages[h * stride]), pages[h * stride]);
    begin(store, place, pages, stride, block, true);
    return WEIR_OK;
}

/* ---- blocks that stay ------------------------------------------------------------------------ */
void kv_attend(weir_kv_store *store, const weir_kv_view *views, int32_t n_views)
{
    store->attended = views;
    store->n_attended = n_views;
}

bool weir_kv_is_attending(const weir_kv_store *store) { return store->n_attended > 0; }

/* A block has the same index in all tables. */
bool weir_kv_is_attended(const weir_kv_store *store, const void *page, int64_t block)
{
    for (int32_t i = 0; i < store->n_attended; i++) {
        const weir_kv_view *const view = &store->attended[i];
        if (block * WEIR_PAGE_TOKENS < (int64_t)view->n_past + view->n_rows &&
            view->pages[block] == page)
            return true;
    }
    return false;
}

/* ---- ending ---------------------------------------------------------------------------------- */
/* A pruned table has got one of its pages: all must stay (store.h 8). */
static bool is_pinned(const weir_kv_store *store, const kv_move *move)
{
    for (int64_t h = 0; store->pins != NULL && h < weir_kv_n_heads(&store->spec); h++)
        if (store->pins[kv_page_number(store, move->pages[h])] > 0) return true;
    return false;
}

static void end(weir_kv_store *store, const kv_move *move)
{
    const bool is_done = move->status == WEIR_OK && (move->is_up || !is_pinned(store, move));
    if (is_done) kv_block_moved(store, move->pages[0], move->block, !move->is_up);
    *(move->is_up ? &store->moves.n_coming : &store->moves.n_leaving) -= 1;
    if (is_done && move->is_up) {
        kv_block_came(store, move->place, move->pages);
    } else if (is_done) {
        kv_block_left(store, move->place, move->pages);
    } else if (move->is_up) {
        store->cold[move->place].is_unreadable = true;
        kv_unback_block(store, move->pages);
    } else {
        kv_free_place(store, move->place);
    }
    kv_block_unkeep(store, move->pages, 1);
    if (weir_kv_page_refs(store, move->pages[0]) > 0)
        kv_page_changed(store, kv_page_number(store, move->pages[0]));
}

int64_t weir_kv_moves_end(weir_kv_store *store, bool wait, weir_status *status, weir_error *error)
{
    kv_moves *const m = &store->moves;
    int64_t n = 0;
    *status = WEIR_OK;
    if (m->n_ended == m->n_begun) return 0;
    weir_worker_lock(&m->worker);
    while (wait && m->n_done == m->n_ended) weir_worker_wait(&m->worker);
    const int64_t n_done = m->n_done;
    weir_worker_unlock(&m->worker);
    for (; m->n_ended < n_done; n++) {
        const kv_move *const move = move_at(m, m->n_ended);
        if (weir_kv_is_attended(store, move->pages[0], move->block)) break;
        m->n_ended++;
        end(store, move);
        if (move->status == WEIR_OK || move->is_up) continue;
        *status = move->status;
        if (error != NULL) *error = move->why;
        m->n_failed++;
        m->why = move->why;
    }
    return n;
}

/* Ends moves until this one, the last that began, has ended. */
static weir_status finish(weir_kv_store *store, weir_error *error)
{
    kv_moves *const m = &store->moves;
    const kv_move *const move = move_at(m, m->n_begun - 1);
    weir_status status;
    while (m->n_ended < m->n_begun) (void)weir_kv_moves_end(store, true, &status, NULL);
    if (move->status != WEIR_OK && error != NULL) *error = move->why;
    return move->status;
}

static void make_way(weir_kv_store *store)
{
    weir_status status;
    while (weir_kv_moves_begun(store) == KV_MOVES)
        (void)weir_kv_moves_end(store, true, &status, NULL);
}

weir_status weir_kv_demote(
    weir_kv_store *store, void *const *pages, int64_t stride, int64_t block, weir_error *error
)
{
    make_way(store);
    WEIR_TRY(weir_kv_demote_begin(store, pages, stride, block, error));
    return finish(store, error);
}

weir_status weir_kv_promote(
    weir_kv_store *store, void *const *pages, int64_t stride, int64_t block, weir_error *error
)
{
    weir_status status;
    while (weir_kv_is_moving(store, pages[0])) (void)weir_kv_moves_end(store, true, &status, NULL);
    make_way(store);
    if (!weir_kv_is_cold(store, pages[0])) return WEIR_OK;
    WEIR_TRY(weir_kv_promote_begin(store, pages, stride, block, error));
    return finish(store, error);
}
