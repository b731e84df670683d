#include "engine/kv/pool/formats.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "kernels/abi/kv_format_text.h"

namespace {

weir_kv_pair parsed(const std::string &text)
{
    weir_kv_pair pair = { WEIR_KV_FORMAT_COUNT, WEIR_KV_FORMAT_COUNT };
    EXPECT_TRUE(weir_kv_pair_parse(&pair, text.c_str())) << text;
    return pair;
}

std::string printed(weir_kv_pair pair)
{
    char text[WEIR_KV_PAIR_TEXT];
    weir_kv_pair_print(text, pair);
    return text;
}

std::string refusal(const std::string &pair, int64_t dim)
{
    weir_error error = {};
    const weir_kv_geometry layer = { 1, dim, dim, 0, 0, false };
    EXPECT_EQ(weir_kv_pair_check(parsed(pair), &layer, "kv.format", &error), WEIR_ECONFIG) << pair;
    return error.text;
}

TEST(KvFormats, EveryPairIsReadAsItIsPrinted)
{
    for (int k = 0; k < WEIR_KV_FORMAT_COUNT; k++)
        for (int v = 0; v < WEIR_KV_FORMAT_COUNT; v++) {
            const weir_kv_pair pair = { (weir_kv_format)k, (weir_kv_format)v };
            EXPECT_TRUE(weir_kv_pair_is_same(parsed(printed(pair)), pair)) << printed(pair);
        }
    EXPECT_EQ(printed({ WEIR_KV_Q8_0, WEIR_KV_Q8_0 }), "q8_0");
    EXPECT_EQ(printed({ WEIR_KV_Q8_0, WEIR_KV_TURBO4 }), "q8_0/turbo4");
}

TEST(KvFormats, TextsListTheFormatsOfTheirKind)
{
    const auto listed = [](auto is_of) {
        std::string text;
        for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++)
            if (is_of((weir_kv_format)f))
                text += std::string(" ") + weir_kv_format_name((weir_kv_format)f);
        return text;
    };
    EXPECT_EQ(listed(weir_kv_seals_pages), WEIR_KV_PAGE_TEXT);
    EXPECT_EQ(listed(weir_kv_is_read_on_devices), WEIR_KV_DEVICE_READ_TEXT);
    EXPECT_EQ(
        listed([](weir_kv_format f) { return weir_kv_cuda_use(f) & WEIR_KV_CUDA_READ; }),
        WEIR_KV_CUDA_READ_TEXT
    );
    EXPECT_EQ(
        listed([](weir_kv_format f) { return weir_kv_cuda_use(f) & WEIR_KV_CUDA_WRITE; }),
        WEIR_KV_CUDA_WRITE_TEXT
    );
    EXPECT_STREQ(WEIR_KV_PAGE_TEXT, " int8 kivi2 kivi4 kivi8");
}

TEST(KvFormats, NothingElseIsRead)
{
    weir_kv_pair pair;
    for (const char *text : { "", "/", "q8_0/", "/q8_0", "q8", "q8_0/turbo", "q8_0/turbo4/turbo4",
                              "Q8_0", "q8_0 ", "a-name-that-is-longer-than-any" })
        EXPECT_FALSE(weir_kv_pair_parse(&pair, text)) << text;
}

TEST(KvFormats, AWidthThatDoesNotFitIsRefusedWithThoseThatDo)
{
    EXPECT_EQ(
        refusal("turbo4", 80),
        "kv.format: turbo4 for keys takes head widths that are powers of two from 16 to 512, "
        "this model's heads are 80 wide; they fit "
        "f32, f16, bf16, int8, fp8_e4m3, fp8_e5m2, kivi2, kivi4, kivi8"
    );
    EXPECT_EQ(
        refusal("f16/kivi2", 80),
        "kv.format: kivi2 for values takes value widths that are multiples of 32, this "
        "model's heads are 80 wide; they fit f32, "
        "f16, bf16, int8, fp8_e4m3, fp8_e5m2"
    );
    EXPECT_NE(refusal("f16", 1000).find("they fit no format"), std::string::npos);
    const weir_kv_geometry wide = { 1, 128, 128, 0, 0, false };
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++)
        EXPECT_EQ(
            weir_kv_pair_check(
                { (weir_kv_format)f, (weir_kv_format)f }, &wide, "kv.format", nullptr
            ),
            WEIR_OK
        ) << f;
}

