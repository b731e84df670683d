// Phases, bulk copies and products of warpgroups: see async.h.
#include "kernels/cuda/emulate/async.h"

#include <cstring>
#include <map>
#include <vector>

namespace weir_emulate {
namespace {

constexpr int kMostThreads = 1024, kWarp = 32, kWarpsOfGroup = 4, kDepth = 16;

struct Phases {
    unsigned arrivals, missing;
    int64_t bytes; // announced and not arrived
    unsigned parity;
};
struct BulkCopy {
    char *shared;
    const void *global;
    size_t bytes;
    const uint64_t *phases;
};
struct Named {
    int threads, arrived;
    uint64_t n_passed;
};
struct Copy {
    char *shared;
    const void *global;
};
struct Thread {
    std::vector<Copy> copies; // since the last commit
    std::vector<std::vector<Copy>> groups_of_copies; // committed, oldest first
    bool is_fenced;
    std::vector<WarpgroupProduct> products; // since the last commit
    std::vector<std::vector<WarpgroupProduct>> groups; // committed, oldest first
};

std::map<const uint64_t *, Phases> all_phases;
std::vector<BulkCopy> copies;
std::map<int, Named> named;
std::vector<Thread> threads(kMostThreads);

Thread &own() { return threads[(size_t)thread_index()]; }

Phases &phases_at(const uint64_t *address)
{
    const auto found = all_phases.find(address);
    if (found == all_phases.end()) die("the phases at %p were not begun", (const void *)address);
    return found->second;
}

void end_if_complete(Phases &phases)
{
    if (phases.missing > 0 || phases.bytes != 0) return;
    phases.missing = phases.arrivals;
    phases.parity ^= 1;
}

double value_of(const Operand &operand, int row, int column, bool is_f16)
{
    const int piece = (operand.k * 2 + column / 8) ^ (row & 7);
    const char *const at =
        operand.rows + row / 8 * 1024 + row % 8 * 128 + piece * 16 + column % 8 * 2;
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return (double)(is_f16 ? half_value(bits) : bits_as<float>((uint32_t)bits << 16));
}

struct Lane {
    const WarpgroupProduct *product;
    int warp; // of the warpgroup
};

// The warp's 16 rows of a product, as emulate/tensor.h computes them.
void complete(void *const *lanes, unsigned mask)
{
    const auto &first = *static_cast<const Lane *>(lanes[0]);
    const WarpgroupProduct &p = *first.product;
    if (mask != 0xffffffffu) die("a product of a warpgroup needs whole warps");
    for (int i = 1; i < kWarp; i++) {
        const WarpgroupProduct &other = *static_cast<const Lane *>(lanes[i])->product;
        if (other.a.rows != p.a.rows || other.a.k != p.a.k || other.b.rows != p.b.rows ||
            other.b.k != p.b.k || other.columns != p.columns || other.keeps != p.keeps)
            die("lane %d has another product of the warpgroup", i);
    }
    static double a[kDepth], b[256][kDepth];
    for (int column = 0; column < p.columns; column++)
        for (int k = 0; k < kDepth; k++) b[column][k] = value_of(p.b, column, k, p.is_f16);
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < kDepth; k++) a[k] = value_of(p.a, first.warp * 16 + row, k, p.is_f16);
        for (int column = 0; column < p.columns; column++) {
            float &place = static_cast<const Lane *>(lanes[row % 8 * 4 + column % 8 / 2])
                               ->product->sums[column / 8 * 4 + row / 8 * 2 + column % 2];
            double sum = p.keeps ? (double)place : 0.0;
            for (int k = 0; k < kDepth; k++) sum += a[k] * b[column][k];
            place = (float)sum;
        }
    }
}

void check(const Operand &operand, int rows)
{
    if (reinterpret_cast<uintptr_t>(operand.rows) % 128 != 0 || operand.k < 0 || operand.k > 3)
        die("an operand of a warpgroup is misaligned");
    if (!is_shared(operand.rows, (size_t)rows * 128))
        die("an operand of a warpgroup is not in shared memory");
}

} // namespace

void copy16(void *shared, const void *global)
{
    if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16 != 0)
        die("a copy is not 16-byte aligned");
    if (!is_shared(shared, 16)) die("the target of a copy is not in shared memory");
    std::memset(shared, 0xFF, 16);
    own().copies.push_back({ static_cast<char *>(shared), global });
}

void commit_copies()
{
    own().groups_of_copies.push_back(std::move(own().copies));
    own().copies.clear();
}

