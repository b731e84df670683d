/* Plots are well-formed XML with a mark for every value, at the place of the value. */
#include "tools/eval/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

namespace {

const weir_plot_labels labels = { "A <title> & \"more\"\n", "x > 1", "y" };
const double none = NAN;

size_t count(const std::string &text, const std::string &part)
{
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
    return n;
}

/* Elements nest and close, attributes are quoted, and text has no bare markup. */
void expect_well_formed(const std::string &svg)
{
    const std::regex element(R"re(<(/?)([a-z]+)((?: [A-Za-z0-9:-]+="[^"<>&]*")*)(/?)>)re");
    std::vector<std::string> open;
    size_t end = 0;
    for (std::sregex_iterator i(svg.begin(), svg.end(), element); i != std::sregex_iterator();
         ++i) {
        const std::string between = svg.substr(end, static_cast<size_t>(i->position()) - end);
        EXPECT_EQ(between.find_first_of("<>"), std::string::npos) << between;
        EXPECT_FALSE(std::regex_search(between, std::regex("&(?!#[0-9]+;)"))) << between;
        EXPECT_FALSE(open.empty() && end > 0) << "a second root";
        end = static_cast<size_t>(i->position() + i->length());
        if ((*i)[1] == "/") {
            ASSERT_FALSE(open.empty());
            EXPECT_EQ(open.back(), (*i)[2]);
            open.pop_back();
        } else if ((*i)[4] != "/") {
            open.push_back((*i)[2]);
        }
    }
    EXPECT_TRUE(open.empty());
    EXPECT_EQ(svg.substr(end), "\n");
    EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0u);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    EXPECT_NE(svg.find(">A &#60;title&#62; &#38; &#34;more&#34;"), std::string::npos);
}

class Curves : public ::testing::Test {
  protected:
    weir_status plot(
        const std::vector<weir_plot_curve> &curves, const weir_plot_range &range = { 0, 1, true }
    )
    {
        weir_buffer out = {};
        const weir_status status =
            weir_plot_curves(&out, &labels, curves.data(), curves.size(), &range, &error);
        svg = status == WEIR_OK ? std::string(out.data, out.size) : "";
        weir_buffer_free(&out);
        return status;
    }
    std::string svg;
    weir_error error = {};
};

TEST_F(Curves, HaveAPointPerValueAndANameEach)
{
    const double x[] = { 64, 128, 256, 1024 }, full[] = { 1, 1, 1, 0.9 },
                 window[] = { 0, 0.25, none, 1 };
    ASSERT_EQ(plot({ { "full", x, full, 4 }, { "sinks & window", x, window, 4 } }), WEIR_OK)
        << error.text;
    expect_well_formed(svg);
    EXPECT_EQ(count(svg, "<circle "), 7u);
    EXPECT_EQ(count(svg, "<polyline "), 3u); /* a gap where the value is missing */
    EXPECT_EQ(count(svg, ">full</text>"), 1u);
    EXPECT_EQ(count(svg, ">sinks &#38; window</text>"), 1u);
    EXPECT_EQ(count(svg, ">1K</text>"), 1u);
    /* 64 and 1024 at the ends of the axis, 256 in the middle of its 4 octaves; 0 at the bottom, 1
     * at the top. */
    EXPECT_NE(svg.find("points=\"80.0,60.0 225.0,60.0 370.0,60.0 660.0,99.0\""), std::string::npos)
        << svg;
    EXPECT_NE(svg.find("points=\"80.0,450.0 225.0,352.5\""), std::string::npos) << svg;
}

