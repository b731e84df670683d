/* offload/device_checked.c - the host as a device for tests. Each block is a separate mapping,
 * accessible while a kernel runs, and its pages while a copy reads or writes them. A freed block
 * stays mapped without access until the device closes, so a read after free faults. The smallest
 * block is a page. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/checked.h"
#include "engine/base/machine_memory.h"
#include "offload/device_internal.h"

#define PAGE ((size_t)4096)

/* Set by tests before they open a device. */
static struct {
    const weir_kernel *const *rows;
    size_t n;
    int capability;
} checked_with;

void weir_device_check_with(const weir_kernel *const *rows, size_t n, int capability)
{
    checked_with.rows = rows;
    checked_with.n = n;
    checked_with.capability = capability;
}

static void protect(char *pages, size_t bytes, int protection)
{
    size_t rounded;
    WEIR_ASSERT(
        weir_align_size(&rounded, bytes, PAGE) && mprotect(pages, rounded, protection) == 0
    );
}

static void begin(weir_device *device)
{
    if (device->n_open++ > 0) return;
    for (size_t i = 0; i < device->n_blocks; i++)
        protect(device->blocks[i].memory, device->blocks[i].bytes, PROT_READ | PROT_WRITE);
}

static void end(weir_device *device)
{
    if (--device->n_open > 0) return;
    for (size_t i = 0; i < device->n_blocks; i++)
        if (device->blocks[i].n_open == 0)
            protect(device->blocks[i].memory, device->blocks[i].bytes, PROT_NONE);
}

/* A copy may access the pages it reads or writes and no others; whole blocks would take mprotect a
 * hundred times as long. */
static void begin_copy(weir_device *device, const void *memory, size_t bytes)
{
    device_block *const block = weir_device_lock_block(device, memory);
    if (block != NULL) {
        block->n_open++;
        const size_t before = (uintptr_t)memory % PAGE;
        WEIR_ASSERT(bytes <= block->bytes - (size_t)((const char *)memory - block->memory));
        if (device->n_open == 0)
            protect((char *)memory - before, before + bytes, PROT_READ | PROT_WRITE);
    }
    weir_device_unlock();
}

static void end_copy(weir_device *device, const void *memory)
{
    device_block *const block = weir_device_lock_block(device, memory);
    if (block != NULL && --block->n_open == 0 && device->n_open == 0)
        protect(block->memory, block->bytes, PROT_NONE);
    weir_device_unlock();
}

static void *alloc_block(weir_device *device, size_t bytes)
{
    size_t rounded;
    if (!weir_align_size(&rounded, bytes, PAGE)) return NULL;
    const int protection = device->n_open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *const memory =
        mmap(NULL, rounded, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* Returns the memory to the system but keeps the addresses reserved. */
static void free_block(weir_device *device, void *memory, size_t bytes)
{
    size_t rounded;
    (void)device;
    WEIR_ASSERT(weir_align_size(&rounded, bytes, PAGE));
    WEIR_ASSERT(
        mmap(
            memory, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
            0
        ) != MAP_FAILED
    );
}

static void *alloc_unified(weir_device *device, size_t bytes)
{
    size_t rounded;
    (void)device;
    return weir_align_size(&rounded, bytes, PAGE) ? aligned_alloc(PAGE, rounded) : NULL;
}

static void free_unified(weir_device *device, void *memory, size_t bytes)
{
    (void)device, (void)bytes;
    free(memory);
}

static bool copy(
    weir_device *device, void *dst, const void *src, size_t bytes, char text[DEVICE_TEXT]
)
{
    (void)text;
    begin_copy(device, dst, bytes);
    begin_copy(device, src, bytes);
    memcpy(dst, src, bytes);
    end_copy(device, src);
    end_copy(device, dst);
    return true;
}

static bool clear(weir_device *device, void *memory, size_t bytes, char text[DEVICE_TEXT])
{
    (void)text;
    begin_copy(device, memory, bytes);
    memset(memory, 0, bytes);
    end_copy(device, memory);
    return true;
}

static bool finish(weir_device *device, char text[DEVICE_TEXT])
{
    (void)device, (void)text;
    return true;
}

void weir_device_open_checked(weir_device *device)
{
    static const device_kind kind = { .alloc = alloc_block,
                                      .free = free_block,
                                      .alloc_unified = alloc_unified,
                                      .free_unified = free_unified,
                                      .copy = copy,
                                      .copy_async = copy,
                                      .clear = clear,
                                      .finish = finish,
                                      .begin = begin,
                                      .end = end };
    device->kind = &kind;
    device->kernels = checked_with.rows;
    device->n_kernels = checked_with.n;
    device->capability = checked_with.capability;
    device->memory_bytes = weir_machine_memory("");
    device->context.omp_device = omp_get_initial_device();
    (void)snprintf(device->title, sizeof device->title, "this CPU, with separate memory");
}
