/* engine/kv/prune/evict.c - plans which rows of each head stay and which pages they need, and
 * updates the table. */
#include <inttypes.h>
#include <string.h>

#include "engine/base/array_layout.h"
#include "engine/kv/prune/evict_internal.h"

/* ---- opening --------------------------------------------------------------------------------- */
/* True if values of some layer are read out of its keys. */
static bool has_aliases(const weir_kv_spec *spec)
{
    bool has = false;
    for (int64_t i = 0; i < spec->n_layers; i++) has = has || spec->geometry[i].value_aliases_key;
    return has;
}

/* Lays the arrays out from `base` (NULL: only measures). The spec of an open store bounds the
 * sizes. */
static size_t lay_out(weir_kv_evictor *e, const weir_kv_spec *spec, char *base)
{
    const size_t heads = (size_t)weir_kv_n_heads(spec), rows = (size_t)spec->max_rows,
                 kv_heads = (size_t)weir_kv_most_heads(spec);
    const weir_kv_geometry widest = weir_kv_widest(spec);
    const size_t key_dim = (size_t)widest.key_dim, value_dim = (size_t)widest.value_dim;
    weir_arrays arrays = { .base = base };
    e->stride = kv_pages_per_head(spec->max_rows);
    WEIR_ARRAYS_PLACE(
        &arrays, e->fresh, weir_kv_cold_pages(spec) > 0 ? heads * (size_t)e->stride : 0
    );
    WEIR_ARRAYS_PLACE(&arrays, e->stays, heads);
    WEIR_ARRAYS_PLACE(&arrays, e->segments, kv_heads);
    WEIR_ARRAYS_PLACE(&arrays, e->keys, WEIR_PAGE_TOKENS * key_dim);
    WEIR_ARRAYS_PLACE(&arrays, e->values, WEIR_PAGE_TOKENS * value_dim);
    WEIR_ARRAYS_PLACE(&arrays, e->page_keys, WEIR_PAGE_TOKENS * key_dim);
    WEIR_ARRAYS_PLACE(&arrays, e->page_values, WEIR_PAGE_TOKENS * value_dim);
    WEIR_ARRAYS_PLACE(&arrays, e->tile_keys, has_aliases(spec) ? WEIR_POLICY_TILE * key_dim : 0);
    WEIR_ARRAYS_PLACE(&arrays, e->lists, kv_heads * rows);
    WEIR_ARRAYS_PLACE(&arrays, e->n_lists, kv_heads);
    return arrays.bytes;
}

static size_t memory_bytes(const weir_kv_spec *spec)
{
    weir_kv_evictor measure = { 0 };
    return lay_out(&measure, spec, NULL);
}

static size_t copy_bytes(const weir_kv_spec *spec)
{
    size_t most = 0;
    for (int64_t i = 0; weir_kv_cold_pages(spec) > 0 && i < spec->n_layers; i++)
        if (weir_kv_page_stride(spec, i) > most) most = weir_kv_page_stride(spec, i);
    return most;
}

/* Copies of cold pages are read with O_DIRECT: they are aligned to 4096. */
static size_t near_bytes(const weir_kv_spec *spec)
{
    const size_t copies = COPIES * copy_bytes(spec);
    return (copies > 0 ? copies + WEIR_LOWER_TIER_ALIGNMENT : 0) +
           weir_kv_unsealed_rows_bytes(spec);
}

size_t weir_kv_evictor_bytes(const weir_kv_spec *spec)
{
    return spec->evicts ? memory_bytes(spec) + sizeof(weir_kv_evictor) : 0;
}

size_t weir_kv_evictor_near_bytes(const weir_kv_spec *spec)
{
    return spec->evicts ? near_bytes(spec) : 0;
}

