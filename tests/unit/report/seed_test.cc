/* Every figure that the seed printed, under the seed's assumptions, to the digit it was printed
 * with. */
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tools/report/print.h"
#include "tools/report/shapes.h"

namespace {

const weir_report_assumptions &seed = weir_report_seed;
constexpr double mib = 1024 * 1024, gib = 1024 * mib;

weir_report_shape shape(const char *name)
{
    weir_report_shape s = {};
    weir_error error = {};
    EXPECT_EQ(weir_report_shape_find(&s, name, &error), WEIR_OK) << error.text;
    return s;
}

std::string printed(int digits, double value)
{
    char text[64];
    snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

double kv(const weir_report_shape &s, int64_t batch, int64_t tokens)
{
    return double(batch * weir_report_kv(&seed, &s, WEIR_KV_F16, tokens));
}

int64_t longest(const weir_report_shape &s, int64_t memory_gib, int64_t batch)
{
    return weir_report_max_context(&seed, &s, WEIR_KV_F16, memory_gib << 30, batch);
}

} // namespace

TEST(Seed, Parameters)
{
    const weir_report_shape s = shape("llama-2-7b");
    EXPECT_EQ(weir_report_parameters(&seed, &s), 3710386176);
    EXPECT_EQ(printed(4, double(weir_report_weights(&seed, &s)) / gib), "6.9111");
    EXPECT_EQ(weir_report_kv_per_token(&seed, &s, WEIR_KV_F16), 524288);
    EXPECT_EQ(weir_report_kv_per_token(&seed, &s, WEIR_KV_F16) / 32, 16384);
}

TEST(Seed, Growth)
{
    const weir_report_shape s = shape("llama-2-7b");
    const struct {
        int64_t tokens;
        const char *kv, *total, *share;
    } rows[] = {
        { 256, "0.12", "7.04", "1.8" },     { 512, "0.25", "7.16", "3.5" },
        { 1024, "0.50", "7.41", "6.7" },    { 2048, "1.00", "7.91", "12.6" },
        { 4096, "2.00", "8.91", "22.4" },   { 8192, "4.00", "10.91", "36.7" },
        { 16384, "8.00", "14.91", "53.7" }, { 32768, "16.00", "22.91", "69.8" },
    };
    for (const auto &row : rows) {
        const double bytes = kv(s, 1, row.tokens),
                     total = bytes + double(weir_report_weights(&seed, &s));
        EXPECT_EQ(printed(2, bytes / gib), row.kv);
        EXPECT_EQ(printed(2, total / gib), row.total);
        EXPECT_EQ(printed(1, 100 * bytes / total), row.share);
    }
}

TEST(Seed, LongestContext)
{
    const weir_report_shape s = shape("llama-2-7b");
    const struct {
        int64_t memory, one, four;
    } rows[] = {
        { 24, 6690, 1672 }, { 40, 39458, 9864 }, { 80, 121378, 30344 }, { 96, 154146, 38536 }
    };
    for (size_t i = 0; i < 4; i++) {
        EXPECT_EQ(seed.gpus[i].memory, rows[i].memory << 30);
        EXPECT_EQ(longest(s, rows[i].memory, 1), rows[i].one);
        EXPECT_EQ(longest(s, rows[i].memory, 4), rows[i].four);
    }
}

TEST(Seed, BatchTable)
{
    const weir_report_shape s = shape("llama-2-7b");
    for (int64_t batch = 1; batch <= 32; batch *= 2) {
        EXPECT_EQ(kv(s, batch, 4096), 2.0 * double(batch) * gib);
        EXPECT_EQ(
            double(batch) * weir_report_kv_per_token(&seed, &s, WEIR_KV_F16),
            0.5 * double(batch) * mib
        );
    }
}

TEST(Seed, Models)
{
    weir_report_shape gpt4 = {}; /* "GPT-4-class" is no published model: it stands here only */
    gpt4.n_layers = gpt4.n_kv_layers = 100;
    gpt4.n_heads = gpt4.n_kv_heads = 96;
    gpt4.d_model = 12288;
    gpt4.key_dim = gpt4.value_dim = 128;
    gpt4.parameters = 1;
    const struct {
        weir_report_shape shape;
        const char *weights, *kv[3];
        int64_t longest;
    } rows[] = {
        { shape("llama-2-7b"), "6.9", { "0.50", "4.00", "16.00" }, 121378 },
        { shape("llama-2-13b"), "13.3", { "0.78", "6.25", "25.00" }, 52456 },
        { shape("llama-70b"), "67.2", { "2.50", "20.00", "80.00" }, 0 },
        { shape("llama-3-8b"), "6.9", { "0.50", "4.00", "16.00" }, 121378 },
        { shape("mistral-7b"), "6.9", { "0.50", "4.00", "16.00" }, 121378 },
        { gpt4, "188.2", { "4.69", "37.50", "150.00" }, 0 },
    };
    for (const auto &row : rows) {
        EXPECT_EQ(printed(1, double(weir_report_weights(&seed, &row.shape)) / gib), row.weights);
        const int64_t tokens[] = { 1024, 8192, 32768 };
        for (int i = 0; i < 3; i++)
            EXPECT_EQ(printed(2, kv(row.shape, 1, tokens[i]) / gib), row.kv[i]);
        EXPECT_EQ(longest(row.shape, 80, 1), row.longest);
    }
}

TEST(Seed, Intensity)
{
    const weir_report_shape s = shape("llama-2-7b");
    const struct {
        int64_t batch, tokens;
        const char *gflop, *megabytes, *compute, *memory;
    } rows[] = { { 1, 1024, "0.02", "16.79", "0.0000", "0.0050" },
                 { 1, 8192, "0.13", "134.23", "0.0001", "0.0401" },
                 { 4, 4096, "0.27", "268.50", "0.0001", "0.0801" } };
    for (const auto &row : rows) {
        const weir_report_intensity x =
            weir_report_intensity_of(&seed, &s, WEIR_KV_F16, row.batch, row.tokens);
        EXPECT_EQ(printed(2, x.flops / 1e9), row.gflop);
        EXPECT_EQ(printed(2, x.bytes / 1e6), row.megabytes);
        EXPECT_EQ(printed(2, x.intensity), "1.00");
        EXPECT_EQ(printed(4, 1e3 * x.compute_seconds), row.compute);
        EXPECT_EQ(printed(4, 1e3 * x.memory_seconds), row.memory);
    }
    /* Printed with 1024's figures */
    const weir_report_intensity right = weir_report_intensity_of(&seed, &s, WEIR_KV_F16, 1, 4096);
    EXPECT_EQ(printed(3, right.flops / 1e9), "0.067");
    EXPECT_EQ(printed(1, right.bytes / 1e6), "67.1");
    EXPECT_EQ(seed.reference.flops, 1970e12);
    EXPECT_EQ(seed.reference.bandwidth, 3350e9);
}

TEST(Seed, Strategies)
{
    const weir_report_shape s = shape("llama-2-7b");
    const struct {
        weir_kv_format format;
        const char *layer, *all;
    } rows[] = { { WEIR_KV_F16, "256.0", "8.00" },
                 { WEIR_KV_F32, "512.0", "16.00" },
                 { WEIR_KV_INT8, "128.1", "4.00" } };
    for (const auto &row : rows) {
        const double bytes = 4.0 * double(weir_report_kv(&seed, &s, row.format, 4096));
        EXPECT_EQ(printed(1, bytes / 32 / mib), row.layer);
        EXPECT_EQ(printed(2, bytes / gib), row.all);
        const weir_report_paging p = weir_report_paging_of(&seed, &s, row.format, 4096, 4096);
        EXPECT_EQ(p.paged, p.contiguous) << "paged 1.000x";
    }
    EXPECT_EQ(
        weir_report_paging_of(&seed, &s, WEIR_KV_F16, 4081, 4096).paged,
        weir_report_kv(&seed, &s, WEIR_KV_F16, 4096)
    ) << "pages of 16";
}

TEST(Seed, ChunkedPrefill)
{
    const weir_report_shape s = shape("llama-2-7b");
    const weir_report_prefill p = weir_report_prefill_of(&seed, &s, 4096),
                              whole = weir_report_prefill_of(&seed, &s, 32768);
    EXPECT_EQ(p.scores_whole, 64 * mib);
    EXPECT_EQ(p.scores_chunked, 8 * mib);
    EXPECT_EQ(whole.scores_whole, 4 * gib);
}

TEST(Seed, TextShowsTheTable)
{
    const weir_report_shape s[] = { shape("llama-2-7b"), shape("llama-2-13b"), shape("llama-70b") };
    weir_report report = {};
    weir_error error = {};
    weir_buffer out = {};
    report.assumptions = &seed;
    report.shapes = report.known = s;
    report.n_shapes = 1;
    report.n_known = 3;
    ASSERT_EQ(weir_report_complete(&report, &error), WEIR_OK) << error.text;
    ASSERT_EQ(weir_report_text(&report, &out), WEIR_OK);
    const std::string text = out.data;
    weir_buffer_free(&out);
    for (const char *part : {
             "       256     0.12 GiB     0.25 GiB     0.06 GiB     7.04 GiB     1.8 %\n",
             "       32K    16.00 GiB    32.00 GiB     8.00 GiB    22.91 GiB    69.8 %\n",
             "24 GB        24.0 GiB                                   6690          3345          "
             "1672",
             "96 GB        96.0 GiB                                 154146         77073         "
             "38536",
             "int8         256.00 KiB    128.1 MiB     4.00 GiB   0.500x   50.0 %\n",
             "       1          1K        0.02       16.79      1.00     0.0000 ms     0.0050 ms\n",
             "       4          4K        0.27      268.50      1.00     0.0001 ms     0.0801 ms\n",
             "        4K    64.00 MiB     8.00 MiB      8.0x",
             "llama-2-13b        7.154 B   13.33 GiB     0.78 GiB     6.25 GiB    25.00 GiB        "
             " 52456\n",
             "llama-70b         36.054 B   67.16 GiB     2.50 GiB    20.00 GiB    80.00 GiB        "
             "     0\n",
         })
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}
