/* What kernels call before they read or write memory, in builds with AddressSanitizer: the same
 * check as the sanitizer's own function for each, which is asked when this one finds anything that
 * is not plain memory. Its function for vectors took half the time of tests. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

/* A byte of shadow for 8 of memory: 0 if all may be used, and not if less of them may. */
#define SHADOW_SHIFT 3
#define SHADOW_OFFSET 0x7fff8000u /* of Linux on x86-64 */

typedef uint64_t weir_unaligned_64 __attribute__((aligned(1), may_alias));
typedef uint32_t weir_unaligned_32 __attribute__((aligned(1), may_alias));
typedef uint16_t weir_unaligned_16 __attribute__((aligned(1), may_alias));

#define SHADOW(type, address)                                                                      \
    (*(const type *)(((uintptr_t)(address) >> SHADOW_SHIFT) + SHADOW_OFFSET))

/* n bytes are in at most one more than n / 8 groups of 8: the last byte's is looked at, too. Wider
 * looks than n needs only find more. */
UNCHECKED static inline int is_plain(uintptr_t address, size_t n)
{
    if (SHADOW(uint8_t, address + n - 1) != 0) return 0;
    if (n <= 16) return SHADOW(weir_unaligned_16, address) == 0;
    if (n <= 32) return SHADOW(weir_unaligned_32, address) == 0;
    return n <= 64 && SHADOW(weir_unaligned_64, address) == 0;
}

/* The last call of each: the sanitizer reports the place that it returns to. */
#define ACCESS(access)                                                                             \
    void __asan_##access##N(uintptr_t address, size_t n);                                          \
    void weir_asan_##access##N(uintptr_t address, size_t n);                                       \
    UNCHECKED void weir_asan_##access##N(uintptr_t address, size_t n)                              \
    {                                                                                              \
        if (n == 0 || !is_plain(address, n)) __asan_##access##N(address, n);                       \
    }
ACCESS(load)
ACCESS(store)

#define ACCESS_OF(access, bytes, shadow)                                                           \
    void __asan_##access##bytes(uintptr_t address);                                                \
    void weir_asan_##access##bytes(uintptr_t address);                                             \
    UNCHECKED void weir_asan_##access##bytes(uintptr_t address)                                    \
    {                                                                                              \
        if (SHADOW(shadow, address) != 0) __asan_##access##bytes(address);                         \
    }
#define ACCESSES_OF(bytes, shadow) ACCESS_OF(load, bytes, shadow) ACCESS_OF(store, bytes, shadow)
ACCESSES_OF(1, uint8_t)
ACCESSES_OF(2, uint8_t)
ACCESSES_OF(4, uint8_t)
ACCESSES_OF(8, uint8_t)
ACCESSES_OF(16, weir_unaligned_16)

void *__asan_memcpy(void *to, const void *from, size_t n);
void *__asan_memmove(void *to, const void *from, size_t n);
void *__asan_memset(void *to, int byte, size_t n);
void *weir_asan_memcpy(void *to, const void *from, size_t n);
void *weir_asan_memmove(void *to, const void *from, size_t n);
void *weir_asan_memset(void *to, int byte, size_t n);

UNCHECKED void *weir_asan_memcpy(void *to, const void *from, size_t n)
{
    return __asan_memcpy(to, from, n);
}
UNCHECKED void *weir_asan_memmove(void *to, const void *from, size_t n)
{
    return __asan_memmove(to, from, n);
}
UNCHECKED void *weir_asan_memset(void *to, int byte, size_t n)
{
    return __asan_memset(to, byte, n);
}
