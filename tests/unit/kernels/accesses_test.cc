/* The checks of addresses that kernels call in builds with AddressSanitizer: the sanitizer's own is
 * asked about every access that it would report, and about none in the middle of a block. */
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/sanitizer.h"

extern "C" {
void *__asan_region_is_poisoned(void *begin, size_t n) __attribute__((weak));
}

namespace {
int n_asked;
}

/* The sanitizer's, which end the program. */
#define __asan_load1 asked_load1
#define __asan_load2 asked_load2
#define __asan_load4 asked_load4
#define __asan_load8 asked_load8
#define __asan_load16 asked_load16
#define __asan_loadN asked_loadN
#define __asan_store1 asked_store1
#define __asan_store2 asked_store2
#define __asan_store4 asked_store4
#define __asan_store8 asked_store8
#define __asan_store16 asked_store16
#define __asan_storeN asked_storeN
#define __asan_memcpy asked_memcpy
#define __asan_memmove asked_memmove
#define __asan_memset asked_memset

namespace {

#include "kernels/checks/accesses.c"

#define ASKED(name)                                                                                \
    void asked_##name(uintptr_t) { n_asked++; }
ASKED(load1)
ASKED(load2)
ASKED(load4)
ASKED(load8)
ASKED(load16)
ASKED(store1)
ASKED(store2)
ASKED(store4)
ASKED(store8)
ASKED(store16)
void asked_loadN(uintptr_t, size_t) { n_asked++; }
void asked_storeN(uintptr_t, size_t) { n_asked++; }
void *asked_memcpy(void *to, const void *from, size_t n)
{
    n_asked++;
    return memmove(to, from, n);
}
void *asked_memmove(void *to, const void *from, size_t n) { return asked_memcpy(to, from, n); }
void *asked_memset(void *to, int byte, size_t n)
{
    n_asked++;
    return memset(to, byte, n);
}

bool asks(const std::function<void()> &access)
{
    n_asked = 0;
    access();
    return n_asked > 0;
}

struct Access {
    size_t bytes;
    void (*check)(uintptr_t);
};
/* Each is aligned. */
const Access accesses[] = { { 1, weir_asan_load1 },   { 2, weir_asan_load2 },
                            { 4, weir_asan_load4 },   { 8, weir_asan_load8 },
                            { 16, weir_asan_load16 }, { 1, weir_asan_store1 },
                            { 2, weir_asan_store2 },  { 4, weir_asan_store4 },
                            { 8, weir_asan_store8 },  { 16, weir_asan_store16 } };

constexpr uintptr_t around = 16;
constexpr size_t most = 72; /* wider than a register */

/* All accesses from before the block to behind it. */
void expect_asked(char *block, size_t size)
{
    const uintptr_t begin = (uintptr_t)block;
    for (uintptr_t at = begin - around; at < begin + size + around; at++) {
        const auto is_bad = [&](size_t n) {
            return __asan_region_is_poisoned((void *)at, n) != nullptr;
        };
        for (size_t n = 1; n <= most; n++)
            if (is_bad(n)) {
                ASSERT_TRUE(asks([&] { weir_asan_loadN(at, n); })) << size << ' ' << n;
                ASSERT_TRUE(asks([&] { weir_asan_storeN(at, n); })) << size << ' ' << n;
            }
        for (const Access &access : accesses)
            if (at % std::min<size_t>(access.bytes, 8) == 0 && is_bad(access.bytes))
                ASSERT_TRUE(asks([&] { access.check(at); })) << size << ' ' << access.bytes;
    }
}

TEST(Accesses, TheSanitizerIsAskedAboutEachThatItWouldReport)
{
    if (!weir_test::has_address_sanitizer()) return;
    for (size_t size = 1; size <= 2 * most; size++) {
        char *const block = (char *)malloc(size);
        expect_asked(block, size);
        free(block);
        expect_asked(block, size);
    }
}

TEST(Accesses, TheSanitizerIsNotAskedAboutTheMiddleOfABlock)
{
    if (!weir_test::has_address_sanitizer()) return;
    char *const block = (char *)malloc(4096);
    const uintptr_t middle = (uintptr_t)block + 2048;
    for (uintptr_t at = middle; at < middle + 64; at++)
        for (size_t n = 1; n <= 64; n++) {
            EXPECT_FALSE(asks([&] { weir_asan_loadN(at, n); })) << n;
            EXPECT_FALSE(asks([&] { weir_asan_storeN(at, n); })) << n;
        }
    for (const Access &access : accesses)
        EXPECT_FALSE(asks([&] { access.check(middle); })) << access.bytes;
    free(block);
}

TEST(Accesses, WhatIsWiderThanARegisterOrACallOfLibcIsAskedAbout)
{
    if (!weir_test::has_address_sanitizer()) return;
    char block[4096] = "text", copy[8];
    EXPECT_TRUE(asks([&] { weir_asan_loadN((uintptr_t)block + 2048, 65); }));
    EXPECT_TRUE(asks([&] { weir_asan_memcpy(copy, block, 5); }));
    EXPECT_STREQ(copy, "text");
    EXPECT_TRUE(asks([&] { weir_asan_memmove(copy + 1, copy, 5); }));
    EXPECT_STREQ(copy, "ttext");
    EXPECT_TRUE(asks([&] { weir_asan_memset(copy, 'a', 3); }));
    EXPECT_STREQ(copy, "aaaxt");
}

} // namespace
