/* Memory of blocks that are not held any more goes back to the system in ranges. */
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>

#include "tests/unit/kv/tiers_fixture.h"

/* In front of libc's: counts how often memory is returned. */
static std::atomic<int64_t> n_returned;
extern "C" int madvise(void *at, size_t n, int advice) noexcept
{
    n_returned += advice == MADV_DONTNEED;
    return (int)syscall(SYS_madvise, at, n, advice);
}

namespace {

using namespace tiers;

/* A long sequence: 36 layers of 8 heads, 100K tokens. Its pages are those of the pool in order, or
 * alternate with those of another sequence, a piece of 512 tokens at a time. */
TEST_F(Tiers, LongSequencesAreReturnedInRanges)
{
    constexpr int layers = 36, layer_heads = 8, n_heads = layers * layer_heads, piece = 512,
                  rows = 100 * 1024;
    const size_t caps[WEIR_TIER_COUNT] = {};
    static weir_kv_geometry geometry[layers]; /* outlive the store */
    static weir_kv_pair formats[layers];
    for (int i = 0; i < layers; i++)
        geometry[i] = { layer_heads, 32, 32, 0, 0, false }, formats[i] = f16;
    weir_kv_number_heads(geometry, layers);
    folder_ = ::testing::TempDir() + "/tiers." + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
    spec_.n_layers = layers;
    spec_.geometry = geometry;
    spec_.formats = formats;
    spec_.pages.n = (2 * rows / 64 + 1) * int64_t{ n_heads };
    spec_.max_rows = rows;
    spec_.pages.n_disk = n_heads;
    spec_.disk_folder = folder_.c_str();
    ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
    weir_kv_table one = table(), two = table();
    const auto grow = [&](weir_kv_table &t) {
        ASSERT_EQ(reserve_to(t, t.n_rows + piece), WEIR_OK);
        for (int h = 0; h < n_heads; h += 64) /* few, for memory */
            *(char *)t.pages[h * t.capacity + t.n_rows / 64] = (char)(1 + h % 7);
        commit_to(t, t.n_rows + piece);
    };
    while (one.n_rows < rows) grow(one);
    EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.pages.n - rows / 64 * n_heads);
    char *const first = (char *)one.pages[0];
    int64_t before = n_returned;
    weir_kv_truncate(&one, store_, 0);
    EXPECT_EQ(n_returned - before, 1) << "all pages are next to each other; the table stays";
    unsigned char is_backed = 2;
    ASSERT_EQ(mincore(first, 4096, &is_backed), 0);
    EXPECT_EQ(is_backed & 1, 0);
    while (one.n_rows < rows) grow(one), grow(two);
    before = n_returned;
    weir_kv_truncate(&one, store_, rows / 2);
    EXPECT_LE(n_returned - before, rows / piece / 2 + 1);
    before = n_returned;
    weir_kv_table_close(&one, store_);
    EXPECT_LE(n_returned - before, rows / piece / 2 + 1);
    for (int64_t at = 0; at < two.n_rows; at += piece)
        for (int h = 0; h < n_heads; h += 64)
            ASSERT_EQ(*(char *)two.pages[h * two.capacity + at / 64], 1 + h % 7)
                << "a page of the other sequence was returned";
    expect_sound();
    weir_kv_table_close(&two, store_);
}

} // namespace