TEST(KvFormats, ValuesThatAliasKeysHaveTheirFormat)
{
    const weir_kv_geometry latent = { 1, 64, 32, 0, 0, true };
    const auto says = [&](const char *pair) -> std::string {
        weir_error error = {};
        const weir_status status = weir_kv_pair_check(parsed(pair), &latent, "kv.format", &error);
        return status == WEIR_OK ? "" : error.text;
    };
    for (const char *pair : { "f32", "f16", "bf16", "q8_0", "q4_0", "int8", "fp8_e4m3", "kivi2" })
        EXPECT_EQ(says(pair), "") << pair;
    EXPECT_EQ(
        says("q8_0/f16"), "kv.format: f16 for values is not the format of keys; this model's "
                          "values are parts of its keys"
    );
    EXPECT_NE(says("turbo4").find("codes are of rotated keys"), std::string::npos);
    EXPECT_EQ(weir_kv_stored_value_dim(&latent), 0);
}

TEST(KvFormats, FirstTokensMayStayWide)
{
    const weir_kv_pair f16 = parsed("f16"), turbo = parsed("q8_0/turbo4"),
                       longest = parsed("fp8_e4m3/fp8_e5m2");
    const struct {
        weir_kv_choice choice;
        int32_t n_pages; /* in 7 layers */
        const char *text, *layers;
    } cases[] = {
        { { turbo, f16, 0, 1 }, 1, "q8_0/turbo4, f16 in the first 64 tokens", "q8_0/turbo4" },
        { { turbo, f16, 1, 65 },
          2,
          "q8_0/turbo4, f16 in the first and the last layer and the first 128 tokens",
          "q8_0/turbo4, f16 in the first and the last layer" },
        { { turbo, f16, 3, 64 },
          1,
          "q8_0/turbo4, f16 in the first and last 3 layers and the first 64 tokens",
          "q8_0/turbo4, f16 in the first and last 3 layers" },
        { { turbo, f16, 4, 64 }, 0, nullptr, nullptr }, /* every layer is wide */
        { { f16, f16, 0, 64 }, 0, "f16", "f16" },
        { { parsed("fp8_e5m2/fp8_e4m3"), longest, 2048, 65536 },
          0,
          "fp8_e5m2/fp8_e4m3, fp8_e4m3/fp8_e5m2 in the first and last 2048 layers and the first "
          "65536 tokens",
          "fp8_e5m2/fp8_e4m3, fp8_e4m3/fp8_e5m2 in the first and last 2048 layers" },
    };
    for (const auto &test : cases) {
        char text[WEIR_KV_FORMATS_TEXT];
        const weir_kv_sinks sinks = weir_kv_choice_sinks(&test.choice, 7);
        EXPECT_EQ(sinks.n_pages, test.n_pages);
        if (test.text == nullptr) continue;
        weir_kv_choice_print(text, &test.choice);
        EXPECT_STREQ(text, test.text);
        weir_kv_choice_print_layers(text, &test.choice);
        EXPECT_STREQ(text, test.layers);
    }
}

TEST(KvFormats, FirstAndLastLayersMayStayWide)
{
    const weir_kv_pair f16 = parsed("f16"), turbo = parsed("q8_0/turbo4");
    const weir_kv_choice choices[] = {
        { turbo, f16, 0, 0 }, { turbo, f16, 2, 0 }, { turbo, f16, 4, 0 }, { turbo, f16, 1000, 0 }
    };
    const char *const layers[] = { "-------", "WW---WW", "WWWWWWW", "WWWWWWW" };
    const char *const texts[] = { "q8_0/turbo4",
                                  "q8_0/turbo4, f16 in the first and last 2 layers" };
    for (int i = 0; i < 4; i++) {
        weir_kv_pair formats[7];
        std::string got;
        weir_kv_choice_fill(formats, 7, &choices[i]);
        for (const weir_kv_pair &format : formats)
            got += weir_kv_pair_is_same(format, f16) ? 'W' : '-';
        EXPECT_EQ(got, layers[i]);
        char text[WEIR_KV_FORMATS_TEXT];
        weir_kv_choice_print(text, &choices[i]);
        if (i < 2) EXPECT_STREQ(text, texts[i]);
        EXPECT_EQ(weir_kv_any_lossy(formats, 7), i < 2)
            << "nothing is lost where all layers are wide";
    }
}

TEST(KvFormats, BelowSixteenBitsSomethingIsLost)
{
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++) {
        const bool is_narrow = weir_kv_bits((weir_kv_format)f) < 16;
        const weir_kv_pair keys[] = { parsed("f16"), { (weir_kv_format)f, WEIR_KV_F32 } },
                           values[] = { { WEIR_KV_BF16, (weir_kv_format)f } };
        EXPECT_EQ(weir_kv_any_lossy(keys, 2), is_narrow) << f;
        EXPECT_EQ(weir_kv_any_lossy(values, 1), is_narrow) << f;
    }
    EXPECT_FALSE(weir_kv_any_lossy(nullptr, 0)) << "a model without KV";
}

} // namespace
