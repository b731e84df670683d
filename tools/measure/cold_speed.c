/* tools/measure/cold_speed.c - the reading speed of the lower tier: pages of a sequence, in order
 * and in the pieces that attention reads, into the same kind of memory, with nothing else
 * running. */
#include "engine/base/clock.h"
#include "engine/kv/tiers/prefetch.h"
#include "offload/ledger.h"
#include "tools/measure/bench.h"

/* Per measurement: pages are read again until it is reached. */
enum { LEAST_BYTES = 256 << 20 };
/* The buffer is huge pages from the ledger, as attention's is: reads into small pages were measured
 * to be half as fast. It is not part of what is measured. */
enum { HUGE_PAGE = 2 << 20 };

/* Reads runs of consecutive blocks of one layer; counts the bytes. */
static weir_status read_layer(
    weir_kv_store *store, const weir_kv_sequence *sequence, int64_t layer, char *buffer,
    size_t room, size_t *bytes, weir_error *error
)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(store);
    const size_t each = weir_kv_layer_stride(spec, layer);
    void *const *const pages = (void *const *)sequence->table.pages;
    for (int64_t block = 0; block < sequence->table.n_pages;) {
        const int32_t first = weir_kv_place_of(store, pages[block]);
        int64_t n = 1;
        if (!weir_kv_is_cold(store, pages[block])) {
            block++;
            continue;
        }
        while (block + n < sequence->table.n_pages && (size_t)(n + 1) * each <= room &&
               weir_kv_is_cold(store, pages[block + n]) &&
               weir_kv_place_of(store, pages[block + n]) == first + n)
            n++;
        WEIR_TRY(weir_lower_tier_read_async(
            weir_kv_store_lower_tier(store), first, layer, 0, buffer, (size_t)n * each, error
        ));
        *bytes += (size_t)n * each;
        block += n;
    }
    return WEIR_OK;
}

static weir_status read_all(
    double *rate, weir_kv_store *store, const weir_kv_sequence *sequence, char *buffer, size_t room,
    weir_error *error
)
{
    size_t bytes = 0, before;
    const int64_t start = weir_clock_ns(), n_layers = weir_kv_store_spec(store)->n_layers;
    do {
        before = bytes;
        for (int64_t layer = 0; layer < n_layers; layer++)
            WEIR_TRY(read_layer(store, sequence, layer, buffer, room, &bytes, error));
    } while (bytes > before && bytes < LEAST_BYTES);
    *rate = bytes > 0 ? (double)bytes / (double)(weir_clock_ns() - start) : 0.0;
    return WEIR_OK;
}

weir_status weir_bench_cold_speed(
    double *gb_per_second, weir_kv_store *store, const weir_kv_sequence *sequence, weir_error *error
)
{
    *gb_per_second = 0.0;
    if (weir_kv_store_lower_tier(store) == NULL) return WEIR_OK;
    const size_t room = weir_kv_prefetch_read_bytes(weir_kv_store_spec(store));
    const size_t bytes = room > HUGE_PAGE ? room : HUGE_PAGE, no_caps[WEIR_TIER_COUNT] = { 0 };
    weir_ledger *ledger = NULL;
    void *buffer = NULL;
    WEIR_TRY(weir_ledger_open(&ledger, no_caps));
    weir_ledger_use_device(ledger, weir_ledger_device(weir_kv_store_ledger(store)));
    weir_status status =
        weir_ledger_alloc_device(ledger, &buffer, WEIR_ACCOUNT_OTHER, bytes, error);
    if (status == WEIR_OK) {
        status = read_all(gb_per_second, store, sequence, buffer, room, error);
        weir_ledger_free_device(ledger, buffer, WEIR_ACCOUNT_OTHER, bytes);
    }
    weir_ledger_close(ledger);
    return status;
}
