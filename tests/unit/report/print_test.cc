#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tools/report/print.h"
#include "tools/report/shapes.h"

namespace {

struct Report {
    std::vector<weir_report_shape> shapes;
    weir_report report = {};
    weir_error error = {};

    explicit Report(
        const std::vector<const char *> &names,
        const weir_report_assumptions &a = weir_report_engine
    )
    {
        for (const char *name : names) {
            shapes.emplace_back();
            EXPECT_EQ(weir_report_shape_find(&shapes.back(), name, &error), WEIR_OK) << error.text;
        }
        report.assumptions = &a;
        report.shapes = report.known = shapes.data();
        report.n_shapes = report.n_known = shapes.size();
    }
    void complete() { ASSERT_EQ(weir_report_complete(&report, &error), WEIR_OK) << error.text; }
    std::string text()
    {
        weir_buffer out = {};
        EXPECT_EQ(weir_report_text(&report, &out), WEIR_OK);
        const std::string all = out.data;
        weir_buffer_free(&out);
        return all;
    }
    json_t *json()
    {
        weir_buffer out = {};
        EXPECT_EQ(weir_report_json(&report, &out), WEIR_OK);
        json_t *const root = json_loads(out.data, JSON_REJECT_DUPLICATES, nullptr);
        EXPECT_NE(root, nullptr);
        weir_buffer_free(&out);
        return root;
    }
    weir_status svg(std::string *all)
    {
        weir_buffer out = {};
        const weir_status status = weir_report_svg(&report, &out, &error);
        if (status == WEIR_OK) *all = out.data;
        weir_buffer_free(&out);
        return status;
    }
};

bool holds(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

size_t count(const std::string &text, const std::string &part)
{
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
    return n;
}

} // namespace

TEST(Text, FiguresAndReasons)
{
    Report r({ "deepseek-v3" });
    r.complete();
    const std::string text = r.text();
    for (const char *part :
         { "== DeepSeek-V3: 671.026 B parameters, 61 layers, 128 heads, latent rows of 576 ==",
           "f16 per token: latent 70272 bytes, expanded K and V 4997120 bytes (71.1 times)",
           "turbo3 is omitted: it takes head widths that are powers of two",
           "       32K     2.14 GiB", "H100 SXM     79.6 GiB    3350    989.4     295" })
        EXPECT_TRUE(holds(text, part)) << part << "\n" << text;
    Report none({ "deepseek-v3" });
    none.report.formats[0] = WEIR_KV_TURBO3;
    none.report.n_formats = 1;
    none.complete();
    EXPECT_TRUE(holds(none.text(), "No tables: list a format first that the shape supports."));
}

TEST(Text, ListsThatAreGivenAreKept)
{
    Report r({ "llama-2-7b" });
    r.report.contexts[0] = 100;
    r.report.batches[0] = 3;
    r.report.formats[0] = WEIR_KV_Q8_0;
    r.report.bandwidths[0] = 100e9;
    r.report.n_contexts = r.report.n_batches = r.report.n_formats = r.report.n_bandwidths = 1;
    r.complete();
    EXPECT_EQ(r.report.tokens, 100);
    EXPECT_EQ(r.report.batch, 3);
    const std::string text = r.text();
    EXPECT_EQ(count(text, "KV by context, batch"), 1u);
    /* 2 pages of 64 tokens, 32 layers and heads, 17408 bytes: 34 MiB, of 3 sequences */
    EXPECT_TRUE(holds(text, "       100   102.00 MiB")) << text;
    EXPECT_TRUE(holds(text, "100 GB/s"));
}

TEST(Text, WhatCannotBeCountedIsRefused)
{
    Report r({ "llama-2-13b" });
    r.report.contexts[0] = 1 << 30;
    r.report.batches[0] = 1 << 16;
    r.report.n_contexts = r.report.n_batches = 1;
    EXPECT_EQ(weir_report_complete(&r.report, &r.error), WEIR_EINVAL);
    EXPECT_TRUE(holds(r.error.text, "too large to compute")) << r.error.text;
}

TEST(Json, SaysWhatTheFunctionsSay)
{
    Report r({ "llama-3-8b", "deepseek-v3" });
    r.complete();
    json_t *const root = r.json();
    ASSERT_NE(root, nullptr);
    json_t *const shapes = json_object_get(root, "shapes");
    ASSERT_EQ(json_array_size(shapes), 2u);
    for (size_t s = 0; s < 2; s++) {
        json_t *const shape = json_array_get(shapes, s), *row;
        size_t i;
        EXPECT_EQ(json_integer_value(json_object_get(shape, "parameters")), r.shapes[s].parameters);
        json_t *const growth = json_object_get(shape, "growth");
        /* Batches, formats of several shapes, contexts */
        EXPECT_EQ(json_array_size(growth), 3u * 3u * 10u);
        json_array_foreach(growth, i, row)
        {
            const weir_kv_format format =
                weir_kv_format_named(json_string_value(json_object_get(row, "format")));
            ASSERT_NE(format, WEIR_KV_FORMAT_COUNT);
            EXPECT_EQ(
                json_integer_value(json_object_get(row, "kv")),
                json_integer_value(json_object_get(row, "batch")) *
                    weir_report_kv(
                        r.report.assumptions, &r.shapes[s], format,
                        json_integer_value(json_object_get(row, "context"))
                    )
            );
        }
        EXPECT_EQ(
            json_array_size(json_object_get(shape, "max_context")), weir_report_engine.n_gpus * 9
        );
        for (const char *key : { "formats", "paging", "prefill", "decode", "devices" })
            EXPECT_GT(json_array_size(json_object_get(shape, key)), 0u) << key;
    }
    json_decref(root);
}

TEST(Json, ModelsWithoutRowsHaveNoLongestContext)
{
    Report r({ "llama-3-8b" });
    r.shapes[0].n_kv_layers = 0;
    r.complete();
    json_t *const root = r.json();
    json_t *const rows =
        json_object_get(json_array_get(json_object_get(root, "shapes"), 0), "max_context");
    EXPECT_EQ(json_integer_value(json_object_get(json_array_get(rows, 0), "context")), 0)
        << "15 GiB of weights on a card of 16";
    json_t *const last = json_array_get(rows, json_array_size(rows) - 1);
    ASSERT_NE(last, nullptr);
    EXPECT_TRUE(json_is_null(json_object_get(last, "context")));
    json_decref(root);
    EXPECT_TRUE(holds(r.text(), "any"));
    std::string svg;
    EXPECT_EQ(r.svg(&svg), WEIR_EINVAL) << "nothing to draw";
}

TEST(Svg, OneNamedLineForEachShapeAndFormat)
{
    Report r({ "llama-2-7b", "deepseek-v3" });
    for (weir_kv_format format : { WEIR_KV_F16, WEIR_KV_TURBO3 })
        r.report.formats[r.report.n_formats++] = format;
    snprintf(r.shapes[0].title, sizeof r.shapes[0].title, "a<b>&\"c\"\n");
    r.complete();
    std::string svg;
    ASSERT_EQ(r.svg(&svg), WEIR_OK) << r.error.text;
    EXPECT_EQ(count(svg, "<polyline"), 3u) << "turbo3 keeps no latent rows";
    EXPECT_TRUE(holds(svg, ">a&#60;b&#62;&#38;&#34;c&#34;&#32; turbo3</text>")) << svg;
    EXPECT_TRUE(holds(svg, ">DeepSeek-V3 f16</text>"));
    EXPECT_TRUE(holds(svg, ">128K</text>") && holds(svg, "GiB</text>"));
    EXPECT_FALSE(holds(svg, "nan") || holds(svg, "inf"));
    EXPECT_EQ(svg.rfind("</svg>\n"), svg.size() - 7);
}

TEST(Svg, NamesDoNotOverlap)
{
    Report r({ "llama-2-7b", "llama-2-13b", "llama-70b", "llama-3-8b", "mistral-7b", "qwen3-8b",
               "deepseek-v3", "kimi-k2", "qwen3.5-0.8b" });
    r.complete();
    std::string svg;
    ASSERT_EQ(r.svg(&svg), WEIR_OK) << r.error.text;
    std::vector<double> at;
    const std::string start = "<text x=\"782\" y=\"";
    for (size_t i = svg.find(start); i != std::string::npos; i = svg.find(start, i + 1))
        at.push_back(std::stod(svg.substr(i + start.size())));
    ASSERT_EQ(at.size(), 27u);
    for (size_t i = 1; i < at.size(); i++) EXPECT_GT(at[i] - at[i - 1], 12) << i;
    EXPECT_GE(at.front(), 60);
    EXPECT_LE(at.back(), 580);
}

TEST(Svg, TooManyLinesAreRefused)
{
    Report r({ "llama-2-7b", "llama-2-13b", "llama-70b", "llama-3-8b" });
    for (int f = 0; f < 9; f++)
        r.report.formats[r.report.n_formats++] = static_cast<weir_kv_format>(f);
    r.complete();
    std::string svg;
    EXPECT_EQ(r.svg(&svg), WEIR_EINVAL);
    EXPECT_TRUE(holds(r.error.text, "36 lines")) << r.error.text;
    Report one({ "llama-2-7b" });
    one.report.contexts[0] = 64;
    one.report.n_contexts = 1;
    one.complete();
    EXPECT_EQ(one.svg(&svg), WEIR_OK) << "a single context";
}
