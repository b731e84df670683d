// Memory with guards, fills, and the comparison of two builds of a case.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/kernel/cases.h"

namespace weir_test {
namespace {

constexpr size_t kGuard = 256, kFence = 4096; // before and after an array
constexpr uint8_t kPattern = 0xA5; // as f32 about -2.9e-16, as a pointer not canonical

uint64_t hash(const std::string &text)
{
    uint64_t h = 1469598103934665603u;
    for (const char c : text) h = (h ^ (uint8_t)c) * 1099511628211u;
    return h;
}

double element(const Builder::Region &region, size_t i)
{
    if (region.dtype == WEIR_U8) return (double)static_cast<const uint8_t *>(region.data)[i];
    return (double)static_cast<const float *>(region.data)[i];
}

bool agrees(double x, double reference, double atol, double rtol)
{
    if (std::isnan(reference)) return std::isnan(x);
    if (std::isinf(reference)) return x == reference;
    return std::fabs(x - reference) <= atol + rtol * std::fabs(reference);
}

}  // namespace

const Allocator &host_allocator()
{
    static const Allocator allocator = { [](size_t n) {
                                            return std::aligned_alloc(64, (n + 63) / 64 * 64);
                                        },
                                         [](void *p, size_t) { std::free(p); } };
    return allocator;
}

const Allocator &fenced_allocator()
{
    static const Allocator allocator = {
        [](size_t n) {
            char *const memory = static_cast<char *>(mmap(
                nullptr, n + kFence, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
            ));
            if (memory == MAP_FAILED || mprotect(memory + n, kFence, PROT_NONE) != 0) std::abort();
            return memory;
        },
        [](void *memory, size_t n) { (void)munmap(memory, n + kFence); }, true
    };
    return allocator;
}

Builder::Builder(const std::string &seed, const Allocator &allocator)
    : allocator_(allocator), rng_(hash(seed))
{
}

Builder::~Builder()
{
    for (const auto &ending : endings_) ending();
    for (const auto &block : blocks_) allocator_.give(block.base, block.size);
}

void *Builder::bytes(size_t n, size_t misaligned)
{
    Block block = { nullptr, 2 * kGuard + n + misaligned, kGuard + misaligned, n };
    if (allocator_.is_fenced) {
        const size_t past = misaligned > 0 ? (64 - (misaligned + n) % 64) % 64 : 0;
        block.size = (kGuard + n + past + kFence - 1) / kFence * kFence;
        block.offset = block.size - past - n;
    }
    block.base = static_cast<char *>(allocator_.take(block.size));
    if (!block.base) std::abort();
    std::memset(block.base, kPattern, block.size);
    blocks_.push_back(block);
    return block.base + block.offset;
}

float *Builder::input(size_t n, Fill fill, float scale)
{
    float *data = array<float>(n);
    for (size_t i = 0; i < n; i++) {
        const Fill kind = fill == Fill::Mixed ? (Fill)(i % 4) : fill;
        data[i] = kind == Fill::Zero ? (i % 2 ? 0.0f : -0.0f)
                                     : normal() * scale *
                                           (kind == Fill::Large  ? 1e4f
                                            : kind == Fill::Tiny ? 1e-20f
                                                                 : 1.0f);
    }
    return data;
}

float *Builder::output(size_t n)
{
    float *data = array<float>(n);
    compare(data, n, WEIR_F32);
    return data;
}

float *Builder::inout(size_t n, Fill fill, float scale)
{
    float *data = input(n, fill, scale);
    compare(data, n, WEIR_F32);
    return data;
}

void Builder::compare(void *data, size_t n, weir_dtype dtype)
{
    regions_.push_back({ data, n, dtype });
}

bool Builder::guards_intact() const
{
    const auto is_pattern = [](char c) { return (uint8_t)c == kPattern; };
    for (const auto &block : blocks_) {
        const char *const begin = block.base + block.offset, *const end = begin + block.n;
        if (!std::all_of((const char *)block.base, begin, is_pattern) ||
            !std::all_of(end, (const char *)block.base + block.size, is_pattern))
            return false;
    }
    return true;
}

std::string difference(const Builder &reference, const Builder &other, double atol, double rtol)
{
    if (reference.regions().size() != other.regions().size())
        return "the two builds have different outputs";
    for (size_t r = 0; r < reference.regions().size(); r++) {
        const auto &a = reference.regions()[r], &b = other.regions()[r];
        size_t bad = 0, worst = 0;
        double most = -1;
        if (std::memcmp(a.data, b.data, a.n * (a.dtype == WEIR_U8 ? 1 : sizeof(float))) == 0)
            continue;
        for (size_t i = 0; i < a.n; i++) {
            const double want = element(a, i), got = element(b, i);
            if (agrees(got, want, atol, rtol)) continue;
            const double error = std::isfinite(got - want) ? std::fabs(got - want) : INFINITY;
            if (error > most) most = error, worst = i;
            bad++;
        }
        if (bad > 0) {
            char text[200];
            std::snprintf(
                text, sizeof text,
                "output %zu: %zu of %zu differ, worst at %zu: %.9g, expected %.9g", r, bad, a.n,
                worst, element(b, worst), element(a, worst)
            );
            return text;
        }
    }
    return "";
}

}  // namespace weir_test
