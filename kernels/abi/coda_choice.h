/* kernels/abi/coda_choice.h - selects the smallest keys, in one of two orders.
 *
 * Sorted: ascending, ties by index. As found: the order in which torch.topk on a CPU returns them,
 * which depends on the sort of libstdc++ (heap selection for few of many, else selection by
 * partition). Layers in `compat` mode take their candidates in that order, as the published package
 * does, because the order decides what is kept. It has no other use. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct weir_coda_choice {
    int64_t key;
    int32_t index;
} weir_coda_choice;

/* Largest gates first: a key that falls as the gate grows. */
static inline int64_t weir_coda_gate_key(float gate)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &gate, sizeof bits);
    const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return -(int64_t)ordered;
}

/* ---- sorted ---------------------------------------------------------------------------------- */
static inline bool weir_coda_is_before(const weir_coda_choice *a, const weir_coda_choice *b)
{
    return a->key < b->key || (a->key == b->key && a->index < b->index);
}

static inline void weir_coda_sift(weir_coda_choice *heap, int64_t n, int64_t at)
{
    const weir_coda_choice value = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && weir_coda_is_before(&heap[child], &heap[child + 1])) child++;
        if (!weir_coda_is_before(&value, &heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = value;
}

/* Moves the n_selected smallest of n to the front, in order. */
static inline void weir_coda_choose(weir_coda_choice *all, int64_t n, int64_t n_selected)
{
    if (n_selected <= 0) return;
    for (int64_t i = n_selected / 2 - 1; i >= 0; i--) weir_coda_sift(all, n_selected, i);
    for (int64_t i = n_selected; i < n; i++) {
        if (!weir_coda_is_before(&all[i], &all[0])) continue;
        const weir_coda_choice out = all[0];
        all[0] = all[i];
        all[i] = out;
        weir_coda_sift(all, n_selected, 0);
    }
    for (int64_t last = n_selected - 1; last > 0; last--) {
        const weir_coda_choice greatest = all[0];
        all[0] = all[last];
        all[last] = greatest;
        weir_coda_sift(all, last, 0);
    }
}

/* ---- as found: every comparison and move of the library, which compares keys alone ----------- */
static inline void weir_found_swap(weir_coda_choice *a, weir_coda_choice *b)
{
    const weir_coda_choice held = *a;
    *a = *b;
    *b = held;
}

/* Moves a hole down to a leaf along the greater children, then the value up from there. */
static inline void weir_found_adjust(
    weir_coda_choice *heap, int64_t hole, int64_t n, weir_coda_choice value
)
{
    const int64_t top = hole;
    int64_t child = hole;
    while (child < (n - 1) / 2) {
        child = 2 * child + 2;
        if (heap[child].key < heap[child - 1].key) child--;
        heap[hole] = heap[child];
        hole = child;
    }
    if (n % 2 == 0 && child == (n - 2) / 2) {
        child = 2 * child + 1;
        heap[hole] = heap[child];
        hole = child;
    }
    while (hole > top && heap[(hole - 1) / 2].key < value.key) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = value;
}

static inline void weir_found_heap_select(weir_coda_choice *all, int64_t n, int64_t n_selected)
{
    for (int64_t parent = n_selected / 2 - 1; n_selected > 1 && parent >= 0; parent--)
        weir_found_adjust(all, parent, n_selected, all[parent]);
    for (int64_t i = n_selected; i < n; i++) {
        if (all[i].key >= all[0].key) continue;
        const weir_coda_choice value = all[i];
        all[i] = all[0];
        weir_found_adjust(all, 0, n_selected, value);
    }
}

static inline void weir_found_heap_sort(weir_coda_choice *heap, int64_t n)
{
    for (; n > 1; n--) {
        const weir_coda_choice value = heap[n - 1];
        heap[n - 1] = heap[0];
        weir_found_adjust(heap, 0, n - 1, value);
    }
}

/* An earlier element is not greater. */
static inline void weir_found_insert(weir_coda_choice *at)
{
    const weir_coda_choice value = *at;
    for (; value.key < at[-1].key; at--) *at = at[-1];
    *at = value;
}

static inline void weir_found_insertion_sort(weir_coda_choice *all, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        if (all[i].key >= all[0].key) {
            weir_found_insert(all + i);
            continue;
        }
        const weir_coda_choice value = all[i];
        for (int64_t j = i; j > 0; j--) all[j] = all[j - 1];
        all[0] = value;
    }
}

