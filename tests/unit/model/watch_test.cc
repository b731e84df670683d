/* What a step shows to its observer: queries before and after rotation, and what attention gave
 * to each row, against sums in double over the rows that are in the pages. */
#include <cmath>
#include <map>

#include "kernels/abi/ops.h"
#include "offload/dispatch.h"
#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Sequence;

constexpr int32_t most_rows = 64, stride = 160;

/* What was seen of one layer. */
struct Layer {
    std::vector<float> queries, plain, mass, below,
        last; /* queries [n, heads, dim]; the others [heads, stride] */
};

class Watch : public ::testing::Test {
  protected:
    void open(const char *model, const char *format)
    {
        ASSERT_EQ(
            engine_.open(
                support::golden(model),
                { "kernels.activations=f32", std::string("kv.format=") + format,
                  "model.context=256", "kv.reuse=off" }
            ),
            WEIR_OK
        ) << engine_.text();
        const weir_kv_spec *const spec = weir_kv_store_spec(weir_engine_store(engine_.get()));
        weir_workspace_limits limits = {};
        limits.rows = most_rows;
        limits.segments = limits.logits = 1;
        limits.context = 256;
        limits.formats = spec->formats;
        limits.evicts = true;
        ASSERT_EQ(
            weir_workspace_open(
                &workspace_, weir_engine_model(engine_.get()), weir_engine_ledger(engine_.get()),
                &limits, engine_.error()
            ),
            WEIR_OK
        ) << engine_.text();
    }
    void close()
    {
        weir_workspace_close(workspace_);
        workspace_ = nullptr;
        engine_.close();
    }
    void TearDown() override { close(); }