weir_status weir_kv_evictor_open(
    weir_kv_evictor **out, weir_kv_store *store, weir_stream *stream, weir_ledger *ledger,
    weir_error *error
)
{
    const weir_kv_spec *const spec = &store->spec;
    void *self = NULL;
    if (!spec->evicts)
        return weir_error_set(error, WEIR_EINVAL, "this KV store does not evict rows");
    WEIR_TRY(
        weir_ledger_alloc(ledger, &self, WEIR_ACCOUNT_ACTIVATIONS, sizeof(weir_kv_evictor), error)
    );
    weir_kv_evictor *const e = self;
    *e = (weir_kv_evictor){ .store = store,
                            .stream = stream,
                            .ledger = ledger,
                            .bytes = memory_bytes(spec),
                            .copy_bytes = copy_bytes(spec) };
    weir_status status =
        weir_ledger_alloc(ledger, &e->memory, WEIR_ACCOUNT_ACTIVATIONS, e->bytes, error);
    if (status == WEIR_OK)
        status = weir_ledger_alloc_device(
            ledger, (void **)&e->near, WEIR_ACCOUNT_ACTIVATIONS, near_bytes(spec), error
        );
    if (status == WEIR_OK) status = evict_take_scratch(e, error);
    if (status != WEIR_OK) {
        weir_kv_evictor_close(e);
        return status;
    }
    const uintptr_t misaligned =
        e->copy_bytes > 0 ? (uintptr_t)e->near % WEIR_LOWER_TIER_ALIGNMENT : 0;
    (void)lay_out(e, spec, e->memory);
    if (e->near != NULL) {
        e->copies = e->near + (misaligned > 0 ? WEIR_LOWER_TIER_ALIGNMENT - misaligned : 0);
        e->unsealed = e->copies + COPIES * e->copy_bytes;
    }
    *out = e;
    return WEIR_OK;
}

void weir_kv_evictor_close(weir_kv_evictor *evictor)
{
    if (evictor == NULL) return;
    evict_give_scratch(evictor);
    weir_ledger_free_device(
        evictor->ledger, evictor->near, WEIR_ACCOUNT_ACTIVATIONS, near_bytes(&evictor->store->spec)
    );
    weir_ledger_free(evictor->ledger, evictor->memory, WEIR_ACCOUNT_ACTIVATIONS, evictor->bytes);
    weir_ledger_free(evictor->ledger, evictor, WEIR_ACCOUNT_ACTIVATIONS, sizeof *evictor);
}

