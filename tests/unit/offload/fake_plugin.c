/* tests/unit/offload/fake_plugin.c - a plugin of another build, and (with FAKE_ABI) one that finds
 * no device. */
#include <stdio.h>
#include <string.h>

#include "offload/gpu_plugin.h"

static void probe(weir_gpu_probe *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->reason, sizeof out->reason, "the fake has no device");
}

const weir_gpu_plugin *weir_gpu_plugin_entry(void);
const weir_gpu_plugin *weir_gpu_plugin_entry(void)
{
    static const weir_gpu_plugin plugin = { .abi = FAKE_ABI, .name = "fake", .probe = probe };
    return &plugin;
}
