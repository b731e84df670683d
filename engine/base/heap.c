/* engine/base/heap.c - segregated free lists over chunks; new blocks are cut from the end of the
 * newest chunk. A block's header names its chunk and its size class, so a chunk counts its live
 * blocks. Large blocks have mappings of their own and grow by mremap. */
#include "engine/base/heap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/block.h"
#include "engine/base/checked.h"

/* Sizes include the block's header. Classes: multiples of 16 up to FINE, then four for each power
 * of two. */
enum {
    STEP = 16,
    LEAST = 32,
    FINE = 512,
    MOST = 28 << 10, /* largest block in a chunk */
    N_FINE = (FINE - LEAST) / STEP + 1,
    N_CLASSES = N_FINE + 23, /* 640, 768, 896, 1024, ... MOST */
    OWN_MAPPING = 255,       /* instead of a class number */
    FIRST_CHUNK = 16 << 10,
    CHUNK = 64 << 10 /* one live block keeps all of it */
};

typedef struct chunk {
    alignas(STEP) struct chunk *next, *previous;
    size_t size, used; /* blocks follow this struct, up to `used` */
    size_t n_live;
} chunk;

typedef struct free_block {
    weir_block head;
    struct free_block *next, *previous;
} free_block;
_Static_assert(sizeof(free_block) == LEAST, "a free block fits into the smallest");

struct weir_heap {
    weir_memory_tracker tracker; /* first member: weir_memory_tracker_set takes its address */
    weir_memory_tracker *source;
    pthread_mutex_t lock;
    chunk *first, *newest; /* the heap lies in the first chunk; blocks are cut from the newest */
    size_t mapped, n_live;
    bool is_closed;
    free_block *free[N_CLASSES];
};

static atomic_size_t mapped_by_all;

/* ---- system memory --------------------------------------------------------------------------- */
#if __has_feature(address_sanitizer)
enum { IN_CHUNKS = 0 }; /* exact sizes, so that AddressSanitizer sees overflows */
static bool whole_pages(const size_t *size)
{
    (void)size;
    return true;
}
static void *map(size_t size) { return calloc(1, size); }
static void *remap(void *memory, size_t before, size_t size)
{
    (void)before;
    return realloc(memory, size);
}
static void unmap(void *memory, size_t size)
{
    (void)size;
    free(memory);
}
#else
enum { IN_CHUNKS = 1 };
static bool whole_pages(size_t *size)
{
    return weir_align_size(size, *size, (size_t)sysconf(_SC_PAGESIZE));
}
static void *map(size_t size)
{
    void *const at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at != MAP_FAILED ? at : NULL;
}
static void *remap(void *memory, size_t before, size_t size)
{
    void *const at = mremap(memory, before, size, MREMAP_MAYMOVE);
    return at != MAP_FAILED ? at : NULL;
}
static void unmap(void *memory, size_t size) { (void)munmap(memory, size); }
#endif

/* Charges the tracker. Returns false if it refuses. */
static bool pay(weir_memory_tracker *source, size_t bytes)
{
    if (source != NULL && !source->charge(source, bytes)) return false;
    atomic_fetch_add_explicit(&mapped_by_all, bytes, memory_order_relaxed);
    return true;
}

static void pay_back(weir_memory_tracker *source, size_t bytes)
{
    atomic_fetch_sub_explicit(&mapped_by_all, bytes, memory_order_relaxed);
    if (source != NULL) source->refund(source, bytes);
}

static void *pay_and_map(weir_memory_tracker *source, size_t size)
{
    if (!pay(source, size)) return NULL;
    void *const memory = map(size);
    if (memory == NULL) pay_back(source, size);
    return memory;
}

/* ---- a heap as a tracker --------------------------------------------------------------------- */
static bool charge(weir_memory_tracker *tracker, size_t bytes)
{
    weir_memory_tracker *const source = ((weir_heap *)tracker)->source;
    return source == NULL || source->charge(source, bytes);
}

static void refund(weir_memory_tracker *tracker, size_t bytes)
{
    weir_memory_tracker *const source = ((weir_heap *)tracker)->source;
    if (source != NULL) source->refund(source, bytes);
}

weir_heap *weir_heap_open(weir_memory_tracker *tracker)
{
    size_t size = FIRST_CHUNK;
    if (!whole_pages(&size)) return NULL;
    chunk *const first = pay_and_map(tracker, size);
    if (first == NULL) return NULL;
    weir_heap *const heap = (weir_heap *)(first + 1);
    *first = (chunk){ .size = size, .used = sizeof *first + sizeof *heap };
    first->used += -first->used % STEP;
    *heap = (weir_heap){ .tracker = { .charge = charge, .refund = refund, .heap = heap },
                         .source = tracker,
                         .first = first,
                         .newest = first,
                         .mapped = size };
    (void)pthread_mutex_init(&heap->lock, NULL);
    return heap;
}

