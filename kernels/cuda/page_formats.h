/* kernels/cuda/page_formats.h - how attention reads pages: a PageFormat for each format that the
 * table marks READ or BOTH (kernels/abi/kv_format.h), from kernels/kv/SCHEME/cuda.h. */
#pragma once
#include "kernels/cuda/attention_parts.h"

namespace weir_cuda_attention {

template <bool IS_BF16> struct PartsOf {
    typedef PartsF16 Parts;
};
template <> struct PartsOf<true> {
    typedef PartsBf16 Parts;
};

/* Members: Parts: the type that tensor cores multiply; kIsCoded: codes are expanded to 16 bits
 * first; kHasCodebook: codes are indices of centroids; kBits: bits of a code; kPlanes: number of
 * 16-bit values of one code. */
template <weir_kv_scheme, weir_kv_format, int BITS> struct SchemePages;
#include "kernels/kv/block/cuda.h"
#include "kernels/kv/plain/cuda.h"
#include "kernels/kv/turbo/cuda.h"

template <weir_kv_format> struct PageFormat;
#define PAGES_NONE(name, bits, scheme)
#define PAGES_WRITE(name, bits, scheme)
#define PAGES_READ(name, bits, scheme)                                                             \
    template <>                                                                                    \
    struct PageFormat<WEIR_KV_##name> : SchemePages<WEIR_KV_##scheme, WEIR_KV_##name, bits> {};
#define PAGES_BOTH(name, bits, scheme) PAGES_READ(name, bits, scheme)
#define X(name, text, bits, scheme, attention, cuda) PAGES_##cuda(name, bits, scheme)
WEIR_KV_FORMAT_MAP(X)
#undef X
#undef PAGES_NONE
#undef PAGES_WRITE
#undef PAGES_READ
#undef PAGES_BOTH

} // namespace weir_cuda_attention