    static void on_seen(
        void *user, int64_t layer, const float *queries, int64_t row_stride, int64_t head_stride
    )
    {
        Watch *const self = static_cast<Watch *>(user);
        const weir_shape &shape = self->engine_.shape();
        Layer seen = { {}, self->plain_, self->mass_, self->below_, self->last_ };
        for (int64_t r = 0; r < self->n_; r++)
            for (int64_t h = 0; h < shape.n_heads; h++)
                seen.queries.insert(
                    seen.queries.end(), queries + r * row_stride + h * head_stride,
                    queries + r * row_stride + h * head_stride + shape.head_dim
                );
        self->seen_[layer] = seen;
    }
    /* The next n tokens of a sequence, watched. */
    void step(Sequence &sequence, int32_t n)
    {
        weir_kv_sequence *const s = sequence.get();
        const weir_shape &shape = engine_.shape();
        const size_t heads = static_cast<size_t>(shape.n_heads);
        const int32_t last = n - 1;
        const float *logits = nullptr;
        ASSERT_EQ(weir_kv_reserve(&s->table, weir_engine_store(engine_.get()), n), WEIR_OK);
        n_ = n;
        plain_.assign(static_cast<size_t>(n) * heads * static_cast<size_t>(shape.head_dim), NAN);
        logits_.assign(heads * stride, NAN);
        mass_ = below_ = last_ = logits_;
        weir_attention_watch watch = { logits_.data(), mass_.data(),  below_.data(), last_.data(),
                                       stride,         plain_.data(), on_seen,       this };
        if (wants_last_only_) watch.mass = watch.below = nullptr;
        weir_batch_segment segment = {};
        segment.n_rows = n;
        segment.n_past = s->n_computed;
        segment.pages = s->table.pages;
        segment.page_stride = s->table.capacity;
        segment.unsealed = s->table.unsealed;
        segment.recurrent = s->recurrent;
        segment.watch = &watch;
        weir_batch batch = {};
        batch.tokens = s->tokens + s->n_computed;
        batch.segments = &segment;
        batch.logit_rows = &last;
        batch.n_rows = n;
        batch.n_segments = batch.n_logits = 1;
        batch.formats = weir_kv_store_spec(weir_engine_store(engine_.get()))->formats;
        seen_.clear();
        ASSERT_EQ(
            weir_model_forward(
                weir_engine_model(engine_.get()), workspace_, &batch, &logits, engine_.error()
            ),
            WEIR_OK
        ) << engine_.text();
        weir_kv_commit(&s->table, n);
        s->n_computed += n;
    }
    /* Keys of all rows of one head, as attention reads them. */
    std::vector<float> keys(Sequence &sequence, int64_t layer, int64_t head)
    {
        weir_kv_sequence *const s = sequence.get();
        const weir_shape &shape = engine_.shape();
        weir_kv_segment segment = {};
        std::vector<float> k(static_cast<size_t>(s->n_computed * shape.head_dim));
        const weir_kv_pair pair =
            weir_kv_store_spec(weir_engine_store(engine_.get()))->formats[layer];
        segment.pages = s->table.pages + (layer * shape.n_kv_heads + head) * s->table.capacity;
        segment.page_stride = s->table.capacity;
        segment.n_rows = s->n_computed;
        weir_kv_read_args args = {};
        args.k = k.data();
        args.segments = &segment;
        args.n_segments = args.n_kv_heads = 1;
        args.key_dim = args.value_dim = args.k_stride = shape.head_dim;
        args.k_format = pair.k;
        args.v_format = pair.v;
        EXPECT_EQ(weir_kv_read(weir_engine_stream(engine_.get()), &args), WEIR_OK);
        return k;
    }
    /* Softmax of row r of query head h over the rows that it sees. */
    std::vector<double> weights(
        const Layer &layer, const std::vector<float> &k, int64_t h, int64_t r, int64_t n_seen
    ) const
    {
        const int64_t dim = engine_.shape().head_dim, heads = engine_.shape().n_heads;
        std::vector<double> p(static_cast<size_t>(n_seen));
        double greatest = -1e300, sum = 0;
        for (int64_t j = 0; j < n_seen; j++) {
            double dot = 0;
            for (int64_t d = 0; d < dim; d++)
                dot += static_cast<double>(
                           layer.queries[static_cast<size_t>((r * heads + h) * dim + d)]
                       ) *
                       static_cast<double>(k[static_cast<size_t>(j * dim + d)]);
            p[static_cast<size_t>(j)] = dot / std::sqrt(static_cast<double>(dim));
            greatest = std::max(greatest, p[static_cast<size_t>(j)]);
        }
        for (double &x : p) sum += x = std::exp(x - greatest);
        for (double &x : p) x /= sum;
        return p;
    }
    void check(Sequence &sequence, int32_t n, const std::string &what)
    {
        const weir_shape &shape = engine_.shape();
        const int64_t group = shape.n_heads / shape.n_kv_heads, end = sequence.get()->n_computed,
                      past = end - n;
        ASSERT_EQ(
            static_cast<int64_t>(seen_.size()),
            weir_model_kv_layers(weir_engine_model(engine_.get()))
        ) << what;
        for (const auto &[index, layer] : seen_)
            for (int64_t h = 0; h < shape.n_heads; h++) {
                const std::vector<float> k = keys(sequence, index, h / group);
                std::vector<double> mass(static_cast<size_t>(end)), below(mass), last(mass);
                double sum = 0;
                for (int64_t r = 0; r < n; r++) {
                    last = weights(layer, k, h, r, past + r + 1);
                    for (size_t j = 0; j < last.size(); j++) {
                        mass[j] += last[j];
                        below[j] += last[j] < 1.0 / static_cast<double>(last.size());
                    }
                }
                int n_unsure = 0; /* a weight as good as the mean */
                for (size_t j = 0; j < mass.size(); j++) {
                    const size_t at = static_cast<size_t>(h * stride) + j;
                    ASSERT_NEAR(layer.mass[at], mass[j], 1e-4 * n)
                        << what << " layer " << index << " head " << h << " row " << j;
                    ASSERT_NEAR(layer.last[at], last[j], 1e-4)
                        << what << " layer " << index << " head " << h << " row " << j;
                    n_unsure += std::fabs(static_cast<double>(layer.below[at]) - below[j]) > 0.5;
                    sum += static_cast<double>(layer.mass[at]);
                }
                EXPECT_LE(n_unsure, 2) << what;
                EXPECT_NEAR(sum, n, 1e-3 * n) << what;
            }
    }
    Engine engine_;
    weir_workspace *workspace_ = nullptr;
    std::map<int64_t, Layer> seen_;
    std::vector<float> logits_, mass_, below_, last_, plain_;
    int32_t n_ = 0;
    bool wants_last_only_ = false;
};

