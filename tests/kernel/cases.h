/* tests/kernel/cases.h - arguments for every op, built the same way for the parity test, the
 * benches and the GPU check.
 *
 * A case is a recipe: built twice with the same name it gives the same inputs in other memory, so
 * that one kernel's work can be compared with another's. Every array lies between guards, and gaps
 * between strides hold a pattern: writes outside show. */
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/abi/ops.h"
#include "tests/normal.h"

namespace weir_test {

// Where arrays live: the host's memory, or memory that a device can reach too.
struct Allocator {
    std::function<void *(size_t)> take;
    std::function<void(void *, size_t)> give;
    // A page that cannot be read or written follows each array, which is aligned to 64 bytes only
    // if its size is.
    bool is_fenced = false;
};
const Allocator &host_allocator();
const Allocator &fenced_allocator();

enum class Fill { Normal, Zero, Large, Tiny, Mixed };

// The memory and the random numbers of one case.
class Builder {
  public:
    explicit Builder(const std::string &seed, const Allocator &allocator = host_allocator());
    ~Builder();
    Builder(const Builder &) = delete;
    Builder &operator=(const Builder &) = delete;

    // Arrays start 64-byte aligned plus `misaligned` bytes; contents are the guard pattern.
    void *bytes(size_t n, size_t misaligned = 0);
    template <class T> T *array(size_t n) { return static_cast<T *>(bytes(n * sizeof(T))); }
    template <class T> T *one() { return new (bytes(sizeof(T))) T{}; }
    float *input(size_t n, Fill fill = Fill::Normal, float scale = 1); // read only
    float *output(size_t n); // written: compared, gaps included
    float *inout(size_t n, Fill fill = Fill::Normal, float scale = 1); // read and written
    void compare(
        void *data, size_t n,
        weir_dtype dtype
    ); // f32 elements or bytes (u8) that a kernel writes

    float normal() { return normal_(rng_); }
    uint32_t below(uint32_t n) { return (uint32_t)(rng_() % n); }

    // Deleters for what is owned besides arrays (packed weights).
    void at_end(std::function<void()> action) { endings_.push_back(std::move(action)); }

    struct Region {
        void *data;
        size_t n;
        weir_dtype dtype;
    };
    const std::vector<Region> &regions() const { return regions_; }
    bool guards_intact() const;

  private:
    struct Block {
        char *base;
        size_t size, offset, n; // `size` without the fence
    };
    Allocator allocator_;
    std::mt19937_64 rng_;
    Normal normal_;
    std::vector<Block> blocks_;
    std::vector<Region> regions_;
    std::vector<std::function<void()>> endings_;
};

struct Work { // of one call, for the benches: what must be moved and computed at least
    double bytes = 0, flops = 0;
};

struct Case {
    std::string name;
    std::function<const void *(Builder &, bool specification)>
        build; // specification: the arguments for ref, where layouts differ
    Work work;
};

// Random, edge and aliased shapes; and the shapes of a 0.8B hybrid model at decode and prefill. Of
// matmul those with the layout of GPUs; for the others see matmul_cases.h.
std::vector<Case> parity_cases(weir_op op);
std::vector<Case> bench_cases(weir_op op);

// Empty when the regions agree to atol + rtol * |reference|, else where the first of them differs
// most.
std::string difference(const Builder &reference, const Builder &other, double atol, double rtol);

} // namespace weir_test
