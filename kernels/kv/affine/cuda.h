/* kernels/kv/affine/cuda.h - CUDA's kernels neither read nor write int8 and kivi. */
