#include "tests/bench/idle_blocks.h"

#include "engine/base/clock.h"
#include "tests/unit/model/idle_block.h"

/* The narrowest rows: pages are only counted, never touched. */
enum { ROW_DIM = 8 };

static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    (void)options;
    return idle_kv(shape, ROW_DIM, 1.0f);
}

static idle_time mixed, norms; /* of the thread that computes */

idle_time idle_norms(void) { return norms; }

idle_time idle_time_now(void)
{
    struct timespec cpu;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    return (idle_time){ weir_clock_ns(), (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec };
}

static weir_status mix(
    const weir_shape *shape, const void *options, const void *weights, const weir_step *step
)
{
    (void)shape, (void)options, (void)weights, (void)step;
    mixed = idle_time_now();
    return WEIR_OK;
}

static weir_status feed_forward(
    const weir_shape *shape, const void *options, const void *weights, const weir_step *step
)
{
    (void)shape, (void)options, (void)weights, (void)step;
    const idle_time now = idle_time_now();
    norms.clock_ns += 2 * (now.clock_ns - mixed.clock_ns);
    norms.cpu_ns += 2 * (now.cpu_ns - mixed.cpu_ns);
    return WEIR_OK;
}

const weir_block idle_mixer = {
    .name = "idle",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = idle_parameters,
    .shapes = idle_kv_shapes,
    .host_only = "it computes nothing",
    .kv = kv,
    .scratch_elements = idle_scratch_elements,
    .forward = mix,
};

const weir_block idle_ffn = {
    .name = "idle",
    .kind = WEIR_BLOCK_FFN,
    .parameters = idle_parameters,
    .shapes = idle_no_shapes,
    .scratch_elements = idle_scratch_elements,
    .forward = feed_forward,
};
