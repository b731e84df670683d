/* Sequences of which most is on disk, in pages of several formats, and reads that fail when a test
 * asks for it. */
#pragma once
#include <errno.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/lower_tier.h"
#include "tests/unit/kv/evict_model.h"

namespace evict {

inline int reads_until_failure = -1;
inline ssize_t faulty_read(int fd, void *bytes, size_t n, off_t at)
{
    if (reads_until_failure == 0) {
        errno = EIO;
        return -1;
    }
    if (reads_until_failure > 0) reads_until_failure--;
    return pread(fd, bytes, n, at);
}

constexpr weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 }, q8 = { WEIR_KV_Q8_0, WEIR_KV_TURBO4 },
                       int8 = { WEIR_KV_INT8, WEIR_KV_KIVI4 };

struct Formats {
    const char *name;
    std::vector<weir_kv_pair> layers;
    weir_kv_sinks sinks;
};

inline auto each_format()
{
    return ::testing::Values(
        Formats{ "rows", { f16, q8, q8 }, {} }, Formats{ "pages", { int8, f16, int8 }, {} },
        Formats{ "sinks", { q8, f16, q8 }, { f16, 2 } },
        Formats{ "sinks_of_pages", { int8, f16, q8 }, { f16, 1 } }
    );
}
inline std::string format_name(const ::testing::TestParamInfo<Formats> &info)
{
    return info.param.name;
}

class Tiers : public Evict, public ::testing::WithParamInterface<Formats> {
  protected:
    void open_tiers(int64_t memory, int64_t disk)
    {
        Options options;
        options.formats = GetParam().layers;
        options.sinks = GetParam().sinks;
        options.n_sink_blocks = GetParam().sinks.n_pages * 3;
        options.n_blocks = memory;
        options.n_disk_blocks = disk;
        open(options);
        reads_until_failure = -1;
        const weir_lower_tier_io io = { pwritev, faulty_read, nullptr, nullptr };
        weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &io);
    }
    void *const *block(const Sequence &t, int64_t p) const
    {
        return (void *const *)t.table.pages + p;
    }
    bool is_cold(const Sequence &t, int64_t p) const
    {
        return weir_kv_is_cold(store_, t.table.pages[p]);
    }
    void demote(const Sequence &t, int64_t first, int64_t end)
    {
        for (int64_t p = std::max<int64_t>(first, spec_.sinks.n_pages); p < end; p++)
            if (!is_cold(t, p))
                ASSERT_EQ(
                    weir_kv_demote(store_, block(t, p), t.table.capacity, p, &error_), WEIR_OK
                ) << error_.text;
    }
    /* A block of weir_prefix_lru_blocks. */
    weir_status demote_cached(const weir_prefix *prefix, void *const *block)
    {
        return weir_kv_demote(store_, block, 1, weir_prefix_block_index(prefix, block), &error_);
    }
    /* As the engine does: whole blocks leave as the sequence grows. */
    void append_cold(Sequence *t, int64_t n)
    {
        for (int64_t i = 0; i < n; i += 64) {
            ASSERT_TRUE(append(t, std::min<int64_t>(64, n - i)));
            demote(*t, 0, t->table.n_rows / 64 - 1);
        }
    }
    void expect_in_memory(const Sequence &t)
    {
        for (int64_t i = 0; i < heads() * t.table.capacity; i++)
            ASSERT_FALSE(weir_kv_is_cold(store_, t.table.pages[i])) << i;
    }
};

inline const std::vector<int32_t> all_layers = { 0, 1, 2 }, two_layers = { 0, 2 };

} // namespace evict
