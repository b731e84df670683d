/* kernels/cuda/page_formats.h - how attention reads pages: a PageFormat for each format that the
 * table marks READ or BOTH (kernels/abi/kv_format.h). */
#pragma once
#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/kv_schemes.h"

namespace weir_cuda_attention {

template <bool IS_BF16> struct PartsOf {
    typedef PartsF16 Parts;
};
template <> struct PartsOf<true> {
    typedef PartsBf16 Parts;
};

/* SchemePages, with Parts: the type that tensor cores multiply. */
template <weir_kv_format> struct PageFormat;
#define PAGES_NONE(name, bits, scheme)
#define PAGES_WRITE(name, bits, scheme)
#define PAGES_READ(name, bits, scheme)                                                             \
    template <>                                                                                    \
    struct PageFormat<WEIR_KV_##name>                                                              \
        : weir_cuda::SchemePages<WEIR_KV_##scheme, WEIR_KV_##name, bits> {                         \
        typedef typename PartsOf<kIsBf16>::Parts Parts;                                            \
    };
#define PAGES_BOTH(name, bits, scheme) PAGES_READ(name, bits, scheme)
#define X(name, text, bits, scheme, coded, attention, device, cuda) PAGES_##cuda(name, bits, scheme)
WEIR_KV_FORMAT_MAP(X)
#undef X
#undef PAGES_NONE
#undef PAGES_WRITE
#undef PAGES_READ
#undef PAGES_BOTH

} // namespace weir_cuda_attention