/* ---- what stays ------------------------------------------------------------------------------ */
/* keep[i] - i never falls: a binary search finds the first row that moves. */
static int32_t first_moved(const int32_t *keep, int32_t n)
{
    int32_t low = 0, high = n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (keep[middle] == middle)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static weir_status take_list(
    kv_stay *stay, const int32_t *keep, int64_t n_keep, int64_t stride, int64_t head,
    weir_error *error
)
{
    bool is_sound = n_keep >= 0 && n_keep <= stay->n && n_keep <= stride;
    for (int64_t i = 0; is_sound && i < n_keep; i++)
        is_sound = keep[i] < stay->n && keep[i] > (i > 0 ? keep[i - 1] : -1);
    if (!is_sound)
        return weir_error_set(
            error, WEIR_EINVAL,
            "the rows kept of KV head %" PRId64 " are not an ascending list of its %" PRId32
            " rows",
            head, stay->n
        );
    *stay = (kv_stay){ .keep = keep,
                       .n = stay->n,
                       .n_keep = (int32_t)n_keep,
                       .first = first_moved(keep, (int32_t)n_keep) };
    return WEIR_OK;
}

static weir_status take_rotated(kv_stay *stay, int64_t n_rotated, int64_t head, weir_error *error)
{
    if (n_rotated == 0 || stay->n_keep == stay->n) return WEIR_OK;
    if (n_rotated < 0 || n_rotated > stay->first)
        return weir_error_set(
            error, WEIR_EINVAL,
            "KV head %" PRId64 " shall rotate its first %" PRId64 " rows, of which %" PRId32
            " stay",
            head, n_rotated, stay->first
        );
    stay->n_rotated = (int32_t)n_rotated;
    return WEIR_OK;
}

/* Fills in e->stays of all heads, and checks it. */
static weir_status look(
    weir_kv_evictor *e, const weir_kv_table *table, const weir_kv_keep *keep, weir_error *error
)
{
    int64_t at = 0; /* index of the next list of `keep` */
    e->keep = keep;
    for (int64_t h = 0; h < table->n_heads; h++) {
        const int32_t n = (int32_t)weir_kv_rows_at(table, h);
        e->stays[h] = (kv_stay){ .n = n, .n_keep = n, .first = n };
    }
    for (int64_t i = 0; i < keep->n; i++) {
        const int32_t layer = keep->layers[i];
        if (layer < 0 || layer >= e->store->spec.n_layers ||
            (i > 0 && layer <= keep->layers[i - 1]))
            return weir_error_set(
                error, WEIR_EINVAL,
                "the layers of an eviction are not an ascending list of those with KV rows"
            );
        const weir_kv_geometry *const g = &e->store->spec.geometry[layer];
        for (int64_t h = g->first_head; h < g->first_head + g->n_heads; h++, at++) {
            WEIR_TRY(take_list(
                &e->stays[h], keep->keep + at * keep->stride, keep->n_keep[at], keep->stride, h,
                error
            ));
            WEIR_TRY(take_rotated(&e->stays[h], keep->n_rotated, h, error));
        }
    }
    return WEIR_OK;
}

static int64_t dropped_rows(const weir_kv_evictor *e, const weir_kv_table *table)
{
    int64_t n = 0;
    for (int64_t h = 0; h < table->n_heads; h++) n += e->stays[h].n - e->stays[h].n_keep;
    return n;
}

/* ---- the pages that it takes ----------------------------------------------------------------- */
/* If pages are coded as a whole, the last one that stays is unsealed again, unless it is full. */
kv_page_range evict_written(const weir_kv_evictor *e, int64_t head, const kv_stay *stay)
{
    const bool is_written =
        stay->first < stay->n_keep || (stay->n_keep < stay->n && evict_is_whole(e, head));
    const int64_t end = kv_pages_per_head(stay->n_keep);
    if (stay->n_rotated > 0) return (kv_page_range){ .first = 0, .end = end };
    return (kv_page_range){ .first = is_written ? stay->first / WEIR_PAGE_TOKENS : end,
                            .end = end };
}

typedef enum block_fate { BLOCK_GOES, BLOCK_STAYS /* all rows in place */, BLOCK_MOVES } block_fate;

static bool has_rows_in(const kv_stay *stay, int64_t block)
{
    const int64_t first = block * WEIR_PAGE_TOKENS, end = first + WEIR_PAGE_TOKENS;
    if (stay->keep == NULL) return first < stay->n;
    for (int64_t low = 0, high = stay->n_keep; low < high;) {
        const int64_t middle = (low + high) / 2;
        if (stay->keep[middle] >= first && stay->keep[middle] < end) return true;
        if (stay->keep[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static block_fate fate_of(const weir_kv_evictor *e, const weir_kv_table *table, int64_t block)
{
    bool any = false, all = true;
    for (int64_t h = 0; h < table->n_heads; h++) {
        const int64_t past = (block + 1) * WEIR_PAGE_TOKENS, n = e->stays[h].n;
        any = any || has_rows_in(&e->stays[h], block);
        all = all && (past < n ? past : n) <= e->stays[h].first &&
              block < evict_written(e, h, &e->stays[h]).first;
    }
    return !any ? BLOCK_GOES : all ? BLOCK_STAYS : BLOCK_MOVES;
}

static bool is_cold(const weir_kv_evictor *e, const weir_kv_table *table, int64_t block)
{
    return !table->is_pruned && weir_kv_is_cold(e->store, table->pages[block]);
}

/* True for a block on disk with rows that stay but move; for a thread, with any that stay. */
static bool moves_from_disk(const weir_kv_evictor *e, const weir_kv_table *table, int64_t block)
{
    if (!is_cold(e, table, block)) return false;
    const block_fate fate = fate_of(e, table, block);
    return fate == BLOCK_MOVES || (fate == BLOCK_STAYS && e->is_stopped != NULL);
}

/* True for a block on disk whose pages get rows of others, even if none of its own stays. */
static bool is_written_on_disk(const weir_kv_evictor *e, const weir_kv_table *table, int64_t block)
{
    bool any = false;
    for (int64_t h = 0; !any && h < table->n_heads && is_cold(e, table, block); h++) {
        const kv_page_range written = evict_written(e, h, &e->stays[h]);
        any = block >= written.first && block < written.end;
    }
    return any;
}

static bool any_from_disk(const weir_kv_evictor *e, const weir_kv_table *table)
{
    bool any = false;
    for (int64_t p = 0; !any && table->n_heads > 0 && p < table->n_pages; p++)
        any = moves_from_disk(e, table, p) || is_written_on_disk(e, table, p);
    return any;
}

/* Calls `use` for every page that has to be allocated. `to_fresh`: something is read from disk or
 * moves to a page on disk, so rows do not move in place. */
typedef void (*page_user)(
    weir_kv_evictor *e, weir_kv_table *table, int64_t head, int64_t page, void *user
);
static void each_page(
    weir_kv_evictor *e, weir_kv_table *table, bool to_fresh, page_user use, void *user
)
{
    for (int64_t p = 0; p < table->n_pages; p++) {
        const bool from_disk = to_fresh && moves_from_disk(e, table, p);
        for (int64_t h = 0; h < table->n_heads; h++) {
            const kv_page_range written = evict_written(e, h, &e->stays[h]);
            const bool is_written = p >= written.first && p < written.end;
            const void *const own = table->pages[h * table->capacity + p];
            if (is_written ? to_fresh || weir_kv_page_refs(e->store, own) > 1
                           : from_disk && p < written.first && own != NULL)
                use(e, table, h, p, user);
        }
    }
}

static void count_page(
    weir_kv_evictor *e, weir_kv_table *table, int64_t head, int64_t page, void *user
)
{
    (void)table;
    kv_want(e->store, user, head, page);
}

/* ---- in place -------------------------------------------------------------------------------- */
static void unshare_page(
    weir_kv_evictor *e, weir_kv_table *table, int64_t head, int64_t page, void *user
)
{
    void **const entry = &table->pages[head * table->capacity + page];
    (void)user;
    kv_table_put(table, e->store, entry, kv_take_page(e->store, head, page, *entry));
}

/* ---- from disk ------------------------------------------------------------------------------- */
static void take_fresh(
    weir_kv_evictor *e, weir_kv_table *table, int64_t head, int64_t page, void *user
)
{
    (void)user;
    (void)table;
    e->fresh[head * e->stride + page] = kv_take_page(e->store, head, page, NULL);
}

/* Replaces the table's pages by the new ones. */
static void settle_fresh(weir_kv_evictor *e, weir_kv_table *table)
{
    kv_table_mark_pruned(table, e->store);
    weir_kv_release_begin(e->store);
    for (int64_t h = 0; h < table->n_heads; h++)
        for (int64_t p = 0; p < table->n_pages; p++) {
            void **const fresh = &e->fresh[h * e->stride + p];
            if (*fresh != NULL)
                kv_table_put(table, e->store, &table->pages[h * table->capacity + p], *fresh);
            *fresh = NULL;
        }
    weir_kv_release_end(e->store);
}

void evict_drop_fresh(weir_kv_evictor *e)
{
    weir_kv_release_begin(e->store);
    for (int64_t i = 0; i < weir_kv_n_heads(&e->store->spec) * e->stride; i++) {
        if (e->fresh[i] != NULL) kv_page_drop(e->store, e->fresh[i]);
        e->fresh[i] = NULL;
    }
    weir_kv_release_end(e->store);
}

bool evict_page_stays(const weir_kv_evictor *e, int64_t head, int64_t page)
{
    return e->fresh[head * e->stride + page] == NULL &&
           page < evict_written(e, head, &e->stays[head]).first;
}

/* ---- evicting -------------------------------------------------------------------------------- */
static int64_t blocks_to_promote(const weir_kv_evictor *e, const weir_kv_table *table)
{
    int64_t n = 0;
    for (int64_t p = 0; e->is_stopped == NULL && p < table->n_pages; p++)
        n += is_cold(e, table, p) && fate_of(e, table, p) == BLOCK_STAYS &&
             !weir_kv_is_moving(e->store, table->pages[p]);
    return n;
}

weir_kv_pages weir_kv_evict_pages(
    weir_kv_evictor *e, const weir_kv_table *table, const weir_kv_keep *keep
)
{
    kv_wanted wanted = { 0 };
    if (look(e, table, keep, NULL) != WEIR_OK || dropped_rows(e, table) == 0)
        return (weir_kv_pages){ 0 };
    /* Only read. */
    each_page(e, (weir_kv_table *)table, any_from_disk(e, table), count_page, &wanted);
    return kv_wanted_pages(e->store, &wanted, blocks_to_promote(e, table));
}

/* Promotes blocks that stay unchanged, also for other sequences that share them. */
static weir_status promote(const weir_kv_evictor *e, const weir_kv_table *table, weir_error *error)
{
    for (int64_t p = 0; p < table->n_pages; p++)
        if (is_cold(e, table, p) && fate_of(e, table, p) == BLOCK_STAYS)
            WEIR_TRY(weir_kv_promote(
                e->store, (void *const *)table->pages + p, table->capacity, p, error
            ));
    return WEIR_OK;
}

/* Checks for all of them before the first moves: the sequence itself may have to be demoted to make
 * space, and promoted blocks would be demoted again. */
static weir_status check_pages(
    weir_kv_evictor *e, weir_kv_table *table, bool to_fresh, weir_error *error
)
{
    const int64_t n_back = blocks_to_promote(e, table);
    kv_wanted wanted = { 0 };
    each_page(e, table, to_fresh, count_page, &wanted);
    if (kv_has_free(e->store, &wanted, n_back)) return WEIR_OK;
    const weir_kv_pages n = kv_wanted_pages(e->store, &wanted, n_back);
    return weir_error_set(
        error, WEIR_EFULL,
        "no %" PRId64
        " free KV pages for the rows that the KV policy keeps; raise %s, or lower its budget",
        n.sinks + weir_kv_pages_others(n), weir_kv_store_budget(e->store)
    );
}

/* All rows are in place: frees the pages after them, and updates the counts. */
static void cut(const weir_kv_evictor *e, weir_kv_table *table)
{
    const weir_kv_spec *const spec = &e->store->spec;
    int64_t n_pages = 0, n_rows = 0;
    for (int64_t h = 0; h < table->n_heads; h++) {
        const kv_stay *const stay = &e->stays[h];
        const int64_t end = kv_pages_per_head(stay->n_keep);
        for (int64_t p = end; p < table->n_pages; p++)
            kv_table_drop(table, e->store, &table->pages[h * table->capacity + p]);
        if (stay->n_keep < stay->n && stay->n_keep % WEIR_PAGE_TOKENS != 0 &&
            evict_unsealed_rows(e, h) != NULL)
            weir_ledger_copy(
                e->ledger, table->unsealed[h], evict_unsealed_rows(e, h),
                kv_unsealed_bytes(spec, weir_kv_layer_of(spec, h))
            );
        table->head_rows[h] = stay->n_keep;
        if (end > n_pages) n_pages = end;
        if (stay->n_keep > n_rows) n_rows = stay->n_keep;
    }
    table->n_pages = n_pages;
    table->n_rows = n_rows;
}

weir_status evict_begin(
    weir_kv_evictor *e, weir_kv_table *table, const weir_kv_keep *keep, kv_eviction *out,
    weir_error *error
)
{
    *out = (kv_eviction){ 0 };
    WEIR_TRY(look(e, table, keep, error));
    out->drops = dropped_rows(e, table) > 0;
    if (!out->drops) return WEIR_OK;
    out->to_fresh = any_from_disk(e, table);
    return check_pages(e, table, out->to_fresh, error);
}

void evict_take(weir_kv_evictor *e, weir_kv_table *table, bool to_fresh)
{
    if (!to_fresh) kv_table_mark_pruned(table, e->store); /* nothing can fail from here on */
    each_page(e, table, to_fresh, to_fresh ? take_fresh : unshare_page, NULL);
}

void evict_end(weir_kv_evictor *e, weir_kv_table *table, bool to_fresh)
{
    if (to_fresh)
        settle_fresh(e, table);
    else
        for (int64_t i = 0; i < e->keep->n; i++) evict_in_place(e, table, e->keep->layers[i]);
    cut(e, table);
}

weir_status weir_kv_evict(
    weir_kv_evictor *e, weir_kv_table *table, const weir_kv_keep *keep, weir_error *error
)
{
    kv_eviction of;
    WEIR_TRY(evict_begin(e, table, keep, &of, error));
    if (!of.drops) return WEIR_OK;
    WEIR_TRY(promote(e, table, error));
    evict_take(e, table, of.to_fresh);
    const weir_status status = of.to_fresh ? evict_to_fresh(e, table, error) : WEIR_OK;
    if (status != WEIR_OK) {
        evict_drop_fresh(e);
        return status;
    }
    evict_end(e, table, of.to_fresh);
    return WEIR_OK;
}
