// The choice among rows: order, rejects, pins, forced levels, scratch. The rows are those of
// fake_table.c.
#include "offload/dispatch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "offload/caps.h"
#include "tests/sanitizer.h"

namespace {

struct Stream {
    weir_stream *stream = nullptr;
    weir_error error = {};
    weir_status status;
    explicit Stream(weir_stream_options options = {})
    {
        status = weir_stream_open(&stream, &options, &error);
    }
    ~Stream() { weir_stream_close(stream); }
};

float memory[4];
weir_add_args add_of(int64_t n_rows, int64_t dim)
{
    return { memory, memory, n_rows, dim, dim, dim };
}

std::string picked(const weir_stream *stream, int64_t dim)
{
    const weir_add_args args = add_of(1, dim);
    const weir_kernel *kernel = weir_kernel_pick(stream, WEIR_OP_ADD, &args, nullptr, nullptr);
    return kernel ? kernel->name : "";
}

std::map<std::string, std::string> explained(
    const weir_stream *stream, weir_op op, const void *args
)
{
    std::map<std::string, std::string> reasons;
    weir_kernel_pick(
        stream, op, args,
        [](void *user, const weir_kernel *kernel, const char *reject) {
            (*static_cast<std::map<std::string, std::string> *>(user))[kernel->name] =
                reject ? reject : "";
        },
        &reasons
    );
    return reasons;
}

TEST(Dispatch, TakesTheFirstRowThatAccepts)
{
    Stream s;
    ASSERT_EQ(s.status, WEIR_OK) << s.error.text;
    EXPECT_EQ(picked(s.stream, 4), "fake.add.v2");
    EXPECT_EQ(
        picked(s.stream, 3), weir_stream_caps(s.stream)->x86_v4 ? "fake.add.v4" : "fake.add.ref"
    );
}

TEST(Dispatch, RunsWhatItPicked)
{
    weir_stream_options options = {};
    options.isa = "v2";
    Stream s(options);
    weir_add_args args = add_of(1, 3);
    EXPECT_EQ(weir_add(s.stream, &args), WEIR_OK);
    EXPECT_EQ(memory[0], 30);
}

TEST(Dispatch, PinGoesFirstAndYieldsWhenItRejects)
{
    weir_stream_options options = {};
    options.pins[WEIR_OP_ADD] = "fake.add.ref";
    Stream s(options);
    ASSERT_EQ(s.status, WEIR_OK) << s.error.text;
    EXPECT_EQ(picked(s.stream, 4), "fake.add.ref");
    options.pins[WEIR_OP_ADD] = "fake.add.v2";
    options.isa = "v2";
    Stream yielding(options);
    EXPECT_EQ(picked(yielding.stream, 3), "fake.add.ref");
}

TEST(Dispatch, UnknownOrImpossiblePinIsAnErrorThatNamesTheKey)
{
    weir_stream_options options = {};
    options.pins[WEIR_OP_ADD] = "fake.add.gpu";
    Stream unknown(options);
    EXPECT_EQ(unknown.status, WEIR_ECONFIG);
    EXPECT_NE(
        std::string(unknown.error.text).find("kernels.add = \"fake.add.gpu\""), std::string::npos
    ) << unknown.error.text;
    options.pins[WEIR_OP_ADD] = "fake.add.v4";
    options.isa = "v2";
    Stream barred(options);
    EXPECT_EQ(barred.status, WEIR_ECONFIG);
    EXPECT_NE(std::string(barred.error.text).find("isa v2 forced"), std::string::npos)
        << barred.error.text;
    options.pins[WEIR_OP_ADD] = nullptr;
    options.pins[WEIR_OP_ROPE] = "fake.add.v2"; /* the row of another op */
    Stream other(options);
    EXPECT_EQ(other.status, WEIR_ECONFIG);
}

TEST(Dispatch, ForcedLevelRejectsHigherRowsAndLowersTheCapabilities)
{
    weir_stream_options options = {};
    options.isa = "v2";
    Stream s(options);
    ASSERT_EQ(s.status, WEIR_OK) << s.error.text;
    weir_add_args args = add_of(1, 3);
    auto reasons = explained(s.stream, WEIR_OP_ADD, &args);
    EXPECT_EQ(reasons.size(), 3u);
    EXPECT_EQ(reasons["fake.add.v2"], "dim is odd");
    EXPECT_EQ(reasons["fake.add.v4"], "isa v2 forced");
    EXPECT_EQ(reasons["fake.add.ref"], "");
    EXPECT_FALSE(weir_stream_caps(s.stream)->x86_v3 || weir_stream_caps(s.stream)->avx512_vnni);
    weir_glu_args glu = {};
    EXPECT_EQ(explained(s.stream, WEIR_OP_GLU, &glu)["fake.glu.asking"], "needs AVX-512");
    EXPECT_EQ(weir_glu(s.stream, &glu), WEIR_EUNSUPPORTED);
}

TEST(Dispatch, BadOptionsAreRefused)
{
    weir_stream_options options = {};
    options.isa = "v5";
    EXPECT_EQ(Stream(options).status, WEIR_ECONFIG);
    options.isa = nullptr;
    options.n_threads = -1;
    EXPECT_EQ(Stream(options).status, WEIR_ECONFIG);
    options.n_threads = 1 << 20;
    EXPECT_EQ(Stream(options).status, WEIR_ECONFIG);
    options.n_threads = 3;
    Stream three(options);
    EXPECT_EQ(weir_stream_threads(three.stream), 3);
}

TEST(Dispatch, ScratchGrowsInReserveAndThenStaysStill)
{
    Stream s;
    weir_add_args big = add_of(100, 4), small = add_of(10, 4);
    EXPECT_EQ(weir_stream_scratch_bytes(s.stream), 0u);
    weir_stream_set_planning(s.stream, true);
    ASSERT_EQ(weir_add(s.stream, &big), WEIR_OK);
    weir_stream_set_planning(s.stream, false);
    EXPECT_EQ(weir_stream_scratch_bytes(s.stream), 0u);
    ASSERT_EQ(weir_stream_reserve_planned(s.stream), WEIR_OK);
    const size_t reserved = weir_stream_scratch_bytes(s.stream);
    EXPECT_GE(reserved, 100000u);
    ASSERT_EQ(weir_add(s.stream, &small), WEIR_OK);
    ASSERT_EQ(weir_add(s.stream, &big), WEIR_OK);
    EXPECT_EQ(memory[0], 11); /* the kernel saw aligned scratch */
    EXPECT_EQ(weir_stream_scratch_bytes(s.stream), reserved);
    weir_add_args larger = add_of(200, 4);
    ASSERT_EQ(weir_add(s.stream, &larger), WEIR_OK);
    EXPECT_GT(weir_stream_scratch_bytes(s.stream), reserved); /* growth after warm-up shows */
}

TEST(Dispatch, ScratchForEachThread)
{
    weir_add_args args = add_of(1, 4);
    for (const int n_threads : { 1, 5 }) {
        weir_stream_options options = {};
        options.n_threads = n_threads;
        Stream s(options);
        weir_stream_set_planning(s.stream, true);
        ASSERT_EQ(weir_add(s.stream, &args), WEIR_OK);
        weir_stream_set_planning(s.stream, false);
        ASSERT_EQ(weir_stream_reserve_planned(s.stream), WEIR_OK);
        const size_t reserved = weir_stream_scratch_bytes(s.stream);
        EXPECT_GE(reserved, 1000u + (size_t)n_threads * 200000);
        EXPECT_LT(reserved, (size_t)(n_threads + 1) * 200000);
        ASSERT_EQ(weir_add(s.stream, &args), WEIR_OK);
        EXPECT_EQ(weir_stream_scratch_bytes(s.stream), reserved);
    }
}

TEST(Dispatch, OpsWithoutRowsAreUnsupported)
{
    Stream s;
    weir_rope_args args = {};
    weir_stream_set_planning(s.stream, true);
    EXPECT_EQ(weir_rope(s.stream, &args), WEIR_EUNSUPPORTED);
    weir_stream_set_planning(s.stream, false);
    EXPECT_EQ(weir_rope(s.stream, &args), WEIR_EUNSUPPORTED);
    EXPECT_EQ(weir_kernel_pick(s.stream, WEIR_OP_ROPE, &args, nullptr, nullptr), nullptr);
}

TEST(Dispatch, OpNamesRoundTrip)
{
    for (int op = 0; op < WEIR_OP_COUNT; op++) {
        weir_op back;
        ASSERT_TRUE(weir_op_from_name(weir_op_name((weir_op)op), &back));
        EXPECT_EQ((int)back, op);
    }
    weir_op unused;
    EXPECT_FALSE(weir_op_from_name("softmax", &unused));
}

TEST(Caps, LimitCutsEverythingAboveTheLevel)
{
    const weir_caps all = { true, true, true, true, true, true, true, true, 0 };
    EXPECT_EQ(weir_caps_isa(&all), WEIR_ISA_V4);
    const weir_caps v3 = weir_caps_limited(all, WEIR_ISA_V3);
    EXPECT_TRUE(v3.x86_v2 && v3.x86_v3 && v3.avx_vnni);
    EXPECT_FALSE(weir_caps_limited(all, WEIR_ISA_V2).avx_vnni);
    EXPECT_FALSE(v3.x86_v4 || v3.avx512_vnni || v3.avx512_bf16 || v3.amx_int8 || v3.amx_bf16);
    const weir_caps v4 = weir_caps_limited(all, WEIR_ISA_V4);
    EXPECT_TRUE(v4.avx_vnni && v4.avx512_vnni && v4.avx512_bf16);
    EXPECT_FALSE(v4.amx_int8 || v4.amx_bf16);
    EXPECT_EQ(weir_caps_isa(&v3), WEIR_ISA_V3);
    const weir_caps same = weir_caps_limited(all, WEIR_ISA_ANY);
    EXPECT_TRUE(same.avx512_bf16 && same.amx_int8 && same.amx_bf16);
}

TEST(DispatchDeathTest, TheSanitizerSeesMemoryThatIsGone)
{
    if (!weir_test::has_address_sanitizer()) return;
    Stream s;
    ASSERT_EQ(s.status, WEIR_OK) << s.error.text;
    auto *const gone = new float[4];
    const weir_add_args args = { memory, gone, 1, 4, 4, 4 };
    const weir_kernel *const kernel =
        weir_kernel_pick(s.stream, WEIR_OP_ADD, &args, nullptr, nullptr);
    EXPECT_EQ(weir_kernel_run(s.stream, kernel, &args), WEIR_OK);
    delete[] gone;
    EXPECT_DEATH((void)weir_kernel_run(s.stream, kernel, &args), "heap-use-after-free");
}

// Files carry this text: what changes bits must change it, and nothing else.
TEST(Caps, PrintsWhatBitsDependOn)
{
    const auto printed = [](const weir_caps &caps) {
        char text[WEIR_CAPS_TEXT];
        weir_caps_print(text, &caps);
        return std::string(text);
    };
    weir_caps caps = { true, true, true, false, false, false, false, false, 0 };
    EXPECT_EQ(printed(caps), "v4");
    caps.avx_vnni = caps.avx512_vnni = caps.amx_int8 = true;
    EXPECT_EQ(printed(caps), "v4") << "integer products are exact";
    caps.avx512_bf16 = true;
    EXPECT_EQ(printed(caps), "v4+bf16");
    caps.amx_bf16 = true;
    EXPECT_EQ(printed(caps), "v4+amx_bf16");
    EXPECT_EQ(printed(weir_caps_limited(caps, WEIR_ISA_V4)), "v4+bf16");
    EXPECT_EQ(printed(weir_caps_limited(caps, WEIR_ISA_V3)), "v3");
}

} // namespace