TEST_F(Watch, AttentionIsWhatTheRowsSay)
{
    for (const char *const model : { "tq", "qwen3", "llama" })
        for (const char *const format : { "f32", "f16", "q8_0" }) {
            if (engine_.plan(
                    support::golden(model),
                    { std::string("kv.format=") + format, "model.context=256" }
                ) != WEIR_OK)
                continue;
            open(model, format);
            {
                Sequence sequence(engine_);
                std::vector<int32_t> tokens;
                for (int i = 0; i < 140; i++) tokens.push_back((i * 31 + i * i) % 300);
                sequence.add(tokens);
                for (const int32_t n : { 64, 37, 1, 1, 20 }) {
                    step(sequence, n);
                    check(
                        sequence, n,
                        std::string(model) + " " + format + " step of " + std::to_string(n)
                    );
                    if (HasFatalFailure()) return;
                }
            }
            close();
        }
}

/* Of the logits that attention keeps, as if it had come alone: K is not read again. */
TEST_F(Watch, TheLastRowOfAPieceIsThatOfAStep)
{
    for (const char *const model : { "tq", "qwen3" }) {
        open(model, "q8_0");
        {
            Sequence piece(engine_), steps(engine_);
            std::vector<int32_t> tokens;
            for (int i = 0; i < 101; i++) tokens.push_back((i * 31 + i * i) % 300);
            piece.add(tokens);
            steps.add(tokens);
            wants_last_only_ = true;
            for (const int32_t n : { 64, 37 }) step(piece, n);
            const std::map<int64_t, Layer> seen = seen_;
            wants_last_only_ = false;
            for (const int32_t n : { 64, 36, 1 }) step(steps, n);
            for (const auto &[index, layer] : seen_)
                for (size_t h = 0; h < static_cast<size_t>(engine_.shape().n_heads); h++)
                    EXPECT_EQ(
                        memcmp(
                            &layer.last[h * stride], &seen.at(index).last[h * stride],
                            101 * sizeof(float)
                        ),
                        0
                    ) << model
                      << " layer " << index << " head " << h;
            EXPECT_TRUE(std::isnan(seen.begin()->second.mass[0]));
        }
        close();
    }
}

/* Rotated by RoPE, the plain queries are the others. */
TEST_F(Watch, PlainQueriesAreThoseBeforeRotation)
{
    for (const char *const model : { "tq", "qwen3" }) {
        open(model, "f16");
        {
            Sequence sequence(engine_);
            std::vector<int32_t> tokens;
            for (int i = 0; i < 60; i++) tokens.push_back((i * 17 + i * i) % 300);
            sequence.add(tokens);
            const weir_shape &shape = engine_.shape();
            for (const int32_t n : { 40, 20 }) {
                const int32_t first = sequence.get()->n_computed;
                step(sequence, n);
                for (auto &[index, layer] : seen_) {
                    std::vector<float> rotated = layer.plain;
                    std::vector<int32_t> positions;
                    for (int32_t i = 0; i < n; i++) positions.push_back(first + i);
                    const weir_rope_table *const rope =
                        weir_model_rope(weir_engine_model(engine_.get()));
                    weir_rope_args args = {};
                    args.x = rotated.data();
                    args.positions = positions.data();
                    args.frequencies = rope->frequencies;
                    args.magnitude = rope->magnitude;
                    args.n_rows = n;
                    args.n_heads = shape.n_heads;
                    args.rotary_dim = shape.rotary_dim;
                    args.row_stride = shape.n_heads * shape.head_dim;
                    args.head_stride = shape.head_dim;
                    args.pairing = WEIR_ROPE_HALF_SPLIT;
                    ASSERT_EQ(weir_rope(weir_engine_stream(engine_.get()), &args), WEIR_OK);
                    EXPECT_EQ(rotated, layer.queries) << model << " layer " << index;
                    EXPECT_NE(layer.plain, layer.queries) << model << " layer " << index;
                }
            }
        }
        close();
    }
}

} // namespace
