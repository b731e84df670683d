/* A layer of CoDA-GQA-L so small that all of it can be written down: values that were worked out
 * apart from the published package and this engine. */
#include "engine/engine_parts.h"
#include "kernels/abi/coda.h"
#include "tests/unit/model/coda_layer.h"

namespace {

using support::Array;
using support::Layer;
using Floats = std::vector<float>;

Array worked(int64_t rows, int64_t columns, int s)
{
    Array out = { { rows, columns }, {} };
    for (int64_t a = 0; a < rows; a++)
        for (int64_t b = 0; b < columns; b++)
            out.values.push_back(
                static_cast<float>((((7 * a + 3 * b + 5 * a * b + s) % 11) - 5) / 11.0)
            );
    return out;
}

std::map<std::string, Array> worked_weights()
{
    std::map<std::string, Array> out = { { "q_proj.weight", worked(8, 8, 1) },
                                         { "k_proj.weight", worked(4, 8, 2) },
                                         { "v_proj.weight", worked(4, 8, 4) },
                                         { "o_proj.weight", worked(8, 8, 8) },
                                         { "lambda_proj.weight", worked(2, 8, 3) },
                                         { "lambda_proj.bias", { { 2 }, { -1, -1 } } },
                                         { "write_proj.bias", { { 1 }, { -1 } } },
                                         { "summary_eta_logit", { { 1 }, { -1 } } },
                                         { "theta", { { 2, 2 }, { 0.3f, 0.5f, 0.6f, 0.8f } } },
                                         { "head_norm.weight",
                                           { { 4 }, { 1, 1.1f, 1.2f, 1.3f } } } };
    const Array third = worked(3, 8, 6);
    out["write_proj.weight"] = { { 1, 8 }, { third.values.begin() + 16, third.values.end() } };
    return out;
}

/* Nine tokens through a layer of two heads of four, ring and banks of two slots each. */
struct Worked {
    const char *name;
    int block, n_prompt; /* the rest are steps */
    std::map<int, std::vector<float>> y; /* of some tokens */
    int64_t used_at[2], inserts, hits; /* at the end; -1: not told */
    std::map<int, std::vector<float>> rows; /* of slots, K then V */
};

void expect_worked(Layer *layer, const Worked &w)
{
    SCOPED_TRACE(w.name);
    support::Sequence sequence(layer->engine());
    Floats y = w.n_prompt > 0 ? layer->run(&sequence, 0, w.n_prompt, true) : Floats();
    if (w.n_prompt < 9) {
        const Floats steps = layer->run(&sequence, w.n_prompt, 9 - w.n_prompt, false);
        y.insert(y.end(), steps.begin(), steps.end());
    }
    for (const auto &[token, want] : w.y)
        for (size_t i = 0; i < 8; i++)
            EXPECT_NEAR(y[static_cast<size_t>(token) * 8 + i], want[i], 2e-5) << "token " << token;
    weir_coda_layer shape = {};
    shape.n_kv_heads = 1, shape.head_dim = 4, shape.window = shape.n_exact = shape.n_summary = 2,
    shape.format = WEIR_KV_F32;
    const int64_t offset =
        weir_model_layer_memory(weir_engine_model(layer->engine().get()), 0).state_offset;
    const weir_coda_state state = weir_coda_view(&shape, sequence.get()->recurrent + offset);
    const weir_bank_stats coda = weir_runner_bank_stats(layer->engine().runner(), sequence.get());
    EXPECT_EQ(state.used_at[0], w.used_at[0]);
    EXPECT_EQ(state.used_at[1], w.used_at[1]);
    if (w.inserts >= 0) EXPECT_EQ(coda.counts[WEIR_BANK_STATS_EXACT_INSERTS], w.inserts);
    if (w.hits >= 0) EXPECT_EQ(coda.counts[WEIR_BANK_STATS_EXACT_HITS], w.hits);
    for (const auto &[slot, want] : w.rows)
        for (const weir_kv_side side : { WEIR_KV_K, WEIR_KV_V }) {
            float row[4];
            weir_coda_read(&shape, &state, side, state.rows[slot], row);
            for (int i = 0; i < 4; i++)
                EXPECT_NEAR(row[i], want[static_cast<size_t>(side == WEIR_KV_K ? i : 4 + i)], 2e-5)
                    << "slot " << slot;
        }
}

TEST(CodaWorked, OutputsBanksAndCounts)
{
    const Floats y0 = { 0.4306664f, -0.7596555f, 0.05270246f, -0.756994f,
                        1.249945f,  1.353751f,   0.5440556f,  -0.1895156f };
    const std::vector<Worked> cases = {
        { "steps",
          8,
          0,
          { { 0, y0 },
            { 1,
              { 0.4393717f, -2.000412f, 0.9647642f, -0.9521059f, -0.3593745f, 1.896261f,
                -0.03489964f, -0.4379167f } },
            { 2,
              { 0.1798192f, -2.042299f, 1.001521f, -0.9549458f, -0.2302485f, 1.941415f,
                -0.03447132f, -0.2154991f } },
            { 3,
              { -0.4454455f, -1.941746f, 0.8822579f, -0.4003938f, 0.1116741f, 1.544026f, 0.2631454f,
                -0.2156318f } },
            { 4,
              { -0.7260083f, -1.259217f, 0.566018f, 0.04031885f, 0.7817537f, 0.7752696f, 0.5542864f,
                -0.4752299f } },
            { 5,
              { -0.5944467f, -0.155907f, 0.5613029f, 0.1129814f, 1.767498f, 0.2883193f, 0.5022568f,
                0.8440569f } },
            { 6,
              { -0.04623064f, 0.4890241f, 0.7959073f, 0.1120565f, 1.867993f, 0.08944708f,
                0.3052814f, 0.3234592f } },
            { 7,
              { -0.2517508f, 1.484171f, -0.2973011f, 0.07199284f, 0.8621719f, -0.1778082f,
                0.01632436f, 1.027583f } },
            { 8,
              { -0.1641938f, -1.001014f, 1.039873f, -0.6482069f, 0.9570575f, 1.589552f, 0.09492366f,
                0.6433794f } } },
          { 4, 6 },
          4,
          2,
          { { 2,
              { -0.7231529f, -0.08057316f, 0.4960153f, 1.276816f, -0.02272725f, 0.7045455f,
                0.5568182f, 0.5340909f } },
            { 3,
              { 0.1168969f, 1.52773f, -0.5577883f, -0.9040076f, -0.3295455f, -0.6022728f, 0.125f,
                0.2272727f } },
            { 4,
              { 0, 0, 0.7945676f, 1.100753f, 0.07339903f, 0.2798512f, -0.1056259f, 0.4831095f } },
            { 5,
              { 0, 0, -0.7885607f, -1.256078f, -0.3437403f, -0.6009824f, 0.1346783f,
                0.2240466f } } } },
        { "blocks of one",
          1,
          9,
          { { 0, y0 },
            { 8,
              { -0.5336076f, 0.1550318f, 0.7146704f, -0.1376445f, 1.155198f, 0.7019784f,
                0.02680128f, 1.05959f } } },
          { 4, 6 },
          -1,
          -1,
          { { 2,
              { -0.7231529f, -0.08057316f, 0.4960153f, 1.276816f, -0.02272725f, 0.7045455f,
                0.5568182f, 0.5340909f } },
            { 4, { 0, 0, 0.646215f, 1.370423f, -0.04893461f, 0.4285828f, 0.1488315f, 0.3472739f } },
            { 5,
              { 0, 0, -0.7875478f, -1.172448f, -0.3967808f, -0.5961605f, 0.1708423f,
                0.211992f } } } },
        { "blocks of three",
          3,
          9,
          { { 3,
              { -0.4368888f, -1.884882f, 0.8707868f, -0.3627661f, 0.1714694f, 1.525126f, 0.2885584f,
                -0.2288318f } },
            { 8,
              { -0.5828011f, -1.277928f, 1.342577f, -0.4854167f, -0.07115844f, 1.518088f,
                -0.3891616f, 0.8925186f } } },
          { 4, 6 },
          5,
          -1,
          { { 2,
              { -0.3909433f, -0.7134185f, 0.4832166f, 1.566031f, -0.2727273f, 0.7272727f,
                0.7272727f, 0.4772727f } },
            { 3,
              { -1.138268f, 0.887489f, -0.5544125f, -0.6252791f, -0.5795455f, -0.5795455f,
                0.2954546f, 0.1704546f } },
            { 4,
              { 0, 0, 0.7654135f, 1.331536f, -0.001048833f, 0.3736605f, 0.06870343f, 0.4747472f } },
            { 5,
              { 0, 0, -0.7863692f, -1.075136f, -0.4584986f, -0.5905498f, 0.2129226f,
                0.1979652f } } } },
        { "one block",
          9,
          9,
          { { 8,
              { -0.9728652f, -1.2583f, 0.9514905f, -0.4888572f, 0.9664227f, 1.270809f, 0.09127441f,
                1.216081f } } },
          { 2, 1 },
          2,
          -1,
          {} },
        { "a prompt and steps",
          3,
          5,
          { { 8,
              { -0.1864312f, -1.036477f, 1.087734f, -0.6447209f, 0.9009551f, 1.604319f, 0.06457099f,
                0.6585044f } } },
          { 4, 6 },
          -1,
          -1,
          {} },
        { "halves, no norm",
          8,
          0,
          { { 8,
              { 0.002830869f, -0.03897616f, 0.1196956f, -0.02437474f, 0.08749279f, 0.1123765f,
                -0.00277603f, 0.02672804f } } },
          { 4, 6 },
          -1,
          -1,
          {} },
    };
    const support::Folder folder;
    Floats x;
    for (int t = 0; t < 9; t++)
        for (int j = 0; j < 8; j++)
            x.push_back(static_cast<float>((13 * t + 7 * j + t * j) % 17 - 8) / 8.0f);
    for (const Worked &w : cases) {
        const bool is_half = std::string(w.name).rfind("halves", 0) == 0;
        Layer layer(folder, x, 8);
        const std::string options = golden::format(
            "window = 2\nlandmarks_exact = 2\nlandmarks_summary = 2\nblock_rows = %d\n"
            "band = \"upper_half\"\nhead_norm = \"%s\"\n",
            w.block, is_half ? "identity" : "full"
        );
        layer.write(
            worked_weights(),
            support::coda_block(options, "coda", is_half ? "half_split" : "pairs"), 2, 1, 4, 10000
        );
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        expect_worked(&layer, w);
    }
}

} // namespace