/* Moves the median of the second, middle and last element to the front. Returns the partition point
 * of the rest. */
static inline int64_t weir_found_part(weir_coda_choice *all, int64_t n)
{
    weir_coda_choice *const a = all + 1, *const b = all + n / 2, *const c = all + n - 1;
    if (a->key < b->key)
        weir_found_swap(all, b->key < c->key ? b : a->key < c->key ? c : a);
    else
        weir_found_swap(all, a->key < c->key ? a : b->key < c->key ? c : b);
    for (int64_t first = 1, last = n;; first++) {
        while (all[first].key < all[0].key) first++;
        last--;
        while (all[0].key < all[last].key) last--;
        if (first >= last) return first;
        weir_found_swap(all + first, all + last);
    }
}

static inline int weir_found_depth(int64_t n)
{
    int log = 0;
    for (; n > 1; n >>= 1) log++;
    return 2 * log;
}

/* Moves the n_selected-th smallest to its place, with no greater one before it. */
static inline void weir_found_select(weir_coda_choice *all, int64_t n, int64_t n_selected)
{
    int depth = weir_found_depth(n);
    int64_t first = 0, end = n;
    for (const int64_t nth = n_selected - 1; end - first > 3; depth--) {
        if (depth == 0) {
            weir_found_heap_select(all + first, end - first, nth + 1 - first);
            weir_found_swap(all + first, all + nth);
            return;
        }
        const int64_t cut = first + weir_found_part(all + first, end - first);
        if (cut <= nth)
            first = cut;
        else
            end = cut;
    }
    weir_found_insertion_sort(all + first, end - first);
}

static inline void weir_found_sort(weir_coda_choice *all, int64_t n)
{
    enum { SHORT = 16, STACK = 128 };
    struct {
        int64_t first, end;
        int depth;
    } later[STACK];
    int n_later = 0;
    if (n < 2) return;
    later[n_later++] = (__typeof__(later[0])){ 0, n, weir_found_depth(n) };
    while (n_later > 0) { /* parts after a cut are independent of those before it */
        int64_t end = later[--n_later].end;
        const int64_t first = later[n_later].first;
        int depth = later[n_later].depth;
        while (end - first > SHORT) {
            if (depth-- == 0) {
                weir_found_heap_select(all + first, end - first, end - first);
                weir_found_heap_sort(all + first, end - first);
                break;
            }
            const int64_t cut = first + weir_found_part(all + first, end - first);
            later[n_later++] = (__typeof__(later[0])){ cut, end, depth };
            end = cut;
        }
    }
    weir_found_insertion_sort(all, n < SHORT ? n : SHORT);
    for (int64_t i = SHORT; i < n; i++) weir_found_insert(all + i);
}

/* torch.topk of the smallest: which n_selected of n come first, and in which order; is_sorted is
 * its `sorted` argument. */
static inline void weir_coda_find(
    weir_coda_choice *all, int64_t n, int64_t n_selected, bool is_sorted
)
{
    if (n_selected <= 0) return;
    if (n_selected * 64 <= n) {
        weir_found_heap_select(all, n, n_selected);
        weir_found_heap_sort(all, n_selected);
        return;
    }
    if (n_selected < n || n > 1) weir_found_select(all, n, n_selected);
    if (is_sorted) weir_found_sort(all, n_selected - 1);
}
