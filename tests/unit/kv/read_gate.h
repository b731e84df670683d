/* Gates for one thread's reads of the lower tier, and for the writes, or reads, of the store's
 * thread: they wait until a test opens them. */
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace support {

struct Gate {
    std::mutex lock;
    std::condition_variable changed;
    bool is_reached = false, is_open = false, was_late = false;
    void pass()
    {
        std::unique_lock<std::mutex> hold(lock);
        is_reached = true;
        changed.notify_all();
        if (!changed.wait_for(hold, std::chrono::seconds(30), [this] { return is_open; }))
            is_open = was_late = true;
    }
    bool wait_until_reached()
    {
        std::unique_lock<std::mutex> hold(lock);
        return changed.wait_for(hold, std::chrono::seconds(30), [this] { return is_reached; });
    }
    void open()
    {
        const std::lock_guard<std::mutex> hold(lock);
        is_open = true;
        changed.notify_all();
    }
};

/* Set by the thread whose reads wait; NULL: they do not. */
inline thread_local Gate *gate = nullptr;

inline void pass_gate()
{
    if (gate != nullptr) gate->pass();
}

/* Writes of any thread, reads of any, and truncations wait at these; NULL: they do not. */
inline std::atomic<Gate *> write_gate{ nullptr }, all_reads_gate{ nullptr }, shrink_gate{ nullptr };

inline void pass(const std::atomic<Gate *> &at)
{
    if (Gate *const one = at) one->pass();
}

} // namespace support
