/* offload/device.c - names, the list of blocks, and what all kinds of devices share. */
#include "offload/device.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/checked.h"
#include "offload/device_internal.h"

enum { MOST_NUMBER = 15 };

/* Guards blocks, failure and protection, as any thread may copy. One lock: a process opens one
 * device. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool number_of(const char *name, int *number)
{
    static const char prefix[] = "gpu:";
    const size_t n = sizeof prefix - 1;
    if (strncmp(name, prefix, n) != 0 || !isdigit((unsigned char)name[n])) return false;
    char *end;
    const long value = strtol(name + n, &end, 10);
    *number = (int)value;
    return *end == '\0' && value <= MOST_NUMBER;
}

weir_status weir_device_open(
    weir_device **out, const char *name, char *why, size_t why_bytes, weir_error *error
)
{
    const bool is_auto = strcmp(name, "auto") == 0, is_checked = strcmp(name, "checked") == 0;
    int number = 0;
    *out = NULL;
    why[0] = '\0';
    if (strcmp(name, "cpu") == 0) return WEIR_OK;
    if (!is_auto && !is_checked && !number_of(name, &number))
        return weir_error_set(
            error, WEIR_ECONFIG,
            "kernels.device = \"%.40s\": must be auto, cpu, or gpu:0 to gpu:%d", name, MOST_NUMBER
        );
    weir_device *const device = calloc(1, sizeof *device);
    if (device == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a device");
    (void)snprintf(device->name, sizeof device->name, is_checked ? "checked" : "gpu:%d", number);
    if (is_checked)
        weir_device_open_checked(device);
    else if (!weir_device_open_gpu(device, number, why, why_bytes)) {
        free(device);
        return WEIR_OK;
    }
    *out = device;
    return WEIR_OK;
}

void weir_device_close(weir_device *device)
{
    if (device == NULL) return;
    /* Otherwise its owner would use it after free. */
    WEIR_ASSERT(device->n_blocks == 0 && device->space == NULL);
    if (device->kind->close != NULL) device->kind->close(device);
    free(device);
}

const char *weir_device_name(const weir_device *device) { return device->name; }
const char *weir_device_title(const weir_device *device) { return device->title; }
int weir_device_capability(const weir_device *device) { return device->capability; }
size_t weir_device_memory_bytes(const weir_device *device) { return device->memory_bytes; }

const weir_kernel *const *weir_device_kernels(const weir_device *device, size_t *count)
{
    *count = device->n_kernels;
    return device->kernels;
}

/* ---- failure --------------------------------------------------------------------------------- */
void weir_device_fail(weir_device *device, const char *text)
{
    if (device->failure[0] == '\0')
        (void)snprintf(device->failure, sizeof device->failure, "%s: %s", device->name, text);
    atomic_store(&device->has_failed, true);
}

static bool has_failed(const weir_device *device) { return atomic_load(&device->has_failed); }

