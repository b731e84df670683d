/* Sanitizers make long loops take minutes: in .ci/run they see a part of the turns, in .ci/nightly,
 * which sets WEIR_CASES=all, all of them, as tests without a sanitizer do. WEIR_CASES=part: as with
 * one. */
#pragma once
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/sanitizer.h"

namespace weir_test {

/* By how much a loop goes on: 1, or n with a sanitizer. */
inline int every_nth(int n)
{
    const char *const cases = std::getenv("WEIR_CASES");
    return (cases == nullptr ? has_sanitizer() : cases == std::string("part")) ? n : 1;
}

/* The first, and every n-th after it with a sanitizer. */
template <typename T> std::vector<T> every_nth(const std::vector<T> &all, int n)
{
    std::vector<T> some;
    for (std::size_t i = 0; i < all.size(); i += (std::size_t)every_nth(n)) some.push_back(all[i]);
    return some;
}
template <typename T> std::vector<T> every_nth(std::initializer_list<T> all, int n)
{
    return every_nth(std::vector<T>(all), n);
}

} // namespace weir_test
