/* tools/report/assumptions.c - the assumptions of the engine and of the seed analysis, and the
 * devices. */
#include "tools/report/report.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MIB(n) ((int64_t)(n) << 20)
#define GIB(n) ((int64_t)(n) << 30)

/* Memory is what the driver reports as total (nvidia-smi, rocm-smi), not that of the name: an L4
 * has 22.5 GiB with ECC on. Peaks are dense: half of a data sheet's "with sparsity". GeForce cards
 * multiply f16 at half rate when they sum in f32, the figure used. */
static const weir_report_gpu gpus[] = {
    { "RTX 5080", MIB(16303), 960e9, 112.6e12, "NVIDIA RTX Blackwell architecture paper" },
    { "RTX 3090", MIB(24576), 936e9, 71e12, "NVIDIA GA102 architecture paper" },
    { "RTX 4090", MIB(24564), 1008e9, 165.2e12, "NVIDIA Ada architecture paper" },
    { "L4", MIB(23034), 300e9, 121e12, "NVIDIA L4 data sheet: 242 with sparsity" },
    { "RTX 5090", MIB(32607), 1792e9, 209.5e12, "NVIDIA RTX Blackwell architecture paper" },
    { "A100 40GB", MIB(40960), 1555e9, 312e12, "NVIDIA A100 data sheet" },
    { "L40S", MIB(46068), 864e9, 362e12, "NVIDIA L40S data sheet: 733 with sparsity" },
    { "A100 80GB", MIB(81920), 2039e9, 312e12, "NVIDIA A100 data sheet" },
    { "H100 SXM", MIB(81559), 3350e9, 989.4e12,
      "NVIDIA H100 architecture paper: 1979 with sparsity" },
    { "H200 SXM", MIB(143771), 4800e9, 989.4e12, "NVIDIA H200 data sheet: 1979 with sparsity" },
    { "B200", MIB(183359), 8000e9, 2250e12,
      "NVIDIA DGX B200 data sheet, an eighth: 4500 with sparsity" },
    { "MI300X", MIB(196592), 5300e9, 1307.4e12, "AMD Instinct MI300X data sheet" },
};

const weir_report_assumptions weir_report_engine = {
    .name = "engine",
    .page_tokens = 64,
    .context_step = 64,
    .chunk = 512,
    .reserve = GIB(1),
    .weight_elements = 1,
    .weight_block = 2,
    .weight_format = "bf16",
    .reference = { "H100 SXM", MIB(81559), 3350e9, 989.4e12,
                   "NVIDIA H100 architecture paper: 1979 with sparsity" },
    .gpus = gpus,
    .n_gpus = COUNT(gpus),
};

static const weir_report_gpu seed_gpus[] = {
    { .name = "24 GB", .memory = GIB(24), .source = "seed" },
    { .name = "40 GB", .memory = GIB(40), .source = "seed" },
    { .name = "80 GB", .memory = GIB(80), .source = "seed" },
    { .name = "96 GB", .memory = GIB(96), .source = "seed" },
};

const weir_report_assumptions weir_report_seed = {
    .name = "seed",
    .page_tokens = 16,
    .context_step = 1,
    .chunk = 512,
    .weight_elements = 1,
    .weight_block = 2,
    .weight_format = "f16",
    .weights_as_activations = 2,
    .every_head_keeps_kv = true,
    .narrow_ffn = true,
    .one_scale = true,
    .reference = { "H100 (sparse peak)", GIB(80), 3350e9, 1970e12, "seed" },
    .gpus = seed_gpus,
    .n_gpus = COUNT(seed_gpus),
};