TEST_F(Curves, FitTheirPointsWhereNoRangeIsGiven)
{
    const double x[] = { -1, 0, 3 }, y[] = { 5, 7, 6 }, constant[] = { 2, 2, 2 };
    ASSERT_EQ(plot({ { "a", x, y, 3 } }, { 0, 0, false }), WEIR_OK) << error.text;
    expect_well_formed(svg);
    EXPECT_NE(svg.find("points=\"80.0,450.0 225.0,60.0 660.0,255.0\""), std::string::npos) << svg;
    ASSERT_EQ(plot({ { "a", x, constant, 3 } }, { 0, 0, false }), WEIR_OK);
    expect_well_formed(svg);
    ASSERT_EQ(plot({ { "a", x + 2, y, 1 } }), WEIR_OK); /* one point */
    expect_well_formed(svg);
    const double far[] = { 1e-300, 1, 1e300 }, outside[] = { -5, 0.5, 7 };
    ASSERT_EQ(plot({ { "a", far, outside, 3 } }), WEIR_OK);
    expect_well_formed(svg);
    EXPECT_EQ(count(svg, ",450.0"), 1u); /* kept inside the frame */
    EXPECT_EQ(count(svg, ",60.0"), 1u);
}

TEST_F(Curves, WithoutAPointAreRefused)
{
    const double x[] = { 0, -4, none }, y[] = { 1, 1, 1 };
    EXPECT_EQ(plot({ { "a", x, y, 3 } }), WEIR_EINVAL); /* none of them has a logarithm */
    EXPECT_EQ(plot({ { "a", y, x + 2, 1 } }), WEIR_EINVAL);
    EXPECT_EQ(plot({}), WEIR_EINVAL);
    EXPECT_EQ(plot(std::vector<weir_plot_curve>(25, { "a", y, y, 3 })), WEIR_EINVAL);
    EXPECT_EQ(plot(std::vector<weir_plot_curve>(24, { "a", y, y, 3 })), WEIR_OK) << error.text;
    expect_well_formed(svg);
}

TEST(HeatMap, HasACellPerValue)
{
    const double x[] = { 512, 4096 }, y[] = { 0, 50, 100 },
                 values[] = { 0, 0.5, 1, none, 0.25, 0.75 };
    const weir_plot_cells cells = { x, y, values, 2, 3, "accuracy" };
    weir_buffer out = {};
    weir_error error = {};
    ASSERT_EQ(weir_plot_heat_map(&out, &labels, &cells, &error), WEIR_OK) << error.text;
    const std::string svg(out.data, out.size);
    weir_buffer_free(&out);
    expect_well_formed(svg);
    EXPECT_EQ(count(svg, "stroke=\"#fff\""), 6u);
    EXPECT_EQ(count(svg, "fill=\"#ddd\""), 1u); /* the cell without a value */
    for (const char *mark :
         { "x=\"80.0\" y=\"60.0\" width=\"64.0\" height=\"34.0\" fill=\"#b2182b\"", /* 0 */
           "x=\"144.0\" y=\"60.0\" width=\"64.0\" height=\"34.0\" fill=\"#f7f7f7\"", /* 0.5 */
           "x=\"80.0\" y=\"94.0\" width=\"64.0\" height=\"34.0\" fill=\"#2166ac\"", /* 1 */
           ">0.25</text>", ">0.75</text>", ">512</text>", ">4K</text>", ">accuracy</text>" })
        EXPECT_EQ(count(svg, mark), 1u) << mark;
}

TEST(HeatMap, SizesAreChecked)
{
    const std::vector<double> many(65 * 64, 0.5);
    weir_buffer out = {};
    weir_error error = {};
    for (const auto &[n_x, n_y] :
         { std::pair<size_t, size_t>(0, 1), { 1, 0 }, { 65, 1 }, { 1, 65 } }) {
        const weir_plot_cells cells = { many.data(), many.data(), many.data(), n_x, n_y, "a" };
        EXPECT_EQ(weir_plot_heat_map(&out, &labels, &cells, &error), WEIR_EINVAL);
    }
    const weir_plot_cells cells = { many.data(), many.data(), many.data(), 64, 64, "a" };
    ASSERT_EQ(weir_plot_heat_map(&out, &labels, &cells, &error), WEIR_OK);
    expect_well_formed(std::string(out.data, out.size));
    weir_buffer_free(&out);
}

} // namespace
