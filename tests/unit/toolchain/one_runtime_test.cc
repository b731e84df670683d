// One OpenMP runtime in the process: libdnnl asks for libgomp, libomp must answer for both. Two
// pools would halve the speed of mixed steps, and a half-bound process numbers its threads wrongly
// without a warning.
#include <dlfcn.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

std::string library_of(const char *symbol)
{
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, symbol);
    return address && dladdr(address, &info) ? info.dli_fname : std::string("(none)");
}

TEST(OneRuntime, EveryEntryPointComesFromOneLibrary)
{
    ASSERT_NE(dnnl_version(), nullptr); /* libdnnl is really linked */
    const std::string runtime = library_of("__kmpc_fork_call");
    EXPECT_NE(runtime, "(none)");
    for (const char *symbol : { "GOMP_parallel", "GOMP_barrier", "omp_get_thread_num",
                                "omp_get_num_threads", "omp_get_max_threads" })
        EXPECT_EQ(library_of(symbol), runtime) << symbol;
}

TEST(OneRuntime, ThreadsAreNumberedFromZeroWithoutGaps)
{
    const int n = 4;
    std::vector<int> seen(n, 0);
#pragma omp parallel num_threads(n)
    {
#pragma omp atomic
        seen[(size_t)omp_get_thread_num() % n]++;
    }
    EXPECT_EQ(seen, std::vector<int>(n, 1));
}

} // namespace