/* Unmaps a heap without live blocks; it owns nothing but chunks. */
static void destroy(weir_heap *heap)
{
    weir_memory_tracker *const source = heap->source;
    const size_t mapped = heap->mapped;
    chunk *at = heap->first->next;
    chunk *const first = heap->first;
    (void)pthread_mutex_destroy(&heap->lock);
    while (at != NULL) {
        chunk *const next = at->next;
        unmap(at, at->size);
        at = next;
    }
    unmap(first, first->size);
    pay_back(source, mapped);
}

void weir_heap_close(weir_heap *heap)
{
    if (heap == NULL) return;
    (void)pthread_mutex_lock(&heap->lock);
    heap->is_closed = true;
    const bool is_over = heap->n_live == 0;
    (void)pthread_mutex_unlock(&heap->lock);
    if (is_over) destroy(heap);
}

weir_memory_tracker *weir_heap_tracker(weir_heap *heap) { return &heap->tracker; }

size_t weir_heap_mapped(const weir_heap *heap)
{
    if (heap == NULL) return atomic_load_explicit(&mapped_by_all, memory_order_relaxed);
    weir_heap *const shared = (weir_heap *)(uintptr_t)heap; /* cast: only the lock is changed */
    (void)pthread_mutex_lock(&shared->lock);
    const size_t mapped = shared->mapped;
    (void)pthread_mutex_unlock(&shared->lock);
    return mapped;
}

/* ---- classes --------------------------------------------------------------------------------- */
static unsigned class_of(size_t size) /* the smallest class that fits; LEAST to MOST */
{
    if (size <= FINE) return (unsigned)((size - LEAST) / STEP);
    const unsigned log = 63u - (unsigned)__builtin_clzll((unsigned long long)size - 1);
    const size_t quarter = (size_t)1 << (log - 2);
    return N_FINE + (log - 9) * 4 + (unsigned)((size - 1 - ((size_t)1 << log)) / quarter);
}

static size_t size_of_class(unsigned class)
{
    if (class < N_FINE) return LEAST + (size_t)class * STEP;
    const unsigned rest = class - N_FINE;
    /* NOLINTNEXTLINE(clang-analyzer-core.BitwiseShift): rest / 4 stays below N_CLASSES */
    return ((size_t)FINE << rest / 4) + (((size_t)FINE >> 2) << rest / 4) * (rest % 4 + 1);
}

static size_t tag_of(size_t place, unsigned class) { return place << 8 | class; }
static unsigned class_in(const weir_block *block) { return block->tag & 0xff; }
static size_t place_in(const weir_block *block) { return block->tag >> 8; }

static chunk *chunk_of(weir_block *block) { return (chunk *)((char *)block - place_in(block)); }

/* ---- chunks ---------------------------------------------------------------------------------- */
/* The functions below require the lock. */
static void put_free(weir_heap *heap, free_block *block)
{
    free_block **const list = &heap->free[class_in(&block->head)];
    block->previous = NULL;
    block->next = *list;
    if (*list != NULL) (*list)->previous = block;
    *list = block;
}

static void take_out(weir_heap *heap, free_block *block)
{
    if (block->previous != NULL)
        block->previous->next = block->next;
    else
        heap->free[class_in(&block->head)] = block->next;
    if (block->next != NULL) block->next->previous = block->previous;
}

/* Returns NULL if the newest chunk has too little space left. */
static free_block *cut(weir_heap *heap, unsigned class)
{
    chunk *const newest = heap->newest;
    const size_t size = size_of_class(class);
    if (newest->size - newest->used < size) return NULL;
    free_block *const block = (free_block *)((char *)newest + newest->used);
    block->head = (weir_block){ .tracker = &heap->tracker, .tag = tag_of(newest->used, class) };
    newest->used += size;
    return block;
}

/* Turns the rest of the newest chunk into free blocks, largest first. */
static void cut_rest(weir_heap *heap)
{
    for (;;) {
        const size_t left = heap->newest->size - heap->newest->used;
        if (left < LEAST) return;
        unsigned class = class_of(left < MOST ? left : MOST);
        if (size_of_class(class) > left) class --;
        put_free(heap, cut(heap, class));
    }
}

static bool add_chunk_of(weir_heap *heap, size_t size)
{
    if (!whole_pages(&size)) return false;
    chunk *const added = pay_and_map(heap->source, size);
    if (added == NULL) return false;
    cut_rest(heap);
    *added = (chunk){ .size = size, .used = sizeof *added, .previous = heap->newest };
    heap->newest->next = added;
    heap->newest = added;
    heap->mapped += size;
    return true;
}

/* If the tracker refuses a chunk, tries one that just fits the block. */
static bool add_chunk(weir_heap *heap, size_t least)
{
    return add_chunk_of(heap, CHUNK) || add_chunk_of(heap, sizeof(chunk) + least);
}

static free_block *find_free(weir_heap *heap, unsigned class)
{
    free_block *const block = heap->free[class];
    if (block != NULL) take_out(heap, block);
    return block;
}

