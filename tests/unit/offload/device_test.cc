// Devices without a GPU: names, the checked device's protection, and what a hand-over copies and
// leaves.
#include "offload/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "offload/ledger.h"
#include "offload/marshal.h"
#include "tests/sanitizer.h"

namespace {

struct Close {
    void operator()(weir_device *device) const { weir_device_close(device); }
    void operator()(weir_marshaller *marshaller) const { weir_marshal_close(marshaller); }
    void operator()(weir_ledger *ledger) const { weir_ledger_close(ledger); }
};
using Device = std::unique_ptr<weir_device, Close>;

Device checked()
{
    weir_device *device = nullptr;
    weir_error error = {};
    char why[320];
    EXPECT_EQ(weir_device_open(&device, "checked", why, sizeof why, &error), WEIR_OK) << error.text;
    return Device(device);
}

template <typename T> std::vector<T> read(weir_device *device, const T *from, size_t n)
{
    std::vector<T> out(n);
    weir_device_copy(device, out.data(), from, n * sizeof(T));
    return out;
}

TEST(DeviceName, IsCpuAutoOrAGpu)
{
    for (const char *name :
         { "gpu", "gpu:", "gpu:x", "gpu:1x", "gpu:-1", "gpu:16", "cuda:0", "" }) {
        weir_device *device = nullptr;
        weir_error error = {};
        char why[320];
        EXPECT_EQ(weir_device_open(&device, name, why, sizeof why, &error), WEIR_ECONFIG) << name;
        EXPECT_NE(std::string(error.text).find("gpu:0"), std::string::npos) << error.text;
    }
}

TEST(DeviceName, WithoutAGpuTheHostDoesTheWorkAndTheReasonIsSaid)
{
    for (const char *name : { "auto", "gpu:0", "gpu:15" }) {
        weir_device *device = nullptr;
        weir_error error = {};
        char why[320];
        ASSERT_EQ(weir_device_open(&device, name, why, sizeof why, &error), WEIR_OK) << error.text;
        const Device held(device);
        if (device == nullptr) EXPECT_STRNE(why, "") << name;
    }
    weir_device *device = nullptr;
    weir_error error = {};
    char why[320] = "?";
    ASSERT_EQ(weir_device_open(&device, "cpu", why, sizeof why, &error), WEIR_OK);
    EXPECT_EQ(device, nullptr);
    EXPECT_STREQ(why, "");
}

TEST(CheckedDevice, MemoryIsZeroAndReachedByCopies)
{
    const Device device = checked();
    float *const memory =
        static_cast<float *>(weir_device_alloc(device.get(), 10000 * sizeof(float)));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(read(device.get(), memory, 10000), std::vector<float>(10000));
    const std::vector<float> values = { 1, 2, 3 };
    weir_device_copy(device.get(), memory + 5000, values.data(), 12);
    EXPECT_EQ(read(device.get(), memory + 5000, 3), values);
    weir_device_clear(device.get(), memory + 5001, 4);
    EXPECT_EQ(read(device.get(), memory + 5000, 3), (std::vector<float>{ 1, 0, 3 }));
    weir_device_queue_copy(device.get(), memory + 7, memory + 5000, 12);
    EXPECT_EQ(read(device.get(), memory + 7, 3), (std::vector<float>{ 1, 0, 3 }));
    float back = 0;
    weir_device_queue_copy(device.get(), &back, memory + 9, sizeof back);
    EXPECT_EQ(back, 3);
    EXPECT_TRUE(weir_device_owns(device.get(), memory));
    EXPECT_TRUE(weir_device_owns(device.get(), memory + 9999));
    EXPECT_FALSE(weir_device_owns(device.get(), memory + 10000));
    EXPECT_FALSE(weir_device_owns(device.get(), values.data()));
    weir_device_free(device.get(), memory, 10000 * sizeof(float));
    EXPECT_FALSE(weir_device_owns(device.get(), memory));
}

TEST(CheckedDeviceDeathTest, TheHostMayNotTouchItsMemory)
{
    const Device device = checked();
    float *const memory = static_cast<float *>(weir_device_alloc(device.get(), 64));
    EXPECT_DEATH({ *(volatile float *)memory = 1; }, "");
    EXPECT_DEATH({ (void)*(volatile float *)memory; }, "");
    weir_device_begin(device.get());
    *memory = 1; /* as a kernel does */
    weir_device_end(device.get());
    EXPECT_EQ(read(device.get(), memory, 1)[0], 1);
    weir_device_free(device.get(), memory, 64);
    weir_device_begin(device.get());
    EXPECT_DEATH({ (void)*(volatile float *)memory; }, ""); /* nor a kernel, once it was freed */
    weir_device_end(device.get());
}

TEST(CheckedDeviceDeathTest, ClosesOnlyWhenAllWasFreed)
{
    EXPECT_DEATH(
        {
            weir_device *const device = checked().release();
            (void)weir_device_alloc(device, 64);
            weir_device_close(device);
        },
        "n_blocks == 0"
    );
}

TEST(NearMemory, IsChargedToTheDeviceAndRefusedPastItsCap)
{
    const Device device = checked();
    weir_ledger *opened = nullptr;
    const size_t caps[WEIR_TIER_COUNT] = { 1000, 8192, 0 };
    weir_error error = {};
    void *memory = nullptr, *more = nullptr;
    ASSERT_EQ(weir_ledger_open(&opened, caps), WEIR_OK);
    const std::unique_ptr<weir_ledger, Close> ledger(opened);
    weir_ledger_use_device(opened, device.get());
    ASSERT_EQ(weir_ledger_alloc_device(opened, &memory, WEIR_ACCOUNT_KV, 8000, &error), WEIR_OK)
        << error.text;
    EXPECT_EQ(weir_ledger_used(opened, WEIR_TIER_DEVICE, WEIR_ACCOUNT_KV), 8000u);
    EXPECT_EQ(weir_ledger_total(opened, WEIR_TIER_HOST), 0u);
    EXPECT_EQ(weir_ledger_alloc_device(opened, &more, WEIR_ACCOUNT_KV, 200, &error), WEIR_EFULL);
    EXPECT_NE(std::string(error.text).find("memory.device"), std::string::npos) << error.text;
    weir_ledger_free_device(opened, memory, WEIR_ACCOUNT_KV, 8000);
    EXPECT_EQ(weir_ledger_total(opened, WEIR_TIER_DEVICE), 0u);
}

/* ---- hand-overs ------------------------------------------------------------------------------ */
struct Handed {
    Device device = checked();
    std::unique_ptr<weir_marshaller, Close> marshaller;
    Handed()
    {
        weir_marshaller *opened = nullptr;
        EXPECT_EQ(weir_marshal_open(&opened, device.get()), WEIR_OK);
        marshaller.reset(opened);
    }
    const void *begin(weir_op op, const void *args, weir_status expected = WEIR_OK)
    {
        const void *out = nullptr;
        EXPECT_EQ(weir_marshal_begin(marshaller.get(), op, args, &out), expected);
        return out;
    }
};

TEST(Marshal, LeavesTheDevicesArraysAndCopiesLists)
{
    Handed h;
    float *const page = static_cast<float *>(weir_device_alloc(h.device.get(), 4096));
    float *const rows = static_cast<float *>(weir_device_alloc(h.device.get(), 4096));
    void *pages[] = { page, page, page, nullptr, nullptr, page, page, page, nullptr, nullptr };
    weir_kv_segment segment = {};
    weir_kv_write_args args = {};
    segment.pages = pages, segment.page_stride = 5, segment.n_past = 130, segment.n_rows = 3;
    args.k = rows, args.segments = &segment, args.n_segments = 1, args.n_kv_heads = 2,
    args.key_dim = args.value_dim = 4;
    args.k_stride = args.v_stride = 8;
    std::vector<float> v(3 * 8, 7.0f);
    args.v = v.data();
    const auto *const there =
        static_cast<const weir_kv_write_args *>(h.begin(WEIR_OP_KV_WRITE, &args));
    ASSERT_NE(there, nullptr);
    EXPECT_EQ(there->k, rows);
    EXPECT_TRUE(weir_device_owns(h.device.get(), there->v)); /* the host's rows came along */
    EXPECT_EQ(read(h.device.get(), there->v, v.size()), v);
    ASSERT_NE(there->segments, &segment);
    const weir_kv_segment copy = there->segments[0];
    EXPECT_EQ(copy.page_stride, 3);
    for (const int i : { 2, 5 }) EXPECT_EQ(copy.pages[i], page); /* the pages that rows are in */
    segment.n_rows = 0;
    pages[2] = nullptr; /* the caller may go on at once */
    EXPECT_EQ(there->segments[0].n_rows, 3);
    EXPECT_EQ(copy.pages[2], page);
    weir_marshal_end(h.marshaller.get());
    weir_device_free(h.device.get(), page, 4096);
    weir_device_free(h.device.get(), rows, 4096);
}

/* Places of an address space: copies reach what was put there, tables of pages become it, and what
 * is not there is nothing. */
TEST(Marshal, PagesOfTheSpaceBecomeTheirBacking)
{
    Handed h;
    weir_device *const device = h.device.get();
    char *const slots = static_cast<char *>(weir_device_alloc(device, 3 * 8192));
    char *const activations = static_cast<char *>(weir_device_alloc(device, 4096));
    void *space = nullptr;
    ASSERT_EQ(weir_device_space_open(device, &space, 64 * 8192), WEIR_OK);
    char *const at = static_cast<char *>(space);
    for (int i = 0; i < 3; i++)
        weir_device_space_map(device, at + (20 + i) * 8192, slots + (2 - i) * 8192, 8192);
    const std::vector<char> bytes(8192, 5);
    weir_device_copy(device, at + 20 * 8192, bytes.data(), bytes.size());
    EXPECT_EQ(read(device, slots + 2 * 8192, 8192), bytes);
    weir_device_clear(device, at + 20 * 8192 + 4096, 4096);
    EXPECT_EQ(read(device, slots + 2 * 8192 + 4095, 2), (std::vector<char>{ 5, 0 }));
    EXPECT_EQ(weir_device_resolve(device, at + 21 * 8192 + 5000), slots + 8192 + 5000);
    EXPECT_EQ(weir_device_resolve(device, at), nullptr);
    EXPECT_EQ(weir_device_resolve(device, slots), slots);
    EXPECT_EQ(weir_device_resolve(device, at + 64 * 8192), at + 64 * 8192) << "past the space";

    void *pages[] = { at, at + 20 * 8192, at + 22 * 8192, slots };
    weir_kv_segment segment = {};
    weir_attention_args args = {};
    segment.pages = pages, segment.page_stride = 4, segment.n_past = 255, segment.n_rows = 1;
    float *const rows = reinterpret_cast<float *>(activations);
    args.q = rows, args.out = rows, args.segments = &segment, args.n_segments = 1,
    args.n_heads = args.n_kv_heads = 1;
    const auto *const there =
        static_cast<const weir_attention_args *>(h.begin(WEIR_OP_ATTENTION, &args));
    ASSERT_NE(there, nullptr);
    void *const *const handed = there->segments[0].pages;
    EXPECT_EQ(handed[0], nullptr) << "a page that is not there";
    EXPECT_EQ(handed[1], slots + 2 * 8192);
    EXPECT_EQ(handed[2], slots);
    EXPECT_EQ(handed[3], slots);
    weir_marshal_end(h.marshaller.get());
    weir_device_space_map(device, at + 20 * 8192, nullptr, 8192);
    EXPECT_EQ(weir_device_resolve(device, at + 20 * 8192), nullptr);
    weir_device_space_close(device);
    weir_device_free(device, slots, 3 * 8192);
    weir_device_free(device, activations, 4096);
}

TEST(Marshal, BringsBackWhatTheOpWrites)
{
    Handed h;
    float *const page = static_cast<float *>(weir_device_alloc(h.device.get(), 4096));
    void *pages[] = { page };
    std::vector<float> k(5 * 6, -1.0f);
    weir_kv_segment segment = {};
    weir_kv_read_args args = {};
    segment.pages = pages, segment.n_rows = 5;
    args.k = k.data(), args.segments = &segment, args.n_segments = 1, args.n_kv_heads = 1,
    args.key_dim = args.value_dim = 4, args.k_stride = 6;
    const auto *const there =
        static_cast<const weir_kv_read_args *>(h.begin(WEIR_OP_KV_READ, &args));
    const std::vector<float> row = { 1, 2, 3, 4 };
    weir_device_copy(h.device.get(), there->k + 12, row.data(), 16);
    weir_marshal_end(h.marshaller.get());
    EXPECT_EQ(std::vector<float>(k.begin() + 12, k.begin() + 16), row);
    EXPECT_EQ(k[0], -1.0f); /* and what it left alone is as it was */
    EXPECT_EQ(k[16], -1.0f);
    weir_device_free(h.device.get(), page, 4096);
}

/* Rows of products lie apart: what comes after the last one is not the op's (exact to the byte for
 * the address sanitizer). */
TEST(Marshal, LeavesWhatComesAfterTheLastProduct)
{
    Handed h;
    float *const page = static_cast<float *>(weir_device_alloc(h.device.get(), 4096));
    void *pages[] = { page };
    std::vector<float> out(10 + 4, -1.0f), vectors(2 * 8, 1.0f);
    weir_kv_segment segment = {};
    weir_key_products_args args = {};
    segment.pages = pages, segment.n_rows = 4;
    args.out = out.data(), args.vectors = vectors.data(), args.rows = &segment, args.n_vectors = 2,
    args.out_stride = 10, args.key_dim = 8;
    const auto *const there =
        static_cast<const weir_key_products_args *>(h.begin(WEIR_OP_KEY_PRODUCTS, &args));
    const float product = 5;
    weir_device_copy(h.device.get(), there->out + 13, &product, sizeof product);
    weir_marshal_end(h.marshaller.get());
    EXPECT_EQ(out[13], 5.0f);
    EXPECT_EQ(out[4], -1.0f);
    weir_device_free(h.device.get(), page, 4096);
}

/* What was planned without tables, lists and rows is what the largest call takes: nothing grows
 * when it comes. */
TEST(Marshal, PlannedCallsFindTheirScratch)
{
    enum { ROWS = 256, DIM = 512, HEADS = 3, MOST = 40000 };
    Handed h;
    float nothing = 0;
    weir_kv_segment rows = {};
    weir_kv_read_args read = {};
    weir_kv_compact_segment moved = {};
    weir_kv_compact_args compact = {};
    rows.n_rows = ROWS, rows.n_past = 63, moved.keep_stride = MOST;
    read.k = read.v = &nothing, read.segments = &rows, read.n_segments = read.n_kv_heads = 1;
    read.key_dim = read.value_dim = read.k_stride = read.v_stride = DIM;
    compact.segments = &moved, compact.n_segments = 1, compact.n_kv_heads = HEADS;
    weir_marshal_plan_reset(h.marshaller.get());
    weir_marshal_plan(h.marshaller.get(), WEIR_OP_KV_READ, &read);
    weir_marshal_plan(h.marshaller.get(), WEIR_OP_KV_COMPACT, &compact);
    const weir_marshal_memory planned = weir_marshal_planned(h.marshaller.get());
    EXPECT_GE(planned.device, 2u * ROWS * DIM * sizeof(float));
    EXPECT_GE(planned.unified, HEADS * MOST * sizeof(int32_t));
    EXPECT_EQ(weir_device_held(h.device.get()), 0u);
    ASSERT_EQ(weir_marshal_reserve(h.marshaller.get()), WEIR_OK);
    EXPECT_EQ(weir_device_held(h.device.get()), planned.device);

    float *const page = static_cast<float *>(weir_device_alloc(h.device.get(), 4096));
    std::vector<void *> pages(HEADS * (MOST / 64 + 1), page);
    std::vector<float> k(ROWS * DIM), v(ROWS * DIM);
    std::vector<int32_t> keep(HEADS * MOST), n_keep(HEADS, MOST);
    for (int i = 0; i < HEADS * MOST; i++) keep[i] = i % MOST;
    weir_kv_segment own = rows;
    own.pages = pages.data();
    read.k = k.data(), read.v = v.data(), read.segments = &own;
    moved.pages = pages.data(), moved.page_stride = MOST / 64 + 1, moved.keep = keep.data(),
    moved.n_keep = n_keep.data();
    for (int i = 0; i < 20; i++) {
        (void)h.begin(WEIR_OP_KV_READ, &read);
        weir_marshal_end(h.marshaller.get());
        (void)h.begin(WEIR_OP_KV_COMPACT, &compact);
        weir_marshal_end(h.marshaller.get());
    }
    const weir_marshal_memory held = weir_marshal_held(h.marshaller.get());
    EXPECT_EQ(held.device, planned.device);
    EXPECT_EQ(held.unified, planned.unified);
    /* A larger call, planned later, that the ring would hold a few times: it is to hold as many as
     * of the others. */
    moved.keep_stride = 2 * MOST;
    moved.keep = moved.n_keep = nullptr, moved.pages = nullptr;
    weir_marshal_plan(h.marshaller.get(), WEIR_OP_KV_COMPACT, &compact);
    ASSERT_EQ(weir_marshal_reserve(h.marshaller.get()), WEIR_OK);
    EXPECT_GT(weir_marshal_held(h.marshaller.get()).unified, held.unified);
    EXPECT_EQ(
        weir_marshal_held(h.marshaller.get()).unified,
        weir_marshal_planned(h.marshaller.get()).unified
    );
    weir_device_free(h.device.get(), page, 4096);
}

TEST(Marshal, RefusesArraysOfAStepThatAreTheHosts)
{
    Handed h;
    float x[4] = {};
    weir_add_args args = {};
    args.dst = x, args.src = x, args.n_rows = 1, args.dim = 4;
    (void)h.begin(WEIR_OP_ADD, &args, WEIR_EINVAL);
}

TEST(Marshal, GrowsAndWaitsWhereTheRingEnds)
{
    Handed h;
    float *const page = static_cast<float *>(weir_device_alloc(h.device.get(), 4096));
    for (const int n : { 1, 3000, 20000, 5 }) {
        std::vector<void *> pages((size_t)n, page);
        weir_kv_segment segment = {};
        weir_kv_read_args args = {};
        float *k = page;
        segment.pages = pages.data(), segment.n_past = n * 64 - 1, segment.n_rows = 1;
        args.k = k, args.segments = &segment, args.n_segments = 1, args.n_kv_heads = 1,
        args.key_dim = args.k_stride = 4;
        for (int i = 0; i < 40; i++) {
            const auto *const there =
                static_cast<const weir_kv_read_args *>(h.begin(WEIR_OP_KV_READ, &args));
            ASSERT_EQ(there->segments[0].pages[n - 1], page);
            weir_marshal_end(h.marshaller.get());
        }
    }
    weir_device_free(h.device.get(), page, 4096);
}

/* What kernels are given, at the call: they are not instrumented. */
TEST(MarshalDeathTest, TheSanitizerSeesArraysThatAreTooShort)
{
    if (!weir_test::has_address_sanitizer()) return;
    weir_kv_segment rows = {};
    rows.n_rows = 5;
    std::vector<float> vectors(2 * 32 - 1), out(2 * 8);
    weir_key_products_args args = {};
    args.out = out.data(), args.vectors = vectors.data(), args.rows = &rows;
    args.n_vectors = 2, args.out_stride = 8, args.key_dim = 32;
    EXPECT_DEATH(weir_marshal_check(WEIR_OP_KEY_PRODUCTS, &args), "heap-buffer-overflow");
    vectors.push_back(0);
    args.vectors = vectors.data();
    weir_marshal_check(WEIR_OP_KEY_PRODUCTS, &args);
    std::vector<float>().swap(out);
    EXPECT_DEATH(weir_marshal_check(WEIR_OP_KEY_PRODUCTS, &args), "heap-use-after-free");
}

} // namespace