void wait_for_copies(int n_left)
{
    auto &groups = own().groups_of_copies;
    const size_t n = groups.size() > (size_t)n_left ? groups.size() - (size_t)n_left : 0;
    for (size_t g = 0; g < n; g++)
        for (const Copy &copy : groups[g]) {
            if (copy.global)
                std::memcpy(copy.shared, copy.global, 16);
            else
                std::memset(copy.shared, 0, 16);
        }
    groups.erase(groups.begin(), groups.begin() + (ptrdiff_t)n);
}

void begin_phases(const uint64_t *address, unsigned arrivals)
{
    if (!is_shared(address, sizeof *address)) die("phases are not in shared memory");
    if (reinterpret_cast<uintptr_t>(address) % 8 != 0) die("phases are misaligned");
    all_phases[address] = { arrivals, arrivals, 0, 0 };
}

void arrive(const uint64_t *address, int64_t bytes)
{
    Phases &phases = phases_at(address);
    if (phases.missing == 0) die("the phase has all its arrivals");
    phases.bytes += bytes;
    phases.missing--;
    end_if_complete(phases);
}

void wait_for_phase(const uint64_t *address, unsigned parity, Site site)
{
    struct Wait {
        const Phases *phases;
        unsigned parity;
    } wait = { &phases_at(address), parity };
    wait_until(
        [](const void *arguments) {
            const auto *self = static_cast<const Wait *>(arguments);
            return self->phases->parity != self->parity;
        },
        &wait, site
    );
}

void copy_bulk(void *shared, const void *global, size_t bytes, const uint64_t *phases)
{
    if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global) | bytes) % 16 ||
        bytes == 0)
        die("a bulk copy is not of whole 16 bytes, aligned");
    if (!is_shared(shared, bytes)) die("the target of a bulk copy is not in shared memory");
    (void)phases_at(phases);
    std::memset(shared, 0xFF, bytes);
    copies.push_back({ static_cast<char *>(shared), global, bytes, phases });
}

bool deliver_copy(uint64_t random)
{
    if (copies.empty()) return false;
    const size_t i = random % copies.size();
    const BulkCopy copy = copies[i];
    copies.erase(copies.begin() + (ptrdiff_t)i);
    std::memcpy(copy.shared, copy.global, copy.bytes);
    Phases &phases = phases_at(copy.phases);
    phases.bytes -= (int64_t)copy.bytes;
    end_if_complete(phases);
    return true;
}

void barrier_of(int id, int n_threads, Site site)
{
    if (id < 0 || id > 15 || n_threads % kWarp != 0) die("no device has this barrier");
    Named &barrier = named[id];
    if (barrier.arrived == 0) barrier.threads = n_threads;
    if (barrier.threads != n_threads)
        die("barrier %d of %d threads is reached as one of %d", id, barrier.threads, n_threads);
    if (++barrier.arrived == n_threads) barrier.arrived = 0, barrier.n_passed++;
    struct Wait {
        const Named *barrier;
        uint64_t n_passed;
    } wait = { &barrier, barrier.n_passed };
    if (barrier.arrived == 0) return;
    wait_until(
        [](const void *arguments) {
            const auto *self = static_cast<const Wait *>(arguments);
            return self->barrier->n_passed != self->n_passed;
        },
        &wait, site
    );
}

void fence_products() { own().is_fenced = true; }

void multiply(const WarpgroupProduct &product)
{
    if (!own().is_fenced) die("a product of a warpgroup without a fence before it");
    check(product.a, 64);
    check(product.b, product.columns);
    own().products.push_back(product);
}

void commit_products()
{
    own().groups.push_back(std::move(own().products));
    own().products.clear();
}

void wait_for_products(int n_left, Site site)
{
    Thread &thread = own();
    thread.is_fenced = false;
    while (thread.groups.size() > (size_t)n_left) {
        for (const WarpgroupProduct &product : thread.groups.front()) {
            Lane lane = { &product, thread_index() / kWarp % kWarpsOfGroup };
            warp(0xffffffffu, complete, &lane, site);
        }
        thread.groups.erase(thread.groups.begin());
    }
}

void begin_async()
{
    all_phases.clear();
    named.clear();
}

void end_thread()
{
    Thread &thread = own();
    if (!thread.copies.empty() || !thread.groups_of_copies.empty())
        die("the thread ends with copies that it did not wait for");
    if (!thread.products.empty() || !thread.groups.empty())
        die("the thread ends with products that it did not wait for");
    thread.is_fenced = false;
}

void end_async()
{
    if (!copies.empty()) die("the block ends with bulk copies under way");
    for (const auto &[address, phases] : all_phases)
        if (phases.bytes != 0) die("a phase waits for bytes that nothing copies");
}

} // namespace weir_emulate
