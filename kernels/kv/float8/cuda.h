/* kernels/kv/float8/cuda.h - CUDA's kernels neither read nor write fp8. */
