/* offload/device_gpu.c - a GPU as a device: calls the plugin and reports its failures. */
#include <stdio.h>
#include <string.h>

#include "offload/device_internal.h"
#include "offload/gpu_loader.h"

_Static_assert((int)WEIR_GPU_EVENTS == (int)WEIR_DEVICE_EVENTS, "the plugin has them all");

static const weir_gpu_plugin *plugin_of(const weir_device *device) { return device->plugin; }

static void *alloc_kind(weir_device *device, weir_gpu_memory kind, size_t bytes)
{
    void *memory = NULL;
    char text[DEVICE_TEXT] = "";
    if (plugin_of(device)->alloc(&memory, device->number, kind, bytes, text, sizeof text) ==
        WEIR_EDEVICE)
        weir_device_fail(device, text);
    return memory;
}

static bool clear(weir_device *device, void *memory, size_t bytes, char text[DEVICE_TEXT])
{
    return plugin_of(device)->clear(device->number, memory, bytes, text, DEVICE_TEXT) == WEIR_OK;
}

static bool finish(weir_device *device, char text[DEVICE_TEXT])
{
    return plugin_of(device)->synchronize(device->number, text, DEVICE_TEXT) == WEIR_OK;
}

/* Cleared on return, for copies that are not ordered with kernels. */
static void *alloc_block(weir_device *device, size_t bytes)
{
    char text[DEVICE_TEXT] = "";
    void *const memory = alloc_kind(device, WEIR_GPU_MEMORY_DEVICE, bytes);
    if (memory == NULL || (clear(device, memory, bytes, text) && finish(device, text)))
        return memory;
    weir_device_fail(device, text);
    return NULL;
}

static void free_block(weir_device *device, void *memory, size_t bytes)
{
    (void)bytes;
    plugin_of(device)->free(device->number, WEIR_GPU_MEMORY_DEVICE, memory);
}

static void *alloc_unified(weir_device *device, size_t bytes)
{
    return alloc_kind(device, WEIR_GPU_MEMORY_UNIFIED, bytes);
}

static void free_unified(weir_device *device, void *memory, size_t bytes)
{
    (void)bytes;
    plugin_of(device)->free(device->number, WEIR_GPU_MEMORY_UNIFIED, memory);
}

static bool copy(
    weir_device *device, void *dst, const void *src, size_t bytes, char text[DEVICE_TEXT]
)
{
    return plugin_of(device)->copy(device->number, dst, src, bytes, text, DEVICE_TEXT) == WEIR_OK;
}

static bool queue_copy(
    weir_device *device, void *dst, const void *src, size_t bytes, char text[DEVICE_TEXT]
)
{
    return plugin_of(device)->queue_copy(device->number, dst, src, bytes, text, DEVICE_TEXT) ==
           WEIR_OK;
}

static bool copy_async(
    weir_device *device, void *dst, const void *src, size_t bytes, char text[DEVICE_TEXT]
)
{
    return plugin_of(device)->copy_async(device->number, dst, src, bytes, text, DEVICE_TEXT) ==
           WEIR_OK;
}

static bool event_record(weir_device *device, int number, char text[DEVICE_TEXT])
{
    return plugin_of(device)->event_record(device->number, number, text, DEVICE_TEXT) == WEIR_OK;
}

static bool event_wait(weir_device *device, int number, char text[DEVICE_TEXT])
{
    return plugin_of(device)->event_wait(device->number, number, text, DEVICE_TEXT) == WEIR_OK;
}

/* A thread's device is 0 until it is set. */
static void begin(weir_device *device) { plugin_of(device)->enter(device->number); }

static void close_gpu(weir_device *device) { plugin_of(device)->close(device->number); }

bool weir_device_open_gpu(weir_device *device, int number, char *why, size_t why_bytes)
{
    static const device_kind kind = { .alloc = alloc_block,
                                      .free = free_block,
                                      .alloc_unified = alloc_unified,
                                      .free_unified = free_unified,
                                      .copy = copy,
                                      .queue_copy = queue_copy,
                                      .copy_async = copy_async,
                                      .event_record = event_record,
                                      .event_wait = event_wait,
                                      .clear = clear,
                                      .finish = finish,
                                      .begin = begin,
                                      .close = close_gpu };
    weir_gpu gpu;
    weir_error error = { 0 };
    char text[DEVICE_TEXT] = "";
    if (weir_gpu_open(&gpu, NULL, &error) != WEIR_OK) {
        (void)snprintf(why, why_bytes, "%s", error.text);
        return false;
    }
    if (number >= gpu.probe.n_devices) {
        (void)snprintf(
            why, why_bytes, "there is no GPU %d: this machine has %d", number,
            (int)gpu.probe.n_devices
        );
        return false;
    }
    if (gpu.plugin->open(number, &device->context, &device->memory_bytes, text, sizeof text) !=
        WEIR_OK) {
        (void)snprintf(why, why_bytes, "GPU %d cannot be used: %s", number, text);
        return false;
    }
    device->kind = &kind;
    device->plugin = gpu.plugin;
    device->number = number;
    device->capability = gpu.probe.devices[number].capability;
    device->kernels = gpu.plugin->kernels(&device->n_kernels);
    (void)snprintf(device->title, sizeof device->title, "%.63s", gpu.probe.devices[number].name);
    return true;
}
