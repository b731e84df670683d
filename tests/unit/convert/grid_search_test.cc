// The rows of grids: no row, and no signs that the type allows, are nearer than those found.
#include "tools/convert/grid_search.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "kernels/ref/levels.h"

namespace {

struct Case {
    weir_dtype dtype;
    sign_rule rule;
    int first_level; /* of the type's table */
};

class Grid : public ::testing::TestWithParam<Case> {
  protected:
    const grid *own = grid_of(GetParam().dtype);
    const int8_t *levels = weir_levels_of(GetParam().dtype) + GetParam().first_level;

    /* The level of digit i of a row. */
    int level(int row, int i) const
    {
        const int bits = own->n_levels == 8 ? 4 : 2, mask = own->n_levels - 1 + (bits == 2);
        return levels[own->rows[row] >> (bits * i) & mask];
    }

    /* The least error of n elements over all rows, these of which are negative. */
    double least(const float *x, const float *w, int n, unsigned negative, double scale) const
    {
        double best = std::numeric_limits<double>::infinity();
        for (int row = 0; row < own->n_rows; row++) {
            double error = 0;
            for (int i = 0; i < n; i++) {
                const double sign = negative >> i & 1 ? -1 : 1,
                             d = static_cast<double>(x[i]) - sign * scale * level(row, i);
                error += static_cast<double>(w[i]) * d * d;
            }
            best = std::min(best, error);
        }
        return best;
    }

    /* Over all rows and all signs that the rule allows. */
    double least_of_all(const float *x, const float *w, double scale) const
    {
        double best = std::numeric_limits<double>::infinity();
        for (unsigned signs = 0; signs < 256; signs++) {
            if (GetParam().rule == SIGNS_IN_LEVELS && signs > 0) break;
            if (GetParam().rule == SIGNS_EVEN && __builtin_popcount(signs) % 2 != 0) continue;
            best = std::min(
                best, own->n_levels == 3 ? least(x, w, 8, signs, scale)
                                         : least(x, w, 4, signs & 15, scale) +
                                               least(x + 4, w + 4, 4, signs >> 4, scale)
            );
        }
        return best;
    }
};

TEST_P(Grid, NothingIsNearer)
{
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::array<float, 8> x, w;
    for (int round = 0; round < 12; round++) {
        for (size_t i = 0; i < x.size(); i++) {
            x[i] = normal(random);
            w[i] = std::exp(normal(random));
        }
        const float scale = (0.3f + 0.2f * static_cast<float>(round)) /
                            static_cast<float>(levels[own->n_levels - 1]);
        eight codes = {};
        const float error =
            code_eight(&codes, own, levels, GetParam().rule, x.data(), w.data(), scale);
        EXPECT_NEAR(
            error, least_of_all(x.data(), w.data(), static_cast<double>(scale)), 1e-4 * error
        );

        /* The codes have that error, and are levels of the rows with these signs. */
        double sum = 0;
        const int n = own->n_levels == 3 ? 8 : 4;
        for (size_t i = 0; i < x.size(); i++) {
            const int at = static_cast<int>(i), sign = codes.signs >> i & 1 ? -1 : 1;
            const double d =
                static_cast<double>(x[i]) - static_cast<double>(scale) * codes.levels[i];
            sum += static_cast<double>(w[i]) * d * d;
            EXPECT_EQ(codes.levels[i], sign * level(codes.rows[at / n], at % n)) << i;
        }
        EXPECT_NEAR(error, sum, 1e-4 * sum);
        if (GetParam().rule == SIGNS_EVEN) EXPECT_EQ(__builtin_popcount(codes.signs) % 2, 0);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Types, Grid,
    ::testing::Values(
        Case{ WEIR_IQ1_S, SIGNS_IN_LEVELS, 0 }, Case{ WEIR_IQ1_S, SIGNS_IN_LEVELS, 4 },
        Case{ WEIR_IQ2_XXS, SIGNS_EVEN, 0 }, Case{ WEIR_IQ2_XS, SIGNS_EVEN, 0 },
        Case{ WEIR_IQ2_S, SIGNS_FREE, 0 }, Case{ WEIR_IQ3_XXS, SIGNS_EVEN, 0 },
        Case{ WEIR_IQ3_S, SIGNS_FREE, 0 }
    ),
    [](const ::testing::TestParamInfo<Case> &info) {
        return std::string(weir_dtype_of(info.param.dtype).name) +
               (info.param.first_level > 0 ? "_low" : "");
    }
);

} // namespace