static free_block *find(weir_heap *heap, unsigned class)
{
    free_block *block = find_free(heap, class);
    if (block == NULL) block = cut(heap, class);
    if (block == NULL && add_chunk(heap, size_of_class(class))) block = cut(heap, class);
    for (unsigned larger = class + 1; block == NULL && larger < N_CLASSES; larger++)
        block = find_free(heap, larger);
    return block;
}

/* Unmaps a chunk without live blocks, except the first, which holds the heap, and the newest. */
static void empty(weir_heap *heap, chunk *over)
{
    if (over == heap->first) return;
    for (size_t at = sizeof *over; at < over->used;) {
        free_block *const block = (free_block *)((char *)over + at);
        at += size_of_class(class_in(&block->head));
        take_out(heap, block);
    }
    over->used = sizeof *over;
    if (over == heap->newest) return;
    over->previous->next = over->next;
    over->next->previous = over->previous;
    heap->mapped -= over->size;
    const size_t size = over->size;
    unmap(over, size);
    pay_back(heap->source, size);
}

/* ---- blocks ---------------------------------------------------------------------------------- */
static bool with_head(size_t *size, size_t bytes)
{
    if (!weir_add_size(size, bytes, sizeof(weir_block))) return false;
    if (!IN_CHUNKS) return true;
    if (*size < LEAST) *size = LEAST;
    return weir_align_size(size, *size, STEP);
}

static bool has_own_mapping(size_t size) { return !IN_CHUNKS || size > MOST; }

static weir_block *take_mapping(weir_heap *heap, size_t size)
{
    if (!whole_pages(&size) || size > SIZE_MAX >> 8) return NULL;
    weir_block *const block = pay_and_map(heap->source, size);
    if (block == NULL) return NULL;
    *block = (weir_block){ .tracker = &heap->tracker, .tag = tag_of(size, OWN_MAPPING) };
    (void)pthread_mutex_lock(&heap->lock);
    heap->mapped += size;
    heap->n_live++;
    (void)pthread_mutex_unlock(&heap->lock);
    return block;
}

static weir_block *take_piece(weir_heap *heap, size_t size)
{
    (void)pthread_mutex_lock(&heap->lock);
    free_block *const block = find(heap, class_of(size));
    if (block != NULL) {
        chunk_of(&block->head)->n_live++;
        heap->n_live++;
    }
    (void)pthread_mutex_unlock(&heap->lock);
    return block != NULL ? &block->head : NULL;
}

void *weir_heap_take(weir_heap *heap, size_t bytes, bool zero)
{
    size_t size;
    if (!with_head(&size, bytes)) return NULL;
    const bool own = has_own_mapping(size);
    weir_block *const block = own ? take_mapping(heap, size) : take_piece(heap, size);
    if (block == NULL) return NULL;
    if (zero && !own) memset(block + 1, 0, bytes);
    return block + 1;
}

void weir_heap_give(weir_heap *heap, void *memory)
{
    weir_block *const block = (weir_block *)memory - 1;
    const bool own = class_in(block) == OWN_MAPPING;
    const size_t size = own ? place_in(block) : 0;
    (void)pthread_mutex_lock(&heap->lock);
    if (own) {
        heap->mapped -= size;
        unmap(block, size);
        pay_back(heap->source, size);
    } else {
        chunk *const in = chunk_of(block);
        put_free(heap, (free_block *)block);
        if (--in->n_live == 0) empty(heap, in);
    }
    const bool is_over = --heap->n_live == 0 && heap->is_closed;
    (void)pthread_mutex_unlock(&heap->lock);
    if (is_over) destroy(heap);
}

/* Charges only the difference. */
static void *resize_mapping(weir_heap *heap, weir_block *block, size_t size)
{
    const size_t before = place_in(block);
    if (!whole_pages(&size) || size > SIZE_MAX >> 8) return NULL;
    if (size == before) return block + 1;
    if (size > before && !pay(heap->source, size - before)) return NULL;
    weir_block *const moved = remap(block, before, size);
    if (moved == NULL) {
        if (size > before) pay_back(heap->source, size - before);
        return NULL;
    }
    moved->tag = tag_of(size, OWN_MAPPING);
    (void)pthread_mutex_lock(&heap->lock);
    heap->mapped = heap->mapped - before + size;
    (void)pthread_mutex_unlock(&heap->lock);
    if (size < before) pay_back(heap->source, before - size);
    return moved + 1;
}

void *weir_heap_resize(weir_heap *heap, void *memory, size_t bytes)
{
    weir_block *const block = (weir_block *)memory - 1;
    const bool own = class_in(block) == OWN_MAPPING;
    const size_t held = own ? place_in(block) : size_of_class(class_in(block));
    size_t size;
    if (!with_head(&size, bytes)) return NULL;
    if (own && has_own_mapping(size)) return resize_mapping(heap, block, size);
    if (!own && size <= held) return memory;
    void *const moved = weir_heap_take(heap, bytes, false);
    if (moved == NULL) return NULL;
    const size_t kept = held - sizeof *block < bytes ? held - sizeof *block : bytes;
    memcpy(moved, memory, kept);
    weir_heap_give(heap, memory);
    return moved;
}
