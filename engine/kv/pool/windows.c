#include "engine/kv/pool/windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "kernels/abi/minmax.h"

enum { PAGE_ALIGNMENT = 64, NONE = -1 };

struct weir_kv_windows {
    weir_kv_windows_spec spec;
    weir_ledger *ledger;
    char *memory; /* [n_blocks, block_bytes] */
    size_t block_bytes;
    int64_t n_heads, capacity; /* capacity: blocks of a table */
    int32_t *refs; /* [n_blocks] */
    int32_t *free; /* [n_blocks] stack of n_free */
    size_t *offsets; /* [n_heads] of a head's page in a block */
    int64_t n_free;
    void (*reclaim)(void *user, int64_t n); /* may be NULL */
    void *user;
};

/* ---- sizes ----------------------------------------------------------------------------------- */
int64_t weir_kv_windows_length(const weir_kv_windows_spec *spec)
{
    int64_t length = 0;
    for (int64_t i = 0; i < spec->n_layers; i++)
        length = weir_max(length, spec->geometry[i].window);
    return length;
}

int64_t weir_kv_windows_heads(const weir_kv_windows_spec *spec)
{
    int64_t n = 0;
    for (int64_t i = 0; i < spec->n_layers; i++) n += spec->geometry[i].n_heads;
    return n;
}

static size_t page_stride(const weir_kv_windows_spec *spec, int64_t layer)
{
    const weir_kv_geometry *const g = &spec->geometry[layer];
    const weir_kv_pair pair = spec->formats[layer];
    WEIR_ASSERT(weir_kv_bits(pair.k) > 0 && weir_kv_bits(pair.v) > 0); /* no COUNT */
    const int64_t bytes = weir_kv_bytes(pair.k, pair.v, g->key_dim, weir_kv_stored_value_dim(g));
    return ((size_t)bytes + PAGE_ALIGNMENT - 1) & ~(size_t)(PAGE_ALIGNMENT - 1);
}

size_t weir_kv_windows_block_bytes(const weir_kv_windows_spec *spec)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < spec->n_layers; i++)
        bytes += (size_t)spec->geometry[i].n_heads * page_stride(spec, i);
    return bytes;
}

size_t weir_kv_windows_bytes(const weir_kv_windows_spec *spec)
{
    return (size_t)spec->n_blocks * weir_kv_windows_block_bytes(spec);
}

size_t weir_kv_windows_metadata_bytes(const weir_kv_windows_spec *spec)
{
    return spec->n_layers > 0 ? 2 * (size_t)spec->n_blocks * sizeof(int32_t) +
                                    (size_t)weir_kv_windows_heads(spec) * sizeof(size_t)
                              : 0;
}

