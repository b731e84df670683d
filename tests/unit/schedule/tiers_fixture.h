/* A service with little memory and a disk below it, which fails when a test wants. */
#pragma once
#include <errno.h>
#include <string.h>

#include <atomic>

#include "engine/engine_parts.h"
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/job.h"
#include "tests/unit/kv/read_gate.h"
#include "tests/unit/schedule/small_memory.h"

namespace tiers {

using support::Call;

inline std::atomic<bool> writes_fail, reads_fail, reads_garble;
inline std::atomic<int> write_error{ ENOSPC };
inline std::atomic<unsigned> fail_seed{ 0 },
    n_writes{ 0 }; /* seed > 0: every third write fails or so */
inline bool fails_now()
{
    return writes_fail ||
           (fail_seed > 0 && (fail_seed + n_writes++) * 2654435761u >> 16 & 1 && n_writes % 3 > 0);
}
/* Each transfer takes up to this long. */
inline std::atomic<int> slow_us{ 0 };
inline void be_slow()
{
    static std::atomic<unsigned> n{ 0 };
    const unsigned random = (n++ * 2654435761u) >> 8;
    if (slow_us > 0) usleep(random % (unsigned)slow_us);
}
/* The file of blocks, once one was written. */
inline std::atomic<int> block_file{ -1 };
inline ssize_t faulty_write(int fd, const struct iovec *pieces, int n, off_t at)
{
    block_file = fd;
    support::pass(support::write_gate);
    be_slow();
    if (!fails_now()) return pwritev(fd, pieces, n, at);
    errno = write_error;
    return -1;
}
inline ssize_t faulty_read(int fd, void *bytes, size_t n, off_t at)
{
    support::pass_gate();
    support::pass(support::all_reads_gate);
    be_slow();
    if (!reads_fail) {
        const ssize_t got = pread(fd, bytes, n, at);
        if (reads_garble && got > 0) static_cast<char *>(bytes)[got / 2] ^= 1;
        return got;
    }
    errno = EIO;
    return -1;
}

class Tiers : public support::SmallMemory {
  protected:
    Tiers() : SmallMemory("service-tiers")
    {
        writes_fail = reads_fail = reads_garble = false;
        write_error = ENOSPC;
        fail_seed = 0;
        slow_us = 0;
        block_file = -1;
    }
    /* Memory for `in_memory` blocks of 64 tokens and a disk for `on_disk`; 0: memory for all, and
     * no disk. */
    void start(
        const std::string &model, int64_t in_memory, int64_t on_disk = 0,
        const std::string &more = "kv.tiers.hot=1", const std::vector<std::string> &policy = {}
    )
    {
        stop();
        std::vector<std::string> settings = settings_of(model);
        settings.insert(settings.end(), { "kv.format=f32", more, "memory.host=64MiB" });
        settings.insert(settings.end(), policy.begin(), policy.end());
        if (in_memory > 0) {
            settings.push_back("memory.disk=16MiB");
            measure_block(settings);
            settings.back() =
                "memory.disk=" + std::to_string(on_disk * block_ * (more[0] == 's' ? 2 : 1)) + "B";
            configure_least(settings, "memory.host", in_memory);
        } else {
            configure(settings);
        }
        open_configured();
        /* Pieces of prompts are whole at any depth, so as many blocks leave ahead of each. */
        weir_service_call(
            service_, [](weir_service *service, void *) { service->even_depth = 0; }, nullptr
        );
        store_ = weir_engine_store(engine_);
        if (in_memory == 0) return;
        EXPECT_EQ(
            weir_engine_plan_of(engine_)->kv - weir_engine_plan_of(engine_)->kv_unsealed,
            (size_t)(in_memory * block_)
        );
        EXPECT_EQ(weir_engine_plan_of(engine_)->kv_disk, (size_t)(on_disk * block_));
        const weir_lower_tier_io io = { faulty_write, faulty_read, nullptr, nullptr };
        weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &io);
    }
    std::vector<int32_t> run(
        const std::vector<int32_t> &ids, int max_tokens = 12, weir_status want = WEIR_OK
    )
    {
        Call call(ids, max_tokens);
        call.request.cache_prompt = true;
        call.request.want_logprobs = true;
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        call.wait();
        EXPECT_EQ(call.status, want) << call.message;
        usage_ = call.usage;
        message_ = call.message;
        logprobs_ = call.logprobs[0];
        return call.tokens[0];
    }
    weir_kv_store *store_ = nullptr;
    std::string message_;
    std::vector<float> logprobs_;
};

} // namespace tiers
