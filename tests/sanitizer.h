/* Whether this program runs with a sanitizer. Tests in C++ are the same objects with
 * AddressSanitizer as without (.bazelrc), so the compiler cannot say it. */
#pragma once

extern "C" {
void __asan_init(void) __attribute__((weak));
void __tsan_init(void) __attribute__((weak));
}

namespace weir_test {

inline bool has_address_sanitizer() { return __asan_init != nullptr; }
inline bool has_sanitizer() { return has_address_sanitizer() || __tsan_init != nullptr; }

} // namespace weir_test