static int64_t blocks_for(int64_t rows) { return (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS; }

int64_t weir_kv_windows_first(const weir_kv_windows_spec *spec, int64_t row)
{
    return weir_max(row - weir_kv_windows_length(spec) + 1, 0) / WEIR_PAGE_TOKENS;
}

/* length - 1 rows before the next one, from any place in their first block on. */
int64_t weir_kv_windows_most(const weir_kv_windows_spec *spec)
{
    return weir_min(
        blocks_for(weir_kv_windows_length(spec) + WEIR_PAGE_TOKENS - 1), blocks_for(spec->max_rows)
    );
}

/* What a sequence holds between steps and what one step adds. */
static int64_t capacity_of(const weir_kv_windows_spec *spec)
{
    return weir_kv_windows_most(spec) + blocks_for(spec->step_rows) + 1;
}

/* The rows of a step are those of all its sequences; each may begin in a new block, or in a copy of
 * a shared one. */
int64_t weir_kv_windows_needed(
    const weir_kv_windows_spec *spec, int64_t n_sequences, int64_t n_others, int64_t n_steps
)
{
    return (n_sequences + n_others) * weir_kv_windows_most(spec) + n_sequences +
           n_steps * (blocks_for(spec->step_rows) + 1);
}

size_t weir_kv_window_table_bytes(const weir_kv_windows_spec *spec)
{
    return spec->n_layers > 0
               ? (size_t)capacity_of(spec) *
                     ((size_t)weir_kv_windows_heads(spec) * sizeof(void *) + sizeof(int32_t))
               : 0;
}

/* ---- the pool -------------------------------------------------------------------------------- */
static void place_heads(weir_kv_windows *w)
{
    size_t at = 0;
    int64_t head = 0;
    for (int64_t i = 0; i < w->spec.n_layers; i++)
        for (int64_t h = 0; h < w->spec.geometry[i].n_heads; h++) {
            w->offsets[head++] = at;
            at += page_stride(&w->spec, i);
        }
}

static weir_status take_memory(weir_kv_windows *w, weir_error *error)
{
    const size_t n = (size_t)w->spec.n_blocks;
    void *metadata;
    WEIR_TRY(weir_ledger_alloc(
        w->ledger, &metadata, WEIR_ACCOUNT_PAGE_TABLES, weir_kv_windows_metadata_bytes(&w->spec),
        error
    ));
    w->offsets = metadata; /* widest element first */
    w->refs = (int32_t *)(w->offsets + w->n_heads);
    w->free = w->refs + n;
    return weir_ledger_alloc(
        w->ledger, (void **)&w->memory, WEIR_ACCOUNT_KV, weir_kv_windows_bytes(&w->spec), error
    );
}

weir_status weir_kv_windows_open(
    weir_kv_windows **out, const weir_kv_windows_spec *spec, weir_ledger *ledger, weir_error *error
)
{
    size_t bytes;
    const size_t block_bytes = weir_kv_windows_block_bytes(spec);
    if (spec->n_layers < 1 || spec->n_blocks < 1 || spec->n_blocks > INT32_MAX ||
        spec->step_rows < 1 || spec->max_rows < 1 || weir_kv_windows_length(spec) < 1 ||
        !weir_mul_size(&bytes, (size_t)spec->n_blocks, block_bytes))
        return weir_error_set(
            error, WEIR_EINVAL, "%" PRId64 " KV blocks of layers with a window are out of range",
            spec->n_blocks
        );
    weir_kv_windows *const w = calloc(1, sizeof *w);
    if (w == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the KV of layers with a window");
    *w = (weir_kv_windows){ .spec = *spec,
                            .ledger = ledger,
                            .block_bytes = block_bytes,
                            .n_heads = weir_kv_windows_heads(spec),
                            .capacity = capacity_of(spec),
                            .n_free = spec->n_blocks };
    const weir_status status = take_memory(w, error);
    if (status != WEIR_OK) {
        weir_kv_windows_close(w);
        return status;
    }
    place_heads(w);
    for (int64_t i = 0; i < spec->n_blocks; i++) w->free[i] = (int32_t)(spec->n_blocks - 1 - i);
    *out = w;
    return WEIR_OK;
}

void weir_kv_windows_close(weir_kv_windows *w)
{
    if (w == NULL) return;
    WEIR_ASSERT(w->n_free == w->spec.n_blocks || w->memory == NULL);
    weir_ledger_free(w->ledger, w->memory, WEIR_ACCOUNT_KV, weir_kv_windows_bytes(&w->spec));
    weir_ledger_free(
        w->ledger, w->offsets, WEIR_ACCOUNT_PAGE_TABLES, weir_kv_windows_metadata_bytes(&w->spec)
    );
    free(w);
}

const weir_kv_windows_spec *weir_kv_windows_spec_of(const weir_kv_windows *w) { return &w->spec; }
int64_t weir_kv_windows_free_blocks(const weir_kv_windows *w) { return w->n_free; }

void weir_kv_windows_reclaim_with(
    weir_kv_windows *w, void (*reclaim)(void *user, int64_t n), void *user
)
{
    w->reclaim = reclaim;
    w->user = user;
}

bool weir_kv_windows_find_free(weir_kv_windows *w, int64_t n)
{
    if (w->n_free < n && w->reclaim != NULL) w->reclaim(w->user, n);
    return w->n_free >= n;
}

int32_t weir_kv_window_take(weir_kv_windows *w)
{
    if (w->n_free == 0) return NONE;
    const int32_t block = w->free[--w->n_free];
    w->refs[block] = 1;
    return block;
}

void weir_kv_window_hold(weir_kv_windows *w, int32_t block)
{
    WEIR_ASSERT(w->refs[block] > 0);
    w->refs[block]++;
}

void weir_kv_window_drop(weir_kv_windows *w, int32_t block)
{
    WEIR_ASSERT(w->refs[block] > 0);
    if (--w->refs[block] == 0) w->free[w->n_free++] = block;
}

int32_t weir_kv_window_refs(const weir_kv_windows *w, int32_t block) { return w->refs[block]; }

void *weir_kv_window_memory(const weir_kv_windows *w, int32_t block)
{
    return w->memory + (size_t)block * w->block_bytes;
}

/* A zero block: kernels may multiply unwritten rows by a zero probability. */
static int32_t take_block(weir_kv_windows *w, int32_t copy_of)
{
    const int32_t block = weir_kv_window_take(w);
    WEIR_ASSERT(block != NONE);
    if (copy_of == NONE)
        memset(weir_kv_window_memory(w, block), 0, w->block_bytes);
    else
        memcpy(weir_kv_window_memory(w, block), weir_kv_window_memory(w, copy_of), w->block_bytes);
    return block;
}

/* ---- tables ---------------------------------------------------------------------------------- */
weir_status weir_kv_window_table_open(
    weir_kv_window_table *table, weir_kv_windows *w, weir_error *error
)
{
    void *memory;
    *table = (weir_kv_window_table){ 0 };
    WEIR_TRY(weir_ledger_alloc(
        w->ledger, &memory, WEIR_ACCOUNT_PAGE_TABLES, weir_kv_window_table_bytes(&w->spec), error
    ));
    table->pages = memory;
    table->blocks = (int32_t *)(table->pages + w->n_heads * w->capacity);
    return WEIR_OK;
}

void weir_kv_window_table_close(weir_kv_window_table *table, weir_kv_windows *w)
{
    if (table->pages == NULL) return;
    weir_kv_window_clear(table, w);
    weir_ledger_free(
        w->ledger, table->pages, WEIR_ACCOUNT_PAGE_TABLES, weir_kv_window_table_bytes(&w->spec)
    );
    *table = (weir_kv_window_table){ 0 };
}

static void put(weir_kv_window_table *table, const weir_kv_windows *w, int64_t at, int32_t block)
{
    const int64_t i = at - table->first;
    char *const memory = weir_kv_window_memory(w, block);
    WEIR_ASSERT(i >= 0 && i < w->capacity);
    table->blocks[i] = block;
    for (int64_t h = 0; h < w->n_heads; h++)
        table->pages[h * w->capacity + i] = memory + w->offsets[h];
}

static void append(weir_kv_window_table *table, const weir_kv_windows *w, int32_t block)
{
    put(table, w, table->end, block);
    table->end++;
}

void weir_kv_window_clear(weir_kv_window_table *table, weir_kv_windows *w)
{
    for (int64_t i = table->end - table->first - 1; i >= 0; i--)
        weir_kv_window_drop(w, table->blocks[i]);
    table->first = table->end = table->n_rows = 0;
}

void weir_kv_window_trim(weir_kv_window_table *table, weir_kv_windows *w)
{
    const int64_t first = weir_min(weir_kv_windows_first(&w->spec, table->n_rows), table->end),
                  n_gone = first - table->first, n_left = table->end - first;
    if (n_gone <= 0) return;
    for (int64_t i = 0; i < n_gone; i++) weir_kv_window_drop(w, table->blocks[i]);
    memmove(table->blocks, table->blocks + n_gone, (size_t)n_left * sizeof *table->blocks);
    for (int64_t h = 0; h < w->n_heads; h++) {
        void **const pages = table->pages + h * w->capacity;
        memmove(pages, pages + n_gone, (size_t)n_left * sizeof *pages);
    }
    table->first = first;
}

weir_status weir_kv_window_reserve(weir_kv_window_table *table, weir_kv_windows *w, int64_t n_new)
{
    const int64_t end = blocks_for(table->n_rows + n_new), last = table->n_rows / WEIR_PAGE_TOKENS;
    if (n_new == 0) return WEIR_OK;
    WEIR_ASSERT(n_new <= w->spec.step_rows);
    weir_kv_window_trim(table, w);
    const int32_t own = weir_kv_window_at(table, last);
    const bool is_shared = own != NONE && w->refs[own] > 1;
    if (!weir_kv_windows_find_free(w, end - table->end + is_shared)) return WEIR_EFULL;
    if (is_shared) {
        put(table, w, last, take_block(w, own));
        weir_kv_window_drop(w, own);
    }
    while (table->end < end) append(table, w, take_block(w, NONE));
    return WEIR_OK;
}

weir_status weir_kv_window_reserve_before(
    weir_kv_window_table *table, weir_kv_windows *w, int64_t row
)
{
    const int64_t first = weir_kv_windows_first(&w->spec, row), end = blocks_for(row);
    WEIR_ASSERT(table->end == table->first);
    if (!weir_kv_windows_find_free(w, end - first)) return WEIR_EFULL;
    table->first = table->end = first;
    while (table->end < end) append(table, w, take_block(w, NONE));
    return WEIR_OK;
}

void weir_kv_window_begin(
    weir_kv_window_table *table, const weir_kv_windows *w, int64_t first, int64_t end
)
{
    WEIR_ASSERT(table->end == table->first && end - first <= w->capacity);
    for (int64_t i = 0; i < end - first; i++) table->blocks[i] = NONE;
    table->first = first;
    table->end = end;
}

void weir_kv_window_share(
    weir_kv_window_table *table, weir_kv_windows *w, int64_t at, int32_t block
)
{
    const int32_t own = weir_kv_window_at(table, at);
    WEIR_ASSERT(at >= table->first && at < table->end);
    if (own == block) return;
    weir_kv_window_hold(w, block);
    put(table, w, at, block);
    if (own != NONE) weir_kv_window_drop(w, own);
}

void weir_kv_window_fork(
    weir_kv_window_table *dst, const weir_kv_window_table *src, weir_kv_windows *w
)
{
    const int64_t end = blocks_for(src->n_rows);
    weir_kv_window_begin(dst, w, src->first, end);
    for (int64_t at = src->first; at < end; at++)
        weir_kv_window_share(dst, w, at, weir_kv_window_at(src, at));
    dst->n_rows = src->n_rows;
}

/* The address of an entry that would be there if the table had all blocks: as a number, since it is
 * outside of the array. */
void *const *weir_kv_window_pages(const weir_kv_window_table *table)
{
    return (void *const *)((uintptr_t)table->pages - (uintptr_t)table->first * sizeof(void *));
}

int64_t weir_kv_window_stride(const weir_kv_windows *w) { return w->capacity; }
