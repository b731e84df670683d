#include "tests/bench/idle_blocks.h"

#include "engine/base/clock.h"

/* The narrowest rows: pages are only counted, never touched. */
enum { ROW_DIM = 8 };

static const weir_slot slots[] = { { 0 } };
static const char *const shapes[] = { "n_kv_heads", NULL };
static const char *const no_shapes[] = { NULL };

static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    (void)options;
    return (weir_block_kv
    ){ .geometry = { .n_heads = shape->n_kv_heads, .key_dim = ROW_DIM, .value_dim = ROW_DIM },
       .scale = 1.0f,
       .n_queries = shape->n_kv_heads,
       .watched = true };
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)shape, (void)options, (void)n_rows, (void)n_segments;
    return 0;
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
    .slots = slots,
    .shapes = shapes,
    .host_only = "it computes nothing",
    .kv = kv,
    .scratch_elements = scratch_elements,
    .forward = mix,
};

const weir_block idle_ffn = {
    .name = "idle",
    .kind = WEIR_BLOCK_FFN,
    .slots = slots,
    .shapes = no_shapes,
    .scratch_elements = scratch_elements,
    .forward = feed_forward,
};
