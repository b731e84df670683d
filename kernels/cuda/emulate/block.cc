// Fibers, their scheduler, and what they wait for: see block.h.
#include "kernels/cuda/emulate/block.h"

#include "kernels/cuda/emulate/async.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define FORGET_FRAMES(base, bytes) __asan_unpoison_memory_region(base, bytes)
#endif
#endif
#ifndef FORGET_FRAMES
#define FORGET_FRAMES(base, bytes) (void)0
#endif

// What linkers say of the section of __shared__ variables; weak: a program may have none.
extern "C" __attribute__((weak, visibility("hidden"))) char __start_weir_shared[],
    __stop_weir_shared[];

// Keeps the callee-saved registers on the stack that it leaves, and takes them from the one that it
// enters.
extern "C" void weir_emulate_switch(void **leave, void *enter);
__asm__(R"(
.text
.type weir_emulate_switch,@function
weir_emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size weir_emulate_switch,.-weir_emulate_switch
)");

namespace weir_emulate {
namespace {

constexpr size_t kStack = 256 << 10, kPage = 4096, kStaticShared = 48 << 10, kBeyond = 1024;
constexpr int kMostThreads = 1024, kWarp = 32;

enum class State { Ready, AtBarrier, InWarp, Waiting, Done };

struct Fiber {
    char *stack = nullptr; // its lowest byte
    void *pointer = nullptr;
    uint3 thread = {};
    State state = State::Done;
    unsigned mask = 0; // InWarp
    WarpOperation operation = nullptr;
    void *arguments = nullptr;
    bool (*is_over)(const void *) = nullptr; // Waiting
    const void *wait = nullptr;
    Site site = {};
    bool has_waited = false; // for the kernel before
};

struct Warp { // bits of lanes
    unsigned there, left, waiting;
};

struct Block {
    std::vector<Fiber> fibers = std::vector<Fiber>(kMostThreads);
    std::vector<Warp> warps = std::vector<Warp>(kMostThreads / kWarp);
    int n = 0, running = -1, n_done = 0, n_at_barrier = 0, sum = 0, result = 0;
    void *scheduler = nullptr;
    ThreadBody body = nullptr;
    const void *launch = nullptr;
    std::vector<char> memory;
    char *dynamic = nullptr;
    size_t dynamic_bytes = 0;
    uint64_t random = 1;
};

Block block;
int error;
std::map<const void *, int> allowed;

Fiber &self() { return block.fibers[(size_t)block.running]; }

uint64_t next_random()
{
    block.random ^= block.random << 13, block.random ^= block.random >> 7,
        block.random ^= block.random << 17;
    return block.random;
}

// Visits 0 .. n - 1 in a scrambled order. Of threads n is small: divisions take less time then.
template <class Count, class Visit> void scrambled(Count n, Visit visit)
{
    Count at = (Count)(next_random() % n), step = 1 + (Count)(next_random() % n);
    while (std::gcd(step, n) != 1) step++;
    step %= n; // n 1: 0
    for (Count i = 0; i < n; i++) {
        visit(at);
        at += step;
        if (at >= n) at -= n;
    }
}

void enter(int index)
{
    block.running = index;
    place.thread = self().thread;
    weir_emulate_switch(&block.scheduler, self().pointer);
}

void wait() { weir_emulate_switch(&self().pointer, block.scheduler); }

bool same(Site a, Site b)
{
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

void fiber_main()
{
    block.body(block.launch);
    Fiber &fiber = self();
    if (!fiber.has_waited) die("the thread ends and has not waited for the kernel before");
    end_thread();
    if (block.n_at_barrier > 0) die("the thread ends while others wait at a barrier");
    const int first = block.running / kWarp * kWarp;
    for (int i = first; i < std::min(first + kWarp, block.n); i++)
        if (block.fibers[(size_t)i].state == State::InWarp &&
            block.fibers[(size_t)i].mask >> (block.running - first) & 1)
            die("the thread ends while lane %d waits for it at %s:%d", i - first,
                block.fibers[(size_t)i].site.file, block.fibers[(size_t)i].site.line);
    fiber.state = State::Done;
    block.warps[(size_t)(block.running / kWarp)].left |= 1u << block.running % kWarp;
    block.n_done++;
    wait();
    std::abort();
}

void prepare(int index)
{
    Fiber &fiber = block.fibers[(size_t)index];
    if (!fiber.stack) {
        void *memory = mmap(
            nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            -1, 0
        );
        if (memory == MAP_FAILED || mprotect(memory, kPage, PROT_NONE) != 0)
            die("no memory for stacks");
        fiber.stack = static_cast<char *>(memory);
    }
    FORGET_FRAMES(fiber.stack + kPage, kStack - kPage);
    auto **top = reinterpret_cast<void **>(fiber.stack + kStack);
    *--top = nullptr; // the caller's address: a function begins 8 bytes past a multiple of 16
    *--top = reinterpret_cast<void *>(fiber_main);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    const auto x = (unsigned)index, width = place.block_shape.x, height = place.block_shape.y;
    fiber.pointer = top;
    fiber.thread = { x % width, x / width % height, x / width / height };
    fiber.state = State::Ready;
    fiber.has_waited = false;
}

// Every thread that can go on, of the warps whose bits are set, until it waits; whether there was
// one.
bool run_round(uint32_t awake)
{
    bool moved = false;
    scrambled((unsigned)block.n, [&](unsigned i) {
        if (!(awake >> i / kWarp & 1)) return;
        Fiber &fiber = block.fibers[i];
        if (fiber.state == State::Waiting && fiber.is_over(fiber.wait)) fiber.state = State::Ready;
        if (fiber.state == State::Ready) enter((int)i), moved = true;
    });
    return moved;
}

void run_block()
{
    if (__start_weir_shared != __stop_weir_shared)
        std::memset(__start_weir_shared, 0xFF, (size_t)(__stop_weir_shared - __start_weir_shared));
    std::fill(block.memory.begin(), block.memory.end(), (char)0xFF);
    block.n_done = block.n_at_barrier = block.sum = 0;
    begin_async();
    for (auto &warp : block.warps) warp = {};
    for (int i = 0; i < block.n; i++) {
        prepare(i);
        block.warps[(size_t)(i / kWarp)].there |= 1u << i % kWarp;
    }
    // Sleeping warps wait until the others cannot continue: a missing barrier shows.
    const uint32_t everyone = 0xffffffffu;
    uint32_t awake = 0;
    while (block.n_done < block.n) {
        const uint64_t random = next_random();
        if (random >> 60 == 0) (void)deliver_copy(random);
        if (run_round(awake)) continue;
        const bool moved = run_round(everyone);
        awake = (uint32_t)(next_random() >> 32);
        if (moved || deliver_copy(next_random())) continue;
        for (int i = 0; i < block.n; i++) {
            const Fiber &fiber = block.fibers[(size_t)i];
            if (fiber.state == State::InWarp)
                block.running = i,
                die("waits at %s:%d for lanes that never come", fiber.site.file, fiber.site.line);
            if (fiber.state == State::Waiting)
                block.running = i,
                die("waits at %s:%d for what never comes", fiber.site.file, fiber.site.line);
        }
        die("%d of %d threads reach a barrier, the others never do", block.n_at_barrier, block.n);
    }
    end_async();
    for (size_t i = block.dynamic_bytes; i < block.dynamic_bytes + kBeyond; i++)
        if (block.dynamic[i] != (char)0xFF) die("writes past its dynamic shared memory");
}

} // namespace

Place place;

void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    std::fflush(stdout);
    std::fprintf(
        stderr, "emulated CUDA: block (%u, %u, %u), thread %d: ", place.block.x, place.block.y,
        place.block.z, block.running
    );
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::abort();
}

void *dynamic_shared() { return block.dynamic; }

bool is_shared(const void *address, size_t bytes)
{
    const auto *at = static_cast<const char *>(address);
    return (at >= __start_weir_shared && at + bytes <= __stop_weir_shared) ||
           (at >= block.dynamic && at + bytes <= block.dynamic + block.dynamic_bytes);
}

int lane() { return block.running % kWarp; }
int thread_index() { return block.running; }

void wait_until(bool (*is_over)(const void *), const void *arguments, Site site)
{
    Fiber &fiber = self();
    fiber.is_over = is_over, fiber.wait = arguments, fiber.site = site;
    fiber.state = State::Waiting;
    wait();
}

int barrier(int value, Site site)
{
    Fiber &fiber = self();
    if (block.n_done > 0)
        die("the barrier at %s:%d comes after threads have left the kernel", site.file, site.line);
    for (int i = 0; block.n_at_barrier > 0 && i < block.n; i++)
        if (const Fiber &other = block.fibers[(size_t)i]; other.state == State::AtBarrier) {
            if (!same(other.site, site))
                die("is at the barrier of line %d, thread %d at that of line %d of %s", site.line,
                    i, other.site.line, other.site.file);
            break;
        }
    fiber.site = site;
    block.sum += value;
    if (++block.n_at_barrier < block.n) {
        fiber.state = State::AtBarrier;
        wait();
        return block.result;
    }
    for (int i = 0; i < block.n; i++) block.fibers[(size_t)i].state = State::Ready;
    block.result = block.sum;
    block.n_at_barrier = block.sum = 0;
    wait(); // the last to arrive is not always the first to continue
    return block.result;
}

void warp(unsigned mask, WarpOperation complete, void *arguments, Site site)
{
    const int first = block.running / kWarp * kWarp, own = block.running - first;
    if (!(mask >> own & 1))
        die("lane %d is not in the mask %08x of its operation at %s:%d", own, mask, site.file,
            site.line);
    Fiber &fiber = self();
    fiber.state = State::InWarp, fiber.mask = mask, fiber.operation = complete,
    fiber.arguments = arguments, fiber.site = site;
    Warp &all = block.warps[(size_t)(block.running / kWarp)];
    all.waiting |= 1u << own;
    if (mask & ~all.there)
        die("the mask %08x at %s:%d has lanes past the end of the block", mask, site.file,
            site.line);
    if (mask & all.left)
        die("lane %d of the mask at %s:%d has left the kernel", __builtin_ctz(mask & all.left),
            site.file, site.line);
    if ((all.waiting & mask) != mask) return wait();
    void *lanes[kWarp] = {};
    for (int i = 0; i < kWarp; i++) {
        if (!(mask >> i & 1)) continue;
        const Fiber &other = block.fibers[(size_t)(first + i)];
        if (other.mask != mask || other.operation != complete || !same(other.site, site))
            die("is at %s:%d with mask %08x, lane %d at %s:%d with mask %08x", site.file, site.line,
                mask, i, other.site.file, other.site.line, other.mask);
        lanes[i] = other.arguments;
    }
    complete(lanes, mask);
    for (int i = 0; i < kWarp; i++)
        if (mask >> i & 1) block.fibers[(size_t)(first + i)].state = State::Ready;
    all.waiting &= ~mask;
    wait();
}

void wait_for_previous() { self().has_waited = true; }

int take_error()
{
    const int last = error;
    error = 0;
    return last;
}

int capability()
{
    static const char *const named = std::getenv("WEIR_EMULATED_CAPABILITY");
    return named ? std::atoi(named) : 80;
}

int allow_shared(const void *kernel, int bytes)
{
    if (bytes < 0 || bytes > (capability() >= 90 ? 227 : 99) << 10) return error = 1;
    allowed[kernel] = bytes;
    return 0;
}

void run_grid(
    const void *kernel, dim3 grid, dim3 shape, size_t shared_bytes, ThreadBody body,
    const void *launch
)
{
    const auto allowance = allowed.find(kernel);
    const size_t most = allowance == allowed.end()
                            ? kStaticShared
                            : std::max(kStaticShared, (size_t)allowance->second);
    const uint64_t threads = (uint64_t)shape.x * shape.y * shape.z,
                   blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (threads == 0 || threads > kMostThreads || blocks == 0 || grid.x > INT32_MAX ||
        grid.y > 65535 || grid.z > 65535 || shape.z > 64 || shared_bytes > most) {
        error = 9;
        return;
    }
    place.block_shape = shape, place.grid_shape = grid;
    block.n = (int)threads, block.body = body, block.launch = launch;
    block.random = 0x9E3779B97F4A7C15u ^ blocks << 20 ^ threads;
    block.memory.assign(shared_bytes + kBeyond + 1024, 0);
    block.dynamic =
        block.memory.data() + (1024 - reinterpret_cast<uintptr_t>(block.memory.data()) % 1024);
    block.dynamic_bytes = shared_bytes;
    scrambled(blocks, [&](uint64_t b) {
        place.block = { (unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                        (unsigned)(b / grid.x / grid.y) };
        run_block();
    });
    block.running = -1;
}

} // namespace weir_emulate