const char *weir_device_failure(const weir_device *device)
{
    return has_failed(device) ? device->failure : NULL; /* the text never changes once set */
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* Index of the first block that begins after the address. */
static size_t block_after(const weir_device *device, const void *memory)
{
    size_t low = 0, high = device->n_blocks;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (device->blocks[middle].memory <= (const char *)memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool owns(const weir_device *device, const void *memory)
{
    const size_t at = block_after(device, memory);
    return at > 0 && (size_t)((const char *)memory - device->blocks[at - 1].memory) <
                         device->blocks[at - 1].bytes;
}

device_block *weir_device_lock_block(weir_device *device, const void *memory)
{
    (void)pthread_mutex_lock(&lock);
    return owns(device, memory) ? &device->blocks[block_after(device, memory) - 1] : NULL;
}

void weir_device_unlock(void) { (void)pthread_mutex_unlock(&lock); }

bool weir_device_owns(const weir_device *device, const void *memory)
{
    (void)pthread_mutex_lock(&lock);
    const bool is_own = owns(device, memory);
    (void)pthread_mutex_unlock(&lock);
    return is_own;
}

size_t weir_device_held(const weir_device *device)
{
    size_t bytes = 0;
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < device->n_blocks; i++) bytes += device->blocks[i].bytes;
    (void)pthread_mutex_unlock(&lock);
    return bytes;
}

void *weir_device_alloc(weir_device *device, size_t bytes)
{
    void *memory = NULL;
    if (bytes == 0) return NULL;
    (void)pthread_mutex_lock(&lock);
    if (device->failure[0] == '\0' && device->n_blocks < DEVICE_BLOCKS)
        memory = device->kind->alloc(device, bytes);
    if (memory != NULL) {
        const size_t at = block_after(device, memory);
        memmove(
            device->blocks + at + 1, device->blocks + at,
            (device->n_blocks++ - at) * sizeof *device->blocks
        );
        device->blocks[at] = (device_block){ .memory = memory, .bytes = bytes };
    }
    (void)pthread_mutex_unlock(&lock);
    return memory;
}

void weir_device_free(weir_device *device, void *memory, size_t bytes)
{
    if (memory == NULL) return;
    (void)pthread_mutex_lock(&lock);
    const size_t at = block_after(device, memory);
    WEIR_ASSERT(
        at > 0 && device->blocks[at - 1].memory == memory && device->blocks[at - 1].bytes == bytes
    );
    memmove(
        device->blocks + at - 1, device->blocks + at,
        (device->n_blocks-- - at) * sizeof *device->blocks
    );
    device->kind->free(device, memory, bytes);
    (void)pthread_mutex_unlock(&lock);
}

void *weir_device_alloc_unified(weir_device *device, size_t bytes)
{
    (void)pthread_mutex_lock(&lock);
    void *const memory =
        bytes > 0 && device->failure[0] == '\0' ? device->kind->alloc_unified(device, bytes) : NULL;
    (void)pthread_mutex_unlock(&lock);
    return memory;
}

void weir_device_free_unified(weir_device *device, void *memory, size_t bytes)
{
    if (memory != NULL) device->kind->free_unified(device, memory, bytes);
}

/* ---- address space --------------------------------------------------------------------------- */
size_t weir_device_space_metadata_bytes(size_t reach)
{
    return reach / WEIR_DEVICE_GRANULE * sizeof(char *);
}

weir_status weir_device_space_open(weir_device *device, void **out, size_t reach)
{
    *out = NULL;
    WEIR_ASSERT(device->space == NULL && reach > 0 && reach % WEIR_DEVICE_GRANULE == 0);
    device->granules = calloc(reach / WEIR_DEVICE_GRANULE, sizeof *device->granules);
    if (device->granules == NULL) return WEIR_ENOMEM;
    void *const space =
        mmap(NULL, reach, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) {
        free(device->granules);
        return WEIR_ENOMEM;
    }
    device->space = *out = space;
    device->reach = reach;
    return WEIR_OK;
}

void weir_device_space_close(weir_device *device)
{
    if (device->space == NULL) return;
    (void)munmap(device->space, device->reach);
    free(device->granules);
    device->space = NULL;
    device->reach = 0;
}

void weir_device_space_map(weir_device *device, void *address, void *memory, size_t bytes)
{
    const size_t at = (size_t)((char *)address - device->space);
    WEIR_ASSERT(
        at % WEIR_DEVICE_GRANULE == 0 && bytes % WEIR_DEVICE_GRANULE == 0 && at <= device->reach &&
        bytes <= device->reach - at
    );
    for (size_t i = 0; i < bytes; i += WEIR_DEVICE_GRANULE)
        device->granules[(at + i) / WEIR_DEVICE_GRANULE] =
            memory != NULL ? (char *)memory + i : NULL;
}

void *weir_device_resolve(const weir_device *device, const void *address)
{
    const size_t at = (size_t)((uintptr_t)address - (uintptr_t)device->space);
    if (device->space == NULL || at >= device->reach) return (void *)(uintptr_t)address;
    char *const granule = device->granules[at / WEIR_DEVICE_GRANULE];
    return granule != NULL ? granule + at % WEIR_DEVICE_GRANULE : NULL;
}

/* ---- work ------------------------------------------------------------------------------------ */
/* Blocking calls run without the lock. The first failure is recorded, later calls do nothing. */
static void record_failure(weir_device *device, bool is_well, const char *text)
{
    if (is_well) return;
    (void)pthread_mutex_lock(&lock);
    weir_device_fail(device, text);
    (void)pthread_mutex_unlock(&lock);
}

static void copy(
    weir_device *device, void *dst, const void *src, size_t bytes, bool may_return_early
)
{
    char text[DEVICE_TEXT] = "";
    if (bytes == 0) return;
    void *const to = weir_device_resolve(device, dst);
    const void *const from = weir_device_resolve(device, src);
    /* Otherwise the page is not resident, and must be promoted first. */
    WEIR_ASSERT(to != NULL && from != NULL);
    if (has_failed(device)) return;
    const device_kind *const kind = device->kind;
    const bool is_queued =
        may_return_early && kind->queue_copy != NULL && weir_device_owns(device, to);
    record_failure(
        device, (is_queued ? kind->queue_copy : kind->copy)(device, to, from, bytes, text), text
    );
}

void weir_device_copy(weir_device *device, void *dst, const void *src, size_t bytes)
{
    copy(device, dst, src, bytes, false);
}

void weir_device_queue_copy(weir_device *device, void *dst, const void *src, size_t bytes)
{
    copy(device, dst, src, bytes, true);
}

void weir_device_clear(weir_device *device, void *memory, size_t bytes)
{
    char text[DEVICE_TEXT] = "";
    if (bytes == 0) return;
    void *const resolved = weir_device_resolve(device, memory);
    WEIR_ASSERT(resolved != NULL);
    if (!has_failed(device))
        record_failure(device, device->kind->clear(device, resolved, bytes, text), text);
}

void weir_device_copy_async(weir_device *device, void *dst, const void *src, size_t bytes)
{
    char text[DEVICE_TEXT] = "";
    if (bytes > 0 && !has_failed(device))
        record_failure(device, device->kind->copy_async(device, dst, src, bytes, text), text);
}

void weir_device_event_record(weir_device *device, int event)
{
    char text[DEVICE_TEXT] = "";
    WEIR_ASSERT(event >= 0 && event < WEIR_DEVICE_EVENTS);
    if (device->kind->event_record != NULL && !has_failed(device))
        record_failure(device, device->kind->event_record(device, event, text), text);
}

void weir_device_event_wait(weir_device *device, int event)
{
    char text[DEVICE_TEXT] = "";
    WEIR_ASSERT(event >= 0 && event < WEIR_DEVICE_EVENTS);
    if (device->kind->event_wait != NULL && !has_failed(device))
        record_failure(device, device->kind->event_wait(device, event, text), text);
}

void weir_device_finish(weir_device *device)
{
    char text[DEVICE_TEXT] = "";
    if (!has_failed(device)) record_failure(device, device->kind->finish(device, text), text);
}

void weir_device_begin(weir_device *device)
{
    (void)pthread_mutex_lock(&lock);
    if (device->kind->begin != NULL) device->kind->begin(device);
    (void)pthread_mutex_unlock(&lock);
}

void weir_device_end(weir_device *device)
{
    (void)pthread_mutex_lock(&lock);
    if (device->kind->end != NULL) device->kind->end(device);
    (void)pthread_mutex_unlock(&lock);
}

void weir_device_context(const weir_device *device, weir_kernel_context *context)
{
    context->omp_device = device->context.omp_device;
    context->cuda_stream = device->context.cuda_stream;
}
